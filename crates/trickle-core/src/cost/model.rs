//! The linear models behind the predicted costs, and how they learn from refreshes.

use super::{Inputs, Strategy, estimate};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The measurement of one past refresh.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The strategy of the refresh.
    pub strategy: Strategy,
    /// The numbers of rows that were known before the refresh.
    pub inputs: Inputs,
    /// The measured time, in milliseconds.
    pub ms: f64,
}

/// The factor by which the weight of a strategy's earlier measurements is multiplied when the strategy is
/// used again.
const KEEP_USED: f64 = 0.8;
/// The factor by which the weight of a strategy's measurements is multiplied when another strategy is used.
/// Half of the weight is lost after 23 refreshes.
const KEEP_UNUSED: f64 = 0.97;
/// The weight of each of the prior's two points.
const PRIOR_WEIGHT: f64 = 0.2;
/// The two amounts of work for which points of the prior's line are added to the measurements.
const PRIOR_WORK: [f64; 2] = [1.0, 1e6];
/// The greatest factor by which a sample may differ from the prediction. Greater differences are cut off: one
/// lock wait or cold cache says nothing about future costs, but several in a row do.
const SURPRISE: f64 = 8.0;
/// The number of refreshes for which the measurements of a strategy do not fade, per unit of loss. The loss
/// of a refresh is its time beyond the predicted cost of the cheapest other strategy, as a multiple of this
/// cost. In the long run, retries of a bad strategy therefore cost at most a tenth of the total.
pub(super) const AMORTISE: f64 = 10.0;
/// The greatest loss that counts. The measurements of a strategy therefore fade again after at most 2,560
/// refreshes.
pub(super) const WORST_LOSS: f64 = 256.0;
/// The least ratio of measured time to prior that a model assumes for a machine.
const FASTEST: f64 = 0.01;

/// Decayed sums of a weighted least-squares line. The weight of a point is 1/prior², so small and large
/// refreshes count alike, and the weight does not depend on the measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Evidence {
    w: f64,
    wx: f64,
    wy: f64,
    wxx: f64,
    wxy: f64,
    /// The mean of ln(measured / prior), which fades to 0.
    log_ratio: f64,
    /// The number of refreshes for which these measurements do not fade yet.
    debt: f64,
}

impl Evidence {
    fn add(&mut self, w: f64, x: f64, y: f64) {
        self.w += w;
        self.wx += w * x;
        self.wy += w * y;
        self.wxx += w * x * x;
        self.wxy += w * x * y;
    }
    fn scale(&mut self, by: f64) {
        for sum in [&mut self.w, &mut self.wx, &mut self.wy, &mut self.wxx, &mut self.wxy] {
            *sum *= by;
        }
    }
    /// Returns the line `fixed + slope·x` that fits best among the lines with `fixed` ≥ 0 and `slope` ≥ 0.
    fn line(&self) -> (f64, f64) {
        let det = self.w * self.wxx - self.wx * self.wx;
        if det > 0.0 {
            let slope = (self.w * self.wxy - self.wx * self.wy) / det;
            let fixed = (self.wy * self.wxx - self.wx * self.wxy) / det;
            if slope >= 0.0 && fixed >= 0.0 {
                return (fixed, slope);
            }
            if fixed < 0.0 && self.wxx > 0.0 {
                return (0.0, (self.wxy / self.wxx).max(0.0));
            }
        }
        if self.w > 0.0 { (self.wy / self.w, 0.0) } else { (0.0, 0.0) }
    }
}

/// Returns `(fixed ms, ms per row of work)` for a strategy without measurements. The numbers are from the
/// cheapest measurements on a small server with everything cached. A prior may be too low, since one trial
/// corrects it.
fn prior(strategy: Strategy) -> (f64, f64) {
    match strategy {
        Strategy::NoData | Strategy::Part => (0.0, 0.0),
        Strategy::Delta => (1.5, 2e-3),
        Strategy::AffectedGroups => (1.5, 5e-3),
        Strategy::FullDifference | Strategy::Full => (3.0, 7e-5),
    }
}

/// Returns the cost, in ms, that the prior gives for an amount of work.
fn line_at(strategy: Strategy, work: f64) -> f64 {
    let (fixed, slope) = prior(strategy);
    fixed + slope * work
}

/// The calibrated cost of each strategy for one stream table, stored as JSON. The default model has only the
/// prior.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Model {
    evidence: BTreeMap<Strategy, Evidence>,
}

