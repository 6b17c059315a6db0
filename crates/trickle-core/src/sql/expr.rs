//! Renders the typed expressions of a plan as SQL over the columns of a block.

use super::ast::{
    Aggregate, Frame, FrameBound, FromItem, OrderBy, Over, Param, Query, Scalar, Select, SelectItem, SetExpr,
    SpecialCall,
};
use super::shown::extreme;
use crate::agg::AggCall;
use crate::expr::{Expr, ExprKind, FuncKind, FuncSig, IsTest, SortKey};
use crate::ident::{Ident, NameSet, Qualified};
use crate::types::{OtherType, Type};
use crate::window::{Bound, OrderKey, WindowCall, WindowFrame};

fn name(sig: &FuncSig) -> Qualified {
    Qualified { schema: sig.schema.as_ref().map(Ident::from), name: Ident::from(&sig.name) }
}

/// Renders `expr`; `columns[i]` is the SQL for column `i`.
pub(crate) fn scalar(expr: &Expr, columns: &[Scalar]) -> Scalar {
    let one = |e: &Expr| Box::new(scalar(e, columns));
    let all = |es: &[Expr]| es.iter().map(|e| scalar(e, columns)).collect::<Vec<_>>();
    stacker::maybe_grow(64 * 1024, 1024 * 1024, || match expr.kind() {
        ExprKind::Column(i) => columns.get(*i).cloned().unwrap_or_else(|| Scalar::null(expr.ty().clone())),
        ExprKind::Literal(d) => Scalar::Literal(d.clone(), expr.ty().clone()),
        ExprKind::Clock(moment) => Scalar::Param(Param::Clock(*moment), expr.ty().clone()),
        ExprKind::Call(sig, args) if sig.is_operator() => Scalar::Operator(name(sig), all(args)),
        ExprKind::Call(sig, args) if sig.kind == FuncKind::Row => row(sig, all(args)),
        ExprKind::Call(sig, args) => match (sig.kind, args.as_slice()) {
            (FuncKind::Field, [of]) => Scalar::Field(one(of), Ident::from(&sig.name)),
            _ => function(sig, args, columns),
        },
        ExprKind::Cast(e) => Scalar::Cast(one(e), expr.ty().clone()),
        ExprKind::And(terms) => Scalar::And(all(terms)),
        ExprKind::Or(terms) => Scalar::Or(all(terms)),
        ExprKind::Not(e) => Scalar::Not(one(e)),
        // For a composite value, `IS NULL` would test the fields of the value. PostgreSQL reads `IS DISTINCT
        // FROM NULL` as a test of the value itself.
        ExprKind::Is { arg, test: IsTest::Null, negated } if arg.ty().may_have_fields() => {
            let null = Box::new(Scalar::null(Type::Unknown));
            Scalar::Distinct { left: one(arg), right: null, negated: !negated }
        }
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
        // PostgreSQL cannot derive a type for an empty `ARRAY[]`.
        ExprKind::Array(items) if items.is_empty() => Scalar::Array(Vec::new()).cast(expr.ty().clone()),
        ExprKind::Array(items) => Scalar::Array(all(items)),
        ExprKind::Row(items) => Scalar::Row(all(items)),
        ExprKind::Subscript { array, at } => {
            Scalar::Subscript(one(array), at.iter().map(|at| at.map(|e| scalar(e, columns))).collect())
        }
        ExprKind::ManyRows => two_rows(expr.ty()),
    })
}

/// Renders a call of a function.
pub(super) fn function(sig: &FuncSig, args: &[Expr], columns: &[Scalar]) -> Scalar {
    let args = args.iter().map(|e| scalar(e, columns)).collect();
    if sig.form.is_empty() { Scalar::Call(name(sig), args) } else { Scalar::Form(sig.form.clone(), args) }
}

