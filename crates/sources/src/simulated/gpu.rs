//! One simulated GPU: what its hardware does with the work it is given.
//!
//! Clock and power come from the load at once, temperature follows power through one heat capacity, counters are
//! integrals over whole ticks: the power of a tick is held for the tick, so that the energy counter is the exact sum
//! of power times interval. Steps are implicit (x += (target - x) * dt / (tau + dt)) and so stable at any interval.

use super::Special;
use super::hardware::{Model, Vendor};
use super::jobs::{Activity, Job, Kind, SECOND_NS, seconds};
use super::rng::{Stream, hash, unit};

/// Clock of the straggler as a share of the boost clock: somebody left application clocks set.
pub(super) const STRAGGLER_CLOCK: f64 = 0.78;
/// How much worse the throttling GPU loses its heat.
const BLOCKED_AIRFLOW: f64 = 1.62;

/// Clock event reasons (NVIDIA bits).
pub(super) mod reason {
    pub(in super::super) const IDLE: i64 = 0x1;
    pub(in super::super) const APPLICATION_CLOCKS: i64 = 0x2;
    pub(in super::super) const POWER_CAP: i64 = 0x4;
    pub(in super::super) const HARDWARE: i64 = 0x8;
    pub(in super::super) const THERMAL: i64 = 0x20;
    pub(in super::super) const THERMAL_HARDWARE: i64 = 0x40;
    /// Those that hold the clock down against the user's will.
    pub(in super::super) const THROTTLED: i64 = POWER_CAP | HARDWARE | THERMAL | THERMAL_HARDWARE;
}

/// Sums that only grow, in nanoseconds, bytes or counts.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counters {
    /// Picojoule: milliwatts times nanoseconds, exactly.
    pub(super) energy_pj: u128,
    pub(super) lifetime_ns: i64,
    pub(super) power_capped_ns: i64,
    pub(super) thermal_ns: i64,
    pub(super) thermal_hardware_ns: i64,
    pub(super) link_tx: i64,
    pub(super) link_rx: i64,
    pub(super) pcie_replays: i64,
    pub(super) corrected: i64,
}

/// State of a GPU after its latest tick. Everything a row needs stands here: writing a row changes nothing.
#[derive(Debug)]
pub(super) struct Gpu {
    pub(super) model: &'static Model,
    pub(super) special: Option<Special>,
    pub(super) job: Option<Job>,
    pub(super) activity: Activity,
    pub(super) clock: f64,
    /// Whole milliwatts (AMD: whole watts), mean of the tick.
    pub(super) power_mw: i64,
    pub(super) power_average: f64,
    pub(super) temperature: f64,
    pub(super) junction: f64,
    pub(super) memory_temperature: f64,
    pub(super) memory_used: i64,
    pub(super) fan: f64,
    pub(super) reasons: i64,
    pub(super) counters: Counters,
    /// Errors corrected in the life before the driver was loaded.
    pub(super) corrected_before: i64,
    /// About normal, for readings that have noise of their own.
    pub(super) jitter: f64,
    pub(super) pcie_rx: f64,
    pub(super) pcie_tx: f64,
    stream: Stream,
    seed: u64,
    gain: f64,
    air: f64,
    resistance: f64,
    thermal_factor: f64,
    corrected_rate: f64,
}

impl Gpu {
    /// A GPU at rest at the temperature of its air; `air` is that of its host in degrees Celsius.
    pub(super) fn new(model: &'static Model, special: Option<Special>, seed: u64, air: f64) -> Self {
        let mut stream = Stream::of(&[seed]);
        let resistance = model.thermal_resistance * stream.between(0.92, 1.08);
        let blocked = if special == Some(Special::Throttling) { BLOCKED_AIRFLOW } else { 1.0 };
        let gain = if blocked > 1.0 { 1.0 } else { stream.between(0.96, 1.04) };
        let flaky = stream.unit() < 0.03;
        let air = air + stream.between(-1.5, 2.5);
        let mut gpu = Self {
            model,
            special,
            job: None,
            activity: Activity::default(),
            clock: model.clock_idle,
            power_mw: 0,
            power_average: model.power_idle,
            temperature: air + resistance * model.power_idle,
            junction: air + resistance * model.power_idle,
            memory_temperature: air + resistance * model.power_idle,
            memory_used: 0,
            fan: 30.0,
            reasons: 0,
            counters: Counters::default(),
            corrected_before: if flaky { 1 + i64::try_from(stream.below(40)).unwrap_or(0) } else { 0 },
            jitter: 0.0,
            pcie_rx: 0.0,
            pcie_tx: 0.0,
            seed,
            gain,
            air,
            resistance: resistance * blocked,
            thermal_factor: 1.0,
            corrected_rate: match (special, flaky) {
                (Some(Special::FailingMemory), _) => 0.04,
                (_, true) => 2e-6,
                _ => 0.0,
            },
            stream,
        };
        gpu.counters = gpu.history();
        gpu
    }

