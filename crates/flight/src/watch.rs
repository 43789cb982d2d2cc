//! Looks for triggers in rows as they are sampled.

use std::collections::HashMap;
use std::sync::Arc;

use gpuvitals_analysis::events::HealthEvents;
use gpuvitals_analysis::health_event::HealthEvent;
use gpuvitals_core::batch::{MetricColumn, RowKeys, Value};
use gpuvitals_core::integral::Blanks;
use gpuvitals_core::throttle::{Residency, ThrottleColumns};
use gpuvitals_core::time::SECOND_NS;
use gpuvitals_core::{Batch, MetricId, Table};

use crate::conditions::{ConditionColumns, Conditions};
use crate::rule::FlightRule;
use crate::trigger::{Cause, FlightTrigger};

/// Health events that are triggers as they are. Of throttling only that by heat or by the hardware is one.
const EVENTS: [&str; 4] = ["xid", "ecc", "ras", "lost"];
/// Throttling that begins again within this time goes on.
const QUIET_NS: i64 = 10 * SECOND_NS;

/// What is in a batch.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    pub(crate) triggers: Vec<FlightTrigger>,
    /// The causes that hold in it, those that were a trigger before among them, and when they last did, nanoseconds UTC.
    pub(crate) lasting: Vec<(Cause, i64)>,
}

/// Looks at the rows of one node, batch by batch, those of each GPU in the order of time.
#[derive(Debug)]
pub(crate) struct Watch {
    rules: Vec<FlightRule>,
    events: HealthEvents,
    conditions: Conditions,
    gpus: HashMap<Arc<str>, WatchedGpu>,
}

#[derive(Debug, Default)]
struct WatchedGpu {
    counted: Residency,
    /// When heat or the hardware last held its clocks down.
    slowed_ns: Option<i64>,
    /// In the order of the rules.
    rules: Vec<WatchedRule>,
}

/// A rule and a GPU. Values that are read seldom stand until the next.
#[derive(Debug, Clone, Copy, Default)]
struct WatchedRule {
    value: Option<f64>,
    other: Option<f64>,
    since_ns: Option<i64>,
    has_fired: bool,
    /// When it last held, after it has fired.
    held_ns: Option<i64>,
}

impl Watch {
    pub(crate) fn new(rules: Vec<FlightRule>) -> Self {
        Self {
            rules,
            events: HealthEvents::default(),
            conditions: Conditions::default(),
            gpus: HashMap::new(),
        }
    }

    /// The triggers in a batch, and the causes that hold in it.
    pub(crate) fn look(&mut self, batch: &Batch) -> Watched {
        let mut watched = Watched::default();
        if batch.table() != Table::GpuEvents {
            return watched;
        }
        let events = self.events.of(batch);
        let events = events.iter().flat_map(HealthEvent::of_rows);
        watched.triggers.extend(events.filter_map(of_event));
        let Ok(keys) = RowKeys::of(batch.records(), batch.table()) else { return watched };
        let (throttle, blanks) = (ThrottleColumns::of(batch.records()), Blanks::of(batch));
        let judged = ConditionColumns::of(batch);
        let columns: Vec<_> = self
            .rules
            .iter()
            .map(|rule| (batch.metric(rule.metric()), rule.other().and_then(|other| batch.metric(other))))
            .collect();
        for (row, (id, &at_ns)) in keys.ids.iter().zip(batch.timestamps()).enumerate() {
            let Some(key) = keys.keys.get(*id as usize) else { continue };
            let gpu = self.gpus.entry(Arc::clone(key)).or_insert_with(|| WatchedGpu {
                rules: vec![WatchedRule::default(); self.rules.len()],
                ..WatchedGpu::default()
            });
            if blanks.has(row) {
                // Of a GPU that reports nothing no rule holds.
                gpu.rules.fill(WatchedRule::default());
                continue;
            }
            let slowed = gpu.slowed(&throttle, row, at_ns);
            watched.triggers.extend(slowed.map(|detail| of_gpu("throttle", key, detail, at_ns)));
            let begun = self.conditions.look(key, &judged, row, at_ns);
            watched.triggers.extend(begun.into_iter().map(|(kind, detail)| FlightTrigger {
                rule: Some(kind.to_owned()),
                ..of_gpu("finding", key, detail, at_ns)
            }));
            for ((rule, state), (value, other)) in self.rules.iter().zip(&mut gpu.rules).zip(&columns) {
                if state.fires(rule, [value_of(value.as_ref(), row), value_of(other.as_ref(), row)], at_ns) {
                    let detail = state.detail(rule);
                    let trigger = of_gpu("threshold", key, detail, at_ns);
                    watched.triggers.push(FlightTrigger { rule: Some(rule.text().to_owned()), ..trigger });
                }
            }
        }
        let first_ns = batch.timestamps().iter().min().copied().unwrap_or_default();
        for key in &keys.keys {
            let Some(gpu) = self.gpus.get(&**key) else { continue };
            watched.lasting.extend(gpu.lasting(key, &self.rules, first_ns));
        }
        watched
    }
}

