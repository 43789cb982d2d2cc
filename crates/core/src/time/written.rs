//! Dates and times as people and tools write them, with or without a zone.
//!
//! A time without a zone is a time on a clock of some place; [`Zone`] says where. In the hour that a clock shows twice in
//! autumn it is one of two instants.

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};

use super::to_ns;

/// Longest text that is read as a time.
const TEXT_LEN_MAX: usize = 64;

/// The order of day and month in a date such as `03/04/2025`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DateOrder {
    /// The file does not say: such a date is no time.
    #[default]
    Open,
    /// That date is 3 April.
    DayFirst,
    /// That date is 4 March.
    MonthFirst,
    /// 4 May 2003, for years of two digits alone.
    YearFirst,
}

/// A place's clock.
#[derive(Debug, Clone, PartialEq)]
pub struct Zone {
    zone: TimeZone,
    name: String,
}

/// A text that names no zone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no time zone; write one such as UTC, Europe/Berlin or +09:00")]
pub struct ZoneError(String);

impl Zone {
    /// Coordinated universal time.
    pub fn utc() -> Self {
        Self { zone: TimeZone::UTC, name: "UTC".to_owned() }
    }

    /// The zone of this machine (`TZ`, else `/etc/localtime`).
    pub fn of_machine() -> Self {
        let zone = TimeZone::system();
        let now = jiff::Timestamp::now();
        let name = zone.iana_name().map_or_else(
            || zone.to_offset(now).to_string(),
            |name| match name {
                "Etc/UTC" | "Etc/Unknown" => "UTC".to_owned(),
                other => other.to_owned(),
            },
        );
        Self { zone, name }
    }

    /// The zone of a name: `UTC`, `+09:00`, `Europe/Berlin`.
    ///
    /// # Errors
    /// If it names no zone that this machine knows.
    pub fn named(name: &str) -> Result<Self, ZoneError> {
        let name = name.trim();
        let zone = offset(name).map(TimeZone::fixed).or_else(|| TimeZone::get(name).ok());
        let zone = zone.ok_or_else(|| ZoneError(name.chars().take(TEXT_LEN_MAX).collect()))?;
        Ok(Self { zone, name: name.to_owned() })
    }

    /// The zone of an offset or of an abbreviation that computers' logs use, such as `utc+2` or `CEST`.
    pub fn of_offset(text: &str) -> Option<Self> {
        Some(Self { zone: TimeZone::fixed(offset(text)?), name: text.to_owned() })
    }

    /// Its name as it was asked for or found, for people.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// A written date and time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    civil: DateTime,
    offset: Option<Offset>,
    has_time: bool,
}

impl Written {
    /// Reads a date and a time: ISO 8601, nvidia-smi's and other slashes, `18.07.2025 20:42`, `20250718 20:42:34`,
    /// `Jul 18, 2025 8:42:34 PM`, `date`'s and others. A date alone is its first instant.
    pub fn read(text: &str, order: DateOrder) -> Option<Self> {
        let text = text.trim();
        if text.len() > TEXT_LEN_MAX || !text.bytes().any(|b| b.is_ascii_digit()) {
            return None;
        }
        let parts = WrittenParts::of(text)?;
        let date = date(&parts.date, parts.year_behind, order)?;
        let civil = DateTime::from_parts(date, parts.time.unwrap_or_default());
        let of_place = |place: &TimeZone| Some(place.to_ambiguous_zoned(civil).compatible().ok()?.offset());
        let offset = parts.offset.or_else(|| parts.place.as_ref().and_then(of_place));
        Some(Self { civil, offset, has_time: parts.time.is_some() })
    }

    /// The order of day and month that the text shows, if it is a date that needs one.
    pub fn shows(text: &str) -> Option<DateOrder> {
        let read = |order| Self::read(text, order);
        match (read(DateOrder::Open), read(DateOrder::DayFirst), read(DateOrder::MonthFirst)) {
            (Some(_), ..) | (_, None, None) => None,
            (None, Some(_), None) => Some(DateOrder::DayFirst),
            (None, None, Some(_)) => Some(DateOrder::MonthFirst),
            (None, Some(_), Some(_)) => Some(DateOrder::Open),
        }
    }

    /// Whether its zone stands beside it.
    pub fn has_zone(&self) -> bool {
        self.offset.is_some()
    }

