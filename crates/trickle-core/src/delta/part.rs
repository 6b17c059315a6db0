//! The recompute of a part of a result, where rows of one table came or went without being captured.
//!
//! Let `p` be a condition over columns of the table R. All changes of rows that fulfil `p` were captured, and
//! nothing is known of other changes. Let the result of the query contain the columns that `p` reads
//! ([`carried`]). Hence `Q(R) = Q(σ_p(R)) + Q(σ_¬p(R))`. Let `q` be a condition that is true for the present
//! rows that do not fulfil `p`, and for no other row. Then the change of the result is
//!
//! `ΔQ(σ_p(R)) + σ_q(Q′) − σ_¬p(Q)`
//!
//! The stored result is Q, so the former rows of the table are not needed.

use super::{Differ, negate, sum};
use crate::error::{Error, Result};
use crate::expr::{Expr, Volatility};
use crate::graph::{Graph, NodeId};
use crate::hash::FastMap;
use crate::rel::{Carried, Consolidate, Filter, Rel, State, Table, carried};
use crate::table::TableId;

/// Two conditions on the rows of a table. The condition `p` selects the rows whose changes were captured, and
/// the condition `q` selects the other present rows. The conditions read the columns of the table's
/// definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Captured {
    /// The table.
    pub source: TableId,
    /// The condition `p`: all changes of rows that fulfil it were captured.
    pub stays: Expr,
    /// The condition `q`. All other present rows fulfil this condition, and no captured row does. `None` if
    /// there are no other present rows.
    pub others: Option<Expr>,
}

impl Captured {
    /// Returns the columns that the conditions read. Returns `None` if the conditions can raise, or can
    /// distinguish equal values.
    fn columns(&self) -> Option<Vec<usize>> {
        let conditions = || std::iter::once(&self.stays).chain(&self.others);
        let tells =
            |e: &Expr| e.volatility() == Volatility::Immutable && !e.can_raise() && e.respects_equality();
        if !conditions().all(tells) {
            return None;
        }
        let mut columns: Vec<usize> = conditions().flat_map(Expr::columns).collect();
        columns.sort_unstable();
        columns.dedup();
        Some(columns)
    }
}

/// Returns the changes of the stored results `nodes`, by recomputing the parts that depend on rows that do
/// not fulfil `p`. A node comes after the nodes that it reads. Returns `None` if a result depends on these
/// rows in another way, or if a result may change as time passes.
///
/// # Errors
/// Errors of [`Graph::add`].
pub fn part(differ: &mut Differ<'_>, nodes: &[NodeId], captured: &Captured) -> Result<Option<Vec<NodeId>>> {
    let Some(columns) = captured.columns() else { return Ok(None) };
    let timed = |n: &NodeId| differ.graph.props(*n).sources.contains(&TableId::CLOCK);
    if nodes.iter().any(timed) {
        return Ok(None);
    }
    let mut places = FastMap::default();
    for n in nodes {
        match carried(differ.graph, *n, captured.source, &columns) {
            Carried::At(found) => places.insert(*n, found),
            Carried::Absent => None,
            Carried::Mixed => return Ok(None),
        };
    }
    let shown = Shown { captured, columns, places };
    let mut changes = Vec::new();
    for node in nodes {
        let delta = differ.stored_delta(*node)?;
        changes.push(shown.change(differ.graph, *node, delta)?);
    }
    Ok(Some(changes))
}

/// The places of the columns of the conditions in stored results.
struct Shown<'c> {
    captured: &'c Captured,
    columns: Vec<usize>,
    /// For each stored result that depends on the table, the places of `columns` in the stored result.
    places: FastMap<NodeId, Vec<usize>>,
}

impl Shown<'_> {
    /// Returns a condition over the columns that `places` gives for [`Shown::columns`]. Its value is true or
    /// false.
    fn over(&self, condition: &Expr, places: &[usize]) -> Expr {
        let of: FastMap<usize, usize> = self.columns.iter().copied().zip(places.iter().copied()).collect();
        condition.map_columns(|c| of[&c]).is_true()
    }

    /// Returns the places of the columns in a leaf that reads the table.
    fn in_leaf(&self, leaf: &Table) -> Result<Vec<usize>> {
        let place = |c: &usize| leaf.columns().iter().position(|read| read == c);
        let places: Option<Vec<usize>> = self.columns.iter().map(place).collect();
        places.ok_or_else(|| Error::plan("a delta reads rows of a table without the columns of its parts"))
    }

    /// Returns the change of the stored result of `node`, whose delta is `delta`.
    fn change(&self, graph: &mut Graph, node: NodeId, delta: NodeId) -> Result<NodeId> {
        let Some(places) = self.places.get(&node) else { return Ok(delta) };
        let state = State::new(graph, node);
        let state = graph.add(state)?;
        let gone = self.over(&self.captured.stays, places).negated();
        let gone = graph.add(Filter::new(state, gone))?;
        let mut parts = vec![self.within(graph, delta)?, negate(graph, gone)?];
        if let Some(others) = &self.captured.others {
            let others = self.over(others, places);
            parts.push(graph.add(Filter::new(node, others))?);
        }
        let all = sum(graph, node, parts)?;
        graph.add(Consolidate::change(all))
    }

    /// Returns the plan `delta` over the rows of the table that fulfil `p`, and over the stored rows that
    /// depend on these rows.
    fn within(&self, graph: &mut Graph, delta: NodeId) -> Result<NodeId> {
        graph.rebuild(delta, |g, _, rel| {
            let condition = match &rel {
                Rel::Table(t) if t.def().id == self.captured.source => {
                    self.over(&self.captured.stays, &self.in_leaf(t)?)
                }
                Rel::State(s) => match self.places.get(&s.of()) {
                    Some(places) => self.over(&self.captured.stays, places),
                    None => return g.add(rel),
                },
                _ => return g.add(rel),
            };
            let rows = g.add(rel)?;
            g.add(Filter::new(rows, condition))
        })
    }
}
