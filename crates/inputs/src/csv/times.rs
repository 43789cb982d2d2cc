//! The times of a file: which columns have them, in what form, in which zone.

use std::borrow::Cow;
use std::iter::repeat_n;

use gpuvitals_core::number::float;
use gpuvitals_core::time::{self, DateOrder, SECOND_NS, Written, Zone};

use super::fold::{self, Fold};
use super::sample::Sample;
use super::split::Splitter;
use super::spread::Spread;
use crate::timeline::Replay;

/// 2000-01-01: no log of a GPU is older.
const CENTURY_NS: i64 = 946_684_800 * SECOND_NS;

/// A file that begins with a smaller number counts from the beginning of the log, whatever follows.
const EPOCH_MIN: f64 = 100_000_000.0;

/// How far ahead of now a clock may be that counts since 1970: its rows are skipped, with that reason.
const AHEAD_MAX_NS: i64 = 366 * time::DAY_NS;

/// From 1601, when Windows' clock begins, to 1970, in its steps of 100 ns.
const FILETIME_EPOCH: f64 = 116_444_736_000_000_000.0;

/// Texts of a time column that are looked at to tell the order of its dates.
const TEXTS_MAX: usize = 50_000;

/// Times of rows.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Times {
    /// One column, or date and time of day.
    pub(super) columns: Vec<usize>,
    form: TimeForm,
    pub(super) zone: Zone,
    /// Whether the zone was asked for, or the texts have one.
    pub(super) zone_from: ZoneFrom,
    fold: Fold,
    /// Rows of one GPU within a second, where the file has whole seconds.
    spread: Option<Spread>,
    /// The time of the row before, and its text if the same text is the same time again.
    last: Option<i64>,
    text: String,
}

/// What the names of the columns say about their times.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct TimeNames {
    /// The zone that a name has in it.
    pub(super) zone: Option<Zone>,
    /// They count from the beginning of the log.
    pub(super) is_relative: bool,
    /// Unit of numbers, in nanoseconds.
    pub(super) unit_ns: Option<i64>,
}

/// What is known of times beside their texts and names.
#[derive(Debug, Clone, Copy)]
pub(super) struct TimeTerms<'a> {
    /// What the user says of the dates.
    pub(super) order: DateOrder,
    /// The user's zone.
    pub(super) zone: Option<&'a Zone>,
    /// In one that is shifted the date does not matter.
    pub(super) replay: Replay,
    /// The time that no row is behind.
    pub(super) now_ns: i64,
}

/// Where the zone of a file's times comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ZoneFrom {
    /// Each time has its own, or is a count of seconds, or the column's name says it.
    File,
    /// The user names it.
    User,
    /// It is this machine's.
    Machine,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TimeForm {
    /// Numbers since 1970, and dates with this order of day and month.
    Instant(DateOrder),
    /// Steps of 100 ns since 1601, as Windows counts.
    FileTime,
    /// `20250718`, with or without a time, which as a number would be in 1970.
    Compact,
    /// Numbers of this many nanoseconds since some beginning, where the date does not matter.
    Relative(i64),
    /// A time of day, where the date does not matter.
    OfDay,
}

/// Times that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Untimely {
    /// This text is none.
    Unknown(String),
    /// Day and month cannot be told apart.
    Order(String),
    /// Some dates have the day first, some the month.
    Mixed(String, String),
    /// A count from some beginning.
    Relative(String),
    /// A time of day without a date.
    OfDay(String),
    /// A number that has lost digits, which several rows of one GPU have.
    Rounded(String),
    /// Days since 1900, as spreadsheets count.
    Days(String),
    /// A time to the minute, which several rows of one GPU have.
    Minute(String),
    /// A date without a time of day, which several rows of one GPU have, or may have in a stream.
    Date(String),
}