    /// Whether it has a time of day.
    pub fn has_time(&self) -> bool {
        self.has_time
    }

    /// The instant, in nanoseconds since 1970; of a time that the clock shows twice the first one.
    pub fn instant(&self, zone: &Zone) -> Option<i64> {
        self.instants(zone).map(|(first, _)| first)
    }

    /// The instant, and the second one of a time that the clock shows twice, in nanoseconds since 1970.
    pub fn instants(&self, zone: &Zone) -> Option<(i64, Option<i64>)> {
        let at = |offset: Offset| offset.to_timestamp(self.civil).ok().and_then(to_ns);
        if let Some(offset) = self.offset {
            return Some((at(offset)?, None));
        }
        match zone.zone.to_ambiguous_timestamp(self.civil).offset() {
            AmbiguousOffset::Unambiguous { offset } => Some((at(offset)?, None)),
            // Clocks skip this time; it is read as if they had not yet been put forward.
            AmbiguousOffset::Gap { before, .. } => Some((at(before)?, None)),
            AmbiguousOffset::Fold { before, after } => Some((at(before)?, at(after))),
        }
    }
}

/// A text taken apart.
#[derive(Debug, Default)]
struct WrittenParts<'a> {
    /// Numbers and names of months, and whether a dot separates them.
    date: (Vec<&'a str>, bool),
    time: Option<Time>,
    offset: Option<Offset>,
    /// Of a name such as `[Europe/Berlin]`.
    place: Option<TimeZone>,
    /// `Tue Jul 18 20:42:34 2023`
    year_behind: Option<i16>,
}

impl<'a> WrittenParts<'a> {
    fn of(text: &'a str) -> Option<Self> {
        let Some(colon) = first_colon(text) else { return Self::without_colon(text) };
        let start = text.get(..colon)?.rfind(|c: char| !c.is_ascii_digit()).map_or(0, |at| at + 1);
        let (before, rest) = text.split_at_checked(start)?;
        let len = rest.find(|c: char| !(c.is_ascii_digit() || ":.,".contains(c))).unwrap_or(rest.len());
        let (clock, behind) = rest.split_at_checked(len)?;
        let mut parts = Self { date: words_of(before), ..Self::default() };
        let mut half = None;
        for word in tail_of(behind) {
            match word.to_ascii_lowercase().as_str() {
                "am" | "a.m." => half = Some(0),
                "pm" | "p.m." => half = Some(12),
                "uhr" | "h" => {}
                _ if word.len() == 4 && is_digits(word) => {
                    parts.year_behind = word.parse().ok();
                }
                // An offset beside the place says which of two hours is meant.
                _ if word.contains('/') => parts.place = Some(TimeZone::get(word).ok()?),
                _ => parts.offset = Some(offset(word)?),
            }
        }
        parts.time = Some(time(clock, half)?);
        Some(parts)
    }

    /// `20250718`, `20250718T204234`, `2025-07-18_20-42-34.123`, `20250718204234`, `20250718204234123`.
    fn without_colon(text: &'a str) -> Option<Self> {
        let (bare, zone) = match text.strip_suffix(['Z', 'z']) {
            Some(bare) => (bare, Some(Offset::UTC)),
            None => (text, None),
        };
        let (words, dots) = words_of(bare);
        let number = |text: &str| text.parse::<i8>().ok();
        let clock = |hour: &str, minute: &str, second: &str, fraction: &str| {
            Time::new(number(hour)?, number(minute)?, number(second)?, nanoseconds(fraction)?).ok()
        };
        let six = |text: &'a str| Some((text.get(..2)?, text.get(2..4)?, text.get(4..6)?, text.get(6..)?));
        let (date, time) = match words.as_slice() {
            [one] if matches!(one.len(), 14 | 17 | 20) => {
                let (date, rest) = one.split_at_checked(8)?;
                let (hour, minute, second, fraction) = six(rest)?;
                (vec![date], Some(clock(hour, minute, second, fraction)?))
            }
            [date @ .., two] if matches!(date.len(), 1 | 3) && two.len() == 6 => {
                let (hour, minute, second, _) = six(two)?;
                (date.to_vec(), Some(clock(hour, minute, second, "")?))
            }
            [year, month, day, hour, minute, second] if year.len() == 4 => {
                (vec![*year, *month, *day], Some(clock(hour, minute, second, "")?))
            }
            [year, month, day, hour, minute, second, fraction] if year.len() == 4 => {
                (vec![*year, *month, *day], Some(clock(hour, minute, second, fraction)?))
            }
            _ => (words, None),
        };
        let offset = zone.filter(|_| time.is_some());
        Some(Self { date: (date, dots), time, offset, ..Self::default() })
    }
}

