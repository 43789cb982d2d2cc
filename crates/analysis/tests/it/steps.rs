//! Steps without marks, on simulated training of five kinds and on what is no training.
//!
//! The sensors are those of real parts: power is the mean of 100 ms and stands for the next 100 ms, utilisation the same of
//! 160 ms, and each reading of the power has 3 % noise.
#![expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "small numbers"
)]

use gpuvitals_analysis::steps::{FoundSteps, RunStep, StepSignals};
use gpuvitals_core::batch::Value;
use gpuvitals_core::{BatchBuilder, Identity, IdentityColumn, MetricId, Origin, Table};

const POWER: MetricId = MetricId::of("power_w");
const BUSY: MetricId = MetricId::of("utilization_pct");
const GPUS: usize = 2;
const STEPS: usize = 80;
/// Steps that compile first.
const WARM_UP: usize = 2;
const GAP_NS: i64 = 2_500_000_000;
/// Time from a reading of the power to the next row of each GPU, where rows are as rare as readings.
const OUT_OF_STEP_S: [f64; GPUS] = [0.03, 0.07];
/// Resolution of what really happened.
const TRUTH_HZ: f64 = 500.0;

/// A time in which a GPU does one thing.
struct Stretch {
    lasts_s: f64,
    watts: f64,
    busy_pct: f64,
}

struct Training {
    stretches: Vec<Stretch>,
    /// When each step began, and the last one ended.
    begins_s: Vec<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    /// The gradients are exchanged at the end.
    Plain,
    /// Each step waits for its data, sometimes longer.
    Starved,
    /// Four small batches, then the gradients.
    Accumulated,
    /// The pipeline fills, works and drains.
    Pipelined,
    /// Every fortieth step is followed by a checkpoint.
    Checkpointed,
    /// Pauses of several lengths, some of which are shorter than a step.
    Paused,
}

const KINDS: [Kind; 5] = [Kind::Plain, Kind::Starved, Kind::Accumulated, Kind::Pipelined, Kind::Checkpointed];

/// After which steps a [`Kind::Paused`] pauses, and for how many of them.
const PAUSES: [(usize, f64); 4] = [(16, 1.7), (32, 0.4), (50, 2.5), (64, 1.2)];

impl Training {
    fn of(kind: Kind, step_s: f64, random: &mut fastrand::Rng) -> Self {
        let mut training = Self { stretches: Vec::new(), begins_s: Vec::new() };
        training.add(8.0, 90.0, 0.0);
        training.add(6.0, 140.0, 10.0);
        for step in 0..STEPS {
            training.begins_s.push(training.end_s());
            if step < WARM_UP {
                training.add(2.0 * step_s, 350.0, 70.0);
            }
            for &(share, uneven, watts, busy_pct) in parts(kind) {
                let lasts_s = share * step_s * (1.0 + uneven * normal(random)).max(0.2);
                training.add(lasts_s, watts, busy_pct);
            }
            if kind == Kind::Checkpointed && step % 40 == 39 && step + 1 < STEPS {
                training.add(6.0 * step_s, 130.0, 3.0);
            }
            let pauses = PAUSES.iter().filter(|(after, _)| kind == Kind::Paused && *after == step);
            for (_, steps) in pauses {
                training.add(steps * step_s, 130.0, 3.0);
            }
        }
        training.begins_s.push(training.end_s());
        training.add(5.0, 90.0, 0.0);
        training
    }

    fn add(&mut self, lasts_s: f64, watts: f64, busy_pct: f64) {
        self.stretches.push(Stretch { lasts_s, watts, busy_pct });
    }

    fn end_s(&self) -> f64 {
        self.stretches.iter().map(|stretch| stretch.lasts_s).sum()
    }

    /// What sensors of GPUs say of it, so many times a second.
    fn recorded(&self, hertz: f64, random: &mut fastrand::Rng) -> StepSignals {
        let mut truth: Vec<(f64, f64)> = Vec::new();
        let mut end_s = 0.0;
        for stretch in &self.stretches {
            end_s += stretch.lasts_s;
            while (truth.len() as f64) < end_s * TRUTH_HZ {
                truth.push((stretch.watts, stretch.busy_pct));
            }
        }
        let mean = |at_s: f64, window_s: f64, of: fn(&(f64, f64)) -> f64| {
            let to = ((at_s * TRUTH_HZ) as usize).clamp(1, truth.len());
            let from = (((at_s - window_s) * TRUTH_HZ).max(0.0) as usize).min(to - 1);
            truth[from..to].iter().map(of).sum::<f64>() / (to - from) as f64
        };
        recorded(
            end_s,
            hertz,
            |at_s, random_of_sensor| {
                let update = |period_s: f64| (at_s / period_s + 1e-9).floor() * period_s;
                let watts = mean(update(0.1), 0.1, |truth| truth.0);
                (watts * (1.0 + 0.03 * random_of_sensor), mean(update(0.16), 0.16, |truth| truth.1))
            },
            random,
        )
    }
}

