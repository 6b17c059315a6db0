//! Prepared statements of the server's executor.

use super::rights::{Lending, Lent};
use super::values::{Columns, Values, fetched};
use pgrx::{PgSqlErrorCode, pg_sys};
use std::ffi::CStr;
use std::rc::Rc;
use trickle_engine::db::Rows;

/// A prepared statement, kept until its last copy is dropped. Its plan is made once, for any values.
#[derive(Clone, Debug)]
pub(crate) struct Plan(Rc<Owned>);

#[derive(Debug)]
struct Owned {
    plan: pg_sys::SPIPlanPtr,
    types: Vec<pg_sys::Oid>,
    lent: Lent,
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: the plan belongs to this value alone and was not freed: the server frees no plan that is
        // kept.
        unsafe { pg_sys::SPI_freeplan(self.plan) };
    }
}

impl Plan {
    /// Prepares a statement and keeps it. The executor must be connected; an error of the server's leaves
    /// nothing behind.
    pub(super) fn kept(text: &CStr, values: &Values) -> Plan {
        let (plan, lent) = prepared(text, values, pg_sys::CURSOR_OPT_GENERIC_PLAN as i32);
        // SAFETY: the plan was just made.
        let kept = unsafe { pg_sys::SPI_keepplan(plan) };
        if kept != 0 {
            pgrx::error!("cannot keep a statement: {kept}");
        }
        Plan(Rc::new(Owned { plan, types: values.types.clone(), lent }))
    }

    /// Runs `work` on a statement that is prepared for this call alone.
    pub(super) fn once<T>(text: &CStr, values: &Values, work: impl FnOnce(&Bare) -> T) -> T {
        let (plan, _) = prepared(text, values, 0);
        let done = work(&Bare(plan));
        // SAFETY: the plan was made above. If `work` raises an error, the end of the executor's connection
        // frees the plan.
        unsafe { pg_sys::SPI_freeplan(plan) };
        done
    }

    /// Whether values of these types can be bound.
    pub(crate) fn fits(&self, params: &[trickle_engine::db::Param<'_>]) -> bool {
        self.0.types == Values::of(params).types
    }

    /// Runs the statement, if the current role may still use the rights that were lent to the statement.
    pub(super) fn execute(&self, values: &Values, snapshot: pg_sys::Snapshot) -> (Rows, Columns) {
        self.0.lent.require();
        Bare(self.0.plan).execute(values, snapshot)
    }
}

/// A prepared statement alone, without the rights that were lent to it.
pub(super) struct Bare(pg_sys::SPIPlanPtr);

impl Bare {
    /// Runs the statement under a snapshot, or under a snapshot of its own if `snapshot` is null. Returns its
    /// rows, and their columns.
    pub(super) fn execute(&self, values: &Values, snapshot: pg_sys::Snapshot) -> (Rows, Columns) {
        // SAFETY: the executor is connected. The lists have an element for each parameter and outlive the
        // call. The plan has one statement, and keeps its text: if the plan is out of date, the statement is
        // analysed again.
        unsafe {
            let source = pg_sys::list_nth(pg_sys::SPI_plan_get_plan_sources(self.0), 0);
            let _lending = Lending::to((*source.cast::<pg_sys::CachedPlanSource>()).query_string);
            let done = pg_sys::SPI_execute_snapshot(
                self.0,
                values.values.as_ptr().cast_mut(),
                values.nulls.as_ptr(),
                snapshot,
                std::ptr::null_mut(),
                false,
                true,
                0,
            );
            if done < 0 {
                pgrx::error!("cannot run a statement: {done}");
            }
            fetched()
        }
    }
}

/// Prepares a statement; returns it, and the rights that were lent to it.
fn prepared(text: &CStr, values: &Values, options: i32) -> (pg_sys::SPIPlanPtr, Lent) {
    // SAFETY: the executor is connected; the list of types outlives the call.
    unsafe {
        let types = values.types.as_ptr().cast_mut();
        let lending = Lending::to(text.as_ptr());
        let plan = pg_sys::SPI_prepare_cursor(text.as_ptr(), values.types.len() as i32, types, options);
        if plan.is_null() {
            let why = pg_sys::SPI_result;
            pgrx::error!("cannot prepare a statement: {why}");
        }
        if pg_sys::list_length(pg_sys::SPI_plan_get_plan_sources(plan)) != 1 {
            pgrx::ereport!(
                ERROR,
                PgSqlErrorCode::ERRCODE_SYNTAX_ERROR,
                "cannot run several statements as one"
            );
        }
        (plan, lending.lent())
    }
}
