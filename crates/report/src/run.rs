//! The report of a run, read from its recordings.

use std::path::{Path, PathBuf};
use std::time::Duration;

use gpuvitals_analysis::steps::{StepSignals, last_of_steps};
use gpuvitals_analysis::summary::{HostSummary, Summary, gap_ns};
use gpuvitals_core::Batch;
use gpuvitals_core::integral::rounded;
use gpuvitals_core::time::{self, SECOND_NS};
use gpuvitals_record::{
    Data, MARKS_MAX, RecordError, RecordedMark, RecordingFacts, recorded_marks, refuse_twice, worked_s,
};
use serde::Serialize;

use crate::curve::CurveGrid;
use crate::curves::{BUCKETS_MAX, Curves};
use crate::figures::{PhaseFigures, RunGpu, RunLast, RunMark, RunRecording, StepFigures, energy_error};
use crate::sentences::{sentences, title};
use crate::steps::{StepSource, StepsOfRun};

/// Most marks of a recording that are told; the others are counted.
const MARKS_TOLD: usize = 200;
/// Most GPUs that are drawn: more lines over each other cannot be told apart.
pub(crate) const GPUS_DRAWN: usize = 16;
/// Buckets of all lines of a chart together, so that the page stays small.
const BUCKETS_OF_CHART: i64 = 8 * BUCKETS_MAX;
/// Rates of recordings that do not say theirs.
const USUAL_HZ: f64 = 100.0;
const USUAL_SYSTEM_HZ: f64 = 10.0;

/// What a run was, from its recordings.
#[derive(Debug, Serialize)]
pub struct RunReport {
    /// What ran where.
    pub title: String,
    /// The run in a few sentences.
    pub sentences: Vec<String>,
    /// When it began, RFC 3339 in UTC; none: it has no row.
    pub started: Option<String>,
    /// Time from the first row to the last, seconds.
    pub duration_s: f64,
    /// What the GPUs took together, joules, as far as it is known; none: of no GPU.
    pub energy_j: Option<f64>,
    /// How far that may be off, as if the errors of all GPUs went the same way: `± 5.5 %`; none: that of one is not known.
    pub energy_error: Option<String>,
    /// The GPUs, by machine, index and name.
    pub gpus: Vec<RunGpu>,
    /// The machines that were recorded.
    pub hosts: Vec<HostSummary>,
    /// The steps; none: neither marks nor signals show them.
    pub steps: Option<StepFigures>,
    /// The machine for which the others wait in the steps; none: they are alike, or their marks do not say it.
    pub last: Option<RunLast>,
    /// The phases, in the order in which they first came.
    pub phases: Vec<PhaseFigures>,
    /// The first marks of each recording, by time.
    pub marks: Vec<RunMark>,
    /// Marks that are not told.
    pub marks_left_out: u64,
    /// Rows in no figure: of more devices than a summary is made for.
    pub rows_left_out: u64,
    /// The recordings, by the time at which they began.
    pub recordings: Vec<RunRecording>,
    /// How long each step took, seconds.
    #[serde(skip)]
    pub(crate) durations_s: Vec<f64>,
    #[serde(skip)]
    pub(crate) curves: Curves,
}

/// A recording that is being read.
struct Reading {
    directory: PathBuf,
    facts: RecordingFacts,
    /// All of them, by time.
    marks: Vec<RecordedMark>,
    marks_count: u64,
    signals: StepSignals,
    /// How far its monotonic clock is behind UTC; none before its first row.
    behind_ns: Option<i64>,
}

impl Reading {
    fn of(directory: &Path) -> Result<Self, RecordError> {
        let facts = RecordingFacts::read(directory)?;
        let most = usize::try_from(MARKS_MAX).unwrap_or(usize::MAX);
        let (mut marks, marks_count) = recorded_marks(directory, most)?;
        marks.sort_by_key(|mark| mark.monotonic_ns);
        // Made anew when the longest gap between two rows is known.
        let signals = StepSignals::new(0);
        Ok(Self { directory: directory.to_owned(), facts, marks, marks_count, signals, behind_ns: None })
    }

