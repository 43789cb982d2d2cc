//! A survey looks at all GPUs of a fleet as they are now.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use gpuvitals_core::batch::Value;
use gpuvitals_core::history::GpuState;
use gpuvitals_core::number::float;
use gpuvitals_core::{IdentityColumn, MetricId};

use super::Evidence;
use super::recent::{GpuWindow, Recent};
use super::since::Began;
use super::subject::{Candidate, FleetFinding, Reach, Subject};
use crate::condition::{self, with_index, xid};
use crate::findings::{kinds, subject, threshold};
use crate::freshness::Freshness;

const XID_LAST: MetricId = MetricId::of("xid_last");

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

/// A situation with what several kinds need.
pub(super) struct Survey<'a> {
    pub(super) now: Situation<'a>,
    /// GPUs that report, with their last minutes.
    pub(super) present: Vec<Member<'a>>,
    /// The present GPUs of each job, by [`holder_of`].
    pub(super) holders: HashMap<Arc<str>, Vec<usize>>,
    /// The present GPUs of each model, and those whose model is not known.
    pub(super) models: HashMap<Option<Arc<str>>, Vec<usize>>,
}

/// A GPU that reports.
#[derive(Clone, Copy)]
pub(super) struct Member<'a> {
    pub(super) gpu: &'a Arc<GpuState>,
    pub(super) window: Option<GpuWindow>,
}

impl<'a> Survey<'a> {
    pub(super) fn of(now: Situation<'a>) -> Self {
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

    pub(super) fn members(&self, places: &[usize]) -> impl Iterator<Item = Member<'a>> {
        places.iter().filter_map(|place| self.present.get(*place).copied())
    }

    /// The reach of a finding about one GPU: its job is concerned.
    pub(super) fn reach(&self, gpu: &Arc<GpuState>) -> Reach {
        let job = holder_of(gpu).and_then(|holder| self.holders.get(&holder));
        Reach { concerned_gpus: job.map_or(1, |job| job.len().max(1)), ..Reach::of(&[gpu]) }
    }

    pub(super) fn about_gpu(
        &self,
        kind: &'static str,
        gpu: &Arc<GpuState>,
        sentence: String,
        evidence: Vec<Evidence>,
    ) -> FleetFinding {
        let subject = Subject::Gpu(Arc::clone(&gpu.key));
        let finding = finding(kind, subject, sentence, evidence, self.reach(gpu));
        FleetFinding { remedy: with_index(finding.remedy, gpu.identity.index), ..finding }
    }

    /// What the one table of conditions says.
    pub(super) fn conditions(&self, found: &mut Vec<Candidate>) {
        for Member { gpu, .. } in &self.present {
            let told = self.told_xid(gpu).filter(|_| !self.now.fresh.is_blank(gpu));
            let value = |metric: MetricId| match told {
                Some((_, code)) if metric == XID_LAST => Some(Value::Int(code)),
                _ => self.now.fresh.recent(gpu, metric),
            };
            let matched: Vec<_> = condition::found(value).collect();
            let asked = matched.iter().find(|one| one.condition.id == "recovery_action");
            for one in &matched {
                let metrics = one.condition.metrics.iter();
                let evidence = metrics.zip(one.values());
                let evidence: Vec<Evidence> =
                    evidence.map(|(metric, value)| Evidence::of(*metric, value.as_f64())).collect();
                let mut finding = self.about_gpu(one.condition.id, gpu, one.sentence(), evidence);
                (finding.covers, finding.yields_to) = one.same_fault();
                finding.remedy = one.remedy(&gpu.identity);
                let told = told.filter(|_| one.condition.metrics.contains(&XID_LAST));
                if told.is_some() {
                    finding.sentence = format!("{}, by the kernel's log alone", finding.sentence);
                }
                let began = told.map(|(at_ns, _)| Began::exactly(at_ns));
                if one.condition.id == "ras_uncorrected"
                    && let Some((blocks, remedy)) = self.now.recent.ras.of(&gpu.key)
                {
                    finding.sentence = format!("{}, in {blocks}", finding.sentence);
                    finding.remedy =
                        remedy.map_or(finding.remedy, |remedy| with_index(remedy.into(), gpu.identity.index));
                }
                // The driver knows better than a table what its GPU needs.
                if let Some(asked) = asked.filter(|asked| {
                    finding.covers.contains(&asked.condition.id)
                        || finding.kind.covers.contains(&asked.condition.id)
                }) {
                    finding.sentence = format!("{}; {}", finding.sentence, asked.sentence());
                    // What has time by its code has none if the driver wants it at once.
                    if asked.is_asked_at_once() {
                        finding.severity = asked.condition.severity;
                    }
                    finding.remedy = asked.remedy(&gpu.identity);
                }
                found.push(Candidate { opens: true, began, finding });
            }
        }
    }

    /// When an XID came to a GPU of which its driver does not tell, and its code. One of the driver's that needs somebody says more.
    pub(super) fn told_xid(&self, gpu: &GpuState) -> Option<(i64, i64)> {
        let told = self.now.recent.told.xid(&gpu.key, self.now.fresh.now_ns)?;
        #[expect(clippy::cast_possible_truncation, reason = "a code")]
        let by_driver = self.now.fresh.recent(gpu, XID_LAST).map_or(0, |code| code.as_f64() as i64);
        (by_driver <= 0 || xid::is_of_application(by_driver)).then_some(told)
    }
}

/// A finding whose beginning the tracker knows.
pub(crate) fn finding(
    kind: &'static str,
    subject: Subject,
    sentence: String,
    evidence: Vec<Evidence>,
    reach: Reach,
) -> FleetFinding {
    let kind = kinds::kind(kind);
    let remedy = condition::for_vendor(kind.remedy, reach.vendor.as_deref());
    FleetFinding {
        kind,
        severity: kind.severity,
        opens_after_ns: kind.opens_after_ns,
        subject,
        since_ns: 0,
        since_is_bound: true,
        sentence,
        evidence,
        reach,
        remedy,
        silenced: None,
        covers: &[],
        yields_to: &[],
    }
}

/// The value that most of them have, if they are enough to tell and this share of them has it.
pub(super) fn common<T: Ord>(values: impl Iterator<Item = T>, share_min: f64) -> Option<T> {
    let mut counts: BTreeMap<T, usize> = BTreeMap::new();
    values.for_each(|value| *counts.entry(value).or_default() += 1);
    let all: usize = counts.values().sum();
    let (value, count) = counts.into_iter().max_by_key(|(_, count)| *count)?;
    let share = float(count) / float(all);
    (all > threshold::PEERS_MIN && share >= share_min).then_some(value)
}

/// The work that holds a GPU, as `cluster/namespace/name`: its job, or else its pod; none for a free GPU.
pub fn holder_of(gpu: &GpuState) -> Option<Arc<str>> {
    let text = |column| gpu.identity.get(column);
    let name = text(IdentityColumn::Job).or_else(|| text(IdentityColumn::Pod))?;
    Some(subject::holder_id(text(IdentityColumn::Cluster), text(IdentityColumn::Namespace), name))
}

/// A GPU that its agent reports as lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostGpu {
    /// Since when, nanoseconds UTC since 1970.
    pub at_ns: i64,
    /// Why, in the agent's words.
    pub detail: Arc<str>,
}
