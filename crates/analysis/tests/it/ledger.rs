//! The ledger against the truth: simulated jobs on GPUs that are held alone, shared in slices of time and divided by MIG, with
//! agents that are killed, GPUs that are lost for a while or for more than an hour, clocks that are set back, and frames that are lost,
//! repeated and in any order.
//!
//! `GPUVITALS_TEST_LONG=1` takes a thousand jobs on 200 GPUs, several times.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use fastrand::Rng;
use gpuvitals_analysis::outgoing::Outgoing;
use gpuvitals_core::batch::{Value, numbers};
use gpuvitals_core::merge::{Order, merge};
use gpuvitals_core::time::SECOND_NS;
use gpuvitals_core::usage::{ProcessOwner, Sharing};
use gpuvitals_core::{Batch, BatchBuilder, Identity, IdentityColumn, MetricId, Origin, Table};

/// Seconds since 1970: 09:40 of a day.
const START_S: i64 = 1_795_167_600;
const TICK_S: i64 = 4;
const LISTED_EVERY_S: i64 = 32;
const GPUS_OF_NODE: usize = 8;
/// A sampler has a worker for each GPU, so no batch has all GPUs of a node. Two do as well as one here, in half the time.
const GPUS_OF_BATCH: usize = 2;
/// Slices of the instances of a GPU that is divided by MIG; one of seven is none's.
const SLICES: [u8; 3] = [3, 2, 1];
/// How far the sums may be from the truth.
const TOLERANCE: f64 = 0.01;

/// How a GPU is held.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Hold {
    Alone,
    Sliced,
    Divided,
}

#[derive(Debug)]
struct TestGpu {
    hold: Hold,
    identity: Identity,
    /// Numbers of its jobs.
    jobs: Vec<usize>,
    /// When it gives no rows.
    lost: Option<(i64, i64)>,
}

#[derive(Debug)]
struct TestJob {
    gpu: usize,
    from_s: i64,
    until_s: i64,
    /// Its work, as a part of the GPU's time.
    demand: f64,
    /// Slices of its instance; 0 without MIG.
    slices: u8,
    /// The GPU or instance with the job.
    identity: Identity,
}

/// A process of the agent of a node.
#[derive(Debug, Clone, Copy)]
struct TestRun {
    from_s: i64,
    until_s: i64,
    is_killed: bool,
    /// When the node's clock is set back, and by how much.
    set_back: Option<(i64, i64)>,
}

impl TestRun {
    /// What the node's clock shows.
    fn clock_s(&self, second: i64) -> i64 {
        let back_s = self.set_back.filter(|(at_s, _)| second >= *at_s).map_or(0, |(_, by_s)| by_s);
        second - back_s
    }

    /// Whether the second lies between the last row before the clock is set back and the next: by the clock there is no such time.
    fn is_between(&self, second: i64) -> bool {
        self.set_back.is_some_and(|(at_s, _)| (at_s - TICK_S..at_s).contains(&second))
    }
}

#[derive(Debug)]
struct TestWorld {
    gpus: Vec<TestGpu>,
    jobs: Vec<TestJob>,
    /// By node.
    runs: Vec<[TestRun; 2]>,
}

/// Seconds held and busy, and joules.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    held_s: f64,
    busy_s: f64,
    joules: f64,
}

impl Sums {
    fn add(&mut self, held_s: f64, busy_s: f64, joules: f64) {
        self.held_s += held_s;
        self.busy_s += busy_s;
        self.joules += joules;
    }

    fn assert_near(self, truth: Self, whose: &str) {
        for (what, found, wanted, least) in [
            ("s held", self.held_s, truth.held_s, 1.0),
            ("s busy", self.busy_s, truth.busy_s, 5.0),
            ("J", self.joules, truth.joules, 100.0),
        ] {
            let is_near = (found - wanted).abs() <= TOLERANCE * wanted + least;
            assert!(is_near, "{whose}: {found} {what}, in truth {wanted}");
        }
    }
}

/// The instance of a place on a GPU.
fn instance_of(gpu: &Identity, place: usize) -> Identity {
    let model = format!("NVIDIA H100 MIG {}g.{}gb", SLICES[place], 10 * SLICES[place]);
    let part = gpu.clone().with(IdentityColumn::Partition, &place.to_string()).unwrap();
    part.with(IdentityColumn::Model, &model).unwrap()
}

