//! What holders used in a range of time, by the rows of `gpu_usage`.

mod answer;
mod by_rows;
mod days;
mod reading;
mod totals;

pub use answer::{
    HOLDING_GROUPS, HOLDINGS_MAX, HOLDINGS_TRAIL_NS, Holding, HoldingGroup, HoldingSums, HoldingsAnswer,
    HoldingsQuery, RankedGroup,
};
pub use days::DayRows;
pub use totals::Holdings;

#[cfg(test)]
mod tests;
