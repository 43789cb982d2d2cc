//! Hints for schedulers: which GPUs of each node are free, busy or unhealthy, and which of the busy ones only hold memory.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use gpuvitals_core::batch::Value;
use gpuvitals_core::history::{Fleet, GpuState};
use gpuvitals_core::usage::IDLE_BELOW_PCT;
use gpuvitals_core::{IdentityColumn, MetricId};
use serde::Serialize;

use crate::condition::Severity;
use crate::findings::threshold::GONE_AFTER_NS;
use crate::findings::{FleetFinding, Situation, Subject, holder_of};
use crate::freshness::Freshness;

const UTILIZATION: MetricId = MetricId::of("utilization_pct");
/// What an instance has in place of a utilisation.
const ENGINE_ACTIVE: MetricId = MetricId::of("graphics_engine_active_ratio");
const PROCESSES: MetricId = MetricId::of("process_count");
const MEMORY_USED: MetricId = MetricId::of("memory_used_mb");
const MEMORY_FREE: MetricId = MetricId::of("memory_free_mb");
const MEMORY_SHARE: MetricId = MetricId::of("memory_used_pct");
const MEMORY_TOTAL: MetricId = MetricId::of("memory_total_mb");
/// Memory in MiB up to which a GPU is free: drivers and consoles take some hundred for themselves.
const MEMORY_FREE_UP_TO_MB: f64 = 1_024.0;
/// The same of a memory of which only the share in use is known, %.
const MEMORY_FREE_UP_TO_PCT: f64 = 5.0;

/// The GPUs of a node by whether they can take work.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodeHint {
    /// Cluster of the node.
    pub cluster: Option<Arc<str>>,
    /// Name of the node.
    pub node: Arc<str>,
    /// Model of its GPUs, if it has only one.
    pub model: Option<Arc<str>>,
    /// Keys of GPUs that nobody holds, that do nothing and whose memory is free.
    pub free: Vec<Arc<str>>,
    /// Keys of GPUs that are held or work, or whose memory is in use.
    pub busy: Vec<Arc<str>>,
    /// Those of the busy GPUs that do nothing and of which no holder is known: their memory is in use.
    pub memory_in_use: Vec<UsedMemory>,
    /// GPUs to keep work away from, with the reasons.
    pub unhealthy: Vec<UnfitGpu>,
}

/// A GPU whose memory is in use.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = UsedMemoryEntry))]
pub struct UsedMemory {
    /// Key of the GPU.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub gpu: Arc<str>,
    /// Memory in use, MiB.
    pub used_mb: f64,
    /// All of its memory, MiB; null: not known.
    pub total_mb: Option<f64>,
}

/// A GPU that should get no work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = UnfitEntry))]
pub struct UnfitGpu {
    /// Key of the GPU.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub gpu: Arc<str>,
    /// Why: findings in words.
    pub reasons: Vec<String>,
}

impl NodeHint {
    /// Whether all of its GPUs are free: room for a job that needs a whole node.
    pub fn is_whole(&self) -> bool {
        !self.free.is_empty() && self.busy.is_empty() && self.unhealthy.is_empty()
    }

    /// Adds a GPU that may get work. Its memory is its own, or that of the card that it is a part of.
    fn take(&mut self, fresh: Freshness, gpu: &GpuState, memory_of: &GpuState) {
        let key = Arc::clone(&gpu.key);
        let latest_of = |gpu: &GpuState, metric| fresh.recent(gpu, metric).map(Value::as_f64);
        let latest = |metric| latest_of(gpu, metric);
        let memory = |metric| latest_of(memory_of, metric);
        let is_held = holder_of(gpu).is_some();
        let busy = latest(UTILIZATION).or_else(|| Some(100.0 * latest(ENGINE_ACTIVE)?));
        let is_idle = busy.is_none_or(|busy| busy < IDLE_BELOW_PCT);
        // It does not change, and is read seldom.
        let total_mb = Fleet::latest(memory_of, MEMORY_TOTAL).map(|latest| latest.value.as_f64());
        let used_mb = memory(MEMORY_USED)
            .or_else(|| Some(total_mb? - memory(MEMORY_FREE)?))
            .or_else(|| Some(total_mb? * memory(MEMORY_SHARE)? / 100.0));
        let uses_memory = match used_mb {
            Some(used_mb) => used_mb > MEMORY_FREE_UP_TO_MB,
            None => memory(MEMORY_SHARE).is_some_and(|share| share > MEMORY_FREE_UP_TO_PCT),
        };
        let has_processes = latest(PROCESSES).is_some_and(|processes| processes > 0.0);
        if !(is_held || uses_memory || has_processes) && is_idle {
            self.free.push(key);
            return;
        }
        let used_mb = used_mb.filter(|_| uses_memory && is_idle && !is_held);
        self.memory_in_use.extend(used_mb.map(|used_mb| UsedMemory {
            gpu: Arc::clone(&key),
            used_mb,
            total_mb,
        }));
        self.busy.push(key);
    }
}

