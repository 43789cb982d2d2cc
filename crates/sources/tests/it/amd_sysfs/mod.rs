//! AMD GPUs by files of sysfs, on captured machines and on machines built from the kernel's layouts.

mod captures;
mod differences;
mod instinct;
mod machines;
mod peers;
mod steady;
mod trouble;
