//! The shared memory through which schedulers and refreshers work together. The memory lists the schedulers
//! of databases, and the refreshers with their jobs. Its contents need not outlive the server, since the
//! frontiers of stream tables are in the databases.
//!
//! A scheduler takes a place for itself, and a place for each refresher that it starts. A process that ends
//! gives its place back. After a crash of a process, the server restarts all its processes, and begins with
//! an empty memory.

use pgrx::pg_sys;
use pgrx::{PGRXSharedMemory, PgLwLock, pg_guard, pg_shmem_init};
use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};
use trickle_core::catalog::TableId;
use trickle_core::refresh::Lease;
use trickle_core::schedule::Time;
use trickle_engine::scheduler::{Due, Outcome, now};

/// The number of places, which is the greatest number of schedulers and refreshers that a server can have.
pub(crate) const PLACES: usize = 128;

/// The greatest number of stream tables that a job can have.
const MEMBERS: usize = 120;

/// The greatest number of bytes that are stored of the description of a session to which a refresher gives
/// way.
const TOLD: usize = 160;

/// The index that stands for no place.
const NOWHERE: usize = PLACES;

/// Index of this process's place.
static OWN: AtomicUsize = AtomicUsize::new(NOWHERE);

/// Stream tables that are to be refreshed together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    /// The lease under which the refresh is committed, with the role as which it runs.
    lease: Lease,
    quiet_at: Option<Time>,
    count: usize,
    members: [u32; MEMBERS],
    polled: [bool; MEMBERS],
}

impl Job {
    const NONE: Job = Job {
        lease: Lease { role: 0, fence: 0 },
        quiet_at: None,
        count: 0,
        members: [0; MEMBERS],
        polled: [false; MEMBERS],
    };

    /// Makes a job; `None` if it would have too many stream tables.
    pub(crate) fn new(lease: Lease, due: &Due) -> Option<Job> {
        let mut job = Job { lease, quiet_at: due.quiet_at, count: due.members.len(), ..Job::NONE };
        for (i, id) in due.members.iter().enumerate() {
            *job.members.get_mut(i)? = id.0;
            *job.polled.get_mut(i)? = due.polled.contains(id);
        }
        Some(job)
    }

    /// Returns the stream tables to refresh.
    fn due(&self) -> Due {
        let all = || self.members.iter().zip(&self.polled).take(self.count);
        Due {
            members: all().map(|(id, _)| TableId(*id)).collect(),
            // Only the scheduler needs to know which of these stream tables are due themselves.
            asked: Vec::new(),
            polled: all().filter(|(_, polled)| **polled).map(|(id, _)| TableId(*id)).collect(),
            quiet_at: self.quiet_at,
        }
    }
}

/// The place of a hired refresher. Another refresher may have the same place later, with another number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hire {
    place: usize,
    number: u64,
}

impl Hire {
    /// Returns the argument with which the refresher is started.
    pub(crate) fn place(self) -> i64 {
        i64::try_from(self.place).unwrap_or(i64::MAX)
    }
}

/// Whether a process may be the scheduler of its database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// The process is the scheduler.
    Own,
    /// Another process is the scheduler.
    Another,
    /// No place is free.
    Full,
}

/// The next step of a refresher.
#[derive(Debug)]
pub(crate) enum Next {
    /// Refresh these stream tables, as the role of the lease.
    Refresh(Lease, Due),
    /// Wait until the process is woken.
    Wait,
    /// End the process.
    Leave,
}

/// The use of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Free,
    /// A scheduler.
    Schedules,
    /// A refresher without a job.
    Idle,
    /// A refresher with a job that it has not begun.
    Asked,
    /// A refresher at work on its job.
    Works,
    /// A refresher that has ended its job; its scheduler has not read the outcome yet.
    Done(Outcome),
}

#[derive(Clone, Copy, Debug)]
struct Place {
    used: Use,
    database: u32,
    /// Number of the process; 0 until it has started.
    process: i32,
    /// Process of the scheduler that hired this refresher; `number` is the number of the hire.
    scheduler: i32,
    number: u64,
    /// Whether this refresher is to end.
    leaves: bool,
    /// The time at which the refresher began its job.
    since: Time,
    job: Job,
    /// Description of the session for which the refresh is cancelled, and the length of this description in
    /// bytes; 0 if there is no such session.
    gives_way_to: ([u8; TOLD], usize),
}

