//! The flight recorder as an agent has it: batches go in, and nobody waits for its disk.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use gpuvitals_core::Batch;
use gpuvitals_core::clock::Moment;
use gpuvitals_core::figures::Family;

use crate::answering::{self, WindowAnswer};
use crate::error::FlightError;
use crate::folder::FlightFolder;
use crate::incident::FlightSpan;
use crate::line::FlightLine;
use crate::place::FlightPlace;
use crate::tables::IncidentFiles;
use crate::terms::{FlightCounts, FlightTerms};
use crate::trigger::FlightTrigger;
use crate::worker::{Input, Worker};

/// Batches that wait for the disk: at one a second and device those of 8 GPUs and the host of some minutes.
const INPUTS_MAX: usize = 2_048;
/// Rows of these from which on no more are taken: at high rates a batch has many.
const ROWS_MAX: usize = 65_536;
/// Between two looks at what is due.
const PATIENCE: Duration = Duration::from_millis(100);

/// How long a recorder that is dropped may take to end.
const DROP_PATIENCE: Duration = Duration::from_secs(10);

/// A flight recorder that runs until it is finished.
#[derive(Debug)]
pub struct FlightRecorder {
    inputs: SyncSender<Input>,
    queue: Arc<Queue>,
    counts: Arc<FlightCounts>,
    directory: PathBuf,
    files: IncidentFiles,
    running: Mutex<Option<Running>>,
}

/// What both ends know of the inputs that wait.
#[derive(Debug, Default)]
struct Queue {
    rows: AtomicUsize,
    /// Nothing more comes.
    is_over: AtomicBool,
}

/// The thread of a recorder, and what is cut off when it ends.
#[derive(Debug)]
struct Running {
    thread: JoinHandle<()>,
    end: Receiver<()>,
}

impl FlightRecorder {
    /// Opens the ring of a place, and goes on with an incident that a killed agent had begun.
    ///
    /// # Errors
    /// If the ring cannot be opened, or there is no thread.
    pub fn start(place: FlightPlace, terms: FlightTerms) -> Result<Self, FlightError> {
        let counts = Arc::new(FlightCounts::default());
        let (directory, files) = (place.directory().to_owned(), terms.files);
        let worker = Worker::open(place, terms, Arc::clone(&counts), Moment::now())?;
        let (inputs, arriving) = sync_channel(INPUTS_MAX);
        let (running, end) = sync_channel::<()>(0);
        let queue = Arc::new(Queue::default());
        let theirs = Arc::clone(&queue);
        let thread = thread::Builder::new().name("flight".to_owned()).spawn(move || {
            run(worker, &arriving, &theirs);
            drop(running);
        });
        let running = Running { thread: thread.map_err(FlightError::Thread)?, end };
        Ok(Self { inputs, queue, counts, directory, files, running: Mutex::new(Some(running)) })
    }

    /// Takes rows of the agent's sampler, and looks for triggers in them. Never waits.
    pub fn take(&self, batch: &Batch) {
        self.send(Input::Sampled(batch.clone()));
    }

    /// Takes rows of GPUs that are sampled for the ring alone. Never waits.
    pub fn take_faster(&self, batch: &Batch) {
        self.send(Input::Faster(batch.clone()));
    }

    /// Takes a line of the kernel, which may be a trigger. Never waits.
    pub fn kernel(&self, line: FlightLine) {
        self.send(Input::Kernel(line));
    }

    /// Where the kernel's lines are from, or why there are none. Never waits.
    pub fn kernel_log(&self, what: &str) {
        self.send(Input::KernelLog(what.to_owned()));
    }

    /// A reading of this GPU is out past its deadline. Never waits.
    pub fn stuck(&self, gpu: &str) {
        self.send(Input::Stuck(gpu.to_owned()));
    }

    /// Somebody asks for an incident by a signal. Never waits.
    pub fn signal(&self) {
        self.send(Input::Signal);
    }

    /// A gateway asks for what was around this time on another node of the job, for this incident. It is kept here once. Never waits.
    pub fn asked(&self, incident: &str, at_ns: i64) {
        self.send(Input::Asked { incident: incident.to_owned(), at_ns });
    }

    fn send(&self, input: Input) {
        let rows = input.rows();
        let waiting = self.queue.rows.fetch_add(rows, Ordering::Relaxed);
        let is_taken = (rows == 0 || waiting < ROWS_MAX)
            && match self.inputs.try_send(input) {
                Ok(()) => true,
                Err(TrySendError::Full(_)) => false,
                Err(TrySendError::Disconnected(_)) => {
                    // Its thread has ended, and stores nothing more.
                    self.counts.is_up.store(false, Ordering::Relaxed);
                    false
                }
            };
        if !is_taken {
            self.queue.rows.fetch_sub(rows, Ordering::Relaxed);
            self.counts.rows_lost.fetch_add(rows as u64, Ordering::Relaxed);
        }
    }