    /// What it says of its steps.
    fn steps(&self, grid: CurveGrid) -> StepsOfRun {
        let behind_ns = self.behind_ns.unwrap_or(0);
        StepsOfRun::of(StepSource {
            marks: &self.marks,
            signals: &self.signals,
            from_ns: grid.first_ns().saturating_sub(behind_ns),
            to_ns: grid.last_ns().saturating_sub(behind_ns),
            node: self.facts.get("node"),
        })
    }

    fn started_ns(&self) -> Option<i64> {
        self.facts.get("started_ns")?.parse().ok()
    }

    fn set_clock(&mut self, batch: &Batch) -> i64 {
        let behind_ns = || batch.timestamps().first()?.checked_sub(*batch.monotonic()?.first()?);
        if self.behind_ns.is_none() {
            self.behind_ns = behind_ns();
        }
        self.behind_ns.unwrap_or(0)
    }

    /// When a mark was set, by the same clock as the rows.
    fn time_of(&self, mark: &RecordedMark) -> i64 {
        self.behind_ns.map_or(mark.timestamp_ns, |behind_ns| mark.monotonic_ns.saturating_add(behind_ns))
    }

    fn told(self) -> RunRecording {
        let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        RunRecording {
            directory: self.directory.display().to_string(),
            facts: self.facts.all().map(owned).collect(),
            marks: self.marks_count,
            is_whole: self.facts.get("ended").is_some(),
        }
    }
}

impl RunReport {
    /// Of one recording, or of those of several machines in one run.
    ///
    /// # Errors
    /// If a directory holds no recording, one that cannot be read, or that of another one of them.
    pub fn read(directories: &[PathBuf]) -> Result<Self, RecordError> {
        refuse_twice(directories)?;
        let mut readings =
            directories.iter().map(|directory| Reading::of(directory)).collect::<Result<Vec<_>, _>>()?;
        readings.sort_by_key(Reading::started_ns);
        let longest = |fact: &str, usual_hz: f64| {
            let usual = || Duration::from_secs_f64(1.0 / usual_hz);
            readings.iter().filter_map(|reading| reading.facts.interval(fact)).max().unwrap_or_else(usual)
        };
        let interval = longest("rate_hz", USUAL_HZ);
        let mut summary = Summary::new(interval, longest("system_rate_hz", USUAL_SYSTEM_HZ));
        let mut curves = Curves::new(gap_ns(interval));
        for reading in &mut readings {
            reading.signals = StepSignals::new(gap_ns(interval));
            for batch in Data::open(&reading.directory)? {
                let batch = batch?;
                let behind_ns = reading.set_clock(&batch);
                summary.add(&batch);
                curves.add(&batch, behind_ns);
                reading.signals.add(&batch, 0);
            }
        }
        Ok(Self::of(readings, &summary, curves))
    }

