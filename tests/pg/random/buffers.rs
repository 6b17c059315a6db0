//! Refreshes from change buffers with frontiers. The test runs the refreshes as a driver does: with bind
//! parameters, and each refresh in one snapshot.

use super::run::{Counts, judge, results};
use super::script::{Expect, Part, Step, beyond, difference};
use super::sources::{Namespace, sum, values};
use super::{Case, Db, drawn, risky};
use std::collections::{BTreeSet, HashMap};
use std::error::Error;
use std::sync::Arc;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{Format, IsNull, ToSql, Type as PgType, to_sql_checked};
use tokio_postgres::{Client, SimpleQueryMessage};
use trickle_core::catalog::{TableDef, TableId};
use trickle_core::eval::{Clock, Database, Row, ZSet};
use trickle_core::expr::Moment;
use trickle_core::sql::ast::Param;
use trickle_core::sql::{BufferSources, Ident, print};
use trickle_core::stream_table::{Options, Refresh, StreamTable};
use trickle_core::testing::Limits;
use trickle_core::types::{Datum, Type};

/// A value in PostgreSQL's text form.
#[derive(Debug)]
struct Text(Option<String>);

impl ToSql for Text {
    fn to_sql(&self, _: &PgType, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        Ok(match &self.0 {
            None => IsNull::Yes,
            Some(text) => {
                out.extend_from_slice(text.as_bytes());
                IsNull::No
            }
        })
    }
    fn accepts(_: &PgType) -> bool {
        true
    }
    fn encode_format(&self, _: &PgType) -> Format {
        Format::Text
    }
    to_sql_checked!();
}

/// The frontier of the last refresh: its snapshot and its transaction.
struct Frontier {
    snapshot: String,
    xid: String,
}

type State = HashMap<TableId, ZSet>;

struct Run<'a> {
    space: &'a Namespace,
    case: &'a Case,
    table: StreamTable,
    refresher: &'a Client,
    /// The time for which the last refresh computed the result.
    time: i64,
    counts: Counts,
}

/// Checks samples that cannot raise an error, on three connections: the refresher and two writers. One of the
/// writers writes before a refresh begins, and commits after that refresh.
pub(super) async fn check(db: &Db, seeds: &[u64]) -> Counts {
    let space = Namespace::new("buffered", db.major());
    let sessions = [db.session().await, db.session().await, db.session().await];
    let [refresher, early, late] = [sessions[0].client(), sessions[1].client(), sessions[2].client()];
    refresher
        .batch_execute("CREATE SCHEMA pgtrickle_changes; SET client_min_messages = error")
        .await
        .unwrap();
    refresher.batch_execute(&space.create()).await.unwrap();
    for t in &space.tables {
        let columns: Vec<String> = t
            .columns
            .iter()
            .map(|c| format!("{} {}", BufferSources::buffer_column(&c.name), c.ty.sql_name()))
            .collect();
        let sql = format!(
            "CREATE TABLE {} (xid xid8 NOT NULL DEFAULT pg_current_xact_id(), w smallint NOT NULL, {})",
            buffer(t),
            columns.join(", ")
        );
        refresher.batch_execute(&sql).await.unwrap();
    }
    let mut counts = Counts::default();
    for &seed in seeds {
        let limits =
            Limits { operators: 1 + (seed % 6) as usize, opaque: false, raising: false, clock: true };
        let case = drawn(&space, seed, &limits, Vec::new());
        if risky(&case.sample) || is_beyond(&case) {
            continue;
        }
        let names = (0..case.sample.graph.schema(case.sample.root).len()).map(|i| format!("c{i}").into());
        let mut options = Options::new("buffered", "result");
        options.profile = space.profile.clone();
        let (graph, root) = (case.sample.graph.clone(), case.sample.root);
        let table = StreamTable::from_plan(graph, root, names.collect(), &options).unwrap();
        let mut run = Run {
            space: &space,
            case: &case,
            table,
            refresher,
            time: case.db.clock.then,
            counts: Counts::default(),
        };
        if let Err(e) = run.go(early, late).await {
            panic!(
                "seed {seed}, from buffers: {e}\n{}",
                trickle_core::testing::reproduction(&case.sample, &case.db)
            );
        }
        counts.add(&run.counts);
        let clear: Vec<String> = space.tables.iter().map(|t| buffer(t)).collect();
        let mut sql = format!("{}; TRUNCATE {}", space.truncate(), clear.join(", "));
        for statement in run.table.drop_ddl() {
            sql += &format!("; {statement}");
        }
        refresher.batch_execute(&sql).await.unwrap();
    }
    counts
}

