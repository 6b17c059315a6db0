//! The statements that a refresh sends before and after the refresh programs of its members. Only this module
//! of `refresh` has SQL texts that are written by hand. The SQL tree has no nodes for PostgreSQL's catalogs,
//! snapshots and transactions. A value from outside is a bind parameter, a number, or text printed by
//! [`crate::sql`].

mod counted;
mod decide;
mod history;
mod look;

pub use counted::{PENDING, pending_text, size, stored_frontiers};
pub use decide::decide_text;
pub(in crate::refresh) use history::{Learnt, forget_parts, record, store_frontier};
pub use history::{record_failure, record_skip};
pub use look::{glance_text, peek_text};

use super::plan::{Lease, Lock, Member, Plan, Relation, Setting, Transaction};
use super::{Kind, Phase, Statement};
use crate::sql::{Ident, Qualified, quoted};
use crate::table::{TableId, TableKind};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// The longest time for which a transaction of a refresh may be idle, waiting for its refresher. After this
/// time, the server ends the transaction and releases its locks. Another refresher may wait for these locks.
/// The time between two statements is normally milliseconds.
pub const ABANDONED: Duration = Duration::from_secs(10);

pub(super) const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ";
pub(super) const COMMIT: &str = "COMMIT";
pub(super) const ROLLBACK: &str = "ROLLBACK";
pub(super) const SAVEPOINT: &str = "SAVEPOINT trickle_member";
pub(super) const RELEASE: &str = "RELEASE SAVEPOINT trickle_member";
pub(super) const ROLLBACK_TO: &str = "ROLLBACK TO SAVEPOINT trickle_member";

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

/// Makes a `SET LOCAL`. Unlike `set_config()`, this statement takes no snapshot.
pub(super) fn setting(s: &Setting) -> Statement {
    let name: Vec<String> = s.name.split('.').map(|part| Ident::new(part).to_string()).collect();
    // Objects in the caller's temporary schema must not hide others, so `pg_temp` comes last.
    let temporary = (s.name == "search_path" && s.values.iter().all(|v| v != "pg_temp")).then_some("pg_temp");
    let values: Vec<String> = s.values.iter().map(String::as_str).chain(temporary).map(quoted).collect();
    let values = if values.is_empty() { quoted("") } else { values.join(", ") };
    statement(Kind::Setting, Phase::Decide, format!("SET LOCAL {} = {values}", name.join(".")))
}

/// Returns the `LOCK TABLE` statements. They are in order of oid, so two refreshes cannot deadlock on the
/// locks. Members are locked against other refreshers, and their sources against TRUNCATE and rewrites.
/// Tables of a locked [`KeptBy`](super::plan::KeptBy) are locked against writers.
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

/// Locks the catalog rows of the members until the end of the transaction. The caller's transaction may be
/// READ COMMITTED, where each statement reads the newest versions of rows. Without this lock, storing the
/// frontier would then overwrite a mark that another session set after the snapshot.
pub(super) fn hold(members: &[Member]) -> Statement {
    let text = format!(
        "SELECT FROM pgtrickle.pgt_stream_tables WHERE pgt_id = ANY ({}) ORDER BY pgt_id FOR NO KEY UPDATE",
        array(members.iter().map(|m| &m.id))
    );
    statement(Kind::Lock, Phase::Wait, text)
}

/// Makes the statement that fails if another refresher has the lease. Otherwise the statement keeps the lease
/// from other refreshers until the end of the transaction.
pub(super) fn hold_lease(lease: Lease) -> Statement {
    let text = format!("SELECT pgtrickle.hold_lease({}, {})", lease.role, lease.fence);
    statement(Kind::Lease, Phase::Cleanup, text)
}

/// Makes the statement that fails with `40001` where a source got or lost a partition since the snapshot, or
/// was emptied. The refresh's statements before that change read other rows than those after it. In a
/// caller's session the statement also fails where a source has a temporary child, since other sessions do
/// not see the child's rows. Returns `None` if there is nothing to compare.
pub(super) fn require_sources(plan: &Plan) -> Option<Statement> {
    let callers = matches!(plan.transaction, Transaction::Callers { .. });
    let sources = plan.members.iter().flat_map(|m| &m.sources).filter(|s| s.partitioned || callers);
    let kept = plan.members.iter().filter(|_| callers).filter_map(|m| m.kept_by.as_ref());
    let kept = kept.flat_map(|k| &k.tables).map(|r| r.id);
    let read: BTreeSet<TableId> = sources.map(|s| s.relation.id).chain(kept).collect();
    let list: Vec<String> = read.iter().map(ToString::to_string).collect();
    let text = format!("SELECT pgtrickle.require_sources('{{{}}}')", list.join(","));
    (!read.is_empty()).then(|| statement(Kind::Partitions, Phase::Cleanup, text))
}

fn array<'a>(ids: impl IntoIterator<Item = &'a i64>) -> String {
    let ids: Vec<String> = ids.into_iter().map(ToString::to_string).collect();
    format!("'{{{}}}'::int8[]", ids.join(","))
}
