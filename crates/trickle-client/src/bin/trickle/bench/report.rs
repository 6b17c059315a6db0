//! The measurements, for people and for programs.

use super::capture::{self, Captor, Work};
use super::cycle::{Measured, RefreshMethod};
use super::idle::Looks;
use crate::failure::Failure;
use crate::output::{Output, Tone, milliseconds};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use trickle_client::{Refreshed, Sent};
use trickle_core::refresh::Phases;

/// One cell of the matrix. The first cycle counts apart from the others, since its caches are cold and its
/// statements are not planned yet.
pub(crate) struct Cell {
    pub(crate) scenario: &'static str,
    pub(crate) rows: u32,
    pub(crate) percent: f64,
    pub(crate) measured: Vec<Measured>,
}

/// Returns, for each scenario, the median time of refreshes in ms for each number of rows.
pub(crate) fn lines(cells: &[Cell]) -> BTreeMap<&str, Vec<(f64, f64)>> {
    let mut lines: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
    for cell in cells {
        if let Some(median) = cell.median(RefreshMethod::Incremental) {
            lines.entry(cell.scenario).or_default().push((f64::from(cell.rows), median * 1000.0));
        }
    }
    lines
}

/// Times over the cycles after the first, or times of the first cycle if no other cycle was run.
struct Times {
    median: Duration,
    p95: Duration,
    most: Duration,
}

impl Cell {
    fn times(&self, way: RefreshMethod) -> Option<Times> {
        let warm = self.measured.iter().any(|m| m.cycle > 0);
        let mut all: Vec<Duration> =
            self.measured.iter().filter(|m| m.way == way && (m.cycle > 0 || !warm)).map(|m| m.took).collect();
        all.sort_unstable();
        let at = |part: usize| all.get((all.len() * part / 100).min(all.len().checked_sub(1)?)).copied();
        Some(Times { median: at(50)?, p95: at(95)?, most: *all.last()? })
    }

    pub(crate) fn median(&self, way: RefreshMethod) -> Option<f64> {
        self.times(way).map(|t| t.median.as_secs_f64())
    }

    /// Returns the time of the first cycle.
    fn first(&self, way: RefreshMethod) -> Option<Duration> {
        self.measured.iter().find(|m| m.way == way && m.cycle == 0).map(|m| m.took)
    }

    /// Returns the time of a refresh of the stream table, divided by the time of the fastest other method.
    fn against_best(&self) -> Option<f64> {
        let best = [RefreshMethod::Full, RefreshMethod::Hand]
            .into_iter()
            .filter_map(|w| self.median(w))
            .reduce(f64::min)?;
        Some(self.median(RefreshMethod::Incremental)? / best)
    }

    /// Counts the refreshes of the cell's stream tables by strategy.
    fn strategies(&self) -> BTreeMap<&'static str, usize> {
        let mut found = BTreeMap::new();
        for r in self.measured.iter().flat_map(|m| &m.refreshed) {
            *found.entry(r.report.strategy.name()).or_default() += 1;
        }
        found
    }

    fn to_json(&self) -> Value {
        let ways = RefreshMethod::ALL.into_iter().filter_map(|way| {
            let t = self.times(way)?;
            let first = self.first(way).map(milliseconds);
            let of = json!({"p50_ms": milliseconds(t.median), "p95_ms": milliseconds(t.p95),
                "max_ms": milliseconds(t.most), "first_ms": first});
            Some((way.name().to_owned(), of))
        });
        json!({"scenario": self.scenario, "rows": self.rows, "pct": self.percent, "strategies": self.strategies(),
            "against_best": self.against_best(), "ways": ways.collect::<BTreeMap<String, Value>>()})
    }
}

