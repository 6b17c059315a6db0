//! Simplifies sums by `(a + b) + c = a + b + c`, `x − x = 0`, `−(a + b) = −a − b` and `−(−x) = x`.

use crate::delta::{negate, sum};
use crate::error::Result;
use crate::graph::{Graph, NodeId};
use crate::hash::FastMap;
use crate::rel::Rel;

pub(super) fn rule(graph: &mut Graph, id: NodeId) -> Result<Option<NodeId>> {
    let node = graph.shared(id);
    match node.rel() {
        Rel::Union(u) => {
            let mut flat = Vec::new();
            for s in u.summands() {
                match graph.rel(*s) {
                    Rel::Union(inner) => flat.extend_from_slice(inner.summands()),
                    _ => flat.push(*s),
                }
            }
            cancel(graph, &mut flat);
            let made = sum(graph, id, flat)?;
            Ok((made != id).then_some(made))
        }
        Rel::Negate(n) => {
            let input = graph.shared(n.input());
            match input.rel() {
                Rel::Negate(inner) => Ok(Some(inner.input())),
                Rel::Union(u) => {
                    let mut terms = Vec::new();
                    for s in u.summands() {
                        terms.push(negate(graph, *s)?);
                    }
                    sum(graph, id, terms).map(Some)
                }
                Rel::Map(m) if !matches!(graph.rel(m.input()), Rel::Negate(_)) => Ok(None),
                Rel::Map(m) => {
                    // This case applies the rule −π(−x) = π(x).
                    let inner = graph.inputs(m.input())[0];
                    let made = crate::rel::Relational::with_inputs(m, &[inner]);
                    graph.add(made).map(Some)
                }
                _ => Ok(None),
            }
        }
        _ => Ok(None),
    }
}

/// Removes pairs of a summand and its negation.
fn cancel(graph: &Graph, terms: &mut Vec<NodeId>) {
    let mut negations: FastMap<NodeId, Vec<usize>> = FastMap::default();
    for (i, t) in terms.iter().enumerate() {
        if let Rel::Negate(n) = graph.rel(*t) {
            negations.entry(n.input()).or_default().push(i);
        }
    }
    let mut gone = vec![false; terms.len()];
    for (i, t) in terms.iter().enumerate() {
        if gone[i] {
            continue;
        }
        let opposite =
            negations.get_mut(t).and_then(|at| at.iter().position(|j| !gone[*j]).map(|p| at.swap_remove(p)));
        if let Some(j) = opposite {
            gone[i] = true;
            gone[j] = true;
        }
    }
    let mut gone = gone.into_iter();
    terms.retain(|_| !gone.next().unwrap_or(false));
}
