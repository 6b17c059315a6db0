//! The first fill of a large stream table, on several connections.
//!
//! The leader is an ordinary refresh, and the workers are further connections. Before the statement that
//! fills the table, the leader exports its snapshot. The workers and the leader then insert the rows
//! together. Each of them inserts the rows for ranges of one table, which is the largest table in which the
//! query is linear. A query is linear in a table if its result is the sum of its results over the parts of
//! the table. The rows stay within the server on their way from table to table. No transaction can span
//! several connections, so the load follows these rules:
//!
//! - A table is loaded on several connections only if it was never filled and has no page, and no other
//!   stream table reads it. The reason is that the leader's snapshot does not show the rows that workers
//!   insert.
//! - Workers keep their transactions open until the leader has only its commit left to do. The workers commit
//!   first, and the leader commits after them. Only the leader's commit marks the table as filled. If a
//!   process dies before these commits, no row remains. If a process dies between these commits, rows remain
//!   in a table that is not marked as filled. The next refresh of the table empties it first.
//! - A worker locks the stored table before it imports the snapshot. The import succeeds only while the
//!   leader lives, and at that time the leader still holds its lock. A refresh of a table that was never
//!   filled locks out writers ([`Lock::Writers`]). A refresh after the death of a leader therefore sees all
//!   rows that its workers committed, since these workers ended before its snapshot. A load on several
//!   connections needs no such lock, since it requires a table without pages. A worker of a dead leader may
//!   still have to commit its rows. But the worker inserted these rows before the leader died, so the table
//!   has pages.
//! - A worker that cannot join the load is left out. If a worker fails later, the load ends, and one
//!   connection fills the table alone.

mod job;

use crate::db::{Bind, Connection, RefreshDriver, Transaction};
use crate::drive::{Watch, drive};
use crate::error::{Error, Result};
use crate::in_force::put_in_force;
use crate::progress::{Progress, Tally};
use crate::registry::Entry;
use crate::trickle::Trickle;
use futures_util::future::{Either, join_all, select};
use job::Job;
use std::cell::{Cell, RefCell};
use std::pin::{Pin, pin};
use std::time::Duration;
use trickle_core::refresh::{Answer, Failure, Kind, Lock, Plan, Relation, Report, Statement, Value};
use trickle_core::sql::Qualified;

/// The greatest time that a worker may take to join the load. The waits of a worker for locks end sooner.
const JOIN: Duration = Duration::from_secs(5);

