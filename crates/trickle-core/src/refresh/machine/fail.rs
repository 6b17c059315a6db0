//! The end of an attempt in which an error occurred: a recompute, another attempt, or the failure.

use super::{Machine, State};
use crate::refresh::control::{self};
use crate::refresh::facts::give_up;
use crate::refresh::plan::Transaction;
use crate::refresh::report::{Action, Failure, FailureKind};
use crate::refresh::{Kind, Phase, Step};
use crate::server_error::ServerError;

impl Machine {
    pub(super) fn roll_back(&mut self, then: State) -> Step {
        let statement = control::statement(Kind::Rollback, Phase::Cleanup, control::ROLLBACK);
        self.frontier = None;
        self.send(then, vec![statement])
    }

    pub(super) fn give_back_failure(&mut self) -> Step {
        self.state = State::Finished;
        self.sent.clear();
        match self.failure.take() {
            Some(f) => Step::Fail(f),
            None => Step::Fail(self.describe(0, give_up("XX000", "the refresh is over"))),
        }
    }

    pub(super) fn describe(&self, at: usize, error: ServerError) -> Failure {
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
    pub(super) fn failed(&mut self, at: usize, error: ServerError) -> Step {
        if matches!(self.state, State::Failing | State::Finished) {
            // A ROLLBACK fails if the connection is lost. The error of the ROLLBACK tells less than the error
            // before it.
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

    /// Goes back to the savepoint after a delta raised a data error, and recomputes instead. If the query
    /// itself raises the error, the recompute raises it too, and the error of the recompute is reported.
    pub(super) fn recompute(&mut self, at: usize, error: &ServerError) -> Step {
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
