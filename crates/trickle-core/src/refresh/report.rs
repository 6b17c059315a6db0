//! The reports that a refresh returns.

use super::Phase;
use super::plan::Relation;
use crate::cost::{self, Decision, Inputs, Model, Policy, Strategy};
use crate::frontier::Frontier;
use crate::server_error::ServerError;
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
    /// Returns the sum of all phases.
    pub fn total(&self) -> u64 {
        [self.wait, self.decide, self.generate, self.execute, self.cleanup]
            .into_iter()
            .fold(0, u64::saturating_add)
    }
}

/// The report on the refresh of one stream table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemberReport {
    /// `pgt_id`.
    pub id: i64,
    /// The name as `schema.name`, quoted where needed.
    pub name: String,
    /// The action that the refresh took.
    pub action: Action,
    /// The strategy of the action.
    pub strategy: Strategy,
    /// The reason for the action, in one sentence.
    pub reason: String,
    /// The time that the cost model predicted for the program, in milliseconds.
    pub predicted_ms: f64,
    /// The numbers of rows behind the prediction; with [`Phases::execute`] they are a sample for the cost
    /// model.
    pub inputs: Inputs,
    /// Rows inserted into the stored table.
    pub rows_inserted: i64,
    /// Rows updated in the stored table.
    pub rows_updated: i64,
    /// Rows deleted from the stored table.
    pub rows_deleted: i64,
    /// Pending change rows of the stream table's sources.
    pub delta_rows: i64,
    /// The longest time, in milliseconds, between the commit of a change and the time when the change became
    /// visible. The value is exact where the server keeps commit times. The value is `None` where the refresh
    /// brought no change, or where the time is unknown.
    pub lag_ms: Option<f64>,
    /// The time of this member alone; [`Report::shared`] is the time spent once for all members.
    pub phases: Phases,
}

impl MemberReport {
    /// Makes the report of a refresh that has done nothing yet.
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

    /// Whether the refresh applied changes of sources.
    pub(crate) fn brought_changes(&self) -> bool {
        matches!(self.action, Action::Differential | Action::Full) && self.delta_rows > 0
    }

    /// Makes the report for a stream table that needs no refresh because none of its sources changed
    /// ([`super::glance_text`], [`super::peek_text`]).
    pub fn no_data(id: i64, relation: &Relation) -> MemberReport {
        let inputs = Inputs::default();
        let decision = cost::choose(&Model::default(), &inputs, &[], &Policy::default());
        MemberReport::new(id, relation, Action::NoData, decision, inputs)
    }
}

/// The report on a refresh that was committed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// One report per member, in order.
    pub members: Vec<MemberReport>,
    /// The new frontier of the members. `None` means that the refresh stored no frontier, since it was on
    /// schedule and found no changes.
    pub frontier: Option<Frontier>,
    /// The number of attempts, the last included.
    pub attempts: u32,
    /// The time spent once for all members, summed over all attempts.
    pub shared: Phases,
}

/// The kind of a failure, which tells the caller what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// A lock was not granted in time, usually because another refresh runs. The caller should try later. The
    /// failure is not an error of the stream table.
    Busy,
    /// Serialization failures or deadlocks used up the attempts. The caller should try later.
    Conflict,
    /// A table was dropped, renamed or replaced since the plan was made. The caller must read the catalog
    /// again.
    Stale,
    /// The connection broke or the server stopped. The caller must connect again.
    Connection,
    /// The statement itself failed; the failure counts as an error of the stream table.
    Statement,
}

/// The report on a refresh that failed and changed nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The kind of the failure.
    pub kind: FailureKind,
    /// The member (`pgt_id`) whose statement failed. `None` for a statement for all members.
    pub member: Option<i64>,
    /// The number of the statement that failed ([`Statement::step`](super::Statement::step)).
    pub step: usize,
    /// The error of the server, or the reason why the machine gave up.
    pub error: ServerError,
    /// The number of attempts, the last included.
    pub attempts: u32,
}

impl FailureKind {
    pub(super) fn of(error: &ServerError) -> FailureKind {
        let Some(sqlstate) = error.sqlstate() else { return FailureKind::Connection };
        match sqlstate {
            "55P03" => FailureKind::Busy,
            "42P01" | "3F000" => FailureKind::Stale,
            s if s.starts_with("40") => FailureKind::Conflict,
            s if s.starts_with("08") || s.starts_with("57P") => FailureKind::Connection,
            _ => FailureKind::Statement,
        }
    }
}
