//! Reports the progress of long work.

use crate::db::{Connection, Connections};
use crate::error::{Error, Result};
use crate::holders::{BLOCKERS, holder};
use futures_util::future::{self, Either, select};
use futures_util::pin_mut;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A receiver of the messages of long work.
pub trait Progress: Send + Sync {
    /// Receives one line for people.
    fn say(&self, line: &str);
    /// Whether the receiver wants reports by [`Progress::at`]. Reports of progress need one more connection
    /// if the work takes longer than a second.
    fn is_watched(&self) -> bool {
        false
    }
    /// Ends when the next report of progress is due, about once a second. Never ends where the receiver wants
    /// no reports.
    fn next(&self) -> Pin<Box<dyn Future<Output = ()> + '_>> {
        Box::pin(future::pending())
    }
    /// Receives a report of the progress of the work.
    fn at(&self, _: &ProgressReport) {}
}

/// A receiver that ignores all messages.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quiet;

impl Progress for Quiet {
    fn say(&self, _: &str) {}
}

/// The progress of long work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgressReport {
    /// The bytes read so far, and about how many bytes there are in all. Both numbers are known only for a
    /// first fill on several connections.
    pub read: Option<(u64, u64)>,
    /// The size, in bytes, of the table that the work writes.
    pub written: Option<u64>,
    /// The sessions that the work waits for at the moment; empty while the work does not wait.
    pub waits_for: Vec<Blocker>,
    /// The time spent waiting for locks of other sessions, accurate to a second.
    pub waited: Duration,
    /// The time spent working, accurate to a second.
    pub worked: Duration,
}

/// A session that holds a lock for which the work waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocker {
    /// The number of the server process.
    pub pid: i32,
    /// The process, role, program and state of the session, in one line.
    pub line: String,
}

/// The bytes that a first fill has read, for an observer on another connection.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    done: AtomicU64,
    of: AtomicU64,
    /// The server processes that do the fill. If one of them waits for another, the wait counts as work.
    workers: Mutex<Vec<i32>>,
}

impl Tally {
    pub(crate) fn begin(&self, of: u64, workers: Vec<i32>) {
        self.done.store(0, Ordering::Relaxed);
        self.of.store(of, Ordering::Relaxed);
        *self.workers.lock().unwrap_or_else(PoisonError::into_inner) = workers;
    }
    pub(crate) fn add(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }
    fn is_worker(&self, pid: i32) -> bool {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner).contains(&pid)
    }
    fn read(&self) -> Option<(u64, u64)> {
        let (done, of) = (self.done.load(Ordering::Relaxed), self.of.load(Ordering::Relaxed));
        (of > 0).then_some((done.min(of), of))
    }
}

/// Observes work from another connection, since the working connection can report nothing before its
/// statement ends.
pub(crate) struct Onlooker {
    pub(crate) progress: Arc<dyn Progress>,
    pub(crate) connections: Option<Arc<dyn Connections>>,
    pub(crate) tally: Arc<Tally>,
    /// The name of the work, for people.
    pub(crate) what: String,
    /// The number of the server process that works; 0 while it is not known.
    pub(crate) pid: Arc<AtomicI32>,
    /// The table that the work writes.
    pub(crate) table: Option<u32>,
}

impl Onlooker {
    /// Runs the work and observes it at the same time.
    pub(crate) async fn during<T>(self, work: impl Future<Output = T>) -> T {
        if !self.progress.is_watched() {
            return work.await;
        }
        self.tally.begin(0, Vec::new());
        let mut report = ProgressReport::default();
        let done = {
            let look = self.look(&mut report);
            pin_mut!(work, look);
            match select(work, look).await {
                Either::Left((done, _)) => done,
                Either::Right((never, _)) => match never {},
            }
        };
        if !report.waited.is_zero() {
            let (waited, worked) = (report.waited.as_secs(), report.worked.as_secs());
            self.progress.say(&format!("{}: waited {waited} s for locks, worked {worked} s", self.what));
        }
        done
    }

    async fn look(&self, report: &mut ProgressReport) -> Infallible {
        let mut last = Instant::now();
        let mut session = None;
        loop {
            self.progress.next().await;
            if session.is_none() {
                session = self.open().await;
            }
            report.waits_for.clear();
            if let Some(s) = &session {
                match self.looked(&**s).await {
                    Ok((blockers, size)) => {
                        report.waits_for = blockers;
                        report.written = size.or(report.written);
                    }
                    // The server refused the query, or the connection was lost, so the next round opens
                    // another connection.
                    Err(_) => session = None,
                }
            }
            let now = Instant::now();
            let spent = if report.waits_for.is_empty() { &mut report.worked } else { &mut report.waited };
            *spent += now - last;
            last = now;
            report.read = self.tally.read();
            self.progress.at(report);
        }
    }

    async fn open(&self) -> Option<Box<dyn Connection>> {
        self.connections.as_ref()?.another().await.ok()
    }

    /// Returns the sessions that the work waits for, and the size of the table that the work writes.
    async fn looked(&self, s: &dyn Connection) -> Result<(Vec<Blocker>, Option<u64>)> {
        let fail = |e| Error::server("look who holds a lock", e);
        // The queries of the observer must not wait for the lock that the work may wait for. The setting
        // ends with the transaction, since another client may use the server process afterwards.
        s.batch_execute("BEGIN; SET LOCAL lock_timeout = '100ms'").await.map_err(fail)?;
        let blockers = self.blockers(s).await;
        let size = match &blockers {
            Ok(found) if found.is_empty() => self.size(s).await,
            _ => None,
        };
        s.batch_execute("ROLLBACK").await.map_err(fail)?;
        Ok((blockers?, size))
    }

    async fn blockers(&self, s: &dyn Connection) -> Result<Vec<Blocker>> {
        let pid = self.pid.load(Ordering::Relaxed);
        if pid == 0 {
            return Ok(Vec::new());
        }
        let rows = s.query(BLOCKERS, &[&pid]).await;
        let rows = rows.map_err(|e| Error::server("look who holds a lock", e))?;
        let all = rows.iter().map(|r| Blocker { pid: r.get(0), line: holder(r) });
        Ok(all.filter(|b| !self.tally.is_worker(b.pid)).collect())
    }

    async fn size(&self, s: &dyn Connection) -> Option<u64> {
        let row = s.query_one("SELECT pg_relation_size($1::oid)", &[&self.table?]).await.ok()?;
        row.get::<Option<i64>>(0).and_then(|n| u64::try_from(n).ok())
    }
}
