//! The summary at the end, for people and for programs.

use std::collections::BTreeMap;

use gpuvitals_analysis::summary::{Extent, GpuSummary, HostSummary, Summary};
use gpuvitals_core::energy::EnergySource;
use gpuvitals_record::Recorded;
use gpuvitals_sources::sampler::WorkerStats;
use gpuvitals_sources::settings::Sampling;
use serde::Serialize;

use super::words::kept;
use crate::table::with_numbers;

pub(crate) use super::words::{bytes, count};

/// The report about a recording.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// Directory of the files.
    directory: String,
    /// Samples of a GPU a second, as asked.
    rate_hz: f64,
    /// Samples of the host a second, as asked.
    system_rate_hz: f64,
    /// Rows of `gpu_events.parquet`.
    gpu_rows: u64,
    /// Rows of `system_events.parquet`.
    system_rows: u64,
    /// Rows of `marks.parquet`.
    marks: u64,
    /// Marks that were not taken.
    marks_dropped: u64,
    /// Rows that the disk did not keep up with.
    rows_dropped: u64,
    /// Rows that are in the files but not in this summary: GPUs without a name, or more devices than it is made for.
    rows_left_out: u64,
    /// Size of the files.
    bytes: u64,
    /// Exit code of the command, if one was recorded.
    exit_code: Option<u8>,
    gpus: Vec<Gpu>,
    host: Option<HostSummary>,
}

#[derive(Debug, Serialize)]
struct Gpu {
    #[serde(flatten)]
    summary: GpuSummary,
    /// How often the driver's values really changed; never finer than the sampling interval.
    update_interval_s: Option<f64>,
    /// Ticks of its worker that were skipped.
    ticks_missed: Option<u64>,
    /// Share of the ticks that were made.
    rate_kept: Option<f64>,
    /// Readings that gave no row because the driver's snapshot was the same.
    repeats: Option<u64>,
    /// Below which 99 % of the ticks began late, seconds.
    lateness_p99_s: Option<f64>,
}

