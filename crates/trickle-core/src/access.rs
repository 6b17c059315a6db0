//! How a delta reads what did not change: which tables it probes, by which columns, and what it reads whole.
//!
//! The cost of a refresh follows the change only where every table is reached through an index on the columns that the
//! delta brings. This is where those columns are known: a walk over ΔQ from its roots, which carries the columns by
//! which a node's rows are looked up down to the tables. It reads properties of the plan alone; whether an index
//! exists is for the caller to say.

use crate::catalog::{TableDef, TableId};
use crate::error::Result;
use crate::expr::{Expr, ExprKind};
use crate::graph::{Graph, NodeId};
use crate::rel::{Rel, Version};
use crate::stream_table::StreamTable;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

/// What computing a node of a delta costs, indexes granted. The worse of two is the greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cost {
    /// In proportion to the change.
    Change,
    /// Some rows of it are looked up, for keys that the change brings.
    Probe,
    /// All of it is computed, in proportion to the data.
    Whole,
}

impl Cost {
    /// `Δ`, `probe` or `whole`: the note in plans.
    pub fn note(self) -> &'static str {
        match self {
            Cost::Change => "Δ",
            Cost::Probe => "probe",
            Cost::Whole => "whole",
        }
    }
}

/// One way in which a delta reads a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// The table that is read.
    pub table: Arc<TableDef>,
    /// The columns (positions) by which its rows are looked up, ascending; empty where the whole table is read.
    pub columns: Vec<usize>,
    /// The tables whose change makes it so; [`TableId::CLOCK`] where time does.
    pub changed: BTreeSet<TableId>,
}

impl Access {
    /// Whether an index (or key) over these columns, in its order, finds the rows: its columns are among those looked
    /// up, or it starts with all of them.
    pub fn is_served_by(&self, index: &[usize]) -> bool {
        let covers = index.len() >= self.columns.len()
            && index[..self.columns.len()].iter().all(|c| self.columns.contains(c));
        !self.columns.is_empty() && covers
    }
    /// Whether the table's own keys serve it: a whole key is among the columns looked up, or a key starts with them.
    pub fn is_served_by_keys(&self) -> bool {
        let inside = |k: &Vec<usize>| !k.is_empty() && k.iter().all(|c| self.columns.contains(c));
        self.table.keys.iter().any(|k| self.is_served_by(k) || inside(k))
    }
}

/// How `table` is refreshed when one of its sources changed, the usual case, or time passed where it reads the clock: every
/// table that is then read beside the changes. Tables in order of their id.
///
/// # Errors
/// Those of [`StreamTable::delta`].
pub fn accesses(table: &StreamTable) -> Result<Vec<Access>> {
    let mut found: BTreeMap<(TableId, Vec<usize>), Access> = BTreeMap::new();
    for source in table.changing() {
        let (graph, roots) = table.delta(&BTreeSet::from([source]))?;
        for (def, columns) in walk(&graph, &roots).read {
            let access = found.entry((def.id, columns.clone())).or_insert_with(|| Access {
                table: def,
                columns,
                changed: BTreeSet::new(),
            });
            access.changed.insert(source);
        }
    }
    Ok(found.into_values().collect())
}

/// The cost of every node of a delta that `roots` reach.
pub fn costs(graph: &Graph, roots: &[NodeId]) -> BTreeMap<NodeId, Cost> {
    walk(graph, roots).costs
}

/// How the rows of a node are asked for: by these columns, ascending; all of them where there are none.
pub(crate) type By = Vec<usize>;

#[derive(Default)]
struct Walk {
    costs: BTreeMap<NodeId, Cost>,
    read: Vec<(Arc<TableDef>, By)>,
}

fn walk(graph: &Graph, roots: &[NodeId]) -> Walk {
    let mut walk = Walk::default();
    let mut seen: HashSet<(NodeId, By)> = HashSet::new();
    let mut stack: Vec<(NodeId, By)> = roots.iter().map(|r| (*r, By::new())).collect();
    while let Some((id, by)) = stack.pop() {
        if !seen.insert((id, by.clone())) {
            continue;
        }
        let cost = match (graph.props(id).bounded, by.is_empty()) {
            (true, _) => Cost::Change,
            (false, false) => Cost::Probe,
            (false, true) => Cost::Whole,
        };
        let worst = walk.costs.entry(id).or_insert(cost);
        *worst = cost.max(*worst);
        if let Rel::Table(t) = graph.rel(id)
            && t.version() == Version::After
        {
            let mut columns: By = by.iter().map(|c| t.columns()[*c]).collect();
            columns.sort_unstable();
            walk.read.push((t.def().clone(), columns));
        }
        stack.extend(asked(graph, id, &by));
    }
    walk
}

