//! Checks trickle's own objects in a database, such as the catalog, triggers, buffers and stream tables.

use super::published::published;
use super::{Check, Scheduling, Verdict, asking};
use crate::db::{Connection, RefreshDriver, Row};
use crate::error::Result;
use crate::holders::ends_prepared;
use crate::say::Voice;
use crate::schema::{self, VERSION};
use crate::status::{BufferStatus, Status};
use crate::trickle::Trickle;
use crate::words::{count, list};
use std::collections::BTreeSet;
use trickle_core::vocabulary::Activity;

/// Checks the catalog. Returns the findings, and whether the catalog can be used.
pub(super) async fn found(db: &dyn Connection) -> Result<(Check, bool)> {
    match schema::version(db).await {
        Ok(Some(VERSION)) if schema::is_restored(db).await? => {
            let advice = db.voice().one(
                "Run trickle init, or SELECT pgtrickle.rehome() in the extension, which finds the tables again by name.",
                "SELECT pgtrickle.rehome() finds the tables again by name.",
            );
            let found = "restored from a dump, which keeps no identities";
            Ok((Check::new("catalog", Verdict::Bad, found, advice), false))
        }
        Ok(version) => Ok((catalog(version, db.voice()), version == Some(VERSION))),
        Err(e) if e.is_input() => {
            let advice = "Connect as the role that made it: SELECT nspowner::regrole FROM pg_namespace WHERE \
                          nspname = 'pgtrickle'; or have it let this one in: SELECT pgtrickle.grant_to('…');";
            Ok((Check::new("catalog", Verdict::Bad, e.message(), advice), false))
        }
        Err(e) => Err(e),
    }
}

impl<C: RefreshDriver> Trickle<C> {
    /// Checks triggers, buffers, stream tables and the refresher.
    ///
    /// # Errors
    /// The errors of the statements.
    pub async fn health(&mut self, by: Scheduling) -> Result<Vec<Check>> {
        let tables = self.status(&[]).await?;
        let buffers = self.buffers().await?;
        Ok(vec![
            triggers(self.db()).await?,
            marks(self.db()).await?,
            yielded(self.db()).await?,
            guards(self.db()).await?,
            published(self.db()).await?,
            paths(self.db()).await?,
            strangers(self.db()).await?,
            captured(&buffers, &tables, self.voice()),
            sizes(&buffers, self.voice()),
            standing(&tables, self.voice()),
            altered(&tables, self.voice()),
            locks(self.db()).await?,
            refresher(self, &tables, by).await?,
        ])
    }
}

/// Checks whether functions that queries call can find objects in all schemas of the stored `search_path`.
/// When such a query runs, schemas in which other roles may create objects are left out of the path.
async fn paths(db: &dyn Connection) -> Result<Check> {
    let text = "SELECT c.oid::regclass::text, n.nspname::text FROM pgtrickle.pgt_stream_tables s \
         JOIN pg_class c ON c.oid = s.pgt_relid CROSS JOIN LATERAL jsonb_array_elements(s.settings) x \
         CROSS JOIN LATERAL jsonb_array_elements_text(x->'values') p(name) JOIN pg_namespace n ON n.nspname = p.name \
         WHERE s.functions <> '{}' AND x->>'name' = 'search_path' AND NOT starts_with(p.name, 'pg_') \
         AND p.name <> ALL (pgtrickle.safe_path(s.settings, c.relowner)) ORDER BY 1, 2";
    let rows = db.query(text, &[]).await.map_err(asking)?;
    let (name, good) = ("search path", "no schema of it is left out");
    let left: Vec<String> =
        rows.iter().map(|r| format!("{} of {}", r.get::<String>(1), r.get::<String>(0))).collect();
    let verdict = if left.is_empty() { Verdict::Good } else { Verdict::Warning };
    let found = match left.is_empty() {
        true => good.to_owned(),
        false => format!("left out where functions are called: {}", left.join(", ")),
    };
    let advice = "Others may create in these schemas, so refreshes find nothing there by search_path. REVOKE CREATE ON SCHEMA … \
                  puts one back; a function that has SET search_path of its own does not need it.";
    Ok(Check::new(name, verdict, found, advice))
}

