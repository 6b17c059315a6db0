//! The statements that a refresh sends before and after the refresh programs of its members. This module
//! holds the only SQL texts of `refresh` that are written by hand: the SQL tree has no nodes for PostgreSQL's
//! catalogs, snapshots and transactions. A value from outside is a bind parameter, a number, or text printed
//! by [`crate::sql`].

use super::facts::Facts;
use super::plan::{Lease, Lock, Member, Plan, Reader, Relation, Request, Setting, Source, Transaction};
use super::report::{MemberReport, Phases};
use super::{Kind, Phase, Statement, Value};
use crate::cdc::OVERFLOWED;
use crate::cost::Model;
use crate::sql::{Ident, Qualified, quoted};
use crate::table::{TableId, TableKind};
use crate::vocabulary::Initiator;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// The longest time that a transaction of a refresh may be idle, waiting for its refresher. After this time
/// the server ends the transaction and releases its locks, for which another refresher may wait. The time
/// between two statements is normally milliseconds.
pub const ABANDONED: Duration = Duration::from_secs(10);

pub(super) const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ";
pub(super) const COMMIT: &str = "COMMIT";
pub(super) const ROLLBACK: &str = "ROLLBACK";
pub(super) const SAVEPOINT: &str = "SAVEPOINT trickle_member";
pub(super) const RELEASE: &str = "RELEASE SAVEPOINT trickle_member";
pub(super) const ROLLBACK_TO: &str = "ROLLBACK TO SAVEPOINT trickle_member";

/// Stores one frontier for all members, and the cost model of each. A stream table that was suspended because
/// of failures becomes active again. A stream table that the user suspended has a count of 0 errors, and
/// stays suspended. `now()` is the time when the transaction began, before its snapshot. The table therefore
/// contains all changes committed by `now()`, and conditions on the clock were evaluated for `now()`.
const STORE_FRONTIER: &str = "UPDATE pgtrickle.pgt_stream_tables t SET frontier = ($1::text)::jsonb, \
     data_timestamp = now(), last_refresh_at = clock_timestamp(), is_populated = true, needs_reinit = false, reinit_reason = NULL, \
     status = CASE WHEN t.status = 'SUSPENDED' AND t.consecutive_errors = 0 THEN t.status ELSE 'ACTIVE' END, consecutive_errors = 0, last_error_message = NULL, updated_at = clock_timestamp(), \
     cost_model = m.model, auto_threshold = m.threshold \
     FROM jsonb_to_recordset(($2::text)::jsonb) AS m(id int8, model jsonb, threshold float8) WHERE t.pgt_id = m.id";

/// Writes one history row per member; the members come as one JSON array.
const RECORD: &str = "INSERT INTO pgtrickle.pgt_refresh_history (pgt_id, start_time, end_time, data_timestamp, \
     action, status, initiated_by, delta_row_count, rows_inserted, rows_updated, rows_deleted, strategy_reason, \
     predicted_ms, phase_ms, lag_ms) \
     SELECT h.pgt_id, now(), clock_timestamp(), now(), h.action, 'COMPLETED', $2::text, h.delta, h.inserted, \
     h.updated, h.deleted, h.reason, h.predicted_ms, h.phase_ms, \
     CASE WHEN s.at IS NOT NULL THEN greatest(extract(epoch FROM clock_timestamp() - s.at) * 1000, 0) END \
     FROM jsonb_to_recordset(($1::text)::jsonb) AS h(pgt_id int8, action text, delta int8, inserted int8, \
     updated int8, deleted int8, reason text, predicted_ms float8, phase_ms jsonb, committed text, since text, brought bool) \
     CROSS JOIN LATERAL (SELECT CASE WHEN h.brought THEN coalesce((h.committed)::timestamptz, CASE WHEN $3::int8 IS NOT NULL \
     THEN greatest((h.since)::timestamptz, now() - $3::int8 * interval '1 millisecond') END) END) s(at) \
     RETURNING pgt_id, lag_ms";

