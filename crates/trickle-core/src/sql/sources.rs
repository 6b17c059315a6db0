//! Where the leaves of a plan are read from.

use super::ast::{Param, Query, Scalar, Select, SelectItem};
use super::ident::{Ident, Qualified};
use crate::catalog::{TableDef, TableId};
use crate::error::{Error, Result};
use crate::graph::NodeId;
use crate::types::Type;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock};

/// A relation whose columns stand for those of a table or node, by position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relation {
    /// Its name.
    pub name: Qualified,
    /// For each column of what it stands for, the column here.
    pub columns: Vec<Ident>,
}

/// A relation that holds weighted row images of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Changes {
    /// The relation; for each column of the table the column here.
    pub relation: Relation,
    /// The column that holds the weight, never NULL, …
    pub weight: Ident,
    /// … and its type.
    pub weight_type: Type,
    /// Which of its rows count.
    pub window: Window,
    /// The number of rows counted in the window, NULL where nobody counted. It gives the planner an honest estimate: of a
    /// buffer that was never analysed it expects hundreds of rows, for which it reads a whole table of some ten thousand; of
    /// one that was analysed when it was empty it expects one, for which it tries all pairs.
    /// What is read does not depend on it.
    pub counted: Option<Scalar>,
}

/// Which rows of a change buffer a refresh reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Window {
    /// All.
    All,
    /// Those that are not in the stored frontier of this source: not visible in its snapshot, or written by its own
    /// transaction after its command. What is visible to the reading statement bounds the window above.
    Frontier {
        /// The source whose frontier it is.
        source: TableId,
        /// The column with the writing transaction, `xid8`.
        xid: Ident,
    },
}

/// A stored result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The relation; for each column of the node the column here.
    pub relation: Relation,
    /// The column that holds a weight ≥ 1; none where every row counts once.
    pub weight: Option<Ident>,
}

static PG_SNAPSHOT: LazyLock<Type> =
    LazyLock::new(|| Type::Other(Arc::new(super::expr::opaque("pg_snapshot"))));
static TID: LazyLock<Type> = LazyLock::new(|| Type::Other(Arc::new(super::expr::opaque("tid"))));
static XID8: LazyLock<Type> = LazyLock::new(|| Type::Other(Arc::new(super::expr::opaque("xid8"))));

/// Maps the leaves of a plan to relations.
pub trait Sources {
    /// The current rows of a table.
    fn table(&self, def: &TableDef) -> Relation {
        Relation {
            name: Qualified { schema: Some(Ident::from(&def.schema)), name: Ident::from(&def.name) },
            columns: def.columns.iter().map(|c| Ident::from(&c.name)).collect(),
        }
    }

    /// Which of the current rows of a table a leaf reads, as conditions on `alias`; all of them where there are none.
    fn conditions(&self, _leaf: NodeId, _alias: &Ident) -> Vec<Scalar> {
        Vec::new()
    }

    /// The change of a table.
    ///
    /// # Errors
    /// The table is not captured.
    fn changes(&self, def: &TableDef) -> Result<Changes>;

    /// The stored result of a node.
    ///
    /// # Errors
    /// The node is not stored.
    fn state(&self, of: NodeId) -> Result<Stored>;
}

/// Change buffers `<schema>.changes_<oid>` bounded by frontiers, and the stored results that were declared.
#[derive(Clone, Debug)]
pub struct BufferSources {
    schema: Ident,
    states: HashMap<NodeId, Stored>,
}

impl BufferSources {
    /// Buffers in `schema`; no stored results yet.
    pub fn new(schema: impl AsRef<str>) -> BufferSources {
        BufferSources { schema: Ident::new(schema), states: HashMap::new() }
    }
    /// Declares where the result of a node is stored.
    #[must_use]
    pub fn with_state(mut self, of: NodeId, stored: Stored) -> BufferSources {
        self.states.insert(of, stored);
        self
    }
    /// The buffer of a table.
    pub fn buffer(&self, table: TableId) -> Qualified {
        Qualified { schema: Some(self.schema.clone()), name: Ident::new(format!("changes_{table}")) }
    }
    /// The buffer's column for a table's column. The buffer's own columns are `xid` and `w`; a user's column of such
    /// a name gets one more underscore in front, so different columns never meet.
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

/// Reads changes of which so many are expected at most; of none where nobody says so.
#[derive(Debug)]
pub struct Expecting<'w, S> {
    sources: S,
    expected: &'w BTreeMap<TableId, Option<i64>>,
}

impl<'w, S: Sources> Expecting<'w, S> {
    /// Everything is read as from `sources`.
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

/// Reads one leaf in the range of row addresses (`tid`) from the value 0 up to, and without, the value 1.
pub struct Ranged<'s> {
    sources: &'s dyn Sources,
    leaf: NodeId,
}

impl<'s> Ranged<'s> {
    /// Everything else is read as from `sources`.
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
            // A system column: no column of a user's can have its name.
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

/// `(SELECT value)`: computed once for a statement.
fn once(value: Scalar) -> Scalar {
    let items = vec![SelectItem { expr: value, name: None }];
    Scalar::Subquery(Box::new(Query::select(Select { items, ..Select::default() })))
}

impl Window {
    /// The conditions on a row of the buffer under `alias`.
    pub fn conditions(&self, alias: &Ident) -> Vec<Scalar> {
        let Window::Frontier { source, xid } = self else { return Vec::new() };
        let xid = Scalar::column(alias, xid);
        let low = Scalar::Param(Param::FrontierSnapshot(*source), PG_SNAPSHOT.clone());
        let own = Scalar::Param(Param::FrontierXid(*source), XID8.clone());
        let command = Scalar::Param(Param::FrontierCommand(*source), Type::Int8);
        let written = Scalar::column(alias, &Ident::fixed("cmin")).cast(Type::Text).cast(Type::Int8);
        // Of most rows two numbers tell, which are read from the texts once and not for each row.
        let bound = |name| once(Scalar::call(name, vec![low.clone()]));
        let from = xid.clone().op(">=", bound("pg_snapshot_xmin"));
        // Its own transaction may look visible in a snapshot that it took: test that first.
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
