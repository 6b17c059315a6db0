//! The choice of the inner results that are stored. With stored inner results, the work for the delta of a
//! nested query stays proportional to the change.
//!
//! `State(n)` denotes the previous result of n, so the deltas of all choices are equal. The choice affects
//! only the cost.

use crate::agg::{Acc, nan};
use crate::error::Result;
use crate::expr::{Expr, FuncSig};
use crate::graph::{Column, Graph, NodeId};
use crate::rel::{Accumulate, Filter, Map, Rel, State, distinct_by_image, shown_partition, split_extrema};
use crate::types::Type;
use std::collections::{BTreeMap, BTreeSet};

/// The extent to which inner results are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Keep {
    /// Only the result of the query is stored.
    Result,
    /// The result of the query, the accumulators of aggregates, and the row counts for DISTINCT are stored.
    /// Every other inner result is stored too if its change cannot be computed from the changes of its inputs
    /// alone.
    #[default]
    Nested,
}

/// Rewrites a query so that as many of its operators as possible become accumulations. A linear aggregate
/// becomes `finish ∘ accumulate`. An aggregation with extrema also gets a count of each group's rows.
/// DISTINCT becomes a count of each row. If equal values of a key may have different images, rows are first
/// accumulated by the image of the key. The rewritten query is equivalent to the query.
///
/// # Errors
/// Errors of [`Graph::add`].
pub fn prepare(graph: &mut Graph, root: NodeId) -> Result<NodeId> {
    graph.rebuild(root, |g, _, rel| {
        match &rel {
            Rel::Reduce(reduce) => {
                if let Some(expanded) = rel.as_operator().expand(g)? {
                    return Ok(expanded);
                }
                if let Some(split) = split_extrema(reduce, g)? {
                    return Ok(split);
                }
            }
            Rel::Distinct(d) if !g.schema(d.input()).is_empty() => {
                if let Some(by_image) = distinct_by_image(g, d.input())? {
                    return g.add(rel.as_operator().with_inputs(&[by_image]));
                }
                let all: Vec<usize> = (0..g.schema(d.input()).len()).collect();
                let counts = Accumulate::new(d.input(), all.clone(), vec![Acc::count(None)]);
                let counted = g.add(counts.with_any_key(g))?;
                let schema = g.schema(counted).clone();
                return g.add(Map::columns(counted, &schema, &all));
            }
            _ => {}
        }
        g.add(rel)
    })
}

/// The nodes whose previous results can be read instead of being recomputed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Nodes whose own results are stored.
    pub stored: BTreeSet<NodeId>,
    /// Nodes whose results can be derived from stored results. The result of such a node is the sum of the
    /// given parts. No key is in two parts.
    pub derived: BTreeMap<NodeId, Vec<Part>>,
}

/// A part of a result that is read from a stored node: the rows of `stored` for which `known` is true. `row`
/// maps each of these rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The stored node, a [`State`].
    pub stored: NodeId,
    /// Whether a row of `stored` is in this part: a condition that is never NULL.
    pub known: Expr,
    /// The columns of the result, as expressions over the columns of `stored`.
    pub row: Vec<Expr>,
}

impl Part {
    /// Returns the part that consists of all rows of `stored`, unchanged.
    pub fn whole(graph: &Graph, stored: NodeId) -> Part {
        Part { stored, known: Expr::bool(true), row: graph.schema(stored).identity() }
    }
    /// Returns the rows of this part, with the labels of `like`.
    ///
    /// # Errors
    /// Errors of [`Graph::add`].
    pub fn rows(&self, graph: &mut Graph, like: NodeId) -> Result<NodeId> {
        if self.known.conjuncts().is_empty() && self.row == graph.schema(self.stored).identity() {
            return Ok(self.stored);
        }
        let known = graph.add(Filter::new(self.stored, self.known.clone()))?;
        let labels = graph.schema(like).columns().iter().map(|c| c.label.clone()).collect();
        graph.add(Map::new(known, self.row.clone()).labelled(labels))
    }
}

impl Kept {
    /// Makes the set of readable nodes in which the nodes `stored` are stored and no node is derived.
    pub fn stored(stored: BTreeSet<NodeId>) -> Kept {
        Kept { stored, derived: BTreeMap::new() }
    }
}

/// Returns the nodes under `root` whose results can be read. The result of `root` can always be read; `keep`
/// decides about inner results.
///
/// # Errors
/// Errors of [`Graph::add`].
pub fn kept(graph: &mut Graph, root: NodeId, keep: Keep) -> Result<Kept> {
    let mut kept = Kept::stored(BTreeSet::from([root]));
    if keep == Keep::Nested {
        kept.stored.extend(graph.reachable(root).into_iter().filter(|id| pays(graph, *id)));
        if let Rel::Map(map) = graph.rel(root)
            && let Rel::Window(w) = graph.rel(map.input())
            && (shown_partition(map, w).is_some() || w.is_local(graph))
        {
            kept.stored.remove(&map.input());
        }
        derive(graph, root, &mut kept)?;
    }
    Ok(kept)
}

