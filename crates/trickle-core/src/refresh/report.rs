//! What a refresh did.

use super::plan::Relation;
use super::{DbError, Phase};
use crate::cost::{self, Decision, Inputs, Model, Policy, Strategy};
use crate::frontier::Frontier;
use crate::sql::Qualified;
pub use crate::vocabulary::Action;
use serde::{Deserialize, Serialize};

/// Microseconds per phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Phases {
    /// [`Phase::Wait`]
    pub wait: u64,
    /// [`Phase::Decide`]
    pub decide: u64,
    /// [`Phase::Generate`]
    pub generate: u64,
    /// [`Phase::Execute`]
    pub execute: u64,
    /// [`Phase::Cleanup`]
    pub cleanup: u64,
}

impl Phases {
    pub(super) fn add(&mut self, phase: Phase, micros: u64) {
        let slot = match phase {
            Phase::Wait => &mut self.wait,
            Phase::Decide => &mut self.decide,
            Phase::Generate => &mut self.generate,
            Phase::Execute => &mut self.execute,
            Phase::Cleanup => &mut self.cleanup,
        };
        *slot = slot.saturating_add(micros);
    }
    /// All phases together.
    pub fn total(&self) -> u64 {
        [self.wait, self.decide, self.generate, self.execute, self.cleanup]
            .into_iter()
            .fold(0, u64::saturating_add)
    }
}

/// What was done to one stream table, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemberReport {
    /// `pgt_id`.
    pub id: i64,
    /// Its name as `schema.name`, quoted where needed.
    pub name: String,
    /// What was done.
    pub action: Action,
    /// In which way.
    pub strategy: Strategy,
    /// Why, in one sentence.
    pub reason: String,
    /// What it was predicted to take.
    pub predicted_ms: f64,
    /// What the prediction was made from; with [`Phases::execute`] a sample for the cost model.
    pub inputs: Inputs,
    /// Rows inserted into the stored table.
    pub rows_inserted: i64,
    /// Rows updated.
    pub rows_updated: i64,
    /// Rows deleted.
    pub rows_deleted: i64,
    /// Pending change rows of its sources.
    pub delta_rows: i64,
    /// How long, at most, the changes that it brought had been committed before they became visible, in milliseconds; exact where
    /// the server keeps the times of commits; `None` where it brought none, or that is not known.
    pub lag_ms: Option<f64>,
    /// Its own time; what is done once for all members is in [`Report::shared`].
    pub phases: Phases,
}

impl MemberReport {
    /// Before anything was done.
    pub(super) fn new(
        id: i64,
        relation: &Relation,
        action: Action,
        decision: Decision,
        inputs: Inputs,
    ) -> MemberReport {
        MemberReport {
            id,
            name: Qualified::new(&relation.schema, &relation.name).to_string(),
            action,
            strategy: decision.strategy,
            reason: decision.reason,
            predicted_ms: decision.predicted_ms,
            inputs,
            rows_inserted: 0,
            rows_updated: 0,
            rows_deleted: 0,
            delta_rows: i64::try_from(inputs.delta_rows).unwrap_or(i64::MAX),
            lag_ms: None,
            phases: Phases::default(),
        }
    }

    /// Whether it was brought up to date after something had changed.
    pub fn brought_changes(&self) -> bool {
        matches!(self.action, Action::Differential | Action::Full) && self.delta_rows > 0
    }

    /// Of a stream table of which is known without a refresh that nothing it reads has changed
    /// ([`super::glance_text`], [`super::peek_text`]).
    pub fn no_data(id: i64, relation: &Relation) -> MemberReport {
        let inputs = Inputs::default();
        let decision = cost::choose(&Model::default(), &inputs, &[], &Policy::default());
        MemberReport::new(id, relation, Action::NoData, decision, inputs)
    }
}

/// A refresh that was committed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// One per member, in order.
    pub members: Vec<MemberReport>,
    /// The frontier of the members now; `None`: nothing was stored, as nothing changed and the refresh was not by hand.
    pub frontier: Option<Frontier>,
    /// How often the transaction was started.
    pub attempts: u32,
    /// Time spent once for all members, over all attempts.
    pub shared: Phases,
}

/// What kind of failure, for what the caller does about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// A lock was not to be had in time, usually since another refresh runs. No error of the stream table: try later.
    Busy,
    /// Serialization failures or deadlocks until the attempts were used up. Try later.
    Conflict,
    /// A table was dropped, renamed or replaced since the plan was made: read the catalog again.
    Stale,
    /// The connection or the server went away. Connect again.
    Connection,
    /// The statement itself failed: counts as an error of the stream table.
    Statement,
}

/// A refresh that changed nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What kind.
    pub kind: FailureKind,
    /// The member (`pgt_id`) at work, if one was.
    pub member: Option<i64>,
    /// The step that failed.
    pub step: usize,
    /// What the server said, or why the machine gave up.
    pub error: DbError,
    /// How often the transaction was started.
    pub attempts: u32,
}

impl FailureKind {
    pub(super) fn of(error: &DbError) -> FailureKind {
        match error.sqlstate.as_str() {
            "55P03" => FailureKind::Busy,
            "42P01" | "3F000" => FailureKind::Stale,
            s if s.starts_with("40") => FailureKind::Conflict,
            s if s.starts_with("08") || s.starts_with("57P") => FailureKind::Connection,
            _ => FailureKind::Statement,
        }
    }
}
