//! Devices that fail while they are read, through an imitation of `/sys` that has faults by rule. Skipped,
//! with a line on standard error, if the machine has no FUSE.

mod amd;
mod rules;
