//! Names that are used twice: a GPU that two nodes report, and a node whose name two agents use.

use std::collections::BTreeMap;
use std::sync::Arc;

use gpuvitals_core::IdentityColumn;
use gpuvitals_core::history::GpuState;
use gpuvitals_core::number::float;

use super::threshold::TWO_NODES_MINUTES;
use super::{Candidate, Evidence, Member, Reach, Subject, Survey, finding};

/// Most numbers of GPUs that a sentence names.
const NAMED_NUMBERS_MAX: usize = 8;

impl Survey<'_> {
    /// GPUs of which several nodes send rows in the same minutes. One that moves to another host has a minute of both at most.
    pub(super) fn two_nodes(&self, found: &mut Vec<Candidate>) {
        for Member { gpu, window } in &self.present {
            let minutes = window.map_or(0, |window| window.two_nodes_minutes);
            if minutes < TWO_NODES_MINUTES.1 {
                continue;
            }
            let nodes = self.now.recent.nodes(&gpu.key);
            let nodes: Vec<&str> = nodes.iter().map(AsRef::as_ref).collect();
            let sentence = format!("rows of this GPU come from several nodes at once: {}", nodes.join(", "));
            let evidence = vec![Evidence::derived("minutes_from_several_nodes", "min", float(minutes))];
            let finding = self.about_gpu("duplicate_gpu", gpu, sentence, evidence);
            found.push(Candidate { opens: minutes >= TWO_NODES_MINUTES.0, began: None, finding });
        }
    }

    /// Nodes on which several GPUs that report have the same number, or whose counts since boot go back and forth: two machines
    /// use one name.
    pub(super) fn two_agents(&self, found: &mut Vec<Candidate>) {
        type Place<'a> = (Option<&'a str>, &'a str);
        let mut nodes: BTreeMap<Place<'_>, BTreeMap<i32, Vec<&Arc<GpuState>>>> = BTreeMap::new();
        for Member { gpu, .. } in &self.present {
            let text = |column| gpu.identity.get(column);
            let is_whole = text(IdentityColumn::Partition).is_none();
            if let (Some(node), Some(index), true) = (gpu.identity.node(), gpu.identity.index, is_whole) {
                let node = nodes.entry((text(IdentityColumn::Cluster), node)).or_default();
                node.entry(index).or_default().push(gpu);
            }
        }
        for ((cluster, node), numbers) in nodes {
            type Numbers<'a> = Vec<(i32, Vec<&'a Arc<GpuState>>)>;
            let (twice, once): (Numbers<'_>, Numbers<'_>) =
                numbers.into_iter().partition(|(_, gpus)| gpus.len() > 1);
            if twice.is_empty() {
                let gpus: Vec<&Arc<GpuState>> = once.into_iter().flat_map(|(_, gpus)| gpus).collect();
                found.extend(self.two_boots((cluster, node), &gpus));
                continue;
            }
            let named: Vec<String> =
                twice.iter().take(NAMED_NUMBERS_MAX).map(|(number, _)| number.to_string()).collect();
            let sentence =
                format!("two machines report under this name: each has a GPU of number {}", named.join(", "));
            let evidence = vec![Evidence::derived("numbers_used_twice", "", float(twice.len()))];
            let gpus: Vec<&Arc<GpuState>> = twice.into_iter().flat_map(|(_, gpus)| gpus).collect();
            let subject = Subject::node(cluster, node);
            let finding = finding("duplicate_node", subject, sentence, evidence, Reach::of(&gpus));
            // It is so since the newer of two with one number reports.
            let began = gpus.iter().map(|gpu| super::Began::exactly(gpu.first_seen_ns));
            let began = began.max_by_key(|began| began.at_ns);
            found.push(Candidate { opens: true, began, finding });
        }
    }

    /// A node whose counts since boot go back and forth: without UUIDs a GPU of either machine is one of the other.
    fn two_boots(&self, (cluster, node): (Option<&str>, &str), gpus: &[&Arc<GpuState>]) -> Option<Candidate> {
        let (minutes, since_ns) = self.now.recent.boots.mixed(cluster, node)?;
        let sentence =
            "two machines report under this name: what it counted since boot goes back and forth".to_owned();
        let evidence = vec![Evidence::derived("minutes_of_two_boots", "min", float(minutes))];
        let finding =
            finding("duplicate_node", Subject::node(cluster, node), sentence, evidence, Reach::of(gpus));
        let began = Some(super::Began { at_ns: since_ns, is_bound: true });
        Some(Candidate { opens: minutes >= TWO_NODES_MINUTES.0, began, finding })
    }
}
