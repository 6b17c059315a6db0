//! Strongly connected components.

use crate::table::TableId;
use std::collections::BTreeSet;

/// Returns the strongly connected components of the graph of the tables `ids`. Each component comes after the
/// components that have edges to it. The algorithm is Kosaraju's (Aho, Hopcroft, Ullman, Data Structures and
/// Algorithms, 6.7). `forward` returns the ends of the edges from a table, `backward` the starts of the edges
/// to a table. Takes O((V + E) log V) time. The search uses an explicit stack instead of recursion.
pub(super) fn strongly_connected(
    ids: impl IntoIterator<Item = TableId>,
    forward: impl Fn(TableId) -> Vec<TableId>,
    backward: impl Fn(TableId) -> Vec<TableId>,
) -> Vec<BTreeSet<TableId>> {
    let mut left = BTreeSet::new();
    let mut finished = Vec::new();
    for id in ids {
        if !left.insert(id) {
            continue;
        }
        let mut path = vec![(id, forward(id).into_iter())];
        while let Some((at, ends)) = path.last_mut() {
            match ends.find(|end| left.insert(*end)) {
                Some(end) => path.push((end, forward(end).into_iter())),
                None => {
                    finished.push(*at);
                    path.pop();
                }
            }
        }
    }
    let mut components = Vec::new();
    for id in finished.into_iter().rev() {
        if !left.remove(&id) {
            continue;
        }
        let mut component = BTreeSet::new();
        let mut stack = vec![id];
        while let Some(at) = stack.pop() {
            component.insert(at);
            stack.extend(backward(at).into_iter().filter(|start| left.remove(start)));
        }
        components.push(component);
    }
    components
}
