//! The broker's promises, one story each. Times are milliseconds.

mod beside_log;
mod bounds;
mod kinds;
mod leases;
mod story;