fn catalog(version: Option<i32>, voice: Voice) -> Check {
    let (verdict, found, advice) = match version {
        None => (
            Verdict::Warning,
            "there is none".to_owned(),
            voice.one("trickle init makes it.", "CREATE EXTENSION pg_trickle makes it."),
        ),
        Some(v) if v == VERSION => (Verdict::Good, format!("version {v}"), ""),
        Some(v) if v < VERSION => {
            let advice = voice.one("Run trickle init.", "ALTER EXTENSION pg_trickle UPDATE");
            (Verdict::Bad, format!("version {v}, and this program needs {VERSION}"), advice)
        }
        Some(v) => (
            Verdict::Bad,
            format!("version {v}, and this program knows {VERSION}"),
            voice.one(
                "Use the newer trickle that made it.",
                "Use the newer library of pg_trickle that made it.",
            ),
        ),
    };
    Check::new("catalog", verdict, found, advice)
}

/// Returns the first entries of a list, and the number of the other entries.
pub(super) fn some(list: &[String]) -> String {
    const SHOWN: usize = 5;
    let more = list.len().saturating_sub(SHOWN);
    let shown = list[..list.len() - more].join(", ");
    if more == 0 { shown } else { format!("{shown} and {more} more") }
}

/// Tables whose capture triggers are missing or disabled. In statement mode each partition has its own
/// triggers. A trigger that is not ENABLE ALWAYS does not fire for writes of replication, or under
/// `session_replication_role = replica`.
const TRIGGERS: &str = "
WITH RECURSIVE tree(source, oid) AS (
    SELECT b.source_relid, b.source_relid FROM pgtrickle.pgt_buffers b WHERE b.capture = 'ON'
    UNION SELECT tree.source, h.inhrelid FROM tree JOIN pg_inherits h ON h.inhparent = tree.oid
)
SELECT c.oid::regclass::text, count(*) FILTER (WHERE g.oid IS NULL)
FROM tree JOIN pgtrickle.pgt_buffers b ON b.source_relid = tree.source
JOIN pg_class c ON c.oid = tree.oid AND c.relkind IN ('r', 'p') AND c.relpersistence <> 't'
LEFT JOIN pg_proc p ON p.pronamespace = 'pgtrickle_changes'::regnamespace
    AND starts_with(p.proname, format('capture_%s_%s_', b.source_relid, b.generation))
LEFT JOIN pg_trigger g ON g.tgrelid = c.oid AND g.tgfoid = p.oid
WHERE b.trigger_mode <> 'ROW' OR tree.oid = tree.source
GROUP BY 1 HAVING count(*) FILTER (WHERE g.oid IS NULL OR g.tgenabled <> 'A') > 0 ORDER BY 1";

async fn triggers(db: &dyn Connection) -> Result<Check> {
    let rows = db.query(TRIGGERS, &[]).await.map_err(asking)?;
    if rows.is_empty() {
        return Ok(Check::new("triggers", Verdict::Good, "present and enabled", ""));
    }
    let how = |r: &Row| {
        let how = if r.get::<i64>(1) > 0 { "missing" } else { "not enabled always" };
        format!("{how} on {}", r.get::<String>(0))
    };
    let found: Vec<String> = rows.iter().map(how).collect();
    let advice = format!(
        "Changes are missed. The next refresh makes the triggers anew and computes anew what reads the table: {}",
        db.voice().one(
            "trickle refresh",
            "pgtrickle.refresh_stream_table(), or SELECT pgtrickle.rebuild_cdc_triggers()"
        )
    );
    Ok(Check::new("triggers", Verdict::Bad, some(&found), advice))
}

/// Stream tables whose guard, the trigger that refuses writes, is missing or disabled. Every role with the
/// privilege can write such a stream table.
const GUARDS: &str = "
SELECT s.pgt_relid::regclass::text FROM pgtrickle.pgt_stream_tables s JOIN pg_class c ON c.oid = s.pgt_relid
WHERE NOT EXISTS (SELECT FROM pg_trigger g WHERE g.tgrelid = c.oid AND g.tgname = 'trickle_guard' AND g.tgenabled <> 'D')
ORDER BY 1";

async fn guards(db: &dyn Connection) -> Result<Check> {
    let rows = db.query(GUARDS, &[]).await.map_err(asking)?;
    let open: Vec<String> = rows.iter().map(|r| r.get(0)).collect();
    if open.is_empty() {
        return Ok(Check::new("guards", Verdict::Good, "stream tables refuse other writers", ""));
    }
    let again: Vec<String> = open.iter().map(|name| db.voice().replace(name)).collect();
    let advice = format!(
        "{} tells whether somebody wrote them; ALTER TABLE … ENABLE TRIGGER trickle_guard, or where it is gone {}, \
         keeps others out again.",
        db.voice().one("trickle check", "The program's trickle check"),
        some(&again)
    );
    Ok(Check::new("guards", Verdict::Warning, format!("anybody may write {}", some(&open)), advice))
}

