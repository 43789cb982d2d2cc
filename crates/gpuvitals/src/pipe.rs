//! From source to queue: a thread polls the source and hands its batches to a sink, which packs and publishes them.

mod publisher;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gpuvitals_core::clock;
use gpuvitals_core::figures::{Family, Kind};
use gpuvitals_core::ports::{Poll, Source};
use gpuvitals_core::time::SECOND_NS;
use gpuvitals_core::{Batch, Health, Status, causes};
use gpuvitals_sources::csv::CsvError;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::failure::{Exit, Failure};
pub(crate) use publisher::Publisher;

/// A source that can say how far it is, for people.
pub(crate) trait Described: Source {
    /// What stands in `/stats` under `source` and in the log, beside the counts of the pipe.
    fn describe(&mut self) -> serde_json::Value;

    /// A line for people while it works, for sources that have an end.
    fn progress_line(&self) -> Option<String>;

    /// What it holds already when it is told to stop; a source that can read its input again holds nothing.
    fn rest(&mut self) -> Vec<Batch> {
        Vec::new()
    }
}

/// Where a pipe's batches go.
pub(crate) trait Sink {
    /// Takes a batch; waits for room until `stop`.
    ///
    /// # Errors
    /// Why the pipe ends.
    fn hand_over(&mut self, batch: Batch, stop: &CancellationToken) -> Result<(), End>;

    /// Waits until everything is where it should be, until `give_up`.
    ///
    /// # Errors
    /// Why it will never be.
    fn finish(&mut self, _give_up: &CancellationToken) -> Result<(), End> {
        Ok(())
    }
}

/// What it means that a file cannot be replayed.
pub(crate) fn cannot_replay(error: &CsvError) -> Failure {
    let exit = match error {
        CsvError::Open { source, .. } | CsvError::Read { source, .. } => Exit::of(source),
        _ => Exit::Data,
    };
    Failure::new(exit, format!("cannot replay {}", causes(error)))
}

/// Reasons why a source gives less, and the numbers of its description that tell how much.
const LOST: [(&str, &str); 4] = [
    ("bad_row", "rows_skipped"),
    ("invalid_value", "values_invalid"),
    ("late_reading", "ticks_missed"),
    ("dropped_row", "rows_dropped"),
];
/// Between two lines of progress.
const PROGRESS_NS: i64 = 5 * SECOND_NS;

/// How far the source is.
#[derive(Debug)]
pub(crate) struct Progress {
    /// Rows that the queue has.
    pub rows_published: AtomicU64,
    /// Somebody else tells people how far it is.
    is_silent: bool,
    description: Mutex<serde_json::Value>,
    queue: Mutex<Health>,
}

impl Progress {
    /// Nothing yet.
    pub(crate) fn new() -> Self {
        Self {
            rows_published: AtomicU64::new(0),
            is_silent: false,
            description: Mutex::default(),
            queue: Mutex::new(Health::healthy(clock::now_ns())),
        }
    }

    /// Progress that is not logged from time to time.
    pub(crate) fn silent() -> Self {
        Self { is_silent: true, ..Self::new() }
    }

    /// How the queue takes what is handed over.
    pub(crate) fn queue(&self) -> Health {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn published(&self, rows: u32) {
        self.rows_published.fetch_add(rows.into(), Ordering::Relaxed);
    }

    fn queue_is(&self, status: Status, reason: String) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        match (queue.status, status) {
            (Status::Healthy, Status::Degraded) => {
                tracing::warn!(
                    error = reason,
                    "the queue does not take a frame; it is sent again until it does"
                );
            }
            (Status::Degraded, Status::Healthy) => tracing::info!("the queue takes frames again"),
            _ => {}
        }
        queue.observe(status, reason, clock::now_ns());
    }

    /// A number of the source's description; 0 where it has none of that name.
    pub(crate) fn number(&self, name: &str) -> u64 {
        let description = self.description.lock().unwrap_or_else(PoisonError::into_inner);
        description.get(name).and_then(serde_json::Value::as_u64).unwrap_or(0)
    }

    /// As JSON.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        let mut json = self.description.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if json.is_null() {
            json = serde_json::json!({});
        }
        if let Some(object) = json.as_object_mut() {
            object.insert("rows_published".to_owned(), self.rows_published.load(Ordering::Relaxed).into());
        }
        json
    }

    /// As families.
    pub(crate) fn families(&self) -> [Family; 3] {
        let rows = self.rows_published.load(Ordering::Relaxed);
        [
            Family::counter("gpuvitals_source_rows_total", "Rows that the queue took.", rows),
            Family::new(
                "gpuvitals_source_lost_total",
                Kind::Counter,
                "What the source could not give: bad rows of a file, values that cannot be true, readings that were late, \
                 rows that nobody took in time.",
            )
            .by("reason", LOST.map(|(reason, name)| (reason, self.number(name)))),
            Family::gauge(
                "gpuvitals_source_queue_up",
                "1 where the queue takes what the source gives.",
                self.queue().status == Status::Healthy,
            ),
        ]
    }

    fn describe(&self, description: serde_json::Value) {
        *self.description.lock().unwrap_or_else(PoisonError::into_inner) = description;
    }
}

/// Why the source ended.
#[derive(Debug)]
pub(crate) enum End {
    /// It has nothing more.
    Finished,
    /// It was told to stop.
    Stopped,
    /// It cannot go on.
    Failed(String),
}

/// Runs a source to its end on the current (blocking) thread. After `stop` it hands over what it holds, until `give_up`.
pub(crate) fn run<S: Described>(
    mut source: S,
    sink: &mut impl Sink,
    progress: &Arc<Progress>,
    runtime: &Handle,
    stop: &CancellationToken,
    give_up: &CancellationToken,
) -> End {
    let mut described_ns = 0;
    let mut told_ns = clock::now_ns();
    let end = loop {
        if stop.is_cancelled() {
            break End::Stopped;
        }
        let now_ns = clock::now_ns();
        if now_ns - described_ns > SECOND_NS {
            described_ns = now_ns;
            progress.describe(source.describe());
        }
        if now_ns - told_ns > PROGRESS_NS && !progress.is_silent {
            told_ns = now_ns;
            if let Some(line) = source.progress_line() {
                tracing::info!("{line}");
            }
        }
        match source.poll(now_ns) {
            Ok(Poll::Ready(batch)) => {
                if let Err(end) = sink.hand_over(batch, stop) {
                    break end;
                }
            }
            Ok(Poll::NotBefore(at_ns)) => {
                let wait = Duration::from_nanos(u64::try_from(at_ns - clock::now_ns()).unwrap_or(0));
                let stopped = runtime.block_on(async {
                    tokio::select! {
                        () = stop.cancelled() => true,
                        () = tokio::time::sleep(wait) => false,
                    }
                });
                if stopped {
                    break End::Stopped;
                }
            }
            Ok(Poll::End) => break End::Finished,
            Err(error) => break End::Failed(causes(&error)),
        }
    };
    if matches!(end, End::Stopped) {
        // Who takes from the queue outlives the source, so there is room soon.
        for batch in source.rest() {
            if sink.hand_over(batch, give_up).is_err() {
                break;
            }
        }
    }
    let end = match sink.finish(give_up) {
        Ok(()) => end,
        Err(_) if matches!(end, End::Failed(_)) => end,
        Err(failed) => failed,
    };
    progress.describe(source.describe());
    end
}
