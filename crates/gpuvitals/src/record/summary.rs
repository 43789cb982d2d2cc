//! The summary at the end, as text for people.

use std::collections::BTreeMap;

use gpuvitals_analysis::summary::{EnergyFigure, Extent, HostSummary, simulated_words};
use gpuvitals_core::energy::EnergyErrorPart;
use gpuvitals_record::{RecordSummary, RecordedGpu};

use crate::table::with_numbers;

pub(crate) use super::words::{bytes, count};

/// A table of the GPUs, the sources of their energy, and a line of the host.
pub(super) fn text(summary: &RecordSummary) -> String {
    let mut text = String::new();
    let mut line = |words: String| {
        text.push_str(words.trim_end());
        text.push('\n');
    };
    line(format!(
        "recorded {} rows of GPUs, {} of the host, {} marks to {} ({})",
        count(summary.gpu_rows),
        count(summary.system_rows),
        summary.marks,
        summary.directory,
        bytes(summary.bytes)
    ));
    if !summary.gpus.is_empty() {
        table(&summary.gpus).lines().map(str::to_owned).for_each(&mut line);
    }
    simulated_words(summary.gpus.iter().map(|gpu| &gpu.summary)).into_iter().for_each(&mut line);
    for (reason, names) in alike(&summary.gpus, |energy| Some(reason(energy))) {
        line(format!("energy of {}: {reason}", names.join(", ")));
    }
    for (error, names) in alike(&summary.gpus, error) {
        line(format!("error of the energy of {}: {error}", names.join(", ")));
    }
    if let Some(host) = &summary.host {
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

fn name(gpu: &RecordedGpu, gpus: &[RecordedGpu]) -> String {
    gpu.summary.name_among(gpus.iter().map(|gpu| &gpu.summary))
}

/// What there is to say of the energy, and the GPUs it applies to.
fn alike(
    gpus: &[RecordedGpu],
    say: fn(Option<&EnergyFigure>) -> Option<String>,
) -> BTreeMap<String, Vec<String>> {
    let mut said: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for gpu in gpus {
        if let Some(words) = say(gpu.summary.energy.as_ref()) {
            said.entry(words).or_default().push(name(gpu, gpus));
        }
    }
    said
}

/// Source of the energy, and its reason.
fn reason(energy: Option<&EnergyFigure>) -> String {
    energy.map_or_else(|| "not known, neither power nor a counter was read".to_owned(), EnergyFigure::origin)
}

/// How far the energy may be off, by what, which peaks the sensor does not show, and how much of the time it looks; nothing without
/// energy.
fn error(energy: Option<&EnergyFigure>) -> Option<String> {
    let energy = energy?;
    let Some(interval) = &energy.interval else { return Some(energy.error.clone()) };
    let part = |part: &EnergyErrorPart| format!("{} {:.1}", part.part.name(), part.share * 100.0);
    let parts: Vec<String> = interval.parts.iter().map(part).collect();
    let looks = if interval.seen_share < 1.0 {
        format!(", and the sensor looks for {:.0} % of the time", interval.seen_share * 100.0)
    } else {
        String::new()
    };
    Some(format!(
        "{} ({}); peaks shorter than {:.0} ms are unknown{looks}",
        energy.error,
        parts.join(", "),
        interval.peaks_unknown_below_s * 1e3
    ))
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
    use gpuvitals_core::energy::{EnergyErrorCause, EnergyInterval, EnergySource};

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
    fn the_error_of_an_energy_is_told_with_its_parts_or_as_not_known() {
        let figure = |error: &str, interval| EnergyFigure {
            joules: 1_000.0,
            source: EnergySource::Integrated,
            reason: String::new(),
            power_seen_s: 10.0,
            error: error.to_owned(),
            interval,
        };
        let part = |part, share| EnergyErrorPart { part, joules: 1_000.0 * share, share, source: "" };
        let interval = EnergyInterval {
            low_j: 940.0,
            high_j: 1_060.0,
            share: 0.06,
            has_gaps: false,
            parts: vec![part(EnergyErrorCause::Gain, 0.05), part(EnergyErrorCause::Delay, 0.033)],
            period_s: 0.1,
            window_s: 0.025,
            timing_source: "",
            seen_share: 0.25,
            peaks_unknown_below_s: 0.125,
        };
        let known = error(Some(&figure("± 6.0 %", Some(interval)))).unwrap();
        let wanted = "± 6.0 % (gain 5.0, delay 3.3); peaks shorter than 125 ms are unknown, and the sensor looks for 25 % of the time";
        assert_eq!(known, wanted);
        assert_eq!(error(Some(&figure("not known: why", None))).unwrap(), "not known: why");
        assert_eq!(error(None), None, "without energy there is nothing to err");
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
