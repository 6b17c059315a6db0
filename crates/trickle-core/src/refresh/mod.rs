//! One refresh of a set of linked stream tables over one snapshot, as a machine without I/O.
//!
//! A driver works asynchronously over a connection, or synchronously inside the server. The driver calls
//! [`Machine::step`], sends the statements that the call returns, and passes the answers to the next call.
//! The machine decides everything else, so all drivers run the same statements in the same order:
//!
//! 1. `BEGIN ISOLATION LEVEL REPEATABLE READ`, the locks, then the decision query, in one round trip. Locking
//!    takes no snapshot, so the decision query takes the snapshot, S1. All later statements read S1.
//! 2. The refresh of each stream table, under the settings from the table's creation. Sources are refreshed
//!    before their readers. A stream table without changes is skipped. Any other stream table is refreshed by
//!    its delta under a savepoint, or by a recompute. If a delta raises a data error (class 21, 22), the
//!    machine goes back to the savepoint and recomputes in the same attempt.
//! 3. One batch that ends the refresh of all stream tables of the set. The batch checks the lease if the
//!    refresh is on schedule, stores S1 as the frontier, writes history, and commits.
//!
//! Laws (tested against a scripted server):
//!
//! - Whatever error stops a refresh, at whatever step, the last statement is `ROLLBACK`.
//! - After a serialization failure or deadlock the refresh starts again with a new snapshot, a bounded number
//!   of times.
//! - A frontier is stored if and only if every earlier statement succeeded.
//! - Equal answers give equal statements.

mod control;
mod copied;
mod facts;
mod installed;
mod machine;
mod memory;
mod plan;
mod program;
mod recompute;
mod report;

pub use control::{
    ABANDONED, PENDING, decide_text, glance_text, peek_text, pending_text, record_failure, record_skip, size,
    stored_frontiers,
};
pub use copied::Copied;
pub use installed::Installed;
pub use machine::Machine;
pub use memory::WorkMem;
pub use plan::{
    Bind, Effect, KeptBy, Lease, Lock, Member, Plan, Program, Reader, ReaderView, Relation, Request, Setting,
    Source, Template, Transaction, Windows,
};
pub use program::{Compiled, Piece, PieceParam};
pub use recompute::{KeyColumn, Recompute};
pub use report::{Action, Failure, FailureKind, MemberReport, Phases, Report};

use crate::server_error::ServerError;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A value bound to a parameter or returned in a row. A type that has no variant is cast from text
/// (`($1::text)::pg_snapshot`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Value {
    /// SQL NULL.
    Null,
    /// `boolean`
    Bool(bool),
    /// `bigint`
    Int8(i64),
    /// `double precision`
    Float8(f64),
    /// `text`
    Text(Arc<str>),
}

impl Value {
    /// Makes a text value.
    pub fn text(s: impl AsRef<str>) -> Value {
        Value::Text(Arc::from(s.as_ref()))
    }
    /// Returns the integer. Returns `None` if the value is not an integer.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Value::Int8(n) => Some(*n),
            _ => None,
        }
    }
    /// Returns the text. Returns `None` if the value is not a text.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Value::Text(s) => Some(s),
            _ => None,
        }
    }
    /// Whether the value is TRUE; false for NULL.
    pub fn is_true(&self) -> bool {
        matches!(self, Value::Bool(true))
    }
}

/// The phase of a refresh to which the time of a statement is charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The wait for locks.
    Wait,
    /// Taking the snapshot and counting the pending changes.
    Decide,
    /// Choosing a strategy and making the statements, in the machine; the driver measures the time.
    Generate,
    /// The statements of the refresh program.
    Execute,
    /// Storing the frontier, writing history, and ending the transaction.
    Cleanup,
}

/// The purpose of a statement. A driver inside the server replaces the transaction statements by their C
/// equivalents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Starts the transaction.
    Begin,
    /// Puts a setting in force. Some settings were stored when the stream table was created; others are the
    /// same for every refresh.
    Setting,
    /// Locks tables.
    Lock,
    /// Takes the snapshot and counts the pending changes.
    Decide,
    /// Sets the savepoint of a member.
    Savepoint,
    /// Is a part of a member's refresh program.
    Program,
    /// Makes, changes or drops hidden objects and triggers, as part of the program. The statement runs as the
    /// catalog's owner, whichever role runs the refresh.
    Define,
    /// Releases the savepoint.
    Release,
    /// Goes back to the savepoint.
    RollbackTo,
    /// Reads the number of the last command in the caller's transaction.
    Command,
    /// Fails where a source got or lost partitions since the snapshot.
    Partitions,
    /// Holds the lease under which the refresh is committed; fails if another refresher has it.
    Lease,
    /// Stores the frontier.
    Frontier,
    /// Writes history.
    History,
    /// Ends the transaction.
    Commit,
    /// Undoes the transaction.
    Rollback,
}

/// One statement with its parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Statement {
    /// Number of the statement since the machine started, over all attempts. Tests of faults use the number
    /// to stop at a statement.
    pub step: usize,
    /// Purpose of the statement.
    pub kind: Kind,
    /// Phase to which the time of the statement is charged.
    pub phase: Phase,
    /// The stream table (`pgt_id`) that the statement belongs to. `None` for a statement for all members.
    pub member: Option<i64>,
    /// The text; `$n` refers to `params[n − 1]`.
    pub text: Arc<str>,
    /// Bound values.
    pub params: Vec<Value>,
    /// The sizes of the tables that the statement reads, as one number. The number changes when a table's row
    /// count reaches another power of two. A driver uses a prepared plan only for the number for which it was
    /// made.
    pub scale: u64,
    /// Whether the driver returns the rows of the answer.
    pub fetch: bool,
    /// Whether the next statement of the batch may be sent before the answer to this statement arrives. False
    /// for the last statement of a batch.
    pub pipeline: bool,
}

/// The answer to one statement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// The rows, if the statement has [`Statement::fetch`].
    pub rows: Vec<Vec<Value>>,
    /// The number of rows in the command tag.
    pub affected: u64,
    /// The time that the statement took, in microseconds.
    pub micros: u64,
}

/// The outcome of a batch: the answers of its statements in order, up to the first statement that failed. The
/// driver must not run the statements after a failed one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// One answer per statement that succeeded.
    pub answers: Vec<Answer>,
    /// The error of the statement after the last statement that succeeded.
    pub error: Option<ServerError>,
    /// The time that the previous call of [`Machine::step`] took, in microseconds.
    pub generate_micros: u64,
}

impl Outcome {
    /// Returns the outcome for the first call of [`Machine::step`].
    pub fn start() -> Outcome {
        Outcome::default()
    }
}

/// The next thing for a driver to do.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Statements to run in order, up to the first error. The driver passes the outcome to [`Machine::step`].
    Run(Vec<Statement>),
    /// The refresh is committed, or there was nothing to do.
    Done(Report),
    /// The refresh failed and changed nothing.
    Fail(Failure),
}

#[cfg(test)]
mod tests;
