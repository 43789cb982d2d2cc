//! What befalls all GPUs of a job together: jobs that hang, and sound ones that look alike.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use gpuvitals_core::time::MINUTE_NS;
use gpuvitals_core::{Identity, IdentityColumn};

use super::lab::{Lab, Opened, SimRow, gpu_seconds};
use super::score::percent;

/// The first host's jobs have the simulated fleet's own faults.
pub(crate) const FIRST_HOST: &str = "sim-node-0001";
/// A job has worked for so long when its story begins; it lives for 14 to 20 minutes.
const WORKED_NS: i64 = 8 * MINUTE_NS;
/// A job whose story was shorter proves nothing.
const SEEN_NS: i64 = 2 * MINUTE_NS;

/// A moment of a GPU in a story.
struct Moment {
    /// Its place among the GPUs of its job, and how many these are.
    place: usize,
    size: usize,
    /// Seconds since the job began, and since its story did (less than 0: not yet).
    age_s: f64,
    story_s: f64,
    /// A number of the job, 0 to 1.
    luck: f64,
}

impl Moment {
    /// Whether the GPU is the one that leaves first.
    fn is_first(&self) -> bool {
        self.place == first_place(self.luck, self.size)
    }
}

/// Which of so many GPUs leaves first.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place")]
fn first_place(luck: f64, size: usize) -> usize {
    (luck * 7.0) as usize % size
}

/// What happens to a job.
struct Story {
    name: &'static str,
    hangs: bool,
    /// Whether the rows tell which GPU began.
    tells_first: bool,
    /// Changes a row; false: the row is lost.
    change: fn(&mut SimRow, &Moment) -> bool,
}

const ACTIVITIES: [&str; 4] =
    ["tensor_active_ratio", "sm_active_ratio", "dram_active_ratio", "memory_utilization_pct"];

/// Busy with so much of its power's limit, and so much of its activity.
pub(crate) fn works(row: &mut SimRow, power: f64, activity: f64) {
    let limit = row.get("power_limit_w");
    row.set("utilization_pct", 100.0);
    row.set("power_w", (limit * power).round());
    for column in ACTIVITIES {
        row.scale(column, activity);
    }
}

pub(crate) fn rests(row: &mut SimRow) {
    let limit = row.get("power_limit_w");
    row.set("utilization_pct", 0.0);
    row.set("power_w", (limit * 0.17).round());
    for column in ACTIVITIES {
        row.scale(column, 0.0);
    }
}

/// Kernels of a collective that wait for the other ranks: 28 to 40 % of the limit, and hardly any activity.
fn waits(row: &mut SimRow, moment: &Moment) {
    works(row, 0.28 + 0.12 * moment.luck, 0.05);
    // Such kernels hold some of the SMs.
    if row.get("sm_active_ratio") > 0.0 {
        row.set("sm_active_ratio", 0.15 + 0.1 * moment.luck);
    }
}

static STORIES: &[Story] = &[
    Story {
        name: "a collective hangs, every GPU waits",
        hangs: true,
        tells_first: false,
        change: |row, moment| {
            if moment.story_s >= 0.0 {
                waits(row, moment);
            }
            true
        },
    },
    Story {
        name: "a collective hangs, one GPU reports nothing any more",
        hangs: true,
        tells_first: true,
        change: |row, moment| {
            if moment.story_s >= 0.0 {
                waits(row, moment);
            }
            moment.story_s < 0.0 || !moment.is_first()
        },
    },
    Story {
        name: "a collective hangs, the process of one GPU has ended",
        hangs: true,
        tells_first: true,
        change: |row, moment| {
            if moment.story_s >= 0.0 {
                if moment.is_first() { rests(row) } else { waits(row, moment) }
            }
            true
        },
    },
    Story {
        name: "a collective hangs, only utilisation and power are read",
        hangs: true,
        tells_first: false,
        change: |row, moment| {
            for column in ACTIVITIES {
                row.remove(column);
            }
            if moment.story_s >= 0.0 {
                waits(row, moment);
            }
            true
        },
    },
    Story {
        name: "waits for its data, for 1 to 5 minutes",
        hangs: false,
        tells_first: false,
        change: |row, moment| {
            if (0.0..60.0 + 240.0 * moment.luck).contains(&moment.story_s) {
                rests(row);
            }
            true
        },
    },
    Story {
        name: "evaluates for 3 minutes, with 62 to 90 % of its power",
        hangs: false,
        tells_first: false,
        change: |row, moment| {
            // It writes its checkpoints meanwhile, too.
            if (0.0..180.0).contains(&moment.story_s) && row.get("utilization_pct") > 90.0 {
                let share = 0.62 + 0.28 * moment.luck;
                row.set("utilization_pct", 100.0);
                row.scale("power_w", share);
                for column in ACTIVITIES {
                    row.scale(column, share);
                }
            }
            true
        },
    },
    Story {
        name: "warms up for 3 minutes at low power",
        hangs: false,
        tells_first: false,
        change: |row, moment| {
            if moment.age_s < 180.0 {
                works(row, 0.35, 0.2);
            }
            true
        },
    },
    Story {
        name: "pipeline: each GPU waits for 20 of 40 seconds",
        hangs: false,
        tells_first: false,
        change: |row, moment| {
            #[expect(clippy::cast_precision_loss, reason = "a place")]
            let phase = (moment.age_s + 10.0 * moment.place as f64) % 40.0;
            if phase < 20.0 {
                waits(row, moment);
            }
            true
        },
    },
    Story {
        name: "small kernels: always busy at low power",
        hangs: false,
        tells_first: false,
        change: |row, moment| {
            works(row, 0.35 + 0.1 * moment.luck, 0.2);
            true
        },
    },
    Story { name: "works on", hangs: false, tells_first: false, change: |_, _| true },
];

