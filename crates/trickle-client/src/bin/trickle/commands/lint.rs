//! `trickle lint`

use super::create::{Consistency, Mode, schedule_of, snapshots_of_header};
use super::{Answer, Run};
use crate::advice::advice;
use crate::failure::Failure;
use crate::finding::{Finding, Place, Severity};
use crate::output::Output;
use crate::script::{Compiled, Query, Script, misspelt};
use std::cmp::Reverse;
use std::collections::HashSet;
use trickle_core::catalog::TableDef;
use trickle_core::parse::{Comment, find_name};
use trickle_core::{Cause, Reason, StreamTable};
use trickle_engine::words::count;

/// Check SQL files without a database: whether each query is incremental, if not why, and what would help.
///
/// Looks at SELECT statements, and at the queries in CREATE VIEW, CREATE MATERIALIZED VIEW and CREATE TABLE …
/// AS. A query may read the result of another one by its name. The name comes from the definition, from a
/// comment "-- name: NAME" before the query, or from the file. Comments "-- schedule: …" and "-- mode: …" are
/// checked too.
///
/// No server is asked. If the schema creates well-known extensions, their types, functions and operators are
/// taken from a list. A query that relies on more than is known without a server is undecided.
///
/// Exit code 0: all queries are incremental; 1: a query is not, or is undecided; 2: a file cannot be read or
/// understood.
#[derive(Debug, clap::Args)]
pub(crate) struct Lint {
    /// SQL files to check; - is standard input.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<String>,
    /// File with CREATE TABLE statements for the tables that the queries read, as pg_dump --schema-only
    /// writes them; may be repeated. Such statements in the checked files count too.
    #[arg(long, value_name = "DDL.sql")]
    schema: Vec<String>,
}

impl Run for Lint {
    async fn run(self, output: &mut Output) -> Result<Answer, Failure> {
        let mut script = Script::default();
        script.read_schemas(&self.schema)?;
        for file in &self.files {
            script.read_queries(file)?;
        }
        script.compile();
        let mut findings = std::mem::take(&mut script.findings);
        for query in script.asked() {
            findings.extend(headers(&script, query));
            findings.extend(judge(&script, query)?);
        }
        findings.extend(script.listed_extensions());
        if self.schema.is_empty() {
            findings.iter_mut().filter(|f| f.code == UNKNOWN_TABLE).for_each(without_schema);
        }
        let mut seen = HashSet::new();
        findings.retain(|f| seen.insert((f.file, f.span.clone(), f.message.clone())));
        findings.sort_by_key(|f| (f.file, f.span.start, f.severity, Reverse(f.span.end)));
        report(&script, &findings, output);
        Ok(match findings.iter().map(|f| f.severity).min() {
            Some(Severity::Error) => Answer::Refused,
            Some(Severity::FullRefresh | Severity::Undecided) => Answer::No,
            _ => Answer::Yes,
        })
    }
}

/// The SQLSTATE of a table that is not defined.
const UNKNOWN_TABLE: &str = "42P01";

/// Adds to a finding the advice to name a file with tables. The finding comes from a run without such a file.
fn without_schema(f: &mut Finding) {
    let help = "No tables were given: pg_dump --schema-only writes them to a file for --schema.";
    f.help = Some(f.help.take().map_or_else(|| help.to_owned(), |h| format!("{h} {help}")));
}

fn report(script: &Script, findings: &[Finding], output: &mut Output) {
    if output.is_json() {
        let all: Vec<_> = findings.iter().map(|f| f.to_json(&script.files)).collect();
        output.document(&all.into());
        return;
    }
    for f in findings {
        if !output.is_quiet() || f.severity <= Severity::Undecided {
            let text = f.render(&script.files, output.colour());
            output.print(text + "\n");
        }
    }
    let all = script.asked().count();
    let good = script.asked().filter(|q| is_incremental(q)).count();
    let open = script.asked().filter(|q| is_undecided(q)).count();
    if !output.is_quiet() && (all > 0 || findings.is_empty()) {
        output.print(match (all, good) {
            (0, _) => "no query found\n".to_owned(),
            (1, 1) => "1 query, incremental\n".to_owned(),
            (1, _) if open == 1 => "1 query, undecided without a server\n".to_owned(),
            _ if open > 0 => {
                let all = count(all, "query", "queries");
                format!("{all}, {good} of them incremental, {open} undecided without a server\n")
            }
            (1, _) => "1 query, not incremental\n".to_owned(),
            (_, 0) => format!("{}, none incremental\n", count(all, "query", "queries")),
            _ if all == good => format!("{}, all incremental\n", count(all, "query", "queries")),
            _ => format!("{}, {good} of them incremental\n", count(all, "query", "queries")),
        });
    }
}

