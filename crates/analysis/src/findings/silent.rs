//! GPUs, nodes and fleets that stopped reporting.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use gpuvitals_core::history::GpuState;
use gpuvitals_core::number::float;
use gpuvitals_core::{IdentityColumn, quantity};

use super::survey::LostGpu;
use super::threshold::{COMMON_SIZE_SHARE, GONE_AFTER_NS, SILENT_FLEET_NODES, SILENT_FLEET_SHARE};
use super::{Began, Candidate, Evidence, FleetFinding, Reach, Subject, Survey, common, finding};
use crate::condition;
use crate::freshness::{Freshness, newest_value};
use crate::health_event::HealthEvent;

/// The GPUs that are lost by events in order of time: the newest of their events `lost` and `back` is `lost`.
pub fn lost_gpus(events: &[HealthEvent]) -> HashMap<Arc<str>, LostGpu> {
    let mut lost = HashMap::new();
    for HealthEvent { gpu, at_ns, kind, detail, .. } in events {
        match kind.as_ref() {
            "lost" => {
                lost.insert(Arc::clone(gpu), LostGpu { at_ns: *at_ns, detail: Arc::clone(detail) });
            }
            "back" => {
                lost.remove(gpu);
            }
            _ => {}
        }
    }
    lost
}

/// The GPUs of a node.
#[derive(Default)]
struct NodeGpus<'a> {
    reporting: usize,
    silent: Vec<&'a Arc<GpuState>>,
    last_ns: i64,
}