/// How a node that is asked for by columns `by` asks its inputs.
pub(crate) fn asked(graph: &Graph, id: NodeId, by: &[usize]) -> Vec<(NodeId, By)> {
    let through =
        |image: &dyn Fn(usize) -> Option<usize>| by.iter().filter_map(|c| image(*c)).collect::<By>();
    let all = |n: &NodeId| (*n, By::new());
    match graph.rel(id) {
        Rel::Map(m) => vec![(m.input(), through(&|c| m.exprs().get(c)?.as_column()))],
        Rel::Filter(f) if f.predicate().crosses() => {
            let both: BTreeSet<usize> = by.iter().copied().chain(ranged(f.predicate())).collect();
            vec![(f.input(), both.into_iter().collect())]
        }
        Rel::Expand(e) => {
            let width = graph.schema(e.input()).len();
            vec![(e.input(), through(&|c| (c < width).then_some(c)))]
        }
        Rel::Top(t) => vec![(t.input(), through(&|c| t.partition().contains(&c).then_some(c)))],
        Rel::Window(w) => vec![(w.input(), through(&|c| w.partition().contains(&c).then_some(c)))],
        Rel::Reduce(r) => vec![(r.input(), through(&|c| r.keys().get(c).copied()))],
        Rel::Accumulate(a) => vec![(a.input(), through(&|c| a.keys().get(c).copied()))],
        Rel::Keys(k) => vec![(k.input(), through(&|c| k.cols().get(c).copied()))],
        Rel::Single(s) => vec![(s.input(), through(&|c| (c < s.keys()).then_some(c)))],
        Rel::Join(j) => join(graph, j.left(), j.right(), j.on(), by, true),
        Rel::SemiJoin(s) => join(graph, s.left(), s.right(), s.on(), by, !s.is_anti()),
        Rel::OuterJoin(o) if !o.is_full() => join(graph, o.left_input(), o.right_input(), o.on(), by, false),
        Rel::OuterJoin(_) => graph.inputs(id).iter().map(all).collect(),
        // Rows are followed one round after the other, and looked for among the known ones.
        Rel::Recursion(r) => {
            let width = graph.schema(r.base()).len();
            let (_, of_side) = equalities(&r.step().on, width);
            let side = if graph.props(r.base()).bounded { of_side } else { By::new() };
            let rows: By = (0..width).collect();
            let known = r.known().into_iter().flat_map(|(known, forgotten)| [known, forgotten]);
            let known = known.map(|n| (n, rows.clone()));
            [(r.base(), By::new()), (r.side(), side)].into_iter().chain(known).collect()
        }
        // Rows pass unchanged, column by column.
        _ => graph.inputs(id).iter().map(|i| (*i, by.to_vec())).collect(),
    }
}

/// The columns that a condition bounds by values of the clock alone: an index finds the rows between.
fn ranged(predicate: &Expr) -> By {
    let column = |term: &Expr| match term.kind() {
        ExprKind::Call(sig, args) if sig.is_operator() => match args.as_slice() {
            [a, b] if b.reads_clock() && b.columns().is_empty() => a.as_column(),
            [a, b] if a.reads_clock() && a.columns().is_empty() => b.as_column(),
            _ => None,
        },
        _ => None,
    };
    predicate.terms().iter().filter_map(column).collect()
}

/// The side that is small, or asked for by its columns, is read so, and the other by the equalities of the condition.
/// `either`: whether the right side may lead.
fn join(
    graph: &Graph,
    left: NodeId,
    right: NodeId,
    on: &Expr,
    by: &[usize],
    either: bool,
) -> Vec<(NodeId, By)> {
    let width = graph.schema(left).len();
    let (of_left, of_right) = equalities(on, width);
    let (on_left, on_right): (By, By) = by.iter().partition(|c| **c < width);
    let on_right: By = on_right.into_iter().map(|c| c - width).collect();
    let bounded = |n| graph.props(n).bounded;
    let right_is_small = either && bounded(right);
    if bounded(left) || (!right_is_small && !on_left.is_empty()) {
        vec![(left, on_left), (right, of_right)]
    } else if right_is_small || (either && !on_right.is_empty()) {
        vec![(right, on_right), (left, of_left)]
    } else {
        vec![(left, on_left), (right, on_right)]
    }
}

