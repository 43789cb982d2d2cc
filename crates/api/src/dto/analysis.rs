//! Findings, stragglers, and what they say for scheduling.

use std::sync::Arc;

use gpuvitals_analysis::findings::{ComparedValue, Evidence, FleetFinding, HolderLoad, MemberLoad, Silence};
use gpuvitals_analysis::robust::Spread;
use gpuvitals_core::usage::BatchJob;
use serde::Serialize;
use utoipa::ToSchema;

use super::{IncidentNote, Moment, Pagination};

/// Most GPUs that a finding names.
const NAMED_GPUS_MAX: usize = 16;

/// Something that is wrong, why that is believed, whom it concerns and what to do.
#[derive(Debug, Serialize, ToSchema)]
#[schema(example = json!({
    "id": "straggler:GPU-5c1d0a44", "kind": "straggler", "severity": "warning",
    "subject": {"type": "gpu", "id": "GPU-5c1d0a44", "name": "sim-node-01 / GPU 1"}, "since": "2026-11-20T16:00:00Z",
    "since_at_least": false,
    "sentence": "its clock of 1530 MHz is 23 % below that of its job, whose 7 other GPUs wait for it",
    "evidence": [{"quantity": "gpu_clock_mhz", "unit": "MHz", "value": 1530.0,
                  "compared_with": {"value": 1980.0, "origin": "median of the job"},
                  "text": "GPU clock 1530 MHz against 1980 MHz, median of the job"}],
    "reach": {"gpus": ["GPU-5c1d0a44"], "gpu_count": 1, "concerned_gpus": 8, "cluster": null, "hostname": "sim-node-01",
              "namespace": "research", "pod": "train-7", "job": "train-7"},
    "meaning": "A GPU is slower than the others of its job, which wait for it.",
    "next_step": "`nvidia-smi -q -d CLOCK,PERFORMANCE -i INDEX` on the node …", "simulated": true
}))]
pub(crate) struct FindingEntry<'a> {
    /// Identity: kind and subject. The same while the finding is open, and when it comes again.
    id: String,
    /// Kind, see docs/findings.md.
    kind: &'static str,
    /// `critical`: a GPU, node or fleet fails or its results may be wrong; `warning`: it needs attention; `notice`: it costs speed
    /// or money.
    severity: &'static str,
    /// What it is about.
    subject: FindingSubject<'a>,
    /// The first row that shows it, as far as the look back goes: 24 hours.
    since: Moment,
    /// Whether it may have begun earlier: it has gone on for at least so long.
    since_at_least: bool,
    /// What is wrong, for people.
    sentence: &'a str,
    /// The values that show it.
    evidence: Vec<EvidenceEntry>,
    /// Whom it concerns.
    reach: ReachEntry<'a>,
    /// What the kind means.
    meaning: &'static str,
    /// What to do; commands in backquotes.
    next_step: &'a str,
    /// Whether all of its GPUs are made up by the simulation.
    simulated: bool,
    /// The silence that covers it, its own, its job's or its host's: somebody looks after it.
    silenced: Option<SilenceEntry<'a>>,
    /// The incidents of jobs that it caused, the newest first; missing if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    incidents: Vec<IncidentNote<'a>>,
}

/// A value that shows a finding.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EvidenceEntry {
    /// Column of the catalogue, or a quantity derived from some.
    quantity: &'static str,
    /// Its unit; empty for none.
    unit: &'static str,
    /// What was seen, in that unit.
    value: f64,
    /// What it is compared with.
    compared_with: Option<ComparedValue>,
    /// All of it in words, for people.
    text: String,
}

impl EvidenceEntry {
    /// The entries of some values.
    pub(crate) fn all(evidence: &[Evidence]) -> Vec<Self> {
        let entry = |one: &Evidence| Self {
            quantity: one.quantity,
            unit: one.unit,
            value: one.value,
            compared_with: one.compared_with,
            text: one.text(),
        };
        evidence.iter().map(entry).collect()
    }
}