/// Share of the step, how uneven it is, watts and utilisation of its parts.
fn parts(kind: Kind) -> &'static [(f64, f64, f64, f64)] {
    match kind {
        Kind::Plain | Kind::Paused => &[(0.85, 0.01, 620.0, 99.0), (0.15, 0.05, 380.0, 99.0)],
        Kind::Starved => &[(0.7, 0.01, 600.0, 98.0), (0.3, 0.15, 200.0, 20.0)],
        Kind::Accumulated => &[
            (0.2, 0.01, 620.0, 99.0),
            (0.02, 0.0, 450.0, 90.0),
            (0.2, 0.01, 620.0, 99.0),
            (0.02, 0.0, 450.0, 90.0),
            (0.2, 0.01, 620.0, 99.0),
            (0.02, 0.0, 450.0, 90.0),
            (0.2, 0.01, 620.0, 99.0),
            (0.14, 0.05, 300.0, 80.0),
        ],
        Kind::Pipelined => &[
            (0.2, 0.02, 420.0, 95.0),
            (0.5, 0.01, 640.0, 99.0),
            (0.22, 0.02, 500.0, 97.0),
            (0.08, 0.0, 330.0, 90.0),
        ],
        Kind::Checkpointed => &[(0.9, 0.01, 640.0, 99.0), (0.1, 0.05, 420.0, 95.0)],
    }
}

/// Rows of some GPUs: by the time and a normal number that changes with the power's sensor, watts and utilisation.
fn recorded(
    lasts_s: f64,
    hertz: f64,
    said: impl Fn(f64, f64) -> (f64, f64),
    random: &mut fastrand::Rng,
) -> StepSignals {
    let mut signals = StepSignals::new(GAP_NS);
    for (gpu, out_of_step_s) in OUT_OF_STEP_S.into_iter().enumerate() {
        let mut builder = BatchBuilder::new(Table::GpuEvents);
        let identity = Identity::default().with(IdentityColumn::Uuid, &format!("GPU-{gpu}")).unwrap();
        let id = builder.intern(&identity);
        let (mut noise, mut updated) = (0.0, -1.0);
        for row in 0..(lasts_s * hertz) as usize {
            let at_s = (row + 1) as f64 / hertz + out_of_step_s;
            let update = (10.0 * at_s + 1e-9).floor();
            if update > updated {
                (noise, updated) = (normal(random), update);
            }
            let (watts, busy_pct) = said(at_s, noise);
            let at = builder.row_at(ns(at_s), ns(at_s), id);
            builder.set(at, POWER, Value::Float(watts.max(1.0))).unwrap();
            builder.set(at, BUSY, Value::Float(busy_pct.clamp(0.0, 100.0))).unwrap();
        }
        signals.add(&builder.finish(Origin::default(), 0).unwrap(), 0);
    }
    signals
}

/// Twelve equally distributed numbers make a normal one.
fn normal(random: &mut fastrand::Rng) -> f64 {
    (0..12).map(|_| random.f64()).sum::<f64>() - 6.0
}

fn ns(at_s: f64) -> i64 {
    (at_s * 1e9).round() as i64
}

fn mean_s(steps: &[RunStep]) -> f64 {
    steps.iter().map(|step| step.duration_s()).sum::<f64>() / steps.len() as f64
}

/// When the steps after the warm-up began, and how long one lasts on average.
fn steady(training: &Training) -> (&[f64], f64) {
    let all: Vec<f64> = training.begins_s.windows(2).skip(WARM_UP).map(|two| two[1] - two[0]).collect();
    let mut sorted = all.clone();
    sorted.sort_by(f64::total_cmp);
    let median_s = sorted[sorted.len() / 2];
    // A checkpoint is no part of a step.
    let own: Vec<f64> = all.into_iter().filter(|step_s| *step_s < 2.0 * median_s).collect();
    (&training.begins_s[WARM_UP..STEPS], own.iter().sum::<f64>() / own.len() as f64)
}

