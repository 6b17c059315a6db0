//! The refresh machine: its states, and the transition for each answer.

use super::control::{self, Learnt};
use super::facts::{self, Facts, Gap, Now, Pending, give_up};
use super::plan::{Member, Plan, ReaderView, Source, Template, Transaction, Windows, Yield};
use super::report::{Action, Failure, FailureKind, MemberReport, Phases, Report};
use super::{Answer, Kind, Outcome, Phase, Setting, Statement, Step, Value};
use crate::ServerError;
use crate::cost::{self, Decision, Force, Inputs, Policy, Sample, Strategy, threshold};
use crate::frontier::{ALL_COMMANDS, Frontier};
use crate::table::TableId;
use std::collections::BTreeMap;

/// The state of the machine: the purpose of the batch that it handed out last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing was handed out yet.
    Start,
    /// The batch of transaction start, settings, locks and decision query.
    Opening,
    /// The program of a member, by one strategy; `guarded` tells whether it runs under a savepoint.
    Applying { guarded: bool },
    /// The query for the number of the last command in the caller's transaction.
    Asking,
    /// The batch of frontier, history and commit.
    Closing,
    /// The ROLLBACK before another attempt.
    Retrying,
    /// The ROLLBACK before the failure is returned.
    Failing,
    /// The state after `Step::Done` or `Step::Fail` was returned.
    Finished,
}

/// The machine that carries out one refresh, as the documentation of module `refresh` describes. The machine
/// owns no connection and no clock.
#[derive(Debug)]
pub struct Machine {
    plan: Plan,
    state: State,
    step: usize,
    attempts: u32,
    /// The statements of the batch that was handed out last, whose outcome is awaited.
    sent: Vec<Statement>,
    /// The statements of the batch that belong to the program, with the number of the first of them in the
    /// batch.
    program: (usize, Vec<Template>),
    now: Option<Now>,
    facts: BTreeMap<i64, Facts>,
    /// Index of the member whose program runs.
    at: usize,
    reports: Vec<MemberReport>,
    shared: Phases,
    /// Members that must recompute in the next attempt, each with the reason.
    must_recompute: BTreeMap<i64, String>,
    /// The settings of the member that ran last in this attempt; the settings of the next member replace them
    /// one by one.
    in_force: Option<Vec<Setting>>,
    failure: Option<Failure>,
    frontier: Option<Frontier>,
}

/// The greatest number of changes of a source for which the server keeps the plan of a delta. With more
/// changes, the cost of a new plan is small beside the work.
const FEW: i64 = 8192;

/// Whether the result of a member may have changed by the passing of time alone.
fn is_timed(member: &Member, facts: &Facts) -> bool {
    member.program.reads_clock() && facts.is_later()
}

/// The value of `plan_cache_mode` by which the server plans a statement anew for its bound values.
const ANEW: &str = "force_custom_plan";
/// The value of `plan_cache_mode` by which the server plans a statement once, for all values.
const KEPT: &str = "force_generic_plan";

/// Returns the setting under which a commit does not wait for the disk.
fn unawaited() -> Setting {
    Setting { name: "synchronous_commit".into(), values: vec!["off".into()] }
}

/// Returns the setting by which the server plans, in manner `how`, the statements with parameters that a
/// driver keeps prepared.
fn planned(how: &str) -> Setting {
    Setting { name: "plan_cache_mode".into(), values: vec![how.into()] }
}

impl Machine {
    /// Makes a machine for a plan; nothing is sent yet.
    pub fn new(plan: Plan) -> Machine {
        Machine {
            plan,
            state: State::Start,
            step: 0,
            attempts: 0,
            sent: Vec::new(),
            program: (0, Vec::new()),
            now: None,
            facts: BTreeMap::new(),
            at: 0,
            reports: Vec::new(),
            shared: Phases::default(),
            must_recompute: BTreeMap::new(),
            in_force: None,
            failure: None,
            frontier: None,
        }
    }

