//! The reads of a delta outside the change. They are the tables in which the delta looks up rows, the columns
//! of these look-ups, and the nodes that the delta reads whole.
//!
//! The cost of a refresh is proportional to the change only under one condition: every table is read through
//! an index on columns whose values the delta supplies. To find these columns, the module walks over ΔQ from
//! the roots to the tables. On the way it tracks by which columns the rows of each node are looked up. The
//! module reads only properties of the plan; its caller knows which indexes exist.

use crate::error::Result;
use crate::graph::{Graph, NodeId};
use crate::rel::{By, Rel, Version};
use crate::table::{TableDef, TableId};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

/// The cost of computing a node of a delta, if all indexes exist. A greater cost is worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cost {
    /// The cost of computing the node is proportional to the change.
    Change,
    /// Some rows of the node are looked up, by keys from the change.
    Probe,
    /// The whole node is computed, so the cost is proportional to the data.
    Whole,
}

impl Cost {
    /// Returns the note for the cost in drawn plans: `Δ`, `probe` or `whole`.
    pub fn note(self) -> &'static str {
        match self {
            Cost::Change => "Δ",
            Cost::Probe => "probe",
            Cost::Whole => "whole",
        }
    }
}

/// The access of a delta to a table: the columns by which the delta looks up rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// The table that is read.
    pub table: Arc<TableDef>,
    /// The positions, in ascending order, of the columns by whose values the delta looks up rows.
    pub columns: Vec<usize>,
    /// The positions, in ascending order, of the columns in which a look-up reads a range of values.
    pub range: Vec<usize>,
    /// The tables whose change causes this access; [`TableId::CLOCK`] if the passing of time causes it.
    pub changed: BTreeSet<TableId>,
}

impl Access {
    /// Whether the delta reads the whole table.
    pub fn is_whole(&self) -> bool {
        self.columns.is_empty() && self.range.is_empty()
    }
    /// Returns the columns of an index that finds the rows of the access: the equality columns, then one
    /// range column.
    pub fn index(&self) -> Vec<usize> {
        self.columns.iter().chain(self.range.first()).copied().collect()
    }
    /// Whether an index (or key) over these columns, in their order, finds the rows of the access. The index
    /// must begin with all equality columns, in any order. If the access reads a range, a range column must
    /// follow.
    pub fn is_served_by(&self, index: &[usize]) -> bool {
        let Some((equal, rest)) = index.split_at_checked(self.columns.len()) else { return false };
        let ranged = self.range.is_empty() || rest.first().is_some_and(|c| self.range.contains(c));
        !self.is_whole() && equal.iter().all(|c| self.columns.contains(c)) && ranged
    }
    /// Whether a key of the table serves the access. A key serves the access if all its columns are looked
    /// up, or if its index serves the access.
    pub fn is_served_by_keys(&self) -> bool {
        let inside = |k: &Vec<usize>| !k.is_empty() && k.iter().all(|c| self.columns.contains(c));
        self.table.keys.iter().any(|k| self.is_served_by(k) || inside(k))
    }
}

/// Returns the accesses of deltas to data other than the changes, in order of the tables' ids. Each delta is
/// given with the source whose change causes it.
///
/// # Errors
/// Fails with the first error among the deltas.
pub(crate) fn accesses(
    deltas: impl Iterator<Item = Result<(TableId, (Graph, Vec<NodeId>))>>,
) -> Result<Vec<Access>> {
    let mut found: BTreeMap<(TableId, By), Access> = BTreeMap::new();
    for delta in deltas {
        let (source, (graph, roots)) = delta?;
        for (def, by) in walk(&graph, &roots).read {
            let access = found.entry((def.id, by.clone())).or_insert_with(|| Access {
                table: def,
                columns: by.equal.into_iter().collect(),
                range: by.range.into_iter().collect(),
                changed: BTreeSet::new(),
            });
            access.changed.insert(source);
        }
    }
    Ok(found.into_values().collect())
}

