//! Runs are rows of one GPU and step, side by side.

use std::sync::Arc;

use gpuvitals_core::history::tally::Run;

/// Rows that are put together, each run into one, and the first run of each GPU.
pub(super) struct Runs {
    pub(super) runs: Vec<Run>,
    pub(super) gpus: Vec<(Arc<str>, usize)>,
}

impl Runs {
    /// Of merged rows. `gpus` has the first row of each GPU or host, `changes` those whose identity is another.
    pub(super) fn of(times: &[i64], gpus: &[(Arc<str>, usize)], changes: &[usize], step_ns: i64) -> Self {
        let mut runs: Vec<Run> = Vec::new();
        let mut firsts = Vec::with_capacity(gpus.len());
        let ends = gpus.iter().skip(1).map(|(_, start)| *start).chain([times.len()]);
        for ((key, start), end) in gpus.iter().zip(ends) {
            firsts.push((Arc::clone(key), runs.len()));
            let mut start = *start;
            while start < end {
                let until_ns =
                    time_at(times, start).div_euclid(step_ns).saturating_add(1).saturating_mul(step_ns);
                let of_step = times.get(start..end).unwrap_or_default();
                let next = start + of_step.partition_point(|time_ns| *time_ns < until_ns).max(1);
                let change = changes.get(changes.partition_point(|row| *row <= start)).copied();
                let run = Run {
                    place: runs.len(),
                    track: runs.len(),
                    start,
                    end: change.map_or(next, |change| change.min(next)),
                };
                start = run.end;
                runs.push(run);
            }
        }
        Self { runs, gpus: firsts }
    }
}

pub(super) fn time_at(times: &[i64], row: usize) -> i64 {
    times.get(row).copied().unwrap_or_default()
}
