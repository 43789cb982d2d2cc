//! `gpuvitals agent` as a node runs it: the real binary, scraped over real sockets.
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
#[path = "../rig/authority.rs"]
mod authority;
mod dashboards;
mod dcgm_dashboards;
#[path = "../rig/ended.rs"]
mod ended;
mod faults;
#[path = "../../../sources/tests/faulty/faulty_sysfs.rs"]
mod faulty_sysfs;
mod hanging;
#[path = "../rig/library.rs"]
mod library;
mod node;
mod owners;
#[path = "../rig/port.rs"]
mod port;
mod process;
mod profiles;
#[path = "../rig/program.rs"]
mod program;
mod prometheus;
mod publishing;
mod queue;
mod reload;
mod scraping;
#[path = "../rig/waiting.rs"]
mod waiting;
