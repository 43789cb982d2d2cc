//! The source that `up` was asked for, opened and set going on a thread of its own.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use gpuvitals_core::clock;
use gpuvitals_core::quantity::counted;
use gpuvitals_core::{Batch, Table, causes};
use gpuvitals_queue::link::AnyProducer;
use gpuvitals_sources::csv::{CsvConfig, CsvInput, CsvSource, Pace, Replay};
use gpuvitals_sources::machine::Machine;
use gpuvitals_sources::processes::ProcessTable;
use gpuvitals_sources::registry::Verdict;
use gpuvitals_sources::sampler::{Condition, Sampler, WorkerStats, drivers};
use gpuvitals_sources::simulated::{SimConfig, Simulated};
use serde_json::json;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::config::{Config, Source, SourceKind, Times};
use crate::failure::{Exit, Failure};
use crate::ownership::{Attribution, Ownership};
use crate::pipe::{self, Described, End, Progress, Publisher};
use crate::sampling;

/// How long workers may take to end; one that waits for a sick device is left.
const STOP_PATIENCE: Duration = Duration::from_millis(500);

/// An open source that has not begun.
pub(crate) struct Opened {
    source: Kind,
    progress: Arc<Progress>,
    announcement: String,
}

enum Kind {
    None,
    Machine(Box<Hardware>),
    Csv(Box<CsvSource>),
    Simulated(Box<Simulated>),
}

/// The GPUs of this machine, and what tells who holds them.
struct Hardware {
    sampler: Sampler,
    machine: Machine,
    ownership: Arc<Ownership>,
    processes: Vec<Box<dyn ProcessTable>>,
    attribution: Attribution,
}

/// Why a source works no more.
pub(crate) enum Broken {
    /// Its input broke off, for this reason. What was read is kept.
    Input(String),
    /// A bug.
    Panicked,
}

/// A source at work.
pub(crate) struct Running {
    /// None while it works; then how it ended. Closed without an end: its thread panicked.
    end: watch::Receiver<Option<Result<(), String>>>,
    thread: Option<std::thread::JoinHandle<()>>,
    /// Its queue is waited for no longer.
    give_up: CancellationToken,
}

/// Opens what the settings name.
///
/// # Errors
/// When the file cannot be read or is no CSV of GPUs, the simulated fleet cannot be, or GPUs were asked for and there are
/// none.
pub(crate) fn open(config: &Config) -> Result<Opened, Failure> {
    let settings = &config.source;
    let (source, announcement) = match settings.kind {
        SourceKind::Auto | SourceKind::Machine => open_machine(config)?,
        SourceKind::None => (Kind::None, "showing what is stored; no source was asked for".to_owned()),
        SourceKind::Csv => {
            let csv = open_csv(settings)?;
            let how = match (settings.times, settings.looped) {
                (Times::Recorded, false) => "once, with its recorded times",
                (Times::Recorded, true) => "again and again, with its recorded times",
                (Times::Now, false) => "once, as if it began now",
                (Times::Now, true) => "again and again, as if it began now",
            };
            (Kind::Csv(Box::new(csv)), format!("replaying {} {how}", settings.csv))
        }
        SourceKind::Simulated => {
            let config = SimConfig {
                gpus: settings.gpus as usize,
                hosts: Some(settings.hosts as usize),
                seed: settings.seed,
                interval: settings.interval,
                start_ns: clock::now_ns(),
                ..SimConfig::default()
            };
            let simulated = Simulated::new(config)
                .map_err(|e| Failure::new(Exit::Config, format!("configuration: source: {}", causes(&e))))?;
            let text = format!(
                "simulating {} GPUs on {} hosts (seed {}); nothing here is measured",
                simulated.gpus(),
                simulated.hosts(),
                settings.seed
            );
            (Kind::Simulated(Box::new(simulated)), text)
        }
    };
    Ok(Opened { source, progress: Arc::new(Progress::new()), announcement })
}