    /// Returns the plan that the machine carries out.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Takes the outcome of the last batch ([`Outcome::start`] at first) and returns the next step. After
    /// `Done` or `Fail` every call fails.
    pub fn step(&mut self, outcome: Outcome) -> Step {
        self.account(&outcome);
        if let Some(error) = outcome.error {
            return self.failed(outcome.answers.len(), error);
        }
        if outcome.answers.len() < self.sent.len() {
            return self
                .failed(outcome.answers.len(), give_up("XX000", "the driver left statements unanswered"));
        }
        let next = match self.state {
            State::Start => Ok(self.open()),
            State::Retrying => Ok(self.open()),
            State::Opening => self.decided(&outcome.answers),
            State::Applying { .. } => self.applied(&outcome.answers),
            State::Asking => self.close(Some(&outcome.answers)),
            State::Closing => Ok(self.closed(&outcome.answers)),
            State::Failing => Ok(self.give_back_failure()),
            State::Finished => Err(give_up("XX000", "the refresh is over")),
        };
        next.unwrap_or_else(|error| self.failed(self.sent.len().saturating_sub(1), error))
    }

    /// Adds the times of the last batch to the phases of its statements.
    fn account(&mut self, outcome: &Outcome) {
        let working = matches!(self.state, State::Applying { .. });
        let own = working.then(|| self.reports.last_mut()).flatten().map(|r| &mut r.phases);
        let target = own.unwrap_or(&mut self.shared);
        target.add(Phase::Generate, outcome.generate_micros);
        for (s, a) in self.sent.iter().zip(&outcome.answers) {
            target.add(s.phase, a.micros);
        }
    }

    /// Whether the machine itself begins and ends the transaction.
    fn is_own(&self) -> bool {
        matches!(self.plan.transaction, Transaction::Own { .. })
    }

    /// Numbers a batch and hands it out.
    fn send(&mut self, state: State, mut batch: Vec<Statement>) -> Step {
        let last = batch.len().saturating_sub(1);
        for (i, s) in batch.iter_mut().enumerate() {
            s.step = self.step;
            s.pipeline = i < last;
            self.step += 1;
        }
        self.state = state;
        self.sent.clone_from(&batch);
        Step::Run(batch)
    }

    fn open(&mut self) -> Step {
        self.attempts += 1;
        self.at = 0;
        self.reports.clear();
        self.facts.clear();
        self.now = None;
        self.in_force = None;
        let mut batch = Vec::new();
        if let Transaction::Own { lock_timeout_ms, statement_timeout_ms, .. } = self.plan.transaction {
            batch.push(control::statement(Kind::Begin, Phase::Decide, control::BEGIN));
            let mut limit = |name: &str, ms: u128| {
                batch.push(control::setting(&Setting { name: name.into(), values: vec![format!("{ms}ms")] }));
            };
            limit("lock_timeout", lock_timeout_ms.into());
            limit("idle_in_transaction_session_timeout", control::ABANDONED.as_millis());
            if let Some(ms) = statement_timeout_ms {
                limit("statement_timeout", ms.into());
            }
            // A delta has many small plans, which JIT takes seconds to compile and which run for
            // milliseconds. PostgreSQL decides on JIT by its estimates, which are guesses for tables that
            // were never analysed.
            batch.push(control::setting(&Setting { name: "jit".into(), values: vec!["off".into()] }));
        }
        let refreshing = Setting { name: "pgtrickle.refreshing".into(), values: vec!["on".into()] };
        batch.push(control::setting(&refreshing));
        batch.extend(control::locks(&self.plan));
        if !self.is_own() {
            batch.push(control::hold(&self.plan.members));
        }
        let text = control::decide_text(&self.plan.members);
        batch.push(control::statement(Kind::Decide, Phase::Decide, text));
        self.send(State::Opening, batch)
    }

    /// Reads the decision query's rows and starts the first member.
    fn decided(&mut self, answers: &[Answer]) -> Result<Step, ServerError> {
        let rows = answers.last().map(|a| a.rows.as_slice()).unwrap_or_default();
        let (now, facts) = facts::read(rows, &self.plan.members)?;
        let callers = matches!(self.plan.transaction, Transaction::Callers { .. });
        if callers && facts.values().any(|f| f.is_ahead(&now)) {
            return Err(give_up(
                "40001",
                "could not serialize access: the snapshot is older than a stream table",
            ));
        }
        self.now = Some(now);
        self.facts = facts;
        self.advance()
    }

