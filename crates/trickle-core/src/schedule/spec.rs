//! The text of schedules: durations, cron lines, and 'calculated'.

use super::Time;
use crate::error::{Error, Result};
use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::Timestamp;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// The freshness that a stream table must have. The schedule "manual" is `Option::<Schedule>::None`.
///
/// The text form round-trips: `parse(display(s)) == s`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Schedule {
    /// The greatest age of the contents (`30s`, `5m`, `1h30m`, `2d`, `1w`, `50ms`), in whole milliseconds. It
    /// is at least one millisecond.
    Every(Duration),
    /// The times of a cron line (`*/5 * * * *`, `0 30 6 * * MON-FRI`, `TZ=Europe/Berlin 0 6 * * *`).
    Cron(Box<CronLine>),
    /// The freshness that the reader with the shortest period needs (`calculated`).
    Calculated,
}

/// Milliseconds per unit of a duration, largest first.
const UNITS: [(&str, u64); 6] =
    [("w", 604_800_000), ("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// The longest duration: a hundred years.
const LONGEST: u64 = 366 * 86_400_000 * 100;

impl Schedule {
    /// Reads a schedule. Cron lines that do not name a time zone are in UTC.
    ///
    /// # Errors
    /// Fails with 22023; the error has the reason and the accepted formats.
    pub fn parse(text: &str) -> Result<Schedule> {
        Schedule::parse_in(text, "UTC")
    }

    /// Reads a schedule. `zone` is the IANA time zone for cron lines that name no time zone (the database's
    /// `TimeZone`).
    ///
    /// # Errors
    /// Fails as [`Schedule::parse`] does.
    pub(crate) fn parse_in(text: &str, zone: &str) -> Result<Schedule> {
        let t = text.trim();
        if t.eq_ignore_ascii_case("calculated") {
            return Ok(Schedule::Calculated);
        }
        if t.contains(char::is_whitespace) || t.starts_with('@') {
            return Ok(Schedule::Cron(Box::new(CronLine::parse_in(t, zone)?)));
        }
        parse_duration(t).map(Schedule::Every)
    }
}

impl Schedule {
    /// Returns the period of the schedule: the duration, or the shortest gap of a cron line. A 'calculated'
    /// schedule has no period.
    pub fn period(&self) -> Option<Duration> {
        match self {
            Schedule::Every(d) => Some(*d),
            Schedule::Cron(c) => Some(c.gap()),
            Schedule::Calculated => None,
        }
    }
}

/// Reads a duration: numbers with units, each unit at most once, from the largest to the smallest.
fn parse_duration(text: &str) -> Result<Duration> {
    let bad = |why: &str| {
        Error::setting(format!("invalid schedule \"{text}\": {why}")).hint(
            "Write a duration such as 30s, 5m, 1h30m, 2d or 50ms, a cron line of 5 or 6 fields, or calculated.",
        )
    };
    let mut rest = text;
    let mut units = UNITS.iter();
    let mut ms = 0u64;
    if rest.is_empty() {
        return Err(bad("it is empty"));
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(|| bad("a number has no unit"))?;
        let n: u64 = rest[..digits].parse().map_err(|_| bad("a number is expected before each unit"))?;
        rest = &rest[digits..];
        let unit = &rest[..rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len())];
        let (_, size) = units
            .find(|(u, _)| u.eq_ignore_ascii_case(unit))
            .ok_or_else(|| bad("the units are w, d, h, m, s and ms, each once and from large to small"))?;
        let part = n.checked_mul(*size).and_then(|p| ms.checked_add(p));
        ms = part.filter(|ms| *ms <= LONGEST).ok_or_else(|| bad("it is too long"))?;
        rest = &rest[unit.len()..];
    }
    if ms == 0 { Err(bad("it is zero")) } else { Ok(Duration::from_millis(ms)) }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Schedule::Calculated => f.write_str("calculated"),
            Schedule::Cron(c) => c.fmt(f),
            Schedule::Every(d) => {
                let mut left = u64::try_from(d.as_millis()).unwrap_or(LONGEST).max(1);
                for (unit, size) in UNITS.iter().skip(1) {
                    if left >= *size {
                        write!(f, "{}{unit}", left / size)?;
                        left %= size;
                    }
                }
                Ok(())
            }
        }
    }
}

