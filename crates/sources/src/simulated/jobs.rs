//! Who works when: the scheduler of an island, and the shape of a job's load.
//!
//! An island is four hosts with eight GPUs each. Its scheduler always runs over all 32 places, whether the fleet has
//! them or not, so that a GPU's series does not depend on the size of the fleet. Jobs arrive with exponential gaps,
//! wait a little when there is no room, take their GPUs on one host (16: on two hosts of one model) and go after an
//! exponential time. The schedule begins hours before the first tick: the fleet is found at work.

use super::hardware::Model;
use super::rng::{Stream, hash, unit};

/// Hosts of an island and GPUs of each that one scheduler rules.
pub(super) const HOSTS: usize = 4;
pub(super) const PLACES: usize = 8;
const SLOTS: usize = HOSTS * PLACES;
/// The schedule begins this long before the first tick.
const WARM_UP_NS: i64 = 4 * 3600 * SECOND_NS;
/// Mean gap between arrivals: with the sizes and times below, two thirds of the places are taken.
const ARRIVAL_SECONDS: f64 = 280.0;
/// Jobs that may wait for room; one more is sent away.
const WAITING_MAX: usize = 4;
pub(super) const SECOND_NS: i64 = 1_000_000_000;

/// What a job does with its GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Steps of compute and exchange, dips when data is late, pauses for checkpoints.
    Training,
    /// A served model: memory full, load that wanders.
    Inference,
    /// A loaded model that nobody asks anything.
    Idle,
    /// A person at a notebook: bursts, little memory.
    Debug,
}

impl Kind {
    /// Word in names of jobs and pods, the namespace and the container.
    pub(super) fn names(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Training => ("train", "research", "trainer"),
            Self::Inference => ("serve", "serving", "server"),
            Self::Idle => ("parked", "serving", "server"),
            Self::Debug => ("debug", "sandbox", "notebook"),
        }
    }

    fn mean_seconds(self) -> f64 {
        match self {
            Self::Training => 1500.0,
            Self::Inference => 2700.0,
            Self::Idle => 1200.0,
            Self::Debug => 360.0,
        }
    }

    fn size(self, chance: f64) -> usize {
        let table: &[(f64, usize)] = match self {
            Self::Training => &[(0.15, 1), (0.3, 2), (0.55, 4), (0.85, 8), (1.0, 16)],
            Self::Inference => &[(0.5, 1), (0.75, 2), (0.9, 4), (1.0, 8)],
            Self::Idle | Self::Debug => &[],
        };
        table.iter().find(|(bound, _)| chance < *bound).map_or(1, |&(_, size)| size)
    }
}

/// A running job as each of its GPUs sees it. All members share it, and with it the rhythm.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Job {
    /// Number in its island.
    pub(super) number: u64,
    pub(super) kind: Kind,
    /// Nanoseconds from the first tick, negative if before.
    pub(super) start_ns: i64,
    /// Several GPUs: they talk.
    pub(super) shared: bool,
    /// How much longer a step takes because of the slowest member; 1 without a straggler.
    pub(super) slowdown: f64,
    seed: u64,
    /// Seconds of a step when all members run at full clock, and the share of it that computes.
    step: f64,
    compute: f64,
    /// Power-relevant intensity of the busy time, 0 to 1.
    intensity: f64,
    /// Seconds between late data, and between checkpoints; length of the latter.
    dip_every: f64,
    checkpoint_every: f64,
    checkpoint: f64,
    /// Seconds until memory is full, and the share of the memory that is taken.
    loading: f64,
    memory_share: f64,
}

/// What the GPU is asked to do at one moment; shares of what it can, 0 to 1.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Activity {
    /// Share of time with any work.
    pub(super) busy: f64,
    /// Share of the dynamic power.
    pub(super) work: f64,
    pub(super) memory: f64,
    pub(super) tensor: f64,
    pub(super) link: f64,
    pub(super) pcie_rx: f64,
    pub(super) pcie_tx: f64,
    /// Share of the usable memory that is taken.
    pub(super) memory_share: f64,
}

