//! Triggers on the sources of IMMEDIATE stream tables, which bring a stream table up to date within the
//! statements of writers.
//!
//! The module [`trickle_core::immediate`] describes what the triggers do. A full refresh creates the
//! triggers in its own transaction. The triggers are dropped when the stream table is altered or gets
//! another mode. Until the next full refresh, the stream table is stale and marked for a recompute.

use crate::capture::{table_by_oid, texts, with_children};
use crate::catalog::PgCatalog;
use crate::db::{Connection, RefreshDriver, Row};
use crate::design::Design;
use crate::error::{Error, Result};
use crate::locks::patiently;
use crate::names::HIDDEN;
use crate::registry::{Entry, Registry, shown};
use crate::resolve::Resolved;
use crate::trickle::Trickle;
use std::sync::Arc;
use trickle_core::catalog::TableId;
use trickle_core::cdc::Buffer;
use trickle_core::immediate::{Immediate, Key, Modified, Needs};
use trickle_core::refresh::{Compiled, Effect, Installed, Setting, Template};
use trickle_core::sql::Qualified;
use trickle_core::stream_table::StreamTable;
use trickle_core::vocabulary::Mode;
use trickle_core::{Cause, Reason, ReasonKind};
use xxhash_rust::xxh64::xxh64;

/// Facts about a source that rule out the mode IMMEDIATE, in the order of the messages in
/// `against_immediate`. Statement triggers do not see all changes of some tables. A source that is a stream
/// table may be refreshed at its own times. The user may have switched capture off. Attaching or detaching a
/// partition changes rows and fires no statement trigger. Only the extension's event triggers report such a
/// change.
const UNSEEN: &str = "
SELECT c.oid, pgtrickle.is_subscribed(c.oid), EXISTS (SELECT FROM pg_inherits WHERE inhrelid = c.oid),
    c.relkind = 'p' AND NOT EXISTS (SELECT FROM pg_event_trigger g JOIN pg_proc p ON p.oid = g.evtfoid
        WHERE p.pronamespace = to_regnamespace('pgtrickle') AND p.proname = 'on_alter' AND g.evtenabled <> 'D'),
    coalesce(s.refresh_mode <> 'IMMEDIATE', false), coalesce(b.capture = 'HELD', false)
FROM pg_class c LEFT JOIN pgtrickle.pgt_stream_tables s ON s.pgt_relid = c.oid
LEFT JOIN pgtrickle.pgt_buffers b ON b.source_relid = c.oid
WHERE c.oid = ANY ($1) ORDER BY c.oid";

impl<C: RefreshDriver> Trickle<C> {
    /// Returns the reasons that rule out the mode IMMEDIATE for a query, in addition to the reasons against
    /// deltas.
    pub(crate) async fn against_immediate(
        &self,
        resolved: &Resolved,
        table: Option<&StreamTable>,
    ) -> Result<Vec<Reason>> {
        let mut against = Vec::new();
        let reason = |construct: String, help: &str| Reason {
            span: None,
            kind: ReasonKind::NotYet,
            cause: Cause::Source,
            construct,
            help: help.to_owned(),
        };
        if table.is_some_and(StreamTable::reads_clock) {
            let help = "Time passes while nobody writes: use mode DIFFERENTIAL with a schedule.";
            against.push(reason("a condition on the time, of what writers keep".to_owned(), help));
        }
        let oids: Vec<u32> = resolved.dependencies.iter().map(|d| d.oid).collect();
        let rows = self.db().query(UNSEEN, &[&oids]).await;
        for r in rows.map_err(|e| Error::server("look how tables are written", e))? {
            let Some(d) = resolved.dependencies.iter().find(|d| d.oid == r.get::<u32>(0)) else { continue };
            let name = Qualified::new(&d.schema, &d.name);
            let said = [
                (
                    format!("{name}, which a subscription writes, under IMMEDIATE"),
                    "What a subscription applies fires no triggers of statements: use mode DIFFERENTIAL.",
                ),
                (
                    format!("{name}, a partition or child, under IMMEDIATE"),
                    "Statements that name its parent do not fire its triggers: query the parent, or use mode DIFFERENTIAL.",
                ),
                (
                    format!("{name}, a partitioned table, under IMMEDIATE"),
                    "Partitions come and go with their rows, and no trigger is told: use mode DIFFERENTIAL, or the extension, \
                     which follows them.",
                ),
                (
                    format!("{name}, a stream table that refreshes keep, under IMMEDIATE"),
                    "It changes when it is refreshed: make it IMMEDIATE too, or use mode DIFFERENTIAL here.",
                ),
                (
                    format!("{name}, of which nothing is to be captured, under IMMEDIATE"),
                    self.voice().one(
                        "trickle disable switched it off; trickle enable switches it on.",
                        "The program's trickle disable switched it off; its trickle enable switches it on.",
                    ),
                ),
            ];
            let holds = |(i, said)| r.get::<bool>(i + 1).then_some(said);
            against.extend(said.into_iter().enumerate().filter_map(holds).map(|(c, help)| reason(c, help)));
        }
        Ok(against)
    }

