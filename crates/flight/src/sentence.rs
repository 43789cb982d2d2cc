//! An incident in a sentence.

use gpuvitals_core::quantity::counted;
use gpuvitals_core::time::{self, SECOND_NS};

use crate::incident::{FlightGpu, FlightIncident};
use crate::trigger::FlightTrigger;

/// Values of the last row before a trigger, in the order they are said: column, unit.
const SAID: [(&str, &str); 4] =
    [("power_w", "W"), ("temperature_c", "°C"), ("gpu_clock_mhz", "MHz"), ("utilization_pct", "% busy")];

/// Most other triggers of the same GPU that are said.
const WITH_MAX: usize = 2;
/// Faults of a GPU that its readings may slow down before, the worst first.
const FAULTS: [&str; 4] = ["lost", "xid", "stuck", "reset"];

impl FlightIncident {
    /// What happened, in a sentence: which GPU, what, when, how it was until then, who held it.
    pub fn sentence(&self) -> String {
        let trigger = self.lead();
        let gpu = self.gpus.iter().find(|gpu| Some(&gpu.gpu) == trigger.gpu.as_ref());
        let who = match (gpu, &trigger.gpu) {
            (Some(FlightGpu { index: Some(index), .. }), Some(key)) => {
                format!("GPU {index} ({key}) of {}", self.node)
            }
            (_, Some(key)) => format!("GPU {key} of {}", self.node),
            (_, None) => self.node.clone(),
        };
        let mut parts = vec![format!("{who}: {} at {}", words(trigger), time::format(trigger.at_ns))];
        if trigger != &self.trigger {
            let after_ns = trigger.at_ns.saturating_sub(self.trigger.at_ns).max(0);
            parts.push(format!("{} s after {}", tenths(after_ns), words(&self.trigger)));
        }
        let with_it = self.with(trigger);
        parts.extend(with_it.iter().map(|words| format!("with it {words}")));
        if let Some(gpu) = gpu {
            parts.extend(before(gpu, trigger.at_ns));
            parts.extend(holder(gpu));
        }
        let said = 1 + u64::from(trigger != &self.trigger) + with_it.len() as u64;
        if self.triggers > said {
            parts.push(format!("{} came, too", counted(self.triggers - said, "more trigger")));
        }
        format!("{}.", parts.join("; "))
    }
}

impl FlightIncident {
    /// What the incident is about: readings that slow down are a sign of what comes to the same GPU after them.
    fn lead(&self) -> &FlightTrigger {
        let first = &self.trigger;
        let is_of_it = |other: &&FlightTrigger| {
            first.kind == "reads_slowed" && other.gpu == first.gpu && other.at_ns >= first.at_ns
        };
        let of_kind = |kind: &&str| self.others.iter().filter(is_of_it).find(|other| other.kind == **kind);
        FAULTS.iter().find_map(of_kind).unwrap_or(first)
    }
}

impl FlightIncident {
    /// What else happened to the GPU that the incident is about, each once.
    fn with(&self, lead: &FlightTrigger) -> Vec<String> {
        let is_of_it = |other: &&FlightTrigger| {
            let is_said = *other == lead || *other == &self.trigger;
            !is_said && !other.is_of_job() && other.gpu.is_some() && other.gpu == lead.gpu
        };
        let mut found: Vec<String> = Vec::new();
        for words in self.others.iter().filter(is_of_it).map(words) {
            if found.len() < WITH_MAX && !found.contains(&words) {
                found.push(words);
            }
        }
        found
    }
}

/// Nanoseconds as seconds with a digit behind the point.
fn tenths(ns: i64) -> String {
    let tenths = ns / (SECOND_NS / 10);
    format!("{}.{}", tenths / 10, tenths % 10)
}

fn words(trigger: &FlightTrigger) -> String {
    match (trigger.kind.as_str(), &trigger.rule) {
        ("lost", _) => format!("lost, {}", trigger.detail),
        ("threshold", Some(rule)) => format!("{rule} ({})", trigger.detail),
        _ => trigger.detail.clone(),
    }
}

