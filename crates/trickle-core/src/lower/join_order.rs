//! Joins a list of parts of FROM. The first join that has all columns of a condition applies the condition.

use super::Lowerer;
use super::from::{Build, Factor};
use super::slot::shift;
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::graph::NodeId;
use crate::rel::{Filter, Join, Map};

impl Lowerer<'_> {
    /// Joins all factors from `first` to the end into one.
    pub(super) fn merge(&mut self, build: &mut Build, first: usize) -> Result<()> {
        let factors = build.factors.split_off(first);
        let Some(offset) = factors.first().map(|f| f.offset) else { return Ok(()) };
        // Constant conditions stay in the list, so that the other conditions keep their order.
        let all = std::mem::take(&mut build.conjuncts);
        let fits = |e: &Expr| {
            !e.columns().is_empty() && e.columns().iter().all(|c| factors.iter().any(|f| f.holds(*c)))
        };
        let (fitting, rest): (Vec<Expr>, Vec<Expr>) = all.into_iter().partition(fits);
        build.conjuncts = rest;
        let (node, _) = self.join_all(&factors, fitting)?;
        let width = self.graph.schema(node).len();
        build.factors.push(Factor { node, offset, width });
        Ok(())
    }

    /// Joins neighbouring factors. A condition on one factor filters this factor. Any other condition is
    /// applied by the first join that has all its columns. A factor is joined before others if a condition
    /// links it to the factors joined so far. Columns keep their order. Returns the conditions that read
    /// columns outside the list.
    pub(super) fn join_all(
        &mut self,
        factors: &[Factor],
        conjuncts: Vec<Expr>,
    ) -> Result<(NodeId, Vec<Expr>)> {
        let Some(base) = factors.first().map(|f| f.offset) else {
            return Err(Error::internal("a join of nothing"));
        };
        let end = factors.last().map_or(base, |f| f.offset + f.width);
        let mut plan = Plan::default();
        let mut rest = Vec::new();
        for e in conjuncts {
            let columns = e.columns();
            if !columns.iter().all(|c| (base..end).contains(c)) {
                rest.push(e);
                continue;
            }
            let mut touched: Vec<usize> = columns
                .iter()
                .filter_map(|c| {
                    factors.iter().rposition(|f| f.offset <= *c && f.width > 0 && *c < f.offset + f.width)
                })
                .collect();
            touched.dedup();
            match touched.as_slice() {
                [] => plan.constant.push(e),
                [one] => plan.own.entry(*one).or_default().push(e),
                _ => plan.pending.push((touched, e)),
            }
        }
        let node = self.join_in_order(factors, plan)?;
        Ok((node, rest))
    }

    fn join_in_order(&mut self, factors: &[Factor], mut plan: Plan) -> Result<NodeId> {
        let base = factors.first().map_or(0, |f| f.offset);
        let width: usize = factors.iter().map(|f| f.width).sum();
        let mut place = vec![0usize; width];
        let mut done = vec![false; factors.len()];
        let mut current: Option<(NodeId, usize)> = None;
        for _ in 0..factors.len() {
            let next = current.and_then(|_| plan.linked(&done)).or_else(|| done.iter().position(|d| !d));
            let Some(i) = next else { break };
            done[i] = true;
            let f = &factors[i];
            let own = plan.own.remove(&i).unwrap_or_default();
            let own = Expr::and(own.iter().map(|e| shift(e, -(f.offset as isize))));
            let node = self.filter_plain(f.node, own)?;
            let (joined, filled) = match current {
                None => (node, 0),
                Some((left, filled)) => {
                    for c in 0..f.width {
                        place[f.offset - base + c] = filled + c;
                    }
                    let on = plan.take(&done);
                    let on = on.iter().map(|e| e.map_columns(|c| place[c - base]));
                    let (timed, on): (Vec<Expr>, Vec<Expr>) = on.partition(Expr::reads_clock);
                    let joined = self.add(Join::new(left, node, Expr::and(on)))?;
                    (self.filter_plain(joined, Expr::and(timed))?, filled)
                }
            };
            for c in 0..f.width {
                place[f.offset - base + c] = filled + c;
            }
            current = Some((joined, filled + f.width));
        }
        let Some((node, _)) = current else { return Err(Error::internal("a join of nothing")) };
        let node = if place.iter().enumerate().all(|(i, p)| i == *p) {
            node
        } else {
            let schema = self.graph.schema(node).clone();
            self.add(Map::columns(node, &schema, &place))?
        };
        self.filter_plain(node, Expr::and(plan.constant))
    }

    pub(super) fn filter_plain(&mut self, node: NodeId, condition: Expr) -> Result<NodeId> {
        match condition.as_literal() {
            Some(crate::types::Datum::Bool(true)) => Ok(node),
            _ => self.add(Filter::new(node, condition)),
        }
    }
}

/// The conditions of a list of factors, sorted by the place where each is applied.
#[derive(Default)]
struct Plan {
    constant: Vec<Expr>,
    own: std::collections::HashMap<usize, Vec<Expr>>,
    pending: Vec<(Vec<usize>, Expr)>,
}

impl Plan {
    /// Returns the first factor that a condition links to the factors joined so far. The condition must read
    /// no other factor that is still to be joined.
    fn linked(&self, done: &[bool]) -> Option<usize> {
        let missing = |t: &[usize]| -> Option<usize> {
            let mut open = t.iter().filter(|i| !done[**i]);
            let one = open.next()?;
            open.next().is_none().then_some(*one)
        };
        self.pending.iter().filter_map(|(t, _)| missing(t)).min()
    }

    /// Removes and returns the pending conditions whose columns all belong to factors joined so far.
    fn take(&mut self, done: &[bool]) -> Vec<Expr> {
        let (ready, pending) =
            std::mem::take(&mut self.pending).into_iter().partition(|(t, _)| t.iter().all(|i| done[*i]));
        self.pending = pending;
        let ready: Vec<(Vec<usize>, Expr)> = ready;
        ready.into_iter().map(|(_, e)| e).collect()
    }
}
