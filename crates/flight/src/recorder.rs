//! The flight recorder as an agent has it: batches go in, and nobody waits for its disk.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use gpuvitals_core::Batch;
use gpuvitals_core::clock::Moment;
use gpuvitals_core::figures::Family;

use crate::error::FlightError;
use crate::place::FlightPlace;
use crate::terms::{FlightCounts, FlightTerms};
use crate::worker::{Input, Worker};

/// Batches that wait for the disk: at one a second and device those of 8 GPUs and the host of some minutes.
const INPUTS_MAX: usize = 2_048;
/// Between two looks at what is due.
const PATIENCE: Duration = Duration::from_millis(250);

/// A flight recorder that runs until it is finished.
#[derive(Debug)]
pub struct FlightRecorder {
    inputs: SyncSender<Input>,
    counts: Arc<FlightCounts>,
    directory: PathBuf,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl FlightRecorder {
    /// Opens the ring of a place, and goes on with an incident that a killed agent had begun.
    ///
    /// # Errors
    /// If the ring cannot be opened, or there is no thread.
    pub fn start(place: FlightPlace, terms: FlightTerms) -> Result<Self, FlightError> {
        let counts = Arc::new(FlightCounts::default());
        let directory = place.directory().to_owned();
        let worker = Worker::open(place, terms, Arc::clone(&counts), Moment::now())?;
        let (inputs, arriving) = sync_channel(INPUTS_MAX);
        let thread = thread::Builder::new().name("flight".to_owned()).spawn(move || run(worker, &arriving));
        let thread = Mutex::new(Some(thread.map_err(FlightError::Thread)?));
        Ok(Self { inputs, counts, directory, thread })
    }

    /// Takes rows of the agent's sampler, and looks for triggers in them. Never waits.
    pub fn take(&self, batch: &Batch) {
        self.send(Input::Sampled(batch.clone()), batch.rows());
    }

    /// Takes rows of GPUs that are sampled for the ring alone. Never waits.
    pub fn take_faster(&self, batch: &Batch) {
        self.send(Input::Faster(batch.clone()), batch.rows());
    }

    /// A reading of this GPU is out past its deadline. Never waits.
    pub fn stuck(&self, gpu: &str) {
        self.send(Input::Stuck(gpu.to_owned()), 0);
    }

    /// Somebody asks for an incident by a signal. Never waits.
    pub fn signal(&self) {
        self.send(Input::Signal, 0);
    }

    fn send(&self, input: Input, rows: usize) {
        if self.inputs.try_send(input).is_err() {
            self.counts.rows_lost.fetch_add(rows as u64, Ordering::Relaxed);
        }
    }

    /// Its directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Writes what waits, and an incident that has begun as far as it goes. What comes after this is lost.
    pub fn finish(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(thread) = thread else { return };
        // It waits for the disk, if that is slow; a thread that has died takes nothing.
        let _dead = self.inputs.send(Input::End);
        if thread.join().is_err() {
            tracing::error!("the flight recorder ended by a panic");
        }
    }

    /// What it counts, as families of metrics.
    pub fn families(&self) -> Vec<Family> {
        let FlightCounts { is_up, rows, rows_lost, triggers, incidents, incidents_failed } = &*self.counts;
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        vec![
            Family::gauge(
                "gpuvitals_flight_up",
                "Whether the ring of the flight recorder took the last rows.",
                is_up.load(Ordering::Relaxed),
            ),
            Family::counter("gpuvitals_flight_rows_total", "Rows that the ring has taken.", of(rows)),
            Family::counter(
                "gpuvitals_flight_lost_rows_total",
                "Rows that the ring has not taken: its disk was full, or it did not keep up.",
                of(rows_lost),
            ),
            Family::counter(
                "gpuvitals_flight_triggers_total",
                "Triggers, also those that began no incident of their own.",
                of(triggers),
            ),
            Family::counter(
                "gpuvitals_flight_incidents_total",
                "Incidents that were written.",
                of(incidents),
            ),
            Family::counter(
                "gpuvitals_flight_failed_incidents_total",
                "Incidents that could not be written.",
                of(incidents_failed),
            ),
        ]
    }
}

impl Drop for FlightRecorder {
    fn drop(&mut self) {
        self.finish();
    }
}

fn run(mut worker: Worker, arriving: &Receiver<Input>) {
    loop {
        match arriving.recv_timeout(PATIENCE) {
            Ok(Input::End) | Err(RecvTimeoutError::Disconnected) => break,
            Ok(input) => worker.take(input, Moment::now()),
            Err(RecvTimeoutError::Timeout) => {}
        }
        worker.look(Moment::now());
    }
    worker.finish(Moment::now());
}
