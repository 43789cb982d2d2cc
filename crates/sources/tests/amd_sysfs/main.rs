//! AMD GPUs by files of sysfs, on captured machines and on machines built from the kernel's layouts.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod captures;
mod differences;
mod machines;
mod peers;
