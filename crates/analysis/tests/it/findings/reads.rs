//! How long readings of the GPUs of a node take: GPUs whose readings slow down, and sound nodes that look alike. From each reading to the
//! finding: the node judges the readings, and the gateway what it hears of that.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::sync::Arc;

use gpuvitals_analysis::coverage::Coverage;
use gpuvitals_analysis::findings::{Recent, Situation, Tracker, judge};
use gpuvitals_analysis::freshness::Freshness;
use gpuvitals_analysis::health_event::{HealthEvent, event_rows};
use gpuvitals_analysis::slow_reads::{SlowReads, TimedReading};
use gpuvitals_core::batch::{RowKeys, Value};
use gpuvitals_core::history::LiveFleet;
use gpuvitals_core::time::SECOND_NS;
use gpuvitals_core::{BatchBuilder, Identity, IdentityColumn, MetricId, Origin, Table};

use super::lab::START_NS;
use super::score::percent;

const GPUS: usize = 8;
/// Readings as usual, then those of the story.
const USUAL_S: usize = 120;
const RUN_S: usize = 240;
/// Between two judgements of the gateway.
const JUDGED_EVERY_S: usize = 15;
const TEMPERATURE: MetricId = MetricId::of("temperature_c");

/// A reading in a story.
struct ToRead {
    gpu: usize,
    /// Seconds since the story began.
    story_s: usize,
    /// What it would take.
    usual_ms: f64,
    /// A number of the reading, 0 to 1.
    luck: f64,
}

impl ToRead {
    fn slow(&self, is_slow: bool, ms: f64) -> f64 {
        if is_slow { ms + 10.0 * self.luck } else { self.usual_ms }
    }

    /// Whether a stretch of the story is on, which comes to no two neighbours at once.
    fn is_in(&self, from_s: usize, to_s: usize) -> bool {
        (from_s + self.gpu % 3..to_s + self.gpu % 3).contains(&self.story_s)
    }

    fn whole_seconds(&self) -> f64 {
        f64::from(u32::try_from(self.story_s).unwrap())
    }
}

/// What happens to the readings of a node.
struct ReadStory {
    name: &'static str,
    /// The GPUs that slow down.
    slow: &'static [usize],
    /// How long a reading takes, milliseconds; none: it does not end.
    ms: fn(&ToRead) -> Option<f64>,
}

static STORIES: &[ReadStory] = &[
    ReadStory {
        name: "one takes 41 ms and more instead of 0.3",
        slow: &[3],
        ms: |read| Some(read.slow(read.gpu == 3, 41.0)),
    },
    ReadStory {
        name: "one takes longer and longer, and after half a minute none of it ends",
        slow: &[3],
        ms: |read| match read.gpu {
            3 => Some(read.usual_ms + 5.0 * read.whole_seconds()).filter(|_| read.story_s < 30),
            _ => Some(read.usual_ms),
        },
    },
    ReadStory {
        name: "three of four of one take 100 ms",
        slow: &[3],
        ms: |read| Some(read.slow(read.gpu == 3 && read.luck < 0.75, 100.0)),
    },
    ReadStory {
        name: "two of eight take 200 ms",
        slow: &[3, 6],
        ms: |read| Some(read.slow([3, 6].contains(&read.gpu), 200.0)),
    },
    ReadStory {
        name: "one stays slow behind half a minute in which all were",
        slow: &[3],
        ms: |read| Some(read.slow(read.gpu == 3 || read.is_in(0, 30), 20.0)),
    },
    ReadStory {
        name: "all take 20 ms for a minute, not at once",
        slow: &[],
        ms: |read| Some(read.slow(read.is_in(0, 60), 20.0)),
    },
    ReadStory {
        name: "all take 20 ms for ten of each 30 seconds",
        slow: &[],
        ms: |read| Some(read.slow((0..4).any(|time| read.is_in(30 * time, 30 * time + 10)), 20.0)),
    },
    ReadStory {
        name: "all take longer and longer",
        slow: &[],
        ms: |read| Some(read.usual_ms + read.whole_seconds()),
    },
    ReadStory {
        name: "a twentieth of all takes 15 ms, as it comes",
        slow: &[],
        ms: |read| Some(read.slow(read.luck < 0.05, 15.0)),
    },
    ReadStory {
        name: "three in a row of one take 500 ms, all others as before",
        slow: &[],
        ms: |read| Some(read.slow(read.gpu == 3 && (10..13).contains(&(read.story_s % 40)), 500.0)),
    },
];

/// Numbers from 0 to 1 that look like chance.
struct Luck(u64);

impl Luck {
    fn draw(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        f64::from(u32::try_from(self.0 >> 33).unwrap()) / f64::from(1_u32 << 31)
    }
}

#[derive(Default)]
struct OfReads {
    gpus: usize,
    found: usize,
    seconds: Vec<usize>,
    wrong: usize,
}

/// How right `reads_slowed` is.
#[derive(Default)]
pub(crate) struct ReadScore {
    of_stories: BTreeMap<usize, OfReads>,
}

impl ReadScore {
    /// Tells each story once.
    pub(crate) fn add(&mut self, seed: u64) {
        for (number, story) in STORIES.iter().enumerate() {
            let of = self.of_stories.entry(number).or_default();
            of.gpus += story.slow.len();
            for (gpu, second) in found(story, seed) {
                if story.slow.contains(&gpu) && second >= USUAL_S {
                    of.found += 1;
                    of.seconds.push(second - USUAL_S);
                } else {
                    of.wrong += 1;
                }
            }
        }
    }

