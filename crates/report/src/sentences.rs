//! A run in a few sentences: what ran where, how long its steps took, what held it, who was behind.

use gpuvitals_analysis::robust::median;
use gpuvitals_analysis::summary::{HostSummary, simulated_words};
use gpuvitals_record::StepOrigin;

use crate::figures::{HeldShares, RunGpu, RunLast, StepFigures, energy_error};
use crate::words::{energy, listed, number, percent, span};

/// Least share of the time for which a throttled or silent GPU is worth a sentence.
const SHARE_MIN: f64 = 0.01;
/// Least distance of a clock from the others' for which it is.
const BEHIND_MIN: f64 = 0.05;
/// Fewest GPUs that can be compared with each other.
const COMPARED_MIN: usize = 3;
/// Least utilisation of a GPU that works: an idle one has low clocks and nobody minds.
const WORKING_PCT: f64 = 50.0;
/// Most machines that are named.
const NODES_NAMED: usize = 4;

/// What ran where: `8 × NVIDIA H100 on n1`.
pub(crate) fn title(gpus: &[RunGpu], hosts: &[HostSummary]) -> String {
    let mut models: Vec<(String, usize)> = Vec::new();
    let mut nodes: Vec<String> = Vec::new();
    for gpu in gpus {
        let model = gpu.summary.model.clone().unwrap_or_else(|| "GPU".to_owned());
        match models.iter_mut().find(|(known, _)| *known == model) {
            Some((_, count)) => *count += 1,
            None => models.push((model, 1)),
        }
    }
    let of_gpus = gpus.iter().filter_map(|gpu| gpu.summary.node.clone());
    for node in of_gpus.chain(hosts.iter().filter_map(|host| host.node.clone())) {
        if !nodes.contains(&node) {
            nodes.push(node);
        }
    }
    let models: Vec<String> = models
        .into_iter()
        .map(|(model, count)| if count > 1 { format!("{count} × {model}") } else { model })
        .collect();
    let what = if models.is_empty() { "No GPU".to_owned() } else { listed(&models) };
    match nodes.len() {
        0 => what,
        few if few <= NODES_NAMED => format!("{what} on {}", listed(&nodes)),
        many => format!("{what} on {many} machines"),
    }
}

/// What is to be said of a run before its tables.
pub(crate) fn sentences(
    gpus: &[RunGpu],
    duration_s: f64,
    steps: Option<&StepFigures>,
    last: Option<&RunLast>,
) -> Vec<String> {
    if gpus.is_empty() {
        return vec![format!("The host alone was recorded, for {}.", span(duration_s))];
    }
    let all = [
        simulated_words(gpus.iter().map(|gpu| &gpu.summary)),
        Some(taken(gpus, duration_s)),
        steps.map(stepped),
        last.map(waited_for),
        held(gpus),
        silent(gpus).or_else(|| behind(gpus)),
    ];
    all.into_iter().flatten().collect()
}

/// How long a step took, and how that is known.
fn stepped(steps: &StepFigures) -> String {
    let known = match steps.origin {
        StepOrigin::Marks => "by its marks".to_owned(),
        StepOrigin::Signals => format!("as the signals show, {} sure", percent(steps.certainty)),
    };
    let error = steps.energy_interval.as_ref().map_or_else(String::new, |interval| format!(" {interval}"));
    let joules = steps.energy_j.map_or_else(String::new, |joules| format!(" and {}{error}", energy(joules)));
    let middle = span(steps.median_s);
    let tail =
        steps.p95_s.map_or_else(String::new, |tail| format!(", one of twenty more than {}", span(tail)));
    format!("A step took {middle}{joules}{tail}: {} steps {known}.", steps.count)
}

/// The machine for which the others wait.
fn waited_for(last: &RunLast) -> String {
    let RunLast { node, steps, share, worked_s, others_s } = last;
    let (share, worked, others) = (percent(*share), span(*worked_s), span(*others_s));
    format!(
        "{node} was the last in {share} of {steps} steps: it worked for {worked} in one and the others for {others}, and they waited for it."
    )
}

