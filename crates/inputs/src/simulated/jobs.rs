//! The jobs of the simulated fleet: their places, times and loads.
//!
//! Every board of eight GPUs changes its jobs in shifts of 20 minutes. Only seed, host, board and number of
//! the shift decide which jobs run, so no GPU's series depends on another GPU or on the size of the fleet. On
//! the first board of the first host the jobs of the special cases run without end.

use fastrand::Rng;
use gpuvitals_core::integral::seconds;

pub(super) const SECOND_NS: i64 = 1_000_000_000;
/// GPUs of a board.
pub(super) const BOARD: usize = 8;
/// Clock of the straggler as a share of its maximum.
pub(super) const STRAGGLER_CLOCK: f64 = 0.78;
const SHIFT_NS: i64 = 20 * 60 * SECOND_NS;

/// The activity of a job on its GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JobKind {
    /// Steps of compute and exchange, pauses for checkpoints.
    Training,
    /// A served model: memory full, load that wanders.
    Inference,
    /// A loaded model without requests.
    Parked,
    /// A person at a notebook: bursts, little memory.
    Debugging,
}
use JobKind::{Debugging, Inference, Parked, Training};

/// Jobs of a shift and how many GPUs each has; the other GPUs are free.
const LAYOUTS: [&[(JobKind, usize)]; 8] = [
    &[(Training, 8)],
    &[(Training, 4), (Inference, 2), (Parked, 1)],
    &[(Training, 4), (Training, 2)],
    &[(Training, 2), (Inference, 2), (Debugging, 1)],
    &[(Inference, 4), (Inference, 1), (Debugging, 1)],
    &[(Training, 1), (Inference, 1), (Parked, 1), (Debugging, 1)],
    &[(Training, 2), (Debugging, 1)],
    &[],
];
/// Jobs of the first board, from its first GPU on: those of the straggler, of the idle GPU, of the throttling one, of the
/// vanishing one, and of the one with failing memory.
const SPECIAL_LAYOUT: &[(JobKind, usize)] =
    &[(Training, 3), (Parked, 1), (Training, 1), (Inference, 1), (Training, 2)];

/// A generator seeded by these numbers.
pub(super) fn generator(parts: &[u64]) -> Rng {
    Rng::with_seed(parts.iter().fold(0, |seed, part| Rng::with_seed(seed ^ part).u64(..)))
}

pub(super) fn between(rng: &mut Rng, low: f64, high: f64) -> f64 {
    low + (high - low) * rng.f64()
}

/// A job as each of its GPUs sees it. All its GPUs share it, and with it the rhythm.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Job {
    kind: JobKind,
    /// Number of the shift and place in its layout.
    number: (i64, usize),
    /// Nanoseconds from the first tick.
    start_ns: i64,
    end_ns: i64,
    /// Has several GPUs, which exchange data.
    shared: bool,
    /// Factor by which the slowest GPU prolongs a step.
    slowdown: f64,
    seed: u64,
    /// Seconds of a step at full clock, and the share of it that computes.
    step: f64,
    compute: f64,
    /// Share of the dynamic power while it computes.
    intensity: f64,
    /// Seconds from one checkpoint to the next, and of a checkpoint.
    checkpoint_every: f64,
    checkpoint: f64,
    /// Seconds until the memory is filled, and the share that is filled.
    loading: f64,
    memory: f64,
}

/// The load of a GPU at one moment; shares of its capacity, 0 to 1.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Load {
    /// Share of time with any work.
    pub(super) busy: f64,
    /// Share of the dynamic power.
    pub(super) work: f64,
    /// Share of the memory's bandwidth.
    pub(super) bandwidth: f64,
    /// Share of the links' rate.
    pub(super) link: f64,
    /// Share of the PCIe rate.
    pub(super) pcie: f64,
    /// Share of the usable memory that is allocated.
    pub(super) memory: f64,
}

/// The job of a place in the shift of `now_ns` (nanoseconds from the first tick), if any, and the end of the
/// shift. The job begins and ends within the shift.
pub(super) fn planned(seed: u64, host: u64, index: usize, now_ns: i64) -> (Option<Job>, i64) {
    const OFFSET: u64 = 1;
    const LAYOUT: u64 = 2;
    const JOB: u64 = 3;
    let board = u64::try_from(index / BOARD).unwrap_or(0);
    let special = host == 0 && board == 0;
    let offset_ns = generator(&[seed, OFFSET, host, board]).i64(0..SHIFT_NS);
    let shift = (now_ns + offset_ns) / SHIFT_NS;
    let begin_ns = shift * SHIFT_NS - offset_ns;
    let (shift, layout, rotation) = if special {
        (0, SPECIAL_LAYOUT, 0)
    } else {
        let mut rng = generator(&[seed, LAYOUT, host, board, shift.unsigned_abs()]);
        (shift, rng.choice(LAYOUTS).unwrap_or_default(), rng.usize(..BOARD))
    };
    let mut place = (index + rotation) % BOARD;
    for (group, &(kind, size)) in layout.iter().enumerate() {
        if place < size {
            let parts = [seed, JOB, host, board, shift.unsigned_abs(), u64::try_from(group).unwrap_or(0)];
            let mut job = Job::new(generator(&parts), kind, (shift, group), size > 1);
            if special {
                // The special cases must be visible: their jobs do not load lightly.
                job.intensity = job.intensity.max(0.93);
                job.slowdown = if group == 0 { 1.0 / STRAGGLER_CLOCK } else { 1.0 };
                (job.start_ns, job.end_ns) = (-3600 * SECOND_NS, i64::MAX);
            } else {
                job.start_ns += begin_ns;
                job.end_ns += begin_ns;
            }
            return (Some(job), if special { i64::MAX } else { begin_ns + SHIFT_NS });
        }
        place -= size;
    }
    (None, begin_ns + SHIFT_NS)
}

