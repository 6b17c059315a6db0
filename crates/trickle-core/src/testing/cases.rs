//! The run of a case in memory. The evaluator's result is compared with rows that a person worked out, and
//! the delta is compared with the evaluator's result. Both comparisons are repeated with the query as an
//! input of other operators.

use super::case_file::{Case, Expected, SNAPSHOTS, written};
use super::{Outcome, Sample, check_all, check_properties, check_rewrites};
use crate::agg::{self, AggCall, family};
use crate::catalog::{Catalog, MemoryCatalog, TableDef, TableId};
use crate::error::{Error, Result};
use crate::eval::{self, Clock, Database, Evaluator, ZSet};
use crate::expr::functions::{recordset, value_of};
use crate::expr::{Expr, ExprKind};
use crate::graph::{Format, Graph, NodeId, Schema};
use crate::lower::{Lowered, lower};
use crate::parse::parse_writes;
use crate::rel::{Distinct, Join, OuterJoin, Reduce, Rel, SemiJoin, SetOp, SetOpKind, Table, Union};
use crate::sql;
use crate::stream_table::{Options, Refresh, StreamTable, Verdict, compile};
use crate::types::{Datum, Type};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Returns the states of a case: for each window, the data before the window and the change.
///
/// # Errors
/// Fails if a statement cannot be run, or violates a key or NOT NULL. Fails too if a text is not a time.
pub fn databases(case: &Case, catalog: &MemoryCatalog) -> Result<Vec<Database>> {
    let mut state: BTreeMap<TableId, ZSet> = BTreeMap::new();
    let mut databases = Vec::new();
    let mut then = time(case.time.as_deref(), 0)?;
    let windows = case.windows.iter().map(|w| (&w.change, w.time.as_deref()));
    for (change, now) in std::iter::once((&case.rows, None)).chain(windows) {
        let before = state.clone();
        let clock = Clock { then, now: time(now, then)? };
        then = clock.now;
        for write in parse_writes(change)? {
            let (schema, name) = &write.table;
            let def = catalog
                .table(schema.as_deref(), name)
                .ok_or_else(|| Error::unknown_table(format!("relation \"{name}\" does not exist")))?;
            let queries = write.queries(&def)?;
            let removed = rows(queries.removed.as_deref(), catalog, &state)?;
            let added = rows(queries.added.as_deref(), catalog, &state)?;
            let new = state.get(&def.id).cloned().unwrap_or_default().minus(&removed).plus(&added);
            constraints(&def, &new)?;
            state.insert(def.id, new);
        }
        let mut db = Database { before: before.into_iter().collect(), clock, ..Database::default() };
        for (table, new) in &state {
            let old = db.before.get(table).cloned().unwrap_or_default();
            db.delta.insert(*table, new.minus(&old));
        }
        databases.push(db);
    }
    Ok(databases)
}

/// Reads a time from a text. Returns `else_` if there is no text.
fn time(text: Option<&str>, else_: i64) -> Result<i64> {
    let Some(text) = text else { return Ok(else_) };
    match crate::values::input(text, &Type::Timestamptz)? {
        Datum::Timestamp(t) => Ok(t),
        _ => Err(Error::setting(format!("{text} is no time"))),
    }
}

/// Returns the rows of a query over `state`.
fn rows(sql: Option<&str>, catalog: &dyn Catalog, state: &BTreeMap<TableId, ZSet>) -> Result<ZSet> {
    let Some(sql) = sql else { return Ok(ZSet::new()) };
    match lower(sql, catalog)? {
        Lowered::Query(q) => {
            let before = state.iter().map(|(t, rows)| (*t, rows.clone())).collect();
            eval::eval(&q.graph, q.root, &Database { before, ..Database::default() })
        }
        Lowered::Unsupported(reasons) => {
            let all: Vec<String> = reasons.iter().map(ToString::to_string).collect();
            Err(Error::setting(format!("{sql}: {}", all.join("; "))))
        }
    }
}

