//! Shares of a CPU's time are differences of its counts.

use gpuvitals_core::number::float;

use super::parse::CpuTimes;

/// Ticks of a CPU within 80 ms (the kernel counts hundredths of a second for user space everywhere): a little less
/// than a tenth of a second, so that at 10 Hz each row has a share.
const SHARE_TICKS_PER_CPU: u64 = 8;
/// Ticks of all CPUs together that are enough for a share: it is good to 1 % then.
const SHARE_TICKS_ENOUGH: u64 = 100;

/// From when on the next share counts.
#[derive(Debug, Default)]
pub(super) struct CpuShares {
    since: Option<CpuTimes>,
}

impl CpuShares {
    /// The time spent since the share before, once it is long enough for one. Single times may go back by some ticks (the
    /// kernel's idle times do): that is no time at all.
    pub(super) fn after(&mut self, now: CpuTimes, cpus: u64) -> Option<CpuTimes> {
        let Some(since) = self.since.filter(|since| since.total() <= now.total()) else {
            // The first reading, or a count that restarted.
            self.since = Some(now);
            return None;
        };
        let spent = now.since(since);
        if spent.total() < SHARE_TICKS_ENOUGH.min(SHARE_TICKS_PER_CPU.saturating_mul(cpus.max(1))) {
            return None;
        }
        self.since = Some(now);
        Some(spent)
    }
}

/// Time that was not idle; waiting for I/O counts as idle.
pub(super) fn busy_pct(spent: CpuTimes) -> f32 {
    let idle = spent.idle.saturating_add(spent.iowait.unwrap_or(0));
    percent(spent.total().saturating_sub(idle), spent.total())
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a share in % from ticks of one stretch needs no more digits than a float has"
)]
pub(super) fn percent(part: u64, whole: u64) -> f32 {
    (100.0 * float(part) / float(whole)) as f32
}
