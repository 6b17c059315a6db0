//! Lowers queries: WITH, the body, and the clauses after it.

use super::Lowerer;
use super::outer_column::Domain;
use super::relation::{Open, Relation};
use super::scope::Cte;
use super::top::by_columns;
use crate::error::{Error, Result};
use crate::syntax::{Alias, Body, Distinct, Query, With, reads};
use crate::verdict::{Cause, ReasonKind};
use std::sync::Arc;

const WRITES: &str = "Keep the change out of the query: a stream table is computed from SELECTs alone.";

impl Lowerer<'_> {
    /// Lowers a query over a domain. The result starts with the domain's columns.
    pub(super) fn query(&mut self, q: &Query, domain: &Domain) -> Result<Relation> {
        let open = self.open_query(q, domain)?;
        self.close(open)
    }

    /// Like [`Lowerer::query`], for a query in FROM: the result also has the columns by which the query
    /// orders its rows.
    pub(super) fn ordered_query(&mut self, q: &Query, domain: &Domain) -> Result<Relation> {
        let open = self.open_query(q, domain)?;
        self.close_ordered(open)
    }

    pub(super) fn open_query(&mut self, q: &Query, domain: &Domain) -> Result<Open> {
        let visible = self.ctes.len();
        let result = stacker::maybe_grow(256 << 10, 4 << 20, || {
            if let Some(with) = &q.with {
                self.with(with, domain)?;
            }
            self.check_locks(q);
            if let Some(slice) = self.slice(q)? {
                return self.sliced(q, slice, domain);
            }
            match &q.body {
                Body::Select(s) if matches!(s.distinct, Some(Distinct::On(_))) => {
                    self.sorted_select(s, &q.order_by, None, domain)
                }
                // A set-returning call in ORDER BY multiplies the rows, as such a call in the select list
                // does.
                Body::Select(s) if self.sorts_by_sets(&q.order_by) => {
                    self.sorted_select(s, &q.order_by, None, domain)
                }
                Body::Select(s) if by_columns(&q.order_by) => self.ordered_select(s, &q.order_by, domain),
                body => {
                    let open = self.body(body, domain)?;
                    self.in_order_of(q, open)
                }
            }
        });
        self.ctes.truncate(visible);
        result
    }

    /// Refuses FOR UPDATE, FOR NO KEY UPDATE, FOR SHARE and FOR KEY SHARE.
    fn check_locks(&mut self, q: &Query) {
        if q.locks {
            let help = "Leave it out: a stream table is refreshed under its own locks.";
            self.because(ReasonKind::Never, Cause::Effect, q, "FOR UPDATE or FOR SHARE", help);
        }
    }

    pub(super) fn with(&mut self, with: &With, domain: &Domain) -> Result<()> {
        let order = if with.recursive { self.order(with)? } else { (0..with.ctes.len()).collect() };
        for cte in order.iter().filter_map(|i| with.ctes.get(*i)) {
            let name = cte.alias.name.folded();
            let recursive = with.recursive && reads(&*cte.query, &name) > 0;
            let dependent = !self.probing() && domain.width() > 0 && {
                let free = if recursive { self.free_of_recursive(cte, &name) } else { self.free(&cte.query) };
                !free?.is_empty()
            };
            let over = if dependent { domain.clone() } else { Domain::none() };
            if recursive {
                let cte = self.recursive(cte, &name, &over)?;
                self.ctes.push(cte);
                continue;
            }
            if cte.query.search.is_some() || cte.query.cycle.is_some() {
                return Err(self.at(Error::syntax("WITH query is not recursive"), &cte.alias.name));
            }
            let relation = self.ordered_query(&cte.query, &over)?;
            let names = self.alias_columns(&cte.alias, relation.names)?;
            let (node, refs, unread, order) = (relation.node, over.refs, Vec::new(), relation.order);
            self.ctes.push(Cte { name, node, names, refs, unread, order });
        }
        Ok(())
    }

    /// Returns the order in which to lower the CTEs: each after the CTEs that it reads. Under RECURSIVE, a
    /// CTE may read a CTE that is written after it.
    fn order(&self, with: &With) -> Result<Vec<usize>> {
        let names: Vec<String> = with.ctes.iter().map(|c| c.alias.name.folded()).collect();
        let (mut order, mut left): (Vec<usize>, Vec<usize>) = (Vec::new(), (0..names.len()).collect());
        while !left.is_empty() {
            let waits = |i: &usize| {
                let query = &with.ctes[*i].query;
                left.iter().any(|other| other != i && reads(&**query, &names[*other]) > 0)
            };
            let Some(next) = left.iter().position(|i| !waits(i)) else {
                let e = Error::unsupported("mutual recursion between WITH items is not implemented");
                return Err(self.at(e, &with.ctes[left[0]].alias.name));
            };
            order.push(left.remove(next));
        }
        Ok(order)
    }

    /// Returns the column names that an alias gives. The column list of the alias may be shorter than
    /// `names`; the remaining columns keep their names.
    pub(super) fn alias_columns(&self, alias: &Alias, names: Vec<Arc<str>>) -> Result<Vec<Arc<str>>> {
        if alias.columns.len() > names.len() {
            let e = Error::missing_columns(format!(
                "table \"{}\" has {} columns available but {} columns specified",
                alias.name.folded(),
                names.len(),
                alias.columns.len()
            ));
            return Err(self.at(e, &alias.name));
        }
        let mut names = names;
        for (name, column) in names.iter_mut().zip(&alias.columns) {
            *name = Arc::from(column.name.folded());
        }
        Ok(names)
    }

    pub(super) fn body(&mut self, body: &Body, domain: &Domain) -> Result<Open> {
        stacker::maybe_grow(256 << 10, 4 << 20, || match body {
            Body::Select(s) if matches!(s.distinct, Some(Distinct::On(_))) => {
                self.sorted_select(s, &[], None, domain)
            }
            Body::Select(s) => self.select(s, domain),
            Body::Query(q) => self.open_query(q, domain),
            Body::SetOperation(s) => self.set_operation(s, domain),
            Body::Values(v) => self.values(v, domain),
            Body::Write(w) => {
                let what = format!("{} in a query", w.keyword);
                self.because(ReasonKind::Never, Cause::Effect, w, what, WRITES);
                Err(Error::internal("lowering stopped at a data-modifying statement"))
            }
        })
    }
}
