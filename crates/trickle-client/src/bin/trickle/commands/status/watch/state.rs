//! The state of the view, and the effect of keys on it.

use crate::seeing::model::{Snapshot, Table};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use std::cmp::Ordering;
use std::time::Instant;

/// The work that follows a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AfterKey {
    Draw,
    /// Read the database at once.
    Read,
    Quit,
}

/// The order of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    /// The order of the model: the worst state first.
    Worst,
    Name,
    Behind,
    /// By the duration of the last refresh, the longest first.
    Cost,
    /// By the number of bytes in the buffers of the sources, the largest first.
    Buffer,
    /// By the age of the last refresh, the youngest first.
    Last,
}

impl Sort {
    /// All orders. Each has its key, and its name in the view.
    pub(super) const ALL: [(Sort, char, &'static str); 6] = [
        (Sort::Worst, 'w', "worst"),
        (Sort::Name, 'n', "name"),
        (Sort::Behind, 'l', "lag"),
        (Sort::Cost, 'c', "cost"),
        (Sort::Buffer, 'b', "buffer"),
        (Sort::Last, 't', "time"),
    ];

    fn order(self, a: &Table, b: &Table) -> Ordering {
        let cost = |t: &Table| t.last_refresh.as_ref().and_then(|l| l.ms).unwrap_or(-1.0);
        let age = |t: &Table| t.last_refresh.as_ref().map_or(i64::MAX, |l| l.age_ms);
        // A stream table that was never filled is further behind than all others.
        let behind = |t: &Table| t.behind_ms.unwrap_or(u64::MAX);
        match self {
            Sort::Worst => Ordering::Equal,
            Sort::Name => a.name.cmp(&b.name),
            Sort::Behind => behind(b).cmp(&behind(a)),
            Sort::Cost => cost(b).total_cmp(&cost(a)),
            Sort::Buffer => b.buffer_bytes.cmp(&a.buffer_bytes),
            Sort::Last => age(a).cmp(&age(b)),
        }
    }
}

/// The state of the view.
pub(super) struct Watched {
    /// The name of the database.
    pub(super) what: String,
    /// The result of the last successful read, with its rows in the shown order.
    pub(super) snapshot: Option<Snapshot>,
    /// The time of the last successful read.
    pub(super) read: Option<Instant>,
    /// The reason why there is no newer result.
    pub(super) trouble: Option<String>,
    pub(super) sort: Sort,
    /// The stream table of the chosen row, whose details are shown. The same stream table stays chosen when
    /// rows change places.
    chosen: Option<String>,
}

impl Watched {
    pub(super) fn new(what: String) -> Watched {
        Watched { what, snapshot: None, read: None, trouble: None, sort: Sort::Worst, chosen: None }
    }

    /// Stores the result of a read, or the reason why the read failed.
    pub(super) fn read(&mut self, read: Result<Snapshot, String>, now: Instant) {
        match read {
            Ok(snapshot) => {
                (self.snapshot, self.read, self.trouble) = (Some(snapshot), Some(now), None);
                self.settle();
            }
            Err(why) => self.trouble = Some(why),
        }
    }

    /// Sorts the rows.
    fn settle(&mut self) {
        let sort = self.sort;
        if let Some(snapshot) = &mut self.snapshot {
            // Equal rows stay in the order of the model.
            snapshot.tables.sort_by(|a, b| sort.order(a, b));
        }
    }

    pub(super) fn tables(&self) -> &[Table] {
        self.snapshot.as_ref().map_or(&[], |s| &s.tables)
    }

    /// Returns the number of the chosen row. If no row is chosen, or the chosen row is gone, returns the
    /// number of the first row.
    pub(super) fn row(&self) -> usize {
        let chosen = self.chosen.as_deref();
        self.tables().iter().position(|t| Some(t.name.as_str()) == chosen).unwrap_or(0)
    }

    pub(super) fn chosen(&self) -> Option<&Table> {
        self.tables().get(self.row())
    }

    fn go(&mut self, to: usize) -> AfterKey {
        let last = self.tables().len().saturating_sub(1);
        self.chosen = self.tables().get(to.min(last)).map(|t| t.name.clone());
        AfterKey::Draw
    }

    /// Applies a key, and returns the work that follows.
    pub(super) fn key(&mut self, key: KeyEvent) -> AfterKey {
        const PAGE: usize = 10;
        let row = self.row();
        match key.code {
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => AfterKey::Quit,
            KeyCode::Char('q') | KeyCode::Esc => AfterKey::Quit,
            KeyCode::Char('r') => AfterKey::Read,
            KeyCode::Down | KeyCode::Char('j') => self.go(row + 1),
            KeyCode::Up | KeyCode::Char('k') => self.go(row.saturating_sub(1)),
            KeyCode::PageDown => self.go(row + PAGE),
            KeyCode::PageUp => self.go(row.saturating_sub(PAGE)),
            KeyCode::Home | KeyCode::Char('g') => self.go(0),
            KeyCode::End | KeyCode::Char('G') => self.go(usize::MAX),
            KeyCode::Char(c) => match Sort::ALL.into_iter().find(|(_, key, _)| *key == c) {
                // The order of the model is lost when rows are sorted, so the rows are read anew.
                Some((Sort::Worst, ..)) => {
                    self.sort = Sort::Worst;
                    AfterKey::Read
                }
                Some((sort, ..)) => {
                    self.sort = sort;
                    self.settle();
                    AfterKey::Draw
                }
                None => AfterKey::Draw,
            },
            _ => AfterKey::Draw,
        }
    }
}

#[cfg(test)]
mod tests;
