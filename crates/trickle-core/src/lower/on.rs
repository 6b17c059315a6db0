//! Lowers subqueries in the conditions of joins.
//!
//! A term in the ON of an inner join moves to WHERE. The names in the term keep their meaning from ON. If a
//! term of an outer join reads only the padded operand, the term filters that operand. Any other subquery in
//! the ON of an outer join becomes an additional column of the operand whose columns the subquery uses.

use super::Lowerer;
use super::clause::ClauseContext;
use super::scope::Scope;
use super::select::conjuncts;
use super::slot::{Slot, reads_outer, shift};
use super::subquery::{Pending, put};
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::graph::NodeId;
use crate::syntax::Expr as Ast;
use std::collections::BTreeSet;

/// A term of ON that contains subqueries and that no operator applies yet.
#[derive(Clone, Debug)]
pub(super) struct DeferredTerm {
    term: Ast,
    /// The scope of the names in the term.
    scope: Scope,
    /// The columns of FROM that the term reads, including columns of enclosing queries.
    columns: BTreeSet<usize>,
}

impl DeferredTerm {
    /// Returns the columns of FROM that the term reads.
    pub(super) fn columns(&self) -> impl Iterator<Item = usize> {
        self.columns.iter().copied()
    }
    /// Whether the term reads only the given columns of FROM.
    pub(super) fn within(&self, columns: std::ops::Range<usize>) -> bool {
        self.columns.iter().all(|c| columns.contains(c))
    }
}

/// An operand of an outer join. It has the columns `offset..offset + width` of FROM, then the columns of
/// placed subqueries.
pub(super) struct Operand {
    pub(super) node: NodeId,
    pub(super) offset: usize,
    pub(super) width: usize,
}

impl Operand {
    pub(super) fn holds(&self, column: usize) -> bool {
        (self.offset..self.offset + self.width).contains(&column)
    }
}

impl Lowerer<'_> {
    /// Lowers a join condition, in which only the two operands and enclosing queries are visible. Returns the
    /// terms without subqueries, and the terms with subqueries.
    pub(super) fn on(&mut self, e: &Ast, both: &Scope) -> Result<(Vec<Expr>, Vec<DeferredTerm>)> {
        let visible = self.take_scope();
        self.set_scope(both.clone());
        let terms = self.on_terms(e, both);
        self.set_scope(visible);
        terms
    }

    fn on_terms(&mut self, e: &Ast, both: &Scope) -> Result<(Vec<Expr>, Vec<DeferredTerm>)> {
        let (mut plain, mut later) = (Vec::new(), Vec::new());
        for term in conjuncts(e) {
            let mut cx = ClauseContext::condition("JOIN/ON");
            let lowered = self.condition(term, &mut cx)?;
            if cx.subqueries.is_empty() {
                plain.extend(lowered.conjuncts());
                continue;
            }
            if reads_outer(&lowered) || cx.subqueries.iter().flat_map(Pending::operands).any(reads_outer) {
                return Err(self.fail_direct());
            }
            let mut columns = lowered.columns();
            for p in &cx.subqueries {
                columns.extend(self.uses(p)?);
            }
            columns.retain(|c| matches!(Slot::of(*c), Slot::Column(_)));
            later.push(DeferredTerm {
                term: term.clone(),
                scope: both.clone(),
                columns: columns.into_iter().collect(),
            });
        }
        Ok((plain, later))
    }

    /// Filters `node`, which has the columns `offset..` of FROM, by a deferred term that reads these columns
    /// only.
    pub(super) fn filter_later(
        &mut self,
        node: NodeId,
        later: &DeferredTerm,
        offset: usize,
    ) -> Result<NodeId> {
        let visible = self.take_scope();
        self.set_scope(later.scope.moved(offset));
        let filtered = self.filter_term(node, &later.term);
        self.set_scope(visible);
        filtered
    }

    fn filter_term(&mut self, node: NodeId, term: &Ast) -> Result<NodeId> {
        if self.is_membership(term) {
            return self.membership(node, term);
        }
        let mut cx = ClauseContext::condition("JOIN/ON");
        let condition = self.condition(term, &mut cx)?;
        self.filter(node, condition, cx)
    }

    /// Joins each subquery of a deferred term to the operand whose columns the subquery uses. Returns the
    /// term with placeholders. For each placeholder, returns the operand (0 or 1), and the value over this
    /// operand's columns.
    pub(super) fn place_later(
        &mut self,
        later: &DeferredTerm,
        operands: &mut [Operand; 2],
    ) -> Result<(Expr, Vec<(usize, Expr)>)> {
        let visible = self.take_scope();
        self.set_scope(later.scope.clone());
        let placed = self.place_term(later, operands);
        self.set_scope(visible);
        placed
    }

    fn place_term(
        &mut self,
        later: &DeferredTerm,
        operands: &mut [Operand; 2],
    ) -> Result<(Expr, Vec<(usize, Expr)>)> {
        let mut cx = ClauseContext::condition("JOIN/ON");
        let term = self.condition(&later.term, &mut cx)?;
        let mut values: Vec<(usize, Expr)> = Vec::new();
        for p in &cx.subqueries {
            let uses = self.uses(p)?;
            let on_side = |side: usize, c: usize| match Slot::of(c) {
                Slot::Subquery(i) => values.get(i).is_some_and(|(s, _)| *s == side),
                _ => operands[side].holds(c),
            };
            let Some(side) = (0..2).find(|side| uses.iter().all(|c| on_side(*side, *c))) else {
                return Err(
                    self.stop(&later.term, "a subquery that uses both sides in the ON of an outer join")
                );
            };
            let offset = operands[side].offset as isize;
            let mut ready = self.translated(p, &|e| Ok(shift(e, -offset)))?;
            let known: Vec<Expr> = values.iter().map(|(_, v)| v.clone()).collect();
            ready.pending.rewrite_operands(|e| Ok(put(e, &known)))?;
            let (node, mut value) = self.place_all(operands[side].node, vec![ready])?;
            operands[side].node = node;
            values.push((side, value.pop().ok_or_else(|| Error::internal("a subquery without a value"))?));
        }
        Ok((term, values))
    }

    /// Returns the columns of FROM that a subquery uses, including columns of enclosing queries and of
    /// earlier subqueries.
    fn uses(&mut self, p: &Pending<'_>) -> Result<BTreeSet<usize>> {
        let here = self.frames.len() - 1;
        let mut columns: BTreeSet<usize> = p.local_columns(here).into_iter().collect();
        for o in p.free.iter().filter(|o| o.frame != here) {
            columns.extend(self.here(o)?.columns());
        }
        Ok(columns)
    }
}
