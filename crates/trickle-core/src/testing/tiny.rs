//! Plans and databases over domains that are small enough to enumerate.

use super::Sample;
use crate::agg::{self, AggCall};
use crate::catalog::{ColumnDef, TableDef, TableId};
use crate::error::Result;
use crate::eval::{Database, Row, ZSet};
use crate::expr::{Expr, FuncSig};
use crate::graph::{Graph, NodeId};
use crate::rel::{
    Distinct, Filter, Fixpoint, Join, Map, Negate, OuterJoin, Positive, Recursion, Reduce, SemiJoin, SetOp,
    SetOpKind, Single, Slice, Step, Table, Top, Union, Window,
};
use crate::types::{Datum, Numeric, Type};
use crate::window::{self, Bound, Exclusion, OrderKey, Units, WindowCall, WindowFrame};
use std::sync::Arc;

fn table(id: u32, columns: &[&str], ty: &Type) -> Arc<TableDef> {
    let columns = columns.iter().map(|c| ColumnDef::new(*c, ty.clone(), true)).collect();
    Arc::new(TableDef::new(TableId(id), "public", if id == 1 { "r" } else { "s" }, columns))
}

fn aggregates(graph: &Graph, input: NodeId, column: usize) -> Vec<AggCall> {
    let arg = graph.schema(input).expr(column);
    let calls = ["count", "sum", "avg", "min", "max", "array_agg"].into_iter().filter_map(|name| {
        let sig = agg::resolve(name, std::slice::from_ref(arg.ty()))?;
        let mut call = AggCall::new(sig, vec![arg.clone()]);
        if name == "array_agg" {
            call.order_by =
                vec![crate::expr::SortKey { expr: arg.clone(), descending: false, nulls_first: false }];
        }
        Some(call)
    });
    [AggCall::count_star()].into_iter().chain(calls).collect()
}

/// Makes each operator over one or two tables of NULLs, zeros and ones, and well-known nestings of operators.
/// Makes the same plans over tables of NULL, 1.0 and 1.00.
///
/// # Errors
/// Fails if a plan breaks an operator's contract.
pub fn small_plans() -> Result<Vec<(String, Sample)>> {
    let mut plans = small_plans_over(&Type::Int4)?;
    plans.extend(small_plans_over(&Type::Numeric(None))?);
    plans.push(("totals that the result shows, of numbers and NaN".into(), shown_totals()?));
    Ok(plans)
}

/// Makes `SELECT count(*), k, sum(v) … GROUP BY k`. The total can be derived from the sum in the result,
/// except where the sum is NaN.
fn shown_totals() -> Result<Sample> {
    let columns =
        vec![ColumnDef::new("k", Type::Int4, true), ColumnDef::new("v", Type::Numeric(Some((4, 1))), false)];
    let mut graph = Graph::new();
    let r = graph.add(Table::new(Arc::new(TableDef::new(TableId(1), "public", "r", columns))))?;
    let sum = aggregates(&graph, r, 1).into_iter().find(|c| &*c.sig.name == "sum");
    let calls = [AggCall::count_star()].into_iter().chain(sum).collect();
    let totals = graph.add(Reduce::new(r, vec![0], calls))?;
    let schema = graph.schema(totals).clone();
    let root = graph.add(Map::columns(totals, &schema, &[1, 0, 2]))?;
    Ok(Sample { graph, root })
}

fn small_plans_over(ty: &Type) -> Result<Vec<(String, Sample)>> {
    let mut plans = Vec::new();
    let mut add = |name: &str,
                   build: &dyn Fn(&mut Graph, NodeId, NodeId) -> Result<NodeId>,
                   columns: &[&str]|
     -> Result<()> {
        let mut graph = Graph::new();
        let r = graph.add(Table::new(table(1, columns, ty)))?;
        let s = graph.add(Table::new(table(2, columns, ty)))?;
        let root = build(&mut graph, r, s)?;
        plans.push((format!("{name} of {ty}"), Sample { graph, root }));
        Ok(())
    };
    rows(&mut add)?;
    groups(&mut add)?;
    joins(&mut add)?;
    other_joins(&mut add)?;
    set_operations(&mut add)?;
    over_subqueries(&mut add)?;
    over_other_operators(&mut add)?;
    Ok(plans)
}

type Build<'a> = &'a dyn Fn(&mut Graph, NodeId, NodeId) -> Result<NodeId>;
type Add<'a> = dyn FnMut(&str, Build<'_>, &[&str]) -> Result<()> + 'a;

