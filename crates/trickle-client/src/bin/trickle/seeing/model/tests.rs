//! Catches a model that counts a stream table as late for a change of a moment ago, or as fresh with a
//! pending change. Also catches a model that does not put the worst stream table first.

use super::*;
use trickle_client::SourceStatus;

/// Makes a stream table in good state, which reads these sources. A source whose name begins with `s` is a
/// stream table; any other source is a table.
pub(crate) fn status(name: &str, sources: &[&str]) -> Status {
    let source = |name: &&str| SourceStatus {
        name: (*name).to_owned(),
        kind: if name.starts_with('s') { TableKind::StreamTable } else { TableKind::Table },
        columns: Vec::new(),
        captured: true,
        held: false,
        pending_changes: Some(0),
        overflowed: false,
    };
    Status {
        name: name.to_owned(),
        mode: Mode::Differential,
        requested_mode: trickle_client::RefreshMode::Auto,
        mode_reason: None,
        status: Activity::Active,
        waits_for: None,
        schedule: Some("1s".into()),
        diamond_consistency: "atomic",
        period_ms: Some(1_000),
        slowed_to_ms: None,
        polls: false,
        reads_clock: false,
        staleness_ms: Some(0),
        data_timestamp: None,
        lag_ms: None,
        last_refresh_at: None,
        last_refresh: Some(LastRefresh {
            action: trickle_client::Action::Differential,
            status: Ending::Completed,
            age_ms: 3_400,
            delta_rows: Some(7),
            rows_inserted: Some(3),
            rows_updated: Some(1),
            rows_deleted: Some(0),
            ms: Some(12.3),
        }),
        consecutive_errors: 0,
        last_error: None,
        pending: Some(false),
        pending_changes: Some(0),
        is_populated: true,
        needs_reinit: false,
        reinit_reason: None,
        sources_changed: false,
        exists: true,
        owner: "ann".into(),
        query: "SELECT 1".into(),
        sources: sources.iter().map(source).collect(),
    }
}

/// Makes a stream table as [`status`] does, with changes that are pending for `ms` milliseconds.
pub(crate) fn behind(name: &str, sources: &[&str], ms: i64) -> Status {
    Status { staleness_ms: Some(ms), pending: Some(true), pending_changes: Some(5), ..status(name, sources) }
}

/// Returns the model of a first look at these stream tables.
pub(crate) fn snapshot(all: &[Status]) -> Snapshot {
    let buffer = |source: &str, bytes| BufferStatus {
        source: source.into(),
        trigger_mode: "STATEMENT".into(),
        disabled: false,
        held: false,
        bytes,
        segments: 1,
        limit_bytes: 1 << 30,
        full: false,
    };
    let buffers = [buffer("orders", 8 << 10), buffer("customers", 3 << 20)];
    Seen::default().snapshot(
        all,
        &buffers,
        Refresher { pids: vec![1], ..Refresher::default() },
        vec![open(77, 12)],
        Instant::now(),
    )
}

/// Makes a transaction of the server process `pid` that is open for this many seconds. From 300 seconds on,
/// the transaction counts as long.
pub(crate) fn open(pid: i32, seconds: u64) -> Open {
    let of = OpenTransaction {
        pid,
        age: Duration::from_secs(seconds),
        state: "idle in transaction".into(),
        application: "<psql>".into(),
        elsewhere: None,
    };
    Open::new(&of, Duration::from_secs(300))
}

/// Makes a diamond, a failure, a name with markup, and a stream table that waits for a refresh by hand.
pub(crate) fn several() -> Vec<Status> {
    let failed = Status {
        consecutive_errors: 3,
        last_error: Some("division by <zero>".into()),
        ..behind("s_failed", &["orders"], 9_000)
    };
    let manual = Status { schedule: None, period_ms: None, ..behind("s_manual", &["customers"], 7_200_000) };
    let full = Status {
        mode: Mode::Full,
        mode_reason: Some("last_value() is not kept".into()),
        slowed_to_ms: Some(2_500),
        ..behind("s_late", &["orders", "customers"], 65_000)
    };
    vec![
        status("s_left", &["orders"]),
        status("s_right", &["orders"]),
        status("s_both", &["s_left", "s_right", "customers"]),
        failed,
        manual,
        full,
        behind("s_due", &["orders"], 1_500),
        status("\"<script>\"", &["s_both"]),
    ]
}

