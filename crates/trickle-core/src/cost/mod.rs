//! The choice of the cheapest among several *equal* refresh strategies. Correctness does not depend on this
//! module: every strategy that it can choose gives the same table.
//!
//! Each [`Strategy`] has a linear model `ms = fixed + per_row × work`, where `work` counts the rows that the
//! strategy handles. The models start from a prior and are calibrated by decayed least squares. The model of
//! a strategy that was not used for a while fades back to the prior. The prior is optimistic, so a bad
//! strategy is tried again now and then. If recomputes cost more than the prior says, the priors of both
//! strategies that recompute everything are scaled up.
//!
//! Laws (tested):
//!
//! - Predictions are finite, positive and monotone in |Δ|.
//! - The choice is monotone too: a larger delta never changes the choice from full to incremental.
//! - No history can rule a strategy out for ever.
//! - The total cost of the choices is at most a constant times the total cost of the best choices in
//!   hindsight. The factor is tested on synthetic and on measured traces.

mod model;

pub use model::{Model, Sample};

use serde::{Deserialize, Serialize};
use std::fmt;

/// A strategy to refresh a stream table. All strategies give the same rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// Does nothing, since nothing changed.
    NoData,
    /// Applies the delta ΔQ.
    Delta,
    /// Recomputes the rows whose keys changed.
    AffectedGroups,
    /// Recomputes everything and writes only the difference.
    FullDifference,
    /// Recomputes everything and replaces the contents.
    Full,
    /// Recomputes the part that depends on uncaptured changes, and applies the delta to the rest. Costs never
    /// choose this strategy.
    Part,
}

impl Strategy {
    /// The strategies that are chosen by their cost, usually the cheapest first. Among strategies with equal
    /// costs, the earliest is chosen.
    pub(crate) const COSTED: [Strategy; 4] =
        [Strategy::Delta, Strategy::AffectedGroups, Strategy::FullDifference, Strategy::Full];

    /// Whether the work of the strategy depends on the delta, and not on the size of the sources.
    pub fn is_incremental(self) -> bool {
        matches!(self, Strategy::Delta | Strategy::AffectedGroups | Strategy::NoData)
    }

    /// Returns the name of the strategy in reasons and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Strategy::NoData => "no_data",
            Strategy::Delta => "delta",
            Strategy::AffectedGroups => "affected_groups",
            Strategy::FullDifference => "full_difference",
            Strategy::Full => "full",
            Strategy::Part => "part",
        }
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The numbers of rows that are known before a refresh, exactly or as estimates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inputs {
    /// The number of rows in the window, over all sources.
    pub delta_rows: u64,
    /// The number of rows in all sources together.
    pub source_rows: u64,
    /// The number of rows in the stored result.
    pub result_rows: u64,
}

impl Inputs {
    /// Returns the number of changed rows per source row. The ratio is between 0 and 1, or greater if rows
    /// changed several times. The divisor is 1 if the sources are empty.
    pub(crate) fn change_ratio(&self) -> f64 {
        self.delta_rows as f64 / self.source_rows.max(1) as f64
    }

    /// Returns the expected number of different rows that `delta_rows` changes touch, if each change touches
    /// a random row among R rows. The number is `R (1 − (1 − 1/R)^Δ)`, in its exponential form. R is the
    /// number of rows in the sources, or in the result if the result has more rows.
    pub(crate) fn touched_rows(&self) -> f64 {
        let rows = self.source_rows.max(self.result_rows).max(1) as f64;
        -rows * (-(self.delta_rows as f64) / rows).exp_m1()
    }

    /// Returns the work of a strategy, in rows. The work of a delta is the number of changed rows. For
    /// affected groups, the work is the number of touched rows plus a fifth of the changed rows, since only
    /// the keys of changed rows are read. For a recompute, the work is the number of rows read plus the rows
    /// of the result. A row of the result counts ten times where it is deleted and inserted with its key, and
    /// six times where it is only compared.
    fn work(&self, strategy: Strategy) -> f64 {
        let (delta, source, result) =
            (self.delta_rows as f64, self.source_rows as f64, self.result_rows as f64);
        match strategy {
            // Costs never choose a part.
            Strategy::NoData | Strategy::Part => 0.0,
            Strategy::Delta => delta,
            Strategy::AffectedGroups => 0.2 * delta + self.touched_rows(),
            Strategy::FullDifference => source + 6.0 * result,
            Strategy::Full => source + 10.0 * result,
        }
    }
}

/// The user's rules on which strategies are allowed or forced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Policy {
    /// The forced kind of refresh, incremental or full. With `None`, the costs decide.
    pub force: Option<Force>,
    /// The ratio of changed rows to source rows above which only full strategies are considered.
    pub max_change_ratio: Option<f64>,
    /// The number of changed rows above which only full strategies are considered.
    pub max_delta_rows: Option<u64>,
}

/// A forced kind of strategy (`refresh_strategy`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Force {
    /// An incremental strategy, if the program has one.
    Incremental,
    /// A recompute in every refresh.
    Full,
}

/// The predicted cost of a strategy.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Alternative {
    /// The strategy.
    pub strategy: Strategy,
    /// The predicted cost, in milliseconds.
    pub ms: f64,
    /// Whether the policy allows the strategy.
    pub allowed: bool,
}