impl TestWorld {
    fn of(gpus: usize, hours: i64, rng: &mut Rng) -> Self {
        let end_s = START_S + 3_600 * hours;
        let mut world = Self { gpus: Vec::new(), jobs: Vec::new(), runs: Vec::new() };
        for number in 0..gpus {
            let hold = match number % GPUS_OF_NODE {
                0..4 => Hold::Alone,
                4..7 => Hold::Sliced,
                _ => Hold::Divided,
            };
            let identity = Identity::default().with(IdentityColumn::Uuid, &format!("GPU-{number}")).unwrap();
            let identity = identity.with(IdentityColumn::Model, "NVIDIA H100").unwrap();
            let from_s = START_S + 1_200 + TICK_S * rng.i64(0..100);
            let lost_s = if number % GPUS_OF_NODE == 1 { 4_200 } else { 600 };
            let lost = (number % 4 == 1).then_some((from_s, from_s + lost_s));
            world.gpus.push(TestGpu { hold, identity, jobs: Vec::new(), lost });
            let places = if hold == Hold::Alone { 1 } else { SLICES.len() };
            for place in 0..places {
                world.fill(number, place, end_s, rng);
            }
        }
        for _ in 0..gpus.div_ceil(GPUS_OF_NODE) {
            let killed_s = START_S + 3_600 * hours / 2 + rng.i64(0..1_800);
            let from_s = killed_s + 40;
            let set_back = Some((from_s + 1_800, 6_000));
            world.runs.push([
                TestRun { from_s: START_S, until_s: killed_s, is_killed: true, set_back: None },
                TestRun { from_s, until_s: end_s, is_killed: false, set_back },
            ]);
        }
        world
    }

    /// Jobs one after the other, with pauses between them.
    fn fill(&mut self, number: usize, place: usize, end_s: i64, rng: &mut Rng) {
        let mut from_s = START_S + rng.i64(60..1_200);
        // So much longer, that of each some hours are seen.
        let lost_s = self.gpus[number].lost.map_or(0, |(from_s, until_s)| until_s - from_s);
        loop {
            let until_s = from_s + rng.i64(7_200..10_800) + lost_s;
            if until_s > end_s - 60 {
                return;
            }
            let gpu = &mut self.gpus[number];
            let (demand, slices, identity) = match gpu.hold {
                // Every fifth has the GPU and never uses it.
                Hold::Alone if rng.u8(0..5) == 0 => (0.0, 0, gpu.identity.clone()),
                Hold::Alone => (0.3 + 0.6 * rng.f64(), 0, gpu.identity.clone()),
                Hold::Sliced => (0.2 + 0.1 * rng.f64(), 0, gpu.identity.clone()),
                Hold::Divided => (0.3 * rng.f64(), SLICES[place], instance_of(&gpu.identity, place)),
            };
            let pod = format!("job-{}", self.jobs.len());
            let identity = identity.with(IdentityColumn::Namespace, "n").unwrap();
            let identity = identity.with(IdentityColumn::Pod, &pod).unwrap();
            gpu.jobs.push(self.jobs.len());
            self.jobs.push(TestJob { gpu: number, from_s, until_s, demand, slices, identity });
            from_s = until_s + rng.i64(60..1_800);
        }
    }

    fn active(&self, gpu: usize, second: i64) -> impl Iterator<Item = (usize, &TestJob)> {
        let jobs = self.gpus[gpu].jobs.iter().map(move |&number| (number, &self.jobs[number]));
        jobs.filter(move |(_, job)| (job.from_s..job.until_s).contains(&second))
    }

    fn gpus_of(&self, node: usize) -> std::ops::Range<usize> {
        node * GPUS_OF_NODE..self.gpus.len().min((node + 1) * GPUS_OF_NODE)
    }

    fn demand(&self, gpu: usize, second: i64) -> f64 {
        self.active(gpu, second).map(|(_, job)| job.demand).sum()
    }

    fn watts(&self, gpu: usize, second: i64) -> f64 {
        100.0 + 500.0 * self.demand(gpu, second)
    }

    /// What was used while agents sampled, second by second: by job, and of each GPU as a whole.
    fn truth(&self) -> (Vec<Sums>, Vec<Sums>) {
        let mut by_job = vec![Sums::default(); self.jobs.len()];
        let mut by_gpu = vec![Sums::default(); self.gpus.len()];
        for (node, runs) in self.runs.iter().enumerate() {
            for run in runs {
                let last_s = run.from_s + (run.until_s - 1 - run.from_s) / TICK_S * TICK_S;
                for gpu in self.gpus_of(node) {
                    // A row lasts until the next; that before a loss has none.
                    let lost = self.gpus[gpu].lost.map(|(from_s, until_s)| from_s - TICK_S..until_s);
                    for second in (run.from_s..last_s).filter(|second| !run.is_between(*second)) {
                        let is_lost = lost.as_ref().is_some_and(|lost| lost.contains(&second));
                        by_gpu[gpu].held_s += 1.0;
                        if !is_lost {
                            by_gpu[gpu].joules += self.watts(gpu, second);
                            self.use_second(gpu, second, &mut by_job);
                        }
                    }
                }
            }
        }
        (by_job, by_gpu)
    }

