//! The printed texts of plans. Each text was reviewed, and was run on PostgreSQL 15.

use super::ast::{Query, Scalar, Select, SelectItem, Statement};
use super::*;
use crate::agg::{Acc, AggCall, resolve};
use crate::error::Result;
use crate::expr::{Expr, ExprKind, FuncSig};
use crate::graph::{Graph, NodeId};
use crate::rel::{
    Accumulate, Consolidate, Distinct, Filter, Join, Map, Negate, OuterJoin, Reduce, SemiJoin, Single, Table,
    Union, Version,
};
use crate::table::{ColumnDef, TableDef, TableId};
use crate::types::{Datum, Interval, Numeric, Type};
use std::sync::Arc;

fn table(id: u32, name: &str, columns: &[(&str, Type, bool)]) -> Table {
    let columns =
        columns.iter().map(|(name, ty, nullable)| ColumnDef::new(*name, ty.clone(), *nullable)).collect();
    let table = TableDef::new(TableId(id), "public", name, columns);
    Table::new(Arc::new(TableDef { keys: vec![vec![0]], ..table }))
}

fn orders() -> Table {
    table(
        16384,
        "orders",
        &[("id", Type::Int4, false), ("customer", Type::Int4, true), ("total", Type::Int4, true)],
    )
}

fn customers() -> Table {
    table(16390, "customers", &[("id", Type::Int4, false), ("region", Type::Text, true)])
}

fn query(graph: &Graph, root: NodeId) -> String {
    let names: Vec<Arc<str>> =
        Names::of(graph.schema(root)).columns.iter().map(|c| c.as_str().into()).collect();
    let sources = BufferSources::new("pgtrickle_changes");
    render_query(graph, root, &sources, &Profile::default(), &names).unwrap().to_string()
}

fn delta(graph: &Graph, root: NodeId) -> String {
    let names: Vec<Arc<str>> =
        Names::of(graph.schema(root)).columns.iter().map(|c| c.as_str().into()).collect();
    let sources = BufferSources::new("pgtrickle_changes");
    render_delta(graph, root, &sources, &Profile::default(), &names).unwrap().to_string()
}

fn joined(g: &mut Graph, left: Table, right: Table) -> Result<NodeId> {
    let (l, r) = (g.add(left)?, g.add(right)?);
    g.add(Join::new(l, r, Expr::column(1, Type::Int4).equals(Expr::column(3, Type::Int4))))
}

#[test]
fn filter_map_and_join_are_one_select() -> Result<()> {
    let mut g = Graph::new();
    let j = joined(&mut g, orders(), customers())?;
    let large = FuncSig::comparison(">", Type::Int4, Type::Int4);
    let big = Expr::literal(Datum::Int(100), Type::Int4);
    let f = g.add(Filter::new(j, Expr::call(large, vec![Expr::column(2, Type::Int4), big])))?;
    let m = Map::columns(f, &g.schema(f).clone(), &[4, 2, 0]);
    let m = g.add(m)?;
    assert_eq!(
        query(&g, m),
        "SELECT customers.region, orders.total, orders.id
FROM public.orders, public.customers
WHERE orders.customer = customers.id
  AND orders.total > 100"
    );
    Ok(())
}

