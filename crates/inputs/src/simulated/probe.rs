//! Simulated GPUs as devices of a node that are sampled: `--driver simulated`, for demonstrations and tests of what lies behind
//! the sampler. Nobody gets them unasked.

use std::sync::Arc;
use std::time::Duration;

use gpuvitals_core::ports::{Poll, Source};
use gpuvitals_core::{AbsenceReason, Batch, Identity, clock};
use gpuvitals_sources::machine::Machine;
use gpuvitals_sources::probe::{Driver, Due, Probe, ProbeError, Reading};
use gpuvitals_sources::registry::{Discovery, Finding, Verdict};

use super::{SimConfig, Simulated};

/// Between two ticks of the simulation, so that it can be sampled a hundred times a second.
const TICK: Duration = Duration::from_millis(10);

/// GPUs: the first two hosts of the simulated fleet, one with NVIDIA's and the special cases, one with AMD's.
const GPUS: usize = 16;

/// Finds simulated GPUs, on every machine: 16, as one node's. It is for [`registry::discover`](gpuvitals_sources::registry::discover).
pub fn find(_machine: &Machine) -> Discovery {
    let name = Driver::Simulated.as_str();
    let config = SimConfig { gpus: GPUS, interval: TICK, start_ns: clock::now_ns(), ..SimConfig::default() };
    match Simulated::new(config) {
        Ok(fleet) => Discovery {
            probes: vec![Box::new(SimulatedGpus { fleet, last: None, known: Vec::new() })],
            findings: vec![Finding::new(Verdict::Note, name, "these GPUs are simulated; every row says so")],
            ..Discovery::default()
        },
        Err(error) => Discovery::none(Finding::new(Verdict::Broken, name, error.to_string())),
    }
}

/// The GPUs of a simulated host.
#[derive(Debug)]
struct SimulatedGpus {
    fleet: Simulated,
    /// The latest tick that was handed over.
    last: Option<Batch>,
    known: Vec<Arc<Identity>>,
}

impl SimulatedGpus {
    /// The identity of a row, shared with the rows before if nothing changed.
    fn know(&mut self, identity: Identity) -> Arc<Identity> {
        let key = identity.key();
        match self.known.iter_mut().find(|known| known.key() == key) {
            Some(known) if **known == identity => Arc::clone(known),
            Some(known) => {
                *known = Arc::new(identity);
                Arc::clone(known)
            }
            None => {
                let identity = Arc::new(identity);
                self.known.push(Arc::clone(&identity));
                identity
            }
        }
    }
}

impl Probe for SimulatedGpus {
    fn driver(&self) -> Driver {
        Driver::Simulated
    }

    fn targets(&self) -> Vec<Arc<Identity>> {
        self.known.clone()
    }

    fn interval_min(&self) -> Duration {
        TICK
    }

    fn fill(&mut self, _due: Due, reading: &mut Reading) -> Result<(), ProbeError> {
        // One instant, and so one tick: with a later one a further tick could replace the only one that has limits and sizes.
        let now_ns = clock::now_ns();
        while let Ok(Poll::Ready(tick)) = self.fleet.poll(now_ns) {
            self.last = Some(tick);
        }
        let Some(tick) = self.last.take() else {
            return Err(ProbeError::Failed("the simulation has not begun".to_owned()));
        };
        let before = self.known.clone();
        for row in 0..tick.rows() {
            let identity = self.know(tick.identity(row));
            let read = reading.row(&identity);
            for (metric, column) in tick.metrics() {
                if let Some(value) = column.value(row) {
                    read.set(metric, value);
                }
            }
        }
        let told: Vec<_> = reading.rows().iter().map(|row| row.identity().key()).collect();
        for gone in before.iter().filter(|known| !told.contains(&known.key())) {
            reading
                .row(gone)
                .down(AbsenceReason::Gone, "it vanished, as this simulated GPU does after five minutes");
        }
        self.last = Some(tick);
        Ok(())
    }
}