/// Returns the cost of every node that `roots`, the roots of a delta, reach.
pub fn costs(graph: &Graph, roots: &[NodeId]) -> BTreeMap<NodeId, Cost> {
    walk(graph, roots).costs
}

#[derive(Default)]
struct Walk {
    costs: BTreeMap<NodeId, Cost>,
    read: Vec<(Arc<TableDef>, By)>,
}

fn walk(graph: &Graph, roots: &[NodeId]) -> Walk {
    let mut walk = Walk::default();
    let mut seen: HashSet<(NodeId, By)> = HashSet::new();
    let mut stack: Vec<(NodeId, By)> = roots.iter().map(|r| (*r, By::default())).collect();
    while let Some((id, by)) = stack.pop() {
        if !seen.insert((id, by.clone())) {
            continue;
        }
        let cost = match (graph.props(id).bounded, by.is_all()) {
            (true, _) => Cost::Change,
            (false, false) => Cost::Probe,
            (false, true) => Cost::Whole,
        };
        let worst = walk.costs.entry(id).or_insert(cost);
        *worst = cost.max(*worst);
        if let Rel::Table(t) = graph.rel(id)
            && t.version() == Version::After
        {
            walk.read.push((t.def().clone(), by.through(|c| t.columns().get(c).copied())));
        }
        stack.extend(asked(graph, id, &by));
    }
    walk
}

