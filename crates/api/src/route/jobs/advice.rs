//! Advice with a number, only where it is safe: GPUs that a job had from its begin to its end and never used.

use gpuvitals_core::integral::seconds;
use gpuvitals_core::usage::{BatchJob, Holding, HoldingSums};

use crate::dto::JobAdvice;

/// The part of a job's time of which it must be known that a GPU did nothing: an agent that was away may have missed work.
const SEEN_SHARE: f64 = 0.95;
/// Sums of whole nanoseconds that differ by less are the same, seconds.
const SAME_S: f64 = 1e-3;
/// A GPU with more memory in use may hold data for the others: what a process needs of each GPU that it sees is below, MB.
const MEMORY_MAX_MB: f64 = 2_048.0;
/// Fewer GPU hours are not worth a word.
const SAVED_MIN_HOURS: f64 = 0.1;

/// What a job that is over could have done without. `gpus` is what it had of each GPU in a range that began at this instant, nanoseconds
/// UTC since 1970.
pub(super) fn advice(gpus: &[Holding], job: &BatchJob, range_start_ns: i64) -> Option<JobAdvice> {
    let (start_ns, end_ns) = job.start_ns.zip(job.end_ns)?;
    // Before the range it may have worked, and of a part of an hour only a part of the sums is known.
    let is_whole = start_ns >= range_start_ns && !gpus.iter().any(|gpu| gpu.sums.is_interpolated());
    let length_s = seconds(end_ns.saturating_sub(start_ns));
    if !is_whole || length_s <= 0.0 {
        return None;
    }
    let idle: Vec<&Holding> = gpus.iter().filter(|gpu| did_nothing(&gpu.sums, length_s)).collect();
    let saved_gpu_hours = idle.iter().map(|gpu| gpu.sums.held_s).sum::<f64>() / 3_600.0;
    if saved_gpu_hours < SAVED_MIN_HOURS {
        return None;
    }
    let (all, idle_gpus) = (gpus.len(), idle.len());
    let (found, without) = match all - idle_gpus {
        0 if all == 1 => ("its GPU never".to_owned(), "without it".to_owned()),
        0 => (format!("none of its {all} GPUs ever"), "without GPUs".to_owned()),
        used => (format!("{idle_gpus} of {all} GPUs never"), format!("with {used}")),
    };
    let text =
        format!("{found} passed 1 %; {without} this job would have saved {saved_gpu_hours:.1} GPU hours");
    Some(JobAdvice { text, gpus: all, idle_gpus, saved_gpu_hours })
}

/// Whether it is known of a GPU that it did nothing while a job of this length had it for itself.
fn did_nothing(sums: &HoldingSums, length_s: f64) -> bool {
    let is_idle = sums
        .idle_s
        .zip(sums.known_s())
        .is_some_and(|(idle_s, known_s)| known_s >= SEEN_SHARE * length_s && idle_s >= known_s - SAME_S);
    is_idle && sums.shared_s <= 0.0 && sums.memory_max_mb.is_some_and(|used_mb| used_mb <= MEMORY_MAX_MB)
}
