//! Lowers WITH RECURSIVE: a query that reads its own rows.
//!
//! The recursive term is lowered like any query, over a leaf that stands for the rows of the previous round.
//! The lowered term is then taken apart into a [`Step`], which consists of expressions over pairs. A pair is
//! a row of the previous round and a row of the other relations that the term reads.

mod apart;
mod tracks;

use super::outer_column::Domain;
use super::relation::RowOrder;
use super::scope::Cte;
use super::{Lowerer, WITHOUT};
use crate::catalog::{ColumnDef, TableDef, TableId};
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::expr::functions::common_type;
use crate::graph::{NodeId, Schema};
use crate::rel::{Fixpoint, Map, Recursion, Step, Table};
use crate::syntax::{self, Body, Query, SetOperator, reads};
use crate::verdict::ReasonKind;
use apart::{Pairs, Refusal, take_apart};
use std::sync::Arc;
use tracks::Tracks;

const EXACT: &str = "Cast the columns to types whose equal values are written alike, such as numeric(12,2).";

/// The two terms of a recursive query, and the kind of UNION between them.
struct Terms<'q> {
    base: &'q Body,
    step: &'q Body,
    fixpoint: Fixpoint,
}

impl Lowerer<'_> {
    /// Lowers a common table expression whose query reads itself.
    pub(super) fn recursive(&mut self, cte: &syntax::Cte, name: &str, over: &Domain) -> Result<Cte> {
        if over.width() > 0 {
            return Err(self.stop(&cte.alias.name, "WITH RECURSIVE that uses outer columns"));
        }
        let visible = self.ctes.len();
        let result = self.recursive_query(cte, name);
        self.ctes.truncate(visible);
        result
    }

    fn recursive_query(&mut self, cte: &syntax::Cte, name: &str) -> Result<Cte> {
        if let Some(with) = &cte.query.with {
            self.with(with, &Domain::none())?;
        }
        let terms = self.terms(&cte.query, name)?;
        let open = self.body(terms.base, &Domain::none())?;
        let base = self.close(open)?;
        let names = self.alias_columns(&cte.alias, base.names)?;
        let rows = self.graph.schema(base.node).clone();
        if terms.fixpoint == Fixpoint::Distinct {
            let checked = self.comparable(base.node);
            self.located(checked, terms.base)?;
            if !rows.is_exact() {
                let what = "UNION of a recursive query over values that may be equal and written differently";
                self.reason(ReasonKind::NotYet, &cte.alias.name, what, EXACT);
                return Err(Error::internal("lowering stopped at an unknown construct"));
            }
        }
        let own = self.own(name, &names, &rows)?;
        let (pairs, exprs) = self.recursive_term(cte, name, &terms, (own, &names))?;
        let (side, on) = pairs.beside(&mut self.graph, rows.len())?;
        let tracks = self.tracks(&cte.query, (&names, &rows), terms.fixpoint)?;
        self.tracked(name, (base.node, names), (side, Step { on, exprs }), terms.fixpoint, tracks)
    }

    /// Makes the recursion. Its rows have the query's own columns, followed by the columns that SEARCH and
    /// CYCLE add.
    fn tracked(
        &mut self,
        name: &str,
        (base, names): (NodeId, Vec<Arc<str>>),
        (side, step): (NodeId, Step),
        fixpoint: Fixpoint,
        tracks: Tracks,
    ) -> Result<Cte> {
        let rows = self.graph.schema(base).clone();
        let (width, added) = (rows.len(), tracks.columns.len());
        let moved = |e: &Expr| e.map_columns(|c| if c < width { c } else { c + added });
        let begun = tracks.begin(&rows.identity());
        let now = begun.iter().enumerate().map(|(i, e)| Expr::column(width + i, e.ty().clone()));
        let now: Vec<Expr> = now.collect();
        let mut exprs: Vec<Expr> = step.exprs.iter().map(moved).collect();
        let (next, conditions) = tracks.go_on(&now, &exprs)?;
        exprs.extend(next);
        let on = Expr::and([moved(&step.on)].into_iter().chain(conditions));
        let labels: Vec<Arc<str>> =
            names.iter().cloned().chain(tracks.columns.iter().map(|t| t.name.clone())).collect();
        let base = self.project(base, rows.identity().into_iter().chain(begun).collect(), &labels, 0)?;
        let mut node = self.add(Recursion::new(base, side, Step { on, exprs }, fixpoint))?;
        let shown: Vec<usize> =
            (0..labels.len()).filter(|c| *c < width || tracks.columns[c - width].is_visible()).collect();
        if shown.len() < labels.len() {
            let schema = self.graph.schema(node).clone();
            node = self.add(Map::columns(node, &schema, &shown))?;
        }
        let names = shown.iter().map(|c| labels[*c].clone()).collect();
        Ok(Cte {
            name: name.to_owned(),
            node,
            names,
            refs: Vec::new(),
            unread: tracks.unread,
            order: RowOrder::Any,
        })
    }

    /// Lowers the recursive term to pairs of rows, and to the columns that are computed from a pair.
    fn recursive_term(
        &mut self,
        cte: &syntax::Cte,
        name: &str,
        terms: &Terms<'_>,
        (own, names): (NodeId, &[Arc<str>]),
    ) -> Result<(Pairs, Vec<Expr>)> {
        let rows = self.graph.schema(own).clone();
        let (names, refs, unread) = (names.to_vec(), Vec::new(), Vec::new());
        self.ctes.push(Cte { name: name.to_owned(), node: own, names, refs, unread, order: RowOrder::Any });
        let open = self.body(terms.step, &Domain::none());
        self.ctes.pop();
        let open = open?;
        if open.exprs.len() != rows.len() {
            let e = Error::syntax("each UNION query must have the same number of columns").detail(format!(
                "One has {}, another {}.",
                rows.len(),
                open.exprs.len()
            ));
            return Err(self.at(e, terms.step));
        }
        if open.distinct && terms.fixpoint == Fixpoint::All {
            return Err(self.stop(&cte.alias.name, "DISTINCT in the recursive term of UNION ALL"));
        }
        let exprs = self.as_rows(name, open.exprs, &rows, terms)?;
        let pairs = match take_apart(&mut self.graph, open.node, own, terms.fixpoint)? {
            Ok(pairs) => pairs,
            Err(Refusal::Forbidden(place)) => {
                let e =
                    Error::cycle(format!("recursive reference to query \"{name}\" must not appear {place}"));
                return Err(self.at(e, &cte.alias.name));
            }
            Err(Refusal::Unknown(what)) => {
                self.reason(ReasonKind::NotYet, &cte.alias.name, what, WITHOUT);
                return Err(Error::internal("lowering stopped at an unknown construct"));
            }
        };
        let exprs = exprs.iter().map(|e| e.substitute(&pairs.exprs)).collect();
        Ok((pairs, exprs))
    }

    /// Casts the columns of the recursive term to the types of the non-recursive term. Fails if the common
    /// type of both terms' columns differs from the type in the non-recursive term.
    fn as_rows(&self, name: &str, exprs: Vec<Expr>, rows: &Schema, terms: &Terms<'_>) -> Result<Vec<Expr>> {
        let mut all = Vec::new();
        for (i, (e, c)) in exprs.into_iter().zip(rows.columns()).enumerate() {
            let overall = common_type(&[c.ty.clone(), e.ty().clone()]).unwrap_or_else(|| e.ty().clone());
            if overall != c.ty {
                let what = format!("recursive query \"{name}\" column {} has type {}", i + 1, c.ty);
                let e =
                    Error::type_mismatch(format!("{what} in non-recursive term but type {overall} overall"))
                        .hint("Cast the output of the non-recursive term to the correct type.");
                return Err(self.at(e, terms.base));
            }
            let coerced = self.coerce(e, &c.ty);
            all.push(self.located(coerced, terms.step)?);
        }
        Ok(all)
    }

    /// Makes the leaf that stands for the rows of the previous round while the recursive term is lowered.
    fn own(&mut self, name: &str, names: &[Arc<str>], rows: &Schema) -> Result<NodeId> {
        let columns = names.iter().zip(rows.columns());
        let columns = columns.map(|(n, c)| ColumnDef::new(n.clone(), c.ty.clone(), true)).collect();
        // The numbers of these leaves begin at the greatest number, since no table of a server has such a
        // number.
        let id = TableId(u32::MAX - self.recursions);
        self.recursions += 1;
        self.add(Table::new(Arc::new(TableDef::new(id, "", name, columns))))
    }

    fn terms<'q>(&self, query: &'q Query, name: &str) -> Result<Terms<'q>> {
        let clauses = [
            (!query.order_by.is_empty(), "ORDER BY"),
            (query.limit.is_some() || query.fetch.is_some(), "LIMIT"),
            (query.locks, "FOR UPDATE/SHARE"),
        ];
        if let Some((_, what)) = clauses.iter().find(|(there, _)| *there) {
            let e = Error::unsupported(format!("{what} in a recursive query is not implemented"));
            return Err(self.at(e, query));
        }
        let (base, step, fixpoint) = match &query.body {
            Body::SetOperation(s) if s.op == SetOperator::Union => {
                (&s.left, &s.right, if s.all { Fixpoint::All } else { Fixpoint::Distinct })
            }
            _ => {
                let form = "non-recursive-term UNION [ALL] recursive-term";
                let e = Error::cycle(format!("recursive query \"{name}\" does not have the form {form}"));
                return Err(self.at(e, query));
            }
        };
        let place = if reads(base, name) > 0 {
            "within its non-recursive term"
        } else if reads(step, name) > 1 {
            "more than once"
        } else {
            return Ok(Terms { base, step, fixpoint });
        };
        let e = Error::cycle(format!("recursive reference to query \"{name}\" must not appear {place}"));
        Err(self.at(e, query))
    }
}
