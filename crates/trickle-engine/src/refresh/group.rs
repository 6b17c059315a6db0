//! Refreshes one group of linked stream tables: collects the facts for the refresh machine, drives it, and
//! reports its failure.

use super::{RefreshOptions, Refreshed, groups};
use crate::db::RefreshDriver;
use crate::drive::{Watch, drive};
use crate::error::{Error, Result};
use crate::give_way::given_way;
use crate::pending::sources_of;
use crate::registry::{Entry, require_own, shown};
use crate::scheduler::now;
use crate::security::left_behind;
use crate::trickle::Trickle;
use trickle_core::catalog::TableId;
use trickle_core::refresh::{
    Failure, FailureKind, KeptBy, Lock, Member, Plan, Report, Request, Transaction, record_failure,
    record_skip,
};
use trickle_core::vocabulary::Initiator;

impl<C: RefreshDriver> Trickle<C> {
    /// Refreshes linked stream tables over one snapshot, each after the stream tables that it reads.
    ///
    /// # Errors
    /// The error at which the refresh machine gave up, after which nothing has changed in the database.
    pub(crate) async fn refresh_group(
        &mut self,
        group: &[Entry],
        options: &RefreshOptions,
        watch: Option<&mut (dyn Watch + '_)>,
    ) -> Result<Vec<Refreshed>> {
        let plan = self.plan(group, options).await?;
        let initiated_by = plan.request.initiated_by;
        let table = group.last().map(|e| e.relation.id);
        let looking = self.onlooker(doing(group), table);
        match looking.during(self.drive(group, plan, watch)).await? {
            Ok(report) => {
                self.drain(group).await?;
                let shared = report.shared;
                Ok(report.members.into_iter().map(|report| Refreshed { report, shared }).collect())
            }
            Err(failure) => {
                let of = failure.member.and_then(|id| group.iter().find(|e| e.id == id)).or(group.last());
                let kind = failure.kind;
                let mut error = Error::from(failure);
                let Some(of) = of else { return Err(error) };
                if let Some(session) = self.gave_way(&error) {
                    let why = format!("gave way to {session}");
                    self.connection.step(&record_skip(of.id, &why, initiated_by)).await?;
                    return Err(given_way(&shown(of), &why));
                }
                if kind == FailureKind::Statement {
                    error = self.blamed_on_columns(of, error).await;
                    if error.sqlstate() == Some("42501")
                        && let Some(whose) = left_behind(self.db(), of.id).await?
                    {
                        error = error.hint(whose);
                    }
                    if error.sqlstate() == Some("57014") {
                        error = error.hint(self.voice().one(
                            "The setting statement_timeout_ms gives each statement of a refresh another limit, 0 none; a trickle refresh \
                             by hand with it brings the stream table up to date.",
                            "The setting pg_trickle.statement_timeout_ms limits each statement of a refresh on schedule, 0 none; \
                             pgtrickle.refresh_stream_table() under another statement_timeout brings the stream table up to date.",
                        ));
                    }
                    self.note_failure(of, error.message(), initiated_by).await?;
                }
                let message = format!("cannot refresh {}: {}", shown(of), error.message());
                Err(error.saying(message))
            }
        }
    }

    /// Returns the session for which a statement of the refresh was cancelled, if that cancel caused
    /// `error`.
    pub(crate) fn gave_way(&self, error: &Error) -> Option<String> {
        let cancelled = error.sqlstate() == Some("57014");
        cancelled.then(|| self.yielding.take().or_else(|| self.connection.gives_way_to())).flatten()
    }

    /// Runs a plan. A large first fill runs on several connections, all other work on one connection.
    async fn drive(
        &mut self,
        group: &[Entry],
        plan: Plan,
        mut watch: Option<&mut (dyn Watch + '_)>,
    ) -> Result<std::result::Result<Report, Failure>> {
        match self.load(group, &plan, watch.as_deref_mut()).await? {
            Some(done) => Ok(done),
            None => Ok(drive(&self.connection, plan, watch).await),
        }
    }

    /// Collects the facts that the refresh machine needs about linked stream tables.
    pub(crate) async fn plan(&mut self, group: &[Entry], options: &RefreshOptions) -> Result<Plan> {
        let read = group.iter().flat_map(|e| e.dependencies.iter().map(|d| d.relation.id.0));
        let tables: Vec<u32> = group.iter().map(|e| e.relation.id.0).chain(read).collect();
        self.connection.require_idle(&tables).map_err(|e| Error::server("refresh", e))?;
        let mut members = Vec::new();
        for e in group {
            require_own(e, self.voice())?;
            let runnable = self.runnable(e).await?;
            members.push(Member {
                id: e.id,
                relation: e.relation.clone(),
                sources: sources_of(e, &runnable, self.voice())?,
                program: runnable.program.clone(),
                policy: self.settings.policy(),
                definition: Some(e.definition.as_str().into()),
                polled: options.polls(e),
                unseen: e.unseen(),
                part: e.part(),
                lock: if e.is_populated { Lock::Refreshes } else { Lock::Writers },
                kept_by: kept_by(e, options),
                settings: e.in_force.clone(),
            });
        }
        let quiet = |at| u64::try_from(now().since(at).as_millis()).unwrap_or(u64::MAX);
        let request = Request {
            initiated_by: options.initiated_by,
            full: options.full,
            store_empty: options.is_by_hand(),
            lease: options.lease,
            quiet_ms: options.quiet_at.map(quiet),
        };
        let s = &self.settings;
        let (lock_timeout_ms, attempts) = (s.lock_timeout_ms, s.attempts);
        let statement_timeout_ms = s.statement_timeout_ms;
        let transaction = match self.connection.callers() {
            Some(c) => Transaction::Callers { command: c.command, fresh: c.fresh },
            None => Transaction::Own { lock_timeout_ms, statement_timeout_ms, attempts },
        };
        Ok(Plan { members, transaction, work_mem: self.settings.work_mem(), request, asked_at: None })
    }

    /// Fills a new stream table, and analyzes it afterwards for the server's planner.
    pub(crate) async fn fill(&mut self, id: i64) -> Result<()> {
        let text = "SELECT pgt_relid FROM pgtrickle.pgt_stream_tables WHERE pgt_id = $1";
        let row = self.db().query_opt(text, &[&id]).await;
        let row = row.map_err(|e| Error::server("look for a new stream table", e))?;
        let Some(table) = row.map(|r| TableId(r.get(0))) else { return Ok(()) };
        let registry = self.linked(&[table]).await?;
        let Some(entry) = registry.get(id) else { return Ok(()) };
        let wanted = entry.relation.id;
        let options = RefreshOptions::initial();
        for group in groups(&registry, &[wanted])? {
            self.refresh_group(&group, &options, None).await?;
        }
        self.analyze(entry).await
    }

    /// Analyzes the stored tables of a stream table.
    pub(crate) async fn analyze(&mut self, e: &Entry) -> Result<()> {
        let runnable = self.runnable(e).await?;
        let fail = |err| Error::server("analyze a stream table", err);
        self.db().batch_execute(&format!("ANALYZE {}", shown(e))).await.map_err(fail)?;
        for t in runnable.table.iter().flat_map(|t| &t.layout().states) {
            self.db().as_catalog_owner(&format!("ANALYZE {}", t.name)).await.map_err(fail)?;
        }
        Ok(())
    }

    pub(crate) async fn note_failure(&self, e: &Entry, message: &str, initiated_by: Initiator) -> Result<()> {
        let s = record_failure(e.id, message, initiated_by, self.settings.max_consecutive_errors);
        self.connection.step(&s).await.map(|_| ())
    }
}

/// Returns the sources whose triggers bring a stream table up to date, if it is IMMEDIATE, and whether to
/// lock these sources for a recompute.
fn kept_by(e: &Entry, options: &RefreshOptions) -> Option<KeptBy> {
    let tables = || e.read().map(|d| d.relation.clone()).collect();
    let locked = options.full || e.needs_reinit || !e.is_populated;
    e.is_immediate().then(|| KeptBy { tables: tables(), locked })
}

/// Returns the name of a refresh of a group, for progress and errors.
fn doing(group: &[Entry]) -> String {
    match group {
        [] => "refreshing".to_owned(),
        [e] => format!("refreshing {}", shown(e)),
        [e, ..] => format!("refreshing {} and {} more", shown(group.last().unwrap_or(e)), group.len() - 1),
    }
}
