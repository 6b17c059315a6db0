//! The statements that the server runs for one sample, and their expected results.

use super::sources::{Namespace, WeightedTables, delta_name, literal, sum, values};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use trickle_core::catalog::TableId;
use trickle_core::eval::{Database, Evaluator, Row, ZSet};
use trickle_core::graph::Graph;
use trickle_core::rel::Rel;
use trickle_core::sql::{Profile, print, render_delta, render_query};
use trickle_core::stream_table::{Options, Refresh, StreamTable};
use trickle_core::testing::{Sample, VARIANTS, delta_plan};
use trickle_core::types::Type;

/// A part of a case. A data error ends all steps of its own part. The steps of other parts still run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Part {
    /// Writes of the test itself.
    Data,
    /// A run of the query itself.
    Query,
    /// The delta of this variant.
    Delta(usize),
    /// The stored tables and their refreshes.
    Table,
}

pub(super) enum Expect {
    /// The statement succeeds.
    Done,
    /// The statement returns these rows in this image. Each row has its weight as the last column, or occurs
    /// as often as its weight says.
    Rows { rows: ZSet, types: Vec<Type>, weighted: bool },
    /// The evaluator raised this SQLSTATE. The statement may raise it too.
    Raise(&'static str),
}

pub(super) struct Step {
    pub(super) sql: String,
    pub(super) part: Part,
    pub(super) expect: Expect,
}

/// Additions to the sample and the first change of a case. Without these additions the case is smaller.
#[derive(Clone, Default)]
pub(super) struct More {
    /// Rows that are inserted and deleted within the first window.
    pub(super) noise: HashMap<TableId, Vec<Row>>,
    /// States of all tables after the first change. A refresh by delta leads to the first of these states,
    /// and a refresh by difference to the second.
    pub(super) later: Vec<HashMap<TableId, ZSet>>,
}

/// A builder of the steps of one case.
pub(super) struct Script<'a> {
    space: &'a Namespace,
    sample: &'a Sample,
    steps: Vec<Step>,
}

type Built<T> = Result<T, String>;

fn text(e: trickle_core::Error) -> String {
    format!("{e} {}", e.detail_text().unwrap_or_default())
}

/// Returns the steps of a case. The deltas of `variants` are also run by themselves. Returns None if the
/// query has too many rows for a test, or an endless recursion, which a server would run for ever.
pub(super) fn script(
    space: &Namespace,
    sample: &Sample,
    db: &Database,
    more: &More,
    variants: &[usize],
) -> Built<Option<Vec<Step>>> {
    let mut s = Script { space, sample, steps: Vec::new() };
    let before: HashMap<TableId, ZSet> = db.before.clone();
    let after = sum(&before, &db.delta);
    let mut states = vec![before, after.clone()];
    states.extend(more.later.iter().cloned());
    let results: Vec<_> = states.iter().map(|state| s.result(state)).collect();
    if results.iter().any(beyond) {
        return Ok(None);
    }
    let raised = results.iter().any(Result::is_err);
    let table = if raised { None } else { Some(s.table()?) };
    if let Some(table) = &table {
        s.rows(&states[0], false);
        for statement in table.ddl() {
            s.push(Part::Table, print(&statement).text, Expect::Done);
        }
        s.refresh(table, Refresh::Replace, &BTreeSet::new(), &states[0])?;
    }
    let changed = s.change(&after, &db.delta, &more.noise, table.is_some());
    s.query(&results[1])?;
    let Some(table) = table else { return Ok(Some(s.steps)) };
    let (old, new) = (results[0].clone().unwrap_or_default(), results[1].clone().unwrap_or_default());
    let change = difference(&new, &old);
    for i in variants {
        s.delta(*i, db, &changed, &change)?;
    }
    s.refresh(&table, Refresh::Delta, &changed, &after)?;
    for (i, state) in more.later.iter().enumerate() {
        let previous = &states[i + 1];
        let delta = space.tables.iter().map(|t| {
            let empty = ZSet::new();
            (t.id, difference(state.get(&t.id).unwrap_or(&empty), previous.get(&t.id).unwrap_or(&empty)))
        });
        let changed = s.change(state, &delta.collect(), &HashMap::new(), true);
        let how = match i {
            0 if table.has_affected_groups() => Refresh::AffectedGroups,
            0 => Refresh::Delta,
            _ => Refresh::Difference,
        };
        s.refresh(&table, how, &changed, state)?;
    }
    Ok(Some(s.steps))
}

