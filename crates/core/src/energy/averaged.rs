//! Whether the power of a part is an average: some parts have nothing else, and give it as a sample as well.

/// The samples of power of a part beside its averages.
#[derive(Debug, Clone, Copy, Default)]
pub struct SamplesBeside {
    last_w: Option<f64>,
    /// Samples that were new, and equal to the average beside them, or not.
    equal: u32,
    other: u32,
}

impl SamplesBeside {
    /// The sample and the average of one row, watts. One that stays says nothing: at rest both may be the same.
    pub fn take(&mut self, sample_w: f64, average_w: f64) {
        let is_same = |one: f64, other: f64| one.total_cmp(&other).is_eq();
        if self.last_w.replace(sample_w).is_some_and(|last_w| is_same(last_w, sample_w)) {
            return;
        }
        let count = if is_same(sample_w, average_w) { &mut self.equal } else { &mut self.other };
        *count = count.saturating_add(1);
    }

    /// Whether the samples are the averages. They are read one after the other, so a new one may come between in a few rows.
    pub fn are_averages(self) -> bool {
        self.equal > self.other
    }
}