impl WatchedGpu {
    /// The causes that have held since this time, and when they last did.
    fn lasting(&self, key: &str, rules: &[FlightRule], since_ns: i64) -> Vec<(Cause, i64)> {
        let of = |kind: &str, rule: Option<String>| (kind.to_owned(), Some(key.to_owned()), None, rule);
        let slowed = self.slowed_ns.map(|at_ns| (of("throttle", None), at_ns));
        let held = rules.iter().zip(&self.rules).filter_map(|(rule, state)| {
            Some((of("threshold", Some(rule.text().to_owned())), state.held_ns?))
        });
        slowed.into_iter().chain(held).filter(|(_, at_ns)| *at_ns >= since_ns).collect()
    }

    /// What begins to hold its clocks down, if that is heat or the hardware.
    fn slowed(&mut self, columns: &ThrottleColumns<'_>, row: usize, at_ns: i64) -> Option<String> {
        let throttling = columns.at(row, &mut self.counted)?;
        let is_held = |share: Option<f64>| share.is_some_and(|share| share > 0.0);
        let by = match (is_held(throttling.heat), is_held(throttling.hardware)) {
            (false, false) => return None,
            (true, false) => "heat holds the clocks down",
            (false, true) => "the hardware holds the clocks down",
            (true, true) => "heat and the hardware hold the clocks down",
        };
        let before = self.slowed_ns.replace(at_ns);
        before.is_none_or(|last_ns| at_ns.saturating_sub(last_ns) >= QUIET_NS).then(|| by.to_owned())
    }
}

impl WatchedRule {
    /// Whether a rule has held for its time since the last time that it did not, and this was not said.
    fn fires(&mut self, rule: &FlightRule, [value, other]: [Option<f64>; 2], at_ns: i64) -> bool {
        self.value = value.or(self.value);
        self.other = other.or(self.other);
        match rule.holds(self.value, self.other) {
            None => false,
            Some(false) => {
                (self.since_ns, self.has_fired) = (None, false);
                false
            }
            Some(true) => {
                let since_ns = *self.since_ns.get_or_insert(at_ns);
                let has_lasted = at_ns.saturating_sub(since_ns) >= rule.lasts_ns();
                self.held_ns = has_lasted.then_some(at_ns).or(self.held_ns);
                has_lasted && !std::mem::replace(&mut self.has_fired, has_lasted)
            }
        }
    }

    fn detail(&self, rule: &FlightRule) -> String {
        let side = |metric: MetricId, value: Option<f64>| {
            let value = value.map_or_else(|| "not read".to_owned(), |value| Shown(value).to_string());
            format!("{} is {value}", metric.metric().column)
        };
        let other = rule.other().map(|metric| format!(", {}", side(metric, self.other)));
        format!("{}{}", side(rule.metric(), self.value), other.unwrap_or_default())
    }
}

/// A number with three digits behind its point at most.
struct Shown(f64);

impl std::fmt::Display for Shown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = format!("{:.3}", self.0);
        f.write_str(text.trim_end_matches('0').trim_end_matches('.'))
    }
}

fn value_of(column: Option<&MetricColumn<'_>>, row: usize) -> Option<f64> {
    // As it is shown: 0.1 in a column of 32 bits is no more than 0.1.
    column?.value(row).map(Value::as_decimal)
}

