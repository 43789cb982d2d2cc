//! The progress line of a stream.

use std::io::{IsTerminal, stderr};
use std::time::Duration;

use crate::pipe::Counts;
use crate::terminal;

/// Between two looks.
pub(super) const LOOK_PAUSE: Duration = Duration::from_millis(500);
/// Checks between two lines if the line cannot be redrawn.
const LOOKS_PER_LINE: u32 = 10;

/// Shows progress: one line redrawn on a terminal, else a log line every five seconds.
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

    /// Shows it when due; `elapsed` is since the start.
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

/// The rate, in whole ones a second.
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
    use super::*;

    #[test]
    fn the_line_tells_rows_rate_frames_retries_and_bad_rows() {
        let counts = Counts { rows: 150, frames: 2, bytes: 3_000, retries: 1, left: 7, bad: 3 };
        let mut line = Line { in_place: true, looks: 0, before: (Duration::from_secs(1), 100) };
        assert_eq!(
            text(counts, line.rate(counts, Duration::from_millis(1_500))),
            "150 rows, 100 rows/s, 2 frames, 1 retries, 3 bad rows"
        );
    }
}
