//! The operator graph: an arena of hash-consed nodes, in which inputs come before the operators that read
//! them.
//!
//! One graph contains a query, its delta and all intermediate plans. Equal plans are the same node. Plans are
//! therefore shared, each plan is differentiated once, and common sub-expressions are found, all without
//! extra code. A walk over a plan is a loop.

mod colset;
mod explain;
mod index;
mod props;
pub(crate) mod settled;

pub use crate::expr::{Column, Schema};
pub use colset::ColSet;
pub use explain::{Format, Note, explain, explain_json, explain_with};
pub(crate) use explain::{
    describe_accumulators, describe_expand, describe_exprs, describe_groups, describe_top, describe_window,
};
pub use props::Props;
pub(crate) use props::images;
for_tests! {
    use props::FunctionalDependency;
}
pub use settled::Unsettled;

use crate::error::{Error, Result};
use crate::hash::hash_of;
use crate::rel::{Operator, Rel};
use index::Index;
use std::fmt;
use std::sync::Arc;

/// The greatest number of operators in an arena. Operators that a rule made and another rule replaced count
/// too. A sum of n inputs counts as n − 1 operators that add two inputs each. Every rewrite of a plan adds
/// nodes. This limit therefore bounds the work of lowering, differentiating and optimizing for every query
/// text. Plans that are worth running are far smaller.
pub const MAX_NODES: usize = 1 << 16;

/// The greatest sum of the operators' numbers of columns in an arena. In a chain of joins, each join has the
/// columns of all earlier tables, so the sum grows with the square of the number of tables.
pub const MAX_COLUMNS: usize = 1 << 21;

/// The identifier of a node in a [`Graph`]. An operator has a greater identifier than each of its inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(u32);

impl NodeId {
    /// Returns the position of the node in the arena.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "n{}", self.0)
    }
}

/// An operator with its derived schema and properties.
#[derive(Clone, Debug)]
pub struct Node {
    rel: Rel,
    hash: u64,
    inputs: Vec<NodeId>,
    schema: Schema,
    props: Props,
}

impl Node {
    /// Returns the operator.
    pub(crate) fn rel(&self) -> &Rel {
        &self.rel
    }
    /// Returns the operator as a trait object.
    pub fn op(&self) -> &dyn Operator {
        self.rel.as_operator()
    }
    /// Returns the nodes that the operator reads.
    pub(crate) fn inputs(&self) -> &[NodeId] {
        &self.inputs
    }
    /// Returns the output columns.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }
    /// Returns the derived properties.
    pub fn props(&self) -> &Props {
        &self.props
    }
}

/// An arena of nodes. Nodes never change. A copy of a graph shares its nodes, and costs one pointer per node.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    nodes: Vec<Arc<Node>>,
    index: Index,
    /// The number of operators so far, which [`MAX_NODES`] limits.
    size: usize,
    /// The sum of the operators' numbers of columns so far, which [`MAX_COLUMNS`] limits.
    columns: usize,
}

impl Graph {
    /// Makes an empty graph.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a node for an operator, or finds the node of an equal operator. Derives the schema and the
    /// properties of a new node, and checks the operator's contract.
    ///
    /// # Errors
    /// - Fails if the operator's contract is broken. For example, a column is out of range, or the input of a
    ///   weight threshold may have negative weights. This error is reported as a bug in the rule that built
    ///   the plan.
    /// - Fails too if the graph gets more than [`MAX_NODES`] operators or more than [`MAX_COLUMNS`] columns.
    pub fn add(&mut self, rel: impl Into<Rel>) -> Result<NodeId> {
        let rel = rel.into();
        let hash = hash_of(&rel);
        let known = |i: u32| self.nodes.get(i as usize).is_some_and(|n| n.hash == hash && n.rel == rel);
        if let Some(id) = self.index.find(hash, known) {
            return Ok(NodeId(id));
        }
        let op = rel.as_operator();
        let inputs = op.inputs();
        let node = |i: &NodeId| {
            let found = self.nodes.get(i.index()).map(|n| &**n);
            found.ok_or_else(|| Error::plan(format!("{} reads {i}, which is not in the graph", op.name())))
        };
        let nodes = inputs.iter().map(node).collect::<Result<Vec<&Node>>>()?;
        let size = self.size + inputs.len().saturating_sub(1).max(1);
        if size > MAX_NODES {
            return Err(Error::too_large(MAX_NODES, "operators"));
        }
        op.check(&nodes)?;
        let schema = op.schema(&nodes);
        let columns = self.columns + schema.len();
        if columns > MAX_COLUMNS {
            return Err(Error::too_large(MAX_COLUMNS, "columns"));
        }
        let props = op.props(&nodes, &schema);
        let id = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
        (self.size, self.columns) = (size, columns);
        self.nodes.push(Arc::new(Node { rel, hash, inputs, schema, props }));
        let nodes = &self.nodes;
        self.index.insert(hash, id, |i| nodes.get(i as usize).map_or(0, |n| n.hash));
        Ok(NodeId(id))
    }

