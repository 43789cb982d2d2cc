//! Counts of a pipe.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gpuvitals_core::figures::{Family, Histogram, Kind};
use gpuvitals_core::{Health, Status, clock};
use serde::Serialize;

/// Counts of a source. A kind of loss that a source cannot have stays 0.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct SourceCounts {
    /// Rows read or sampled.
    pub rows: u64,
    /// Rows of a file that are none.
    pub rows_skipped: u64,
    /// Why the first of them is none.
    #[serde(skip)]
    pub first_skipped: Option<String>,
    /// Values that cannot be true.
    pub values_invalid: u64,
    /// Readings left out because the one before took too long.
    pub ticks_missed: u64,
    /// Rows that were dropped because nobody took them in time.
    pub rows_dropped: u64,
    /// Bytes read of a file, in all passes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_read: Option<u64>,
    /// Length of that file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_total: Option<u64>,
    /// Whether no row was measured.
    pub simulated: bool,
    /// GPUs that give nothing now.
    pub down: Vec<Down>,
}

/// A GPU that gives nothing now.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Down {
    /// Its key, if it is known by now.
    pub gpu: Option<String>,
    /// How it is read.
    pub driver: &'static str,
    /// Why it gives nothing.
    pub reason: String,
}

/// Counts of a pipe.
#[derive(Debug)]
pub(crate) struct Progress {
    /// Rows that the queue has.
    rows: AtomicU64,
    /// Frames they came in.
    frames: AtomicU64,
    /// Bytes of these.
    bytes: AtomicU64,
    /// Tries that the queue did not take.
    retries: AtomicU64,
    /// Rows read that were not sent.
    left: AtomicU64,
    latency: Histogram,
    /// The instant of the newest of these rows; the smallest number: there was none yet.
    newest_ns: AtomicI64,
    has_ended: AtomicBool,
    source: Mutex<SourceCounts>,
    queue: Mutex<Health>,
    reading: Mutex<Health>,
}

/// A pipe's counts at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub rows: u64,
    pub frames: u64,
    pub bytes: u64,
    pub retries: u64,
    pub left: u64,
    /// Rows of the file that are none.
    pub bad: u64,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self {
            rows: AtomicU64::new(0),
            frames: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            retries: AtomicU64::new(0),
            left: AtomicU64::new(0),
            latency: Histogram::default(),
            newest_ns: AtomicI64::new(i64::MIN),
            has_ended: AtomicBool::new(false),
            source: Mutex::default(),
            queue: Mutex::new(Health::healthy(clock::now_ns())),
            reading: Mutex::new(Health::healthy(clock::now_ns())),
        }
    }

    /// The queue has taken one more frame, after this time.
    pub(super) fn taken(&self, rows: u32, bytes: usize, took: Duration) {
        self.latency.observe(took);
        self.rows.fetch_add(rows.into(), Ordering::Relaxed);
        self.frames.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        let mut queue = lock(&self.queue);
        if queue.status != Status::Healthy {
            tracing::info!("the queue takes frames again");
            queue.observe(Status::Healthy, "", clock::now_ns());
        }
    }

    /// The queue did not take a frame, for this reason; it will be sent again. Logged once for all workers.
    pub(super) fn not_taken(&self, reason: &str) {
        self.retries.fetch_add(1, Ordering::Relaxed);
        let mut queue = lock(&self.queue);
        if queue.status == Status::Healthy {
            tracing::warn!(error = reason, "the queue does not take a frame; it is sent again until it does");
        }
        queue.observe(Status::Degraded, format!("the queue takes no rows: {reason}"), clock::now_ns());
    }

    /// The queue has rows up to this instant, nanoseconds UTC since 1970.
    pub(super) fn reached(&self, newest_ns: i64) {
        self.newest_ns.fetch_max(newest_ns, Ordering::Relaxed);
    }

    /// Rows were read and are not sent.
    pub(super) fn left(&self, rows: u64) {
        self.left.fetch_add(rows, Ordering::Relaxed);
    }

    /// How far the source is.
    pub(super) fn source_is(&self, counts: SourceCounts) {
        *lock(&self.source) = counts;
    }

    /// Nothing more comes.
    pub(super) fn ended(&self) {
        self.has_ended.store(true, Ordering::Release);
    }

    /// Whether everything that was read is published, or will never be, and nothing more comes.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    /// The instant of the newest row that the queue got, nanoseconds UTC since 1970; none: more may come, or none came.
    pub(crate) fn ended_at(&self) -> Option<i64> {
        let newest_ns = self.has_ended().then(|| self.newest_ns.load(Ordering::Relaxed));
        newest_ns.filter(|newest_ns| *newest_ns != i64::MIN)
    }

    /// Whether the queue takes rows.
    pub(crate) fn queue(&self) -> Health {
        lock(&self.queue).clone()
    }

    /// Why the last frame that was tried was not taken, if the queue has never taken one.
    pub(crate) fn never_taken(&self) -> Option<String> {
        let Health { status, reason, .. } = self.queue();
        (self.frames.load(Ordering::Relaxed) == 0 && status != Status::Healthy).then_some(reason)
    }

    /// The present counts.
    pub(crate) fn counts(&self) -> Counts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            rows: read(&self.rows),
            frames: read(&self.frames),
            bytes: read(&self.bytes),
            retries: read(&self.retries),
            left: read(&self.left),
            bad: lock(&self.source).rows_skipped,
        }
    }

    /// Why nothing came of a file that has rows, if all of them were skipped so far.
    pub(crate) fn nothing_read(&self) -> Option<String> {
        let source = lock(&self.source);
        let is_nothing = source.rows > 0 && source.rows_skipped >= source.rows;
        is_nothing.then(|| {
            let first =
                source.first_skipped.as_ref().map(|why| format!("; the first: {why}")).unwrap_or_default();
            format!("all rows of the file were skipped ({}){first}", source.rows_skipped)
        })
    }

    /// Whether rows come of the file.
    pub(crate) fn reading(&self) -> Health {
        let why = self.nothing_read();
        let status = if why.is_some() { Status::Degraded } else { Status::Healthy };
        let mut health = lock(&self.reading);
        health.observe(status, why.unwrap_or_default(), clock::now_ns());
        health.clone()
    }

    /// As far as the source is.
    pub(crate) fn source(&self) -> SourceCounts {
        lock(&self.source).clone()
    }

    /// The counts as families for `/metrics`, and how many workers publish.
    pub(crate) fn families(&self, workers: usize) -> Vec<Family> {
        let source = lock(&self.source);
        let lost = [
            ("bad_row", source.rows_skipped),
            ("invalid_value", source.values_invalid),
            ("late_reading", source.ticks_missed),
            ("dropped_row", source.rows_dropped),
            ("not_sent", self.left.load(Ordering::Relaxed)),
        ];
        vec![
            Family::counter("gpuvitals_source_rows_total", "Rows that the queue took.", &self.rows),
            Family::counter("gpuvitals_source_frames_total", "Frames that the queue took.", &self.frames),
            Family::counter("gpuvitals_source_bytes_total", "Bytes of these frames.", &self.bytes),
            Family::counter(
                "gpuvitals_source_retries_total",
                "Tries that the queue did not take.",
                &self.retries,
            ),
            Family::new(
                "gpuvitals_source_lost_total",
                Kind::Counter,
                "What the queue does not get: bad rows of a file, values that cannot be true, readings that were late, rows \
                 that nobody took in time, rows that could not be sent.",
            )
            .by("reason", lost),
            Family::gauge(
                "gpuvitals_source_queue_up",
                "1 if the queue takes the source's frames.",
                lock(&self.queue).status == Status::Healthy,
            ),
            Family::gauge("gpuvitals_source_workers", "Workers, each with a producer of its own.", workers),
            Family::histogram(
                "gpuvitals_source_publish_duration_seconds",
                "From a frame to the queue's answer, repeats among it.",
                &self.latency,
            ),
        ]
    }
}

