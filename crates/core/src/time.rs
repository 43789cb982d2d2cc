//! Instants as nanoseconds UTC since 1970, and their spellings.

mod ns;
mod written;

use crate::number::float;
use ns::to_ns;

pub use written::{DateOrder, Written, Zone, ZoneError};

/// Nanoseconds in a second.
pub const SECOND_NS: i64 = 1_000_000_000;
/// In a minute.
pub const MINUTE_NS: i64 = 60 * SECOND_NS;
/// In an hour.
pub const HOUR_NS: i64 = 60 * MINUTE_NS;
/// In a day.
pub const DAY_NS: i64 = 24 * HOUR_NS;

/// How far ahead of the reader's clock a row may be: hosts' clocks differ.
pub const FUTURE_MAX_NS: i64 = HOUR_NS;

/// How far ahead of the collector's clock a row may be to count for the latest state at once; a later one counts when its time
/// has come.
pub const AHEAD_MAX_NS: i64 = 5 * SECOND_NS;

/// A text that is not a known form of time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a time; write RFC 3339 (2026-01-31T12:00:00Z) or seconds, milliseconds or nanoseconds since 1970"
)]
pub struct TimeError(String);

impl TimeError {
    /// Of a text that is no time.
    pub fn of(text: &str) -> Self {
        Self(text.chars().take(64).collect())
    }
}

/// Parses a date and time in a form that [`Written::read`] knows, without zone taken as UTC, or a number since 1970:
/// seconds (with fraction), milliseconds from 10^11 on, microseconds from 10^14 on, nanoseconds from 10^17 on.
///
/// # Errors
/// If the text is none of these or outside the years 1970 to 2261.
pub fn parse(text: &str) -> Result<i64, TimeError> {
    let text = text.trim();
    fast_rfc3339(text.as_bytes())
        .or_else(|| text.parse::<jiff::Timestamp>().ok().and_then(to_ns))
        .or_else(|| {
            let civil: jiff::civil::DateTime = text.parse().ok()?;
            to_ns(civil.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp())
        })
        .or_else(|| from_number(text))
        .or_else(|| Written::read(text, DateOrder::Open)?.instant(&Zone::utc()))
        .filter(|&ns| ns >= 0)
        .ok_or_else(|| TimeError::of(text))
}

/// Parses a bound of a range as [`parse`] does. A time before 1970 or after 2261 becomes the first or last
/// representable instant, so that a range may begin or end beyond all data.
///
/// # Errors
/// If the text is not a time.
pub fn parse_bound(text: &str) -> Result<i64, TimeError> {
    parse(text).or_else(|error| {
        let text = text.trim();
        let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if digits(whole) && digits(fraction) && fraction.len() < 19 {
            return Ok(i64::MAX);
        }
        let timestamp = text.parse::<jiff::Timestamp>().map_err(|_| error)?;
        Ok(if timestamp < jiff::Timestamp::UNIX_EPOCH { 0 } else { i64::MAX })
    })
}

/// RFC 3339 in UTC with as many fraction digits as needed.
pub fn format(timestamp_ns: i64) -> String {
    jiff::Timestamp::from_nanosecond(timestamp_ns.into())
        .map_or_else(|_| timestamp_ns.to_string(), |t| t.to_string())
}

/// `2025-07-18T20:42:34[.fraction]Z`, the spelling of nearly every row.
fn fast_rfc3339(text: &[u8]) -> Option<i64> {
    let (head, tail) = text.split_at_checked(19)?;
    let number = |range: std::ops::Range<usize>| {
        head.get(range)?
            .iter()
            .try_fold(0_i64, |n, &b| b.is_ascii_digit().then(|| n * 10 + i64::from(b - b'0')))
    };
    let at = |i: usize, b: u8| head.get(i) == Some(&b);
    if !(at(4, b'-') && at(7, b'-') && (at(10, b'T') || at(10, b' ')) && at(13, b':') && at(16, b':')) {
        return None;
    }
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    // Days 29 to 31 take the slow path, which knows the calendar.
    if !(1970..=2261).contains(&year) || !(1..=12).contains(&month) || !(1..=28).contains(&day) {
        return None;
    }
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let fraction_ns = match tail {
        b"Z" | b"" => 0,
        [b'.', digits @ .., b'Z'] if (1..=9).contains(&digits.len()) => {
            let mut ns = 0_i64;
            for i in 0..9 {
                let digit = digits.get(i).copied().unwrap_or(b'0');
                if !digit.is_ascii_digit() {
                    return None;
                }
                ns = ns * 10 + i64::from(digit - b'0');
            }
            ns
        }
        _ => return None,
    };
    let seconds = ((days_from_civil(year, month, day) * 24 + hour) * 60 + minute) * 60 + second;
    seconds.checked_mul(SECOND_NS)?.checked_add(fraction_ns)
}

