//! A row to be.

use std::sync::Arc;

use super::sharing::UNOBSERVED;
use crate::batch::Value;
use crate::number::float;
use crate::time::HOUR_NS;
use crate::usage::fold::HolderUse;
use crate::{BatchBuilder, Identity, IdentityColumn};

/// The columns of throttled time by limit, in the order of [`ByLimit`](crate::throttle::ByLimit).
pub(super) const THROTTLED_BY: [&str; 4] =
    ["throttled_by_power_ns", "throttled_by_heat_ns", "throttled_by_hardware_ns", "throttled_by_other_ns"];

/// Rows, and the highest values in them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Peaks {
    pub(super) samples: u64,
    pub(super) power_w: Option<f64>,
    pub(super) temperature_c: Option<f64>,
    pub(super) memory_mb: Option<f64>,
}

/// What a holder used in an hour.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) hour_ns: i64,
    pub(super) holder: Arc<str>,
    pub(super) share: &'static str,
    pub(super) identity: Arc<Identity>,
    pub(super) used: HolderUse,
    pub(super) peaks: Peaks,
    pub(super) is_news: bool,
    /// Up to when it was added up, as of its last change. So it stays behind once the holder has the GPU no more.
    pub(super) as_of_ns: i64,
}

impl Peaks {
    pub(super) fn and(self, other: Self) -> Self {
        let higher = |one: Option<f64>, other: Option<f64>| match (one, other) {
            (Some(one), Some(other)) => Some(one.max(other)),
            (one, other) => one.or(other),
        };
        Self {
            samples: self.samples + other.samples,
            power_w: higher(self.power_w, other.power_w),
            temperature_c: higher(self.temperature_c, other.temperature_c),
            memory_mb: higher(self.memory_mb, other.memory_mb),
        }
    }
}

impl Line {
    /// Adds it to the line of its key.
    pub(super) fn join(self, lines: &mut Vec<Self>) {
        match lines.iter_mut().find(|line| line.is_of(&self)) {
            Some(line) => {
                line.used.and(&self.used);
                line.peaks = line.peaks.and(self.peaks);
                line.is_news |= self.is_news;
                line.as_of_ns = line.as_of_ns.max(self.as_of_ns);
            }
            None => lines.push(self),
        }
    }

    /// Whether both are one row, of the lines of one GPU and its instances.
    fn is_of(&self, other: &Self) -> bool {
        let instance = |line: &Self| line.identity.shared(IdentityColumn::Partition).cloned();
        self.hour_ns == other.hour_ns
            && self.holder == other.holder
            && self.share == other.share
            && instance(self) == instance(other)
    }

    pub(super) fn write(&self, builder: &mut BatchBuilder, run_ns: i64, source: Option<&str>) {
        let identity = builder.add_identity(&self.identity);
        let row = builder.row(self.hour_ns, identity);
        let nanoseconds = |seconds: f64| 1e9 * seconds;
        let millijoules = |joules: f64| 1e3 * joules;
        let samples = float(self.peaks.samples);
        let (used, is_observed) = (&self.used, &*self.holder != UNOBSERVED);
        // Nothing is said of the limits where nothing is known of throttling.
        let limits = used.throttled_by_s.0.map(|seconds| used.throttled_s.map(|_| nanoseconds(seconds)));
        let numbers = [
            ("held_ns", Some(nanoseconds(used.seconds))),
            ("known_ns", used.known_s.map(nanoseconds)),
            ("busy_ns", used.busy_s.map(nanoseconds)),
            ("idle_ns", used.idle_s.map(nanoseconds)),
            ("throttled_ns", used.throttled_s.map(nanoseconds)),
            ("used_mj", used.joules.map(millijoules)),
            ("idle_mj", used.idle_joules.map(millijoules)),
            ("samples", Some(samples).filter(|_| is_observed)),
            ("power_max_w", self.peaks.power_w),
            ("temperature_max_c", self.peaks.temperature_c),
            ("memory_max_mb", self.peaks.memory_mb),
        ];
        let source = source.filter(|_| used.joules.is_some());
        let texts = [("holder", Some(&*self.holder)), ("share", Some(self.share)), ("energy_source", source)];
        for (name, text) in texts.into_iter().filter_map(|(name, text)| Some((name, text?))) {
            // The names are the table's, the texts are short.
            let _written = builder.set_extra_text(row, name, text);
        }
        for (name, number) in [("run", run_ns), ("as_of_ns", self.as_of_ns)] {
            let _written = builder.set_extra(row, name, Value::Int(number));
        }
        let numbers = numbers.into_iter().chain(THROTTLED_BY.into_iter().zip(limits));
        for (name, number) in numbers.filter_map(|(name, number)| Some((name, number?))) {
            // What is out of its range is no value.
            let _written = builder.set_extra(row, name, Value::Float(number));
        }
    }
}

/// The start of the hour of an instant.
pub fn hour_of(time_ns: i64) -> i64 {
    time_ns.div_euclid(HOUR_NS).saturating_mul(HOUR_NS)
}