/// Stream tables whose last three refreshes gave way, each with the reason noted by the last of these
/// refreshes.
const YIELDED: &str = "
SELECT s.pgt_relid::regclass::text, (array_agg(x.strategy_reason ORDER BY x.start_time DESC, x.refresh_id DESC))[1]
FROM pgtrickle.pgt_stream_tables s CROSS JOIN LATERAL (
    SELECT h.refresh_id, h.start_time, h.status, h.strategy_reason FROM pgtrickle.pgt_refresh_history h
    WHERE h.pgt_id = s.pgt_id AND h.action <> 'NO_DATA' AND h.status <> 'RUNNING'
    ORDER BY h.start_time DESC, h.refresh_id DESC LIMIT 3) x
GROUP BY 1 HAVING count(*) FILTER (WHERE x.status = 'SKIPPED') = 3 ORDER BY 1";

async fn yielded(db: &dyn Connection) -> Result<Check> {
    let rows = db.query(YIELDED, &[]).await.map_err(asking)?;
    if rows.is_empty() {
        return Ok(Check::new("refreshes that gave way", Verdict::Good, "none three times in a row", ""));
    }
    let found: Vec<String> =
        rows.iter().map(|r| format!("{} {}", r.get::<String>(0), r.get::<String>(1))).collect();
    let advice = db.voice().one(
        "Somebody asks for exclusive locks again and again. Ask for them at quieter times; or set give_way_ms to more, or to 0, so \
         that refreshes are not interrupted, and whoever wants the table waits.",
        "Somebody asks for exclusive locks again and again. Ask for them at quieter times; or set pg_trickle.give_way_ms to more, \
         or to 0, so that refreshes are not interrupted, and whoever wants the table waits.",
    );
    Ok(Check::new("refreshes that gave way", Verdict::Warning, some(&found), advice))
}

/// Sources that have changes which triggers could not capture, each source once.
const MARKS: &str = "
SELECT coalesce(c.oid::regclass::text, m.source_relid::text), min(m.reason), min(m.noted_at)::text
FROM pgtrickle.pgt_marks m LEFT JOIN pg_class c ON c.oid = m.source_relid GROUP BY 1 ORDER BY 1";

async fn marks(db: &dyn Connection) -> Result<Check> {
    let rows = db.query(MARKS, &[]).await.map_err(asking)?;
    if rows.is_empty() {
        return Ok(Check::new("uncaptured changes", Verdict::Good, "none", ""));
    }
    let how = |r: &Row| {
        let (source, why, since): (String, String, String) = (r.get(0), r.get(1), r.get(2));
        format!("of {source} since {since}: {why}")
    };
    let found: Vec<String> = rows.iter().map(how).collect();
    let advice = format!(
        "Writers went on. The next refresh makes the triggers anew and computes anew what reads the table: {}",
        db.voice().one("trickle refresh", "pgtrickle.refresh_stream_table()")
    );
    Ok(Check::new("uncaptured changes", Verdict::Warning, some(&found), advice))
}

/// Triggers on stream tables that run a function of an ordinary role which does not own the stream table.
/// Usually that role is a former owner. A refresh runs such a function with the rights of the stream table's
/// owner.
const STRANGERS: &str = "
SELECT pg_catalog.format('trigger %I on %s runs %s of %s', g.tgname, c.oid::regclass, p.oid::regprocedure, r.rolname)
FROM pgtrickle.pgt_stream_tables s JOIN pg_class c ON c.oid = s.pgt_relid
JOIN pg_trigger g ON g.tgrelid = c.oid AND NOT g.tgisinternal JOIN pg_proc p ON p.oid = g.tgfoid
JOIN pg_roles r ON r.oid = p.proowner AND NOT r.rolsuper AND r.oid <> c.relowner
JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname NOT IN ('pgtrickle', 'pgtrickle_changes') ORDER BY 1";

async fn strangers(db: &dyn Connection) -> Result<Check> {
    let rows = db.query(STRANGERS, &[]).await.map_err(asking)?;
    let found: Vec<String> = rows.iter().map(|r| r.get(0)).collect();
    if found.is_empty() {
        return Ok(Check::new("others' triggers", Verdict::Good, "none on stream tables", ""));
    }
    let advice = "Refreshes run it as the owner of the stream table. DROP TRIGGER, unless that role is to be trusted with this.";
    Ok(Check::new("others' triggers", Verdict::Warning, some(&found), advice))
}

