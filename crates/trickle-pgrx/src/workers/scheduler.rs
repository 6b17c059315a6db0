//! The scheduler of a database finds the stream tables that are due, and starts refreshers that refresh them
//! side by side. The scheduler itself refreshes a group that is due alone and was quick the last time.

use super::{TROUBLE, as_role, has_ended, refresh, refresher, start as start_process, tell, transaction};
use crate::gucs;
use crate::restored::rehomed_when_restored;
use crate::unsafe_pg::{Admission, AtWork, Board, Hire, Job, PLACES, Scheduled, ServerConnection};
use pgrx::bgworkers::{BackgroundWorker, DynamicBackgroundWorker, SignalWakeFlags};
use pgrx::prelude::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::CString;
use std::time::{Duration, Instant};
use trickle_core::catalog::TableId;
use trickle_core::refresh::Lease;
use trickle_core::schedule::share;
use trickle_engine::db::{Connection, ServerError};
use trickle_engine::give_way::{GLANCE, in_the_way};
use trickle_engine::lease::{self, Leading};
use trickle_engine::scheduler::{Due, Found, Outcome, Scheduler, now};
use trickle_engine::schema::LETS_OWNER_IN;
use trickle_engine::{Error, REFRESHER, Result, Trickle};

/// Duration below which a refresh keeps nobody waiting for long.
const QUICK: Duration = Duration::from_millis(50);

/// Name of the lease's holder. A server has at most one scheduler for each database, so all schedulers share
/// this name. A new scheduler continues under the lease of the scheduler that it replaces.
const HOLDER: &str = "pg_trickle in this server";

/// Time after which a lease ends unless it is renewed. A scheduler that runs a long refresh itself may renew
/// its lease late. A late renewal succeeds unless another refresher has taken the lease.
const TERM: Duration = Duration::from_secs(10);

/// Time within which a second report of the same concern about the database is not logged.
const AGAIN: Duration = Duration::from_secs(600);

/// Shortest pause before the scheduler asks again for a lease that another refresher has.
const SOON: Duration = Duration::from_millis(100);

/// The query that returns the owner of the catalog, and whether the whole catalog belongs to superusers. A
/// role that owns any part of the catalog can add code that runs as each role that queries the catalog. The
/// query returns no row where the extension does not exist.
pub(super) const CATALOG: &str = "SELECT n.nspowner, NOT EXISTS (
        SELECT FROM (SELECT n.nspowner UNION ALL SELECT c.relowner FROM pg_catalog.pg_class c WHERE c.relnamespace = n.oid
            UNION ALL SELECT p.proowner FROM pg_catalog.pg_proc p WHERE p.pronamespace = n.oid) o(owner)
        JOIN pg_catalog.pg_roles r ON r.oid = o.owner WHERE NOT r.rolsuper)
    FROM pg_catalog.pg_extension e, pg_catalog.pg_namespace n WHERE e.extname = 'pg_trickle' AND n.nspname = 'pgtrickle'";

/// Returns the query for the owners of stream tables. For each owner, the query also returns whether the
/// owner still lacks access to the catalog. The owner is NULL for a stream table whose table does not exist.
fn all_owners() -> String {
    format!(
        "SELECT DISTINCT c.relowner, \
    c.oid IS NOT NULL AND NOT {LETS_OWNER_IN} FROM pgtrickle.pgt_stream_tables s \
    LEFT JOIN pg_catalog.pg_class c ON c.oid = s.pgt_relid ORDER BY 1"
    )
}

/// Starts the scheduler of a database; `None` where the server has no room for another process.
pub(super) fn start(database: pg_sys::Oid, told: i32) -> Option<DynamicBackgroundWorker> {
    start_process("pg_trickle scheduler", "pg_trickle_scheduler", database.into_datum(), told)
}

