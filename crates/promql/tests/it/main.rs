//! PromQL over a store, beside a real Prometheus with the same samples.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "what fails here fails its test")]
#![expect(clippy::cast_precision_loss, clippy::float_cmp, reason = "numbers of a test")]

mod prometheus;
mod queries;
mod reading;
mod world;