#[test]
fn groups_and_totals() -> Result<()> {
    let mut g = Graph::new();
    let j = joined(&mut g, orders(), customers())?;
    let total = Expr::column(2, Type::Int4);
    let sum = AggCall::new(resolve("sum", &[Type::Int4]).unwrap(), vec![total.clone()]);
    let r = g.add(Reduce::new(j, vec![4], vec![sum, AggCall::count_star()]))?;
    assert_eq!(
        query(&g, r),
        "SELECT customers.region, sum(orders.total) AS sum, count(*) AS count
FROM public.orders, public.customers
WHERE orders.customer = customers.id
GROUP BY 1"
    );
    let d = joined(&mut g, orders().at(Version::Delta), customers())?;
    let a = g.add(Accumulate::new(d, vec![4], vec![Acc::count(None), Acc::sum(total, None)]))?;
    assert_eq!(
        delta(&g, a),
        "WITH delta_orders AS (
  SELECT delta_orders.id, delta_orders.customer, delta_orders.total, delta_orders.w::bigint AS w
  FROM pgtrickle_changes.changes_16384 AS delta_orders
  WHERE delta_orders.xid >= (
      SELECT pg_snapshot_xmin($1::text::pg_snapshot)
    )
    AND CASE WHEN delta_orders.xid = (
      SELECT $2::text::xid8
    ) THEN delta_orders.cmin::text::bigint > $3::bigint WHEN delta_orders.xid >= (
      SELECT pg_snapshot_xmax($1::text::pg_snapshot)
    ) THEN TRUE ELSE NOT pg_visible_in_snapshot(delta_orders.xid, $1::text::pg_snapshot) END
    AND delta_orders.w = delta_orders.w * 1
  UNION ALL
  SELECT
    CASE WHEN floor.n IS NULL THEN NULL::integer END,
    CASE WHEN floor.n IS NULL THEN NULL::integer END,
    CASE WHEN floor.n IS NULL THEN NULL::integer END,
    CASE WHEN floor.n IS NULL THEN NULL::bigint END
  FROM generate_series(1::bigint, $4::bigint) AS floor (n)
  WHERE (
      SELECT FALSE
    )
), changes_by_region AS MATERIALIZED (
  SELECT
    customers.region,
    sum(delta_orders.w)::bigint AS count,
    COALESCE(sum(delta_orders.w * delta_orders.total), 0)::bigint AS sum_total
  FROM delta_orders, public.customers
  WHERE delta_orders.customer = customers.id
  GROUP BY 1
  HAVING sum(delta_orders.w)::bigint <> 0 OR \
COALESCE(sum(delta_orders.w * delta_orders.total), 0)::bigint <> 0
)
SELECT changes_by_region.region, changes_by_region.count, changes_by_region.sum_total, 1::bigint AS w
FROM changes_by_region"
    );
    Ok(())
}

#[test]
fn touched_rows_are_looked_up_by_key_and_null_keys_by_is_null() -> Result<()> {
    let mut g = Graph::new();
    let d = g.add(orders().at(Version::Delta))?;
    let o = g.add(orders())?;
    let keys = Map::columns(o, &g.schema(o).clone(), &[1]);
    let keys = g.add(keys)?;
    let keys = g.add(Distinct::new(keys))?;
    let r = SemiJoin::restrict(&g, o, &[1], keys);
    let r = g.add(r)?;
    assert_eq!(
        query(&g, r),
        "WITH distinct_orders AS (
  SELECT DISTINCT orders.customer
  FROM public.orders
)
SELECT orders.id, orders.customer, orders.total
FROM public.orders, distinct_orders
WHERE orders.customer = distinct_orders.customer
UNION ALL
SELECT orders.id, orders.customer, orders.total
FROM public.orders, distinct_orders
WHERE distinct_orders.customer IS NULL
  AND orders.customer IS NULL"
    );
    assert!(g.props(d).reads_delta);
    Ok(())
}