/// Fails if a server would not allow the table to have the rows `rows`.
fn constraints(def: &TableDef, rows: &ZSet) -> Result<()> {
    let broken = |what: &str| Err(Error::setting(format!("the rows of \"{}\" break {what}", def.name)));
    if !rows.is_state() {
        return broken("the law that none is negative");
    }
    for (i, column) in def.columns.iter().enumerate() {
        if !column.nullable && rows.iter().any(|(r, _)| r[i].is_null()) {
            return broken("NOT NULL");
        }
    }
    for key in &def.keys {
        let image = rows.map(|r| key.iter().map(|c| r[*c].clone()).collect());
        if image.merged().iter().any(|(_, w)| w > 1) {
            return broken("a key");
        }
    }
    Ok(())
}

impl Case {
    /// Runs the case, and returns the snapshots of this run.
    ///
    /// # Errors
    /// Fails with the first result that differs from the case or breaks a law.
    pub fn run(&self) -> Result<BTreeMap<String, String>, String> {
        let text = |e: Error| e.to_string();
        let catalog = MemoryCatalog::from_ddl(&self.tables).map_err(text)?;
        let one = |name: &str, body: String| Ok(BTreeMap::from([(name.to_owned(), body)]));
        let table = match compile(&self.query, &catalog, &Options::new("public", "st")) {
            Err(e) if e.is_internal() => return Err(e.to_string()),
            Err(e) => return one("error", e.to_string()),
            Ok(Verdict::FullRefresh(reasons)) => {
                let all: Vec<String> = reasons.iter().map(ToString::to_string).collect();
                return one("verdict", all.join("\n"));
            }
            Ok(Verdict::Incremental(table)) => table,
        };
        let query = match lower(&self.query, &catalog).map_err(text)? {
            Lowered::Query(query) => query,
            Lowered::Unsupported(_) => return Err("lowering changed its mind".to_owned()),
        };
        let samples = samples(Sample { graph: query.graph, root: query.root }, &catalog).map_err(text)?;
        let databases = databases(self, &catalog).map_err(text)?;
        let expected =
            std::iter::once(self.first.as_ref()).chain(self.windows.iter().map(|w| Some(&w.expect)));
        for (i, (db, expect)) in databases.iter().zip(expected).enumerate() {
            let place = if i == 0 { "rows:".to_owned() } else { format!("window {i}:") };
            if let (Some(expect), Some((_, query))) = (expect, samples.first()) {
                compare(query, db, expect).map_err(|e| format!("{place} {e}"))?;
            }
            for (name, sample) in &samples {
                laws(sample, db).map_err(|e| format!("{place} {name}: {e}"))?;
            }
            stored(&table, db).map_err(|e| format!("{place} {e}"))?;
        }
        snapshots(&table).map_err(text)
    }

    /// Returns a description of the first snapshot of the file that differs from `found`, if there is one.
    pub fn stale(&self, found: &BTreeMap<String, String>) -> Option<String> {
        let differs = SNAPSHOTS.iter().find(|name| {
            let of = |m: &BTreeMap<String, String>| m.get(**name).map(|s| s.trim().to_owned());
            of(&self.snapshots) != of(found)
        })?;
        let of =
            |m: &BTreeMap<String, String>| m.get(*differs).cloned().unwrap_or_else(|| "(none)".to_owned());
        Some(format!("{differs}: is\n{}\nand was\n{}", of(found), of(&self.snapshots)))
    }
}

/// Whether the evaluator invents the value of an aggregate or function in the query. Only a server then knows
/// the correct result.
fn is_opaque(query: &Sample) -> bool {
    let stands_in = |id| match query.graph.rel(id) {
        Rel::Map(m) => m.exprs().iter().any(has_opaque_call),
        Rel::Filter(f) => has_opaque_call(f.predicate()),
        Rel::Join(j) => has_opaque_call(j.on()),
        Rel::OuterJoin(j) => has_opaque_call(j.on()),
        Rel::SemiJoin(j) => has_opaque_call(j.on()),
        Rel::Expand(e) => e.calls().iter().any(|c| {
            let known = value_of(&c.sig).is_some() || recordset(&c.sig).is_some();
            !known || c.args.iter().any(has_opaque_call)
        }),
        Rel::Reduce(r) => {
            let opaque =
                |call: &AggCall| family(&call.sig).is_opaque(call) || call.exprs().any(has_opaque_call);
            r.aggs().iter().any(opaque)
        }
        _ => false,
    };
    query.graph.reachable(query.root).into_iter().any(stands_in)
}

