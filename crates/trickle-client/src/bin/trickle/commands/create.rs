//! `trickle create`

use super::{Answer, Run};
use crate::advice::{Index, indexes};
use crate::colour::stderr_colour;
use crate::failure::Failure;
use crate::output::{Output, milliseconds};
use crate::query::{Source, Typed};
use crate::seeing::bytes;
use crate::server;
use clap::ValueEnum;
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Instant;
use trickle_client::{Created, IfExists, Name, NewStreamTable, RefreshMode, StateSizes, Trickle};
use trickle_core::schedule::Schedule;
use trickle_core::types::Type;
use trickle_engine::words::{count, duration};

/// Create a stream table and fill it.
///
/// A stream table is a table that holds the result of a query. Refreshes keep it up to date: from the changes
/// alone if the query allows that, else by a run of the whole query, with the reasons on standard error.
///
/// Comments before the query in a file may set options: "-- schedule: 5m", "-- mode: full", "-- snapshots:
/// on". trickle lint checks them too. Options on the command line win over these comments.
///
/// Exit code 2: the name, query, schedule or mode is wrong; nothing was changed.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("the query").args(["query", "file"]).required(true)))]
pub(crate) struct Create {
    /// Name of the stream table; without a schema, it goes into the first schema of the search path.
    name: String,
    #[command(flatten)]
    query: Source,
    /// Schedule of refreshes: a duration, a cron line, calculated, or manual [default: calculated, or the
    /// schedule of the stream table that is replaced].
    ///
    /// A duration is written 30s, 5m or 1h30m. A cron line has 5 or 6 fields. A stream table with the
    /// schedule calculated is as fresh as its readers need.
    #[arg(long, value_name = "S", conflicts_with = "no_schedule")]
    schedule: Option<String>,
    /// Refresh the stream table by hand only; the same as --schedule manual.
    #[arg(long)]
    no_schedule: bool,
    /// How the stream table is refreshed [default: auto, or the mode of the stream table that is replaced].
    #[arg(long, value_enum)]
    mode: Option<Mode>,
    /// Whether the stream table shows the same state as the stream tables that it reads [default: atomic, or
    /// as the stream table that is replaced].
    #[arg(long, value_enum, value_name = "WHICH")]
    diamond_consistency: Option<Consistency>,
    /// Follow the materialized views and foreign tables that the query reads, by copies of them.
    ///
    /// Each refresh reads all of their rows, and writes the differences to copies in the schema of buffers;
    /// the differences are the changes. All stream tables with this option share the copies. A stream table
    /// that replaces this one has the option too.
    #[arg(long)]
    snapshots: bool,
    /// Leave the stream table empty; its first refresh fills it.
    #[arg(long)]
    no_initialize: bool,
    /// Do nothing if there is a stream table of this name.
    #[arg(long, conflicts_with = "or_replace")]
    if_not_exists: bool,
    /// If there is a stream table of this name, give it this query; its schedule, mode, indexes, grants,
    /// comments and views stay.
    #[arg(long)]
    or_replace: bool,
}

/// Whether a stream table shows the same state as the stream tables that it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Consistency {
    /// Refreshed in one transaction with the stream tables that it reads, so that all show one state of the
    /// tables below them.
    Atomic,
    /// Refreshed by itself, after the stream tables that it reads and side by side with others. Two stream
    /// tables that it reads may show two different states.
    None,
}

impl Consistency {
    pub(super) fn is_apart(self) -> bool {
        self == Consistency::None
    }

    /// Reads the value of a comment `-- diamond_consistency: …`.
    pub(super) fn of_header(value: &str) -> trickle_core::Result<Consistency> {
        one_of(value, "diamond_consistency")
    }
}

/// Reads the value of `--schedule` or of a comment `-- schedule: …`. Returns the schedule, or `None` for
/// manual.
///
/// # Errors
/// The value is no schedule.
pub(super) fn schedule_of(value: &str) -> trickle_core::Result<Option<String>> {
    if value.eq_ignore_ascii_case("manual") {
        return Ok(None);
    }
    Schedule::parse(value).map(|_| Some(value.to_owned()))
}

/// Reads the value of a comment `-- snapshots: …`.
///
/// # Errors
/// The value is neither on nor off.
pub(super) fn snapshots_of_header(value: &str) -> trickle_core::Result<bool> {
    match value.to_ascii_lowercase().as_str() {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => {
            let e = trickle_core::Error::setting(format!("snapshots \"{value}\" does not exist"));
            Err(e.hint("Use one of on, off."))
        }
    }
}