/// The columns of each side that the condition equates with a value of the other side, each side's from 0: given the
/// one side, an index finds the rows of the other.
pub(crate) fn equalities(on: &Expr, width: usize) -> (By, By) {
    let (mut of_left, mut of_right) = (BTreeSet::new(), BTreeSet::new());
    for term in on.conjuncts() {
        let (a, b) = match term.kind() {
            ExprKind::Call(sig, args) if sig.is_equality() => (&args[0], &args[1]),
            ExprKind::Distinct { left, right, negated: true } => (left, right),
            _ => continue,
        };
        for (column, value) in [(a, b), (b, a)] {
            let read = value.columns();
            let all = |side: &dyn Fn(&usize) -> bool| !read.is_empty() && read.iter().all(side);
            match column.as_column() {
                Some(c) if c < width && all(&|v| *v >= width) => _ = of_left.insert(c),
                Some(c) if c >= width && all(&|v| *v < width) => _ = of_right.insert(c - width),
                _ => {}
            }
        }
    }
    (of_left.into_iter().collect(), of_right.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::MemoryCatalog;
    use crate::{Options, Verdict, compile};

    const DDL: &str = "CREATE TABLE a (id int PRIMARY KEY, k int, v int); CREATE TABLE b (id int PRIMARY KEY, k int, w int);";

    fn table(query: &str) -> StreamTable {
        let catalog = MemoryCatalog::from_ddl(DDL).unwrap();
        match compile(query, &catalog, &Options::new("public", "r")).unwrap() {
            Verdict::Incremental(t) => *t,
            Verdict::FullRefresh(reasons) => panic!("{reasons:?}"),
        }
    }

    fn reads(query: &str) -> Vec<(String, Vec<usize>)> {
        accesses(&table(query)).unwrap().into_iter().map(|a| (a.table.name.to_string(), a.columns)).collect()
    }

    fn by(table: &str, columns: &[usize]) -> (String, Vec<usize>) {
        (table.to_owned(), columns.to_vec())
    }

    #[test]
    fn a_join_probes_the_other_side_by_its_columns() {
        assert_eq!(reads("SELECT a.v, b.w FROM a JOIN b ON a.k = b.k"), [by("a", &[1]), by("b", &[1])]);
        let filtered = "SELECT a.v, b.w FROM a JOIN (SELECT * FROM b WHERE w > 0) b ON a.v = b.id";
        assert_eq!(reads(filtered), [by("a", &[2]), by("b", &[0])]);
        // An expression can be looked up in a column, a column not in an expression.
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
    fn what_time_brings_is_found_by_the_column_that_is_compared_with_it() {
        let reads = |condition: &str| {
            let query = format!("SELECT id FROM e JOIN a USING (id) WHERE {condition}");
            let catalog =
                MemoryCatalog::from_ddl(&format!("{DDL} CREATE TABLE e (id int, at timestamptz)")).unwrap();
            let table =
                compile(&query, &catalog, &Options::new("public", "r")).unwrap().incremental().unwrap();
            let all = accesses(&table).unwrap().into_iter();
            all.filter(|a| a.changed.contains(&TableId::CLOCK))
                .map(|a| (a.table.name.to_string(), a.columns))
                .collect::<Vec<_>>()
        };
        assert_eq!(reads("at > now() - interval '1 day'"), [by("a", &[0]), by("e", &[1])]);
        assert_eq!(reads("now() - at < interval '1 day'"), [by("a", &[0]), by("e", &[])]);
    }

    #[test]
    fn which_index_serves() {
        let access = |columns: &[usize]| Access {
            table: table("SELECT id FROM a").sources()[0].0.clone(),
            columns: columns.to_vec(),
            changed: BTreeSet::new(),
        };
        assert!(access(&[1, 2]).is_served_by(&[2, 1, 0]) && access(&[1]).is_served_by(&[1, 2]));
        assert!(!access(&[1, 2]).is_served_by(&[1]) && !access(&[1]).is_served_by(&[2, 1]));
        assert!(access(&[0, 2]).is_served_by_keys() && !access(&[2]).is_served_by_keys());
        assert!(!access(&[]).is_served_by(&[0]));
    }
}
