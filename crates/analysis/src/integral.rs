//! Totals over time: integrals of what is sampled, rises of what the hardware counts.
//!
//! Times are nanoseconds of one clock, best the monotonic one; totals are in the value's unit times seconds. What
//! nobody saw is not made up: a gap between two samples that is longer than the caller allows adds nothing.

const SECOND: f64 = 1e9;

/// How often something comes, learnt from when it came: what is a pause at 100 Hz is usual at one a minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    least_ns: i64,
    usual_ns: i64,
}

impl Pace {
    /// Shortest distance that is told from none: nobody minds a pause of a few seconds.
    const FLOOR_NS: i64 = 1_000_000_000;
    /// A distance so many times the usual one is a gap.
    const PATIENCE: i64 = 5;
    /// So many times longer a distance may become usual at once.
    const GROWTH: i64 = 8;

    /// Begins with the least distance that is taken for usual, whatever comes: what is read once more after an error is
    /// not read so often from then on.
    pub fn new(least_ns: i64) -> Self {
        let least_ns = least_ns.max(Self::FLOOR_NS);
        Self { least_ns, usual_ns: least_ns }
    }

    /// Learns from a distance: at once when it is shorter, eightfold at most when it is longer, so that one outage is
    /// not taken for a habit.
    pub fn step(&mut self, distance_ns: i64) {
        if distance_ns > 0 {
            self.usual_ns = distance_ns.clamp(self.least_ns, self.usual_ns.saturating_mul(Self::GROWTH));
        }
    }

    /// Longest distance that is no gap: five times the usual one.
    pub fn limit_ns(self) -> i64 {
        self.usual_ns.saturating_mul(Self::PATIENCE)
    }
}

/// Where a reading stands in time against the one before it.
enum Order {
    /// So many nanoseconds after it.
    After(i64),
    /// At the same instant, or before it by no more than the gap: it came late, and its time is accounted for.
    Late,
    /// Far before it: the clock was set back.
    Reset,
}

fn order(last_ns: i64, time_ns: i64, gap_max_ns: i64) -> Order {
    match time_ns.saturating_sub(last_ns) {
        distance if distance > 0 => Order::After(distance),
        distance if distance.saturating_neg() <= gap_max_ns => Order::Late,
        _ => Order::Reset,
    }
}

#[expect(clippy::cast_precision_loss, reason = "distances are far below 2^52 nanoseconds")]
fn seconds(distance_ns: i64) -> f64 {
    distance_ns as f64 / SECOND
}

/// Integral of a sampled value over time.
#[derive(Debug, Clone, Default)]
pub struct Integral {
    last: Option<(i64, f64)>,
    total: f64,
}

impl Integral {
    /// A sample: between it and the one before the value went straight (trapezoid rule).
    pub fn sample(&mut self, time_ns: i64, value: f64, gap_max_ns: i64) {
        self.add(time_ns, value, gap_max_ns, f64::midpoint);
    }

    /// A mean over the time since the sample before.
    pub fn mean(&mut self, time_ns: i64, value: f64, gap_max_ns: i64) {
        self.add(time_ns, value, gap_max_ns, |_, mean| mean);
    }

    fn add(&mut self, time_ns: i64, value: f64, gap_max_ns: i64, between: fn(f64, f64) -> f64) {
        if !value.is_finite() {
            return;
        }
        if let Some((last_ns, last)) = self.last {
            match order(last_ns, time_ns, gap_max_ns) {
                Order::After(distance) if distance <= gap_max_ns => {
                    self.total += between(last, value) * seconds(distance);
                }
                Order::After(_) | Order::Reset => {}
                Order::Late => return,
            }
        }
        self.last = Some((time_ns, value));
    }

    /// The integral so far; none before the first sample.
    pub fn total(&self) -> Option<f64> {
        self.last.map(|_| self.total)
    }
}

/// How much a counter of the hardware has risen since it was first read. A counter that falls was reset with its
/// driver, or errs; what it counted in between is not known, so it adds nothing.
#[derive(Debug, Clone, Default)]
pub struct Rise {
    last: Option<(i64, f64)>,
    total: f64,
    falls: u64,
}

impl Rise {
    /// A reading.
    pub fn read(&mut self, time_ns: i64, value: f64, gap_max_ns: i64) {
        if !value.is_finite() {
            return;
        }
        if let Some((last_ns, last)) = self.last {
            if matches!(order(last_ns, time_ns, gap_max_ns), Order::Late) {
                return;
            }
            if value < last {
                self.falls += 1;
            } else {
                self.total += value - last;
            }
        }
        self.last = Some((time_ns, value));
    }

    /// The rise so far; none before the first reading.
    pub fn total(&self) -> Option<f64> {
        self.last.map(|_| self.total)
    }

    /// How often the counter fell.
    pub fn falls(&self) -> u64 {
        self.falls
    }
}

/// What a total comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A counter of the hardware.
    Counter,
    /// Integration of samples.
    Integrated,
}

