//! Keeps the lease under which this refresher works ([`trickle_engine::lease`]), on a connection of its own: whatever a look or
//! a refresh waits for, the lease is renewed in time. Its questions hold nothing of the session, so they go through any pooler.

use super::{Event, RECONNECT, named};
use crate::session::{Connect, Session};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use trickle_core::refresh::Lease;
use trickle_engine::lease::{self, Leading};
use trickle_engine::{Error, Result, Settings, Trickle};

/// Whether this refresher is the one that works.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Lead {
    /// Not known, or not any more: the server did not answer in time.
    Unknown,
    /// It is, under this lease.
    Own(Lease),
    /// Another one is.
    Another(String),
}

/// Of a lease's term, what passes between two renewals: two may fail.
const BEATS: u32 = 3;

/// How often at least one that waits looks whether the lease is free.
const PATIENCE: Duration = Duration::from_secs(1);

/// See the module.
pub(super) struct Keeper<'k> {
    to: &'k dyn Connect,
    tell: &'k dyn Fn(Event<'_>),
    settings: Settings,
    term: Duration,
    holder: String,
    lead: watch::Sender<Lead>,
}

impl<'k> Keeper<'k> {
    /// One that holds nothing yet, and who is told what it comes to hold.
    pub(super) fn new(
        to: &'k dyn Connect,
        tell: &'k dyn Fn(Event<'_>),
        settings: &Settings,
        term: Duration,
    ) -> (Keeper<'k>, watch::Receiver<Lead>) {
        let (lead, told) = watch::channel(Lead::Unknown);
        // Nothing stays prepared: a pooler may give each question another server process.
        let settings = Settings { use_prepared_statements: false, ..settings.clone() };
        (Keeper { to, tell, settings, term, holder: own_name(), lead }, told)
    }

    /// Asks for the lease again and again; returns what makes it useless to go on.
    pub(super) async fn keep(&self) -> Error {
        let mut connection = None;
        let (mut held, mut ends, mut wait) = (None, None, RECONNECT.0);
        loop {
            let asked = Instant::now();
            let answer = tokio::time::timeout(self.beat(), self.ask(&mut connection, held)).await;
            let late = || Err(Error::connection("the server does not answer in time"));
            let pause = match answer.unwrap_or_else(|_| late()) {
                Ok(Leading::Own(lease)) => {
                    (held, ends) = (Some(lease), Some(asked + self.term));
                    self.know(Lead::Own(lease));
                    wait = RECONNECT.0;
                    self.beat()
                }
                Ok(Leading::Another { holder, left }) => {
                    (held, ends) = (None, None);
                    self.know(Lead::Another(holder));
                    wait = RECONNECT.0;
                    left.min(PATIENCE).min(self.beat()).max(RECONNECT.0)
                }
                Err(e) if e.is_input() => return e,
                Err(e) => {
                    connection = None;
                    // Who works tells what happens to connections.
                    if !matches!(*self.lead.borrow(), Lead::Own(_)) {
                        (self.tell)(Event::Disconnected(&e, wait));
                    }
                    let pause = wait;
                    wait = (wait * 2).min(RECONNECT.1);
                    pause
                }
            };
            let lapses = ends.map(|at: Instant| at.saturating_duration_since(Instant::now()));
            if lapses.is_some_and(|left| left <= pause) {
                tokio::time::sleep(lapses.unwrap_or_default()).await;
                ends = None;
                self.know(Lead::Unknown);
            } else {
                tokio::time::sleep(pause).await;
            }
        }
    }

    /// Lets others have the lease at once; where that cannot be, they have it when it ends.
    pub(super) async fn give(&self) {
        let Lead::Own(lease) = self.lead.borrow().clone() else { return };
        let give = async { lease::give(named(self.to).await?.db(), lease).await };
        let _ = tokio::time::timeout(self.beat(), give).await;
    }

    fn beat(&self) -> Duration {
        self.term / BEATS
    }

    async fn ask(&self, connection: &mut Option<Trickle<Session>>, held: Option<Lease>) -> Result<Leading> {
        // Whatever ends amid a question leaves no connection that would still answer it.
        let trickle = match connection.take() {
            Some(trickle) => trickle,
            None => Trickle::open(named(self.to).await?, self.settings.clone()).await?,
        };
        let answer = lease::take(trickle.db(), &self.holder, held, self.term).await?;
        *connection = Some(trickle);
        Ok(answer)
    }

    fn know(&self, lead: Lead) {
        self.lead.send_if_modified(|known| {
            let is_new = *known != lead;
            *known = lead;
            is_new
        });
    }
}

/// A name that no other refresher has, and that tells people which one it is.
fn own_name() -> String {
    use std::hash::{BuildHasher, Hasher};
    let host = whoami::hostname().unwrap_or_else(|_| "a host without a name".to_owned());
    let chance = std::collections::hash_map::RandomState::new().build_hasher().finish();
    format!("trickle run on {host}, process {}, {chance:016x}", std::process::id())
}