fn captured(buffers: &[BufferStatus], tables: &[Status], voice: Voice) -> Check {
    let named = |held: bool| -> Vec<String> {
        buffers.iter().filter(|b| b.disabled && b.held == held).map(|b| b.source.clone()).collect()
    };
    let (held, off) = (named(true), named(false));
    let (mut found, mut advice) = (Vec::new(), Vec::new());
    if !held.is_empty() {
        let on: Vec<String> = held.iter().map(|s| voice.enable(s)).collect();
        found.push(format!("switched off for {}", some(&held)));
        advice.push(format!("What reads it is computed anew by every refresh. {}", on.join("; ")));
    }
    for source in &off {
        found.push(format!("stopped for {source}, which its readers do not fit any more"));
        let readers = tables.iter().filter(|t| t.sources.iter().any(|s| s.name == *source));
        let ways = readers.map(|t| match t.status {
            Activity::Suspended => format!("{}, or {}", voice.alter_query(&t.name), voice.drop(&t.name)),
            Activity::Initializing | Activity::Active | Activity::Error => voice.refresh(&t.name),
        });
        advice.extend(ways);
    }
    if found.is_empty() {
        return Check::new("capture", Verdict::Good, count(buffers.len(), "table", "tables"), "");
    }
    Check::new("capture", Verdict::Warning, found.join("; "), advice.join("\n  "))
}

fn sizes(buffers: &[BufferStatus], voice: Voice) -> Check {
    let mib = |bytes: i64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
    let all: i64 = buffers.iter().map(|b| b.bytes).sum();
    let full: Vec<String> = buffers
        .iter()
        .filter(|b| b.full)
        .map(|b| format!("{} has {} of changes, and may have no more", b.source, mib(b.bytes)))
        .collect();
    if !full.is_empty() {
        let advice = format!(
            "Changes are not kept any more, and the next refresh of what reads the table computes it anew, after which they \
             are: {}",
            voice.one(
                "trickle refresh. Is there a refresher (trickle run)?",
                "pgtrickle.refresh_stream_table(). Is there a refresher (pg_trickle among shared_preload_libraries)?"
            )
        );
        return Check::new("buffers", Verdict::Warning, some(&full), advice);
    }
    let large: Vec<String> =
        buffers.iter().filter(|b| b.is_large()).map(|b| format!("{} ({})", b.source, mib(b.bytes))).collect();
    if large.is_empty() {
        return Check::new("buffers", Verdict::Good, format!("{} of changes", mib(all)), "");
    }
    let advice = format!(
        "Changes stay until every stream table that reads the table has counted them, and no transaction that wrote them is \
         open: refresh the stream tables ({} says which are behind; a suspended one keeps them too), or stop capturing with \
         the program's trickle disable.",
        voice.one("trickle status", "pgtrickle.pgt_status()")
    );
    Check::new("buffers", Verdict::Warning, some(&large), advice)
}

/// Checks the state of stream tables, and gives advice on each one that is not brought up to date.
fn standing(tables: &[Status], voice: Voice) -> Check {
    let mut found = Vec::new();
    let mut advice = Vec::new();
    for s in tables {
        let name = &s.name;
        let (what, then) = match s.status {
            _ if !s.exists => ("its table is gone".to_owned(), format!("{} forgets it", voice.drop(name))),
            Activity::Suspended if s.sources_changed => (
                "suspended, for it does not fit what it reads".to_owned(),
                format!(
                    "{} gives it a query that fits; {} drops it",
                    voice.alter_query(name),
                    voice.drop(name)
                ),
            ),
            Activity::Suspended => (
                "suspended".to_owned(),
                match s.last_error {
                    Some(_) => {
                        format!(
                            "mend its last error, which {} shows, then {}",
                            voice.status(name),
                            voice.resume(name)
                        )
                    }
                    None => format!("{} puts it back on schedule", voice.resume(name)),
                },
            ),
            Activity::Initializing => {
                ("never filled".to_owned(), format!("{} fills it", voice.refresh(name)))
            }
            Activity::Active | Activity::Error if s.consecutive_errors > 0 => (
                count(
                    usize::try_from(s.consecutive_errors).unwrap_or(0),
                    "failure in a row",
                    "failures in a row",
                ),
                format!("{} shows the last error", voice.status(name)),
            ),
            Activity::Active | Activity::Error => continue,
        };
        found.push(format!("{name}: {what}"));
        advice.push(format!("{name}: {then}"));
    }
    if found.is_empty() {
        return Check::new(
            "stream tables",
            Verdict::Good,
            count(tables.len(), "stream table", "stream tables"),
            "",
        );
    }
    Check::new("stream tables", Verdict::Warning, some(&found), advice.join("\n  "))
}

