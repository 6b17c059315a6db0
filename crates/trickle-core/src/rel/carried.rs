//! The way of a table's columns through a plan, which tells which rows of a result depend on which rows of
//! the table.

use super::{Class, Rel, join_keys};
use crate::expr::Expr;
use crate::graph::{Graph, Node, NodeId};
use crate::hash::FastMap;
use crate::table::TableId;

/// The places of chosen columns of one table in a result.
///
/// Let `p` be a condition over the chosen columns, and let the result of `op` have them `At(places)`. Then
/// `σ_p(op(R)) = op(σ_p(R))`, where `p` reads the places on the left side, R is the table, and all other
/// tables are the same on both sides. So rows of R for which `p` is false have no effect on rows of the
/// result for which `p` is true.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Carried {
    /// The result does not depend on the table.
    Absent,
    /// The places of the chosen columns in the result. Each row of the result has there the values of the
    /// rows of the table that it was computed from.
    At(Vec<usize>),
    /// A row of the result may depend on rows of the table with other values.
    Mixed,
}

impl Carried {
    /// Returns the places that `place` gives for the former places. Returns [`Carried::Mixed`] where a place
    /// has no image.
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

/// Returns the answer of an operator that has the columns of its only input first, and computes each row from
/// one row of the input.
pub(super) fn unmoved(inputs: &[Carried]) -> Carried {
    match inputs {
        [one] => one.clone(),
        _ => Carried::Mixed,
    }
}

/// Returns the answer of an operator of which no law is known.
pub(super) fn mixed(inputs: &[Carried]) -> Carried {
    if inputs.iter().all(|i| *i == Carried::Absent) { Carried::Absent } else { Carried::Mixed }
}

/// Returns the answer of an operator that computes each row from one row of its left input, which has the
/// first columns of the output, and from the rows of its right input that match it under `on`. If both inputs
/// carry the columns, `on` must equate each of them.
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

/// Returns the answer of an operator of this class that follows from the law of the class alone. A row with
/// some values in the columns of the key depends on rows with the same values.
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

/// Returns the answer of all inputs, where all give the same one.
pub(super) fn agreed(inputs: impl IntoIterator<Item = Carried>) -> Carried {
    let mut inputs = inputs.into_iter();
    let Some(first) = inputs.next() else { return Carried::Absent };
    if inputs.all(|i| i == first) { first } else { Carried::Mixed }
}

/// Returns where the result of `node` has the columns `chosen` of the table `source`. The columns are
/// positions in the definition of the table.
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
