//! The statements that a connection keeps prepared. A refresher sends the same statements repeatedly, and
//! the server parses and analyses a prepared statement only once.
//!
//! A statement is prepared when it is sent for the second time. The connection finds a prepared statement by
//! its text, the settings at its analysis, and the magnitude of the tables that it reads. The settings may
//! decide the meaning of the text. For example, a literal of type `timestamptz` depends on the time zone. The
//! magnitude decides the plan, which the server stores with the prepared statement. The number of changed
//! rows is a part of the text, rounded to a power of two.

use super::Sent;
use std::collections::HashMap;
use std::fmt;
use std::hash::Hasher;
use std::sync::Arc;
use trickle_core::refresh::{Kind, Statement};
use xxhash_rust::xxh64::Xxh64;

/// The greatest number of statements that a connection remembers. Each prepared statement takes some hundred
/// kilobytes in the server process.
const MOST: usize = 200;

/// The hash that stands for the settings of a connection outside refreshes.
const OUTSIDE: u64 = 0;

/// The statements that one connection remembers, by their texts and the settings in force. `P` is the
/// driver's form of a prepared statement.
pub struct Kept<P> {
    known: HashMap<(u64, Arc<str>), Known<P>>,
    settings: Xxh64,
    /// The number of statements sent so far, by which the statement that was used longest ago is found.
    clock: u64,
    /// The number of statements that were sent in prepared form.
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

/// The form in which to send a statement.
#[derive(Debug)]
pub enum SendForm<P> {
    /// As text, without preparing the statement.
    Text,
    /// As a statement to prepare before it is sent, since the same text was sent before. The number is the
    /// hash of the settings under which to store it.
    Prepare(u64),
    /// As this prepared statement.
    Kept(P),
}

impl<P: Clone> Kept<P> {
    /// Begins a transaction of a refresh, which starts under the settings of the connection.
    pub fn begin(&mut self) {
        self.settings.reset(0);
    }

    /// Decides in which form to send the next statement of the connection. The caller must pass every
    /// statement, in the order in which the statements are sent. A prepared statement is used only if `fits`
    /// is true, which means that its parameter types are the types of the values.
    pub fn form(&mut self, s: &Statement, fits: impl FnOnce(&P) -> bool) -> SendForm<P> {
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
        SendForm::Text
    }

    /// Decides in which form to send a statement that is not a statement of a refresh, and so runs under the
    /// settings of the connection.
    pub fn asked(&mut self, text: &str, fits: impl FnOnce(&P) -> bool) -> SendForm<P> {
        self.seen(OUTSIDE, &Arc::from(text), fits)
    }

    fn seen(&mut self, settings: u64, text: &Arc<str>, fits: impl FnOnce(&P) -> bool) -> SendForm<P> {
        self.clock += 1;
        let key = (settings, text.clone());
        let Some(known) = self.known.get_mut(&key) else {
            self.forget_oldest();
            self.known.insert(key, Known { used: self.clock, prepared: None });
            return SendForm::Text;
        };
        known.used = self.clock;
        match &known.prepared {
            None => SendForm::Prepare(settings),
            Some(kept) if fits(kept) => {
                self.kept += 1;
                SendForm::Kept(kept.clone())
            }
            // When the statement was prepared, a value was NULL, so the server inferred a type from the
            // text. The present value has another type.
            Some(_) => SendForm::Text,
        }
    }

    /// Returns the counts of the statements sent so far.
    pub fn sent(&self) -> Sent {
        Sent { all: self.clock, kept: self.kept }
    }

    /// Stores a statement that was prepared.
    pub fn keep(&mut self, settings: u64, text: &str, prepared: P) {
        let known = Known { used: self.clock, prepared: Some(prepared) };
        self.known.insert((settings, Arc::from(text)), known);
    }

    /// Forgets all prepared statements, for a server that has forgotten them. The next statements are sent
    /// as text.
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