/// Returns the line of one measurement, for scripts.
pub(crate) fn line(cell: &Cell, m: &Measured) -> String {
    let Cell { scenario, rows, percent, .. } = cell;
    let (cycle, mode, ms) = (m.cycle + 1, m.way.name(), m.took.as_secs_f64() * 1000.0);
    let mut line = format!(
        "[BENCH_CYCLE] scenario={scenario} rows={rows} pct={percent} cycle={cycle} mode={mode} ms={ms:.3}"
    );
    // The time that linked stream tables share is the same in each of their reports, so only the first
    // report's shared time counts.
    if let Some(Refreshed { shared, .. }) = m.refreshed.first() {
        let reports = || m.refreshed.iter().map(|r| &r.report);
        let ms = |of: fn(&Phases) -> u64| {
            (reports().map(|r| of(&r.phases)).sum::<u64>() + of(shared)) as f64 / 1000.0
        };
        let strategies: BTreeSet<&str> = reports().map(|r| r.strategy.name()).collect();
        line.push_str(&format!(
            " strategy={} predicted_ms={:.3} wait_ms={:.3} decide_ms={:.3} generate_ms={:.3} execute_ms={:.3} cleanup_ms={:.3}",
            strategies.into_iter().collect::<Vec<_>>().join(","),
            reports().map(|r| r.predicted_ms).sum::<f64>(),
            ms(|p| p.wait),
            ms(|p| p.decide),
            ms(|p| p.generate),
            ms(|p| p.execute),
            ms(|p| p.cleanup)
        ));
    }
    line + "\n"
}

/// Shows how many stream tables are refreshed faster than their queries are recomputed, and how many are
/// refreshed ten times as fast.
pub(crate) fn show_gains(cells: &[Cell], output: &mut Output) {
    if output.is_json() {
        return;
    }
    let gain = |c: &Cell| Some(c.median(RefreshMethod::Full)? / c.median(RefreshMethod::Incremental)?);
    let gains: Vec<f64> = cells.iter().filter_map(gain).collect();
    let over = |than: f64| gains.iter().filter(|g| **g >= than).count();
    output.print(format!(
        "{} of {} are faster than computing anew, {} at least ten times\n",
        over(1.0),
        gains.len(),
        over(10.0)
    ));
}

/// Lists the strategies of a cell's refreshes. A strategy that was used several times has its count before
/// its name.
fn strategies(c: &Cell) -> String {
    let of = |(name, n): (&str, usize)| if n == 1 { name.to_owned() } else { format!("{n} {name}") };
    c.strategies().into_iter().map(of).collect::<Vec<_>>().join(", ")
}

/// Shows all cells. `target` is the greatest allowed ratio of the time of a stream table's refresh to the
/// time of the fastest other method.
pub(crate) fn show(cells: &[Cell], server: &str, target: f64, sent: Sent, output: &mut Output) {
    if output.is_json() {
        let cells: Vec<Value> = cells.iter().map(Cell::to_json).collect();
        let sent = json!({"all": sent.all, "kept_prepared": sent.kept});
        output.document(&json!({"server": server, "target": target, "cells": cells, "statements": sent}));
        return;
    }
    let shown = |seconds: Option<f64>| seconds.map_or("-".to_owned(), |s| format!("{:.2}", s * 1000.0));
    let row = |c: &Cell| {
        let full =
            c.median(RefreshMethod::Full).zip(c.median(RefreshMethod::Incremental)).map(|(f, i)| f / i);
        let best = c.against_best();
        let tone = best.map(|b| if b <= target { Tone::Good } else { Tone::Bad });
        let plain = |text: String| (text, None);
        let times = c.times(RefreshMethod::Incremental);
        let of = |part: fn(&Times) -> Duration| plain(shown(times.as_ref().map(|t| part(t).as_secs_f64())));
        let first = c.first(RefreshMethod::Incremental).map(|t| t.as_secs_f64());
        vec![
            plain(c.scenario.to_owned()),
            plain(c.rows.to_string()),
            plain(c.percent.to_string()),
            plain(shown(c.median(RefreshMethod::Full))),
            plain(shown(c.median(RefreshMethod::Hand))),
            of(|t| t.median),
            of(|t| t.p95),
            of(|t| t.most),
            plain(shown(c.median(RefreshMethod::Extension))),
            plain(shown(first)),
            plain(full.map_or("-".to_owned(), |f| format!("{f:.2}"))),
            (best.map_or("-".to_owned(), |b| format!("{b:.2}")), tone),
            plain(strategies(c)),
        ]
    };
    output.print(format!("{server}; milliseconds, medians where nothing else is said\n\n"));
    let head = [
        "scenario",
        "rows",
        "%",
        "full",
        "hand",
        "incremental",
        "p95",
        "most",
        "extension",
        "first",
        "faster than full",
        "times the best",
        "refreshed",
    ];
    output.boxed(&head, cells.iter().map(row).collect());
    summary(cells, output);
    let judged: Vec<f64> = cells.iter().filter_map(Cell::against_best).collect();
    let met = judged.iter().filter(|b| **b <= target).count();
    output.print(format!(
        "\n{met} of {} cells take at most {target} times the better of the others\n",
        judged.len()
    ));
    output.print(format!("{} of {} statements of refreshes were prepared before\n", sent.kept, sent.all));
}

