//! The use of one GPU, added up.

use super::paced::{Paced, PacedStay, UseGap};
use super::stay::{UseTime, sum};
use super::{CounterSpan, PowerSpan, SeenPower, Stay};
use crate::energy::{Energy, EnergySource};
use crate::throttle::ByLimit;

/// What a holder used of a GPU.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct HolderUse {
    /// Seconds between its rows and the next ones; 0 if it only has a GPU's last row.
    pub seconds: f64,
    /// Seconds times utilisation; none if that is never known.
    pub busy_s: Option<f64>,
    /// Seconds in which the GPU did nothing; none as well.
    pub idle_s: Option<f64>,
    /// Seconds in which the utilisation is known; none as well. Only a ledger adds it up.
    pub known_s: Option<f64>,
    /// Seconds in which a limit held the clocks down; none if that is never known.
    pub throttled_s: Option<f64>,
    /// The same by limit, of which several may be at once. Only a ledger adds it up.
    pub throttled_by_s: ByLimit,
    /// Energy, joules; none without power and counter.
    pub joules: Option<f64>,
    /// Energy of the time in which the GPU did nothing, joules; none if there was no such time, or no energy.
    pub idle_joules: Option<f64>,
    /// Power that was sampled: its integral by its seconds is the mean. What only a counter saw is not in it.
    pub power: SeenPower,
}

impl HolderUse {
    fn add(&mut self, time: UseTime) {
        self.and(&Self {
            seconds: time.seconds,
            busy_s: time.busy_idle_s.map(|(busy_s, _)| busy_s),
            idle_s: time.busy_idle_s.map(|(_, idle_s)| idle_s),
            known_s: time.known_s,
            throttled_s: time.throttled_s,
            throttled_by_s: time.throttled_by_s,
            ..Self::default()
        });
    }

    /// Adds more of the same holder.
    pub(super) fn and(&mut self, other: &Self) {
        let plus = |one: f64, other: f64| one + other;
        self.seconds += other.seconds;
        self.busy_s = sum(self.busy_s, other.busy_s, plus);
        self.idle_s = sum(self.idle_s, other.idle_s, plus);
        self.known_s = sum(self.known_s, other.known_s, plus);
        self.throttled_s = sum(self.throttled_s, other.throttled_s, plus);
        self.throttled_by_s = self.throttled_by_s.and(other.throttled_by_s);
        self.joules = sum(self.joules, other.joules, plus);
        self.idle_joules = sum(self.idle_joules, other.idle_joules, plus);
        self.power = self.power.and(other.power);
    }

    /// A part of it.
    pub(super) fn part(&self, part: f64) -> Self {
        let scaled = |value: Option<f64>| value.map(|value| value * part);
        Self {
            seconds: self.seconds * part,
            busy_s: scaled(self.busy_s),
            idle_s: scaled(self.idle_s),
            known_s: scaled(self.known_s),
            throttled_s: scaled(self.throttled_s),
            throttled_by_s: self.throttled_by_s.times(part),
            joules: scaled(self.joules),
            idle_joules: scaled(self.idle_joules),
            power: SeenPower { joules: self.power.joules * part, seconds: self.power.seconds * part },
        }
    }

    /// A part of it where it is known who worked: busy time and the energy of work by the part of the work, the rest of the
    /// time and the energy of no work by the part of the time.
    pub(super) fn part_by_work(&self, part: f64, work: f64) -> Self {
        let busy_s = self.busy_s.unwrap_or(0.0).min(self.seconds);
        let divided = |all_s: f64| busy_s * work + (all_s - busy_s) * part;
        let seconds = divided(self.seconds);
        let of_time = if self.seconds > 0.0 { seconds / self.seconds } else { part };
        let idle_joules = self.idle_joules.unwrap_or(0.0);
        Self {
            seconds,
            busy_s: self.busy_s.map(|busy_s| busy_s * work),
            known_s: self.known_s.map(divided),
            throttled_s: self.throttled_s.map(|throttled_s| throttled_s * of_time),
            throttled_by_s: self.throttled_by_s.times(of_time),
            joules: self.joules.map(|joules| (joules - idle_joules) * work + idle_joules * part),
            ..self.part(part)
        }
    }

    fn add_joules(&mut self, joules: f64, idle_joules: Option<f64>) {
        *self.joules.get_or_insert(0.0) += joules;
        if let Some(idle) = idle_joules {
            *self.idle_joules.get_or_insert(0.0) += idle;
        }
    }
}