    /// Starts the program of the next member that has changes to apply, or ends the refresh.
    fn advance(&mut self) -> Result<Step, ServerError> {
        while let Some(member) = self.plan.members.get(self.at).cloned() {
            let (action, decision, inputs) = self.choose(&member);
            let strategy = decision.strategy;
            if action == Action::Reinitialize && self.may_be_old() {
                return Err(give_up(
                    "40001",
                    "could not serialize access: a stream table cannot be rebuilt from a snapshot that may be old",
                ));
            }
            if action != Action::NoData && member.kept_by.as_ref().is_some_and(|k| !k.locked) {
                return Err(facts::stale());
            }
            self.reports.push(MemberReport::new(member.id, &member.relation, action, decision, inputs));
            if action != Action::NoData {
                let guarded = action == Action::Differential;
                return self.apply(&member, strategy, guarded, Vec::new());
            }
            self.at += 1;
        }
        match &self.plan.transaction {
            Transaction::Callers { command, .. } if self.stores() => {
                let ask = control::statement(Kind::Command, Phase::Cleanup, command.clone());
                Ok(self.send(State::Asking, vec![ask]))
            }
            _ => self.close(None),
        }
    }

    /// Whether snapshot S1 may have been taken before the locks.
    fn may_be_old(&self) -> bool {
        matches!(self.plan.transaction, Transaction::Callers { fresh: false, .. })
    }

    /// Whether this refresh stores a frontier.
    fn stores(&self) -> bool {
        self.plan.request.store_empty || self.wrote()
    }

    /// Whether the refresh wrote a stream table.
    fn wrote(&self) -> bool {
        self.reports.iter().any(|r| r.action != Action::NoData)
    }

    /// Chooses the action for a member and its strategy. Also returns the numbers of rows that the choice
    /// relies on.
    fn choose(&self, member: &Member) -> (Action, Decision, Inputs) {
        let facts = self.facts.get(&member.id).cloned().unwrap_or_default();
        let pending = facts.pending.values();
        let sum = |f: fn(&Pending) -> i64| pending.clone().map(f).fold(0, i64::saturating_add).max(0) as u64;
        let inputs = Inputs {
            delta_rows: sum(|p| p.rows.unwrap_or(0)),
            source_rows: sum(|p| p.size),
            result_rows: facts.rows as u64,
        };
        let mut action = Action::Full;
        let untold = |s: &Source| facts.pending.get(&s.relation.id)?.untold(s);
        let why = if let Some(why) = &facts.reinit {
            action = Action::Reinitialize;
            Some(why.clone())
        } else if let Some(why) = facts.foreign(self.now.as_ref()).filter(|_| member.kept_by.is_none()) {
            action = Action::Reinitialize;
            Some(why.to_string())
        } else if member.program.reads_clock() && facts.then.is_none() {
            action = Action::Reinitialize;
            Some("it is not known of which time it is".to_string())
        } else if self.plan.request.full {
            Some("a full refresh was asked for".to_string())
        } else if let Some(why) = self.must_recompute.get(&member.id) {
            Some(why.clone())
        } else if !member.polled && facts.is_quiet() {
            None
        } else {
            let unseen = member.unseen.as_deref().map(str::to_owned);
            unseen.or_else(|| member.sources.iter().find_map(untold))
        };
        let ways = facts.ways(member.program.strategies());
        let at_least_one = Inputs { delta_rows: inputs.delta_rows.max(1), ..inputs };
        let Some(why) = why else {
            // Rows that change by the passing of time alone are not counted, so the choice assumes at least
            // one.
            let counted = if is_timed(member, &facts) { at_least_one } else { inputs };
            let decision = cost::choose(&facts.model, &counted, &ways, &member.policy);
            let action = match decision.strategy {
                Strategy::NoData => Action::NoData,
                s if s.is_incremental() => Action::Differential,
                _ => Action::Full,
            };
            return (action, decision, inputs);
        };
        let forced = Policy { force: Some(Force::Full), ..Policy::default() };
        let full: Vec<Strategy> = ways.into_iter().filter(|s| !s.is_incremental()).collect();
        let mut decision = cost::choose(&facts.model, &at_least_one, &full, &forced);
        decision.reason = why;
        (action, decision, inputs)
    }

