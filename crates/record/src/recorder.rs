//! The recorder: devices are sampled, their rows go into the files of a directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use gpuvitals_core::clock::{self, Moment};
use gpuvitals_core::{Batch, Origin, Table};
use gpuvitals_sources::attribution::Owners;
use gpuvitals_sources::machine::Machine;
use gpuvitals_sources::probe::Driver;
use gpuvitals_sources::registry::{self, Discovery, Finding};
use gpuvitals_sources::sampler::{Liveness, Sampler, SamplerConfig, TargetState, WorkerStats};
use parquet::file::metadata::KeyValue;

use crate::data::Data;
use crate::directory::{self, About, Unfinished};
use crate::error::RecordError;
use crate::mark::MarkContent;
use crate::marks::{MARKS_MAX, Marks};
use crate::run_facts::RunFacts;
use crate::socket::MarkSocket;
use crate::writer::{Rolling, Tally, Writer};

/// Oldest age of a row before it is passed to the kernel: half of the loss at a kill.
const HAND_ON: Duration = Duration::from_millis(500);
/// How long to wait at the end for a worker that waits for its device.
const STOP_PATIENCE: Duration = Duration::from_secs(2);

/// Settings of a recording.
#[derive(Debug, Clone)]
pub struct RecorderConfig {
    /// Directory of the files; created if missing.
    pub directory: PathBuf,
    /// The machine whose devices are sampled.
    pub machine: Machine,
    /// Drivers to use; empty: the cheapest that works.
    pub drivers: Vec<Driver>,
    /// Time between two samples of a GPU: 10 ms unless set, 1 ms at least.
    pub interval: Duration,
    /// Time between two samples of the host: 100 ms unless set.
    pub system_interval: Duration,
    /// Time between two readings of the slow tier: 1 s unless set.
    pub slow: Duration,
    /// Time between two readings of the rare tier: 30 s unless set.
    pub rare: Duration,
    /// Whether an existing recording is replaced: it stays until the new one is whole.
    pub overwrite: bool,
    /// Owners of the GPUs, for the rows' identity columns.
    pub owners: Arc<Owners>,
    /// What is recorded, for the files' footers.
    pub run: RunFacts,
    /// Time from the first row of a part to its last; none: ten seconds. For tests.
    #[doc(hidden)]
    pub part_span: Option<Duration>,
}

impl RecorderConfig {
    /// 100 Hz for GPUs, 10 Hz for the host.
    pub fn new(directory: &Path, machine: Machine) -> Self {
        let sampling = SamplerConfig::default();
        Self {
            directory: directory.to_owned(),
            machine,
            drivers: Vec::new(),
            interval: Duration::from_millis(10),
            system_interval: Duration::from_millis(100),
            slow: sampling.slow,
            rare: sampling.rare,
            overwrite: false,
            owners: Owners::new(),
            run: RunFacts::default(),
            part_span: None,
        }
    }
}

/// Progress of a recording.
#[derive(Debug, Clone)]
pub struct Progress {
    /// Rows of GPUs written.
    pub gpu_rows: u64,
    /// Rows of the host written.
    pub system_rows: u64,
    /// Marks that were written since the start.
    pub marks: u64,
    /// Marks beyond [`MARKS_MAX`], or that could not be written.
    pub marks_dropped: u64,
    /// Rows dropped because the disk did not keep up.
    pub rows_dropped: u64,
    /// Bytes on disk.
    pub bytes: u64,
    /// Counts of the workers.
    pub workers: Vec<WorkerStats>,
    /// The devices as they are now.
    pub targets: Vec<TargetState>,
    /// Whether writing has ended by itself: all workers have ended, or the disk refuses; [`Recorder::stop`]
    /// returns the cause.
    pub is_over: bool,
}

/// A recording that ended in order.
#[derive(Debug)]
pub struct Recorded {
    /// Directory of the files.
    pub directory: PathBuf,
    /// Rows of `gpu_events.parquet`.
    pub gpu_rows: u64,
    /// Rows of `system_events.parquet`.
    pub system_rows: u64,
    /// Rows of `marks.parquet`.
    pub marks: u64,
    /// The last progress; `bytes` is that of the files.
    pub progress: Progress,
    /// Devices whose reading had not finished at the end.
    pub stuck: Vec<TargetState>,
}

impl Recorded {
    /// All rows, read back from the files.
    ///
    /// # Errors
    /// If the files cannot be opened.
    pub fn data(&self) -> Result<Data, RecordError> {
        Data::open(&self.directory)
    }
}