/// Counts an error of a stream table and writes history, in a transaction of its own after the rollback. No
/// error is counted where the user suspended the table: a suspended table with counted errors is one that was
/// suspended because of failures.
const RECORD_FAILURE: &str = "WITH failed AS (UPDATE pgtrickle.pgt_stream_tables SET \
     consecutive_errors = CASE WHEN status = 'SUSPENDED' AND consecutive_errors = 0 THEN 0 ELSE consecutive_errors + 1 END, \
     last_error_message = $2::text, updated_at = clock_timestamp(), \
     status = CASE WHEN $4::int8 > 0 AND consecutive_errors + 1 >= $4::int8 THEN 'SUSPENDED' ELSE status END \
     WHERE pgt_id = $1::int8 RETURNING pgt_id) \
     INSERT INTO pgtrickle.pgt_refresh_history (pgt_id, start_time, end_time, action, status, initiated_by, \
     error_message) SELECT pgt_id, now(), clock_timestamp(), 'SKIP', 'FAILED', $3::text, $2::text FROM failed";

/// Writes into history that a refresh was given up. Giving up does not count as an error of the stream table.
const RECORD_SKIP: &str = "INSERT INTO pgtrickle.pgt_refresh_history (pgt_id, start_time, end_time, action, status, initiated_by, \
     strategy_reason) SELECT pgt_id, now(), clock_timestamp(), 'SKIP', 'SKIPPED', $3::text, $2::text \
     FROM pgtrickle.pgt_stream_tables WHERE pgt_id = $1::int8";

fn qualified(r: &Relation) -> Qualified {
    Qualified::new(&r.schema, &r.name)
}

/// Makes a statement that has no number yet.
pub(super) fn statement(kind: Kind, phase: Phase, text: impl Into<Arc<str>>) -> Statement {
    Statement {
        step: 0,
        kind,
        phase,
        member: None,
        text: text.into(),
        params: Vec::new(),
        fetch: matches!(kind, Kind::Decide | Kind::Command),
        pipeline: true,
        scale: 0,
    }
}

/// Makes a `SET LOCAL`: unlike `set_config()`, `SET LOCAL` takes no snapshot.
pub(super) fn setting(s: &Setting) -> Statement {
    let name: Vec<String> = s.name.split('.').map(|part| Ident::new(part).to_string()).collect();
    // Objects in the caller's temporary schema must not hide others, so `pg_temp` comes last.
    let temporary = (s.name == "search_path" && s.values.iter().all(|v| v != "pg_temp")).then_some("pg_temp");
    let values: Vec<String> = s.values.iter().map(String::as_str).chain(temporary).map(quoted).collect();
    let values = if values.is_empty() { quoted("") } else { values.join(", ") };
    statement(Kind::Setting, Phase::Decide, format!("SET LOCAL {} = {values}", name.join(".")))
}

/// Returns the `LOCK TABLE` statements, in order of oid, so that two refreshes cannot deadlock on the locks.
/// Members are locked against other refreshers, and their sources against TRUNCATE and rewrites. Tables of a
/// locked [`KeptBy`](super::plan::KeptBy) are locked against writers.
pub(super) fn locks(plan: &Plan) -> Vec<Statement> {
    let mut wanted: BTreeMap<TableId, (&Relation, &str)> = BTreeMap::new();
    for s in plan.members.iter().flat_map(|m| &m.sources) {
        if matches!(s.kind, TableKind::Table | TableKind::StreamTable) {
            wanted.insert(s.relation.id, (&s.relation, "ACCESS SHARE"));
        }
    }
    let kept_by = plan.members.iter().filter_map(|m| m.kept_by.as_ref()).filter(|k| k.locked);
    for r in kept_by.flat_map(|k| &k.tables) {
        wanted.insert(r.id, (r, "SHARE ROW EXCLUSIVE"));
    }
    for m in &plan.members {
        let mode = match m.lock {
            _ if wanted.get(&m.relation.id).is_some_and(|(_, mode)| *mode == "SHARE ROW EXCLUSIVE") => {
                continue;
            }
            Lock::Refreshes => "SHARE UPDATE EXCLUSIVE",
            Lock::Writers => "SHARE ROW EXCLUSIVE",
        };
        wanted.insert(m.relation.id, (&m.relation, mode));
    }
    let wanted: Vec<(&Relation, &str)> = wanted.into_values().collect();
    wanted
        .chunk_by(|a, b| a.1 == b.1)
        .map(|run| {
            let names: Vec<String> = run.iter().map(|(r, _)| qualified(r).to_string()).collect();
            let mode = run.first().map_or("ACCESS SHARE", |(_, mode)| *mode);
            let text = format!("LOCK TABLE {} IN {mode} MODE", names.join(", "));
            statement(Kind::Lock, Phase::Wait, text)
        })
        .collect()
}

