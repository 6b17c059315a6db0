//! Takes and renews the lease under which this refresher works ([`trickle_engine::lease`]), on a connection
//! of its own. So the lease is renewed in time, whatever a look or a refresh waits for. The statements about
//! the lease leave nothing in the session, so they work through any pooler.

use super::{Event, RECONNECT, named};
use crate::session::{Connect, Session};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use trickle_core::refresh::Lease;
use trickle_engine::lease::{self, Leading};
use trickle_engine::{Error, Result, Settings, Trickle};

/// The refresher that holds the lease, as far as this refresher knows.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Leadership {
    /// The holder is unknown: the server has not answered yet, or its last answer is too old.
    Unknown,
    /// This refresher holds this lease.
    Own(Lease),
    /// Another refresher, which has this name, holds the lease.
    Another(String),
}

/// The number of renewals in the term of a lease. The lease is kept if at least one of them succeeds.
const BEATS: u32 = 3;

/// The longest pause of a waiting refresher before it asks the server again whether the lease is free.
const PATIENCE: Duration = Duration::from_secs(1);

/// The keeper takes the lease, renews the lease, and tells the refresher who holds the lease.
pub(super) struct Keeper<'k> {
    to: &'k dyn Connect,
    tell: &'k dyn Fn(Event<'_>),
    settings: Settings,
    term: Duration,
    holder: String,
    lead: watch::Sender<Leadership>,
}

impl<'k> Keeper<'k> {
    /// Makes a keeper without a lease, and the receiver of each change of the lease's holder.
    pub(super) fn new(
        to: &'k dyn Connect,
        tell: &'k dyn Fn(Event<'_>),
        settings: &Settings,
        term: Duration,
    ) -> (Keeper<'k>, watch::Receiver<Leadership>) {
        let (lead, told) = watch::channel(Leadership::Unknown);
        // No statement stays prepared: a pooler may run each one in another server process.
        let settings = Settings { use_prepared_statements: false, ..settings.clone() };
        (Keeper { to, tell, settings, term, holder: own_name(), lead }, told)
    }

    /// Takes and renews the lease again and again. Returns only if an error makes further tries useless, for
    /// example because there is no catalog.
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
                    self.know(Leadership::Own(lease));
                    wait = RECONNECT.0;
                    self.beat()
                }
                Ok(Leading::Another { holder, left }) => {
                    (held, ends) = (None, None);
                    self.know(Leadership::Another(holder));
                    wait = RECONNECT.0;
                    left.min(PATIENCE).min(self.beat()).max(RECONNECT.0)
                }
                Err(e) if e.is_input() => return e,
                Err(e) => {
                    connection = None;
                    // While this refresher holds the lease, its daemon reports lost connections.
                    if !matches!(*self.lead.borrow(), Leadership::Own(_)) {
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
                self.know(Leadership::Unknown);
            } else {
                tokio::time::sleep(pause).await;
            }
        }
    }

    /// Gives the lease up at once. If this fails, other refreshers can take the lease when its term ends.
    pub(super) async fn give(&self) {
        let Leadership::Own(lease) = self.lead.borrow().clone() else { return };
        let give = async { lease::give(named(self.to).await?.db(), lease).await };
        let _ = tokio::time::timeout(self.beat(), give).await;
    }

    fn beat(&self) -> Duration {
        self.term / BEATS
    }

    async fn ask(&self, connection: &mut Option<Trickle<Session>>, held: Option<Lease>) -> Result<Leading> {
        // The connection is used again only after a complete answer. Otherwise the answer to a broken-off
        // statement would be taken for the answer to the next statement.
        let trickle = match connection.take() {
            Some(trickle) => trickle,
            None => Trickle::open(named(self.to).await?, self.settings.clone()).await?,
        };
        let answer = lease::take(trickle.db(), &self.holder, held, self.term).await?;
        *connection = Some(trickle);
        Ok(answer)
    }

    fn know(&self, lead: Leadership) {
        self.lead.send_if_modified(|known| {
            let is_new = *known != lead;
            *known = lead;
            is_new
        });
    }
}

/// Returns a name that no other refresher has, and by which people recognize this refresher.
fn own_name() -> String {
    use std::hash::{BuildHasher, Hasher};
    let host = whoami::hostname().unwrap_or_else(|_| "a host without a name".to_owned());
    let chance = std::collections::hash_map::RandomState::new().build_hasher().finish();
    format!("trickle run on {host}, process {}, {chance:016x}", std::process::id())
}