#[test]
fn the_worst_come_first() {
    let order: Vec<(String, Health)> =
        snapshot(&several()).tables.into_iter().map(|t| (t.name, t.health)).collect();
    let expected = [
        ("s_failed", Health::Failed),
        ("s_late", Health::Late),
        ("s_due", Health::Due),
        ("s_manual", Health::Manual),
        ("\"<script>\"", Health::Fresh),
        ("s_both", Health::Fresh),
        ("s_left", Health::Fresh),
        ("s_right", Health::Fresh),
    ];
    assert_eq!(order, expected.map(|(n, h)| (n.to_owned(), h)));
}

#[test]
fn what_was_written_a_moment_ago_makes_no_old_table_late() {
    let (mut seen, start) = (Seen::default(), Instant::now());
    let mut look = |s: Status, after: u64| {
        let now = start + Duration::from_millis(after);
        let found = seen.snapshot(&[s], &[], Refresher::default(), Vec::new(), now).tables.remove(0);
        (found.behind_ms, found.health)
    };
    let day = 86_400_000;
    // Before this first read, no read has found the stream table fresh, so the age of its data counts.
    assert_eq!(look(behind("s", &[], day), 0), (Some(86_400_000), Health::Late));
    assert_eq!(look(status("s", &[]), 1_000), (Some(0), Health::Fresh));
    assert_eq!(look(behind("s", &[], day), 1_000), (Some(1), Health::Due));
    assert_eq!(look(behind("s", &[], day), 2_500), (Some(1_500), Health::Due));
    assert_eq!(look(behind("s", &[], day), 9_000), (Some(8_000), Health::Late));
    // The stream table was refreshed, and its source was written again.
    assert_eq!(look(behind("s", &[], 400), 9_500), (Some(400), Health::Due));
    let unfilled = Status { staleness_ms: None, is_populated: false, ..behind("s", &[], 0) };
    assert_eq!(look(unfilled, 9_600), (None, Health::Late));
}

#[test]
fn levels_and_edges_are_those_of_the_queries() {
    let now = snapshot(&several());
    assert_eq!(now.levels[0], ["customers", "orders"]);
    assert!(now.levels[1].contains(&"s_left".to_owned()) && now.levels[2] == ["s_both"], "{:?}", now.levels);
    assert_eq!(now.levels[3], ["\"<script>\""]);
    let into: Vec<&str> =
        now.edges.iter().filter(|(_, to)| to == "s_both").map(|(from, _)| from.as_str()).collect();
    assert_eq!(into, ["customers", "s_left", "s_right"]);
}

#[test]
fn buffers_are_those_of_what_is_read() {
    let now = snapshot(&several());
    let of = |name: &str| now.tables.iter().find(|t| t.name == name).unwrap().buffer_bytes;
    assert_eq!((of("s_left"), of("s_late"), of("\"<script>\"")), (8 << 10, (8 << 10) + (3 << 20), 0));
}

#[test]
fn numbers_read_well() {
    assert_eq!((bytes(0), bytes(8192), bytes(3 << 29)), ("0 B".into(), "8.0 KiB".into(), "1.5 GiB".into()));
    let t = snapshot(&[status("s", &[])]).tables.remove(0);
    assert_eq!(
        (t.last(), t.rows(), t.cost()),
        ("3 s ago, DIFFERENTIAL".into(), "+3 ~1 -0".into(), "12 ms".into())
    );
    let never = Status { last_refresh: None, ..status("s", &[]) };
    let t = snapshot(&[never]).tables.remove(0);
    assert_eq!((t.last(), t.rows(), t.cost()), ("never".into(), "–".into(), "–".into()));
}
