//! Tests of schedules as text, and of the scheduler under a simulated clock over random graphs.

use super::due::backoff;
use super::{
    Action, Agenda, CronLine, Options, Outcome, Schedule, Seen, Status, TableFacts, Task, Time,
    canonical_periods, effective_period, next,
};
use crate::dag::{Dag, StreamTableNode};
use crate::table::TableId;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}
fn every(n: u64) -> Option<Schedule> {
    Some(Schedule::Every(secs(n)))
}
fn time(text: &str) -> Time {
    Time(text.parse::<jiff::Timestamp>().unwrap().as_millisecond())
}
fn t(n: u32) -> TableId {
    TableId(n)
}
fn dag(edges: &[(u32, Vec<u32>)]) -> Dag {
    dag_apart(edges, &[])
}
/// Builds a graph in which the tables `apart` are refreshed apart.
fn dag_apart(edges: &[(u32, Vec<u32>)], apart: &[u32]) -> Dag {
    Dag::build(edges.iter().map(|(id, sources)| StreamTableNode {
        id: t(*id),
        name: format!("t{id}").into(),
        sources: sources.iter().map(|s| (t(*s), format!("t{s}").into())).collect(),
        apart: apart.contains(id),
    }))
    .unwrap()
}

#[test]
fn durations_are_read_and_written() {
    for (text, seconds, canonical) in [
        ("30s", 30, "30s"),
        ("5m", 300, "5m"),
        ("1h30m", 5400, "1h30m"),
        ("90m", 5400, "1h30m"),
        ("2d", 172_800, "2d"),
        ("1w", 604_800, "7d"),
        (" 1H ", 3600, "1h"),
        ("2000ms", 2, "2s"),
    ] {
        let s = Schedule::parse(text).unwrap();
        assert_eq!(s, Schedule::Every(secs(seconds)));
        assert_eq!(s.to_string(), canonical);
    }
    for (text, ms) in [("50ms", 50), ("1s500ms", 1500), ("1m1MS", 60_001)] {
        let s = Schedule::parse(text).unwrap();
        assert_eq!(s, Schedule::Every(Duration::from_millis(ms)));
        assert_eq!(s.to_string(), text.to_lowercase());
    }
    assert_eq!(Schedule::parse("CALCULATED").unwrap().to_string(), "calculated");
    for bad in [
        "",
        "5",
        "m",
        "0s",
        "5x",
        "1m1h",
        "1m1m",
        "-5s",
        "1.5h",
        "99999999999999999999s",
        "1e9d",
        "5é",
        "0ms",
        "1ms1s",
        "5mss",
    ] {
        let e = Schedule::parse(bad).unwrap_err();
        assert_eq!(e.sqlstate(), "22023", "{bad}");
        assert!(e.hint_text().is_some());
    }
}

#[test]
fn cron_lines_are_read_and_refused() {
    let c = CronLine::parse_in("*/7 * * * *", "UTC").unwrap();
    assert_eq!(c.gap(), secs(240));
    assert_eq!(c.next_after(time("2026-01-01T00:00:00Z")), Some(time("2026-01-01T00:07:00Z")));
    assert_eq!(c.next_after(time("2026-01-01T00:06:59.999Z")), Some(time("2026-01-01T00:07:00Z")));
    assert_eq!(Schedule::parse("@hourly").unwrap().period(), Some(secs(3600)));
    assert_eq!(CronLine::parse_in("*/10 * * * * *", "UTC").unwrap().gap(), secs(10));
    let s = Schedule::parse("TZ=Europe/Berlin 0  6 * * MON-FRI").unwrap();
    assert_eq!(s.to_string(), "TZ=Europe/Berlin 0 6 * * MON-FRI");
    assert_eq!(serde_json::from_str::<Schedule>(&serde_json::to_string(&s).unwrap()).unwrap(), s);
    for bad in [
        "* * * *",
        "* * * * * * *",
        "61 * * * *",
        "0 0 30 2 *",
        "TZ=Mars/Base 0 0 * * *",
        "a b c d e",
        "TZ=UTC",
    ] {
        assert_eq!(CronLine::parse_in(bad, "UTC").unwrap_err().sqlstate(), "22023", "{bad}");
    }
}