/// Runs the scheduler of a database, in a process of its own.
pub(super) fn schedule(database: pg_sys::Datum) {
    let Some(database) = Scheduled::oid(database) else { return };
    BackgroundWorker::attach_signal_handlers(SignalWakeFlags::SIGHUP);
    match Board::schedule(database.to_u32()) {
        Admission::Own => {}
        Admission::Another => return,
        Admission::Full => {
            pgrx::log!(
                "pg_trickle refreshes nothing on schedule in database {}: {PLACES} schedulers and refreshers are at work in this \
                 server, and there can be no more",
                database.to_u32()
            );
            return;
        }
    }
    // Sessions that ask whether a refresher runs look for this application_name.
    Scheduled::begin(Some(database), &CString::new(REFRESHER).unwrap_or_default());
    let mut lead = SchedulerState::of(database.to_u32());
    // The process ends when the extension does not exist, or when refreshes on schedule are switched off.
    while gucs::is_enabled()
        && let Some(pause) = lead.round()
    {
        Scheduled::rest(pause);
        if BackgroundWorker::sighup_received() {
            Scheduled::reload();
            lead.owners.values_mut().for_each(OwnerState::anew);
        }
    }
    if !gucs::is_enabled() {
        lead.step_down();
    }
    Board::dismiss();
}

/// The state of a scheduler.
struct SchedulerState {
    database: u32,
    /// The state of the search for each owner of stream tables.
    owners: BTreeMap<u32, OwnerState>,
    /// Whether `owners` has all owners of stream tables.
    all: bool,
    /// The value of [`Scheduled::ended`] before the owners were last read. While the value stays the same,
    /// nothing was committed.
    asked: Option<u64>,
    hired: Vec<RunningRefresher>,
    /// Due groups that wait for a refresher, with the lease on their owner's stream tables.
    waiting: VecDeque<(Lease, Due)>,
    /// Duration of each group's last refresh, by the group's first member.
    took: BTreeMap<TableId, Duration>,
    /// The instant at which the scheduler last looked for refreshers that are in a session's way.
    glanced: Instant,
    /// The keys of concerns about the database, each with the instant of its last report, logged or not.
    concerns: BTreeMap<String, Instant>,
    /// Stream tables of other owners that were logged as not refreshed on schedule.
    foreign: BTreeSet<String>,
    warned: bool,
}

/// The search for due stream tables of one owner.
struct OwnerState {
    scheduler: Scheduler,
    /// The lease, and the instant at which to renew it.
    lease: Option<(Lease, Instant)>,
    /// The instant of the next look.
    next: Instant,
    /// The value of [`Scheduled::ended`] before the last look, if that look found nothing to do.
    still: Option<u64>,
}

impl OwnerState {
    fn new() -> OwnerState {
        OwnerState {
            scheduler: Scheduler::new(gucs::scheduler()),
            lease: None,
            next: Instant::now(),
            still: None,
        }
    }

    /// Returns the lease, and renews it if the renewal is due. Where another refresher has the lease, returns
    /// `None`, and the time until that lease may end.
    async fn lead(&self, t: &Trickle<ServerConnection>) -> Result<(Option<(Lease, Instant)>, Duration)> {
        if self.lease.is_some_and(|(_, renew)| renew > Instant::now()) {
            return Ok((self.lease, Duration::ZERO));
        }
        Ok(match lease::take(t.db(), HOLDER, self.lease.map(|(l, _)| l), TERM).await? {
            Leading::Own(lease) => (Some((lease, Instant::now() + TERM / 3)), Duration::ZERO),
            Leading::Another { left, .. } => (None, left),
        })
    }

    /// Returns the pause before the next look, without looking for changes, if three conditions hold. The
    /// lease lasts, the last look found nothing to do, and nothing was committed since. The function runs no
    /// transaction, so looks every few milliseconds cost next to nothing while no session writes.
    fn again(&mut self) -> Option<Duration> {
        // The time is read before the counter, so the counter covers every commit before that time.
        let time = now();
        if self.still != Some(Scheduled::ended())
            || self.lease.is_none_or(|(_, renew)| renew <= Instant::now())
        {
            return None;
        }
        let found = self.scheduler.look_again(time)?;
        told(&found);
        let longest = gucs::scheduler().reload;
        Some(found.wake.map_or(longest, |t| t.since(now())).min(longest))
    }

