//! A finding has a subject and a reach.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use gpuvitals_core::IdentityColumn;
use gpuvitals_core::history::GpuState;
use gpuvitals_core::identity::host_id;
use gpuvitals_core::number::float;

use super::kinds::FindingKind;
use crate::condition::Severity;
use crate::findings::{Began, Evidence, Silence};

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq)]
pub struct FleetFinding {
    /// The row of the table of kinds: severity, remedy, and how long it takes to open and to close.
    pub kind: &'static FindingKind,
    /// How urgent it is.
    pub severity: Severity,
    /// How long it must hold until it opens, nanoseconds: as its kind says, or longer where rows are rare.
    pub opens_after_ns: i64,
    /// What it is about. Kind and subject identify the finding.
    pub subject: Subject,
    /// When it began, as far as is known, nanoseconds UTC since 1970.
    pub since_ns: i64,
    /// Whether it may have begun earlier: nobody has looked further back.
    pub since_is_bound: bool,
    /// What is wrong, for people.
    pub sentence: String,
    /// The values that show it.
    pub evidence: Vec<Evidence>,
    /// Whom it concerns.
    pub reach: Reach,
    /// What to do; commands in backquotes.
    pub remedy: Cow<'static, str>,
    /// The silence that covers it: somebody looks after it.
    pub silenced: Option<Silence>,
    /// Kinds about the same subject that by its values tell of the same fault and say less.
    pub covers: &'static [&'static str],
    /// Kinds about the same subject that by its values tell of the same fault and say more.
    pub yields_to: &'static [&'static str],
}

impl FleetFinding {
    /// Its identity, `kind:subject`; the same as long as it is open and when it comes again.
    pub fn id(&self) -> String {
        format!("{}:{}", self.kind.id, self.subject)
    }

    /// The host that it is about, or that all of its GPUs are on: `cluster/name`; its name if no cluster is known.
    pub fn host(&self) -> Option<Arc<str>> {
        match (&self.subject, &self.reach.node) {
            (Subject::Node(name), _) => Some(Arc::clone(name)),
            (_, Some(node)) => Some(host_id(self.reach.cluster.as_deref(), node)),
            _ => None,
        }
    }

    /// The job or pod that it is about, or that holds all of its GPUs, as `cluster/namespace/name`.
    pub fn holder(&self) -> Option<Arc<str>> {
        let Reach { cluster, namespace, pod, job, .. } = &self.reach;
        match &self.subject {
            Subject::Job(holder) => Some(Arc::clone(holder)),
            _ => Some(holder_id(cluster.as_deref(), namespace.as_deref(), job.as_ref().or(pod.as_ref())?)),
        }
    }

    /// GPU hours that are held for nothing in each hour that it lasts: of GPUs that stand still, of those of a job that wait for a slower
    /// one, and of one that does less than the others of its job; none: the GPUs work, or it is not known.
    pub fn wasted_gpu_hours_per_hour(&self) -> Option<f64> {
        let concerned = float(self.reach.concerned_gpus);
        match self.kind.id {
            "job_hung" | "job_stalled" | "idle_held" => Some(concerned),
            // The others wait for it in every step; it works itself.
            "straggler" => {
                let others = (concerned - float(self.reach.gpus.len())).max(0.0);
                let (clock, usual) = self.compared("gpu_clock_mhz")?;
                (usual > 0.0).then(|| others * (1.0 - clock / usual).max(0.0))
            }
            // Whether the others wait for it is not known: of it alone it is what it does less.
            "starved" => {
                let (busy, usual) = self.compared("utilization_pct")?;
                Some(float(self.reach.gpus.len()) * (usual - busy).max(0.0) / 100.0)
            }
            _ => None,
        }
    }

    /// A value of its evidence, and that with which it is compared.
    fn compared(&self, quantity: &str) -> Option<(f64, f64)> {
        let evidence = self.evidence.iter().find(|one| one.quantity == quantity)?;
        Some((evidence.value, evidence.compared_with.as_ref()?.value))
    }

