//! `trickle status`

mod watch;

use super::{Answer, Run};
use crate::advice::{Index, indexes};
use crate::failure::Failure;
use crate::output::{Output, Tone};
use crate::progress::Meter;
use crate::seeing::reader::Reader;
use crate::server;
use serde_json::json;
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::Duration;
use trickle_client::{Activity, Mode};
use trickle_client::{Name, SourceStatus, Status as Standing, Trickle};
use trickle_core::catalog::TableKind;
use trickle_core::schedule::Schedule;
use trickle_engine::words::duration;

/// Show the state of stream tables: mode, schedule, how stale, pending changes, problems.
#[derive(Debug, clap::Args)]
pub(crate) struct Status {
    /// Stream tables to show [default: all].
    #[arg(add = super::completions::stream_tables())]
    names: Vec<String>,
    /// Also show which indexes would help, and how much; each stream table is planned for this.
    #[arg(long, conflicts_with = "watch")]
    indexes: bool,
    /// Keep showing the state on a terminal, until told to stop; with --json, print one document a line in
    /// each interval instead.
    #[arg(long)]
    watch: bool,
    /// How often the database is asked, such as 500ms or 10s; at least 100ms.
    #[arg(long, value_name = "D", value_parser = super::wait::timeout, default_value = "2s", requires = "watch")]
    interval: Duration,
}

impl Status {
    async fn watch(&self, output: &Output) -> Result<Answer, Failure> {
        // A shorter interval would be more work for the database, and of no use to people.
        let interval = self.interval.max(Duration::from_millis(100));
        let (names, target) = (server::names(&self.names)?, output.target()?);
        let terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
        if !output.is_json() && !terminal {
            return Err(Failure::input("status --watch needs a terminal")
                .hint("Without one, --json prints a document a line each interval; without --watch, the state is shown once."));
        }
        // Wrong names and an unreachable server are reported at once, before the view begins.
        let (mut trickle, meter) = server::open(output).await?;
        trickle.status(&names).await?;
        drop((trickle, meter));
        let what = target.config().get_dbname().unwrap_or_default().to_owned();
        let reader = Reader::new(target, output.settings()?.settings(), names);
        if output.is_json() {
            watch::lines(reader, interval).await
        } else {
            watch::show(reader, interval, what).await
        }
    }
}

impl Run for Status {
    async fn run(self, output: &mut Output) -> Result<Answer, Failure> {
        if self.watch {
            return self.watch(output).await;
        }
        let names = server::names(&self.names)?;
        let (mut trickle, meter) = server::open(output).await?;
        meter.begin("counting changes");
        let all = trickle.status(&names).await?;
        let wanted = if self.indexes { wanted(&all, &mut trickle, &meter).await? } else { Vec::new() };
        let is_kept = trickle.refresher().await?.is_running();
        drop(trickle);
        drop(meter);
        if output.is_json() {
            let mut document = json!(all);
            for (s, indexes) in document.as_array_mut().into_iter().flatten().zip(&wanted) {
                s["indexes"] = indexes.iter().map(|(_, index)| index.to_json()).collect();
            }
            output.document(&document);
            return Ok(Answer::Yes);
        }
        if all.is_empty() {
            output.print("there is no stream table; trickle create makes one\n");
            return Ok(Answer::Yes);
        }
        let head = ["stream table", "mode", "status", "schedule", "stale", "pending", "errors"];
        output.table(head, all.iter().map(row).collect());
        for s in &all {
            output.print(remarks(s, !names.is_empty()));
        }
        let scheduled = |s: &&Standing| {
            s.schedule.is_some() && s.status != Activity::Suspended && s.mode != Mode::Immediate
        };
        if !is_kept && all.iter().any(|s| scheduled(&s)) {
            output.print("\nno refresher runs: trickle run keeps what is on schedule fresh\n");
        }
        if self.indexes {
            output.print(advised(&all, &wanted));
        }
        Ok(Answer::Yes)
    }
}

/// For each stream table, the indexes that would make its refreshes cheaper, each with the reason.
type Wanted = Vec<Vec<(String, Index)>>;

async fn wanted(all: &[Standing], trickle: &mut Trickle, meter: &Meter) -> Result<Wanted, Failure> {
    let mut wanted = Vec::new();
    for s in all {
        meter.begin(format!("planning {}", s.name));
        wanted.push(match s.exists && s.mode != Mode::Full {
            true => {
                let explained = trickle.explain(&Name::parse(&s.name)?).await?;
                indexes(&explained).map_err(|e| Failure::failed(e.to_string()))?
            }
            false => Vec::new(),
        });
    }
    Ok(wanted)
}

/// Lists each index once, with all stream tables that the index would help.
fn advised(all: &[Standing], wanted: &Wanted) -> String {
    let mut by_index: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (s, indexes) in all.iter().zip(wanted) {
        for (why, index) in indexes {
            let lines = by_index.entry(&index.statement).or_default();
            lines.push(format!("    {}: {why}\n", s.name));
            lines.extend(index.gain().map(|gain| format!("      {gain}\n")));
        }
    }
    if by_index.is_empty() {
        return "\nno index is missing\n".to_owned();
    }
    let index = |(statement, lines): (&str, Vec<String>)| format!("  {statement};\n{}", lines.concat());
    format!("\nIndexes that would help\n{}", by_index.into_iter().map(index).collect::<String>())
}