impl Job {
    fn new(kind: Kind, number: u64, start_ns: i64, size: usize, seed: u64) -> Self {
        let mut chance = Stream::of(&[seed, 1]);
        Self {
            number,
            kind,
            start_ns,
            shared: size > 1,
            slowdown: 1.0,
            seed,
            step: chance.between(1.7, 6.3),
            compute: if size > 1 { chance.between(0.74, 0.9) } else { chance.between(0.9, 0.97) },
            intensity: match kind {
                Kind::Training => chance.between(0.78, 1.0),
                _ => chance.between(0.35, 0.75),
            },
            dip_every: chance.between(40.0, 160.0),
            checkpoint_every: chance.between(240.0, 900.0),
            checkpoint: chance.between(8.0, 25.0),
            loading: chance.between(8.0, 45.0),
            memory_share: match kind {
                Kind::Training => chance.between(0.55, 0.97),
                Kind::Inference | Kind::Idle => chance.between(0.82, 0.95),
                Kind::Debug => chance.between(0.05, 0.4),
            },
        }
    }

    /// What the job asks of a GPU at a time (nanoseconds from the first tick); `lag` is the GPU's own step time
    /// relative to a sound one, 1 for all but a straggler.
    pub(super) fn activity(&self, now_ns: i64, lag: f64) -> Activity {
        let t = seconds(now_ns - self.start_ns);
        let filled = (t / self.loading).clamp(0.0, 1.0);
        let memory_share = self.memory_share * filled * filled * (3.0 - 2.0 * filled);
        let base = Activity { memory_share, ..Activity::default() };
        if filled < 1.0 {
            return Activity { busy: 0.08, work: 0.04, memory: 0.05, pcie_rx: 0.4, ..base };
        }
        match self.kind {
            Kind::Training => self.training(t, lag, base),
            Kind::Inference => self.inference(t, base),
            Kind::Idle => base,
            Kind::Debug => self.debugging(t, base),
        }
    }

    fn training(&self, t: f64, lag: f64, base: Activity) -> Activity {
        let i = self.intensity;
        if t > self.checkpoint_every && t % self.checkpoint_every < self.checkpoint {
            return Activity { busy: 0.02, work: 0.02, memory: 0.03, pcie_tx: 0.35, ..base };
        }
        let cell = (t / self.dip_every).floor();
        let into = t - cell * self.dip_every;
        let dip_at = 0.8 * self.dip_every * self.chance(cell, 2);
        if (dip_at..dip_at + 1.0 + 3.0 * self.chance(cell, 3)).contains(&into) {
            return Activity { busy: 0.25, work: 0.15 * i, memory: 0.1, tensor: 0.05, pcie_rx: 0.3, ..base };
        }
        let step = self.step * self.slowdown;
        let phase = (t % step) / self.step;
        let linked = f64::from(u8::from(self.shared));
        let (own, slowest) = (self.compute * lag, self.compute * self.slowdown);
        if phase < own {
            let busy = Activity { busy: 1.0, work: i, memory: 0.58 * i, tensor: 0.62 * i, ..base };
            Activity { link: 0.12 * linked, pcie_rx: 0.02, pcie_tx: 0.005, ..busy }
        } else if phase < slowest {
            Activity { busy: 1.0, work: 0.2, memory: 0.06, link: 0.03 * linked, ..base }
        } else {
            let work = (0.5 + 0.1 * (1.0 - linked)) * i;
            Activity { busy: 0.97, work, memory: 0.4 * i, tensor: 0.05, link: 0.75 * linked, ..base }
        }
    }

    fn inference(&self, t: f64, base: Activity) -> Activity {
        let slow = self.smooth(t / 600.0, 4);
        let quick = self.smooth(t / 7.0, 5);
        let busy = (0.15 + 0.75 * slow + 0.3 * (quick - 0.5)).clamp(0.0, 1.0);
        let link = if self.shared { 0.12 * busy } else { 0.0 };
        let traffic = Activity { link, pcie_rx: 0.02 * busy, pcie_tx: 0.01 * busy, ..base };
        Activity {
            busy,
            work: 0.75 * busy * self.intensity,
            memory: 0.6 * busy,
            tensor: 0.18 * busy,
            ..traffic
        }
    }

    fn debugging(&self, t: f64, base: Activity) -> Activity {
        let cell = (t / 35.0).floor();
        let grown = (0.3 + t / 300.0).min(1.0) * base.memory_share;
        let base = Activity { memory_share: grown, ..base };
        if self.chance(cell, 6) > 0.4 || t - cell * 35.0 > 8.0 + 25.0 * self.chance(cell, 7) {
            return base;
        }
        let busy = 0.2 + 0.75 * self.chance(cell, 8);
        Activity {
            busy,
            work: busy * self.intensity,
            memory: 0.4 * busy,
            tensor: 0.1 * busy,
            pcie_rx: 0.05,
            ..base
        }
    }

    /// Chance of a numbered stretch of the job's life, in [0, 1).
    fn chance(&self, cell: f64, purpose: u64) -> f64 {
        unit(hash(&[self.seed, purpose, cell.to_bits()]))
    }