/// Renders `(SELECT r FROM (SELECT a, …) AS r(name, …))`. Only in such a row value can the names of the
/// fields be chosen.
fn row(sig: &FuncSig, values: Vec<Scalar>) -> Scalar {
    let mut names = NameSet::new();
    let columns: Vec<Ident> = sig.columns.iter().map(Ident::from).collect();
    columns.iter().for_each(|c| names.reserve(c.clone()));
    // The alias contains a space, so that it is unlikely to equal the name of a column. A column of an
    // enclosing query with the same name would take precedence over the alias.
    let alias = names.fresh("trickle row");
    let items = values.into_iter().map(|expr| SelectItem { expr, name: None }).collect();
    let one = Query::select(Select { items, ..Select::default() });
    let from = FromItem::Subquery { query: Box::new(one), alias: alias.clone(), columns, lateral: false };
    let value = SelectItem { expr: Scalar::Column { table: None, name: alias }, name: None };
    Scalar::Subquery(Box::new(Query::select(Select {
        items: vec![value],
        from: vec![from],
        ..Select::default()
    })))
}

/// Renders a scalar subquery of two rows. PostgreSQL runs the subquery, and raises 21000, only where the
/// value of the subquery is needed.
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

/// Renders the call of an aggregate over the rows of a block. Rows with equal keys in the call's ORDER BY are
/// ordered by the images of the keys.
pub(crate) fn aggregate(call: &AggCall, columns: &[Scalar]) -> Scalar {
    if let Some(extreme) = extreme(call, columns) {
        return extreme;
    }
    Scalar::Aggregate(Box::new(called(call, columns)))
}

fn called(call: &AggCall, columns: &[Scalar]) -> Aggregate {
    let mut order_by = order(&call.order_by, columns);
    if !call.distinct && !call.within_group {
        let images = call.order_by.iter().filter_map(|k| k.expr.image());
        let new = images.filter(|image| call.order_by.iter().all(|k| k.expr != *image));
        let ascending =
            |e: Expr| OrderBy { expr: scalar(&e, columns), descending: false, nulls_first: false };
        order_by.extend(new.map(ascending));
    }
    Aggregate {
        name: name(&call.sig),
        args: call.args.iter().map(|e| scalar(e, columns)).collect(),
        variadic: call.sig.is_variadic(),
        distinct: call.distinct,
        order_by,
        within_group: call.within_group,
        filter: call.filter.as_ref().map(|f| Box::new(scalar(f, columns))),
    }
}

/// Renders the keys of an ORDER BY. A key that occurs a second time is left out, since it does not change the
/// order.
pub(crate) fn sorted<'k>(keys: impl IntoIterator<Item = &'k OrderKey>, columns: &[Scalar]) -> Vec<OrderBy> {
    let mut order: Vec<OrderBy> = Vec::new();
    for k in keys {
        let expr = columns.get(k.column).filter(|e| order.iter().all(|o| o.expr != **e));
        order.extend(expr.map(|e| OrderBy {
            expr: e.clone(),
            descending: k.descending,
            nulls_first: k.nulls_first,
        }));
    }
    order
}

/// Renders a window function call over the rows of a block. If all order keys are constant, all rows are
/// peers, as without ORDER BY.
pub(crate) fn over(call: &WindowCall, partition: &[usize], order: &[OrderKey], columns: &[Scalar]) -> Scalar {
    let column = |c: usize| columns.get(c).cloned();
    let bound = |b: &Bound, unbounded: FrameBound| match b {
        Bound::Unbounded => unbounded,
        Bound::Preceding(e) => FrameBound::Preceding(scalar(e, &[])),
        Bound::CurrentRow => FrameBound::Current,
        Bound::Following(e) => FrameBound::Following(scalar(e, &[])),
    };
    let frame = (call.frame != WindowFrame::default()).then(|| Frame {
        units: call.frame.units,
        start: bound(&call.frame.start, FrameBound::First),
        end: bound(&call.frame.end, FrameBound::Last),
        exclude: call.frame.exclude,
    });
    Scalar::Over(Box::new(Over {
        call: called(&call.call, columns),
        ranks: call.is_window_function(),
        partition: partition.iter().filter_map(|c| column(*c)).collect(),
        order_by: sorted(order, columns),
        frame,
    }))
}

/// Makes a type of PostgreSQL of which only the name is used.
pub(crate) fn opaque(name: &str) -> OtherType {
    OtherType { sql_name: name.to_owned(), equality: true, hashable: true, ordered: true, exact: true }
}
