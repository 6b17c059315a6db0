//! An embedder: its own catalog, and its own driver of the refresh machine.
//!
//! ```console
//! $ cargo run -p trickle-core --example embedder
//! ```
//!
//! The core makes all decisions, but does no I/O. The core asks a [`Catalog`] for the tables, and hands out
//! statements one batch at a time. The embedder sends the statements to a server. In this example, a script
//! takes the place of the server. The script prints every statement, and answers as if three orders had
//! changed since the last refresh.

#![allow(clippy::print_stdout, reason = "a program that prints")]

use std::sync::Arc;
use trickle_core::catalog::{Catalog, ColumnDef, TableDef, TableId};
use trickle_core::cost::{Force, Policy};
use trickle_core::refresh::{
    Answer, Compiled, Kind, Lock, Machine, Member, Outcome, Plan, Relation, Request, Source, Statement, Step,
    Transaction, Value,
};
use trickle_core::types::Type;
use trickle_core::{Options, compile};

/// The tables that the embedder knows, from its own metadata, a configuration file, or a server's catalog.
struct Inventory(Vec<Arc<TableDef>>);

impl Catalog for Inventory {
    fn table(&self, schema: Option<&str>, name: &str) -> Option<Arc<TableDef>> {
        let fits = |t: &&Arc<TableDef>| &*t.name == name && schema.is_none_or(|s| s == &*t.schema);
        self.0.iter().find(fits).cloned()
    }
    fn table_by_id(&self, id: TableId) -> Option<Arc<TableDef>> {
        self.0.iter().find(|t| t.id == id).cloned()
    }
    fn table_names(&self) -> Vec<String> {
        self.0.iter().map(|t| t.name.to_string()).collect()
    }
}

fn inventory() -> Inventory {
    let column = |name: &str, ty, nullable| ColumnDef::new(name, ty, nullable);
    let columns = vec![
        column("id", Type::Int8, false),
        column("region", Type::Text, true),
        column("amount", Type::Int4, true),
    ];
    let orders = TableDef::new(TableId(16_400), "shop", "orders", columns);
    Inventory(vec![Arc::new(TableDef { keys: vec![vec![0]], ..orders })])
}

/// A driver that prints statements and answers them by itself. A real driver sends the statements to a
/// server, and puts an error of the server into the outcome.
struct Script;

impl Script {
    fn run(&mut self, batch: &[Statement]) -> Outcome {
        let answers = batch.iter().map(|s| self.answer(s)).collect();
        Outcome { answers, ..Outcome::default() }
    }

    fn answer(&mut self, statement: &Statement) -> Answer {
        println!("-- {:?}{}", statement.kind, if statement.params.is_empty() { "" } else { ", with:" });
        for (i, value) in statement.params.iter().enumerate() {
            println!("--   ${} = {value:?}", i + 1);
        }
        println!("{};\n", statement.text);
        let rows = match statement.kind {
            Kind::Decide => vec![decided()],
            // The numbers of rows inserted, updated and deleted.
            Kind::Program if statement.fetch => {
                vec![vec![Value::Int8(0), Value::Int8(2), Value::Int8(0)]]
            }
            _ => Vec::new(),
        };
        Answer { affected: rows.len() as u64, rows, micros: 0 }
    }
}

/// Returns the row of the decision query, with the columns that [`trickle_core::refresh::decide_text`]
/// describes.
fn decided() -> Vec<Value> {
    let frontier = r#"{"own":{},"system":"7001","database":16384,"snapshot":"740:740:"}"#;
    vec![
        Value::text("745:746:"),
        Value::text("746"),
        Value::Int8(7001),
        Value::Int8(16_384),
        Value::Int8(1),
        Value::text(frontier),
        Value::Null,
        Value::Int8(4),
        Value::Bool(false),
        Value::Bool(true),
        Value::Int8(16_400),
        Value::Bool(true),
        Value::Int8(100_000),
        Value::Int8(3),
        Value::Null,
        Value::Null,
        Value::text("2026-01-01 12:00:01.000000+00"),
        Value::text("2026-01-01 12:00:00.000000+00"),
        Value::Null,
    ]
}

fn relation(id: u32, schema: &str, name: &str) -> Relation {
    Relation { id: TableId(id), schema: schema.into(), name: name.into() }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let query = "SELECT region, count(*) AS orders, sum(amount) AS total FROM shop.orders GROUP BY region";
    let verdict = compile(query, &inventory(), &Options::new("shop", "totals"))?;
    let table = verdict.incremental().ok_or("the query cannot be maintained incrementally")?;

    let sources = table.sources().into_iter().map(|(def, _)| Source {
        relation: relation(def.id.0, &def.schema, &def.name),
        kind: def.kind,
        changes: Some(relation(17_000, "pgtrickle_changes", &format!("changes_{}", def.id))),
        partitioned: false,
        uncaptured: None,
    });
    let member = Member {
        id: 1,
        relation: relation(16_500, "shop", "totals"),
        sources: sources.collect(),
        program: Arc::new(Compiled::new(table)),
        policy: Policy { force: Some(Force::Incremental), ..Policy::default() },
        definition: None,
        polled: true,
        unseen: None,
        part: None,
        lock: Lock::default(),
        kept_by: None,
        settings: Vec::new(),
    };
    let mut machine = Machine::new(Plan {
        members: vec![member],
        transaction: Transaction::Own { lock_timeout_ms: 1000, statement_timeout_ms: None, attempts: 3 },
        request: Request::default(),
        work_mem: None,
        asked_at: None,
    });

    let mut server = Script;
    let mut outcome = Outcome::start();
    loop {
        match machine.step(outcome) {
            Step::Run(batch) => outcome = server.run(&batch),
            Step::Done(report) => {
                for m in &report.members {
                    println!(
                        "-- {}: {} ({}), {} rows updated",
                        m.name,
                        m.action.name(),
                        m.reason,
                        m.rows_updated
                    );
                }
                return Ok(());
            }
            Step::Fail(failure) => return Err(failure.error.message().into()),
        }
    }
}

#[test]
fn the_example_runs() {
    assert!(main().is_ok());
}
