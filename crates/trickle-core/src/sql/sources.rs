//! The relations from which the leaves of a plan are read.

use super::ast::{Param, Query, Scalar, Select, SelectItem};
use crate::error::{Error, Result};
use crate::graph::NodeId;
use crate::ident::{Ident, Qualified};
use crate::table::{TableDef, TableId};
use crate::types::Type;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

/// A relation with a column for each column of a table or node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relation {
    /// The name of the relation.
    pub name: Qualified,
    /// The column of this relation for each column of the table or node, in order.
    pub columns: Vec<Ident>,
}

/// A relation of weighted rows of a table: rows that came and rows that left. Their values are exactly as
/// they were written.
#[derive(Clone, Debug, PartialEq)]
pub struct Changes {
    /// The relation, with its column for each column of the table.
    pub relation: Relation,
    /// The column of the rows' weights, which is never NULL.
    pub weight: Ident,
    /// The type of the weight column.
    pub weight_type: Type,
    /// The rows of the relation that a refresh reads.
    pub window: Window,
    /// The number of rows that were counted in the window. The value is NULL where they were not counted. The
    /// number corrects the planner's estimate. For a buffer that was never analysed, the planner expects
    /// hundreds of rows. It would therefore read a whole table of some ten thousand rows. For a buffer that
    /// was analysed while empty, the planner expects one row, and would therefore use nested loops over all
    /// pairs. The number does not affect which rows are read.
    pub counted: Option<Scalar>,
}

/// The rows of a change buffer that one refresh reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Window {
    /// All rows of the buffer.
    All,
    /// The new rows of the source: the rows that the stored frontier does not contain. A row of the
    /// transaction that stored the frontier is new if it was written after the frontier's command. A row of
    /// any other transaction is new if the transaction is not visible in the frontier's snapshot. The upper
    /// bound is the snapshot of the statement that reads the buffer.
    Frontier {
        /// The source whose frontier is used.
        source: TableId,
        /// The buffer's column with the transaction that wrote the row, of type `xid8`.
        xid: Ident,
    },
}

/// The relation that stores the result of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The relation, with its column for each column of the node.
    pub relation: Relation,
    /// The column of weights ≥ 1. With `None`, every row counts once.
    pub weight: Option<Ident>,
}

static PG_SNAPSHOT: LazyLock<Type> =
    LazyLock::new(|| Type::Other(Arc::new(super::expr::opaque("pg_snapshot"))));
static TID: LazyLock<Type> = LazyLock::new(|| Type::Other(Arc::new(super::expr::opaque("tid"))));
static XID8: LazyLock<Type> = LazyLock::new(|| Type::Other(Arc::new(super::expr::opaque("xid8"))));

/// A map from the leaves of a plan to relations.
pub trait Sources {
    /// Returns the relation that has the current rows of a table.
    fn table(&self, def: &TableDef) -> Relation {
        Relation {
            name: Qualified { schema: Some(Ident::from(&def.schema)), name: Ident::from(&def.name) },
            columns: def.columns.iter().map(|c| Ident::from(&c.name)).collect(),
        }
    }

    /// Returns conditions on `alias` that restrict which current rows a leaf reads. The list is empty where
    /// the leaf reads all rows of its table.
    fn conditions(&self, _leaf: NodeId, _alias: &Ident) -> Vec<Scalar> {
        Vec::new()
    }

    /// Returns the relation that has the change of a table.
    ///
    /// # Errors
    /// Fails if changes of the table are not captured.
    fn changes(&self, def: &TableDef) -> Result<Changes>;

    /// Returns the relation that stores the result of a node.
    ///
    /// # Errors
    /// Fails if the result of the node is not stored.
    fn state(&self, of: NodeId) -> Result<Stored>;
}

/// Sources that consist of change buffers `<schema>.changes_<oid>`, bounded by frontiers. No result of a node
/// is stored.
#[derive(Clone, Debug)]
pub struct BufferSources {
    schema: Ident,
}

impl BufferSources {
    /// Makes sources with change buffers in `schema`.
    pub fn new(schema: impl AsRef<str>) -> BufferSources {
        BufferSources { schema: Ident::new(schema) }
    }
    /// Returns the name of a table's change buffer.
    pub(crate) fn buffer(&self, table: TableId) -> Qualified {
        Qualified { schema: Some(self.schema.clone()), name: Ident::new(format!("changes_{table}")) }
    }
    /// Returns the name of the buffer's column for a table's column. The buffer itself has columns such as
    /// `xid` and `w`. If a user's column has such a name, possibly after underscores, it gets one more
    /// underscore at the front. Different columns therefore have different names in the buffer.
    pub fn buffer_column(name: &Arc<str>) -> Ident {
        match name.trim_start_matches('_') {
            "xid" | "w" => Ident::new(format!("_{name}")),
            _ => Ident::from(name),
        }
    }
}