/// A panic under a lock is a bug that ends the process elsewhere.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use gpuvitals_core::figures::render;

    use super::*;

    #[test]
    fn a_source_ends_with_its_newest_row_whatever_came_last() {
        let progress = Progress::new();
        progress.ended();
        assert_eq!(progress.ended_at(), None, "it had no row");
        let progress = Progress::new();
        for newest_ns in [20, 30, 10] {
            progress.reached(newest_ns);
        }
        assert_eq!(progress.ended_at(), None, "more may come");
        progress.ended();
        assert_eq!(progress.ended_at(), Some(30));
    }

    #[test]
    fn everything_that_the_queue_took_or_did_not_get_is_a_figure() {
        let progress = Progress::new();
        progress.taken(100, 2_000, Duration::from_millis(3));
        progress.taken(50, 1_000, Duration::from_millis(3));
        assert_eq!(progress.queue().status, Status::Healthy);
        progress.not_taken("it is away");
        assert_eq!(progress.queue().reason, "the queue takes no rows: it is away");
        assert_eq!(progress.never_taken(), None);
        progress.left(7);
        let source = SourceCounts {
            rows_skipped: 3,
            values_invalid: 4,
            ticks_missed: 5,
            rows_dropped: 6,
            ..SourceCounts::default()
        };
        progress.source_is(source);
        let counts = Counts { rows: 150, frames: 2, bytes: 3_000, retries: 1, left: 7, bad: 3 };
        assert_eq!(progress.counts(), counts);
        let text = String::from_utf8(render(&progress.families(4))).unwrap();
        for line in [
            "gpuvitals_source_rows_total 150",
            "gpuvitals_source_retries_total 1",
            "gpuvitals_source_lost_total{reason=\"bad_row\"} 3",
            "gpuvitals_source_lost_total{reason=\"invalid_value\"} 4",
            "gpuvitals_source_lost_total{reason=\"late_reading\"} 5",
            "gpuvitals_source_lost_total{reason=\"dropped_row\"} 6",
            "gpuvitals_source_lost_total{reason=\"not_sent\"} 7",
            "gpuvitals_source_queue_up 0",
            "gpuvitals_source_publish_duration_seconds_count 2",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }
}