    /// Hands out the batch of a member's program, which begins with the statements `before`.
    fn apply(
        &mut self,
        member: &Member,
        strategy: Strategy,
        guarded: bool,
        mut before: Vec<Statement>,
    ) -> Result<Step, ServerError> {
        let facts = self.facts.get(&member.id).cloned().unwrap_or_default();
        let touched = |p: &Pending| !strategy.is_incremental() || p.gap.is_some() || p.rows != Some(0);
        let tables = facts.pending.iter().filter(|(_, p)| touched(p)).map(|(id, _)| *id);
        let clock = is_timed(member, &facts).then_some(TableId::CLOCK);
        let expected = |id: TableId| match strategy.is_incremental() {
            // The numbers are rounded up to powers of two, so that few different texts arise and the server
            // can keep their plans.
            true => Some(facts.counted(id)?.unsigned_abs().checked_next_power_of_two()?.try_into().ok()?),
            false => None,
        };
        let windows: Windows = tables.chain(clock).map(|id| (id, expected(id))).collect();
        let templates = member.program.statements(strategy, &windows)?;
        let run = |kind, text: &str| control::statement(kind, Phase::Execute, text);
        let mut in_force: Vec<Setting> = member.settings.clone();
        if self.is_own() {
            // A driver may keep these statements prepared. One plan for all values fits, since the text
            // determines the best plan, unless the statement binds a time. For many changes, the cost of a
            // new plan is small.
            let few = |n: &Option<i64>| n.is_some_and(|n| n <= FEW);
            let anew = templates.iter().any(Template::hangs_on_values) || !windows.values().all(few);
            in_force.push(planned(if anew { ANEW } else { KEPT }));
        }
        if let Some((memory, report)) = self.plan.work_mem.zip(self.reports.last()) {
            in_force.push(memory.setting(strategy, &report.inputs));
        }
        if self.in_force.as_ref() != Some(&in_force) {
            // The settings count as part of the program: within one batch, a driver knows only roughly when
            // each statement was answered.
            let settings = in_force.iter().map(control::setting);
            before.extend(settings.map(|s| Statement { phase: Phase::Execute, ..s }));
            self.in_force = Some(in_force);
        }
        if guarded {
            before.push(run(Kind::Savepoint, control::SAVEPOINT));
        }
        self.program = (before.len(), templates.to_vec());
        before.extend(templates.iter().map(|t| {
            let kind = if t.result == Yield::Defined { Kind::Define } else { Kind::Program };
            let mut s = control::statement(kind, Phase::Execute, t.text.clone());
            s.params = t.binds.iter().map(|b| facts.bind(b)).collect();
            s.fetch = t.result == Yield::Counts;
            s.scale = facts.scale();
            s
        }));
        if guarded {
            before.push(run(Kind::Release, control::RELEASE));
        }
        for s in &mut before {
            s.member = Some(member.id);
        }
        Ok(self.send(State::Applying { guarded }, before))
    }