impl Model {
    /// Returns the share of the prior's time that this machine takes: the least ratio of measured time to
    /// prior among the strategies, but at least `FASTEST` and at most 1. The ratio of a strategy that is no
    /// longer used fades to 1. A ratio above 1 would do harm. One trial corrects a prior that is too low, but
    /// a strategy whose prior is too high would never be tried.
    pub(crate) fn speed(&self) -> f64 {
        self.evidence.values().fold(0.0, |least, e| e.log_ratio.min(least)).exp().max(FASTEST)
    }

    /// Returns the factor by which a recompute costs more than the prior says: the greatest ratio
    /// measured/prior of the full strategies, but at least 1. The first fill measures one full strategy
    /// before any refresh. Without this factor, the other full strategy would seem cheap only because it was
    /// never tried.
    pub(crate) fn dearness(&self) -> f64 {
        let whole = self.evidence.iter().filter(|(s, _)| !s.is_incremental());
        whole.fold(0.0f64, |most, (_, e)| e.log_ratio.max(most)).exp()
    }

    /// Returns the cost, in ms, that the prior gives a strategy for an amount of work, times
    /// [`Model::scale`].
    fn prior_at(&self, strategy: Strategy, work: f64) -> f64 {
        line_at(strategy, work) * self.scale(strategy)
    }

    /// Returns the factor for a strategy's prior. The factor is [`Model::dearness`] for a full strategy if
    /// dearness is above 1, otherwise [`Model::speed`].
    pub(crate) fn scale(&self, strategy: Strategy) -> f64 {
        let dearness = self.dearness();
        if !strategy.is_incremental() && dearness > 1.0 { dearness } else { self.speed() }
    }

    /// Predicts the milliseconds of a strategy for an amount of work.
    pub(super) fn predict(&self, strategy: Strategy, work: f64) -> f64 {
        if strategy == Strategy::NoData {
            return 0.0;
        }
        let mut e = self.evidence.get(&strategy).copied().unwrap_or_default();
        for x in PRIOR_WORK {
            e.add(PRIOR_WEIGHT / line_at(strategy, x).powi(2), x, self.prior_at(strategy, x));
        }
        let (fixed, slope) = e.line();
        (fixed + slope * work).max(1e-3)
    }

    /// Updates the model by the measurement of a refresh. A measurement is ignored if its time is not a
    /// positive finite number, or if costs never choose its strategy.
    pub fn observe(&mut self, sample: &Sample) {
        let Sample { strategy, inputs, ms } = *sample;
        let is_chosen = !matches!(strategy, Strategy::NoData | Strategy::Part);
        if !is_chosen || !ms.is_finite() || ms <= 0.0 {
            return;
        }
        let work = inputs.work(strategy);
        let expected = self.predict(strategy, work);
        // The first measurement of a full strategy is not cut off, since the model has no other measurement
        // of this strategy.
        let is_first = !strategy.is_incremental() && !self.evidence.contains_key(&strategy);
        let ms = if is_first { ms } else { ms.clamp(expected / SURPRISE, expected * SURPRISE) };
        let others = Strategy::COSTED.iter().filter(|s| **s != strategy).map(|s| estimate(self, *s, &inputs));
        let other = others.fold(f64::INFINITY, f64::min);
        let loss = (sample.ms / other - 1.0).clamp(0.0, WORST_LOSS);
        for (s, e) in &mut self.evidence {
            if *s != strategy {
                if e.debt <= 0.0 {
                    e.scale(KEEP_UNUSED);
                    e.log_ratio *= KEEP_UNUSED;
                }
                e.debt = (e.debt - 1.0).max(0.0);
            }
        }
        let e = self.evidence.entry(strategy).or_default();
        e.scale(KEEP_USED);
        e.add(line_at(strategy, work).powi(-2), work, ms);
        e.debt = loss * AMORTISE;
        let ratio = (ms / inputs.prior_ms(strategy)).ln();
        e.log_ratio += (ratio - e.log_ratio) * if is_first { 1.0 } else { 1.0 - KEEP_USED };
    }
}

impl Inputs {
    /// Returns the cost, in ms, that the prior gives a strategy. While a strategy is not used, its prediction
    /// returns to this cost times [`Model::scale`].
    pub(crate) fn prior_ms(&self, strategy: Strategy) -> f64 {
        line_at(strategy, self.work(strategy))
    }
}
