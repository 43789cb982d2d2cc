//! What the tests of several crates share: real processes, waits that end, how many rounds are enough, and doubles of what is around
//! gpuvitals.
//!
//! It knows no other crate. So a change of it builds only tests again, and a test of any crate may use it.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

pub mod authority;
pub mod cluster;
pub mod faulty_sysfs;
pub mod kubelet;
pub mod library;
pub mod link;
pub mod port;
pub mod postgres;
pub mod program;
pub mod rounds;
pub mod small_disk;
pub mod tree;
pub mod waiting;