/// A total that the hardware counts where it can, and that is integrated where it does not. It goes over to the counter
/// when that is first read and never back; it never falls.
#[derive(Debug, Clone, Default)]
pub struct Meter {
    rise: Rise,
    integral: Integral,
}

impl Meter {
    /// A reading of the hardware's counter.
    pub fn read(&mut self, time_ns: i64, value: f64, gap_max_ns: i64) {
        self.rise.read(time_ns, value, gap_max_ns);
    }

    /// A sample of the quantity whose integral the counter would be.
    pub fn sample(&mut self, time_ns: i64, value: f64, gap_max_ns: i64) {
        if self.rise.total().is_none() {
            self.integral.sample(time_ns, value, gap_max_ns);
        }
    }

    /// Its mean over the time since the sample before.
    pub fn mean(&mut self, time_ns: i64, value: f64, gap_max_ns: i64) {
        if self.rise.total().is_none() {
            self.integral.mean(time_ns, value, gap_max_ns);
        }
    }

    /// The total so far; none before the first reading or sample.
    pub fn total(&self) -> Option<f64> {
        match (self.rise.total(), self.integral.total()) {
            (Some(rise), Some(integral)) => Some(rise + integral),
            (rise, integral) => rise.or(integral),
        }
    }
}

/// Energy: what the part's own counter has risen by, as long as the integrated power bears it out, else that integral.
/// Some counters run at a wrong rate or stand still. So whenever at least [`EnergyMeter::CHECK_NS`] and
/// [`EnergyMeter::CHECK_J`] have passed without a gap the two are compared, and a counter that is off by more than
/// [`EnergyMeter::CREDIT`] times is not believed again. The total never falls.
#[derive(Debug, Clone, Default)]
pub struct EnergyMeter {
    rise: Rise,
    integral: Integral,
    /// What was counted before `from`.
    before: f64,
    from: Marks,
    origin: Option<Origin>,
    refuted: bool,
    sampled_ns: Option<i64>,
    /// Where the comparison began.
    check: Option<(i64, Marks)>,
}

/// Both totals at one instant.
#[derive(Debug, Clone, Copy, Default)]
struct Marks {
    risen: f64,
    integrated: f64,
}

impl EnergyMeter {
    /// Shortest time over which counter and integral are compared.
    pub const CHECK_NS: i64 = 60_000_000_000;
    /// Least energy over which they are compared.
    pub const CHECK_J: f64 = 1_000.0;
    /// Sensors that see a part of the time only are off by less.
    pub const CREDIT: f64 = 3.0;

    /// A reading of the part's counter, in joule.
    pub fn read(&mut self, time_ns: i64, joules: f64, gap_max_ns: i64) {
        let falls = self.rise.falls();
        self.rise.read(time_ns, joules, gap_max_ns);
        if self.refuted || self.rise.total().is_none() {
            return;
        }
        if self.origin != Some(Origin::Counter) {
            self.go_over(Origin::Counter);
        }
        if falls != self.rise.falls() {
            self.check = None;
        }
        let now = self.marks();
        let (since_ns, since) = *self.check.get_or_insert((time_ns, now));
        let risen = now.risen - since.risen;
        let integrated = now.integrated - since.integrated;
        if time_ns.saturating_sub(since_ns) < Self::CHECK_NS || integrated < Self::CHECK_J {
            return;
        }
        if risen * Self::CREDIT < integrated || risen > integrated * Self::CREDIT {
            self.refuted = true;
            self.go_over(Origin::Integrated);
            // What a counter that stood still kept back.
            self.before += (integrated - risen).max(0.0);
        }
        self.check = Some((time_ns, now));
    }

    /// A sample of the power, in watt.
    pub fn sample(&mut self, time_ns: i64, watts: f64, gap_max_ns: i64) {
        let distance_ns = self.sampled_ns.map_or(0, |sampled_ns| time_ns.saturating_sub(sampled_ns));
        if distance_ns.saturating_abs() > gap_max_ns {
            // The counter saw what the integral leaves out.
            self.check = None;
        }
        self.sampled_ns = Some(time_ns);
        self.integral.sample(time_ns, watts, gap_max_ns);
        if self.origin.is_none() && self.integral.total().is_some() {
            self.origin = Some(Origin::Integrated);
        }
    }

    /// The energy so far, in joule; none before the first reading or sample.
    pub fn total(&self) -> Option<f64> {
        let now = self.marks();
        Some(match self.origin? {
            Origin::Counter => self.before + now.risen - self.from.risen,
            Origin::Integrated => self.before + now.integrated - self.from.integrated,
        })
    }

    /// Where it comes from now.
    pub fn origin(&self) -> Option<Origin> {
        self.origin
    }

    fn go_over(&mut self, origin: Origin) {
        self.before = self.total().unwrap_or(0.0);
        self.from = self.marks();
        self.origin = Some(origin);
    }

    fn marks(&self) -> Marks {
        Marks { risen: self.rise.total().unwrap_or(0.0), integrated: self.integral.total().unwrap_or(0.0) }
    }
}
