//! Steps of a batch job, by the rows of `jobs` that the hosts of their processes tell.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;

use super::batch_jobs::{TOLD_AGAIN_NS, WHOLE, told, whole_number};
use crate::batch::numbers;
use crate::{Batch, IdentityColumn};

/// What is known of a step on one host.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct StepOnHost {
    /// What the batch system calls the step: its number, or `batch`.
    pub step: Arc<str>,
    /// Name of the host that it runs on.
    pub host: Arc<str>,
    as_of_ns: i64,
    /// When it was first seen there, nanoseconds UTC since 1970.
    pub start_ns: Option<i64>,
    /// When it was not there any more; none: it runs, or that is not known.
    pub end_ns: Option<i64>,
    /// The GPUs that it may use there, as the batch system calls them: numbers on the host, or UUIDs. Empty: not known.
    pub gpus: BTreeSet<Arc<str>>,
}

/// Takes the rows about the steps of one job.
#[derive(Debug, Default)]
pub struct JobSteps {
    /// Each row, with its cluster: they join when all are there, so that their order is of no matter.
    rows: Vec<(Option<Arc<str>>, StepOnHost)>,
}

impl StepOnHost {
    /// Whether it runs at an instant, nanoseconds UTC since 1970; none: nobody has told of it for long.
    pub fn runs(&self, at_ns: i64) -> Option<bool> {
        let is_told = || at_ns.saturating_sub(self.as_of_ns) <= TOLD_AGAIN_NS;
        let has_ended = self.end_ns.is_some_and(|end_ns| end_ns <= at_ns);
        if has_ended { Some(false) } else { is_told().then_some(true) }
    }

    /// The same as a later row has it. A step that had ended and is there again is that of the job's next run.
    fn then(self, later: Self) -> Self {
        let is_same_run = self.end_ns.is_none();
        let first_ns = self.start_ns.filter(|_| is_same_run);
        let start_ns = first_ns.into_iter().chain(later.start_ns).min();
        let gpus = if later.gpus.is_empty() && is_same_run { self.gpus } else { later.gpus };
        Self { start_ns, gpus, ..later }
    }
}

