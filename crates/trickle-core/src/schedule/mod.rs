//! The choice of the stream tables that are refreshed now. The module has no effects: time is a parameter,
//! and equal input gives an equal plan.
//!
//! - [`Schedule`]: the freshness that a stream table must have: a period, a cron line, or the freshness that
//!   its readers need. `None` is a manual schedule.
//! - [`canonical_periods`]: the schedules as one number each.
//! - [`next`]: the refreshes that start now, and the time when the scheduler next looks for changes.
//! - [`Agenda`]: the facts that a scheduler keeps between two looks for changes, and how they change.
//! - [`share`]: the owner whose refresh is next, if several owners share the refreshers.

mod agenda;
mod decide;
mod due;
mod plan;
pub mod share;
mod spec;

pub use agenda::{Agenda, Due, Look, Outcome, Seen, TableFacts};
pub use decide::next;
pub use due::effective_period;
pub use plan::{Action, Blocked, Options, Plan, Status, Task};
pub use spec::{CronLine, Schedule};

use crate::dag::Dag;
use crate::table::TableId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// A point in time, in milliseconds since 1970-01-01 00:00 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Time(pub i64);

impl Time {
    /// Returns this time plus a duration, but at most the greatest representable time.
    #[must_use]
    pub fn after(self, d: Duration) -> Time {
        Time(self.0.saturating_add(i64::try_from(d.as_millis()).unwrap_or(i64::MAX)))
    }
    /// Returns this time minus a duration, but at least the least representable time.
    #[must_use]
    pub fn before(self, d: Duration) -> Time {
        Time(self.0.saturating_sub(i64::try_from(d.as_millis()).unwrap_or(i64::MAX)))
    }
    /// Returns the time passed since `earlier`; zero where the clock went back.
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(t) => write!(f, "{t}"),
            Err(_) => write!(f, "{} ms", self.0),
        }
    }
}

/// Returns the greatest age that the contents of each stream table may reach. For a schedule with a period or
/// a cron line, this age is the period or the shortest cron gap. For 'calculated', the age is the shortest
/// period among all stream tables downstream, since a refresh of one of these also refreshes the stream
/// tables upstream of it. If no stream table downstream has a period, the age is what `default` returns. A
/// manual stream table has no such age. Takes O(V + E) time.
pub fn canonical_periods<'a>(
    dag: &Dag,
    schedule: impl Fn(TableId) -> Option<&'a Schedule>,
    default: impl Fn(TableId) -> Duration,
) -> BTreeMap<TableId, Duration> {
    let mut needed: BTreeMap<TableId, Duration> = BTreeMap::new();
    let mut periods = BTreeMap::new();
    for id in dag.order().iter().rev().copied() {
        let below = needed.get(&id).copied();
        let own = schedule(id);
        let asked = own.and_then(Schedule::period);
        if own.is_some() {
            periods.insert(id, asked.or(below).unwrap_or_else(|| default(id)));
        }
        if let Some(p) = asked.into_iter().chain(below).min() {
            for s in dag.sources(id) {
                let least = needed.entry(s).or_insert(p);
                *least = (*least).min(p);
            }
        }
    }
    periods
}

#[cfg(test)]
mod tests;