/// Days since 1970-01-01 in the proleptic Gregorian calendar (Howard Hinnant, "chrono-compatible low-level date
/// algorithms").
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let y = if month <= 2 { year - 1 } else { year };
    let era = y.div_euclid(400);
    let year_of_era = y.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

fn from_number(text: &str) -> Option<i64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || fraction.len() >= 19 {
        return None;
    }
    let whole: i64 = whole.parse().ok()?;
    let (unit_ns, unit_digits) = unit_of(whole.unsigned_abs());
    // Digits beyond the nanosecond are cut.
    let padded: String = fraction.chars().chain(std::iter::repeat('0')).take(unit_digits).collect();
    let fraction_ns: i64 = if padded.is_empty() { 0 } else { padded.parse().ok()? };
    whole.checked_mul(unit_ns)?.checked_add(fraction_ns)
}

/// The unit of a number since 1970, in nanoseconds, and the digits that a fraction of it can have.
fn unit_of(number: u64) -> (i64, usize) {
    match number {
        0..100_000_000_000 => (SECOND_NS, 9),
        100_000_000_000..100_000_000_000_000 => (1_000_000, 6),
        100_000_000_000_000..100_000_000_000_000_000 => (1_000, 3),
        _ => (1, 0),
    }
}

/// The instant of a number since 1970 in the units of [`parse`], as exactly as a float has it: for numbers that are written
/// in another way, such as `1.75E+12`.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates; a time is meant")]
pub fn of_number(number: f64) -> i64 {
    (number * float(unit_of(number.abs() as u64).0)).round() as i64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn spellings() {
        let check = |text: &str, ns: Option<i64>| assert_eq!(parse(text).ok(), ns, "{text}");
        check("2025-07-18T20:42:34Z", Some(1_752_871_354 * SECOND_NS));
        check("2025-07-18 20:42:34.5Z", Some(1_752_871_354 * SECOND_NS + 500_000_000));
        check("2025-07-18T22:42:34+02:00", Some(1_752_871_354 * SECOND_NS));
        check("2024-02-29T00:00:00Z", Some(1_709_164_800 * SECOND_NS));
        check("2023-02-29T00:00:00Z", None);
        check("1752871354", Some(1_752_871_354 * SECOND_NS));
        check("1752871354.25", Some(1_752_871_354 * SECOND_NS + 250_000_000));
        check("1752871354000", Some(1_752_871_354 * SECOND_NS));
        check("1752871354000000001", Some(1_752_871_354 * SECOND_NS + 1));
        check("-5", None);
        check("-0.5", None);
        check("+0.0", None);
        check("5.", None);
        check("yesterday", None);
        check("", None);
    }

    #[test]
    fn a_bound_may_lie_beyond_all_data() {
        let check = |text: &str, ns: Option<i64>| assert_eq!(parse_bound(text).ok(), ns, "{text}");
        check("1970-01-01T00:00:01Z", Some(SECOND_NS));
        check("0001-01-01T00:00:00Z", Some(0));
        check("0789-03-10T01:43:26.073101-12:43", Some(0));
        check("7011-12-16T06:06:29Z", Some(i64::MAX));
        check("99999999999", Some(i64::MAX));
        check("99999999999.5", Some(i64::MAX));
        check("1752871354.25", Some(1_752_871_354 * SECOND_NS + 250_000_000));
        check("1e5", None);
        check("1.0000000000000000000", None);
        check("7011-13-16T06:06:29Z", None);
        check("-5", None);
        check("yesterday", None);
    }

    proptest! {
        #[test]
        fn the_fast_path_agrees_with_the_calendar(ns in 0_i64..9_000_000_000_000_000_000) {
            prop_assert_eq!(parse(&format(ns)).unwrap(), ns);
        }

        #[test]
        fn foreign_text_never_panics(text in "\\PC{0,40}") {
            drop(parse(&text));
        }
    }
}
