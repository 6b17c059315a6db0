//! The refresh machine: its states, and the transition for each answer.

mod apply;
mod choose;
mod close;
mod fail;

use super::control::{self};
use super::facts::{self, Facts, Now, give_up};
use super::plan::{Plan, Template, Transaction};
use super::report::{Action, Failure, MemberReport, Phases};
use super::{Answer, Kind, Outcome, Phase, Setting, Statement, Step};
use crate::cost::Strategy;
use crate::frontier::Frontier;
use crate::server_error::ServerError;
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
    /// The statements of the batch that belong to the program, with the position of the first such statement
    /// in the batch.
    program: (usize, Vec<Template>),
    now: Option<Now>,
    facts: BTreeMap<i64, Facts>,
    /// The index of the member whose program runs.
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
            // A delta has many small plans that run for milliseconds, and JIT would take seconds to compile
            // them. PostgreSQL decides on JIT by its cost estimates. For tables that were never analysed,
            // these estimates are guesses.
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
                let guarded = action == Action::Differential || strategy == Strategy::Part;
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
}