    fn anew(&mut self) {
        self.scheduler.set_options(gucs::scheduler());
        self.next = Instant::now();
        self.still = None;
    }
}

/// A hired refresher, its process and its job.
struct RunningRefresher {
    hire: Hire,
    process: DynamicBackgroundWorker,
    /// The lease, the group that the refresher refreshes, and the instant at which it got the job.
    job: Option<(Lease, Due, Instant)>,
}

impl SchedulerState {
    fn of(database: u32) -> SchedulerState {
        SchedulerState {
            database,
            owners: BTreeMap::new(),
            all: false,
            asked: None,
            hired: Vec::new(),
            waiting: VecDeque::new(),
            took: BTreeMap::new(),
            glanced: Instant::now(),
            concerns: BTreeMap::new(),
            foreign: BTreeSet::new(),
            warned: false,
        }
    }

    /// Looks for due stream tables and has them refreshed. Returns the time to rest; `None` where the
    /// extension does not exist.
    fn round(&mut self) -> Option<Duration> {
        let ended = Scheduled::ended();
        if self.asked != Some(ended) {
            let (owners, all) = match owners() {
                Ok(found) => found?,
                Err(e) => {
                    tell(&e);
                    return Some(TROUBLE);
                }
            };
            self.all = all;
            self.owners.retain(|o, _| owners.contains(o));
            for owner in owners {
                self.owners.entry(owner).or_insert_with(OwnerState::new);
            }
            self.asked = Some(ended);
        }
        self.collect();
        for owner in self.owners.keys().copied().collect::<Vec<_>>() {
            self.look(owner, ended);
        }
        self.hand_out();
        self.give_way();
        let next = self.owners.values().map(|l| l.next).min();
        let glances = self.busy() > 0 && !gucs::give_way().is_zero();
        let longest = gucs::scheduler().reload.min(if glances { GLANCE } else { Duration::MAX });
        Some(next.map_or(longest, |at| at.saturating_duration_since(Instant::now())).min(longest))
    }

    /// Cancels refreshes that have run for a while and are in the way of a session that wants a table
    /// exclusively.
    fn give_way(&mut self) {
        let patience = gucs::give_way();
        if patience.is_zero() || self.busy() == 0 || self.glanced.elapsed() < GLANCE {
            return;
        }
        self.glanced = Instant::now();
        let long = |w: &AtWork| now().since(w.since) >= GLANCE;
        let pids: Vec<i32> =
            Board::at_work(self.database).into_iter().filter(long).map(|w| w.process).collect();
        if pids.is_empty() {
            return;
        }
        let asked = transaction(async |inside| {
            let db: &dyn Connection = &inside;
            for (pid, who) in in_the_way(db, &pids, patience).await? {
                if Board::give_way(pid, &who) {
                    let cancelled = db.query("SELECT pg_cancel_backend($1)", &[&pid]).await;
                    cancelled.map_err(|e| Error::server("have a refresh give way", e))?;
                }
            }
            Ok(())
        });
        asked.as_ref().err().into_iter().for_each(tell);
    }

    /// Gives up the leases, so that other refreshers can work at once.
    fn step_down(&self) {
        for (owner, looks) in &self.owners {
            let Some((lease, _)) = looks.lease else { continue };
            let given = as_role(*owner, async |t| lease::give(t.db(), lease).await);
            given.as_ref().err().into_iter().for_each(tell);
        }
    }