/// A refresher that is at work.
pub(crate) struct AtWork {
    /// Owner of the stream tables that the refresher refreshes.
    pub(crate) role: u32,
    /// The first stream table that the refresher refreshes.
    pub(crate) table: u32,
    pub(crate) process: i32,
    pub(crate) since: Time,
}

const FREE: Place = Place {
    used: Use::Free,
    database: 0,
    process: 0,
    scheduler: 0,
    number: 0,
    leaves: false,
    since: Time(0),
    job: Job::NONE,
    gives_way_to: ([0; TOLD], 0),
};

/// All places of the server.
#[derive(Clone, Copy)]
pub(crate) struct Board {
    places: [Place; PLACES],
    hires: u64,
}

// SAFETY: the board is plain data without pointers.
unsafe impl PGRXSharedMemory for Board {}

impl Default for Board {
    fn default() -> Board {
        Board { places: [FREE; PLACES], hires: 0 }
    }
}

// SAFETY: no other library has a lock of this name.
static BOARD: PgLwLock<Board> = unsafe { PgLwLock::new(c"pg_trickle") };

impl Board {
    /// Requests the shared memory; called while the server loads its libraries.
    pub(crate) fn request() {
        pg_shmem_init!(BOARD);
    }

    /// Makes this process the scheduler of its database, unless there is one already or no place is free.
    pub(crate) fn schedule(database: u32) -> Admission {
        let process = own_process();
        let mut board = BOARD.exclusive();
        if board.places.iter().any(|p| p.used == Use::Schedules && p.database == database) {
            return Admission::Another;
        }
        let Some(i) = board.places.iter().position(|p| p.used == Use::Free) else { return Admission::Full };
        board.places[i] = Place { used: Use::Schedules, database, process, ..FREE };
        drop(board);
        stay(i);
        Admission::Own
    }

    /// Whether a database has a scheduler.
    pub(crate) fn is_scheduled(database: u32) -> bool {
        let board = BOARD.share();
        board.places.iter().any(|p| p.used == Use::Schedules && p.database == database)
    }

    /// Takes a place for a refresher that this scheduler is about to start, with its first job; `None` if no
    /// place is free.
    pub(crate) fn hire(database: u32, job: Job) -> Option<Hire> {
        let scheduler = own_process();
        let mut board = BOARD.exclusive();
        let place = board.places.iter().position(|p| p.used == Use::Free)?;
        board.hires += 1;
        let number = board.hires;
        board.places[place] = Place { used: Use::Asked, database, scheduler, number, job, ..FREE };
        Some(Hire { place, number })
    }

    /// Gives a job to an idle refresher; false if the refresher has gone.
    pub(crate) fn ask(hire: Hire, job: Job) -> bool {
        let mut board = BOARD.exclusive();
        let Some(place) = board.hired(hire).filter(|p| p.used == Use::Idle) else { return false };
        (place.used, place.job) = (Use::Asked, job);
        wake(place.process);
        true
    }

    /// Returns the outcome of a refresher's job, once, and makes the refresher idle. Returns `None` while the
    /// job has not ended.
    pub(crate) fn ended(hire: Hire) -> Option<Outcome> {
        let mut board = BOARD.exclusive();
        let place = board.hired(hire)?;
        let Use::Done(outcome) = place.used else { return None };
        place.used = Use::Idle;
        Some(outcome)
    }

    /// Gives back the place of a refresher that could not be started or has ended.
    pub(crate) fn give_back(hire: Hire) {
        if let Some(place) = BOARD.exclusive().hired(hire) {
            *place = FREE;
        }
    }

    fn hired(&mut self, hire: Hire) -> Option<&mut Place> {
        self.places.get_mut(hire.place).filter(|p| p.used != Use::Free && p.number == hire.number)
    }

    /// Makes the refreshers of this scheduler end as soon as they have no job.
    pub(crate) fn dismiss() {
        dismiss(&mut BOARD.exclusive(), own_process());
    }

    /// Takes the place that was kept for this refresher; returns its database.
    pub(crate) fn arrive(i: usize) -> Option<u32> {
        let mut board = BOARD.exclusive();
        let place = board.places.get_mut(i).filter(|p| p.used == Use::Asked && p.process == 0)?;
        place.process = own_process();
        let database = place.database;
        drop(board);
        stay(i);
        Some(database)
    }

