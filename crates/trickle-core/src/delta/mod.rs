//! ΔQ from Q.
//!
//! The law: for all states S and changes d, `eval(ΔQ, S, d) = eval(Q, S+d) − eval(Q, S)`. PostgreSQL gives us the
//! current state R′ and the change ΔR; the previous state is never rebuilt where `R′ − ΔR` can be split into signed
//! terms.
//!
//! An operator's [`Class`](crate::rel::Class) decides its delta (`class.rs`); an operator may know a better rule
//! ([`Differentiate`]), which the laws hold equal to the class rule.

mod affected;
mod class;
mod differ;
mod states;

pub use affected::{Affected, Path};
pub use differ::{Differ, Rules};
pub use states::{Keep, Kept, Part, kept, prepare};

use crate::error::Result;
use crate::graph::{Graph, NodeId};
use crate::rel::Rel;

/// A delta rule that knows better than the operator's class.
pub trait Differentiate {
    /// `Δop` by an algebraic rule, equal to the class rule wherever it applies; `None` leaves it to the class.
    ///
    /// # Errors
    /// Those of [`Graph::add`](crate::graph::Graph::add).
    fn delta(&self, _cx: &mut Differ<'_>, _node: NodeId) -> Result<Option<NodeId>> {
        Ok(None)
    }
}

/// The sum of the given parts, leaving out those that are empty whatever the data; `like` gives the schema where
/// none is left.
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

/// `−n`, with `−(−n) = n`.
pub(crate) fn negate(graph: &mut Graph, n: NodeId) -> Result<NodeId> {
    match graph.rel(n) {
        Rel::Negate(inner) => Ok(inner.input()),
        _ if graph.props(n).empty => Ok(n),
        _ => graph.add(crate::rel::Negate::new(n)),
    }
}
