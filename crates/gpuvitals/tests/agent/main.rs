//! `gpuvitals agent` as a node runs it: the real binary, scraped over real sockets.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    clippy::float_cmp,
    reason = "a test fails by panicking"
)]

mod access;
mod authority;
mod hanging;
mod node;
mod owners;
mod process;
mod prometheus;
mod publishing;
mod queue;
mod reload;
mod scraping;