    /// Counters as the fleet is found: the driver has been loaded for up to a month.
    fn history(&mut self) -> Counters {
        let days = i64::try_from(1 + self.stream.below(30)).unwrap_or(1);
        let lifetime_ns = days * 86_400 * SECOND_NS;
        let watts = self.stream.between(0.3, 0.6) * self.model.power_limit;
        let share = |part: i64| lifetime_ns / 1000 * part;
        let busy = i64::try_from(self.stream.below(300)).unwrap_or(0);
        let traffic = whole(seconds(lifetime_ns) * self.model.link_rate * 0.04);
        let replays = if self.stream.unit() < 0.1 { self.stream.below(9) } else { 0 };
        Counters {
            energy_pj: u128::try_from(whole(watts * 1000.0)).unwrap_or(0)
                * u128::try_from(lifetime_ns).unwrap_or(0),
            lifetime_ns,
            power_capped_ns: share(busy),
            link_tx: traffic,
            link_rx: traffic,
            pcie_replays: i64::try_from(replays).unwrap_or(0),
            ..Counters::default()
        }
    }

    /// The driver is loaded anew: volatile counters begin again, the part is cold.
    pub(super) fn reload(&mut self) {
        self.corrected_before += self.counters.corrected;
        self.counters = Counters::default();
        self.thermal_factor = 1.0;
        self.temperature = self.air + self.resistance * self.model.power_idle;
        self.junction = self.temperature;
        self.memory_temperature = self.temperature;
    }

    /// Brings temperatures, memory and clocks to where they came long ago under the present load; counts nothing.
    pub(super) fn settle(&mut self, now_ns: i64) {
        for _ in 0..150 {
            let watts = self.respond(now_ns);
            self.power_average = watts;
            self.heat(now_ns, watts, 4.0);
        }
    }

    /// One tick of `interval_ns` that ends at `now_ns` (nanoseconds from the first tick).
    pub(super) fn step(&mut self, now_ns: i64, interval_ns: i64) {
        let dt = seconds(interval_ns);
        self.jitter = self.stream.normal();
        let watts = self.respond(now_ns);
        self.power_average += (watts - self.power_average) * dt / (1.0 + dt);
        self.heat(now_ns, watts, dt);
        self.move_data();
        self.count(interval_ns, dt);
    }

    /// What the job asks at this time, and the memory, clock and power that follow at once; watts.
    fn respond(&mut self, now_ns: i64) -> f64 {
        let lag = if self.special == Some(Special::Straggler) { 1.0 / STRAGGLER_CLOCK } else { 1.0 };
        self.activity = self.job.map_or_else(Activity::default, |job| job.activity(now_ns, lag));
        self.memory_used = self.allocation();
        self.draw()
    }

    /// Clock, reasons and power of this tick; watts.
    fn draw(&mut self) -> f64 {
        let m = self.model;
        let busy = self.activity.busy > 0.01;
        let held = self.job.is_some() && m.holds_clock;
        let mut factor = if busy || held { self.thermal_factor } else { m.clock_idle / m.clock_boost };
        self.reasons = if busy || held { 0 } else { reason::IDLE };
        if busy || held {
            if self.thermal_factor < 0.995 {
                self.reasons |= reason::THERMAL;
            }
            if self.temperature >= m.slowdown_hardware {
                self.reasons |= reason::THERMAL_HARDWARE | reason::HARDWARE;
            }
            if self.special == Some(Special::Straggler) {
                factor = factor.min(STRAGGLER_CLOCK);
                self.reasons |= reason::APPLICATION_CLOCKS;
            }
        }
        let resting = m.power_idle + if self.job.is_some() { m.power_held * factor } else { 0.0 };
        let resting = resting * self.gain + 0.004 * m.power_idle * self.jitter;
        let demand = (m.power_demand - m.power_idle - m.power_held) * self.activity.work * self.gain;
        let demand = demand * (1.0 + 0.015 * self.jitter);
        // The regulator keeps the mean a little below the limit.
        let allowed = m.power_limit * (0.988 + 0.003 * self.jitter);
        if resting + demand * factor * factor > allowed {
            factor = ((allowed - resting) / demand).max(0.1).sqrt();
            self.reasons |= reason::POWER_CAP;
        }
        let noise = if m.vendor == Vendor::Amd && !busy { 3.0 * self.jitter } else { 0.0 };
        self.clock = ((factor * m.clock_boost + noise) / m.clock_step + 1e-9).floor() * m.clock_step;
        let watts = resting + demand * factor * factor;
        self.power_mw = match m.vendor {
            Vendor::Nvidia => whole(watts * 1000.0),
            Vendor::Amd => whole(watts) * 1000,
        };
        watts
    }

