//! Plans and takes the steps after which a database has the declared stream tables.
//!
//! A stream table that was made from declarations has their label. Stream tables without the label were made
//! by hand and are left alone. A stream table that has the label, but is not declared any more, is dropped.

mod carry_out;
mod differences;
mod plan;
mod queries;
mod renamed;

use crate::alter::{Readers, Replacement};
use crate::design::NewStreamTable;
use crate::error::Error;
use crate::names::Name;
use crate::registry::{Entry, Registry};
use trickle_core::vocabulary::{Mode, RefreshMode};

/// A stream table as it is declared.
#[derive(Clone, Debug)]
pub struct Declared {
    /// The name of the stream table.
    pub name: Name,
    /// The query of the stream table, with the comments around it.
    pub query: String,
    /// The schedule of the stream table; `None` means that only refreshes by hand are made.
    pub schedule: Option<String>,
    /// The mode of the stream table.
    pub mode: RefreshMode,
    /// Whether the stream table is refreshed in a transaction of its own ([`NewStreamTable::apart`]).
    pub apart: bool,
    /// Whether materialized views and foreign tables are followed ([`NewStreamTable::snapshots`]).
    pub snapshots: bool,
}

/// The action of a step on a stream table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepAction {
    /// Give the stream table its new name. The value is the former name.
    Rename(String),
    /// Make the stream table.
    Create,
    /// Keep the table, and fill it with the result of the new query or mode.
    Change,
    /// Put a new table in the place of the former one, since the columns cannot be changed in place.
    /// Indexes, grants and comments that users made are lost.
    Remake,
    /// Change only properties of the stream table in the catalog.
    Set,
    /// Add the stream table to the declarations, since it was made without them.
    Take,
    /// Drop the stream table, since it is not declared any more.
    Drop,
}

impl StepAction {
    /// Returns the name of the action, one word.
    pub fn name(&self) -> &'static str {
        match self {
            StepAction::Rename(_) => "rename",
            StepAction::Create => "create",
            StepAction::Change => "change",
            StepAction::Remake => "remake",
            StepAction::Set => "set",
            StepAction::Take => "take",
            StepAction::Drop => "drop",
        }
    }

    /// Whether the action drops a table, with the user's objects that depend on it.
    fn drops(&self) -> bool {
        matches!(self, StepAction::Remake | StepAction::Drop)
    }
}

/// A step of a plan.
#[derive(Clone, Debug)]
pub struct Step {
    /// The action of the step.
    pub action: StepAction,
    /// `schema.name` of the stream table, quoted where needed. If the step renames the stream table, this is
    /// the new name.
    pub name: String,
    /// The differences from the declaration, or other reasons for the step.
    pub why: Vec<String>,
    /// The position of the stream table among the declarations, if it is declared.
    pub declared: Option<usize>,
    /// `pgt_id` of the stream table, if it exists.
    pub id: Option<i64>,
    /// The mode of the stream table after the step, if it can be determined before the step.
    pub mode: Option<Mode>,
    /// The losses of a table that stays: columns, and the user's objects over these columns, such as `index
    /// totals_by_region`. `None` where the losses cannot be determined before the step.
    pub loses: Option<Vec<String>>,
}

impl Step {
    /// Whether the step loses something that the declaration does not restore: a table, or columns of a
    /// table.
    pub fn destroys(&self) -> bool {
        self.action.drops() || self.loses.as_ref().is_some_and(|l| !l.is_empty())
    }
}

/// The steps from the stream tables that a database has to the declared ones.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The declarations.
    pub declared: Vec<Declared>,
    /// The label of the declarations.
    pub label: String,
    /// The steps, in the order in which they are taken. Each step has its own transactions. If a step fails,
    /// the effects of the steps before it stay, and a new plan continues from them.
    pub steps: Vec<Step>,
    /// Stream tables that equal their declarations.
    pub unchanged: Vec<String>,
    /// Whether a step may destroy an object that the plan did not foresee.
    pub may_destroy: bool,
}

impl Plan {
    fn new(declared: &[Declared], label: &str) -> Plan {
        Plan { declared: declared.to_vec(), label: label.to_owned(), ..Plan::default() }
    }

    /// Whether the plan gives a stream table another query, or drops it.
    fn changes(&self, e: &Entry) -> bool {
        let changes =
            |s: &&Step| matches!(s.action, StepAction::Change | StepAction::Remake | StepAction::Drop);
        self.steps.iter().filter(changes).any(|s| s.id == Some(e.id))
    }

    /// Returns the way in which the result of a new query replaces the former result of a stream table.
    /// Columns that readers read may be dropped only if the plan changes all of the readers too.
    fn replacement(&self, registry: &Registry, e: &Entry, action: &StepAction) -> Replacement {
        let mut readers = registry.readers(e.relation.id);
        match action {
            StepAction::Remake => Replacement::Another,
            StepAction::Rename(_)
            | StepAction::Create
            | StepAction::Change
            | StepAction::Set
            | StepAction::Take
            | StepAction::Drop => Replacement::Same(if readers.all(|r| self.changes(r)) {
                Readers::Change
            } else {
                Readers::Stay
            }),
        }
    }

    /// Whether a step of the plan destroys something.
    pub fn destroys(&self) -> bool {
        self.steps.iter().any(Step::destroys)
    }
}

/// The reason why a plan or a step is refused, with the declaration at fault.
#[derive(Debug)]
pub struct Refused {
    /// The position of the declaration at fault, if there is one.
    pub declared: Option<usize>,
    /// The error that says why.
    pub error: Error,
}

impl From<Error> for Refused {
    fn from(error: Error) -> Refused {
        Refused { declared: None, error }
    }
}

impl Declared {
    fn stream_table(&self) -> NewStreamTable {
        NewStreamTable {
            schedule: Some(self.schedule.clone()),
            mode: Some(self.mode),
            apart: Some(self.apart),
            snapshots: self.snapshots,
            ..NewStreamTable::new(self.name.clone(), self.query.clone())
        }
    }
}