fn of_event(event: HealthEvent) -> Option<FlightTrigger> {
    let is_one = EVENTS.contains(&&*event.kind);
    let HealthEvent { gpu, at_ns, kind, detail, code, .. } = event;
    is_one.then(|| FlightTrigger { code, ..of_gpu(&kind, &gpu, detail.to_string(), at_ns) })
}

fn of_gpu(kind: &str, gpu: &str, detail: String, at_ns: i64) -> FlightTrigger {
    let (kind, gpu) = (kind.to_owned(), Some(gpu.to_owned()));
    FlightTrigger { kind, gpu, code: None, detail, rule: None, at_ns }
}

#[cfg(test)]
mod tests {
    use gpuvitals_core::{AbsenceReason, BatchBuilder, Identity, IdentityColumn, Origin};

    use super::*;

    const GPU: &str = "GPU-1";

    /// Rows of a GPU, a second apart from `from` on, each with these values; none: it reports nothing.
    fn rows(from: i64, values: &[Option<&[(&str, f64)]>]) -> Batch {
        let mut builder = BatchBuilder::new(Table::GpuEvents);
        let id = builder.intern(&Identity::default().with(IdentityColumn::Uuid, GPU).unwrap());
        for (second, values) in (from..).zip(values) {
            let row = builder.row(second * SECOND_NS, id);
            let Some(values) = values else {
                builder.absent(row, MetricId::of("power_w"), AbsenceReason::Gone);
                continue;
            };
            for (column, value) in *values {
                let metric = gpuvitals_core::catalogue::by_column(column).unwrap();
                builder.set(row, metric, Value::of(metric, *value)).unwrap();
            }
        }
        builder.finish(Origin::default(), 1).unwrap()
    }

    fn found(rules: &[&str], batches: &[Batch]) -> Vec<(String, i64)> {
        let mut watch = Watch::new(rules.iter().map(|rule| rule.parse().unwrap()).collect());
        let triggers = batches.iter().flat_map(|batch| watch.look(batch).triggers);
        triggers
            .map(|trigger| {
                assert_eq!(trigger.gpu.as_deref(), Some(GPU));
                (trigger.kind, trigger.at_ns / SECOND_NS)
            })
            .collect()
    }

    fn at(kind: &str, second: i64) -> (String, i64) {
        (kind.to_owned(), second)
    }

    #[test]
    fn a_threshold_fires_once_when_it_has_held_for_its_time() {
        let hot: Option<&[(&str, f64)]> = Some(&[("temperature_c", 95.0)]);
        let cool: Option<&[(&str, f64)]> = Some(&[("temperature_c", 50.0)]);
        let rule = ["temperature_c > 90 for 2s"];
        assert!(found(&rule, &[rows(0, &[hot, hot, cool, hot, hot])]).is_empty());
        assert_eq!(found(&rule, &[rows(0, &[hot, hot]), rows(2, &[hot, hot, hot])]), [at("threshold", 2)]);
        let again = found(&rule, &[rows(0, &[hot, hot, hot, cool, hot, hot, hot])]);
        assert_eq!(again, [at("threshold", 2), at("threshold", 6)]);
        let silent = [rows(0, &[hot, hot]), rows(2, &[None, hot, hot])];
        assert_eq!(found(&rule, &silent), [at("lost", 2)]);
    }

    #[test]
    fn a_value_is_compared_as_it_is_shown() {
        // The nearest number of 32 bits is above it.
        let power: Option<&[(&str, f64)]> = Some(&[("power_w", 300.1)]);
        assert!(found(&["power_w > 300.1"], &[rows(0, &[power])]).is_empty());
        assert_eq!(found(&["power_w >= 300.1"], &[rows(0, &[power])]), [at("threshold", 0)]);
    }