#[test]
fn the_previous_state_is_one_operand_of_equal_types() -> Result<()> {
    let mut g = Graph::new();
    let b = g.add(customers().at(Version::Before))?;
    let c = g.add(Consolidate::state(b))?;
    assert_eq!(
        query(&g, c),
        "WITH delta_customers AS (
  SELECT delta_customers.id, delta_customers.region, delta_customers.w::bigint AS w
  FROM pgtrickle_changes.changes_16390 AS delta_customers
  WHERE delta_customers.xid >= (
      SELECT pg_snapshot_xmin($1::text::pg_snapshot)
    )
    AND CASE WHEN delta_customers.xid = (
      SELECT $2::text::xid8
    ) THEN delta_customers.cmin::text::bigint > $3::bigint WHEN delta_customers.xid >= (
      SELECT pg_snapshot_xmax($1::text::pg_snapshot)
    ) THEN TRUE ELSE NOT pg_visible_in_snapshot(delta_customers.xid, $1::text::pg_snapshot) END
    AND delta_customers.w = delta_customers.w * 1
  UNION ALL
  SELECT
    CASE WHEN floor.n IS NULL THEN NULL::integer END,
    CASE WHEN floor.n IS NULL THEN NULL::text END,
    CASE WHEN floor.n IS NULL THEN NULL::bigint END
  FROM generate_series(1::bigint, $4::bigint) AS floor (n)
  WHERE (
      SELECT FALSE
    )
), customers_before AS (
  SELECT customers.id, customers.region, 1::bigint AS w
  FROM public.customers
  UNION ALL
  SELECT delta_customers.id, delta_customers.region, -delta_customers.w AS w
  FROM delta_customers
), net_customers_before AS (
  SELECT customers_before.id, customers_before.region, sum(customers_before.w)::bigint AS w
  FROM customers_before
  GROUP BY 1, 2
  HAVING sum(customers_before.w) <> 0
)
SELECT net_customers_before.id, net_customers_before.region
FROM net_customers_before"
    );
    Ok(())
}

#[test]
fn anti_joins_and_outer_joins() -> Result<()> {
    let mut g = Graph::new();
    let (o, c) = (g.add(orders())?, g.add(customers())?);
    let on = Expr::column(1, Type::Int4).equals(Expr::column(3, Type::Int4));
    let not_in = g.add(SemiJoin::anti(o, c, on.clone().is_not_false()))?;
    assert_eq!(
        query(&g, not_in),
        "SELECT orders.id, orders.customer, orders.total
FROM public.orders
WHERE orders.customer NOT IN (
    SELECT customers.id
    FROM public.customers
  )"
    );
    let missing = g.add(SemiJoin::anti(o, c, on.clone()))?;
    assert_eq!(
        query(&g, missing),
        "SELECT orders.id, orders.customer, orders.total
FROM public.orders
WHERE NOT EXISTS (
    SELECT 1
    FROM public.customers
    WHERE orders.customer = customers.id
  )"
    );
    let left = g.add(OuterJoin::left(o, c, on.clone()))?;
    assert_eq!(
        query(&g, left),
        "SELECT orders.id, orders.customer, orders.total, customers.id AS id_2, customers.region
FROM public.orders
  LEFT JOIN public.customers ON orders.customer = customers.id"
    );
    let full = g.add(OuterJoin::full(o, c, Expr::bool(true)))?;
    assert!(query(&g, full).contains("UNION ALL"), "PostgreSQL refuses FULL JOIN without an equality");
    Ok(())
}

#[test]
fn a_second_row_raises_where_the_value_is_read() -> Result<()> {
    let mut g = Graph::new();
    let o = g.add(orders())?;
    let one = Map::columns(o, &g.schema(o).clone(), &[2]);
    let one = g.add(one)?;
    let single = g.add(Single::new(one, 0))?;
    assert_eq!(
        query(&g, single),
        "SELECT
  CASE WHEN count(*) > 1 THEN NULL::integer ELSE (array_agg(orders.total))[1] END AS total,
  count(*) > 1 AS several
FROM public.orders"
    );
    let by = Map::columns(o, &g.schema(o).clone(), &[1, 2]);
    let by = g.add(by)?;
    let single = g.add(Single::new(by, 1))?;
    let whens = vec![(Expr::column(2, Type::Bool), Expr::new(ExprKind::ManyRows, Type::Int4))];
    let kind = ExprKind::Case { whens, otherwise: Expr::column(1, Type::Int4) };
    let read = g.add(Map::new(single, vec![Expr::new(kind, Type::Int4)]))?;
    assert_eq!(
        query(&g, read),
        "WITH single_orders AS (
  SELECT
    orders.customer,
    CASE WHEN count(*) > 1 THEN NULL::integer ELSE (array_agg(orders.total))[1] END AS total,
    count(*) > 1 AS several
  FROM public.orders
  GROUP BY 1
)
SELECT CASE WHEN single_orders.several THEN (
    SELECT NULL::integer
    FROM (
        VALUES (1), (2)
      ) AS two (n)
  ) ELSE single_orders.total END AS total
FROM single_orders"
    );
    Ok(())
}