impl<C: RefreshDriver> Trickle<C> {
    /// Refreshes a group in which one stream table is loaded on several connections. Returns `None` if no
    /// stream table of the group can be loaded in this way, or if the load failed. After a failed load, a
    /// refresh on one connection undoes all changes that the load has left.
    pub(crate) async fn load(
        &mut self,
        group: &[Entry],
        plan: &Plan,
        watch: Option<&mut (dyn Watch + '_)>,
    ) -> Result<Option<std::result::Result<Report, Failure>>> {
        let Some(job) = self.job(group, plan).await? else { return Ok(None) };
        let wanted = self.settings.load_connections.min(job.units.len()).saturating_sub(1);
        let workers = self.workers(wanted).await;
        if workers.is_empty() || !self.emptied(&job).await? {
            return Ok(None);
        }
        let mut plan = plan.clone();
        for member in plan.members.iter_mut().filter(|m| m.id == job.member) {
            member.lock = Lock::Refreshes;
        }
        let patience = match self.settings.lock_timeout_ms {
            0 => 60_000,
            ms => ms,
        };
        let watch = watch.map(|w| -> &mut dyn Watch { w });
        let leader = self.db();
        let (tally, progress) = (&*self.tally, &*self.progress);
        let (stage, gave_up) = (Stage::Unasked, None);
        let mut load = Load { leader, workers, job, patience, tally, progress, stage, gave_up, watch };
        let done = drive(&self.connection, plan, Some(&mut load)).await;
        load.release().await;
        match load.gave_up.take() {
            Some(why) if done.is_err() => {
                let message = why.message();
                self.progress.say(&format!("loading on one connection, since several failed: {message}"));
                Ok(None)
            }
            _ => Ok(Some(done)),
        }
    }

    /// Opens `wanted` more connections, or fewer where the server or its limits allow fewer.
    async fn workers(&self, wanted: usize) -> Vec<Box<dyn Connection>> {
        let mut workers = Vec::new();
        let Some(connections) = &self.connections else { return workers };
        while workers.len() < wanted {
            match connections.another().await {
                Ok(worker) => workers.push(worker),
                Err(e) => {
                    let message = e.message();
                    self.progress.say(&format!("loading on {} connections: {message}", workers.len() + 1));
                    break;
                }
            }
        }
        workers
    }

    /// Whether the table has no page. First removes the rows that an earlier load may have left,
    /// unless another session holds a lock on the table.
    async fn emptied(&mut self, job: &Job) -> Result<bool> {
        let fail = |e| Error::server("look for what an interrupted load left", e);
        let text = "SELECT pg_relation_size($1::oid) = 0";
        let empty = self.db().query_one(text, &[&job.stored.id.0]).await.map_err(fail)?;
        if empty.get::<Option<bool>>(0) == Some(true) {
            return Ok(true);
        }
        let t = self.db_mut().transaction().await.map_err(|e| Error::server("begin", e))?;
        match truncate(&t, job).await {
            Ok(true) => t.commit().await.map(|()| true).map_err(|e| Error::server("commit", e)),
            Ok(false) => Ok(false),
            Err(e) if e.is_busy() || e.is_transient() => Ok(false),
            Err(e) => Err(e),
        }
    }
}

async fn truncate(t: &Transaction<'_>, job: &Job) -> Result<bool> {
    let fail = |e| Error::server("remove what an interrupted load left", e);
    let name = name(&job.stored);
    let lock = format!(
        "SET LOCAL lock_timeout = '1s'; SET LOCAL pgtrickle.refreshing = on; \
         LOCK TABLE {name} IN ACCESS EXCLUSIVE MODE"
    );
    t.batch_execute(&lock).await.map_err(fail)?;
    let text =
        "SELECT FROM pgtrickle.pgt_stream_tables WHERE pgt_id = $1 AND pgt_relid = $2 AND NOT is_populated";
    if t.query_opt(text, &[&job.member, &job.stored.id.0]).await.map_err(fail)?.is_none() {
        return Ok(false);
    }
    t.batch_execute(&format!("TRUNCATE {name}")).await.map_err(fail)?;
    Ok(true)
}

fn name(r: &Relation) -> String {
    Qualified::new(&r.schema, &r.name).to_string()
}

/// The progress of the load of one table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The leader's refresh has not reached the statements of the table.
    Unasked,
    /// The table is filled already, so the leader's refresh runs all of its statements itself.
    Filled,
    /// The table has no page, and the load will fill it.
    Ready,
    /// The workers have open transactions.
    Held,
}

/// The load as an observer of the leader's refresh. The observer watches the statements, and fills the table
/// instead of one of them.
struct Load<'l> {
    leader: &'l dyn Connection,
    workers: Vec<Box<dyn Connection>>,
    job: Job,
    /// The time to wait for a lock, in milliseconds, so that two connections of the load never wait for each
    /// other for ever.
    patience: u32,
    tally: &'l Tally,
    progress: &'l dyn Progress,
    stage: Stage,
    /// The error because of which one connection is to fill the table alone.
    gave_up: Option<Error>,
    watch: Option<&'l mut (dyn Watch + 'l)>,
}

/// The common progress of all units: the next unit, the number of inserted rows, and the first error.
#[derive(Default)]
struct Queue {
    next: Cell<usize>,
    rows: Cell<u64>,
    failed: RefCell<Option<Error>>,
}

