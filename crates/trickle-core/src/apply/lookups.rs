//! The columns, other than the key, by which deltas look up the rows of a stored result.
//!
//! The cost of a refresh is proportional to the change only if an index finds the rows that the change
//! touches. For tables of users, missing indexes are reported ([`access`](crate::access)). State tables are
//! created with the indexes that this module finds.

use crate::access::asked;
use crate::graph::{Graph, NodeId};
use crate::rel::{By, Rel, equalities, join_keys, shown_partition};
use std::collections::{BTreeMap, BTreeSet};

/// Returns, for each stored node under `root`, the columns by which the operators over the node look up its
/// rows. An operator looks up rows when its other input changes, or when a change touches one of its groups,
/// partitions or keys.
pub(super) fn lookups(
    graph: &Graph,
    root: NodeId,
    stored: &BTreeSet<NodeId>,
) -> BTreeMap<NodeId, BTreeSet<Vec<usize>>> {
    let mut found: BTreeMap<NodeId, BTreeSet<Vec<usize>>> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    let mut stack: Vec<(NodeId, By)> =
        graph.reachable(root).into_iter().flat_map(|id| touched(graph, id)).collect();
    while let Some((id, by)) = stack.pop() {
        if by.is_all() || !seen.insert((id, by.clone())) {
            continue;
        }
        if stored.contains(&id) {
            let found = found.entry(id).or_default();
            // The columns that are looked up by equality come before those that are looked up by a range.
            found.insert(by.equal.union(&by.range).copied().collect());
            found.insert(by.equal.into_iter().collect());
            found.remove([].as_slice());
        } else {
            stack.extend(asked(graph, id, &by));
        }
    }
    found
}

/// Returns how a delta of `id` looks up unchanged rows of its inputs.
fn touched(graph: &Graph, id: NodeId) -> Vec<(NodeId, By)> {
    let of = |columns: &[usize]| By::values(columns.iter().copied());
    match graph.rel(id) {
        Rel::Window(w) => vec![(w.input(), of(w.partition()))],
        Rel::Top(t) => vec![(t.input(), of(t.partition()))],
        Rel::Reduce(r) => vec![(r.input(), of(r.keys()))],
        Rel::Single(s) => vec![(s.input(), By::values(0..s.keys()))],
        Rel::Recursion(r) => {
            vec![(r.side(), equalities(&r.step().on, graph.schema(r.base()).len()).1)]
        }
        Rel::Join(j) => both(graph, j.left(), j.right(), j.on()),
        Rel::SemiJoin(s) => both(graph, s.left(), s.right(), s.on()),
        Rel::OuterJoin(o) => both(graph, o.left_input(), o.right_input(), o.on()),
        _ => Vec::new(),
    }
}

fn both(graph: &Graph, left: NodeId, right: NodeId, on: &crate::expr::Expr) -> Vec<(NodeId, By)> {
    let (of_left, of_right) = equalities(on, graph.schema(left).len());
    vec![(left, of_left), (right, of_right)]
}

/// Returns the columns by which a refresh finds the old rows that it deletes from a stored node, if they are
/// not the node's key.
pub(super) fn own(graph: &Graph, node: NodeId) -> Vec<usize> {
    ascending(match graph.rel(node) {
        Rel::Window(w) => w.partition().to_vec(),
        Rel::Top(t) => t.partition().to_vec(),
        // The delta of a recursion finds rows by the columns on which the recursion's step joins.
        Rel::Recursion(r) => join_keys(&r.step().on, graph.schema(r.base()).len()).left,
        Rel::Map(m) => match graph.rel(m.input()) {
            Rel::Window(w) => shown_partition(m, w).unwrap_or_default(),
            _ => Vec::new(),
        },
        _ => Vec::new(),
    })
}

fn ascending(mut by: Vec<usize>) -> Vec<usize> {
    by.sort_unstable();
    by.dedup();
    by
}

/// Returns the fewest indexes that serve all lookups. An index serves a lookup if it starts with the columns
/// of the lookup. If one lookup uses some of the columns of another lookup, these columns come first in the
/// other lookup's index. One index then serves both lookups.
pub(super) fn indexes(mut lookups: BTreeSet<Vec<usize>>) -> Vec<Vec<usize>> {
    let mut found = Vec::new();
    while let Some(widest) = lookups.iter().max_by_key(|l| l.len()).cloned() {
        let mut chain = vec![widest];
        loop {
            let last = &chain[chain.len() - 1];
            lookups.remove(last);
            let inside = |l: &&Vec<usize>| l.iter().all(|c| last.contains(c));
            match lookups.iter().filter(inside).max_by_key(|l| l.len()).cloned() {
                Some(next) => chain.push(next),
                None => break,
            }
        }
        let mut index: Vec<usize> = Vec::new();
        for columns in chain.into_iter().rev() {
            index.extend(columns.iter().filter(|c| !index.contains(c)).copied().collect::<Vec<_>>());
        }
        found.push(index);
    }
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::MemoryCatalog;
    use crate::{Options, compile};

    /// Returns the column names of the lookup indexes of state tables.
    fn of_states(query: &str) -> Vec<String> {
        let ddl =
            "CREATE TABLE a (id int PRIMARY KEY, k int, v int); CREATE TABLE b (id int PRIMARY KEY, k int);";
        let catalog = MemoryCatalog::from_ddl(ddl).unwrap();
        let table = compile(query, &catalog, &Options::new("public", "r")).unwrap().incremental().unwrap();
        let states = &table.layout().states;
        let named = |t: &crate::apply::Stored, by: &[usize]| {
            t.names(by).iter().map(|n| n.as_str().to_owned()).collect::<Vec<_>>().join(" ")
        };
        states.iter().flat_map(|t| t.lookups.iter().map(|by| named(t, by))).collect()
    }

    #[test]
    fn an_inner_result_is_indexed_by_what_reads_it() {
        let groups = "(SELECT id, k, max(v) AS m FROM a GROUP BY id, k)";
        assert_eq!(of_states(&format!("SELECT k, max(m) FROM {groups} g GROUP BY k")), ["k"]);
        let window = format!("SELECT id, sum(m) OVER (PARTITION BY k ORDER BY id) FROM {groups} g");
        assert!(of_states(&window).contains(&"k".to_owned()));
        let joined =
            "SELECT b.id, g.n FROM b JOIN (SELECT id, k, count(*) AS n FROM a GROUP BY id, k) g ON g.k = b.k";
        assert_eq!(of_states(joined), ["k"]);
        let by_key =
            "SELECT b.id, g.n FROM b JOIN (SELECT k, count(*) AS n FROM a GROUP BY k) g ON g.k = b.k";
        assert!(of_states(by_key).is_empty());
    }

    #[test]
    fn one_index_serves_what_lies_within_another() {
        let of = |sets: &[&[usize]]| indexes(sets.iter().map(|s| s.to_vec()).collect());
        assert_eq!(of(&[&[2], &[0, 2], &[1]]), [vec![1], vec![2, 0]]);
        assert_eq!(of(&[&[0, 1, 2], &[1, 2], &[2], &[0, 3]]), [vec![0, 3], vec![2, 1, 0]]);
        assert!(of(&[]).is_empty());
    }
}