/// Locks the catalog rows of the members until the end of the transaction. A caller's transaction may be READ
/// COMMITTED, whose statements see the newest versions of rows. Without this lock, storing the frontier would
/// overwrite a mark that another session set after the snapshot.
pub(super) fn hold(members: &[Member]) -> Statement {
    let text = format!(
        "SELECT FROM pgtrickle.pgt_stream_tables WHERE pgt_id = ANY ({}) ORDER BY pgt_id FOR NO KEY UPDATE",
        array(members.iter().map(|m| &m.id))
    );
    statement(Kind::Lock, Phase::Wait, text)
}

/// Whether a row `b` of a buffer is pending: the frontier `f` of [`stored_frontiers`] does not count it. The
/// transaction `f.own`, which is counted only up to a command, is tested first, since the snapshot cannot
/// tell which rows of `f.own` are counted.
pub const PENDING: &str = "b.xid >= f.low AND CASE WHEN b.xid = f.own THEN b.cmin::text::int8 > f.command \
     WHEN b.xid >= f.high THEN true ELSE NOT pg_visible_in_snapshot(b.xid, f.snapshot) END";

/// Returns the expression for the number of rows of a table and its partitions, as the planner estimates it.
/// The estimate is the density at the last ANALYZE times the present size. For a table that was never
/// analysed the expression assumes a row per 100 bytes, since an estimate of 0 would make a full refresh look
/// free.
pub fn size(id: impl std::fmt::Display) -> String {
    let rows = |c: &str| {
        format!(
            "CASE WHEN {c}.relpages > 0 AND {c}.reltuples >= 0 THEN {c}.reltuples / {c}.relpages \
             * (pg_relation_size({c}.oid) / current_setting('block_size')::int8) ELSE pg_relation_size({c}.oid) / 100 END"
        )
    };
    format!(
        "(SELECT coalesce(CASE WHEN c.relkind <> 'p' THEN {} ELSE (SELECT sum({}) FROM pg_partition_tree({id}) t \
         JOIN pg_class p ON p.oid = t.relid WHERE p.relkind <> 'p') END, 0)::int8 FROM pg_class c WHERE c.oid = {id})",
        rows("c"),
        rows("p")
    )
}

/// Groups the members by source. Two groups are made for a source if only some of its members know its change
/// buffer.
fn by_source<'m>(members: &[Reader<'m>]) -> Vec<(&'m Source, BTreeSet<i64>)> {
    let mut by_source: BTreeMap<(TableId, bool), (&Source, BTreeSet<i64>)> = BTreeMap::new();
    for m in members {
        for s in m.sources {
            let key = (s.relation.id, s.changes.is_some());
            by_source.entry(key).or_insert_with(|| (s, BTreeSet::new())).1.insert(m.id);
        }
    }
    by_source.into_values().collect()
}

fn readers(members: &[Member]) -> Vec<Reader<'_>> {
    members.iter().map(Reader::from).collect()
}

fn array<'a>(ids: impl IntoIterator<Item = &'a i64>) -> String {
    let ids: Vec<String> = ids.into_iter().map(ToString::to_string).collect();
    format!("'{{{}}}'::int8[]", ids.join(","))
}

