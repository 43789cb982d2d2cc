//! Contents of a scrape, and contents it must never have.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
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
mod reader;
mod scrape;
