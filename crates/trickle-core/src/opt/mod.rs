//! Rewrites plans into equal, cheaper ones. [`RULES`] is the only list, in the order of application.

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

/// A rewrite rule: an identity between plans.
pub struct Rule {
    /// The rule's name.
    pub name: &'static str,
    /// The reason why the rule is worth its cost.
    pub reason: &'static str,
    apply: Apply,
}

enum Apply {
    /// Rewrites one node whose inputs are rewritten already; returns `None` where it has nothing to rewrite.
    Node(Sees, fn(&mut Graph, NodeId) -> Result<Option<NodeId>>),
    /// Rewrites whole plans that share nodes.
    Plans(Sees, fn(&mut Graph, &[NodeId]) -> Result<Vec<NodeId>>),
}

/// Whether a rule may apply to a node, judged from the node alone. The test is cheap, and a "no" is always
/// right.
type Sees = fn(&Node) -> bool;

/// All rules.
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
        apply: Apply::Node(simplify::sees, simplify::rule),
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

/// The number of passes over the list. Each pass only enables a little more.
const PASSES: usize = 4;

/// Rewrites plans of one graph. It remembers the result of each rule for each node. So plans that share
/// parts, and plans that are optimised again after a small change, cost only as much as their new parts.
pub struct Optimizer {
    /// The results of each rule.
    done: Vec<Done>,
}

/// The results of one rule so far. They stay valid, since nodes never change.
#[derive(Clone)]
struct Done {
    /// For each node the node that replaces it.
    nodes: NodeMap<NodeId>,
    /// The plans that the rule last left unchanged.
    quiet: Vec<NodeId>,
}

impl Default for Optimizer {
    fn default() -> Optimizer {
        Optimizer { done: vec![Done { nodes: NodeMap::new(), quiet: Vec::new() }; RULES.len()] }
    }
}

impl Optimizer {
    /// Returns plans equal to `roots`, which still share the nodes that `roots` share. Every call must get
    /// the same graph.
    ///
    /// # Errors
    /// Where a rule breaks an operator's contract, which is a bug in the rule.
    pub fn optimize(&mut self, graph: &mut Graph, roots: &[NodeId]) -> Result<Vec<NodeId>> {
        let mut roots = roots.to_vec();
        let mut order = graph.reachable_from(&roots);
        for _ in 0..PASSES {
            let before = roots.clone();
            for (rule, done) in RULES.iter().zip(&mut self.done) {
                let (Apply::Node(sees, _) | Apply::Plans(sees, _)) = rule.apply;
                if done.quiet == roots || !order.iter().any(|id| sees(graph.node(*id))) {
                    continue;
                }
                let made = match rule.apply {
                    Apply::Plans(_, f) => f(graph, &roots)?,
                    Apply::Node(_, f) => {
                        for id in &order {
                            apply(graph, *id, sees, f, &mut done.nodes)?;
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

    /// Returns a plan equal to `root`; see [`Optimizer::optimize`].
    ///
    /// # Errors
    /// A broken contract: a bug in a rule.
    pub fn optimize_one(&mut self, graph: &mut Graph, root: NodeId) -> Result<NodeId> {
        let mut made = self.optimize(graph, &[root])?;
        made.pop().ok_or_else(|| crate::Error::internal("an optimised plan has no root"))
    }
}

/// Returns a plan equal to `root`.
///
/// # Errors
/// A broken contract: a bug in a rule.
pub fn optimize(graph: &mut Graph, root: NodeId) -> Result<NodeId> {
    Optimizer::default().optimize_one(graph, root)
}

/// Puts the replacement of `id` into `done`, which already has the replacements of its inputs. The rule is
/// applied until it changes nothing, since it may be enabled again by its own result. A bound keeps a faulty
/// rule from looping.
fn apply(
    graph: &mut Graph,
    id: NodeId,
    sees: Sees,
    rule: fn(&mut Graph, NodeId) -> Result<Option<NodeId>>,
    done: &mut NodeMap<NodeId>,
) -> Result<()> {
    if done.get(id).is_some() {
        return Ok(());
    }
    let mut node = graph.over(id, |i| done.get(i).unwrap_or(i))?;
    for _ in 0..8 {
        if !sees(graph.node(node)) {
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
