//! Catches a metric that differs from the metric's documentation, and counts that outlive their stream table.

use super::*;
use crate::seeing::model::tests::{several, snapshot};
use crate::seeing::reader::View;
use crate::seeing::scrape;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use trickle_client::Error;
use trickle_core::catalog::TableId;
use trickle_core::refresh::{MemberReport, Relation};

fn relation(name: &str) -> Relation {
    Relation { id: TableId(1), schema: "public".into(), name: name.into() }
}

/// Makes the report of a refresh that wrote these rows.
fn done(name: &str, rows: (i64, i64, i64)) -> Refreshed {
    let mut report = MemberReport::no_data(1, &relation(name));
    report.action = Action::Differential;
    (report.rows_inserted, report.rows_updated, report.rows_deleted) = rows;
    report.delta_rows = 9;
    report.lag_ms = Some(400.0);
    report.phases = Phases { execute: 20_000, ..Phases::default() };
    Refreshed { report, shared: Phases { wait: 3_000, ..Phases::default() } }
}

/// Makes metrics that have counted each kind of event.
fn busy() -> Metrics {
    let metrics = Metrics::new().unwrap();
    metrics.note(&Event::Connected(2));
    let both = [done("a", (1, 2, 3)), done("b", (0, 0, 1))];
    metrics.note(&Event::Refreshed(&both));
    let error = Error::input("no");
    metrics.note(&Event::Failed { tables: &["public.c".to_owned()], error: &error });
    metrics
}

fn scraped(metrics: &Metrics, view: &View) -> String {
    scrape::text(metrics, view).unwrap()
}

fn view() -> View {
    View { snapshot: Some(Arc::new(snapshot(&several()))), ..View::default() }
}

/// Asserts that a text has this line.
#[track_caller]
fn says(text: &str, line: &str) {
    assert!(text.lines().any(|l| l == line), "{line} is missing:\n{text}");
}

#[test]
fn what_is_served_is_what_is_listed() {
    let metrics = busy();
    // The two texts together have all metrics: the counts, and the state that was read from the database.
    let text = scraped(&metrics, &View::default()) + &scraped(&metrics, &view());
    let served: BTreeSet<(&str, &str)> =
        text.lines().filter_map(|l| l.strip_prefix("# TYPE ")?.split_once(' ')).collect();
    let kind = |m: &Metric| match m.kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram(_) => "histogram",
    };
    let listed: BTreeSet<(&str, &str)> = METRICS.iter().map(|m| (m.name, kind(m))).collect();
    assert_eq!(served, listed);
    assert!(METRICS.iter().all(|m| m.name.starts_with("trickle_")));
}

#[test]
fn refreshes_are_counted() {
    let text = scraped(&busy(), &View::default());
    for line in [
        r#"trickle_refreshes_total{action="DIFFERENTIAL",outcome="completed",table="public.a"} 1"#,
        r#"trickle_refreshes_total{action="none",outcome="failed",table="public.c"} 1"#,
        r#"trickle_rows_total{change="updated",table="public.a"} 2"#,
        r#"trickle_rows_total{change="deleted",table="public.b"} 1"#,
        r#"trickle_delta_rows_total{table="public.a"} 9"#,
        r#"trickle_refresh_duration_seconds_sum{table="public.a"} 0.02"#,
        r#"trickle_lag_seconds_bucket{table="public.a",le="0.25"} 0"#,
        r#"trickle_lag_seconds_bucket{table="public.a",le="0.5"} 1"#,
        // The time of a run's phase is the sum of three times. Two are those of the stream tables, and one is
        // the time that the run spent once for both.
        r#"trickle_refresh_phase_seconds_sum{phase="execute"} 0.04"#,
        r#"trickle_refresh_phase_seconds_sum{phase="wait"} 0.003"#,
        r#"trickle_errors_total{kind="refresh"} 1"#,
        "trickle_connected 1",
        "trickle_status_read 0",
    ] {
        says(&text, line);
    }
}

#[test]
fn what_the_database_says_is_shown_while_it_says_it() {
    let metrics = busy();
    let text = scraped(&metrics, &view());
    for line in [
        r#"trickle_staleness_seconds{table="s_late"} 65"#,
        r#"trickle_staleness_seconds{table="s_left"} 0"#,
        r#"trickle_period_seconds{table="s_late"} 1"#,
        r#"trickle_consecutive_errors{table="s_failed"} 3"#,
        r#"trickle_stream_tables{health="fresh"} 4"#,
        r#"trickle_status{status="ACTIVE",table="\"<script>\""} 1"#,
        r#"trickle_buffer_bytes{source="orders"} 8192"#,
    ] {
        says(&text, line);
    }
    assert!(!text.contains(r#"trickle_period_seconds{table="s_manual"}"#), "{text}");
    let away = View { trouble: Some("no connection".into()), ..view() };
    let text = scraped(&metrics, &away);
    assert!(text.contains("trickle_status_read 0") && !text.contains("trickle_staleness_seconds{"), "{text}");
}

#[test]
fn what_was_counted_of_a_stream_table_goes_with_it() {
    let metrics = busy();
    assert!(scraped(&metrics, &View::default()).contains("public.a"));
    let text = scraped(&metrics, &view());
    assert!(!text.contains("public."), "{text}");
    assert!(text.contains("trickle_refresh_phase_seconds_count"), "{text}");
}

#[test]
fn a_lost_connection_is_seen() {
    let metrics = busy();
    assert!(metrics.is_connected());
    metrics.note(&Event::Disconnected(&Error::connection("gone"), Duration::ZERO));
    assert!(!metrics.is_connected());
    let text = scraped(&metrics, &View::default());
    says(&text, "trickle_connected 0");
    says(&text, r#"trickle_errors_total{kind="connection"} 1"#);
}

/// Compares the table in docs/seeing.md with the list of metrics. `TRICKLE_BLESS=1` writes the table.
#[test]
fn the_reference_of_metrics_is_of_this_list() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/seeing.md");
    let row = |m: &&Metric| {
        let kind = match m.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram(_) => "histogram",
        };
        let labels: Vec<String> = m.labels.iter().map(|l| format!("`{l}`")).collect();
        format!("| `{}` | {kind} | {} | {}. |\n", m.name, labels.join(", "), m.help)
    };
    let rows: String = METRICS.iter().map(row).collect();
    let made = format!("\n| metric | kind | labels | meaning |\n|---|---|---|---|\n{rows}");
    let text = std::fs::read_to_string(&file).unwrap();
    let (before, rest) = text.split_once("<!-- metrics").unwrap();
    let (mark, rest) = rest.split_once("-->").unwrap();
    let (written, after) = rest.split_once("<!-- end of metrics -->").unwrap();
    if std::env::var_os("TRICKLE_BLESS").is_some() {
        let text = format!("{before}<!-- metrics{mark}-->{made}<!-- end of metrics -->{after}");
        std::fs::write(&file, text).unwrap();
    } else {
        assert_eq!(written, made);
    }
}