/// Number and mean duration of the steps after the warm-up are those of what happened; the number but for this many steps: what follows
/// on the last compiling is like another one.
fn check_number(found: &FoundSteps, training: &Training, most_off: usize, what: &str) {
    let (begins, step_s) = steady(training);
    let (count, wanted) = (found.steps.len(), begins.len());
    assert!(count.abs_diff(wanted) <= most_off, "{what}: {count} steps of {wanted}");
    let mean_s = mean_s(&found.steps);
    assert!((mean_s / step_s - 1.0).abs() <= 0.02, "{what}: {mean_s} s, and not {step_s} s");
    assert!(found.certainty > 0.7, "{what}: {}", found.certainty);
}

/// Begins are those of what happened: 19 of 20 within 5 % of a step, and neither late nor early as a whole.
fn check_begins(found: &FoundSteps, training: &Training, what: &str) {
    let (begins, step_s) = steady(training);
    let apart = |begin_s: &f64| {
        let apart_s = found.steps.iter().map(|step| step.from_ns as f64 / 1e9 - begin_s);
        apart_s.min_by(|a, b| a.abs().total_cmp(&b.abs())).unwrap() / step_s
    };
    let mut apart: Vec<f64> = begins.iter().map(apart).collect();
    let beside = apart.iter().filter(|apart| apart.abs() > 0.05).count();
    assert!(beside <= begins.len() / 20, "{what}: {beside} of {} begins are beside: {apart:?}", begins.len());
    apart.sort_by(f64::total_cmp);
    let middle = apart[apart.len() / 2];
    assert!(middle.abs() <= 0.01, "{what}: all begins are {:.1} % of a step beside", 100.0 * middle);
}

#[test]
fn steps_of_five_kinds_of_training_are_found_without_marks() {
    for (hertz, step_s) in [(10.0, 3.0), (100.0, 3.0)] {
        for kind in KINDS {
            let mut random = fastrand::Rng::with_seed(5);
            let training = Training::of(kind, step_s, &mut random);
            let found = training.recorded(hertz, &mut random).steps();
            let what = format!("{kind:?} at {hertz} Hz");
            let found = found.unwrap_or_else(|| panic!("{what}: none"));
            check_number(&found, &training, 1, &what);
            check_begins(&found, &training, &what);
        }
    }
}

#[test]
fn steps_shorter_than_a_second_are_counted_and_what_a_sensor_cannot_tell_from_half_of_it_is_none() {
    for kind in KINDS {
        let mut random = fastrand::Rng::with_seed(5);
        let training = Training::of(kind, 0.5, &mut random);
        let what = format!("{kind:?} of half a second");
        let found = training.recorded(100.0, &mut random).steps();
        check_number(&found.unwrap_or_else(|| panic!("{what}: none")), &training, 1, &what);

        // Two of them are five readings of the power, which look alike; one is two and a half.
        let training = Training::of(kind, 0.25, &mut random);
        let found = training.recorded(100.0, &mut random).steps();
        if let Some(found) = found.filter(|found| found.certainty >= 0.7) {
            check_number(&found, &training, 4, &format!("{kind:?} of a quarter"));
        }
    }
}

#[test]
fn a_step_that_ends_between_two_readings_is_not_taken_for_half_of_one() {
    // Two of them are 9, 11 and 15 readings of the power, and repeat exactly.
    for step_s in [0.45, 0.55, 0.75] {
        for kind in KINDS {
            let mut random = fastrand::Rng::with_seed(5);
            let training = Training::of(kind, step_s, &mut random);
            let found = training.recorded(10.0, &mut random).steps();
            let what = format!("{kind:?} of {step_s} s");
            check_number(&found.unwrap_or_else(|| panic!("{what}: none")), &training, 2, &what);
        }
    }
}

#[test]
fn a_pause_between_steps_costs_none_of_them() {
    for hertz in [10.0, 100.0] {
        let mut random = fastrand::Rng::with_seed(5);
        let training = Training::of(Kind::Paused, 3.0, &mut random);
        let what = format!("with pauses, at {hertz} Hz");
        let found = training.recorded(hertz, &mut random).steps().unwrap_or_else(|| panic!("{what}: none"));
        check_number(&found, &training, 1, &what);
        check_begins(&found, &training, &what);
    }
}

