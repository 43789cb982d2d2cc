//! The report at the end, as text for people.

use std::collections::BTreeMap;

use gpuvitals_analysis::summary::{Extent, HostSummary};
use gpuvitals_core::energy::EnergySource;
use gpuvitals_record::{RecordReport, RecordedGpu};

use crate::table::with_numbers;

pub(crate) use super::words::{bytes, count};

/// A table of the GPUs, the sources of their energy, and a line of the host.
pub(super) fn text(report: &RecordReport) -> String {
    let mut text = String::new();
    let mut line = |words: String| {
        text.push_str(words.trim_end());
        text.push('\n');
    };
    line(format!(
        "recorded {} rows of GPUs, {} of the host, {} marks to {} ({})",
        count(report.gpu_rows),
        count(report.system_rows),
        report.marks,
        report.directory,
        bytes(report.bytes)
    ));
    if !report.gpus.is_empty() {
        table(&report.gpus).lines().map(str::to_owned).for_each(&mut line);
    }
    for (reason, names) in reasons(&report.gpus) {
        line(format!("energy of {}: {reason}", names.join(", ")));
    }
    if let Some(host) = &report.host {
        line(host_line(host));
    }
    text
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
fn table(gpus: &[RecordedGpu]) -> String {
    let mut rows = vec![Vec::from(HEADINGS.map(str::to_owned))];
    rows.extend(gpus.iter().map(|gpu| Vec::from(cells(gpu, name(gpu, gpus)))));
    with_numbers(&rows, 2)
}

fn cells(gpu: &RecordedGpu, name: String) -> [String; 13] {
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
fn name(gpu: &RecordedGpu, gpus: &[RecordedGpu]) -> String {
    let index = gpu.summary.gpu;
    let is_shared = gpus.iter().filter(|other| other.summary.gpu == index).count() > 1;
    index.filter(|_| !is_shared).map_or_else(|| gpu.summary.id.clone(), |index| index.to_string())
}

/// Source and reason of the energy, and the GPUs they apply to.
fn reasons(gpus: &[RecordedGpu]) -> BTreeMap<String, Vec<String>> {
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
    use gpuvitals_analysis::summary::GpuSummary;

    use super::*;

    fn gpu(id: &str, index: Option<i32>) -> RecordedGpu {
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
        RecordedGpu {
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
