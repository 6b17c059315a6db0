//! Typed expressions of the plan as SQL over the columns of a block.

use super::ast::{Aggregate, FromItem, OrderBy, Query, Scalar, Select, SelectItem, SetExpr, SpecialCall};
use super::ident::{Ident, Qualified};
use crate::agg::AggCall;
use crate::expr::{Expr, ExprKind, FuncSig, SortKey};
use crate::types::{OtherType, Type};

fn name(sig: &FuncSig) -> Qualified {
    Qualified { schema: sig.schema.as_ref().map(Ident::from), name: Ident::from(&sig.name) }
}

/// `expr` with column `i` read as `columns[i]`.
pub(crate) fn scalar(expr: &Expr, columns: &[Scalar]) -> Scalar {
    let one = |e: &Expr| Box::new(scalar(e, columns));
    let all = |es: &[Expr]| es.iter().map(|e| scalar(e, columns)).collect::<Vec<_>>();
    stacker::maybe_grow(64 * 1024, 1024 * 1024, || match expr.kind() {
        ExprKind::Column(i) => columns.get(*i).cloned().unwrap_or_else(|| Scalar::null(expr.ty().clone())),
        ExprKind::Literal(d) => Scalar::Literal(d.clone(), expr.ty().clone()),
        ExprKind::Call(sig, args) if sig.is_operator() => Scalar::Operator(name(sig), all(args)),
        ExprKind::Call(sig, args) => Scalar::Call(name(sig), all(args)),
        ExprKind::Cast(e) => Scalar::Cast(one(e), expr.ty().clone()),
        ExprKind::And(terms) => Scalar::And(all(terms)),
        ExprKind::Or(terms) => Scalar::Or(all(terms)),
        ExprKind::Not(e) => Scalar::Not(one(e)),
        ExprKind::Is { arg, test, negated } => Scalar::Is { arg: one(arg), test: *test, negated: *negated },
        ExprKind::Distinct { left, right, negated } => {
            Scalar::Distinct { left: one(left), right: one(right), negated: *negated }
        }
        ExprKind::Case { whens, otherwise } => Scalar::Case {
            whens: whens.iter().map(|(c, v)| (scalar(c, columns), scalar(v, columns))).collect(),
            otherwise: Some(one(otherwise)),
        },
        ExprKind::Coalesce(args) => Scalar::Special(SpecialCall::Coalesce, all(args)),
        ExprKind::Extreme { greatest, args } => {
            Scalar::Special(if *greatest { SpecialCall::Greatest } else { SpecialCall::Least }, all(args))
        }
        ExprKind::Quantified { op, arg, array, all } => {
            Scalar::Quantified { arg: one(arg), op: name(op), array: one(array), all: *all }
        }
        // An empty ARRAY[] has no type of its own.
        ExprKind::Array(items) if items.is_empty() => Scalar::Array(Vec::new()).cast(expr.ty().clone()),
        ExprKind::Array(items) => Scalar::Array(all(items)),
        ExprKind::Row(items) => Scalar::Row(all(items)),
        ExprKind::Subscript { array, at } => {
            Scalar::Subscript(one(array), at.iter().map(|at| at.map(|e| scalar(e, columns))).collect())
        }
        ExprKind::ManyRows => two_rows(expr.ty()),
    })
}

/// A scalar subquery of two rows: PostgreSQL runs it, and raises 21000, only where its value is asked for.
fn two_rows(ty: &Type) -> Scalar {
    let rows = FromItem::Subquery {
        query: Box::new(Query::new(SetExpr::Values(vec![vec![Scalar::int4(1)], vec![Scalar::int4(2)]]))),
        alias: Ident::new("two"),
        columns: vec![Ident::new("n")],
        lateral: false,
    };
    let two = Select {
        items: vec![SelectItem { expr: Scalar::null(ty.clone()), name: None }],
        from: vec![rows],
        ..Select::default()
    };
    Scalar::Subquery(Box::new(Query::select(two)))
}

fn order(keys: &[SortKey], columns: &[Scalar]) -> Vec<OrderBy> {
    let key = |k: &SortKey| OrderBy {
        expr: scalar(&k.expr, columns),
        descending: k.descending,
        nulls_first: k.nulls_first,
    };
    keys.iter().map(key).collect()
}

/// An aggregate call over the rows of a block.
pub(crate) fn aggregate(call: &AggCall, columns: &[Scalar]) -> Scalar {
    Scalar::Aggregate(Box::new(Aggregate {
        name: name(&call.sig),
        args: call.args.iter().map(|e| scalar(e, columns)).collect(),
        distinct: call.distinct,
        order_by: order(&call.order_by, columns),
        within_group: call.within_group,
        filter: call.filter.as_ref().map(|f| Box::new(scalar(f, columns))),
    }))
}

/// A system type that is only ever named.
pub(crate) fn opaque(name: &str) -> OtherType {
    OtherType { sql_name: name.to_owned(), equality: true, hashable: true, ordered: true, exact: true }
}