fn altered(tables: &[Status], voice: Voice) -> Check {
    let changed = tables.iter().filter(|s| s.sources_changed && s.exists && s.status != Activity::Suspended);
    let changed = changed.map(|s| s.name.clone());
    let changed: Vec<String> = changed.collect();
    if changed.is_empty() {
        return Check::new("sources", Verdict::Good, "as they were planned for", "");
    }
    let advice = format!("The next refresh plans them anew: {}", voice.refresh_all(&changed));
    Check::new("sources", Verdict::Warning, format!("altered under {}", some(&changed)), advice)
}

/// Processes that wait for a lock on a stream table or a source. Each has the table, the blocking processes,
/// and the prepared transactions that have a lock on the table. `pg_blocking_pids` has 0 for these.
const LOCKS: &str = "
SELECT DISTINCT l.pid, l.relation::regclass::text, array_remove(pg_blocking_pids(l.pid), 0),
    CASE WHEN 0 = ANY (pg_blocking_pids(l.pid)) THEN ARRAY(
        SELECT DISTINCT x.gid FROM pg_locks h JOIN pg_locks o ON o.pid IS NULL AND o.locktype = 'transactionid' AND o.granted
            AND o.virtualtransaction = h.virtualtransaction JOIN pg_prepared_xacts x ON x.transaction = o.transactionid
        WHERE h.pid IS NULL AND h.granted AND h.relation = l.relation AND h.database = l.database ORDER BY 1) ELSE '{}' END
FROM pg_locks l WHERE NOT l.granted AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND l.relation IN (SELECT pgt_relid FROM pgtrickle.pgt_stream_tables UNION SELECT source_relid FROM pgtrickle.pgt_dependencies)
ORDER BY 1";

async fn locks(db: &dyn Connection) -> Result<Check> {
    let rows = db.query(LOCKS, &[]).await.map_err(asking)?;
    if rows.is_empty() {
        return Ok(Check::new("locks", Verdict::Good, "nobody waits for one", ""));
    }
    let (mut blockers, mut prepared) = (BTreeSet::new(), BTreeSet::new());
    let mut found = Vec::new();
    for r in &rows {
        let (pid, table): (i32, String) = (r.get(0), r.get(1));
        let (by, gids): (Vec<i32>, Vec<String>) = (r.get(2), r.get(3));
        let transactions = gids.iter().map(|gid| format!("prepared transaction \"{gid}\""));
        let of_processes = (!by.is_empty()).then(|| processes(&by));
        let by_all: Vec<String> = of_processes.into_iter().chain(transactions).collect();
        let held = if by_all.is_empty() { String::new() } else { format!(", held by {}", list(&by_all)) };
        found.push(format!("process {pid} waits for {table}{held}"));
        blockers.extend(by);
        prepared.extend(gids);
    }
    let ends = blockers.iter().map(|pid| format!("SELECT pg_terminate_backend({pid});"));
    let ends: Vec<String> = ends.chain(prepared.iter().map(|gid| ends_prepared(gid))).collect();
    let ends = if ends.is_empty() { String::new() } else { format!(" To end it: {}", ends.join(" ")) };
    let advice = format!("Refreshes and writers wait until it ends.{ends}");
    Ok(Check::new("locks", Verdict::Warning, some(&found), advice))
}

/// Returns `process 7` or `processes 7, 8 and 9`.
fn processes(pids: &[i32]) -> String {
    let pids: Vec<String> = pids.iter().map(ToString::to_string).collect();
    format!("process{} {}", if pids.len() == 1 { "" } else { "es" }, list(&pids))
}

async fn refresher<C: RefreshDriver>(
    trickle: &Trickle<C>,
    tables: &[Status],
    by: Scheduling,
) -> Result<Check> {
    let refresher = trickle.refresher().await?;
    let due = tables.iter().filter(|s| s.schedule.is_some() && s.status != Activity::Suspended).count();
    let (verdict, found) = match (refresher.pids.as_slice(), refresher.is_running()) {
        ([], false) if due > 0 && !by.is_enabled() => {
            (Verdict::Warning, "enabled is false here, so none refreshes".to_owned())
        }
        ([], true) => (Verdict::Good, "was at work a moment ago".to_owned()),
        ([], false) if due == 0 => (Verdict::Good, "none, and nothing is scheduled".to_owned()),
        ([], false) => (Verdict::Warning, format!("none, and {due} on schedule")),
        (pids, _) => {
            let leads = refresher.leader.as_ref().map(|l| format!(", {l} leads")).unwrap_or_default();
            (Verdict::Good, format!("connected as {}{leads}", processes(pids)))
        }
    };
    Ok(Check::new("refresher", verdict, found, by.advice()))
}
