//! The sources that the leaves of a plan are read from.

use super::ast::{Param, Query, Scalar, Select, SelectItem};
use super::ident::{Ident, Qualified};
use crate::catalog::{TableDef, TableId};
use crate::error::{Error, Result};
use crate::graph::NodeId;
use crate::types::Type;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock};

/// A relation whose columns correspond, by position, to the columns of a table or node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relation {
    /// Its name.
    pub name: Qualified,
    /// For each column of the table or node, the column of this relation.
    pub columns: Vec<Ident>,
}

/// A relation that holds weighted row images of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Changes {
    /// The relation. For each column of the table it names the column here.
    pub relation: Relation,
    /// The column that holds the weight; it is never NULL.
    pub weight: Ident,
    /// The type of the weight column.
    pub weight_type: Type,
    /// The rows that count.
    pub window: Window,
    /// The number of rows counted in the window; NULL where they were not counted. It corrects the planner's
    /// estimate. For a buffer that was never analysed, the planner expects hundreds of rows, and so it reads
    /// a whole table of some ten thousand. For a buffer that was analysed while empty it expects one row, and
    /// so it tries all pairs. The result of the read does not depend on it.
    pub counted: Option<Scalar>,
}

/// The rows of a change buffer that a refresh reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Window {
    /// All rows.
    All,
    /// The rows that are not in the stored frontier of this source. Their transaction is not visible in the
    /// frontier's snapshot, or it is the one that stored the frontier and they were written after the
    /// frontier's command. The snapshot of the reading statement is the upper bound.
    Frontier {
        /// The source that the frontier belongs to.
        source: TableId,
        /// The column that holds the writing transaction, `xid8`.
        xid: Ident,
    },
}

/// A stored result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The relation. For each column of the node it names the column here.
    pub relation: Relation,
    /// The column that holds a weight ≥ 1; `None` where every row counts once.
    pub weight: Option<Ident>,
}

static PG_SNAPSHOT: LazyLock<Type> =
    LazyLock::new(|| Type::Other(Arc::new(super::expr::opaque("pg_snapshot"))));
static TID: LazyLock<Type> = LazyLock::new(|| Type::Other(Arc::new(super::expr::opaque("tid"))));
static XID8: LazyLock<Type> = LazyLock::new(|| Type::Other(Arc::new(super::expr::opaque("xid8"))));

/// Maps the leaves of a plan to relations.
pub trait Sources {
    /// Returns the relation with the current rows of a table.
    fn table(&self, def: &TableDef) -> Relation {
        Relation {
            name: Qualified { schema: Some(Ident::from(&def.schema)), name: Ident::from(&def.name) },
            columns: def.columns.iter().map(|c| Ident::from(&c.name)).collect(),
        }
    }

    /// Returns conditions on `alias` that restrict the current rows of a table that a leaf reads; empty for
    /// all rows.
    fn conditions(&self, _leaf: NodeId, _alias: &Ident) -> Vec<Scalar> {
        Vec::new()
    }

    /// Returns the relation with the change of a table.
    ///
    /// # Errors
    /// An error where the table is not captured.
    fn changes(&self, def: &TableDef) -> Result<Changes>;

    /// Returns the relation with the stored result of a node.
    ///
    /// # Errors
    /// An error where the node is not stored.
    fn state(&self, of: NodeId) -> Result<Stored>;
}

/// The change buffers `<schema>.changes_<oid>`, bounded by frontiers, and the declared stored results.
#[derive(Clone, Debug)]
pub struct BufferSources {
    schema: Ident,
    states: HashMap<NodeId, Stored>,
}

impl BufferSources {
    /// Makes sources with buffers in `schema` and without stored results.
    pub fn new(schema: impl AsRef<str>) -> BufferSources {
        BufferSources { schema: Ident::new(schema), states: HashMap::new() }
    }
    /// Declares the relation that stores the result of a node.
    #[must_use]
    pub fn with_state(mut self, of: NodeId, stored: Stored) -> BufferSources {
        self.states.insert(of, stored);
        self
    }
    /// Returns the buffer of a table.
    pub fn buffer(&self, table: TableId) -> Qualified {
        Qualified { schema: Some(self.schema.clone()), name: Ident::new(format!("changes_{table}")) }
    }
    /// Returns the buffer's column for a table's column. The buffer's own columns are `xid` and `w`. A user's
    /// column with such a name gets one more leading underscore, so that different columns never collide.
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
        let stored = self.states.get(&of).cloned();
        stored.ok_or_else(|| {
            Error::plan(format!("the plan reads the stored result of {of}, which is not stored"))
        })
    }
}

/// Sources with an upper bound for the number of changed rows of each table, which the planner is told. For
/// tables without a bound it is told none.
#[derive(Debug)]
pub struct Expecting<'w, S> {
    sources: S,
    expected: &'w BTreeMap<TableId, Option<i64>>,
}

impl<'w, S: Sources> Expecting<'w, S> {
    /// Reads everything else as from `sources`.
    pub fn new(sources: S, expected: &'w BTreeMap<TableId, Option<i64>>) -> Expecting<'w, S> {
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

/// Sources that read one leaf only in a range of row addresses (`tid`), from value 0 up to, but not
/// including, value 1.
pub struct Ranged<'s> {
    sources: &'s dyn Sources,
    leaf: NodeId,
}

impl<'s> Ranged<'s> {
    /// Reads everything else as from `sources`.
    pub fn new(sources: &'s dyn Sources, leaf: NodeId) -> Ranged<'s> {
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

/// Returns `(SELECT value)`, which a statement computes once.
fn once(value: Scalar) -> Scalar {
    let items = vec![SelectItem { expr: value, name: None }];
    Scalar::Subquery(Box::new(Query::select(Select { items, ..Select::default() })))
}

impl Window {
    /// Returns the conditions on a row of the buffer under `alias`.
    pub fn conditions(&self, alias: &Ident) -> Vec<Scalar> {
        let Window::Frontier { source, xid } = self else { return Vec::new() };
        let xid = Scalar::column(alias, xid);
        let low = Scalar::Param(Param::FrontierSnapshot(*source), PG_SNAPSHOT.clone());
        let own = Scalar::Param(Param::FrontierXid(*source), XID8.clone());
        let command = Scalar::Param(Param::FrontierCommand(*source), Type::Int8);
        let written = Scalar::column(alias, &Ident::fixed("cmin")).cast(Type::Text).cast(Type::Int8);
        // For most rows, two numbers decide, which are read from the text once and not for each row.
        let bound = |name| once(Scalar::call(name, vec![low.clone()]));
        let from = xid.clone().op(">=", bound("pg_snapshot_xmin"));
        // The transaction that stored the frontier may look visible in its own snapshot, so it is tested
        // first.
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