    #[test]
    fn a_cause_that_holds_is_named_with_each_batch() {
        let hot: Option<&[(&str, f64)]> =
            Some(&[("temperature_c", 95.0), ("power_w", 300.0), ("throttle_reasons", 64.0)]);
        let cool: Option<&[(&str, f64)]> =
            Some(&[("temperature_c", 50.0), ("power_w", 300.0), ("throttle_reasons", 0.0)]);
        let mut watch = Watch::new(vec!["temperature_c > 90 for 2s".parse().unwrap()]);
        let mut lasting = |from: i64, values: &[Option<&[(&str, f64)]>]| {
            let watched = watch.look(&rows(from, values)).lasting;
            watched.into_iter().map(|((kind, ..), at_ns)| at(&kind, at_ns / SECOND_NS)).collect::<Vec<_>>()
        };
        assert_eq!(lasting(0, &[cool, hot]), [at("throttle", 1)]);
        assert_eq!(lasting(2, &[hot, hot]), [at("throttle", 3), at("threshold", 3)]);
        assert_eq!(lasting(4, &[hot, cool]), [at("throttle", 4), at("threshold", 4)]);
        assert!(lasting(6, &[cool, cool]).is_empty());
    }

    #[test]
    fn a_share_compares_with_the_last_value_of_what_is_read_seldom() {
        let limit: Option<&[(&str, f64)]> = Some(&[("power_w", 200.0), ("power_limit_w", 300.0)]);
        let low: Option<&[(&str, f64)]> = Some(&[("power_w", 100.0)]);
        let rule = ["power_w < 0.5 * power_limit_w"];
        assert_eq!(found(&rule, &[rows(0, &[low, limit, low, low])]), [at("threshold", 2)]);
    }

    #[test]
    fn heat_and_hardware_are_triggers_and_the_power_limit_is_none() {
        let by = |bits: f64| vec![("power_w", 300.0), ("throttle_reasons", bits)];
        let (power, heat, slowdown) = (by(4.0), by(f64::from(0x40)), by(8.0));
        let check = |values: &[f64; 3], wanted: &[(String, i64)]| {
            let values: Vec<_> = values.iter().map(|bits| by(*bits)).collect();
            let values: Vec<_> = values.iter().map(|values| Some(values.as_slice())).collect();
            assert_eq!(found(&[], &[rows(0, &values)]), wanted);
        };
        check(&[4.0, 4.0, 4.0], &[]);
        check(&[4.0, 64.0, 64.0], &[at("throttle", 1)]);
        check(&[0.0, 8.0, 0.0], &[at("throttle", 1)]);
        let later = [
            rows(0, &[Some(heat.as_slice()), Some(power.as_slice())]),
            rows(20, &[Some(slowdown.as_slice())]),
        ];
        assert_eq!(found(&[], &later), [at("throttle", 0), at("throttle", 20)]);
    }

    #[test]
    fn a_critical_condition_that_begins_is_a_trigger_and_one_that_was_so_is_none() {
        let well: Option<&[(&str, f64)]> = Some(&[("power_w", 300.0), ("remapped_rows_failed", 0.0)]);
        let failed: Option<&[(&str, f64)]> = Some(&[("power_w", 300.0), ("remapped_rows_failed", 1.0)]);
        let unread: Option<&[(&str, f64)]> = Some(&[("power_w", 300.0)]);
        let begun =
            [rows(0, &[well]), rows(200, &[unread, failed, unread, failed]), rows(300, &[well, failed])];
        assert_eq!(found(&[], &begun), [at("finding", 201), at("finding", 301)]);
        assert!(found(&[], &[rows(0, &[failed]), rows(200, &[failed])]).is_empty());
        let mut watch = Watch::new(Vec::new());
        assert!(watch.look(&rows(0, &[well])).triggers.is_empty());
        let triggers = watch.look(&rows(200, &[failed])).triggers;
        assert_eq!(triggers[0].rule.as_deref(), Some("row_remap_failed"));
        assert_eq!(triggers[0].detail, "a memory row could not be replaced: the board is due for exchange");
    }

    #[test]
    fn an_xid_is_a_trigger_with_its_number() {
        let before: Option<&[(&str, f64)]> = Some(&[("power_w", 300.0), ("xid_count", 0.0)]);
        let after: Option<&[(&str, f64)]> =
            Some(&[("power_w", 300.0), ("xid_count", 1.0), ("xid_last", 79.0)]);
        let triggers = Watch::new(Vec::new()).look(&rows(0, &[before, after])).triggers;
        let [trigger] = &triggers[..] else { panic!("{triggers:?}") };
        assert_eq!((&*trigger.kind, trigger.code, trigger.at_ns), ("xid", Some(79), SECOND_NS));
    }
}