    /// Divides a second of a GPU among its jobs.
    fn use_second(&self, gpu: usize, second: i64, by_job: &mut [Sums]) {
        let (demand, watts) = (self.demand(gpu, second), self.watts(gpu, second));
        let jobs: Vec<(usize, &TestJob)> = self.active(gpu, second).collect();
        let part = 1.0 / f64::from(u32::try_from(jobs.len().max(1)).unwrap());
        for (number, job) in jobs {
            match self.gpus[gpu].hold {
                Hold::Alone => by_job[number].add(1.0, demand, watts),
                Hold::Sliced => {
                    let held_s = job.demand + (1.0 - demand) * part;
                    by_job[number].add(held_s, job.demand, watts * job.demand / demand);
                }
                Hold::Divided => {
                    let slices = f64::from(job.slices) / 7.0;
                    by_job[number].add(slices, 0.0, watts * slices);
                }
            }
        }
    }

    /// The rows of GPUs at a tick, which has a time by the node's clock.
    fn samples(&self, gpus: &[usize], second: i64, time_ns: i64, origin: &Origin) -> Option<Batch> {
        let mut builder = BatchBuilder::new(Table::GpuEvents);
        for &number in gpus {
            let gpu = &self.gpus[number];
            if gpu.lost.is_some_and(|(from_s, until_s)| (from_s..until_s).contains(&second)) {
                continue;
            }
            let first = self.active(number, second).next().filter(|_| gpu.hold != Hold::Divided);
            let identity = builder.intern(first.map_or(&gpu.identity, |(_, job)| &job.identity));
            let row = builder.row(time_ns, identity);
            let power = Value::Float(self.watts(number, second));
            builder.set(row, MetricId::of("power_w"), power).unwrap();
            if gpu.hold != Hold::Divided {
                let percent = Value::Float(100.0 * self.demand(number, second));
                builder.set(row, MetricId::of("utilization_pct"), percent).unwrap();
                continue;
            }
            for (place, slices) in SLICES.into_iter().enumerate() {
                let mut jobs = self.active(number, second);
                let job = jobs.find(|(_, job)| job.slices == slices);
                let free = instance_of(&gpu.identity, place);
                let identity = builder.intern(job.map_or(&free, |(_, job)| &job.identity));
                let row = builder.row(time_ns, identity);
                builder.set(row, MetricId::of("memory_used_mb"), Value::Int(1_000)).unwrap();
            }
        }
        builder.finish(origin.clone(), 1)
    }

    /// The processes on a node's GPUs, whose numbers are those of their jobs.
    fn listing(&self, node: usize, second: i64, time_ns: i64, origin: &Origin) -> Option<Batch> {
        let mut builder = BatchBuilder::new(Table::GpuProcesses);
        for number in self.gpus_of(node).filter(|number| self.gpus[*number].hold != Hold::Divided) {
            for (process, job) in self.active(number, second) {
                let identity = builder.intern(&self.gpus[number].identity);
                let row = builder.row(time_ns, identity);
                builder.set_extra(row, "pid", Value::Int(i64::try_from(process).unwrap())).unwrap();
                builder.set_extra_text(row, "process_type", "compute").unwrap();
                builder.set_extra(row, "sm_utilization", Value::Float(100.0 * job.demand)).unwrap();
            }
        }
        builder.finish(origin.clone(), 1)
    }
}

/// Who has the GPUs now.
#[derive(Debug)]
struct Present {
    world: Arc<TestWorld>,
    second: AtomicI64,
}

impl Sharing for Present {
    fn sharers(&self, identity: &Arc<Identity>) -> Vec<Arc<Identity>> {
        let number: usize = identity.uuid().unwrap().strip_prefix("GPU-").unwrap().parse().unwrap();
        if self.world.gpus[number].hold != Hold::Sliced {
            return Vec::new();
        }
        let jobs = self.world.active(number, self.second.load(Ordering::Relaxed));
        let sharers: Vec<Arc<Identity>> = jobs.map(|(_, job)| Arc::new(job.identity.clone())).collect();
        if sharers.len() > 1 { sharers } else { Vec::new() }
    }

    fn owner_of(&self, pid: u32) -> Option<ProcessOwner> {
        let job = self.world.jobs.get(usize::try_from(pid).ok()?)?;
        Some(ProcessOwner::Holder(Arc::new(job.identity.clone())))
    }
}

