//! The program of a member: the batch that carries it out, and the rows that it wrote.

use super::choose::is_timed;
use super::{Machine, State};
use crate::cost::Strategy;
use crate::refresh::control::{self};
use crate::refresh::facts::{Facts, Gap, Pending, give_up};
use crate::refresh::plan::{Effect, Member, ReaderView, Template, Windows};
use crate::refresh::{Answer, Kind, Phase, Setting, Statement, Step};
use crate::server_error::ServerError;
use crate::table::TableId;

/// The greatest number of changes of a source for which the server keeps the plan of a delta. With more
/// changes, the cost of a new plan is small compared with the work.
const FEW: i64 = 8192;

/// The value of `plan_cache_mode` with which the server plans a statement again for each set of bound values.
pub(super) const ANEW: &str = "force_custom_plan";
/// The value of `plan_cache_mode` with which the server plans a statement once, for all values.
pub(super) const KEPT: &str = "force_generic_plan";

/// Returns the setting that makes the server plan prepared statements with parameters in manner `how`.
pub(super) fn planned(how: &str) -> Setting {
    Setting { name: "plan_cache_mode".into(), values: vec![how.into()] }
}

impl Machine {
    /// Hands out the batch of a member's program. The batch begins with the statements `before`.
    pub(super) fn apply(
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
            // The numbers are rounded up to powers of two. Few different texts then arise, and the server can
            // keep their plans.
            true => Some(facts.counted(id)?.unsigned_abs().checked_next_power_of_two()?.try_into().ok()?),
            false => None,
        };
        let windows: Windows = tables.chain(clock).map(|id| (id, expected(id))).collect();
        let templates = member.program.statements(strategy, &windows)?;
        let run = |kind, text: &str| control::statement(kind, Phase::Execute, text);
        let mut in_force: Vec<Setting> = member.settings.clone();
        if self.is_own() {
            // A driver may keep these statements prepared. One plan serves all values, since the text
            // determines the best plan. The exception is a statement that binds a time. For many changes, the
            // cost of a new plan is small.
            let few = |n: &Option<i64>| n.is_some_and(|n| n <= FEW);
            let anew = templates.iter().any(Template::hangs_on_values) || !windows.values().all(few);
            in_force.push(planned(if anew { ANEW } else { KEPT }));
        }
        if let Some((memory, report)) = self.plan.work_mem.zip(self.reports.last()) {
            in_force.push(memory.setting(strategy, &report.inputs));
        }
        if self.in_force.as_ref() != Some(&in_force) {
            // The time for the settings counts as time of the program, since within one batch a driver knows
            // only roughly when each statement was answered.
            let settings = in_force.iter().map(control::setting);
            before.extend(settings.map(|s| Statement { phase: Phase::Execute, ..s }));
            self.in_force = Some(in_force);
        }
        if guarded {
            before.push(run(Kind::Savepoint, control::SAVEPOINT));
        }
        self.program = (before.len(), templates.to_vec());
        before.extend(templates.iter().map(|t| {
            let kind = if t.result == Effect::Defined { Kind::Define } else { Kind::Program };
            let mut s = control::statement(kind, Phase::Execute, t.text.clone());
            s.params = t.binds.iter().map(|b| facts.bind(b)).collect();
            s.fetch = t.result == Effect::Counts;
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

    /// Adds up the rows that a member's program wrote. Counts them as changes for those members of this
    /// refresh that read the member.
    pub(super) fn applied(&mut self, answers: &[Answer]) -> Result<Step, ServerError> {
        let (first, templates) = std::mem::take(&mut self.program);
        let Some(report) = self.reports.last_mut() else {
            return Err(give_up("XX000", "no member is at work"));
        };
        for (t, a) in templates.iter().zip(answers.iter().skip(first)) {
            let rows = i64::try_from(a.affected).unwrap_or(i64::MAX);
            match t.result {
                Effect::Nothing | Effect::Defined => {}
                Effect::Inserted => report.rows_inserted += rows,
                Effect::Updated => report.rows_updated += rows,
                Effect::Deleted => report.rows_deleted += rows,
                Effect::Counts => {
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
                        // Rows that an earlier refresh left pending were committed before this refresh, at an
                        // unknown time.
                        p.committed = committed.clone().filter(|_| p.rows == Some(0));
                    }
                    p.rows = p.rows.map(|n| n.saturating_add(written));
                }
            }
        }
        self.at += 1;
        self.advance()
    }
}