/// Returns the stored frontiers of the members.
fn frontiers(members: &[Reader<'_>]) -> String {
    stored_frontiers(&format!("pgt_id = ANY ({})", array(members.iter().map(|m| &m.id))))
}

/// Returns the clause `WITH frontiers`, which [`PENDING`] reads. The clause has one numbered row for each
/// distinct stored frontier of the stream tables that meet a condition, with the ids of these stream tables.
/// Linked stream tables share a frontier. A frontier counts at most one transaction only up to a command. The
/// clause is materialized, since the planner would otherwise parse the frontier again for each buffered row.
pub fn stored_frontiers(condition: &str) -> String {
    format!(
        "WITH frontiers AS MATERIALIZED (SELECT row_number() OVER () AS n, t.ids, t.snapshot, \
         pg_snapshot_xmin(t.snapshot) AS low, pg_snapshot_xmax(t.snapshot) AS high, \
         (SELECT k::xid8 FROM jsonb_object_keys(t.frontier->'own') k LIMIT 1) AS own, \
         (SELECT v::int8 FROM jsonb_each_text(t.frontier->'own') o(k, v) LIMIT 1) AS command, \
         current_setting('track_commit_timestamp')::bool AS tracked \
         FROM (SELECT frontier, (frontier->>'snapshot')::pg_snapshot AS snapshot, array_agg(pgt_id) AS ids \
         FROM pgtrickle.pgt_stream_tables WHERE {condition} GROUP BY frontier) t)"
    )
}

/// The facts about a source that a query returns.
#[derive(Clone, Copy)]
enum FactScope {
    /// All facts, among them whether the source's name still leads to the same table, and the source's size.
    /// Reading the size waits for a lock that another session holds on the source.
    All,
    /// The pending rows alone; counting pending rows waits for no lock on the source.
    Pending,
}

/// Returns the expression for the time when the first pending row of a table that users write was committed.
/// The value is NULL where the server does not track commit times. The value is `-infinity` where the server
/// lacks the commit time of a row, or another server set that time. The expression reads the commit time once
/// for each transaction, since reading it takes locks that commits take too. The expression is not for stream
/// tables: their rows carry the commit time of a refresh, and the change was committed earlier.
fn committed(buffer: &Relation) -> String {
    format!(
        "CASE WHEN f.tracked THEN (SELECT min(CASE WHEN c.roident = 0 THEN c.\"timestamp\" ELSE '-infinity' END) \
         FROM (SELECT DISTINCT b.xid FROM {} b WHERE b.w <> 0 AND {PENDING}) b \
         CROSS JOIN LATERAL pg_xact_commit_timestamp_origin(b.xid::xid) c) END",
        qualified(buffer)
    )
}

/// Returns the query for the facts about one source: one row for each frontier whose stream tables (`ids`)
/// include one of `readers`. The first columns are the source, whether its name still leads to it, its rows,
/// and the pending rows of its buffer (NULL: not captured). Further columns tell why the pending rows are
/// useless (as in [`pending_text`]), and when the first pending row was committed. A buffer is read once for
/// each frontier, not once for each member.
fn counted(source: &Source, readers: &BTreeSet<i64>, told: FactScope) -> String {
    let (id, readers) = (source.relation.id, array(readers));
    let (held, size) = match told {
        FactScope::All => (held(&source.relation), size(id)),
        FactScope::Pending => ("NULL::bool".to_owned(), "NULL::int8".to_owned()),
    };
    match &source.changes {
        Some(buffer) => format!(
            "SELECT {id}::int8, {held}, {size}, p.n, p.cut, {}, f.ids, {readers} FROM frontiers f CROSS JOIN LATERAL \
             (SELECT count(*) FILTER (WHERE b.w <> 0) AS n, bool_or(b.xid = '{OVERFLOWED}'::xid8) FILTER (WHERE b.w = 0) AS cut FROM {} b \
             WHERE {PENDING}) p WHERE f.ids && {readers}",
            match (told, source.kind) {
                (FactScope::All, TableKind::Table) => committed(buffer),
                _ => "NULL::timestamptz".to_owned(),
            },
            qualified(buffer)
        ),
        None => format!(
            "SELECT {id}::int8, {held}, {size}, NULL::int8, NULL::bool, NULL::timestamptz, f.ids, {readers} FROM frontiers f \
             WHERE f.ids && {readers}"
        ),
    }
}

/// Returns the `LEFT JOIN` that adds the rows of [`counted`] to each member `t`.
fn join_counted(members: &[Reader<'_>], told: FactScope) -> String {
    let none = "SELECT NULL::int8, NULL::bool, NULL::int8, NULL::int8, NULL::bool, NULL::timestamptz, NULL::int8[], NULL::int8[] WHERE false";
    let arms = by_source(members).into_iter().map(|(source, ids)| counted(source, &ids, told));
    let arms: Vec<String> = std::iter::once(none.to_owned()).chain(arms).collect();
    format!(
        "LEFT JOIN ({}) s(source, held, rows, pending, cut, committed, ids, readers) \
         ON t.pgt_id = ANY (s.ids) AND t.pgt_id = ANY (s.readers)",
        arms.join(" UNION ALL ")
    )
}

/// The expression for the reason why `t` must be recomputed; NULL where there is no reason.
const REBUILT: &str = "CASE WHEN NOT t.is_populated THEN 'it was never filled' \
     WHEN t.needs_reinit THEN coalesce(t.reinit_reason, 'it was marked for a rebuild') END";

/// Whether triggers, publications or readers must see exactly the rows of `t` that changed, and no others.
/// `t` is watched by a trigger or a rule on `t`, or by a stream table that reads `t` by deltas. A foreign key
/// to `t` makes a trigger, so it counts; the trigger that refuses writes does not count. `t` is also watched
/// by a publication of `t` or of a table that `t` is a partition of, and by a slot that decodes all tables. A
/// table that was never filled is not watched.
const WATCHED: &str = "t.is_populated AND (EXISTS (SELECT FROM pg_trigger g WHERE g.tgrelid = t.pgt_relid AND g.tgenabled <> 'D' \
     AND g.tgfoid IS DISTINCT FROM to_regprocedure('pgtrickle.refuse_writes()')) \
     OR EXISTS (SELECT FROM pg_rewrite r WHERE r.ev_class = t.pgt_relid) \
     OR EXISTS (SELECT FROM pgtrickle.pgt_dependencies d JOIN pgtrickle.pgt_stream_tables r USING (pgt_id) \
     WHERE d.source_relid = t.pgt_relid AND r.refresh_mode <> 'FULL') \
     OR EXISTS (SELECT FROM pg_publication p WHERE p.puballtables) \
     OR EXISTS (SELECT FROM pg_replication_slots r WHERE r.database = current_database() AND r.plugin <> 'pgoutput') \
     OR EXISTS (SELECT FROM (SELECT t.pgt_relid UNION SELECT pg_partition_ancestors(t.pgt_relid)) o(oid) JOIN pg_class c USING (oid) \
     WHERE EXISTS (SELECT FROM pg_publication_rel p WHERE p.prrelid = c.oid) \
     OR EXISTS (SELECT FROM pg_publication_namespace p WHERE p.pnnspid = c.relnamespace)))";

/// Returns the decision query. The query takes the snapshot and counts the pending changes of every member
/// and source. The query returns one row per pair of member and source; a member without sources has one row
/// with NULLs. The columns:
///
/// - the snapshot, the query's own xid, the system identifier, the database oid;
/// - of the member: `pgt_id`, frontier, why the member must be recomputed, stored rows, whether it is
///   watched;
/// - whether the member's name still leads to its table, with the expected definition and no change of
///   anything that its plan relies on (the locks keep the answer true);
/// - of the source: oid, whether its name still leads to it, rows, pending rows (NULL: not captured);
/// - of the pending rows: why they are useless ([`pending_text`]), when the first was committed (NULL: not
///   known);
/// - the time of this refresh, the time of the stored rows, and the costs of earlier refreshes ([`Model`]).
pub fn decide_text(members: &[Member]) -> String {
    let definition = |m: &Member| m.definition.as_deref().map_or_else(|| "NULL".to_owned(), quoted);
    let named: Vec<String> = members
        .iter()
        .map(|m| format!("({}::int8, {}, {}::text)", m.id, held(&m.relation), definition(m)))
        .collect();
    let readers = readers(members);
    format!(
        "{} SELECT pg_current_snapshot()::text, pg_current_xact_id()::text, c.system_identifier, d.oid::int8, \
         t.pgt_id, t.frontier::text, {REBUILT}, {}, {WATCHED}, n.held AND u.id IS NOT NULL \
         AND (n.definition IS NULL OR n.definition = pgtrickle.definition(t.pgt_id)), s.source, \
         s.held, s.rows, s.pending, s.cut, {}, {}, {}, t.cost_model::text FROM pgtrickle.pgt_stream_tables t CROSS JOIN pg_control_system() c \
         JOIN pg_database d ON d.datname = current_database() JOIN (VALUES {}) n(id, held, definition) ON n.id = t.pgt_id \
         LEFT JOIN pgtrickle.unchanged({}) u(id) ON u.id = t.pgt_id \
         {} ORDER BY t.pgt_id, s.source",
        frontiers(&readers),
        size("t.pgt_relid"),
        time("nullif(s.committed, '-infinity')"),
        time("now()"),
        time("t.data_timestamp"),
        named.join(", "),
        array(members.iter().map(|m| &m.id)),
        join_counted(&readers, FactScope::All)
    )
}

/// Returns the expression for a time as text that has the same meaning under all settings.
fn time(of: &str) -> String {
    format!("to_char({of} AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US') || '+00'")
}

/// Returns the expression for whether a relation's name still leads to the same relation.
fn held(r: &Relation) -> String {
    format!("coalesce(to_regclass({})::oid = {}, false)", quoted(&qualified(r).to_string()), r.id)
}

/// Whether a segment may hold rows, decided without reading it. The answer is true of the statement's
/// snapshot: a file that is empty now was empty at the snapshot, unless a later TRUNCATE replaced the file. A
/// segment without WAL always holds a row, unless a crash emptied it.
const FILLED: &str = "CASE WHEN c.relpersistence = 'u' OR pg_relation_size(c.oid) > 0 THEN true ELSE pg_relation_filenode(c.oid) IS DISTINCT FROM c.relfilenode END";

/// Returns the first query before a refresh. The query finds the members that need a refresh whatever their
/// buffers hold, and the buffers that hold any row. The query takes no lock that lasts, assigns no
/// transaction id and reads no buffer, so its cost per member is next to nothing. The query's columns are a
/// `pgt_id` and the name of a buffer's view; one of the two is NULL.
///
/// The name of a segment consists of the view's name and a number. A buffer that is not found counts as one
/// that holds rows; the statement that then reads the buffer reports the error.
pub fn glance_text(members: &[Reader<'_>]) -> String {
    let all = array(members.iter().map(|m| &m.id));
    let may_differ = |m: &&Reader<'_>| m.timed || (m.polled && m.unseen);
    let mut always: BTreeSet<i64> = members.iter().filter(may_differ).map(|m| m.id).collect();
    let polled: BTreeSet<i64> = members.iter().filter(|m| m.polled).map(|m| m.id).collect();
    let mut views: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (source, readers) in by_source(members) {
        match &source.changes {
            Some(view) => views.entry(&*view.schema).or_default().push(&*view.name),
            None => always.extend(readers.intersection(&polled)),
        }
    }
    let filled = views.iter().map(|(schema, views)| {
        // The names of all segments lie between `first` and `last`, since '`' comes after '_'; PostgreSQL
        // finds them by an index.
        let first = views.iter().map(|v| format!("{v}_")).min().unwrap_or_default();
        let last = views.iter().map(|v| format!("{v}`")).max().unwrap_or_default();
        let (first, last) = (quoted(&first), quoted(&last));
        let (schema, views) = (quoted(schema), views.iter().map(|v| quoted(v)).collect::<Vec<_>>().join(", "));
        format!(
            " UNION ALL SELECT DISTINCT NULL::int8, v.view FROM unnest(ARRAY[{views}]) v(view) LEFT JOIN (SELECT c.oid, c.relfilenode, c.relpersistence, \
             rtrim(rtrim(c.relname, '0123456789'), '_') AS view FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
             WHERE n.nspname = {schema} AND c.relname BETWEEN {first} AND {last} AND c.relkind = 'r') c USING (view) \
             WHERE c.oid IS NULL OR {FILLED}"
        )
    });
    format!(
        "SELECT t.pgt_id, NULL::text FROM pgtrickle.pgt_stream_tables t CROSS JOIN pg_control_system() c \
         JOIN pg_database d ON d.datname = current_database() WHERE t.pgt_id = ANY ({all}) \
         AND (t.frontier IS NULL OR t.needs_reinit OR NOT t.is_populated OR t.pgt_id = ANY ({}) \
         OR t.frontier->>'system' IS DISTINCT FROM c.system_identifier::text OR t.frontier->>'database' IS DISTINCT FROM d.oid::text){}",
        array(&always),
        filled.collect::<String>()
    )
}

/// Returns the second query before a refresh, for buffers that hold rows. The query returns the `pgt_id`s of
/// those members whose frontiers do not count all of these rows. The query takes no lock that lasts and
/// assigns no transaction id. The query looks once into each buffer for each frontier.
pub fn peek_text(members: &[Reader<'_>]) -> String {
    let (mut ids, mut numbers, mut looks) = (Vec::new(), Vec::new(), Vec::new());
    for (source, readers) in by_source(members) {
        let Some(buffer) = &source.changes else { continue };
        let number = i64::try_from(looks.len()).unwrap_or(i64::MAX);
        numbers.extend(readers.iter().map(|_| number));
        ids.extend(readers);
        looks.push(format!("EXISTS (SELECT FROM {} b WHERE {PENDING})", qualified(buffer)));
    }
    if looks.is_empty() {
        return "SELECT NULL::int8 WHERE false".to_owned();
    }
    format!(
        "{}, reads AS MATERIALIZED (SELECT s.source, f.low, f.high, (array_agg(f.snapshot))[1] AS snapshot, f.own, \
         min(f.command) AS command, array_agg(i.id) AS ids FROM frontiers f CROSS JOIN LATERAL unnest(f.ids) i(id) \
         JOIN unnest({}, {}) s(id, source) ON s.id = i.id GROUP BY f.n, f.low, f.high, f.own, s.source) \
         SELECT DISTINCT unnest(f.ids) FROM reads f WHERE {}",
        frontiers(members),
        array(&ids),
        array(&numbers),
        chosen(0, &looks)
    )
}

/// Builds the CASE that evaluates the condition with number `f.source`, where the numbers count from `first`.
/// The CASE finds the condition by halving, so the cost of many sources does not grow with their square.
fn chosen(first: usize, conditions: &[String]) -> String {
    let (low, high) = conditions.split_at(conditions.len() / 2);
    match high {
        [one] if low.is_empty() => one.clone(),
        _ => {
            let middle = first + low.len();
            let (low, high) = (chosen(first, low), chosen(middle, high));
            format!("CASE WHEN f.source < {middle} THEN {low} ELSE {high} END")
        }
    }
}

/// Returns the query for the amount of pending changes, which is shown to people. For every member and source
/// the query counts the rows of the buffer that the stored frontier does not count (NULL where changes are
/// not captured). The query also tells why these rows are useless: NULL if they are not, false for a
/// TRUNCATE, true for a buffer at its limit. The query waits for no lock on a source and assigns no
/// transaction id, but reads every pending row. Columns: `pgt_id`, source oid, rows, why the rows are
/// useless.
pub fn pending_text(readers: &[Reader<'_>]) -> String {
    format!(
        "{} SELECT t.pgt_id, s.source::oid, s.pending, s.cut FROM pgtrickle.pgt_stream_tables t {} \
         WHERE t.pgt_id = ANY ({}) AND s.source IS NOT NULL ORDER BY t.pgt_id, s.source",
        frontiers(readers),
        join_counted(readers, FactScope::Pending),
        array(readers.iter().map(|m| &m.id))
    )
}

/// The costs of a stream table as learnt from its refreshes, and the smallest share of changed rows for which
/// a recompute is cheaper.
#[derive(serde::Serialize)]
pub(super) struct Learnt {
    pub(super) id: i64,
    pub(super) model: Model,
    pub(super) threshold: Option<f64>,
}

pub(super) fn store_frontier(json: &str, models: &[Learnt]) -> Statement {
    let models = models.iter().map(|learnt| serde_json::json!(learnt));
    let models = serde_json::Value::Array(models.collect()).to_string();
    let mut s = statement(Kind::Frontier, Phase::Cleanup, STORE_FRONTIER);
    s.params = vec![Value::text(json), Value::text(models)];
    s
}

/// Makes the statement that fails if another refresher has the lease. Otherwise the statement keeps the lease
/// from other refreshers until the end of the transaction.
pub(super) fn hold_lease(lease: Lease) -> Statement {
    let text = format!("SELECT pgtrickle.hold_lease({}, {})", lease.role, lease.fence);
    statement(Kind::Lease, Phase::Cleanup, text)
}

/// Makes the statement that fails with `40001` where a source got or lost a partition since the snapshot:
/// statements before that change read other rows than statements after it. In a caller's session the statement
/// also fails where a source has a temporary child, whose rows other sessions do not see. `None`: there is
/// nothing to compare.
pub(super) fn require_partitions(plan: &Plan) -> Option<Statement> {
    let may = |s: &&Source| s.partitioned || matches!(plan.transaction, Transaction::Callers { .. });
    let read: BTreeSet<TableId> =
        plan.members.iter().flat_map(|m| &m.sources).filter(may).map(|s| s.relation.id).collect();
    let list: Vec<String> = read.iter().map(ToString::to_string).collect();
    let text = format!("SELECT pgtrickle.require_partitions('{{{}}}')", list.join(","));
    (!read.is_empty()).then(|| statement(Kind::Partitions, Phase::Cleanup, text))
}

/// Builds the statement that writes history. Time that was spent once for all members counts for each member.
/// `facts` returns the facts about a member. For each member, the statement returns how many milliseconds at
/// most the changes that the refresh brought had waited.
pub(super) fn record<'f>(
    members: &[MemberReport],
    shared: &Phases,
    request: &Request,
    facts: impl Fn(i64) -> Option<&'f Facts>,
) -> Statement {
    let rows: Vec<serde_json::Value> = members
        .iter()
        .map(|m| {
            serde_json::json!({
                "pgt_id": m.id, "action": m.action.name(), "delta": m.delta_rows, "inserted": m.rows_inserted,
                "updated": m.rows_updated, "deleted": m.rows_deleted, "reason": m.reason,
                "predicted_ms": m.predicted_ms,
                "phase_ms": phase_ms(&m.phases, shared),
                "committed": facts(m.id).and_then(Facts::committed).as_deref(), "since": facts(m.id).and_then(|f| f.then.as_deref()),
                "brought": m.brought_changes(),
            })
        })
        .collect();
    let mut s = statement(Kind::History, Phase::Cleanup, RECORD);
    let quiet = request.quiet_ms.map_or(Value::Null, |ms| Value::Int8(i64::try_from(ms).unwrap_or(i64::MAX)));
    let rows = Value::text(serde_json::Value::Array(rows).to_string());
    s.params = vec![rows, Value::text(request.initiated_by.name()), quiet];
    s.fetch = true;
    s
}

/// Returns milliseconds by phase. The cleanup for all members is left out, since this cleanup is not over
/// when history is written.
fn phase_ms(own: &Phases, shared: &Phases) -> serde_json::Value {
    let ms = |own: u64, shared: u64| own.saturating_add(shared) as f64 / 1e3;
    serde_json::json!({
        "wait": ms(own.wait, shared.wait), "decide": ms(own.decide, shared.decide),
        "generate": ms(own.generate, shared.generate), "execute": ms(own.execute, 0), "cleanup": ms(own.cleanup, 0),
    })
}

/// Makes the statement that writes into history that a refresh was given up, and why. Run this statement
/// after the rollback.
pub fn record_skip(id: i64, why: &str, initiated_by: Initiator) -> Statement {
    let mut s = statement(Kind::History, Phase::Cleanup, RECORD_SKIP);
    s.params = vec![Value::Int8(id), Value::text(why), Value::text(initiated_by.name())];
    s.pipeline = false;
    s
}

/// Makes the statement that counts a failed refresh as an error of a stream table and writes the error into
/// history. Run this statement after the rollback. The statement suspends the table after
/// `max_consecutive_errors` errors in a row (0: never). Run the statement only for failures of kind
/// [`super::FailureKind::Statement`].
pub fn record_failure(
    id: i64,
    message: &str,
    initiated_by: Initiator,
    max_consecutive_errors: u32,
) -> Statement {
    let mut s = statement(Kind::History, Phase::Cleanup, RECORD_FAILURE);
    s.params = vec![
        Value::Int8(id),
        Value::text(message),
        Value::text(initiated_by.name()),
        Value::Int8(i64::from(max_consecutive_errors)),
    ];
    s.pipeline = false;
    s
}