impl<'a> Survey<'a> {
    pub(super) fn silent(&self, found: &mut Vec<Candidate>) {
        let mut nodes: BTreeMap<(Option<&str>, Option<&'a str>), NodeGpus<'a>> = BTreeMap::new();
        for gpu in self.now.gpus {
            if self.now.fresh.now_ns.saturating_sub(gpu.last_seen_ns) > GONE_AFTER_NS {
                continue;
            }
            let name = (gpu.identity.get(IdentityColumn::Cluster), gpu.identity.node());
            let node = nodes.entry(name).or_default();
            node.last_ns = node.last_ns.max(gpu.last_seen_ns);
            if self.now.fresh.is_old(gpu.last_seen_ns) {
                node.silent.push(gpu);
            } else {
                node.reporting += 1;
            }
        }
        let named = nodes.iter().filter(|((_, node), _)| node.is_some()).map(|(_, gpus)| gpus);
        let (all, silent) = named.fold((0, Vec::new()), |(all, mut silent), node| {
            if node.reporting == 0 {
                silent.push(node);
            }
            (all + 1, silent)
        });
        if let Some(candidate) = fleet_silence(all, &silent) {
            found.push(candidate);
        }
        for ((cluster, name), node) in &nodes {
            if let (Some(name), 0) = (name, node.reporting) {
                found.push(node_silence(Subject::node(*cluster, name), node));
            } else {
                found.extend(node.silent.iter().map(|gpu| self.gpu_silence(gpu, node.reporting)));
            }
        }
        self.blank(found);
    }

    /// Nodes with fewer GPUs than most nodes of their model. A node of another size is sound; one with a gap in its numbers, or with a
    /// number of GPUs that nobody builds, is not.
    pub(super) fn missing(&self, found: &mut Vec<Candidate>) {
        type Node<'a> = (Option<&'a str>, &'a str);
        let mut models: BTreeMap<&str, BTreeMap<Node<'_>, Vec<&Arc<GpuState>>>> = BTreeMap::new();
        for gpu in self.now.gpus {
            let text = |column| gpu.identity.get(column);
            let is_whole = text(IdentityColumn::Partition).is_none();
            let is_in_service = self.now.fresh.now_ns.saturating_sub(gpu.last_seen_ns) <= GONE_AFTER_NS;
            if let (Some(model), Some(node)) = (text(IdentityColumn::Model), gpu.identity.node())
                && is_whole
                && is_in_service
            {
                let nodes = models.entry(model).or_default();
                nodes.entry((text(IdentityColumn::Cluster), node)).or_default().push(gpu);
            }
        }
        for (model, nodes) in models {
            let Some(usual) = common(nodes.values().map(Vec::len), COMMON_SIZE_SHARE) else { continue };
            for ((cluster, node), gpus) in nodes.iter().filter(|(_, gpus)| gpus.len() < usual) {
                let indices: BTreeSet<usize> =
                    gpus.iter().filter_map(|gpu| usize::try_from(gpu.identity.index?).ok()).collect();
                let missing: Vec<String> = (0..usual)
                    .filter(|index| !indices.contains(index))
                    .map(|index| index.to_string())
                    .collect();
                let has_gap =
                    indices.len() == gpus.len() && indices.last().is_some_and(|last| *last >= gpus.len());
                if !has_gap && gpus.len().is_power_of_two() {
                    continue;
                }
                let verb = if missing.len() == 1 { "is" } else { "are" };
                let which = if has_gap {
                    format!(" (GPU {} {verb} missing)", missing.join(", "))
                } else {
                    String::new()
                };
                let sentence = format!(
                    "the node has {}{which}, most nodes with {model} have {usual}",
                    quantity::counted(gpus.len() as u64, "GPU")
                );
                let evidence = Evidence::derived("gpus_of_node", "", float(gpus.len()))
                    .beside(float(usual), "most nodes of the model");
                let subject = Subject::node(*cluster, node);
                let finding = finding("gpu_missing", subject, sentence, vec![evidence], Reach::of(gpus));
                // It was so from the first row of the node on.
                let began =
                    gpus.iter().map(|gpu| Began::exactly(gpu.first_seen_ns)).min_by_key(|began| began.at_ns);
                found.push(Candidate { opens: true, began, finding });
            }
        }
    }

    fn gpu_silence(&self, gpu: &Arc<GpuState>, reporting: usize) -> Candidate {
        let others = match reporting {
            0 => "it reports nothing any more".to_owned(),
            1 => "it reports nothing any more, another GPU of its node does".to_owned(),
            count => format!("it reports nothing any more, {count} other GPUs of its node do"),
        };
        self.lost(gpu, gpu.last_seen_ns, &others)
    }

    /// GPUs that have rows without values: the agent sees that they are lost.
    fn blank(&self, found: &mut Vec<Candidate>) {
        for member in &self.present {
            let lost = self.now.lost.get(&member.gpu.key).filter(|_| self.now.fresh.is_blank(member.gpu));
            found.extend(lost.map(|lost| self.lost(member.gpu, lost.at_ns, &lost.detail)));
        }
    }

    /// A lost GPU, with its state when it was last seen.
    fn lost(&self, gpu: &Arc<GpuState>, began_ns: i64, sentence: &str) -> Candidate {
        let seen_ns = newest_value(gpu);
        let then = Freshness { now_ns: seen_ns, ..self.now.fresh };
        let found = condition::found(|metric| then.recent(gpu, metric));
        let told = self.told_xid(gpu).map(|(_, code)| condition::xid::sentence(code));
        let before: Vec<String> = found.map(|matched| matched.sentence()).chain(told).collect();
        let before =
            if before.is_empty() { String::new() } else { format!("; before that, {}", before.join("; ")) };
        let reach = Reach { concerned_gpus: 1, ..self.reach(gpu) };
        let evidence = vec![self.age(seen_ns)];
        let subject = Subject::Gpu(Arc::clone(&gpu.key));
        let finding = finding("gpu_lost", subject, format!("{sentence}{before}"), evidence, reach);
        Candidate { opens: true, began: Some(Began::exactly(began_ns)), finding }
    }

    fn age(&self, seen_ns: i64) -> Evidence {
        let seconds = gpuvitals_core::integral::seconds(self.now.fresh.now_ns.saturating_sub(seen_ns));
        let limit = gpuvitals_core::integral::seconds(self.now.fresh.stale_after_ns);
        Evidence::derived("age_of_newest_value", "s", seconds.round_ties_even()).beside(limit, "limit")
    }
}

fn node_silence(subject: Subject, node: &NodeGpus<'_>) -> Candidate {
    let reach = Reach::of(&node.silent);
    let gpus = quantity::counted(reach.gpus.len() as u64, "GPU");
    let sentence = format!("nothing comes from the node any more, which has {gpus}");
    let finding = finding("node_silent", subject, sentence, Vec::new(), reach);
    Candidate { opens: true, began: Some(Began::exactly(node.last_ns)), finding }
}

fn fleet_silence(all: usize, silent: &[&NodeGpus<'_>]) -> Option<Candidate> {
    let share = float(silent.len()) / float(all.max(1));
    if silent.len() < SILENT_FLEET_NODES || share < SILENT_FLEET_SHARE {
        return None;
    }
    let gpus: Vec<&Arc<GpuState>> = silent.iter().flat_map(|node| node.silent.iter().copied()).collect();
    let began = silent.iter().map(|node| Began::exactly(node.last_ns)).max_by_key(|began| began.at_ns);
    let sentence = format!("{} of {all} nodes report nothing any more", silent.len());
    let evidence = Evidence::derived("silent_nodes", "", float(silent.len())).beside(float(all), "all nodes");
    let found: FleetFinding =
        finding("fleet_silent", Subject::Fleet, sentence, vec![evidence], Reach::of(&gpus));
    Some(Candidate { opens: true, began, finding: found })
}
