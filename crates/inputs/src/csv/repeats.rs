//! Rows that have the GPU and time of an earlier row, and other values: they would replace it.

use std::collections::{HashMap, HashSet};

use gpuvitals_core::foreign;

use super::plan::{CsvForm, Plan, Role};
use super::sample::Sample;

/// Rows that are looked at.
const ROWS_MAX: usize = 20_000;
/// Different texts of a column that may tell GPUs or hosts apart.
const TEXTS_MAX: usize = 64;

/// Repeated rows of a sample.
#[derive(Debug)]
pub(super) struct Repeats {
    /// Rows that replace an earlier one.
    pub(super) rows: usize,
    /// Of so many that were looked at.
    pub(super) of: usize,
    /// A column that tells them apart.
    pub(super) column: Option<usize>,
    /// Most rows of one GPU and time.
    pub(super) most: u32,
    /// Whether half of the times of a GPU have several rows.
    pub(super) is_usual: bool,
    /// Whether these follow each other, too: times of a GPU go on.
    pub(super) is_steady: bool,
}

/// The rows of one GPU and time.
struct RepeatGroup<'a> {
    rows: Vec<usize>,
    values: Vec<&'a str>,
    differs: bool,
}

/// Looks for repeats among the first rows of a file in the wide form. `times` has their times.
pub(super) fn find(plan: &Plan, sample: &Sample, times: &[Option<i64>]) -> Option<Repeats> {
    // The rows of a time are put together there.
    if plan.form == CsvForm::Long || plan.is_of_processes {
        return None;
    }
    let subject = plan.subject();
    let is_value = |role: &Role| matches!(role, Role::Metric(_));
    let values: Vec<usize> = (0..plan.columns.len())
        .filter(|at| plan.columns.get(*at).is_some_and(|it| is_value(&it.role)))
        .collect();
    let mut subjects: HashMap<Vec<&str>, usize> = HashMap::new();
    let mut groups: HashMap<(usize, i64), RepeatGroup<'_>> = HashMap::new();
    let mut last: HashMap<usize, i64> = HashMap::new();
    let (mut is_steady, mut of) = (true, 0);
    let mut rows = sample.rows(&subject).zip(sample.rows(&values)).zip(times).take(ROWS_MAX).enumerate();
    for (row, ((whose, values), time_ns)) in rows.by_ref() {
        of = row + 1;
        let Some(time_ns) = *time_ns else { continue };
        let number = subjects.len();
        let subject = *subjects.entry(whose).or_insert(number);
        is_steady &= last.insert(subject, time_ns).is_none_or(|last| last <= time_ns);
        let group = groups.entry((subject, time_ns)).or_insert_with(|| RepeatGroup {
            rows: Vec::new(),
            values: values.clone(),
            differs: false,
        });
        let is_other = |(one, other): (&&str, &&str)| !one.is_empty() && !other.is_empty() && one != other;
        group.differs |= group.values.iter().zip(&values).any(is_other);
        group.rows.push(row);
    }
    let repeated: Vec<&RepeatGroup<'_>> = groups.values().filter(|group| group.differs).collect();
    let rows: usize = repeated.iter().map(|group| group.rows.len() - 1).sum();
    let most = groups.values().map(|group| group.rows.len()).max().unwrap_or(0);
    let is_usual = repeated.len() * 2 >= groups.len();
    let is_steady = is_steady && repeated.len() * 2 > groups.len();
    let column = (rows > 0).then(|| telling(plan, sample, &repeated, of, most)).flatten();
    (rows > 0).then(|| Repeats {
        rows,
        of,
        column,
        most: u32::try_from(most).unwrap_or(u32::MAX),
        is_usual,
        is_steady,
    })
}

/// A column that nothing is known of, with few texts, each once among the rows of one GPU and time.
fn telling(
    plan: &Plan,
    sample: &Sample,
    repeated: &[&RepeatGroup<'_>],
    rows: usize,
    most: usize,
) -> Option<usize> {
    let is_open = |index: &usize| {
        plan.columns.get(*index).is_some_and(|it| matches!(it.role, Role::Extra(_)) && it.why.is_none())
    };
    let tells = |index: &usize| {
        let texts: Vec<&str> = sample.cells(*index).take(rows).collect();
        let distinct: HashSet<&str> = texts.iter().copied().collect();
        let is_few = (2..=TEXTS_MAX.min(2 * most)).contains(&distinct.len());
        is_few
            && !texts.iter().any(|text| text.is_empty())
            && repeated.iter().all(|group| {
                let mut seen = HashSet::new();
                group.rows.iter().all(|row| texts.get(*row).is_some_and(|text| seen.insert(*text)))
            })
    };
    (0..plan.columns.len()).filter(is_open).find(tells)
}

/// How many rows come together again and again, as a tool writes those of several GPUs one after another: within a tenth of a
/// second, with a longer time before the next.
pub(super) fn bursts(times: &[Option<i64>]) -> Option<usize> {
    const TOGETHER_NS: i64 = 100_000_000;
    /// The time between two bursts is so many times that within one.
    const CLEARLY: i64 = 4;
    const BURSTS_MIN: usize = 3;
    let times: Vec<i64> = times.iter().flatten().copied().take(ROWS_MAX).collect();
    let (mut lens, mut within, mut between) = (vec![1_usize], 0, i64::MAX);
    for (one, next) in times.iter().zip(times.iter().skip(1)) {
        let step = next - one;
        if (0..TOGETHER_NS).contains(&step) {
            within = within.max(step);
            lens.last_mut().map(|len| *len += 1)?;
        } else {
            between = between.min(step);
            lens.push(1);
        }
    }
    // The last may be cut.
    lens.pop();
    let most = lens.iter().copied().max()?;
    let alike = lens.iter().filter(|len| **len == most).count();
    let is_several = (2..=TEXTS_MAX).contains(&most) && lens.len() >= BURSTS_MIN;
    (is_several && alike * 10 >= lens.len() * 9 && between / CLEARLY >= within.max(1) && within > 0)
        .then_some(most)
}

impl Repeats {
    /// What to do, in a sentence.
    pub(super) fn sentence(&self, plan: &Plan) -> String {
        let (rows, of) = (self.rows, self.of);
        let whose =
            self.column.and_then(|column| plan.columns.get(column)).map(|column| column.name.as_str());
        let rest = match whose {
            Some(name) => {
                let what = if foreign::names_host(name) { "host" } else { "gpu" };
                format!("column {name} tells them apart: --column \"{name}={what}\" if it is the {what}")
            }
            None => {
                "if the file is of several GPUs, name the column that tells them apart: --column NAME=gpu"
                    .to_owned()
            }
        };
        format!(
            "{rows} of the first {of} rows have the GPU and time of an earlier row, and replace it; {rest}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_come_together_again_and_again_are_of_several_gpus() {
        let of = |ms: &[i64]| bursts(&ms.iter().map(|ms| Some(ms * 1_000_000)).collect::<Vec<_>>());
        assert_eq!(of(&[0, 5, 10, 1000, 1004, 1010, 2001, 2007, 2011, 3000, 3005, 3010]), Some(3));
        // A row each 10 ms, or each second; pairs by chance.
        assert_eq!(of(&[0, 10, 20, 30, 40, 50, 60, 70]), None);
        assert_eq!(of(&[0, 1000, 2000, 3000, 4000]), None);
        assert_eq!(of(&[0, 50, 1000, 2000, 3000, 3050, 4000]), None);
    }
}
