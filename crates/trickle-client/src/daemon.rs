//! The refresher: refreshes each stream table of a database on its schedule, until it is told to stop.
//!
//! It holds no state that matters, since the frontiers are in the database. So it may be killed and started
//! at any time. Several refreshers may run; one works, and the others wait for its lease to end
//! (`trickle_engine::lease`).

mod lead;

use crate::cancel::Cancel;
use crate::session::{Connect, Session};
use crate::{Trickle, connections};
use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};
use lead::{Keeper, Leadership};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use trickle_core::catalog::TableId;
use trickle_core::refresh::{ABANDONED, Lease};
use trickle_core::schedule::Time;
use trickle_engine::give_way::{GLANCE, Yielding, in_the_way};
use trickle_engine::health::Concern;
use trickle_engine::scheduler::{
    Due, Outcome, Scheduler, SchedulerOptions, Slow, Suspended, now, outcome_of,
};
use trickle_engine::{Error, REFRESHER, RefreshOptions, Refreshed, Result, Settings};

/// Options of the refresher.
#[derive(Clone, Debug)]
pub struct DaemonOptions {
    /// Settings of every refresh.
    pub settings: Settings,
    /// When the scheduler looks, and at what (`scheduler_interval_ms` and others).
    pub scheduler: SchedulerOptions,
    /// Whether anything is refreshed. If not, the refresher only waits until it is told to stop.
    pub enabled: bool,
    /// How long a running refresh may go on after the refresher was told to stop; then it is cancelled.
    pub grace: Duration,
    /// How long a lease lasts without renewal. After one refresher dies, another takes over in that time.
    pub lease: Duration,
}

impl Default for DaemonOptions {
    fn default() -> DaemonOptions {
        DaemonOptions {
            settings: Settings::default(),
            scheduler: SchedulerOptions::default(),
            enabled: true,
            grace: Duration::from_secs(5),
            lease: Duration::from_secs(5),
        }
    }
}