/// The nodes by cluster and name. GPUs without a node are in none, and neither is a card whose instances tell their own memory: work
/// goes to these. Critical findings and warnings make a GPU unhealthy, and those of a card its instances.
pub fn node_hints(situation: &Situation<'_>, findings: &[FleetFinding]) -> Vec<NodeHint> {
    let mut reasons: HashMap<&Subject, Vec<String>> = HashMap::new();
    for finding in findings.iter().filter(|finding| finding.severity >= Severity::Warning) {
        let reason = format!("{}: {}", finding.kind.id, finding.sentence);
        reasons.entry(&finding.subject).or_default().push(reason);
    }
    let reporting = situation.gpus.iter().filter(|gpu| !situation.fresh.is_old(gpu.last_seen_ns));
    let instances = reporting.filter(|gpu| tells_memory(gpu));
    let divided: HashSet<Arc<str>> = instances.filter_map(|gpu| card_of(gpu)).collect();
    let by_key: HashMap<&str, &GpuState> =
        situation.gpus.iter().map(|gpu| (gpu.key.as_ref(), gpu.as_ref())).collect();
    let mut nodes: BTreeMap<(Option<&str>, &str), NodeHint> = BTreeMap::new();
    for gpu in situation.gpus.iter().filter(|gpu| !divided.contains(&gpu.key)) {
        let is_gone = situation.fresh.now_ns.saturating_sub(gpu.last_seen_ns) > GONE_AFTER_NS;
        let Some(node) = gpu.identity.shared(IdentityColumn::Node).filter(|_| !is_gone) else { continue };
        let cluster = gpu.identity.shared(IdentityColumn::Cluster);
        let model = gpu.identity.shared(IdentityColumn::Model);
        let hint = nodes.entry((cluster.map(AsRef::as_ref), node)).or_insert_with(|| NodeHint {
            cluster: cluster.cloned(),
            node: Arc::clone(node),
            model: model.cloned(),
            ..NodeHint::default()
        });
        if hint.model.as_ref() != model {
            hint.model = None;
        }
        let card = card_of(gpu);
        let named = std::iter::once(Arc::clone(&gpu.key)).chain(card.clone());
        let why = named.filter_map(|key| reasons.get(&Subject::Gpu(key)));
        let mut why: Vec<String> = why.flatten().cloned().collect();
        if why.is_empty() && situation.fresh.is_old(gpu.last_seen_ns) {
            why.push("it reports nothing any more".to_owned());
        }
        if !why.is_empty() {
            hint.unhealthy.push(UnfitGpu { gpu: Arc::clone(&gpu.key), reasons: why });
            continue;
        }
        let card = card.filter(|_| !tells_memory(gpu)).and_then(|card| by_key.get(&*card).copied());
        hint.take(situation.fresh, gpu, card.unwrap_or(gpu));
    }
    nodes.into_values().collect()
}

/// Whether it is known what of its memory is in use. The partitions of an AMD GPU share that of the whole.
fn tells_memory(gpu: &GpuState) -> bool {
    [MEMORY_USED, MEMORY_FREE, MEMORY_SHARE].into_iter().any(|metric| Fleet::latest(gpu, metric).is_some())
}

/// The key of the card that a GPU is an instance of.
fn card_of(gpu: &GpuState) -> Option<Arc<str>> {
    gpu.identity.card()?.key()
}