/// Whether the query has too many rows for a test in one of the states of a refresh, at either time
/// of the clock.
fn is_beyond(case: &Case) -> bool {
    let db = &case.db;
    let (after, half) = (sum(&db.before, &db.delta), half(db));
    let states = [&db.before, &after, &half].into_iter().chain(&case.more.later);
    let clocks = [db.clock, Clock { now: db.clock.then, ..db.clock }];
    states
        .flat_map(|s| clocks.map(|clock| Database { before: s.clone(), clock, ..Database::default() }))
        .any(|db| beyond(&case.sample.eval(&db)))
}

/// Whether the late writer changes this table.
fn is_late(id: TableId) -> bool {
    id.0 <= 2
}

/// Returns the state before the late writer commits.
fn half(db: &Database) -> State {
    let early = db.delta.iter().filter(|(id, _)| !is_late(**id));
    sum(&db.before, &early.map(|(id, z)| (*id, z.clone())).collect())
}

fn buffer(t: &TableDef) -> String {
    format!("pgtrickle_changes.changes_{}", t.id)
}

impl Run<'_> {
    async fn go(&mut self, early: &Client, late: &Client) -> Result<(), String> {
        let db = &self.case.db;
        self.counts.cases = 1;
        early.batch_execute(&self.writes(|_| true, &db.before, &HashMap::new())).await.map_err(text)?;
        let mut frontier = self.refresh(Refresh::Replace, &[], None, &db.before).await?;
        let changed: Vec<TableId> = self.space.tables.iter().map(|t| t.id).collect();
        let noise = &self.case.more.noise;
        late.batch_execute(&format!("BEGIN; {}", self.writes(is_late, &db.delta, noise)))
            .await
            .map_err(text)?;
        early.batch_execute(&self.writes(|id| !is_late(id), &db.delta, noise)).await.map_err(text)?;
        frontier = self.refresh(Refresh::Delta, &changed, Some(&frontier), &half(db)).await?;
        late.batch_execute("COMMIT").await.map_err(text)?;
        let after = sum(&db.before, &db.delta);
        let how = if self.table.has_affected_groups() { Refresh::AffectedGroups } else { Refresh::Delta };
        frontier = self.refresh(how, &changed, Some(&frontier), &after).await?;
        frontier = self.refresh(Refresh::Delta, &changed, Some(&frontier), &after).await?;
        let Some(third) = self.case.more.later.first() else { return Ok(()) };
        let delta = difference_of(&self.space.tables, third, &after);
        early.batch_execute(&self.writes(|_| true, &delta, &HashMap::new())).await.map_err(text)?;
        frontier = self.refresh(Refresh::Difference, &changed, Some(&frontier), third).await?;
        self.refresh(Refresh::Delta, &changed, Some(&frontier), third).await?;
        Ok(())
    }

    /// Returns statements that change tables, and that write their buffers as a trigger does.
    fn writes(
        &self,
        which: impl Fn(TableId) -> bool,
        delta: &State,
        noise: &HashMap<TableId, Vec<Row>>,
    ) -> String {
        let mut sql = String::new();
        for t in self.space.tables.iter().filter(|t| which(t.id)) {
            let name = format!("{}.{}", self.space.schema, t.name);
            let mut images = Vec::new();
            let mut image =
                |row: &Row, w: i64| images.push(format!("({w}, {}", &values(row, &t.columns)[1..]));
            for row in noise.get(&t.id).into_iter().flatten() {
                image(row, -1);
                image(row, 1);
            }
            let empty = ZSet::new();
            let rows = delta.get(&t.id).unwrap_or(&empty);
            for (row, w) in rows.iter() {
                (0..w.abs()).for_each(|_| image(row, w.signum()));
                if w < 0 {
                    let same: Vec<String> = t
                        .columns
                        .iter()
                        .zip(row.iter())
                        .map(|(c, d)| {
                            format!(
                                "\"{}\" IS NOT DISTINCT FROM {}",
                                c.name,
                                super::sources::literal(d, &c.ty)
                            )
                        })
                        .collect();
                    sql += &format!(
                        "DELETE FROM {name} WHERE ctid = ANY (ARRAY(SELECT ctid FROM {name} WHERE {} LIMIT {}));\n",
                        same.join(" AND "),
                        -w
                    );
                }
            }
            for (row, w) in rows.iter().filter(|(_, w)| *w > 0) {
                let one = values(row, &t.columns);
                let all = vec![one; usize::try_from(w).unwrap()];
                sql += &format!("INSERT INTO {name} VALUES {};\n", all.join(", "));
            }
            if !images.is_empty() {
                let columns: Vec<String> =
                    t.columns.iter().map(|c| BufferSources::buffer_column(&c.name).to_string()).collect();
                sql += &format!(
                    "INSERT INTO {} (w, {}) VALUES {};\n",
                    buffer(t),
                    columns.join(", "),
                    images.join(", ")
                );
            }
        }
        sql
    }

    /// Runs one refresh in one snapshot, and compares the stored rows with the evaluator's result.
    async fn refresh(
        &mut self,
        how: Refresh,
        changed: &[TableId],
        low: Option<&Frontier>,
        state: &State,
    ) -> Result<Frontier, String> {
        let client = self.refresher;
        client.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ").await.map_err(text)?;
        let row = client
            .query_one("SELECT pg_current_snapshot()::text, pg_current_xact_id()::text", &[])
            .await
            .map_err(text)?;
        let high = Frontier { snapshot: row.get(0), xid: row.get(1) };
        // The times of successive refreshes go forward and back.
        let clock = self.case.db.clock;
        let then = self.time;
        self.time = if low.is_none() || then == clock.now { clock.then } else { clock.now };
        let clock = Clock { then, now: self.time };
        if low.is_none() {
            for statement in self.table.ddl() {
                client.batch_execute(&print(&statement).text).await.map_err(text)?;
            }
        }
        let passed = (clock.then != clock.now).then_some(TableId::CLOCK);
        let changed: BTreeSet<TableId> = changed.iter().copied().chain(passed).collect();
        for statement in self.table.refresh(how, &changed).map_err(|e| e.to_string())? {
            let printed = print(&statement);
            let params: Vec<Text> = printed
                .params
                .iter()
                .map(|p| match p {
                    Param::FrontierSnapshot(_) => Text(low.map(|f| f.snapshot.clone())),
                    Param::FrontierXid(_) => Text(low.map(|f| f.xid.clone())),
                    Param::FrontierCommand(_) => Text(Some("0".to_owned())),
                    Param::Pending(_) | Param::Value(_) => Text(None),
                    Param::Clock(Moment::Then) => Text(time(clock.then)),
                    Param::Clock(Moment::Now) => Text(time(clock.now)),
                })
                .collect();
            let params: Vec<&(dyn ToSql + Sync)> = params.iter().map(|p| p as _).collect();
            client
                .query(&printed.text, &params)
                .await
                .map_err(|e| format!("{how:?}: {}\n{}", text(e), printed.text))?;
        }
        client.batch_execute("COMMIT").await.map_err(text)?;
        let clock = Clock { then: clock.now, ..clock };
        let db = Database { before: state.clone(), clock, ..Database::default() };
        let sample = &self.case.sample;
        let rows = sample.eval(&db).map_err(|e| e.to_string())?;
        let types = sample.graph.schema(sample.root).columns().iter().map(|c| c.ty.clone()).collect();
        let sql = format!("SELECT * FROM {}.result", Ident::new(&self.space.schema));
        let found: Vec<SimpleQueryMessage> = client.simple_query(&sql).await.map_err(text)?;
        let expect = Expect::Rows { rows, types, weighted: false };
        let step = Step { sql, part: Part::Table, expect };
        let found = results(found);
        judge(&step, found.first().ok_or("no result")?, &mut self.counts)
            .map_err(|e| format!("after {how:?}: {e}"))?;
        Ok(high)
    }
}

/// Returns the change that leads from one state of tables to another.
pub(super) fn difference_of(tables: &[Arc<TableDef>], to: &State, from: &State) -> State {
    let of = |s: &State, t: &TableDef| s.get(&t.id).cloned().unwrap_or_default();
    tables.iter().map(|t| (t.id, difference(&of(to, t), &of(from, t)))).collect()
}

fn time(micros: i64) -> Option<String> {
    Datum::Timestamp(micros).to_text(&Type::Timestamptz)
}

pub(super) fn text(e: tokio_postgres::Error) -> String {
    e.as_db_error().map_or_else(|| e.to_string(), |e| format!("{} ({})", e.message(), e.code().code()))
}
