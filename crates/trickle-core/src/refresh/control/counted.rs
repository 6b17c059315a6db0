//! Query parts that find the rows of a change buffer that a stored frontier does not count.

use super::{array, qualified};
use crate::cdc::OVERFLOWED;
use crate::refresh::plan::{Member, Reader, Relation, Source};
use crate::sql::quoted;
use crate::table::{TableId, TableKind};
use std::collections::{BTreeMap, BTreeSet};

/// Whether a row `b` of a buffer is pending: the frontier `f` of [`stored_frontiers`] does not count it. The
/// transaction `f.own` is tested first. The frontier counts this transaction only up to a command, and the
/// snapshot cannot tell which of the transaction's rows are counted.
pub const PENDING: &str = "b.xid >= f.low AND CASE WHEN b.xid = f.own THEN b.cmin::text::int8 > f.command \
     WHEN b.xid >= f.high THEN true ELSE NOT pg_visible_in_snapshot(b.xid, f.snapshot) END";

/// Returns the expression for the planner's estimate of the number of rows in a table and its partitions. The
/// estimate is the density at the last ANALYZE times the present size. For a table that was never analysed,
/// the expression assumes one row per 100 bytes, since an estimate of 0 would make a full refresh look free.
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

/// Groups the members by source. A source gets two groups if only some of its members know its change buffer.
pub(super) fn by_source<'m>(members: &[Reader<'m>]) -> Vec<(&'m Source, BTreeSet<i64>)> {
    let mut by_source: BTreeMap<(TableId, bool), (&Source, BTreeSet<i64>)> = BTreeMap::new();
    for m in members {
        for s in m.sources {
            let key = (s.relation.id, s.changes.is_some());
            by_source.entry(key).or_insert_with(|| (s, BTreeSet::new())).1.insert(m.id);
        }
    }
    by_source.into_values().collect()
}

/// Returns the members as readers of their sources.
pub(super) fn readers(members: &[Member]) -> Vec<Reader<'_>> {
    members.iter().map(Reader::from).collect()
}

/// Returns the stored frontiers of the members.
pub(super) fn frontiers(members: &[Reader<'_>]) -> String {
    stored_frontiers(&format!("pgt_id = ANY ({})", array(members.iter().map(|m| &m.id))))
}

/// Returns the clause `WITH frontiers`, which [`PENDING`] reads. The clause covers the stream tables that
/// meet a condition. It has one numbered row for each of their distinct stored frontiers, with the ids of the
/// stream tables that have this frontier. Linked stream tables share a frontier. In a frontier, at most one
/// transaction is counted only up to a command. The clause is materialized, since the planner would otherwise
/// parse the frontier again for each buffered row.
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
pub(super) enum FactScope {
    /// All facts. They include the source's size, and whether the source's name still denotes the same table.
    /// Reading the size waits for a lock that another session holds on the source.
    All,
    /// The number of pending rows only. Counting them waits for no lock on the source.
    Pending,
}

/// Returns the expression for the time when the first pending row of a table that users write was committed.
/// The value is NULL where the server does not track commit times. The value is `-infinity` where the server
/// lacks the commit time of a row, or another server set that time. The expression reads the commit time once
/// for each transaction, since the read takes locks that commits need too. The expression is not for stream
/// tables: their rows carry the commit time of a refresh, and the change was committed earlier.
fn committed(buffer: &Relation) -> String {
    format!(
        "CASE WHEN f.tracked THEN (SELECT min(CASE WHEN c.roident = 0 THEN c.\"timestamp\" ELSE '-infinity' END) \
         FROM (SELECT DISTINCT b.xid FROM {} b WHERE b.w <> 0 AND {PENDING}) b \
         CROSS JOIN LATERAL pg_xact_commit_timestamp_origin(b.xid::xid) c) END",
        qualified(buffer)
    )
}

/// Returns the query for the facts about one source. The result has one row for each frontier whose stream
/// tables (`ids`) include one of `readers`. The first columns are the source, and whether its name still
/// denotes it. The next columns are the number of its rows, and the number of pending rows in its buffer
/// (NULL: not captured). Further columns tell why the pending rows are useless (as in [`pending_text`]), and
/// when the first pending row was committed. A buffer is read once for each frontier, not once for each
/// member.
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
pub(super) fn join_counted(members: &[Reader<'_>], told: FactScope) -> String {
    let none = "SELECT NULL::int8, NULL::bool, NULL::int8, NULL::int8, NULL::bool, NULL::timestamptz, NULL::int8[], NULL::int8[] WHERE false";
    let arms = by_source(members).into_iter().map(|(source, ids)| counted(source, &ids, told));
    let arms: Vec<String> = std::iter::once(none.to_owned()).chain(arms).collect();
    format!(
        "LEFT JOIN ({}) s(source, held, rows, pending, cut, committed, ids, readers) \
         ON t.pgt_id = ANY (s.ids) AND t.pgt_id = ANY (s.readers)",
        arms.join(" UNION ALL ")
    )
}

/// Returns the expression that tells whether a relation's name still denotes the same relation.
pub(super) fn held(r: &Relation) -> String {
    format!("coalesce(to_regclass({})::oid = {}, false)", quoted(&qualified(r).to_string()), r.id)
}

/// Returns the query for the amount of pending changes. People read this amount. For every member and source,
/// the query returns how many rows of the buffer the stored frontier does not count (NULL: not captured). The
/// query also tells why these rows are useless: NULL if they are not, false for a TRUNCATE, true for a buffer
/// at its limit. The query waits for no lock on a source and assigns no transaction id, but reads every
/// pending row. Columns: `pgt_id`, source oid, rows, why the rows are useless.
pub fn pending_text(readers: &[Reader<'_>]) -> String {
    format!(
        "{} SELECT t.pgt_id, s.source::oid, s.pending, s.cut FROM pgtrickle.pgt_stream_tables t {} \
         WHERE t.pgt_id = ANY ({}) AND s.source IS NOT NULL ORDER BY t.pgt_id, s.source",
        frontiers(readers),
        join_counted(readers, FactScope::Pending),
        array(readers.iter().map(|m| &m.id))
    )
}
