//! Rows of `gpu_events`, as stays and added up.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use foldhash::fast::RandomState;

use super::{CounterSpan, HOLDER_COLUMNS, PowerSpan, Stay, Usage};
use crate::batch::{KeylessRow, MetricColumn, RowKeys, Value, as_dictionary, metric_of, text_at, timestamps};
use crate::energy::EnergyColumns;
use crate::throttle::{ByLimit, Residency, ThrottleColumns, Throttling};
use crate::{MetricId, Table};

const UTILIZATION: MetricId = MetricId::of("utilization_pct");

/// Names of the metrics that a use is made of.
pub fn use_columns() -> impl Iterator<Item = &'static str> {
    let metrics = EnergyColumns::METRICS.into_iter().chain(ThrottleColumns::METRICS).chain([UTILIZATION]);
    metrics.map(|id| id.metric().column)
}

/// The columns that a use is made of, looked up once for some rows.
#[derive(Debug)]
pub struct UseColumns<'a> {
    energy: EnergyColumns<'a>,
    throttle: ThrottleColumns<'a>,
    utilization: Option<MetricColumn<'a>>,
}

impl<'a> UseColumns<'a> {
    /// Of rows of `gpu_events`.
    pub fn of(records: &'a RecordBatch) -> Self {
        Self {
            energy: EnergyColumns::of_records(records),
            throttle: ThrottleColumns::of(records),
            utilization: metric_of(records, UTILIZATION),
        }
    }

    /// Power of a row, watts.
    pub(super) fn power_w(&self, row: usize) -> Option<f64> {
        self.energy.power(row).map(|(watts, _)| watts)
    }

    /// A row of a GPU whose earlier counters of throttling these are, without the limits that throttled it: rollups do not keep them.
    pub fn stay(&self, row: usize, time_ns: i64, counted: &mut Residency) -> Stay {
        Stay { throttled_by: ByLimit::default(), ..self.stay_by_limit(row, time_ns, counted) }
    }

    /// The same with them.
    pub(super) fn stay_by_limit(&self, row: usize, time_ns: i64, counted: &mut Residency) -> Stay {
        let power = self.energy.power(row).filter(|(watts, _)| watts.is_finite());
        let power = power.map(|(watts, is_average)| PowerSpan {
            is_average,
            first: (time_ns, watts),
            last: (time_ns, watts),
            joules: 0.0,
            seconds: 0.0,
            idle_joules: 0.0,
            open_joules: 0.0,
            max_w: watts,
        });
        let counter = self.energy.counter_j(row).filter(|joules| joules.is_finite());
        let utilization_after = self.utilization.and_then(|column| column.value(row)).map(Value::as_decimal);
        // The first counters have no time before them.
        let is_first = !counted.is_told();
        let throttled = self.throttle.at(row, counted).filter(|it| !(it.is_share && is_first));
        Stay {
            first_ns: time_ns,
            last_ns: time_ns,
            pace_ns: 0,
            seconds: 0.0,
            busy_s: 0.0,
            idle_s: 0.0,
            utilization_open_s: 0.0,
            throttled_s: 0.0,
            throttled_open_s: 0.0,
            throttled_before: throttled.filter(|it| it.is_share).map(|it| it.any),
            throttled_after: throttled.map(|it| it.any),
            throttled_told_ns: time_ns,
            throttled_by: throttled.as_ref().map(Throttling::limits).unwrap_or_default(),
            utilization_after,
            utilization_told_ns: time_ns,
            power,
            counter: counter.map(|joules| CounterSpan::reading(time_ns, joules)),
            limit_w: self.energy.limit_w(row),
        }
    }
}

/// Rows that are added to a use, with what must be remembered from batch to batch.
#[derive(Debug, Default)]
pub struct RowsOfUse {
    counted: HashMap<Arc<str>, Residency, RandomState>,
}

impl RowsOfUse {
    /// Adds rows of `gpu_events`; those of a GPU come in the order of time, also from batch to batch.
    ///
    /// # Errors
    /// The first row that names no GPU.
    pub fn add(&mut self, usage: &mut Usage, records: &RecordBatch) -> Result<(), KeylessRow> {
        let keys = RowKeys::of(records, Table::GpuEvents)?;
        let holders = usage.holders(records);
        let columns = UseColumns::of(records);
        for (row, time_ns) in timestamps(records).iter().enumerate() {
            let key = keys.ids.get(row).and_then(|id| keys.keys.get(*id as usize));
            let (Some(key), Some(holder)) = (key, holders.get(row)) else { continue };
            if !self.counted.contains_key(key) {
                self.counted.insert(Arc::clone(key), Residency::default());
            }
            let Some(counted) = self.counted.get_mut(key) else { continue };
            usage.add(key, *holder, columns.stay(row, *time_ns, counted));
        }
        Ok(())
    }
}

impl Usage {
    /// The number of the holder of each row.
    pub fn holders(&mut self, records: &RecordBatch) -> Vec<u32> {
        let columns =
            HOLDER_COLUMNS.map(|column| records.column_by_name(column.name()).and_then(as_dictionary));
        let columns = columns.each_ref().map(|array| array.as_ref()?.as_dictionary_opt::<Int32Type>());
        let mut known: HashMap<[Option<usize>; HOLDER_COLUMNS.len()], u32, RandomState> = HashMap::default();
        let mut last = None;
        let numbers = (0..records.num_rows()).map(|row| {
            let codes = columns.map(|column| column.and_then(|array| array.key(row)));
            if let Some((seen, number)) = last
                && seen == codes
            {
                return number;
            }
            let number = *known.entry(codes).or_insert_with(|| {
                let texts = columns.map(|column| Some(Arc::<str>::from(text_at(column?, row)?)));
                self.holder(&texts)
            });
            last = Some((codes, number));
            number
        });
        numbers.collect()
    }
}
