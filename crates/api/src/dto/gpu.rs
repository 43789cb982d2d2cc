//! GPUs and hosts.

use std::collections::{BTreeMap, BTreeSet};

use gpuvitals_analysis::judgement::GpuJudgement;
use gpuvitals_core::IdentityColumn;
use gpuvitals_core::history::{GpuState, LatestValue};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use utoipa::ToSchema;

use super::{IncidentNote, LatestMetrics, Moment, Pagination, Scalar};

/// How a GPU does. The first rule that applies:
/// `stale`: the newest row is older than `stale_after` (90 s unless configured);
/// `unhealthy`: its latest values, themselves no older than `stale_after`, show a condition: an XID that applications do
/// not cause, ECC or RAS errors beyond correction since the driver was loaded, a memory row or page that could not be
/// replaced or waits for a reset to be, a recovery that the driver asks for, a slowdown because of heat, or at most 3 °C
/// left to the slowdown limit;
/// `idle`: its utilisation is below 1 %; `active`: it is 1 % or more;
/// `unknown`: no recent utilisation is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    Active,
    Idle,
    Stale,
    Unhealthy,
    Unknown,
}

impl State {
    pub(crate) const ALL: [Self; 5] = [Self::Active, Self::Idle, Self::Stale, Self::Unhealthy, Self::Unknown];

    /// Its place in an order that begins with what needs somebody.
    pub(crate) fn urgency(self) -> u8 {
        match self {
            Self::Unhealthy => 0,
            Self::Stale => 1,
            Self::Unknown => 2,
            Self::Active => 3,
            Self::Idle => 4,
        }
    }

    /// Spelling in JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Idle => "idle",
            Self::Stale => "stale",
            Self::Unhealthy => "unhealthy",
            Self::Unknown => "unknown",
        }
    }
}

impl From<State> for GpuJudgement {
    fn from(state: State) -> Self {
        match state {
            State::Active => Self::Active,
            State::Idle => Self::Idle,
            State::Stale => Self::Stale,
            State::Unhealthy => Self::Unhealthy,
            State::Unknown => Self::Unknown,
        }
    }
}

/// A GPU in its present state.
#[derive(Debug, Serialize, ToSchema)]
#[schema(example = json!({
    "id": "GPU-5c1d0a44-9f0e-4d53-8f0a-0d1c6c5a7e21", "name": "sim-node-01 / GPU 0", "model": "NVIDIA H100 80GB HBM3",
    "vendor": "nvidia", "hostname": "sim-node-01", "index": 0, "memory_mb": 81559, "driver_version": "570.86.15",
    "state": "active", "state_reason": null, "last_seen": "2026-11-20T16:00:00Z", "simulated": true,
    "judgement": "active", "judgement_reason": null
}))]
pub(crate) struct Gpu<'a> {
    /// Identity of the GPU everywhere: its UUID, with `:partition` for a part of it.
    pub(crate) id: &'a str,
    /// A name for people.
    pub(crate) name: String,
    /// Product name, as the driver gives it.
    pub(crate) model: Option<&'a str>,
    /// `nvidia` or `amd`.
    pub(crate) vendor: Option<&'a str>,
    /// Host it is in.
    pub(crate) hostname: Option<&'a str>,
    /// Its number on the host. For people; it may change with a restart.
    pub(crate) index: Option<i32>,
    /// Device memory in MiB, if it was read.
    pub(crate) memory_mb: Option<i64>,
    /// Version of its driver.
    pub(crate) driver_version: Option<&'a str>,
    /// What it does now, or why that is not known.
    pub(crate) state: State,
    /// The conditions that make it unhealthy, the worst first; for a stale GPU the time since when, and its
    /// last state with the reason.
    pub(crate) state_reason: Option<String>,
    /// Time of its newest row.
    pub(crate) last_seen: Option<Moment>,
    /// Whether it is made up by the simulation.
    pub(crate) simulated: bool,
    /// Its latest values by column; only with `include=metrics` or `metrics`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<BTreeMap<String, Scalar<'static>>>, nullable = false)]
    pub(crate) metrics: Option<LatestMetrics<'a>>,
    /// Texts of its identity columns and its rack, `null` where it has none; only with `labels`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<BTreeMap<String, Option<String>>>, nullable = false)]
    pub(crate) labels: Option<BTreeMap<&'static str, Option<&'a str>>>,
    /// How it does in one word: the worst open finding about it, else its state.
    #[schema(value_type = GpuJudgement)]
    pub(crate) judgement: &'static str,
    /// Why, where the word does not say so itself: the finding, or the reason of the state.
    pub(crate) judgement_reason: Option<String>,
}

