//! Plans and takes the steps after which a database has the stream tables that are declared.
//!
//! A stream table that was made from declarations carries their label. By this label, a stream table that is
//! not declared any more is told from one that somebody made without declarations. The latter is left alone.

mod carry_out;
mod plan;

use crate::alter::{Readers, Way};
use crate::create::NewStreamTable;
use crate::error::Error;
use crate::names::Name;
use crate::registry::{Entry, Registry};
use trickle_core::vocabulary::{Mode, RefreshMode};

/// A stream table as it is declared.
#[derive(Clone, Debug)]
pub struct Declared {
    /// Its name.
    pub name: Name,
    /// Its query, with the comments around it.
    pub query: String,
    /// Its schedule; `None` leaves refreshes to be begun by hand.
    pub schedule: Option<String>,
    /// Its mode.
    pub mode: RefreshMode,
    /// Whether the stream table is refreshed by itself ([`NewStreamTable::apart`]).
    pub apart: bool,
    /// Whether materialized views and foreign tables are followed ([`NewStreamTable::snapshots`]).
    pub snapshots: bool,
}

/// The action of a step on a stream table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// Give it its new name; the value is its former one.
    Rename(String),
    /// Make it.
    Create,
    /// Keep the table, and fill it with the result of another query or mode.
    Change,
    /// Put another table in its place, since its columns cannot become the new ones. Indexes, grants and
    /// comments of the user's go.
    Remake,
    /// Change only its properties in the catalog.
    Set,
    /// Add it to the declarations, since it was made without them.
    Take,
    /// Drop it, since no declaration has it any more.
    Drop,
}

impl What {
    /// Returns the action in one word.
    pub fn name(&self) -> &'static str {
        match self {
            What::Rename(_) => "rename",
            What::Create => "create",
            What::Change => "change",
            What::Remake => "remake",
            What::Set => "set",
            What::Take => "take",
            What::Drop => "drop",
        }
    }

    /// Whether a table goes, with the user's objects that are on it.
    fn drops(&self) -> bool {
        matches!(self, What::Remake | What::Drop)
    }
}

/// A step of a plan.
#[derive(Clone, Debug)]
pub struct Step {
    /// The action.
    pub what: What,
    /// `schema.name` of the stream table, quoted where needed; the new name where the step renames it.
    pub name: String,
    /// The differences, or the reasons.
    pub why: Vec<String>,
    /// The position of the stream table among the declarations, if it is declared.
    pub declared: Option<usize>,
    /// `pgt_id` of the stream table, where there is one.
    pub id: Option<i64>,
    /// The mode that will be in force, where it can be told before the step.
    pub mode: Option<Mode>,
    /// The losses of a table that stays: columns, and the user's objects over them, such as `index
    /// totals_by_region`. `None` where they cannot be told before the step.
    pub loses: Option<Vec<String>>,
}

impl Step {
    /// Whether anything is lost that the declaration does not give back: a table, or columns of one.
    pub fn destroys(&self) -> bool {
        self.what.drops() || self.loses.as_ref().is_some_and(|l| !l.is_empty())
    }
}

/// The steps from the stream tables that a database has to the declared ones.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The declarations.
    pub declared: Vec<Declared>,
    /// The label of these declarations.
    pub label: String,
    /// The steps, in their order. Each is done by itself: where one fails, the steps before it stay, and
    /// another plan begins where they end.
    pub steps: Vec<Step>,
    /// Stream tables that are as they are declared.
    pub unchanged: Vec<String>,
    /// Whether a step may destroy something that the plan did not foresee.
    pub may_destroy: bool,
}

impl Plan {
    fn new(declared: &[Declared], label: &str) -> Plan {
        Plan { declared: declared.to_vec(), label: label.to_owned(), ..Plan::default() }
    }

    /// Whether a stream table gets another query, or goes.
    fn changes(&self, e: &Entry) -> bool {
        let changes = |s: &&Step| matches!(s.what, What::Change | What::Remake | What::Drop);
        self.steps.iter().filter(changes).any(|s| s.id == Some(e.id))
    }

    /// Returns the way in which a stream table gets its query. Its readers may read a column that goes if all
    /// of them change too.
    fn way(&self, registry: &Registry, e: &Entry, what: &What) -> Way {
        let mut readers = registry.readers(e.relation.id);
        match what {
            What::Remake => Way::Another,
            What::Rename(_) | What::Create | What::Change | What::Set | What::Take | What::Drop => {
                Way::Same(if readers.all(|r| self.changes(r)) { Readers::Change } else { Readers::Stay })
            }
        }
    }

    /// Whether a step destroys something.
    pub fn destroys(&self) -> bool {
        self.steps.iter().any(Step::destroys)
    }
}

/// The reason why a plan or a step is refused, with the declaration to blame.
#[derive(Debug)]
pub struct Refused {
    /// The position of the declaration, if one is to blame.
    pub declared: Option<usize>,
    /// The reason.
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
