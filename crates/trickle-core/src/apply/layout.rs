//! The tables in which the results of a stream table are stored.

use super::lookups::{self, lookups};
use crate::error::Result;
use crate::graph::{ColSet, Graph, NodeId, Schema, Unsettled};
use crate::rel::Rel;
use crate::sql::{self, BufferSources, Changes, Ident, NameSet, Qualified, Relation, Sources};
use crate::table::TableDef;
use crate::types::Type;
use std::collections::{BTreeSet, HashMap};

/// The property by which a refresh identifies a row of a stored table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// The table has at most one row.
    Single,
    /// No two rows agree on these columns (NULL equal to NULL); a unique index on the columns finds a row.
    Key(Vec<usize>),
    /// Rows may repeat. A row is found by its value. An index on a hash of all columns with hashable types
    /// serves the search.
    Bag,
}

/// A stored column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredColumn {
    /// The column's name.
    pub(crate) name: Ident,
    /// The column's type.
    pub ty: Type,
    /// Whether the column may store NULL.
    pub(crate) nullable: bool,
}

/// A table that holds the result of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The node whose result the table holds.
    pub node: NodeId,
    /// Table name.
    pub name: Qualified,
    /// Columns, in the order of the node's schema.
    pub columns: Vec<StoredColumn>,
    /// The property by which a refresh identifies a row.
    pub identity: Identity,
    /// The columns of further indexes. Deltas use them to look up rows by columns other than the identity.
    pub lookups: Vec<Vec<usize>>,
    /// The columns in which the node does not determine the images of equal values.
    pub unsettled: Unsettled,
}

/// All tables of a stream table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The stream table itself.
    pub result: Stored,
    /// The tables of the states, each before the tables that read it.
    pub states: Vec<Stored>,
    /// The stored nodes that need no separate table. The value for a node has the columns of the result that
    /// contain the columns of the node.
    pub(crate) visible: HashMap<NodeId, Vec<usize>>,
}

impl Stored {
    fn new(
        graph: &Graph,
        node: NodeId,
        name: Qualified,
        names: Vec<Ident>,
        mut lookups: BTreeSet<Vec<usize>>,
    ) -> Stored {
        let schema = graph.schema(node);
        let columns = schema.columns().iter().zip(names).map(|(c, name)| StoredColumn {
            name,
            ty: c.ty.clone(),
            nullable: c.nullable,
        });
        let (columns, identity) = (columns.collect(), identity(graph, node));
        lookups.insert(lookups::own(graph, node));
        let lookups = needed(schema, &identity, lookups);
        Stored { node, name, columns, identity, lookups, unsettled: Unsettled::of(graph, node) }
    }

    /// Returns the names of the columns at these positions.
    pub(crate) fn names(&self, positions: &[usize]) -> Vec<Ident> {
        positions.iter().filter_map(|p| self.columns.get(*p)).map(|c| c.name.clone()).collect()
    }
    /// Returns the names of all columns.
    pub(crate) fn all_names(&self) -> Vec<Ident> {
        self.columns.iter().map(|c| c.name.clone()).collect()
    }
    /// Returns the key's columns that may be NULL, where there are several. Rows with a NULL in one of these
    /// columns are found by a hash of the key, since an index on the columns serves only `=`. The list is
    /// empty if at most one column may be NULL, or if a column of the key has no hash.
    pub(crate) fn null_keys(&self) -> Vec<usize> {
        let Identity::Key(key) = &self.identity else { return Vec::new() };
        let nullable: Vec<usize> = key.iter().copied().filter(|k| self.columns[*k].nullable).collect();
        let hashable = key.iter().all(|k| self.columns[*k].ty.is_hashable());
        if nullable.len() > 1 && hashable { nullable } else { Vec::new() }
    }
    /// Returns the columns whose type has a hash operator class.
    pub(crate) fn hashable(&self) -> Vec<usize> {
        (0..self.columns.len()).filter(|i| self.columns[*i].ty.is_hashable()).collect()
    }
}

/// Returns the identity that the plan proves for a node. Only keys that a btree index can hold are
/// considered. The choice is a key with the fewest nullable columns. If there are several such keys, the
/// choice is the shortest.
fn identity(graph: &Graph, node: NodeId) -> Identity {
    let (props, schema) = (graph.props(node), graph.schema(node));
    let served = |k: &&ColSet| k.iter().all(|c| schema.columns()[c].ty.is_ordered());
    let nullable = |k: &ColSet| k.iter().filter(|c| schema.columns()[*c].nullable).count();
    match props.keys.iter().filter(served).min_by_key(|k| (nullable(k), k.len(), (*k).clone())) {
        Some(k) if k.is_empty() => Identity::Single,
        Some(k) => Identity::Key(k.iter().collect()),
        None => Identity::Bag,
    }
}

