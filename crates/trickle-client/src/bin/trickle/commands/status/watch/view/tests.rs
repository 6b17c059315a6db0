//! Catches a screen that hides the rows in bad state, the reasons for the state, or the age of the data.

use super::*;
use crate::seeing::model::tests::{behind, open, several, snapshot, status};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::layout::Alignment;

fn drawn(w: &Watched, (width, height): (u16, u16), now: Instant) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, w, now)).unwrap();
    terminal.backend().buffer().clone()
}

fn lines(buffer: &Buffer) -> Vec<String> {
    let line = |y| (0..buffer.area.width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..buffer.area.height).map(|y| line(y).trim_end().to_owned()).collect()
}

fn watched(now: Instant) -> Watched {
    let mut w = Watched::new("shop".into());
    w.read(Ok(snapshot(&several())), now);
    w
}

/// Returns the number and the text of the first line that begins with `start`.
#[track_caller]
fn line<'l>(lines: &'l [String], start: &str) -> (u16, &'l str) {
    let found = lines.iter().enumerate().find(|(_, l)| l.starts_with(start));
    let (y, l) = found.unwrap_or_else(|| panic!("no line {start}:\n{}", lines.join("\n")));
    (u16::try_from(y).unwrap(), l)
}

#[test]
fn each_row_tells_and_has_its_colour() {
    let now = Instant::now();
    let buffer = drawn(&watched(now), (130, 30), now);
    let text = lines(&buffer);
    assert!(text[0].starts_with("trickle shop  1 failed  1 late  1 due  1 manual  4 fresh"), "{}", text[0]);
    assert!(text[1].starts_with("a refresher is at work"), "{}", text[1]);
    let (_, failed) = line(&text, "s_failed");
    for told in
        ["DIFFERENTIAL", "failed", "9.0 s", "3 s ago, DIFFERENTIAL", "+3 ~1 -0", "12 ms", "8.0 KiB", "3"]
    {
        assert!(failed.contains(told), "{told}: {failed}");
    }
    for (name, word, colour) in [("s_late", "late", Color::Yellow), ("s_left", "fresh", Color::Green)] {
        let (y, row) = line(&text, name);
        let x = u16::try_from(row.rfind(word).unwrap()).unwrap();
        assert_eq!(buffer[(x, y)].fg, colour, "{row}");
    }
    let first = line(&text, "s_failed").0;
    assert!(first < line(&text, "s_late").0 && line(&text, "s_late").0 < line(&text, "s_left").0);
}

/// Makes stream tables with long names, also of wide letters, and values of the greatest width.
fn wide() -> Vec<trickle_client::Status> {
    let mut all: Vec<_> = several();
    for (name, ms) in [
        ("analytics.revenue_by_region_and_calendar_month_in_euro", 117_000),
        ("analytics.revenue_by_region_and_calendar_month_in_dollar", 11_520_000),
        ("logistik.größte_lieferverzögerungen_je_straße_日本語の表", 3_599_000),
        ("public.orders_per_customer", 100),
    ] {
        let mut s = behind(name, &["orders", "customers"], ms);
        s.consecutive_errors = 12;
        let last = s.last_refresh.as_mut().unwrap();
        (last.age_ms, last.ms) = (ms + 59_000, Some(119_400.0));
        (last.rows_inserted, last.rows_updated) = (Some(1_234_567), Some(89_012));
        all.push(s);
    }
    all.push(trickle_client::Status {
        status: trickle_client::Activity::Suspended,
        ..status("s_suspended", &["orders"])
    });
    all.push(trickle_client::Status { staleness_ms: None, ..status("s_unfilled", &["orders"]) });
    all
}

/// Catches numbers without their first digits. The law: between the gaps of a row are only the values of the
/// shown columns. A number ends at the same place of its line as the heading of its column.
#[test]
fn status_watch_shows_values_whole_at_each_width() {
    let now = Instant::now();
    let mut w = Watched::new("a_database_with_a_long_name on replica-3.eu-central-1.example.com".into());
    w.read(Ok(snapshot(&wide())), now);
    let mut before = Vec::new();
    for room in [32, 60, 80, 100, 120, 160, 240] {
        let buffer = drawn(&w, (room, 40), now);
        let (text, fitted) = (lines(&buffer), fitted(w.tables(), room));
        let screen = text.join("\n");
        let left_out = fitted.left_out().count();
        for (t, y) in w.tables().iter().zip(3..) {
            let mut expected = middle(&t.name, fitted.name);
            let mut end = fitted.name;
            for (c, own) in COLUMNS.iter().zip(fitted.widths).filter_map(|(c, w)| Some((c, w?))) {
                expected += &(c.text)(t);
                end += GAP + own;
                if c.side == Alignment::Right {
                    assert_ne!(buffer[(end - 1, y)].symbol(), " ", "{}:\n{screen}", c.head);
                }
            }
            let letters = |t: &str| t.chars().filter(|c| *c != ' ').collect::<String>();
            assert_eq!(letters(&text[usize::from(y)]), letters(&expected), "{room}:\n{screen}");
        }
        let told = text.iter().any(|l| l.starts_with(&format!("{left_out} columns are left out")));
        assert_eq!(told, left_out > 1, "{room}:\n{screen}");
        assert!(text[0].contains("4 fresh") || room < 60, "{}", text[0]);
        before.push(left_out);
    }
    assert!(before.is_sorted_by(|a, b| a >= b), "{before:?}");
    assert_eq!(before.last(), Some(&0));
}

