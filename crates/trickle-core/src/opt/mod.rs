//! Rewrites of plans into equal plans that cost less. The list [`RULES`] is the only list of rules, in the
//! order in which they are applied.

mod arguments;
mod columns;
mod consolidate;
mod empty;
mod fuse;
mod numbered;
mod restrict;
mod simplify;
mod single;
mod sums;

use crate::error::Result;
use crate::graph::{Graph, Node, NodeId, NodeMap};
use crate::rel::Rel;

/// A rewrite rule, which replaces a plan by an equal plan.
pub struct Rule {
    /// The name of the rule.
    pub name: &'static str,
    /// The benefit that justifies the rule's cost.
    pub reason: &'static str,
    apply: Apply,
}

enum Apply {
    /// Rewrites one node whose inputs are rewritten already. The function returns `None` where the node stays
    /// as it is.
    Node(MayApply, fn(&mut Graph, NodeId) -> Result<Option<NodeId>>),
    /// Rewrites several whole plans, which may share nodes.
    Plans(MayApply, fn(&mut Graph, &[NodeId]) -> Result<Vec<NodeId>>),
}

/// A cheap test whether a rule may apply to a node. The test looks at the node alone. If it returns false,
/// the rule does not apply.
type MayApply = fn(&Node) -> bool;

/// All rules, in the order in which they are applied.
pub const RULES: &[Rule] = &[
    Rule {
        name: "empty",
        reason: "a term over tables that did not change is not executed",
        apply: Apply::Node(|n| n.props().empty, empty::rule),
    },
    Rule {
        name: "sums",
        reason: "nested sums are one; x − x is nothing",
        apply: Apply::Node(|n| matches!(n.rel(), Rel::Union(_) | Rel::Negate(_)), sums::rule),
    },
    Rule {
        name: "simplify",
        reason: "what a column's NOT NULL decides is not asked of every row",
        apply: Apply::Node(simplify::may_apply, simplify::rule),
    },
    Rule {
        name: "fuse",
        reason: "maps over maps and filters over filters are one; filters move towards the rows",
        apply: Apply::Node(|n| matches!(n.rel(), Rel::Map(_) | Rel::Filter(_)), fuse::rule),
    },
    Rule {
        name: "arguments",
        reason: "a sum of values whose scales are known adds up",
        apply: Apply::Node(|n| matches!(n.rel(), Rel::Reduce(_)), arguments::rule),
    },
    Rule {
        name: "numbered",
        reason: "rows that a filter on their number drops are not numbered",
        apply: Apply::Node(|n| matches!(n.rel(), Rel::Filter(_)), numbered::rule),
    },
    Rule {
        name: "single",
        reason: "what has one row per key is not asked for it",
        apply: Apply::Node(|n| matches!(n.rel(), Rel::Single(_)), single::rule),
    },
    Rule {
        name: "sideways",
        reason: "what a small side joins with is computed for its keys alone",
        apply: Apply::Node(
            |n| matches!(n.rel(), Rel::Join(_) | Rel::SemiJoin(_) | Rel::OuterJoin(_)),
            restrict::sideways,
        ),
    },
    Rule {
        name: "restrict",
        reason: "a restriction to touched keys reaches the table leaves, where an index serves it",
        apply: Apply::Node(|n| matches!(n.rel(), Rel::SemiJoin(_)), restrict::rule),
    },
    Rule {
        name: "columns",
        reason: "what nobody reads is not carried, nor captured",
        apply: Apply::Plans(|_| true, columns::rule),
    },
    Rule {
        name: "consolidate",
        reason: "rows are merged where a reader needs it and nowhere else",
        apply: Apply::Plans(|n| matches!(n.rel(), Rel::Consolidate(_)), consolidate::rule),
    },
];

/// The greatest number of passes over the rules. Each pass enables fewer further rewrites than the pass
/// before.
const PASSES: usize = 4;