    /// Adds up the rows that a member's program wrote, and counts them as changes for the readers of the
    /// member in this refresh.
    fn applied(&mut self, answers: &[Answer]) -> Result<Step, ServerError> {
        let (first, templates) = std::mem::take(&mut self.program);
        let Some(report) = self.reports.last_mut() else {
            return Err(give_up("XX000", "no member is at work"));
        };
        for (t, a) in templates.iter().zip(answers.iter().skip(first)) {
            let rows = i64::try_from(a.affected).unwrap_or(i64::MAX);
            match t.result {
                Yield::Nothing | Yield::Defined => {}
                Yield::Inserted => report.rows_inserted += rows,
                Yield::Updated => report.rows_updated += rows,
                Yield::Deleted => report.rows_deleted += rows,
                Yield::Counts => {
                    let Some([inserted, updated, deleted]) = a.rows.first().map(Vec::as_slice) else {
                        return Err(give_up("XX000", "a refresh program did not return its three counts"));
                    };
                    report.rows_inserted += inserted.as_int().unwrap_or(0);
                    report.rows_updated += updated.as_int().unwrap_or(0);
                    report.rows_deleted += deleted.as_int().unwrap_or(0);
                }
            }
        }
        let strategy = report.strategy;
        let written = report.rows_inserted + report.rows_deleted + 2 * report.rows_updated;
        if let Some(member) = self.plan.members.get(self.at) {
            let replaced = member.program.feed(strategy) == ReaderView::Replaced;
            let relation = member.relation.id;
            let committed = self.facts.get(&member.id).and_then(Facts::committed);
            for facts in self.facts.values_mut() {
                if let Some(p) = facts.pending.get_mut(&relation) {
                    p.gap = p.gap.or(replaced.then_some(Gap::Replaced));
                    if written > 0 {
                        // Rows that an earlier refresh left pending were committed before this refresh, at a
                        // time that is not known.
                        p.committed = committed.clone().filter(|_| p.rows == Some(0));
                    }
                    p.rows = p.rows.map(|n| n.saturating_add(written));
                }
            }
        }
        self.at += 1;
        self.advance()
    }

    /// Returns the members' cost models, updated by the samples of this refresh.
    fn learnt(&self) -> Vec<Learnt> {
        let learn = |(m, r): (&Member, &MemberReport)| {
            let mut model = self.facts.get(&m.id).map(|f| f.model.clone()).unwrap_or_default();
            let ms = r.phases.execute as f64 / 1e3;
            model.observe(&Sample { strategy: r.strategy, inputs: r.inputs, ms });
            let ways = m.program.strategies();
            let threshold =
                ways.iter().any(|w| w.is_incremental()).then(|| threshold(&model, &r.inputs, ways));
            Learnt { id: m.id, model, threshold }
        };
        self.plan.members.iter().zip(&self.reports).map(learn).collect()
    }

    /// Stores the frontier if [`Machine::stores`] is true, writes history if a table was written, and ends
    /// the transaction.
    fn close(&mut self, asked: Option<&[Answer]>) -> Result<Step, ServerError> {
        let mut batch = Vec::new();
        if self.stores() {
            let Some(now) = &self.now else { return Err(give_up("XX000", "there is no snapshot")) };
            let command = match asked {
                None => ALL_COMMANDS,
                Some(answers) => answers
                    .first()
                    .and_then(|a| a.rows.first()?.first()?.as_int())
                    .and_then(|n| u32::try_from(n).ok())
                    .ok_or_else(|| give_up("XX000", "the last command of the transaction is not known"))?,
            };
            let frontier = now.frontier(command);
            let json = frontier.to_json().map_err(|e| give_up(e.sqlstate(), e.message()))?;
            let anew = planned(ANEW);
            if self.in_force.as_ref().is_some_and(|all| all.contains(&anew)) {
                batch.push(Statement { phase: Phase::Cleanup, ..control::setting(&planned(KEPT)) });
            }
            batch.extend(control::require_partitions(&self.plan));
            batch.extend(self.plan.request.lease.map(control::hold_lease));
            batch.push(control::store_frontier(&json, &self.learnt()));
            if self.wrote() {
                let facts = |id: i64| self.facts.get(&id);
                batch.push(control::record(&self.reports, &self.shared, &self.plan.request, facts));
            } else if self.is_own() {
                // A crash may lose the stored frontier of a refresh that changed nothing. This loss does no
                // harm, so the commit need not wait for the disk.
                batch.push(Statement { phase: Phase::Cleanup, ..control::setting(&unawaited()) });
            }
            self.frontier = Some(frontier);
        }
        if self.is_own() {
            batch.push(control::statement(Kind::Commit, Phase::Cleanup, control::COMMIT));
        }
        if batch.is_empty() {
            return Ok(self.done());
        }
        Ok(self.send(State::Closing, batch))
    }