    /// Returns the next step of this refresher. A refresher that is `tired` of waiting leaves, unless it has
    /// a job.
    pub(crate) fn next(tired: bool) -> Next {
        let mut board = BOARD.exclusive();
        let Some(place) = board.places.get_mut(OWN.load(Ordering::Relaxed)) else { return Next::Leave };
        match place.used {
            Use::Asked => {
                (place.used, place.since) = (Use::Works, now());
                let job = place.job;
                drop(board);
                Next::Refresh(job.lease, job.due())
            }
            Use::Idle if tired || place.leaves => {
                *place = FREE;
                Next::Leave
            }
            _ => Next::Wait,
        }
    }

    /// Notes the outcome of this refresher's job, and wakes its scheduler.
    pub(crate) fn done(outcome: Outcome) {
        let mut board = BOARD.exclusive();
        let Some(place) = board.places.get_mut(OWN.load(Ordering::Relaxed)) else { return };
        place.used = if place.leaves { Use::Idle } else { Use::Done(outcome) };
        wake(place.scheduler);
    }

    /// Returns the refreshers of a database that are at work.
    pub(crate) fn at_work(database: u32) -> Vec<AtWork> {
        let board = BOARD.share();
        let of = |p: &&Place| p.used == Use::Works && p.database == database;
        let told = |p: &Place| AtWork {
            role: p.job.lease.role,
            table: p.job.members[0],
            process: p.process,
            since: p.since,
        };
        board.places.iter().filter(of).map(told).collect()
    }

    /// Notes that the refresh of a process is about to be cancelled in favour of the session `who`. Returns
    /// whether that process is still at work.
    pub(crate) fn give_way(process: i32, who: &str) -> bool {
        let mut board = BOARD.exclusive();
        let at_work = |p: &&mut Place| p.used == Use::Works && p.process == process;
        let Some(place) = board.places.iter_mut().find(at_work) else { return false };
        let (told, bytes) = (&mut place.gives_way_to, who.as_bytes());
        told.1 = bytes.len().min(TOLD);
        told.0[..told.1].copy_from_slice(&bytes[..told.1]);
        true
    }

    /// Returns the session in whose favour the refresh of this process was cancelled. A second call returns
    /// `None`.
    pub(crate) fn gave_way_to() -> Option<String> {
        if !super::process::is_preloaded() {
            return None;
        }
        let mut board = BOARD.exclusive();
        let place = board.places.get_mut(OWN.load(Ordering::Relaxed))?;
        let (told, bytes) = std::mem::replace(&mut place.gives_way_to, FREE.gives_way_to);
        (bytes > 0).then(|| String::from_utf8_lossy(&told[..bytes]).into_owned())
    }

    /// Returns the numbers of the processes that refresh a database: its scheduler and its refreshers.
    pub(crate) fn of_database(database: u32) -> Vec<i32> {
        let board = BOARD.share();
        let of = |p: &&Place| p.used != Use::Free && p.database == database && p.process != 0;
        board.places.iter().filter(of).map(|p| p.process).collect()
    }
}

fn dismiss(board: &mut Board, scheduler: i32) {
    for place in board.places.iter_mut().filter(|p| p.used != Use::Free && p.scheduler == scheduler) {
        place.leaves = true;
        if matches!(place.used, Use::Done(_)) {
            place.used = Use::Idle;
        }
        wake(place.process);
    }
}

/// Makes the place this process's own until the process ends.
fn stay(i: usize) {
    OWN.store(i, Ordering::Relaxed);
    // SAFETY: the process is attached to the shared memory, and is still attached when the callback runs.
    unsafe { pg_sys::before_shmem_exit(Some(left), pg_sys::Datum::null()) };
}

/// Gives the place back; called when this process ends.
#[pg_guard]
unsafe extern "C-unwind" fn left(_code: c_int, _argument: pg_sys::Datum) {
    let process = own_process();
    let mut board = BOARD.exclusive();
    let scheduler = match board.places.get_mut(OWN.load(Ordering::Relaxed)) {
        Some(place) if place.process == process => std::mem::replace(place, FREE).scheduler,
        _ => 0,
    };
    dismiss(&mut board, process);
    wake(scheduler);
}

fn own_process() -> i32 {
    // SAFETY: the variable is read by the thread that writes it.
    unsafe { pg_sys::MyProcPid }
}

/// Wakes a process, so that it looks whether it has something to do.
fn wake(process: i32) {
    if process == 0 {
        return;
    }
    // SAFETY: the latch is in shared memory. If its process ends meanwhile, another process may get the
    // latch. That process is then woken without need, which does no harm.
    unsafe {
        let found = pg_sys::BackendPidGetProc(process);
        if !found.is_null() {
            pg_sys::SetLatch(&raw mut (*found).procLatch);
        }
    }
}
