//! What services send out by themselves, as the receivers of OTLP and of remote write get it.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::float_cmp,
    clippy::cast_possible_truncation,
    clippy::disallowed_methods,
    reason = "a test fails by panicking; what is compared went through no arithmetic"
)]

mod otlp;
mod remote_write;
