//! Catches a screen that hides what matters: which rows are wrong, why, and that what is shown is old.

use super::*;
use crate::seeing::model::tests::{open, several, snapshot, status};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;

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

/// The line that begins so, and its number.
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