/// A silence: somebody looks after what it covers, which stands behind all else.
#[derive(Debug, Serialize, ToSchema)]
#[schema(example = json!({
    "type": "host", "id": "a/node-7", "at": "2026-11-20T16:00:00Z", "until": "2026-11-21T09:00:00Z", "note": "Kim: board exchange"
}))]
pub(crate) struct SilenceEntry<'a> {
    /// What is silenced: `finding`, `host` or `job`.
    r#type: &'static str,
    /// Id of the finding; `cluster/name` of the host (its name if no cluster is known); `cluster/namespace/name` of the job.
    id: &'a str,
    /// When it was silenced.
    at: Moment,
    /// When it ends by itself; null: when the finding closes.
    until: Option<Moment>,
    /// Who and why, in their words; may be empty.
    note: &'a str,
}

impl<'a> From<&'a Silence> for SilenceEntry<'a> {
    fn from(silence: &'a Silence) -> Self {
        let Silence { silenced, at_ns, until_ns, note, .. } = silence;
        Self {
            r#type: silenced.type_name(),
            id: silenced.id(),
            at: Moment(*at_ns),
            until: until_ns.map(Moment),
            note,
        }
    }
}

/// All silences that hold.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SilenceList<'a> {
    /// The silences, in the order of what they silence: findings, hosts, jobs.
    pub(crate) silences: Vec<SilenceEntry<'a>>,
    /// When the fleet was judged.
    pub(crate) judged_at: Moment,
}

/// What a finding is about.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FindingSubject<'a> {
    /// `gpu`, `node`, `job`, `model` or `fleet`.
    r#type: &'static str,
    /// Key of the GPU, `cluster/name` of the node (its name if no cluster is known), name of the model,
    /// `cluster/namespace/name` of the job.
    #[schema(value_type = String)]
    id: String,
    /// A name for people.
    name: &'a str,
}

/// Whom a finding concerns. Of several GPUs the texts that all of them share.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ReachEntry<'a> {
    /// Keys of the GPUs that it is about, 16 at most; `/api/v1/gpus?finding=ID` has all of them.
    #[schema(value_type = Vec<String>)]
    gpus: Vec<&'a str>,
    /// How many GPUs it is about.
    gpu_count: usize,
    /// How many GPUs do the work that it disturbs.
    concerned_gpus: usize,
    /// Cluster of the GPUs; null if they have several, or none is known.
    cluster: Option<&'a str>,
    /// Host of the GPUs; null if they have several.
    hostname: Option<&'a str>,
    /// Namespace of the holder.
    namespace: Option<&'a str>,
    /// Pod that holds the GPUs.
    pod: Option<&'a str>,
    /// Job that holds the GPUs.
    job: Option<&'a str>,
    /// Name of that job; missing where the batch system did not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, nullable = false)]
    job_name: Option<String>,
    /// Its user, a number where `api.hide_users` is set; missing where the batch system did not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, nullable = false)]
    user: Option<String>,
    /// GPU hours that are held for nothing in each hour that it lasts: of GPUs that stand still, of those of a job that wait for a slower
    /// one, and of one that does less than the others of its job; missing: the GPUs work, or it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, nullable = false)]
    gpu_hours_per_hour: Option<f64>,
}

/// Some of the findings.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FindingList<'a> {
    /// The findings, the worst first: by severity, then by the number of GPUs concerned.
    pub(crate) findings: Vec<FindingEntry<'a>>,
    /// When the fleet was judged.
    pub(crate) judged_at: Moment,
    /// How many match in all.
    #[schema(example = 3)]
    pub(crate) total: usize,
    /// Which part this is.
    pub(crate) pagination: Pagination,
    /// What could not be read, in words; missing if the answer is whole.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    #[schema(required = false)]
    pub(crate) partial: &'a [String],
}

