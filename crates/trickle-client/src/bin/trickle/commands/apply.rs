//! `trickle apply`

use super::create::{Consistency, Mode, schedule_of, snapshots_of_header};
use super::{Answer, Run};
use crate::failure::Failure;
use crate::output::{Output, Tone};
use crate::query::Typed;
use crate::server;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Instant;
use trickle_client::Name;
use trickle_client::declare::{Declared, Plan, Refused, Step, StepAction};
use trickle_core::parse::{StatementKind, statements};
use trickle_engine::words::{count, duration};

/// Make the stream tables of a database equal to the declarations in a directory.
///
/// Each file DIR/NAME.sql holds one query. Comments before the query say how its result is kept:
///
///   -- name: shop.totals          a name other than the file's
///   -- schedule: 30s              a duration, a cron line, calculated (the default) or manual
///   -- mode: auto                 or differential, full, immediate
///   -- diamond_consistency: none  not refreshed together with the stream tables that it reads
///   -- snapshots: on              follow materialized views and foreign tables
///
/// The plan is shown first. A stream table whose query changed stays the same table, with its
/// indexes, grants and views. A stream table whose file was renamed is renamed.
///
/// Some steps need --allow-drop. A stream table whose file is gone is dropped. A stream table whose
/// columns come in another order is made anew. A column that the query has no more is dropped.
///
/// Stream tables that apply did not make are left alone, unless a file declares them.
///
/// Exit code 0: all is as declared, or would be. Exit code 1: something would be destroyed, so
/// nothing was done. Exit code 2: a file is wrong, and nothing was done. Exit code 4, with --dry-run
/// --exit-code: something would be done.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Apply {
    /// Directory with the declarations.
    dir: PathBuf,
    /// Show the plan, and do nothing.
    #[arg(long)]
    dry_run: bool,
    /// With --dry-run: exit with code 4 if anything would be done.
    #[arg(long, requires = "dry_run")]
    exit_code: bool,
    /// Drop tables and columns that are not declared any more, and make tables anew that cannot be changed as
    /// declared.
    #[arg(long)]
    allow_drop: bool,
    /// Name of this set of declarations, which tells it from other sets for the same database.
    #[arg(long, default_value = "default")]
    label: String,
}

/// A file with the query that it declares.
struct File {
    path: String,
    typed: Typed,
}

impl Run for Apply {
    async fn run(self, output: &mut Output) -> Result<Answer, Failure> {
        let (files, skipped) = read_all(&self.dir)?;
        if !skipped.is_empty() && !output.is_quiet() {
            output.remark(&format!(
                "notice: not read, since apply reads the files of one directory: {}\n",
                skipped.join(", ")
            ));
        }
        let declared = files.iter().map(declaration).collect::<Result<Vec<_>, _>>()?;
        let (mut trickle, meter) = server::open(output).await?;
        meter.begin("comparing");
        let refused = |r: Refused| match r.declared.and_then(|at| files.get(at)) {
            Some(file) => file.typed.refused(r.error),
            None => r.error.into(),
        };
        let mut plan = trickle.plan_declared(&declared, &self.label).await.map_err(refused)?;
        plan.may_destroy = self.allow_drop;
        let stopped = plan.destroys() && !self.allow_drop;
        if !output.is_json() && !output.is_quiet() {
            show(&plan, output);
            output.finish()?;
        }
        let mut done = Vec::new();
        if !stopped && !self.dry_run {
            for step in &plan.steps {
                let began = Instant::now();
                meter.begin(format!("{} {}", step.action.name(), step.name));
                trickle.do_step(&plan, step).await.map_err(|r| {
                    output.remark(&after(&done));
                    refused(r)
                })?;
                done.push((step, began.elapsed()));
            }
        }
        drop(trickle);
        drop(meter);
        if output.is_json() {
            output.document(&document(&plan, &files, done.len()));
        } else if !output.is_quiet() {
            for (step, took) in &done {
                output.print(format!("{}: {} in {}\n", step.name, past(&step.action), duration(*took)));
            }
        }
        if stopped {
            let lost = plan.steps.iter().filter(|s| s.destroys()).map(lost);
            output.remark(&format!(
                "nothing was done: {} would be dropped; --allow-drop allows it\n",
                lost.collect::<Vec<_>>().join(", ")
            ));
            return Ok(Answer::No);
        }
        Ok(if self.exit_code && !plan.steps.is_empty() { Answer::Differs } else { Answer::Yes })
    }
}

/// Whether a name begins with a dot, as the directories of version control do.
fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|n| n.to_string_lossy().starts_with('.'))
}

/// Reads the SQL files of a directory, in the order of their names. Also returns the directories inside the
/// directory, whose files are not read.
fn read_all(dir: &Path) -> Result<(Vec<File>, Vec<String>), Failure> {
    let fail = |e: std::io::Error| {
        Failure::input(format!("cannot read \"{}\": {e}", dir.display()))
            .hint("Name a directory with a file NAME.sql for each stream table.")
    };
    let (mut paths, mut skipped) = (Vec::new(), Vec::new());
    for entry in std::fs::read_dir(dir).map_err(fail)? {
        let path = entry.map_err(fail)?.path();
        if path.extension().is_some_and(|e| e == "sql") && path.is_file() {
            paths.push(path);
        } else if path.is_dir() && !is_hidden(&path) {
            skipped.push(path.display().to_string());
        }
    }
    paths.sort();
    skipped.sort();
    let file = |path: PathBuf| {
        let path = path.display().to_string();
        Ok(File { typed: Typed::of_file(&path)?, path })
    };
    Ok((paths.into_iter().map(file).collect::<Result<_, Failure>>()?, skipped))
}

