//! Contents of a scrape, contents it must never have, and what watches them.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::float_cmp,
    reason = "a test fails by panicking"
)]

mod dialects;
mod document;
mod energy;
mod fleet;
mod golden;
mod hostile;
mod jobs;
mod monitoring;
mod reader;
mod scrape;
