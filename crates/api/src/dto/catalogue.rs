//! The catalogue.

use std::collections::BTreeMap;

use gpuvitals_core::catalogue::{DcgmName, METRICS, Metric};
use serde::Serialize;
use utoipa::ToSchema;

/// All metrics.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MetricList {
    /// In the order of the catalogue.
    pub(crate) metrics: Vec<CatalogueMetric>,
    /// How many.
    #[schema(example = 180)]
    pub(crate) total: usize,
}

/// A metric.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CatalogueMetric {
    /// Name of the column and in JSON; ends in the unit.
    #[schema(example = "power_w")]
    column: &'static str,
    /// `gpu_events` or `system_events`.
    #[schema(example = "gpu_events")]
    table: &'static str,
    /// `int32`, `int64`, `float32` or `float64`.
    #[schema(example = "float32")]
    r#type: &'static str,
    /// Unit of the values; empty for plain numbers.
    #[schema(example = "W")]
    unit: &'static str,
    /// `gauge`, `counter` (only grows), `state` or `info`.
    #[schema(example = "gauge")]
    instrument: &'static str,
    /// The subject of a value: `device`, `link`, `block`, `stack`, `host` or `process`.
    #[schema(example = "device")]
    scope: &'static str,
    /// Label that distinguishes the instances of such a metric.
    instance_label: Option<&'static str>,
    /// Panel it belongs to.
    #[schema(example = "power")]
    group: &'static str,
    /// The price of a reading: `fast`, `slow`, `rare`.
    #[schema(example = "fast")]
    tier: &'static str,
    /// Smallest set of Prometheus series that contains it: `basic`, `standard`, `all`.
    #[schema(example = "basic")]
    series: &'static str,
    /// Smallest value that can be true.
    #[schema(example = 0.0)]
    min: f64,
    /// Largest value that can be true.
    #[schema(example = 10000.0)]
    max: f64,
    /// The Prometheus series.
    prometheus: PrometheusSeries,
    /// Names in DCGM's dialects.
    dcgm: Vec<DcgmSeries>,
    /// OpenTelemetry name.
    otel: Option<&'static str>,
    /// Names under which foreign data knows it with the same unit.
    aliases: &'static [&'static str],
    /// Of a mask: its bits that have a meaning; empty for everything else.
    bits: Vec<NamedBit>,
    /// Its meaning.
    #[schema(example = "Power drawn now.")]
    help: &'static str,
}

/// A bit of a mask.
#[derive(Debug, Serialize, ToSchema)]
#[schema(example = json!({"bit": 2, "name": "software power cap"}))]
pub(crate) struct NamedBit {
    /// Its number, from 0 for the lowest.
    bit: u8,
    /// Its meaning when it is set.
    name: &'static str,
}

/// A Prometheus series.
#[derive(Debug, Serialize, ToSchema)]
#[schema(example = json!({"name": "gpu_power_watts", "labels": {}, "unit": "watts", "factor": 1.0}))]
pub(crate) struct PrometheusSeries {
    /// Family.
    name: &'static str,
    /// Constant labels.
    labels: BTreeMap<&'static str, &'static str>,
    /// Base unit.
    unit: &'static str,
    /// Prometheus value = column value × factor.
    factor: f64,
}

/// A DCGM series.
#[derive(Debug, Serialize, ToSchema)]
#[schema(example = json!({"name": "DCGM_FI_DEV_POWER_USAGE", "dialect": "legacy", "factor": 1.0}))]
pub(crate) struct DcgmSeries {
    /// Whole name.
    name: &'static str,
    /// `legacy` (up to 4.8) or `modern` (4.9 on, base units).
    dialect: &'static str,
    /// DCGM value = column value × factor.
    factor: f64,
}

impl MetricList {
    /// The whole catalogue.
    pub(crate) fn whole() -> Self {
        Self { metrics: METRICS.iter().map(CatalogueMetric::from).collect(), total: METRICS.len() }
    }
}

impl From<&'static Metric> for CatalogueMetric {
    fn from(metric: &'static Metric) -> Self {
        Self {
            column: metric.column,
            table: metric.table.name(),
            r#type: metric.column_type.as_str(),
            unit: metric.unit.as_str(),
            instrument: metric.instrument.as_str(),
            scope: metric.scope.as_str(),
            instance_label: metric.scope.label(),
            group: metric.group.as_str(),
            tier: metric.tier.as_str(),
            series: metric.series.as_str(),
            min: metric.range.0,
            max: metric.range.1,
            prometheus: PrometheusSeries {
                name: metric.prometheus,
                labels: metric.labels.iter().copied().collect(),
                unit: metric.unit.base(),
                factor: metric.factor,
            },
            dcgm: metric.dcgm.iter().map(DcgmSeries::from).collect(),
            otel: metric.otel.map(|otel| otel.name),
            aliases: metric.aliases,
            bits: metric.bits.iter().map(|&(bit, name)| NamedBit { bit, name }).collect(),
            help: metric.help,
        }
    }
}

impl From<&DcgmName> for DcgmSeries {
    fn from(name: &DcgmName) -> Self {
        Self { name: name.name, dialect: if name.modern { "modern" } else { "legacy" }, factor: name.factor }
    }
}

#[cfg(test)]
mod tests {
    use super::MetricList;

    #[test]
    fn says_what_the_catalogue_says() {
        let list = serde_json::to_value(MetricList::whole()).unwrap();
        assert_eq!(list["metrics"], gpuvitals_core::catalogue::json());
    }
}