/// Whether a result has too many rows for a test.
pub(super) fn beyond(result: &Result<ZSet, trickle_core::Error>) -> bool {
    result.as_ref().is_err_and(|e| e.sqlstate() == "54000")
}

/// Returns `a − b`.
pub(super) fn difference(a: &ZSet, b: &ZSet) -> ZSet {
    let mut out = a.clone();
    for (row, w) in b.iter() {
        out.add(row.clone(), -w);
    }
    out
}

/// Returns a database in this state, without changes.
fn still(state: &HashMap<TableId, ZSet>) -> Database {
    Database { before: state.clone(), ..Database::default() }
}

impl Script<'_> {
    fn push(&mut self, part: Part, sql: String, expect: Expect) {
        self.steps.push(Step { sql, part, expect });
    }

    fn result(&self, state: &HashMap<TableId, ZSet>) -> Result<ZSet, trickle_core::Error> {
        self.sample.eval(&still(state))
    }

    fn names(&self) -> Vec<Arc<str>> {
        (0..self.sample.graph.schema(self.sample.root).len()).map(|i| format!("c{i}").into()).collect()
    }

    fn table(&self) -> Built<StreamTable> {
        let mut options = Options::new(&self.space.schema, "result");
        options.state_schema = self.space.schema.clone();
        options.profile = self.space.profile.clone();
        StreamTable::from_plan(self.sample.graph.clone(), self.sample.root, self.names(), &options)
            .map_err(text)
    }

    /// Adds steps that set the tables to a state.
    fn rows(&mut self, state: &HashMap<TableId, ZSet>, clear: bool) {
        for t in &self.space.tables {
            let name = format!("{}.{}", self.space.schema, t.name);
            if clear {
                self.push(Part::Data, format!("DELETE FROM {name}"), Expect::Done);
            }
            let rows = state.get(&t.id).into_iter().flat_map(ZSet::iter);
            let list: Vec<String> = rows
                .flat_map(|(row, w)| {
                    let one = values(row, &t.columns);
                    std::iter::repeat_n(one, usize::try_from(w).unwrap())
                })
                .collect();
            if !list.is_empty() {
                self.push(Part::Data, format!("INSERT INTO {name} VALUES {}", list.join(", ")), Expect::Done);
            }
        }
    }

    /// Adds steps that set the tables to `state`, and write `delta`, the change to that state, together with
    /// the noise. Returns the tables that have a change.
    fn change(
        &mut self,
        state: &HashMap<TableId, ZSet>,
        delta: &HashMap<TableId, ZSet>,
        noise: &HashMap<TableId, Vec<Row>>,
        clear: bool,
    ) -> BTreeSet<TableId> {
        self.rows(state, clear);
        let mut changed = BTreeSet::new();
        for t in &self.space.tables {
            let name = delta_name(&self.space.schema, t);
            if clear {
                self.push(Part::Data, format!("DELETE FROM {name}"), Expect::Done);
            }
            let mut list = Vec::new();
            let mut add = |row: &Row, w: i64| {
                let one = values(row, &t.columns);
                list.push(format!("{}, {w})", one.trim_end_matches(')')));
            };
            let passing = noise.get(&t.id).map(Vec::as_slice).unwrap_or_default();
            passing.iter().step_by(2).for_each(|row| add(row, 1));
            passing.iter().skip(1).step_by(2).for_each(|row| add(row, -1));
            for (row, w) in delta.get(&t.id).into_iter().flat_map(ZSet::iter) {
                (0..w.abs()).for_each(|_| add(row, w.signum()));
            }
            passing.iter().step_by(2).for_each(|row| add(row, -1));
            passing.iter().skip(1).step_by(2).for_each(|row| add(row, 1));
            if !list.is_empty() {
                changed.insert(t.id);
                self.push(Part::Data, format!("INSERT INTO {name} VALUES {}", list.join(", ")), Expect::Done);
            }
        }
        changed
    }

    fn types(&self, graph: &Graph, node: trickle_core::graph::NodeId) -> Vec<Type> {
        graph.schema(node).columns().iter().map(|c| c.ty.clone()).collect()
    }

    fn query(&mut self, result: &Result<ZSet, trickle_core::Error>) -> Built<()> {
        let (graph, root) = (&self.sample.graph, self.sample.root);
        let sources = WeightedTables::new(self.space);
        let profile = &self.space.profile;
        let query = render_query(graph, root, &sources, profile, &self.names()).map_err(text)?;
        let expect = match result {
            Ok(rows) => Expect::Rows { rows: rows.clone(), types: self.types(graph, root), weighted: false },
            Err(e) if e.is_data() => Expect::Raise(e.sqlstate()),
            Err(e) => return Err(text(e.clone())),
        };
        self.push(Part::Query, query.to_string(), expect);
        Ok(())
    }

    fn delta(&mut self, i: usize, db: &Database, changed: &BTreeSet<TableId>, change: &ZSet) -> Built<()> {
        let variant = &VARIANTS[i];
        let (graph, root) = delta_plan(self.sample, Some(changed.clone()), variant).map_err(text)?;
        let mut evaluator = Evaluator::new(&graph, db);
        let mut sources = WeightedTables::new(self.space);
        let mut ctes = Vec::new();
        for id in graph.reachable(root) {
            let Rel::State(state) = graph.rel(id) else { continue };
            let types = self.types(&graph, state.of());
            let rows = evaluator.eval_before(state.of()).map_err(text)?;
            let name = format!("state {}", state.of().index());
            let columns: Vec<String> = (0..types.len()).map(|i| format!("s{i}")).collect();
            let mut list: Vec<String> = Vec::new();
            for (row, w) in rows.iter() {
                let row: Vec<String> = row.iter().zip(&types).map(|(d, t)| literal(d, t)).collect();
                let one = format!("({})", row.join(", "));
                list.extend(std::iter::repeat_n(one, usize::try_from(w).map_err(|e| e.to_string())?));
            }
            let body = if list.is_empty() {
                let nulls: Vec<String> = types.iter().map(|t| format!("NULL::{}", t.sql_name())).collect();
                format!("SELECT {} WHERE false", nulls.join(", "))
            } else {
                format!("VALUES {}", list.join(", "))
            };
            ctes.push(format!("\"{name}\"({}) AS ({body})", columns.join(", ")));
            sources.states.insert(state.of(), (name, columns));
        }
        let query = render_delta(&graph, root, &sources, &self.space.profile, &self.names())
            .map_err(|e| format!("variant {i}: {}", text(e)))?;
        let with = if ctes.is_empty() { String::new() } else { format!("WITH {}\n", ctes.join(",\n")) };
        let (graph, root) = (&self.sample.graph, self.sample.root);
        let types = self.types(graph, root);
        let expect = Expect::Rows { rows: change.clone(), types, weighted: true };
        self.push(Part::Delta(i), format!("{with}SELECT * FROM (\n{query}\n) q"), expect);
        Ok(())
    }

    /// Adds one refresh of the stored tables, and the comparison of their rows.
    fn refresh(
        &mut self,
        table: &StreamTable,
        how: Refresh,
        changed: &BTreeSet<TableId>,
        state: &HashMap<TableId, ZSet>,
    ) -> Built<()> {
        let sources = WeightedTables::of(self.space, table.layout());
        for statement in table.refresh_from(how, changed, &sources).map_err(text)? {
            let printed = print(&statement);
            if !printed.params.is_empty() {
                return Err("a refresh from plain tables has parameters".into());
            }
            self.push(Part::Table, printed.text, Expect::Done);
        }
        let db = still(state);
        let mut evaluator = Evaluator::new(table.graph(), &db);
        for stored in table.layout().tables() {
            let rows = if stored.node == table.prepared() {
                self.result(state).map_err(text)?
            } else {
                (*evaluator.eval(stored.node).map_err(text)?).clone()
            };
            let types = stored.columns.iter().map(|c| c.ty.clone()).collect();
            let sql = format!("SELECT * FROM {}", stored.name);
            self.push(Part::Table, sql, Expect::Rows { rows, types, weighted: false });
        }
        Ok(())
    }
}

/// Returns the profile of a server.
pub(super) fn profile(major: u32) -> Profile {
    Profile::postgres(major)
}
