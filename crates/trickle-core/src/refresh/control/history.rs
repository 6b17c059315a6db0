//! The statements at the end of a refresh: storing the frontier, and writing history.

use super::{array, statement};
use crate::cost::Model;
use crate::refresh::facts::Facts;
use crate::refresh::plan::{Member, Request};
use crate::refresh::report::{MemberReport, Phases};
use crate::refresh::{Kind, Phase, Statement, Value};
use crate::vocabulary::Initiator;

/// Stores one frontier for all members, and the cost model of each member. If a stream table was suspended
/// because of failures, it becomes active again. If the user suspended the table, the table has an error
/// count of 0 and stays suspended. `now()` is the time when the transaction began, before its snapshot. The
/// table therefore contains all changes committed by `now()`, and conditions on the clock were evaluated for
/// `now()`.
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

/// Counts an error of a stream table and writes history, in a separate transaction after the rollback. If the
/// user suspended the table, no error is counted: a suspended table with counted errors means suspension
/// because of failures.
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

/// The costs of a stream table, learnt from its refreshes, and the smallest share of changed rows for which a
/// recompute is cheaper.
#[derive(serde::Serialize)]
pub(in crate::refresh) struct Learnt {
    pub(in crate::refresh) id: i64,
    pub(in crate::refresh) model: Model,
    pub(in crate::refresh) threshold: Option<f64>,
}

pub(in crate::refresh) fn store_frontier(json: &str, models: &[Learnt]) -> Statement {
    let models = models.iter().map(|learnt| serde_json::json!(learnt));
    let models = serde_json::Value::Array(models.collect()).to_string();
    let mut s = statement(Kind::Frontier, Phase::Cleanup, STORE_FRONTIER);
    s.params = vec![Value::text(json), Value::text(models)];
    s
}

/// Builds the statement after which all changes of the sources of these members count as captured. Returns
/// `None` if all these changes count as captured already. A stored frontier counts all changes, captured or
/// not.
pub(in crate::refresh) fn forget_parts(members: &[Member]) -> Option<Statement> {
    let parts = members.iter().filter(|m| m.part.is_some()).map(|m| &m.id);
    let ids = array(parts);
    let text = format!(
        "UPDATE pgtrickle.pgt_dependencies SET stayed = NULL WHERE pgt_id = ANY ({ids}) AND stayed IS NOT NULL"
    );
    members.iter().any(|m| m.part.is_some()).then(|| statement(Kind::Frontier, Phase::Cleanup, text))
}

/// Builds the statement that writes history. Time that was spent once for all members counts for each member.
/// `facts` returns the facts about a member. For each member, the statement returns the longest time, in
/// milliseconds, that a change waited before this refresh applied it.
pub(in crate::refresh) fn record<'f>(
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

/// Returns milliseconds by phase. The cleanup for all members is left out, since it is not finished when
/// history is written.
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
/// [`FailureKind::Statement`](crate::refresh::FailureKind::Statement).
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