/// A running recording. If dropped, its files stay incomplete, as after a kill: [`repair`] completes them.
#[derive(Debug)]
pub struct Recorder {
    // Threads first: nobody writes to the directory any more when it is released.
    running: Running,
    marks: Arc<Marks>,
    unfinished: Unfinished,
}

/// Sampler and writing thread.
#[derive(Debug)]
struct Running {
    sampler: Arc<Sampler>,
    tally: Arc<Tally>,
    last: Arc<AtomicBool>,
    writer: Option<JoinHandle<Result<(), RecordError>>>,
}

impl Running {
    /// Ends both. Returns the targets that still wait for a device.
    fn halt(&mut self) -> Result<Vec<TargetState>, RecordError> {
        let stuck = self.sampler.stop(STOP_PATIENCE);
        self.last.store(true, Ordering::Release);
        match self.writer.take() {
            Some(writer) => writer.join().map_err(|_| RecordError::Writer)?.map(|()| stuck),
            None => Ok(stuck),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Nobody is left to report to.
        let _ended = self.halt();
    }
}

impl Recorder {
    /// Finds the devices and begins. None of them is simulated.
    ///
    /// # Errors
    /// If there is nothing to record, the directory holds a recording already or cannot be written, or a
    /// device cannot be read at this rate.
    pub fn start(config: RecorderConfig) -> Result<Self, RecordError> {
        Self::start_with(
            registry::discover(&config.machine, &config.drivers, registry::no_simulation),
            config,
            |_| {},
        )
    }

    /// Begins with devices that were found before; each batch is passed to `watch` once it is written.
    ///
    /// # Errors
    /// As [`Recorder::start`].
    pub fn start_with(
        found: Discovery,
        config: RecorderConfig,
        watch: impl FnMut(&Batch) + Send + 'static,
    ) -> Result<Self, RecordError> {
        if found.probes.is_empty() {
            return Err(RecordError::Nothing(found.findings));
        }
        let hertz = |interval: Duration| 1.0 / interval.as_secs_f64();
        let about = About {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            node: config.machine.node.to_string(),
            started_ns: Moment::now().wall_ns,
            boot_ahead_ns: Some(clock::boot_ahead_ns()),
            rate_hz: hertz(config.interval),
            system_rate_hz: hertz(config.system_interval),
            run: config.run,
        };
        let sampling = SamplerConfig {
            exact: !config.drivers.is_empty(),
            interval: config.interval,
            system_interval: config.system_interval,
            slow: config.slow,
            rare: config.rare,
            hand_on: HAND_ON,
            monotonic: true,
            reads: false,
            origin: Origin { node: Arc::clone(&config.machine.node), started_ns: about.started_ns },
        };
        // The directory first: a refused recording must sample nothing.
        let (unfinished, journal) = Unfinished::begin(&config.directory, about, config.overwrite)?;
        let sampler = match Sampler::start(found.probes, sampling, config.owners) {
            Ok(sampler) => Arc::new(sampler),
            Err(error) => {
                unfinished.abandon()?;
                return Err(RecordError::Sampler(error));
            }
        };
        let (tally, last) = (Arc::<Tally>::default(), Arc::<AtomicBool>::default());
        let rolling = |table| Rolling::new(unfinished.directory(), table, config.part_span);
        let writer = Writer {
            sampler: Arc::clone(&sampler),
            last: Arc::clone(&last),
            tally: Arc::clone(&tally),
            tables: [rolling(Table::GpuEvents), rolling(Table::SystemEvents)],
            watch,
        };
        let writer = match std::thread::Builder::new().name("record".to_owned()).spawn(move || writer.run()) {
            Ok(writer) => writer,
            Err(error) => {
                unfinished.abandon()?;
                return Err(RecordError::Thread(error));
            }
        };
        let running = Running { sampler, tally, last, writer: Some(writer) };
        Ok(Self { running, marks: Arc::new(Marks::new(journal, MARKS_MAX)), unfinished })
    }

    /// Records an event of this moment. Beyond [`MARKS_MAX`] it is counted and dropped; a text longer than
    /// [`MARK_LEN_MAX`](crate::MARK_LEN_MAX) is cut.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn mark(&self, content: impl Into<MarkContent>) -> Result<(), RecordError> {
        self.marks.put(content.into(), Moment::now()).map(|_| ())
    }

    /// Opens a socket on which other processes can set marks, until it is dropped.
    ///
    /// # Errors
    /// If the socket cannot be created.
    pub fn mark_socket(&self) -> std::io::Result<MarkSocket> {
        MarkSocket::open(Arc::clone(&self.marks), &self.unfinished.path())
    }