    /// Whether another one about the same subject tells of the same fault and says less.
    pub(super) fn covers(&self, other: &Self) -> bool {
        let id = other.kind.id;
        self.kind.covers.contains(&id) || self.covers.contains(&id) || other.yields_to.contains(&self.kind.id)
    }
}

/// What a finding is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Subject {
    /// All nodes together.
    Fleet,
    /// A node, as `cluster/name`; by name if no cluster is known.
    Node(Arc<str>),
    /// A GPU, by key.
    Gpu(Arc<str>),
    /// A job or pod, as `cluster/namespace/name`.
    Job(Arc<str>),
    /// A model of GPU, by name.
    Model(Arc<str>),
}

impl Subject {
    pub(super) fn node(cluster: Option<&str>, name: &str) -> Self {
        Self::Node(host_id(cluster, name))
    }

    /// Its type, for programs.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Fleet => "fleet",
            Self::Node(_) => "node",
            Self::Gpu(_) => "gpu",
            Self::Job(_) => "job",
            Self::Model(_) => "model",
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fleet => f.write_str("fleet"),
            Self::Node(name) | Self::Gpu(name) | Self::Job(name) | Self::Model(name) => f.write_str(name),
        }
    }
}

/// A job or pod as `cluster/namespace/name`, each empty if it is not known.
pub(super) fn holder_id(cluster: Option<&str>, namespace: Option<&str>, name: &str) -> Arc<str> {
    format!("{}/{}/{name}", cluster.unwrap_or_default(), namespace.unwrap_or_default()).into()
}

/// The node that a GPU is on, as findings name it; none: no node is known.
pub fn host_of(gpu: &GpuState) -> Option<Arc<str>> {
    Some(host_id(gpu.identity.get(IdentityColumn::Cluster), gpu.identity.node()?))
}

/// Whom a finding concerns. Of several GPUs the texts that all of them share.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reach {
    /// The GPUs that it is about.
    pub gpus: Vec<Arc<str>>,
    /// How many GPUs do the work that it disturbs: those of the job, or those it is about.
    pub concerned_gpus: usize,
    /// Name of the cluster that all of them are in; none: several, or it is not known.
    pub cluster: Option<Arc<str>>,
    /// Name of the node that all of them are on; none: several, or it is not known.
    pub node: Option<Arc<str>>,
    /// Namespace of the holder.
    pub namespace: Option<Arc<str>>,
    /// Pod that holds the GPU.
    pub pod: Option<Arc<str>>,
    /// Job that holds the GPU.
    pub job: Option<Arc<str>>,
    /// Vendor of the GPUs.
    pub vendor: Option<Arc<str>>,
    /// Whether all of the GPUs are simulated.
    pub is_simulated: bool,
}

impl Reach {
    pub(super) fn of(gpus: &[&Arc<GpuState>]) -> Self {
        let shared = |column| {
            let mut texts = gpus.iter().map(|gpu| gpu.identity.shared(column));
            let first = texts.next()??;
            texts.all(|text| text == Some(first)).then(|| Arc::clone(first))
        };
        Self {
            gpus: gpus.iter().map(|gpu| Arc::clone(&gpu.key)).collect(),
            concerned_gpus: gpus.len(),
            cluster: shared(IdentityColumn::Cluster),
            node: shared(IdentityColumn::Node),
            namespace: shared(IdentityColumn::Namespace),
            pod: shared(IdentityColumn::Pod),
            job: shared(IdentityColumn::Job),
            vendor: shared(IdentityColumn::Vendor),
            is_simulated: gpus.iter().all(|gpu| gpu.identity.is_simulated()),
        }
    }
}

/// A finding that may open, or stay open.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// Whether it is strong enough to open. A weaker one only keeps a finding open.
    pub opens: bool,
    /// When it began, if the values at hand say so; else the history is asked ([`LookBack`](super::LookBack)).
    pub began: Option<Began>,
    /// The finding; its `since_ns` is the tracker's.
    pub finding: FleetFinding,
}
