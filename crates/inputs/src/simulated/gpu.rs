//! One simulated GPU: its name, and the response of its hardware to its load.
//!
//! Clock and power follow the load at once, temperature follows power through one heat capacity, counters are
//! sums over ticks: the power of a tick applies to the whole tick, so the energy counter is the sum of power
//! times interval. Steps are implicit (x += (target - x) * dt / (tau + dt)) and so stable at any interval.

use fastrand::Rng;
use gpuvitals_core::identity::SIMULATED;
use gpuvitals_core::integral::seconds;
use gpuvitals_core::{Identity, IdentityColumn, IdentityError};

use super::Special;
use super::jobs::{BOARD, Job, Load, STRAGGLER_CLOCK, between, generator, planned};
use super::models::{self, Model};

/// The vanishing GPU disappears this long after the first tick.
const VANISHES_NS: i64 = 300_000_000_000;
/// Factor by which the throttling GPU dissipates heat worse.
const BLOCKED_AIRFLOW: f64 = 1.62;
/// Corrected errors until a memory row must be replaced.
const ERRORS_PER_ROW: f64 = 64.0;
/// PCI buses of the eight GPUs of a board.
const BUSES: [&str; BOARD] = ["1b", "43", "52", "61", "9d", "c3", "d1", "df"];

/// Clock event reasons (bits of NVIDIA).
mod reason {
    pub(super) const IDLE: u8 = 0x1;
    pub(super) const APPLICATION_CLOCKS: u8 = 0x2;
    pub(super) const POWER_CAP: u8 = 0x4;
    pub(super) const HARDWARE: u8 = 0x8;
    pub(super) const THERMAL: u8 = 0x20;
    pub(super) const THERMAL_HARDWARE: u8 = 0x40;
}

/// Sums that only grow; of nanoseconds, bytes, joules or events.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counters {
    pub(super) energy_j: f64,
    pub(super) lifetime_ns: f64,
    pub(super) power_capped_ns: f64,
    pub(super) thermal_ns: f64,
    pub(super) thermal_hardware_ns: f64,
    pub(super) link_bytes: f64,
    pub(super) pcie_replays: f64,
    pub(super) corrected: f64,
}

/// State of a GPU after its latest tick. Writing a row changes nothing.
#[derive(Debug)]
pub(super) struct Gpu {
    pub(super) identity: Identity,
    pub(super) model: &'static Model,
    pub(super) special: Option<Special>,
    /// The running job.
    pub(super) job: Option<Job>,
    pub(super) load: Load,
    /// MHz, before the rounding to the model's steps.
    pub(super) clock: f64,
    /// Watts, mean of the tick, in the resolution of the vendor's sensor.
    pub(super) power: f64,
    pub(super) temperature: f64,
    pub(super) memory_temperature: f64,
    pub(super) reasons: u8,
    pub(super) counters: Counters,
    /// About normal, mean 0, deviation 1, for readings that have noise of their own.
    pub(super) noise: f64,
    seed: u64,
    host: usize,
    index: usize,
    rng: Rng,
    /// The job of this shift, and the end of the shift.
    planned: Option<Job>,
    shift_end_ns: i64,
    gain: f64,
    air: f64,
    resistance: f64,
    thermal_factor: f64,
    /// Corrected memory errors per second.
    error_rate: f64,
}

impl Gpu {
    /// A GPU as it is at the first tick: at work, warm, with counters from earlier days.
    pub(super) fn new(seed: u64, host: usize, index: usize) -> Result<Self, IdentityError> {
        const AIR: u64 = 4;
        const GPU: u64 = 5;
        let model = models::of_host(host);
        let special = if host == 0 { Special::of_place(index) } else { None };
        let air = between(&mut generator(&[seed, AIR, wide(host)]), 21.0, 26.0);
        let mut rng = generator(&[seed, GPU, wide(host), wide(index)]);
        let failing = special == Some(Special::FailingMemory);
        let flaky = rng.f64() < 0.03;
        let blocked = if special == Some(Special::Throttling) { BLOCKED_AIRFLOW } else { 1.0 };
        let mut gpu = Self {
            identity: identity(seed, host, index, model)?,
            model,
            special,
            job: None,
            load: Load::default(),
            clock: model.clock_idle,
            power: model.power_idle,
            temperature: air,
            memory_temperature: air,
            reasons: 0,
            counters: Counters::default(),
            noise: 0.0,
            seed,
            host,
            index,
            planned: None,
            shift_end_ns: i64::MIN,
            gain: if special.is_some() { 1.0 } else { between(&mut rng, 0.96, 1.04) },
            air: air + between(&mut rng, -1.5, 2.5),
            resistance: model.thermal_resistance * blocked * between(&mut rng, 0.92, 1.08),
            thermal_factor: 1.0,
            error_rate: if failing {
                0.04
            } else if flaky {
                2e-6
            } else {
                0.0
            },
            rng,
        };
        gpu.counters = gpu.history();
        gpu.schedule(0)?;
        for _ in 0..150 {
            let watts = gpu.respond(0);
            gpu.heat(watts, 4.0);
        }
        Ok(gpu)
    }