/// The first colon between digits.
fn first_colon(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let is_digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let mut colons = text.match_indices(':').map(|(at, _)| at);
    colons.find(|&at| {
        let short =
            at.checked_sub(1).is_some_and(is_digit) && !(at >= 3 && is_digit(at - 2) && is_digit(at - 3));
        short && is_digit(at + 1)
    })
}

/// The numbers and words of a date, without the T or the name of a weekday; and whether dots separate them.
fn words_of(text: &str) -> (Vec<&str>, bool) {
    let is_part = |c: char| c.is_ascii_alphanumeric();
    let words = text.split(|c: char| !is_part(c)).filter(|word| !word.is_empty());
    let words = words.flat_map(|word| {
        // The T between date and time, and between the digits of the compact form.
        let word = word
            .strip_suffix(['T', 't'])
            .filter(|rest| rest.ends_with(|c: char| c.is_ascii_digit()))
            .unwrap_or(word);
        match word.split_once(['T', 't']) {
            Some((date, time)) if is_digits(date) && is_digits(time) => vec![date, time],
            _ if word.is_empty() || word.eq_ignore_ascii_case("t") => vec![],
            _ => vec![word],
        }
    });
    let words = words.filter(|word| !is_weekday(word)).collect();
    (words, text.contains('.'))
}