    /// Reads the lag of each member from the answer of the statement that writes history.
    fn closed(&mut self, answers: &[Answer]) -> Step {
        let history = self.sent.iter().position(|s| s.kind == Kind::History).and_then(|i| answers.get(i));
        for row in history.iter().flat_map(|a| &a.rows) {
            let [Value::Int8(id), Value::Float8(lag)] = row.as_slice() else { continue };
            if let Some(r) = self.reports.iter_mut().find(|r| r.id == *id) {
                r.lag_ms = Some(*lag);
            }
        }
        self.done()
    }

    fn done(&mut self) -> Step {
        self.state = State::Finished;
        self.sent.clear();
        Step::Done(Report {
            members: std::mem::take(&mut self.reports),
            frontier: self.frontier.take(),
            attempts: self.attempts,
            shared: self.shared,
        })
    }

    fn roll_back(&mut self, then: State) -> Step {
        let statement = control::statement(Kind::Rollback, Phase::Cleanup, control::ROLLBACK);
        self.frontier = None;
        self.send(then, vec![statement])
    }

    fn give_back_failure(&mut self) -> Step {
        self.state = State::Finished;
        self.sent.clear();
        match self.failure.take() {
            Some(f) => Step::Fail(f),
            None => Step::Fail(self.describe(0, give_up("XX000", "the refresh is over"))),
        }
    }

    fn describe(&self, at: usize, error: ServerError) -> Failure {
        let sent = self.sent.get(at);
        Failure {
            kind: FailureKind::of(&error),
            member: sent.and_then(|s| s.member),
            step: sent.map_or(self.step, |s| s.step),
            error,
            attempts: self.attempts,
        }
    }

    /// Decides what follows an error: a recompute in the same attempt, another attempt, or the end.
    fn failed(&mut self, at: usize, error: ServerError) -> Step {
        if matches!(self.state, State::Failing | State::Finished) {
            // A ROLLBACK fails if the connection is lost; its error tells less than the error before the
            // ROLLBACK.
            return self.give_back_failure();
        }
        let Transaction::Own { attempts, .. } = self.plan.transaction else {
            if let (State::Applying { guarded: true }, true) = (self.state, error.is_data()) {
                return self.recompute(at, &error);
            }
            self.failure = Some(self.describe(at, error));
            return self.give_back_failure();
        };
        if self.state == State::Retrying {
            self.failure = Some(self.describe(at, error));
            return self.roll_back(State::Failing);
        }
        if matches!(self.state, State::Applying { guarded: true }) && error.is_data() {
            return self.recompute(at, &error);
        }
        if error.is_retryable() && self.attempts < attempts {
            return self.roll_back(State::Retrying);
        }
        self.failure = Some(self.describe(at, error));
        if self.state == State::Start {
            return self.give_back_failure();
        }
        self.roll_back(State::Failing)
    }

    /// Goes back to the savepoint after a delta met an error in the data, and recomputes instead. If the
    /// query itself raises the error, the recompute raises it too, and the error of the recompute is
    /// reported.
    fn recompute(&mut self, at: usize, error: &ServerError) -> Step {
        let Some(member) = self.plan.members.get(self.at).cloned() else {
            self.failure = Some(self.describe(at, error.clone()));
            return self.roll_back(State::Failing);
        };
        let why =
            format!("the delta met an error ({}: {})", error.sqlstate().unwrap_or_default(), error.message());
        self.must_recompute.insert(member.id, why);
        let (_, decision, _) = self.choose(&member);
        if let Some(r) = self.reports.last_mut() {
            r.action = Action::Full;
            r.strategy = decision.strategy;
            r.reason = decision.reason;
            r.predicted_ms = decision.predicted_ms;
            (r.rows_inserted, r.rows_updated, r.rows_deleted) = (0, 0, 0);
        }
        let run = |kind, text: &str| control::statement(kind, Phase::Execute, text);
        let back = vec![run(Kind::RollbackTo, control::ROLLBACK_TO), run(Kind::Release, control::RELEASE)];
        match self.apply(&member, decision.strategy, false, back) {
            Ok(step) => step,
            Err(e) => self.failed(at, e),
        }
    }
}
