//! The choice of the action for a member, and of its strategy.

use super::Machine;
use crate::cost::{self, Decision, Force, Inputs, Policy, Strategy};
use crate::refresh::facts::{Facts, Pending};
use crate::refresh::plan::{Member, Source};
use crate::refresh::report::Action;

/// Whether the result of a member may have changed by the passing of time alone.
pub(super) fn is_timed(member: &Member, facts: &Facts) -> bool {
    member.program.reads_clock() && facts.is_later()
}

impl Machine {
    /// Chooses the action for a member and its strategy. Also returns the numbers of rows that the choice
    /// relies on.
    pub(super) fn choose(&self, member: &Member) -> (Action, Decision, Inputs) {
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
        } else if let Some(why) = member.part.as_deref().filter(|_| !member.program.takes_part()) {
            action = Action::Reinitialize;
            Some(why.to_string())
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
            if let Some(why) = &member.part {
                let decision = Decision {
                    strategy: Strategy::Part,
                    predicted_ms: 0.0,
                    reason: why.to_string(),
                    alternatives: Vec::new(),
                };
                return (Action::Reinitialize, decision, inputs);
            }
            // Rows that change by the passing of time alone are not counted, so the choice assumes at least
            // one such row.
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
}
