//! The figures of the demo for each stream table: changed rows, the time of refreshes, the time of a
//! recompute, and the lag.

use super::shop::VIEWS;
use crate::output::{Output, Tone, milliseconds};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;
use tokio_postgres::{Client, Row};
use trickle_client::{Checked, Result, failed};
use trickle_engine::words::{count, duration};

/// All stream tables of the demo.
#[derive(Default)]
pub(crate) struct Board {
    tables: BTreeMap<&'static str, Figures>,
    /// Number of the last refresh that was read from the history.
    last: i64,
}

/// The figures of one stream table.
#[derive(Default)]
struct Figures {
    mode: String,
    /// The time of a recompute.
    anew: Duration,
    /// Time of each refresh by a delta, in ms.
    deltas: Vec<f64>,
    /// Number of full refreshes.
    fulls: usize,
    /// The last refresh: changed rows, its time in ms, and its lag in ms.
    last: Option<(i64, f64, f64)>,
    changed: i64,
    /// Lag of each refresh, in ms.
    lags: Vec<f64>,
    rows: i64,
    equal: bool,
}

/// The refreshes on schedule that brought changes, after the refresh with the number $1.
const NEWS: &str = "
    SELECT h.refresh_id, s.pgt_name, h.action = 'DIFFERENTIAL', h.rows_inserted + h.rows_updated + h.rows_deleted,
        (SELECT sum(p.value::float8) FROM jsonb_each_text(h.phase_ms) p), h.lag_ms
    FROM pgtrickle.pgt_refresh_history h JOIN pgtrickle.pgt_stream_tables s USING (pgt_id)
    WHERE h.refresh_id > $1 AND h.initiated_by = 'SCHEDULER' AND h.status = 'COMPLETED' AND h.action <> 'NO_DATA'
    ORDER BY 1";

fn median(of: &[f64]) -> Option<f64> {
    let mut all = of.to_vec();
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied()
}

fn greatest(of: &[f64]) -> Option<f64> {
    of.iter().copied().max_by(f64::total_cmp)
}

/// Shows milliseconds for people.
fn shown(ms: Option<f64>) -> String {
    ms.and_then(|ms| Duration::try_from_secs_f64(ms / 1e3).ok()).map_or_else(|| "–".to_owned(), duration)
}

impl Figures {
    /// Returns the time of a recompute divided by the median time of a refresh by a delta.
    fn faster(&self) -> Option<f64> {
        median(&self.deltas).filter(|m| *m > 0.0).map(|m| milliseconds(self.anew) / m)
    }

    fn refreshes(&self) -> String {
        match self.fulls {
            0 => self.deltas.len().to_string(),
            n => format!("{} + {n} full", self.deltas.len()),
        }
    }

    fn note(&mut self, row: &Row) {
        let (rows, took, lag): (Option<i64>, Option<f64>, Option<f64>) = (row.get(3), row.get(4), row.get(5));
        let took = took.unwrap_or_default();
        if row.get(2) {
            self.deltas.push(took);
        } else {
            self.fulls += 1;
        }
        self.lags.extend(lag);
        self.changed += rows.unwrap_or_default();
        self.last = Some((rows.unwrap_or_default(), took, lag.unwrap_or_default()));
    }
}

impl Board {
    pub(crate) fn add(&mut self, name: &'static str, mode: &str, anew: Duration) {
        self.tables.insert(name, Figures { mode: mode.to_owned(), anew, ..Figures::default() });
    }

    /// Reads the refreshes since the last call of this function from the history.
    ///
    /// # Errors
    /// The errors of the server.
    pub(crate) async fn ask(&mut self, client: &Client) -> Result<()> {
        let news = client.query(NEWS, &[&self.last]).await.map_err(|e| failed("read the history", e))?;
        for row in &news {
            self.last = row.get(0);
            if let Some(seen) = self.tables.get_mut(row.get::<_, &str>(1)) {
                seen.note(row);
            }
        }
        Ok(())
    }

    /// Whether each stream table was refreshed with changes at least once.
    pub(crate) fn is_refreshed(&self) -> bool {
        self.tables.values().all(|s| s.last.is_some())
    }

    /// Describes every stream table after this many seconds of writing.
    pub(crate) fn lines(&self, second: u64, written: u64) -> String {
        let written = count(usize::try_from(written).unwrap_or(usize::MAX), "row", "rows");
        let head = format!("{second} s, {written} written");
        let mut text = format!(
            "  {head:<30} {:>12} {:>10} {:>12} {:>10}",
            "rows changed", "refresh", "compute anew", "lag"
        );
        for (name, s) in self.in_order() {
            let last = |of: fn((i64, f64, f64)) -> String| s.last.map_or("–".to_owned(), of);
            let _ = write!(
                text,
                "\n    {name:<28} {:>12} {:>10} {:>12} {:>10}",
                last(|(rows, ..)| rows.to_string()),
                last(|(_, took, _)| shown(Some(took))),
                duration(s.anew),
                last(|(.., lag)| shown(Some(lag))),
            );
        }
        text
    }

    /// Notes whether a stream table is equal to its query.
    pub(crate) fn compared(&mut self, name: &str, checked: &Checked) {
        if let Some(s) = self.tables.get_mut(name) {
            s.equal = checked.different == 0;
            s.rows = checked.rows;
        }
    }

    /// Whether all stream tables were found equal to their queries.
    pub(crate) fn all_equal(&self) -> bool {
        self.tables.values().all(|s| s.equal)
    }

    fn in_order(&self) -> impl Iterator<Item = (&'static str, &Figures)> {
        VIEWS.iter().filter_map(|v| self.tables.get(v.name).map(|s| (v.name, s)))
    }

    pub(crate) fn to_json(&self) -> Vec<Value> {
        let table = |(name, s): (&str, &Figures)| {
            json!({"name": name, "mode": s.mode, "rows": s.rows, "refreshes": s.deltas.len(), "full_refreshes": s.fulls,
                "rows_changed": s.changed, "median_ms": median(&s.deltas), "anew_ms": milliseconds(s.anew),
                "faster": s.faster(), "median_lag_ms": median(&s.lags), "greatest_lag_ms": greatest(&s.lags),
                "equal": s.equal})
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
                (shown(median(&s.deltas)), None),
                (duration(s.anew), None),
                (s.faster().map_or("–".to_owned(), times), None),
                (shown(median(&s.lags)), None),
                (shown(greatest(&s.lags)), None),
                (word.to_owned(), Some(tone)),
            ]
        });
        let head = [
            "stream table",
            "rows",
            "refreshes",
            "rows changed",
            "median refresh",
            "compute anew",
            "faster",
            "median lag",
            "greatest",
            "verified",
        ];
        output.table(head, rows.collect());
    }
}

/// Writes the ratio of two times: `0.4×`, `8.1×`, `213×`.
fn times(ratio: f64) -> String {
    if ratio < 10.0 { format!("{ratio:.1}×") } else { format!("{ratio:.0}×") }
}