fn is_incremental(query: &Query) -> bool {
    matches!(query.result, Compiled::Incremental(_))
}

/// Whether all reasons against deltas are undecided because no server was asked.
fn is_undecided(query: &Query) -> bool {
    matches!(&query.result, Compiled::FullRefresh(all) if all.iter().all(|r| r.cause == Cause::Undecided))
}

/// Returns the errors in the header comments of a query.
fn headers(script: &Script, query: &Query) -> Vec<Finding> {
    let whole = |c: &Comment| Place { file: query.place.file, span: c.span.start..c.span.end, prefix: 0 };
    let mut found = Vec::new();
    let mut check = |key: &str, is_wrong: &dyn Fn(&str) -> Option<trickle_core::Error>| {
        if let Some((value, comment)) = query.header(key)
            && let Some(e) = is_wrong(value)
        {
            found.push(whole(comment).error(&script.files, &e));
        }
    };
    check("schedule", &|v| schedule_of(v).err());
    check("diamond_consistency", &|v| Consistency::of_header(v).err());
    check("snapshots", &|v| snapshots_of_header(v).err());
    check("mode", &|v| Mode::of_header(v).err());
    found.extend(misspelt(&query.comments).map(|(e, c)| whole(c).error(&script.files, &e)));
    found
}

fn judge(script: &Script, query: &Query) -> Result<Vec<Finding>, Failure> {
    let (files, place) = (&script.files, &query.place);
    Ok(match &query.result {
        Compiled::Wrong(e) => vec![place.error(files, e)],
        Compiled::FullRefresh(reasons) => {
            // If the header asks for mode full, the query gets the mode that it asks for, so the finding is
            // only advice. If the header asks for deltas, the finding is an error.
            let (severity, asked) = match query.header("mode").and_then(|(m, _)| Mode::of_header(m).ok()) {
                Some(Mode::Full) => (Severity::Advice, None),
                Some(Mode::Differential) => (Severity::Error, Some("mode differential asks for deltas.")),
                Some(Mode::Immediate) => (Severity::Error, Some("mode immediate asks for deltas.")),
                _ => (Severity::FullRefresh, None),
            };
            let reason = |r: &Reason| match r.refusal() {
                Some(e) => place.error(files, &e),
                None if r.cause == Cause::Undecided => place.reason(files, r),
                None => Finding { severity, detail: asked.map(str::to_owned), ..place.reason(files, r) },
            };
            reasons.iter().map(reason).collect()
        }
        Compiled::Unknown(name) => {
            let message =
                format!("this query was not looked at, because the columns of \"{name}\" are not known");
            let help = format!("Mend \"{name}\" first.");
            let finding = place.finding(files, None, Severity::Warning, "not-checked", message);
            vec![Finding { help: Some(help), ..finding }]
        }
        Compiled::Incremental(table) => advised(script, query, table)?,
        Compiled::Waiting => Vec::new(),
    })
}

fn advised(script: &Script, query: &Query, table: &StreamTable) -> Result<Vec<Finding>, Failure> {
    let failed = |e: trickle_core::Error| Failure::failed(e.to_string());
    let text = &script.files[query.place.file].text[query.place.span.clone()];
    // The query's own text has no prefix.
    let place = Place { prefix: 0, ..query.place.clone() };
    let mention = |def: &TableDef| find_name(text, &def.name).map_err(failed);
    let mut found = Vec::new();
    let known = |def: &TableDef| script.reach(def);
    for a in advice(table, &known).map_err(failed)? {
        let span = a.table.as_deref().map(mention).transpose()?.flatten();
        let finding = place.finding(&script.files, span, Severity::Advice, a.code, a.message);
        found.push(Finding { label: Some(a.label), help: Some(a.help), ..finding });
    }
    Ok(found)
}