fn rows(add: &mut Add<'_>) -> Result<()> {
    add(
        "filter",
        &|g, r, _| {
            let p = is_one(g.schema(r).expr(0));
            g.add(Filter::new(r, p))
        },
        &["k"],
    )?;
    add(
        "map",
        &|g, r, _| {
            let e = g.schema(r).expr(0).is_null();
            g.add(Map::new(r, vec![e]))
        },
        &["k"],
    )?;
    add("distinct", &|g, r, _| g.add(Distinct::new(r)), &["k"])?;
    add(
        "numbered by key",
        &|g, r, _| {
            let window = g.add(Window::new(r, vec![0], by(&[1]), numbers()[..2].to_vec()))?;
            let one = FuncSig::comparison("<=", Type::Int8, Type::Int8);
            let kept = Expr::call(one, vec![g.schema(window).expr(2), Expr::int8(1)]);
            g.add(Filter::new(window, kept))
        },
        &["k", "v"],
    )?;
    add("windows by key", &|g, r, _| g.add(Window::new(r, vec![0], by(&[1]), numbers())), &["k", "v"])?;
    let first = |limit, ties| Slice { offset: 0, limit: Some(limit), ties };
    add("first by key", &|g, r, _| g.add(Top::new(r, vec![0], by(&[1]), first(1, false))), &["k", "v"])?;
    add("first", &|g, r, _| g.add(Top::new(r, vec![], by(&[0]), first(2, false))), &["k"])?;
    add(
        "first with ties",
        &|g, r, _| g.add(Top::new(r, vec![], vec![by(&[1])[0], OrderKey::settling(0)], first(1, true))),
        &["k", "v"],
    )?;
    add("windows", &|g, r, _| g.add(Window::new(r, vec![], by(&[0]), numbers())), &["k"])
}

fn groups(add: &mut Add<'_>) -> Result<()> {
    add(
        "aggregates by key",
        &|g, r, _| {
            let a = aggregates(g, r, 1);
            g.add(Reduce::new(r, vec![0], a))
        },
        &["k", "v"],
    )?;
    add(
        "sum and count by key",
        &|g, r, _| {
            let mut a = aggregates(g, r, 1);
            a.truncate(3);
            g.add(Reduce::new(r, vec![0], a))
        },
        &["k", "v"],
    )?;
    add(
        "scalar aggregates",
        &|g, r, _| {
            let a = aggregates(g, r, 0);
            g.add(Reduce::new(r, vec![], a))
        },
        &["k"],
    )?;
    add(
        "scalar sum and count",
        &|g, r, _| {
            let mut a = aggregates(g, r, 0);
            a.truncate(3);
            g.add(Reduce::new(r, vec![], a))
        },
        &["k"],
    )?;
    add(
        "count distinct with filter",
        &|g, r, _| {
            let mut a = aggregates(g, r, 1).swap_remove(1);
            a.distinct = true;
            a.filter = Some(is_one(g.schema(r).expr(1)).is_not_false());
            g.add(Reduce::new(r, vec![0], vec![a]))
        },
        &["k", "v"],
    )
}

fn by(columns: &[usize]) -> Vec<OrderKey> {
    columns
        .iter()
        .map(|c| OrderKey { column: *c, descending: false, nulls_first: true, settles: false })
        .collect()
}

/// Returns a row number, a rank, and a count of the row and its two neighbours.
fn numbers() -> Vec<WindowCall> {
    let ranking = |name: &str| window::resolve(name, &[]).map(|sig| AggCall::new(sig, Vec::new()));
    let counted = WindowFrame {
        units: Units::Rows,
        start: Bound::Preceding(Expr::int8(1)),
        end: Bound::Following(Expr::int8(1)),
        exclude: Exclusion::NoOthers,
    };
    let framed = WindowCall { call: AggCall::count_star(), frame: counted };
    ["row_number", "rank"]
        .iter()
        .filter_map(|name| ranking(name))
        .map(|call| WindowCall { call, frame: WindowFrame::default() })
        .chain([framed])
        .collect()
}

fn is_one(e: Expr) -> Expr {
    let one = Expr::literal(domain(e.ty(), true)[2].clone(), e.ty().clone());
    e.equals(one)
}

/// Returns `r.k = s.k`, `r.k ≡ s.k`, `r.k < s.k`, `(r.k = s.k) IS NOT FALSE`.
fn conditions(g: &Graph, r: NodeId) -> Vec<(&'static str, Expr)> {
    let (a, b) = (g.schema(r).expr(0), g.schema(r).expr(0).shifted(g.schema(r).len()));
    let less = FuncSig::comparison("<", a.ty().clone(), b.ty().clone());
    vec![
        ("=", a.clone().equals(b.clone())),
        ("≡", a.clone().same_as(b.clone())),
        ("<", Expr::call(less, vec![a.clone(), b.clone()])),
        ("= is not false", a.equals(b).is_not_false()),
    ]
}

