//! The facts that a process learns over a connection and uses again.

use crate::db::Prepared;
use crate::names::Name;
use crate::registry::Registry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;
use trickle_core::catalog::TableId;
use trickle_core::refresh::{Program, Source};
use trickle_core::stream_table::StreamTable;

/// Facts that were learnt over a connection, for a process that works repeatedly over the same connection.
/// Each of these facts is checked whenever it is used.
#[derive(Default)]
pub struct ConnectionCache {
    /// Compiled stream tables by `pgt_id`, each with the facts that it was compiled from.
    pub(crate) compiled: BTreeMap<i64, (String, Runnable)>,
    /// Prepared questions for stream tables that have changes. The question that was asked last comes first.
    pub(crate) questions: Vec<Question>,
    /// The catalog rows of stream tables that were refreshed lately.
    pub(crate) recent: BTreeMap<Wanted, Arc<Registry>>,
    /// The instant at which history was pruned last.
    pub(crate) pruned: Option<Instant>,
    /// The stream table that [`Trickle::unplannable`](crate::Trickle::unplannable) returns.
    pub(crate) unplannable: Option<TableId>,
}

/// A stream table in the form that a refresh runs.
#[derive(Clone, Debug)]
pub(crate) struct Runnable {
    /// The plan, where the query is incremental.
    pub(crate) table: Option<Arc<StreamTable>>,
    /// The program, which makes the statements that a refresh runs.
    pub(crate) program: Arc<dyn Program + Send + Sync>,
}

/// The two questions about changes of the same stream tables, prepared on a connection.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) of: Vec<Asked>,
    pub(crate) planned: bool,
    /// The sources of each stream table.
    pub(crate) sources: Vec<Vec<Source>>,
    pub(crate) glance: Prepared,
    /// The second question in its last form, with the positions of the stream tables that this form asks
    /// about.
    pub(crate) peek: Option<(BTreeSet<usize>, Prepared)>,
}

/// A stream table that a question asks about.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) id: i64,
    pub(crate) definition: String,
    pub(crate) polled: bool,
    pub(crate) timed: bool,
}

/// The stream tables that a call is asked to refresh.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wanted {
    /// The names of the stream tables, with their schemas.
    Names(Vec<Name>),
    /// The oids of the tables of the stream tables.
    Tables(Vec<TableId>),
}
