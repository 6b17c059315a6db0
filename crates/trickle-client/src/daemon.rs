//! The refresher: keeps every stream table of a database as fresh as its schedule wants, until it is told to stop.
//!
//! It holds no state that matters: what was consumed is in the database, so it may be killed and started at any time,
//! and several may run, of which one refreshes a table at a time.

mod look;

use crate::registry::{Entry, Registry, shown};
use crate::session::{Connect, Session};
use crate::{Trickle, connections};
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio_postgres::CancelToken;
use trickle_core::catalog::TableId;
use trickle_core::dag::Dag;
use trickle_core::schedule::{self, Action, Schedule, Status, Task, Time};
use trickle_engine::{Error, REFRESHER, RefreshOptions, Refreshed, Result, Settings};

/// How the daemon works.
#[derive(Clone, Debug)]
pub struct DaemonOptions {
    /// Settings of every refresh.
    pub settings: Settings,
    /// Settings of the scheduler.
    pub scheduler: schedule::Options,
    /// How often to look whether stream tables were made, altered or resumed (`scheduler_interval_ms`).
    pub reload: Duration,
    /// Whether anything is refreshed; without, the daemon waits to be told to stop.
    pub enabled: bool,
    /// How long a buffer holds nothing new before it is emptied, since a look opens what is not empty.
    pub settle: Duration,
    /// How long a refresh at work may go on after the daemon was told to stop; then it is cancelled.
    pub grace: Duration,
}

impl Default for DaemonOptions {
    fn default() -> DaemonOptions {
        DaemonOptions {
            settings: Settings::default(),
            scheduler: schedule::Options::default(),
            reload: Duration::from_secs(1),
            enabled: true,
            settle: Duration::from_secs(10),
            grace: Duration::from_secs(5),
        }
    }
}

/// What the daemon tells.
#[derive(Debug)]
pub enum Event<'e> {
    /// Nothing is refreshed until it is told to stop ([`DaemonOptions::enabled`]).
    Disabled,
    /// Connected, with so many stream tables to keep.
    Connected(usize),
    /// The connection is lost or not to be had; another try comes after the wait.
    Disconnected(&'e Error, Duration),
    /// Stream tables were refreshed.
    Refreshed(&'e [Refreshed]),
    /// A refresh failed.
    Failed(&'e Error),
    /// Stream tables of other owners, which are left alone.
    Foreign(&'e [String]),
}

/// The shortest and the longest wait before another try to connect.
const RECONNECT: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));

/// Runs until `stop` is done; then lets refreshes at work finish, or cancels them.
///
/// # Errors
/// What makes it useless to go on: no catalog, or one of another version. Lost connections do not.
pub async fn run(
    to: &dyn Connect,
    options: &DaemonOptions,
    tell: &dyn Fn(Event<'_>),
    stop: impl Future<Output = ()>,
) -> Result<()> {
    tokio::pin!(stop);
    if !options.enabled {
        // Without a connection: who asks for a refresher must not find one.
        tell(Event::Disabled);
        stop.await;
        return Ok(());
    }
    let mut wait = RECONNECT.0;
    loop {
        let mut daemon = match Daemon::open(to, options, tell).await {
            Ok(daemon) => daemon,
            Err(e) if e.is_input() => return Err(e),
            Err(e) => {
                tell(Event::Disconnected(&e, wait));
                tokio::select! {
                    () = &mut stop => return Ok(()),
                    () = tokio::time::sleep(wait) => {}
                }
                wait = (wait * 2).min(RECONNECT.1);
                continue;
            }
        };
        wait = RECONNECT.0;
        match daemon.run(&mut stop).await {
            Ok(()) => return Ok(()),
            Err(e) if e.is_input() => return Err(e),
            Err(e) => tell(Event::Disconnected(&e, wait)),
        }
    }
}

/// How a refresh ended, with the connection that it used.
type Ended = (Trickle, Due, Result<Vec<Refreshed>>);

/// A refresh at work.
type Work<'w> = Pin<Box<dyn Future<Output = Ended> + 'w>>;

/// What `doing` gives, while the work goes on; what of it ends meanwhile is put into `ended`. Whoever waits for the server may
/// wait for a lock that a refresh at work holds, which gives it up only if somebody goes on with it.
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

/// What is to be refreshed together.
struct Due {
    members: Vec<TableId>,
    /// Those that are to be computed anew because nobody can tell whether they changed.
    polled: BTreeSet<TableId>,
}

impl Due {
    /// Whether a member's time came, in which it is looked at with all that it reads.
    fn asks(&self, id: TableId, task: &Task) -> bool {
        !task.polls || self.polled.contains(&id)
    }
}

struct Daemon<'d> {
    to: &'d dyn Connect,
    options: &'d DaemonOptions,
    tell: &'d dyn Fn(Event<'_>),
    /// For everything but refreshes.
    watch: Trickle,
    idle: Vec<Trickle>,
    registry: Registry,
    /// What the registry was read from.
    stamp: String,
    tasks: BTreeMap<TableId, Task>,
    /// How old each may become.
    periods: BTreeMap<TableId, Duration>,
    /// Those that have changes and wait for their turn.
    changed: BTreeSet<TableId>,
    /// Sources whose buffers hold nothing but what was counted, since when.
    counted: BTreeMap<TableId, Instant>,
    cancel: BTreeMap<TableId, CancelToken>,
    /// When the catalog was last looked at.
    looked: Option<Instant>,
    /// When it was last read, and what that took.
    read: Option<(Instant, Duration)>,
    foreign: BTreeSet<String>,
}

fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// Identifies what the scheduler knows of the catalog. What refreshes write themselves is left out.
const STAMP: &str = "SELECT coalesce(md5(string_agg(concat_ws('|', pgt_id, pgt_relid, schedule, refresh_mode, \
     layout_hash, status IN ('SUSPENDED', 'ERROR'), needs_reinit, md5(defining_query)), ',' ORDER BY pgt_id)), '') \
     FROM pgtrickle.pgt_stream_tables";

/// How old the reading of the catalog may be: sources that were altered are noticed within this time.
const REREAD: Duration = Duration::from_secs(5);

/// Where reading the catalog takes long, for thousands of stream tables, it is read less often: after so many times what it
/// took, but not later than this.
const REREAD_SLOWLY: (u32, Duration) = (20, Duration::from_secs(20));

impl<'d> Daemon<'d> {
    async fn open(
        to: &'d dyn Connect,
        options: &'d DaemonOptions,
        tell: &'d dyn Fn(Event<'_>),
    ) -> Result<Daemon<'d>> {
        let watch = Trickle::open(named(to).await?, options.settings.clone()).await?;
        let mut daemon = Daemon {
            to,
            options,
            tell,
            watch,
            idle: Vec::new(),
            registry: Registry::default(),
            stamp: "unread".to_owned(),
            tasks: BTreeMap::new(),
            periods: BTreeMap::new(),
            changed: BTreeSet::new(),
            counted: BTreeMap::new(),
            cancel: BTreeMap::new(),
            looked: None,
            read: None,
            foreign: BTreeSet::new(),
        };
        daemon.reload().await?;
        tell(Event::Connected(daemon.tasks.len()));
        Ok(daemon)
    }

    async fn run(&mut self, stop: &mut Pin<&mut impl Future<Output = ()>>) -> Result<()> {
        let (mut work, mut ended) = (FuturesUnordered::new(), Vec::new());
        loop {
            let next = tokio::select! {
                () = &mut *stop => None,
                next = beside(&mut work, &mut ended, self.next()) => Some(next),
            };
            // What ended during a look is noted after it: until then it counts as running.
            let some_ended = !ended.is_empty();
            self.note(&mut ended)?;
            let Some(next) = next else { return self.finish(work).await };
            let (started, wake) = next?;
            work.extend(started);
            if some_ended {
                continue;
            }
            let pause = wake.map_or(self.options.reload, |t| t.since(now())).min(self.options.reload);
            tokio::select! {
                () = &mut *stop => return self.finish(work).await,
                Some(end) = work.next() => ended.push(end),
                () = tokio::time::sleep(pause) => {}
            }
            self.note(&mut ended)?;
        }
    }

    /// Notes how refreshes ended, all of them; gives the first error that ends the daemon's round.
    fn note(&mut self, ended: &mut Vec<Ended>) -> Result<()> {
        let noted = ended.drain(..).map(|(trickle, due, result)| self.ended(trickle, &due, result));
        noted.collect::<Vec<_>>().into_iter().collect()
    }

    /// Looks at the catalog, where it is time to, and for changes; gives what is started, and when to look again.
    async fn next(&mut self) -> Result<(Vec<Work<'d>>, Option<Time>)> {
        self.reload().await?;
        self.start_due().await
    }

    /// Reads the catalog again where it changed, or the last reading is old.
    async fn reload(&mut self) -> Result<()> {
        if self.looked.is_some_and(|at| at.elapsed() < self.options.reload) {
            return Ok(());
        }
        self.looked = Some(Instant::now());
        let fail = |e| Error::server("look at the catalog", e);
        let rows = self.watch.db().query(STAMP, &[]).await.map_err(fail)?;
        let stamp: String = rows.first().map(|r| r.get(0)).unwrap_or_default();
        self.watch.prune_history().await?;
        let is_recent = |(at, took): (Instant, Duration)| {
            at.elapsed() < (took * REREAD_SLOWLY.0).clamp(REREAD, REREAD_SLOWLY.1)
        };
        if stamp == self.stamp && self.read.is_some_and(is_recent) {
            return Ok(());
        }
        let started = Instant::now();
        self.registry = self.watch.registry().await?;
        self.stamp = stamp;
        self.read = Some((Instant::now(), started.elapsed()));
        let (mut tasks, time) = (BTreeMap::new(), now());
        for e in self.registry.entries().filter(|e| e.own && e.exists) {
            let old = self.tasks.remove(&e.relation.id).map(|t| t.status);
            tasks.insert(e.relation.id, task(e, old, time));
        }
        self.tasks = tasks;
        let periods = self.registry.periods(&self.options.scheduler)?;
        let table = |(id, p)| Some((self.registry.get(id)?.relation.id, p));
        self.periods = periods.into_iter().filter_map(table).collect();
        self.changed.retain(|id| self.tasks.contains_key(id));
        self.tell_foreign();
        Ok(())
    }

    fn tell_foreign(&mut self) {
        let names: Vec<String> = self.registry.entries().filter(|e| !e.own).map(shown).collect();
        let new: Vec<String> = names.into_iter().filter(|n| self.foreign.insert(n.clone())).collect();
        if !new.is_empty() {
            (self.tell)(Event::Foreign(&new));
        }
    }

    /// Starts what is due and has anything to do; says when to look again.
    async fn start_due(&mut self) -> Result<(Vec<Work<'d>>, Option<Time>)> {
        let time = now();
        let dag = self.registry.dag()?;
        // What was found to have changes waits for its turn; whatever else is due is looked at, many or few.
        let all = schedule::Options { max_concurrent: usize::MAX, ..self.options.scheduler };
        let (mut due, wake) = self.due(&dag, &all, time);
        if due.is_empty() {
            return Ok((Vec::new(), wake));
        }
        due.retain(|d| !self.has_changes(d));
        if !due.is_empty() {
            self.look(&dag, &due, time).await?;
        }
        let (due, _) = self.due(&dag, &self.options.scheduler, time);
        let mut started = Vec::new();
        for due in due.into_iter().filter(|d| self.has_changes(d)).collect::<Vec<_>>() {
            for id in &due.members {
                self.changed.remove(id);
                let Some(t) = self.tasks.get_mut(id) else { continue };
                t.status.running = true;
                if due.asks(*id, t) {
                    (t.status.last_start, t.status.last_end) = (Some(time), None);
                }
            }
            started.push(self.start(due).await?);
        }
        Ok((started, schedule::next(&dag, &self.tasks, &self.options.scheduler, now()).wake))
    }

    /// What is due, and when something else will be.
    fn due(&self, dag: &Dag, options: &schedule::Options, time: Time) -> (Vec<Due>, Option<Time>) {
        let plan = schedule::next(dag, &self.tasks, options, time);
        let due = plan.actions.into_iter().filter_map(|a| match a {
            Action::Refresh { members, polled, .. } => {
                Some(Due { members, polled: polled.into_iter().collect() })
            }
            Action::Suspend { .. } => None,
        });
        (due.collect(), plan.wake)
    }

    async fn start(&mut self, due: Due) -> Result<Work<'d>> {
        let mut trickle = match self.idle.pop() {
            Some(t) => t,
            None => {
                let trickle = Trickle::open(named(self.to).await?, self.options.settings.clone()).await?;
                match self.to.kept() {
                    Some(to) => trickle.with_connections(connections(to)),
                    None => trickle,
                }
            }
        };
        for id in &due.members {
            self.cancel.insert(*id, trickle.connection().client().cancel_token());
        }
        let options = RefreshOptions {
            initiated_by: Some("SCHEDULER"),
            polled: Some(due.polled.clone()),
            ..RefreshOptions::default()
        };
        Ok(Box::pin(async move {
            let result = trickle.refresh_linked(&due.members, &options).await;
            (trickle, due, result)
        }))
    }

    /// Notes how a refresh ended. A lost connection ends the daemon's round: it connects anew.
    fn ended(&mut self, trickle: Trickle, due: &Due, result: Result<Vec<Refreshed>>) -> Result<()> {
        let time = now();
        let mut again = false;
        for id in &due.members {
            self.cancel.remove(id);
            let Some(t) = self.tasks.get_mut(id) else { continue };
            t.status.running = false;
            if due.asks(*id, t) {
                t.status.last_end = Some(time);
            }
            match &result {
                Ok(_) => t.status.consecutive_errors = 0,
                Err(e) if e.is_busy() || e.is_transient() || e.is_connection() => {}
                Err(_) => {
                    t.status.consecutive_errors += 1;
                    again = true;
                }
            }
        }
        if again {
            // Whether it is suspended now is in the catalog.
            (self.looked, self.read) = (None, None);
        }
        match result {
            Ok(done) => (self.tell)(Event::Refreshed(&done)),
            Err(e) if e.is_connection() => return Err(e),
            Err(e) => (self.tell)(Event::Failed(&e)),
        }
        self.idle.push(trickle);
        Ok(())
    }

    /// Waits for refreshes at work; cancels what takes too long. Whatever is undone is done by the next daemon.
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
        // A connection that is dropped ends its statement at the latest when the server next writes to it; where the
        // request to cancel reaches the server, at once.
        for token in std::mem::take(&mut self.cancel).into_values() {
            let _ = self.to.cancel(token).await;
        }
        let _ = tokio::time::timeout(Duration::from_secs(1), work.next()).await;
        Ok(())
    }
}