/// What is added up of a GPU for a holder, or for a holder and a step of time.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct HolderPlace {
    pub(super) number: u32,
    /// Times of the first row and of the last.
    pub(super) rows_ns: (i64, i64),
    pub(super) held: HolderUse,
}

/// The sums of a GPU.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct GpuSums {
    pub(super) held: Vec<HolderPlace>,
    pub(super) source: Option<EnergySource>,
    pub(super) first_ns: i64,
    pub(super) last_ns: i64,
}

/// Adds up rows and rollups of one GPU in the order of their times, by place: a holder, or a holder and a step of time.
#[derive(Debug, Clone, Default)]
pub(super) struct UseFold {
    paced: Paced,
    going: Option<Box<Going>>,
}

/// Sums of a GPU that has had a row.
#[derive(Debug, Clone)]
struct Going {
    energy: Energy,
    /// The last stay, and its holder.
    last: (u32, Stay),
    first_ns: i64,
    held: Vec<HolderPlace>,
}

impl UseFold {
    /// How many places have a sum.
    pub(super) fn places(&self) -> usize {
        self.going.as_ref().map_or(0, |going| going.held.len())
    }

    /// Adds the rows of a place. Rows that are not behind all earlier ones are counted already and add nothing. Returns the
    /// time that turned out to be a gap, if any: from a row to the next.
    pub(super) fn add(&mut self, place: u32, stay: Stay) -> Option<(i64, i64)> {
        self.paced.push(place, stay).and_then(|stay| self.take(stay))
    }

    /// Adds up the rows that wait for those behind them, as if none came. Returns the times that turned out to be gaps.
    pub(super) fn end(&mut self) -> Vec<(i64, i64)> {
        let mut gaps = Vec::new();
        while let Some(stay) = self.paced.next() {
            gaps.extend(self.take(stay));
        }
        gaps
    }

    fn take(&mut self, stay: PacedStay) -> Option<(i64, i64)> {
        if let Some(going) = &mut self.going {
            return going.add(stay);
        }
        self.going = Some(Box::new(Going::new(stay)));
        None
    }

    /// The sums so far.
    pub(super) fn held(&self) -> &[HolderPlace] {
        self.going.as_ref().map_or(&[], |going| &going.held)
    }

    /// Time of the last row that is added up.
    pub(super) fn last_ns(&self) -> Option<i64> {
        Some(self.going.as_ref()?.last.1.last_ns)
    }

    /// Source of the energy so far; none without any.
    pub(super) fn source(&self) -> Option<EnergySource> {
        let going = self.going.as_ref()?;
        let has_joules = going.held.iter().any(|place| place.held.joules.is_some());
        going.energy.total().filter(|_| has_joules).map(|total| total.source)
    }

    /// Whether the last row of a place, or one that waits, is the GPU's last: what comes is added to it.
    pub(super) fn is_open(&self, place: u32) -> bool {
        self.paced.waits(place) || self.going.as_ref().is_some_and(|going| going.last.0 == place)
    }

    /// Forgets the sums of places to which nothing is added any more.
    pub(super) fn forget(&mut self, is_over: impl Fn(u32) -> bool) {
        if let Some(going) = &mut self.going {
            going.held.retain(|place| !is_over(place.number));
        }
    }

    /// The sums; none without a row.
    pub(super) fn finish(mut self) -> Option<GpuSums> {
        self.end();
        let source = self.source();
        let going = self.going?;
        Some(GpuSums { held: going.held, source, first_ns: going.first_ns, last_ns: going.last.1.last_ns })
    }
}

impl Going {
    fn new((holder, stay, _): PacedStay) -> Self {
        let mut going = Self {
            energy: Energy::default(),
            first_ns: stay.first_ns,
            last: (holder, stay.clone()),
            held: Vec::new(),
        };
        going.feed(&stay, UseGap::default());
        going.stay(holder, &stay, None, UseGap::default());
        going
    }

