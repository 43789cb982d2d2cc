//! The list joins the rows of all parts into one.

use super::metric::{Metric, MetricId};
use super::{gpu, host};

/// Every metric, GPU columns first; the position is the [`MetricId`] and the order of columns in files.
pub static METRICS: &[Metric] = &JOINED;

#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler, which would refuse to build")]
const LENGTH: usize = {
    let mut length = host::ROWS.len();
    let mut part = 0;
    while part < gpu::PARTS.len() {
        length += gpu::PARTS[part].len();
        part += 1;
    }
    length
};

#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler, which would refuse to build")]
static JOINED: [Metric; LENGTH] = {
    let mut joined = [host::ROWS[0]; LENGTH];
    let mut at = 0;
    let mut part = 0;
    while part <= gpu::PARTS.len() {
        let rows = if part < gpu::PARTS.len() { gpu::PARTS[part] } else { host::ROWS };
        let mut row = 0;
        while row < rows.len() {
            joined[at] = rows[row];
            at += 1;
            row += 1;
        }
        part += 1;
    }
    joined
};

impl MetricId {
    /// The metric of a column, found at compile time: a misspelt name does not build.
    ///
    /// # Panics
    /// If no metric has the column.
    #[expect(
        clippy::indexing_slicing,
        clippy::cast_possible_truncation,
        clippy::panic,
        reason = "evaluated by the compiler, which would refuse to build"
    )]
    pub const fn of(column: &str) -> Self {
        let mut at = 0;
        while at < JOINED.len() {
            if same(JOINED[at].column.as_bytes(), column.as_bytes()) {
                return Self(at as u16);
            }
            at += 1;
        }
        panic!("no metric has this column")
    }

    /// The catalogue row of this id.
    #[expect(
        clippy::indexing_slicing,
        reason = "ids are handed out by this catalogue and lie within the table"
    )]
    pub fn metric(self) -> &'static Metric {
        &METRICS[usize::from(self.0)]
    }
}

#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler, within the lengths compared first")]
const fn same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut at = 0;
    while at < a.len() {
        if a[at] != b[at] {
            return false;
        }
        at += 1;
    }
    true
}
