//! The operator graph: an arena of hash-consed nodes, children before parents.
//!
//! One graph holds a query, its delta and every intermediate plan. Equal sub-plans are the same node, so sharing,
//! one-time differentiation and common sub-expressions need no code of their own, and a walk over a plan is a loop.

mod colset;
mod explain;
mod props;
mod schema;

pub use colset::ColSet;
pub use explain::{Format, Note, explain, explain_json, explain_with};
pub(crate) use explain::{describe_accumulators, describe_exprs, describe_groups};
pub use props::{FunctionalDependency, Props};
pub use schema::{Column, Schema};

use crate::error::{Error, Result};
use crate::rel::{Operator, Rel};
use std::collections::{BTreeSet, HashMap};
use std::fmt;

/// A node of a [`Graph`]. Smaller ids are never parents of larger ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(u32);

impl NodeId {
    /// Position in the arena.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "n{}", self.0)
    }
}

/// An operator with what was derived from it.
#[derive(Clone, Debug)]
pub struct Node {
    rel: Rel,
    schema: Schema,
    props: Props,
}

impl Node {
    /// The operator.
    pub fn rel(&self) -> &Rel {
        &self.rel
    }
    /// The operator's behaviour.
    pub fn op(&self) -> &dyn Operator {
        self.rel.as_operator()
    }
    /// Output columns.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }
    /// Derived properties.
    pub fn props(&self) -> &Props {
        &self.props
    }
}

/// The arena.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    nodes: Vec<Node>,
    index: HashMap<Rel, NodeId>,
}

impl Graph {
    /// An empty graph.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an operator, or finds the equal node. Derives schema and properties and checks the operator's contract.
    ///
    /// # Errors
    /// A broken contract (a column out of range, a threshold over an input whose rows may carry negative weights …)
    /// is a bug in the rule that built the plan and is reported as such.
    pub fn add(&mut self, rel: impl Into<Rel>) -> Result<NodeId> {
        let rel = rel.into();
        if let Some(id) = self.index.get(&rel) {
            return Ok(*id);
        }
        let op = rel.as_operator();
        let ids = op.inputs();
        if let Some(bad) = ids.iter().find(|i| i.index() >= self.nodes.len()) {
            return Err(Error::plan(format!("{} reads {bad}, which is not in the graph", op.name())));
        }
        let inputs: Vec<&Node> = ids.iter().map(|i| &self.nodes[i.index()]).collect();
        op.check(&inputs)?;
        let schema = op.schema(&inputs);
        let props = op.props(&inputs, &schema);
        let id = u32::try_from(self.nodes.len())
            .map(NodeId)
            .map_err(|_| Error::too_complex("the plan has too many operators"))?;
        self.nodes.push(Node { rel: rel.clone(), schema, props });
        self.index.insert(rel, id);
        Ok(id)
    }

    /// The node behind an id.
    ///
    /// # Panics
    /// Where the id comes from another, larger graph.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }
    /// The operator of a node.
    pub fn rel(&self, id: NodeId) -> &Rel {
        &self.node(id).rel
    }
    /// The schema of a node.
    pub fn schema(&self, id: NodeId) -> &Schema {
        &self.node(id).schema
    }
    /// The properties of a node.
    pub fn props(&self, id: NodeId) -> &Props {
        &self.node(id).props
    }
    /// The inputs of a node.
    pub fn inputs(&self, id: NodeId) -> Vec<NodeId> {
        self.node(id).op().inputs()
    }
    /// How many nodes the arena holds.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }
    /// Whether nothing was added yet.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// All nodes that `root` is computed from, itself included, inputs before their readers.
    pub fn reachable(&self, root: NodeId) -> Vec<NodeId> {
        self.reachable_from(&[root])
    }

    /// All nodes that any of `roots` is computed from, themselves included, inputs before their readers.
    pub fn reachable_from(&self, roots: &[NodeId]) -> Vec<NodeId> {
        let mut seen: BTreeSet<NodeId> = roots.iter().copied().collect();
        let mut stack = roots.to_vec();
        while let Some(id) = stack.pop() {
            for input in self.inputs(id) {
                if seen.insert(input) {
                    stack.push(input);
                }
            }
        }
        seen.into_iter().collect()
    }

    /// Rebuilds the plan under `root` bottom-up. `f` sees each node's operator with its inputs already rebuilt and
    /// returns the node that stands for it.
    ///
    /// # Errors
    /// Those of `f`.
    pub fn rebuild(
        &mut self,
        root: NodeId,
        f: impl FnMut(&mut Graph, NodeId, Rel) -> Result<NodeId>,
    ) -> Result<NodeId> {
        let mut made = self.rebuild_all(&[root], f)?;
        made.pop().ok_or_else(|| Error::internal("a rebuilt plan has no root"))
    }

    /// Rebuilds several plans that share nodes; see [`Graph::rebuild`].
    ///
    /// # Errors
    /// Those of `f`.
    pub fn rebuild_all(
        &mut self,
        roots: &[NodeId],
        mut f: impl FnMut(&mut Graph, NodeId, Rel) -> Result<NodeId>,
    ) -> Result<Vec<NodeId>> {
        let mut new: HashMap<NodeId, NodeId> = HashMap::new();
        for id in self.reachable_from(roots) {
            let inputs: Vec<NodeId> =
                self.inputs(id).iter().map(|i| new.get(i).copied().unwrap_or(*i)).collect();
            let rel = self.node(id).op().with_inputs(&inputs);
            let made = f(self, id, rel)?;
            new.insert(id, made);
        }
        Ok(roots.iter().map(|r| new.get(r).copied().unwrap_or(*r)).collect())
    }
}