#[test]
fn what_does_not_repeat_has_no_steps() {
    for seed in 0..10 {
        let mut random = fastrand::Rng::with_seed(seed);
        let noise = recorded(300.0, 10.0, |_, noise| (400.0 * (1.0 + 0.05 * noise), 90.0), &mut random);
        assert_eq!(noise.steps(), None, "noise {seed}");
        // Requests that come when they come.
        let mut changes = vec![0.0];
        while changes[changes.len() - 1] < 300.0 {
            changes.push(changes[changes.len() - 1] - 2.0 * random.f64().max(1e-6).ln());
        }
        let is_busy = |at_s: f64| changes.partition_point(|change| *change < at_s).is_multiple_of(2);
        let said = |at_s: f64, noise: f64| {
            (
                if is_busy(at_s) { 600.0 } else { 150.0 } + 10.0 * noise,
                if is_busy(at_s) { 100.0 } else { 0.0 },
            )
        };
        assert_eq!(recorded(300.0, 10.0, said, &mut random).steps(), None, "requests {seed}");
    }
    assert_eq!(StepSignals::new(GAP_NS).steps(), None);
}

#[test]
fn phases_stand_around_the_steps() {
    let mut random = fastrand::Rng::with_seed(5);
    let training = Training::of(Kind::Checkpointed, 2.5, &mut random);
    let signals = training.recorded(10.0, &mut random);
    let found = signals.steps().unwrap();
    let phases = signals.phases(&found.warm_up, &found.steps);
    let names: Vec<&str> = phases.iter().map(|phase| phase.name.as_str()).collect();
    assert_eq!(names.first(), Some(&"idle"), "{phases:?}");
    for name in ["load", "steady", "checkpoint"] {
        assert!(names.contains(&name), "{name} is not in {phases:?}");
    }
    // The pauses in which steps are compiled are part of the warm-up.
    let checkpoints = phases.iter().filter(|phase| phase.name == "checkpoint").count();
    assert_eq!(checkpoints, 1, "{phases:?}");
    let checkpoint = phases.iter().find(|phase| phase.name == "checkpoint").unwrap();
    let lasts_s = (checkpoint.to_ns - checkpoint.from_ns) as f64 / 1e9;
    assert!((lasts_s - 15.0).abs() < 2.5, "{lasts_s} s");
    assert!(phases.windows(2).all(|two| two[0].to_ns <= two[1].from_ns), "{phases:?}");
}

#[test]
fn a_run_of_any_length_is_held_in_bounded_memory_and_its_steps_stay() {
    // Two hours of steps of 6 s, which fold the bins thrice.
    let mut random = fastrand::Rng::with_seed(1);
    let said = |at_s: f64, noise: f64| {
        let watts = if at_s % 6.0 < 5.0 { 600.0 } else { 300.0 };
        (watts * (1.0 + 0.02 * noise), 99.0)
    };
    let found = recorded(7_200.0, 2.0, said, &mut random).steps().unwrap();
    assert!((1_176..=1_224).contains(&found.steps.len()), "{}", found.steps.len());
    let mean_s = mean_s(&found.steps);
    assert!((mean_s - 6.0).abs() < 0.12, "{mean_s}");
}

#[test]
fn a_power_is_as_late_as_the_table_of_sensors_says() {
    // A row each 10 ms, a reading each 100 ms; that of the first second jumps by 200 W.
    let joules = |model: &str| {
        let mut builder = BatchBuilder::new(Table::GpuEvents);
        let identity = Identity::default().with(IdentityColumn::Uuid, "GPU-0").unwrap();
        let id = builder.intern(&identity.with(IdentityColumn::Model, model).unwrap());
        for row in 1..=300 {
            let (at_ns, reading) = (row * 10_000_000, row / 10);
            let watts = if reading < 10 { 100 } else { 300 } + reading % 2;
            let at = builder.row_at(at_ns, at_ns, id);
            builder.set(at, POWER, Value::Int(watts)).unwrap();
        }
        let mut signals = StepSignals::new(GAP_NS);
        signals.add(&builder.finish(Origin::default(), 0).unwrap(), 0);
        signals.energy_j(0..950_000_000).unwrap()
    };
    // Of an H100 it is the mean of the 25 ms before it, and jumps 0.93 s after the begin; of another board, of 100 ms, at 0.9 s.
    let (known, other) = (joules("NVIDIA H100 80GB HBM3"), joules("a board that nobody has measured"));
    assert!((known - 99.0).abs() < 2.0, "{known} J");
    assert!((other - 106.5).abs() < 2.0, "{other} J");
}
