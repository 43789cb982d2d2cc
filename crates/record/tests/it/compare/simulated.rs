//! Runs of a training that are made up, with known noise and a known fault.

use std::time::Duration;

use gpuvitals_core::batch::Value;
use gpuvitals_core::{Batch, BatchBuilder, Identity, IdentityColumn, MetricId, Origin, Table, throttle};
use gpuvitals_record::{ComparedRun, MarkContent, RecordError, RecordedMark, RunFacts, RunSource};

const POWER: MetricId = MetricId::of("power_w");
const CLOCK: MetricId = MetricId::of("gpu_clock_mhz");
const CLOCK_ASKED: MetricId = MetricId::of("gpu_clock_application_mhz");
const MEM_CLOCK: MetricId = MetricId::of("mem_clock_mhz");
const BUSY: MetricId = MetricId::of("utilization_pct");
const LIMIT: MetricId = MetricId::of("power_limit_w");

/// NVIDIA's bit of a thermal slowdown.
pub(crate) const HEAT: i64 = 0x40;
/// Its bit of the power cap.
pub(crate) const POWER_CAP: i64 = 0x4;

const GPUS: usize = 2;
const STEPS: usize = 62;
/// Steps that last three times as long: the program compiles.
const WARM_UP: usize = 2;
/// What each step takes.
pub(crate) const TOKENS: f64 = 8_192.0;
const INTERVAL: Duration = Duration::from_millis(250);
/// Noise from run to run, of the time and of the power.
const RUN_NOISE: f64 = 0.005;
/// Noise from step to step, and from sample to sample.
const WITHIN_NOISE: f64 = 0.01;

/// What a run is like, beside its noise.
#[derive(Debug, Clone)]
pub(crate) struct Simulated {
    /// Duration of a step, s.
    pub(crate) step_s: f64,
    /// The clock of each GPU as a share of the usual one.
    pub(crate) clocks: [f64; GPUS],
    pub(crate) mem_clock_mhz: f64,
    pub(crate) busy_pct: f64,
    /// The limit that holds the clocks, and its share of the time.
    pub(crate) held: (i64, f64),
    pub(crate) clock_asked_mhz: f64,
    pub(crate) power_limit_w: Option<f64>,
    pub(crate) model: &'static str,
    pub(crate) driver: &'static str,
    pub(crate) source: &'static str,
}

impl Simulated {
    pub(crate) fn usual() -> Self {
        Self {
            step_s: 1.0,
            clocks: [1.0; GPUS],
            mem_clock_mhz: 2_600.0,
            busy_pct: 98.0,
            held: (HEAT, 0.02),
            clock_asked_mhz: 1_980.0,
            power_limit_w: Some(700.0),
            model: "NVIDIA H100",
            driver: "580.65",
            source: "nvml",
        }
    }

    /// Some runs of it.
    pub(crate) fn runs(&self, count: u64, seed: u64) -> Vec<ComparedRun> {
        self.sources(count, seed).map(|(source, batches)| made(source, &batches)).collect()
    }

    /// Some runs of it by a program that sets no marks.
    pub(crate) fn without_marks(&self, count: u64, seed: u64) -> Vec<ComparedRun> {
        let unmarked = |source| RunSource { marks: Vec::new(), ..source };
        self.sources(count, seed).map(|(source, batches)| made(unmarked(source), &batches)).collect()
    }

    fn sources(&self, count: u64, seed: u64) -> impl Iterator<Item = (RunSource, Vec<Batch>)> {
        (0..count).map(move |at| self.source(&mut Dice(seed.wrapping_mul(1_000).wrapping_add(at))))
    }

    fn source(&self, dice: &mut Dice) -> (RunSource, Vec<Batch>) {
        let step_s = self.step_s * dice.around(RUN_NOISE);
        let mut marks = Vec::new();
        let mut end_s = 0.0;
        for step in 0..=STEPS {
            let end_ns = ns(end_s);
            marks.push(RecordedMark {
                timestamp_ns: end_ns,
                monotonic_ns: end_ns,
                content: MarkContent {
                    step: i64::try_from(step).ok(),
                    value_name: Some("tokens".to_owned()),
                    value: Some(TOKENS),
                    ..MarkContent::default()
                },
            });
            let longer = if step < WARM_UP { 3.0 } else { 1.0 };
            end_s += longer * step_s * dice.around(WITHIN_NOISE);
        }
        let watts = 600.0 * dice.around(RUN_NOISE);
        let batches: Vec<Batch> = (0..GPUS).map(|gpu| self.rows(gpu, end_s, watts, dice)).collect();
        let source = RunSource {
            name: "simulated".to_owned(),
            facts: RunFacts::default(),
            interval: INTERVAL,
            system_interval: Duration::from_millis(100),
            marks,
        };
        (source, batches)
    }