    /// Where its ring and its incidents are.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The rows within some time of the incident that this node has kept for this one of its job, or that began it by this trigger;
    /// none: it has none yet, or none any more.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn rest(
        &self,
        id: &str,
        begun: &FlightTrigger,
        asked: FlightSpan,
    ) -> Result<Option<WindowAnswer>, FlightError> {
        let folder = FlightFolder::of(&self.directory);
        let Some(incident) = answering::kept(&folder, id, begun)? else { return Ok(None) };
        let rows = (self.files.read)(&folder.path(&incident.id)?)?;
        answering::rest(rows, asked, incident.trigger.at_ns).map(Some)
    }

    /// Writes what waits, and an incident that has begun as far as it goes. What comes after this is lost. A disk that does not answer
    /// within this time is left behind; the next start goes on with the incident.
    pub fn finish(&self, patience: Duration) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(Running { thread, end }) = running else { return };
        self.queue.is_over.store(true, Ordering::Release);
        // If there is no room for it, the thread does not wait either.
        let _awake = self.inputs.try_send(Input::End);
        if end.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
            let directory = self.directory.display();
            tracing::warn!(%directory, "the disk of the flight recorder takes too long; it is left behind");
        } else if thread.join().is_err() {
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
        self.finish(DROP_PATIENCE);
    }
}

fn run(mut worker: Worker, arriving: &Receiver<Input>, queue: &Queue) {
    loop {
        // Asked before the inputs: what came before the end is among them.
        let is_over = queue.is_over.load(Ordering::Acquire);
        match arriving.recv_timeout(if is_over { Duration::ZERO } else { PATIENCE }) {
            Ok(input) => {
                queue.rows.fetch_sub(input.rows(), Ordering::Relaxed);
                worker.take(input, Moment::now());
            }
            Err(RecvTimeoutError::Timeout) if !is_over => {}
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
        }
        worker.look(Moment::now());
    }
    worker.finish(Moment::now());
}

#[cfg(test)]
mod tests {
    use gpuvitals_core::{BatchBuilder, Identity, IdentityColumn, Origin, Table};

    use super::*;
    use crate::doubles::PIECES;

    fn rows(count: i64) -> Batch {
        let mut builder = BatchBuilder::new(Table::GpuEvents);
        let id = builder.intern(&Identity::default().with(IdentityColumn::Uuid, "GPU-1").unwrap());
        for at_ns in 0..count {
            builder.row_at(at_ns, at_ns, id);
        }
        builder.finish(Origin::default(), 1).unwrap()
    }

    /// A recorder whose thread never takes anything.
    fn stalled() -> (FlightRecorder, Receiver<Input>) {
        let (inputs, arriving) = sync_channel(INPUTS_MAX);
        let (queue, counts, running) = (Arc::default(), Arc::default(), Mutex::default());
        let (directory, files) = (PathBuf::new(), PIECES);
        (FlightRecorder { inputs, queue, counts, directory, files, running }, arriving)
    }

    fn lost(recorder: &FlightRecorder) -> u64 {
        recorder.counts.rows_lost.load(Ordering::Relaxed)
    }

    #[test]
    fn rows_for_a_disk_that_is_too_slow_are_counted_and_not_waited_for() {
        let (recorder, arriving) = stalled();
        let batch = rows(10_000);
        for _ in 0..7 {
            recorder.take(&batch);
        }
        assert_eq!((lost(&recorder), arriving.try_iter().count()), (0, 7));
        recorder.take(&batch);
        assert_eq!(
            lost(&recorder),
            10_000,
            "70,000 rows wait as long as nobody has said that they were taken"
        );
        recorder.signal();
        assert_eq!(arriving.try_iter().count(), 1, "a trigger has no rows");

        let (recorder, _arriving) = stalled();
        for _ in 0..INPUTS_MAX + 3 {
            recorder.take_faster(&rows(1));
        }
        assert_eq!(lost(&recorder), 3);
    }

    #[test]
    fn a_recorder_whose_thread_is_gone_is_not_up() {
        let (recorder, arriving) = stalled();
        recorder.counts.is_up.store(true, Ordering::Relaxed);
        drop(arriving);
        recorder.take(&rows(2));
        assert!(!recorder.counts.is_up.load(Ordering::Relaxed));
        assert_eq!(lost(&recorder), 2);
    }
}
