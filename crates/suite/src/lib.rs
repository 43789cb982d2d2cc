//! One suite for every [`Sink`](gpuvitals_core::ports::Sink) and [`History`](gpuvitals_core::history::History): the same rows in any order, with repeats, and the same questions must have
//! the answers of the plainest model there is: a map of joined rows, looked at one by one.
//!
//! Only tests use this crate. A back end takes [`cases`] in a property test and has each [write](Case::write) and
//! [ask](Case::ask); what differs panics, and the property test makes the case small.
//! [`write_in_any_order`] and [`check_later_stays`] are about the table of which the later version of a row stays.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "what fails here fails a test"
)]

mod ahead;
mod ask;
mod cases;
pub mod clusters;
mod later;
mod model;
mod rows;

pub use ahead::{AHEAD_AT_MOST_NS, check_row_due, check_rows_ahead};
pub use ask::{check_buckets, check_fleet, check_fleet_as_of, check_pages, check_rows, check_values};
pub use cases::{Case, Write, cases};
pub use later::{check_later_stays, write_in_any_order};
pub use model::Model;
pub use rows::{BASE_NS, Cells, TestRow, answer, batch};