fn joins(add: &mut Add<'_>) -> Result<()> {
    for i in 0..4 {
        let on = move |g: &Graph, r: NodeId| conditions(g, r).swap_remove(i).1;
        let name = ["=", "≡", "<", "= is not false"][i];
        add(
            &format!("join {name}"),
            &|g, r, s| {
                let c = on(g, r);
                g.add(Join::new(r, s, c))
            },
            &["k"],
        )?;
        add(
            &format!("semi join {name}"),
            &|g, r, s| {
                let c = on(g, r);
                g.add(SemiJoin::semi(r, s, c))
            },
            &["k"],
        )?;
        add(
            &format!("anti join {name}"),
            &|g, r, s| {
                let c = on(g, r);
                g.add(SemiJoin::anti(r, s, c))
            },
            &["k"],
        )?;
        add(
            &format!("left join {name}"),
            &|g, r, s| {
                let c = on(g, r);
                g.add(OuterJoin::left(r, s, c))
            },
            &["k"],
        )?;
        add(
            &format!("full join {name}"),
            &|g, r, s| {
                let c = on(g, r);
                g.add(OuterJoin::full(r, s, c))
            },
            &["k"],
        )?;
    }
    Ok(())
}

fn other_joins(add: &mut Add<'_>) -> Result<()> {
    add(
        "self join",
        &|g, r, _| {
            let c = on_first(g, r);
            g.add(Join::new(r, r, c))
        },
        &["k"],
    )?;
    add(
        "self anti join",
        &|g, r, _| {
            let c = conditions(g, r).swap_remove(2).1;
            g.add(SemiJoin::anti(r, r, c))
        },
        &["k"],
    )?;
    add("exists, uncorrelated", &|g, r, s| g.add(SemiJoin::semi(r, s, Expr::bool(true))), &["k"])
}

fn set_operations(add: &mut Add<'_>) -> Result<()> {
    add(
        "union",
        &|g, r, s| {
            let u = g.add(Union::new([r, s]))?;
            g.add(Distinct::new(u))
        },
        &["k"],
    )?;
    for (kind, name) in [(SetOpKind::Intersect, "intersect"), (SetOpKind::Except, "except")] {
        for all in [false, true] {
            add(
                &format!("{name}{}", if all { " all" } else { "" }),
                &|g, r, s| g.add(SetOp::new(kind, all, r, s)),
                &["k"],
            )?;
        }
    }
    add(
        "positive part",
        &|g, r, s| {
            let m = g.add(Negate::new(s))?;
            let u = g.add(Union::new([r, m]))?;
            g.add(Positive::new(u))
        },
        &["k"],
    )
}

fn on_first(g: &Graph, r: NodeId) -> Expr {
    conditions(g, r).swap_remove(0).1
}

fn over_subqueries(add: &mut Add<'_>) -> Result<()> {
    add(
        "count over distinct",
        &|g, r, _| {
            let d = g.add(Distinct::new(r))?;
            let a = aggregates(g, d, 0);
            g.add(Reduce::new(d, vec![], a))
        },
        &["k"],
    )?;
    add(
        "count over left join",
        &|g, r, s| {
            let c = on_first(g, r);
            let j = g.add(OuterJoin::left(r, s, c))?;
            let a = aggregates(g, j, 1);
            g.add(Reduce::new(j, vec![0], a))
        },
        &["k"],
    )?;
    add(
        "join with an aggregate",
        &|g, r, s| {
            let a = aggregates(g, s, 0);
            let t = g.add(Reduce::new(s, vec![0], a))?;
            let c = on_first(g, r);
            g.add(Join::new(r, t, c))
        },
        &["k"],
    )?;
    add(
        "anti join with an aggregate",
        &|g, r, s| {
            let t = g.add(Reduce::new(s, vec![0], vec![AggCall::count_star()]))?;
            let two = g.schema(t).expr(1).equals(Expr::int8(1)).negated();
            let t = g.add(Filter::new(t, two))?;
            let c = on_first(g, r);
            g.add(SemiJoin::anti(r, t, c))
        },
        &["k"],
    )?;
    add(
        "scalar subquery",
        &|g, r, s| {
            let a = aggregates(g, s, 0).swap_remove(2);
            let t = g.add(Reduce::new(s, vec![], vec![a]))?;
            let t = g.add(Single::new(t, 0))?;
            g.add(Join::new(r, t, Expr::bool(true)))
        },
        &["k"],
    )?;
    add(
        "scalar subquery of rows",
        &|g, r, s| {
            let t = g.add(Single::new(s, 0))?;
            g.add(Join::new(r, t, Expr::bool(true)))
        },
        &["k"],
    )
}