/// How long it took, and how much energy.
fn taken(gpus: &[RunGpu], duration_s: f64) -> String {
    let known = || gpus.iter().filter_map(|gpu| Some((gpu, gpu.summary.energy.as_ref()?.joules)));
    let joules: Vec<f64> = known().map(|(_, joules)| joules).collect();
    let watts: f64 = known().filter_map(|(gpu, _)| Some(gpu.summary.power_w?.mean)).sum();
    let lasted = format!("The run was recorded for {}", span(duration_s));
    if joules.is_empty() {
        return format!("{lasted}; what it took in energy is not known.");
    }
    let who = match (joules.len(), gpus.len()) {
        (1, 1) => "the GPU".to_owned(),
        (known, all) if known == all => format!("the {all} GPUs"),
        (known, all) => format!("{known} of the {all} GPUs"),
    };
    let total = energy(joules.iter().sum());
    let error = energy_error(gpus).map_or_else(String::new, |error| format!(" {error}"));
    let together = if joules.len() > 1 { " together" } else { "" };
    format!("{lasted}; {who} took {total}{error}, {} W{together} on average.", number(watts))
}

/// Which GPU was held down for longest, and by what.
fn held(gpus: &[RunGpu]) -> Option<String> {
    let shares: Vec<(&RunGpu, f64)> =
        gpus.iter().filter_map(|gpu| Some((gpu, gpu.summary.throttled?.share))).collect();
    let (gpu, share) = shares.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1))?;
    if share < SHARE_MIN {
        return Some(format!("No limit held the clocks down for {} of the time.", percent(SHARE_MIN)));
    }
    let cause = capitalised(gpu.held_by.and_then(longest).unwrap_or("a limit"));
    let count = shares.iter().filter(|(_, share)| *share >= SHARE_MIN).count();
    let others = if count > 1 { format!(", the longest of {count} that were") } else { String::new() };
    Some(format!("{cause} held GPU {} down for {} of the time{others}.", gpu.name, percent(share)))
}

/// As the first word of a sentence.
fn capitalised(words: &str) -> String {
    let mut letters = words.chars();
    let first = letters.next();
    first.into_iter().flat_map(char::to_uppercase).chain(letters).collect()
}

/// The limit that held for longest.
fn longest(held: HeldShares) -> Option<&'static str> {
    let groups = held.groups().into_iter().filter(|(_, share)| *share > 0.0);
    groups.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(name, _)| name)
}

/// Which GPU reported nothing for longest.
fn silent(gpus: &[RunGpu]) -> Option<String> {
    let longest = gpus.iter().max_by(|a, b| a.summary.gaps_s.total_cmp(&b.summary.gaps_s))?;
    let summary = &longest.summary;
    (summary.gaps_s >= SHARE_MIN * summary.duration_s && summary.gaps > 0)
        .then(|| format!("GPU {} reported nothing for {}.", longest.name, span(summary.gaps_s)))
}

/// Which GPU that worked had a clock well below the others'.
fn behind(gpus: &[RunGpu]) -> Option<String> {
    let is_working = |gpu: &&RunGpu| gpu.summary.utilization_pct.is_none_or(|busy| busy.mean >= WORKING_PCT);
    let working: Vec<(&RunGpu, f64)> = gpus
        .iter()
        .filter(is_working)
        .filter_map(|gpu| Some((gpu, gpu.summary.gpu_clock_mhz?.mean)))
        .collect();
    if working.len() < COMPARED_MIN {
        return None;
    }
    let middle = median(&mut working.iter().map(|(_, clock)| *clock).collect::<Vec<_>>())?;
    let (gpu, clock) = working.into_iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
    let behind = 1.0 - clock / middle;
    (behind >= BEHIND_MIN).then(|| {
        let (clock, behind) = (number(clock), percent(behind));
        format!(
            "GPU {} ran at {clock} MHz on average, {behind} below the median of those that worked.",
            gpu.name
        )
    })
}