/// Returns the stream table that a file declares.
fn declaration(file: &File) -> Result<Declared, Failure> {
    let refused = |e: trickle_client::Error| file.typed.refused(e);
    let queries = statements(file.typed.text()).map_err(|e| refused(e.into()))?;
    if queries.len() != 1
        || queries.iter().any(|s| !matches!(s.kind, StatementKind::Query | StatementKind::Unknown))
    {
        return Err(Failure::input(format!("{} is to hold one query, and nothing else", file.path))
            .hint("Tables and views are made by other means; each stream table has a file of its own."));
    }
    file.typed.require_known_headers()?;
    let header = |key: &str| file.typed.header(key);
    let wrong = |e: trickle_core::Error| {
        let message = format!("{}: {}", file.path, e.message());
        Failure::from(trickle_client::Error::from(e).saying(message))
    };
    let name = match (header("name"), Path::new(&file.path).file_stem().and_then(|s| s.to_str())) {
        (Some(name), _) => Name::parse(&name)?,
        (None, Some(stem)) => Name { schema: None, name: stem.to_owned() },
        (None, None) => return Err(Failure::input(format!("{} is no name for a table", file.path))),
    };
    let schedule = header("schedule").map(|s| schedule_of(&s)).transpose().map_err(wrong)?;
    let mode = header("mode").map(|m| Mode::of_header(&m)).transpose().map_err(wrong)?;
    let apart =
        header("diamond_consistency").map(|c| Consistency::of_header(&c)).transpose().map_err(wrong)?;
    let snapshots = header("snapshots").map(|s| snapshots_of_header(&s)).transpose().map_err(wrong)?;
    Ok(Declared {
        name,
        query: file.typed.text().to_owned(),
        schedule: schedule.unwrap_or_else(|| Some("calculated".to_owned())),
        mode: mode.map(Into::into).unwrap_or_default(),
        apart: apart.is_some_and(Consistency::is_apart),
        snapshots: snapshots.unwrap_or(false),
    })
}

/// Returns the schedule that a step sets.
fn schedule<'p>(plan: &'p Plan, step: &Step) -> Option<&'p str> {
    let declared = plan.declared.get(step.declared?)?;
    Some(declared.schedule.as_deref().unwrap_or("manual"))
}

/// Shows the plan to people.
fn show(plan: &Plan, output: &mut Output) {
    let row = |s: &Step| {
        let tone = s.destroys().then_some(Tone::Bad);
        let why = match &s.action {
            StepAction::Rename(from) => {
                std::iter::once(format!("from {from}")).chain(s.why.iter().cloned()).collect()
            }
            _ => s.why.clone(),
        };
        [
            (s.action.name().to_owned(), tone),
            (s.name.clone(), None),
            (
                s.mode.map_or("", trickle_client::Mode::name).to_owned(),
                (s.mode == Some(trickle_client::Mode::Full)).then_some(Tone::Warning),
            ),
            (schedule(plan, s).unwrap_or_default().to_owned(), None),
            (why.join("; "), None),
        ]
    };
    if !plan.steps.is_empty() {
        output.table(
            ["to do", "stream table", "mode", "schedule", "why"],
            plan.steps.iter().map(row).collect(),
        );
    }
    let same = count(plan.unchanged.len(), "stream table is", "stream tables are");
    match (plan.steps.len(), plan.unchanged.len()) {
        (0, 0) => output.print("nothing is declared, and nothing is there\n"),
        (0, _) => output.print(format!("{same} as declared\n")),
        (_, 0) => {}
        _ => output.print(format!("{same} as declared already\n")),
    }
}

/// Describes, for people, the objects that a step drops.
fn lost(step: &Step) -> String {
    match step.loses.as_deref() {
        None | Some([]) => step.name.clone(),
        Some(lost) => format!("{} of {}", lost.join(" and "), step.name),
    }
}

fn past(action: &StepAction) -> &'static str {
    match action {
        StepAction::Rename(_) => "renamed",
        StepAction::Create => "created",
        StepAction::Change => "changed",
        StepAction::Remake => "made anew",
        StepAction::Set => "set",
        StepAction::Take => "taken",
        StepAction::Drop => "dropped",
    }
}

/// Lists the steps that were done before the failed step.
fn after(done: &[(&Step, std::time::Duration)]) -> String {
    let names: Vec<String> = done.iter().map(|(s, _)| format!("{} {}", past(&s.action), s.name)).collect();
    if names.is_empty() { String::new() } else { format!("done before: {}\n", names.join(", ")) }
}

/// Returns the plan as JSON, the form for programs. For each step the plan says whether the step was done.
fn document(plan: &Plan, files: &[File], done: usize) -> Value {
    let step = |(i, s): (usize, &Step)| {
        let from = match &s.action {
            StepAction::Rename(from) => Some(from),
            _ => None,
        };
        json!({
            "what": s.action.name(), "name": s.name, "from": from, "mode": s.mode, "schedule": schedule(plan, s), "why": s.why, "done": i < done,
            "destroys": s.destroys(), "loses": s.loses, "file": s.declared.and_then(|at| files.get(at)).map(|f| &f.path),
        })
    };
    json!({
        "steps": plan.steps.iter().enumerate().map(step).collect::<Vec<_>>(),
        "unchanged": plan.unchanged,
    })
}
