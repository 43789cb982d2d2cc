//! Hints for schedulers: which GPUs of each node are free, busy or unhealthy, and which of the busy ones only hold memory.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use gpuvitals_core::batch::Value;
use gpuvitals_core::history::Fleet;
use gpuvitals_core::usage::IDLE_BELOW_PCT;
use gpuvitals_core::{IdentityColumn, MetricId};
use serde::Serialize;

use crate::condition::Severity;
use crate::findings::threshold::GONE_AFTER_NS;
use crate::findings::{FleetFinding, Situation, Subject, holder_of};

const UTILIZATION: MetricId = MetricId::of("utilization_pct");
const PROCESSES: MetricId = MetricId::of("process_count");
const MEMORY_USED: MetricId = MetricId::of("memory_used_mb");
const MEMORY_TOTAL: MetricId = MetricId::of("memory_total_mb");
/// Memory in MiB up to which a GPU is free: drivers and consoles take some hundred for themselves.
const MEMORY_FREE_UP_TO_MB: f64 = 1_024.0;

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
}

/// The nodes by cluster and name. GPUs without a node are in none. Critical findings and warnings make a GPU unhealthy.
pub fn node_hints(situation: &Situation<'_>, findings: &[FleetFinding]) -> Vec<NodeHint> {
    let mut reasons: HashMap<&Subject, Vec<String>> = HashMap::new();
    for finding in findings.iter().filter(|finding| finding.severity >= Severity::Warning) {
        let reason = format!("{}: {}", finding.kind.id, finding.sentence);
        reasons.entry(&finding.subject).or_default().push(reason);
    }
    let mut nodes: BTreeMap<(Option<&str>, &str), NodeHint> = BTreeMap::new();
    for gpu in situation.gpus {
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
        let mut why = reasons.get(&Subject::Gpu(Arc::clone(&gpu.key))).cloned().unwrap_or_default();
        if why.is_empty() && situation.fresh.is_old(gpu.last_seen_ns) {
            why.push("it reports nothing any more".to_owned());
        }
        let latest = |metric| situation.fresh.recent(gpu, metric).map(Value::as_f64);
        let is_held = holder_of(gpu).is_some();
        let is_idle = latest(UTILIZATION).is_none_or(|busy| busy < IDLE_BELOW_PCT);
        let used_mb = latest(MEMORY_USED).filter(|used| *used > MEMORY_FREE_UP_TO_MB);
        if !why.is_empty() {
            hint.unhealthy.push(UnfitGpu { gpu: Arc::clone(&gpu.key), reasons: why });
        } else if let Some(used_mb) = used_mb.filter(|_| is_idle && !is_held) {
            hint.busy.push(Arc::clone(&gpu.key));
            // It does not change, and is read seldom.
            let total_mb = Fleet::latest(gpu, MEMORY_TOTAL).map(|latest| latest.value.as_f64());
            hint.memory_in_use.push(UsedMemory { gpu: Arc::clone(&gpu.key), used_mb, total_mb });
        } else if is_held || !is_idle || latest(PROCESSES).is_some_and(|processes| processes > 0.0) {
            hint.busy.push(Arc::clone(&gpu.key));
        } else {
            hint.free.push(Arc::clone(&gpu.key));
        }
    }
    nodes.into_values().collect()
}
