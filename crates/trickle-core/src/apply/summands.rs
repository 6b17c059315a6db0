//! The split of a query into a sum of queries that can be computed independently. Each of these queries can
//! be computed in parts, over ranges of its largest table.
//!
//! If an operator is linear in an input, the operator's results over disjoint parts of the input add up to
//! the result over the whole input. If all operators between a query and one of its tables are linear in this
//! way, the query can be computed in parts. Connections that read the same snapshot then each compute the
//! query over a range of the table.

use crate::error::Result;
use crate::graph::{Graph, NodeId, NodeMap};
use crate::rel::{Rel, Version};
use crate::table::{TableId, TableKind};

/// One of the queries whose results add up to the result of the whole query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Summand {
    /// The root of the query.
    pub(crate) root: NodeId,
    /// The leaf in which the query is linear; no other part of the query reads the leaf.
    pub(crate) over: Option<NodeId>,
}

/// Splits the query under `root` at its unions, and finds for each part the leaf in which the part is linear.
/// If there are several such leaves, the leaf over the largest table is chosen; tables of size 0 do not
/// count. `Σ eval(summand) = eval(root)`.
///
/// # Errors
/// Fails as [`Graph::add`] does.
pub(crate) fn summands(
    graph: &mut Graph,
    root: NodeId,
    size: &dyn Fn(TableId) -> u64,
) -> Result<Vec<Summand>> {
    let arms = arms(graph, root)?;
    Ok(arms.into_iter().map(|root| Summand { root, over: largest(graph, root, size) }).collect())
}

/// Returns the summands of the unions under `root` that have only row-wise operators above them. Each summand
/// is returned under these operators.
fn arms(graph: &mut Graph, node: NodeId) -> Result<Vec<NodeId>> {
    let inputs = graph.inputs(node).to_vec();
    match graph.rel(node) {
        // A subtraction is a union too, but its summands with negative weights are not queries.
        Rel::Union(_) if inputs.iter().all(|i| graph.props(*i).non_negative) => {
            let mut all = Vec::new();
            for input in inputs {
                all.extend(arms(graph, input)?);
            }
            Ok(all)
        }
        Rel::Map(_) | Rel::Filter(_) | Rel::Expand(_) => {
            let mut all = Vec::new();
            for input in inputs {
                for arm in arms(graph, input)? {
                    all.push(graph.over(node, |_| arm)?);
                }
            }
            Ok(all)
        }
        _ => Ok(vec![node]),
    }
}

/// Returns the leaf over the largest table, among the leaves in which `root` is linear.
fn largest(graph: &Graph, root: NodeId, size: &dyn Fn(TableId) -> u64) -> Option<NodeId> {
    let mut readers: NodeMap<usize> = NodeMap::new();
    for input in graph.reachable(root).iter().flat_map(|id| graph.inputs(*id)) {
        *readers.entry(*input) += 1;
    }
    let (mut best, mut below) = (None, vec![root]);
    while let Some(node) = below.pop() {
        if readers.get(node).is_some_and(|n| n > 1) {
            continue;
        }
        if let Rel::Table(t) = graph.rel(node)
            && matches!(t.def().kind, TableKind::Table | TableKind::StreamTable)
            && t.version() == Version::After
        {
            best = best.max(Some((size(t.def().id), node)).filter(|(size, _)| *size > 0));
        }
        below.extend(linear_inputs(graph, node));
    }
    best.map(|(_, leaf)| leaf)
}

/// Returns each input in which the operator is linear while the other inputs stay the same.
fn linear_inputs(graph: &Graph, node: NodeId) -> &[NodeId] {
    let inputs = graph.inputs(node);
    match graph.rel(node) {
        Rel::Map(_) | Rel::Filter(_) | Rel::Expand(_) | Rel::Consolidate(_) | Rel::Join(_) => inputs,
        Rel::OuterJoin(j) if j.is_full() => &[],
        Rel::OuterJoin(_) | Rel::SemiJoin(_) => inputs.get(..1).unwrap_or_default(),
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use crate::catalog::MemoryCatalog;
    use crate::refresh::Compiled;
    use crate::table::TableId;
    use crate::{Options, compile};

    /// Returns the table over which each part of a query is loaded, or 0 for a part that is loaded whole.
    /// Table 1 is the largest.
    fn over(sql: &str) -> Vec<u32> {
        let ddl = "CREATE TABLE a (id int PRIMARY KEY, k int, v int); CREATE TABLE b (id int PRIMARY KEY, k int, w int)";
        let catalog = MemoryCatalog::from_ddl(ddl).unwrap();
        let table = compile(sql, &catalog, &Options::new("public", "st")).unwrap().incremental().unwrap();
        let pieces = Compiled::new(table).pieces(&|t| if t == TableId(1) { 1000 } else { 10 }).unwrap();
        pieces.iter().map(|p| p.over.map_or(0, |t| t.0)).collect()
    }

    #[test]
    fn what_is_linear_in_a_table_is_cut_there() {
        assert_eq!(over("SELECT id, v + 1 AS v FROM a WHERE k > 3"), [1]);
        assert_eq!(over("SELECT a.id, b.w FROM b JOIN a USING (k)"), [1]);
        assert_eq!(over("SELECT a.id, b.w FROM a LEFT JOIN b USING (k)"), [1]);
        assert_eq!(over("SELECT id FROM a WHERE NOT EXISTS (SELECT FROM b WHERE b.k = a.k)"), [1]);
        assert_eq!(over("SELECT b.id FROM b WHERE b.k IN (SELECT k FROM a)"), [2]);
        assert_eq!(
            over("SELECT id, s FROM a JOIN (SELECT k, sum(w) AS s FROM b GROUP BY k) t USING (k)"),
            [1]
        );
    }

    #[test]
    fn the_arms_of_a_union_are_cut_apart() {
        assert_eq!(over("SELECT k FROM a UNION ALL SELECT w FROM b"), [1, 2]);
        assert_eq!(
            over("SELECT k FROM a UNION ALL SELECT v FROM a UNION ALL SELECT count(*)::int FROM b"),
            [1, 1, 0]
        );
    }

    #[test]
    fn what_reads_a_table_twice_or_by_groups_is_not_cut() {
        assert_eq!(over("SELECT k, sum(v) AS s FROM a GROUP BY k"), [0]);
        assert_eq!(over("SELECT DISTINCT k FROM a"), [0]);
        assert_eq!(over("SELECT a.id FROM a FULL JOIN b USING (k)"), [0]);
        assert_eq!(
            over("SELECT l.id, r.id AS other FROM a l JOIN a r ON l.id = r.id + 0 AND l.v = r.v"),
            [0]
        );
        assert_eq!(over("SELECT k FROM a EXCEPT ALL SELECT k FROM b"), [0]);
    }
}