impl Sources for BufferSources {
    fn changes(&self, def: &TableDef) -> Result<Changes> {
        Ok(Changes {
            relation: Relation {
                name: self.buffer(def.id),
                columns: def.columns.iter().map(|c| Self::buffer_column(&c.name)).collect(),
            },
            weight: Ident::fixed("w"),
            weight_type: Type::Int2,
            window: Window::Frontier { source: def.id, xid: Ident::fixed("xid") },
            counted: Some(Scalar::Param(Param::Pending(def.id), Type::Int8)),
        })
    }

    fn state(&self, of: NodeId) -> Result<Stored> {
        Err(Error::plan(format!("the plan reads the stored result of {of}, which is not stored")))
    }
}

/// Sources that tell the planner an upper bound for the number of changed rows of each table. For a table
/// without a bound, they tell the planner nothing.
#[derive(Debug)]
pub(crate) struct Expecting<'w, S> {
    sources: S,
    expected: &'w BTreeMap<TableId, Option<i64>>,
}

impl<'w, S: Sources> Expecting<'w, S> {
    /// Makes sources that are like `sources`, except for the expected numbers of changed rows.
    pub(crate) fn new(sources: S, expected: &'w BTreeMap<TableId, Option<i64>>) -> Expecting<'w, S> {
        Expecting { sources, expected }
    }
}

impl<S: Sources> Sources for Expecting<'_, S> {
    fn table(&self, def: &TableDef) -> Relation {
        self.sources.table(def)
    }
    fn conditions(&self, leaf: NodeId, alias: &Ident) -> Vec<Scalar> {
        self.sources.conditions(leaf, alias)
    }
    fn changes(&self, def: &TableDef) -> Result<Changes> {
        let expected = self.expected.get(&def.id).copied().flatten();
        Ok(Changes { counted: expected.map(Scalar::int8), ..self.sources.changes(def)? })
    }
    fn state(&self, of: NodeId) -> Result<Stored> {
        self.sources.state(of)
    }
}

/// Sources that read one leaf only in a range of row addresses (`tid`). The range begins at parameter value 0
/// and ends before parameter value 1.
pub(crate) struct Ranged<'s> {
    sources: &'s dyn Sources,
    leaf: NodeId,
}

impl<'s> Ranged<'s> {
    /// Makes sources that are like `sources`, except for the rows that `leaf` reads.
    pub(crate) fn new(sources: &'s dyn Sources, leaf: NodeId) -> Ranged<'s> {
        Ranged { sources, leaf }
    }
}

impl Sources for Ranged<'_> {
    fn table(&self, def: &TableDef) -> Relation {
        self.sources.table(def)
    }
    fn conditions(&self, leaf: NodeId, alias: &Ident) -> Vec<Scalar> {
        let mut all = self.sources.conditions(leaf, alias);
        if leaf == self.leaf {
            // No user's column can have the name of this system column.
            let place = Scalar::column(alias, &Ident::fixed("ctid"));
            let bound = |n| Scalar::Param(Param::Value(n), TID.clone());
            all.extend([place.clone().op(">=", bound(0)), place.op("<", bound(1))]);
        }
        all
    }
    fn changes(&self, def: &TableDef) -> Result<Changes> {
        self.sources.changes(def)
    }
    fn state(&self, of: NodeId) -> Result<Stored> {
        self.sources.state(of)
    }
}

/// Returns the subquery `(SELECT value)`, which PostgreSQL computes once for the statement.
fn once(value: Scalar) -> Scalar {
    let items = vec![SelectItem { expr: value, name: None }];
    Scalar::Subquery(Box::new(Query::select(Select { items, ..Select::default() })))
}

impl Window {
    /// Returns the conditions under which a row of the buffer is in the window. `alias` is the buffer's
    /// alias.
    pub(crate) fn conditions(&self, alias: &Ident) -> Vec<Scalar> {
        let Window::Frontier { source, xid } = self else { return Vec::new() };
        let xid = Scalar::column(alias, xid);
        let low = Scalar::Param(Param::FrontierSnapshot(*source), PG_SNAPSHOT.clone());
        let own = Scalar::Param(Param::FrontierXid(*source), XID8.clone());
        let command = Scalar::Param(Param::FrontierCommand(*source), Type::Int8);
        let written = Scalar::column(alias, &Ident::fixed("cmin")).cast(Type::Text).cast(Type::Int8);
        // For most rows, two numbers decide whether the row is in the window. These numbers are read from the
        // snapshot's text only once, and not for each row.
        let bound = |name| once(Scalar::call(name, vec![low.clone()]));
        let from = xid.clone().op(">=", bound("pg_snapshot_xmin"));
        // The transaction that stored the frontier is tested first, since the snapshot cannot tell which rows
        // of this transaction are counted.
        let after = Scalar::Case {
            whens: vec![
                (xid.clone().equals(once(own)), written.op(">", command)),
                (xid.clone().op(">=", bound("pg_snapshot_xmax")), Scalar::bool(true)),
            ],
            otherwise: Some(Box::new(Scalar::call("pg_visible_in_snapshot", vec![xid, low]).negated())),
        };
        vec![from, after]
    }
}
