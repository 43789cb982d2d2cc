//! Figures of samples over windows on the grid of the wall clock.
//!
//! All windows of one length begin at the same instants everywhere (multiples of the length since 1970), so
//! the figures of different GPUs and nodes cover the same time.

use gpuvitals_core::number::float;
use gpuvitals_core::sketch::Sketch;

/// Figures of one quantity over one window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WindowSummary {
    /// Samples that have a value.
    pub count: u64,
    /// Smallest sample of the window.
    pub min: f64,
    /// Largest sample of the window.
    pub max: f64,
    /// Mean of the samples, each counting once however long its value lasted.
    pub mean: f64,
    /// Value that 99 of 100 samples do not exceed, within 1 % of it, never outside `min` and `max`.
    pub p99: f64,
}

/// Figures of an open window.
#[derive(Debug, Clone, Default)]
pub struct Stats {
    sum: f64,
    min: f64,
    max: f64,
    sketch: Sketch,
}

impl Stats {
    /// Takes a sample; a number that is not finite is left out.
    pub fn add(&mut self, value: f64) {
        if !value.is_finite() {
            return;
        }
        let first = self.sketch.count() == 0;
        self.min = if first { value } else { self.min.min(value) };
        self.max = if first { value } else { self.max.max(value) };
        self.sum += value;
        self.sketch.add(value);
    }

    /// The figures, if there was a sample.
    pub fn summary(&self) -> Option<WindowSummary> {
        let count = self.sketch.count();
        let p99 = self.sketch.quantile(0.99)?.clamp(self.min, self.max);
        Some(WindowSummary { count, min: self.min, max: self.max, mean: self.sum / float(count), p99 })
    }

    /// Forgets all samples and keeps the memory.
    pub fn clear(&mut self) {
        self.sum = 0.0;
        self.sketch.clear();
    }
}

/// The windows of several quantities (channels) that are sampled together: the open one and the last complete one.
#[derive(Debug, Clone)]
pub struct Windows {
    length_ns: i64,
    open: Option<OpenWindow>,
    channels: Vec<Stats>,
    closed_end_ns: Option<i64>,
    closed: Vec<Option<WindowSummary>>,
    late: u64,
}

#[derive(Debug, Clone, Copy)]
struct OpenWindow {
    start_ns: i64,
    /// Whether it was observed from its beginning on: from its first instant, or from the window before.
    whole: bool,
}

impl Windows {
    /// Windows of this length (1 ns at least) for `channels` channels.
    pub fn new(length_ns: i64, channels: usize) -> Self {
        Self {
            length_ns: length_ns.max(1),
            open: None,
            channels: vec![Stats::default(); channels],
            closed_end_ns: None,
            closed: vec![None; channels],
            late: 0,
        }
    }

    /// Moves to the window of this instant, before its samples are pushed; an earlier one is complete with
    /// it. False means that they come too late: their window is closed, and they must be left out. An instant
    /// more than a window back is a wall clock that was set back: then the windows start anew.
    pub fn enter(&mut self, timestamp_ns: i64) -> bool {
        let start_ns = timestamp_ns.div_euclid(self.length_ns).saturating_mul(self.length_ns);
        if let Some(open) = self.open
            && open.start_ns == start_ns
        {
            return true;
        }
        let reached_ns = self.open.map(|open| open.start_ns).or(self.closed_end_ns);
        if let Some(reached_ns) = reached_ns
            && start_ns < reached_ns
        {
            if reached_ns.saturating_sub(start_ns) <= self.length_ns {
                self.late += 1;
                return false;
            }
            self.restart();
        }
        self.close();
        let whole = timestamp_ns == start_ns || self.closed_end_ns == Some(start_ns);
        self.open = Some(OpenWindow { start_ns, whole });
        true
    }

    /// A sample of a channel at the instant that was entered last.
    pub fn push(&mut self, channel: usize, value: f64) {
        if let Some(stats) = self.channels.get_mut(channel) {
            stats.add(value);
        }
    }

    /// Closes the open window if it ended by this instant, when no later sample does.
    pub fn close_by(&mut self, timestamp_ns: i64) {
        if self.open.is_some_and(|open| open.start_ns.saturating_add(self.length_ns) <= timestamp_ns) {
            self.close();
        }
    }

    /// End of the last complete window; none before the first. A window that was entered after its beginning,
    /// with nothing in the window before, is not complete.
    pub fn end_ns(&self) -> Option<i64> {
        self.closed_end_ns.filter(|_| self.closed.iter().any(Option::is_some))
    }

    /// Figures of a channel over the last complete window.
    pub fn summary(&self, channel: usize) -> Option<WindowSummary> {
        self.closed.get(channel).copied().flatten()
    }

    /// Instants that came too late to be counted in their window.
    pub fn late(&self) -> u64 {
        self.late
    }

    fn close(&mut self) {
        let Some(open) = self.open.take() else { return };
        for (closed, stats) in self.closed.iter_mut().zip(&mut self.channels) {
            *closed = stats.summary().filter(|_| open.whole);
            stats.clear();
        }
        self.closed_end_ns = Some(open.start_ns.saturating_add(self.length_ns));
    }

    fn restart(&mut self) {
        self.open = None;
        self.closed_end_ns = None;
        self.closed.fill(None);
        self.channels.iter_mut().for_each(Stats::clear);
    }
}
