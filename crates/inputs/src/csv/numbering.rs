//! Whether the numbers of a column that is called `gpu`, `index` or `id` name GPUs: they may be a load, or count the rows.

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
}

/// Judges a column; none: its texts name GPUs, or nothing tells. `times` are the columns that may be times.
pub(super) fn judge(sample: &Sample, column: usize, times: &[usize]) -> Option<NoGpu> {
    let cells = || sample.cells(column).take(CELLS_MAX).filter(|text| absence(text).is_none());
    let number = |text: &str| text.trim_end_matches('%').trim_end().parse::<f64>().ok();
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
    let rows: Vec<(f64, Vec<&str>)> = {
        let mut clocks: Vec<_> = times.iter().map(|column| sample.cells(*column)).collect();
        let rows = sample.cells(column).take(CELLS_MAX).map(|text| {
            let clock = clocks.iter_mut().map(|cells| cells.next().unwrap_or_default()).collect();
            (number(text), clock)
        });
        rows.filter_map(|(number, clock)| Some((number?, clock))).collect()
    };
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
        }
    }
}