fn over_other_operators(add: &mut Add<'_>) -> Result<()> {
    for fixpoint in [Fixpoint::All, Fixpoint::Distinct] {
        add(
            &format!("reached {fixpoint:?}"),
            &|g, r, _| {
                // Rows whose key is NULL are roots of the recursion. The other rows are edges from k to v.
                let (k, v) = (g.schema(r).expr(0), g.schema(r).expr(1));
                let roots = g.add(Filter::new(r, k.clone().is_null()))?;
                let base = g.add(Map::new(roots, vec![v.clone()]))?;
                let on = k.shifted(1).equals(Expr::column(0, v.ty().clone()));
                let step = Step { on, exprs: vec![v.shifted(1)] };
                let all = fixpoint == Fixpoint::All || !g.schema(base).is_exact();
                let fixpoint = if all { Fixpoint::All } else { fixpoint };
                g.add(Recursion::new(base, r, step, fixpoint))
            },
            &["k", "v"],
        )?;
    }
    add("one row per key", &|g, r, _| g.add(Single::new(r, 1)), &["k", "v"])?;
    add(
        "except over left join",
        &|g, r, s| {
            let c = on_first(g, r);
            let j = g.add(OuterJoin::left(r, s, c))?;
            let t = g.add(Join::new(r, s, on_first(g, r)))?;
            g.add(SetOp::new(SetOpKind::Except, true, j, t))
        },
        &["k"],
    )
}

/// Makes every pair of a state before and a state after a change, for each table that the sample reads. The
/// tables hold three values. If the sample reads two
/// tables, a table with one column has at most two rows, and a table with two columns has at most one row. If
/// the sample reads one table, these limits are one row higher.
pub fn tiny_databases(sample: &Sample) -> Vec<Database> {
    let mut tables: Vec<Arc<TableDef>> = Vec::new();
    for id in sample.graph.reachable(sample.root) {
        if let crate::rel::Rel::Table(t) = sample.graph.rel(id)
            && !tables.contains(t.def())
        {
            tables.push(t.def().clone());
        }
    }
    let mut all = vec![Database::default()];
    for table in &tables {
        let states =
            states(table, 1 + usize::from(tables.len() == 1) + usize::from(table.columns.len() == 1));
        let mut next = Vec::new();
        for db in &all {
            for before in &states {
                for after in &states {
                    let mut delta = after.clone();
                    delta.add_zset(&before.negate());
                    let mut db = db.clone();
                    db.before.insert(table.id, before.clone());
                    db.delta.insert(table.id, delta);
                    next.push(db);
                }
            }
        }
        all = next;
    }
    all
}

/// Returns NULL and two values of a type: 0 and 1, or 1 written in two ways. For NOT NULL numerics, returns
/// NaN and two numbers.
fn domain(ty: &Type, nullable: bool) -> [Datum; 3] {
    let one =
        |unscaled: i64, scale| Datum::Numeric(Arc::new(Numeric::Finite { unscaled: unscaled.into(), scale }));
    match ty {
        Type::Numeric(_) if !nullable => [Datum::Numeric(Arc::new(Numeric::NaN)), one(10, 1), one(20, 1)],
        Type::Numeric(_) => [Datum::Null, one(10, 1), one(100, 2)],
        _ => [Datum::Null, Datum::Int(0), Datum::Int(1)],
    }
}

/// Makes every bag of at most `rows` rows over the domains of the table's columns.
fn states(table: &TableDef, rows: usize) -> Vec<ZSet> {
    let mut values: Vec<Vec<Datum>> = vec![Vec::new()];
    for column in &table.columns {
        let domain = domain(&column.ty, column.nullable);
        values = values
            .iter()
            .flat_map(|v| domain.iter().map(|d| v.iter().cloned().chain([d.clone()]).collect()))
            .collect();
    }
    let values: Vec<Row> = values.into_iter().map(Row::from).collect();
    let mut bags: Vec<(usize, ZSet)> = vec![(0, ZSet::new())];
    let mut all: Vec<ZSet> = vec![ZSet::new()];
    for _ in 0..rows {
        let mut next = Vec::new();
        for (from, bag) in &bags {
            for (i, value) in values.iter().enumerate().skip(*from) {
                let mut bag = bag.clone();
                bag.add(value.clone(), 1);
                all.push(bag.clone());
                next.push((i, bag));
            }
        }
        bags = next;
    }
    all
}