/// An optimizer for the plans of one graph. The optimizer remembers the result of each rule for each node. If
/// plans share parts, or a plan is optimized again after a small change, only the new parts therefore cost
/// time.
pub struct Optimizer {
    /// The results of each rule, in the order of [`RULES`].
    done: Vec<Done>,
}

/// The results that one rule has had so far. These results stay valid, since nodes never change.
#[derive(Clone)]
struct Done {
    /// For each rewritten node, the node that replaces it.
    nodes: NodeMap<NodeId>,
    /// The plans that the last application of the rule left unchanged.
    quiet: Vec<NodeId>,
}

impl Default for Optimizer {
    fn default() -> Optimizer {
        Optimizer { done: vec![Done { nodes: NodeMap::new(), quiet: Vec::new() }; RULES.len()] }
    }
}

impl Optimizer {
    /// Returns plans that equal `roots`. Nodes that `roots` share stay shared. All calls of one optimizer
    /// must pass the same graph.
    ///
    /// # Errors
    /// Fails if a rule breaks an operator's contract, which is a bug in the rule.
    pub fn optimize(&mut self, graph: &mut Graph, roots: &[NodeId]) -> Result<Vec<NodeId>> {
        let mut roots = roots.to_vec();
        let mut order = graph.reachable_from(&roots);
        for _ in 0..PASSES {
            let before = roots.clone();
            for (rule, done) in RULES.iter().zip(&mut self.done) {
                let (Apply::Node(may_apply, _) | Apply::Plans(may_apply, _)) = rule.apply;
                if done.quiet == roots || !order.iter().any(|id| may_apply(graph.node(*id))) {
                    continue;
                }
                let made = match rule.apply {
                    Apply::Plans(_, f) => f(graph, &roots)?,
                    Apply::Node(_, f) => {
                        for id in &order {
                            apply(graph, *id, may_apply, f, &mut done.nodes)?;
                        }
                        roots.iter().map(|r| done.nodes.get(*r).unwrap_or(*r)).collect()
                    }
                };
                if made == roots {
                    done.quiet = made;
                } else {
                    order = graph.reachable_from(&made);
                    roots = made;
                }
            }
            if roots == before {
                break;
            }
        }
        Ok(roots)
    }

    /// Returns a plan that equals `root` (see [`Optimizer::optimize`]).
    ///
    /// # Errors
    /// Fails if a rule breaks an operator's contract, which is a bug in the rule.
    pub fn optimize_one(&mut self, graph: &mut Graph, root: NodeId) -> Result<NodeId> {
        let mut made = self.optimize(graph, &[root])?;
        made.pop().ok_or_else(|| crate::error::Error::internal("an optimised plan has no root"))
    }
}

/// Returns a plan that equals `root`.
///
/// # Errors
/// Fails if a rule breaks an operator's contract, which is a bug in the rule.
pub fn optimize(graph: &mut Graph, root: NodeId) -> Result<NodeId> {
    Optimizer::default().optimize_one(graph, root)
}

/// Records in `done` the node that replaces `id`. The replacements of the inputs of `id` must be in `done`
/// already. The rule is applied again to its own result until the result stays the same, since one rewrite
/// may enable another. The number of repetitions is bounded, so that a faulty rule does not loop for ever.
fn apply(
    graph: &mut Graph,
    id: NodeId,
    may_apply: MayApply,
    rule: fn(&mut Graph, NodeId) -> Result<Option<NodeId>>,
    done: &mut NodeMap<NodeId>,
) -> Result<()> {
    if done.get(id).is_some() {
        return Ok(());
    }
    let mut node = graph.over(id, |i| done.get(i).unwrap_or(i))?;
    for _ in 0..8 {
        if !may_apply(graph.node(node)) {
            break;
        }
        match rule(graph, node)? {
            Some(next) if next != node => node = next,
            _ => break,
        }
    }
    done.insert(id, node);
    Ok(())
}
