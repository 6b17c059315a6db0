//! Differentiation, which makes ΔQ from Q.
//!
//! The law: for all states S and changes d, `eval(ΔQ, S, d) = eval(Q, S+d) − eval(Q, S)`. A delta can read
//! the current state R′ and the change ΔR, which PostgreSQL provides. Where `R′ − ΔR` can be split into
//! signed terms, the previous state is not rebuilt.
//!
//! An operator's [`Class`](crate::rel::Class) decides its delta (`class.rs`). An operator may have a better
//! rule ([`Differentiate`]). The laws check that both rules give the same result.

mod affected;
mod class;
mod differ;
mod part;
mod states;

pub use affected::{Affected, Path};
pub use differ::{Differ, Rules};
pub use part::{Captured, part};
pub use states::{Keep, Kept, Part, kept, prepare};

use crate::error::Result;
use crate::graph::{Graph, NodeId};
use crate::rel::Rel;

/// A delta rule of one operator that is better than the rule of the operator's class.
pub trait Differentiate {
    /// Returns `Δop` by an algebraic rule that gives the same result as the class rule. Returns `None` where
    /// the class rule is to be used.
    ///
    /// # Errors
    /// Errors of [`Graph::add`](crate::graph::Graph::add).
    fn delta(&self, _cx: &mut Differ<'_>, _node: NodeId) -> Result<Option<NodeId>> {
        Ok(None)
    }
}

/// Returns the sum of those parts that are not always empty. Where all parts are always empty, returns the
/// empty relation with the schema of `like`.
pub(crate) fn sum(
    graph: &mut Graph,
    like: NodeId,
    parts: impl IntoIterator<Item = NodeId>,
) -> Result<NodeId> {
    let parts: Vec<NodeId> = parts.into_iter().filter(|p| !graph.props(*p).empty).collect();
    match parts.as_slice() {
        [] => {
            let schema = graph.schema(like).clone();
            graph.add(crate::rel::Values::empty(schema))
        }
        [one] => Ok(*one),
        _ => graph.add(crate::rel::Union::new(parts)),
    }
}

/// Returns `−n`, where `−(−n)` is simplified to `n`.
pub(crate) fn negate(graph: &mut Graph, n: NodeId) -> Result<NodeId> {
    match graph.rel(n) {
        Rel::Negate(inner) => Ok(inner.input()),
        _ if graph.props(n).empty => Ok(n),
        _ => graph.add(crate::rel::Negate::new(n)),
    }
}
