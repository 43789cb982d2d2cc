//! Jobs that live for an hour and more: some stall, and sound ones rest like them for a while.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use gpuvitals_core::time::MINUTE_NS;
use gpuvitals_core::{Identity, IdentityColumn};

use super::jobs::{FIRST_HOST, rests, works};
use super::lab::{Lab, SimRow, gpu_seconds};
use super::score::percent;

/// What a job of these tests is called, before its host and its number there.
const NAME: &str = "stall";
/// A job has worked for so long when its story begins.
const WORKED_NS: i64 = 25 * MINUTE_NS;
/// Seconds of a minute.
const MINUTE_S: f64 = 60.0;

/// A moment of a GPU in a story.
struct StallMoment {
    /// Its place among the GPUs of its job.
    place: u32,
    /// Minutes since the job began, and since its story did (less than 0: not yet).
    age: f64,
    story: f64,
    /// A number of the job, 0 to 1.
    luck: f64,
}

impl StallMoment {
    /// Whether it is one of the first so many minutes of the story.
    fn within(&self, minutes: f64) -> bool {
        (0.0..minutes).contains(&self.story)
    }

    /// Whether it is one of the first so many of every so many minutes of the job, but for the first of them.
    fn pauses(&self, minutes: f64, every: f64) -> bool {
        self.age >= every && self.age % every < minutes
    }
}

/// What happens to a job.
struct StallStory {
    name: &'static str,
    stalls: bool,
    /// Whether a GPU of it rests now.
    rests: fn(&StallMoment) -> bool,
}

static STORIES: &[StallStory] = &[
    StallStory { name: "stalls: its data never come", stalls: true, rests: |moment| moment.story >= 0.0 },
    StallStory {
        name: "stalls: its GPUs stop one after the other, half a minute apart",
        stalls: true,
        rests: |moment| moment.story >= 0.5 * f64::from(moment.place),
    },
    StallStory {
        name: "stalls: never comes back from a checkpoint of 1 to 3 minutes like those before",
        stalls: true,
        rests: |moment| moment.story >= 0.0 || moment.pauses(1.0 + 2.0 * moment.luck, 8.0),
    },
    StallStory {
        name: "stalls: stutters for 4 minutes, a minute of work and a minute of rest, then stops",
        stalls: true,
        rests: |moment| moment.story >= 4.0 || (moment.story >= 0.0 && moment.story % 2.0 >= 1.0),
    },
    StallStory { name: "works on", stalls: false, rests: |_| false },
    StallStory {
        name: "pauses for checkpoints of 1 to 4 minutes, every 10",
        stalls: false,
        rests: |moment| moment.pauses(1.0 + 3.0 * moment.luck, 10.0),
    },
    StallStory {
        name: "rests once, for 4 to 9 minutes",
        stalls: false,
        rests: |moment| moment.within(4.0 + 5.0 * moment.luck),
    },
    StallStory {
        name: "pauses for 5 minutes, every 12, and once for 11",
        stalls: false,
        rests: |moment| moment.within(11.0) || (moment.age < 24.0 && moment.pauses(5.0, 12.0)),
    },
    StallStory {
        name: "one GPU of it works on, the others rest",
        stalls: false,
        rests: |moment| moment.story >= 0.0 && moment.place > 0,
    },
    StallStory { name: "has never worked", stalls: false, rests: |_| true },
];

/// A job and its story.
struct StallRun {
    story: usize,
    luck: f64,
    /// Indexes of its GPUs on its host.
    gpus: BTreeSet<i32>,
}

/// All GPUs but those of the first host, as two jobs a host, each with a story.
pub(crate) struct Stalls {
    seed: u64,
    /// By name.
    runs: BTreeMap<String, StallRun>,
}

impl Stalls {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, runs: BTreeMap::new() }
    }

    /// Takes a GPU in.
    pub(crate) fn meet(&mut self, identity: &Identity) {
        let Some((name, index)) = self.job_of(identity) else { return };
        let number = self.runs.len() as u64;
        let run = self.runs.entry(name).or_insert_with(|| {
            let mut rng = fastrand::Rng::with_seed(self.seed * 100_019 + number);
            StallRun { story: rng.usize(..STORIES.len()), luck: rng.f64(), gpus: BTreeSet::new() }
        });
        run.gpus.insert(index);
    }

    /// Whether the rows of this GPU are those of a job here.
    pub(crate) fn has(&self, identity: &Identity) -> bool {
        self.job_of(identity).is_some()
    }

    /// Tells the row's part of the story.
    pub(crate) fn tell(&self, row: &mut SimRow, now_ns: i64) {
        let Some((name, index)) = self.job_of(&row.identity) else { return };
        let run = &self.runs[&name];
        for (column, text) in [
            (IdentityColumn::Namespace, ""),
            (IdentityColumn::Pod, ""),
            (IdentityColumn::Container, ""),
            (IdentityColumn::Job, name.as_str()),
        ] {
            row.identity.set(column, text).unwrap();
        }
        let moment = StallMoment {
            place: run.gpus.iter().map(|known| u32::from(*known < index)).sum(),
            age: gpu_seconds(now_ns) / MINUTE_S,
            story: gpu_seconds(now_ns - WORKED_NS) / MINUTE_S,
            luck: run.luck,
        };
        if (STORIES[run.story].rests)(&moment) {
            rests(row);
        } else {
            works(row, 0.7 + 0.2 * run.luck, 1.0);
        }
    }

    /// The job of a GPU, and the GPU's index on its host: each host has two jobs, and chance says how many GPUs the first has.
    fn job_of(&self, identity: &Identity) -> Option<(String, i32)> {
        let host = identity.node().filter(|host| *host != FIRST_HOST)?;
        let index = identity.index?;
        let number = host.bytes().fold(0, |number, byte| (number * 31 + u64::from(byte)) % 1_000_003);
        let first = fastrand::Rng::with_seed(self.seed * 1_009 + number).i32(1..=7);
        Some((format!("{NAME}-{host}-{}", i32::from(index >= first)), index))
    }
}

