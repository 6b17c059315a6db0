//! The scheduler of a database: finds what is due, and has it refreshed, side by side, by refreshers that it starts. What is
//! alone and quick it does itself.

use super::{TROUBLE, as_role, has_ended, refresh, refresher, start as start_process, tell, transaction};
use crate::gucs;
use crate::install::rehomed_when_restored;
use crate::unsafe_pg::{Admission, AtWork, Board, Hire, Inside, Job, PLACES, Scheduled};
use pgrx::bgworkers::{BackgroundWorker, DynamicBackgroundWorker, SignalWakeFlags};
use pgrx::prelude::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::CString;
use std::time::{Duration, Instant};
use trickle_core::catalog::TableId;
use trickle_core::refresh::Lease;
use trickle_core::schedule::share;
use trickle_engine::db::{Connection, Refusal};
use trickle_engine::give_way::{GLANCE, in_the_way};
use trickle_engine::lease::{self, Leading};
use trickle_engine::scheduler::{Due, Found, Outcome, Scheduler, now};
use trickle_engine::schema::LETS_OWNER_IN;
use trickle_engine::{Error, REFRESHER, Result, Trickle};

/// What takes less than this keeps nobody waiting for long.
const QUICK: Duration = Duration::from_millis(50);

/// How it is named where it has a lease. There is one scheduler of a database in a server: one that comes after another goes on
/// under the lease of that.
const HOLDER: &str = "pg_trickle in this server";

/// How long a lease lasts that is not renewed. Refreshes that it does itself may take a while, and what is late is renewed then
/// if nobody else took it.
const TERM: Duration = Duration::from_secs(10);

/// How long nothing is said again of what holds the database back.
const AGAIN: Duration = Duration::from_secs(600);

/// How soon at the earliest a lease is asked for again that another one has.
const SOON: Duration = Duration::from_millis(100);

/// Who owns the catalog, and whether all of it is superusers': whoever it is may make anybody who asks it do anything. No row
/// where there is no extension.
pub(super) const CATALOG: &str = "SELECT n.nspowner, NOT EXISTS (
        SELECT FROM (SELECT n.nspowner UNION ALL SELECT c.relowner FROM pg_catalog.pg_class c WHERE c.relnamespace = n.oid
            UNION ALL SELECT p.proowner FROM pg_catalog.pg_proc p WHERE p.pronamespace = n.oid) o(owner)
        JOIN pg_catalog.pg_roles r ON r.oid = o.owner WHERE NOT r.rolsuper)
    FROM pg_catalog.pg_extension e, pg_catalog.pg_namespace n WHERE e.extname = 'pg_trickle' AND n.nspname = 'pgtrickle'";

/// The owners of stream tables, and NULL where there is one whose table is not there.
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

/// What the scheduler of a database does, in a process of its own.
pub(crate) fn schedule(database: pg_sys::Datum) {
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
    // Whoever asks for a refresher finds it by this name.
    Scheduled::begin(Some(database), &CString::new(REFRESHER).unwrap_or_default());
    let mut lead = Lead::of(database.to_u32());
    // Without the extension, or where it is dropped or nothing is to be refreshed, nobody is to stay here.
    while gucs::is_enabled()
        && let Some(pause) = lead.round()
    {
        Scheduled::rest(pause);
        if BackgroundWorker::sighup_received() {
            Scheduled::reload();
            lead.owners.values_mut().for_each(Looks::anew);
        }
    }
    if !gucs::is_enabled() {
        lead.step_down();
    }
    Board::dismiss();
}

/// What a scheduler knows.
struct Lead {
    database: u32,
    /// By owner of stream tables.
    owners: BTreeMap<u32, Looks>,
    /// Whether these are all owners.
    all: bool,
    /// How many transactions had ended before it was asked whose stream tables there are.
    asked: Option<u64>,
    hired: Vec<Hired>,
    /// What is due and waits for a refresher, with the lease of its owner's stream tables.
    waiting: VecDeque<(Lease, Due)>,
    /// How long the refreshes of groups took last, by their first member.
    took: BTreeMap<TableId, Duration>,
    /// When it was last looked whether refreshers are in anybody's way.
    glanced: Instant,
    /// What holds the database back, and when that was last told.
    concerns: BTreeMap<String, Instant>,
    /// Those whose stream tables are left alone, as was told.
    foreign: BTreeSet<String>,
    warned: bool,
}

/// Looks for what is due among the stream tables of an owner.
struct Looks {
    scheduler: Scheduler,
    /// The lease, and when to renew it.
    lease: Option<(Lease, Instant)>,
    /// When to look next.
    next: Instant,
    /// How many transactions had ended before the last look, if it found nothing to do.
    still: Option<u64>,
}

impl Looks {
    fn new() -> Looks {
        Looks { scheduler: Scheduler::new(gucs::scheduler()), lease: None, next: Instant::now(), still: None }
    }

