//! One refresh of a set of linked stream tables over one snapshot, as a machine without I/O.
//!
//! A driver (asynchronous over a connection, or synchronous inside the server) asks [`Machine::step`] what to
//! send, sends it, and hands back the answers. The machine decides everything else, so that all drivers run
//! the same statements in the same order:
//!
//! 1. `BEGIN ISOLATION LEVEL REPEATABLE READ`, the locks (none of which takes a snapshot), then the decision
//!    query: one round trip. Everything after it reads the query's snapshot, S1.
//! 2. For each stream table, upstream first: nothing; or, under the settings of its creation, its delta under
//!    a savepoint, or a recompute. A delta that meets a data error (class 21, 22) goes back to the savepoint
//!    and is recomputed in the same run.
//! 3. The lease of a refresh on schedule, the frontier S1 and the history, for all members at once, and
//!    `COMMIT`.
//!
//! Laws (tested against a scripted server):
//!
//! - Whatever fails at whatever step, the last statement is `ROLLBACK`.
//! - A serialization failure or deadlock starts again with a new snapshot, a bounded number of times.
//! - A frontier is stored iff everything before it succeeded.
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
    Bind, KeptBy, Lease, Lock, Member, Plan, Program, Reader, ReaderView, Relation, Request, Setting, Source,
    Template, Transaction, Windows, Yield,
};
pub use program::{Compiled, Piece, PieceParam};
pub use recompute::{KeyColumn, Recompute};
pub use report::{Action, Failure, FailureKind, MemberReport, Phases, Report};

use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A value bound to a parameter or returned in a row. Types without a variant here are cast from text
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
    /// Returns the integer, where the value is one.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Value::Int8(n) => Some(*n),
            _ => None,
        }
    }
    /// Returns the text, where the value is one.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Value::Text(s) => Some(s),
            _ => None,
        }
    }
    /// Whether the value is TRUE; NULL is not.
    pub fn is_true(&self) -> bool {
        matches!(self, Value::Bool(true))
    }
}

/// The phase of a refresh to which the time of a statement is accounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Waiting for locks.
    Wait,
    /// Snapshot, counts.
    Decide,
    /// Choosing and making statements (spent in the machine, measured by the driver).
    Generate,
    /// The statements of the refresh program.
    Execute,
    /// Frontier, history, end of the transaction.
    Cleanup,
}

/// The purpose of a statement. A driver inside the server replaces the transaction statements by their C
/// equivalents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Starts the transaction.
    Begin,
    /// Puts a stored setting in force.
    Setting,
    /// Locks tables.
    Lock,
    /// Takes the snapshot and counts the pending changes.
    Decide,
    /// Sets the savepoint of a member.
    Savepoint,
    /// Is a part of a member's refresh program.
    Program,
    /// Is a part of the program that makes, changes or drops hidden objects and triggers: it runs as the
    /// catalog's owner, whoever refreshes.
    Define,
    /// Releases the savepoint.
    Release,
    /// Goes back to the savepoint.
    RollbackTo,
    /// Asks for the last command of the caller's transaction.
    Command,
    /// Fails where a source got or lost partitions since the snapshot.
    Partitions,
    /// Holds the lease that the refresh is committed under, or fails.
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
    /// Number since the machine started, over all attempts: fault tests stop at it.
    pub step: usize,
    /// Purpose of the statement.
    pub kind: Kind,
    /// Phase to which its time counts.
    pub phase: Phase,
    /// The stream table (`pgt_id`) that the statement belongs to, if to one.
    pub member: Option<i64>,
    /// The text; `$n` refers to `params[n − 1]`.
    pub text: Arc<str>,
    /// Bound values.
    pub params: Vec<Value>,
    /// The sizes of the tables that the statement reads, as one number. It differs where a table has another
    /// power of two of rows: a plan that is kept is for one scale.
    pub scale: u64,
    /// Whether the rows are wanted.
    pub fetch: bool,
    /// Whether the statement may be sent together with the next of its batch, before its own answer is there.
    /// False on the last.
    pub pipeline: bool,
}

/// The answer to one statement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// The rows, where they were asked for.
    pub rows: Vec<Vec<Value>>,
    /// The number of rows in the command tag.
    pub affected: u64,
    /// The time that the statement took, in microseconds.
    pub micros: u64,
}

/// An error from the server or the connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DbError {
    /// Five characters; `08006` where the connection broke.
    pub sqlstate: String,
    /// The primary message.
    pub message: String,
    /// DETAIL, if any.
    pub detail: Option<String>,
    /// HINT, if any.
    pub hint: Option<String>,
}

impl DbError {
    /// Whether the data raised the error (SQLSTATE class 21 or 22).
    pub fn is_data(&self) -> bool {
        self.sqlstate.starts_with("21") || self.sqlstate.starts_with("22")
    }
    /// Whether the transaction may succeed if it is tried again as a whole: class 40, and the loss of a
    /// prepared statement, which the driver then prepares anew.
    pub fn is_retryable(&self) -> bool {
        self.sqlstate.starts_with("40") || self.sqlstate == "26000"
    }
}

/// The outcome of a batch: the answers of its statements in order, up to the first that failed. Statements
/// after a failed one must not have run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// One answer per statement that succeeded.
    pub answers: Vec<Answer>,
    /// The error of the statement after the last answered one.
    pub error: Option<DbError>,
    /// The time that the call of [`Machine::step`] before took, in microseconds.
    pub generate_micros: u64,
}

impl Outcome {
    /// Returns the outcome that the first step is given.
    pub fn start() -> Outcome {
        Outcome::default()
    }
}

/// The next thing for a driver to do.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Run these in order, stop at the first error, and report with [`Machine::step`].
    Run(Vec<Statement>),
    /// The refresh is committed (or there was nothing to do).
    Done(Report),
    /// Nothing was changed.
    Fail(Failure),
}

#[cfg(test)]
mod tests;
