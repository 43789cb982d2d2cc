//! A simulated fleet, some faults in it, and the findings through time: the work of the gateway's watch without a gateway.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use gpuvitals_analysis::coverage::Coverage;
use gpuvitals_analysis::findings::{Recent, Situation, Tracker, judge};
use gpuvitals_analysis::freshness::Freshness;
use gpuvitals_core::batch::{RowKeys, Value};
use gpuvitals_core::history::{Aggregate, BucketQuery, Buckets, Cell, GroupName, LiveFleet, TimeSteps};
use gpuvitals_core::ports::{Poll, Source};
use gpuvitals_core::time::MINUTE_NS;
use gpuvitals_core::{Batch, BatchBuilder, Identity, IdentityColumn, MetricId, Origin, Table};
use gpuvitals_inputs::simulated::{SimConfig, SimPace, Simulated};

use super::faults::{Fault, Target, Trouble};
use super::jobs::Jobs;
use super::stalls::Stalls;

const GPUS: usize = 64;
const TICK_NS: i64 = 10_000_000_000;
const STALE_NS: i64 = 90_000_000_000;
/// Some day: the fleet begins here.
pub(crate) const START_NS: i64 = 1_760_000_000_000_000_000;
/// Ticks from one judgement to the next.
const JUDGED_EVERY: i64 = 2;

/// A row that faults may change.
pub(crate) struct SimRow {
    pub(crate) identity: Identity,
    pub(crate) values: BTreeMap<MetricId, f64>,
    /// Seconds since the fault began.
    pub(crate) age_s: f64,
}

impl SimRow {
    pub(crate) fn get(&self, column: &str) -> f64 {
        let id = gpuvitals_core::catalogue::by_column(column).unwrap();
        self.values.get(&id).copied().unwrap_or(0.0)
    }

    pub(crate) fn set(&mut self, column: &str, value: f64) {
        let id = gpuvitals_core::catalogue::by_column(column).unwrap();
        self.values.insert(id, value);
    }

    pub(crate) fn scale(&mut self, column: &str, factor: f64) {
        let id = gpuvitals_core::catalogue::by_column(column).unwrap();
        if let Some(value) = self.values.get_mut(&id) {
            *value *= factor;
        }
    }

    pub(crate) fn remove(&mut self, column: &str) {
        let id = gpuvitals_core::catalogue::by_column(column).unwrap();
        self.values.remove(&id);
    }
}

/// A finding that was open at some time.
pub(crate) struct Opened {
    pub(crate) kind: &'static str,
    pub(crate) subject: String,
    /// Its GPUs and node, by which it is matched with a fault.
    pub(crate) gpus: Vec<String>,
    pub(crate) node: Option<String>,
    /// Nanoseconds from the start.
    pub(crate) at_ns: i64,
    /// Its last one.
    pub(crate) sentence: String,
}

pub(crate) struct Lab {
    fleet: Simulated,
    live: LiveFleet,
    kept: VecDeque<Batch>,
    recent: Recent,
    tracker: Tracker,
    pub(crate) seed: u64,
    pub(crate) troubles: Vec<Trouble>,
    pub(crate) fault_ns: i64,
    pub(crate) opened: Vec<Opened>,
    /// Ids of open findings, and their places in `opened`.
    open: HashMap<String, usize>,
    /// What befalls jobs, if that is what it is about.
    pub(crate) jobs: Option<Jobs>,
    /// Jobs that stall or only rest, if it is about these.
    pub(crate) stalls: Option<Stalls>,
    pub(crate) gpu_ticks: u64,
}

impl Lab {
    pub(crate) fn new(seed: u64, faults: &'static [Fault], fault_ns: i64) -> Self {
        let fleet = Simulated::new(SimConfig {
            gpus: GPUS,
            seed,
            interval: std::time::Duration::from_nanos(TICK_NS.unsigned_abs()),
            start_ns: START_NS,
            pace: SimPace::Live,
            ..SimConfig::default()
        });
        Self {
            fleet: fleet.unwrap(),
            live: LiveFleet::default(),
            kept: VecDeque::new(),
            recent: Recent::default(),
            tracker: Tracker::default(),
            seed,
            troubles: Trouble::place(seed, faults),
            fault_ns,
            opened: Vec::new(),
            open: HashMap::new(),
            jobs: None,
            stalls: None,
            gpu_ticks: 0,
        }
    }