/// Some of the GPUs.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct GpuList<'a> {
    /// The GPUs, in the order asked.
    pub(crate) gpus: Vec<Gpu<'a>>,
    /// How many of all that match, but for `judgement`, have which judgement.
    pub(crate) judgements: JudgementCounts,
    /// How many match in all.
    #[schema(example = 64)]
    pub(crate) total: usize,
    /// Which part this is.
    pub(crate) pagination: Pagination,
    /// What could not be read, in words; missing if the answer is whole.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    #[schema(required = false)]
    pub(crate) partial: &'a [String],
}

/// Everything known about one GPU.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct GpuDetail<'a> {
    /// Who it is, where it is and how it does.
    pub(crate) gpu: Gpu<'a>,
    /// The newest value of each column, with its own time.
    #[schema(value_type = BTreeMap<String, LatestMetric<'static>>)]
    pub(crate) latest: LatestColumns<'a>,
    /// Its owner and the source of its rows.
    pub(crate) labels: Labels<'a>,
    /// Time of its oldest row.
    pub(crate) first_seen: Moment,
    /// The incidents of jobs that it has a part in, the newest first; missing if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub(crate) incidents: Vec<IncidentNote<'a>>,
}

/// A value and when it was taken.
#[derive(Debug, Serialize, ToSchema)]
#[schema(example = json!({"value": 412.5, "timestamp": "2026-11-20T16:00:00Z"}))]
pub(crate) struct LatestMetric<'a> {
    /// In the column's unit.
    pub(crate) value: Scalar<'a>,
    /// When it was taken.
    pub(crate) timestamp: Moment,
}

/// The latest values of a GPU with their times.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LatestColumns<'a>(pub(crate) &'a GpuState);

impl Serialize for LatestColumns<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (id, LatestValue { value, timestamp_ns }) in &self.0.latest {
            let latest = LatestMetric { value: Scalar::Number(*value), timestamp: Moment(*timestamp_ns) };
            map.serialize_entry(id.metric().column, &latest)?;
        }
        for (name, value, timestamp_ns) in &self.0.extras {
            let latest = LatestMetric { value: Scalar::from(value), timestamp: Moment(*timestamp_ns) };
            map.serialize_entry(name.as_ref(), &latest)?;
        }
        map.end()
    }
}

/// Owner of a GPU and source of its rows.
#[derive(Debug, Serialize, ToSchema)]
#[schema(example = json!({
    "cluster": "sim", "pod": "train-7", "namespace": "research", "container": "main", "job": null,
    "uuid": "GPU-5c1d0a44-9f0e-4d53-8f0a-0d1c6c5a7e21", "pci": "0000:1b:00.0", "partition": null,
    "vbios": "96.00.89.00.01", "source": "simulated"
}))]
pub(crate) struct Labels<'a> {
    /// Cluster of its host.
    cluster: Option<&'a str>,
    /// Kubernetes pod that holds it.
    pod: Option<&'a str>,
    /// Namespace of the pod.
    namespace: Option<&'a str>,
    /// Container in the pod.
    container: Option<&'a str>,
    /// Batch job that holds it.
    job: Option<&'a str>,
    /// UUID of the device.
    uuid: Option<&'a str>,
    /// PCI address of the device on its host.
    pci: Option<&'a str>,
    /// MIG instance or compute partition.
    partition: Option<&'a str>,
    /// Version of its video BIOS.
    vbios: Option<&'a str>,
    /// How its rows were obtained: `simulated`, `csv`, `json` …
    source: Option<&'a str>,
}

impl<'a> Labels<'a> {
    /// The labels of a GPU.
    pub(crate) fn of(gpu: &'a GpuState) -> Self {
        let text = |column| gpu.identity.get(column);
        Self {
            cluster: text(IdentityColumn::Cluster),
            pod: text(IdentityColumn::Pod),
            namespace: text(IdentityColumn::Namespace),
            container: text(IdentityColumn::Container),
            job: text(IdentityColumn::Job),
            uuid: text(IdentityColumn::Uuid),
            pci: text(IdentityColumn::Pci),
            partition: text(IdentityColumn::Partition),
            vbios: text(IdentityColumn::Vbios),
            source: text(IdentityColumn::Source),
        }
    }
}