    /// Looks for due stream tables of one owner, if it is time to look.
    fn look(&mut self, owner: u32, ended: u64) {
        let Some(looks) = self.owners.get_mut(&owner).filter(|l| l.next <= Instant::now()) else { return };
        if let Some(pause) = looks.again() {
            looks.next = Instant::now() + pause;
            return;
        }
        if looks.still.take() != Some(ended) {
            looks.scheduler.forget_still();
        }
        let longest = gucs::scheduler().reload;
        let looked = as_role(owner, async |t| {
            let (lease, left) = looks.lead(t).await?;
            let Some((held, _)) = lease else { return Ok((None, left)) };
            looks.scheduler.reload(t).await?;
            Ok((lease.zip(Some((held, looks.scheduler.look(t).await?))), left))
        });
        let pause = match looked {
            // Another refresher has the lease: the scheduler asks again when that lease may end.
            Ok((None, left)) => {
                looks.lease = None;
                left.min(longest).max(SOON)
            }
            Ok((Some((lease, (held, found))), _)) => {
                looks.lease = Some(lease);
                looks.still = (found.due.is_empty() && found.trouble.is_none()).then_some(ended);
                told(&found);
                self.waiting.extend(found.due.into_iter().map(|due| (held, due)));
                found.wake.map_or(longest, |t| t.since(now())).min(longest)
            }
            Err(e) if self.all && e.is_input() && rehome_if_restored() => Duration::ZERO,
            Err(e) => {
                tell(&e);
                TROUBLE
            }
        };
        looks.next = Instant::now() + pause;
        for s in looks.scheduler.suspended() {
            pgrx::log!("stream table {s}; pgtrickle.resume_stream_table('{}') goes on", s.name);
        }
        for concern in looks.scheduler.concerns() {
            // Each owner's stream tables are looked at in turn, so several looks report the same concern.
            let told = self.concerns.insert(concern.key(), Instant::now());
            if told.is_none_or(|at| at.elapsed() > AGAIN) {
                pgrx::log!("pg_trickle: {concern}");
            }
        }
        for name in looks.scheduler.foreign() {
            if !self.all && self.foreign.insert(name.clone()) {
                pgrx::log!(
                    "stream table {name} is not refreshed on schedule: it is not of who owns schema pgtrickle"
                );
            }
        }
    }

    /// Notes the results of refreshers, and which of them have ended.
    fn collect(&mut self) {
        let mut ended = Vec::new();
        self.hired.retain_mut(|h| {
            let gone = has_ended(&h.process);
            // A refresher that ended in the middle of a refresh has undone it.
            let outcome = Board::ended(h.hire).or(gone.then_some(Outcome::Later));
            if let Some(outcome) = outcome
                && let Some((lease, due, since)) = h.job.take()
            {
                ended.push((lease, due, since.elapsed(), outcome));
            }
            if gone {
                Board::give_back(h.hire);
            }
            !gone
        });
        for (lease, due, took, outcome) in ended {
            self.note(lease, &due, took, outcome);
        }
    }

    /// Notes the outcome of a refresh. Other stream tables may be due afterwards.
    fn note(&mut self, lease: Lease, due: &Due, took: Duration, outcome: Outcome) {
        if let Some(first) = due.members.first() {
            self.took.insert(*first, took);
        }
        if let Some(looks) = self.owners.get_mut(&lease.role) {
            looks.scheduler.ended(due, outcome);
            (looks.next, looks.still) = (Instant::now(), None);
        }
    }

    /// Hands due groups to refreshers, within the limits on simultaneous refreshes of all owners and of one
    /// owner.
    fn hand_out(&mut self) {
        while let Some(i) = self.next()
            && let Some((lease, due)) = self.waiting.remove(i)
        {
            let begun = Instant::now();
            if self.is_alone_and_quick(&due) || !self.ask(lease, &due) {
                let outcome = refresh(lease, &due);
                self.note(lease, &due, begun.elapsed(), outcome);
                self.collect();
            }
        }
    }

    /// Returns the index in `waiting` of the next group to hand out.
    fn next(&self) -> Option<usize> {
        let mut at_work = BTreeMap::new();
        for (lease, ..) in self.hired.iter().filter_map(|h| h.job.as_ref()) {
            *at_work.entry(lease.role).or_insert(0) += 1;
        }
        let queue = self.waiting.iter().map(|(lease, _)| lease.role);
        share::next(queue, &at_work, self.owners.len(), gucs::max_concurrent())
    }

