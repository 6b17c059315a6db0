//! Tests the laws of the order of values and of Z-sets, and compares operators with results that were worked
//! out by hand.

use super::{Database, Evaluator, Row, ZSet, eval, same_bag};
use crate::agg::{self, Acc, AggCall};
use crate::expr::{Expr, FuncSig};
use crate::graph::{Graph, NodeId};
use crate::rel::{
    Accumulate, Distinct, Filter, Join, Map, Negate, OuterJoin, Positive, Reduce, SemiJoin, SetOp, SetOpKind,
    Single, State, Table, Union, Version,
};
use crate::table::{ColumnDef, TableDef, TableId};
use crate::types::{Datum, Interval, Numeric, Type};
use crate::values::{compare, input};
use proptest::prelude::*;
use std::sync::Arc;

fn datum() -> impl Strategy<Value = Datum> {
    prop_oneof![
        Just(Datum::Null),
        (-3_i64..3).prop_map(Datum::Int),
        (-20_i64..20, 0_u16..3).prop_map(|(n, scale)| {
            Datum::Numeric(Arc::new(Numeric::Finite { unscaled: n.into(), scale }))
        }),
        Just(Datum::Numeric(Arc::new(Numeric::NaN))),
        Just(Datum::Numeric(Arc::new(Numeric::NegInfinity))),
        prop_oneof![Just(0.0), Just(-0.0), Just(f64::NAN), Just(1.5), Just(f64::INFINITY)]
            .prop_map(Datum::Float),
        "[ab]{0,2}".prop_map(Datum::text),
        (-1_i32..2, -30_i32..31)
            .prop_map(|(months, days)| { Datum::Interval(Interval { months, days, micros: 0 }) }),
    ]
}

fn zset() -> impl Strategy<Value = ZSet> {
    proptest::collection::vec((proptest::collection::vec(datum(), 2), -2_i64..3), 0..6)
        .prop_map(|rows| rows.into_iter().map(|(r, w)| (Row::from(r), w)).collect())
}

fn rank(d: &Datum) -> std::mem::Discriminant<Datum> {
    std::mem::discriminant(d)
}

proptest! {
    #[test]
    fn the_order_is_total(a in datum(), b in datum(), c in datum()) {
        prop_assert_eq!(compare(&a, &b), compare(&b, &a).reverse());
        prop_assert!(compare(&a, &a).is_eq());
        // The order is transitive only among values of one type. This is enough, since a column has one type.
        let alike = |x: &Datum, y: &Datum| x.is_null() || y.is_null() || rank(x) == rank(y);
        let one_type = alike(&a, &b) && alike(&a, &c) && alike(&b, &c);
        if one_type && compare(&a, &b).is_le() && compare(&b, &c).is_le() {
            prop_assert!(compare(&a, &c).is_le());
        }
        if a == b {
            prop_assert!(compare(&a, &b).is_eq());
        }
    }

    #[test]
    fn z_sets_form_a_group(a in zset(), b in zset(), c in zset()) {
        prop_assert_eq!(a.plus(&b), b.plus(&a));
        prop_assert_eq!(a.plus(&b).plus(&c), a.plus(&b.plus(&c)));
        prop_assert_eq!(a.plus(&ZSet::new()), a.clone());
        prop_assert!(a.minus(&a).is_empty());
        prop_assert_eq!(a.minus(&b), a.plus(&b.negate()));
        prop_assert_eq!(a.scaled(2), a.plus(&a));
        let first = |r: &[Datum]| Row::from([r[0].clone()]);
        prop_assert_eq!(a.plus(&b).map(first), a.map(first).plus(&b.map(first)));
    }

    #[test]
    fn equal_bags_have_equal_merged_rows(a in zset(), b in zset()) {
        prop_assert!(same_bag(&a, &a.merged()));
        prop_assert_eq!(same_bag(&a, &b), a.merged() == b.merged() || same_bag(&a.minus(&b), &ZSet::new()));
    }
}

/// Makes rows of a table `t(a int, b numeric)` from texts and weights; the text `-` stands for NULL.
fn zset_of(rows: &[(&str, &str, i64)]) -> ZSet {
    let value = |s: &str, ty: &Type| if s == "-" { Datum::Null } else { input(s, ty).expect("a value") };
    rows.iter()
        .map(|(a, b, w)| (Row::from([value(a, &Type::Int4), value(b, &Type::Numeric(None))]), *w))
        .collect()
}