    fn add(&mut self, (holder, stay, gap): PacedStay) -> Option<(i64, i64)> {
        let distance = (self.last.1.last_ns, stay.first_ns);
        if stay.first_ns <= self.last.1.last_ns {
            return None;
        }
        let between = UseTime::between(&self.last.1, &stay, gap);
        let apart_s = between.seconds;
        let idle_share =
            self.last.1.idle_share(self.last.1.last_ns, apart_s, gap).filter(|share| *share > 0.0);
        let (before_j, sampled) = (self.energy.joules(), self.energy.sampled());
        self.feed(&stay, gap);
        let joules = self.energy.joules() - before_j;
        let sampled = self.energy.sampled().without(sampled);
        let has_energy = joules > 0.0 || sampled.seconds > 0.0;
        let last = &mut self.place(self.last.0).held;
        last.add(between);
        last.power = last.power.and(sampled);
        if has_energy {
            last.add_joules(joules, idle_share.map(|share| share * joules));
        }
        let mut before = std::mem::replace(&mut self.last, (holder, stay.clone())).1;
        self.stay(holder, &stay, Some(&before), gap);
        // What a row does not say again lasts.
        before.follow(&stay);
        self.last.1 = Stay {
            throttled_after: before.throttled_after,
            throttled_told_ns: before.throttled_told_ns,
            throttled_by: before.throttled_by,
            utilization_after: before.utilization_after,
            utilization_told_ns: before.utilization_told_ns,
            ..stay
        };
        (between.seconds <= 0.0).then_some(distance)
    }

    /// Gives the first values of a stay to the energy.
    fn feed(&mut self, stay: &Stay, gap: UseGap) {
        self.energy.begin_row();
        self.energy.allow(stay.limit_w);
        if let Some(PowerSpan { first: (time_ns, watts), is_average, .. }) = stay.power {
            self.energy.power(time_ns, watts, is_average, gap.power_ns);
        }
        if let Some(counter) = stay.counter.filter(|counter| counter.around[0].seconds <= 0.0) {
            self.energy.read(counter.first.0, counter.first.1, gap.rows_ns);
        }
    }

    /// Gives the rest of a stay to the energy: power up to the first reading of the counter, to the last, and behind it.
    fn extend(&mut self, power: Option<PowerSpan>, counter: Option<CounterSpan>, gap: UseGap) {
        // Also nothing, where the stay has a gap: the last sample is its last.
        let add = |energy: &mut Energy, seen: SeenPower| {
            if let Some(power) = power {
                energy.extend(&power.part(seen), gap.power_ns);
            }
        };
        let all = SeenPower::of(power);
        let Some(counter) = counter else { return add(&mut self.energy, all) };
        let [before, after] = counter.around;
        if before.seconds > 0.0 {
            add(&mut self.energy, before);
            self.energy.read(counter.first.0, counter.first.1, gap.rows_ns);
        }
        add(&mut self.energy, all.without(before).without(after));
        if counter.last.0 > counter.first.0 {
            self.energy.count(&counter);
        }
        if after.seconds > 0.0 {
            add(&mut self.energy, after);
        }
    }

    /// Adds what lies within a stay that follows another one.
    fn stay(&mut self, holder: u32, stay: &Stay, before: Option<&Stay>, gap: UseGap) {
        let (before_j, sampled) = (self.energy.joules(), self.energy.sampled());
        let power = stay.power.filter(|power| power.last.0 > power.first.0);
        self.extend(power, stay.counter, gap);
        let joules = self.energy.joules() - before_j;
        let sampled = self.energy.sampled().without(sampled);
        let time = UseTime::within(stay, before, gap);
        let idle_s = time.busy_idle_s.map_or(0.0, |(_, idle_s)| idle_s);
        // Of the energy, the part of the idle time is that of the integral.
        let idle_share = match power {
            Some(power) if power.joules > 0.0 => {
                let open_s = stay.utilization_open_s;
                let was_idle = before.and_then(|before| before.idle_share(stay.first_ns, open_s, gap));
                (power.idle_joules + was_idle.unwrap_or(0.0) * power.open_joules) / power.joules
            }
            _ if time.seconds > 0.0 => idle_s / time.seconds,
            _ => 0.0,
        };
        let has_energy = joules > 0.0 || power.is_some_and(|power| power.seconds > 0.0);
        let is_idle = idle_s > 0.0;
        let place = self.place(holder);
        let (first_ns, last_ns) = place.rows_ns;
        place.rows_ns = (first_ns.min(stay.first_ns), last_ns.max(stay.last_ns));
        let held = &mut place.held;
        held.add(time);
        held.power = held.power.and(sampled);
        if has_energy {
            held.add_joules(joules, is_idle.then_some(joules * idle_share));
        }
    }

    /// The sums of a place; most GPUs have few.
    fn place(&mut self, number: u32) -> &mut HolderPlace {
        let at = self.held.iter().rposition(|place| place.number == number).unwrap_or_else(|| {
            self.held.push(HolderPlace { number, rows_ns: (i64::MAX, i64::MIN), held: HolderUse::default() });
            self.held.len() - 1
        });
        #[expect(clippy::indexing_slicing, reason = "the place was just found or made")]
        &mut self.held[at]
    }
}
