//! The sources of a pipe, and their counts.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gpuvitals_analysis::outgoing::Outgoing;
use gpuvitals_core::feed::Feed;
use gpuvitals_core::ports::{Poll, Source};
use gpuvitals_core::usage::Sharing;
use gpuvitals_core::{Batch, causes, clock};
use gpuvitals_inputs::replay::{Replay, ReplayConfig, ReplayPace, ReplaySource};
use gpuvitals_inputs::simulated::Simulated;
use gpuvitals_record::verify_recording;
use gpuvitals_sources::sampler::{Liveness, Sampler, TargetState, WorkerStats};

use super::progress::{Down, SourceCounts};
use super::terms::{Counted, Times};
use crate::failure::{Exit, Failure};
use crate::files::is_endless;

/// How long the workers of a sampler may take to end; one that waits for a sick device is left.
const STOP_PATIENCE: Duration = Duration::from_millis(500);

/// Opens recorded rows that carry `times`. Unless the configuration sets a rate, rows with times of now come at the
/// recording's own pace.
///
/// # Errors
/// If a file cannot be read, is a recording's and has changed since it was written, or has no rows of ours.
pub(crate) fn open_replay(
    paths: &[String],
    times: Times,
    config: ReplayConfig,
) -> Result<ReplaySource, Failure> {
    let replay = if times == Times::Now { Replay::Shifted } else { Replay::Recorded };
    let pace = match config.pace {
        ReplayPace::Unthrottled if times == Times::Now => ReplayPace::Recorded,
        pace => pace,
    };
    let config = ReplayConfig { replay, pace, ..config };
    let paths: Vec<PathBuf> = paths.iter().map(PathBuf::from).collect();
    for path in paths.iter().filter(|path| is_endless(path).is_some()) {
        tracing::info!(file = %path.display(), "this is a named pipe: waiting until somebody writes into it");
    }
    for path in &paths {
        verify_recording(path).map_err(|error| Failure::of_recording("replay", error))?;
    }
    let source = ReplaySource::open_all(&paths, config, clock::now_ns()).map_err(|error| {
        let exit = error.io().map_or(Exit::Data, Exit::of);
        Failure::new(exit, format!("cannot replay {}", causes(&error)))
    })?;
    for csv in source.csv_files() {
        for text in csv.warnings() {
            tracing::warn!(file = csv.file(), "{text}");
        }
        for text in csv.notes() {
            tracing::info!(file = csv.file(), "{text}");
        }
    }
    Ok(source)
}

impl Counted for ReplaySource {
    fn counts(&mut self) -> SourceCounts {
        for report in self.drain_reports() {
            tracing::warn!(
                file = %report.file, line = report.line, column = report.column.as_deref(), cause = report.cause.as_str(),
                "{}", report.reason
            );
        }
        let counts = Self::counts(self);
        SourceCounts {
            rows: counts.rows_read,
            rows_skipped: counts.rows_skipped(),
            values_invalid: counts.values_invalid,
            bytes_read: Some(counts.bytes_read),
            bytes_total: counts.bytes_total,
            first_skipped: counts.first_skipped,
            ..SourceCounts::default()
        }
    }

    fn messages(&mut self) -> Option<Vec<serde_json::Value>> {
        Self::messages(self)
    }
}

impl Counted for Simulated {
    fn counts(&mut self) -> SourceCounts {
        SourceCounts {
            rows: self.rows(),
            ticks_missed: self.skipped_ticks(),
            simulated: true,
            ..SourceCounts::default()
        }
    }
}

impl Counted for Feed {
    fn counts(&mut self) -> SourceCounts {
        let counts = Self::counts(self);
        SourceCounts { rows: counts.rows(), rows_dropped: counts.rows_dropped(), ..SourceCounts::default() }
    }

    fn rest(&mut self) -> Vec<Batch> {
        Self::rest(self)
    }
}

/// Rows that were read from GPUs and hosts, with the rows that are made from theirs.
#[derive(Debug)]
pub(crate) struct Sampled<S> {
    source: S,
    outgoing: Outgoing,
    /// Batches that come next.
    ready: VecDeque<Batch>,
}

impl<S> Sampled<S> {
    /// Over rows that were read elsewhere.
    pub(crate) fn new(source: S) -> Self {
        Self { source, outgoing: Outgoing::default(), ready: VecDeque::new() }
    }

    /// Over a running sampler: what the holders of its GPUs use is added up.
    pub(crate) fn accounting(source: S, sharing: Arc<dyn Sharing>) -> Self {
        Self { outgoing: Outgoing::accounting(sharing), ..Self::new(source) }
    }
}

impl<S: Source> Source for Sampled<S> {
    type Error = S::Error;

    fn poll(&mut self, now_ns: i64) -> Result<Poll, Self::Error> {
        if self.ready.is_empty() {
            match self.source.poll(now_ns)? {
                Poll::Ready(batch) => self.ready.extend(self.outgoing.take(batch)),
                // What is told once is no news at the next poll.
                Poll::End => return Ok(self.outgoing.finish().map_or(Poll::End, Poll::Ready)),
                other @ Poll::NotBefore(_) => return Ok(other),
            }
        }
        // A batch may hold nothing that is news.
        Ok(self.ready.pop_front().map_or(Poll::NotBefore(now_ns), Poll::Ready))
    }
}

impl<S: Counted> Counted for Sampled<S> {
    fn counts(&mut self) -> SourceCounts {
        self.source.counts()
    }

    fn rest(&mut self) -> Vec<Batch> {
        let mut rest: Vec<Batch> = self.ready.drain(..).collect();
        for batch in self.source.rest() {
            rest.extend(self.outgoing.take(batch));
        }
        rest.extend(self.outgoing.finish());
        rest
    }
}

impl Counted for Sampler {
    fn counts(&mut self) -> SourceCounts {
        let stats = self.stats();
        let total = |count: fn(&WorkerStats) -> u64| stats.iter().map(count).sum::<u64>();
        SourceCounts {
            rows: total(|s| s.rows),
            values_invalid: total(|s| s.invalid),
            ticks_missed: total(|s| s.ticks_missed),
            rows_dropped: Self::rows_dropped(self),
            down: self.states().into_iter().filter_map(down).collect(),
            ..SourceCounts::default()
        }
    }

    fn rest(&mut self) -> Vec<Batch> {
        for state in self.stop(STOP_PATIENCE) {
            tracing::warn!(gpu = state.identity.key().as_deref(), "left while it waits for its device");
        }
        std::iter::from_fn(|| self.next(Duration::ZERO)).collect()
    }
}

fn down(state: TargetState) -> Option<Down> {
    let reason = match state.liveness {
        Liveness::Starting | Liveness::Up => return None,
        Liveness::Down { detail, .. } => detail,
        Liveness::Stuck { for_ns } => format!("no answer for {} s", for_ns / 1_000_000_000),
    };
    let gpu = state.identity.key().map(|key| key.to_string());
    Some(Down { gpu, driver: state.driver.as_str(), reason })
}