/// The GPUs of this machine. The host's own values have no place in the store yet.
fn open_machine(config: &Config) -> Result<(Kind, String), Failure> {
    let mut found = config.sampling.discover()?;
    found.probes.retain(|probe| probe.table() == Table::GpuEvents);
    if found.probes.is_empty() {
        if config.source.kind == SourceKind::Machine {
            return Err(sampling::nothing_to_sample(&found));
        }
        let text = "no GPU was found here (gpuvitals doctor says why); showing what is stored";
        return Ok((Kind::None, text.to_owned()));
    }
    for finding in found.findings.iter().filter(|finding| finding.verdict >= Verdict::Partial) {
        tracing::warn!(subject = finding.subject, remedy = finding.remedy, "{}", finding.text);
    }
    let drivers = drivers(&found.probes);
    let ownership = Arc::new(Ownership::new());
    let sampler = Sampler::start(found.probes, config.sampling.sampler(), Arc::clone(ownership.owners()))
        .map_err(sampling::refused)?;
    let names: Vec<&str> = drivers.iter().map(|driver| driver.as_str()).collect();
    let gpus = counted(sampler.states().len() as u64, "GPU");
    let text = format!("sampling {gpus} by {}", names.join(" and "));
    let hardware = Hardware {
        sampler,
        machine: config.sampling.machine()?,
        ownership,
        processes: found.processes,
        attribution: config.attribution.clone(),
    };
    Ok((Kind::Machine(Box::new(hardware)), text))
}

fn open_csv(settings: &Source) -> Result<CsvSource, Failure> {
    let (replay, pace) = match settings.times {
        Times::Recorded => (Replay::Recorded, Pace::Unthrottled),
        Times::Now => (Replay::Shifted, Pace::Recorded),
    };
    let now_ns = clock::now_ns();
    let config = CsvConfig {
        replay,
        speed: settings.speed,
        pace: if settings.rate > 0.0 { Pace::Rate(settings.rate) } else { pace },
        loop_file: settings.looped,
        node: Arc::from("csv"),
        ..CsvConfig::default()
    };
    let input = CsvInput::from(Path::new(&settings.csv));
    CsvSource::open(input, config, now_ns).map_err(|error| pipe::cannot_replay(&error))
}

impl Opened {
    /// What will be seen, for the first line.
    pub(crate) fn announcement(&self) -> &str {
        &self.announcement
    }

    /// Kind, for `/stats`.
    pub(crate) fn kind(&self) -> &'static str {
        match self.source {
            Kind::None => "none",
            Kind::Machine(_) => "machine",
            Kind::Csv(_) => "csv",
            Kind::Simulated(_) => "simulated",
        }
    }

    /// Its progress, if it has any.
    pub(crate) fn progress(&self) -> Option<Arc<Progress>> {
        (!matches!(self.source, Kind::None)).then(|| Arc::clone(&self.progress))
    }

    /// Sets it going; its rows go through the producer.
    pub(crate) fn spawn(self, producer: AnyProducer, stop: &CancellationToken) -> Running {
        let (tell, end) = watch::channel(None);
        let give_up = CancellationToken::new();
        let (runtime, stop, progress) = (Handle::current(), stop.clone(), self.progress);
        let mut sink = Publisher::new(producer, runtime.clone(), Arc::clone(&progress));
        let end_of_patience = give_up.clone();
        let work = move || {
            let give_up = end_of_patience;
            let end = match self.source {
                Kind::None => {
                    tell.send_replace(Some(Ok(())));
                    return;
                }
                Kind::Machine(hardware) => {
                    let Hardware { sampler, machine, ownership, processes, attribution } = *hardware;
                    // Kept as long as rows come: who asks ends when it is dropped.
                    let asking = ownership.follow(&attribution, &machine, processes, &runtime, stop.clone());
                    if let Err(failure) = &asking {
                        tracing::error!(reason = %failure, "who holds the GPUs is not told");
                    }
                    pipe::run(sampler, &mut sink, &progress, &runtime, &stop, &give_up)
                }
                Kind::Csv(csv) => pipe::run(*csv, &mut sink, &progress, &runtime, &stop, &give_up),
                Kind::Simulated(sim) => pipe::run(*sim, &mut sink, &progress, &runtime, &stop, &give_up),
            };
            let (rows, bad_rows) =
                (progress.rows_published.load(Ordering::Relaxed), progress.number("rows_skipped"));
            tell.send_replace(Some(match end {
                End::Finished => {
                    tracing::info!(rows, bad_rows, "the source has handed over everything");
                    Ok(())
                }
                End::Stopped => {
                    tracing::info!(rows, bad_rows, "the source was stopped");
                    Ok(())
                }
                End::Failed(reason) => Err(reason),
            }));
        };
        let thread = std::thread::Builder::new().name("source".to_owned()).spawn(work);
        if let Err(error) = &thread {
            tracing::error!(%error, "no thread for the source");
        }
        Running { end, thread: thread.ok(), give_up }
    }
}

