//! How the sampling loops wait.

use std::time::Duration;

use rustix::thread::ClockId;
use rustix::time::Timespec;

/// Sleeps until an instant of the monotonic clock.
pub(crate) fn sleep_until(mono_ns: i64) {
    let request = Timespec { tv_sec: mono_ns / 1_000_000_000, tv_nsec: mono_ns % 1_000_000_000 };
    // Repeated if a signal interrupts it; any other error would be a wrong argument, and not waiting is right
    // then.
    while rustix::thread::clock_nanosleep_absolute(ClockId::Monotonic, &request)
        == Err(rustix::io::Errno::INTR)
    {}
}

/// A duration in nanoseconds, at most some 292 years.
pub(crate) fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}