impl Times {
    /// Settles how the times of these columns are read; others (`subject`) tell whose row each is.
    pub(super) fn of(
        (columns, subject): (Vec<usize>, Vec<usize>),
        named: TimeNames,
        sample: &Sample,
        terms: TimeTerms<'_>,
    ) -> Result<Self, Untimely> {
        let texts = texts(&columns, sample);
        let form = form(&texts, &named, sample.is_all(), terms)?;
        // What is no time at all says nothing about the others.
        let has_zone = |TextRun { text, .. }: &TextRun<'_>| {
            let written = || Some(Written::read(text, DateOrder::Open)?.has_zone());
            let is_date = || Written::shows(text).map(|_| false);
            number(text).map(|_| true).or_else(written).or_else(is_date)
        };
        let mut zones = texts.iter().filter_map(has_zone).peekable();
        let is_settled =
            zones.peek().is_some() && zones.all(|has_zone| has_zone) && form != TimeForm::Compact;
        let (zone, zone_from) = match (named.zone, terms.zone) {
            _ if is_settled => (Zone::utc(), ZoneFrom::File),
            (Some(zone), _) => (zone, ZoneFrom::File),
            (None, Some(zone)) => (zone.clone(), ZoneFrom::User),
            (None, None) => (Zone::of_machine(), ZoneFrom::Machine),
        };
        let (fold, text) = (Fold::default(), String::new());
        let mut times = Self { columns, form, zone, zone_from, fold, spread: None, last: None, text };
        if zone_from != ZoneFrom::File {
            let runs = runs(&times.columns, sample).into_iter();
            let instants = runs.flat_map(|TextRun { text, rows }| repeat_n(times.instants(&text), rows));
            let rows = sample.rows(&subject).zip(instants);
            let instants = rows.filter_map(|(whose, instants)| Some((whose, instants?)));
            times.fold = Fold::of(fold::is_falling(instants));
        }
        Ok(times)
    }

    /// The form, for people.
    pub(super) fn form(&self) -> &'static str {
        match self.form {
            TimeForm::Instant(DateOrder::Open) => "",
            TimeForm::Instant(DateOrder::DayFirst) => "day first",
            TimeForm::Instant(DateOrder::MonthFirst) => "month first",
            TimeForm::Instant(DateOrder::YearFirst) => "year first",
            TimeForm::FileTime => "Windows' count of 100 ns since 1601",
            TimeForm::Compact => "year, month and day as one number",
            TimeForm::Relative(time::DAY_NS) => "days, as a spreadsheet counts",
            TimeForm::Relative(SECOND_NS) => "seconds since the log began",
            TimeForm::Relative(1_000_000) => "milliseconds since the log began",
            TimeForm::Relative(1_000) => "microseconds since the log began",
            TimeForm::Relative(_) => "nanoseconds since the log began",
            TimeForm::OfDay => "time of day",
        }
    }

    /// The time of a record, and the text if it is none. `subject` is what tells whose row it is.
    pub(super) fn read(&mut self, record: &Splitter, subject: &[usize]) -> Result<i64, String> {
        let raw = |column: usize| std::str::from_utf8(record.field(column)).unwrap_or_default().trim();
        let joined;
        let text = match *self.columns.as_slice() {
            [] => "",
            [column] => raw(column),
            [date, time, ..] => {
                joined = format!("{} {}", raw(date), raw(time));
                &joined
            }
        };
        let whose = || subject.iter().flat_map(|column| [record.field(*column), b"\0"]).flatten().copied();
        if text == self.text
            && let Some(last) = self.last
        {
            return Ok(self.spread.as_mut().map_or(last, |spread| spread.place(last, whose().collect())));
        }
        let mut instant = self.instant(text, || whose().collect()).ok_or_else(|| text.to_owned())?;
        self.last = Some(instant);
        if let Some(spread) = &mut self.spread {
            instant = spread.place(instant, whose().collect());
        }
        self.text.clear();
        // In an hour that is shown twice the same text may be another time.
        if !self.fold.is_open() {
            self.text.push_str(text);
        }
        Ok(instant)
    }

    /// The rows begin again.
    pub(super) fn restart(&mut self) {
        self.last = None;
        self.text.clear();
        self.fold = self.fold.restarted();
        self.spread = self.spread.as_ref().map(|spread| Spread::of(spread.rows));
    }

    /// Has up to so many rows of one GPU and second follow each other within it.
    pub(super) fn spread(&mut self, rows: u32) {
        self.spread = Some(Spread::of(rows));
    }

    /// The times of a sample, in the order of its rows; none where there is none.
    pub(super) fn all(&self, sample: &Sample) -> Vec<Option<i64>> {
        let mut times = self.clone();
        let mut all = Vec::new();
        for TextRun { text, rows } in runs(&self.columns, sample) {
            let mut instant = times.instant(&text, Vec::new);
            all.push(instant);
            for _ in 1..rows {
                // As when rows are read: in an hour that is shown twice the same text may be another time.
                if times.fold.is_open() {
                    instant = times.instant(&text, Vec::new);
                }
                all.push(instant);
            }
        }
        all
    }

    /// The first time of a sample.
    pub(super) fn first(&self, sample: &Sample) -> Option<i64> {
        let mut times = self.clone();
        texts(&self.columns, sample).iter().find_map(|run| times.instant(&run.text, Vec::new))
    }

    /// The instant of a text that is no number, or the two that it can mean.
    fn instants(&self, text: &str) -> Option<(i64, Option<i64>)> {
        let order = match self.form {
            TimeForm::Compact => DateOrder::Open,
            TimeForm::Instant(order) => Some(order).filter(|_| number(text).is_none())?,
            TimeForm::FileTime | TimeForm::Relative(_) | TimeForm::OfDay => return None,
        };
        Written::read(text, order)?.instants(&self.zone)
    }

    fn instant(&mut self, text: &str, subject: impl FnOnce() -> Vec<u8>) -> Option<i64> {
        let written = |times: &mut Self| {
            let instants = times.instants(text)?;
            Some(times.fold.choose(instants, subject))
        };
        let instant = match self.form {
            TimeForm::FileTime => Some(of_filetime(number(text)?)),
            TimeForm::Compact => written(self),
            TimeForm::Relative(unit_ns) => Some(scaled(number(text)?, unit_ns)),
            TimeForm::OfDay => {
                let at =
                    Written::read(&format!("2000-01-01 {text}"), DateOrder::Open)?.instant(&Zone::utc())?;
                // Midnight passes.
                let days = self.last.map_or(0, |last| (last - at + time::DAY_NS / 2).max(0) / time::DAY_NS);
                Some(at + days * time::DAY_NS)
            }
            TimeForm::Instant(_) => match number(text) {
                Some(number) => {
                    time::parse(&text.replace(',', ".")).ok().or_else(|| Some(time::of_number(number)))
                }
                None => written(self),
            },
        };
        instant.filter(|instant| *instant >= 0)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "saturates; a time is meant")]