/// A choice of a strategy, and the alternatives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// The strategy to use.
    pub strategy: Strategy,
    /// The predicted cost of the chosen strategy, in milliseconds.
    pub predicted_ms: f64,
    /// The reason for the choice, in one sentence for people.
    pub reason: String,
    /// All available strategies with their costs, usually the cheapest first.
    pub alternatives: Vec<Alternative>,
}

/// Predicts the milliseconds of a strategy. The result is finite and monotone in `delta_rows` (constant for
/// the full strategies). The result is positive except for [`Strategy::NoData`], which costs nothing.
pub(crate) fn estimate(model: &Model, strategy: Strategy, inputs: &Inputs) -> f64 {
    model.predict(strategy, inputs.work(strategy))
}

/// Chooses the strategy among `available` with the least predicted cost under `policy`.
///
/// An empty window gives [`Strategy::NoData`] under every policy. A policy that rules out every available
/// strategy is ignored, and the reason says so. For example, the policy may force an incremental strategy on
/// a program without one. If no strategy is available, the choice is [`Strategy::Full`], which every program
/// has.
pub fn choose(model: &Model, inputs: &Inputs, available: &[Strategy], policy: &Policy) -> Decision {
    if inputs.delta_rows == 0 {
        return Decision {
            strategy: Strategy::NoData,
            predicted_ms: 0.0,
            reason: "no source changed".into(),
            alternatives: Vec::new(),
        };
    }
    let full_only = over_limit(inputs, policy);
    let allowed = |s: Strategy| match (policy.force, &full_only) {
        (Some(Force::Full), _) => !s.is_incremental(),
        (Some(Force::Incremental), _) => s.is_incremental(),
        (None, Some(_)) => !s.is_incremental(),
        (None, None) => true,
    };
    let alternatives: Vec<Alternative> = Strategy::COSTED
        .into_iter()
        .filter(|s| available.contains(s))
        .map(|s| Alternative { strategy: s, ms: estimate(model, s, inputs), allowed: allowed(s) })
        .collect();
    let yielded = !alternatives.iter().any(|a| a.allowed);
    let cheapest = |among: &mut dyn Iterator<Item = &Alternative>| {
        among.fold(None::<Alternative>, |best, a| match best {
            Some(b) if b.ms <= a.ms => Some(b),
            _ => Some(*a),
        })
    };
    let best = cheapest(&mut alternatives.iter().filter(|a| a.allowed || yielded)).unwrap_or(Alternative {
        strategy: Strategy::Full,
        ms: estimate(model, Strategy::Full, inputs),
        allowed: true,
    });
    let others = cheapest(&mut alternatives.iter().filter(|a| a.strategy != best.strategy));
    let reason = match (yielded, policy.force, full_only) {
        (true, _, _) => format!("{} is the only way there is", best.strategy),
        (_, Some(Force::Full), _) => "full refresh is forced".to_string(),
        (_, Some(Force::Incremental), _) => "incremental refresh is forced".to_string(),
        (_, None, Some(limit)) => limit,
        (_, None, None) => match others {
            Some(o) => format!(
                "{} changed of {} rows: {} {} against {} {}",
                inputs.delta_rows,
                inputs.source_rows,
                best.strategy,
                Ms(best.ms),
                o.strategy,
                Ms(o.ms)
            ),
            None => format!("{} is the only way there is", best.strategy),
        },
    };
    Decision { strategy: best.strategy, predicted_ms: best.ms, reason, alternatives }
}

/// Returns the limit that the delta exceeds, as a sentence for people.
fn over_limit(inputs: &Inputs, policy: &Policy) -> Option<String> {
    if let Some(max) = policy.max_delta_rows.filter(|max| inputs.delta_rows > *max) {
        return Some(format!("{} changed rows exceed max_delta_rows = {max}", inputs.delta_rows));
    }
    let ratio = inputs.change_ratio();
    policy.max_change_ratio.filter(|max| ratio > *max).map(|max| {
        format!("{:.1} % of the rows changed, above differential_max_change_ratio = {max}", ratio * 100.0)
    })
}

/// Returns the ratio of changed rows to source rows at which the cheapest incremental and the cheapest full
/// strategy cost the same (`auto_threshold`). The ratio is found by bisection over 1 … 2·source rows. It is 0
/// if a full strategy is always cheaper, and 2 if a full strategy is never cheaper.
pub fn threshold(model: &Model, inputs: &Inputs, available: &[Strategy]) -> f64 {
    let incremental_wins = |delta_rows: u64| {
        let at = Inputs { delta_rows, ..*inputs };
        choose(model, &at, available, &Policy::default()).strategy.is_incremental()
    };
    let (mut low, mut high) = (0u64, inputs.source_rows.max(1).saturating_mul(2));
    if incremental_wins(high) {
        return 2.0;
    }
    while high - low > 1 {
        let mid = low + (high - low) / 2;
        if incremental_wins(mid) { low = mid } else { high = mid }
    }
    low as f64 / inputs.source_rows.max(1) as f64
}

/// A number of milliseconds, printed for people.
struct Ms(f64);

impl fmt::Display for Ms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < 10.0 { write!(f, "{:.1} ms", self.0) } else { write!(f, "{:.0} ms", self.0) }
    }
}

#[cfg(test)]
mod tests;
