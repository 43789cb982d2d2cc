//! What differs between runs beside their figures: what makes them two different things, and what is only said.

use std::collections::BTreeSet;

use serde::Serialize;

use super::run::ComparedRun;
use crate::gpu_rows::GpuFacts;

/// Something that is not the same in the runs of both sides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RunDifference {
    /// What it is: `driver`, `power_limit` …
    pub what: &'static str,
    /// What the first runs have; "not known" of those that do not say it.
    pub base: Vec<String>,
    /// What the second runs have.
    pub new: Vec<String>,
    /// Whether such runs are not to be compared: their figures differ for this reason alone.
    pub refuses: bool,
}

type Of = fn(&ComparedRun) -> Option<String>;

/// Runs that differ in these are two different things.
const SAME: [(&str, Of); 5] = [
    ("model", |run| of_gpus(run, |gpu| gpu.model.clone())),
    ("gpus", |run| Some(run.gpus.len().to_string())),
    ("partition", |run| of_gpus(run, |gpu| Some(gpu.partition.clone().unwrap_or_else(|| "none".to_owned())))),
    ("power_limit", |run| of_gpus(run, |gpu| gpu.power_limit_w.map(|watts| format!("{watts:.0} W")))),
    ("clock_lock", |run| of_gpus(run, GpuFacts::clock_lock)),
];

/// Those that are worth a word.
const SAID: [(&str, Of); 10] = [
    ("driver", |run| of_gpus(run, |gpu| gpu.driver.clone())),
    ("vbios", |run| of_gpus(run, |gpu| gpu.vbios.clone())),
    ("source", |run| of_gpus(run, |gpu| gpu.source.clone())),
    ("host", |run| of_gpus(run, |gpu| gpu.node.clone())),
    ("uuids", |run| of_gpus(run, |gpu| Some(gpu.id.clone()))),
    ("container", |run| run.facts.container.clone()),
    ("commit", |run| run.facts.commit.clone()),
    ("command", |run| run.facts.command.clone()),
    ("arguments", |run| run.facts.arguments.as_ref().map(|words| words.join(" "))),
    ("rate_hz", |run| Some(format!("{:.3}", run.rate_hz))),
];

/// What differs. What refuses comes first. It differs as soon as two runs do, on whichever side; what is only said if the two sides
/// are not the same.
pub(super) fn differences(base: &[ComparedRun], new: &[ComparedRun]) -> Vec<RunDifference> {
    let values = |runs: &[ComparedRun], of: Of| -> BTreeSet<Option<String>> { runs.iter().map(of).collect() };
    let mut found = Vec::new();
    for (what, of) in SAME {
        let (base, new) = (values(base, of), values(new, of));
        let known: BTreeSet<_> = base.iter().chain(&new).flatten().collect();
        let refuses = known.len() > 1;
        if refuses || base != new {
            found.push(RunDifference { what, base: said(base), new: said(new), refuses });
        }
    }
    for (what, of) in SAID {
        let (base, new) = (values(base, of), values(new, of));
        if base != new {
            found.push(RunDifference { what, base: said(base), new: said(new), refuses: false });
        }
    }
    found.sort_by_key(|difference| !difference.refuses);
    found
}

fn said(values: BTreeSet<Option<String>>) -> Vec<String> {
    values.into_iter().map(|value| value.unwrap_or_else(|| "not known".to_owned())).collect()
}

/// What the GPUs of a run have, each value once; none if none of them has one.
fn of_gpus(run: &ComparedRun, of: impl Fn(&GpuFacts) -> Option<String>) -> Option<String> {
    let values: BTreeSet<String> = run.gpus.iter().filter_map(|gpu| of(&gpu.facts)).collect();
    (!values.is_empty()).then(|| values.into_iter().collect::<Vec<_>>().join(", "))
}
