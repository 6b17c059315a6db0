//! What was measured, for people and for programs.

use super::cycle::{Measured, Way};
use crate::output::{Output, Tone, milliseconds};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// One cell of the matrix. The first cycle stands apart: caches are cold and statements not yet planned.
pub(crate) struct Cell {
    pub(crate) scenario: &'static str,
    pub(crate) rows: u32,
    pub(crate) percent: f64,
    pub(crate) measured: Vec<Measured>,
}

/// Of the cycles after the first, or of that one where there is no other.
struct Times {
    median: Duration,
    p95: Duration,
    most: Duration,
}

impl Cell {
    fn times(&self, way: Way) -> Option<Times> {
        let warm = self.measured.iter().any(|m| m.cycle > 0);
        let mut all: Vec<Duration> =
            self.measured.iter().filter(|m| m.way == way && (m.cycle > 0 || !warm)).map(|m| m.took).collect();
        all.sort_unstable();
        let at = |part: usize| all.get((all.len() * part / 100).min(all.len().checked_sub(1)?)).copied();
        Some(Times { median: at(50)?, p95: at(95)?, most: *all.last()? })
    }

    fn median(&self, way: Way) -> Option<f64> {
        self.times(way).map(|t| t.median.as_secs_f64())
    }

    /// How long a stream table takes for each second of the better of the others.
    fn against_best(&self) -> Option<f64> {
        let best = [Way::Full, Way::Hand].into_iter().filter_map(|w| self.median(w)).reduce(f64::min)?;
        Some(self.median(Way::Incremental)? / best)
    }

    fn reasons(&self) -> Vec<&str> {
        let mut found: Vec<&str> = Vec::new();
        for reason in self.measured.iter().filter_map(|m| m.reason.as_deref()) {
            let word = reason.split(':').next().unwrap_or(reason);
            if !found.contains(&word) {
                found.push(word);
            }
        }
        found
    }

    fn to_json(&self) -> Value {
        let ways = [Way::Full, Way::Incremental, Way::Hand].into_iter().filter_map(|way| {
            let t = self.times(way)?;
            let first =
                self.measured.iter().find(|m| m.way == way && m.cycle == 0).map(|m| milliseconds(m.took));
            let of = json!({"p50_ms": milliseconds(t.median), "p95_ms": milliseconds(t.p95),
                "max_ms": milliseconds(t.most), "first_ms": first});
            Some((way.name().to_owned(), of))
        });
        json!({"scenario": self.scenario, "rows": self.rows, "pct": self.percent, "actions": self.reasons(),
            "against_best": self.against_best(), "ways": ways.collect::<BTreeMap<String, Value>>()})
    }
}

/// The line of one measurement, for scripts.
pub(crate) fn line(cell: &Cell, m: &Measured) -> String {
    format!(
        "[BENCH_CYCLE] scenario={} rows={} pct={} cycle={} mode={} ms={:.3}\n",
        cell.scenario,
        cell.rows,
        cell.percent,
        m.cycle + 1,
        m.way.name(),
        m.took.as_secs_f64() * 1000.0
    )
}

/// All cells; `target` is how long a stream table may take for each second of the better of the others.
pub(crate) fn show(cells: &[Cell], server: &str, target: f64, output: &mut Output) {
    if output.is_json() {
        let cells: Vec<Value> = cells.iter().map(Cell::to_json).collect();
        output.document(&json!({"server": server, "target": target, "cells": cells}));
        return;
    }
    let shown = |seconds: Option<f64>| seconds.map_or("-".to_owned(), |s| format!("{:.2}", s * 1000.0));
    let row = |c: &Cell| {
        let full = c.median(Way::Full).zip(c.median(Way::Incremental)).map(|(f, i)| f / i);
        let best = c.against_best();
        let tone = best.map(|b| if b <= target { Tone::Good } else { Tone::Bad });
        let plain = |text: String| (text, None);
        [
            plain(c.scenario.to_owned()),
            plain(c.rows.to_string()),
            plain(c.percent.to_string()),
            plain(shown(c.median(Way::Full))),
            plain(shown(c.median(Way::Incremental))),
            plain(shown(c.median(Way::Hand))),
            plain(full.map_or("-".to_owned(), |f| format!("{f:.2}"))),
            (best.map_or("-".to_owned(), |b| format!("{b:.2}")), tone),
            plain(c.reasons().join(" ").to_lowercase()),
        ]
    };
    output.print(format!("{server}; medians in ms\n\n"));
    let head = [
        "scenario",
        "rows",
        "%",
        "full",
        "incremental",
        "hand",
        "faster than full",
        "times the best",
        "refreshed",
    ];
    output.table(head, cells.iter().map(row).collect());
    let judged: Vec<f64> = cells.iter().filter_map(Cell::against_best).collect();
    let met = judged.iter().filter(|b| **b <= target).count();
    output.print(format!(
        "\n{met} of {} cells take at most {target} times the better of the others\n",
        judged.len()
    ));
}
