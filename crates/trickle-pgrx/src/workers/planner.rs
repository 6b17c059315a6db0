//! A planner: does again what a failed call noted and rolled back, that a stream table cannot be planned any more.

use super::scheduler::CATALOG;
use super::{as_role, start, tell, transaction};
use crate::unsafe_pg::Scheduled;
use pgrx::PgXactCallbackEvent::{Abort, Commit};
use pgrx::prelude::*;
use std::ffi::CStr;
use trickle_core::catalog::TableId;
use trickle_engine::db::Connection;

/// What planners are called.
const NAME: &CStr = c"pg_trickle planner";

/// Plans a stream table in a process of its own, once this transaction is over, whichever way that ends: then it waits for no
/// lock of this one, and sees what this one left. Where the server has no room for a process, its next refresh finds the same.
pub(crate) fn plan_after(id: TableId) {
    let task = i64::from(Scheduled::database().to_u32()) << 32 | i64::from(id.0);
    for end in [Abort, Commit] {
        pgrx::register_xact_callback(end, move || {
            let _ = start("pg_trickle planner", "pg_trickle_planner", task.into_datum(), 0);
        });
    }
}

/// What a planner does: the server gives it the database and the table.
pub(crate) fn plan(task: pg_sys::Datum) {
    let Some((database, id)) = Scheduled::task(task) else { return };
    Scheduled::begin(Some(database), NAME);
    let owner = transaction(async |inside| {
        let db: &dyn Connection = &inside;
        let text = format!(
            "SELECT c.relowner FROM pg_catalog.pg_class c, ({CATALOG}) k(owner, superusers) \
             WHERE c.oid = $1 AND (k.superusers OR k.owner = c.relowner)"
        );
        db.query_opt(&text, &[&id]).await.ok().flatten().map(|r| r.get::<u32>(0))
    });
    let Some(owner) = owner else { return };
    // Where nobody can plan it any more it is suspended, and what is told of that stands in its status.
    as_role(owner, async |t| t.follow(TableId(id)).await).map(drop).unwrap_or_else(|e| tell(&e));
}
