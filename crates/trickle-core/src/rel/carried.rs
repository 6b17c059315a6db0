//! The columns of a table, followed through a plan. Their places in a result tell which rows of the result
//! depend on which rows of the table.

use super::{Class, Rel, join_keys};
use crate::expr::Expr;
use crate::graph::{Graph, Node, NodeId};
use crate::hash::FastMap;
use crate::table::TableId;

/// The places of chosen columns of one table in a result.
///
/// Let R be the table, and let `p` be a condition over the chosen columns. Let the result of `op` have these
/// columns `At(places)`. Then `σ_p(op(R)) = op(σ_p(R))`. On the left side, `p` reads the columns at `places`.
/// All other tables are the same on both sides. Rows of R for which `p` is false therefore have no effect on
/// rows of the result for which `p` is true.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Carried {
    /// The result does not depend on the table.
    Absent,
    /// The places of the chosen columns in the result. At these places, each row of the result has the values
    /// of the table's rows from which it was computed.
    At(Vec<usize>),
    /// A row of the result may depend on rows of the table that have other values in the chosen columns.
    Mixed,
}

impl Carried {
    /// Maps each place by `place`. Returns [`Carried::Mixed`] if `place` returns `None` for one of them.
    pub(super) fn moved(&self, place: impl Fn(usize) -> Option<usize>) -> Carried {
        match self {
            Carried::Absent => Carried::Absent,
            Carried::Mixed => Carried::Mixed,
            Carried::At(places) => {
                let moved: Option<Vec<usize>> = places.iter().map(|c| place(*c)).collect();
                moved.map_or(Carried::Mixed, Carried::At)
            }
        }
    }
}

/// Returns the [`Carried`] of an operator that has the columns of its only input first, and computes each row
/// from one row of the input.
pub(super) fn unmoved(inputs: &[Carried]) -> Carried {
    match inputs {
        [one] => one.clone(),
        _ => Carried::Mixed,
    }
}

/// Returns the [`Carried`] of an operator for which no law is known.
pub(super) fn mixed(inputs: &[Carried]) -> Carried {
    if inputs.iter().all(|i| *i == Carried::Absent) { Carried::Absent } else { Carried::Mixed }
}

/// Returns the [`Carried`] of an operator that computes each row from one row of its left input and the
/// matching rows of its right input. The condition `on` decides which rows match. The columns of the left
/// input come first in the output. If both inputs carry the columns, `on` must equate each of them.
pub(super) fn from_left(on: &Expr, inputs: &[Carried], nodes: &[&Node]) -> Carried {
    match inputs {
        [left, Carried::Absent] => left.clone(),
        [Carried::At(left), Carried::At(right)] => {
            let keys = join_keys(on, nodes[0].schema().len());
            let equated = |(l, r): (&usize, &usize)| keys.left.iter().zip(&keys.right).any(|k| k == (l, r));
            match left.iter().zip(right).all(equated) {
                true => Carried::At(left.clone()),
                false => Carried::Mixed,
            }
        }
        _ => Carried::Mixed,
    }
}

/// Returns the [`Carried`] that follows from the law of an operator's class alone. A row of the result
/// depends only on input rows with the same values in the columns of the key.
pub(super) fn by_key(class: &Class, inputs: &[Carried]) -> Carried {
    match class {
        Class::PerKey { keys, output } => {
            let place = |(input, key): (&Carried, &Vec<usize>)| {
                input.moved(|c| key.iter().position(|k| *k == c).and_then(|i| output.get(i).copied()))
            };
            agreed(inputs.iter().zip(keys).map(place))
        }
        Class::Leaf | Class::Linear | Class::Bilinear | Class::Global => mixed(inputs),
    }
}

/// Returns the [`Carried`] that all inputs have in common. Returns [`Carried::Mixed`] if the inputs differ.
pub(super) fn agreed(inputs: impl IntoIterator<Item = Carried>) -> Carried {
    let mut inputs = inputs.into_iter();
    let Some(first) = inputs.next() else { return Carried::Absent };
    if inputs.all(|i| i == first) { first } else { Carried::Mixed }
}

/// Returns the places at which the result of `node` has the columns `chosen` of the table `source`. These
/// columns are positions in the definition of the table.
pub fn carried(graph: &Graph, node: NodeId, source: TableId, chosen: &[usize]) -> Carried {
    let mut found: FastMap<NodeId, Carried> = FastMap::default();
    for id in graph.reachable(node) {
        let rel = graph.rel(id);
        let answer = match rel {
            Rel::Table(t) if t.def().id == source => {
                let place = |c: &usize| t.columns().iter().position(|read| read == c);
                chosen.iter().map(place).collect::<Option<_>>().map_or(Carried::Mixed, Carried::At)
            }
            _ => {
                let inputs = graph.inputs(id);
                let nodes: Vec<&Node> = inputs.iter().map(|i| graph.node(*i)).collect();
                let below: Vec<Carried> =
                    inputs.iter().map(|i| found.get(i).cloned().unwrap_or(Carried::Mixed)).collect();
                rel.as_operator().carried(&below, &nodes)
            }
        };
        found.insert(id, answer);
    }
    found.remove(&node).unwrap_or(Carried::Mixed)
}