#[derive(Default)]
struct OfStall {
    runs: usize,
    found: usize,
    minutes: Vec<f64>,
    wrong: usize,
}

/// How right `job_stalled` is.
#[derive(Default)]
pub(crate) struct StallScore {
    of_stories: BTreeMap<usize, OfStall>,
    /// Of jobs that have not stalled, or not yet.
    wrong: Vec<String>,
    gpu_days: f64,
}

impl StallScore {
    pub(crate) fn add(&mut self, lab: &Lab) {
        self.gpu_days += lab.gpu_days();
        let stalls = lab.stalls.as_ref().unwrap();
        let mut right = BTreeMap::<&str, i64>::new();
        for one in lab.opened.iter().filter(|one| one.kind == "job_stalled") {
            let run = stalls.runs.iter().find(|(name, _)| one.subject.ends_with(name.as_str()));
            let is_right = |run: &StallRun| STORIES[run.story].stalls && one.at_ns >= WORKED_NS;
            match run {
                Some((name, run)) if is_right(run) => {
                    right.entry(name).or_insert(one.at_ns);
                }
                run => {
                    if let Some((_, run)) = run {
                        self.of_stories.entry(run.story).or_default().wrong += 1;
                    }
                    let at = gpu_seconds(one.at_ns) / MINUTE_S;
                    self.wrong.push(format!("seed {} at {at:.0} min: {}", stalls.seed, one.sentence));
                }
            }
        }
        for (name, run) in &stalls.runs {
            let entry = self.of_stories.entry(run.story).or_default();
            entry.runs += 1;
            if let Some(at_ns) = right.get(name.as_str()) {
                entry.found += 1;
                entry.minutes.push(gpu_seconds(at_ns - WORKED_NS) / MINUTE_S);
            }
        }
    }

    fn sum(&self, of: impl Fn(&StallStory, &OfStall) -> usize) -> usize {
        self.of_stories.iter().map(|(number, one)| of(&STORIES[*number], one)).sum()
    }

    /// How many of the jobs that stall are found, and how many stall.
    pub(crate) fn recall(&self) -> (usize, usize) {
        (
            self.sum(|story, one| one.found * usize::from(story.stalls)),
            self.sum(|story, one| one.runs * usize::from(story.stalls)),
        )
    }

    /// How many findings are right, and how many there are.
    pub(crate) fn precision(&self) -> (usize, usize) {
        let right = self.recall().0;
        (right, right + self.wrong.len())
    }

    /// How many stories there were.
    pub(crate) fn stories(&self) -> (usize, usize) {
        (self.of_stories.len(), STORIES.len())
    }

    /// The table in Markdown.
    pub(crate) fn table(&self) -> String {
        let mut text = format!(
            "Jobs of 1 to 7 GPUs of a node in {:.0} GPU-days of simulated GPUs, all with a row every 10 s.\n\n| story | jobs | `job_stalled` | minutes until found: median, longest |\n|---|---|---|---|\n",
            self.gpu_days
        );
        for (number, one) in &self.of_stories {
            let story = &STORIES[*number];
            let mut minutes = one.minutes.clone();
            minutes.sort_by(f64::total_cmp);
            let times = minutes
                .last()
                .map_or("-".to_owned(), |longest| format!("{:.0}, {longest:.0}", minutes[minutes.len() / 2]));
            let told = if story.stalls { one.found } else { one.wrong };
            writeln!(text, "| {} | {} | {told} | {times} |", story.name, one.runs).unwrap();
        }
        let line = |(part, whole): (usize, usize)| format!("{} ({part} of {whole})", percent(part, whole));
        writeln!(text, "\nRecall {}, precision {}.", line(self.recall()), line(self.precision())).unwrap();
        for wrong in &self.wrong {
            eprintln!("{wrong}");
        }
        text
    }
}
