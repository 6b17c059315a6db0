//! Which statements a connection keeps prepared: what a refresher sends again and again is parsed and analysed once.
//!
//! A statement is prepared when it is sent for the second time. What it means may hang on the settings under which it was
//! analysed (a literal of type `timestamptz` on the time zone), and its plan, which is kept with it, on how large the tables
//! are that it reads: both are part of what it is found by. How many rows changed stands in its text, by powers of two.

use super::Sent;
use std::collections::HashMap;
use std::fmt;
use std::hash::Hasher;
use std::sync::Arc;
use trickle_core::refresh::{Kind, Statement};
use xxhash_rust::xxh64::Xxh64;

/// How many statements a connection knows: each that is prepared takes some hundred kilobytes of its server process.
const MOST: usize = 200;

/// Stands for the settings of a connection outside refreshes.
const OUTSIDE: u64 = 0;

/// The statements of one connection, by the settings in force and their text; `P` is what a prepared one is to its driver.
pub struct Kept<P> {
    known: HashMap<(u64, Arc<str>), Known<P>>,
    settings: Xxh64,
    /// Counts uses, to tell which is the oldest.
    clock: u64,
    /// How many of them found a statement prepared.
    kept: u64,
}

struct Known<P> {
    used: u64,
    prepared: Option<P>,
}

impl<P> fmt::Debug for Kept<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kept").field("known", &self.known.len()).finish_non_exhaustive()
    }
}

impl<P> Default for Kept<P> {
    fn default() -> Kept<P> {
        Kept { known: HashMap::new(), settings: Xxh64::new(0), clock: 0, kept: 0 }
    }
}

/// How a statement is to be sent.
#[derive(Debug)]
pub enum Way<P> {
    /// As a text, once.
    Text,
    /// It comes again: it is to be prepared, and kept under this number of settings.
    Prepare(u64),
    /// As it was prepared.
    Kept(P),
}

impl<P: Clone> Kept<P> {
    /// A transaction of a refresh begins: settings are those of the connection.
    pub fn begin(&mut self) {
        self.settings.reset(0);
    }

    /// How to send the next statement of the connection. All must be shown, in the order in which they are sent. One that was
    /// prepared is kept only if it `fits` the types of the values.
    pub fn way(&mut self, s: &Statement, fits: impl FnOnce(&P) -> bool) -> Way<P> {
        match s.kind {
            Kind::Begin => self.begin(),
            Kind::Setting => {
                self.settings.write(s.text.as_bytes());
                self.settings.write_u8(0);
            }
            Kind::Decide
            | Kind::Program
            | Kind::Partitions
            | Kind::Lease
            | Kind::Frontier
            | Kind::History => {
                let mut settings = self.settings.clone();
                settings.write_u64(s.scale);
                return self.seen(settings.finish(), &s.text, fits);
            }
            Kind::Lock
            | Kind::Savepoint
            | Kind::Define
            | Kind::Release
            | Kind::RollbackTo
            | Kind::Command
            | Kind::Commit
            | Kind::Rollback => {}
        }
        Way::Text
    }

    /// How to ask a question outside refreshes, under the settings of the connection.
    pub fn asked(&mut self, text: &str, fits: impl FnOnce(&P) -> bool) -> Way<P> {
        self.seen(OUTSIDE, &Arc::from(text), fits)
    }

    fn seen(&mut self, settings: u64, text: &Arc<str>, fits: impl FnOnce(&P) -> bool) -> Way<P> {
        self.clock += 1;
        let key = (settings, text.clone());
        let Some(known) = self.known.get_mut(&key) else {
            self.forget_oldest();
            self.known.insert(key, Known { used: self.clock, prepared: None });
            return Way::Text;
        };
        known.used = self.clock;
        match &known.prepared {
            None => Way::Prepare(settings),
            Some(kept) if fits(kept) => {
                self.kept += 1;
                Way::Kept(kept.clone())
            }
            // Where a value was NULL when it was prepared, the server found its type in the text, and took another.
            Some(_) => Way::Text,
        }
    }

    /// What was sent by now.
    pub fn sent(&self) -> Sent {
        Sent { all: self.clock, kept: self.kept }
    }

    /// Keeps a statement that was prepared.
    pub fn keep(&mut self, settings: u64, text: &str, prepared: P) {
        let known = Known { used: self.clock, prepared: Some(prepared) };
        self.known.insert((settings, Arc::from(text)), known);
    }

    /// Forgets all that was prepared, where the server has: what comes next is sent as a text.
    pub fn forget(&mut self) {
        self.known.clear();
    }

    fn forget_oldest(&mut self) {
        if self.known.len() < MOST {
            return;
        }
        let oldest = self.known.iter().min_by_key(|(_, k)| k.used).map(|(key, _)| key.clone());
        oldest.map(|key| self.known.remove(&key));
    }
}