/// Derives the totals of an aggregation from the stored result of the query. Requires that the result has
/// columns for all totals except the counts of NaN. A row of the result without NaN contains the totals of
/// its group. Separate storage is therefore needed only for the other groups:
/// `A = π(σ(no NaN, result)) + σ(a count of NaN > 0, A)`.
fn derive(graph: &mut Graph, root: NodeId, kept: &mut Kept) -> Result<()> {
    let Rel::Map(map) = graph.rel(root).clone() else { return Ok(()) };
    let totals = map.input();
    if !kept.stored.contains(&totals) {
        return Ok(());
    }
    let Some(shown) = Shown::of(graph, &map) else { return Ok(()) };
    let counted = graph.schema(totals).clone();
    let hidden = Expr::or(shown.nans.iter().map(|c| above_zero(counted.expr(*c))));
    let hidden = graph.add(Filter::new(totals, hidden))?;
    let columns = graph.schema(root).clone();
    let known = |i: &usize| {
        let shown = columns.expr(*i);
        Expr::call(FuncSig::comparison("<>", shown.ty().clone(), Type::Numeric(None)), vec![shown, nan()])
    };
    let total = |(at, c): (&Option<usize>, &Column)| match at {
        Some(i) => columns.expr(*i).cast(c.ty.clone()),
        None => Expr::int8(0),
    };
    let [result, others] = [root, hidden].map(|n| State::new(graph, n));
    let known = Part {
        stored: graph.add(result)?,
        known: Expr::and(shown.sums.iter().map(known)),
        row: shown.totals.iter().zip(counted.columns()).map(total).collect(),
    };
    let others = graph.add(others)?;
    let others = Part::whole(graph, others);
    kept.stored.remove(&totals);
    kept.stored.insert(hidden);
    kept.derived.insert(totals, vec![known, others]);
    Ok(())
}

/// The columns of a result that contain the totals of an aggregation.
struct Shown {
    /// For each column of the aggregation, the column of the result that contains this total. The value is
    /// `None` for a count of NaN.
    totals: Vec<Option<usize>>,
    /// The columns of the aggregation that are counts of NaN.
    nans: Vec<usize>,
    /// The columns of the result that contain a total, or NaN instead of the total.
    sums: Vec<usize>,
}

impl Shown {
    /// Returns `None` where the result lacks a column for some total. Returns `None` also where no NaN is
    /// counted, since the result is then the aggregation itself.
    fn of(graph: &Graph, map: &Map) -> Option<Shown> {
        let Rel::Accumulate(a) = graph.rel(map.input()) else { return None };
        let schema = graph.schema(map.input());
        let plain = |c: usize| map.exprs().iter().position(|e| e.as_column() == Some(c));
        let mut shown =
            Shown { totals: (0..schema.len()).map(plain).collect(), nans: Vec::new(), sums: Vec::new() };
        for (i, e) in map.exprs().iter().enumerate().filter(|(_, e)| e.as_column().is_none()) {
            let counts = e.columns().into_iter().filter(|c| {
                let acc = c.checked_sub(a.keys().len()).and_then(|c| a.accs().get(c));
                acc.is_some_and(|acc| acc.value.is_none() && acc.filter.is_some())
            });
            for count in counts.collect::<Vec<_>>() {
                let test = above_zero(schema.expr(count));
                let given = |is: bool| {
                    e.rewrite(&mut |e| if e == test { Expr::bool(is) } else { e }).simplified(schema)
                };
                // A key may be NaN itself, but the total of an accumulator is never NaN.
                let total = given(false).as_column().filter(|c| *c >= a.keys().len());
                let Some(sum) = total.filter(|_| given(true) == nan()) else { continue };
                shown.totals[sum] = shown.totals[sum].or(Some(i));
                shown.sums.push(i);
                if !shown.nans.contains(&count) {
                    shown.nans.push(count);
                }
            }
        }
        let all = shown.totals.iter().enumerate().all(|(c, at)| at.is_some() || shown.nans.contains(&c));
        // In a row of the result without NaN, the counts of NaN are 0. The counts of NaN are therefore not
        // read from the result, even if it contains them.
        shown.nans.iter().for_each(|c| shown.totals[*c] = None);
        (all && !shown.nans.is_empty()).then_some(shown)
    }
}

fn above_zero(count: Expr) -> Expr {
    Expr::call(FuncSig::comparison(">", count.ty().clone(), Type::Int8), vec![count, Expr::int8(0)])
}

/// Whether storing the operator's result replaces a recompute by a lookup, and a table can store the result.
fn pays(graph: &Graph, id: NodeId) -> bool {
    let nullary = graph.props(id).sources.is_empty();
    let storable = graph.schema(id).columns().iter().all(|c| c.ty.is_storable());
    !nullary && storable && graph.rel(id).as_operator().pays_to_store()
}
