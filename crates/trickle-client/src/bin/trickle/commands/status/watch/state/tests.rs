//! Catches a view that loses the chosen row when rows change places, or that cannot be left.

use super::*;
use crate::seeing::model::tests::{behind, several, snapshot, status};

fn watched() -> Watched {
    let mut w = Watched::new("shop".into());
    w.read(Ok(snapshot(&several())), Instant::now());
    w
}

fn press(w: &mut Watched, code: KeyCode) -> AfterKey {
    w.key(KeyEvent::new(code, KeyModifiers::NONE))
}

fn chosen(w: &Watched) -> &str {
    w.chosen().map_or("", |t| &t.name)
}

#[test]
fn three_keys_end_it() {
    let mut w = watched();
    assert_eq!(press(&mut w, KeyCode::Char('q')), AfterKey::Quit);
    assert_eq!(press(&mut w, KeyCode::Esc), AfterKey::Quit);
    assert_eq!(w.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), AfterKey::Quit);
    assert_eq!(press(&mut w, KeyCode::Char('c')), AfterKey::Draw, "that sorts by cost");
}

#[test]
fn the_chosen_row_stays_chosen() {
    let mut w = watched();
    assert_eq!(chosen(&w), "s_failed");
    for _ in 0..3 {
        press(&mut w, KeyCode::Down);
    }
    assert_eq!((chosen(&w), w.row()), ("s_manual", 3));
    press(&mut w, KeyCode::Char('n'));
    assert_eq!(chosen(&w), "s_manual");
    assert_ne!(w.row(), 3);
    // The chosen row becomes the worst, and is gone after the next read.
    w.read(Ok(snapshot(&[status("s_a", &[]), behind("s_manual", &[], 99_000)])), Instant::now());
    assert_eq!(chosen(&w), "s_manual");
    w.read(Ok(snapshot(&[status("s_a", &[])])), Instant::now());
    assert_eq!(chosen(&w), "s_a");
}

#[test]
fn scrolling_ends_at_the_ends() {
    let mut w = watched();
    press(&mut w, KeyCode::Up);
    assert_eq!(w.row(), 0);
    press(&mut w, KeyCode::End);
    assert_eq!(w.row(), w.tables().len() - 1);
    press(&mut w, KeyCode::PageDown);
    assert_eq!(w.row(), w.tables().len() - 1);
    press(&mut w, KeyCode::Home);
    assert_eq!(w.row(), 0);
    let mut empty = Watched::new("shop".into());
    assert_eq!(press(&mut empty, KeyCode::Down), AfterKey::Draw);
    assert!(empty.chosen().is_none());
}

#[test]
fn rows_are_sorted_as_asked() {
    let mut w = watched();
    press(&mut w, KeyCode::Char('l'));
    assert_eq!(chosen_first(&w), "s_manual");
    press(&mut w, KeyCode::Char('b'));
    assert_eq!(chosen_first(&w), "s_late");
    assert_eq!(press(&mut w, KeyCode::Char('w')), AfterKey::Read);
    w.read(Ok(snapshot(&several())), Instant::now());
    assert_eq!(chosen_first(&w), "s_failed");
}

fn chosen_first(w: &Watched) -> &str {
    &w.tables()[0].name
}
