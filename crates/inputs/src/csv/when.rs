//! Which columns of a file are its times.

use std::collections::{HashMap, HashSet};

use gpuvitals_core::catalogue::folded;
use gpuvitals_core::foreign;
use gpuvitals_core::number::float;
use gpuvitals_core::time::{self, DAY_NS, DateOrder, SECOND_NS, Written, Zone};

use super::hints::{HintSense, Hints};
use super::plan::{Column, Plan, Role, Surroundings, Unfit, is_named};
use super::repeats::{self, Repeats};
use super::sample::Sample;
use super::time_name::{NAMES, RELATIVE, TimeName, is_count, rank, zone_in};
use super::times::{Era, TimeNames, TimeTerms, Times, Untimely, ZoneFrom, era, number};

/// Cells of a column that are looked at.
const CELLS_MAX: usize = 1_000;

/// What the cells of a column are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CellKind {
    /// Date and time.
    Instant,
    /// A number since 1970.
    Number,
    /// A date alone.
    Date,
    /// A time of day alone.
    OfDay,
    /// None of these.
    Other,
}

/// Finds the times and settles how they are read. Other columns that are called so are kept under their own names.
pub(super) fn settle(plan: &mut Plan, sample: &Sample, around: Surroundings<'_>) -> Result<(), Unfit> {
    let hinted = around.hints.columns.iter().filter_map(|hint| match hint.sense {
        HintSense::Time(order) => Some((hint.name.as_str(), order)),
        _ => None,
    });
    let hinted: Vec<(&str, DateOrder)> = hinted.collect();
    let order =
        hinted.iter().map(|(_, order)| *order).find(|order| *order != DateOrder::Open).unwrap_or_default();
    let place = |name: &str| plan.columns.iter().position(|column| is_named(&column.name, name));
    let columns: Vec<usize> = if hinted.is_empty() {
        find(plan, sample, around)
    } else {
        hinted.iter().filter_map(|(name, _)| place(name)).take(2).collect()
    };
    release(plan, &columns);
    let Some(&first) = columns.first() else {
        if let Some((name, text)) = unread(plan, sample, around.hints, around.now_ns) {
            return Err(Unfit::Time(name.clone(), reason(&Untimely::Unknown(text), &name)));
        }
        plan.warnings.push("no column is a time; each row gets the time at which it is read".to_owned());
        return Ok(());
    };
    let name = plan.columns.get(first).map(|column| column.name.clone()).unwrap_or_default();
    let zone = around.hints.timezone.as_ref();
    let mut named = named(plan, &columns);
    let placed = if named.zone.is_none() { zone_of_column(plan, sample) } else { None };
    named.zone = named.zone.or_else(|| placed.as_ref().map(|(_, zone)| zone.clone()));
    let times = if let Some(untimely) = shared(plan, &columns, sample) {
        Err(untimely)
    } else {
        let columns = (columns, plan.subject());
        let terms = TimeTerms { order, zone, replay: around.replay, now_ns: around.now_ns };
        Times::of(columns, named, sample, terms)
    };
    let mut times = times.map_err(|untimely| Unfit::Time(name.clone(), reason(&untimely, &name)))?;
    if rank(&name).is_none() && hinted.is_empty() {
        plan.notes.push(format!("column {name} is taken for the time"));
    }
    if !times.form().is_empty() {
        plan.notes.push(format!("times are read as {}", times.form()));
    }
    if let Some((column, zone)) = placed.filter(|(_, zone)| *zone == times.zone) {
        plan.notes.push(format!("times are of the zone that column {column} names, {}", zone.name()));
    }
    if times.zone_from != ZoneFrom::File {
        let whose = if times.zone_from == ZoneFrom::User {
            "as you say"
        } else {
            "this machine's; --timezone names another"
        };
        plan.notes.push(format!("times have no zone and are taken as {} ({whose})", times.zone.name()));
    }
    let all = times.all(sample);
    if !plan.is_told()
        && let Some(gpus) = repeats::bursts(&all)
    {
        plan.warnings.push(format!(
            "rows come {gpus} at a time, so these look like {gpus} GPUs in turn, which no column tells apart; log with index or \
             uuid, too"
        ));
    }
    if let Some(repeats) = repeats::find(plan, sample, &all) {
        keep_apart(plan, sample, (&mut times, &all), &repeats)
            .map_err(|untimely| Unfit::Time(name.clone(), reason(&untimely, &name)))?;
    }
    plan.times = Some(times);
    Ok(())
}

