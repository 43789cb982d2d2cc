//! The configured source of `up`, running on a thread of its own.

mod settings;

use std::collections::BTreeSet;
use std::sync::Arc;

use gpuvitals_core::clock;
use gpuvitals_core::quantity::counted;
use gpuvitals_core::{Table, causes};
use gpuvitals_inputs::replay::{ReplayConfig, ReplayPace, ReplaySource};
use gpuvitals_inputs::simulated::{SimConfig, Simulated};
use gpuvitals_queue::link::AnyProducer;
use gpuvitals_sources::attribution::{Asking, Owners, Ownership};
use gpuvitals_sources::machine::Machine;
use gpuvitals_sources::probe::Driver;
use gpuvitals_sources::processes::ProcessTable;
use gpuvitals_sources::registry::Verdict;
use gpuvitals_sources::sampler::Sampler;
use gpuvitals_sources::settings::{Attribution, Sampling};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::failure::{Exit, Failure};
use crate::files::Files;
use crate::pipe::Times;
use crate::pipe::{self, Format, PipeError, Progress, Terms};
use crate::sampling;

pub(crate) use settings::Source;
use settings::SourceKind;

/// An open source that has not begun.
pub(crate) struct Opened {
    /// What it has read and published so far.
    pub progress: Arc<Progress>,
    source: OpenSource,
    announcement: String,
}

enum OpenSource {
    None,
    Machine(Box<Hardware>),
    Replay(Box<ReplaySource>),
    Simulated(Box<Simulated>),
}

/// The GPUs of this machine, and their attribution.
struct Hardware {
    sampler: Sampler,
    machine: Machine,
    ownership: Arc<Ownership>,
    processes: Vec<Box<dyn ProcessTable>>,
    attribution: Attribution,
}

/// A source at work.
pub(crate) struct RunningSource {
    /// None: there is no source.
    pub pipe: Option<JoinHandle<Result<(), PipeError>>>,
    /// Asks for the owners of the GPUs for as long as it is held.
    _asking: Asking,
}

