//! A replay is told which rows it gives, and when.

use crate::csv::{CsvError, Hints};
use crate::timeline::{Replay, ReplayPace};

/// Settings of a replay.
#[derive(Debug, Clone)]
pub struct ReplayConfig {
    /// Treatment of the recorded times.
    pub replay: Replay,
    /// Speed relative to the recording: 2 halves the time between rows.
    pub speed: f64,
    /// The pace at which rows are handed over.
    pub pace: ReplayPace,
    /// Whether the file restarts at its end.
    pub loop_file: bool,
    /// Most rows of a batch.
    pub batch_rows: usize,
    /// How long a paced batch waits for more rows, nanoseconds.
    pub batch_age_ns: i64,
    /// Whether every batch comes as messages under the file's own names too ([`CsvSource::messages`](crate::csv::CsvSource::messages)).
    pub messages: bool,
    /// What the user says about CSV files.
    pub hints: Hints,
}

impl Default for ReplayConfig {
    /// The file once, as fast as it is polled, with its own times.
    fn default() -> Self {
        Self {
            replay: Replay::Recorded,
            speed: 1.0,
            pace: ReplayPace::Unthrottled,
            loop_file: false,
            batch_rows: 500,
            batch_age_ns: 100_000_000,
            messages: false,
            hints: Hints::default(),
        }
    }
}

impl ReplayConfig {
    /// Refuses settings that make no sense.
    pub(crate) fn check(&self) -> Result<(), CsvError> {
        let positive = |name, value: f64| {
            if value.is_finite() && value > 0.0 { Ok(()) } else { Err(CsvError::Setting { name, value }) }
        };
        positive("speed", self.speed)?;
        if let ReplayPace::Rate(rate) = self.pace {
            positive("rate", rate)?;
        }
        if self.batch_rows == 0 { Err(CsvError::Setting { name: "batch rows", value: 0.0 }) } else { Ok(()) }
    }
}