    fn heat(&mut self, now_ns: i64, watts: f64, dt: f64) {
        let m = self.model;
        let approach = |value: f64, target: f64, tau: f64| value + (target - value) * dt / (tau + dt);
        let hour = seconds(now_ns) / 3600.0;
        let corner = |cell: f64| unit(hash(&[self.seed, 11, cell.to_bits()]));
        let drift = corner(hour.floor()) * (1.0 - hour.fract().abs())
            + corner(hour.floor() + 1.0) * hour.fract().abs();
        let air = self.air + 2.0 * drift;
        let fan = if m.fan { 1.35 - 0.4 * self.fan / 100.0 } else { 1.0 };
        self.temperature = approach(self.temperature, air + self.resistance * fan * watts, m.thermal_seconds);
        self.junction = approach(self.junction, self.temperature + 3.0 + 0.013 * watts, 1.5);
        let memory_heat = self.resistance * watts * (0.82 + 0.35 * self.activity.memory);
        self.memory_temperature =
            approach(self.memory_temperature, air + 4.0 + memory_heat, 2.0 * m.thermal_seconds);
        self.fan = approach(self.fan, (30.0 + 1.5 * (self.temperature - 45.0)).clamp(30.0, 100.0), 8.0);
        let excess = self.limiting_temperature() - (m.slowdown - 1.0);
        let wanted = (1.0 - 0.09 * excess).clamp(0.5, 1.0);
        self.thermal_factor = approach(self.thermal_factor, wanted, 6.0);
    }

    /// The temperature that the slow-down looks at: the hottest place where the part knows it.
    fn limiting_temperature(&self) -> f64 {
        if self.model.vendor == Vendor::Amd { self.junction } else { self.temperature }
    }

    /// Device memory in use, MiB: an even number while a process holds the GPU.
    fn allocation(&self) -> i64 {
        let m = self.model;
        let usable = m.memory_total - m.memory_reserved.unwrap_or(0.0) - m.memory_idle;
        if self.job.is_none() {
            return whole(m.memory_idle);
        }
        let own = 1.0 - 0.01 * unit(self.seed);
        let context = 0.006 * usable;
        whole(m.memory_idle)
            + 2 * whole(0.5 * (context + (usable - context) * self.activity.memory_share * own))
    }

    fn move_data(&mut self) {
        let noise = 1.0 + 0.06 * self.jitter;
        let chatter = if self.job.is_some() { 2e5 } else { 4e4 };
        self.pcie_rx = (self.activity.pcie_rx * self.model.pcie_rate + chatter) * noise;
        self.pcie_tx = (self.activity.pcie_tx * self.model.pcie_rate + 0.6 * chatter) * noise;
    }

    /// Bytes per second that leave and enter over NVLink or xGMI.
    pub(super) fn link_rates(&self) -> (f64, f64) {
        let rate = self.activity.link * self.model.link_rate * 0.9 * (1.0 - 0.02 * self.jitter);
        (rate, rate * 0.998)
    }

    fn count(&mut self, interval_ns: i64, dt: f64) {
        let (tx, rx) = self.link_rates();
        let c = &mut self.counters;
        c.lifetime_ns += interval_ns;
        c.energy_pj += u128::try_from(self.power_mw).unwrap_or(0) * u128::try_from(interval_ns).unwrap_or(0);
        let while_set = |bits: i64| if self.reasons & bits == 0 { 0 } else { interval_ns };
        c.power_capped_ns += while_set(reason::POWER_CAP);
        c.thermal_ns += while_set(reason::THERMAL);
        c.thermal_hardware_ns += while_set(reason::THERMAL_HARDWARE);
        c.link_tx += whole(tx * dt);
        c.link_rx += whole(rx * dt);
        if self.corrected_rate > 0.0 {
            let expected = self.corrected_rate * dt + self.stream.unit();
            c.corrected += whole(expected.floor());
        }
        if self.special == Some(Special::FailingMemory) {
            // It gets worse: twice as often every 20 minutes, up to once a second.
            self.corrected_rate = (self.corrected_rate * (1.0 + dt / 1731.0)).min(1.0);
        }
    }

    /// Mean power of the tick in watts.
    pub(super) fn watts(&self) -> f64 {
        thousandths(self.power_mw)
    }

    /// Processes with a context.
    pub(super) fn processes(&self) -> i64 {
        match self.job.map(|job| job.kind) {
            None => 0,
            Some(Kind::Debug) => 2,
            Some(_) => 1,
        }
    }
}

/// The nearest whole number.
#[expect(clippy::cast_possible_truncation, reason = "saturates; all quantities stay far below 2^63")]
pub(super) fn whole(value: f64) -> i64 {
    (value + 0.5).floor() as i64
}

/// A thousandth of a whole number.
#[expect(clippy::cast_precision_loss, reason = "milliwatts of one part")]
pub(super) fn thousandths(value: i64) -> f64 {
    value as f64 / 1000.0
}