/// Settles what becomes of rows that have the GPU and time of an earlier row. Times of one GPU that were cut to seconds are
/// spread over them; without a column of the GPU the rows may be of several.
fn keep_apart(
    plan: &mut Plan,
    sample: &Sample,
    (times, all): (&mut Times, &[Option<i64>]),
    repeats: &Repeats,
) -> Result<(), Untimely> {
    let are_whole = |unit_ns: i64| all.iter().flatten().all(|time_ns| time_ns % unit_ns == 0);
    if repeats.column.is_none() && repeats.is_usual && are_whole(60 * SECOND_NS) {
        let text =
            times.columns.last().and_then(|column| sample.cells(*column).find(|text| !text.is_empty()));
        return Err(Untimely::Minute(text.unwrap_or_default().to_owned()));
    }
    if repeats.column.is_none() && plan.is_told() && repeats.is_steady && are_whole(SECOND_NS) {
        times.spread(repeats.most);
        plan.notes.push(format!(
            "times are whole seconds; up to {} rows of a GPU in one are spread evenly over it, in their order. If they are of several \
             hosts, name the column that tells them apart: --column NAME=host",
            repeats.most
        ));
        return Ok(());
    }
    let sentence = repeats.sentence(plan);
    plan.apart = repeats.column.and_then(|column| plan.columns.get(column)).map(|column| column.name.clone());
    plan.repeats = Some(sentence.clone());
    plan.warnings.push(sentence);
    Ok(())
}

/// Columns that may be times: nothing else is known of them, and the user says nothing else.
fn open_columns<'a>(plan: &'a Plan, hints: &Hints) -> impl Iterator<Item = (usize, &'a str)> {
    let is_open = |role: &Role| matches!(role, Role::Time | Role::Extra(_));
    plan.columns.iter().enumerate().filter_map(move |(index, column)| {
        let is_hinted = hints.columns.iter().any(|hint| is_named(&column.name, &hint.name));
        (is_open(&column.role) && column.why.is_none() && !is_hinted).then_some((index, column.name.as_str()))
    })
}

fn find(plan: &Plan, sample: &Sample, around: Surroundings<'_>) -> Vec<usize> {
    let hints = around.hints;
    let place = |index: usize, name: &str| rank(name).filter(|_| !is_count(name) || counts_up(sample, index));
    let kind = |index: usize, name: &str| kind(sample, index, TimeName::of(name).unit_ns, around.now_ns);
    let open: Vec<(usize, Option<usize>, CellKind)> = open_columns(plan, hints)
        .map(|(index, name)| (index, place(index, name), kind(index, name)))
        .collect();
    // An epoch of a training, which counts from 0 or is not said.
    let is_training = |index: usize, kind: CellKind| {
        let is_named = |column: &Column| TimeName::of(&column.name).bare == "epoch";
        kind == CellKind::Other && plan.columns.get(index).is_some_and(is_named)
    };
    let mut named: Vec<(usize, usize, CellKind)> = open
        .iter()
        .filter(|(index, _, kind)| !is_training(*index, *kind))
        .filter_map(|(index, rank, kind)| Some(((*rank)?, *index, *kind)))
        .collect();
    named.sort_by_key(|(rank, index, _)| (*rank, *index));
    let of = |wanted: CellKind| named.iter().find(|(.., kind)| *kind == wanted).map(|(_, index, _)| *index);
    let any = |wanted: CellKind| open.iter().find(|(.., kind)| *kind == wanted).map(|(index, ..)| *index);
    let unnamed =
        || open_columns(plan, hints).find(|column| is_log_time(plan, sample, *column, around.now_ns));
    let is_instant = |(rank, _, kind): &&(usize, usize, CellKind)| match kind {
        CellKind::Instant => true,
        // A count from the beginning is the last choice.
        CellKind::Number => *rank <= NAMES.len(),
        CellKind::Date | CellKind::OfDay | CellKind::Other => false,
    };
    if let Some((_, index, _)) = named.iter().find(is_instant) {
        return vec![*index];
    }
    // What has passed is no time of day.
    let is_clock = |index: &usize| {
        let name = plan.columns.get(*index).map(|column| TimeName::of(&column.name));
        name.is_some_and(|name| {
            !name.is_relative() && !name.has_word(&["duration", "eta", "elapsed", "remaining"])
        })
    };
    let is_of_day = |index: usize, rank: Option<usize>, kind: CellKind| {
        kind == CellKind::OfDay || (rank.is_some() && is_compact_clock(sample, index))
    };
    let clocks =
        || open.iter().filter(|(index, rank, kind)| is_of_day(*index, *rank, *kind) && is_clock(index));
    let clock = clocks().find(|(_, rank, _)| rank.is_some()).or_else(|| clocks().next());
    if let (Some(date), Some((time, ..))) = (of(CellKind::Date).or_else(|| any(CellKind::Date)), clock) {
        return vec![date, *time];
    }
    // What is called a time and cannot be read is an error, unless another column is one whatever it is called.
    let by_name = named.first().map(|(_, index, _)| *index);
    of(CellKind::Date).or_else(|| unnamed().map(|(index, _)| index)).or(by_name).into_iter().collect()
}

