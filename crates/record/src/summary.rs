//! What a recording has, and how well it was sampled: for people, for programs.

use gpuvitals_analysis::summary::{GpuSummary, HostSummary, Summary};
use gpuvitals_core::number::float;
use gpuvitals_sources::sampler::WorkerStats;
use gpuvitals_sources::settings::Sampling;
use serde::Serialize;

use crate::recorder::Recorded;

/// The summary of a recording.
#[derive(Debug, Serialize)]
pub struct RecordSummary {
    /// Directory of the files.
    pub directory: String,
    /// Samples of a GPU a second, as asked.
    pub rate_hz: f64,
    /// Samples of the host a second, as asked.
    pub system_rate_hz: f64,
    /// Rows of `gpu_events.parquet`.
    pub gpu_rows: u64,
    /// Rows of `system_events.parquet`.
    pub system_rows: u64,
    /// Rows of `marks.parquet`.
    pub marks: u64,
    /// Marks that were not taken.
    pub marks_dropped: u64,
    /// Rows that the disk did not keep up with.
    pub rows_dropped: u64,
    /// Rows that are in the files but not in this summary: GPUs without a name, or more devices than it is made for.
    pub rows_left_out: u64,
    /// Size of the files.
    pub bytes: u64,
    /// Exit code of the command, if one was recorded.
    pub exit_code: Option<u8>,
    /// Each GPU, in the order of the summary.
    pub gpus: Vec<RecordedGpu>,
    /// The host, if it has rows.
    pub host: Option<HostSummary>,
}

/// What a recording has of a GPU, and how it was sampled.
#[derive(Debug, Serialize)]
pub struct RecordedGpu {
    /// Its rows, summed up.
    #[serde(flatten)]
    pub summary: GpuSummary,
    /// How often the driver's values really changed; never finer than the sampling interval.
    pub update_interval_s: Option<f64>,
    /// Ticks of its worker that were skipped.
    pub ticks_missed: Option<u64>,
    /// Share of the ticks that were made.
    pub rate_kept: Option<f64>,
    /// Readings that gave no row because the driver's snapshot was the same.
    pub repeats: Option<u64>,
    /// Below which 99 % of the ticks began late, seconds.
    pub lateness_p99_s: Option<f64>,
}

impl RecordSummary {
    /// Of a recording that ended, with its rows summed up.
    pub fn new(recorded: &Recorded, summary: &Summary, sampling: &Sampling, exit_code: Option<u8>) -> Self {
        let progress = &recorded.progress;
        let gpu = |summary: GpuSummary| {
            let worker = progress
                .workers
                .iter()
                .find(|worker| worker.targets.iter().any(|target| **target == *summary.id));
            let target = progress.targets.iter().find(|target| *target.name() == *summary.id);
            let told = |read: fn(&WorkerStats) -> u64| worker.map(read);
            RecordedGpu {
                update_interval_s: target
                    .and_then(|target| target.update_interval)
                    .map(|interval| interval.as_secs_f64()),
                ticks_missed: told(|worker| worker.ticks_missed),
                rate_kept: worker.map(|worker| kept_share(&[worker])),
                repeats: told(|worker| worker.repeats),
                lateness_p99_s: worker
                    .and_then(|worker| worker.lateness.quantile(0.99))
                    .map(|late| late.as_secs_f64()),
                summary,
            }
        };
        Self {
            directory: recorded.directory.display().to_string(),
            rate_hz: sampling.rate,
            system_rate_hz: sampling.system_rate,
            gpu_rows: recorded.gpu_rows,
            system_rows: recorded.system_rows,
            marks: recorded.marks,
            marks_dropped: progress.marks_dropped,
            rows_dropped: progress.rows_dropped,
            rows_left_out: summary.left_out(),
            bytes: progress.bytes,
            exit_code,
            gpus: summary.gpus().into_iter().map(gpu).collect(),
            host: summary.hosts().into_iter().next(),
        }
    }

    /// One JSON object.
    pub fn json(&self) -> String {
        // Names and numbers: nothing in it can fail.
        let value = serde_json::to_value(self).unwrap_or_default();
        format!("{value:#}\n")
    }
}

/// Share of the ticks of these workers that were made, 0 to 1.
pub fn kept_share(workers: &[&WorkerStats]) -> f64 {
    let made: u64 = workers.iter().map(|worker| worker.ticks).sum();
    let missed: u64 = workers.iter().map(|worker| worker.ticks_missed).sum();
    if made == 0 { 0.0 } else { float(made) / float(made + missed) }
}
