//! Whether the numbers of a column that is called `gpu`, `index` or `id` name GPUs: they may be a load, or count the rows.

use std::collections::HashMap;

use gpuvitals_core::foreign::absence;
use gpuvitals_core::time;

use super::sample::Sample;

/// Cells that are looked at.
const CELLS_MAX: usize = 10_000;

/// A smaller number may be an index of a GPU whatever the other rows have.
const INDEX_MAX: u32 = 16;

/// Rows of one look at several GPUs, each of which the tool gives a time of its own, come within this.
const ONE_LOOK_NS: i64 = 1_000_000_000;

/// What a column is whose numbers name no GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoGpu {
    /// Shares of a hundred.
    Percent,
    /// They have fractions.
    Fractions,
    /// Each row has its own.
    RowNumbers,
    /// Whole numbers that change with each row.
    Values,
    /// Texts that say when.
    Times,
}

/// What a column stands beside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beside {
    /// The load of a CPU.
    Cpu,
    /// Nothing that tells of it.
    Others,
}

/// Judges a column; none: its texts name GPUs, or nothing tells. `times` are the columns that may be times.
pub(super) fn judge(sample: &Sample, column: usize, times: &[usize]) -> Option<NoGpu> {
    let cells = || sample.cells(column).take(CELLS_MAX).filter(|text| absence(text).is_none());
    // Numbers of instances between slashes are none.
    let begins_with_year = |text: &str| {
        let begun: Option<[u8; 5]> = text.as_bytes().first_chunk().copied();
        begun.is_some_and(|[year @ .., mark]| year.iter().all(u8::is_ascii_digit) && b"-/".contains(&mark))
    };
    if cells().any(|text| begins_with_year(text) && time::parse(text).is_ok()) {
        return Some(NoGpu::Times);
    }
    if cells().next().is_none() || !cells().all(|text| number(text).is_some()) {
        return None;
    }
    let is_share = |text: &str| number(text).is_some_and(|number| (0.0..=100.0).contains(&number));
    if cells().all(|text| text.ends_with('%')) {
        return Some(NoGpu::Percent);
    }
    if cells().any(|text| number(text).is_some_and(|number| number.fract() != 0.0)) {
        let is_ratio = cells().all(|text| number(text).is_some_and(|number| number <= 1.0));
        return Some(if cells().all(is_share) && !is_ratio { NoGpu::Percent } else { NoGpu::Fractions });
    }
    let rows = rows(sample, column, times);
    if times.is_empty() || is_one_look(&rows) || !are_distinct(&rows) {
        return None;
    }
    let mut numbers: Vec<f64> = rows.iter().map(|(number, _)| *number).collect();
    let counts = numbers.windows(2).all(|pair| matches!(pair, [one, next] if (next - one - 1.0).abs() < 0.5));
    let largest = numbers.iter().copied().fold(0.0, f64::max);
    numbers.sort_by(f64::total_cmp);
    numbers.dedup();
    match (rows.len(), numbers.len()) {
        (rows, _) if counts && rows >= 3 => Some(NoGpu::RowNumbers),
        (rows, distinct) if distinct * 2 > rows && distinct > 1 && largest >= f64::from(INDEX_MAX) => {
            Some(if cells().all(is_share) { NoGpu::Percent } else { NoGpu::Values })
        }
        _ => None,
    }
}

/// Whether the numbers of a column that is called `gpu` are loads that come again and again: each row has a time of its own, they
/// come in no turn, and they are too far apart for the GPUs of a machine. Beside the load of a CPU they may be close.
pub(super) fn is_load(sample: &Sample, column: usize, times: &[usize], beside: Beside) -> bool {
    let is_text = |text: &str| absence(text).is_none() && number(text).is_none();
    let rows = rows(sample, column, times);
    let is_share = |number: f64| (0.0..=100.0).contains(&number);
    if times.is_empty()
        || sample.cells(column).take(CELLS_MAX).any(is_text)
        || rows.iter().any(|(number, _)| !is_share(*number))
        || is_one_look(&rows)
        || !are_distinct(&rows)
        || is_in_turn(&rows)
    {
        return false;
    }
    let mut numbers: Vec<f64> = rows.iter().map(|(number, _)| *number).collect();
    numbers.sort_by(f64::total_cmp);
    numbers.dedup();
    let largest = numbers.last().copied().unwrap_or_default();
    let distinct = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
    let is_sparse = largest >= f64::from(INDEX_MAX) && f64::from(distinct) * 2.0 <= largest + 1.0;
    beside == Beside::Cpu || is_sparse
}

/// A cell's number, without a percent sign.
fn number(text: &str) -> Option<f64> {
    text.trim_end_matches('%').trim_end().parse().ok()
}

/// The numbers of a column, each with the texts of its row that may be its time.
fn rows<'a>(sample: &'a Sample, column: usize, times: &[usize]) -> Vec<(f64, Vec<&'a str>)> {
    let mut clocks: Vec<_> = times.iter().map(|column| sample.cells(*column)).collect();
    let rows = sample.cells(column).take(CELLS_MAX).map(|text| {
        let clock = clocks.iter_mut().map(|cells| cells.next().unwrap_or_default()).collect();
        (number(text), clock)
    });
    rows.filter_map(|(number, clock)| Some((number?, clock))).collect()
}

/// Whether each number is always followed by the same one, as GPUs are that are looked at in turn.
fn is_in_turn(rows: &[(f64, Vec<&str>)]) -> bool {
    let mut followers: HashMap<u64, u64> = HashMap::new();
    rows.windows(2).all(|pair| match pair {
        [(one, _), (next, _)] => *followers.entry(one.to_bits()).or_insert(next.to_bits()) == next.to_bits(),
        _ => true,
    })
}

/// Whether all rows are of one instant.
fn is_one_look(rows: &[(f64, Vec<&str>)]) -> bool {
    let at = |row: Option<&(f64, Vec<&str>)>| time::parse(&row?.1.join(" ")).ok();
    match (at(rows.first()), at(rows.last())) {
        (Some(first), Some(last)) => last.abs_diff(first) < ONE_LOOK_NS.unsigned_abs(),
        _ => rows.len() < 2,
    }
}

/// Whether no two rows have one time, as rows of several GPUs have.
fn are_distinct(rows: &[(f64, Vec<&str>)]) -> bool {
    rows.windows(2).all(|pair| matches!(pair, [(_, one), (_, next)] if one != next))
}

impl NoGpu {
    /// Why the column names no GPU.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::Percent => "its numbers are shares, not GPUs",
            Self::Fractions => "its numbers have fractions, which no GPU's number has",
            Self::RowNumbers => "its numbers count the rows, not GPUs",
            Self::Values => "its numbers change with each row, as no GPU's number does",
            Self::Times => "its texts are times, not GPUs",
        }
    }
}
