//! NVML through an imitation that is loaded as the real library is: every value crosses the foreign
//! interface.

mod faults;
mod processes;
mod stub;
mod values;
