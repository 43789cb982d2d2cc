//! Findings: what is wrong with a fleet now, why that is believed, whom it concerns and what to do.
//!
//! [`judge`] looks at the latest state of all GPUs and their last ten minutes ([`Recent`]) and returns candidates. A
//! [`Tracker`] turns candidates into findings: a finding opens after it has held for a while and closes later than it
//! opened, and keeps its beginning meanwhile. [`KINDS`] and [`threshold`] hold all rules and numbers; docs/findings.md
//! explains them.

mod began;
mod clock;
mod groups;
mod hardware;
mod kinds;
mod life;
mod recent;
mod silence;
pub mod threshold;
mod throttling;
mod tracker;
mod twice;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use gpuvitals_core::history::GpuState;
use gpuvitals_core::{IdentityColumn, MetricId};
use serde::Serialize;

use crate::condition::{self, Severity};
use crate::freshness::Freshness;

pub use began::{Began, LOOK_BACK_NS, LookBack, Shown};
pub use clock::{ClockWatch, RowAhead};
pub use groups::{HolderLoad, MemberLoad, holder_loads};
pub use kinds::{FindingKind, KINDS};
pub use life::{Acknowledgement, LifeChange, LifeKind, life_rows};
pub(crate) use recent::SETTLE_NS;
pub use recent::{GpuWindow, Recent};
pub use silence::{LostGpu, lost_gpus};
pub use tracker::Tracker;

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq)]
pub struct FleetFinding {
    /// Its kind.
    pub kind: &'static FindingKind,
    /// How urgent it is.
    pub severity: Severity,
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
    /// Who looks after it.
    pub acknowledged: Option<Acknowledgement>,
}

impl FleetFinding {
    /// Its identity, `kind:subject`; the same as long as it is open and when it comes again.
    pub fn id(&self) -> String {
        format!("{}:{}", self.kind.id, self.subject)
    }
}

/// What a finding is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Subject {
    /// All nodes.
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
    fn node(cluster: Option<&str>, name: &str) -> Self {
        Self::Node(cluster.map_or_else(|| name.into(), |cluster| format!("{cluster}/{name}").into()))
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

/// A value that shows a finding.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = EvidenceEntry))]
pub struct Evidence {
    /// Column of the catalogue, or a quantity derived from some.
    pub quantity: &'static str,
    /// Its unit; empty for none.
    pub unit: &'static str,
    /// The value.
    pub value: f64,
    /// What it is compared with.
    pub compared_with: Option<ComparedValue>,
}

/// The other value of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ComparedValue {
    /// The value.
    pub value: f64,
    /// Where it comes from.
    pub origin: &'static str,
}

impl Evidence {
    /// A value of a metric.
    pub fn of(metric: MetricId, value: f64) -> Self {
        let metric = metric.metric();
        Self { quantity: metric.column, unit: metric.unit.as_str(), value, compared_with: None }
    }

    /// A value of a derived quantity.
    pub fn derived(quantity: &'static str, unit: &'static str, value: f64) -> Self {
        Self { quantity, unit, value, compared_with: None }
    }

    /// Beside another value.
    #[must_use]
    pub fn beside(self, value: f64, origin: &'static str) -> Self {
        Self { compared_with: Some(ComparedValue { value, origin }), ..self }
    }
}

/// Whom a finding concerns. Of several GPUs the texts that all of them share.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reach {
    /// The GPUs that it is about.
    pub gpus: Vec<Arc<str>>,
    /// How many GPUs do the work that it disturbs: those of the job, or those it is about.
    pub concerned_gpus: usize,
    /// Cluster.
    pub cluster: Option<Arc<str>>,
    /// Node.
    pub node: Option<Arc<str>>,
    /// Namespace of the holder.
    pub namespace: Option<Arc<str>>,
    /// Pod that holds the GPU.
    pub pod: Option<Arc<str>>,
    /// Job that holds the GPU.
    pub job: Option<Arc<str>>,
    /// Whether all of the GPUs are simulated.
    pub is_simulated: bool,
}

impl Reach {
    fn of(gpus: &[&Arc<GpuState>]) -> Self {
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
            is_simulated: gpus.iter().all(|gpu| gpu.identity.is_simulated()),
        }
    }
}

/// A finding that may open, or stay open.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// Whether it is strong enough to open. A weaker one only keeps a finding open.
    pub opens: bool,
    /// When it began, if the values at hand say so; else the history is asked ([`LookBack`]).
    pub began: Option<Began>,
    /// The finding; its `since_ns` is the tracker's.
    pub finding: FleetFinding,
}

/// What is known about a fleet.
#[derive(Debug, Clone, Copy)]
pub struct Situation<'a> {
    /// Now, and the age of its newest row from which a GPU is stale.
    pub fresh: Freshness,
    /// The latest state of every GPU.
    pub gpus: &'a [Arc<GpuState>],
    /// Their last minutes.
    pub recent: &'a Recent,
    /// GPUs whose agent reports that they are lost.
    pub lost: &'a HashMap<Arc<str>, LostGpu>,
}

