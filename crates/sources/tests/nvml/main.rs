//! NVML through an imitation that is loaded as the real library is: every value crosses the foreign
//! interface.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod clocks;
mod faults;
mod processes;
mod stub;
mod values;