fn row(s: &Standing) -> [(String, Option<Tone>); 7] {
    let tone = match s.status {
        Activity::Active => Tone::Good,
        Activity::Initializing => Tone::Warning,
        Activity::Suspended | Activity::Error => Tone::Bad,
    };
    [
        (s.name.clone(), None),
        (s.mode.to_string(), None),
        (s.status.to_string(), Some(tone)),
        (schedule(s), None),
        (staleness(s), None),
        (pending(s), None),
        (s.consecutive_errors.to_string(), (s.consecutive_errors > 0).then_some(Tone::Bad)),
    ]
}

fn schedule(s: &Standing) -> String {
    let schedule = s.schedule.as_deref().unwrap_or("manual");
    match s.period_ms {
        Some(ms) if s.polls && schedule == "calculated" => {
            format!("{schedule} ({})", Schedule::Every(Duration::from_millis(ms)))
        }
        _ => schedule.to_owned(),
    }
}

/// Describes that each refresh recomputes a stream table, since not all of its sources are captured.
pub(super) fn polled(every: Duration) -> String {
    let every = Schedule::Every(every);
    format!(
        "trickle run computes it anew every {every}, for not all that it reads is captured; alter --schedule says how often"
    )
}

pub(super) fn staleness(s: &Standing) -> String {
    match s.staleness_ms {
        None => "never filled".to_owned(),
        Some(0) => "fresh".to_owned(),
        Some(ms) => duration(Duration::from_millis(ms.unsigned_abs())),
    }
}

fn pending(s: &Standing) -> String {
    match (s.pending, s.pending_changes) {
        (None, _) => "?".to_owned(),
        (Some(false), _) => "0".to_owned(),
        (Some(true), Some(n)) if n > 0 => n.to_string(),
        (Some(true), _) => "all".to_owned(),
    }
}

/// Describes a stream table in one line.
pub(super) fn one_line(s: &Standing) -> String {
    let pending = pending(s);
    format!("{}: {}, {}, schedule {}, pending {pending}\n", s.name, s.mode, s.status, schedule(s))
}

/// Describes how the changes of a source are captured.
fn capture_of(source: &SourceStatus) -> String {
    match source.pending_changes {
        _ if source.kind == TableKind::View => "looked through to the tables that it reads".to_owned(),
        Some(n) if source.captured => format!("captured, {n} pending"),
        None if source.captured => "captured".to_owned(),
        _ if source.held => format!("not captured until trickle enable {}", source.name),
        _ => "not captured".to_owned(),
    }
}

/// Describes the problems of a stream table. `full`, for a stream table that the user named, adds the other
/// facts.
fn remarks(s: &Standing, full: bool) -> String {
    let mut text = String::new();
    let mut line =
        |what: &str, value: &str| text += &format!("  {what}: {}\n", value.replace('\n', "\n    "));
    if !s.exists {
        line("its table is gone", "trickle drop forgets it");
    }
    if s.sources_changed {
        line("something that it reads was altered", "its next refresh plans it anew");
    }
    if let Some(upstream) = &s.waits_for {
        let way_on = format!("{upstream}, which is suspended; trickle alter {upstream} --resume");
        line("waits for", &way_on);
    }
    if let (Some(wanted), Some(instead)) = (s.period_ms, s.slowed_to_ms) {
        let every = |ms| duration(Duration::from_millis(ms));
        let why = format!("its last refresh took more than four fifths of its period of {}", every(wanted));
        line(&format!("refreshed every {}", every(instead)), &why);
    }
    if let Some(why) = s.reinit_reason.as_ref().filter(|_| s.needs_reinit) {
        line("its next refresh computes it anew", why);
    }
    for source in s.sources.iter().filter(|source| source.overflowed) {
        let why = format!("{} was changed more than its buffer may hold", source.name);
        line("its next refresh computes it anew", &why);
    }
    if s.status == Activity::Suspended && s.consecutive_errors == 0 {
        line("paused", &format!("trickle resume {} puts it back on schedule", s.name));
    }
    if let Some(error) = &s.last_error {
        line("last error", error);
    }
    if full {
        if let Some(reason) = &s.mode_reason {
            line("not incremental", reason);
        }
        if let Some(ms) = s.period_ms.filter(|_| s.polls) {
            line("schedule", &polled(Duration::from_millis(ms)));
        }
        if s.reads_clock {
            line("reads the clock", "each refresh looks for rows that entered and left with time");
        }
        line("owner", &s.owner);
        line("last refresh", s.last_refresh_at.as_deref().unwrap_or("never"));
        for source in &s.sources {
            let kind = source.kind.name().to_lowercase().replace('_', " ");
            line(&format!("reads {kind} {}", source.name), &capture_of(source));
        }
        line("query", s.query.trim());
    }
    if text.is_empty() { text } else { format!("\n{}\n{text}", s.name) }
}