impl Watch for Load<'_> {
    fn before<'s>(&'s mut self, statement: &'s Statement) -> Pin<Box<dyn Future<Output = Result<()>> + 's>> {
        Box::pin(async move {
            match statement.kind {
                Kind::Begin | Kind::Rollback => self.release().await,
                Kind::Program if self.is_own(statement) && self.stage == Stage::Unasked => {
                    self.claim().await?;
                }
                Kind::Commit => self.commit().await?,
                _ => {}
            }
            match &mut self.watch {
                Some(watch) => watch.before(statement).await,
                None => Ok(()),
            }
        })
    }

    fn instead<'s>(
        &'s mut self,
        statement: &'s Statement,
        _: &'s dyn Connection,
    ) -> Pin<Box<dyn Future<Output = Option<Result<Answer>>> + 's>> {
        Box::pin(async move {
            if self.stage != Stage::Ready || !self.is_own(statement) || statement.text != self.job.insert {
                return None;
            }
            let time = statement.params.first().and_then(Value::as_text);
            let rows = match self.fill(time).await {
                Err(e) if !is_querys(&e) => Err(self.give_up(e)),
                result => result,
            };
            Some(rows.map(|affected| Answer { affected, ..Answer::default() }))
        })
    }
}

/// Whether the error comes from the query itself, so that it would also occur on one connection.
fn is_querys(e: &Error) -> bool {
    let passing = e.is_connection() || e.is_busy() || e.is_transient();
    let resources = e.sqlstate().is_none_or(|s| s.starts_with("53") || s.starts_with("25"));
    !passing && !resources
}