/// Reads the value of a comment whose key allows only a few values.
fn one_of<V: ValueEnum>(value: &str, what: &str) -> trickle_core::Result<V> {
    V::from_str(value, true).map_err(|_| {
        let names = V::value_variants().iter().filter_map(V::to_possible_value);
        let names: Vec<String> = names.map(|v| v.get_name().to_owned()).collect();
        let e = trickle_core::Error::setting(format!("{what} \"{value}\" does not exist"));
        e.hint(format!("Use one of {}.", names.join(", ")))
    })
}

/// How a stream table is refreshed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Mode {
    /// From the changes if the query allows it, else by a run of the whole query.
    Auto,
    /// From the changes; an error if the query does not allow it.
    Differential,
    /// By a run of the whole query.
    Full,
    /// From the changes, by triggers in the statements that write its sources; an error if the query does not
    /// allow it.
    Immediate,
}

impl Mode {
    /// Reads the value of a comment `-- mode: …`.
    pub(super) fn of_header(value: &str) -> trickle_core::Result<Mode> {
        one_of(value, "mode")
    }
}

impl From<Mode> for RefreshMode {
    fn from(mode: Mode) -> RefreshMode {
        match mode {
            Mode::Auto => RefreshMode::Auto,
            Mode::Differential => RefreshMode::Differential,
            Mode::Full => RefreshMode::Full,
            Mode::Immediate => RefreshMode::Immediate,
        }
    }
}

impl Create {
    /// Returns the stream table that the arguments and the headers of the query's text describe, and the mode
    /// that they name. An argument wins over a header.
    fn wanted(&self, name: Name, typed: &Typed) -> Result<(NewStreamTable, Option<Mode>), Failure> {
        typed.require_known_headers()?;
        let said = typed.header("mode").map(|m| Mode::of_header(&m)).transpose();
        let mode = self.mode.or(said.map_err(trickle_client::Error::from)?);
        let said = self.schedule.clone().or_else(|| typed.header("schedule"));
        let schedule = said.map(|s| schedule_of(&s)).transpose().map_err(trickle_client::Error::from)?;
        let said = typed.header("diamond_consistency").map(|c| Consistency::of_header(&c)).transpose();
        let consistency = self.diamond_consistency.or(said.map_err(trickle_client::Error::from)?);
        let said = typed.header("snapshots").map(|s| snapshots_of_header(&s)).transpose();
        let snapshots = said.map_err(trickle_client::Error::from)?.unwrap_or(false);
        let new = NewStreamTable {
            name,
            query: typed.text().to_owned(),
            schedule: if self.no_schedule { Some(None) } else { schedule },
            mode: mode.map(Into::into),
            initialize: !self.no_initialize,
            if_exists: match (self.if_not_exists, self.or_replace) {
                (true, _) => IfExists::Skip,
                (false, true) => IfExists::Replace,
                (false, false) => IfExists::Fail,
            },
            snapshots: self.snapshots || snapshots,
            apart: consistency.map(Consistency::is_apart),
            settings: None,
            agreed: None,
        };
        Ok((new, mode))
    }
}

