//! Lowers the subqueries in FROM. They see columns of enclosing queries. With LATERAL, they also see columns
//! of earlier items.

use super::Lowerer;
use super::from::Build;
use super::outer_column::{Domain, Outer};
use super::slot::shift;
use super::source::Source;
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::rel::{Distinct, Map};
use crate::syntax::{Place, Query};

impl Lowerer<'_> {
    /// Lowers a subquery in FROM. The subquery sees the columns of enclosing queries, but not the other items
    /// of the same FROM.
    pub(super) fn derived(&mut self, query: &Query) -> Result<Source> {
        let hidden = self.take_scope();
        let source = self.derived_in(query);
        self.set_scope(hidden);
        source
    }

    fn derived_in(&mut self, query: &Query) -> Result<Source> {
        let mut domain = Domain::none();
        if !self.probing() && self.frames.len() > 1 {
            let free = self.free(query)?;
            domain = self.outer_domain(free)?;
        }
        let relation = self.ordered_query(query, &domain)?;
        Ok(Source::derived(relation, domain.refs))
    }

    /// Returns the domain of the given outer columns. All these columns must be in this SELECT's own domain.
    fn outer_domain(&mut self, free: Vec<Outer>) -> Result<Domain> {
        if free.is_empty() {
            return Ok(Domain::none());
        }
        if self.frames.last().is_some_and(|f| f.direct) {
            return Err(self.fail_direct());
        }
        let positions = free.iter().map(|o| self.here(o)).collect::<Result<Vec<_>>>()?;
        let Some(node) = self.frames.last().and_then(|f| f.domain) else {
            return Err(Error::internal("an outer column without a domain"));
        };
        let whole = positions.len() == self.graph.schema(node).len();
        if whole && positions.iter().enumerate().all(|(i, e)| e.as_column() == Some(i)) {
            return Ok(Domain { refs: free, node: Some(node) });
        }
        let mapped = self.add(Map::new(node, positions))?;
        let node = self.once(Distinct::by_value(&self.graph, mapped))?;
        Ok(Domain { refs: free, node: Some(node) })
    }

    /// Lowers a LATERAL subquery, over the distinct values of those columns of earlier items that the
    /// subquery uses.
    pub(super) fn lateral(&mut self, query: &Query, build: &mut Build, place: &impl Place) -> Result<Source> {
        if self.probing() {
            return self.derived_in(query);
        }
        let free = self.free(query)?;
        let here = self.frames.len() - 1;
        if free.iter().all(|o| o.frame != here) {
            return self.derived(query);
        }
        let exprs = free.iter().map(|o| self.here(o)).collect::<Result<Vec<_>>>()?;
        let columns: Vec<usize> = exprs.iter().filter_map(Expr::as_column).collect();
        let Some((node, offset)) = self.holder(&columns, build)? else {
            return Err(self.stop(place, "LATERAL that uses a table outside its join"));
        };
        let local = exprs.iter().map(|e| shift(e, -(offset as isize))).collect();
        let mapped = self.add(Map::new(node, local))?;
        let node = self.domain(mapped, place)?;
        let domain = Domain { refs: free, node: Some(node) };
        let relation = self.ordered_query(query, &domain)?;
        Ok(Source::derived(relation, domain.refs))
    }
}
