//! The GPUs that a program may use, by the variables that its runtime reads: what the program is recorded with.
//!
//! A vendor whose variables are unset has all of its GPUs.

mod chosen;
mod cuda;
mod name;
mod rocm;

use std::ffi::OsString;

use gpuvitals_core::Table;

use crate::dialect::amd_sysfs::{Card, cards};
use crate::discovery::Discovery;
use crate::machine::Machine;
use crate::probe::Probe;

use chosen::{ChosenGpus, ChosenProbe, gpus_of};
use cuda::CudaOrder;
use name::{VisibleGpus, VisibleName};
use rocm::{RocmGpu, RocmLists};

/// The vendors whose runtimes have such variables.
const AMD: &str = "amd";
const NVIDIA: &str = "nvidia";

/// The variables that say which GPUs a program may use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VisibleVariables {
    cuda: Option<String>,
    cuda_order: Option<String>,
    hip: Option<String>,
    rocr: Option<String>,
}

/// What came of them for the GPUs of a vendor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VisibleOutcome {
    /// The variables that count, with their values: `CUDA_VISIBLE_DEVICES=0,1`.
    pub variables: String,
    /// What was kept.
    pub kept: VisibleKept,
}

/// How many GPUs of a vendor were kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VisibleKept {
    /// So many, of so many.
    Counted(usize, usize),
    /// Those that are named, as soon as the driver has told their names.
    Later,
    /// All, since nobody can say which are named; and why.
    Unclear(&'static str),
}

impl VisibleVariables {
    /// Of an environment.
    pub fn of(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let text = |name: &str| variable(name).map(|text| text.to_string_lossy().into_owned());
        Self {
            cuda: text("CUDA_VISIBLE_DEVICES"),
            cuda_order: text("CUDA_DEVICE_ORDER"),
            hip: text("HIP_VISIBLE_DEVICES"),
            rocr: text("ROCR_VISIBLE_DEVICES"),
        }
    }

    /// Leaves the GPUs that a program with these variables may use. Says what came of it, for each vendor with GPUs and a
    /// variable.
    pub fn narrow(&self, found: &mut Discovery, machine: &Machine) -> Vec<VisibleOutcome> {
        [self.narrow_nvidia(found), self.narrow_amd(found, machine)].into_iter().flatten().collect()
    }

    fn narrow_nvidia(&self, found: &mut Discovery) -> Option<VisibleOutcome> {
        let (text, order) = (self.cuda.as_deref()?, CudaOrder::of(self.cuda_order.as_deref()));
        let probes = taken(found, NVIDIA);
        let targets: Vec<_> = probes.iter().flat_map(|probe| probe.targets()).collect();
        if probes.is_empty() {
            return None;
        }
        let (probes, kept) = if targets.is_empty() {
            // A tool, which has not run yet.
            let chosen = |probe| ChosenProbe::new(probe, ChosenGpus::listed(text, order));
            let probes = probes.into_iter().map(|probe| Box::new(chosen(probe)) as Box<dyn Probe>);
            (probes.collect(), VisibleKept::Later)
        } else {
            kept(probes, cuda::visible(text, order, &gpus_of(&targets)))
        };
        found.probes.splice(..0, probes);
        Some(VisibleOutcome { variables: set(&[("CUDA_VISIBLE_DEVICES", Some(text))]), kept })
    }

    fn narrow_amd(&self, found: &mut Discovery, machine: &Machine) -> Option<VisibleOutcome> {
        let lists =
            RocmLists { rocr: self.rocr.as_deref(), hip: self.hip.as_deref(), cuda: self.cuda.as_deref() };
        if lists.are_unset() || !found.probes.iter().any(|probe| is_of(probe.as_ref(), AMD)) {
            return None;
        }
        let visible = rocm::visible(lists, &rocm_gpus(&cards(machine)));
        let (probes, kept) = kept(taken(found, AMD), visible);
        found.probes.splice(..0, probes);
        let hip = match lists.hip.filter(|text| !text.is_empty()) {
            Some(text) => ("HIP_VISIBLE_DEVICES", Some(text)),
            None => ("CUDA_VISIBLE_DEVICES", lists.cuda),
        };
        let variables = set(&[("ROCR_VISIBLE_DEVICES", lists.rocr), hip]);
        Some(VisibleOutcome { variables, kept })
    }
}

/// Those of these variables that are set, as a shell writes them.
fn set(variables: &[(&str, Option<&str>)]) -> String {
    let written = |(name, text): &(&str, Option<&str>)| text.map(|text| format!("{name}={text}"));
    variables.iter().filter_map(written).collect::<Vec<_>>().join(" ")
}

/// Whether a probe reads GPUs of this vendor.
fn is_of(probe: &dyn Probe, vendor: &str) -> bool {
    probe.table() == Table::GpuEvents && probe.driver().vendor() == vendor
}

/// Takes the probes of a vendor's GPUs out.
fn taken(found: &mut Discovery, vendor: &str) -> Vec<Box<dyn Probe>> {
    found.probes.extract_if(.., |probe| is_of(probe.as_ref(), vendor)).collect()
}

/// The probes that read something visible.
fn kept(probes: Vec<Box<dyn Probe>>, visible: VisibleGpus) -> (Vec<Box<dyn Probe>>, VisibleKept) {
    let all = probes.len();
    let names = match visible {
        VisibleGpus::Named(names) => names,
        VisibleGpus::All => return (probes, VisibleKept::Counted(all, all)),
        VisibleGpus::Unclear(why) => return (probes, VisibleKept::Unclear(why)),
    };
    if names.is_empty() {
        return (Vec::new(), VisibleKept::Counted(0, all));
    }
    // Which GPU has a MIG instance shows when it is read.
    let has_instances = names.iter().any(|name| matches!(name, VisibleName::Instance(_)));
    let is_narrowed = names.iter().any(VisibleName::is_of_a_part);
    let (mut kept, mut is_late) = (Vec::new(), has_instances);
    for probe in probes {
        let targets = probe.targets();
        let is_named = targets.iter().any(|target| names.iter().any(|name| name.covers(target)));
        is_late |= targets.is_empty();
        if !is_named && !has_instances && !targets.is_empty() {
            continue;
        }
        let is_whole = !is_narrowed && !targets.is_empty();
        let narrowed = |probe| ChosenProbe::new(probe, ChosenGpus::Named(names.clone()));
        let probe: Box<dyn Probe> = if is_whole { probe } else { Box::new(narrowed(probe)) };
        kept.push(probe);
    }
    let told = if is_late { VisibleKept::Later } else { VisibleKept::Counted(kept.len(), all) };
    (kept, told)
}

/// The GPUs of the compute driver in its order.
fn rocm_gpus(cards: &[Card]) -> Vec<RocmGpu> {
    let mut all: Vec<(u32, RocmGpu)> = Vec::new();
    for card in cards {
        let Some(pci) = &card.pci else { continue };
        let is_divided = card.kfd.len() > 1;
        for node in &card.kfd {
            let number = node.address.rsplit_once('.').and_then(|(_, function)| function.parse().ok());
            let partition = number.filter(|_| is_divided);
            let gpu = RocmGpu { unique_id: card.unique_id.clone(), pci: pci.clone(), partition };
            all.push((node.node, gpu));
        }
    }
    all.sort_by_key(|(node, _)| *node);
    all.into_iter().map(|(_, gpu)| gpu).collect()
}