/// Shows the ratio of the time of a recompute to the time of a refresh, for each scenario and each share of
/// changed rows. Each ratio is the geometric mean over all sizes.
fn summary(cells: &[Cell], output: &mut Output) {
    let mut gains: BTreeMap<(&str, String), Vec<f64>> = BTreeMap::new();
    let (mut scenarios, mut percents): (Vec<&str>, Vec<f64>) = (Vec::new(), Vec::new());
    for c in cells {
        let Some((full, own)) = c.median(RefreshMethod::Full).zip(c.median(RefreshMethod::Incremental))
        else {
            continue;
        };
        gains.entry((c.scenario, c.percent.to_string())).or_default().push((full / own).ln());
        if !scenarios.contains(&c.scenario) {
            scenarios.push(c.scenario);
        }
        if !percents.contains(&c.percent) {
            percents.push(c.percent);
        }
    }
    percents.sort_by(f64::total_cmp);
    let gain = |scenario: &str, percent: &f64| match gains.get(&(scenario, percent.to_string())) {
        None => ("-".to_owned(), None),
        Some(all) => {
            let mean = (all.iter().sum::<f64>() / all.len() as f64).exp();
            (format!("{mean:.2}"), Some(if mean >= 1.0 { Tone::Good } else { Tone::Bad }))
        }
    };
    let row = |s: &&str| {
        [((*s).to_owned(), None)].into_iter().chain(percents.iter().map(|p| gain(s, p))).collect::<Vec<_>>()
    };
    let head: Vec<String> = ["faster than full".to_owned()]
        .into_iter()
        .chain(percents.iter().map(|p| format!("{p} %")))
        .collect();
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    output.print("\n");
    output.boxed(&head, scenarios.iter().map(row).collect());
}

/// Returns the median of the values.
fn median(mut all: Vec<f64>) -> Option<f64> {
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied()
}

/// Shows the cost of capture, as a ratio to the table without capture and to the table with the expert's
/// triggers.
pub(crate) fn show_capture(measured: &[capture::Measured], server: &str, output: &mut Output) {
    let mut works: Vec<(&str, Work)> = Vec::new();
    for m in measured {
        if !works.contains(&(m.shape, m.work)) {
            works.push((m.shape, m.work));
        }
    }
    let of = |(shape, work): (&str, Work), captor| {
        let fits = |m: &&capture::Measured| m.shape == shape && m.work == work && m.captor == captor;
        median(measured.iter().filter(fits).map(|m| m.took.as_secs_f64() * 1000.0).collect())
    };
    if output.is_json() {
        let rows: Vec<Value> = works
            .iter()
            .map(|w| {
                let measured = Captor::ALL.iter().filter_map(|c| Some((c.name(), of(*w, *c)?)));
                let ms: BTreeMap<&str, f64> = measured.collect();
                json!({"table": w.0, "work": w.1.name(), "p50_ms": ms})
            })
            .collect();
        output.document(&json!({"server": server, "capture": rows}));
        return;
    }
    let times =
        |a: Option<f64>, b: Option<f64>| a.zip(b).map_or("-".to_owned(), |(a, b)| format!("{:.2}", a / b));
    let row = |w: &(&str, Work)| {
        let untracked = of(*w, Captor::Nobody);
        let (hand, statement) = (of(*w, Captor::Hand), of(*w, Captor::Statement));
        let against = statement.zip(hand).map(|(s, h)| if s <= 1.1 * h { Tone::Good } else { Tone::Bad });
        let plain = |text: String| (text, None);
        [
            plain(w.0.to_owned()),
            plain(w.1.name()),
            plain(untracked.map_or("-".to_owned(), |ms| format!("{ms:.1}"))),
            plain(times(hand, untracked)),
            plain(times(statement, untracked)),
            plain(times(of(*w, Captor::Unlogged), untracked)),
            plain(times(of(*w, Captor::Row), untracked)),
            plain(times(of(*w, Captor::Extension), untracked)),
            (times(statement, hand), against),
        ]
    };
    let head = [
        "table",
        "work",
        "untracked ms",
        "hand",
        "statement",
        "unlogged",
        "row",
        "extension",
        "statement / hand",
    ];
    output.print(format!("{server}; medians, as multiples of the untracked table's\n\n"));
    output.table(head, works.iter().map(row).collect());
}