/// Opens the source of the settings.
///
/// # Errors
/// If the file cannot be read or has no rows of ours, the simulated fleet is impossible, or GPUs are
/// required and there are none.
pub(crate) fn open(
    (settings, files): (&Source, &Files),
    sampling: &Sampling,
    attribution: Attribution,
) -> Result<Opened, Failure> {
    let (source, announcement) = match settings.kind {
        SourceKind::Auto | SourceKind::Machine => open_machine(settings.kind, sampling, attribution)?,
        SourceKind::None => (OpenSource::None, "showing stored rows; no source is configured".to_owned()),
        SourceKind::Replay => {
            let replay = open_replay(settings, files)?;
            let how = match (settings.times, settings.looped) {
                (Times::Recorded, false) => "once, with its recorded times",
                (Times::Recorded, true) => "again and again, with its recorded times",
                (Times::Now, false) => "once, as if it began now",
                (Times::Now, true) => "again and again, as if it began now",
            };
            (
                OpenSource::Replay(Box::new(replay)),
                format!("replaying {} {how}", settings.replay.0.join(", ")),
            )
        }
        SourceKind::Simulated => {
            let config = SimConfig {
                gpus: settings.gpus as usize,
                hosts: Some(settings.hosts as usize).filter(|hosts| *hosts > 0),
                seed: settings.seed,
                interval: settings.interval,
                start_ns: clock::now_ns(),
                links: true,
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
            (OpenSource::Simulated(Box::new(simulated)), text)
        }
    };
    Ok(Opened { source, progress: Arc::new(Progress::new()), announcement })
}

/// The GPUs of this machine, and the host.
fn open_machine(
    kind: SourceKind,
    settings: &Sampling,
    attribution: Attribution,
) -> Result<(OpenSource, String), Failure> {
    let found = sampling::discover(settings)?;
    if found.probes.iter().all(|probe| probe.table() != Table::GpuEvents) {
        if kind == SourceKind::Machine {
            return Err(sampling::nothing_to_sample(&found));
        }
        let text = "no GPU was found here (gpuvitals doctor says why); showing stored rows";
        return Ok((OpenSource::None, text.to_owned()));
    }
    for finding in found.findings.iter().filter(|finding| finding.verdict >= Verdict::Partial) {
        tracing::warn!(subject = finding.subject, remedy = finding.remedy, "{}", finding.text);
    }
    let gpus = found.probes.iter().filter(|probe| probe.table() == Table::GpuEvents);
    let drivers: BTreeSet<Driver> = gpus.map(|probe| probe.driver()).collect();
    let ownership = settings.ownership();
    let processes = found.process_probes();
    let probes = found.probes.into_iter().chain(processes).collect();
    let sampler = Sampler::start(probes, settings.sampler(), Arc::clone(ownership.owners()))
        .map_err(sampling::refused)?;
    let names: Vec<&str> = drivers.iter().map(|driver| driver.as_str()).collect();
    let states = sampler.states();
    let gpus = states.iter().filter(|state| state.table == Table::GpuEvents).count();
    let gpus = counted(gpus as u64, "GPU");
    let text = format!("sampling {gpus} by {}", names.join(" and "));
    let hardware = Hardware {
        sampler,
        machine: settings.machine()?,
        ownership,
        processes: found.processes,
        attribution,
    };
    Ok((OpenSource::Machine(Box::new(hardware)), text))
}

fn open_replay(settings: &Source, files: &Files) -> Result<ReplaySource, Failure> {
    let config = ReplayConfig {
        speed: settings.speed,
        pace: if settings.rate > 0.0 { ReplayPace::Rate(settings.rate) } else { ReplayPace::Unthrottled },
        loop_file: settings.looped,
        hints: files.hints()?,
        ..ReplayConfig::default()
    };
    pipe::open_replay(&settings.replay.0, settings.times, config)
}

impl Opened {
    /// A description of the source, for the first line.
    pub(crate) fn announcement(&self) -> &str {
        &self.announcement
    }

    /// Kind, for `/stats`.
    pub(crate) fn kind(&self) -> &'static str {
        match self.source {
            OpenSource::None => "none",
            OpenSource::Machine(_) => "machine",
            OpenSource::Replay(_) => "replay",
            OpenSource::Simulated(_) => "simulated",
        }
    }

    /// Sets it going; its rows go through the producer.
    pub(crate) fn start(
        self,
        producer: AnyProducer,
        stop: &CancellationToken,
        give_up: &CancellationToken,
    ) -> RunningSource {
        let terms = Terms { format: Format::Batch, rate: None, stop: stop.clone(), give_up: give_up.clone() };
        let (progress, producers, mut asking) = (&self.progress, vec![producer], Asking::default());
        let pipe = match self.source {
            OpenSource::None => return RunningSource { pipe: None, _asking: asking },
            OpenSource::Machine(hardware) => {
                let Hardware { sampler, machine, ownership, processes, attribution } = *hardware;
                match attribution.ask(&ownership, &machine, processes) {
                    Ok(begun) => asking = begun,
                    Err(error) => {
                        tracing::error!(%error, "cannot determine the owners of the GPUs");
                    }
                }
                let sharing = sampler.sharing();
                pipe::start(pipe::Sampled::accounting(sampler, sharing), producers, progress, terms)
            }
            OpenSource::Replay(replay) => pipe::start(*replay, producers, progress, terms),
            OpenSource::Simulated(simulated) => {
                // Nobody shares a simulated GPU.
                let fleet = pipe::Sampled::accounting(*simulated, Owners::new());
                pipe::start(fleet, producers, progress, terms)
            }
        };
        RunningSource { pipe: Some(pipe), _asking: asking }
    }
}

impl RunningSource {
    /// Waits until everything that was read is published, or never will be; for ever without a source, and
    /// after the first report.
    pub(crate) async fn ended(&mut self) -> Result<(), PipeError> {
        let Some(pipe) = &mut self.pipe else { return std::future::pending().await };
        let ended = pipe.await.unwrap_or(Err(PipeError::Panicked));
        self.pipe = None;
        ended
    }
}