    /// The lease, renewed where it is time to; `None` with how long another refresher has it.
    async fn lead(&self, t: &Trickle<Inside>) -> Result<(Option<(Lease, Instant)>, Duration)> {
        if self.lease.is_some_and(|(_, renew)| renew > Instant::now()) {
            return Ok((self.lease, Duration::ZERO));
        }
        Ok(match lease::take(t.db(), HOLDER, self.lease.map(|(l, _)| l), TERM).await? {
            Leading::Own(lease) => (Some((lease, Instant::now() + TERM / 3)), Duration::ZERO),
            Leading::Another { left, .. } => (None, left),
        })
    }

    /// When to look next, where nothing was committed since the last look, nothing was to be done then, and the lease lasts. Costs
    /// no transaction, so that what is looked at every few milliseconds costs next to nothing while nobody writes.
    fn again(&mut self) -> Option<Duration> {
        // The time comes first: what was committed after it may have been counted.
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

/// A refresher.
struct Hired {
    hire: Hire,
    process: DynamicBackgroundWorker,
    /// What it is at, since when.
    job: Option<(Lease, Due, Instant)>,
}

impl Lead {
    fn of(database: u32) -> Lead {
        Lead {
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

    /// Looks for what is due, and has it refreshed; how long to rest then. `None`: there is no extension.
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
                self.owners.entry(owner).or_insert_with(Looks::new);
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

    /// Has refreshers give way that have worked for a while and stand before somebody who wants a table for himself.
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

    /// Lets others refresh on schedule at once.
    fn step_down(&self) {
        for (owner, looks) in &self.owners {
            let Some((lease, _)) = looks.lease else { continue };
            let given = as_role(*owner, async |t| lease::give(t.db(), lease).await);
            given.as_ref().err().into_iter().for_each(tell);
        }
    }

    /// Looks for what is due of an owner's, where it is time to.
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
            // Another refresher has the lease: it is looked for again when that may end.
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
            Err(e) if self.all && e.is_input() && is_rehomed() => Duration::ZERO,
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
            // Each owner's stream tables are looked at in turn, and what is wrong concerns many.
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

    /// Notes what refreshers have done, and which of them are gone.
    fn collect(&mut self) {
        let mut ended = Vec::new();
        self.hired.retain_mut(|h| {
            let gone = has_ended(&h.process);
            // One that ended in the middle of a refresh has undone it.
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

    /// Notes how a refresh ended, after which others may be due.
    fn note(&mut self, lease: Lease, due: &Due, took: Duration, outcome: Outcome) {
        if let Some(first) = due.members.first() {
            self.took.insert(*first, took);
        }
        if let Some(looks) = self.owners.get_mut(&lease.role) {
            looks.scheduler.ended(due, outcome);
            (looks.next, looks.still) = (Instant::now(), None);
        }
    }

    /// Has what is due refreshed, as far as there may be more refreshes at a time, of all owners and of one.
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

    /// The place of what is handed out next.
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

    /// Whether nobody has to wait for what this process does itself. Where there are several owners everybody would: what took a
    /// moment the last time may take for ever this time.
    fn is_alone_and_quick(&self, due: &Due) -> bool {
        let took = due.members.first().and_then(|first| self.took.get(first));
        self.owners.len() == 1
            && (gucs::max_concurrent() == 1
                || self.waiting.is_empty() && self.busy() == 0 && took.is_some_and(|t| *t < QUICK))
    }

    /// Says once why refreshes come one after the other.
    fn warn(&mut self, why: &str) {
        if !self.warned {
            pgrx::log!("pg_trickle cannot start another refresher: {why}");
            self.warned = true;
        }
    }

    /// Asks a refresher, one that has nothing to do or a new one; false where there is none.
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
                self.hired.push(Hired { hire, process, job: Some(work) });
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

/// Tells what a look found beside what is due.
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

/// Finds the tables again of a catalog that came with a dump, where it did.
fn is_rehomed() -> bool {
    let done = transaction(async |inside| rehomed_when_restored(inside).await);
    done.inspect_err(tell).unwrap_or(false)
}

/// As whom refreshes run. Where the catalog is superusers', who let others in, all owners of stream tables: what it says can be
/// believed; else who owns it, and `false`. `None` where there is no extension.
fn owners() -> Result<Option<(Vec<u32>, bool)>> {
    let asked: std::result::Result<_, Refusal> = transaction(async |inside| {
        let db: &dyn Connection = &inside;
        let Some(catalog) = db.query_opt(CATALOG, &[]).await? else { return Ok(None) };
        if !catalog.get::<bool>(1) {
            return Ok(Some((vec![Some(catalog.get(0))], false)));
        }
        let owners = db.query(&all_owners(), &[]).await?;
        if owners.iter().any(|r| r.get(1)) {
            db.as_keeper("SELECT pgtrickle.let_in_owners(NULL)").await?;
        }
        Ok(Some((owners.iter().map(|r| r.get(0)).collect::<Vec<Option<u32>>>(), true)))
    });
    let asked = asked.map_err(|e| Error::server("look for the extension", e))?;
    let Some((owners, all)) = asked else { return Ok(None) };
    if owners.contains(&None) && is_rehomed() {
        return self::owners();
    }
    Ok(Some((owners.into_iter().flatten().collect(), all)))
}
