//! Clocks of both vendors through the public face: captured trees, and an imitation of NVIDIA's library.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod amd;
mod nvidia;