#[test]
fn a_change_that_is_read_twice_is_computed_once() -> Result<()> {
    let mut g = Graph::new();
    let d = g.add(orders().at(Version::Delta))?;
    let minus = g.add(Negate::new(d))?;
    let both = g.add(Union::new([d, minus]))?;
    let text = delta(&g, both);
    assert_eq!(text.matches("pg_snapshot_xmin").count(), 1, "{text}");
    assert!(text.ends_with("SELECT delta_orders.id, delta_orders.customer, delta_orders.total, -delta_orders.w AS w\nFROM delta_orders"), "{text}");
    Ok(())
}

#[test]
fn a_signed_input_where_a_state_is_needed_is_refused() -> Result<()> {
    let mut g = Graph::new();
    let b = g.add(orders().at(Version::Before))?;
    assert!(g.add(Distinct::new(b)).is_err());
    let d = g.add(orders().at(Version::Delta))?;
    let names: Vec<Arc<str>> = vec!["a".into(), "b".into(), "c".into()];
    let sources = BufferSources::new("s");
    assert!(render_query(&g, d, &sources, &Profile::default(), &names).is_err());
    assert!(render_delta(&g, d, &sources, &Profile::default(), &names[..2]).is_err());
    Ok(())
}

fn text(s: Scalar) -> String {
    let items = vec![SelectItem { expr: s, name: None }];
    let text = Query::select(Select { items, ..Select::default() }).to_string();
    text.trim_start_matches("SELECT ").to_owned()
}

#[test]
fn parentheses_follow_precedence() {
    let c = |n: &str| Scalar::Column { table: None, name: Ident::new(n) };
    let (a, b) = (c("a"), c("b"));
    assert_eq!(text(a.clone().op("-", b.clone().op("-", a.clone()))), "a - (b - a)");
    assert_eq!(text(a.clone().op("-", b.clone()).op("-", a.clone())), "a - b - a");
    assert_eq!(text(a.clone().op("+", b.clone()).op("*", a.clone())), "(a + b) * a");
    assert_eq!(text(a.clone().op("||", b.clone()).op("||", a.clone())), "(a || b) || a");
    assert_eq!(text(a.clone().minus().minus()), "- (-a)");
    assert_eq!(text(Scalar::int4(-1).minus()), "- (-1)");
    assert_eq!(text(Scalar::int4(-1).cast(Type::Int8)), "(-1)::bigint");
    assert_eq!(text(a.clone().equals(b.clone()).negated()), "NOT a = b");
    assert_eq!(text(a.clone().is_null().equals(b.clone())), "(a IS NULL) = b");
    assert_eq!(text(a.clone().equals(b.clone()).is_null()), "a = b IS NULL");
    assert_eq!(text(Scalar::and([Scalar::or([a.clone(), b.clone()]), a.clone()])), "(a OR b) AND a");
    assert_eq!(text(a.clone().equals(b.clone()).cast(Type::Text)), "(a = b)::text");
    let own = Scalar::Operator(Qualified::new("My Ops", "<->"), vec![a.clone(), b]);
    assert_eq!(text(own.op("<", a)), "a OPERATOR(\"My Ops\".<->) b < a");
}

