//! What was sent so far, and the line that tells it.

use std::io::{IsTerminal, stderr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gpuvitals_core::clock;
use gpuvitals_core::figures::{Family, Histogram, Kind, Labels};
use gpuvitals_core::{Health, Status};

use crate::terminal;

/// Between two looks.
pub(super) const LOOK_PAUSE: Duration = Duration::from_millis(500);
/// Looks between two lines where no line can be redrawn.
const LOOKS_PER_LINE: u32 = 10;

/// What was sent so far.
#[derive(Debug, Default)]
pub(super) struct Progress {
    rows: AtomicU64,
    frames: AtomicU64,
    bytes: AtomicU64,
    retries: AtomicU64,
    left: AtomicU64,
    latency: Histogram,
    /// Why the last frame that was tried was not taken; empty: it was.
    trouble: Mutex<String>,
}

/// Counts at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Rows that the queue has.
    pub rows: u64,
    /// Frames they came in.
    pub frames: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Tries that the queue did not take.
    pub retries: u64,
    /// Rows read that were not sent.
    pub left: u64,
    /// Rows of the file that are none.
    pub bad: u64,
}

impl Progress {
    /// The queue has one more frame, after so long.
    pub(super) fn taken(&self, rows: u32, bytes: usize, took: Duration) {
        if !std::mem::take(&mut *self.trouble()).is_empty() {
            tracing::info!("the queue takes frames again");
        }
        self.latency.observe(took);
        self.rows.fetch_add(rows.into(), Ordering::Relaxed);
        self.frames.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// The queue did not take a frame, for this reason; it will be sent again.
    pub(super) fn not_taken(&self, reason: String) {
        self.retries.fetch_add(1, Ordering::Relaxed);
        let mut trouble = self.trouble();
        if trouble.is_empty() {
            // Once for all workers.
            tracing::warn!(error = reason, "the queue does not take a frame; it is sent again until it does");
        }
        *trouble = reason;
    }

    fn trouble(&self) -> MutexGuard<'_, String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the queue takes rows.
    pub(super) fn health(&self) -> Health {
        let mut health = Health::healthy(clock::now_ns());
        let trouble = self.trouble();
        if !trouble.is_empty() {
            health.observe(Status::Degraded, format!("the queue takes no rows: {trouble}"), clock::now_ns());
        }
        health
    }

    /// Why the last frame that was tried was not taken, if the queue has never taken one.
    pub(super) fn never_taken(&self) -> Option<String> {
        let trouble = self.trouble();
        (self.frames.load(Ordering::Relaxed) == 0 && !trouble.is_empty()).then(|| trouble.clone())
    }

    /// Rows were read and are not sent.
    pub(super) fn left(&self, rows: u32) {
        self.left.fetch_add(rows.into(), Ordering::Relaxed);
    }

    /// As it stands; `bad` is the reader's count.
    pub(super) fn counts(&self, bad: u64) -> Counts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            rows: read(&self.rows),
            frames: read(&self.frames),
            bytes: read(&self.bytes),
            retries: read(&self.retries),
            left: read(&self.left),
            bad,
        }
    }

    /// As families; `bad` is the reader's count.
    pub(super) fn families(&self, bad: u64, workers: usize) -> Vec<Family> {
        let Counts { rows, frames, bytes, retries, left, bad } = self.counts(bad);
        vec![
            Family::counter("gpuvitals_stream_rows_total", "Rows that the queue took.", rows),
            Family::counter("gpuvitals_stream_frames_total", "Frames that the queue took.", frames),
            Family::counter("gpuvitals_stream_bytes_total", "Bytes of these frames.", bytes),
            Family::counter("gpuvitals_stream_retries_total", "Tries that the queue did not take.", retries),
            Family::new(
                "gpuvitals_stream_lost_rows_total",
                Kind::Counter,
                "Rows of the file that the queue does not get: they are none, or could not be sent.",
            )
            .by("reason", [("bad_row", bad), ("not_sent", left)]),
            Family::gauge(
                "gpuvitals_stream_workers",
                "Workers, each with a connection to the queue.",
                workers,
            ),
            Family::new(
                "gpuvitals_stream_publish_duration_seconds",
                Kind::Histogram,
                "From a frame to the queue's answer, repeats among it.",
            )
            .with(Labels::new(), self.latency.read()),
        ]
    }
}

/// Tells progress: one line redrawn on a terminal, else a log line every five seconds.
#[derive(Debug)]
pub(super) struct Line {
    in_place: bool,
    looks: u32,
    before: (Duration, u64),
}

impl Line {
    /// For standard error as it is.
    pub(super) fn new() -> Self {
        Self { in_place: stderr().is_terminal(), looks: 0, before: (Duration::ZERO, 0) }
    }

    /// Tells it when it is time to; `elapsed` is since the start.
    pub(super) fn draw(&mut self, counts: Counts, elapsed: Duration) {
        self.looks += 1;
        if self.in_place {
            terminal::draw(&text(counts, self.rate(counts, elapsed)));
        } else if self.looks.is_multiple_of(LOOKS_PER_LINE) {
            let rows_s = self.rate(counts, elapsed);
            let Counts { rows, frames, retries, bad, .. } = counts;
            tracing::info!(rows, rows_s, frames, retries, bad_rows = bad, "streaming");
        }
    }

    /// Rows a second since the last line.
    fn rate(&mut self, counts: Counts, elapsed: Duration) -> u64 {
        let (since, rows) = std::mem::replace(&mut self.before, (elapsed, counts.rows));
        per_second(counts.rows.saturating_sub(rows), elapsed.saturating_sub(since))
    }
}

/// So many in that time, as whole ones a second.
pub(super) fn per_second(count: u64, time: Duration) -> u64 {
    let thousandths = u128::from(count) * 1_000;
    u64::try_from(thousandths / time.as_millis().max(1)).unwrap_or(u64::MAX)
}

fn text(counts: Counts, rows_s: u64) -> String {
    let Counts { rows, frames, retries, bad, .. } = counts;
    format!("{rows} rows, {rows_s} rows/s, {frames} frames, {retries} retries, {bad} bad rows")
}

#[cfg(test)]
mod tests {
    use gpuvitals_core::figures::render;

    use super::*;

    #[test]
    fn the_line_tells_rows_rate_frames_retries_and_bad_rows() {
        let progress = Progress::default();
        progress.taken(100, 2_000, Duration::from_millis(3));
        progress.taken(50, 1_000, Duration::from_millis(3));
        assert_eq!(progress.health().status, Status::Healthy);
        progress.not_taken("it is away".to_owned());
        assert_eq!(progress.health().reason, "the queue takes no rows: it is away");
        progress.left(7);
        let counts = progress.counts(3);
        assert_eq!(counts, Counts { rows: 150, frames: 2, bytes: 3_000, retries: 1, left: 7, bad: 3 });
        let mut line = Line { in_place: true, looks: 0, before: (Duration::from_secs(1), 100) };
        assert_eq!(
            text(counts, line.rate(counts, Duration::from_millis(1_500))),
            "150 rows, 100 rows/s, 2 frames, 1 retries, 3 bad rows"
        );
        let text = String::from_utf8(render(&progress.families(3, 4))).unwrap();
        for line in [
            "gpuvitals_stream_rows_total 150",
            "gpuvitals_stream_retries_total 1",
            "gpuvitals_stream_lost_rows_total{reason=\"bad_row\"} 3",
            "gpuvitals_stream_lost_rows_total{reason=\"not_sent\"} 7",
            "gpuvitals_stream_publish_duration_seconds_count 2",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }
}
