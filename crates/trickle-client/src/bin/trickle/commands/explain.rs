//! `trickle explain`

use super::status::polled;
use super::{Answer, Run};
use crate::advice::{Advice, Index, ReachOf, advice};
use crate::failure::Failure;
use crate::finding::{Finding, Severity};
use crate::output::{Output, milliseconds};
use crate::query::Typed;
use crate::script::{Compiled, Script};
use crate::server;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use trickle_client::{Explained, Name};
use trickle_core::access::{Access, costs};
use trickle_core::catalog::{TableDef, TableId};
use trickle_core::cdc::Mode;
use trickle_core::graph::{Format as Drawing, Graph, NodeId, explain_json, explain_with};
use trickle_core::sql::ast::Statement;
use trickle_core::sql::{Ident, print};
use trickle_core::{Reason, Refresh, StreamTable};

/// Show how a query is or would be kept up to date: plans, costs, indexes that would help, SQL.
///
/// With --schema no server is needed: the query reads the tables that the files define. Without --schema the
/// query reads the tables of the database, which must have trickle's catalog.
///
/// The text shows the plan of the query, the plan of its delta, how unchanged tables are read, and which
/// indexes would help. --format sql shows the statements.
///
/// In the delta plan, each node has a mark for its cost. A cost marked "Δ" or "probe" grows with the change;
/// a probe looks rows up through an index. A cost marked "whole" grows with all rows.
///
/// Exit code 1: the query can only be recomputed as a whole; the reasons are shown.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("what").args(["name", "query"]).required(true)))]
pub(crate) struct Explain {
    /// Stream table to explain.
    #[arg(add = super::completions::stream_tables())]
    name: Option<String>,
    /// Query to explain.
    #[arg(long, value_name = "SQL", allow_hyphen_values = true)]
    query: Option<String>,
    /// File with CREATE TABLE statements for the tables that the query reads, as pg_dump --schema-only writes
    /// them; may be repeated.
    #[arg(long, value_name = "DDL.sql", conflicts_with = "name")]
    schema: Vec<String>,
    /// Content and format of the output.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// Plans and advice for people.
    Text,
    /// The statements that create, capture, fill, refresh and drop.
    Sql,
    /// Everything, for programs.
    Json,
    /// The delta plan as a Graphviz graph.
    Dot,
    /// The delta plan as a Mermaid flowchart.
    Mermaid,
}

impl Run for Explain {
    async fn run(self, output: &mut Output) -> Result<Answer, Failure> {
        let format = if output.is_json() { Format::Json } else { self.format };
        match (self.name, self.query) {
            (None, Some(query)) if !self.schema.is_empty() => offline(&self.schema, query, format, output),
            (None, Some(query)) => {
                let typed = Typed::new("query", query);
                let (mut trickle, _meter) = server::open(output).await?;
                let explained = trickle.explain_query(typed.text()).await.map_err(|e| typed.refused(e))?;
                online(explained, format, output)
            }
            (Some(name), _) => {
                let name = Name::parse(&name)?;
                let (mut trickle, _meter) = server::open(output).await?;
                online(trickle.explain(&name).await?, format, output)
            }
            (None, None) => Err(Failure::input("nothing is said of what to explain")),
        }
    }
}

/// Explains a query over the tables of a database.
fn online(explained: Explained, format: Format, output: &mut Output) -> Result<Answer, Failure> {
    let typed = Typed::new(&explained.name, explained.query);
    let Some(table) = &explained.table else {
        if format == Format::Json {
            let polled = explained.polled_every.map(milliseconds);
            let reasons = typed.reasons_json(&explained.reasons);
            let sql: serde_json::Map<_, _> = explained
                .recompute
                .iter()
                .map(|(title, texts)| ((*title).to_owned(), json!(texts)))
                .collect();
            output.document(
                &json!({"incremental": false, "reasons": reasons, "polled_every_ms": polled, "sql": sql}),
            );
        } else if format == Format::Sql {
            for r in &explained.reasons {
                let anywhere = Reason { span: None, ..r.clone() }.to_string();
                output.print(format!("-- {}\n", anywhere.replace('\n', "\n-- ")));
            }
            for (title, texts) in &explained.recompute {
                let texts: String = texts.iter().map(|t| format!("{t};\n")).collect();
                output.print(format!("-- {title}\n{texts}\n"));
            }
        } else {
            output.print(typed.reasons(&explained.reasons, output.colour()));
            if let Some(every) = explained.polled_every {
                output.print(format!("\n{}: {}\n", explained.name, polled(every)));
            }
        }
        return Ok(Answer::No);
    };
    let known = |def: &TableDef| explained.reach.get(&def.id).cloned().unwrap_or_default();
    Explanation::of(table, &known).map_err(internal)?.show(format, output).map_err(internal)?;
    if format == Format::Text && !explained.compared.is_empty() {
        let list = explained.compared.join(", ");
        output.print(format!("\nRead as a whole at each refresh, and compared with a copy: {list}\n"));
    }
    Ok(Answer::Yes)
}

