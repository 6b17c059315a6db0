//! Compiles the stored query of a stream table into the program that refreshes run.

use crate::cache::Runnable;
use crate::catalog::{self, PgCatalog, copies, is_copy};
use crate::db::{Connection, RefreshDriver, Row};
use crate::design::{layout_hash, options};
use crate::error::{Error, Result};
use crate::immediate;
use crate::registry::{Dependency, Entry, shown};
use crate::trickle::Trickle;
use std::sync::Arc;
use trickle_core::apply::Identity;
use trickle_core::catalog::{TableId, TableKind};
use trickle_core::parse::parse_query;
use trickle_core::refresh::{Compiled, Copied, KeyColumn, Recompute};
use trickle_core::sql::{Ident, Qualified};
use trickle_core::stream_table::{Captured, Expr, Options, StreamTable};
use trickle_core::vocabulary::Mode;

impl<C: RefreshDriver> Trickle<C> {
    /// Returns the plan and the program of a stream table, which are compiled once for each definition.
    pub(crate) async fn runnable(&mut self, e: &Entry) -> Result<Runnable> {
        let made_from = format!(
            "{}\0{}\0{:?}\0{:?}\0{}\0{:?}\0{:?}",
            e.definition,
            e.query,
            e.relation,
            e.dependencies,
            e.mode,
            e.layout_hash,
            e.path()
        );
        if let Some((from, runnable)) = self.cache.compiled.get(&e.id)
            && *from == made_from
        {
            return Ok(runnable.clone());
        }
        let mut catalog = PgCatalog::under(e.path());
        catalog.calling(&e.functions);
        let runnable = compile_entry(self.db(), &mut catalog, e, self.server).await?;
        self.cache.compiled.insert(e.id, (made_from, runnable.clone()));
        Ok(runnable)
    }
}

/// Compiles the stored query of a stream table against the present catalog.
///
/// # Errors
/// The query is not valid any more; errors of the server.
async fn compile_entry(
    db: &dyn Connection,
    catalog: &mut PgCatalog,
    e: &Entry,
    server: u32,
) -> Result<Runnable> {
    let copy = is_copy(&e.relation);
    if e.mode != Mode::Full || copy {
        if e.reads_copies() {
            catalog.put_copies(copies(db).await?);
        }
        catalog.plan_with(e.planned_with());
        let parsed = parse_query(&e.query)?;
        let options = options(&e.relation, e.id, server);
        let verdict = catalog::compile(db, catalog, &parsed, &options).await?;
        let fits = |t: &StreamTable| e.layout_hash == Some(layout_hash(t));
        let Some(table) = verdict.incremental().filter(fits) else {
            let message = format!("{} was planned by another version of trickle", shown(e));
            return Err(
                Error::stale(message).hint(format!("{} plans it anew.", db.voice().refresh(&shown(e))))
            );
        };
        if copy {
            let view = e.dependencies.iter().find(|d| d.kind == TableKind::MaterializedView);
            let program = Copied::new(Compiled::new(table), view.map(|d| d.relation.id));
            return Ok(Runnable { program: Arc::new(program), table: None });
        }
        let table = Arc::new(table);
        if e.is_immediate() {
            let program = immediate::program(db, e, &table).await?;
            return Ok(Runnable { program: Arc::new(program), table: Some(table) });
        }
        // A program that runs the text of the query does not fill states, read copies, or use the time of
        // the refresh.
        let is_all = table.layout().states.is_empty() && !e.reads_copies() && !e.reads_clock;
        if table.layout().result.identity == Identity::Bag && is_all {
            let key = key_of(db, e.relation.id, true).await?;
            if !key.is_empty() {
                return recompute(db, e, &key).await;
            }
        }
        let program = match e.in_part().next() {
            Some(d) => in_part(db, e, d, &table, &options).await?,
            None => Compiled::new(table.clone()),
        };
        return Ok(Runnable { program: Arc::new(program), table: Some(table) });
    }
    let key = key_of(db, e.relation.id, false).await?;
    recompute(db, e, &key).await
}

/// Returns the program of a stream table for which the rows of some partitions of `d` were not captured,
/// since these partitions came or went. The program recomputes the part of the result that depends on these
/// partitions, if possible.
async fn in_part(
    db: &dyn Connection,
    e: &Entry,
    d: &Dependency,
    table: &Arc<StreamTable>,
    options: &Options,
) -> Result<Compiled> {
    let whole = || Compiled::new(table.clone());
    if e.in_part().count() > 1 {
        return Ok(whole());
    }
    let rows =
        db.query("SELECT part, condition FROM pgtrickle.part_conditions($1)", &[&d.relation.id.0]).await;
    let rows = rows.map_err(|err| Error::server("read the bounds of partitions", err))?;
    let (mut stayed, mut others) = (Vec::new(), Vec::new());
    for row in &rows {
        let Some(condition) = row.get::<Option<String>>(1) else { return Ok(whole()) };
        let known = d.stayed.iter().flatten().any(|part| *part == row.get::<String>(0));
        if known { &mut stayed } else { &mut others }.push(format!("({condition})"));
    }
    let Some(stays) = any_of(db, e, d, &stayed, options).await? else { return Ok(whole()) };
    let others = match others.as_slice() {
        [] => None,
        all => match any_of(db, e, d, all, options).await? {
            Some(condition) => Some(condition),
            None => return Ok(whole()),
        },
    };
    let captured = Captured { source: d.relation.id, stays, others };
    Ok(whole().with_part(captured)?.unwrap_or_else(whole))
}