impl Job {
    /// A job whose start and end count from the begin of its shift.
    fn new(mut rng: Rng, kind: JobKind, number: (i64, usize), shared: bool) -> Self {
        let margin_ns = SHIFT_NS / 7;
        let rng = &mut rng;
        Self {
            kind,
            number,
            start_ns: rng.i64(0..margin_ns),
            end_ns: SHIFT_NS - rng.i64(0..margin_ns),
            shared,
            slowdown: 1.0,
            seed: rng.u64(..),
            step: between(rng, 1.7, 6.3),
            compute: if shared { between(rng, 0.74, 0.9) } else { between(rng, 0.9, 0.97) },
            intensity: if kind == Training { between(rng, 0.78, 1.0) } else { between(rng, 0.35, 0.75) },
            checkpoint_every: between(rng, 240.0, 900.0),
            checkpoint: between(rng, 8.0, 25.0),
            loading: between(rng, 8.0, 45.0),
            memory: match kind {
                Training => between(rng, 0.55, 0.97),
                Inference | Parked => between(rng, 0.82, 0.95),
                Debugging => between(rng, 0.05, 0.4),
            },
        }
    }

    pub(super) fn runs_at(&self, now_ns: i64) -> bool {
        (self.start_ns..self.end_ns).contains(&now_ns)
    }

    /// Name, namespace and container.
    pub(super) fn names(&self, host: usize) -> (String, &'static str, &'static str) {
        let (word, namespace, container) = match self.kind {
            Training => ("train", "research", "trainer"),
            Inference => ("serve", "serving", "server"),
            Parked => ("parked", "serving", "server"),
            Debugging => ("debug", "sandbox", "notebook"),
        };
        (format!("sim-{word}-{host}-{}-{}", self.number.0, self.number.1), namespace, container)
    }

    /// Processes with a context on each GPU.
    pub(super) fn processes(&self) -> f64 {
        if self.kind == Debugging { 2.0 } else { 1.0 }
    }

    /// The load of the job on a GPU at a time (nanoseconds from the first tick); `lag` is the GPU's own step
    /// time relative to a sound GPU's: 1 except for a straggler.
    pub(super) fn load(&self, now_ns: i64, lag: f64) -> Load {
        let t = seconds(now_ns - self.start_ns);
        let filled = (t / self.loading).clamp(0.0, 1.0);
        let base = Load { memory: self.memory * filled, ..Load::default() };
        if filled < 1.0 {
            return Load { busy: 0.08, work: 0.04, bandwidth: 0.05, pcie: 0.4, ..base };
        }
        match self.kind {
            Training => self.training(t, lag, base),
            Inference => {
                let busy = 0.15 + 0.75 * self.wander(t / 600.0, 1) + 0.3 * (self.wander(t / 7.0, 2) - 0.5);
                self.busy(busy.clamp(0.0, 1.0), base)
            }
            Parked => base,
            Debugging => {
                let cell = (t / 35.0).floor();
                let works = self.chance(cell, 3) < 0.4 && t - cell * 35.0 < 8.0 + 25.0 * self.chance(cell, 4);
                self.busy(if works { 0.2 + 0.75 * self.chance(cell, 5) } else { 0.0 }, base)
            }
        }
    }

    fn busy(&self, busy: f64, base: Load) -> Load {
        let link = if self.shared { 0.12 * busy } else { 0.0 };
        Load {
            busy,
            work: 0.75 * busy * self.intensity,
            bandwidth: 0.6 * busy,
            link,
            pcie: 0.02 * busy,
            ..base
        }
    }

    /// Steps: the GPU computes, waits for the slowest GPU of the job at full utilisation and low power, and exchanges.
    fn training(&self, t: f64, lag: f64, base: Load) -> Load {
        let i = self.intensity;
        if t > self.checkpoint_every && t % self.checkpoint_every < self.checkpoint {
            return Load { busy: 0.02, work: 0.02, bandwidth: 0.03, pcie: 0.35, ..base };
        }
        let phase = (t % (self.step * self.slowdown)) / self.step;
        let linked = if self.shared { 1.0 } else { 0.0 };
        if phase < self.compute * lag {
            Load { busy: 1.0, work: i, bandwidth: 0.58 * i, link: 0.12 * linked, pcie: 0.02, ..base }
        } else if phase < self.compute * self.slowdown {
            Load { busy: 1.0, work: 0.2, bandwidth: 0.06, link: 0.03 * linked, ..base }
        } else {
            Load { busy: 0.97, work: 0.55 * i, bandwidth: 0.4 * i, link: 0.75 * linked, ..base }
        }
    }

    /// A random number for a stretch of the job's life, in [0, 1).
    fn chance(&self, cell: f64, purpose: u64) -> f64 {
        generator(&[self.seed, purpose, cell.to_bits()]).f64()
    }

    /// A random number that drifts: one value a stretch, straight lines between.
    fn wander(&self, x: f64, purpose: u64) -> f64 {
        let (from, to) = (self.chance(x.floor(), purpose), self.chance(x.floor() + 1.0, purpose));
        from + (to - from) * x.fract()
    }
}
