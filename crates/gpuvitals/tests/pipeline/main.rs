//! The whole program as a user runs it: files in, JSON out, kills and full disks in between.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod backup;
mod bad_input;
mod capture;
mod cases;
mod disk;
mod export;
mod import;
mod lines;
mod live;
mod machine;
mod recording;
mod replay;
mod restore;
mod server;
