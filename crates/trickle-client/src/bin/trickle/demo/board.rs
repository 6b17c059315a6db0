//! What the demo shows of each stream table: what refreshes changed and took, what computing it anew takes, and how old
//! what it shows is.

use super::shop::VIEWS;
use crate::output::{Output, Tone, count, duration, milliseconds};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::{Duration, Instant};
use trickle_client::{Checked, Refreshed};
use trickle_core::refresh::{Action, Phases};

/// All stream tables of the demo.
#[derive(Default)]
pub(crate) struct Board(BTreeMap<&'static str, Seen>);

/// What was seen of one stream table.
#[derive(Default)]
struct Seen {
    mode: String,
    /// What a recompute took, in ms.
    full_ms: f64,
    /// What each refresh by a delta took, in ms.
    deltas: Vec<f64>,
    /// How often the refresher computed it anew.
    fulls: usize,
    /// Rows that the last refresh changed, and what it took, in ms.
    last: Option<(i64, f64)>,
    changed: i64,
    /// When what it shows was read.
    shows: Option<Instant>,
    /// How old that became at most, while the shop was written to.
    stalest: Duration,
    rows: i64,
    equal: bool,
}

impl Seen {
    fn median(&self) -> Option<f64> {
        let mut all = self.deltas.clone();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied()
    }

    /// How often what a delta takes goes into what a recompute takes.
    fn faster(&self) -> String {
        self.median().filter(|m| *m > 0.0).map_or("–".to_owned(), |m| times(self.full_ms / m))
    }

    fn refreshes(&self) -> String {
        match self.fulls {
            0 => self.deltas.len().to_string(),
            n => format!("{} + {n} full", self.deltas.len()),
        }
    }
}

/// The name without its schema.
pub(crate) fn bare(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

/// What a stream table's own part of a refresh took, in ms.
fn took(phases: &Phases) -> f64 {
    phases.total() as f64 / 1e3
}

impl Board {
    pub(crate) fn add(&mut self, name: &'static str, mode: &str) {
        self.0.insert(name, Seen { mode: mode.to_owned(), ..Seen::default() });
    }

    /// Notes what computing a stream table anew takes.
    pub(crate) fn computed_anew(&mut self, name: &str, phases: &Phases) {
        if let Some(s) = self.0.get_mut(name) {
            s.full_ms = took(phases);
        }
    }

    /// Notes refreshes with the times at which they ended.
    pub(crate) fn note(&mut self, all: &[(Instant, Refreshed)]) {
        for (at, Refreshed { report: r, shared }) in all {
            let Some(s) = self.0.get_mut(bare(&r.name)) else { continue };
            let spent = Duration::from_micros(r.phases.total() + shared.total());
            if let Some(before) = s.shows {
                s.stalest = s.stalest.max(at.saturating_duration_since(before));
            }
            s.shows = at.checked_sub(spent);
            let rows = r.rows_inserted + r.rows_updated + r.rows_deleted;
            match r.action {
                Action::NoData => continue,
                Action::Differential => s.deltas.push(took(&r.phases)),
                _ => s.fulls += 1,
            }
            s.changed += rows;
            s.last = Some((rows, took(&r.phases)));
        }
    }

    /// How every stream table stands after so many seconds of writing.
    pub(crate) fn lines(&self, second: u32, written: u64) -> String {
        let written = count(usize::try_from(written).unwrap_or(usize::MAX), "row", "rows");
        let head = format!("{second} s, {written} written");
        let mut text = format!(
            "  {head:<30} {:>12} {:>10} {:>15} {:>10}",
            "rows changed", "refresh", "full recompute", "freshness"
        );
        for (name, s) in self.in_order() {
            let (rows, ms) = s.last.map_or(("–".to_owned(), "–".to_owned()), |(rows, ms)| {
                (rows.to_string(), format!("{ms:.1} ms"))
            });
            let fresh = s.shows.map_or("–".to_owned(), |at| duration(at.elapsed()));
            let full = format!("{:.1} ms", s.full_ms);
            let _ = write!(text, "\n    {name:<28} {rows:>12} {ms:>10} {full:>15} {fresh:>10}");
        }
        text
    }

    /// Notes whether a stream table is equal to its query.
    pub(crate) fn compared(&mut self, name: &str, checked: &Checked) {
        if let Some(s) = self.0.get_mut(name) {
            s.equal = checked.different == 0;
            s.rows = checked.rows;
        }
    }

    /// Whether all were found equal to their queries.
    pub(crate) fn all_equal(&self) -> bool {
        self.0.values().all(|s| s.equal)
    }

    fn in_order(&self) -> impl Iterator<Item = (&'static str, &Seen)> {
        VIEWS.iter().filter_map(|v| self.0.get(v.name).map(|s| (v.name, s)))
    }

    pub(crate) fn to_json(&self) -> Vec<Value> {
        let table = |(name, s): (&str, &Seen)| {
            json!({"name": name, "mode": s.mode, "rows": s.rows, "refreshes": s.deltas.len(), "full_refreshes": s.fulls,
                "rows_changed": s.changed, "median_ms": s.median(), "full_ms": s.full_ms,
                "stalest_ms": milliseconds(s.stalest), "equal": s.equal})
        };
        self.in_order().map(table).collect()
    }

    pub(crate) fn summary(&self, output: &mut Output) {
        let rows = self.in_order().map(|(name, s)| {
            let (word, tone) = if s.equal { ("equal", Tone::Good) } else { ("DIFFERENT", Tone::Bad) };
            [
                (name.to_owned(), None),
                (s.rows.to_string(), None),
                (s.refreshes(), None),
                (s.changed.to_string(), None),
                (s.median().map_or("–".to_owned(), |m| format!("{m:.1} ms")), None),
                (format!("{:.1} ms", s.full_ms), None),
                (s.faster(), None),
                (format!("≤ {}", duration(s.stalest)), None),
                (word.to_owned(), Some(tone)),
            ]
        });
        let head = [
            "stream table",
            "rows",
            "refreshes",
            "rows changed",
            "median refresh",
            "full recompute",
            "faster",
            "freshness",
            "verified",
        ];
        output.table(head, rows.collect());
    }
}

/// How often one time goes into another: `0.4×`, `8.1×`, `213×`.
fn times(ratio: f64) -> String {
    if ratio < 10.0 { format!("{ratio:.1}×") } else { format!("{ratio:.0}×") }
}