fn scaled(number: f64, unit_ns: i64) -> i64 {
    (number * float(unit_ns)).round() as i64
}

/// A number, with a decimal point or comma.
pub(super) fn number(text: &str) -> Option<f64> {
    let pointed = || {
        let (whole, fraction) = text.split_once(',')?;
        let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        (is_digits(whole) && is_digits(fraction)).then(|| format!("{whole}.{fraction}").parse().ok())?
    };
    text.parse().ok().or_else(pointed).filter(|number: &f64| number.is_finite())
}

/// A text of the columns of times, and how many rows have it one after the other: those of all GPUs of a look.
struct TextRun<'a> {
    text: Cow<'a, str>,
    rows: usize,
}

/// The texts of the times of the first rows that have any.
fn texts<'a>(columns: &[usize], sample: &'a Sample) -> Vec<TextRun<'a>> {
    let mut runs = runs(columns, sample);
    runs.retain(|run| !run.text.trim().is_empty());
    runs
}

/// The texts of the times of the first rows.
fn runs<'a>(columns: &[usize], sample: &'a Sample) -> Vec<TextRun<'a>> {
    let Some(first) = columns.first() else { return Vec::new() };
    let mut behind = columns.get(1).map(|second| sample.cells(*second));
    let (mut runs, mut before): (Vec<TextRun<'_>>, _) = (Vec::new(), None);
    for first in sample.cells(*first).take(TEXTS_MAX) {
        let second = behind.as_mut().and_then(Iterator::next);
        let here = Some((first, second));
        if let Some(run) = runs.last_mut().filter(|_| before == here) {
            run.rows += 1;
        } else {
            let text = second.map_or(Cow::Borrowed(first), |second| format!("{first} {second}").into());
            runs.push(TextRun { text, rows: 1 });
        }
        before = here;
    }
    runs
}

