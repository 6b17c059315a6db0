//! The error of a call rolls back the suspension of a stream table. A planner then suspends that stream table
//! again.

use super::scheduler::CATALOG;
use super::{as_role, start, tell, transaction};
use crate::unsafe_pg::{Limit, Scheduled};
use pgrx::PgXactCallbackEvent::{Abort, Commit};
use pgrx::bgworkers::{BackgroundWorker, SignalWakeFlags};
use pgrx::prelude::*;
use std::cell::Cell;
use std::ffi::CStr;
use trickle_core::catalog::TableId;
use trickle_engine::Error;
use trickle_engine::db::Connection;

/// Name of the planner's process.
const NAME: &CStr = c"pg_trickle planner";

/// The longest wait of a planner for a lock, and the longest run of a planner, both in milliseconds. DROP
/// DATABASE fails only if another process stays for five seconds, and a planner ends before that. A short
/// limit also frees the planner's place among the server's processes soon.
const PATIENCE: (&CStr, i32) = (c"2000", 4000);

thread_local! {
    /// Whether this transaction starts a planner when it ends. A transaction starts at most one planner, for
    /// its first stream table, since calls in a loop must not fill the server with processes.
    static STARTS: Cell<bool> = const { Cell::new(false) };
}

/// Lets a planner suspend a stream table. The planner starts when this transaction ends, whether or not the
/// transaction is committed. At that time the locks of the transaction are released, and its committed
/// changes are visible. If the server has no room for the planner, the next refresh finds the same error.
pub(crate) fn suspend_after(id: TableId) {
    if STARTS.replace(true) {
        return;
    }
    let task = i64::from(Scheduled::database().to_u32()) << 32 | i64::from(id.0);
    for end in [Abort, Commit] {
        pgrx::register_xact_callback(end, move || {
            STARTS.set(false);
            let _ = start("pg_trickle planner", "pg_trickle_planner", task.into_datum(), 0);
        });
    }
}

/// Runs the planner. Its argument holds the database and the table.
pub(super) fn plan(task: pg_sys::Datum) {
    let Some((database, id)) = Scheduled::task(task) else { return };
    BackgroundWorker::attach_signal_handlers(SignalWakeFlags::SIGHUP);
    Scheduled::begin(Some(database), NAME);
    Scheduled::hurry(PATIENCE.0);
    let _limit = Limit::begin(PATIENCE.1);
    let owner = transaction(async |inside| {
        let db: &dyn Connection = &inside;
        let text = format!(
            "SELECT c.relowner FROM pg_catalog.pg_class c, ({CATALOG}) k(owner, superusers) \
             WHERE c.oid = $1 AND (k.superusers OR k.owner = c.relowner)"
        );
        let row = db.query_opt(&text, &[&id]).await;
        row.map(|r| r.map(|r| r.get::<u32>(0))).map_err(|e| Error::server("look whose the table is", e))
    });
    let done = match owner {
        // The table was dropped, or this owner's entries in the catalog cannot be trusted.
        Ok(None) => return,
        Ok(Some(owner)) => as_role(owner, async |t| t.suspend_unplannable(TableId(id)).await),
        Err(e) => Err(e),
    };
    done.unwrap_or_else(|e| tell(&e));
}