/// The frames of `gpu_usage` that a node's agents publish.
fn published(world: &Arc<TestWorld>, node: usize) -> Vec<Batch> {
    let mut frames = Vec::new();
    let gpus: Vec<usize> = world.gpus_of(node).collect();
    for run in world.runs[node] {
        let origin = Origin { node: Arc::from(format!("node-{node}")), started_ns: run.from_s * SECOND_NS };
        let present = Arc::new(Present { world: Arc::clone(world), second: AtomicI64::new(run.from_s) });
        let mut outgoing = Outgoing::accounting(Arc::clone(&present) as Arc<dyn Sharing>);
        let mut second = run.from_s;
        while second < run.until_s {
            present.second.store(second, Ordering::Relaxed);
            let time_ns = run.clock_s(second) * SECOND_NS;
            let workers = gpus.chunks(GPUS_OF_BATCH);
            let samples = workers.filter_map(|gpus| world.samples(gpus, second, time_ns, &origin));
            let is_listed = (second - run.from_s) % LISTED_EVERY_S == 0;
            let listing = if is_listed { world.listing(node, second, time_ns, &origin) } else { None };
            for batch in samples.chain(listing) {
                frames.extend(outgoing.take(batch).filter(|batch| batch.table() == Table::GpuUsage));
            }
            second += TICK_S;
        }
        // A process that is killed publishes nothing more.
        frames.extend(outgoing.finish().filter(|_| !run.is_killed));
    }
    frames
}

/// Some frames are lost, some come twice, and all in any order.
fn carried(mut frames: Vec<Batch>, rng: &mut Rng) -> Vec<Batch> {
    frames.retain(|_| rng.f64() >= 0.03);
    for _ in 0..frames.len() / 10 {
        frames.push(frames[rng.usize(0..frames.len())].clone());
    }
    rng.shuffle(&mut frames);
    frames
}

/// What stays of the frames, by GPU and pod; no pod: nobody had it, or nobody saw it.
fn found(frames: &[Batch]) -> BTreeMap<(String, String), Sums> {
    let parts: Vec<_> = frames.iter().map(|batch| batch.records().clone()).collect();
    let merged = merge(Table::GpuUsage, &parts, Order::GpuTime).unwrap().unwrap();
    let merged = Batch::new(Table::GpuUsage, merged, Origin::default(), 0).unwrap();
    let mut sums: BTreeMap<(String, String), Sums> = BTreeMap::new();
    for row in 0..merged.rows() {
        let number = |name: &str| {
            let value = merged.records().column_by_name(name).and_then(numbers).and_then(|it| it.value(row));
            value.map_or(0.0, Value::as_f64)
        };
        let identity = merged.identity(row);
        let pod = identity.get(IdentityColumn::Pod).unwrap_or_default().to_owned();
        let of = sums.entry((identity.uuid().unwrap().to_owned(), pod)).or_default();
        of.add(number("held_ns") / 1e9, number("busy_ns") / 1e9, number("used_mj") / 1e3);
    }
    sums
}

/// A round: every job and every GPU against the truth. Returns how many jobs there were.
fn round(gpus: usize, hours: i64, seed: u64) -> usize {
    let mut rng = Rng::with_seed(seed);
    let world = Arc::new(TestWorld::of(gpus, hours, &mut rng));
    let (by_job, by_gpu) = world.truth();
    let mut sums = BTreeMap::new();
    for node in 0..world.runs.len() {
        sums.extend(found(&carried(published(&world, node), &mut rng)));
    }
    for (number, (job, truth)) in world.jobs.iter().zip(&by_job).enumerate() {
        let key = (format!("GPU-{}", job.gpu), format!("job-{number}"));
        let found = sums.get(&key).copied().unwrap_or_default();
        found.assert_near(*truth, &format!("seed {seed}, job {number}, {job:?}"));
    }
    for (number, truth) in by_gpu.iter().enumerate() {
        let uuid = format!("GPU-{number}");
        let mut all = Sums::default();
        for (_, one) in sums.iter().filter(|((of, _), _)| *of == uuid) {
            all.add(one.held_s, 0.0, one.joules);
        }
        all.assert_near(*truth, &format!("seed {seed}, all of {uuid}"));
    }
    world.jobs.len()
}

#[test]
fn every_job_and_every_gpu_has_what_it_used_whatever_happens_on_the_way() {
    if std::env::var_os("GPUVITALS_TEST_LONG").is_none() {
        assert!(round(GPUS_OF_NODE, 5, 1) >= 8);
        return;
    }
    for seed in 1..=5 {
        let jobs = round(200, 10, seed);
        assert!(jobs >= 1_000, "{jobs} jobs");
    }
}
