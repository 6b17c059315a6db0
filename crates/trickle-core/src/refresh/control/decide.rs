//! The decision query, which takes the snapshot of a refresh and counts the pending changes.

use super::array;
use super::counted::{FactScope, frontiers, held, join_counted, readers, size};
use crate::refresh::plan::Member;
use crate::sql::quoted;

/// The expression for the reason why `t` must be recomputed. Its value is NULL where there is no reason.
const REBUILT: &str = "CASE WHEN NOT t.is_populated THEN 'it was never filled' \
     WHEN t.needs_reinit THEN coalesce(t.reinit_reason, 'it was marked for a rebuild') END";

/// Whether triggers, publications or readers must see exactly the rows of `t` that changed, and no others. A
/// trigger or a rule on `t` watches `t`, and so does a stream table that reads `t` by deltas. A foreign key
/// to `t` counts, since it makes a trigger. The trigger that refuses writes does not count. Publications of
/// `t`, or of a table that has `t` as a partition, watch `t` too, and so does a slot that decodes all tables.
/// A table that was never filled is not watched.
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

/// Returns the decision query. The query takes the snapshot, and counts the pending changes for every member
/// and source. It returns one row per pair of member and source; a member without sources has one row with
/// NULLs. The columns are:
///
/// - the snapshot, the query's own xid, the system identifier, the database oid;
/// - of the member: `pgt_id`, frontier, why the member must be recomputed, stored rows, whether it is
///   watched;
/// - whether the member's name still denotes its table, the definition is the expected one, and nothing
///   changed that the plan relies on (the locks keep the answer true);
/// - of the source: oid, whether its name still denotes it, rows, pending rows (NULL: not captured);
/// - of the pending rows: why they are useless ([`pending_text`](super::pending_text)), when the first of
///   them was committed (NULL: not known);
/// - the time of this refresh, the time of the stored rows, and the costs of earlier refreshes
///   ([`Model`](crate::cost::Model)).
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
