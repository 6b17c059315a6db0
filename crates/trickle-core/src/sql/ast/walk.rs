//! Walks over every scalar expression of a syntax tree, including the expressions of nested queries.

use super::{Aggregate, FrameBound, FromItem, Query, Scalar, Select, SetExpr};
use crate::expr::Subscript;
use crate::ident::Ident;

/// The functions that a walk calls for the parts of a tree.
pub(crate) struct Visitor<'a> {
    /// The function that is called with every scalar expression, after the calls for its operands.
    pub(crate) scalar: &'a mut dyn FnMut(&mut Scalar),
    /// The function that is called with the alias of every FROM item.
    pub(crate) alias: &'a mut dyn FnMut(&mut Ident),
}

/// Walks over a scalar expression.
pub(crate) fn walk_scalar(s: &mut Scalar, v: &mut Visitor<'_>) {
    if let Scalar::Column { .. } | Scalar::Literal(..) | Scalar::Param(..) = s {
        return (v.scalar)(s);
    }
    stacker::maybe_grow(64 * 1024, 1024 * 1024, || {
        match s {
            Scalar::Column { .. } | Scalar::Literal(..) | Scalar::Param(..) => {}
            Scalar::Call(_, args)
            | Scalar::Special(_, args)
            | Scalar::Form(_, args)
            | Scalar::Operator(_, args)
            | Scalar::And(args)
            | Scalar::Or(args)
            | Scalar::Array(args)
            | Scalar::Row(args) => walk_all(args, v),
            Scalar::Aggregate(a) => walk_aggregate(a, v),
            Scalar::Over(o) => {
                walk_aggregate(&mut o.call, v);
                walk_all(&mut o.partition, v);
                o.order_by.iter_mut().for_each(|k| walk_scalar(&mut k.expr, v));
                for bound in o.frame.iter_mut().flat_map(|f| [&mut f.start, &mut f.end]) {
                    if let FrameBound::Preceding(e) | FrameBound::Following(e) = bound {
                        walk_scalar(e, v);
                    }
                }
            }
            Scalar::Cast(e, _) | Scalar::Not(e) | Scalar::Is { arg: e, .. } => walk_scalar(e, v),
            Scalar::Distinct { left, right, .. } => {
                walk_scalar(left, v);
                walk_scalar(right, v);
            }
            Scalar::Case { whens, otherwise } => {
                for (c, e) in whens {
                    walk_scalar(c, v);
                    walk_scalar(e, v);
                }
                otherwise.iter_mut().for_each(|e| walk_scalar(e, v));
            }
            Scalar::Quantified { arg, array, .. } => {
                walk_scalar(arg, v);
                walk_scalar(array, v);
            }
            Scalar::Subscript(array, at) => {
                walk_scalar(array, v);
                at.iter_mut().flat_map(Subscript::operands_mut).for_each(|e| walk_scalar(e, v));
            }
            Scalar::Field(of, _) => walk_scalar(of, v),
            Scalar::Exists { query, .. } | Scalar::Subquery(query) | Scalar::ArrayQuery(query) => {
                walk_query(query, v)
            }
            Scalar::InQuery { args, query, .. } => {
                walk_all(args, v);
                walk_query(query, v);
            }
        }
        (v.scalar)(s);
    });
}

fn walk_aggregate(a: &mut Aggregate, v: &mut Visitor<'_>) {
    walk_all(&mut a.args, v);
    a.order_by.iter_mut().for_each(|o| walk_scalar(&mut o.expr, v));
    a.filter.iter_mut().for_each(|f| walk_scalar(f, v));
}

fn walk_all(args: &mut [Scalar], v: &mut Visitor<'_>) {
    args.iter_mut().for_each(|a| walk_scalar(a, v));
}

/// Walks over a query. The query must not have common table expressions that change data. Generated
/// subqueries have no such expressions.
fn walk_query(q: &mut Query, v: &mut Visitor<'_>) {
    for cte in &mut q.ctes {
        if let super::CteBody::Query(body) | super::CteBody::Recursive(body) = &mut cte.body {
            walk_query(body, v);
        }
    }
    walk_set(&mut q.body, v);
    q.order_by.iter_mut().for_each(|o| walk_scalar(&mut o.expr, v));
    q.limit.iter_mut().chain(&mut q.offset).for_each(|l| walk_scalar(l, v));
}

fn walk_set(s: &mut SetExpr, v: &mut Visitor<'_>) {
    match s {
        SetExpr::Select(select) => walk_select(select, v),
        SetExpr::Values(rows) => rows.iter_mut().for_each(|r| walk_all(r, v)),
        SetExpr::UnionAll(arms) => arms.iter_mut().for_each(|a| walk_set(a, v)),
        SetExpr::SetOp { left, right, .. } => {
            walk_set(left, v);
            walk_set(right, v);
        }
    }
}

/// Walks over a SELECT.
pub(crate) fn walk_select(select: &mut Select, v: &mut Visitor<'_>) {
    select.items.iter_mut().for_each(|i| walk_scalar(&mut i.expr, v));
    select.from.iter_mut().for_each(|f| walk_from(f, v));
    walk_all(&mut select.filter, v);
    walk_all(&mut select.group_by, v);
    walk_all(&mut select.having, v);
}

/// Walks over a FROM item.
pub(crate) fn walk_from(f: &mut FromItem, v: &mut Visitor<'_>) {
    match f {
        FromItem::Relation { alias, .. } => (v.alias)(alias),
        FromItem::Subquery { query, alias, .. } => {
            walk_query(query, v);
            (v.alias)(alias);
        }
        FromItem::Function { calls, alias, .. } => {
            calls.iter_mut().for_each(|c| walk_scalar(&mut c.call, v));
            (v.alias)(alias);
        }
        FromItem::Join { left, right, on, .. } => {
            walk_from(left, v);
            walk_from(right, v);
            on.iter_mut().for_each(|o| walk_scalar(o, v));
        }
    }
}