    /// Counters of up to a month since the driver was loaded.
    fn history(&mut self) -> Counters {
        let seconds = 86_400.0 * f64::from(self.rng.u8(1..=30));
        let failing = self.special == Some(Special::FailingMemory);
        Counters {
            energy_j: seconds * between(&mut self.rng, 0.3, 0.6) * self.model.power_limit,
            lifetime_ns: seconds * 1e9,
            power_capped_ns: seconds * 1e9 * between(&mut self.rng, 0.0, 0.3),
            link_bytes: (seconds * self.model.link_rate * 0.004).round(),
            pcie_replays: if self.rng.f64() < 0.1 { f64::from(self.rng.u8(1..9)) } else { 0.0 },
            corrected: if failing { ERRORS_PER_ROW + 6.0 } else { 0.0 },
            ..Counters::default()
        }
    }

    /// Whether it has disappeared: it has no row.
    pub(super) fn is_gone(&self, now_ns: i64) -> bool {
        self.special == Some(Special::Vanishing) && now_ns >= VANISHES_NS
    }

    /// One tick of `interval_ns` that ends at `now_ns` (nanoseconds from the first tick).
    pub(super) fn step(&mut self, now_ns: i64, interval_ns: i64) -> Result<(), IdentityError> {
        self.schedule(now_ns)?;
        self.noise = ((0..4).map(|_| self.rng.f64()).sum::<f64>() - 2.0) * 3.0_f64.sqrt();
        let dt = seconds(interval_ns);
        let watts = self.respond(now_ns);
        self.heat(watts, dt);
        self.count(dt);
        Ok(())
    }

    /// Takes the job that runs at this time, and its names.
    fn schedule(&mut self, now_ns: i64) -> Result<(), IdentityError> {
        if now_ns >= self.shift_end_ns {
            (self.planned, self.shift_end_ns) = planned(self.seed, wide(self.host), self.index, now_ns);
        }
        let job = self.planned.filter(|job| job.runs_at(now_ns));
        if job == self.job {
            return Ok(());
        }
        self.job = job;
        let (name, namespace, container) = job.map_or((String::new(), "", ""), |job| job.names(self.host));
        let pod = if name.is_empty() { String::new() } else { format!("{name}-0") };
        self.identity.set(IdentityColumn::Pod, &pod)?;
        self.identity.set(IdentityColumn::Namespace, namespace)?;
        self.identity.set(IdentityColumn::Container, container)?;
        self.identity.set(IdentityColumn::Job, &name)
    }

    /// Load, clock, clock reasons and power of this tick; watts.
    fn respond(&mut self, now_ns: i64) -> f64 {
        let m = self.model;
        let straggles = self.special == Some(Special::Straggler);
        let lag = if straggles { 1.0 / STRAGGLER_CLOCK } else { 1.0 };
        self.load = self.job.map_or_else(Load::default, |job| job.load(now_ns, lag));
        let busy = self.load.busy > 0.01;
        // An NVIDIA GPU keeps its clock while a process holds it.
        let is_up = busy || (self.job.is_some() && m.is_nvidia());
        let mut factor = if is_up { self.thermal_factor } else { m.clock_idle / m.clock_max };
        self.reasons = if is_up { 0 } else { reason::IDLE };
        if is_up && self.thermal_factor < 0.995 {
            self.reasons |= reason::THERMAL;
        }
        if is_up && self.temperature >= m.slowdown + 3.0 {
            self.reasons |= reason::THERMAL_HARDWARE | reason::HARDWARE;
        }
        if is_up && straggles {
            factor = factor.min(STRAGGLER_CLOCK);
            self.reasons |= reason::APPLICATION_CLOCKS;
        }
        let held = if self.job.is_some() { m.power_held * factor } else { 0.0 };
        let resting = (m.power_idle + held) * self.gain + 0.004 * m.power_idle * self.noise;
        let demand = (m.power_demand - m.power_idle - m.power_held) * self.load.work * self.gain;
        let demand = demand * (1.0 + 0.015 * self.noise);
        // The regulator keeps the mean a little below the limit.
        let allowed = m.power_limit * (0.988 + 0.003 * self.noise);
        if resting + demand * factor * factor > allowed {
            factor = ((allowed - resting) / demand).max(0.1).sqrt();
            self.reasons |= reason::POWER_CAP;
        }
        self.clock = (factor * m.clock_max / m.clock_step + 1e-9).floor() * m.clock_step;
        let watts = resting + demand * factor * factor;
        self.power = if m.is_nvidia() { (watts * 1000.0).round() / 1000.0 } else { watts.round() };
        watts
    }