impl<'a> FindingEntry<'a> {
    /// A finding about something of this name, with what is told of the batch job that it concerns, and the incidents that it caused.
    pub(crate) fn of(
        finding: &'a FleetFinding,
        name: &'a str,
        job: Option<&BatchJob>,
        incidents: Vec<IncidentNote<'a>>,
    ) -> Self {
        let subject = &finding.subject;
        Self {
            id: finding.id(),
            kind: finding.kind.id,
            severity: finding.severity.name(),
            subject: FindingSubject { r#type: subject.type_name(), id: subject.to_string(), name },
            since: Moment(finding.since_ns),
            since_at_least: finding.since_is_bound,
            sentence: &finding.sentence,
            evidence: EvidenceEntry::all(&finding.evidence),
            reach: ReachEntry::of(finding, job),
            meaning: finding.kind.meaning,
            next_step: &finding.remedy,
            simulated: finding.reach.is_simulated,
            silenced: finding.silenced.as_ref().map(SilenceEntry::from),
            incidents,
        }
    }
}

impl<'a> ReachEntry<'a> {
    fn of(finding: &'a FleetFinding, told: Option<&BatchJob>) -> Self {
        let reach = &finding.reach;
        let of_told = |text: fn(&BatchJob) -> Option<&Arc<str>>| told.and_then(text).map(ToString::to_string);
        let text = |text: &'a Option<Arc<str>>| text.as_deref();
        Self {
            gpus: reach.gpus.iter().take(NAMED_GPUS_MAX).map(AsRef::as_ref).collect(),
            gpu_count: reach.gpus.len(),
            concerned_gpus: reach.concerned_gpus,
            cluster: text(&reach.cluster),
            hostname: text(&reach.node),
            namespace: text(&reach.namespace),
            pod: text(&reach.pod),
            job: text(&reach.job),
            job_name: of_told(BatchJob::name),
            user: of_told(BatchJob::user),
            gpu_hours_per_hour: finding.wasted_gpu_hours_per_hour(),
        }
    }
}

/// The GPUs of a job over the last ten minutes, and how they spread.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct JobSpread<'a> {
    /// The job, `cluster/namespace/name`.
    job: &'a str,
    /// Clocks under load, MHz.
    clock_mhz: Option<Spread>,
    /// Power under load, W.
    power_w: Option<Spread>,
    /// Utilisation of its GPUs, %.
    utilization_pct: Option<Spread>,
    /// Its GPUs, the slowest first.
    gpus: Vec<JobMember<'a>>,
}

/// A GPU of a job over the last ten minutes.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct JobMember<'a> {
    /// Key of the GPU.
    gpu: &'a str,
    /// Its name for people.
    name: String,
    /// Whether a finding says that it is a straggler.
    straggler: bool,
    /// Distance of its clock from the median of the job, in deviations of 1 % of it at least; negative: below.
    clock_distance: Option<f64>,
    /// The same of its power.
    power_distance: Option<f64>,
    /// The same of its utilisation, in deviations of 3 % at least.
    utilization_distance: Option<f64>,
    /// Mean clock under load, MHz.
    clock_mhz: Option<f64>,
    /// Mean power under load, W.
    power_w: Option<f64>,
    /// Mean utilisation, %.
    utilization_pct: Option<f64>,
}

/// Jobs with several GPUs.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct StragglerList<'a> {
    /// The jobs, those with the slowest GPU first.
    pub(crate) jobs: Vec<JobSpread<'a>>,
    /// When they were judged.
    pub(crate) judged_at: Moment,
    /// How many there are in all.
    pub(crate) total: usize,
    /// Which part this is.
    pub(crate) pagination: Pagination,
    /// What could not be read, in words; missing if the answer is whole.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    #[schema(required = false)]
    pub(crate) partial: &'a [String],
}

impl<'a> JobSpread<'a> {
    /// A job, some of whose GPUs are stragglers.
    pub(crate) fn of(
        load: &'a HolderLoad,
        is_straggler: impl Fn(&str) -> bool,
        name: impl Fn(&str) -> String,
    ) -> Self {
        let mut members: Vec<&MemberLoad> = load.members.iter().collect();
        let distance = |member: &MemberLoad| load.clock_distance(member).unwrap_or(f64::INFINITY);
        members.sort_by(|a, b| distance(a).total_cmp(&distance(b)));
        Self {
            job: &load.holder,
            clock_mhz: load.clock,
            power_w: load.power,
            utilization_pct: load.utilization,
            gpus: members
                .into_iter()
                .map(|member| JobMember {
                    gpu: &member.gpu,
                    name: name(&member.gpu),
                    straggler: is_straggler(&member.gpu),
                    clock_distance: load.clock_distance(member),
                    power_distance: load.power_distance(member),
                    utilization_distance: load.utilization_distance(member),
                    clock_mhz: member.window.loaded_clock_mhz,
                    power_w: member.window.loaded_power_w,
                    utilization_pct: member.window.utilization_pct,
                })
                .collect(),
        }
    }
}
