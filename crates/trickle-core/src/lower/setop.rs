//! Lowers UNION, INTERSECT, EXCEPT and VALUES, with PostgreSQL's unification of column types.

use super::Lowerer;
use super::clause::ClauseContext;
use super::outer_column::Domain;
use super::relation::{Open, Relation, RowOrder};
use super::scope::Frame;
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::expr::functions::common_type;
use crate::graph::Column;
use crate::rel::{Distinct, SetOp, SetOpKind, Union, Values};
use crate::syntax::{self, Body, SetOperation, SetOperator};
use crate::types::Type;
use std::sync::Arc;

impl Lowerer<'_> {
    pub(super) fn set_operation(&mut self, s: &SetOperation, domain: &Domain) -> Result<Open> {
        let (op, all) = (s.op, s.all);
        let what = match op {
            SetOperator::Union => "UNION",
            SetOperator::Intersect => "INTERSECT",
            SetOperator::Except => "EXCEPT",
        };
        // A chain of UNION ALL becomes one sum.
        let mut arms = vec![&s.right];
        let mut first = &s.left;
        if op == SetOperator::Union && all {
            while let Body::SetOperation(next) = first {
                if next.op != SetOperator::Union || !next.all {
                    break;
                }
                arms.push(&next.right);
                first = &next.left;
            }
        }
        arms.push(first);
        arms.reverse();
        let mut open = Vec::new();
        for arm in &arms {
            let mut lowered = self.body(arm, domain)?;
            if lowered.distinct {
                let relation = self.close(lowered)?;
                let schema = self.graph.schema(relation.node).clone();
                lowered = Open::of(relation, &schema, domain);
            }
            open.push(lowered);
        }
        let types = self.unify_arms(what, &arms, &open)?;
        let names = open.first().map(|o| o.names.clone()).unwrap_or_default();
        let mut nodes = Vec::new();
        for (o, arm) in open.into_iter().zip(&arms) {
            let o = Open { names: names.clone(), ..o };
            let closed = self.close_as(o, &types);
            nodes.push(self.located(closed, *arm)?.node);
        }
        let (Some(l), Some(r)) = (nodes.first().copied(), nodes.last().copied()) else {
            return Err(Error::internal("a set operation without arms"));
        };
        if !(op == SetOperator::Union && all) {
            let checked = self.comparable(l);
            self.located(checked, s)?;
        }
        let node = match (op, all) {
            (SetOperator::Union, true) => self.add(Union::new(nodes))?,
            (SetOperator::Union, false) => {
                let sum = self.add(Union::new(nodes))?;
                self.once(Distinct::new(sum))?
            }
            (SetOperator::Intersect, _) => self.add(SetOp::new(SetOpKind::Intersect, all, l, r))?,
            (SetOperator::Except, _) => self.add(SetOp::new(SetOpKind::Except, all, l, r))?,
        };
        let schema = self.graph.schema(node).clone();
        let row = |arm: &&Body| matches!(arm, Body::Select(s) if s.from.is_empty());
        let listed = op == SetOperator::Union && all && arms.iter().all(row);
        let order = if listed { RowOrder::Hidden } else { RowOrder::Any };
        Ok(Open::of(Relation { node, names, order }, &schema, domain))
    }

    /// Returns the column types that all arms are cast to.
    fn unify_arms(&self, what: &str, arms: &[&Body], open: &[Open]) -> Result<Vec<Type>> {
        let Some(first) = open.first() else { return Ok(Vec::new()) };
        for (o, arm) in open.iter().zip(arms) {
            if o.exprs.len() != first.exprs.len() {
                let e = Error::syntax(format!("each {what} query must have the same number of columns"))
                    .detail(format!("One has {}, another {}.", first.exprs.len(), o.exprs.len()));
                return Err(self.at(e, *arm));
            }
        }
        (0..first.exprs.len())
            .map(|i| {
                let types: Vec<Type> = open.iter().map(|o| o.exprs[i].ty().clone()).collect();
                common_type(&types).ok_or_else(|| {
                    let list: Vec<String> = types.iter().map(ToString::to_string).collect();
                    let e = Error::type_mismatch(format!(
                        "{what} types {} cannot be matched",
                        list.join(" and ")
                    ))
                    .detail(format!("Column {} is \"{}\".", i + 1, first.names[i]))
                    .hint("Cast the column in each arm to one type.");
                    let e = self.doubt_common(e, &types);
                    arms.first().map_or(e.clone(), |a| self.at(e, *a))
                })
            })
            .collect()
    }

    /// Lowers `VALUES (…), (…)`. Rows of constants become one leaf. Otherwise each row becomes a map over the
    /// domain, and the result is the sum of these maps.
    pub(super) fn values(&mut self, values: &syntax::Values, domain: &Domain) -> Result<Open> {
        self.frames.push(Frame { refs: domain.refs.clone(), domain: domain.node, ..Frame::default() });
        let result = self.values_in_frame(values, domain);
        self.frames.pop();
        result
    }

    fn values_in_frame(&mut self, values: &syntax::Values, domain: &Domain) -> Result<Open> {
        let (rows, place) = (&values.rows, values);
        let width = rows.first().map_or(0, Vec::len);
        if rows.iter().any(|r| r.len() != width) {
            return Err(self.at(Error::syntax("VALUES lists must all be the same length"), place));
        }
        let base = match domain.node {
            Some(node) => node,
            None => self.add(Values::unit())?,
        };
        let mut plain = domain.node.is_none();
        let mut lowered: Vec<(crate::graph::NodeId, Vec<Expr>)> = Vec::new();
        for row in rows {
            let mut cx = ClauseContext::new("VALUES");
            let exprs = row.iter().map(|e| self.expr(e, &mut cx)).collect::<Result<Vec<_>>>()?;
            plain &= cx.subqueries.is_empty();
            lowered.push(self.settle(base, exprs, cx)?);
        }
        let mut types = Vec::new();
        for i in 0..width {
            let column: Vec<Type> = lowered.iter().map(|(_, r)| r[i].ty().clone()).collect();
            let ty = common_type(&column).ok_or_else(|| {
                let list: Vec<String> = column.iter().map(ToString::to_string).collect();
                let e =
                    Error::type_mismatch(format!("VALUES types {} cannot be matched", list.join(" and ")));
                self.at(self.doubt_common(e, &column), place)
            })?;
            types.push(ty);
        }
        let names: Vec<Arc<str>> = (1..=width).map(|i| Arc::from(format!("column{i}"))).collect();
        let mut typed = Vec::new();
        for (node, row) in lowered {
            let row = row.into_iter().zip(&types).map(|(e, t)| self.coerce(e, t)).collect::<Result<Vec<_>>>();
            typed.push((node, self.located(row, place)?));
        }
        let node = if plain {
            let unit = crate::graph::Schema::new([]);
            let columns = (0..width).map(|i| Column {
                label: names[i].clone(),
                ty: types[i].clone(),
                nullable: typed.iter().any(|(_, r)| r[i].nullable(&unit)),
            });
            let columns: Vec<Column> = columns.collect();
            self.add(Values::new(columns, typed.into_iter().map(|(_, r)| r).collect()))?
        } else {
            let k = domain.width();
            let mut arms = Vec::new();
            for (node, row) in typed {
                let schema = self.graph.schema(node).clone();
                let exprs = (0..k).map(|i| schema.expr(i)).chain(row).collect();
                arms.push(self.project(node, exprs, &names, k)?);
            }
            self.add(Union::new(arms))?
        };
        let schema = self.graph.schema(node).clone();
        let order = if rows.len() > 1 { RowOrder::Hidden } else { RowOrder::Any };
        Ok(Open::of(Relation { node, names, order }, &schema, domain))
    }
}