    /// How many of the GPUs that slow down are found, and how many do.
    pub(crate) fn recall(&self) -> (usize, usize) {
        let sum = |of: fn(&OfReads) -> usize| self.of_stories.values().map(of).sum::<usize>();
        (sum(|of| of.found), sum(|of| of.gpus))
    }

    /// How many findings are right, and how many there are.
    pub(crate) fn precision(&self) -> (usize, usize) {
        let wrong: usize = self.of_stories.values().map(|of| of.wrong).sum();
        (self.recall().0, self.recall().0 + wrong)
    }

    /// The table in Markdown.
    pub(crate) fn table(&self, runs: u64) -> String {
        let mut text = format!(
            "{runs} times four minutes of a node of {GPUS} GPUs, a reading a second; each thirtieth takes 20 ms.\n\n\
             | story | GPUs that slow down | found | others found | seconds until found: median, longest |\n|---|---|---|---|---|\n"
        );
        for (number, OfReads { gpus, found, seconds, wrong }) in &self.of_stories {
            let mut seconds = seconds.clone();
            seconds.sort_unstable();
            let times = seconds
                .last()
                .map_or("-".to_owned(), |longest| format!("{}, {longest}", seconds[seconds.len() / 2]));
            let name = STORIES[*number].name;
            writeln!(text, "| {name} | {gpus} | {found} | {wrong} | {times} |").unwrap();
        }
        let line = |(part, whole): (usize, usize)| format!("{} ({part} of {whole})", percent(part, whole));
        writeln!(text, "\nRecall {}, precision {}.", line(self.recall()), line(self.precision())).unwrap();
        text
    }
}

fn at_ns(second: usize) -> i64 {
    START_NS + i64::try_from(second).unwrap() * SECOND_NS
}

/// The GPUs of which readings are found to have slowed down, each time with the second.
fn found(story: &ReadStory, seed: u64) -> Vec<(usize, usize)> {
    let names: Vec<String> = (0..GPUS).map(|gpu| format!("GPU-{gpu}")).collect();
    let gpus = names.iter().map(|name| Identity::default().with(IdentityColumn::Uuid, name).unwrap());
    let gpus: Vec<Identity> = gpus.collect();
    let (mut luck, mut slow) = (Luck(seed), SlowReads::default());
    let (mut events, mut tracker, mut open, mut found) =
        (Vec::new(), Tracker::default(), Vec::new(), Vec::new());
    for second in 0..RUN_S {
        let taken: Vec<Option<f64>> = (0..GPUS).map(|gpu| taken(story, (gpu, second), luck.draw())).collect();
        let readings = names
            .iter()
            .zip(&taken)
            .filter_map(|(name, ms)| ms.map(|ms| TimedReading { gpu: name, at_ns: at_ns(second), ms }));
        events.extend(slow.look(readings).into_iter().map(|change| HealthEvent {
            gpu: change.gpu,
            at_ns: change.at_ns,
            kind: Arc::from(if change.slowed.is_some() { "reads_slowed" } else { "reads_usual" }),
            detail: Arc::from(change.slowed.map(|slowed| slowed.to_string()).unwrap_or_default()),
            ..HealthEvent::default()
        }));
        if second % JUDGED_EVERY_S == 0 {
            let now = judged(&gpus, &events, second, &mut tracker);
            found.extend(now.iter().filter(|gpu| !open.contains(*gpu)).map(|gpu| (*gpu, second)));
            open = now;
        }
    }
    found
}

/// How long a reading takes: each thirtieth reads all values.
fn taken(story: &ReadStory, (gpu, second): (usize, usize), luck: f64) -> Option<f64> {
    let usual_ms = if second.is_multiple_of(30) { 20.0 } else { 0.3 + 0.1 * luck };
    let Some(story_s) = second.checked_sub(USUAL_S) else { return Some(usual_ms) };
    (story.ms)(&ToRead { gpu, story_s, usual_ms, luck })
}

/// The GPUs with the finding at this second.
fn judged(gpus: &[Identity], events: &[HealthEvent], second: usize, tracker: &mut Tracker) -> Vec<usize> {
    let (mut live, mut builder) = (LiveFleet::default(), BatchBuilder::new(Table::GpuEvents));
    for gpu in gpus {
        let who = builder.intern(gpu);
        let row = builder.row(at_ns(second), who);
        builder.set(row, TEMPERATURE, Value::Float(50.0)).unwrap();
    }
    let batch = builder.finish(Origin::default(), 1).unwrap();
    live.apply(&batch, &RowKeys::of(batch.records(), batch.table()).unwrap());
    let of = |key: &str| gpus.iter().position(|gpu| gpu.uuid() == Some(key)).unwrap();
    let told = events.iter().map(|event| (event, &gpus[of(&event.gpu)]));
    let mut recent = Recent::default();
    let fleet = live.snapshot();
    let fresh = Freshness { now_ns: at_ns(second), stale_after_ns: 90 * SECOND_NS };
    assert!(recent.told.next_query(fresh).is_some());
    recent.told.take(event_rows(told, Origin::default(), &mut 0).as_ref(), Coverage::Whole);
    let situation = Situation { fresh, gpus: &fleet.gpus, recent: &recent, lost: &HashMap::new() };
    tracker.update(fresh.now_ns, judge(&situation), Coverage::Whole);
    let open = tracker.open().into_iter().filter(|finding| finding.kind.id == "reads_slowed");
    open.flat_map(|finding| finding.reach.gpus.iter().map(|gpu| of(gpu)).collect::<Vec<_>>()).collect()
}