/// Shows the durations of looks at idle stream tables, by the numbers of stream tables and of sources.
pub(crate) fn show_idle(looks: &[((u32, u32), Looks)], server: &str, output: &mut Output) {
    let percentiles = |all: &[Duration]| {
        let mut all: Vec<f64> = all.iter().map(|d| milliseconds(*d)).collect();
        all.sort_by(f64::total_cmp);
        [50, 95].map(|part| all.get(all.len() * part / 100).copied())
    };
    let rows: Vec<_> =
        looks.iter().map(|(of, l)| (of, percentiles(&l.changes), percentiles(&l.catalog))).collect();
    if output.is_json() {
        let named = |[p50, p95]: [Option<f64>; 2]| json!({"p50": p50, "p95": p95});
        let row = |((tables, sources), changes, catalog): &(&(u32, u32), _, _)| json!({"stream_tables": tables, "sources": sources, "look_ms": named(*changes), "catalog_ms": named(*catalog)});
        output.document(&json!({"server": server, "idle": rows.iter().map(row).collect::<Vec<Value>>()}));
        return;
    }
    let shown = |ms: Option<f64>| ms.map_or("-".to_owned(), |ms| format!("{ms:.2}"));
    output.print(format!("{server}; milliseconds as p50 / p95\n\n"));
    let both = |p: &[Option<f64>; 2]| (p.map(shown).join(" / "), None);
    let row = |((tables, sources), changes, catalog): &(&(u32, u32), _, _)| {
        [(tables.to_string(), None), (sources.to_string(), None), both(changes), both(catalog)]
    };
    output.table(
        ["stream tables", "sources", "a look for changes", "a look at the catalog"],
        rows.iter().map(row).collect(),
    );
}

/// Shows the cells of two runs side by side. Each run is a document that --json printed.
pub(crate) fn compare(before: &Value, after: &Value, output: &mut Output) -> Result<(), Failure> {
    let cells = |run: &Value| -> Result<Vec<Value>, Failure> {
        let cells = run["cells"].as_array().cloned();
        cells.ok_or_else(|| Failure::input("a run to compare is what trickle bench --json printed"))
    };
    let (before, after) = (cells(before)?, cells(after)?);
    let same = |a: &Value, b: &Value| ["scenario", "rows", "pct"].iter().all(|key| a[key] == b[key]);
    let of = |cell: &Value| cell["ways"]["incremental"]["p50_ms"].as_f64();
    let rows: Vec<(&Value, f64, f64)> =
        after.iter().filter_map(|a| Some((a, of(before.iter().find(|b| same(a, b))?)?, of(a)?))).collect();
    if output.is_json() {
        let rows: Vec<Value> = rows
            .iter()
            .map(|(c, b, a)| {
                json!({"scenario": c["scenario"], "rows": c["rows"], "pct": c["pct"],
                "before_ms": b, "after_ms": a, "change": a / b - 1.0})
            })
            .collect();
        output.document(&json!({"compared": rows}));
        return Ok(());
    }
    let row = |(c, b, a): &(&Value, f64, f64)| {
        let change = a / b - 1.0;
        let tone = match change {
            c if c <= -0.1 => Some(Tone::Good),
            c if c >= 0.1 => Some(Tone::Bad),
            _ => None,
        };
        let plain = |text: String| (text, None);
        [
            plain(c["scenario"].as_str().unwrap_or_default().to_owned()),
            plain(c["rows"].to_string()),
            plain(c["pct"].to_string()),
            plain(format!("{b:.2}")),
            plain(format!("{a:.2}")),
            (format!("{:+.0} %", change * 100.0), tone),
        ]
    };
    output
        .table(["scenario", "rows", "%", "before ms", "after ms", "change"], rows.iter().map(row).collect());
    Ok(())
}