impl Load<'_> {
    fn is_own(&self, statement: &Statement) -> bool {
        statement.member == Some(self.job.member)
    }

    /// Stores the reason why the load ends, and returns an error after which the refresh makes no other
    /// attempt.
    fn give_up(&mut self, why: Error) -> Error {
        let told = Error::input(why.message());
        self.gave_up.get_or_insert(why);
        told
    }

    /// Checks, under the locks of the refresh, whether the table can be filled by the load.
    async fn claim(&mut self) -> Result<()> {
        let text = "SELECT is_populated, pg_relation_size(pgt_relid) = 0 FROM pgtrickle.pgt_stream_tables \
                    WHERE pgt_id = $1";
        let row = self.leader.query_one(text, &[&self.job.member]).await;
        let row = row.map_err(|e| Error::server("look whether a table is empty", e))?;
        self.stage = match (row.get::<bool>(0), row.get::<Option<bool>>(1)) {
            (true, _) => Stage::Filled,
            (false, Some(true)) => Stage::Ready,
            _ => return Err(self.give_up(Error::busy("another load left rows"))),
        };
        Ok(())
    }

    /// Inserts all rows, on the leader and the workers. `time` is the time of the refresh, on which the rows
    /// may depend. Returns the number of inserted rows.
    async fn fill(&mut self, time: Option<&str>) -> Result<u64> {
        self.stage = Stage::Held;
        let fail = |e| Error::server("share a snapshot", e);
        let text = format!(
            "SET LOCAL idle_in_transaction_session_timeout = 0; SET LOCAL lock_timeout = '{}ms'",
            self.patience
        );
        self.leader.batch_execute(&text).await.map_err(fail)?;
        let row = self.leader.query_one("SELECT pg_export_snapshot(), current_user::text", &[]).await;
        let row = row.map_err(fail)?;
        let (snapshot, role): (String, String) = (row.get(0), row.get(1));
        let joined = join_all(self.workers.iter().map(|w| self.awaited(&**w, &snapshot, &role))).await;
        let pids = joined.iter().filter_map(|j| j.as_ref().ok().copied()).collect();
        let mut joined = joined.into_iter();
        // Workers that could not join the load are left out.
        self.workers.retain(|_| match joined.next() {
            Some(Err(e)) => {
                self.progress.say(&format!("loading on fewer connections: {}", e.message()));
                false
            }
            _ => true,
        });
        self.tally.begin(self.job.units.iter().map(|u| u.bytes).sum(), pids);
        let queue = Queue::default();
        let everybody = self.workers.iter().map(|w| &**w).chain([self.leader]);
        join_all(everybody.map(|db| self.pull(db, &queue, time))).await;
        match queue.failed.take() {
            Some(e) => Err(e),
            None => Ok(queue.rows.get()),
        }
    }

    /// Runs [`Load::join`] for at most [`JOIN`], since a pooler can make a worker wait for the server
    /// process that the leader uses.
    async fn awaited(&self, worker: &dyn Connection, snapshot: &str, role: &str) -> Result<i32> {
        let late = Error::connection("a worker got no server process: the pool is too small");
        match select(pin!(self.join(worker, snapshot, role)), worker.pause(JOIN)).await {
            Either::Left((joined, _)) => joined,
            Either::Right(_) => Err(late),
        }
    }

    /// Lets a worker join the load, with the leader's snapshot, rights and settings. Returns the number of
    /// the worker's server process.
    async fn join(&self, worker: &dyn Connection, snapshot: &str, role: &str) -> Result<i32> {
        let fail = |e| Error::server("join a load", e);
        let sources: Vec<String> = self.job.sources.iter().map(name).collect();
        let text = format!(
            "BEGIN ISOLATION LEVEL REPEATABLE READ; SET LOCAL lock_timeout = '1s'; \
             LOCK TABLE {} IN ROW EXCLUSIVE MODE; LOCK TABLE {} IN ACCESS SHARE MODE; \
             SET TRANSACTION SNAPSHOT '{}'; SET LOCAL lock_timeout = '{}ms'; \
             SET LOCAL idle_in_transaction_session_timeout = 0; SET LOCAL pgtrickle.refreshing = on",
            name(&self.job.stored),
            sources.join(", "),
            snapshot.replace('\'', "''"),
            self.patience
        );
        worker.batch_execute(&text).await.map_err(fail)?;
        let text = "SELECT current_user::text = $1, pg_backend_pid()";
        let row = worker.query_one(text, &[&role]).await.map_err(fail)?;
        if !row.get::<bool>(0) {
            return Err(Error::input("a worker is another role"));
        }
        put_in_force(worker, &self.job.settings).await.map_err(fail)?;
        Ok(row.get(1))
    }

    /// Runs units until no unit is left, or one has failed.
    async fn pull(&self, db: &dyn Connection, queue: &Queue, time: Option<&str>) {
        while queue.failed.borrow().is_none() {
            let Some(unit) = self.job.units.get(queue.next.get()) else { return };
            queue.next.set(queue.next.get() + 1);
            let texts: Vec<Option<&str>> = unit.params.iter().map(|p| p.as_deref().or(time)).collect();
            let params: Vec<&dyn Bind> = texts.iter().map(|t| t as &dyn Bind).collect();
            match db.execute(&unit.text, &params).await {
                Ok(rows) => {
                    queue.rows.set(queue.rows.get() + rows);
                    self.tally.add(unit.bytes);
                }
                Err(e) => {
                    queue.failed.borrow_mut().get_or_insert(Error::server("load a part", e));
                }
            }
        }
    }

    /// Commits the workers' rows, just before the leader commits.
    async fn commit(&mut self) -> Result<()> {
        if self.stage != Stage::Held {
            return Ok(());
        }
        self.stage = Stage::Filled;
        let commits = self.workers.iter().map(|w| w.batch_execute("COMMIT"));
        match join_all(commits).await.into_iter().find_map(std::result::Result::err) {
            Some(e) => Err(self.give_up(Error::server("commit a part", e))),
            None => Ok(()),
        }
    }

    /// Rolls back the rows of the workers, if these rows are not committed. The workers hold no locks when
    /// this function returns.
    async fn release(&mut self) {
        if self.stage == Stage::Held {
            // If a worker does not answer, its connection is lost, so it has no open transaction.
            join_all(self.workers.iter().map(|w| w.batch_execute("ROLLBACK"))).await;
        }
        self.stage = Stage::Unasked;
    }
}
