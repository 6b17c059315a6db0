//! Arithmetic in the proleptic Gregorian calendar. A day is numbered by its distance from 2000-01-01, as in
//! PostgreSQL's `date`.

use crate::error::{Error, Result};

/// The number of microseconds in a day.
pub(crate) const DAY: i64 = 86_400_000_000;
/// The number of microseconds in an hour.
pub(crate) const HOUR: i64 = 3_600_000_000;
/// The number of microseconds in a minute.
pub(crate) const MINUTE: i64 = 60_000_000;
/// The number of microseconds in a second.
pub(crate) const SECOND: i64 = 1_000_000;

/// The first day in the range of `date`: 4714-11-24 BC.
pub(crate) const FIRST_DAY: i64 = -2_451_545;
/// The first day after the range of `date`: 5874898-01-01.
pub(crate) const END_DAY: i64 = 2_145_031_949;
/// The first moment after the range of `timestamp`: 294277-01-01.
pub(crate) const END_MICROS: i64 = 9_223_371_331_200_000_000;
/// The first moment in the range of `timestamp`.
pub(crate) const FIRST_MICROS: i64 = FIRST_DAY * DAY;

/// The number of days from 0000-03-01 to 2000-01-01.
const SHIFT: i64 = 730_425;

/// Returns the day number of a date. The year is astronomical: year 0 is 1 BC. A month outside 1..=12 is
/// carried over into the year.
pub(crate) fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let months = year * 12 + (month - 1) - 2;
    let (y, m) = (months.div_euclid(12), months.rem_euclid(12));
    let (era, yoe) = (y.div_euclid(400), y.rem_euclid(400));
    era * 146_097 + yoe * 365 + yoe / 4 - yoe / 100 + (153 * m + 2) / 5 + day - 1 - SHIFT
}

/// Returns the astronomical year, the month and the day of a day number.
pub(crate) fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let z = days + SHIFT;
    let (era, doe) = (z.div_euclid(146_097), z.rem_euclid(146_097));
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let day = doy - (153 * mp + 2) / 5 + 1;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    (yoe + era * 400 + i64::from(month <= 2), month, day)
}

/// Returns the number of days in a month.
pub(crate) fn month_length(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year.rem_euclid(4) == 0 && (year.rem_euclid(100) != 0 || year.rem_euclid(400) == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Returns the day number of a date, if the date exists.
pub(crate) fn checked_days(year: i64, month: i64, day: i64) -> Option<i64> {
    let valid = (1..=12).contains(&month) && day >= 1 && day <= month_length(year, month);
    valid.then(|| days_from_civil(year, month, day))
}

/// Returns the weekday of a day number: 0 for Sunday to 6 for Saturday.
pub(crate) fn weekday(days: i64) -> i64 {
    (days + 6).rem_euclid(7)
}

/// Returns the ISO 8601 year and week of a day number.
pub(crate) fn iso_week(days: i64) -> (i64, i64) {
    // A week belongs to the year that contains its Thursday.
    let monday = days - (weekday(days) + 6) % 7;
    let (year, ..) = civil_from_days(monday + 3);
    (year, (monday + 3 - days_from_civil(year, 1, 1)) / 7 + 1)
}

/// Splits a timestamp into its day number and the microseconds since midnight.
pub(crate) fn split(micros: i64) -> (i64, i64) {
    (micros.div_euclid(DAY), micros.rem_euclid(DAY))
}

/// Converts a date to a timestamp.
///
/// # Errors
/// Fails with 22008 if the date is out of the range of timestamps.
pub(crate) fn midnight(d: i32) -> Result<i64> {
    match d {
        i32::MAX => Ok(i64::MAX),
        i32::MIN => Ok(i64::MIN),
        _ => in_range(i128::from(d) * i128::from(DAY))
            .map_err(|_| Error::data("22008", "date out of range for timestamp")),
    }
}

/// Checks that a number of microseconds is in the range of timestamps.
///
/// # Errors
/// Fails with 22008 if the number is out of range.
pub(crate) fn in_range(micros: i128) -> Result<i64> {
    match i64::try_from(micros) {
        Ok(t) if (FIRST_MICROS..END_MICROS).contains(&t) => Ok(t),
        _ => Err(Error::data("22008", "timestamp out of range")),
    }
}

/// Checks that a number of days is in the range of dates.
///
/// # Errors
/// Fails with 22008 if the number is out of range.
pub(crate) fn date_in_range(days: i64) -> Result<i32> {
    match i32::try_from(days) {
        Ok(d) if (FIRST_DAY..END_DAY).contains(&days) => Ok(d),
        _ => Err(Error::data("22008", "date out of range")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_dates_are_inverse() {
        for days in (-800_000..800_000).step_by(97) {
            let (y, m, d) = civil_from_days(days);
            assert_eq!(checked_days(y, m, d), Some(days));
        }
        assert_eq!(civil_from_days(0), (2000, 1, 1));
        assert_eq!(civil_from_days(FIRST_DAY), (-4713, 11, 24));
        assert_eq!(civil_from_days(END_DAY), (5_874_898, 1, 1));
        assert_eq!(weekday(days_from_civil(2024, 2, 29)), 4);
        assert_eq!(iso_week(days_from_civil(2021, 1, 3)), (2020, 53));
    }
}
