//! The end of a refresh that succeeds: the frontier, history, and the cost models.

use super::apply::{ANEW, KEPT, planned};
use super::{Machine, State};
use crate::cost::{Sample, threshold};
use crate::frontier::ALL_COMMANDS;
use crate::refresh::control::{self, Learnt};
use crate::refresh::facts::give_up;
use crate::refresh::plan::Member;
use crate::refresh::report::{Action, MemberReport, Report};
use crate::refresh::{Answer, Kind, Phase, Setting, Statement, Step, Value};
use crate::server_error::ServerError;

/// Returns the setting under which a commit does not wait for the disk.
fn unawaited() -> Setting {
    Setting { name: "synchronous_commit".into(), values: vec!["off".into()] }
}

impl Machine {
    /// Whether this refresh stores a frontier.
    pub(super) fn stores(&self) -> bool {
        self.plan.request.store_empty || self.wrote()
    }

    /// Whether the refresh wrote a stream table.
    pub(super) fn wrote(&self) -> bool {
        self.reports.iter().any(|r| r.action != Action::NoData)
    }

    /// Returns the members' cost models, updated by the samples of this refresh.
    pub(super) fn learnt(&self) -> Vec<Learnt> {
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
    pub(super) fn close(&mut self, asked: Option<&[Answer]>) -> Result<Step, ServerError> {
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
            batch.extend(control::require_sources(&self.plan));
            batch.extend(self.plan.request.lease.map(control::hold_lease));
            batch.push(control::store_frontier(&json, &self.learnt()));
            batch.extend(control::forget_parts(&self.plan.members));
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
    pub(super) fn closed(&mut self, answers: &[Answer]) -> Step {
        let history = self.sent.iter().position(|s| s.kind == Kind::History).and_then(|i| answers.get(i));
        for row in history.iter().flat_map(|a| &a.rows) {
            let [Value::Int8(id), Value::Float8(lag)] = row.as_slice() else { continue };
            if let Some(r) = self.reports.iter_mut().find(|r| r.id == *id) {
                r.lag_ms = Some(*lag);
            }
        }
        self.done()
    }

    pub(super) fn done(&mut self) -> Step {
        self.state = State::Finished;
        self.sent.clear();
        Step::Done(Report {
            members: std::mem::take(&mut self.reports),
            frontier: self.frontier.take(),
            attempts: self.attempts,
            shared: self.shared,
        })
    }
}