/// Everything that may be wrong, in no particular order.
pub fn judge(situation: &Situation<'_>) -> Vec<Candidate> {
    let survey = Survey::of(*situation);
    let mut found = Vec::new();
    survey.conditions(&mut found);
    survey.silence(&mut found);
    survey.missing(&mut found);
    survey.two_nodes(&mut found);
    survey.two_agents(&mut found);
    survey.throttling(&mut found);
    survey.links(&mut found);
    survey.fans(&mut found);
    survey.drivers(&mut found);
    survey.stragglers(&mut found);
    survey.idle_holders(&mut found);
    found
}

/// A situation with what several kinds need.
struct Survey<'a> {
    now: Situation<'a>,
    /// GPUs that report, with their last minutes.
    present: Vec<Member<'a>>,
    /// The present GPUs of each job, by [`holder_of`].
    holders: HashMap<Arc<str>, Vec<usize>>,
    /// The present GPUs of each model, and those whose model is not known.
    models: HashMap<Option<Arc<str>>, Vec<usize>>,
}

/// A GPU that reports.
#[derive(Clone, Copy)]
struct Member<'a> {
    gpu: &'a Arc<GpuState>,
    window: Option<GpuWindow>,
}

impl<'a> Survey<'a> {
    fn of(now: Situation<'a>) -> Self {
        let is_present = |gpu: &&Arc<GpuState>| !now.fresh.is_old(gpu.last_seen_ns);
        let member = |gpu: &'a Arc<GpuState>| Member { gpu, window: now.recent.window(gpu) };
        let present: Vec<Member<'a>> = now.gpus.iter().filter(is_present).map(member).collect();
        let (mut holders, mut models) = (HashMap::new(), HashMap::new());
        for (place, Member { gpu, .. }) in present.iter().enumerate() {
            if let Some(holder) = holder_of(gpu) {
                holders.entry(holder).or_insert_with(Vec::new).push(place);
            }
            let model = gpu.identity.shared(IdentityColumn::Model).cloned();
            models.entry(model).or_insert_with(Vec::new).push(place);
        }
        Self { now, present, holders, models }
    }

    fn members(&self, places: &[usize]) -> impl Iterator<Item = Member<'a>> {
        places.iter().filter_map(|place| self.present.get(*place).copied())
    }

    /// The reach of a finding about one GPU: its job is concerned.
    fn reach(&self, gpu: &Arc<GpuState>) -> Reach {
        let job = holder_of(gpu).and_then(|holder| self.holders.get(&holder));
        Reach { concerned_gpus: job.map_or(1, |job| job.len().max(1)), ..Reach::of(&[gpu]) }
    }

    fn about_gpu(
        &self,
        kind: &'static str,
        gpu: &Arc<GpuState>,
        sentence: String,
        evidence: Vec<Evidence>,
    ) -> FleetFinding {
        let subject = Subject::Gpu(Arc::clone(&gpu.key));
        finding(kind, subject, sentence, evidence, self.reach(gpu))
    }

    /// What the one table of conditions says.
    fn conditions(&self, found: &mut Vec<Candidate>) {
        for Member { gpu, .. } in &self.present {
            let latest = |metric| self.now.fresh.recent(gpu, metric);
            for matched in condition::found(latest) {
                let metrics = matched.condition.metrics.iter();
                let evidence = metrics.zip(matched.values());
                let evidence: Vec<Evidence> =
                    evidence.map(|(metric, value)| Evidence::of(*metric, value.as_f64())).collect();
                let finding = self.about_gpu(matched.condition.id, gpu, matched.sentence(), evidence);
                let finding = FleetFinding { remedy: matched.condition.remedy.into(), ..finding };
                found.push(Candidate { opens: true, began: None, finding });
            }
        }
    }
}

/// A finding whose beginning the tracker knows.
fn finding(
    kind: &'static str,
    subject: Subject,
    sentence: String,
    evidence: Vec<Evidence>,
    reach: Reach,
) -> FleetFinding {
    let kind = kinds::kind(kind);
    let (severity, remedy) = (kind.severity, Cow::Borrowed(kind.remedy));
    let acknowledged = None;
    FleetFinding {
        kind,
        severity,
        subject,
        since_ns: 0,
        since_is_bound: true,
        sentence,
        evidence,
        reach,
        remedy,
        acknowledged,
    }
}

/// The value that most of them have, if they are enough to tell and this share of them has it.
fn common<T: Ord>(values: impl Iterator<Item = T>, share_min: f64) -> Option<T> {
    let mut counts: BTreeMap<T, usize> = BTreeMap::new();
    values.for_each(|value| *counts.entry(value).or_default() += 1);
    let all: usize = counts.values().sum();
    let (value, count) = counts.into_iter().max_by_key(|(_, count)| *count)?;
    #[expect(clippy::cast_precision_loss, reason = "numbers of GPUs or nodes")]
    let share = count as f64 / all as f64;
    (all > threshold::PEERS_MIN && share >= share_min).then_some(value)
}

/// The work that holds a GPU, as `cluster/namespace/name`: its job, or else its pod; none for a free GPU.
pub fn holder_of(gpu: &GpuState) -> Option<Arc<str>> {
    let text = |column| gpu.identity.get(column);
    let name = text(IdentityColumn::Job).or_else(|| text(IdentityColumn::Pod))?;
    let [cluster, namespace] =
        [IdentityColumn::Cluster, IdentityColumn::Namespace].map(|column| text(column).unwrap_or_default());
    Some(Arc::from(format!("{cluster}/{namespace}/{name}")))
}

#[cfg(test)]
mod tests;