fn form(
    texts: &[TextRun<'_>],
    named: &TimeNames,
    is_all: bool,
    terms: TimeTerms<'_>,
) -> Result<TimeForm, Untimely> {
    let TimeTerms { order, now_ns, .. } = terms;
    let Some(TextRun { text: first, .. }) = texts.first() else { return Ok(TimeForm::Instant(order)) };
    let all: usize = texts.iter().map(|run| run.rows).sum();
    let count = |is: &dyn Fn(&str) -> bool| -> usize {
        texts.iter().filter(|run| is(&run.text)).map(|run| run.rows).sum()
    };
    let most = |is: &dyn Fn(&str) -> bool| count(is) * 2 >= all;
    if most(&|text| number(text).is_some()) {
        if most(&is_compact) {
            return Ok(TimeForm::Compact);
        }
        let eras = texts.iter().flat_map(|TextRun { text, rows }| {
            let number = number(text);
            repeat_n(number.map(|number| (era(number, named.unit_ns, now_ns), number)), *rows)
        });
        return of_numbers(first, named, terms, &eras.collect::<Vec<_>>());
    }
    if most(&|text| Written::read(text, order).is_some()) {
        return Ok(TimeForm::Instant(order));
    }
    if count(&|text| Written::shows(text).is_some()) * 2 > all {
        let of = |wanted: DateOrder| {
            let found = texts.iter().find(|run| Written::shows(&run.text) == Some(wanted));
            found.map(|run| run.text.to_string())
        };
        if order == DateOrder::Open && is_year_first(texts, now_ns) {
            return Ok(TimeForm::Instant(DateOrder::YearFirst));
        }
        return match (of(DateOrder::DayFirst), of(DateOrder::MonthFirst)) {
            (Some(_), None) => Ok(TimeForm::Instant(DateOrder::DayFirst)),
            (None, Some(_)) => Ok(TimeForm::Instant(DateOrder::MonthFirst)),
            (Some(one), Some(other)) => Err(Untimely::Mixed(one, other)),
            (None, None) => match likely(texts, is_all, now_ns) {
                Some(order) => Ok(TimeForm::Instant(order)),
                None if terms.replay == Replay::Shifted => Ok(TimeForm::Instant(DateOrder::DayFirst)),
                None => Err(Untimely::Order(first.to_string())),
            },
        };
    }
    if most(&|text| Written::read(&format!("2000-01-01 {text}"), DateOrder::Open).is_some()) {
        return match terms.replay {
            Replay::Shifted => Ok(TimeForm::OfDay),
            Replay::Recorded => Err(Untimely::OfDay(first.to_string())),
        };
    }
    Err(Untimely::Unknown(first.to_string()))
}

/// The form of numbers, each with where it lies; none is a text of another kind.
fn of_numbers(
    first: &str,
    named: &TimeNames,
    terms: TimeTerms<'_>,
    numbers: &[Option<(Era, f64)>],
) -> Result<TimeForm, Untimely> {
    let most = |is: &dyn Fn(Era, f64) -> bool| {
        numbers.iter().flatten().filter(|(era, number)| is(*era, *number)).count() * 2 >= numbers.len()
    };
    let begins_before = number(first).is_some_and(|first| first < EPOCH_MIN);
    if !named.is_relative {
        let is_ahead = || most(&|era, _| era == Era::Ahead) && !begins_before;
        if most(&|era, _| era == Era::Ours) || is_ahead() {
            return Ok(TimeForm::Instant(terms.order));
        }
        if most(&|era, _| era == Era::FileTime) {
            return Ok(TimeForm::FileTime);
        }
    }
    let is_days = !named.is_relative
        && named.unit_ns.is_none()
        && most(&|_, number| (30_000.0..60_000.0).contains(&number));
    match (is_days, terms.replay) {
        (true, Replay::Shifted) => Ok(TimeForm::Relative(time::DAY_NS)),
        (true, Replay::Recorded) => Err(Untimely::Days(first.to_owned())),
        (false, Replay::Shifted) => Ok(TimeForm::Relative(named.unit_ns.unwrap_or(SECOND_NS))),
        (false, Replay::Recorded) => Err(Untimely::Relative(first.to_owned())),
    }
}

/// Where a number lies as a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Era {
    /// Since 1970 between 2000 and now.
    Ours,
    /// Since 1970 behind now, by less than a year.
    Ahead,
    /// As Windows counts it is between 2000 and now.
    FileTime,
    /// It counts from some other beginning.
    Other,
}