    /// Chance that wanders: one value a cell, straight lines between.
    fn smooth(&self, x: f64, purpose: u64) -> f64 {
        let cell = x.floor();
        let (from, to) = (self.chance(cell, purpose), self.chance(cell + 1.0, purpose));
        from + (to - from) * (x - cell)
    }
}

/// Nanoseconds as seconds.
#[expect(
    clippy::cast_precision_loss,
    reason = "a hundred days in ns fit 53 bits; beyond, the rhythm loses ns"
)]
pub(super) fn seconds(ns: i64) -> f64 {
    ns as f64 / 1e9
}

#[expect(clippy::cast_possible_truncation, reason = "job times are hours; saturates")]
fn nanoseconds(seconds: f64) -> i64 {
    (seconds * 1e9) as i64
}

#[derive(Debug)]
struct Running {
    job: Job,
    end_ns: i64,
    slots: u32,
}

#[derive(Debug, Clone, Copy)]
struct Wanted {
    kind: Kind,
    size: usize,
    duration_ns: i64,
    seed: u64,
}

/// A change of who holds a place: host of the island, place on the host, job or nobody.
pub(super) type Change = (usize, usize, Option<Job>);

/// A job that holds given places of the first host from before the first tick for ever.
#[derive(Debug)]
pub(super) struct Fixed {
    pub(super) kind: Kind,
    pub(super) places: Vec<usize>,
    pub(super) slowdown: f64,
}

/// The scheduler of an island.
#[derive(Debug)]
pub(super) struct Scheduler {
    stream: Stream,
    models: [&'static Model; HOSTS],
    taken: u32,
    running: Vec<Running>,
    waiting: Vec<Wanted>,
    arrival_ns: i64,
    number: u64,
}

impl Scheduler {
    /// A scheduler before its first event. Its changes begin with those of the fixed jobs.
    pub(super) fn new(stream: Stream, models: [&'static Model; HOSTS], fixed: &[Fixed]) -> Self {
        let mut scheduler = Self {
            stream,
            models,
            taken: 0,
            running: Vec::new(),
            waiting: Vec::new(),
            arrival_ns: -WARM_UP_NS,
            number: 0,
        };
        for one in fixed {
            let slots = one.places.iter().fold(0, |slots, place| slots | 1 << place);
            let seed = scheduler.stream.next();
            let mut job = Job::new(one.kind, scheduler.next_number(), -WARM_UP_NS, one.places.len(), seed);
            job.slowdown = one.slowdown;
            // The special cases are to be seen: their jobs neither stop often nor load lightly.
            job.intensity = job.intensity.max(0.93);
            scheduler.taken |= slots;
            scheduler.running.push(Running { job, end_ns: i64::MAX, slots });
        }
        scheduler
    }

    /// Lets events happen up to and with a time (nanoseconds from the first tick) and notes who came and went.
    pub(super) fn advance(&mut self, now_ns: i64, changes: &mut Vec<Change>) {
        if self.arrival_ns == -WARM_UP_NS {
            for running in &self.running {
                note(running.slots, Some(running.job), changes);
            }
        }
        loop {
            let end = self.running.iter().map(|r| r.end_ns).min().unwrap_or(i64::MAX);
            let event = end.min(self.arrival_ns);
            if event > now_ns {
                return;
            }
            if end <= self.arrival_ns {
                self.finish(event, changes);
            } else {
                self.arrive(event);
            }
            self.place(event, changes);
        }
    }

    /// Takes a place of the first host out of service (its job dies with it) or back into it.
    pub(super) fn serve(&mut self, place: usize, in_service: bool, now_ns: i64, changes: &mut Vec<Change>) {
        let slot = 1 << place;
        if in_service {
            self.taken &= !slot;
        } else {
            for running in self.running.iter_mut().filter(|r| r.slots & slot != 0) {
                running.end_ns = now_ns;
            }
            self.finish(now_ns, changes);
            self.taken |= slot;
        }
    }

    fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    fn finish(&mut self, now_ns: i64, changes: &mut Vec<Change>) {
        let taken = &mut self.taken;
        self.running.retain(|running| {
            let over = running.end_ns <= now_ns;
            if over {
                *taken &= !running.slots;
                note(running.slots, None, changes);
            }
            !over
        });
    }

    fn arrive(&mut self, now_ns: i64) {
        let kind = match self.stream.unit() {
            x if x < 0.4 => Kind::Training,
            x if x < 0.7 => Kind::Inference,
            x if x < 0.78 => Kind::Idle,
            _ => Kind::Debug,
        };
        let size = kind.size(self.stream.unit());
        let duration = 20.0 + self.stream.exponential(kind.mean_seconds());
        let wanted = Wanted { kind, size, duration_ns: nanoseconds(duration), seed: self.stream.next() };
        if self.waiting.len() < WAITING_MAX {
            self.waiting.push(wanted);
        }
        self.arrival_ns = now_ns + 1 + nanoseconds(self.stream.exponential(ARRIVAL_SECONDS));
    }

    fn place(&mut self, now_ns: i64, changes: &mut Vec<Change>) {
        let mut index = 0;
        while let Some(&wanted) = self.waiting.get(index) {
            let Some(slots) = self.room(wanted) else {
                index += 1;
                continue;
            };
            self.waiting.remove(index);
            let job = Job::new(wanted.kind, self.next_number(), now_ns, wanted.size, wanted.seed);
            self.taken |= slots;
            self.running.push(Running { job, end_ns: now_ns + wanted.duration_ns, slots });
            note(slots, Some(job), changes);
        }
    }

    /// Free places for a job: the lowest of a host, beginning with a host that the job's seed picks; for more
    /// than a host, two whole hosts of one model. Dies of one card go together.
    fn room(&self, wanted: Wanted) -> Option<u32> {
        let host_mask = |host: usize| 0xff_u32 << (host * PLACES);
        if wanted.size > PLACES {
            let free = |host: &usize| self.taken & host_mask(*host) == 0;
            let name = |host: usize| self.models.get(host).map(|model| model.name);
            return (0..HOSTS).filter(free).find_map(|a| {
                (a + 1..HOSTS).filter(free).find(|&b| name(a) == name(b)).map(|b| host_mask(a) | host_mask(b))
            });
        }
        let first = usize::try_from(wanted.seed % 4).unwrap_or(0);
        (0..HOSTS).map(|i| (first + i) % HOSTS).find_map(|host| {
            let dies = self.models.get(host)?.dies;
            let size = wanted.size.div_ceil(dies) * dies;
            let card = (1_u32 << dies) - 1;
            let mut slots = 0;
            for place in (0..PLACES).step_by(dies) {
                let mask = card << (host * PLACES + place);
                if self.taken & mask == 0 && (slots | mask).count_ones() as usize <= size {
                    slots |= mask;
                }
            }
            (slots.count_ones() as usize == size).then_some(slots)
        })
    }
}

fn note(slots: u32, job: Option<Job>, changes: &mut Vec<Change>) {
    for slot in (0..SLOTS).filter(|slot| slots & 1 << slot != 0) {
        changes.push((slot / PLACES, slot % PLACES, job));
    }
}

#[cfg(test)]
mod tests {
    use super::super::hardware::ISLANDS;
    use super::*;