/// Returns how a node looks up the rows of its inputs if its own rows are looked up by the columns `by`.
pub(crate) fn asked(graph: &Graph, id: NodeId, by: &By) -> Vec<(NodeId, By)> {
    let node = graph.node(id);
    node.inputs().iter().copied().zip(node.op().looks_up(graph, by)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::MemoryCatalog;
    use crate::{Options, StreamTable, Verdict, compile};

    const DDL: &str = "CREATE TABLE a (id int PRIMARY KEY, k int, v int); CREATE TABLE b (id int PRIMARY KEY, k int, w int);";

    fn table(query: &str) -> StreamTable {
        let catalog = MemoryCatalog::from_ddl(DDL).unwrap();
        match compile(query, &catalog, &Options::new("public", "r")).unwrap() {
            Verdict::Incremental(t) => *t,
            Verdict::FullRefresh(reasons) => panic!("{reasons:?}"),
        }
    }

    fn reads(query: &str) -> Vec<(String, Vec<usize>)> {
        table(query).accesses().unwrap().into_iter().map(|a| (a.table.name.to_string(), a.columns)).collect()
    }

    fn by(table: &str, columns: &[usize]) -> (String, Vec<usize>) {
        (table.to_owned(), columns.to_vec())
    }

    #[test]
    fn a_join_probes_the_other_side_by_its_columns() {
        assert_eq!(reads("SELECT a.v, b.w FROM a JOIN b ON a.k = b.k"), [by("a", &[1]), by("b", &[1])]);
        let filtered = "SELECT a.v, b.w FROM a JOIN (SELECT * FROM b WHERE w > 0) b ON a.v = b.id";
        assert_eq!(reads(filtered), [by("a", &[2]), by("b", &[0])]);
        // The value of an expression can be looked up in a column by its index. A column's value cannot be
        // looked up among the values of an expression.
        let computed = "SELECT a.v, b.w FROM a JOIN b ON a.k = b.k + 1";
        assert_eq!(reads(computed), [by("a", &[1]), by("b", &[])]);
    }

    #[test]
    fn what_has_no_equality_reads_the_other_side_whole() {
        assert_eq!(reads("SELECT a.v, b.w FROM a JOIN b ON a.k < b.k"), [by("a", &[]), by("b", &[])]);
    }

    #[test]
    fn sums_read_no_table_and_extrema_read_their_groups() {
        assert_eq!(reads("SELECT k, count(*), sum(v) FROM a GROUP BY k"), []);
        assert_eq!(reads("SELECT k, max(v) FROM a GROUP BY k"), [by("a", &[1])]);
    }

    #[test]
    fn an_existence_test_is_probed_both_ways() {
        let q = "SELECT id FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.k = a.k)";
        assert_eq!(reads(q), [by("a", &[1]), by("b", &[1])]);
    }

    #[test]
    fn the_costs_of_a_delta_name_what_is_read_whole() {
        let whole = |q: &str| {
            let t = table(q);
            let all = t.sources().into_iter().map(|(d, _)| d.id).collect();
            let (graph, roots) = t.delta(&all).unwrap();
            costs(&graph, &roots).into_values().any(|c| c == Cost::Whole)
        };
        assert!(!whole("SELECT a.v, b.w FROM a JOIN b ON a.k = b.k"));
        assert!(whole("SELECT a.v, b.w FROM a JOIN b ON a.k < b.k"));
    }

    #[test]
    fn clock_changes_are_found_by_the_column_compared_with_now() {
        let reads = |condition: &str| {
            let query = format!("SELECT id FROM e JOIN a USING (id) WHERE {condition}");
            let catalog =
                MemoryCatalog::from_ddl(&format!("{DDL} CREATE TABLE e (id int, at timestamptz)")).unwrap();
            let table =
                compile(&query, &catalog, &Options::new("public", "r")).unwrap().incremental().unwrap();
            let all = table.accesses().unwrap().into_iter();
            all.filter(|a| a.changed.contains(&TableId::CLOCK))
                .map(|a| (a.table.name.to_string(), a.index()))
                .collect::<Vec<_>>()
        };
        assert_eq!(reads("at > now() - interval '1 day'"), [by("a", &[0]), by("e", &[1])]);
        assert_eq!(reads("now() - at < interval '1 day'"), [by("a", &[0]), by("e", &[])]);
    }

    #[test]
    fn which_index_serves() {
        let between = |columns: &[usize], range: &[usize]| Access {
            table: table("SELECT id FROM a").sources()[0].0.clone(),
            columns: columns.to_vec(),
            range: range.to_vec(),
            changed: BTreeSet::new(),
        };
        let access = |columns: &[usize]| between(columns, &[]);
        assert!(access(&[1, 2]).is_served_by(&[2, 1, 0]) && access(&[1]).is_served_by(&[1, 2]));
        assert!(!access(&[1, 2]).is_served_by(&[1]) && !access(&[1]).is_served_by(&[2, 1]));
        assert!(access(&[0, 2]).is_served_by_keys() && !access(&[2]).is_served_by_keys());
        assert!(!access(&[]).is_served_by(&[0]));
        let near = between(&[1], &[2]);
        assert!(near.is_served_by(&[1, 2, 0]) && !near.is_served_by(&[2, 1]) && !near.is_served_by(&[1]));
        assert!(between(&[], &[2]).is_served_by(&[2]) && near.index() == [1, 2]);
    }

    #[test]
    fn rows_near_a_change_are_a_range() {
        let ddl = "CREATE TABLE t (at timestamp NOT NULL, id int PRIMARY KEY, p int, v int);";
        let catalog = MemoryCatalog::from_ddl(ddl).unwrap();
        let reads = |query: &str| -> Vec<(Vec<usize>, Vec<usize>)> {
            let table =
                compile(query, &catalog, &Options::new("public", "r")).unwrap().incremental().unwrap();
            table.accesses().unwrap().into_iter().map(|a| (a.columns, a.range)).collect()
        };
        let over =
            |frame: &str| format!("SELECT id, p, sum(v) OVER (PARTITION BY p ORDER BY at {frame}) FROM t");
        assert_eq!(reads(&over("RANGE '1 day' PRECEDING")), [(vec![2], vec![0])]);
        assert_eq!(reads(&over("")), [(vec![2], vec![])]);
        assert_eq!(reads("SELECT id, lag(v) OVER (ORDER BY at, id) FROM t"), [(vec![], vec![0])]);
    }
}
