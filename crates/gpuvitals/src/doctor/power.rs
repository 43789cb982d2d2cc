//! `gpuvitals doctor --measure power`: how often each GPU makes a reading of its power, and over which time it averages.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use gpuvitals_core::energy::{EnergyColumns, PowerSensor, SensorTiming};
use gpuvitals_core::{Batch, Identity, Table};
use gpuvitals_sources::registry::{Finding, Verdict};

/// Time between two readings: a fraction of the fastest known sensor's.
pub(super) const INTERVAL: Duration = Duration::from_millis(5);
/// Time for which power is read.
pub(super) const LASTS: Duration = Duration::from_secs(20);
/// What makes the sensor show itself.
const REMEDY: &str = "run a load that starts and stops every second or two while this measures";

/// The power of each GPU while it is watched.
#[derive(Default)]
pub(super) struct PowerWatch {
    gpus: BTreeMap<Arc<str>, WatchedPower>,
}

#[derive(Default)]
struct WatchedPower {
    identity: Identity,
    /// Nanoseconds and watts.
    readings: Vec<(i64, f64)>,
}

impl PowerWatch {
    /// Takes what was read.
    pub(super) fn note(&mut self, batch: &Batch) {
        if batch.table() != Table::GpuEvents {
            return;
        }
        let columns = EnergyColumns::of(batch);
        let times = batch.monotonic().unwrap_or_else(|| batch.timestamps());
        for (row, &time_ns) in times.iter().enumerate() {
            let identity = batch.identity(row);
            let (Some(key), Some((watts, _))) = (identity.key(), columns.power(row)) else { continue };
            let watched = self.gpus.entry(key).or_default();
            watched.identity = identity;
            watched.readings.push((time_ns, watts));
        }
    }

    /// What was found about each GPU.
    pub(super) fn findings(&self) -> Vec<Finding> {
        self.gpus.iter().map(|(key, watched)| watched.finding(key)).collect()
    }
}

impl WatchedPower {
    fn finding(&self, key: &str) -> Finding {
        let ms = |seconds: f64| seconds * 1e3;
        let known = PowerSensor::of(&self.identity).map_or_else(
            || "no measured sensor of this model is known".to_owned(),
            |sensor| {
                let (period_s, window_s) = sensor.timing_s();
                format!("known of this model: {:.0} ms and {:.0} ms", ms(period_s), ms(window_s))
            },
        );
        let (found, remedy) = match SensorTiming::of(&self.readings) {
            Err(unknown) => (format!("how often it is read is not known: {unknown}"), Some(REMEDY)),
            Ok(timing) => {
                let SensorTiming { period_s, changes, window_max_s } = timing;
                let period = format!("a new reading every {:.0} ms ({changes} changes)", ms(period_s));
                match window_max_s {
                    Some(window_s) => {
                        (format!("{period}, averaged over {:.0} ms at most", ms(window_s)), None)
                    }
                    None => (
                        format!("{period}; over which time it is averaged is not known"),
                        timing.shows_window().then_some(REMEDY),
                    ),
                }
            }
        };
        let finding = Finding::new(Verdict::Note, format!("power of {key}"), format!("{found}; {known}"));
        match remedy {
            Some(remedy) => finding.remedy(remedy),
            None => finding,
        }
    }
}

#[cfg(test)]
mod tests {
    use gpuvitals_core::batch::Value;
    use gpuvitals_core::{BatchBuilder, IdentityColumn, MetricId, Origin};

    use super::*;

    /// What is found about a GPU whose power is this at each reading, 5 ms apart.
    fn found(model: &str, watts: impl Fn(i32) -> f64) -> Finding {
        let mut builder = BatchBuilder::new(Table::GpuEvents);
        let gpu = Identity::default().with(IdentityColumn::Uuid, "GPU-0").unwrap();
        let id = builder.intern(&gpu.with(IdentityColumn::Model, model).unwrap());
        for n in 0..4_000_i32 {
            let time_ns = i64::from(n) * 5_000_000;
            let row = builder.row_at(time_ns, time_ns, id);
            builder.set(row, MetricId::of("power_w"), Value::Float(watts(n))).unwrap();
        }
        let mut watch = PowerWatch::default();
        watch.note(&builder.finish(Origin::default(), 0).unwrap());
        watch.findings().pop().unwrap()
    }

    /// A reading that is another every 100 ms.
    fn noise(n: i32) -> f64 {
        f64::from(n / 20 % 3)
    }

    #[test]
    fn a_load_with_steps_shows_period_and_window() {
        let load = |n: i32| if n / 400 % 2 == 0 { 100.0 } else { 300.0 };
        let finding = found("NVIDIA A100-SXM4-80GB", |n| load(n) + noise(n));
        let text = "a new reading every 100 ms (199 changes), averaged over 125 ms at most; \
                    known of this model: 100 ms and 25 ms";
        assert_eq!((finding.text.as_str(), finding.remedy.is_none()), (text, true));
        assert_eq!(finding.subject, "power of GPU-0");
    }

    #[test]
    fn what_did_not_show_is_said_with_what_would_show_it() {
        let finding = found("NVIDIA B300", |_| 100.0);
        assert!(finding.text.contains("is not known: power has changed less than ten times"), "{finding:?}");
        assert!(finding.text.ends_with("no measured sensor of this model is known"), "{finding:?}");
        assert_eq!(finding.remedy.as_deref(), Some(REMEDY));
        let stepless = found("NVIDIA B300", |n| 100.0 + noise(n));
        assert!(stepless.text.starts_with("a new reading every 100 ms (199 changes); over"), "{stepless:?}");
        assert!(stepless.remedy.is_some());
    }
}