    fn of(readings: Vec<Reading>, summary: &Summary, mut curves: Curves) -> Self {
        let figures = summary.gpus();
        let names: Vec<String> = figures.iter().map(|gpu| gpu.name_among(&figures)).collect();
        let gpus: Vec<RunGpu> = figures
            .into_iter()
            .zip(names)
            .map(|(summary, name)| {
                let course = curves.gpu(&summary.id).zip(summary.throttled);
                let held_by = course.map(|(course, throttled)| course.held().shares(throttled.share));
                RunGpu { name, summary, held_by }
            })
            .collect();
        let drawn = i64::try_from(gpus.len().clamp(1, GPUS_DRAWN)).unwrap_or(1);
        curves.thin((BUCKETS_OF_CHART / drawn).min(BUCKETS_MAX));
        let hosts = summary.hosts();
        let duration_s = curves.grid().map_or(0.0, |grid| rounded(grid.span_s()));
        let joules: Vec<f64> =
            gpus.iter().filter_map(|gpu| Some(gpu.summary.energy.as_ref()?.joules)).collect();
        let started = curves.grid().map(|grid| {
            // Nobody asks for the fraction.
            time::format(grid.first_ns() - grid.first_ns().rem_euclid(SECOND_NS))
        });
        let (marks, marks_left_out) = marks(&readings, &curves);
        let (steps, last) = (steps(&readings, &curves), last(&readings));
        Self {
            title: title(&gpus, &hosts),
            sentences: sentences(&gpus, duration_s, steps.figures.as_ref(), last.as_ref()),
            started,
            duration_s,
            energy_j: (!joules.is_empty()).then(|| rounded(joules.iter().sum())),
            energy_error: energy_error(&gpus),
            gpus,
            hosts,
            steps: steps.figures,
            last,
            phases: steps.phases,
            marks,
            marks_left_out,
            rows_left_out: summary.left_out(),
            recordings: readings.into_iter().map(Reading::told).collect(),
            durations_s: steps.durations_s,
            curves,
        }
    }

    /// The commands that were recorded, each once.
    pub(crate) fn commands(&self) -> Vec<&str> {
        let mut commands: Vec<&str> = Vec::new();
        for command in self.recordings.iter().filter_map(|one| one.facts.get("command")) {
            if !commands.contains(&command.as_str()) {
                commands.push(command);
            }
        }
        commands
    }

    /// One JSON object: all but the courses, which are in the recordings.
    pub fn json(&self) -> String {
        // Names and numbers: nothing in it can fail.
        let value = serde_json::to_value(self).unwrap_or_default();
        format!("{value:#}\n")
    }
}

/// The steps of the first recording that tells any, or else its phases.
fn steps(readings: &[Reading], curves: &Curves) -> StepsOfRun {
    let Some(grid) = curves.grid() else { return StepsOfRun::default() };
    let mut all: Vec<StepsOfRun> = readings.iter().map(|reading| reading.steps(grid)).collect();
    all.retain(|steps| !steps.is_empty());
    // A stable order: the first of those with steps, then the first with phases.
    all.sort_by_key(|steps| steps.figures.is_none());
    all.into_iter().next().unwrap_or_default()
}

/// The machine for which the others wait, of those whose marks say when they wait.
fn last(readings: &[Reading]) -> Option<RunLast> {
    let worked = readings.iter().map(|reading| (reading, worked_s(&reading.marks)));
    let (saying, worked): (Vec<&Reading>, Vec<_>) = worked.filter(|(_, worked)| !worked.is_empty()).unzip();
    let found = last_of_steps(&worked)?;
    let reading = saying.get(found.at)?;
    let directory = || reading.directory.display().to_string();
    Some(RunLast {
        node: reading.facts.get("node").map_or_else(directory, str::to_owned),
        steps: found.steps,
        share: rounded(found.share),
        worked_s: rounded(found.worked_s),
        others_s: rounded(found.others_s),
    })
}

/// The marks by time, and how many others there are.
fn marks(readings: &[Reading], curves: &Curves) -> (Vec<RunMark>, u64) {
    let Some(grid) = curves.grid() else {
        return (Vec::new(), readings.iter().map(|one| one.marks_count).sum());
    };
    let mut told: Vec<RunMark> = readings
        .iter()
        .flat_map(|reading| reading.marks.iter().take(MARKS_TOLD).map(move |mark| (reading, mark)))
        .map(|(reading, mark)| RunMark {
            at_s: rounded(grid.at_s(reading.time_of(mark))),
            node: reading.facts.get("node").map(str::to_owned),
            text: mark.content.text.clone(),
        })
        .collect();
    told.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
    let count: u64 = readings.iter().map(|reading| reading.marks_count).sum();
    let left_out = count - told.len() as u64;
    (told, left_out)
}
