//! ΔQ from Q.

mod differ;

pub use differ::Differ;

use crate::error::Result;
use crate::graph::NodeId;

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
