//! The gateway: it gives the same answers in one process and over several, and names the services that are away.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod access;
mod answers;
mod attacks;
#[path = "../rig/authority.rs"]
mod authority;
mod clusters;
mod database;
#[expect(dead_code, reason = "the tests of the clusters use the rest")]
#[path = "../../../clusters/examples/cluster_double/double/mod.rs"]
mod double;
#[path = "../rig/ended.rs"]
mod ended;
mod names;
mod pieces;
#[path = "../rig/port.rs"]
mod port;
#[path = "../../../postgres/tests/it/server.rs"]
mod postgres;
#[path = "../rig/program.rs"]
mod program;
mod site;
#[path = "../rig/waiting.rs"]
mod waiting;
mod wire;
