//! Runs the steps of a case on a server, and judges the results.

use super::script::{Expect, Part, Step};
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use tokio_postgres::{Client, SimpleQueryMessage};
use trickle_core::eval::ZSet;
use trickle_core::types::Type;

/// The numbers of outcomes over many cases.
#[derive(Clone, Default)]
pub(super) struct Counts {
    pub(super) cases: u64,
    /// The number of queries with equal results.
    pub(super) queries: u64,
    pub(super) deltas: u64,
    pub(super) tables: u64,
    /// Cases in which PostgreSQL and the evaluator both raise an error.
    pub(super) both_raise: u64,
    /// Cases in which PostgreSQL and the evaluator raise errors with different SQLSTATEs. The two may
    /// evaluate the rows in different orders.
    pub(super) other_state: u64,
    /// Cases in which only the evaluator raises an error, in a part that PostgreSQL does not evaluate.
    pub(super) only_evaluator: u64,
    /// Cases in which PostgreSQL raises an error and the evaluator does not.
    pub(super) only_server: u64,
    /// Cases in which a delta or refresh raises an error and the query does not. A driver would then
    /// recompute the result.
    pub(super) delta_raises: u64,
}

impl Counts {
    pub(super) fn add(&mut self, other: &Counts) {
        self.cases += other.cases;
        self.queries += other.queries;
        self.deltas += other.deltas;
        self.tables += other.tables;
        self.both_raise += other.both_raise;
        self.other_state += other.other_state;
        self.only_evaluator += other.only_evaluator;
        self.only_server += other.only_server;
        self.delta_raises += other.delta_raises;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} samples: {} queries, {} deltas, {} stored tables as the evaluator has them; raised by both {} ({} with \
             another SQLSTATE), by the evaluator alone {}, by the query on the server alone {}, by a delta alone {}",
            self.cases,
            self.queries,
            self.deltas,
            self.tables,
            self.both_raise,
            self.other_state,
            self.only_evaluator,
            self.only_server,
            self.delta_raises
        )
    }
}

pub(super) type Rows = Vec<Vec<Option<String>>>;

/// Runs a case in a transaction that is rolled back. The steps run in one round trip. After an error they run
/// again, one by one. If `risky` is true, the case may raise errors.
pub(super) async fn run(client: &Client, steps: &[Step], risky: bool) -> Result<Counts, String> {
    let mut counts = Counts { cases: 1, ..Counts::default() };
    let mut sql = String::from("BEGIN");
    for step in steps {
        sql += ";\n";
        sql += &step.sql;
    }
    sql += ";\nROLLBACK";
    match client.simple_query(&sql).await {
        Ok(messages) => {
            let results = results(messages);
            assert_eq!(results.len(), steps.len() + 2, "one result for each statement");
            for (step, rows) in steps.iter().zip(&results[1..]) {
                judge(step, rows, &mut counts)?;
            }
        }
        Err(_) => {
            client.batch_execute("ROLLBACK; BEGIN").await.map_err(|e| e.to_string())?;
            let judged = one_by_one(client, steps, risky, &mut counts).await;
            client.batch_execute("ROLLBACK").await.map_err(|e| e.to_string())?;
            judged?;
        }
    }
    Ok(counts)
}

async fn one_by_one(client: &Client, steps: &[Step], risky: bool, counts: &mut Counts) -> Result<(), String> {
    let mut ended: HashSet<Part> = HashSet::new();
    for step in steps {
        if ended.contains(&step.part) {
            continue;
        }
        client.batch_execute("SAVEPOINT s").await.map_err(|e| e.to_string())?;
        let e = match client.simple_query(&step.sql).await {
            Ok(messages) => {
                judge(step, results(messages).first().unwrap_or(&Rows::new()), counts)?;
                continue;
            }
            Err(e) => e,
        };
        client.batch_execute("ROLLBACK TO s").await.map_err(|e| e.to_string())?;
        let state = e.code().map_or("", |c| c.code()).to_owned();
        let data = state.starts_with("21") || state.starts_with("22");
        if !data || !risky || step.part == Part::Data {
            let message = e.as_db_error().map_or_else(|| e.to_string(), |e| e.message().to_owned());
            return Err(format!("{:?}: {message} ({state})\n{}", step.part, step.sql));
        }
        ended.insert(step.part);
        match (&step.expect, step.part) {
            (Expect::Raise(expected), _) => {
                counts.both_raise += 1;
                counts.other_state += u64::from(*expected != state);
            }
            (_, Part::Query) => counts.only_server += 1,
            _ => counts.delta_raises += 1,
        }
    }
    Ok(())
}

/// Returns the rows of each statement.
pub(super) fn results(messages: Vec<SimpleQueryMessage>) -> Vec<Rows> {
    let (mut all, mut rows) = (Vec::new(), Rows::new());
    for message in messages {
        match message {
            SimpleQueryMessage::Row(row) => {
                rows.push((0..row.len()).map(|i| row.get(i).map(str::to_owned)).collect());
            }
            SimpleQueryMessage::CommandComplete(_) => all.push(std::mem::take(&mut rows)),
            _ => {}
        }
    }
    all
}

pub(super) fn judge(step: &Step, rows: &Rows, counts: &mut Counts) -> Result<(), String> {
    let (expected, types, weighted) = match &step.expect {
        Expect::Done => return Ok(()),
        Expect::Raise(_) => {
            counts.only_evaluator += 1;
            return Ok(());
        }
        Expect::Rows { rows, types, weighted } => (rows, types, *weighted),
    };
    compare(expected, types, weighted, rows)
        .map_err(|difference| format!("{:?} gives another result:\n{difference}{}", step.part, step.sql))?;
    match step.part {
        Part::Query => counts.queries += 1,
        Part::Delta(_) => counts.deltas += 1,
        _ => counts.tables += 1,
    }
    Ok(())
}

/// Compares the expected rows with the found rows by subtracting one from the other.
fn compare(expected: &ZSet, types: &[Type], weighted: bool, found: &Rows) -> Result<(), String> {
    let mut bag: BTreeMap<Vec<Option<String>>, i64> = BTreeMap::new();
    for (row, w) in expected.iter() {
        *bag.entry(row.iter().zip(types).map(|(d, ty)| d.to_text(ty)).collect()).or_default() -= w;
    }
    for row in found {
        let (row, w) = match (weighted, row.split_last()) {
            (true, Some((w, row))) => (row, w.as_deref().unwrap_or("0").parse().unwrap()),
            _ => (row.as_slice(), 1),
        };
        *bag.entry(row.to_vec()).or_default() += w;
    }
    let mut text = String::new();
    for (row, w) in bag.into_iter().filter(|(_, w)| *w != 0) {
        let row: Vec<String> = row.into_iter().map(|v| v.unwrap_or_else(|| "NULL".into())).collect();
        text += &format!("  {w:+} × ({})\n", row.join(", "));
    }
    if text.is_empty() { Ok(()) } else { Err(text) }
}