    /// Its progress. Never waits for a device.
    pub fn progress(&self) -> Progress {
        let (marks, marks_dropped) = self.marks.counts();
        let Running { sampler, tally, .. } = &self.running;
        Progress {
            gpu_rows: tally.gpu_rows.load(Ordering::Relaxed),
            system_rows: tally.system_rows.load(Ordering::Relaxed),
            marks,
            marks_dropped,
            rows_dropped: sampler.rows_dropped(),
            bytes: bytes(self.unfinished.directory()) + bytes(&self.unfinished.path()),
            workers: sampler.stats(),
            targets: sampler.states(),
            is_over: tally.ended.load(Ordering::Acquire),
        }
    }

    /// New findings of readings since the last call, beyond those of discovery. Never waits for a device.
    pub fn findings(&self) -> Vec<Finding> {
        self.running.sampler.findings()
    }

    /// The rows so far, read back from the files.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn data(&self) -> Result<Data, RecordError> {
        Data::open(self.unfinished.directory())
    }

    /// Ends sampling and removes the recording. A recording that it was to replace stays unchanged.
    ///
    /// # Errors
    /// If something cannot be removed.
    pub fn discard(mut self) -> Result<(), RecordError> {
        // Rows that could not be written are not wanted.
        let _ended = self.running.halt();
        self.unfinished.abandon()
    }

    /// Ends sampling and completes the files.
    ///
    /// # Errors
    /// If something could not be written, now or before; [`repair`] can restore what was written.
    /// [`RecordError::Empty`] if every device failed before its first row and no mark was set.
    pub fn stop(mut self) -> Result<Recorded, RecordError> {
        // Read before the workers end: their counts go with them.
        let Progress { workers, targets, .. } = self.progress();
        let stuck = self.running.halt()?;
        let mut progress = Progress { workers, targets, ..self.progress() };
        let has_failed = |target: &TargetState| !matches!(target.liveness, Liveness::Starting | Liveness::Up);
        let is_empty = progress.gpu_rows + progress.system_rows + progress.marks == 0;
        if is_empty && progress.targets.iter().all(has_failed) {
            self.unfinished.abandon()?;
            return Err(RecordError::Empty(progress.targets));
        }
        let directory = self.unfinished.directory().to_owned();
        let ended = self.unfinished.end("stopped", &update_intervals(&progress.targets))?;
        progress.bytes = bytes(&directory);
        Ok(Recorded {
            directory,
            gpu_rows: ended.gpu_rows,
            system_rows: ended.system_rows,
            marks: ended.marks,
            progress,
            stuck,
        })
    }
}

/// The result of a repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RepairedRecording {
    /// Rows of `gpu_events.parquet`.
    pub gpu_rows: u64,
    /// Rows of `system_events.parquet`.
    pub system_rows: u64,
    /// Rows of `marks.parquet`.
    pub marks: u64,
    /// Bytes at the ends of journals that form no whole record.
    pub torn_bytes: u64,
}

/// Completes a recording whose process was killed. None if there is nothing to do. May itself be killed and
/// run again.
///
/// # Errors
/// If the directory holds no recording, one that is still running, or a part that cannot be read.
pub fn repair(directory: &Path) -> Result<Option<RepairedRecording>, RecordError> {
    let Some(unfinished) = Unfinished::take_over(directory)? else {
        let (whole, _) = directory::state(directory);
        return if whole { Ok(None) } else { Err(RecordError::no_recording(directory)) };
    };
    let ended = unfinished.end("repaired", &[])?;
    Ok(Some(RepairedRecording {
        gpu_rows: ended.gpu_rows,
        system_rows: ended.system_rows,
        marks: ended.marks,
        torn_bytes: ended.torn_bytes,
    }))
}

/// Bytes of the files in a directory.
fn bytes(directory: &Path) -> u64 {
    let files = fs::read_dir(directory).into_iter().flatten().flatten();
    files.filter_map(|file| file.metadata().ok()).filter(fs::Metadata::is_file).map(|meta| meta.len()).sum()
}

/// How often each driver's values really changed, for the files' metadata.
fn update_intervals(targets: &[TargetState]) -> Vec<KeyValue> {
    let seen: serde_json::Map<_, _> = targets
        .iter()
        .filter_map(|target| {
            Some((target.identity.key()?.to_string(), target.update_interval?.as_secs_f64().into()))
        })
        .collect();
    let json = serde_json::Value::from(seen).to_string();
    vec![KeyValue::new("gpuvitals.update_intervals_s".to_owned(), json)]
}
