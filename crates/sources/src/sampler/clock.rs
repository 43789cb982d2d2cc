//! The clock of the sampling loops.

use std::time::Duration;

use rustix::thread::ClockId;
use rustix::time::Timespec;

/// One instant on both clocks, nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// UTC since 1970; may step.
    pub wall_ns: i64,
    /// Since the host booted; never steps, stands still while the host sleeps.
    pub mono_ns: i64,
}

impl Moment {
    /// Now.
    pub fn now() -> Self {
        Self { wall_ns: read(ClockId::Realtime), mono_ns: read(ClockId::Monotonic) }
    }
}

/// Now on the monotonic clock alone.
pub(crate) fn mono_ns() -> i64 {
    read(ClockId::Monotonic)
}

fn read(clock: ClockId) -> i64 {
    let now = rustix::time::clock_gettime(clock);
    now.tv_sec.saturating_mul(1_000_000_000).saturating_add(now.tv_nsec)
}

/// Sleeps until an instant of the monotonic clock.
pub(crate) fn sleep_until(mono_ns: i64) {
    let request = Timespec { tv_sec: mono_ns / 1_000_000_000, tv_nsec: mono_ns % 1_000_000_000 };
    // Interrupted by a signal it is asked again; any other error would be a wrong argument, and not waiting is right then.
    while rustix::thread::clock_nanosleep_absolute(ClockId::Monotonic, &request)
        == Err(rustix::io::Errno::INTR)
    {}
}

/// A duration in nanoseconds, at most some 292 years.
pub(crate) fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}