fn has_opaque_call(e: &Expr) -> bool {
    let mut found = false;
    e.visit(&mut |e| match e.kind() {
        ExprKind::Call(sig, _) if sig.is_comparison() => {}
        ExprKind::Call(sig, _) => found |= value_of(sig).is_none(),
        _ => {}
    });
    found
}

/// Compares the result of the evaluator with rows that a person worked out.
fn compare(query: &Sample, db: &Database, expect: &Expected) -> Result<(), String> {
    if is_opaque(query) {
        return Ok(());
    }
    let found = match eval::eval(&query.graph, query.root, db) {
        Err(e) if e.is_data() => Expected::Error(e.message().to_owned()),
        Err(e) => return Err(e.to_string()),
        Ok(rows) => Expected::Rows(texts(&rows, query.graph.schema(query.root))),
    };
    if &found == expect {
        return Ok(());
    }
    let shown = |e: &Expected| match e {
        Expected::Error(e) => format!("ERROR: {e}"),
        Expected::Rows(rows) => rows.iter().map(|r| written(r)).collect::<Vec<_>>().join("\n"),
    };
    Err(format!("the query gives\n{}\nand should give\n{}", shown(&found), shown(expect)))
}

/// Returns rows as PostgreSQL writes them, sorted. Each row occurs as often as its weight.
fn texts(rows: &ZSet, schema: &Schema) -> Vec<Vec<Option<String>>> {
    let mut texts = Vec::new();
    for (row, w) in rows.iter() {
        let text: Vec<Option<String>> =
            row.iter().zip(schema.columns()).map(|(d, c)| d.to_text(&c.ty)).collect();
        texts.extend(std::iter::repeat_n(text, usize::try_from(w).unwrap_or(0)));
    }
    texts.sort();
    texts
}

fn laws(sample: &Sample, db: &Database) -> Result<(), String> {
    match check_all(sample, db).map_err(|v| v.to_string())? {
        Outcome::QueryRaised => return Ok(()),
        Outcome::Held { .. } | Outcome::DeltaRaised => {}
    }
    check_rewrites(sample, db).map_err(|v| v.to_string())?;
    check_properties(&sample.graph, sample.root, db).map_err(|v| v.to_string())
}

/// Checks that a refresh writes, to each stored table, exactly the change of this table's contents.
fn stored(table: &StreamTable, db: &Database) -> Result<(), String> {
    let (graph, roots) = table.delta(&db.changed()).map_err(|e| e.to_string())?;
    for (stored, root) in table.layout().tables().zip(roots) {
        let mut evaluator = Evaluator::new(&graph, db);
        let parts = (evaluator.eval_before(stored.node), evaluator.eval(root), evaluator.eval(stored.node));
        let (Ok(before), Ok(change), Ok(after)) = parts else { continue };
        if before.plus(&change) != *after {
            return Err(format!(
                "{}: before\n{before}change\n{change}after\n{after}{}",
                stored.name,
                crate::graph::explain(&graph, root, Format::Text)
            ));
        }
    }
    Ok(())
}

/// Returns the plan, the delta for a change of every source, and the statements that apply the delta.
fn snapshots(table: &StreamTable) -> Result<BTreeMap<String, String>> {
    let statements = table.refresh(Refresh::Delta, &table.changing())?;
    let sql: Vec<String> = statements.iter().map(|s| format!("{};", sql::print(s).text)).collect();
    let entries = [
        ("plan", table.explain(Format::Text)),
        ("delta", table.explain_delta(None, Format::Text)?),
        ("sql", sql.join("\n")),
    ];
    Ok(entries.into_iter().map(|(name, body)| (name.to_owned(), body)).collect())
}

