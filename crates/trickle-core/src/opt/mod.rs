//! Rewriting plans into equal, cheaper ones. [`RULES`] is the only list, in the order of application.

mod columns;
mod consolidate;
mod empty;
mod fuse;
mod restrict;
mod simplify;
mod single;
mod sums;

use crate::error::Result;
use crate::graph::{Graph, NodeId};

/// One identity.
pub struct Rule {
    /// Its name.
    pub name: &'static str,
    /// Why it is worth it.
    pub reason: &'static str,
    apply: Apply,
}

enum Apply {
    /// Rewrites one node whose inputs are rewritten already; `None` leaves it.
    Node(fn(&mut Graph, NodeId) -> Result<Option<NodeId>>),
    /// Rewrites whole plans that share nodes.
    Plans(fn(&mut Graph, &[NodeId]) -> Result<Vec<NodeId>>),
}

/// All rules.
pub const RULES: &[Rule] = &[
    Rule {
        name: "empty",
        reason: "a term over tables that did not change is not executed",
        apply: Apply::Node(empty::rule),
    },
    Rule { name: "sums", reason: "nested sums are one; x − x is nothing", apply: Apply::Node(sums::rule) },
    Rule {
        name: "simplify",
        reason: "what a column's NOT NULL decides is not asked of every row",
        apply: Apply::Node(simplify::rule),
    },
    Rule {
        name: "fuse",
        reason: "maps over maps and filters over filters are one; filters move towards the rows",
        apply: Apply::Node(fuse::rule),
    },
    Rule {
        name: "single",
        reason: "what has one row per key is not asked for it",
        apply: Apply::Node(single::rule),
    },
    Rule {
        name: "sideways",
        reason: "what a small side joins with is computed for its keys alone",
        apply: Apply::Node(restrict::sideways),
    },
    Rule {
        name: "restrict",
        reason: "a restriction to touched keys reaches the table leaves, where an index serves it",
        apply: Apply::Node(restrict::rule),
    },
    Rule {
        name: "columns",
        reason: "what nobody reads is not carried, nor captured",
        apply: Apply::Plans(columns::rule),
    },
    Rule {
        name: "consolidate",
        reason: "rows are merged where a reader needs it and nowhere else",
        apply: Apply::Plans(consolidate::rule),
    },
];

/// How often the list is gone through; each pass only ever enables a little more.
const PASSES: usize = 4;

/// A plan equal to `root`.
///
/// # Errors
/// A broken contract: a bug in a rule.
pub fn optimize(graph: &mut Graph, root: NodeId) -> Result<NodeId> {
    let mut made = optimize_all(graph, &[root])?;
    made.pop().ok_or_else(|| crate::Error::internal("an optimised plan has no root"))
}

/// Plans equal to `roots`, which go on sharing what they share.
///
/// # Errors
/// A broken contract: a bug in a rule.
pub fn optimize_all(graph: &mut Graph, roots: &[NodeId]) -> Result<Vec<NodeId>> {
    let mut roots = roots.to_vec();
    for _ in 0..PASSES {
        let before = roots.clone();
        for rule in RULES {
            roots = match rule.apply {
                Apply::Plans(f) => f(graph, &roots)?,
                Apply::Node(f) => graph.rebuild_all(&roots, |g, _, rel| {
                    let node = g.add(rel)?;
                    settle(g, node, f)
                })?,
            };
        }
        if roots == before {
            break;
        }
    }
    Ok(roots)
}

/// Applies a rule to a node until it has nothing more to say there. A rule may enable itself again on its own result;
/// the bound keeps a faulty one from looping.
fn settle(
    graph: &mut Graph,
    node: NodeId,
    rule: fn(&mut Graph, NodeId) -> Result<Option<NodeId>>,
) -> Result<NodeId> {
    let mut node = node;
    for _ in 0..8 {
        match rule(graph, node)? {
            Some(next) if next != node => node = next,
            _ => break,
        }
    }
    Ok(node)
}