#[test]
fn literals_have_exactly_their_type() {
    let lit = |d: Datum, ty: Type| text(Scalar::Literal(d, ty));
    assert_eq!(lit(Datum::Int(5), Type::Int4), "5");
    assert_eq!(lit(Datum::Int(-5), Type::Int4), "-5");
    assert_eq!(lit(Datum::Int(-2_147_483_648), Type::Int4), "'-2147483648'::integer");
    assert_eq!(lit(Datum::Int(5), Type::Int8), "5::bigint");
    assert_eq!(lit(Datum::text("a'b"), Type::Text), "'a''b'::text");
    assert_eq!(lit(Datum::text("a\\'; DROP"), Type::Text), "E'a\\\\''; DROP'::text");
    assert_eq!(lit(Datum::Bytes(Arc::from([0u8, 255])), Type::Bytea), "E'\\\\x00ff'::bytea");
    assert_eq!(lit(Datum::Float(f64::NAN), Type::Float8), "'NaN'::double precision");
    assert_eq!(lit(Datum::Null, Type::Numeric(Some((4, 1)))), "NULL::numeric(4,1)");
    let cents = Numeric::Finite { unscaled: (-105).into(), scale: 2 };
    assert_eq!(lit(Datum::Numeric(Arc::new(cents)), Type::Numeric(None)), "'-1.05'::numeric");
    let i = Interval { months: -1, days: 2, micros: -3 };
    assert_eq!(lit(Datum::Interval(i), Type::Interval), "'-1 months +2 days -3 microseconds'::interval");
    let array = Datum::Array(Arc::from([Datum::Int(1), Datum::Null]));
    assert_eq!(lit(array, Type::Int4.array()), "ARRAY[1, NULL::integer]::integer[]");
    assert_eq!(lit(Datum::Array(Arc::from([])), Type::Text.array()), "ARRAY[]::text[]");
}

#[test]
fn hostile_names_are_quoted_and_stay_apart() -> Result<()> {
    let mut g = Graph::new();
    let hostile = "w\"; DROP TABLE \"x";
    let t = table(
        1,
        "Group By",
        &[("w", Type::Int4, false), (hostile, Type::Json, true), ("xid", Type::Int4, true)],
    );
    let d = g.add(t.at(Version::Delta))?;
    let net = g.add(Consolidate::change(d))?;
    let text = delta(&g, net);
    assert!(text.contains("\"delta_Group By\"._w AS w,"), "{text}");
    assert!(text.contains("\"delta_Group By\"._xid AS xid,"), "{text}");
    assert!(text.contains("sum(\"delta_Group By\".w_2)::bigint AS w_2"), "{text}");
    assert!(text.contains(".\"w\"\"; DROP TABLE \"\"x\"::text::json AS"), "{text}");
    assert!(text.contains("GROUP BY 1, \"delta_Group By\".\"w\"\"; DROP TABLE \"\"x\"::text, 3"), "{text}");
    Ok(())
}

#[test]
fn functions_named_like_keywords_are_quoted() {
    let f = FuncSig::unknown(None, "left", vec![Type::Text, Type::Int4], Type::Text);
    let args = vec![Expr::literal(Datum::text("x"), Type::Text), Expr::literal(Datum::Int(1), Type::Int4)];
    let call = Expr::new(ExprKind::Call(Arc::new(f), args), Type::Text);
    assert_eq!(text(scalar(&call, &[])), "\"left\"('x'::text, 1)");
}

#[test]
fn trigger_functions_pick_a_tag_that_their_body_lacks() {
    let f = ast::CreateTriggerFunction {
        name: Qualified::new("s", "f"),
        security_definer: true,
        settings: vec![ast::pinned_path()],
        variables: Vec::new(),
        body: vec![ast::Instruction::Run(Statement::Query(Query::select(Select {
            items: vec![SelectItem { expr: Scalar::text("$trickle$"), name: None }],
            ..Select::default()
        })))],
    };
    let text = Statement::CreateTriggerFunction(f).to_string();
    assert!(text.ends_with("END\n$xtrickle$"), "{text}");
}
