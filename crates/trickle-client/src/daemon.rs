//! The refresher: refreshes each stream table of a database on its schedule, until it is told to stop.
//!
//! The refresher holds no state that matters, since the frontiers are in the database. So a refresher may be
//! killed and started at any time. Of several running refreshers only the holder of the lease works, and the
//! others wait until the lease ends (`trickle_engine::lease`).

mod lead;

use crate::cancel::Cancel;
use crate::session::{Connect, Session};
use crate::session::{Trickle, connections};
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
    /// Periods, intervals and limits of the scheduler (`scheduler_interval_ms` and other settings).
    pub scheduler: SchedulerOptions,
    /// Whether anything is refreshed. If not, the refresher only waits until it is told to stop.
    pub enabled: bool,
    /// The time for which a running refresh may go on after the refresher was told to stop. Afterwards the
    /// refresh is cancelled.
    pub grace: Duration,
    /// The time for which a lease lasts without renewal. After a refresher dies, another refresher takes over
    /// within this time.
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
    /// Another refresher, which has this name, holds the lease. This refresher waits until that lease ends.
    Waiting(&'e str),
    /// The refresher is connected, and its scheduler has read this many stream tables from the catalog.
    Connected(usize),
    /// The connection was lost or could not be opened, by this error. The next try comes after this wait.
    Disconnected(&'e Error, Duration),
    /// Stream tables were refreshed.
    Refreshed(&'e [Refreshed]),
    /// Stream tables are refreshed less often than their schedules say, since their refreshes take too long.
    Slow(&'e [Slow]),
    /// Stream tables were suspended.
    Suspended(&'e [Suspended]),
    /// Conditions that harm the database, or will soon harm it.
    Concerns(&'e [Concern]),
    /// A refresh failed, and changed none of its stream tables.
    Failed {
        /// The stream tables that were to be refreshed in one transaction.
        tables: &'e [String],
        /// The reason.
        error: &'e Error,
    },
    /// An error that stops no refresh.
    Trouble(&'e Error),
    /// Stream tables that this refresher does not refresh, since other roles own them.
    Foreign(&'e [String]),
}

/// The shortest and the longest wait before another try to connect.
const RECONNECT: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));

/// Runs the refresher until `stop` is done. Afterwards running refreshes have the time
/// [`DaemonOptions::grace`] to finish, and are then cancelled.
///
/// # Errors
/// The catalog is missing or has another version, so that no refresh is possible. A lost connection is no
/// error of this function: the refresher connects again.
pub async fn run(
    to: &dyn Connect,
    options: &DaemonOptions,
    tell: &dyn Fn(Event<'_>),
    stop: impl Future<Output = ()>,
) -> Result<()> {
    tokio::pin!(stop);
    if !options.enabled {
        // No connection is opened, since `status` would take the connection for a running refresher.
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

/// Refreshes on schedule whenever this refresher holds the lease, until the refresher is told to stop.
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

/// The end of a refresh: the connection that the refresh used, the due work, and the outcome.
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

/// Waits for `doing` while running refreshes go on, and returns the output of `doing`. Refreshes that end
/// meanwhile are put into `ended`. `doing` may wait for a lock that a running refresh holds, and a refresh
/// gives up its locks only if the refresh is polled.
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
    /// The running refreshes, by stream table. All stream tables of one refresh have equal entries.
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
                // Running refreshes go on, and are committed if no other refresher took over. No refresh is
                // begun.
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
            // A refresh that ended during a look is noted after the look. Until then the scheduler counts the
            // refresh as running.
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

    /// Cancels the refreshes that have run for at least [`GLANCE`] and keep a request for an exclusive lock
    /// waiting. A connection begins no other refresh before the server has received the request to cancel. So
    /// the request can end only the refresh that it is meant for.
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

    /// Notes the outcomes of all these refreshes. Returns the first error that means a lost connection.
    fn note(&mut self, ended: &mut Vec<Ended>) -> Result<()> {
        let noted = ended.drain(..).map(|(trickle, due, result)| self.ended(trickle, &due, result));
        noted.collect::<Vec<_>>().into_iter().collect()
    }

    /// Reads the catalog, if its last reading is too old, and looks for changes. Returns the refreshes that
    /// this function started, and the time of the next look.
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

    /// Notes the outcome of one refresh. Returns the error if the connection was lost: then
    /// [`work_when_leading`] opens new connections.
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

    /// Waits for the running refreshes, and cancels the ones that take longer than [`DaemonOptions::grace`].
    /// The next refresher does the cancelled work.
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
        // A request to cancel that reaches the server ends the statement at once. If no request reaches the
        // server, the dropped connection ends the statement, at the latest when the server next writes to the
        // connection. The outcome of the refresh is ignored, since its cancellation is no error of a stream
        // table.
        let at_work = std::mem::take(&mut self.at_work).into_values();
        join_all(at_work.map(|w| async move { w.cancel.send().await })).await;
        drop(work);
        Ok(())
    }
}

/// Makes the server end a transaction that this process does not continue, for example because the process is
/// halted. Behind a pooler no setting lasts for a session, so each refresh sets the timeout for its own
/// transaction.
async fn abandonable(trickle: &Trickle) -> Result<()> {
    if trickle.connection().shared.is_some() {
        return Ok(());
    }
    let setting = format!("idle_in_transaction_session_timeout = {}", ABANDONED.as_millis());
    trickle.db().set(&setting).await.map_err(|e| Error::server("prepare a connection", e))
}

/// Opens a session under the `application_name` that `status` looks for, unless the user set another name.
/// The session stays open for long, so the leftovers of users' code are removed after each refresh.
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