impl Run for Create {
    async fn run(self, output: &mut Output) -> Result<Answer, Failure> {
        let name = Name::parse(&self.name)?;
        let Some(typed) = self.query.read()? else { return Err(Failure::input("there is no query")) };
        let (new, mode) = self.wanted(name, &typed)?;
        let (mut trickle, meter) = server::open(output).await?;
        let started = Instant::now();
        meter.begin(format!("creating {}", new.name));
        let made = trickle.create(&new).await.map_err(|e| typed.refused(e))?;
        let took = started.elapsed();
        let rows = if made.made && new.initialize { filled(&trickle, &made).await? } else { None };
        let told = if made.made { Some(Told::of(&mut trickle, &made).await) } else { None };
        // The stream table was made before this point, so an error here does not mean that its creation
        // failed.
        if let Some(Err(e)) = &told {
            let e = e.render(stderr_colour());
            output.remark(&format!("notice: indexes that would help {} are not known\n{e}", made.name));
        }
        let told = told.and_then(Result::ok);
        drop(trickle);
        drop(meter);
        if mode.is_none_or(|m| m == Mode::Auto) {
            notice(&made, &typed, output);
        }
        if output.is_json() {
            let told = told.as_ref();
            output.document(&json!({"name": made.name, "created": made.made, "mode": made.mode,
                "reasons": typed.reasons_json(&made.reasons), "rows": rows, "ms": milliseconds(took),
                "indexes": told.map(|t| t.indexes.iter().map(|(_, i)| i.to_json()).collect::<Vec<_>>()),
                "hidden_tables": told.map(|t| t.states.tables), "hidden_bytes": told.map(|t| t.states.bytes),
                "settings": told.map(|t| t.settings.iter().cloned().collect::<BTreeMap<_, _>>())}));
        } else if !output.is_quiet() {
            output.print(format!(
                "{}: {}\n",
                made.name,
                match (made.made, rows) {
                    (false, _) if self.or_replace => "it has this query, and keeps its rows".to_owned(),
                    (false, _) => "there already, nothing was changed".to_owned(),
                    (true, Some(n)) => format!("{}, {} in {}", made.mode, rows_of(n), duration(took)),
                    (true, None) => format!("{}, empty until its first refresh", made.mode),
                }
            ));
            told.iter().flat_map(Told::lines).for_each(|line| output.print(format!("  {line}\n")));
        }
        Ok(Answer::Yes)
    }
}

/// Facts about a new stream table that its user should know.
struct Told {
    states: StateSizes,
    indexes: Vec<(String, Index)>,
    settings: Vec<(String, String)>,
}

/// The number of rows of a table from which an index is worth its upkeep.
const LARGE: f64 = 1000.0;
/// The greatest number of indexes that are shown. `trickle explain` shows all.
const SHOWN: usize = 3;

impl Told {
    async fn of(trickle: &mut Trickle, made: &Created) -> Result<Told, Failure> {
        let name = Name::parse(&made.name)?;
        let explained = trickle.explain(&name).await?;
        let mut indexes = indexes(&explained).map_err(trickle_client::Error::from)?;
        indexes.retain(|(_, i)| i.reads.is_none_or(|rows| rows >= LARGE));
        let e = trickle.find(&name).await?;
        let reads_time = explained.table.iter().flat_map(|t| t.sources()).any(|(def, columns)| {
            columns.iter().filter_map(|c| def.columns.get(*c)).any(|c| c.ty == Type::Timestamptz)
        });
        let searches = ["tsvector", "tsquery"].iter().any(|word| e.query.contains(word));
        let matter = [("TimeZone", reads_time), ("default_text_search_config", searches)];
        let settings = e.settings.iter().filter(|s| matter.contains(&(s.name.as_str(), true)));
        let settings = settings.map(|s| (s.name.clone(), s.values.concat())).collect();
        Ok(Told { states: trickle.state_sizes(made.id).await?, indexes, settings })
    }

    fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.states.tables > 0 {
            let tables = usize::try_from(self.states.tables).unwrap_or(0);
            let tables = count(tables, "hidden table", "hidden tables");
            lines.push(format!("its refreshes keep {} in {tables} beside it", bytes(self.states.bytes)));
        }
        for (name, value) in &self.settings {
            lines.push(format!("its query keeps {name} = '{value}', whatever the setting is later"));
        }
        for (_, index) in self.indexes.iter().take(SHOWN) {
            lines.push(format!("an index would make its refreshes cheaper: {}", index.statement));
        }
        if self.indexes.len() > SHOWN {
            lines.push(format!("trickle explain shows {} more", self.indexes.len() - SHOWN));
        }
        lines
    }
}

fn rows_of(n: i64) -> String {
    count(usize::try_from(n).unwrap_or(0), "row", "rows")
}

/// Returns the number of rows that the first refresh wrote.
async fn filled(trickle: &Trickle, made: &Created) -> Result<Option<i64>, Failure> {
    let history = trickle.history(&Name::parse(&made.name)?, 1).await?;
    Ok(history.first().and_then(|h| h.rows_inserted))
}

/// Writes the reasons why every refresh recomputes a stream table to standard error.
pub(super) fn notice(made: &Created, typed: &Typed, output: &Output) {
    if made.reasons.is_empty() || output.is_quiet() {
        return;
    }
    let drawn = typed.reasons(&made.reasons, stderr_colour());
    output.remark(&format!("notice: {} is kept by full refreshes\n{drawn}", made.name));
}
