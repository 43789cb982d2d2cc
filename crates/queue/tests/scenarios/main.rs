//! The broker's promises, one story each. Times are milliseconds.

mod bounds;
mod leases;
mod story;
