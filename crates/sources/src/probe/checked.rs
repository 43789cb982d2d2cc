//! A row takes a value only if it is plausible.

use gpuvitals_core::MetricId;
use gpuvitals_core::batch::Value;
use gpuvitals_core::catalogue::MEMORY_PARTS;

use super::Row;
use super::plausible::{COUNTERS, Cause, Causes, Denied, POWER, POWER_AVERAGE};
use crate::dialect::{NVIDIA_HELD_DOWN, NVIDIA_REASONS};

/// A power beyond this multiple of the largest limit that can be set is refused: the most that PCI Express (CEM 5.0) lets a
/// card draw for 100 µs, less than what any sensor averages over.
const POWER_EXCURSION: f64 = 3.0;

const THROTTLED: MetricId = MetricId::of("throttled");
const STATUS: MetricId = MetricId::of("throttle_status");
const REASONS: MetricId = MetricId::of("throttle_reasons");
const SAMPLES: MetricId = MetricId::of("throttle_sample_count");

/// Bits of [`STATUS`] that are power and current, temperatures, and signals from outside.
const STATUS_POWER: u64 = (1 << 32) - 1;
const STATUS_HEAT: u64 = ((1 << 46) - 1) & !STATUS_POWER;
/// Bits of [`STATUS`] that hold the clocks down.
const STATUS_HELD_DOWN: u64 = (1 << 48) - 1;

/// Bits of [`REASONS`]: software power cap, software and hardware thermal slowdown.
const REASONS_POWER: u64 = 0x4;
const REASONS_HEAT: u64 = 0x20 | 0x40;
/// A slowdown of the hardware, which is also set beside its thermal slowdown; and the power brake.
const HW_SLOWDOWN: u64 = 0x8;
const HW_THERMAL: u64 = 0x40;
const POWER_BRAKE: u64 = 0x80;

impl Row {
    /// The driver says, by no bits of a column, what holds the clocks down: `throttled` follows, unless other readings
    /// contradict it.
    pub(crate) fn held_down(&mut self, causes: Causes) {
        self.int(THROTTLED, causes.any());
        self.held = causes;
    }

    /// Leaves out what other values of the row contradict. `now_ns` is monotonic.
    pub(super) fn settle(&mut self, now_ns: i64) {
        self.known.note(&self.values);
        if let Some(limit) = self.known.limit_max_w {
            for metric in [POWER, POWER_AVERAGE] {
                if self.get(metric).is_some_and(|watts| watts.as_f64() > limit * POWER_EXCURSION) {
                    self.leave_out(metric);
                }
            }
        }
        for (at, (part, share, _)) in MEMORY_PARTS.into_iter().enumerate() {
            let total = self.known.totals.get(at).copied().flatten().filter(|&total| total > 0.0);
            if total.is_some_and(|total| self.get(part).is_some_and(|used| used.as_f64() > total)) {
                self.leave_out(part);
                if let Some(share) = share.filter(|&share| self.get(share).is_some()) {
                    self.leave_out(share);
                }
            }
        }
        self.settle_throttling(now_ns);
        // What a second source has given is not absent.
        if !self.absences.is_empty() {
            let Self { absences, values, .. } = self;
            absences.retain(|(metric, _)| values.iter().all(|(id, _)| id != metric));
        }
    }

    fn settle_throttling(&mut self, now_ns: i64) {
        let now = self.known.denied();
        let before = self.known.before.replace(now).unwrap_or(now);
        let denied = Denied { power: now.power && before.power, heat: now.heat && before.heat };
        let told = self.held.without(denied);
        if told != self.held {
            self.refused += 1;
            self.amend(THROTTLED, Value::Int(told.any().into()));
        }
        if let Some(Value::Int(status)) = self.get(STATUS) {
            let false_bits =
                if denied.power { STATUS_POWER } else { 0 } | if denied.heat { STATUS_HEAT } else { 0 };
            self.clear_bits(STATUS, status.cast_unsigned(), false_bits, STATUS_HELD_DOWN);
        }
        if let Some(Value::Int(reasons)) = self.get(REASONS) {
            let reasons = reasons.cast_unsigned();
            let mut false_bits =
                if denied.power { REASONS_POWER } else { 0 } | if denied.heat { REASONS_HEAT } else { 0 };
            if reasons & false_bits & HW_THERMAL != 0 && reasons & POWER_BRAKE == 0 {
                false_bits |= HW_SLOWDOWN;
            }
            self.clear_bits(REASONS, reasons, false_bits, NVIDIA_HELD_DOWN);
            for (bit, flag) in NVIDIA_REASONS.into_iter().filter(|(bit, _)| bit & false_bits != 0) {
                if reasons & bit != 0 && self.get(flag).is_some() {
                    self.amend(flag, Value::Int(0));
                }
            }
        }
        let samples = self.get(SAMPLES).map(whole);
        for (at, (metric, cause, counts_steps)) in COUNTERS.into_iter().enumerate() {
            let Some(value) = self.get(metric).map(whole) else { continue };
            let is_denied = if cause == Cause::Heat { denied.heat } else { denied.power };
            let steps = if counts_steps { samples } else { Some(now_ns) };
            let Some(steps) = steps else { continue };
            let Some(counter) = self.known.counters.get_mut(at) else { continue };
            if counter.judge(value, steps, counts_steps, is_denied) {
                self.leave_out(metric);
            }
        }
    }

    /// Clears bits of a mask that other readings contradict, and tells `throttled` by the rest.
    fn clear_bits(&mut self, mask: MetricId, bits: u64, false_bits: u64, held_down: u64) {
        if bits & false_bits == 0 {
            return;
        }
        self.refused += 1;
        let told = bits & !false_bits;
        self.amend(mask, Value::Int(told.cast_signed()));
        self.amend(THROTTLED, Value::Int((told & held_down != 0).into()));
    }

    /// Gives a metric that the row has another value.
    fn amend(&mut self, metric: MetricId, value: Value) {
        self.values.iter_mut().filter(|(id, _)| *id == metric).for_each(|(_, old)| *old = value);
    }

    fn leave_out(&mut self, metric: MetricId) {
        self.values.retain(|(id, _)| *id != metric);
        self.refuse(metric);
    }
}

#[expect(clippy::cast_possible_truncation, reason = "counters are whole numbers")]
fn whole(value: Value) -> i64 {
    match value {
        Value::Int(number) => number,
        other => other.as_f64() as i64,
    }
}
