//! Computes the time when a stream table is due, and the wait after errors.

use super::plan::{Options, Status, Task};
use super::{Schedule, Time};
use crate::table::TableId;
use std::collections::BTreeMap;
use std::time::Duration;
use xxhash_rust::xxh64::xxh64;

/// Returns the wait after `errors` failures in a row: `first · 2^(errors − 1)`, but at most `cap`. The wait
/// is zero if there were no errors.
pub(crate) fn backoff(options: &Options, errors: u32) -> Duration {
    if errors == 0 {
        return Duration::ZERO;
    }
    let factor = 1u32.checked_shl(errors - 1).unwrap_or(u32::MAX);
    options.backoff_first.saturating_mul(factor).min(options.backoff_cap)
}

/// Returns the period in force: the wanted period or, if it is longer, the period of which the last refresh
/// took four fifths.
pub fn effective_period(wanted: Duration, last_duration: Duration) -> Duration {
    wanted.max(last_duration.saturating_mul(5) / 4)
}

/// Returns a number in 0..1 that depends only on the group and its last start.
fn spread(id: TableId, start: Time) -> f64 {
    let mut key = [0u8; 12];
    key[..4].copy_from_slice(&id.0.to_le_bytes());
    key[4..].copy_from_slice(&start.0.to_le_bytes());
    (xxh64(&key, 0) >> 11) as f64 / (1u64 << 53) as f64
}

/// The time of a refresh, and the age that the data of its sources may have.
#[derive(Clone, Copy)]
pub(super) struct RefreshTime {
    /// The time when the refresh is due.
    pub(super) due: Time,
    /// The earliest time at which the refresh could have been due. A source that was refreshed since this
    /// time counts as fresh for the refresh.
    pub(super) fresh: Time,
}

/// Returns the next time of a table's refresh by its schedule, or the time when its last refresh is tried
/// again. Missed times are not queued, so there is only one next time. All tables of a group get the same
/// jitter.
pub(super) fn wish(
    group: TableId,
    task: &Task,
    period: Duration,
    options: &Options,
    now: Time,
) -> Option<RefreshTime> {
    let status = &task.status;
    let from = status.last_start.unwrap_or(status.since);
    let (mut due, most) = if let Schedule::Cron(c) = task.schedule.as_ref()? {
        let busy_until = from.after(effective_period(Duration::ZERO, status.last_duration()));
        (c.next_after(from)?.max(busy_until), Duration::ZERO)
    } else {
        let most = period.mul_f64(options.jitter.clamp(0.0, 1.0));
        let early = most.mul_f64(spread(group, from));
        match status.last_start {
            // If a table was not refreshed since the scheduler first knew it, the table is due within the
            // jitter after the start of its first period. A thousand new tables then do not start together.
            None => (from.after(early), most),
            // The next refresh is at least a millisecond after the last, since times are whole milliseconds
            // and a period may be one millisecond.
            Some(_) => {
                let period = effective_period(period - early, status.last_duration());
                (from.after(period.max(Duration::from_millis(1))), most)
            }
        }
    };
    due = status.again(options).map_or(due, |again| due.min(again));
    let mut fresh = due.before(most).max(from);
    // The clock was set back by more than a period, so nobody knows how long ago the last refresh was. The
    // table is due once. Its sources count as fresh, unless the times of their refreshes lie in the future
    // too.
    if is_lost(from, period, now) {
        (due, fresh) = (now, Time(i64::MIN));
    }
    Some(RefreshTime { due, fresh })
}

/// Whether a noted time lies so far in the future that waiting for it would take longer than `patience`. In
/// that case the clock was set back after the time was noted, and the noted time is useless. If a wait were
/// counted from `now` instead, it would begin again at each look and never end.
fn is_lost(noted: Time, patience: Duration, now: Time) -> bool {
    noted.since(now) > patience
}

/// The answer to the question whether a table and all stream tables upstream of it can be refreshed.
pub(super) enum Gate {
    Open,
    /// The refresh must wait until this time, because of an error.
    Until(Time),
    Suspended(TableId),
}

pub(super) fn gate(set: &[TableId], tasks: &BTreeMap<TableId, Task>, options: &Options, now: Time) -> Gate {
    let mut until: Option<Time> = None;
    for id in set {
        let Some(status) = tasks.get(id).map(|t| &t.status) else { continue };
        if status.suspended || gives_up(status, options) {
            return Gate::Suspended(*id);
        }
        if status.consecutive_errors > 0 {
            let end = status.last_end.or(status.last_start).unwrap_or(status.since);
            let wait = backoff(options, status.consecutive_errors);
            // If the clock was set back by no more than the length of the wait, the wait at most doubles. If
            // the clock was set back further, there is no wait.
            if !is_lost(end, wait, now) {
                until = until.max(Some(end.after(wait)).filter(|t| *t > now));
            }
        }
    }
    until.map_or(Gate::Open, Gate::Until)
}

pub(super) fn gives_up(status: &Status, options: &Options) -> bool {
    options.max_consecutive_errors > 0 && status.consecutive_errors >= options.max_consecutive_errors
}
