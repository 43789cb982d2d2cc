//! Locking clocks for measurements, and giving them back.