/// Whether a column without the name of a time has the times of its rows: they change, and the name is not of a time that
/// something else has, unless each row of a GPU has another one.
fn is_log_time(plan: &Plan, sample: &Sample, (column, name): (usize, &str), now_ns: i64) -> bool {
    const OTHERS: [&str; 17] = [
        "bios",
        "vbios",
        "boot",
        "booted",
        "birth",
        "build",
        "built",
        "driver",
        "install",
        "installed",
        "start",
        "started",
        "end",
        "ended",
        "finish",
        "expires",
        "modified",
    ];
    let texts = || sample.cells(column).filter(|text| !text.is_empty()).take(CELLS_MAX);
    let changes = texts().count() == 1 || texts().zip(texts().skip(1)).any(|(one, next)| one != next);
    changes
        && match kind(sample, column, TimeName::of(name).unit_ns, now_ns) {
            CellKind::Instant => true,
            CellKind::Number => {
                let name = TimeName::of(name);
                name.ends_as_time()
                    && are_recent(sample, column, name.unit_ns, now_ns)
                    && is_of_rows(plan, sample, column)
            }
            CellKind::Date | CellKind::OfDay | CellKind::Other => false,
        }
        && (!TimeName::of(name).has_word(&OTHERS) || is_of_rows(plan, sample, column))
}

/// Whether some GPU has several rows, and no two that follow each other have the same text there.
fn is_of_rows(plan: &Plan, sample: &Sample, column: usize) -> bool {
    let mut cells: Vec<_> = plan.subject().iter().map(|column| sample.cells(*column)).collect();
    let (mut before, mut has_several) = (HashMap::new(), false);
    let differ = sample.cells(column).take(CELLS_MAX).all(|text| {
        let whose: Vec<&str> = cells.iter_mut().map(|cells| cells.next().unwrap_or_default()).collect();
        let last = before.insert(whose, text);
        has_several |= last.is_some();
        last != Some(text)
    });
    differ && has_several
}

/// A column that seems to be a time in a form that is not known, and a text of it: the texts have a year and more numbers,
/// and change.
fn unread(plan: &Plan, sample: &Sample, hints: &Hints, now_ns: i64) -> Option<(String, String)> {
    let is_year = |word: &str| word.len() == 4 && word.parse().is_ok_and(|year| (2000..2050).contains(&year));
    let seems = |text: &&str| {
        let words: Vec<&str> = text.split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty()).collect();
        let numbers = words.iter().filter(|word| word.bytes().all(|byte| byte.is_ascii_digit())).count();
        // A name that has a date in it is none: `gpt-4o-2024-08-06`.
        let begins = text.starts_with(|c: char| c.is_ascii_digit());
        begins && numbers >= 3 && words.iter().any(|word| is_year(word))
    };
    open_columns(plan, hints).find_map(|(index, name)| {
        let texts = || sample.cells(index).filter(|text| !text.is_empty()).take(CELLS_MAX);
        let seeming = texts().filter(seems).count();
        let distinct: HashSet<&str> = texts().collect();
        let is_time = seeming * 2 > texts().count()
            && distinct.len() > 1
            && kind(sample, index, None, now_ns) == CellKind::Other;
        is_time.then(|| (name.to_owned(), texts().next().unwrap_or_default().to_owned()))
    })
}

