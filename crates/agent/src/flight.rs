//! The flight recorder of an agent: where its ring is, and the GPUs' rows that are sampled for it alone.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use std::time::Duration;

use gpuvitals_core::time::SECOND_NS;
use gpuvitals_core::{Batch, Table, causes, clock};
use gpuvitals_flight::{
    FlightError, FlightPlace, FlightRecorder, FlightSettings, FlightTerms, IncidentFiles,
};
use gpuvitals_sources::attribution::Owners;
use gpuvitals_sources::sampler::{Sampler, SamplerConfig};
use gpuvitals_sources::settings::Sampling;
use tokio::runtime::Handle;
use tokio_util::task::AbortOnDropHandle;

use crate::burst::{BURST_RATE, Bursts, FullSearch};
use crate::job_windows::{JobGateway, JobWindows};

/// How long to wait for rows before checking whether to end.
const PATIENCE: Duration = Duration::from_millis(250);
/// Between two looks at rows that workers would hand over later: one that hangs hands over nothing any more.
const GATHER_NS: i64 = SECOND_NS;
/// GPUs that wait to be sampled faster.
const ASKED_MAX: usize = 64;
/// Incidents that wait for the gateway to be told of them.
const BEGUN_MAX: usize = 64;

/// What a flight recorder is opened with.
pub(crate) struct FlightParts<'a> {
    pub(crate) settings: &'a FlightSettings,
    /// How its incidents become files.
    pub(crate) files: IncidentFiles,
    /// `STATE_DIRECTORY`, as the system sets it.
    pub(crate) state_directory: Option<&'a OsStr>,
    pub(crate) sampling: &'a Sampling,
    pub(crate) owners: Arc<Owners>,
    /// A full discovery, for samplers of its own.
    pub(crate) search: FullSearch,
    /// Who is told of its incidents, if somebody is.
    pub(crate) gateway: Option<JobGateway>,
    pub(crate) runtime: &'a Handle,
}

/// A flight recorder that runs, with the sampler of its own if it has one.
#[derive(Debug)]
pub(crate) struct Flight {
    recorder: Arc<FlightRecorder>,
    faster: Option<Faster>,
    /// Ends when this is dropped.
    windows: Option<AbortOnDropHandle<()>>,
}

/// A sampler for the ring alone, and the thread that takes its rows.
#[derive(Debug)]
struct Faster {
    sampler: Arc<Sampler>,
    feed: JoinHandle<()>,
}

impl Flight {
    /// By the settings; none where there is no place for it. That is said, and is no reason not to sample.
    pub(crate) fn open(parts: &FlightParts<'_>) -> Option<Self> {
        let directory = match parts.settings.directory(parts.state_directory) {
            Ok(directory) => directory,
            Err(why) => {
                tracing::info!(
                    why,
                    "the flight recorder is off: nothing on this node keeps its last minutes"
                );
                return None;
            }
        };
        match Self::start(&directory, parts) {
            Ok(flight) => Some(flight),
            Err(error) => {
                let directory = directory.display();
                tracing::warn!(
                    %directory,
                    error = causes(&error),
                    "the flight recorder is off: it needs a directory that this user may write"
                );
                None
            }
        }
    }