    /// Drops the triggers of all IMMEDIATE stream tables that read a table, so that writers of the table
    /// never fail because of these triggers. Returns whether there were such stream tables.
    pub(crate) async fn release_writers(&mut self, source: u32) -> Result<bool> {
        let registry = self.registry().await?;
        let reads = |e: &&Entry| e.is_immediate() && e.read().any(|d| d.relation.id == TableId(source));
        let readers: Vec<&Entry> = registry.entries().filter(reads).collect();
        for e in &readers {
            self.stop_immediate(e, "the capture of a table that it reads was switched off").await?;
        }
        Ok(!readers.is_empty())
    }

    /// Drops the triggers of an IMMEDIATE stream table, and marks the stream table for a recompute.
    pub(crate) async fn stop_immediate(&mut self, e: &Entry, why: &str) -> Result<()> {
        let tables: Vec<u32> = e.read().map(|d| d.relation.id.0).collect();
        let (patience, progress) = (self.settings.patience, self.progress.clone());
        let (id, fail) = (e.id, |err| Error::server("stop keeping a stream table", err));
        patiently(&mut self.connection, patience, &tables, &*progress, async |t| {
            remove(t, id).await?;
            let text = "UPDATE pgtrickle.pgt_stream_tables SET needs_reinit = true, reinit_reason = $2, updated_at = now() \
                 WHERE pgt_id = $1";
            t.execute(text, &[&id, &why]).await.map(|_| ()).map_err(fail)
        })
        .await
    }
}

/// Returns an error where a stream table would lose the mode IMMEDIATE while other IMMEDIATE stream tables
/// read it.
pub(crate) fn require_writers(registry: &Registry, e: &Entry, design: &Design) -> Result<()> {
    if design.mode() == Mode::Immediate || !e.is_immediate() {
        return Ok(());
    }
    let reads = |r: &&Entry| r.is_immediate() && r.read().any(|d| d.relation.id == e.relation.id);
    match registry.entries().find(reads) {
        None => Ok(()),
        Some(reader) => Err(Error::input(format!("{} must stay IMMEDIATE", shown(e)))
            .detail(format!("{} reads it, and is kept within the statements that write it.", shown(reader)))
            .hint(format!("Alter {} first.", shown(reader)))),
    }
}

/// The tables that stream table `$1` reads only through other stream tables, and never directly.
const ABOVE: &str = "
WITH RECURSIVE above(id) AS (
    SELECT u.pgt_id FROM pgtrickle.pgt_dependencies d JOIN pgtrickle.pgt_stream_tables u ON u.pgt_relid = d.source_relid
    WHERE d.pgt_id = $1
    UNION SELECT u.pgt_id FROM above a JOIN pgtrickle.pgt_dependencies d ON d.pgt_id = a.id
        JOIN pgtrickle.pgt_stream_tables u ON u.pgt_relid = d.source_relid
)
SELECT DISTINCT n.nspname, c.relname FROM above a JOIN pgtrickle.pgt_dependencies d ON d.pgt_id = a.id
JOIN pg_class c ON c.oid = d.source_relid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE d.source_type = 'TABLE'
  AND d.source_relid NOT IN (SELECT own.source_relid FROM pgtrickle.pgt_dependencies own WHERE own.pgt_id = $1)
ORDER BY 1, 2";