/// Returns the query alone, and the query as an input of other operators.
fn samples(query: Sample, catalog: &MemoryCatalog) -> Result<Vec<(&'static str, Sample)>> {
    let mut g = query.graph.clone();
    let q = query.root;
    let mut roots: Vec<(&'static str, NodeId)> = Vec::new();
    let schema = g.schema(q).clone();
    let other = catalog.tables().last().cloned();
    if let Some(other) = other {
        joins(&mut g, q, other, &mut roots)?;
    }
    let count = AggCall::count_star;
    roots.push(("under count(*)", g.add(Reduce::new(q, Vec::new(), vec![count()]))?));
    roots.push(("under UNION ALL", g.add(Union::new([q, q]))?));
    if let Some(key) = (0..schema.len()).find(|c| has_equality(&schema, *c)) {
        let mut aggs = vec![count()];
        let last = schema.len() - 1;
        aggs.extend(["max", "sum"].into_iter().filter_map(|name| {
            let ty = schema.column(last)?.ty.base();
            let numeric = name == "max" || ty.is_number();
            let sig = agg::resolve(name, &[ty]).filter(|_| numeric)?;
            Some(AggCall::new(sig, vec![schema.expr(last)]))
        }));
        roots.push(("under GROUP BY", g.add(Reduce::new(q, vec![key], aggs))?));
    }
    if schema.without_equality().is_none() && !schema.is_empty() {
        let distinct = g.add(Distinct::new(q))?;
        roots.push(("under DISTINCT", distinct));
        roots.push(("under EXCEPT ALL", g.add(SetOp::new(SetOpKind::Except, true, q, distinct))?));
        roots.push(("under count(DISTINCT)", g.add(Reduce::new(distinct, Vec::new(), vec![count()]))?));
    }
    let samples = roots.into_iter().map(|(name, root)| (name, Sample { graph: g.clone(), root }));
    Ok(std::iter::once(("the query", query.clone())).chain(samples).collect())
}

/// Adds joins of `q` with a table. Each join compares the first two columns that can be compared.
fn joins(
    g: &mut Graph,
    q: NodeId,
    other: Arc<TableDef>,
    roots: &mut Vec<(&'static str, NodeId)>,
) -> Result<()> {
    let t = g.add(Table::new(other))?;
    let (left, right) = (g.schema(q).clone(), g.schema(t).clone());
    let pair = (0..left.len())
        .flat_map(|l| (0..right.len()).map(move |r| (l, r)))
        .filter(|(l, r)| has_equality(&left, *l) && left.expr(*l).ty().base() == right.expr(*r).ty().base())
        .min_by_key(|(l, r)| l + r);
    let on = |l: &Schema, i: usize, r: &Schema, j: usize| l.expr(i).equals(r.expr(j).shifted(l.len()));
    let (there, back) = match pair {
        Some((l, r)) => (on(&left, l, &right, r), on(&right, r, &left, l)),
        None => (Expr::bool(true), Expr::bool(true)),
    };
    let made: [(&'static str, Rel); 6] = [
        ("under JOIN", Join::new(q, t, there.clone()).into()),
        ("left of LEFT JOIN", OuterJoin::left(q, t, there.clone()).into()),
        ("right of LEFT JOIN", OuterJoin::left(t, q, back.clone()).into()),
        ("under FULL JOIN", OuterJoin::full(q, t, there).into()),
        ("under EXISTS", SemiJoin::semi(t, q, back.clone()).into()),
        ("under NOT EXISTS", SemiJoin::anti(t, q, back).into()),
    ];
    for (name, rel) in made {
        let root = g.add(rel)?;
        roots.push((name, root));
    }
    Ok(())
}

fn has_equality(schema: &Schema, column: usize) -> bool {
    schema.column(column).is_some_and(|c| c.ty.has_equality())
}
