//! Which columns of a file are its times.

use gpuvitals_core::time::{DateOrder, Written};

use super::hints::HintSense;
use super::plan::{Plan, Role, Surroundings, Unfit, is_named};
use super::sample::Sample;
use super::times::{Times, Untimely, ZoneFrom};

/// Cells of a column that are looked at.
const CELLS_MAX: usize = 1_000;

/// Names of times, the most reliable first. A unit may stand behind them.
const NAMES: [&str; 27] = [
    "timestamp",
    "timestamp_ns",
    "datetime",
    "date_time",
    "ts",
    "unix",
    "unix_time",
    "unix_timestamp",
    "epoch",
    "epoch_time",
    "_timestamp",
    "time_stamp",
    "time",
    "date",
    "utc",
    "utc_time",
    "local_time",
    "log_time",
    "sample_time",
    "query_time",
    "wall_time",
    "created_at",
    "zeit",
    "zeitstempel",
    "datum",
    "uhrzeit",
    "yyyymmdd",
];

/// What the cells of a column are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Date and time, or a number of seconds since 1970.
    Instant,
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
        find(plan, sample)
    } else {
        hinted.iter().filter_map(|(name, _)| place(name)).take(2).collect()
    };
    release(plan, &columns);
    let Some(&first) = columns.first() else {
        plan.warnings.push("no column is a time; each row gets the time at which it is read".to_owned());
        return Ok(());
    };
    let name = plan.columns.get(first).map(|column| column.name.clone()).unwrap_or_default();
    let zone = around.hints.timezone.as_ref();
    let times = Times::of(columns, sample, (order, zone), around.any_date, around.now_ns)
        .map_err(|untimely| Unfit::Time(name.clone(), reason(&untimely, &name)))?;
    if rank(&name).is_none() && hinted.is_empty() {
        plan.notes.push(format!("column {name} is taken for the time"));
    }
    if !times.form().is_empty() {
        plan.notes.push(format!("times are read as {}", times.form()));
    }
    if times.zone_from != ZoneFrom::File {
        let whose = if times.zone_from == ZoneFrom::User {
            "as you say"
        } else {
            "this machine's; --timezone names another"
        };
        plan.notes.push(format!("times have no zone and are taken as {} ({whose})", times.zone.name()));
    }
    plan.times = Some(times);
    Ok(())
}

fn find(plan: &Plan, sample: &Sample) -> Vec<usize> {
    let is_open = |role: &Role| matches!(role, Role::Time | Role::Extra(_));
    let open =
        plan.columns.iter().enumerate().filter(|(_, column)| is_open(&column.role) && column.why.is_none());
    let open: Vec<(usize, Option<usize>, Kind)> =
        open.map(|(index, column)| (index, rank(&column.name), kind(sample, index))).collect();
    let mut named: Vec<(usize, usize, Kind)> =
        open.iter().filter_map(|(index, rank, kind)| Some(((*rank)?, *index, *kind))).collect();
    named.sort_by_key(|(rank, index, _)| (*rank, *index));
    let of = |wanted: Kind| named.iter().find(|(.., kind)| *kind == wanted).map(|(_, index, _)| *index);
    let any = |wanted: Kind| open.iter().find(|(.., kind)| *kind == wanted).map(|(index, ..)| *index);
    if let Some(index) = of(Kind::Instant) {
        return vec![index];
    }
    if let (Some(date), Some(time)) =
        (of(Kind::Date).or_else(|| any(Kind::Date)), of(Kind::OfDay).or_else(|| any(Kind::OfDay)))
    {
        return vec![date, time];
    }
    // What is called a time and cannot be read is an error, unless another column is one whatever it is called.
    let unnamed = open
        .iter()
        .find(|(index, rank, kind)| rank.is_none() && *kind == Kind::Instant && !are_numbers(sample, *index));
    let by_name = named.first().map(|(_, index, _)| *index);
    of(Kind::Date).or_else(|| unnamed.map(|(index, ..)| *index)).or(by_name).into_iter().collect()
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

/// How reliably a name is that of a time, if it is one at all.
fn rank(name: &str) -> Option<usize> {
    const UNITS: [&str; 8] = ["_s", "_ms", "_us", "_ns", "_sec", "_seconds", "_utc", "_local"];
    let fold = |c: char| if matches!(c, '-' | ' ' | '.' | '/') { '_' } else { c.to_ascii_lowercase() };
    let bare = name.trim().trim_start_matches('#').split(['[', '(']).next().unwrap_or_default().trim();
    let folded: String = bare.chars().map(fold).collect();
    let of = |name: &str| NAMES.iter().position(|known| *known == name);
    let without = UNITS.iter().find_map(|unit| of(folded.strip_suffix(unit)?));
    of(&folded).or(without).or_else(|| folded.ends_with("timestamp").then_some(NAMES.len()))
}

fn kind(sample: &Sample, column: usize) -> Kind {
    let (mut all, mut instants, mut dates, mut of_day) = (0_u32, 0_u32, 0_u32, 0_u32);
    for text in sample.cells(column).filter(|text| !text.is_empty()).take(CELLS_MAX) {
        all += 1;
        let is_date = Written::read(text, DateOrder::Open).is_some() || Written::shows(text).is_some();
        let is_number = text.parse::<f64>().is_ok();
        if (is_date && text.contains(':')) || (is_number && (!is_date || text.len() > 8)) {
            instants += 1;
        } else if is_date {
            dates += 1;
        } else if text.contains(':')
            && Written::read(&format!("2000-01-01 {text}"), DateOrder::Open).is_some()
        {
            of_day += 1;
        }
    }
    let most = |count: u32| count * 2 > all;
    if most(instants) {
        Kind::Instant
    } else if most(dates) {
        Kind::Date
    } else if most(of_day) {
        Kind::OfDay
    } else {
        Kind::Other
    }
}

fn are_numbers(sample: &Sample, column: usize) -> bool {
    sample
        .cells(column)
        .filter(|text| !text.is_empty())
        .take(CELLS_MAX)
        .all(|text| text.parse::<f64>().is_ok())
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
        Untimely::OfDay(text) => format!(
            "{:?} is a time of day without a date; add a column for the date, or replay it as if it began now with --times now",
            shortened(text)
        ),
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(64).collect()
}
