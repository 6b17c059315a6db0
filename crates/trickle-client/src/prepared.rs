//! Statements that a connection keeps prepared: what a refresher sends again and again is parsed and analysed once.
//!
//! A statement is prepared when it is sent for the second time. What it means may hang on the settings under which it was
//! analysed (a literal of type `timestamptz` on the time zone), and its plan, which is kept with it, on how large the tables
//! are that it reads: both are part of what it is found by. How many rows changed stands in its text, by powers of two.

use std::collections::HashMap;
use std::hash::Hasher;
use std::sync::Arc;
use tokio_postgres::Statement;
use tokio_postgres::types::Type;
use trickle_core::refresh;
use trickle_core::refresh::Kind;
use trickle_engine::db::Sent;
use xxhash_rust::xxh64::Xxh64;

/// How many statements a connection knows: each that is prepared takes some hundred kilobytes of its server process.
const MOST: usize = 200;

/// Stands for the settings of a connection outside refreshes.
const OUTSIDE: u64 = 0;

/// The statements of one connection, by the settings in force and their text.
#[derive(Default)]
pub(crate) struct Prepared {
    known: HashMap<(u64, Arc<str>), Known>,
    settings: Xxh64,
    /// Counts uses, to tell which is the oldest.
    clock: u64,
    /// How many of them found a statement prepared.
    kept: u64,
}

struct Known {
    used: u64,
    prepared: Option<Statement>,
}

/// How a statement is to be sent.
pub(crate) enum Way {
    /// As a text, once.
    Text,
    /// It comes again: it is to be prepared, and kept under this number of settings.
    Prepare(u64),
    /// As it was prepared.
    Kept(Statement),
}

impl Prepared {
    /// How to send the next statement of the connection. All must be shown, in the order in which they are sent.
    pub(crate) fn way(&mut self, s: &refresh::Statement, types: &[Type]) -> Way {
        match s.kind {
            Kind::Begin => self.settings.reset(0),
            Kind::Setting => {
                self.settings.write(s.text.as_bytes());
                self.settings.write_u8(0);
            }
            Kind::Decide | Kind::Program | Kind::Frontier | Kind::History => {
                let mut settings = self.settings.clone();
                settings.write_u64(s.scale);
                return self.seen(settings.finish(), &s.text, types);
            }
            _ => {}
        }
        Way::Text
    }

    /// How to ask a question outside refreshes, under the settings of the connection.
    pub(crate) fn asked(&mut self, text: &str, types: &[Type]) -> Way {
        self.seen(OUTSIDE, &Arc::from(text), types)
    }

    fn seen(&mut self, settings: u64, text: &Arc<str>, types: &[Type]) -> Way {
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
            Some(kept) if fits(kept.params(), types) => {
                self.kept += 1;
                Way::Kept(kept.clone())
            }
            // Where a value was NULL when it was prepared, the server found its type in the text, and took another.
            Some(_) => Way::Text,
        }
    }

    /// What was sent by now.
    pub(crate) fn sent(&self) -> Sent {
        Sent { all: self.clock, kept: self.kept }
    }

    /// Keeps a statement that was prepared.
    pub(crate) fn keep(&mut self, settings: u64, text: &str, prepared: Statement) {
        let known = Known { used: self.clock, prepared: Some(prepared) };
        self.known.insert((settings, Arc::from(text)), known);
    }

    fn forget_oldest(&mut self) {
        if self.known.len() < MOST {
            return;
        }
        let oldest = self.known.iter().min_by_key(|(_, k)| k.used).map(|(key, _)| key.clone());
        oldest.map(|key| self.known.remove(&key));
    }
}

/// Whether values of these types can be bound where those are expected; NULL can be bound anywhere.
fn fits(expected: &[Type], given: &[Type]) -> bool {
    expected.len() == given.len() && expected.iter().zip(given).all(|(e, g)| e == g || *g == Type::UNKNOWN)
}