    #[test]
    fn two_thirds_of_the_places_are_taken_and_all_jobs_end() {
        let (mut busy, mut samples, mut shared) = (0, 0, 0);
        for seed in 0..8 {
            let mut scheduler = Scheduler::new(Stream::of(&[seed]), ISLANDS[0], &[]);
            let mut holders = [None::<Job>; SLOTS];
            let mut changes = Vec::new();
            for minute in 0..600 {
                scheduler.advance(minute * 60 * SECOND_NS, &mut changes);
                for (host, place, job) in changes.drain(..) {
                    holders[host * PLACES + place] = job;
                }
                busy += holders.iter().flatten().count();
                shared += holders.iter().flatten().filter(|job| job.shared).count();
                samples += SLOTS;
            }
            assert!(scheduler.number > 50, "{}", scheduler.number);
        }
        let share = f64::from(u32::try_from(busy).unwrap()) / f64::from(u32::try_from(samples).unwrap());
        assert!((0.5..0.85).contains(&share), "{share}");
        assert!(shared * 2 > busy, "{shared} of {busy}");
    }

    #[test]
    fn a_straggler_makes_the_others_wait_at_full_utilisation() {
        let mut job = Job::new(Kind::Training, 1, 0, 4, 99);
        job.slowdown = 1.25;
        let at = |second: i64, lag: f64| job.activity(100 * SECOND_NS + second * SECOND_NS / 20, lag);
        let work = |lag: f64| (0..4000).map(|s| at(s, lag).work).sum::<f64>();
        assert!(work(1.0) < 0.9 * work(1.25), "{} {}", work(1.0), work(1.25));
        assert!((0..4000).any(|s| at(s, 1.0).busy > 0.999 && at(s, 1.0).work < 0.25));
    }
}