/// The words behind a time: `PM`, `Z`, `+0200`, `[Europe/Berlin]`.
fn tail_of(text: &str) -> impl Iterator<Item = &str> {
    text.split([' ', '(', ')', '[', ']']).filter(|word| !word.is_empty())
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

fn is_weekday(word: &str) -> bool {
    const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
    let lower = word.to_ascii_lowercase();
    DAYS.iter().any(|day| lower == *day || (lower.starts_with(day) && lower.ends_with("day")))
}

fn month(word: &str) -> Option<i8> {
    const MONTHS: [&str; 12] =
        ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
    let lower = word.to_ascii_lowercase();
    let short = lower.get(..3).filter(|_| lower.bytes().all(|b| b.is_ascii_alphabetic()))?;
    (1_i8..).zip(MONTHS).find(|(_, name)| *name == short).map(|(number, _)| number)
}

fn date((words, dots): &(Vec<&str>, bool), year_behind: Option<i16>, order: DateOrder) -> Option<Date> {
    if let Some(at) = words.iter().position(|word| month(word).is_some()) {
        let month = month(words.get(at)?)?;
        let mut rest = words.iter().enumerate().filter(|(place, _)| *place != at).map(|(_, word)| *word);
        let (first, second) = (rest.next()?, rest.next());
        if rest.next().is_some() {
            return None;
        }
        let (year, day) = match second {
            None => (year_behind?, first),
            Some(second) if first.len() == 4 => (first.parse().ok()?, second),
            Some(second) => (year(second)?, first),
        };
        let day = day.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        return Date::new(year, month, day.parse().ok()?).ok();
    }
    if !words.iter().all(|word| is_digits(word)) {
        return None;
    }
    match words.as_slice() {
        [compact] if compact.len() == 8 => {
            let (year, rest) = compact.split_at_checked(4)?;
            let (month, day) = rest.split_at_checked(2)?;
            Date::new(year.parse().ok()?, month.parse().ok()?, day.parse().ok()?).ok()
        }
        [first, month, day] if first.len() == 4 => {
            Date::new(first.parse().ok()?, month.parse().ok()?, day.parse().ok()?).ok()
        }
        [first, second, last] => {
            let (first, second): (i8, i8) = (first.parse().ok()?, second.parse().ok()?);
            let (day, month) = match order {
                // Nobody writes a month first with dots.
                _ if *dots => (first, second),
                DateOrder::DayFirst => (first, second),
                DateOrder::MonthFirst => (second, first),
                DateOrder::YearFirst if last.len() <= 2 => {
                    return Date::new(year(&format!("{first:02}"))?, second, last.parse().ok()?).ok();
                }
                DateOrder::YearFirst | DateOrder::Open => return None,
            };
            Date::new(year(last)?, month, day).ok()
        }
        _ => None,
    }
}

/// A year of four digits, or of two in this century.
fn year(text: &str) -> Option<i16> {
    let number: i16 = text.parse().ok()?;
    match text.len() {
        4 => Some(number),
        2 => Some(2000 + number),
        _ => None,
    }
}

/// `20:42:34.123`, `8:42`; `half` is 0 in the morning and 12 in the afternoon.
fn time(text: &str, half: Option<i8>) -> Option<Time> {
    let text = text.trim_end_matches([',', '.']);
    let (clock, fraction) = text.split_once(['.', ',']).unwrap_or((text, ""));
    let mut numbers = clock.split(':').map(|number| number.parse::<i8>().ok());
    let (hour, minute, second) = (numbers.next()??, numbers.next()??, numbers.next());
    // `01:00.0` is a place on a bus.
    let is_place = second.is_none() && !fraction.is_empty();
    let second = second.unwrap_or(Some(0))?;
    if is_place || numbers.next().is_some() {
        return None;
    }
    let hour = match half {
        None => hour,
        Some(half) if (1..=12).contains(&hour) => hour % 12 + half,
        Some(_) => return None,
    };
    Time::new(hour, minute, second, nanoseconds(fraction)?).ok()
}

/// The digits of a fraction of a second. Those beyond the nanosecond are cut.
fn nanoseconds(fraction: &str) -> Option<i32> {
    let padded: String = fraction.chars().chain(std::iter::repeat('0')).take(9).collect();
    padded.parse().ok().filter(|_| fraction.bytes().all(|b| b.is_ascii_digit()))
}

/// Names of offsets that mean one thing in the logs of computers.
const ABBREVIATIONS: &[(&str, i8)] = &[
    ("utc", 0),
    ("gmt", 0),
    ("z", 0),
    ("wet", 0),
    ("west", 1),
    ("cet", 1),
    ("cest", 2),
    ("mez", 1),
    ("mesz", 2),
    ("eet", 2),
    ("eest", 3),
    ("msk", 3),
    ("jst", 9),
    ("kst", 9),
    ("est", -5),
    ("edt", -4),
    ("cdt", -5),
    ("mst", -7),
    ("mdt", -6),
    ("pst", -8),
    ("pdt", -7),
];

/// `Z`, `UTC`, `CEST`, `+02:00`, `+0200`, `+02`, `UTC+2`.
fn offset(text: &str) -> Option<Offset> {
    let lower = text.to_ascii_lowercase();
    if let Some((_, hours)) = ABBREVIATIONS.iter().find(|(name, _)| *name == lower) {
        return Offset::from_hours(*hours).ok();
    }
    let bare = lower.strip_prefix("utc").or_else(|| lower.strip_prefix("gmt")).unwrap_or(&lower);
    let (sign, digits) = match bare.split_at_checked(1)? {
        ("+", digits) => (1, digits),
        ("-", digits) => (-1, digits),
        _ => return None,
    };
    let (hours, minutes) = match digits.split_once(':') {
        Some(parts) => parts,
        None if digits.len() == 4 => digits.split_at_checked(2)?,
        None => (digits, "0"),
    };
    let number = |text: &str| text.parse::<i32>().ok().filter(|_| is_digits(text) && text.len() <= 2);
    Offset::from_seconds(sign * (number(hours)? * 3600 + number(minutes)? * 60)).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::time;

    fn utc(text: &str, order: DateOrder) -> Option<String> {
        Written::read(text, order)?.instant(&Zone::utc()).map(time::format)
    }

    #[test]
    fn the_forms_of_people_and_tools() {
        let check = |text: &str, expected: Option<&str>| {
            assert_eq!(utc(text, DateOrder::Open).as_deref(), expected, "{text}");
        };
        let whole = Some("2025-07-18T20:42:34Z");
        for text in [
            "2025-07-18T20:42:34Z",
            "2025-07-18 20:42:34",
            "2025/07/18 20:42:34",
            "2025-07-18T22:42:34+02:00",
            "2025-07-18 22:42:34 +0200",
            "2025-07-18 22:42:34 CEST",
            "2025-07-18 20:42:34 UTC",
            "20250718 20:42:34",
            "20250718T204234Z",
            "20250718204234",
            "2025-07-18_20-42-34",
            "18.07.2025 20:42:34",
            "18.7.25, 20:42:34",
            "Fri Jul 18 20:42:34 2025",
            "Fri Jul 18 22:42:34 CEST 2025",
            "Jul 18, 2025 8:42:34 PM",
            "18 July 2025 20:42:34",
            "18/Jul/2025:20:42:34 +0000",
            "Friday, July 18, 2025 8:42:34 PM",
            "2025-07-18T22:42:34+02:00[Europe/Berlin]",
            "2025-07-18 22:42:34 Europe/Berlin",
            "18.07.2025 20:42:34 Uhr",
            "20250718 204234",
            "18.07.2025 204234",
        ] {
            check(text, whole);
        }
        check("2025-07-18 20:42:34,123", Some("2025-07-18T20:42:34.123Z"));
        for text in ["2025-07-18_20-42-34.123", "20250718204234123", "20250718204234123000"] {
            check(text, Some("2025-07-18T20:42:34.123Z"));
        }
        check("2025/07/18 20:42:34.000000001", Some("2025-07-18T20:42:34.000000001Z"));
        check("2025-07-18", Some("2025-07-18T00:00:00Z"));
        check("2025-07-18 12:05 AM", Some("2025-07-18T00:05:00Z"));
        for text in [
            "18/07/2025 20:42:34",
            "07-18-2025",
            "20:42:34",
            "2025-02-30 00:00:00",
            "2025-07-18 01:00.0",
            "x",
            "2025",
            "P8",
            "",
        ] {
            check(text, None);
        }
        check("2025-07-18 20:42:34 IST", None);
        check("2025-07-18 20:42:34 Mars/Olympus", None);
    }

    #[test]
    fn day_and_month_are_told_apart_only_by_what_is_written() {
        assert_eq!(Written::shows("18/07/2025 20:42"), Some(DateOrder::DayFirst));
        assert_eq!(Written::shows("07-18-2025 20:42"), Some(DateOrder::MonthFirst));
        assert_eq!(Written::shows("03-11-2026 15:13:16"), Some(DateOrder::Open));
        assert_eq!(Written::shows("2025-07-18"), None);
        assert_eq!(Written::shows("yesterday"), None);
        assert_eq!(utc("03-11-2026 15:13:16", DateOrder::DayFirst).as_deref(), Some("2026-11-03T15:13:16Z"));
        assert_eq!(
            utc("03-11-2026 15:13:16", DateOrder::MonthFirst).as_deref(),
            Some("2026-03-11T15:13:16Z")
        );
    }

    #[test]
    fn a_clock_that_is_put_back_shows_an_hour_twice_and_one_that_is_put_forward_skips_one() {
        let berlin = Zone::named("Europe/Berlin").unwrap();
        let both = |text: &str| {
            let (first, second) = Written::read(text, DateOrder::Open)?.instants(&berlin)?;
            Some((time::format(first), second.map(time::format)))
        };
        let found = |first: &str, second: Option<&str>| Some((first.to_owned(), second.map(str::to_owned)));
        assert_eq!(both("2025-10-26 01:59:59"), found("2025-10-25T23:59:59Z", None));
        assert_eq!(both("2025-10-26 02:30:00"), found("2025-10-26T00:30:00Z", Some("2025-10-26T01:30:00Z")));
        assert_eq!(both("2025-10-26 03:00:00"), found("2025-10-26T02:00:00Z", None));
        let skipped = Written::read("2025-03-30 02:30:00", DateOrder::Open).unwrap();
        assert_eq!(skipped.instant(&berlin).map(time::format).as_deref(), Some("2025-03-30T01:30:00Z"));
        assert_eq!(Zone::named("+09:00").unwrap().name(), "+09:00");
        assert!(Zone::named("Mars/Olympus").is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_panic(text in "[0-9TZ:/., +-]{0,30}|\\PC{0,40}") {
            for order in [DateOrder::Open, DateOrder::DayFirst, DateOrder::MonthFirst] {
                let _ = Written::read(&text, order).map(|written| written.instant(&Zone::utc()));
            }
        }
    }
}
