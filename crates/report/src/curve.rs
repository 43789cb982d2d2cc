//! A metric of one GPU or host over time, in buckets.
//!
//! A bucket keeps the smallest, the largest and the mean value of its time, so that no peak is lost.

use std::ops::Range;

use gpuvitals_core::integral::seconds;

/// A metric in the time of one bucket.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CurveBucket {
    /// Its place in time: this many widths after 1970.
    pub(crate) index: i64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    sum: f64,
    count: f64,
    /// Whether nothing is known of the time before it.
    is_after_gap: bool,
}

impl CurveBucket {
    fn of(index: i64, value: f64, is_after_gap: bool) -> Self {
        Self { index, low: value, high: value, sum: value, count: 1.0, is_after_gap }
    }

    pub(crate) fn mean(&self) -> f64 {
        self.sum / self.count
    }

    fn merge(&mut self, later: &Self) {
        self.low = self.low.min(later.low);
        self.high = self.high.max(later.high);
        self.sum += later.sum;
        self.count += later.count;
    }
}

/// A metric of one GPU or host over time.
#[derive(Debug, Default)]
pub(crate) struct Curve {
    buckets: Vec<CurveBucket>,
    is_lost: bool,
}

impl Curve {
    pub(crate) fn add(&mut self, index: i64, value: f64) {
        let new = CurveBucket::of(index, value, std::mem::take(&mut self.is_lost));
        match self.buckets.last_mut() {
            // A row that comes late counts where the others are.
            Some(last) if last.index >= index => last.merge(&new),
            _ => self.buckets.push(new),
        }
    }

    /// Nothing is known from the last value to the next one.
    pub(crate) fn lose(&mut self) {
        self.is_lost = true;
    }

    /// Makes the buckets twice as wide.
    pub(crate) fn fold(&mut self) {
        for bucket in &mut self.buckets {
            bucket.index = bucket.index.div_euclid(2);
        }
        self.buckets.dedup_by(|later, kept| {
            let is_same = later.index == kept.index;
            if is_same {
                kept.merge(later);
            }
            is_same
        });
    }

    pub(crate) fn buckets(&self) -> &[CurveBucket] {
        &self.buckets
    }

    /// Mean of the values in a part of the time; none without one.
    pub(crate) fn mean_within(&self, grid: CurveGrid, part: &Range<f64>) -> Option<f64> {
        let within = self.buckets.iter().filter(|bucket| part.contains(&grid.middle_s(bucket.index)));
        let (sum, count) =
            within.fold((0.0, 0.0), |(sum, count), bucket| (sum + bucket.sum, count + bucket.count));
        (count > 0.0).then(|| sum / count)
    }
}

/// Where the buckets of all curves are in time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CurveGrid {
    /// When the first and the last row were read, nanoseconds UTC.
    span: (i64, i64),
    width_ns: i64,
    gap_ns: i64,
}

impl CurveGrid {
    /// Of rows from one instant to another, in buckets of this width; lines break where rows are further apart than a gap.
    pub(crate) fn new(span: (i64, i64), width_ns: i64, gap_ns: i64) -> Self {
        Self { span, width_ns, gap_ns }
    }

    /// Time from the first row to the last, seconds.
    pub(crate) fn span_s(self) -> f64 {
        seconds(self.span.1.saturating_sub(self.span.0))
    }

    /// Where an instant is, seconds after the first row.
    pub(crate) fn at_s(self, time_ns: i64) -> f64 {
        seconds(time_ns.saturating_sub(self.span.0))
    }

    /// When the first row was read, nanoseconds UTC.
    pub(crate) fn first_ns(self) -> i64 {
        self.span.0
    }

    /// When the last row was read.
    pub(crate) fn last_ns(self) -> i64 {
        self.span.1
    }

    /// Where a bucket begins, seconds after the first row.
    pub(crate) fn start_s(self, index: i64) -> f64 {
        self.at_s(index.saturating_mul(self.width_ns)).clamp(0.0, self.span_s())
    }

    /// Where the middle of a bucket is.
    pub(crate) fn middle_s(self, index: i64) -> f64 {
        self.at_s(index.saturating_mul(self.width_ns).saturating_add(self.width_ns / 2))
            .clamp(0.0, self.span_s())
    }

    /// Whether nothing is known of the time between two buckets that follow each other.
    pub(crate) fn is_gap(self, before: &CurveBucket, after: &CurveBucket) -> bool {
        let between = (after.index - before.index - 1).saturating_mul(self.width_ns);
        after.is_after_gap || between > self.gap_ns
    }

    /// The buckets between two gaps, again and again.
    pub(crate) fn pieces(self, buckets: &[CurveBucket]) -> impl Iterator<Item = &[CurveBucket]> {
        buckets.chunk_by(move |before, after| !self.is_gap(before, after))
    }
}
