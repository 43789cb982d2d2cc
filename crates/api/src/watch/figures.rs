//! The findings as figures for `/metrics`: how many of each kind, and which GPUs of which job are stragglers or do nothing.

use std::collections::BTreeMap;

use gpuvitals_analysis::condition::Severity;
use gpuvitals_analysis::findings::{FleetFinding, KINDS};
use gpuvitals_core::figures::{Family, Kind, Labels, Number};
use gpuvitals_core::number::float;

use super::Judgement;

/// Most GPUs of which each figure names GPU and job.
const NAMED_MAX: usize = 500;

/// The figures of a judgement.
pub(super) fn families(judgement: &Judgement) -> Vec<Family> {
    let mut counts: BTreeMap<(&str, Severity), u64> =
        KINDS.iter().map(|kind| ((kind.id, kind.severity), 0)).collect();
    for (finding, _) in &judgement.findings {
        *counts.entry((finding.kind.id, finding.severity)).or_default() += 1;
    }
    let help = "Findings that are open, by kind and severity.";
    let mut family = Family::new("gpuvitals_findings", Kind::Gauge, help);
    for ((kind, severity), count) in counts {
        let labels = vec![("kind", kind.to_owned()), ("severity", severity.name().to_owned())];
        family = family.with(labels, Number::from(count));
    }
    let at_s = float(judgement.at_ns) / 1e9;
    let help = "When the fleet was last judged, seconds since 1970.";
    let judged = Family::gauge("gpuvitals_findings_judged_timestamp_seconds", help, at_s);
    let of_gpu = |name: &'static str, help: &'static str| Family::new(name, Kind::Gauge, help);
    let help = "Clock of a straggler as a share of the median of its job, by GPU and job; of the 500 worst.";
    let stragglers =
        of_gpus(judgement, &["straggler"], of_gpu("gpuvitals_straggler_clock_ratio", help), clock_share);
    let help = "How long a job has held GPUs that do nothing, for each of them; of 500 GPUs. Since the first of them stopped (`idle_held`), \
                or the last (`job_stalled`).";
    let idle = of_gpus(
        judgement,
        &["idle_held", "job_stalled"],
        of_gpu("gpuvitals_idle_held_seconds", help),
        |finding| Some(float(judgement.at_ns.saturating_sub(finding.since_ns)) / 1e9),
    );
    vec![family, judged, stragglers, idle]
}

/// The family with a figure of each GPU of the findings of these kinds, the worst first; of some at most.
fn of_gpus(
    judgement: &Judgement,
    kinds: &[&str],
    family: Family,
    value: impl Fn(&FleetFinding) -> Option<f64>,
) -> Family {
    let findings = judgement.findings.iter().map(|(finding, _)| finding);
    let of_kinds = findings.filter(|finding| kinds.contains(&finding.kind.id));
    let samples = of_kinds.flat_map(|finding| {
        let value = value(finding);
        finding.reach.gpus.iter().filter_map(move |gpu| Some((labels(gpu, finding), value?)))
    });
    samples.take(NAMED_MAX).fold(family, |family, (labels, value)| family.with(labels, Number::from(value)))
}

fn labels(gpu: &str, finding: &FleetFinding) -> Labels {
    let reach = &finding.reach;
    let texts = [
        ("cluster", &reach.cluster),
        ("node", &reach.node),
        ("namespace", &reach.namespace),
        ("pod", &reach.pod),
        ("job", &reach.job),
    ];
    let texts = texts.into_iter().filter_map(|(name, text)| Some((name, text.as_deref()?.to_owned())));
    std::iter::once(("uuid", gpu.to_owned())).chain(texts).collect()
}

fn clock_share(finding: &FleetFinding) -> Option<f64> {
    let clock = finding.evidence.iter().find(|evidence| evidence.quantity == "gpu_clock_mhz")?;
    Some(clock.value / clock.compared_with.filter(|median| median.value > 0.0)?.value)
}
