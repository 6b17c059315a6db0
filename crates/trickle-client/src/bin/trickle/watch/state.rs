//! What the view knows, and what keys do to it.

use crate::seeing::model::{Snapshot, Table};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use std::cmp::Ordering;
use std::time::Instant;

/// What is to be done after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    Draw,
    /// Ask the database now.
    Read,
    Quit,
}

/// In which order rows stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    /// As the model has them.
    Worst,
    Name,
    Behind,
    /// What the last refresh took, dearest first.
    Cost,
    /// Largest first.
    Buffer,
    /// Those refreshed last first.
    Last,
}

impl Sort {
    /// All of them, with their keys, and as the view names them.
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
        // Who was never filled is behind by more than anybody.
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

/// See the module.
pub(super) struct Watched {
    /// Which database.
    pub(super) what: String,
    /// What was read last, in the order in which it is shown.
    pub(super) snapshot: Option<Snapshot>,
    /// When that was.
    pub(super) read: Option<Instant>,
    /// Why there is nothing newer.
    pub(super) trouble: Option<String>,
    pub(super) sort: Sort,
    /// The name of the row that is told about: it stays the same one when rows change places.
    chosen: Option<String>,
}

impl Watched {
    pub(super) fn new(what: String) -> Watched {
        Watched { what, snapshot: None, read: None, trouble: None, sort: Sort::Worst, chosen: None }
    }

    /// Takes in what was read, or why nothing was.
    pub(super) fn read(&mut self, read: Result<Snapshot, String>, now: Instant) {
        match read {
            Ok(snapshot) => {
                (self.snapshot, self.read, self.trouble) = (Some(snapshot), Some(now), None);
                self.settle();
            }
            Err(why) => self.trouble = Some(why),
        }
    }

    /// Sorts; where the chosen row is gone, the one that stands in its place is chosen.
    fn settle(&mut self) {
        let sort = self.sort;
        if let Some(snapshot) = &mut self.snapshot {
            // The model's order stays among equals.
            snapshot.tables.sort_by(|a, b| sort.order(a, b));
        }
    }

    pub(super) fn tables(&self) -> &[Table] {
        self.snapshot.as_ref().map_or(&[], |s| &s.tables)
    }

    /// The number of the chosen row; the first one's until one is chosen.
    pub(super) fn row(&self) -> usize {
        let chosen = self.chosen.as_deref();
        self.tables().iter().position(|t| Some(t.name.as_str()) == chosen).unwrap_or(0)
    }

    pub(super) fn chosen(&self) -> Option<&Table> {
        self.tables().get(self.row())
    }

    fn go(&mut self, to: usize) -> Told {
        let last = self.tables().len().saturating_sub(1);
        self.chosen = self.tables().get(to.min(last)).map(|t| t.name.clone());
        Told::Draw
    }

    /// What a key does.
    pub(super) fn key(&mut self, key: KeyEvent) -> Told {
        const PAGE: usize = 10;
        let row = self.row();
        match key.code {
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Told::Quit,
            KeyCode::Char('q') | KeyCode::Esc => Told::Quit,
            KeyCode::Char('r') => Told::Read,
            KeyCode::Down | KeyCode::Char('j') => self.go(row + 1),
            KeyCode::Up | KeyCode::Char('k') => self.go(row.saturating_sub(1)),
            KeyCode::PageDown => self.go(row + PAGE),
            KeyCode::PageUp => self.go(row.saturating_sub(PAGE)),
            KeyCode::Home | KeyCode::Char('g') => self.go(0),
            KeyCode::End | KeyCode::Char('G') => self.go(usize::MAX),
            KeyCode::Char(c) => match Sort::ALL.into_iter().find(|(_, key, _)| *key == c) {
                // The model's order is in the model alone: it is read anew.
                Some((Sort::Worst, ..)) => {
                    self.sort = Sort::Worst;
                    Told::Read
                }
                Some((sort, ..)) => {
                    self.sort = sort;
                    self.settle();
                    Told::Draw
                }
                None => Told::Draw,
            },
            _ => Told::Draw,
        }
    }
}

#[cfg(test)]
mod tests;