/// A connection under the name that who asks whether a refresher runs looks for; one that the user chose stays.
async fn named(to: &dyn Connect) -> Result<Session> {
    let session = to.connect().await?;
    let text = "SELECT set_config('application_name', $1, false) WHERE current_setting('application_name') = 'trickle'";
    session.db().execute(text, &[&REFRESHER]).await.map_err(|e| Error::server("name the session", e))?;
    Ok(session)
}

/// A stream table as the scheduler sees it; what it knew of refreshes stays.
fn task(e: &Entry, old: Option<Status>, time: Time) -> Task {
    let fresh = Status { since: time, ..Status::default() };
    let status = Status {
        suspended: e.status == "SUSPENDED",
        consecutive_errors: u32::try_from(e.consecutive_errors).unwrap_or(0),
        ..old.unwrap_or(fresh)
    };
    Task { schedule: e.schedule.as_deref().and_then(|s| Schedule::parse(s).ok()), status, polls: e.polls() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_look_that_waits_for_a_refresh_lets_that_go_on() {
        let (lock, released) = tokio::sync::oneshot::channel();
        let refresh = async {
            // It gives up its lock when it is polled for the second time.
            tokio::task::yield_now().await;
            lock.send(()).unwrap();
        };
        let (mut work, mut ended) = (FuturesUnordered::from_iter([refresh]), Vec::new());
        let look = async { released.await.is_ok() };
        let looked = tokio::time::timeout(Duration::from_secs(10), beside(&mut work, &mut ended, look)).await;
        assert_eq!(looked, Ok(true));
        // Nothing is lost, whether it ended before the look or after it.
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
