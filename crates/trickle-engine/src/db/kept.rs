//! The statements that a connection keeps prepared: those that a refresher sends again and again are parsed
//! and analysed once.
//!
//! A statement is prepared when it is sent for the second time. The connection finds it by its text, by the
//! settings under which it was analysed, and by the magnitude of the tables that it reads. The settings may
//! decide what the text means: a literal of type `timestamptz` depends on the time zone. The magnitude
//! decides the plan, which is kept with the statement. The text has the number of changed rows, rounded to a
//! power of two.

use super::Sent;
use std::collections::HashMap;
use std::fmt;
use std::hash::Hasher;
use std::sync::Arc;
use trickle_core::refresh::{Kind, Statement};
use xxhash_rust::xxh64::Xxh64;

/// The most statements that a connection knows. Each prepared one takes some hundred kilobytes of its server
/// process.
const MOST: usize = 200;

/// The number that stands for the settings of a connection outside refreshes.
const OUTSIDE: u64 = 0;

/// The statements of one connection, by their text and the settings in force. `P` is the driver's form of a
/// prepared statement.
pub struct Kept<P> {
    known: HashMap<(u64, Arc<str>), Known<P>>,
    settings: Xxh64,
    /// Counts uses, to find the statement that was used longest ago.
    clock: u64,
    /// The number of uses that found a statement prepared.
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

/// The way to send a statement.
#[derive(Debug)]
pub enum Way<P> {
    /// As a text, without preparing it.
    Text,
    /// As a statement to prepare first, since it has come before, and to keep under this number of settings.
    Prepare(u64),
    /// As this statement, which is prepared.
    Kept(P),
}

impl<P: Clone> Kept<P> {
    /// Begins a transaction of a refresh, under the settings of the connection.
    pub fn begin(&mut self) {
        self.settings.reset(0);
    }

    /// Decides how to send the next statement of the connection. The caller must show all statements, in the
    /// order in which they are sent. A prepared statement is used only if it `fits` the types of the values.
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

    /// Decides how to send a question outside refreshes, under the settings of the connection.
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
            // A value was NULL when the statement was prepared, so the server took the type from the text,
            // and took another one.
            Some(_) => Way::Text,
        }
    }

    /// Returns the counts of statements sent so far.
    pub fn sent(&self) -> Sent {
        Sent { all: self.clock, kept: self.kept }
    }

    /// Keeps a statement that was prepared.
    pub fn keep(&mut self, settings: u64, text: &str, prepared: P) {
        let known = Known { used: self.clock, prepared: Some(prepared) };
        self.known.insert((settings, Arc::from(text)), known);
    }

    /// Forgets all prepared statements, where the server has: the next statements are sent as text.
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