/// Explains a query over the tables that files define.
fn offline(schema: &[String], query: String, format: Format, output: &mut Output) -> Result<Answer, Failure> {
    let mut script = Script::default();
    script.read_schemas(schema)?;
    script.add("query", query, false);
    script.compile();
    refuse(&script)?;
    let Some(query) = script.asked().next() else {
        return Err(Failure::input("there is no query").hint("Write a SELECT statement after --query."));
    };
    match &query.result {
        Compiled::Incremental(table) => {
            let known = |def: &TableDef| script.reach(def);
            Explanation::of(table, &known).map_err(internal)?.show(format, output).map_err(internal)?;
            if format == Format::Text {
                for f in script.listed_extensions() {
                    output.print(format!("\nNote: {}\n  {}\n", f.message, f.help.unwrap_or_default()));
                }
            }
            Ok(Answer::Yes)
        }
        Compiled::FullRefresh(reasons) => {
            let found: Vec<Finding> = reasons.iter().map(|r| query.place.reason(&script.files, r)).collect();
            if format == Format::Json {
                let open = found.iter().all(|f| f.severity == Severity::Undecided);
                let found = found.iter().map(|f| f.to_json(&script.files)).collect::<Vec<_>>();
                let incremental = if open { Value::Null } else { Value::Bool(false) };
                output.document(&json!({"incremental": incremental, "reasons": found}));
            } else {
                for f in &found {
                    output.print(f.render(&script.files, output.colour()));
                }
            }
            Ok(Answer::No)
        }
        Compiled::Wrong(_) | Compiled::Unknown(_) | Compiled::Waiting => {
            Err(Failure::failed("the query was not compiled"))
        }
    }
}

fn internal(e: trickle_core::Error) -> Failure {
    Failure::failed(e.to_string())
}

/// Returns an error if the schema or the query is wrong.
fn refuse(script: &Script) -> Result<(), Failure> {
    let wrong = script.asked().filter_map(|q| match &q.result {
        Compiled::Wrong(e) => Some(q.place.error(&script.files, e)),
        Compiled::FullRefresh(reasons) => {
            let refusal = reasons.iter().find_map(Reason::refusal);
            refusal.map(|e| q.place.error(&script.files, &e))
        }
        _ => None,
    });
    let errors: Vec<Finding> =
        script.findings.iter().filter(|f| f.severity == Severity::Error).cloned().chain(wrong).collect();
    if errors.is_empty() {
        return Ok(());
    }
    Err(Failure::found(&errors, &script.files))
}

/// All facts about an incremental query.
struct Explanation<'a> {
    table: &'a StreamTable,
    delta: (Graph, Vec<NodeId>),
    accesses: Vec<Access>,
    advice: Vec<Advice>,
}