/// How a GPU was in its last row before a trigger.
fn before(gpu: &FlightGpu, at_ns: i64) -> Option<String> {
    let ago_ns = at_ns.saturating_sub(gpu.last_ns?).max(0);
    let said = SAID.iter().filter_map(|(column, unit)| Some(format!("{} {unit}", gpu.last.get(*column)?)));
    let said: Vec<String> = said.collect();
    (!said.is_empty()).then(|| format!("{} s before: {}", tenths(ago_ns), said.join(", ")))
}

/// Who held a GPU.
fn holder(gpu: &FlightGpu) -> Option<String> {
    let text = |column: &str| gpu.identity.get(column).map(String::as_str);
    let pod = || Some(format!("held by pod {}/{}", text("namespace")?, text("pod")?));
    text("job").map(|job| format!("held by job {job}")).or_else(pod)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::incident::{FlightSpan, INCIDENT_SCHEMA};

    fn incident(trigger: FlightTrigger, gpus: Vec<FlightGpu>) -> FlightIncident {
        FlightIncident {
            schema: INCIDENT_SCHEMA,
            id: "x".to_owned(),
            node: "node-7".to_owned(),
            boot_id: String::new(),
            version: "0.1.0".to_owned(),
            trigger,
            triggers: 3,
            others: Vec::new(),
            asked: FlightSpan { from_ns: 0, to_ns: 1 },
            had: None,
            rows: BTreeMap::new(),
            rows_lost: None,
            written_ns: 0,
            written_monotonic_ns: 0,
            offset: "not known".to_owned(),
            gpus,
            read_errors: Vec::new(),
            kernel_lines: 0,
            kernel_log: String::new(),
        }
    }

    #[test]
    fn it_says_which_gpu_what_when_how_it_was_and_whose() {
        let trigger = FlightTrigger {
            kind: "xid".to_owned(),
            gpu: Some("GPU-1".to_owned()),
            code: Some(79),
            detail: "XID 79 (the GPU fell off the bus)".to_owned(),
            rule: None,
            at_ns: 1_796_007_299 * SECOND_NS,
        };
        let gpu = FlightGpu {
            gpu: "GPU-1".to_owned(),
            index: Some(3),
            identity: [("job".to_owned(), "4711".to_owned())].into(),
            last_ns: Some(trigger.at_ns - 4_200_000_000),
            last: [("power_w".to_owned(), 412.5), ("temperature_c".to_owned(), 61.0)].into(),
        };
        let said = incident(trigger.clone(), vec![gpu]).sentence();
        assert_eq!(
            said,
            "GPU 3 (GPU-1) of node-7: XID 79 (the GPU fell off the bus) at 2026-11-30T02:54:59Z; \
             4.2 s before: 412.5 W, 61 °C; held by job 4711; 2 more triggers came, too."
        );
        let without = incident(trigger, Vec::new()).sentence();
        assert!(without.starts_with("GPU GPU-1 of node-7: XID 79"), "{without}");
    }

    #[test]
    fn readings_that_slowed_down_stand_behind_what_came_after_them() {
        let of = |kind: &str, detail: &str, at_ns| FlightTrigger {
            gpu: Some("GPU-1".to_owned()),
            ..FlightTrigger::of_node(kind, detail, at_ns)
        };
        let begin_ns = 1_796_007_299 * SECOND_NS;
        let slowed = of("reads_slowed", "its readings slowed from 0.3 to 41 ms", begin_ns);
        let alone = incident(slowed.clone(), Vec::new()).sentence();
        assert!(
            alone.starts_with("GPU GPU-1 of node-7: its readings slowed from 0.3 to 41 ms at"),
            "{alone}"
        );
        let others = vec![
            of("xid", "XID 79", begin_ns + 4_100_000_000),
            of("lost", "it reports nothing any more: gone", begin_ns + 4_200_000_000),
        ];
        let said = FlightIncident { others, ..incident(slowed, Vec::new()) }.sentence();
        assert_eq!(
            said,
            "GPU GPU-1 of node-7: lost, it reports nothing any more: gone at 2026-11-30T02:55:03.2Z; 4.2 s after its readings \
             slowed from 0.3 to 41 ms; with it XID 79."
        );
    }

    #[test]
    fn what_somebody_asked_for_is_about_the_node() {
        let asked = incident(FlightTrigger::of_node("signal", "SIGUSR1 asked for it", 0), Vec::new());
        assert!(asked.sentence().starts_with("node-7: SIGUSR1 asked for it at 1970"), "{}", asked.sentence());
    }
}