/// Catches usual widths of a terminal at which too few columns are shown, and values that are shown nowhere.
#[test]
fn status_watch_leaves_out_the_least_important() {
    let now = Instant::now();
    let mut w = Watched::new("shop".into());
    w.read(Ok(snapshot(&wide())), now);
    let kept = ["status", "lag", "cost", "buffers", "errors"];
    for (room, others) in [(60, &["status", "lag", "errors"][..]), (80, &kept), (100, &kept), (120, &kept)] {
        let text = lines(&drawn(&w, (room, 40), now));
        let (_, head) = line(&text, "stream table");
        assert!(others.iter().all(|c| head.contains(c)), "{room}: {head}");
        let (_, long) = line(&text, "analytics");
        assert!(long.contains('…') || room == 120, "{long}");
        assert!(long.ends_with("12") && long.contains("h 12 min"), "{long}");
    }
    // The details of the chosen row show the values of the columns that are left out.
    for _ in 0..2 {
        w.key(KeyEvent::new(KeyCode::Down, KeyModifiers::NONE));
    }
    let (name, text) = (w.chosen().unwrap().name.clone(), lines(&drawn(&w, (80, 40), now)).join("\n"));
    for told in [name.as_str(), "left out above: mode ", "+1234567 ~89012 -0", "sort by: worst name lag"] {
        assert!(text.contains(told), "{told}:\n{text}");
    }
}

#[test]
fn a_long_name_is_shortened_in_its_middle() {
    for (room, short) in [(9, "by_region"), (8, "by_r…ion"), (3, "b…n"), (2, "b…"), (1, "…"), (0, "…")]
    {
        assert_eq!(middle("by_region", room), short);
    }
    // Each of these letters takes two columns of the terminal.
    assert_eq!(
        (middle("日本語の表", 10), middle("日本語の表", 9)),
        ("日本語の表".into(), "日本…の表".into())
    );
    assert_eq!(middle("日本語の表", 6), "日…表");
    assert_eq!((start("refused", 7), start("refused", 4)), ("refused".into(), "ref…".into()));
}

#[test]
fn the_chosen_row_says_why() {
    let now = Instant::now();
    let mut w = watched(now);
    let text = lines(&drawn(&w, (100, 30), now));
    line(&text, "last error: division by <zero>");
    line(&text, "reads: orders");
    w.key(KeyEvent::new(KeyCode::Down, KeyModifiers::NONE));
    let buffer = drawn(&w, (100, 30), now);
    let text = lines(&buffer);
    line(&text, "not incremental: last_value() is not kept");
    let (y, _) = line(&text, "s_late");
    assert!(buffer[(0, y)].modifier.contains(Modifier::REVERSED));
}

#[test]
fn what_is_old_says_so() {
    let now = Instant::now();
    let mut w = watched(now);
    w.read(Err("cannot connect\n to the server".into()), now);
    let text = lines(&drawn(&w, (100, 30), now + Duration::from_secs(75)));
    assert_eq!(text[1], "no news for 1 min 15 s, trying again: cannot connect to the server");
    line(&text, "s_failed");
    let mut never = Watched::new("shop".into());
    assert_eq!(lines(&drawn(&never, (60, 20), now))[1], "asking the database …");
    never.read(Err("refused".into()), now);
    assert_eq!(lines(&drawn(&never, (60, 20), now))[1], "no answer yet, trying again: refused");
}

#[test]
fn a_transaction_that_is_open_for_long_is_named() {
    let now = Instant::now();
    let mut w = watched(now);
    let mut seen = snapshot(&several());
    seen.open = vec![open(4711, 420)];
    w.read(Ok(seen), now);
    let text = lines(&drawn(&w, (160, 20), now));
    assert!(text[1].contains("while a transaction is 7 min old: process 4711"), "{}", text[1]);
}

#[test]
fn more_rows_than_lines_scroll_with_the_chosen_one() {
    let now = Instant::now();
    let mut w = Watched::new("shop".into());
    let all: Vec<_> = (0..50).map(|i| status(&format!("s{i:02}"), &["orders"])).collect();
    w.read(Ok(snapshot(&all)), now);
    for (key, shown, hidden) in [(KeyCode::Home, "s00", "s49"), (KeyCode::End, "s49", "s00")] {
        w.key(KeyEvent::new(key, KeyModifiers::NONE));
        let text = lines(&drawn(&w, (100, 20), now));
        line(&text, shown);
        assert!(!text[..11].iter().any(|l| l.starts_with(hidden)), "{}", text.join("\n"));
    }
}

#[test]
fn any_size_of_a_terminal_will_do() {
    let now = Instant::now();
    for size in [(1, 1), (10, 3), (40, 8), (300, 100)] {
        drawn(&watched(now), size, now);
    }
    let mut none = Watched::new("shop".into());
    none.read(Ok(snapshot(&[])), now);
    let text = lines(&drawn(&none, (60, 20), now));
    line(&text, "there is no stream table; trickle create makes one");
}
