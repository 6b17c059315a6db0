//! Stream tables as they are declared: what is to be done so that a database has these, and doing it.
//!
//! What was made from declarations carries their label. So what is not declared any more can be told from what somebody made by
//! itself, which nobody touches.

mod carry_out;
mod plan;

use crate::alter::{Readers, Way};
use crate::create::NewStreamTable;
use crate::error::Error;
use crate::names::Name;
use crate::registry::{Entry, Registry};
use trickle_core::vocabulary::{Mode, RefreshMode};

/// A stream table as it is to be.
#[derive(Clone, Debug)]
pub struct Declared {
    /// Its name.
    pub name: Name,
    /// Its query, with the comments around it.
    pub query: String,
    /// Its schedule; `None` is manual.
    pub schedule: Option<String>,
    /// How it is to be kept.
    pub mode: RefreshMode,
    /// Whether it is refreshed by itself ([`NewStreamTable::apart`]).
    pub apart: bool,
    /// Whether materialized views and foreign tables are followed ([`NewStreamTable::snapshots`]).
    pub snapshots: bool,
}

/// What is done with a stream table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// It gets its name; before, it was called so.
    Rename(String),
    /// It is made.
    Create,
    /// It stays the same table, and is filled with what another query or mode gives.
    Change,
    /// Another table takes its place: its columns cannot become the new ones. Indexes, grants and comments of the user's go.
    Remake,
    /// Only what the catalog says of it becomes another.
    Set,
    /// It was made by itself, and belongs to the declarations from now on.
    Take,
    /// It is dropped, since it is not declared any more.
    Drop,
}

impl What {
    /// One word for it.
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

    /// Whether a table goes, with what is the user's of it.
    fn drops(&self) -> bool {
        matches!(self, What::Remake | What::Drop)
    }
}

/// One thing to do.
#[derive(Clone, Debug)]
pub struct Step {
    /// What.
    pub what: What,
    /// `schema.name` of the stream table, quoted where needed; of one that is renamed, as it is called then.
    pub name: String,
    /// What is different, or why.
    pub why: Vec<String>,
    /// Its place among the declarations, if it is declared.
    pub declared: Option<usize>,
    /// `pgt_id` of the stream table, where there is one.
    pub id: Option<i64>,
    /// The mode that it will be in force, where that can be told now.
    pub mode: Option<Mode>,
    /// What a table that stays loses: columns, and what is the user's over them, such as `index totals_by_region`. `None` where
    /// that cannot be told now.
    pub loses: Option<Vec<String>>,
}

impl Step {
    /// Whether something is lost that its declaration does not give back: a table, or columns of one.
    pub fn destroys(&self) -> bool {
        self.what.drops() || self.loses.as_ref().is_some_and(|l| !l.is_empty())
    }
}

/// All that is to be done, in this order.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// What is declared.
    pub declared: Vec<Declared>,
    /// The label of these declarations.
    pub label: String,
    /// The steps. Each is done by itself: where one fails those before it stay, and another plan begins where they end.
    pub steps: Vec<Step>,
    /// Stream tables that are as they are declared.
    pub unchanged: Vec<String>,
    /// Whether what was not foreseen to be lost may be.
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

    /// How a stream table gets its query. A column that goes may be read by those that change too.
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

/// Why something cannot be done, and for which of the declarations.
#[derive(Debug)]
pub struct Refused {
    /// Its place among them, if one is to blame.
    pub declared: Option<usize>,
    /// Why.
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
