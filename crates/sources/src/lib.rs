//! Where rows come from: recorded files and the simulated fleet.

pub mod csv;
pub mod simulated;
