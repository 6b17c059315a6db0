//! Converts queries: WITH, the body, and the clauses after it.

use super::Converter;
use super::from::converted_alias;
use super::names::ident;
use crate::error::Result;
use crate::parse::forms::{self, search_and_cycle};
use crate::parse::source::extent;
use crate::syntax::{
    Body, Cte, Cycle, Fetch, Limit, OrderItem, Place, Query, Search, SetOperation, SetOperator, Sort, Values,
    With, Write,
};
use sqlparser::ast::{
    self, LimitClause, OrderBy, OrderByExpr, OrderByKind, OrderBySort, SetExpr, SetQuantifier, Spanned,
    Statement,
};

impl Converter<'_> {
    pub(super) fn query(&self, q: &ast::Query) -> Result<Query> {
        let foreign = q.for_clause.is_some()
            || q.settings.is_some()
            || q.format_clause.is_some()
            || !q.pipe_operators.is_empty();
        self.plain(foreign, q)?;
        let keys = self.keys(q.order_by.as_ref(), q)?;
        let clauses = if keys.is_empty() { None } else { search_and_cycle(keys) };
        let (keys, (search, cycle)) = match clauses {
            Some(clauses) => (&[][..], clauses),
            None => (keys, (None, None)),
        };
        Ok(Query {
            with: q.with.as_ref().map(|with| self.with(with)).transpose()?,
            limit: self.limit(q)?,
            fetch: self.fetch(q)?,
            body: self.body(&q.body)?,
            order_by: self.order_items(keys)?,
            locks: !q.locks.is_empty(),
            search: search.map(converted_search),
            cycle: cycle.map(|cycle| self.cycle(cycle)).transpose()?,
            extent: extent(q.span()),
        })
    }

    pub(super) fn boxed_query(&self, q: &ast::Query) -> Result<Box<Query>> {
        self.query(q).map(Box::new)
    }

    fn with(&self, with: &ast::With) -> Result<With> {
        let cte = |cte: &ast::Cte| {
            Ok(Cte { alias: converted_alias(&cte.alias), query: self.boxed_query(&cte.query)? })
        };
        Ok(With { recursive: with.recursive, ctes: with.cte_tables.iter().map(cte).collect::<Result<_>>()? })
    }

    fn body(&self, body: &SetExpr) -> Result<Body> {
        stacker::maybe_grow(256 << 10, 4 << 20, || self.body_here(body))
    }

    fn body_here(&self, body: &SetExpr) -> Result<Body> {
        Ok(match body {
            SetExpr::Select(s) => Body::Select(Box::new(self.select(s)?)),
            SetExpr::Query(q) => Body::Query(self.boxed_query(q)?),
            SetExpr::SetOperation { left, op, set_quantifier, right } => {
                let all = match set_quantifier {
                    SetQuantifier::All => true,
                    SetQuantifier::Distinct | SetQuantifier::None => false,
                    _ => return self.refused("UNION BY NAME is not PostgreSQL", body),
                };
                let op = match op {
                    ast::SetOperator::Union => SetOperator::Union,
                    ast::SetOperator::Intersect => SetOperator::Intersect,
                    ast::SetOperator::Except => SetOperator::Except,
                    ast::SetOperator::Minus => {
                        return self.refused("syntax error at or near \"MINUS\"", body);
                    }
                };
                let (left, right) = (self.body(left)?, self.body(right)?);
                // The position of a chain of operations is computed from the positions of its operands.
                let extent = left.extent().union(right.extent());
                Body::SetOperation(Box::new(SetOperation { left, op, all, right, extent }))
            }
            SetExpr::Values(v) => {
                self.plain(v.explicit_row || v.value_keyword, v)?;
                let rows = v.rows.iter().map(|row| self.exprs(&row.content)).collect::<Result<_>>()?;
                Body::Values(Values { rows, extent: extent(v.span()) })
            }
            // The rewriting turns `TABLE t` into `SELECT * FROM t`, so only a TABLE without a table name gets
            // here.
            SetExpr::Table(_) => return self.refused("TABLE is followed by the name of a table", body),
            SetExpr::Insert(s) | SetExpr::Update(s) | SetExpr::Delete(s) | SetExpr::Merge(s) => {
                let keyword = match s {
                    Statement::Insert(_) => "INSERT",
                    Statement::Update(_) => "UPDATE",
                    Statement::Delete(_) => "DELETE",
                    _ => "MERGE",
                };
                Body::Write(Write { keyword, extent: extent(s.span()) })
            }
        })
    }

    fn keys<'q>(&self, order: Option<&'q OrderBy>, q: &ast::Query) -> Result<&'q [OrderByExpr]> {
        let Some(order) = order else { return Ok(&[]) };
        self.plain(order.interpolate.is_some(), q)?;
        match &order.kind {
            OrderByKind::Expressions(keys) => Ok(keys),
            OrderByKind::All(_) => self.plain(true, q).map(|()| &[][..]),
        }
    }

    pub(super) fn order_items(&self, keys: &[OrderByExpr]) -> Result<Vec<OrderItem>> {
        let item = |key: &OrderByExpr| {
            self.plain(key.with_fill.is_some(), &key.expr)?;
            let sort = match &key.options.sort {
                None | Some(OrderBySort::Asc) => Sort::Ascending,
                Some(OrderBySort::Desc) => Sort::Descending,
                Some(OrderBySort::Using(_)) => Sort::Using,
            };
            Ok(OrderItem { expr: self.expr(&key.expr)?, sort, nulls_first: key.options.nulls_first })
        };
        keys.iter().map(item).collect()
    }

    fn limit(&self, q: &ast::Query) -> Result<Option<Limit>> {
        match &q.limit_clause {
            None => Ok(None),
            Some(LimitClause::LimitOffset { limit_by, .. }) if !limit_by.is_empty() => {
                self.refused("LIMIT … BY is not PostgreSQL", q)
            }
            Some(LimitClause::LimitOffset { limit, offset, .. }) => Ok(Some(Limit {
                count: self.optional(limit.as_ref())?,
                offset: self.optional(offset.as_ref().map(|o| &o.value))?,
            })),
            Some(LimitClause::OffsetCommaLimit { limit, .. }) => {
                self.refused("LIMIT #,# syntax is not supported", limit)
            }
        }
    }

    fn fetch(&self, q: &ast::Query) -> Result<Option<Fetch>> {
        match &q.fetch {
            None => Ok(None),
            Some(fetch) if fetch.percent => self.refused("FETCH … PERCENT is not PostgreSQL", q),
            Some(fetch) => {
                let quantity = self.optional(fetch.quantity.as_ref())?;
                Ok(Some(Fetch { quantity, with_ties: fetch.with_ties }))
            }
        }
    }

    fn cycle(&self, cycle: forms::Cycle<'_>) -> Result<Cycle> {
        let values = match cycle.values {
            Some((value, other)) => Some((self.expr(value)?, self.expr(other)?)),
            None => None,
        };
        let by = cycle.by.into_iter().map(ident).collect();
        Ok(Cycle { by, set: ident(cycle.set), values, using: ident(cycle.using) })
    }
}

fn converted_search(search: forms::Search<'_>) -> Search {
    Search { depth: search.depth, set: ident(search.set), by: search.by.into_iter().map(ident).collect() }
}