/// Returns the columns of the indexes that lookups need in addition to the identity. A lookup needs no index
/// if the key's index serves it. The index serves it if the lookup's columns contain the key, or are the
/// first columns of the key. A lookup also gets no index if an index cannot hold its columns.
fn needed(schema: &Schema, identity: &Identity, lookups: BTreeSet<Vec<usize>>) -> Vec<Vec<usize>> {
    let served = |columns: &Vec<usize>| match identity {
        Identity::Single => true,
        Identity::Key(key) => {
            let n = key.len().min(columns.len());
            key[..n].iter().all(|k| columns.contains(k))
        }
        Identity::Bag => false,
    };
    let indexable = |columns: &Vec<usize>| columns.iter().all(|c| schema.columns()[*c].ty.is_ordered());
    let open = lookups.into_iter().filter(|l| !l.is_empty() && !served(l) && indexable(l));
    lookups::indexes(open.collect())
}

impl Layout {
    /// Lays out the tables. The result of `root` is stored in the table `name`, with the column names
    /// `names`. The nodes `stored` under `root` are stored in schema `hidden`, in tables whose names start
    /// with `prefix`.
    ///
    /// # Errors
    /// None.
    pub(crate) fn new(
        graph: &Graph,
        root: NodeId,
        stored: &BTreeSet<NodeId>,
        name: Qualified,
        names: Vec<Ident>,
        hidden: &str,
        prefix: &str,
    ) -> Result<Layout> {
        let mut lookups = lookups(graph, root, stored);
        let result = Stored::new(graph, root, name, names, BTreeSet::new());
        let mut layout = Layout { result, states: Vec::new(), visible: HashMap::new() };
        for node in stored.iter().filter(|n| **n != root) {
            if let Some(columns) = visible_columns(graph, root, *node) {
                layout.visible.insert(*node, columns);
                continue;
            }
            let mut taken = NameSet::new();
            let columns = graph
                .schema(*node)
                .columns()
                .iter()
                .map(|c| taken.fresh_like(&Ident::from(&c.label)))
                .collect();
            let name = Qualified::new(hidden, format!("{prefix}_{}", layout.states.len() + 1));
            let lookups = lookups.remove(node).unwrap_or_default();
            layout.states.push(Stored::new(graph, *node, name, columns, lookups));
        }
        Ok(layout)
    }

    /// Returns all stored tables, the result last.
    pub fn tables(&self) -> impl Iterator<Item = &Stored> {
        self.states.iter().chain([&self.result])
    }

    /// Returns the table that holds the result of `node`, and the names of the columns that contain the
    /// result.
    pub(crate) fn locate(&self, node: NodeId) -> Option<(&Qualified, Vec<Ident>)> {
        if let Some(columns) = self.visible.get(&node) {
            return Some((&self.result.name, self.result.names(columns)));
        }
        self.tables().find(|t| t.node == node).map(|t| (&t.name, t.all_names()))
    }
}

/// The sources of a refresh. Changes of tables come from the change buffers of a schema. Stored results come
/// from the tables of a layout.
#[derive(Clone, Debug)]
pub struct LayoutSources<'l> {
    layout: &'l Layout,
    buffers: BufferSources,
}

impl<'l> LayoutSources<'l> {
    /// Makes the sources that read change buffers in schema `buffers`, and results in `layout`.
    pub fn new(layout: &'l Layout, buffers: &str) -> Self {
        LayoutSources { layout, buffers: BufferSources::new(buffers) }
    }
}

impl Sources for LayoutSources<'_> {
    fn changes(&self, def: &TableDef) -> Result<Changes> {
        self.buffers.changes(def)
    }
    fn state(&self, of: NodeId) -> Result<sql::Stored> {
        match self.layout.locate(of) {
            Some((name, columns)) => {
                Ok(sql::Stored { relation: Relation { name: name.clone(), columns }, weight: None })
            }
            None => self.buffers.state(of),
        }
    }
}

/// Returns the columns of the result that contain the columns of `node`. Returns `None` unless the result of
/// `root` contains every column of `node` unchanged, for every row of `node`.
fn visible_columns(graph: &Graph, root: NodeId, node: NodeId) -> Option<Vec<usize>> {
    let mut shown: Vec<Option<usize>> = (0..graph.schema(root).len()).map(Some).collect();
    let mut at = root;
    while at != node {
        let Rel::Map(m) = graph.rel(at) else { return None };
        shown = shown.into_iter().map(|c| c.and_then(|c| m.exprs()[c].as_column())).collect();
        at = m.input();
    }
    (0..graph.schema(node).len()).map(|c| shown.iter().position(|s| *s == Some(c))).collect()
}