/// Whether the triggers of an IMMEDIATE stream table are equal to the triggers that would be made for this
/// plan.
pub(crate) async fn is_kept_by(db: &dyn Connection, e: &Entry, table: &Arc<StreamTable>) -> Result<bool> {
    let (made, _) = made(db, e, table).await?;
    let text = "SELECT kept_hash IS NOT DISTINCT FROM $2 FROM pgtrickle.pgt_stream_tables WHERE pgt_id = $1";
    let row = db.query_opt(text, &[&e.id, &hash(&made.join(";"))]).await;
    let row = row.map_err(|err| Error::server("compare the triggers of a stream table", err))?;
    Ok(row.is_some_and(|r| r.get(0)))
}

fn hash(made: &str) -> String {
    format!("{:016x}", xxh64(made.as_bytes(), 0))
}

/// Returns the statements that make the triggers of a stream table. Returns also an SQL condition which is
/// true if the owner still has the rights that the statements were made for.
async fn made(db: &dyn Connection, e: &Entry, table: &Arc<StreamTable>) -> Result<(Vec<String>, String)> {
    let mut sources = Vec::new();
    for (def, columns) in table.sources() {
        sources.push(with_children(db, Buffer::new(def, HIDDEN, &columns)).await?);
    }
    let (mut above, mut catalog) = (Vec::new(), PgCatalog::new());
    let rows = db.query(ABOVE, &[&e.id]).await;
    for r in rows.map_err(|e| Error::server("read what a stream table stands on", e))? {
        if let Some(def) = table_by_oid(db, &mut catalog, r.get(0), r.get(1)).await? {
            above.push(with_children(db, Buffer::new(def, HIDDEN, &[])).await?);
        }
    }
    let (settings, needs) = needs(db, e, table).await?;
    let list = |oids: &[u32]| oids.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let permitted = format!(
        "(SELECT callable = '{{{}}}' AND schemas = '{{{}}}' FROM pgtrickle.rights_of({}))",
        list(&needs.callable),
        list(&needs.schemas),
        e.id
    );
    let kept = Immediate::new(table, e.id, sources, &settings)?.below(above).needing(needs);
    Ok((texts(&kept.install()?), permitted))
}

/// Returns the program that recomputes an IMMEDIATE stream table and makes its triggers.
pub(crate) async fn program(db: &dyn Connection, e: &Entry, table: &Arc<StreamTable>) -> Result<Installed> {
    let (made, permitted) = made(db, e, table).await?;
    let read: Vec<String> = table.sources().iter().map(|(def, _)| def.id.0.to_string()).collect();
    let allowed = format!("SELECT pgtrickle.require_owner('{{{}}}')", read.join(","));
    let handed = format!("SELECT pgtrickle.hand_to_owner({})", e.id);
    let unmarked = format!("DELETE FROM pgtrickle.pgt_marks WHERE pgt_id = {}", e.id);
    let noted = format!(
        "UPDATE pgtrickle.pgt_stream_tables SET kept_hash = '{}', \
         triggers_fingerprint = CASE WHEN {permitted} THEN pgtrickle.immediate_fingerprint(pgt_id) END WHERE pgt_id = {}",
        hash(&made.join(";")),
        e.id
    );
    let mark = db.mark_of_work().map(str::to_owned);
    let made = mark.into_iter().chain(made).chain([handed, unmarked]);
    let mut then = vec![Template::plain(allowed, Effect::Nothing)];
    then.extend(made.map(|text| Template::plain(text, Effect::Defined)));
    then.push(Template::plain(noted, Effect::Nothing));
    Ok(Installed::new(Compiled::new(table.clone()), then))
}

/// The keys of the tables `$1`.
const KEYS: &str = "
SELECT i.indrelid, i.indexrelid, (i.indkey::int2[])[0:i.indnkeyatts - 1], i.indisprimary FROM pg_index i
WHERE i.indrelid = ANY ($1) AND i.indisunique AND pgtrickle.is_key(i.indexrelid) ORDER BY i.indrelid, i.indexrelid";