impl Running {
    /// Waits until the source fails. A source that merely ends never fails.
    pub(crate) async fn failed(&self) -> Broken {
        let mut end = self.end.clone();
        let broken = match end.wait_for(Option::is_some).await {
            Ok(ended) => ended.clone().and_then(Result::err).map(Broken::Input),
            Err(_closed) => Some(Broken::Panicked),
        };
        match broken {
            Some(broken) => broken,
            None => std::future::pending().await,
        }
    }

    /// Waits for its thread, for as long as it may take: one that waits for standard input cannot be stopped.
    pub(crate) async fn join(mut self, grace: Duration) {
        let Some(thread) = self.thread.take() else { return };
        let joined = tokio::task::spawn_blocking(move || thread.join().is_ok());
        match tokio::time::timeout(grace, joined).await {
            Ok(Ok(true)) => {}
            Ok(_) => tracing::error!("the source's thread panicked"),
            Err(_) => tracing::warn!("the source still waits for its input or for the queue"),
        }
        self.give_up.cancel();
    }
}

impl Described for Sampler {
    fn describe(&mut self) -> serde_json::Value {
        let stats = self.stats();
        let total = |count: fn(&WorkerStats) -> u64| stats.iter().map(count).sum::<u64>();
        let down: Vec<_> = self
            .states()
            .into_iter()
            .filter_map(|state| {
                let reason = match state.condition {
                    Condition::Starting | Condition::Up => return None,
                    Condition::Down { detail, .. } => detail,
                    Condition::Stuck { for_ns } => format!("no answer for {} s", for_ns / 1_000_000_000),
                };
                Some(
                    json!({ "gpu": state.identity.key(), "driver": state.driver.as_str(), "reason": reason }),
                )
            })
            .collect();
        json!({
            "ticks": total(|s| s.ticks),
            "ticks_missed": total(|s| s.ticks_missed),
            "rows": total(|s| s.rows),
            "rows_dropped": self.rows_dropped(),
            "repeats": total(|s| s.repeats),
            "values_invalid": total(|s| s.invalid),
            "down": down,
        })
    }

    fn progress_line(&self) -> Option<String> {
        None
    }

    fn rest(&mut self) -> Vec<Batch> {
        for state in self.stop(STOP_PATIENCE) {
            tracing::warn!(gpu = state.identity.key().as_deref(), "left while it waits for its device");
        }
        std::iter::from_fn(|| self.next(Duration::ZERO)).collect()
    }
}

impl Described for CsvSource {
    fn describe(&mut self) -> serde_json::Value {
        for report in self.drain_reports() {
            tracing::warn!(
                file = %report.file, line = report.line, column = report.column.as_deref(), cause = report.cause.as_str(),
                "{}", report.reason
            );
        }
        let counts = self.counts();
        json!({
            "rows_read": counts.rows_read,
            "rows_taken": counts.rows_taken,
            "rows_skipped": counts.rows_skipped(),
            "values_invalid": counts.values_invalid,
            "bytes_read": counts.bytes_read,
            "bytes_total": counts.bytes_total,
        })
    }

    fn progress_line(&self) -> Option<String> {
        let counts = self.counts();
        let share = counts.bytes_total.filter(|total| *total > 0).map_or(String::new(), |total| {
            format!(" ({} %)", (counts.bytes_read.saturating_mul(100) / total).min(100))
        });
        Some(format!("replayed {} rows{share}, skipped {}", counts.rows_taken, counts.rows_skipped()))
    }
}

impl Described for Simulated {
    fn describe(&mut self) -> serde_json::Value {
        json!({
            "simulated": true,
            "gpus": self.gpus(),
            "hosts": self.hosts(),
            "ticks_skipped": self.skipped_ticks(),
        })
    }

    fn progress_line(&self) -> Option<String> {
        None
    }
}
