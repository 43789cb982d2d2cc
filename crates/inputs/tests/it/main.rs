//! The inputs through their public face: files that are understood and replayed, and the simulated fleet.

mod csv;
mod replay;
mod simulated;