/// Whether the numbers of a column, as times since 1970 in that unit or in the one that their size suggests, lie in this century
/// and not in the future.
#[expect(clippy::cast_possible_truncation, reason = "saturates; a time is meant")]
fn are_recent(sample: &Sample, column: usize, unit_ns: Option<i64>, now_ns: i64) -> bool {
    const CENTURY_NS: i64 = 946_684_800 * SECOND_NS;
    let recent = CENTURY_NS..now_ns.saturating_add(DAY_NS);
    let mut texts = sample.cells(column).filter(|text| !text.is_empty()).take(CELLS_MAX);
    let instant = |number: f64| match unit_ns {
        Some(unit_ns) => (number * float(unit_ns)) as i64,
        None => time::of_number(number),
    };
    texts.all(|text| number(text).is_some_and(|number| recent.contains(&instant(number))))
}

/// Whether the cells of a column are times of day without colons: `204234`.
fn is_compact_clock(sample: &Sample, column: usize) -> bool {
    let is_clock =
        |text: &str| text.len() == 6 && Written::read(&format!("20000101 {text}"), DateOrder::Open).is_some();
    let mut texts = sample.cells(column).filter(|text| !text.is_empty()).take(CELLS_MAX).peekable();
    texts.peek().is_some() && texts.all(is_clock)
}

/// Whether a number in scientific notation lacks digits before its point: `1.75287E+12`.
fn is_rounded(text: &str) -> bool {
    let Some((mantissa, exponent)) = text.split_once(['e', 'E']) else { return false };
    let decimals = mantissa.split_once(['.', ',']).map_or(0, |(_, decimals)| decimals.len());
    let exponent = exponent.parse::<usize>().ok();
    number(text).is_some() && exponent.is_some_and(|exponent| decimals < exponent)
}

/// What two rows of one subject have though it is no time of one of them: a date without a time of day, or a number that a
/// spreadsheet has rounded. As times they would be one row.
fn shared(plan: &Plan, columns: &[usize], sample: &Sample) -> Option<Untimely> {
    let &[column] = columns else { return None };
    let is_date = kind(sample, column, None, 0) == CellKind::Date;
    // One row of a stream does not tell.
    if is_date && !sample.is_all() && sample.len() < 2 {
        return sample.cells(column).next().map(|date| Untimely::Date(date.to_owned()));
    }
    if !is_date && !sample.cells(column).any(is_rounded) {
        return None;
    }
    let subject = plan.subject();
    let mut seen = HashSet::new();
    let mut cells: Vec<_> = subject.iter().map(|column| sample.cells(*column)).collect();
    let text = sample.cells(column).find(|text| {
        let whose: Vec<&str> = cells.iter_mut().map(|cells| cells.next().unwrap_or_default()).collect();
        !text.is_empty() && (is_date || is_rounded(text)) && !seen.insert((*text, whose))
    })?;
    Some(if is_date { Untimely::Date(text.to_owned()) } else { Untimely::Rounded(text.to_owned()) })
}

/// What the names of these columns say of their times.
fn named(plan: &Plan, columns: &[usize]) -> TimeNames {
    let names = columns.iter().filter_map(|column| plan.columns.get(*column));
    names.fold(TimeNames::default(), |said, column| {
        let name = TimeName::of(&column.name);
        TimeNames {
            zone: said.zone.or_else(|| zone_in(&column.name)),
            is_relative: said.is_relative || RELATIVE.contains(&name.bare.as_str()),
            unit_ns: said.unit_ns.or(name.unit_ns),
        }
    })
}

/// The zone that a column of zones has in each row, with the name of the column.
fn zone_of_column(plan: &Plan, sample: &Sample) -> Option<(String, Zone)> {
    const NAMES: [&str; 5] = ["timezone", "time_zone", "tz", "tz_name", "tzname"];
    let is_named = |column: &Column| {
        matches!(column.role, Role::Extra(_))
            && NAMES.contains(&folded(&foreign::parted(&column.name)).as_str())
    };
    let index = plan.columns.iter().position(is_named)?;
    let first = sample.cells(index).next().filter(|first| sample.cells(index).all(|text| text == *first))?;
    Some((plan.columns.get(index)?.name.clone(), Zone::named(first).ok()?))
}

