//! After a trigger its GPU is sampled at 100 Hz for a while, for the ring of the flight recorder alone.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use gpuvitals_core::clock::Moment;
use gpuvitals_core::{Batch, Table, causes};
use gpuvitals_flight::FlightRecorder;
use gpuvitals_sources::attribution::Owners;
use gpuvitals_sources::registry::Discovery;
use gpuvitals_sources::sampler::{Sampler, SamplerConfig};

/// Samples a second.
pub(crate) const BURST_RATE: f64 = 100.0;
/// Time between two of them.
const INTERVAL: Duration = Duration::from_millis(10);
/// How long to wait for a GPU to be asked for before rows are taken.
const PATIENCE: Duration = Duration::from_millis(250);
/// How long a reading may take to end when a burst is over.
const STOP_PATIENCE: Duration = Duration::from_millis(250);
/// Most GPUs at once.
const GPUS_MAX: usize = 16;

/// A full discovery.
pub(crate) type FullSearch = Arc<dyn Fn() -> Discovery + Send + Sync>;

/// Samples GPUs faster that are asked for.
pub(crate) struct Bursts {
    /// Keys of GPUs.
    pub(crate) asked: Receiver<String>,
    /// A probe of the sampler's own is busy, so each burst finds its GPU anew.
    pub(crate) search: FullSearch,
    pub(crate) config: SamplerConfig,
    pub(crate) owners: Arc<Owners>,
    /// How long a burst lasts, nanoseconds.
    pub(crate) lasts_ns: i64,
}

/// A GPU that is sampled faster.
struct Burst {
    gpu: String,
    sampler: Sampler,
    /// When it ends, by the monotonic clock.
    until_ns: i64,
}

impl Bursts {
    /// Samples until nobody asks any more. A search that hangs with a sick driver holds up this thread alone.
    pub(crate) fn run(&self, recorder: &FlightRecorder) {
        let mut running: Vec<Burst> = Vec::new();
        loop {
            match self.asked.recv_timeout(PATIENCE) {
                Ok(gpu) => self.ask(gpu, &mut running),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            for burst in &running {
                burst.hand_on(recorder);
            }
            let now = Moment::now();
            for burst in running.extract_if(.., |burst| now.mono_ns >= burst.until_ns) {
                burst.end(recorder);
            }
        }
        for burst in running {
            burst.end(recorder);
        }
    }

    /// Begins a burst, or lets the one go on that runs.
    fn ask(&self, gpu: String, running: &mut Vec<Burst>) {
        let until_ns = Moment::now().mono_ns.saturating_add(self.lasts_ns);
        if let Some(burst) = running.iter_mut().find(|burst| burst.gpu == gpu) {
            burst.until_ns = until_ns;
            return;
        }
        if running.len() >= GPUS_MAX {
            return;
        }
        let mut probes = (self.search)().probes;
        // A tool that reads all GPUs at once is no faster for one.
        probes.retain(|probe| {
            let targets = probe.targets();
            let is_it = targets.iter().any(|target| target.key().is_some_and(|key| *key == *gpu));
            probe.table() == Table::GpuEvents && is_it
        });
        if probes.is_empty() {
            return;
        }
        let config = SamplerConfig {
            interval: INTERVAL,
            exact: false,
            monotonic: true,
            reads: true,
            ..self.config.clone()
        };
        match Sampler::start(probes, config, Arc::clone(&self.owners)) {
            Ok(sampler) => {
                tracing::info!(gpu, rate = BURST_RATE, "the GPU is sampled faster for the flight recorder");
                running.push(Burst { gpu, sampler, until_ns });
            }
            Err(error) => {
                tracing::warn!(gpu, error = causes(&error), "the GPU is not sampled faster");
            }
        }
    }
}

impl Burst {
    fn hand_on(&self, recorder: &FlightRecorder) {
        self.sampler.take_all(|batch| take(&batch, recorder));
    }

    fn end(self, recorder: &FlightRecorder) {
        // One that hangs is left behind; the agent's own sampler tells of it.
        let _hanging = self.sampler.stop(STOP_PATIENCE);
        while let Some(batch) = self.sampler.next(Duration::ZERO) {
            take(&batch, recorder);
        }
    }
}

fn take(batch: &Batch, recorder: &FlightRecorder) {
    // Details of links and memory are not in the ring.
    if batch.table() == Table::GpuEvents {
        recorder.take_faster(batch);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{SyncSender, sync_channel};
    use std::thread;

    use gpuvitals_core::figures::{Number, SampleValue};
    use gpuvitals_core::{Identity, IdentityColumn, MetricId};
    use gpuvitals_flight::{FlightPlace, FlightSettings, FlightTerms};
    use gpuvitals_settings::Section as _;
    use gpuvitals_sources::probe::{Driver, Due, Probe, ProbeError, Reading};

    use super::*;
    use crate::doubles::NO_FILES;

    /// A GPU that tells of each reading.
    struct Told(Arc<Identity>, SyncSender<String>);

    impl Probe for Told {
        fn driver(&self) -> Driver {
            Driver::AmdSysfs
        }
        fn targets(&self) -> Vec<Arc<Identity>> {
            vec![Arc::clone(&self.0)]
        }
        fn fill(&mut self, _: Due, reading: &mut Reading) -> Result<(), ProbeError> {
            reading.row(&self.0).float(MetricId::of("power_w"), 300.0);
            let _full = self.1.try_send(self.0.uuid().unwrap().to_owned());
            Ok(())
        }
    }

    #[test]
    fn the_gpu_that_is_asked_for_is_sampled_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let place = FlightPlace::take(folder.path()).unwrap();
        let terms = FlightTerms::new(&FlightSettings::of(&[]).unwrap(), "n1", NO_FILES);
        let recorder = FlightRecorder::start(place, terms).unwrap();
        let (telling, told) = sync_channel(1_000);
        let search = move || {
            let probe = |uuid: &str| {
                let gpu = Identity::default().with(IdentityColumn::Uuid, uuid).unwrap();
                Box::new(Told(Arc::new(gpu), telling.clone())) as Box<dyn Probe>
            };
            Discovery { probes: vec![probe("GPU-1"), probe("GPU-2")], ..Discovery::default() }
        };
        let (asking, asked) = sync_channel(4);
        let bursts = Bursts {
            asked,
            search: Arc::new(search),
            config: SamplerConfig::default(),
            owners: Owners::new(),
            lasts_ns: i64::MAX,
        };
        thread::scope(|scope| {
            let recorder = &recorder;
            let running = scope.spawn(move || bursts.run(recorder));
            for gpu in ["GPU-3", "GPU-2", "GPU-2"] {
                asking.send(gpu.to_owned()).unwrap();
            }
            let seen: Vec<String> =
                (0..10).map(|_| told.recv_timeout(Duration::from_mins(1)).unwrap()).collect();
            assert_eq!(seen, ["GPU-2"; 10]);
            drop(asking);
            running.join().unwrap();
        });
        recorder.finish(Duration::from_mins(1));
        let families = recorder.families();
        let rows = families.iter().find(|it| it.name == "gpuvitals_flight_rows_total").unwrap();
        assert_ne!(rows.samples[0].value, SampleValue::from(Number::from(0_u64)), "the ring has its rows");
    }
}