    fn rows(&self, gpu: usize, end_s: f64, watts: f64, dice: &mut Dice) -> Batch {
        let mut identity = Identity::default()
            .with(IdentityColumn::Node, "n1")
            .and_then(|identity| identity.with(IdentityColumn::Uuid, &format!("GPU-{gpu}")))
            .and_then(|identity| identity.with(IdentityColumn::Model, self.model))
            .and_then(|identity| identity.with(IdentityColumn::Driver, self.driver))
            .and_then(|identity| identity.with(IdentityColumn::Source, self.source))
            .unwrap();
        identity.index = Some(i32::try_from(gpu).unwrap());
        let mut builder = BatchBuilder::new(Table::GpuEvents);
        let id = builder.intern(&identity);
        let (reason, share) = self.held;
        let mut time_s = 0.0;
        while time_s < end_s {
            let row = builder.row_at(ns(time_s), ns(time_s), id);
            let clock = 1_700.0 * self.clocks[gpu] * dice.around(WITHIN_NOISE);
            for (metric, value) in [
                (POWER, watts * self.clocks[gpu].powi(2) * dice.around(WITHIN_NOISE)),
                (CLOCK, clock),
                (CLOCK_ASKED, self.clock_asked_mhz),
                (MEM_CLOCK, self.mem_clock_mhz),
                (BUSY, self.busy_pct),
            ] {
                builder.set(row, metric, Value::Float(value)).unwrap();
            }
            let reasons = if dice.share() < share { reason } else { 0 };
            builder.set(row, throttle::REASONS, Value::Int(reasons)).unwrap();
            if let Some(limit) = self.power_limit_w {
                builder.set(row, LIMIT, Value::Float(limit)).unwrap();
            }
            time_s += INTERVAL.as_secs_f64();
        }
        builder.finish(Origin::default(), 0).unwrap()
    }
}

/// A run of which a single row was read.
pub(crate) fn of_one_row() -> ComparedRun {
    let mut builder = BatchBuilder::new(Table::GpuEvents);
    let id = builder.intern(&Identity::default().with(IdentityColumn::Uuid, "GPU-0").unwrap());
    let row = builder.row_at(0, 0, id);
    builder.set(row, POWER, Value::Float(600.0)).unwrap();
    let (source, _) = Simulated::usual().source(&mut Dice(1));
    made(RunSource { marks: Vec::new(), ..source }, &[builder.finish(Origin::default(), 0).unwrap()])
}

fn made(source: RunSource, batches: &[Batch]) -> ComparedRun {
    source.run(|| Ok(batches.iter().cloned().map(Ok::<_, RecordError>))).unwrap()
}

#[expect(clippy::cast_possible_truncation, reason = "some minutes")]
fn ns(time_s: f64) -> i64 {
    (1e9 * time_s).round() as i64
}

/// Random numbers by splitmix64.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// So many of them, each at most once.
    pub(crate) fn draw<'a, T>(&mut self, of: &'a [T], count: usize) -> Vec<&'a T> {
        let mut left: Vec<&T> = of.iter().collect();
        let mut pick = || {
            let at = self.next() % left.len() as u64;
            left.swap_remove(usize::try_from(at).unwrap())
        };
        (0..count).map(|_| pick()).collect()
    }

    /// Between 0 and 1.
    #[expect(clippy::cast_precision_loss, reason = "53 bits")]
    fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A factor around 1 with this standard deviation; twelve equally distributed numbers make a normal one.
    fn around(&mut self, deviation: f64) -> f64 {
        let normal = (0..12).map(|_| self.share()).sum::<f64>() - 6.0;
        1.0 + deviation * normal
    }
}
