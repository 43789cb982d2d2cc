//! What a service says of itself, sent to receivers that are no part of gpuvitals: metrics by OTLP and by Prometheus remote
//! write, and spans by OTLP.
//!
//! Both protocols are one loop (`sending`), one queue in memory (`waiting`) and one set of counts. A protocol is a `Receiver`: it
//! writes families as requests, and says what an answer means.
//!
//! The HTTP client comes from the program, which knows how certificates are checked.

mod counts;
mod families;
pub mod otlp;
mod receiver;
pub mod remote_write;
mod sending;
mod verdict;
mod waiting;

pub use families::{FamilyParts, ReadFamilies};