#[test]
fn cron_follows_the_clocks_of_its_time_zone() {
    let c = CronLine::parse_in("30 2 * * *", "Europe/Berlin").unwrap();
    // The time 02:30 does not exist on 2026-03-29, and exists twice on 2026-10-25. The line still fires once
    // a day.
    let mut at = time("2026-03-27T12:00:00Z");
    let mut days = Vec::new();
    for _ in 0..3 {
        at = c.next_after(at).unwrap();
        days.push(at.to_string());
    }
    assert_eq!(days, ["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]);
    let autumn = c.next_after(time("2026-10-24T12:00:00Z")).unwrap();
    assert_eq!(autumn, time("2026-10-25T00:30:00Z"));
    assert_eq!(c.next_after(autumn), Some(time("2026-10-26T01:30:00Z")));
}

#[test]
fn a_wildcard_goes_on_by_the_hour_when_clocks_change() {
    for (line, every) in [("*/30 * * * *", 1800), ("0 * * * *", 3600), ("@hourly", 3600)] {
        for (zone, day) in [
            ("Europe/Berlin", "2026-03-28T22:00:00Z"),
            ("Europe/Berlin", "2026-10-24T22:00:00Z"),
            ("America/New_York", "2026-11-01T03:00:00Z"),
            // On Lord Howe Island, clocks change by half an hour.
            ("Australia/Lord_Howe", "2026-04-04T12:00:00Z"),
        ] {
            let (c, mut at) = (CronLine::parse_in(line, zone).unwrap(), time(day));
            let end = at.after(secs(8 * 3600));
            while at < end {
                let next = c.next_after(at).unwrap();
                let gap = next.since(at);
                // On Lord Howe Island, the change by half an hour moves the full hours.
                let whole = zone != "Australia/Lord_Howe" || every < 1800;
                assert!(
                    gap == secs(every) || !whole && gap <= secs(every * 3 / 2),
                    "{line} {zone}: {at} {next}"
                );
                at = next;
            }
        }
    }
}

/// Every line has a next time, at most a day later, and no occurrence before that time was left out. A
/// wildcard line whose times of a day all lie in the skipped hour has no occurrence on that day.
#[test]
fn no_change_of_clocks_stops_a_cron_line() {
    let day = secs(86_400);
    for zone in ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Santiago"] {
        let clocks = jiff::tz::TimeZone::get(zone).unwrap();
        let year = "2026-01-01T00:00:00Z".parse::<jiff::Timestamp>().unwrap();
        for change in clocks.following(year).take(2) {
            let change = Time(change.timestamp().as_millisecond());
            for line in
                ["30 2 * * *", "15,45 1-3 * * *", "*/7 2 * * *", "0 0 * * *", "59 59 2 * * *", "*/20 * * * *"]
            {
                let c = CronLine::parse_in(line, zone).unwrap();
                let mut at = change.before(day);
                while at < change.after(day) {
                    let next = c.next_after(at).unwrap_or_else(|| panic!("{line} {zone} ends at {at}"));
                    let days = if line.starts_with("*/7") { day * 2 } else { day };
                    assert!(next.since(at) <= days + secs(3 * 3600), "{line} {zone}: {at} {next}");
                    let again = c.next_after(next.before(Duration::from_millis(1)));
                    assert_eq!(again, Some(next), "{line} {zone}: {at}");
                    at = next;
                }
            }
        }
    }
}

#[test]
fn calculated_is_as_fresh_as_the_tightest_consumer() {
    // The edges are 10 → 11 → 12 and 10 → 13.
    let d = dag(&[(10, vec![1]), (11, vec![10]), (12, vec![11]), (13, vec![10])]);
    let s: BTreeMap<TableId, Schedule> = [
        (t(10), Schedule::Calculated),
        (t(11), Schedule::Every(secs(600))),
        (t(12), Schedule::Every(secs(60))),
        (t(13), Schedule::Calculated),
    ]
    .into();
    let p = |id| canonical_period(&d, &s, t(id), secs(7));
    assert_eq!(
        [p(10), p(11), p(12), p(13), p(1)],
        [Some(secs(60)), Some(secs(600)), Some(secs(60)), Some(secs(7)), None]
    );
}

fn task(schedule: Option<Schedule>, status: Status) -> Task {
    Task { schedule, status, polls: false }
}
fn done(start: i64, end: i64) -> Status {
    Status { last_start: Some(Time(start)), last_end: Some(Time(end)), ..Status::default() }
}
fn exact() -> Options {
    Options { jitter: 0.0, ..Options::default() }
}
fn refreshed(actions: &[Action]) -> Vec<Vec<u32>> {
    actions
        .iter()
        .filter_map(|a| match a {
            Action::Refresh { members, .. } => Some(members.iter().map(|m| m.0).collect()),
            Action::Suspend { .. } => None,
        })
        .collect()
}

/// Table 11 reads table 10. Table 10 polls, so nobody knows whether it has changes.
#[test]
fn polled_tables_are_recomputed_when_due_or_when_a_reader_is() {
    let d = dag(&[(10, vec![1]), (11, vec![10, 2])]);
    let at = |reader: Option<Schedule>, now: i64| {
        let mut tasks: BTreeMap<TableId, Task> = [
            (t(10), Task { polls: true, ..task(Some(Schedule::Calculated), done(0, 10)) }),
            (t(11), task(reader, done(0, 10))),
        ]
        .into();
        tasks.retain(|id, task| *id == t(10) || task.schedule.is_some());
        let plan = next(&d, &tasks, &exact(), Time(now));
        plan.actions.into_iter().find_map(|a| match a {
            Action::Refresh { due, polled, .. } => Some((due, polled)),
            Action::Suspend { .. } => None,
        })
    };
    let calculated = Some(Schedule::Calculated);
    assert_eq!(at(None, 59_999), None, "nothing reads it");
    assert_eq!(at(None, 60_000), Some((vec![t(10)], vec![t(10)])));
    assert_eq!(at(calculated.clone(), 1_000), Some((vec![t(11)], vec![])), "its reader asks for nothing");
    assert_eq!(at(calculated, 60_000), Some((vec![t(10), t(11)], vec![t(10)])));
    assert_eq!(at(every(20), 20_000), Some((vec![t(10), t(11)], vec![t(10)])), "as its reader asks");
}

#[test]
fn a_due_table_takes_its_upstream_and_missed_runs_are_one_run() {
    let d = dag(&[(10, vec![1]), (11, vec![10]), (12, vec![11])]);
    let tasks: BTreeMap<TableId, Task> = [
        (t(10), task(None, Status::default())),
        (t(11), task(every(10), done(0, 100))),
        (t(12), task(every(86_400), done(0, 100))),
    ]
    .into();
    let early = next(&d, &tasks, &exact(), Time(9_999));
    assert!(early.actions.is_empty());
    assert_eq!(early.wake, Some(Time(10_000)));
    let late = next(&d, &tasks, &exact(), Time(500_000));
    assert_eq!(refreshed(&late.actions), [[10, 11]]);
    assert_eq!(late.wake, Some(Time(86_400_000)));
}

/// Tables 11 and 12 read table 10, and table 13 joins 11 and 12. Tables with equal periods are always
/// refreshed together.
#[test]
fn linked_tables_with_equal_periods_refresh_together() {
    let d = dag(&[(10, vec![1]), (11, vec![10]), (12, vec![10]), (13, vec![11, 12])]);
    let o = Options::default();
    let fresh = |since| Status { since: Time(since), ..Status::default() };
    let mut tasks: BTreeMap<TableId, Task> = [
        (t(10), task(None, fresh(0))),
        (t(11), task(every(10), fresh(300))),
        (t(12), task(every(10), done(-4_000, -3_900))),
        (t(13), task(every(60), fresh(2_000))),
    ]
    .into();
    let mut now = Time(0);
    let mut seen = Vec::new();
    while now < Time(200_000) {
        let plan = next(&d, &tasks, &o, now);
        for all in refreshed(&plan.actions) {
            for id in &all {
                tasks.get_mut(&t(*id)).unwrap().status = done(now.0, now.0 + 50);
            }
            seen.push(all);
        }
        now = plan.wake.unwrap_or(now.after(secs(1)));
    }
    let (both, four) =
        (seen.iter().filter(|s| **s == [10, 11, 12]), seen.iter().filter(|s| **s == [10, 11, 12, 13]));
    assert_eq!(both.count() + four.clone().count(), seen.len(), "{seen:?}");
    assert!(seen.len() < 28 && (3..6).contains(&four.count()), "no more often than their periods: {seen:?}");
    // A table that failed does not delay the other tables, and is tried by itself after them.
    tasks.values_mut().for_each(|t| t.status = done(now.0, now.0));
    tasks.get_mut(&t(11)).unwrap().status.consecutive_errors = 1;
    let after = next(&d, &tasks, &exact(), now.after(secs(1)));
    assert_eq!(refreshed(&after.actions), Vec::<Vec<u32>>::new());
    let then = now.after(secs(10));
    assert_eq!(refreshed(&next(&d, &tasks, &exact(), then).actions), [[10, 12]], "all three are due");
    for id in [10, 12] {
        tasks.get_mut(&t(id)).unwrap().status = done(then.0, then.0);
    }
    assert_eq!(refreshed(&next(&d, &tasks, &exact(), then).actions), [[10, 11]]);
}

#[test]
fn what_stands_apart_waits_for_what_it_reads() {
    // The tables form a diamond: 13 reads 11 and 12, which read 10.
    let edges = [(10, vec![1]), (11, vec![10]), (12, vec![10]), (13, vec![11, 12])];
    let d = dag_apart(&edges, &[11, 12, 13]);
    let mut tasks: BTreeMap<TableId, Task> = [
        (t(10), task(None, done(0, 0))),
        (t(11), task(None, done(0, 0))),
        (t(12), task(None, done(0, 0))),
        (t(13), task(every(10), done(0, 0))),
    ]
    .into();
    let mut now = Time(10_000);
    let mut begun = Vec::new();
    for _ in 0..3 {
        let plan = next(&d, &tasks, &exact(), now);
        let all = refreshed(&plan.actions);
        for id in all.iter().flatten() {
            tasks.get_mut(&t(*id)).unwrap().status = Status { running: true, ..done(now.0, 0) };
        }
        // No table starts while a source that it waits for runs.
        assert_eq!(refreshed(&next(&d, &tasks, &exact(), now).actions), Vec::<Vec<u32>>::new());
        begun.push(all);
        now = now.after(secs(1));
        for task in tasks.values_mut().filter(|t| t.status.running) {
            (task.status.running, task.status.last_end) = (false, Some(now));
        }
    }
    assert_eq!(begun, [vec![vec![10]], vec![vec![11], vec![12]], vec![vec![13]]]);
    let rest = next(&d, &tasks, &exact(), now);
    assert_eq!((rest.actions.len(), rest.wake), (0, Some(Time(22_000))));
    // A reader waits for a source that failed, and keeps this source due.
    tasks.get_mut(&t(11)).unwrap().status = Status { consecutive_errors: 1, ..done(22_000, 22_500) };
    tasks.get_mut(&t(10)).unwrap().status = done(22_000, 22_100);
    tasks.get_mut(&t(12)).unwrap().status = done(22_000, 22_100);
    let failed = next(&d, &tasks, &exact(), Time(22_600));
    assert_eq!((failed.actions.len(), failed.wake), (0, Some(Time(23_500))));
    assert_eq!(refreshed(&next(&d, &tasks, &exact(), Time(23_500)).actions), [[11]]);
}

/// Hundreds of tables with one period never start together, and each is refreshed within its period.
#[test]
fn many_stream_tables_do_not_start_together() {
    let tables: Vec<(u32, Vec<u32>)> = (10..310).map(|id| (id, vec![1])).collect();
    let d = dag(&tables);
    let o = Options { max_concurrent: 300, jitter: 0.1, ..Options::default() };
    let mut tasks: BTreeMap<TableId, Task> =
        tables.iter().map(|(id, _)| (t(*id), task(every(60), Status::default()))).collect();
    let mut starts: BTreeMap<i64, Vec<TableId>> = BTreeMap::new();
    let mut now = Time(0);
    while now < Time(130_000) {
        let plan = next(&d, &tasks, &o, now);
        for action in &plan.actions {
            let Action::Refresh { members, .. } = action else { continue };
            for id in members {
                starts.entry(now.0 / 1000).or_default().push(*id);
                tasks.get_mut(id).unwrap().status = done(now.0, now.0);
            }
        }
        now = plan.wake.unwrap();
    }
    // The first refresh comes within a tenth of a period after the scheduler first knows the table. Later
    // refreshes come up to a tenth of a period early.
    let most = starts.values().map(Vec::len).max().unwrap();
    assert!(most < 75, "{most} in one second");
    let first: usize = starts.range(..6).map(|(_, ids)| ids.len()).sum();
    assert_eq!(first, 300);
    assert!(starts.keys().all(|s| (0..=6).contains(s) || (54..=66).contains(s) || (108..=126).contains(s)));
    for (id, _) in &tables {
        let times: Vec<i64> =
            starts.iter().filter(|(_, ids)| ids.contains(&t(*id))).map(|(s, _)| *s).collect();
        assert!(times.len() == 3 && times.windows(2).all(|w| w[1] - w[0] <= 60), "{id}: {times:?}");
    }
}

/// The slowest table starts first, so that all refreshes end soonest. A table that has been due for a whole
/// period, however, goes before slower tables.
#[test]
fn longest_refresh_starts_first_unless_another_waited_a_period() {
    let d = dag(&[(10, vec![1]), (11, vec![2]), (12, vec![3])]);
    let one = Options { max_concurrent: 1, ..exact() };
    // Builds tables whose last refreshes took 1, 9 and 5 s and started at the given times. The tables have
    // periods of 100 s.
    let took = |starts: [i64; 3]| -> BTreeMap<TableId, Task> {
        let tasks = (10..13).zip(starts.into_iter().zip([1, 9, 5]));
        tasks.map(|(id, (start, s))| (t(id), task(every(100), done(start, start + s * 1000)))).collect()
    };
    let mut tasks = took([0, 20, 10]);
    let mut order = Vec::new();
    while let Some(Action::Refresh { members, .. }) = next(&d, &tasks, &one, Time(101_000)).actions.first() {
        order.extend(members.iter().map(|id| id.0));
        for id in members {
            tasks.get_mut(id).unwrap().status = done(101_000, 101_000);
        }
    }
    assert_eq!(order, [11, 12, 10]);
    // The table with the quickest refresh became due a period ago.
    let late = took([0, 120_000, 110_000]);
    assert_eq!(refreshed(&next(&d, &late, &one, Time(221_000)).actions), [[10]]);
}

/// The last recorded refresh tells a new scheduler which cron times already had their refresh.
#[test]
fn a_missed_clock_time_is_made_up_for_once() {
    let d = dag(&[(10, vec![1])]);
    let daily = || Some(Schedule::parse("0 6 * * *").unwrap());
    let (five, seven) = (time("2026-11-23T05:00:00Z"), time("2026-11-23T07:00:00Z"));
    let since = |since| -> BTreeMap<TableId, Task> {
        [(t(10), task(daily(), Status { since, ..Status::default() }))].into()
    };
    assert_eq!(refreshed(&next(&d, &since(five), &exact(), seven).actions), [[10]]);
    let mut tasks = since(five);
    tasks.get_mut(&t(10)).unwrap().status.last_start = Some(seven);
    let after = next(&d, &tasks, &exact(), seven.after(secs(1)));
    assert_eq!((after.actions.len(), after.wake), (0, Some(time("2026-11-24T06:00:00Z"))));
    // A table that was never refreshed waits for the next cron time.
    assert_eq!(next(&d, &since(seven), &exact(), seven).actions, []);
}

#[test]
fn slow_tables_are_asked_for_less_often() {
    let d = dag(&[(10, vec![1])]);
    let tasks: BTreeMap<TableId, Task> = [(t(10), task(every(10), done(0, 40_000)))].into();
    let p = next(&d, &tasks, &exact(), Time(45_000));
    assert!(p.actions.is_empty());
    assert_eq!((p.wake, p.slow), (Some(Time(50_000)), vec![(t(10), secs(50))]));
    assert_eq!(effective_period(secs(10), secs(1)), secs(10));
    // The plan reports every table whose period is lengthened.
    let nearly: BTreeMap<TableId, Task> = [(t(10), task(every(10), done(0, 9_000)))].into();
    assert_eq!(next(&d, &nearly, &exact(), Time(9_000)).slow, vec![(t(10), Duration::from_millis(11_250))]);
    let quick: BTreeMap<TableId, Task> = [(t(10), task(every(10), done(0, 8_000)))].into();
    assert_eq!(next(&d, &quick, &exact(), Time(9_000)).slow, vec![]);
}

#[test]
fn errors_back_off_then_suspend_and_block_what_is_downstream() {
    let o = exact();
    assert_eq!([0, 1, 2, 3, 40].map(|n| backoff(&o, n).as_secs()), [0, 1, 2, 4, 300]);
    let d = dag(&[(10, vec![1]), (11, vec![10]), (12, vec![1]), (13, vec![10, 12])]);
    let failing = |errors| Status { consecutive_errors: errors, ..done(0, 0) };
    let tasks = |errors| -> BTreeMap<TableId, Task> {
        [
            (t(10), task(every(1), failing(errors))),
            (t(11), task(every(1), done(0, 0))),
            (t(12), task(every(1), done(0, 0))),
        ]
        .into()
    };
    // The failed table and its reader wait. The other table of their group is refreshed.
    let p = next(&d, &tasks(3), &o, Time(2_000));
    assert_eq!(refreshed(&p.actions), [[12]]);
    assert_eq!(p.wake, Some(Time(4_000)));
    let p = next(&d, &tasks(5), &o, Time(600_000));
    assert_eq!(p.actions[0], Action::Suspend { id: t(10), errors: 5 });
    assert_eq!(refreshed(&p.actions), [[12]]);
    assert_eq!(p.blocked.iter().map(|b| (b.id.0, b.by.0)).collect::<Vec<_>>(), [(10, 10), (11, 10)]);
    assert_eq!(p.wake, None);
}

#[test]
fn a_thousand_equal_periods_are_spread_by_jitter() {
    let edges: Vec<(u32, Vec<u32>)> = (10..1010).map(|i| (i, vec![1])).collect();
    let d = dag(&edges);
    let tasks: BTreeMap<TableId, Task> =
        edges.iter().map(|(i, _)| (t(*i), task(every(100), done(0, 1)))).collect();
    let o = Options { max_concurrent: 10_000, ..Options::default() };
    let due = |at| refreshed(&next(&d, &tasks, &o, Time(at)).actions).len();
    assert_eq!((due(89_999), due(100_000)), (0, 1000));
    assert!((400..600).contains(&due(95_000)), "{}", due(95_000));
}

/// The refreshes of two stream tables take as long as their periods, so the two are never idle at the same
/// time. A reader of both is still refreshed, from their present contents.
#[test]
fn sources_that_are_always_at_work_keep_no_reader_waiting() {
    let d = dag_apart(&[(10, vec![1]), (11, vec![2]), (12, vec![10, 11])], &[12]);
    let busy = Status { running: true, last_done: Some(Time(6_000)), ..done(9_000, 9_000) };
    let tasks = |last_done| -> BTreeMap<TableId, Task> {
        let upstream = |status| task(every(2), status);
        [
            (t(10), upstream(Status { last_done, ..busy })),
            (t(11), upstream(done(7_000, 9_900))),
            (t(12), task(every(5), done(0, 1))),
        ]
        .into()
    };
    let now = |last_done| refreshed(&next(&d, &tasks(last_done), &exact(), Time(10_000)).actions);
    assert_eq!(now(Some(Time(6_000))), [[12]]);
    assert_eq!(now(Some(Time(4_000))), [[0u32; 1]; 0], "what it holds is older than the reader may be");
    assert_eq!(now(None), [[0u32; 1]; 0]);
}

#[test]
fn a_clock_set_back_stops_nothing_for_longer_than_two_periods() {
    let d = dag_apart(&[(10, vec![1]), (11, vec![10])], &[11]);
    let ahead = |ms| done(ms, ms + 1);
    let tasks = |upstream, reader| -> BTreeMap<TableId, Task> {
        [(t(10), task(None, upstream)), (t(11), task(every(10), reader))].into()
    };
    // If the clock was set back by less than a period, the table waits until its next time.
    let little = next(&d, &tasks(done(0, 0), ahead(9_000)), &exact(), Time(1_000));
    assert_eq!((little.actions.len(), little.wake), (0, Some(Time(19_000))));
    // If the clock was set back by more than a period, the table is due at once. The table waits for its
    // source if the time of the source's last refresh lies in the future too. The table stays due until its
    // refresh is done.
    for now in [1_000, 1_500, 40_000] {
        let far =
            |upstream| refreshed(&next(&d, &tasks(upstream, ahead(9_000_000)), &exact(), Time(now)).actions);
        assert_eq!(far(ahead(9_000_000)), [[10]]);
        assert_eq!(far(done(1_000, 1_000)), [[11]]);
    }
    let never = Status { since: Time(9_000_000), ..Status::default() };
    assert_eq!(refreshed(&next(&d, &tasks(done(0, 0), never), &exact(), Time(1_000)).actions), [[11]]);
    // A wait after an error becomes at most twice as long when the clock is set back.
    let failed = |ms| Status { consecutive_errors: 3, ..ahead(ms) };
    let wait = |ms, now| {
        let plan = next(&d, &tasks(failed(ms), done(0, 0)), &exact(), Time(now));
        (refreshed(&plan.actions), plan.wake)
    };
    assert_eq!(wait(23_000, 20_000), (vec![], Some(Time(27_001))));
    assert_eq!(wait(9_000_000, 20_000), (vec![vec![10]], None));
}

/// Stream tables with ids from 10, which read base tables 1..3 or earlier stream tables. Each has a schedule,
/// a duration and a failure pattern, and some are refreshed apart.
type World = (Vec<(u32, Vec<u32>)>, Vec<Option<Schedule>>, Vec<(u64, u8)>, Vec<u32>);

fn worlds() -> impl Strategy<Value = World> {
    let table = (
        prop::collection::btree_set(0u32..20, 1..3),
        prop_oneof![
            4 => (1u64..60).prop_map(every),
            2 => Just(Some(Schedule::Calculated)),
            1 => Just(None),
            1 => Just(Some(Schedule::parse("*/20 * * * * *").unwrap())),
        ],
        (1u64..3_000, 0u8..12),
        any::<bool>(),
    );
    prop::collection::vec(table, 1..12).prop_map(|tables| {
        let edges = tables.iter().enumerate().map(|(i, (sources, ..))| {
            let i = i as u32;
            let fit = |s: u32| if s < 10 || i == 0 { 1 + s % 3 } else { 10 + s % i };
            let sources: BTreeSet<u32> = sources.iter().map(|s| fit(*s)).collect();
            (10 + i, sources.into_iter().collect())
        });
        let apart = (10..).zip(&tables).filter(|(_, x)| x.3).map(|(id, _)| id).collect();
        let (schedules, costs) = (tables.iter().map(|x| x.1.clone()), tables.iter().map(|x| x.2));
        (edges.collect(), schedules.collect(), costs.collect(), apart)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn one_pass_gives_the_canonical_periods((edges, schedules, ..) in worlds()) {
        let d = dag(&edges);
        let s: BTreeMap<TableId, Schedule> =
            edges.iter().zip(schedules).filter_map(|(e, s)| Some((t(e.0), s?))).collect();
        let all = canonical_periods(&d, |id| s.get(&id), |_| secs(9));
        for (id, _) in &edges {
            prop_assert_eq!(all.get(&t(*id)).copied(), canonical_period(&d, &s, t(*id), secs(9)));
        }
    }

    #[test]
    fn a_simulated_daemon_keeps_everything_fresh(world in worlds(), limit in 1usize..4, fail in any::<bool>()) {
        keeps_everything_fresh(&world, limit, fail)?;
    }
}

/// Tables with short periods need seven seconds of work each period. A table with a period of 55 s waits for
/// at most one of its periods, although the others miss many of theirs.
#[test]
fn a_long_period_is_kept_while_short_ones_overload_refreshers() {
    let edges = (10..18).map(|id| (id, vec![if id == 11 { 10 } else { 1 }])).collect();
    let often = || every(1);
    let calculated = || Some(Schedule::Calculated);
    let schedules = vec![None, calculated(), often(), often(), often(), every(55), calculated(), often()];
    let costs = [845, 1651, 1, 495, 1, 1, 2376, 1751].map(|ms| (ms, 0)).to_vec();
    keeps_everything_fresh(&(edges, schedules, costs, vec![]), 1, false).unwrap();
}

/// Runs a model of a refresher that looks only at the time `wake`, or when a refresh has ended. The model
/// checks that no table has two refreshes at the same time, that groups are complete and in order, and that
/// the limit is respected. It also checks that `wake` lies in the future, and that every table with a
/// schedule is refreshed in time.
fn keeps_everything_fresh(world: &World, limit: usize, fail: bool) -> Result<(), TestCaseError> {
    let (edges, schedules, costs, apart) = world;
    let d = dag_apart(edges, apart);
    let groups = d.groups();
    let of = |id: TableId| groups.iter().position(|g| g.contains(&id));
    let o = Options {
        max_concurrent: limit,
        max_consecutive_errors: 0,
        backoff_cap: secs(30),
        ..Options::default()
    };
    let mut tasks: BTreeMap<TableId, Task> =
        edges.iter().zip(schedules).map(|(e, s)| (t(e.0), task(s.clone(), Status::default()))).collect();
    let cost = |id: TableId| costs[id.0 as usize - 10];
    let mut now = Time(0);
    let mut ends: BTreeMap<Time, Vec<Vec<TableId>>> = BTreeMap::new();
    let mut runs = 0u64;
    while now < Time(600_000) {
        if let Some(over) = ends.remove(&now) {
            for id in over.concat() {
                runs += 1;
                let status = &mut tasks.get_mut(&id).unwrap().status;
                status.running = false;
                status.last_end = Some(now);
                // A third of the table's refreshes fail, at pseudo-random positions.
                let thrown = runs.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33;
                let failed = fail && cost(id).1 == 1 && thrown.is_multiple_of(3);
                status.consecutive_errors = if failed { status.consecutive_errors + 1 } else { 0 };
            }
        }
        let plan = next(&d, &tasks, &o, now);
        prop_assert!(plan.wake.is_none_or(|w| w > now));
        for action in plan.actions {
            let Action::Refresh { members, due, .. } = action else { continue };
            prop_assert!(!due.is_empty() && due.iter().all(|x| members.contains(x)));
            let mut total = 0;
            for (i, id) in members.iter().enumerate() {
                for s in d.sources(*id).into_iter().filter(|s| d.is_stream_table(*s)) {
                    let source = &tasks[&s].status;
                    if of(s) == of(*id) {
                        prop_assert!(members[..i].contains(&s), "{id} before its source {s}");
                    } else {
                        // No table is refreshed while a separate refresh of its source runs. A source whose
                        // refresh ended now may be due again at this moment.
                        prop_assert!(!source.running || source.last_start == Some(now), "{id} beside {s}");
                        // The source was refreshed for this reader, unless the reader is tried again after an
                        // error.
                        let own = &tasks[id].status;
                        let newer = source.last_start > own.last_start;
                        prop_assert!(newer || own.consecutive_errors > 0 || !due.contains(id));
                    }
                }
                let status = &mut tasks.get_mut(id).unwrap().status;
                prop_assert!(!status.running, "{id} started twice");
                status.running = true;
                status.last_start = Some(now);
                total += cost(*id).0;
            }
            ends.entry(Time(now.0 + total as i64)).or_default().push(members);
        }
        prop_assert!(ends.values().map(Vec::len).sum::<usize>() <= limit);
        let Some(then) = plan.wake.into_iter().chain(ends.keys().next().copied()).min() else { break };
        prop_assert!(then > now);
        now = then;
    }
    // At most 12 tables of 3 s each are refreshed one after the other. If the tables of a chain sometimes
    // fail, each table adds a wait of up to 30 s.
    for (id, task) in &tasks {
        if task.schedule.is_some() {
            let last = task.status.last_start;
            prop_assert!(last.is_some_and(|s| now.since(s) < secs(400)), "{id} starves: {last:?} at {now:?}");
        }
    }
    Ok(())
}

/// A table that could not get a lock does not wait for the next time of its schedule, which may be tomorrow.
/// A table that failed does wait.
#[test]
fn what_was_in_somebodys_way_is_tried_again_soon() {
    let start = time("2026-03-02T05:00:00Z");
    let six = time("2026-03-02T06:00:00Z");
    for schedule in ["0 6 * * *", "1d"] {
        let mut agenda = Agenda::new(Options { jitter: 0.0, ..Options::default() });
        let schedule = Schedule::parse(schedule).ok();
        let refreshed = Some(six.before(secs(86_400)));
        let known = TableFacts { schedule, refreshed, ..TableFacts::default() };
        agenda.learn(dag(&[(10, vec![1])]), BTreeMap::from([(t(10), known)]), start);
        let changed = |agenda: &mut Agenda, now| {
            let (due, _) = agenda.unknown(now);
            let look = agenda.look(&due);
            let all = look.members.clone();
            agenda.looked(&due, &look, &Seen { stale: all.clone(), changed: all }, now);
            agenda.ready(now)
        };
        let ready = changed(&mut agenda, six);
        assert_eq!(ready.len(), 1);
        agenda.begin(&ready[0], six, secs(100));
        assert!(changed(&mut agenda, six.after(secs(9))).is_empty(), "it is at work");
        // The refresh waited 30 s for a lock. The next try comes after a quarter of that time, so refreshes
        // of the table take four fifths of the time.
        agenda.ended(&ready[0], Outcome::Later, six.after(secs(30)), secs(130));
        let again = six.after(Duration::from_millis(37_500));
        assert_eq!(agenda.wake(six.after(secs(30))), Some(again));
        assert!(changed(&mut agenda, again.before(Duration::from_millis(1))).is_empty());
        let ready = changed(&mut agenda, again);
        assert_eq!(ready.len(), 1);
        agenda.begin(&ready[0], again, secs(140));
        // After a refresh that ends at once, the wait is as long as after a first error.
        agenda.ended(&ready[0], Outcome::Later, again, secs(140));
        assert_eq!(agenda.wake(again), Some(again.after(secs(1))));
        let ready = changed(&mut agenda, again.after(secs(1)));
        agenda.begin(&ready[0], again.after(secs(1)), secs(141));
        agenda.ended(&ready[0], Outcome::Failed, again.after(secs(1)), secs(141));
        let tomorrow = agenda.wake(again.after(secs(1))).unwrap();
        assert!(tomorrow >= six.after(secs(86_000)), "{tomorrow}");
    }
}

/// The slow and obvious form of [`canonical_periods`], for one stream table.
fn canonical_period(
    dag: &Dag,
    schedules: &BTreeMap<TableId, Schedule>,
    id: TableId,
    default: Duration,
) -> Option<Duration> {
    let own = schedules.get(&id)?;
    own.period().or_else(|| {
        let consumers = dag.downstream(id);
        Some(consumers.iter().filter_map(|c| schedules.get(c)?.period()).min().unwrap_or(default))
    })
}
