//! Requests for stream tables, and their outcomes.

use crate::names::Name;
use crate::registry::Entry;
use crate::security::Agreed;
use trickle_core::Reason;
use trickle_core::refresh::Setting;
use trickle_core::vocabulary::{Mode, RefreshMode};

/// The action where a stream table of the requested name exists already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IfExists {
    /// Return an error.
    #[default]
    Fail,
    /// Do nothing.
    Skip,
    /// Give the existing stream table the new query. Its indexes, grants, comments and dependent views stay.
    Replace,
}

/// A request for a new stream table.
#[derive(Clone, Debug)]
pub struct NewStreamTable {
    /// The name of the stream table. Without a schema, the table is made in the first schema of the search
    /// path.
    pub name: Name,
    /// The defining query.
    pub query: String,
    /// The schedule; `Some(None)` means that only refreshes by hand are made. `None` takes the schedule of
    /// the stream table that is replaced, or `calculated` where none is replaced.
    pub schedule: Option<Option<String>>,
    /// The mode. `None` takes the mode of the stream table that is replaced, or [`RefreshMode::Auto`] where
    /// none is replaced.
    pub mode: Option<RefreshMode>,
    /// Whether to fill the stream table when it is created.
    pub initialize: bool,
    /// The action where a stream table of that name exists already.
    pub if_exists: IfExists,
    /// Whether materialized views and foreign tables are followed. Each refresh then reads all of them and
    /// compares them with copies. Where they are not followed, they rule out deltas. The value `false` has no
    /// effect where the stream table that is replaced reads copies.
    pub snapshots: bool,
    /// Whether the stream table is refreshed in a transaction of its own, after the stream tables that it
    /// reads ([`apart`](trickle_core::dag::StreamTableNode::apart)). Otherwise it is linked with them. `None`
    /// takes the value of the stream table that is replaced; where none is replaced, the tables are linked.
    pub apart: Option<bool>,
    /// The settings that decide the meaning of the query; `None` takes the settings of the session.
    pub settings: Option<Vec<Setting>>,
    /// The code and tables of other roles to which the owner has agreed. With `None`, the request agrees to
    /// all code and tables of other roles that the query uses now.
    pub agreed: Option<Agreed>,
}

impl NewStreamTable {
    /// Makes a request with the defaults: the schedule that its readers need, the incremental mode where
    /// possible, and a first fill at creation. If the request replaces a stream table, the schedule and the
    /// mode of that table are used.
    pub fn new(name: Name, query: impl Into<String>) -> NewStreamTable {
        NewStreamTable {
            name,
            query: query.into(),
            schedule: None,
            mode: None,
            initialize: true,
            if_exists: IfExists::Fail,
            snapshots: false,
            apart: None,
            settings: None,
            agreed: None,
        }
    }

    /// Returns the settings to put in force for the query.
    pub(crate) fn settings(&self) -> &[Setting] {
        self.settings.as_deref().unwrap_or_default()
    }
}

/// The result of creating or changing a stream table.
#[derive(Clone, Debug)]
pub struct Created {
    /// The `pgt_id` of the stream table, also where creation was skipped because the stream table existed.
    pub id: i64,
    /// `schema.name` of the stream table, quoted where needed.
    pub name: String,
    /// Whether the call made or changed anything.
    pub made: bool,
    /// The mode in force.
    pub mode: Mode,
    /// The reasons why the stream table is not incremental.
    pub reasons: Vec<Reason>,
}

impl Entry {
    /// Returns the request that would create this stream table, with its resolved query and its stored
    /// settings.
    pub(crate) fn as_new(&self, name: Name) -> NewStreamTable {
        NewStreamTable {
            mode: Some(self.requested),
            schedule: Some(self.schedule.clone()),
            apart: Some(self.apart),
            settings: Some(self.settings.clone()),
            agreed: self.agreed.clone(),
            ..NewStreamTable::new(name, self.query.clone())
        }
    }
}