/// Returns the condition that one of `conditions` is true for a row of `d`. Returns `None` if there are no
/// conditions, or if the core does not know a function or an operator in the conditions.
async fn any_of(
    db: &dyn Connection,
    e: &Entry,
    d: &Dependency,
    conditions: &[String],
    options: &Options,
) -> Result<Option<Expr>> {
    if conditions.is_empty() {
        return Ok(None);
    }
    let from = Qualified::new(&d.relation.schema, &d.relation.name);
    let parsed = parse_query(&format!("SELECT * FROM {from} WHERE {}", conditions.join(" OR ")))?;
    let mut catalog = PgCatalog::under(e.path());
    let verdict = catalog::compile(db, &mut catalog, &parsed, options).await?;
    Ok(verdict.incremental().and_then(|t| t.selection()))
}

/// Returns a program that runs the text of the query, and tells rows apart by the columns `key`.
async fn recompute(db: &dyn Connection, e: &Entry, key: &[KeyColumn]) -> Result<Runnable> {
    let columns = db
        .query(
            "SELECT attname FROM pg_attribute WHERE attrelid = $1 AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
            &[&e.relation.id.0],
        )
        .await
        .map_err(|err| Error::server("read the columns of a stream table", err))?;
    let columns: Vec<Ident> = columns.iter().map(|r| Ident::new(r.get::<String>(0))).collect();
    let name = Qualified::new(&e.relation.schema, &e.relation.name);
    let mut program = Recompute::new(&name, &columns, key, &e.query);
    // PostgreSQL refuses most rules on a table that a data-modifying WITH statement writes.
    let rules = "SELECT relhasrules FROM pg_class WHERE oid = $1";
    let row = db.query_opt(rules, &[&e.relation.id.0]).await;
    if row.map_err(|err| Error::server("look at a stream table", err))?.is_some_and(|r| r.get(0)) {
        program = program.without_difference();
    }
    Ok(Runnable { table: None, program: Arc::new(program) })
}

/// The columns of the key by which rows of the table `$1` are told apart, if the table has such a key. With
/// `$2`, only a key that foreign keys refer to counts (`pgtrickle.pairing_key`).
const PAIRING_KEY: &str = "
SELECT (SELECT count(*) FROM pg_attribute b WHERE b.attrelid = a.attrelid AND b.attnum BETWEEN 1 AND a.attnum - 1 AND NOT b.attisdropped),
    r.oprname, rn.nspname, l.collname, ln.nspname
FROM pg_index i CROSS JOIN generate_series(0, i.indnkeyatts - 1) k(n)
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[k.n] JOIN pg_opclass o ON o.oid = i.indclass[k.n]
JOIN pg_amop m ON m.amopfamily = o.opcfamily AND m.amoplefttype = o.opcintype AND m.amoprighttype = o.opcintype AND m.amopstrategy = 3
JOIN pg_operator r ON r.oid = m.amopopr JOIN pg_namespace rn ON rn.oid = r.oprnamespace
LEFT JOIN pg_collation l ON l.oid = i.indcollation[k.n] LEFT JOIN pg_namespace ln ON ln.oid = l.collnamespace
WHERE i.indexrelid = pgtrickle.pairing_key($1, $2) ORDER BY k.n";

async fn key_of(db: &dyn Connection, table: TableId, referenced: bool) -> Result<Vec<KeyColumn>> {
    let rows = db.query(PAIRING_KEY, &[&table.0, &referenced]).await;
    let rows = rows.map_err(|err| Error::server("read the keys of a stream table", err))?;
    let column = |r: &Row| {
        let collation = r.get::<Option<String>>(3).zip(r.get::<Option<String>>(4));
        Ok(KeyColumn {
            position: usize::try_from(r.get::<i64>(0))
                .map_err(|_| Error::input("a table has a negative number of columns"))?,
            equality: Qualified::new(r.get::<String>(2), r.get::<String>(1)),
            collation: collation.map(|(name, schema)| Qualified::new(schema, name)),
        })
    };
    rows.iter().map(column).collect()
}