fn table(id: u32) -> Table {
    let column = |name: &str, ty| ColumnDef::new(name, ty, true);
    let columns = vec![column("a", Type::Int4), column("b", Type::Numeric(None))];
    Table::new(Arc::new(TableDef::new(TableId(id), "public", format!("t{id}"), columns)))
}

struct World {
    graph: Graph,
    t: NodeId,
    u: NodeId,
    data: Database,
}

fn world() -> World {
    let mut graph = Graph::new();
    let (t, u) = (graph.add(table(1)).expect("t"), graph.add(table(2)).expect("u"));
    let mut data = Database::default();
    data.before
        .insert(TableId(1), zset_of(&[("1", "1.0", 1), ("1", "1.00", 2), ("2", "-", 1), ("-", "5", 1)]));
    data.before.insert(TableId(2), zset_of(&[("1", "7", 1), ("3", "8", 1), ("-", "9", 1)]));
    data.delta.insert(TableId(1), zset_of(&[("2", "-", -1), ("3", "4", 1)]));
    World { graph, t, u, data }
}

fn on_a(graph: &Graph, l: NodeId, r: NodeId) -> Expr {
    let (l, r) = (graph.schema(l), graph.schema(r));
    l.expr(0).equals(r.expr(0).shifted(l.len()))
}

/// Returns the relation that `node` denotes, as sorted lines.
fn show(w: &World, node: NodeId) -> String {
    eval(&w.graph, node, &w.data).map_or_else(|e| format!("{e}\n"), |z| z.to_string())
}

#[test]
fn tables_and_stored_results_read_their_version() {
    let mut w = world();
    let before = w.graph.add(table(1).at(Version::Before)).expect("before");
    let delta = w.graph.add(table(1).at(Version::Delta)).expect("delta");
    let stored = w.graph.add(State::new(&w.graph, w.t)).expect("state");
    let mut e = Evaluator::new(&w.graph, &w.data);
    let [after, before, delta, stored] = [w.t, before, delta, stored].map(|n| e.eval(n).expect("a result"));
    assert_eq!(*after, before.plus(&delta));
    assert_eq!(stored, before);
    assert_eq!(e.eval_before(w.t).expect("a result"), before);
}

#[test]
fn rows_equal_in_sql_are_one_row_where_it_matters() {
    let mut w = world();
    let distinct = w.graph.add(Distinct::new(w.t)).expect("distinct");
    assert_eq!(show(&w, distinct), "+1 × (NULL, 5)\n+1 × (1, 1.0)\n+1 × (3, 4)\n");
    let calls = vec![AggCall::count_star()];
    let groups = w.graph.add(Reduce::new(w.t, vec![1], calls)).expect("groups");
    assert_eq!(show(&w, groups), "+1 × (4, 1)\n+1 × (5, 1)\n+1 × (1.0, 3)\n");
    let minus = w.graph.add(Negate::new(w.u)).expect("minus");
    let signed = w.graph.add(Union::new([w.t, minus])).expect("signed");
    let positive = w.graph.add(Positive::new(signed)).expect("positive");
    assert_eq!(show(&w, positive), "+1 × (NULL, 5)\n+3 × (1, 1.0)\n+1 × (3, 4)\n");
}

#[test]
fn joins_match_keys_and_pad_the_rest() {
    let mut w = world();
    let on = on_a(&w.graph, w.t, w.u);
    let join = w.graph.add(Join::new(w.t, w.u, on.clone())).expect("join");
    let pairs = "+1 × (1, 1.0, 1, 7)\n+2 × (1, 1.00, 1, 7)\n+1 × (3, 4, 3, 8)\n";
    assert_eq!(show(&w, join), pairs);
    let left = w.graph.add(OuterJoin::left(w.t, w.u, on.clone())).expect("left");
    assert_eq!(show(&w, left), format!("+1 × (NULL, 5, NULL, NULL)\n{pairs}"));
    let full = w.graph.add(OuterJoin::full(w.t, w.u, on.clone())).expect("full");
    let lonely = "+1 × (NULL, NULL, NULL, 9)\n+1 × (NULL, 5, NULL, NULL)\n";
    assert_eq!(show(&w, full), format!("{lonely}{pairs}"));
    let anti = w.graph.add(SemiJoin::anti(w.t, w.u, on.clone())).expect("anti");
    assert_eq!(show(&w, anti), "+1 × (NULL, 5)\n");
    let semi = w.graph.add(SemiJoin::semi(w.t, w.u, on)).expect("semi");
    assert_eq!(show(&w, semi), "+1 × (1, 1.0)\n+2 × (1, 1.00)\n+1 × (3, 4)\n");
}