    fn busy(&self) -> usize {
        self.hired.iter().filter(|h| h.job.is_some()).count()
    }

    /// Whether this process may refresh the group itself without making another group wait longer. With
    /// several owners the answer is no. A refresh that was quick the last time may never end this time, and
    /// all other owners would wait.
    fn is_alone_and_quick(&self, due: &Due) -> bool {
        let took = due.members.first().and_then(|first| self.took.get(first));
        self.owners.len() == 1
            && (gucs::max_concurrent() == 1
                || self.waiting.is_empty() && self.busy() == 0 && took.is_some_and(|t| *t < QUICK))
    }

    /// Logs once the reason why refreshes run one after the other.
    fn warn(&mut self, why: &str) {
        if !self.warned {
            pgrx::log!("pg_trickle cannot start another refresher: {why}");
            self.warned = true;
        }
    }

    /// Gives the group to an idle refresher, or else to a new one. Returns false if no refresher can be
    /// started, or if the group has too many stream tables for a job.
    fn ask(&mut self, lease: Lease, due: &Due) -> bool {
        let Some(job) = Job::new(lease, due) else { return false };
        let work = (lease, due.clone(), Instant::now());
        let mut idle = self.hired.iter_mut().filter(|h| h.job.is_none());
        if let Some(h) = idle.find(|h| Board::ask(h.hire, job)) {
            h.job = Some(work);
            return true;
        }
        let Some(hire) = Board::hire(self.database, job) else {
            self.warn("it has as many schedulers and refreshers as there can be");
            return false;
        };
        match refresher::start(hire) {
            Some(process) => {
                self.hired.push(RunningRefresher { hire, process, job: Some(work) });
                true
            }
            None => {
                Board::give_back(hire);
                self.warn("raise max_worker_processes");
                false
            }
        }
    }
}

/// Logs the trouble and the slow stream tables that a look found.
fn told(found: &Found) {
    found.trouble.iter().for_each(tell);
    for s in &found.slow {
        pgrx::log!(
            "stream table {}: a refresh takes more than four fifths of its period of {:?}, so it comes every {:?} instead",
            s.name,
            s.period,
            s.instead
        );
    }
}

/// Once a restore is done, finds the tables of the restored catalog again by their names. Returns whether
/// tables were looked up; false while the restore may still be running, and where there was no restore.
fn rehome_if_restored() -> bool {
    let done = transaction(async |inside| rehomed_when_restored(inside).await);
    done.inspect_err(tell).unwrap_or(false)
}

/// Returns the roles as which refreshes run, and whether these are all owners of stream tables. If the whole
/// catalog belongs to superusers, its entries can be trusted, and all owners are returned. Otherwise only the
/// owner of the catalog is returned. Returns `None` where the extension does not exist.
fn owners() -> Result<Option<(Vec<u32>, bool)>> {
    let asked: std::result::Result<_, ServerError> = transaction(async |inside| {
        let db: &dyn Connection = &inside;
        let Some(catalog) = db.query_opt(CATALOG, &[]).await? else { return Ok(None) };
        if !catalog.get::<bool>(1) {
            return Ok(Some((vec![Some(catalog.get(0))], false)));
        }
        let owners = db.query(&all_owners(), &[]).await?;
        if owners.iter().any(|r| r.get(1)) {
            db.as_catalog_owner("SELECT pgtrickle.let_in_owners(NULL)").await?;
        }
        Ok(Some((owners.iter().map(|r| r.get(0)).collect::<Vec<Option<u32>>>(), true)))
    });
    let asked = asked.map_err(|e| Error::server("look for the extension", e))?;
    let Some((owners, all)) = asked else { return Ok(None) };
    if owners.contains(&None) && rehome_if_restored() {
        return self::owners();
    }
    Ok(Some((owners.into_iter().flatten().collect(), all)))
}