    fn heat(&mut self, watts: f64, dt: f64) {
        let approach = |value: f64, target: f64, tau: f64| value + (target - value) * dt / (tau + dt);
        let rise = self.resistance * watts;
        self.temperature = approach(self.temperature, self.air + rise, 20.0);
        let memory_rise = 4.0 + rise * (0.82 + 0.35 * self.load.bandwidth);
        self.memory_temperature = approach(self.memory_temperature, self.air + memory_rise, 40.0);
        let excess = self.temperature - (self.model.slowdown - 1.0);
        self.thermal_factor = approach(self.thermal_factor, (1.0 - 0.09 * excess).clamp(0.5, 1.0), 6.0);
    }

    fn count(&mut self, dt: f64) {
        let while_set = |bits: u8| if self.reasons & bits == 0 { 0.0 } else { dt * 1e9 };
        let c = &mut self.counters;
        c.lifetime_ns += dt * 1e9;
        c.energy_j += self.power * dt;
        c.power_capped_ns += while_set(reason::POWER_CAP);
        c.thermal_ns += while_set(reason::THERMAL);
        c.thermal_hardware_ns += while_set(reason::THERMAL_HARDWARE);
        c.link_bytes += (self.load.link * self.model.link_rate * 0.9 * dt).round();
        c.corrected += (self.error_rate * dt + self.rng.f64()).floor();
        if self.special == Some(Special::FailingMemory) {
            // It gets worse: twice as often every 20 minutes, up to once a second.
            self.error_rate = (self.error_rate * (1.0 + dt / 1731.0)).min(1.0);
        }
    }

    /// Which GPU of its board it is.
    pub(super) fn place_on_board(&self) -> usize {
        self.index % BOARD
    }

    /// Whether the other is another GPU of the same board.
    pub(super) fn is_beside(&self, other: &Self) -> bool {
        let board = |gpu: &Self| (gpu.host, gpu.index / BOARD);
        board(self) == board(other) && self.index != other.index
    }

    /// Half of a board is plugged into each of two NUMA nodes.
    pub(super) fn numa_node(&self) -> f64 {
        if self.place_on_board() < BOARD / 2 { 0.0 } else { 1.0 }
    }

    /// Device memory in use, MiB.
    pub(super) fn memory_used(&self) -> f64 {
        let m = self.model;
        let context = if self.job.is_some() { 0.006 } else { 0.0 };
        let usable = m.memory_total - m.memory_reserved - m.memory_idle;
        m.memory_idle + (usable * (context + 0.99 * self.load.memory)).round()
    }

    /// Share of time in the tensor cores.
    pub(super) fn tensor(&self) -> f64 {
        0.62 * self.load.work
    }

    /// Memory rows that corrected errors have worn out.
    pub(super) fn worn_rows(&self) -> f64 {
        (self.counters.corrected / ERRORS_PER_ROW).floor()
    }

    /// Whether something holds the clock down against the user's will.
    pub(super) fn is_throttled(&self) -> bool {
        let forced = reason::POWER_CAP | reason::HARDWARE | reason::THERMAL | reason::THERMAL_HARDWARE;
        self.reasons & forced != 0
    }

    /// Clock that its user requests, MHz.
    pub(super) fn application_clock(&self) -> f64 {
        let share = if self.special == Some(Special::Straggler) { STRAGGLER_CLOCK } else { 1.0 };
        (share * self.model.clock_max / self.model.clock_step).floor() * self.model.clock_step
    }
}

/// Identity of a GPU. It cannot be mistaken for a real one: it begins with `51300000` ("SIM" in leet) and
/// carries the seed, the host and the index.
fn identity(seed: u64, host: usize, index: usize, model: &Model) -> Result<Identity, IdentityError> {
    let tag = generator(&[seed]).u32(..);
    let uuid = if model.is_nvidia() {
        format!("GPU-51300000-{:04x}-{:04x}-0000-{host:08x}{index:04x}", tag >> 16, tag & 0xffff)
    } else {
        format!("51300000{tag:08x}{host:06x}{index:02x}")
    };
    let bus = BUSES.get(index % BOARD).copied().unwrap_or("00");
    let mut identity = Identity::default()
        .with(IdentityColumn::Cluster, SIMULATED)?
        .with(IdentityColumn::Node, &format!("sim-node-{:04}", host + 1))?
        .with(IdentityColumn::Uuid, &uuid)?
        .with(IdentityColumn::Vendor, model.vendor)?
        .with(IdentityColumn::Model, model.name)?
        .with(IdentityColumn::Pci, &format!("{:04x}:{bus}:00.0", index / BOARD))?
        .with(IdentityColumn::Driver, model.driver)?
        .with(IdentityColumn::Source, SIMULATED)?;
    identity.index = i32::try_from(index).ok();
    Ok(identity)
}

fn wide(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