impl std::str::FromStr for Schedule {
    type Err = Error;
    fn from_str(s: &str) -> Result<Schedule> {
        Schedule::parse(s)
    }
}
impl TryFrom<String> for Schedule {
    type Error = Error;
    fn try_from(s: String) -> Result<Schedule> {
        Schedule::parse(&s)
    }
}
impl From<Schedule> for String {
    fn from(s: Schedule) -> String {
        s.to_string()
    }
}

/// A cron line of 5 fields, or of 6 fields with seconds first, in a time zone. When clocks go forward, a
/// fixed time that is skipped fires at the end of the gap, but the skipped times of a wildcard do not fire.
/// When clocks go back, a fixed time that occurs twice fires once, but a wildcard's time fires both times.
#[derive(Clone, Debug)]
pub struct CronLine {
    text: String,
    zone_name: String,
    cron: Cron,
    zone: TimeZone,
    gap: Duration,
}

/// The time from which the shortest gap is searched: the start of a leap year, so that every date occurs
/// after it.
const GAP_FROM: i64 = 946_684_800_000;
/// The number of occurrences that the search for the shortest gap reads. A line that repeats every hour has
/// fewer different gaps.
const GAP_OCCURRENCES: usize = 64;

impl CronLine {
    /// Reads a cron line in the time zone of a prefix `TZ=Area/City`, or else in `zone`.
    ///
    /// # Errors
    /// Fails with 22023 if the line does not have 5 or 6 fields, a field is out of range, the time zone is
    /// unknown, or no such date exists.
    pub(crate) fn parse_in(text: &str, zone: &str) -> Result<CronLine> {
        let text = text.trim();
        let bad = |why: String| {
            Error::setting(format!("invalid cron line \"{text}\": {why}")).hint(
                "Write a duration such as 5m, or minute hour day month weekday, with seconds before them if wanted, and \
                 TZ=Area/City in front for another time zone.",
            )
        };
        let (zone_name, line) = match text.strip_prefix("CRON_TZ=").or_else(|| text.strip_prefix("TZ=")) {
            Some(rest) => rest.split_once(char::is_whitespace).unwrap_or((rest, "")),
            None => (zone, text),
        };
        let line: Vec<&str> = line.split_whitespace().collect();
        let nickname = line.len() == 1 && line[0].starts_with('@');
        if !nickname && !(5..=6).contains(&line.len()) {
            return Err(bad(format!("it has {} fields", line.len())));
        }
        let zone = if zone_name.eq_ignore_ascii_case("UTC") {
            TimeZone::UTC
        } else {
            TimeZoneDatabase::bundled()
                .get(zone_name)
                .map_err(|_| bad(format!("there is no time zone \"{zone_name}\"")))?
        };
        let line = line.join(" ");
        let cron = CronParser::builder()
            .seconds(Seconds::Optional)
            .year(Year::Disallowed)
            .build()
            .parse(&line)
            .map_err(|e| bad(e.to_string().trim_end_matches('.').to_string()))?;
        let mut parsed = CronLine {
            text: line,
            zone_name: zone.iana_name().unwrap_or("UTC").to_string(),
            cron,
            zone,
            gap: Duration::MAX,
        };
        let mut at = Time(GAP_FROM);
        for i in 0..GAP_OCCURRENCES {
            let Some(t) = parsed.next_after(at) else { break };
            if i > 0 {
                parsed.gap = parsed.gap.min(t.since(at));
            }
            at = t;
        }
        if parsed.gap == Duration::MAX {
            return Err(bad("no such date ever comes".into()));
        }
        Ok(parsed)
    }

    /// Returns the first time strictly after `t`. Returns `None` where the calendar ends.
    pub(crate) fn next_after(&self, t: Time) -> Option<Time> {
        let from = Timestamp::from_millisecond(t.0).ok()?.to_zoned(self.zone.clone());
        let at = self.cron.find_next_occurrence(&from, false).ok()?;
        Some(Time(at.timestamp().as_millisecond())).filter(|n| *n > t)
    }

    /// Returns the shortest time between two consecutive occurrences.
    pub fn gap(&self) -> Duration {
        self.gap
    }
}

impl PartialEq for CronLine {
    fn eq(&self, other: &Self) -> bool {
        (&self.text, &self.zone_name) == (&other.text, &other.zone_name)
    }
}
impl Eq for CronLine {}

impl fmt::Display for CronLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.zone_name != "UTC" {
            write!(f, "TZ={} ", self.zone_name)?;
        }
        f.write_str(&self.text)
    }
}