impl Report {
    pub(super) fn new(
        recorded: &Recorded,
        summary: &Summary,
        sampling: &Sampling,
        exit_code: Option<u8>,
    ) -> Self {
        let progress = &recorded.progress;
        let gpu = |summary: GpuSummary| {
            let worker = progress
                .workers
                .iter()
                .find(|worker| worker.targets.iter().any(|target| **target == *summary.id));
            let target = progress.targets.iter().find(|target| *target.name() == *summary.id);
            let told = |read: fn(&WorkerStats) -> u64| worker.map(read);
            Gpu {
                update_interval_s: target
                    .and_then(|target| target.update_interval)
                    .map(|interval| interval.as_secs_f64()),
                ticks_missed: told(|worker| worker.ticks_missed),
                rate_kept: worker.map(|worker| kept(&[worker])),
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
    pub(super) fn json(&self) -> String {
        // Names and numbers: nothing in it can fail.
        let value = serde_json::to_value(self).unwrap_or_default();
        format!("{value:#}\n")
    }

    /// A table of the GPUs, the sources of their energy, and a line of the host.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        let mut line = |words: String| {
            text.push_str(words.trim_end());
            text.push('\n');
        };
        line(format!(
            "recorded {} rows of GPUs, {} of the host, {} marks to {} ({})",
            count(self.gpu_rows),
            count(self.system_rows),
            self.marks,
            self.directory,
            bytes(self.bytes)
        ));
        if !self.gpus.is_empty() {
            table(&self.gpus).lines().map(str::to_owned).for_each(&mut line);
        }
        for (reason, names) in reasons(&self.gpus) {
            line(format!("energy of {}: {reason}", names.join(", ")));
        }
        if let Some(host) = &self.host {
            line(host_line(host));
        }
        text
    }
}

const HEADINGS: [&str; 13] = [
    "gpu",
    "model",
    "seconds",
    "rows",
    "kept %",
    "update ms",
    "energy J",
    "W mean/p99/max",
    "MHz mean/min/max",
    "throttled s",
    "busy %",
    "peak MiB",
    "°C max",
];

/// A heading, and a line for each GPU.
fn table(gpus: &[Gpu]) -> String {
    let mut rows = vec![Vec::from(HEADINGS.map(str::to_owned))];
    rows.extend(gpus.iter().map(|gpu| Vec::from(cells(gpu, name(gpu, gpus)))));
    with_numbers(&rows, 2)
}

fn cells(gpu: &Gpu, name: String) -> [String; 13] {
    let summary = &gpu.summary;
    let dash = || "-".to_owned();
    let spread = |spread: Option<Extent>| {
        spread.map_or_else(dash, |s| format!("{:.0}/{:.0}/{:.0}", s.mean, s.min, s.max))
    };
    [
        name,
        summary.model.clone().or_else(|| summary.pci.clone()).unwrap_or_else(|| summary.id.clone()),
        format!("{:.1}", summary.duration_s),
        count(summary.samples),
        gpu.rate_kept.map_or_else(dash, |kept| format!("{:.2}", kept * 100.0)),
        gpu.update_interval_s.map_or_else(dash, |interval| format!("{:.0}", interval * 1e3)),
        summary.energy.as_ref().map_or_else(dash, |energy| format!("{:.1}", energy.joules)),
        summary.power_w.map_or_else(dash, |w| format!("{:.0}/{:.0}/{:.0}", w.mean, w.p99, w.max)),
        spread(summary.gpu_clock_mhz),
        summary
            .throttled
            .map_or_else(dash, |held| format!("{:.1} ({:.0} %)", held.seconds, held.share * 100.0)),
        summary.utilization_pct.map_or_else(dash, |busy| format!("{:.0}", busy.mean)),
        summary.memory_used_max_mb.map_or_else(dash, |peak| format!("{peak:.0}")),
        summary.temperature_c.map_or_else(dash, |heat| format!("{:.0}", heat.max)),
    ]
}

/// Its index, or its key if the index is not unique: an instance has that of its GPU, and each vendor counts
/// from 0.
fn name(gpu: &Gpu, gpus: &[Gpu]) -> String {
    let index = gpu.summary.gpu;
    let is_shared = gpus.iter().filter(|other| other.summary.gpu == index).count() > 1;
    index.filter(|_| !is_shared).map_or_else(|| gpu.summary.id.clone(), |index| index.to_string())
}

/// Source and reason of the energy, and the GPUs they apply to.
fn reasons(gpus: &[Gpu]) -> BTreeMap<String, Vec<String>> {
    let mut reasons: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for gpu in gpus {
        let reason = match &gpu.summary.energy {
            None => "not known, neither power nor a counter was read".to_owned(),
            Some(energy) => {
                let from = match energy.source {
                    EnergySource::Counter => "by the hardware's counter",
                    EnergySource::Integrated => "integrated from power",
                };
                format!("{from}; {}", energy.reason)
            }
        };
        reasons.entry(reason).or_default().push(name(gpu, gpus));
    }
    reasons
}

fn host_line(host: &HostSummary) -> String {
    let number = |value: Option<f64>, unit: &str| {
        value.map_or_else(|| format!("- {unit}"), |value| format!("{value:.0} {unit}"))
    };
    let cpu = host.cpu_pct.map_or_else(
        || "cpu -".to_owned(),
        |cpu| format!("cpu {:.1} % mean, {:.1} % max", cpu.mean, cpu.max),
    );
    format!(
        "host {}: {cpu}, memory {} at most, {}, {}, {}",
        host.node.as_deref().unwrap_or("-"),
        number(host.memory_max_mb, "MiB"),
        number(host.ctx_switches_per_s, "context switches/s"),
        number(host.page_faults_per_s, "page faults/s"),
        number(host.irqs_per_s, "interrupts/s")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(id: &str, index: Option<i32>) -> Gpu {
        let summary = GpuSummary {
            id: id.to_owned(),
            gpu: index,
            node: None,
            model: None,
            pci: None,
            driver: None,
            duration_s: 0.0,
            samples: 0,
            rate_hz: None,
            gaps: 0,
            gaps_s: 0.0,
            energy: None,
            power_w: None,
            gpu_clock_mhz: None,
            mem_clock_mhz: None,
            temperature_c: None,
            throttled: None,
            utilization_pct: None,
            memory_used_max_mb: None,
        };
        Gpu {
            summary,
            update_interval_s: None,
            ticks_missed: None,
            rate_kept: None,
            repeats: None,
            lateness_p99_s: None,
        }
    }

    #[test]
    fn gpus_of_one_index_go_by_their_keys() {
        let gpus = [gpu("GPU-a", Some(0)), gpu("MIG-b", Some(0)), gpu("GPU-c", Some(1)), gpu("GPU-d", None)];
        let names: Vec<_> = gpus.iter().map(|gpu| name(gpu, &gpus)).collect();
        assert_eq!(names, ["GPU-a", "MIG-b", "1", "GPU-d"]);
        assert!(table(&gpus).lines().nth(2).is_some_and(|line| line.starts_with("MIG-b ")));
    }

    #[test]
    fn numbers_are_grouped_and_sizes_have_units() {
        assert_eq!(
            (count(0), count(999), count(1_000), count(12_345_678)),
            ("0".into(), "999".into(), "1,000".into(), "12,345,678".into())
        );
        assert_eq!(
            (bytes(17), bytes(1_234), bytes(5_600_000)),
            ("17 B".into(), "1.2 kB".into(), "5.6 MB".into())
        );
    }
}