/// A job of several GPUs and its story.
struct Run {
    story: usize,
    luck: f64,
    began_ns: i64,
    /// Its GPUs: key and name.
    gpus: Vec<(String, String)>,
    last_ns: i64,
}

impl Run {
    fn story_ns(&self) -> i64 {
        self.began_ns + WORKED_NS
    }

    /// The name of the GPU that leaves first.
    fn first_to_leave(&self) -> &str {
        let (_, name) = &self.gpus[first_place(self.luck, self.gpus.len())];
        name
    }
}

/// All jobs of a fleet, each with a story.
#[derive(Default)]
pub(crate) struct Jobs {
    seed: u64,
    runs: BTreeMap<String, Run>,
}

impl Jobs {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, runs: BTreeMap::new() }
    }

    /// Takes a GPU in. All of a job's GPUs begin together.
    pub(crate) fn meet(&mut self, identity: &Identity, now_ns: i64) {
        let Some(job) = training(identity) else { return };
        let number = self.runs.len() as u64;
        let run = self.runs.entry(job.to_owned()).or_insert_with(|| {
            let mut rng = fastrand::Rng::with_seed(self.seed * 100_003 + number);
            let (story, luck) = (rng.usize(..STORIES.len()), rng.f64());
            Run { story, luck, began_ns: now_ns, gpus: Vec::new(), last_ns: now_ns }
        });
        run.last_ns = now_ns;
        let key = identity.key().unwrap().to_string();
        if !run.gpus.iter().any(|(known, _)| *known == key) {
            let name = format!("{} / GPU {}", identity.node().unwrap(), identity.index.unwrap());
            run.gpus.push((key, name));
        }
    }

    /// Whether rows of this GPU may be changed.
    pub(crate) fn has(&self, identity: &Identity) -> bool {
        training(identity).is_some_and(|job| self.runs.contains_key(job))
    }

    /// Tells the row's part of the story; false: the row is lost.
    pub(crate) fn tell(&self, row: &mut SimRow, now_ns: i64) -> bool {
        let run = training(&row.identity).and_then(|job| self.runs.get(job));
        let Some(run) = run.filter(|run| run.gpus.len() > 1) else { return true };
        let key = row.identity.key();
        let place = run.gpus.iter().position(|(known, _)| key.as_deref() == Some(known.as_str()));
        let moment = Moment {
            place: place.unwrap_or(0),
            size: run.gpus.len(),
            age_s: gpu_seconds(now_ns - run.began_ns),
            story_s: gpu_seconds(now_ns - run.story_ns()),
            luck: run.luck,
        };
        (STORIES[run.story].change)(row, &moment)
    }
}

/// The training job of a GPU, if it is none of the first host's.
fn training(identity: &Identity) -> Option<&str> {
    let job = identity.get(IdentityColumn::Job)?;
    (job.starts_with("sim-train") && identity.node() != Some(FIRST_HOST)).then_some(job)
}

#[derive(Default)]
struct OfStory {
    runs: usize,
    found: usize,
    seconds: Vec<f64>,
    firsts: usize,
    wrong: usize,
}

