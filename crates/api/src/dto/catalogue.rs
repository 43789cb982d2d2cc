//! The catalogue.
#![expect(dead_code, reason = "the catalogue writes its answer, the document describes it")]

use std::collections::BTreeMap;

use gpuvitals_core::catalogue::{self, METRICS};
use serde_json::{Value, json};
use utoipa::ToSchema;

/// Every metric that can be asked for.
#[derive(ToSchema)]
pub(crate) struct MetricList {
    /// In the order of the catalogue.
    pub(crate) metrics: Vec<CatalogueMetric>,
    /// How many metrics there are.
    #[schema(example = 180)]
    pub(crate) total: usize,
}

/// A metric: its column, unit, range and names elsewhere.
#[derive(ToSchema)]
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
    /// Its name in OpenTelemetry's conventions; null if they have none.
    otel: Option<&'static str>,
    /// Names under which foreign data knows it with the same unit.
    aliases: &'static [&'static str],
    /// Of a mask: its bits that have a meaning; empty for everything else.
    bits: Vec<NamedBit>,
    /// What it measures, in a sentence.
    #[schema(example = "Power drawn now.")]
    help: &'static str,
}

/// A bit of a mask.
#[derive(ToSchema)]
#[schema(example = json!({"bit": 2, "name": "software power cap"}))]
pub(crate) struct NamedBit {
    /// Its number, from 0 for the lowest.
    bit: u8,
    /// Its meaning when it is set.
    name: &'static str,
}

/// A Prometheus series.
#[derive(ToSchema)]
#[schema(example = json!({"name": "gpu_power_watts", "labels": {}, "unit": "watts", "factor": 1.0}))]
pub(crate) struct PrometheusSeries {
    /// Name of the family.
    name: &'static str,
    /// Labels that all its samples have.
    labels: BTreeMap<&'static str, &'static str>,
    /// Unit of the series, Prometheus's base unit.
    unit: &'static str,
    /// Prometheus value = column value × factor.
    factor: f64,
}

/// A DCGM series.
#[derive(ToSchema)]
#[schema(example = json!({"name": "DCGM_FI_DEV_POWER_USAGE", "dialect": "legacy", "factor": 1.0}))]
pub(crate) struct DcgmSeries {
    /// Name of the series.
    name: &'static str,
    /// `legacy` (up to 4.8) or `modern` (4.9 on, base units).
    dialect: &'static str,
    /// DCGM value = column value × factor.
    factor: f64,
}

/// The whole catalogue, as [`MetricList`] describes it.
pub(crate) fn metric_list() -> Value {
    json!({ "metrics": catalogue::json(), "total": METRICS.len() })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::metric_list;

    #[test]
    fn the_document_names_the_fields_of_the_answer() {
        let document: Value = serde_json::from_str(&crate::document::json().unwrap()).unwrap();
        let keys = |object: &Value| object.as_object().unwrap().keys().cloned().collect::<BTreeSet<String>>();
        let check = |schema: &str, answer: &Value| {
            let described = &document["components"]["schemas"][schema]["properties"];
            assert_eq!(keys(described), keys(answer), "{schema}");
        };
        let list = metric_list();
        let metrics = list["metrics"].as_array().unwrap();
        let first_of =
            |field: &str| metrics.iter().find_map(|metric| metric[field].as_array()?.first()).unwrap();
        check("MetricList", &list);
        check("CatalogueMetric", &metrics[0]);
        check("PrometheusSeries", &metrics[0]["prometheus"]);
        check("DcgmSeries", first_of("dcgm"));
        check("NamedBit", first_of("bits"));
    }
}
