//! Compiles a query, and prints the plan, the delta plan, and every statement that keeps the result up to
//! date.
//!
//! ```console
//! $ cargo run -p trickle-core --example explain -- [--format text|dot|mermaid|sql] SCHEMA.sql "SELECT …"
//! ```
//!
//! `SCHEMA.sql` holds CREATE TABLE statements, as `pg_dump --schema-only` writes them. Without arguments, the
//! program uses a small example. The exit code is 1 if the query can only be recomputed, and 2 after bad
//! usage or bad input.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program that prints")]

use std::collections::BTreeSet;
use std::process::ExitCode;
use trickle_core::catalog::MemoryCatalog;
use trickle_core::cdc::Mode;
use trickle_core::graph::Format;
use trickle_core::sql::{ast::Statement, print};
use trickle_core::{Options, Refresh, StreamTable, Verdict, compile};

const USAGE: &str = "usage: explain [--format text|dot|mermaid|sql] SCHEMA.sql \"SELECT …\"";
const SCHEMA: &str = "CREATE TABLE orders (id bigint PRIMARY KEY, region text, amount int)";
const QUERY: &str = "SELECT region, count(*) AS orders, sum(amount) AS total FROM orders GROUP BY region";

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    match run(std::env::args().skip(1).collect()) {
        Ok(code) => code,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::from(2)
        }
    }
}

fn run(mut args: Vec<String>) -> Result<ExitCode, Failure> {
    let mut format = "text".to_owned();
    if args.first().is_some_and(|a| a == "--format") && args.len() > 1 {
        format = args.drain(..2).nth(1).unwrap_or_default();
    }
    let (schema, query) = match args.as_slice() {
        [] => (SCHEMA.to_owned(), QUERY.to_owned()),
        [file, query] => (std::fs::read_to_string(file).map_err(|e| format!("{file}: {e}"))?, query.clone()),
        _ => return Err(USAGE.into()),
    };
    let catalog = MemoryCatalog::from_ddl(&schema)?;
    let table = match compile(&query, &catalog, &Options::new("public", "result"))? {
        Verdict::Incremental(table) => table,
        Verdict::FullRefresh(reasons) => {
            for reason in reasons {
                println!("{reason}");
            }
            return Ok(ExitCode::FAILURE);
        }
    };
    match format.as_str() {
        "text" => {
            plans(&table, Format::Text)?;
            statements(&table)?;
        }
        "sql" => statements(&table)?,
        "dot" => plans(&table, Format::Dot)?,
        "mermaid" => plans(&table, Format::Mermaid)?,
        _ => return Err(USAGE.into()),
    }
    Ok(ExitCode::SUCCESS)
}

fn plans(table: &StreamTable, format: Format) -> Result<(), Failure> {
    println!("-- the query\n{}", table.explain(format));
    println!("-- its delta, when everything it reads changed\n{}", table.explain_delta(None, format)?);
    Ok(())
}

fn statements(table: &StreamTable) -> Result<(), Failure> {
    section("stored tables", &table.ddl());
    for (id, capture) in table.capture(Mode::Statement) {
        section(&format!("capture of table {id}"), &capture);
    }
    let all: BTreeSet<_> = table.sources().into_iter().map(|(t, _)| t.id).collect();
    section("first fill, or full refresh", &table.refresh(Refresh::Replace, &all)?);
    section("refresh by delta", &table.refresh(Refresh::Delta, &all)?);
    if table.has_affected_groups() {
        section("refresh by affected groups", &table.refresh(Refresh::AffectedGroups, &all)?);
    }
    Ok(())
}

fn section(title: &str, statements: &[Statement]) {
    println!("-- {title}");
    for statement in statements {
        println!("{};", print(statement).text);
    }
    println!();
}