impl<'a> Explanation<'a> {
    fn of(table: &'a StreamTable, known: ReachOf<'_>) -> trickle_core::Result<Explanation<'a>> {
        Ok(Explanation {
            table,
            delta: table.delta(&table.changing())?,
            accesses: table.accesses()?,
            advice: advice(table, known)?,
        })
    }

    fn show(&self, format: Format, output: &mut Output) -> trickle_core::Result<()> {
        match format {
            Format::Text => self.text(output),
            Format::Dot => output.print(self.drawn(Drawing::Dot)),
            Format::Mermaid => output.print(self.drawn(Drawing::Mermaid)),
            Format::Sql => {
                for (title, statements) in statements(self.table)? {
                    output.print(format!("-- {title}\n{}\n", text(&statements)));
                }
            }
            Format::Json => output.document(&self.json()?),
        }
        Ok(())
    }

    /// Draws the delta plan of the result, with costs.
    fn drawn(&self, format: Drawing) -> String {
        let (graph, roots) = &self.delta;
        let costs = costs(graph, roots);
        let note = |id| costs.get(&id).map_or("", |c| c.note());
        roots.last().map_or_else(String::new, |root| explain_with(graph, *root, format, &note))
    }

    fn text(&self, output: &mut Output) {
        output.print(format!("The query\n{}\n", indented(&self.table.explain(Drawing::Text))));
        output.print("Its delta, when everything that it reads changed\n");
        output.print(indented(&self.drawn(Drawing::Text)));
        output.print("\nWhat a change reads beside itself\n");
        if self.accesses.is_empty() {
            output.print("  stored results only: no table is read\n");
        }
        for access in &self.accesses {
            output.print(format!("  {}\n", self.access(access)));
        }
        let indexes: Vec<&Index> = self.indexes().collect();
        if !indexes.is_empty() {
            output.print("\nIndexes that would help\n");
            for index in indexes {
                output.print(format!("  {};\n", index.statement));
                output.print(index.gain().map_or_else(String::new, |gain| format!("    {gain}\n")));
            }
        }
        for a in self.advice.iter().filter(|a| a.index.is_none()) {
            output.print(format!("\nNote: {}\n  {}\n", a.message, a.help));
        }
    }

    fn access(&self, access: &Access) -> String {
        let tables = self.names(&access.changed).join(", ");
        let changed = match (tables.is_empty(), access.changed.contains(&TableId::CLOCK)) {
            (_, false) => format!("when {tables} changed"),
            (true, true) => "as time passes".to_owned(),
            (false, true) => format!("when {tables} changed, and as time passes"),
        };
        let name = Ident::new(&access.table.name);
        if access.is_whole() {
            return format!("{name}: all rows, {changed}");
        }
        let list = |columns: &[usize]| {
            let name = |c: &usize| Ident::new(&access.table.columns[*c].name).to_string();
            columns.iter().map(name).collect::<Vec<_>>().join(", ")
        };
        let by =
            Some(format!("looked up by {}", list(&access.columns))).filter(|_| !access.columns.is_empty());
        let range =
            Some(format!("in a range of {}", list(&access.range))).filter(|_| !access.range.is_empty());
        let how: Vec<String> = by.into_iter().chain(range).collect();
        format!("{name}: rows {}, {changed}", how.join(" and "))
    }

    fn names(&self, ids: &BTreeSet<TableId>) -> Vec<String> {
        let sources = self.table.sources();
        sources
            .iter()
            .filter(|(d, _)| ids.contains(&d.id))
            .map(|(d, _)| Ident::new(&d.name).to_string())
            .collect()
    }

    fn indexes(&self) -> impl Iterator<Item = &Index> {
        self.advice.iter().filter_map(|a| a.index.as_ref())
    }

    fn json(&self) -> trickle_core::Result<Value> {
        let (graph, roots) = &self.delta;
        let costs = costs(graph, roots);
        let note = |id| costs.get(&id).map_or("", |c| c.note());
        let delta: Vec<Value> = roots.iter().map(|root| explain_json(graph, *root, &note)).collect();
        let source = |(def, columns): (std::sync::Arc<trickle_core::catalog::TableDef>, Vec<usize>)| {
            let columns: Vec<&str> = columns.iter().map(|c| &*def.columns[*c].name).collect();
            json!({"schema": &*def.schema, "name": &*def.name, "columns": columns})
        };
        let reads = |a: &Access| {
            let names = |of: &[usize]| -> Vec<Value> {
                of.iter().map(|c| Value::from(&*a.table.columns[*c].name)).collect()
            };
            let (columns, range) = (names(&a.columns), names(&a.range));
            let timed = a.changed.contains(&TableId::CLOCK);
            json!({"table": &*a.table.name, "columns": columns, "range": range, "when_changed": self.names(&a.changed), "as_time_passes": timed})
        };
        let advice = |a: &Advice| json!({"code": a.code, "message": a.message, "help": a.help});
        let mut sql = serde_json::Map::new();
        for (title, statements) in statements(self.table)? {
            let texts: Vec<String> = statements.iter().map(|s| print(s).text).collect();
            sql.insert(title.to_owned(), texts.into());
        }
        Ok(json!({
            "incremental": true,
            "reads_clock": self.table.reads_clock(),
            "plan": explain_json(self.table.graph(), self.table.query(), &|_| ""),
            "delta": delta,
            "sources": self.table.sources().into_iter().map(source).collect::<Vec<_>>(),
            "reads": self.accesses.iter().map(reads).collect::<Vec<_>>(),
            "indexes": self.indexes().map(|i| &*i.statement).collect::<Vec<_>>(),
            "gains": self.indexes().map(Index::to_json).collect::<Vec<_>>(),
            "advice": self.advice.iter().map(advice).collect::<Vec<_>>(),
            "sql": sql,
        }))
    }
}

/// Returns all statements that trickle ever runs for a stream table, grouped by occasion.
fn statements(table: &StreamTable) -> trickle_core::Result<Vec<(&'static str, Vec<Statement>)>> {
    let all = table.changing();
    let mut statements = vec![
        ("create", table.ddl()),
        ("capture", table.capture(Mode::Statement).into_iter().flat_map(|(_, s)| s).collect()),
        ("fill", table.refresh(Refresh::Replace, &all)?),
        ("refresh", table.refresh(Refresh::Delta, &all)?),
        ("drop", table.drop_ddl()),
    ];
    if table.has_affected_groups() {
        statements.push(("refresh_of_affected_groups", table.refresh(Refresh::AffectedGroups, &all)?));
    }
    Ok(statements)
}

fn text(statements: &[Statement]) -> String {
    statements.iter().map(|s| format!("{};\n", print(s).text)).collect()
}

fn indented(text: &str) -> String {
    text.lines().map(|l| format!("  {l}\n")).collect()
}