impl JobSteps {
    /// The columns of `jobs` that they are made of.
    pub fn columns() -> impl Iterator<Item = &'static str> {
        ["job_id", "step", "told_by", "as_of_ns", "start_ns", "end_ns", "gpus"].into_iter()
    }

    /// Adds rows of `jobs` about one job. Says how many are about steps: no other one is taken.
    pub fn add(&mut self, batch: &Batch) -> usize {
        let before = self.rows.len();
        let column = |name: &str| batch.records().column_by_name(name);
        let text = |name: &str| column(name).and_then(|column| column.as_dictionary_opt::<Int32Type>());
        let number = |name: &str| column(name).and_then(numbers);
        let (steps, gpus) = (text("step"), text("gpus"));
        let (as_of, start, end) = (number("as_of_ns"), number("start_ns"), number("end_ns"));
        let cluster = batch.identity_column(IdentityColumn::Cluster);
        let host = batch.identity_column(IdentityColumn::Node);
        for row in 0..batch.rows() {
            let step = told(steps, row).filter(|step| *step != WHOLE);
            let Some((step, as_of_ns)) = step.zip(whole_number(as_of, row)) else { continue };
            let names = told(gpus, row).unwrap_or_default().split(',').map(str::trim);
            let on_host = StepOnHost {
                step: Arc::from(step),
                host: Arc::from(told(host, row).unwrap_or_default()),
                as_of_ns,
                start_ns: whole_number(start, row),
                end_ns: whole_number(end, row),
                gpus: names.filter(|name| !name.is_empty()).map(Arc::from).collect(),
            };
            self.rows.push((told(cluster, row).map(Arc::from), on_host));
        }
        self.rows.len() - before
    }

    /// Those of the job of this cluster, by step and host.
    pub fn of(self, cluster: Option<&str>) -> Vec<StepOnHost> {
        let of_cluster = self.rows.into_iter().filter(|(known, _)| known.as_deref() == cluster);
        let mut rows: Vec<StepOnHost> = of_cluster.map(|(_, row)| row).collect();
        rows.sort();
        let mut steps: Vec<StepOnHost> = Vec::new();
        for row in rows {
            match steps.pop() {
                Some(before) if (&before.step, &before.host) == (&row.step, &row.host) => {
                    steps.push(before.then(row));
                }
                before => {
                    steps.extend(before);
                    steps.push(row);
                }
            }
        }
        steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Value;
    use crate::time::{HOUR_NS, MINUTE_NS};
    use crate::{BatchBuilder, Identity, Origin, Table};

    const NOW_NS: i64 = 1_000 * HOUR_NS;

    /// A row: step, host, and minutes: as of when, since when, until when; GPUs.
    type Told<'a> = (&'a str, &'a str, i64, i64, Option<i64>, &'a str);

    /// Step and host, minutes of its begin and end, GPUs.
    type Found = (String, Option<i64>, Option<i64>, Vec<String>);

    fn add(steps: &mut JobSteps, rows: &[Told<'_>]) {
        let at = |minute: i64| Value::Int(NOW_NS + minute * MINUTE_NS);
        for (step, host, as_of, start, end, gpus) in rows {
            let mut builder = BatchBuilder::new(Table::Jobs);
            let identity = Identity::default().with(IdentityColumn::Node, host).unwrap();
            let identity = builder.intern(&identity);
            let row = builder.row(NOW_NS, identity);
            let texts = [("job_id", "7"), ("step", *step), ("told_by", "cgroup"), ("gpus", *gpus)];
            for (column, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
                builder.set_extra_text(row, column, text).unwrap();
            }
            let times = [("as_of_ns", *as_of), ("start_ns", *start)];
            for (column, minute) in times.into_iter().chain(end.map(|end| ("end_ns", end))) {
                builder.set_extra(row, column, at(minute)).unwrap();
            }
            steps.add(&builder.finish(Origin::default(), 1).unwrap());
        }
    }

    #[test]
    fn rows_of_a_step_join_in_whatever_order_they_come() {
        let rows: &[Told<'_>] = &[
            ("0", "n1", 0, 0, None, ""),
            // An agent that starts again sees it later.
            ("0", "n1", 5, 4, None, "0,1"),
            ("0", "n1", 9, 4, Some(9), ""),
            ("0", "n2", 5, 1, None, "2"),
            // The job was put back into the queue.
            ("batch", "n1", 8, 0, Some(8), "0,1"),
            ("batch", "n1", 20, 20, None, "2,3"),
            ("whole", "n1", 20, 0, None, "0,1,2,3"),
        ];
        for turn in 0..rows.len() {
            let mut turned = rows.to_vec();
            turned.rotate_left(turn);
            let mut steps = JobSteps::default();
            add(&mut steps, &turned);
            let minute = |at_ns: Option<i64>| at_ns.map(|at_ns| (at_ns - NOW_NS) / MINUTE_NS);
            let found: Vec<Found> = steps
                .of(None)
                .iter()
                .map(|step| {
                    let gpus = step.gpus.iter().map(ToString::to_string).collect();
                    (format!("{} {}", step.step, step.host), minute(step.start_ns), minute(step.end_ns), gpus)
                })
                .collect();
            let of = |name: &str, start: i64, end: Option<i64>, gpus: &[&str]| -> Found {
                (name.to_owned(), Some(start), end, gpus.iter().map(|gpu| (*gpu).to_owned()).collect())
            };
            assert_eq!(
                found,
                [
                    of("0 n1", 0, Some(9), &["0", "1"]),
                    of("0 n2", 1, None, &["2"]),
                    of("batch n1", 20, None, &["2", "3"]),
                ],
                "turn {turn}"
            );
        }
    }

    #[test]
    fn a_step_that_nobody_has_told_of_for_long_may_run_or_not() {
        let mut steps = JobSteps::default();
        add(&mut steps, &[("0", "n1", 5, 0, None, ""), ("1", "n1", 5, 0, Some(4), "")]);
        let of = |minute: i64| {
            let mut again = JobSteps::default();
            again.rows.clone_from(&steps.rows);
            let found = again.of(None);
            found.iter().map(|step| step.runs(NOW_NS + minute * MINUTE_NS)).collect::<Vec<_>>()
        };
        assert_eq!(of(6), [Some(true), Some(false)]);
        assert_eq!(of(60), [None, Some(false)]);
    }
}