/// How right `job_hung` is.
#[derive(Default)]
pub(crate) struct JobScore {
    of_stories: BTreeMap<usize, OfStory>,
    /// Of jobs that did not hang, or not yet, with or without a story.
    wrong: Vec<String>,
    gpu_days: f64,
}

impl JobScore {
    pub(crate) fn add(&mut self, lab: &Lab) {
        self.gpu_days += lab.gpu_days();
        let jobs = lab.jobs.as_ref().unwrap();
        let mut right = BTreeMap::<&str, Vec<&Opened>>::new();
        for one in lab.opened.iter().filter(|one| one.kind == "job_hung") {
            let run = jobs.runs.iter().find(|(name, _)| one.subject.ends_with(&format!("/{name}")));
            let is_right = |run: &Run| STORIES[run.story].hangs && one.at_ns >= run.story_ns();
            match run {
                Some((name, run)) if is_right(run) => right.entry(name).or_default().push(one),
                run => {
                    if let Some((_, run)) = run {
                        self.of_stories.entry(run.story).or_default().wrong += 1;
                    }
                    let at_s = gpu_seconds(one.at_ns);
                    self.wrong.push(format!("seed {} at {at_s:.0} s: {}", jobs.seed, one.sentence));
                }
            }
        }
        let is_seen = |run: &&Run| run.gpus.len() > 1 && run.last_ns - run.story_ns() >= SEEN_NS;
        for (name, run) in jobs.runs.iter().filter(|(_, run)| is_seen(run)) {
            let entry = self.of_stories.entry(run.story).or_default();
            entry.runs += 1;
            let Some(opened) = right.get(name.as_str()) else { continue };
            let (first, last) = (opened[0], opened[opened.len() - 1]);
            entry.found += 1;
            entry.seconds.push(gpu_seconds(first.at_ns - run.story_ns()));
            // The last thing said of it: who fell silent is seen later.
            let tells_first = STORIES[run.story].tells_first;
            entry.firsts += usize::from(tells_first && last.sentence.contains(run.first_to_leave()));
        }
    }

    fn sum(&self, of: impl Fn(&Story, &OfStory) -> usize) -> usize {
        self.of_stories.iter().map(|(number, one)| of(&STORIES[*number], one)).sum()
    }

    /// How many of the jobs that hang are found, and how many hang.
    pub(crate) fn recall(&self) -> (usize, usize) {
        (
            self.sum(|story, one| one.found * usize::from(story.hangs)),
            self.sum(|story, one| one.runs * usize::from(story.hangs)),
        )
    }

    /// How many findings are right, and how many there are.
    pub(crate) fn precision(&self) -> (usize, usize) {
        let right = self.recall().0;
        (right, right + self.wrong.len())
    }

    /// How often the GPU that began is named, and how often the rows tell it.
    pub(crate) fn firsts(&self) -> (usize, usize) {
        (self.sum(|_, one| one.firsts), self.sum(|story, one| one.runs * usize::from(story.tells_first)))
    }

    /// The table in Markdown.
    pub(crate) fn table(&self) -> String {
        let mut text = format!(
            "Jobs of 2 to 8 GPUs of a node in {:.0} GPU-days of 64 simulated GPUs, all with a row every 10 s.\n\n| story | jobs | `job_hung` | seconds until found: median, longest | first GPU right |\n|---|---|---|---|---|\n",
            self.gpu_days
        );
        for (number, one) in &self.of_stories {
            let story = &STORIES[*number];
            let mut seconds = one.seconds.clone();
            seconds.sort_by(f64::total_cmp);
            let times = seconds
                .last()
                .map_or("-".to_owned(), |longest| format!("{:.0}, {longest:.0}", seconds[seconds.len() / 2]));
            let told = if story.hangs { one.found } else { one.wrong };
            let firsts = if story.tells_first { percent(one.firsts, one.runs) } else { "-".to_owned() };
            writeln!(text, "| {} | {} | {told} | {times} | {firsts} |", story.name, one.runs).unwrap();
        }
        let line = |(part, whole): (usize, usize)| format!("{} ({part} of {whole})", percent(part, whole));
        writeln!(
            text,
            "\nRecall {}, precision {}, first GPU right {} where the rows tell it.",
            line(self.recall()),
            line(self.precision()),
            line(self.firsts())
        )
        .unwrap();
        for wrong in &self.wrong {
            eprintln!("{wrong}");
        }
        text
    }
}