/// Where a number lies in this unit (nanoseconds), or in the one that its size suggests.
pub(super) fn era(number: f64, unit_ns: Option<i64>, now_ns: i64) -> Era {
    let ours = CENTURY_NS..now_ns.saturating_add(time::DAY_NS);
    let by_size = time::of_number(number);
    let at = unit_ns.map_or(by_size, |unit_ns| scaled(number, unit_ns));
    if ours.contains(&at) || (at >= ours.end && ours.contains(&by_size)) {
        Era::Ours
    } else if (ours.end..ours.end.saturating_add(AHEAD_MAX_NS)).contains(&at) {
        Era::Ahead
    } else if unit_ns.is_none() && number > FILETIME_EPOCH && ours.contains(&of_filetime(number)) {
        Era::FileTime
    } else {
        Era::Other
    }
}

/// Nanoseconds since 1970 of Windows' count.
fn of_filetime(number: f64) -> i64 {
    scaled(number - FILETIME_EPOCH, 100)
}

/// Whether dates with years of two digits are later, and not in the future, with the year first: `25/07/18` is of 2025 rather
/// than of 2018. With dots nobody writes them so.
fn is_year_first(texts: &[TextRun<'_>], now_ns: i64) -> bool {
    let latest = |order| {
        let read = |run: &TextRun<'_>| Written::read(&run.text, order)?.instant(&Zone::utc());
        let instants: Option<Vec<i64>> = texts.iter().map(read).collect();
        instants?.into_iter().max().filter(|latest| *latest <= now_ns.saturating_add(time::DAY_NS))
    };
    let others = [DateOrder::DayFirst, DateOrder::MonthFirst].into_iter().filter_map(latest).max();
    let has_dots = |text: &str| text.split([' ', 'T']).next().unwrap_or_default().contains('.');
    !texts.iter().any(|run| has_dots(&run.text))
        && latest(DateOrder::YearFirst).is_some_and(|latest| others.is_none_or(|other| latest > other))
}

/// Whether digits alone are a date of our time: as a number of seconds they would be in 1970.
fn is_compact(text: &str) -> bool {
    let is_digits = text.bytes().all(|b| b.is_ascii_digit());
    is_digits
        && matches!(text.len(), 8 | 14 | 17 | 20)
        && (text.starts_with("19") || text.starts_with("20"))
        && Written::read(text, DateOrder::Open).is_some()
}

/// The order that the rows follow: read in the other one they would lie in the future, or jump from month to month where
/// these go from day to day.
fn likely(texts: &[TextRun<'_>], is_all: bool, now_ns: i64) -> Option<DateOrder> {
    /// How much shorter the span must be in one order.
    const CLEARLY: i64 = 5;
    let zone = Zone::utc();
    let all = |order| -> Vec<i64> {
        texts.iter().filter_map(|run| Written::read(&run.text, order)?.instant(&zone)).collect()
    };
    let (by_day, by_month) = (all(DateOrder::DayFirst), all(DateOrder::MonthFirst));
    if by_day == by_month {
        // A later row may tell.
        return is_all.then_some(DateOrder::DayFirst);
    }
    let span = |all: &[i64]| -> Option<i64> {
        let (first, last) = (all.iter().min()?, all.iter().max()?);
        // A day for zones.
        (*last <= now_ns.saturating_add(time::DAY_NS)).then_some(last - first)
    };
    match (span(&by_day), span(&by_month)) {
        (Some(_), None) => Some(DateOrder::DayFirst),
        (None, Some(_)) => Some(DateOrder::MonthFirst),
        (Some(day), Some(month)) if day.saturating_mul(CLEARLY) < month => Some(DateOrder::DayFirst),
        (Some(day), Some(month)) if month.saturating_mul(CLEARLY) < day => Some(DateOrder::MonthFirst),
        _ => None,
    }
}