    pub(crate) fn run(&mut self, length_ns: i64) {
        for tick in 0..length_ns / TICK_NS {
            let now_ns = tick * TICK_NS;
            let Poll::Ready(batch) = self.fleet.poll(START_NS + now_ns).unwrap() else {
                panic!("a tick is due")
            };
            self.gpu_ticks += batch.rows() as u64;
            if let Some(jobs) = &mut self.jobs {
                (0..batch.rows()).for_each(|row| jobs.meet(&batch.identity(row), now_ns));
            }
            if let Some(stalls) = &mut self.stalls {
                (0..batch.rows()).for_each(|row| stalls.meet(&batch.identity(row)));
            }
            for batch in self.with_faults(batch, now_ns) {
                self.take(batch);
            }
            if tick % JUDGED_EVERY == 0 {
                self.judge(now_ns);
            }
        }
    }

    /// Takes rows in, and forgets those before the minutes that may still be asked for.
    pub(crate) fn take(&mut self, batch: Batch) {
        let keys = RowKeys::of(batch.records(), batch.table()).unwrap();
        self.live.apply(&batch, &keys);
        let from_ns = batch.timestamps()[0] - 3 * MINUTE_NS;
        self.kept.push_back(batch);
        while self.kept.front().is_some_and(|batch| batch.timestamps()[0] < from_ns) {
            self.kept.pop_front();
        }
    }

    /// The rows of sound GPUs as they are, and those of the others.
    fn with_faults(&self, batch: Batch, now_ns: i64) -> Vec<Batch> {
        if now_ns < self.fault_ns && self.jobs.is_none() && self.stalls.is_none() {
            return vec![batch];
        }
        let mut builder = BatchBuilder::new(Table::GpuEvents);
        let mut sound = Vec::new();
        for row in 0..batch.rows() {
            let identity = batch.identity(row);
            let faults: Vec<_> = self.troubles.iter().filter(|trouble| trouble.is_of(&identity)).collect();
            let jobs = self.jobs.as_ref().filter(|jobs| jobs.has(&identity));
            let stalls = self.stalls.as_ref().filter(|stalls| stalls.has(&identity));
            let is_sound = faults.is_empty() && jobs.is_none() && stalls.is_none();
            sound.push(is_sound);
            if is_sound {
                continue;
            }
            let values = batch.metrics().filter_map(|(id, column)| Some((id, column.value(row)?.as_f64())));
            let age_s = gpu_seconds(now_ns - self.fault_ns);
            let mut changed = SimRow { identity, values: values.collect(), age_s };
            if let Some(stalls) = stalls {
                stalls.tell(&mut changed, now_ns);
            }
            let is_told = jobs.is_none_or(|jobs| jobs.tell(&mut changed, now_ns));
            if is_told && faults.iter().all(|trouble| (trouble.fault.change)(&mut changed)) {
                let who = builder.intern(&changed.identity);
                let to = builder.row(batch.timestamps()[row], who);
                for (id, value) in changed.values {
                    builder.set(to, id, Value::Float(value)).unwrap();
                }
            }
        }
        let changed = builder.finish(Origin { node: Arc::from("lab"), started_ns: 1 }, 1);
        batch.filter(&sound).into_iter().chain(changed).collect()
    }