/// An event that the refresher reports.
#[derive(Debug)]
pub enum Event<'e> {
    /// Nothing is refreshed until the refresher is told to stop ([`DaemonOptions::enabled`]).
    Disabled,
    /// Another refresher, of this name, works: this one waits for it to end.
    Waiting(&'e str),
    /// The refresher is connected, and has this many stream tables to keep.
    Connected(usize),
    /// The connection was lost or could not be opened; the next try comes after this wait.
    Disconnected(&'e Error, Duration),
    /// Stream tables were refreshed.
    Refreshed(&'e [Refreshed]),
    /// Refreshes take most of the periods of their stream tables, and these periods are made longer.
    Slow(&'e [Slow]),
    /// Stream tables were suspended.
    Suspended(&'e [Suspended]),
    /// Conditions that hold the database back, or are about to.
    Concerns(&'e [Concern]),
    /// A refresh failed; none of these stream tables changed.
    Failed {
        /// The stream tables that were to be refreshed in one transaction.
        tables: &'e [String],
        /// The reason.
        error: &'e Error,
    },
    /// An error that keeps no refresh from being done.
    Trouble(&'e Error),
    /// Stream tables of other owners, which this refresher leaves alone.
    Foreign(&'e [String]),
}

/// The shortest and the longest wait before another try to connect.
const RECONNECT: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));

/// Runs the refresher until `stop` is done; then lets running refreshes finish, or cancels them
/// ([`DaemonOptions::grace`]).
///
/// # Errors
/// There is no catalog, or it has another version, so it is useless to go on. A lost connection is no such
/// error.
pub async fn run(
    to: &dyn Connect,
    options: &DaemonOptions,
    tell: &dyn Fn(Event<'_>),
    stop: impl Future<Output = ()>,
) -> Result<()> {
    tokio::pin!(stop);
    if !options.enabled {
        // No connection is opened: it would be taken for a running refresher.
        tell(Event::Disabled);
        stop.await;
        return Ok(());
    }
    let (keeper, leads) = Keeper::new(to, tell, &options.settings, options.lease);
    let worked = tokio::select! {
        e = keeper.keep() => return Err(e),
        worked = work_when_leading(to, options, tell, leads, &mut stop) => worked,
    };
    keeper.give().await;
    worked
}

/// Works while this refresher holds the lease, until it is told to stop.
async fn work_when_leading(
    to: &dyn Connect,
    options: &DaemonOptions,
    tell: &dyn Fn(Event<'_>),
    mut leads: watch::Receiver<Leadership>,
    stop: &mut Pin<&mut impl Future<Output = ()>>,
) -> Result<()> {
    let mut wait = RECONNECT.0;
    loop {
        let lead = leads.borrow_and_update().clone();
        let lease = match lead {
            Leadership::Own(lease) => lease,
            Leadership::Another(_) | Leadership::Unknown => {
                if let Leadership::Another(holder) = &lead {
                    tell(Event::Waiting(holder));
                }
                tokio::select! {
                    () = &mut *stop => return Ok(()),
                    _ = leads.changed() => continue,
                }
            }
        };
        let failed = match Daemon::open(to, options, tell, lease).await {
            Ok(mut daemon) => {
                wait = RECONNECT.0;
                match daemon.run(stop, &mut leads).await {
                    Ok(End::Told) => return Ok(()),
                    Ok(End::Deposed) => continue,
                    Err(e) => e,
                }
            }
            Err(e) => e,
        };
        if failed.is_input() {
            return Err(failed);
        }
        tell(Event::Disconnected(&failed, wait));
        tokio::select! {
            () = &mut *stop => return Ok(()),
            () = tokio::time::sleep(wait) => {}
        }
        wait = (wait * 2).min(RECONNECT.1);
    }
}

/// The reason why a refresher stops working.
enum End {
    /// The refresher was told to stop.
    Told,
    /// Another refresher has the lease.
    Deposed,
}

/// The end of a refresh: the connection that it used, the due work, and the outcome.
type Ended = (Trickle, Due, Result<Vec<Refreshed>>);

/// The means to end a running refresh.
#[derive(Clone)]
struct AtWork {
    cancel: Cancel,
    yielding: Yielding,
    since: Instant,
}

/// A running refresh.
type Work<'w> = Pin<Box<dyn Future<Output = Ended> + 'w>>;

/// Waits for `doing` while running refreshes go on, and returns its output; puts the refreshes that end
/// meanwhile into `ended`. `doing` may wait for a lock that a running refresh holds, and that refresh gives
/// up the lock only if it is polled.
async fn beside<W: Future, T>(
    work: &mut FuturesUnordered<W>,
    ended: &mut Vec<W::Output>,
    doing: impl Future<Output = T>,
) -> T {
    tokio::pin!(doing);
    loop {
        tokio::select! {
            done = &mut doing => return done,
            Some(end) = work.next() => ended.push(end),
        }
    }
}

struct Daemon<'d> {
    to: &'d dyn Connect,
    options: &'d DaemonOptions,
    tell: &'d dyn Fn(Event<'_>),
    /// The connection for everything but refreshes.
    watch: Trickle,
    idle: Vec<Trickle>,
    scheduler: Scheduler,
    lease: Lease,
    /// The running refreshes by stream table; the members of one refresh have the same entry.
    at_work: BTreeMap<TableId, AtWork>,
}

impl<'d> Daemon<'d> {
    async fn open(
        to: &'d dyn Connect,
        options: &'d DaemonOptions,
        tell: &'d dyn Fn(Event<'_>),
        lease: Lease,
    ) -> Result<Daemon<'d>> {
        let watch = Trickle::open(named(to).await?, options.settings.clone()).await?;
        let scheduler = Scheduler::new(options.scheduler);
        let mut daemon =
            Daemon { to, options, tell, watch, idle: Vec::new(), scheduler, lease, at_work: BTreeMap::new() };
        daemon.reload().await?;
        tell(Event::Connected(daemon.scheduler.known()));
        Ok(daemon)
    }

    async fn run(
        &mut self,
        stop: &mut Pin<&mut impl Future<Output = ()>>,
        leads: &mut watch::Receiver<Leadership>,
    ) -> Result<End> {
        let (mut work, mut ended) = (FuturesUnordered::new(), Vec::new());
        loop {
            let lead = leads.borrow_and_update().clone();
            if lead == Leadership::Unknown {
                // Running refreshes go on, and are committed if no other refresher took over. None is begun.
                tokio::select! {
                    () = &mut *stop => return self.finish(work).await.map(|()| End::Told),
                    Some(end) = work.next() => ended.push(end),
                    _ = leads.changed() => {}
                }
                self.note(&mut ended)?;
                continue;
            }
            if lead != Leadership::Own(self.lease) {
                return self.finish(work).await.map(|()| End::Deposed);
            }
            let next = tokio::select! {
                () = &mut *stop => None,
                next = beside(&mut work, &mut ended, self.next()) => Some(next),
            };
            // A refresh that ended during a look is noted after it: until then the scheduler counts it as
            // running.
            let some_ended = !ended.is_empty();
            self.note(&mut ended)?;
            let Some(next) = next else { return self.finish(work).await.map(|()| End::Told) };
            let (started, wake) = next?;
            work.extend(started);
            if some_ended {
                continue;
            }
            let pause = wake
                .map_or(self.options.scheduler.reload, |t| t.since(now()))
                .min(self.options.scheduler.reload);
            let until = Instant::now() + pause;
            loop {
                let glances = !work.is_empty() && !self.options.settings.give_way.is_zero();
                let rest = until.saturating_duration_since(Instant::now());
                tokio::select! {
                    () = &mut *stop => return self.finish(work).await.map(|()| End::Told),
                    Some(end) = work.next() => ended.push(end),
                    _ = leads.changed() => break,
                    () = tokio::time::sleep(if glances { rest.min(GLANCE) } else { rest }) => {}
                }
                if ended.is_empty() && glances {
                    beside(&mut work, &mut ended, self.give_way()).await;
                }
                if !ended.is_empty() || Instant::now() >= until {
                    break;
                }
            }
            self.note(&mut ended)?;
        }
    }

    /// Makes refreshes give way that have run for a while and stand before a request for an exclusive lock.
    /// The server hears a request to cancel before the connection does anything else, so the request can end
    /// only the refresh that it is for.
    async fn give_way(&self) {
        let all = self.at_work.values().filter(|w| w.since.elapsed() >= GLANCE);
        let all: BTreeMap<i32, &AtWork> =
            all.map(|w| (w.yielding.pid(), w)).filter(|(pid, _)| *pid != 0).collect();
        if all.is_empty() {
            return;
        }
        let pids: Vec<i32> = all.keys().copied().collect();
        match in_the_way(self.watch.db(), &pids, self.options.settings.give_way).await {
            Ok(found) => {
                for (pid, who) in found {
                    let Some(w) = all.get(&pid) else { continue };
                    w.yielding.ask(&who);
                    if let Err(e) = w.cancel.send().await {
                        (self.tell)(Event::Trouble(&e));
                    }
                }
            }
            Err(e) => (self.tell)(Event::Trouble(&e)),
        }
    }

    /// Notes how all these refreshes ended; returns the first error that ends the daemon's round.
    fn note(&mut self, ended: &mut Vec<Ended>) -> Result<()> {
        let noted = ended.drain(..).map(|(trickle, due, result)| self.ended(trickle, &due, result));
        noted.collect::<Vec<_>>().into_iter().collect()
    }

    /// Reads the catalog, when it is time to, and looks for changes. Returns the refreshes that it starts,
    /// and when to look again.
    async fn next(&mut self) -> Result<(Vec<Work<'d>>, Option<Time>)> {
        self.reload().await?;
        let found = self.scheduler.look(&mut self.watch).await?;
        if let Some(e) = &found.trouble {
            (self.tell)(Event::Trouble(e));
        }
        if !found.slow.is_empty() {
            (self.tell)(Event::Slow(&found.slow));
        }
        let mut started = Vec::new();
        for due in found.due {
            started.push(self.start(due).await?);
        }
        Ok((started, found.wake))
    }

    async fn reload(&mut self) -> Result<()> {
        self.scheduler.reload(&mut self.watch).await?;
        let foreign = self.scheduler.foreign();
        if !foreign.is_empty() {
            (self.tell)(Event::Foreign(&foreign));
        }
        let suspended = self.scheduler.suspended();
        if !suspended.is_empty() {
            (self.tell)(Event::Suspended(&suspended));
        }
        let concerns = self.scheduler.concerns();
        if !concerns.is_empty() {
            (self.tell)(Event::Concerns(&concerns));
        }
        Ok(())
    }

    async fn start(&mut self, due: Due) -> Result<Work<'d>> {
        let mut trickle = match self.idle.pop() {
            Some(t) => t,
            None => {
                let trickle = Trickle::open(named(self.to).await?, self.options.settings.clone()).await?;
                abandonable(&trickle).await?;
                match self.to.kept() {
                    Some(to) => trickle.with_connections(connections(to)),
                    None => trickle,
                }
            }
        };
        let at_work = AtWork {
            cancel: trickle.connection().cancel(),
            yielding: trickle.yielding(),
            since: Instant::now(),
        };
        at_work.yielding.begin();
        self.at_work.extend(due.members.iter().map(|id| (*id, at_work.clone())));
        let options = RefreshOptions::on_schedule(&due, Some(self.lease));
        Ok(Box::pin(async move {
            let result = trickle.refresh_linked(&due.members, &options).await;
            trickle.connection().rest().await;
            (trickle, due, result)
        }))
    }

    /// Notes how one refresh ended. A lost connection ends the daemon's round, which then connects anew.
    fn ended(&mut self, trickle: Trickle, due: &Due, result: Result<Vec<Refreshed>>) -> Result<()> {
        for id in &due.members {
            self.at_work.remove(id);
        }
        let gave_way = trickle.yielding().is_asked() && result.is_err();
        self.scheduler.ended(due, if gave_way { Outcome::Later } else { outcome_of(&result) });
        match result {
            Ok(done) => (self.tell)(Event::Refreshed(&done)),
            Err(e) if e.is_connection() => return Err(e),
            Err(error) => {
                let tables = self.scheduler.names(&due.members);
                (self.tell)(Event::Failed { tables: &tables, error: &error });
            }
        }
        self.idle.push(trickle);
        Ok(())
    }

    /// Waits for running refreshes; cancels those that take too long. The next daemon does the work that was
    /// undone.
    async fn finish(&mut self, mut work: FuturesUnordered<Work<'d>>) -> Result<()> {
        let patience = tokio::time::sleep(self.options.grace);
        tokio::pin!(patience);
        loop {
            tokio::select! {
                done = work.next() => match done {
                    None => return Ok(()),
                    Some((_, _, Ok(done))) => (self.tell)(Event::Refreshed(&done)),
                    Some(_) => {}
                },
                () = &mut patience => break,
            }
        }
        // A request to cancel that reaches the server ends the statement at once. Otherwise dropping the
        // connection ends it, at the latest when the server next writes to it. The outcome is ignored, since
        // it is no error of a stream table.
        let at_work = std::mem::take(&mut self.at_work).into_values();
        join_all(at_work.map(|w| async move { w.cancel.send().await })).await;
        drop(work);
        Ok(())
    }
}

/// Makes the server end a transaction that this process does not continue, for example because the process is
/// halted. Behind a pooler nothing can be set for a session; there each refresh sets this for itself.
async fn abandonable(trickle: &Trickle) -> Result<()> {
    if trickle.connection().shared.is_some() {
        return Ok(());
    }
    let setting = format!("idle_in_transaction_session_timeout = {}", ABANDONED.as_millis());
    trickle.db().set(&setting).await.map_err(|e| Error::server("prepare a connection", e))
}

/// Opens a session under the `application_name` that `status` looks for, unless the user set one. The session
/// stays open for long, so the leftovers of users' code are taken away.
async fn named(to: &dyn Connect) -> Result<Session> {
    let session = to.connect().await?.alone();
    let fail = |e| Error::server("name the session", e);
    let text = "SELECT WHERE current_setting('application_name') = 'trickle'";
    if session.db().query_opt(text, &[]).await.map_err(fail)?.is_some() {
        session.db().set(&format!("application_name = '{REFRESHER}'")).await.map_err(fail)?;
    }
    Ok(session)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_look_that_waits_for_a_refresh_lets_that_go_on() {
        let (lock, released) = tokio::sync::oneshot::channel();
        let refresh = async {
            // The refresh gives up its lock when it is polled for the second time.
            tokio::task::yield_now().await;
            lock.send(()).unwrap();
        };
        let (mut work, mut ended) = (FuturesUnordered::from_iter([refresh]), Vec::new());
        let look = async { released.await.is_ok() };
        let looked = tokio::time::timeout(Duration::from_secs(10), beside(&mut work, &mut ended, look)).await;
        assert_eq!(looked, Ok(true));
        // The refresh is not lost, whether it ended before the look or after it.
        while let Some(end) = work.next().await {
            ended.push(end);
        }
        assert_eq!(ended, [()]);
    }

    #[tokio::test]
    async fn a_look_beside_nothing_is_a_look() {
        let mut ended = Vec::<()>::new();
        let mut work = FuturesUnordered::<std::future::Ready<()>>::new();
        assert_eq!(beside(&mut work, &mut ended, std::future::ready(7)).await, 7);
        assert!(ended.is_empty());
    }
}