/// Returns the settings under which the triggers of a stream table run, and the [`Needs`] of these triggers.
///
/// The search path is `pg_catalog` alone where the query uses only built-in functions, types and objects, and
/// converts no text to an object name. Such a query cannot find objects in other schemas, whatever the search
/// path is. Where a cast only looks like such a conversion, the triggers use the longer search path although
/// they do not need it.
async fn needs(db: &dyn Connection, e: &Entry, table: &StreamTable) -> Result<(Vec<Setting>, Needs)> {
    let sources = table.sources();
    let mut columns = sources.iter().flat_map(|(def, _)| &def.columns);
    let names = e.query.contains("::reg") || columns.any(|c| c.ty.is_name_by_path());
    let ids: Vec<u32> = sources.iter().map(|(def, _)| def.id).chain([e.relation.id]).map(|id| id.0).collect();
    let keys = db.query(KEYS, &[&ids]).await.map_err(|err| Error::server("read the keys of sources", err))?;
    // The triggers need the keys of sources that the plan relies on, and all keys of the stream table itself.
    let known = |r: &Row| {
        let (of, numbers) = (r.get::<u32>(0), r.get::<Vec<i16>>(2));
        let Some((def, _)) = sources.iter().find(|(def, _)| def.id.0 == of) else { return true };
        let number = |c: &usize| def.columns.get(*c).map(|c| c.number);
        def.keys.iter().any(|k| k.iter().filter_map(number).eq(numbers.iter().copied()))
    };
    let keys: Vec<Row> = keys.into_iter().filter(known).collect();
    let key = |r: &Row| Key { table: TableId(r.get(0)), index: r.get(1), columns: r.get(2) };
    let named = db.query(NAMED, &[&e.id]).await;
    let named = named.map_err(|err| Error::server("read the columns that a query names", err))?;
    let modified = db.query(MODIFIED, &[&ids]).await;
    let modified = modified.map_err(|err| Error::server("read the modifiers of columns", err))?;
    let modified: Vec<Modified> = modified.iter().filter_map(|r| modified_of(table, r)).collect();
    let (never_null, keys) = (never_null(&named, table, &keys), keys.iter().map(key).collect());
    let own =
        table_by_oid(db, &mut PgCatalog::new(), &e.relation.schema, &e.relation.name).await?.map(|def| {
            let columns: Vec<usize> = (0..def.columns.len()).collect();
            Buffer::new(def, HIDDEN, &columns)
        });
    let rights = db.query_one("SELECT callable, schemas FROM pgtrickle.rights_of($1)", &[&e.id]).await;
    let rights = rights.map_err(|err| Error::server("read what the owner of a stream table may use", err))?;
    let (callable, schemas) = (rights.get(0), rights.get(1));
    if e.functions.is_empty() && e.types.is_empty() && e.objects.is_empty() && !names {
        let mut settings = e.in_force.clone();
        let paths = settings.iter_mut().filter(|s| s.name == "search_path");
        paths.for_each(|s| s.values = vec!["pg_catalog".to_owned()]);
        return Ok((
            settings,
            Needs { keys, own, never_null, modified, callable, schemas, ..Needs::default() },
        ));
    }
    let text = "SELECT pgtrickle.type_names($1), pgtrickle.functions_fingerprint($2), pgtrickle.objects_fingerprint($3)";
    let now = db.query_one(text, &[&e.types, &e.functions, &e.objects]).await;
    let now = now.map_err(|err| Error::server("read the names of types and functions", err))?;
    let needs = Needs {
        functions: e.functions.clone(),
        bodies: now.get(1),
        callable,
        schemas,
        objects: e.objects.clone(),
        properties: now.get(2),
        types: e.types.clone(),
        names: now.get(0),
        path: e.path(),
        keys,
        own,
        never_null,
        modified,
    };
    Ok((e.in_force.clone(), needs))
}

/// The columns of tables that a query names, in the order of their numbers.
const NAMED: &str = "SELECT source_relid, unnest(coalesce(named_columns, ARRAY(SELECT a.attnum FROM pg_attribute a \
     WHERE a.attrelid = source_relid AND a.attnum > 0))) FROM pgtrickle.pgt_dependencies WHERE pgt_id = $1 ORDER BY 1, 2";

/// The columns of the tables `$1` whose types have modifiers.
const MODIFIED: &str = "SELECT attrelid, attnum, atttypmod FROM pg_attribute \
     WHERE attrelid = ANY ($1) AND attnum > 0 AND atttypmod <> -1 AND NOT attisdropped ORDER BY 1, 2";