    fn start(directory: &Path, parts: &FlightParts<'_>) -> Result<Self, FlightError> {
        let place = FlightPlace::take(directory)?;
        if place.is_in_memory() {
            tracing::warn!(
                directory = %directory.display(),
                "the flight recorder's directory is in memory (tmpfs): what it keeps does not outlive a reboot"
            );
        }
        let sampler = faster(parts);
        let terms = FlightTerms::new(parts.settings, &parts.sampling.node(), parts.files);
        let (asking, asked) = sync_channel(ASKED_MAX);
        let (beginning, begun) = sync_channel(BEGUN_MAX);
        let is_fast = parts.settings.rate.max(parts.sampling.rate) >= BURST_RATE;
        let bursts = Bursts {
            asked,
            search: Arc::clone(&parts.search),
            config: parts.sampling.sampler(),
            owners: Arc::clone(&parts.owners),
            lasts_ns: terms.after_ns,
        };
        let terms = FlightTerms {
            is_faster: sampler.is_some(),
            triggered: Some(asking).filter(|_| !is_fast),
            begun: parts.gateway.is_some().then_some(beginning),
            ..terms
        };
        let recorder = Arc::new(FlightRecorder::start(place, terms)?);
        if !is_fast {
            let recorder = Arc::clone(&recorder);
            // It ends with the recorder, and nobody waits for it: a driver that is sick may hold it up.
            let thread = std::thread::Builder::new().name("flight-burst".to_owned());
            thread.spawn(move || bursts.run(&recorder)).map_err(FlightError::Thread)?;
        }
        let faster = sampler.map(|sampler| Faster::feed(sampler, &recorder)).transpose()?;
        let windows = parts.gateway.clone().map(|gateway| {
            let (node, recorder) = (parts.sampling.host(), Arc::clone(&recorder));
            let windows = JobWindows::new(gateway, node.to_string(), recorder, begun);
            AbortOnDropHandle::new(parts.runtime.spawn(windows.run()))
        });
        let minutes = parts.settings.minutes;
        tracing::info!(directory = %directory.display(), minutes, "the flight recorder keeps the last minutes");
        Ok(Self { recorder, faster, windows })
    }

    /// The recorder, for the rows of the agent's sampler.
    pub(crate) fn recorder(&self) -> Arc<FlightRecorder> {
        Arc::clone(&self.recorder)
    }

    /// Ends it when no row of the agent comes any more. A device or a disk that hangs is left behind within this time.
    pub(crate) fn finish(self, patience: Duration) {
        drop(self.windows);
        let began_ns = clock::mono_ns();
        if let Some(Faster { sampler, feed }) = self.faster {
            sampler.stop(patience / 2);
            if feed.join().is_err() {
                tracing::error!("the feed of the flight recorder ended by a panic");
            }
        }
        let taken_ns = u64::try_from(clock::mono_ns().saturating_sub(began_ns)).unwrap_or_default();
        self.recorder.finish(patience.saturating_sub(Duration::from_nanos(taken_ns)));
    }
}

/// A sampler of the GPUs for the ring alone, if the settings ask for more than the agent reads anyway.
fn faster(parts: &FlightParts<'_>) -> Option<Sampler> {
    let rate = parts.settings.rate;
    if rate <= parts.sampling.rate {
        return None;
    }
    let mut probes = (parts.search)().probes;
    probes.retain(|probe| probe.table() == Table::GpuEvents);
    if probes.is_empty() {
        return None;
    }
    let interval = Duration::from_secs_f64(1.0 / rate);
    let usual = parts.sampling.sampler();
    let config = SamplerConfig { interval, exact: false, monotonic: true, reads: true, ..usual };
    match Sampler::start(probes, config, Arc::clone(&parts.owners)) {
        Ok(sampler) => {
            tracing::info!(rate, "GPUs are sampled for the flight recorder, too");
            Some(sampler)
        }
        Err(error) => {
            tracing::warn!(error = causes(&error), "the flight recorder has the agent's rate");
            None
        }
    }
}

impl Faster {
    fn feed(sampler: Sampler, recorder: &Arc<FlightRecorder>) -> Result<Self, FlightError> {
        let sampler = Arc::new(sampler);
        let (source, recorder) = (Arc::clone(&sampler), Arc::clone(recorder));
        let work = move || {
            let take = |batch: Batch| {
                // Details of links and memory are not in the ring.
                if batch.table() == Table::GpuEvents {
                    recorder.take_faster(&batch);
                }
            };
            let mut gathered_ns = clock::mono_ns();
            loop {
                match source.next(PATIENCE) {
                    Some(batch) => take(batch),
                    None if source.is_over() => break,
                    None => {}
                }
                let now_ns = clock::mono_ns();
                if now_ns.saturating_sub(gathered_ns) >= GATHER_NS {
                    gathered_ns = now_ns;
                    source.take_all(take);
                }
            }
        };
        let feed = std::thread::Builder::new().name("flight-feed".to_owned()).spawn(work);
        Ok(Self { sampler, feed: feed.map_err(FlightError::Thread)? })
    }
}