    /// Returns the node with this id.
    ///
    /// # Panics
    /// Panics if the id belongs to another, larger graph.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }
    /// Returns the node with this id, as a shared pointer that stays valid while the graph grows.
    ///
    /// # Panics
    /// Panics if the id belongs to another, larger graph.
    pub(crate) fn shared(&self, id: NodeId) -> Arc<Node> {
        self.nodes[id.index()].clone()
    }
    /// Returns the operator of a node.
    pub fn rel(&self, id: NodeId) -> &Rel {
        &self.node(id).rel
    }
    /// Returns the schema of a node.
    pub fn schema(&self, id: NodeId) -> &Schema {
        &self.node(id).schema
    }
    /// Returns the properties of a node.
    pub fn props(&self, id: NodeId) -> &Props {
        &self.node(id).props
    }
    /// Returns the inputs of a node.
    pub fn inputs(&self, id: NodeId) -> &[NodeId] {
        &self.node(id).inputs
    }
    /// Returns the number of nodes in the arena.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }
    /// Whether the graph has no nodes.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Returns `root` and all nodes from which `root` is computed. Inputs come before the nodes that read
    /// them.
    pub fn reachable(&self, root: NodeId) -> Vec<NodeId> {
        self.reachable_from(&[root])
    }

    /// Returns `roots` and all nodes from which one of them is computed. Inputs come before the nodes that
    /// read them.
    pub fn reachable_from(&self, roots: &[NodeId]) -> Vec<NodeId> {
        // Every input has a smaller number than the nodes that read it. One walk from the greatest number
        // downwards therefore marks all nodes. The marked nodes are then in order of their numbers.
        let Some(last) = roots.iter().max() else { return Vec::new() };
        let mut marked = vec![false; last.index() + 1];
        roots.iter().for_each(|r| marked[r.index()] = true);
        let mut count = 0;
        for i in (0..marked.len()).rev() {
            if marked[i] {
                count += 1;
                self.nodes[i].inputs.iter().for_each(|input| marked[input.index()] = true);
            }
        }
        let mut found = Vec::with_capacity(count);
        found.extend((0..=last.0).map(NodeId).filter(|id| marked[id.index()]));
        found
    }

    /// Returns the node `id` with `new` applied to each of its inputs. Returns `id` itself where `new`
    /// changes none of the inputs.
    ///
    /// # Errors
    /// Errors of [`Graph::add`].
    pub(crate) fn over(&mut self, id: NodeId, new: impl Fn(NodeId) -> NodeId) -> Result<NodeId> {
        let node = self.node(id);
        if node.inputs.iter().all(|i| new(*i) == *i) {
            return Ok(id);
        }
        let inputs: Vec<NodeId> = node.inputs.iter().map(|i| new(*i)).collect();
        let rel = node.op().with_inputs(&inputs);
        self.add(rel)
    }

    /// Rebuilds the plan under `root`, inputs first. For each node, `f` gets the node's operator over the
    /// rebuilt inputs, and returns the node that replaces the old one.
    ///
    /// # Errors
    /// Errors of `f`.
    pub fn rebuild(
        &mut self,
        root: NodeId,
        mut f: impl FnMut(&mut Graph, NodeId, Rel) -> Result<NodeId>,
    ) -> Result<NodeId> {
        let mut new = NodeMap::new();
        for id in self.reachable(root) {
            let inputs: Vec<NodeId> = self.inputs(id).iter().map(|i| new.get(*i).unwrap_or(*i)).collect();
            let rel = self.node(id).op().with_inputs(&inputs);
            let made = f(self, id, rel)?;
            new.insert(id, made);
        }
        Ok(new.get(root).unwrap_or(root))
    }
}

/// A map from the nodes of one graph to values, stored as an array that is indexed by the node's number.
#[derive(Clone, Debug)]
pub(crate) struct NodeMap<T>(Vec<Option<T>>);

impl<T> NodeMap<T> {
    pub(crate) fn new() -> NodeMap<T> {
        NodeMap(Vec::new())
    }
    pub(crate) fn get_ref(&self, id: NodeId) -> Option<&T> {
        self.0.get(id.index()).and_then(Option::as_ref)
    }
    pub(crate) fn insert(&mut self, id: NodeId, value: T) {
        *self.slot(id) = Some(value);
    }
    pub(crate) fn remove(&mut self, id: NodeId) -> Option<T> {
        self.0.get_mut(id.index()).and_then(Option::take)
    }
    pub(crate) fn entry(&mut self, id: NodeId) -> &mut T
    where
        T: Default,
    {
        self.slot(id).get_or_insert_default()
    }
    fn slot(&mut self, id: NodeId) -> &mut Option<T> {
        if self.0.len() <= id.index() {
            // The array grows in steps of 32, since most maps are filled in ascending order of numbers.
            self.0.resize_with((id.index() + 1).next_multiple_of(32), || None);
        }
        &mut self.0[id.index()]
    }
}

impl<T: Copy> NodeMap<T> {
    pub(crate) fn get(&self, id: NodeId) -> Option<T> {
        self.get_ref(id).copied()
    }
}