#[test]
fn set_operations_count_or_not() {
    let mut w = world();
    let twice = w.graph.add(Union::new([w.u, w.u])).expect("twice");
    for (kind, all, expected) in [
        (SetOpKind::Except, true, "+1 × (NULL, 9)\n+1 × (1, 7)\n+1 × (3, 8)\n"),
        (SetOpKind::Except, false, "(no rows)\n"),
        (SetOpKind::Intersect, true, "+1 × (NULL, 9)\n+1 × (1, 7)\n+1 × (3, 8)\n"),
        (SetOpKind::Intersect, false, "+1 × (NULL, 9)\n+1 × (1, 7)\n+1 × (3, 8)\n"),
    ] {
        let op = w.graph.add(SetOp::new(kind, all, twice, w.u)).expect("set operation");
        assert_eq!(show(&w, op), expected, "{kind:?} {all}");
        let expanded = w.graph.node(op).op();
        let expanded = expanded.expand(&mut w.graph.clone());
        assert!(expanded.is_ok());
    }
}

#[test]
fn aggregates_over_groups_and_over_nothing() {
    let mut w = world();
    let b = w.graph.schema(w.t).expr(1);
    let call = |name: &str| {
        AggCall::new(agg::resolve(name, &[Type::Numeric(None)]).expect("an aggregate"), vec![b.clone()])
    };
    let calls: Vec<AggCall> = ["sum", "avg", "min", "max", "count", "array_agg"].map(call).to_vec();
    let all = w.graph.add(Reduce::new(w.t, vec![], calls.clone())).expect("all");
    let expected = "+1 × (12.00, 2.4000000000000000, 1.0, 5, 5, {5,1.0,1.00,1.00,4})\n";
    assert_eq!(show(&w, all), expected);
    let none = w.graph.add(Filter::new(w.t, Expr::bool(false))).expect("none");
    let empty = w.graph.add(Reduce::new(none, vec![], calls)).expect("empty");
    assert_eq!(show(&w, empty), "+1 × (NULL, NULL, NULL, NULL, 0, NULL)\n");
    let delta = w.graph.add(table(1).at(Version::Delta)).expect("delta");
    let sums = vec![Acc::count(None), Acc::sum(b, None)];
    let change = w.graph.add(Accumulate::new(delta, vec![0], sums)).expect("change");
    assert_eq!(show(&w, change), "+1 × (2, -1, 0)\n+1 × (3, 1, 4)\n");
}

#[test]
fn errors_surface_on_rows_that_are_processed() {
    let mut w = world();
    let a = w.graph.schema(w.t).expr(0);
    let int = Type::Int4;
    let divide = FuncSig::operator("/", vec![int.clone(), int.clone()], int.clone());
    let three = Expr::literal(Datum::Int(3), int.clone());
    let minus = FuncSig::operator("-", vec![int.clone(), int.clone()], int);
    let zero = Expr::call(minus, vec![a.clone(), three.clone()]);
    let quotient = Expr::call(divide, vec![three, zero]);
    let map = w.graph.add(Map::new(w.t, vec![quotient.clone()])).expect("map");
    assert_eq!(show(&w, map), "division by zero\n");
    let guard = a.is_null();
    let guarded = Expr::and([guard, quotient.is_not_null()]);
    let filter = w.graph.add(Filter::new(w.t, guarded)).expect("filter");
    assert_eq!(show(&w, filter), "(no rows)\n");
    let single = w.graph.add(Single::new(w.t, 0)).expect("single");
    assert_eq!(show(&w, single), "+1 × (NULL, NULL, t)\n");
    let raise = Expr::new(crate::expr::ExprKind::ManyRows, Type::Int4);
    let whens = vec![(Expr::column(2, Type::Bool), raise)];
    let kind = crate::expr::ExprKind::Case { whens, otherwise: Expr::null(Type::Int4) };
    let value = w.graph.add(Map::new(single, vec![Expr::new(kind, Type::Int4)])).expect("map");
    assert!(eval(&w.graph, value, &w.data).is_err_and(|e| e.sqlstate() == "21000"));
    let none = w.graph.add(Filter::new(w.t, Expr::bool(false))).expect("none");
    let single = w.graph.add(Single::new(none, 0)).expect("single");
    assert_eq!(show(&w, single), "+1 × (NULL, NULL, f)\n");
}