/// Columns that are called times and are none are kept under their own names.
fn release(plan: &mut Plan, columns: &[usize]) {
    for index in 0..plan.columns.len() {
        let is_time = columns.contains(&index);
        let Some(column) = plan.columns.get(index) else { continue };
        let role = match &column.role {
            _ if is_time => Role::Time,
            Role::Time => plan.own_name(index),
            _ => continue,
        };
        if let Some(column) = plan.columns.get_mut(index) {
            column.role = role;
        }
    }
}

/// Whether the numbers of a column begin near 0 and rise, perhaps again and again.
fn counts_up(sample: &Sample, column: usize) -> bool {
    let numbers: Option<Vec<f64>> =
        sample.cells(column).filter(|text| !text.is_empty()).take(CELLS_MAX).map(number).collect();
    let numbers = numbers.unwrap_or_default();
    let (Some(first), Some(last)) = (numbers.first(), numbers.last()) else { return false };
    let steps = || numbers.iter().zip(numbers.iter().skip(1)).map(|(one, next)| next - one);
    let widest = steps().fold(0.0, f64::max);
    let begins = (0.0..=1.0_f64.max(2.0 * widest)).contains(first);
    let is_back = |(one, next): (&f64, &f64)| next < one && *next > first + widest;
    begins && (numbers.len() == 1 || last > first) && !numbers.iter().zip(numbers.iter().skip(1)).any(is_back)
}

/// What the cells of a column are; numbers are of that unit (nanoseconds), or of the one that their size suggests.
fn kind(sample: &Sample, column: usize, unit_ns: Option<i64>, now_ns: i64) -> CellKind {
    let (mut all, mut instants, mut numbers, mut dates, mut of_day) = (0_u32, 0_u32, 0_u32, 0_u32, 0_u32);
    for text in sample.cells(column).filter(|text| !text.is_empty()).take(CELLS_MAX) {
        all += 1;
        let orders = [DateOrder::Open, DateOrder::DayFirst, DateOrder::MonthFirst];
        let written = orders.iter().find_map(|order| Written::read(text, *order));
        if let Some(number) = number(text)
            && (written.is_none() || text.len() > 8)
        {
            numbers += u32::from(era(number, unit_ns, now_ns) != Era::Other);
        } else if let Some(written) = written {
            instants += u32::from(written.has_time());
            dates += u32::from(!written.has_time());
        } else if text.contains(':')
            && Written::read(&format!("2000-01-01 {text}"), DateOrder::Open).is_some()
        {
            of_day += 1;
        }
    }
    let most = |count: u32| count * 2 > all;
    if most(instants) {
        CellKind::Instant
    } else if most(numbers) {
        CellKind::Number
    } else if most(dates) {
        CellKind::Date
    } else if most(of_day) {
        CellKind::OfDay
    } else {
        CellKind::Other
    }
}

fn reason(untimely: &Untimely, name: &str) -> String {
    match untimely {
        Untimely::Unknown(text) => format!(
            "{:?} is no time that is known; write RFC 3339 (2026-01-31T12:00:00Z), or say which column is the time: --column \
             NAME=time",
            shortened(text)
        ),
        Untimely::Order(text) => format!(
            "{:?} may have the day first or the month, and no row tells; say which: --column {name}=time:dmy or --column \
             {name}=time:mdy",
            shortened(text)
        ),
        Untimely::Mixed(one, other) => {
            format!("{:?} has the day first and {:?} the month", shortened(one), shortened(other))
        }
        Untimely::Relative(text) => format!(
            "{:?} is no time since 1970 but one since the log began; --times now replays it as if it began now",
            shortened(text)
        ),
        Untimely::Date(text) => format!(
            "{:?} is a date and no time of day, so the rows of a day would be one; add a column for the time of day",
            shortened(text)
        ),
        Untimely::Days(text) => format!(
            "{:?} is a date as a spreadsheet counts days (an Excel date); export the column as text, such as 2026-01-31 12:00:00",
            shortened(text)
        ),
        Untimely::Minute(text) => format!(
            "{:?} is a time to the minute, so the rows of a minute would be one; export the file with seconds, or name the column \
             that tells GPUs apart: --column NAME=gpu",
            shortened(text)
        ),
        Untimely::Rounded(text) => format!(
            "{:?} was rounded by a spreadsheet, so several rows would be one; export the file again from where it was written",
            shortened(text)
        ),
        Untimely::OfDay(text) => format!(
            "{:?} is a time of day without a date; add a column for the date, or replay it as if it began now with --times now",
            shortened(text)
        ),
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(64).collect()
}
