//! The clock: the only module that reads the time. Loops call it; everything else gets the time passed in.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};

/// One instant on both clocks, nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// UTC since 1970; may step.
    pub wall_ns: i64,
    /// Since the host booted; never steps, pauses while the host sleeps.
    pub mono_ns: i64,
}

impl Moment {
    /// The present moment on both clocks.
    pub fn now() -> Self {
        Self { wall_ns: now_ns(), mono_ns: mono_ns() }
    }
}

/// Now, nanoseconds UTC since 1970.
pub fn now_ns() -> i64 {
    read(ClockId::Realtime)
}

/// Now on the monotonic clock, nanoseconds since the host booted.
pub fn mono_ns() -> i64 {
    read(ClockId::Monotonic)
}

/// How far the clock of the time since boot is ahead of the monotonic one, nanoseconds: it runs on while the host sleeps.
pub fn boot_ahead_ns() -> i64 {
    // Two reads are some hundred nanoseconds apart; a host that never slept is not ahead at all.
    let (before_ns, boot_ns, after_ns) = (mono_ns(), read(ClockId::Boottime), mono_ns());
    boot_ns.saturating_sub(before_ns.midpoint(after_ns))
}

/// An instant to measure delays from.
#[expect(clippy::disallowed_methods, reason = "this is the clock")]
pub fn instant() -> Instant {
    Instant::now()
}

fn read(clock: ClockId) -> i64 {
    let now = clock_gettime(clock);
    now.tv_sec.saturating_mul(1_000_000_000).saturating_add(now.tv_nsec)
}

/// A clock that can be set for tests: nanoseconds UTC since 1970.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> i64 + Send + Sync>);

impl Clock {
    /// A clock that calls `now_ns`.
    pub fn new(now_ns: impl Fn() -> i64 + Send + Sync + 'static) -> Self {
        Self(Arc::new(now_ns))
    }

    /// The machine's clock.
    pub fn system() -> Self {
        Self::new(now_ns)
    }

    /// Nanoseconds UTC since 1970, by this clock.
    pub fn now_ns(&self) -> i64 {
        (self.0)()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Clock({})", self.now_ns())
    }
}