    /// Judges the fleet, nanoseconds from the start.
    pub(crate) fn judge(&mut self, now_ns: i64) {
        let wall_ns = START_NS + now_ns;
        while let Some(query) = self.recent.next_query(wall_ns) {
            let buckets = self.buckets(&query);
            self.recent.take(&buckets);
        }
        let fleet = self.live.snapshot();
        let lost = HashMap::new();
        let situation = Situation {
            fresh: Freshness { now_ns: wall_ns, stale_after_ns: STALE_NS },
            gpus: &fleet.gpus,
            recent: &self.recent,
            lost: &lost,
        };
        self.tracker.update(wall_ns, judge(&situation), Coverage::Whole);
        let mut open = HashMap::new();
        for finding in self.tracker.open() {
            let id = finding.id();
            if let Some(place) = self.open.get(&id) {
                self.opened[*place].sentence = finding.sentence;
                open.insert(id, *place);
            } else {
                open.insert(id, self.opened.len());
                self.opened.push(Opened {
                    kind: finding.kind.id,
                    subject: finding.subject.to_string(),
                    gpus: finding.reach.gpus.iter().map(ToString::to_string).collect(),
                    node: finding.reach.node.as_deref().map(str::to_owned),
                    at_ns: now_ns,
                    sentence: finding.sentence,
                });
            }
        }
        self.open = open;
    }

    fn buckets(&self, query: &BucketQuery) -> Buckets {
        let steps = TimeSteps::new(query.start_ns, query.end_ns, query.step_ns, 0).unwrap();
        let mut buckets = Buckets::new(steps, &query.metrics, &[]);
        for batch in &self.kept {
            for (row, &at_ns) in batch.timestamps().iter().enumerate() {
                if !(query.start_ns..=query.end_ns).contains(&at_ns) {
                    continue;
                }
                let identity = batch.identity(row);
                let text = |column| identity.shared(column).cloned();
                let name: GroupName = Arc::from([
                    identity.key(),
                    text(IdentityColumn::Namespace),
                    text(IdentityColumn::Pod),
                    text(IdentityColumn::Job),
                ]);
                put_row(&mut buckets, &query.aggregates, (&name, steps.at(at_ns)), (batch, row));
            }
        }
        buckets
    }

    /// GPU-days of the run.
    pub(crate) fn gpu_days(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a small number")]
        let ticks = self.gpu_ticks as f64;
        ticks * gpu_seconds(TICK_NS) / 86_400.0
    }
}

#[expect(clippy::cast_precision_loss, reason = "hours")]
pub(crate) fn gpu_seconds(span_ns: i64) -> f64 {
    span_ns as f64 / 1e9
}

/// Puts the values of a row into the cells of its group and step.
pub(super) fn put_row(
    buckets: &mut Buckets,
    aggregates: &[Aggregate],
    (name, step): (&GroupName, usize),
    (batch, row): (&Batch, usize),
) {
    let group = buckets.group(name);
    let place = buckets.place(group, step);
    for measured in buckets.metrics_mut() {
        let value = batch.metric(measured.metric).and_then(|column| column.value(row));
        let Some(value) = value.map(Value::as_f64) else { continue };
        measured.cells[place].merge(&asked(aggregates, value, batch.timestamps()[row]));
    }
}

/// The cell of one value with the figures that are asked for: a store gives no others where it has rollups.
pub(crate) fn asked(aggregates: &[Aggregate], value: f64, at_ns: i64) -> Cell {
    let mut cell = Cell { count: 1, last_ns: at_ns, ..Cell::EMPTY };
    for aggregate in aggregates {
        match aggregate {
            Aggregate::Mean => cell.sum = value,
            Aggregate::Min => cell.min = value,
            Aggregate::Max => cell.max = value,
            Aggregate::Last => cell.last = value,
            _ => {}
        }
    }
    cell
}

/// Whether a finding is about the target of a fault.
pub(crate) fn is_about(opened: &Opened, target: &Target) -> bool {
    match target {
        Target::Gpu(node, index) => {
            let end = format!("{index:04x}");
            let amd = format!("{index:02x}");
            opened.node.as_deref() == Some(node.as_str())
                && opened.gpus.iter().any(|gpu| {
                    if gpu.starts_with("GPU-") { gpu.ends_with(&end) } else { gpu.ends_with(&amd) }
                })
        }
        // A mismatch of drivers is about a model; of two nodes neither is the odd one.
        Target::Node(_) if opened.kind == "driver_mismatch" => true,
        Target::Node(node) => opened.node.as_deref() == Some(node.as_str()) || opened.subject == *node,
        Target::Fleet => true,
    }
}