/// Returns the column of a source, if the plan reads it.
fn modified_of(table: &StreamTable, row: &Row) -> Option<Modified> {
    let (of, column) = (row.get::<u32>(0), row.get::<i16>(1));
    let (def, read) = table.sources().into_iter().find(|(def, _)| def.id.0 == of)?;
    let reads = read.iter().filter_map(|c| def.columns.get(*c)).any(|c| c.number == column);
    reads.then(|| Modified { table: def.id, column, modifier: row.get(2) })
}

/// Returns the columns that have no NULL, as the plan requires, but that could get a NULL after an ALTER
/// TABLE. The columns of a primary key are left out, since they have no NULL while the primary key exists.
fn never_null(named: &[Row], table: &StreamTable, keys: &[Row]) -> Vec<(TableId, usize)> {
    let primary = |of: u32, number| {
        let key = keys.iter().find(|r| r.get(3) && r.get::<u32>(0) == of);
        key.is_some_and(|r| r.get::<Vec<i16>>(2).contains(&number))
    };
    let position = |r: &Row| {
        let (of, number) = (r.get::<u32>(0), r.get::<i16>(1));
        let (def, _) = table.sources().into_iter().find(|(def, _)| def.id.0 == of)?;
        let position = def.columns.iter().position(|c| c.number == number && !c.nullable)?;
        (!primary(of, number)).then_some((def.id, position))
    };
    named.iter().filter_map(position).collect()
}

/// Drops the triggers of an IMMEDIATE stream table, with their functions and tables. Does nothing where the
/// stream table has no triggers.
///
/// The function first locks all sources of the triggers against writers. DROP TRIGGER locks a table against
/// readers too. Without the first lock, a writer of one source, which reads the other sources, could cause a
/// deadlock. On a table of another role, the triggers are dropped by dropping their functions, without the
/// first lock.
pub(crate) async fn remove(t: &dyn Connection, id: i64) -> Result<()> {
    let fail = |e| Error::server("drop the triggers of a stream table", e);
    let lock = "SELECT pg_catalog.format('LOCK TABLE %s IN SHARE ROW EXCLUSIVE MODE', \
             string_agg(DISTINCT g.tgrelid::regclass::text, ', ')) FROM pg_trigger g JOIN pg_proc p ON p.oid = g.tgfoid \
         JOIN pg_class c ON c.oid = g.tgrelid AND pg_has_role(c.relowner, 'USAGE') WHERE p.pronamespace = to_regnamespace($1) AND starts_with(p.proname, $2) HAVING count(*) > 0";
    if let Some(row) = t.query_opt(lock, &[&HIDDEN, &format!("immediate_{id}_")]).await.map_err(fail)? {
        t.as_catalog_owner(row.get(0)).await.map_err(fail)?;
    }
    let unmark = format!("DELETE FROM pgtrickle.pgt_marks WHERE pgt_id = {id}");
    t.as_catalog_owner(&unmark).await.map_err(fail)?;
    let objects = "WITH own AS (SELECT p.oid FROM pg_proc p WHERE p.pronamespace = to_regnamespace($1) \
             AND starts_with(p.proname, $2)) \
         SELECT 0, pg_catalog.format('DROP TRIGGER %I ON %s', g.tgname, g.tgrelid::regclass) FROM pg_trigger g \
             JOIN own ON own.oid = g.tgfoid JOIN pg_class c ON c.oid = g.tgrelid AND pg_has_role(c.relowner, 'USAGE') \
             WHERE g.tgparentid = 0 \
         UNION ALL SELECT 1, pg_catalog.format('DROP FUNCTION %s CASCADE', oid::regprocedure) FROM own \
         UNION ALL SELECT 2, pg_catalog.format('DROP TABLE %s', c.oid::regclass) FROM pg_class c \
             WHERE c.relnamespace = to_regnamespace($1) AND c.relkind = 'r' \
             AND (c.relname = rtrim($2, '_') OR starts_with(c.relname, $2)) ORDER BY 1, 2";
    let rows = t.query(objects, &[&HIDDEN, &format!("immediate_{id}_")]).await.map_err(fail)?;
    let texts: Vec<String> = rows.iter().map(|r| r.get(1)).collect();
    if texts.is_empty() {
        return Ok(());
    }
    t.as_catalog_owner(&texts.join(";\n")).await.map_err(fail)
}
