//! The input and the output of the scheduler: stream tables with their refresh status, settings, and the
//! resulting actions.

use super::{Schedule, Time};
use crate::table::TableId;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The refresh status of one stream table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The start of the first period: the time when the scheduler first knew the stream table. For a cron
    /// schedule, the first period starts at the last recorded refresh, if there is one.
    pub since: Time,
    /// The time when the last refresh started, whether or not it succeeded.
    pub last_start: Option<Time>,
    /// The time when the last refresh ended: its start plus its duration by a monotonic clock.
    pub last_end: Option<Time>,
    /// The time when the last successful refresh started. While another refresh is running, the scheduler
    /// uses this time to decide whether readers wait.
    pub last_done: Option<Time>,
    /// Whether a refresh that includes the stream table is running.
    pub running: bool,
    /// The number of errors since the last successful refresh.
    pub consecutive_errors: u32,
    /// Whether the stream table is suspended: not refreshed until somebody resumes it.
    pub suspended: bool,
    /// Whether the last refresh could not get a lock or was interrupted. The scheduler then tries again
    /// before the next time of the schedule.
    pub again: bool,
}

impl Status {
    pub(super) fn last_duration(&self) -> Duration {
        match (self.last_start, self.last_end) {
            (Some(s), Some(e)) => e.since(s),
            _ => Duration::ZERO,
        }
    }

    /// Records that a look found no changes for the stream table.
    pub(super) fn found_quiet(&mut self, now: Time) {
        (self.last_start, self.last_end, self.last_done) = (Some(now), Some(now), Some(now));
        self.again = false;
    }

    /// Returns the time when a refresh that could not get a lock is tried again. The wait is as long as after
    /// a first error, or a quarter of the last refresh's duration if this is longer. Refreshes of the table
    /// therefore take at most four fifths of the time.
    pub(super) fn again(&self, options: &Options) -> Option<Time> {
        let wait = options.backoff_first.max(self.last_duration() / 4);
        self.last_end.filter(|_| self.again).map(|end| end.after(wait))
    }
}

/// The schedule and the refresh status of a stream table.
#[derive(Clone, Debug, Default)]
pub struct Task {
    /// The schedule of the stream table. `None` means a manual schedule, or mode IMMEDIATE, in which triggers
    /// keep the table up to date.
    pub schedule: Option<Schedule>,
    /// The refresh status of the stream table.
    pub status: Status,
    /// Whether the stream table reads a source without capture. Nobody knows whether such a source changed,
    /// so finding changes requires a recompute.
    pub polls: bool,
}

impl Task {
    /// Returns the period, or the shortest gap of the cron line, of the stream table's schedule.
    pub(super) fn asked(&self) -> Option<Duration> {
        self.schedule.as_ref().and_then(Schedule::period)
    }
}

/// Settings of the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Options {
    /// The shortest period (`min_schedule_seconds`).
    pub min_period: Duration,
    /// The period of a 'calculated' schedule if no reader has a period.
    pub default_period: Duration,
    /// The default period of a stream table that [polls](Task::polls). For such a table, each look costs as
    /// much as a full refresh.
    pub poll_period: Duration,
    /// The greatest number of groups refreshed at one time (`max_concurrent_refreshes`).
    pub max_concurrent: usize,
    /// The number of errors in a row after which a stream table is suspended (`max_consecutive_errors`). With
    /// 0, it is never suspended.
    pub max_consecutive_errors: u32,
    /// The wait after the first error; each further error doubles the wait.
    pub backoff_first: Duration,
    /// The longest wait after an error.
    pub backoff_cap: Duration,
    /// The share of a period, 0 to 1, by which a refresh may come early. The refreshes of tables with equal
    /// periods therefore spread out.
    pub jitter: f64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            min_period: Duration::from_millis(10),
            default_period: Duration::from_secs(1),
            poll_period: Duration::from_secs(60),
            max_concurrent: 4,
            max_consecutive_errors: 5,
            backoff_first: Duration::from_secs(1),
            backoff_cap: Duration::from_secs(300),
            jitter: 0.1,
        }
    }
}

/// An action that the scheduler's caller takes now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Refreshes the members together, over one snapshot, in their order (sources before readers).
    Refresh {
        /// The consistency group to which the members belong, identified by the least id of a stream table in
        /// the group.
        group: TableId,
        /// The due stream tables, the stream tables with the same period that are refreshed with them, and
        /// all stream tables of the group upstream of these.
        members: Vec<TableId>,
        /// The members that are due, by their own schedule or for a reader in another group.
        due: Vec<TableId>,
        /// The members that [poll](Task::polls) and must be recomputed. Such a member is due itself, or a due
        /// stream table that has a period reads it. Other members that poll count as unchanged until they are
        /// due.
        polled: Vec<TableId>,
    },
    /// Marks a stream table as suspended, since it failed too often in a row.
    Suspend {
        /// The stream table.
        id: TableId,
        /// The number of its errors in a row.
        errors: u32,
    },
}

/// A due stream table that cannot be refreshed until a suspended stream table is resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocked {
    /// The stream table that waits.
    pub id: TableId,
    /// The suspended stream table: [`Blocked::id`] itself, or one upstream of it.
    pub by: TableId,
}

/// The actions to take now, and the time of the next call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Suspensions, then refreshes in the order in which to start them. No two refreshes share a stream
    /// table.
    pub actions: Vec<Action>,
    /// The time for the next call of [`next`](super::next), if no refresh ends before that time. The time is
    /// always later than now. `None` if only an event (the end of a refresh, a resume, a new stream table)
    /// can make a stream table due.
    pub wake: Option<Time>,
    /// The due stream tables that cannot be refreshed until a suspended stream table is resumed.
    pub blocked: Vec<Blocked>,
    /// Stream tables whose last refresh took more than four fifths of their period, each with the longer
    /// period in force.
    pub slow: Vec<(TableId, Duration)>,
}