/// A host and its GPUs in short.
#[derive(Debug, Serialize, ToSchema)]
#[schema(example = json!({
    "hostname": "sim-node-01", "gpu_count": 8, "models": ["NVIDIA H100 80GB HBM3"], "vendors": ["nvidia"],
    "states": {"active": 6, "idle": 2, "stale": 0, "unhealthy": 0, "unknown": 0},
    "last_seen": "2026-11-20T16:00:00Z", "simulated": true, "judgement": "active",
    "judgements": {"critical": 0, "lost": 0, "unhealthy": 0, "warning": 0, "notice": 0, "unconfirmed": 0, "stale": 0,
                   "unknown": 0, "active": 6, "idle": 2}
}))]
pub(crate) struct Host<'a> {
    /// Name of the host.
    pub(crate) hostname: &'a str,
    /// How many GPUs were ever seen in it.
    pub(crate) gpu_count: usize,
    /// Their product names.
    #[schema(value_type = Vec<String>)]
    pub(crate) models: BTreeSet<&'a str>,
    /// Vendors of its GPUs.
    #[schema(value_type = Vec<String>)]
    pub(crate) vendors: BTreeSet<&'a str>,
    /// How many are in which state.
    pub(crate) states: StateCounts,
    /// Time of the newest row of any of them.
    pub(crate) last_seen: Moment,
    /// Whether all of them are made up by the simulation.
    pub(crate) simulated: bool,
    /// The judgement of that of its GPUs that needs somebody most.
    #[schema(value_type = GpuJudgement)]
    pub(crate) judgement: &'static str,
    /// How many of its GPUs have which judgement.
    pub(crate) judgements: JudgementCounts,
}

/// How many GPUs are in which state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct StateCounts {
    active: usize,
    idle: usize,
    stale: usize,
    unhealthy: usize,
    unknown: usize,
}

impl StateCounts {
    /// Counts one more.
    pub(crate) fn add(&mut self, state: State) {
        *match state {
            State::Active => &mut self.active,
            State::Idle => &mut self.idle,
            State::Stale => &mut self.stale,
            State::Unhealthy => &mut self.unhealthy,
            State::Unknown => &mut self.unknown,
        } += 1;
    }
}

/// How many GPUs or hosts have which judgement.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct JudgementCounts {
    critical: usize,
    lost: usize,
    unhealthy: usize,
    warning: usize,
    notice: usize,
    unconfirmed: usize,
    stale: usize,
    unknown: usize,
    active: usize,
    idle: usize,
}

impl JudgementCounts {
    /// How many there are of each.
    pub(crate) fn of(judgements: impl Iterator<Item = GpuJudgement>) -> Self {
        let mut counts = Self::default();
        judgements.for_each(|one| counts.add(one));
        counts
    }

    /// Counts one more.
    pub(crate) fn add(&mut self, judgement: GpuJudgement) {
        *match judgement {
            GpuJudgement::Critical => &mut self.critical,
            GpuJudgement::Lost => &mut self.lost,
            GpuJudgement::Unhealthy => &mut self.unhealthy,
            GpuJudgement::Warning => &mut self.warning,
            GpuJudgement::Notice => &mut self.notice,
            GpuJudgement::Unconfirmed => &mut self.unconfirmed,
            GpuJudgement::Stale => &mut self.stale,
            GpuJudgement::Unknown => &mut self.unknown,
            GpuJudgement::Active => &mut self.active,
            GpuJudgement::Idle => &mut self.idle,
        } += 1;
    }
}

/// Some of the hosts.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HostList<'a> {
    /// The hosts, by name. GPUs with an unknown host are in none.
    pub(crate) hosts: Vec<Host<'a>>,
    /// How many of all hosts have which judgement, whichever `judgement` asks for.
    pub(crate) judgements: JudgementCounts,
    /// Number of all entries.
    #[schema(example = 8)]
    pub(crate) total: usize,
    /// Which part this is.
    pub(crate) pagination: Pagination,
    /// What could not be read, in words; missing if the answer is whole.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    #[schema(required = false)]
    pub(crate) partial: &'a [String],
}
