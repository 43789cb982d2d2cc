//! `gpuvitals agent` as a node runs it: the real binary, scraped over real sockets.
//!
//! Tests begin in the order of their names. Those that wait longest have names that come soon, so that others run meanwhile.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::float_cmp,
    reason = "a test fails by panicking"
)]

mod access;
mod all_of_a_job;
mod dashboards;
mod dcgm_dashboards;
mod faults;
mod flight;
mod hanging;
mod hooks;
mod many_nodes;
mod node;
mod owners;
mod process;
mod profiles;
mod prometheus;
mod publishing;
mod queue;
mod reload;
mod scraping;
