//! NVML through an imitation that is loaded as the real library is: every value crosses the foreign
//! interface.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

#[path = "../rig/details.rs"]
mod details;
mod faults;
mod processes;
mod stub;
mod values;
