//! Families as OTLP metrics.
//!
//! Names, labels and values stay unchanged, unless the family has a name of OpenTelemetry's conventions: then
//! the series uses it, with `hw.id` (the GPU's uuid), `hw.type`, `hw.vendor` and the other attributes of the
//! conventions.

use std::collections::BTreeMap;

use gpuvitals_core::figures::{BUCKET_BOUNDS, BucketCounts, Family, Kind, Labels, SampleValue};
use gpuvitals_core::number::float;
use opentelemetry_proto::tonic::common::v1::any_value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, Sum,
    number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;

/// Labels of ours and their attributes, if the series has an OpenTelemetry name.
const ATTRIBUTES: [(&str, &str); 6] = [
    ("uuid", "hw.id"),
    ("vendor", "hw.vendor"),
    ("engine", "hw.gpu.task"),
    ("sensor", "hw.sensor_location"),
    ("limit", "hw.limit_type"),
    ("direction", "network.io.direction"),
];
/// Directions of ours and of OpenTelemetry's.
const DIRECTIONS: [(&str, &str); 2] = [("rx", "receive"), ("tx", "transmit")];
/// Base units and their spelling in UCUM.
const UNITS: [(&str, &str); 10] = [
    ("seconds", "s"),
    ("bytes", "By"),
    ("ratio", "1"),
    ("joules", "J"),
    ("watts", "W"),
    ("celsius", "Cel"),
    ("hertz", "Hz"),
    ("volts", "V"),
    ("rpm", "{rpm}"),
    ("bytes_per_second", "By/s"),
];
/// Gauges of ours that the conventions have as sums that go up and down.
const UP_AND_DOWN: [&str; 6] = [
    "hw.gpu.memory.usage",
    "hw.gpu.memory.limit",
    "system.memory.usage",
    "system.memory.limit",
    "system.linux.memory.available",
    "system.paging.usage",
];

/// Times of data points, nanoseconds UTC since 1970.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    /// Since when the program's own counters count. Of others it is unknown, which is 0 in the protocol.
    pub(super) start_ns: u64,
    pub(super) now_ns: u64,
}

/// The metrics of families. Values that a page would not show are left out.
pub(super) fn metrics(families: &[Family], times: Times) -> Vec<Metric> {
    // By name, since families may share one of OpenTelemetry's.
    let mut metrics: BTreeMap<&str, Metric> = BTreeMap::new();
    for family in families {
        let name = family.otel.map_or(family.name.as_ref(), |otel| otel.name);
        for sample in &family.samples {
            let metric = metrics.entry(name).or_insert_with(|| empty(name, family));
            let attributes = attributes(family, &sample.labels);
            let at_ns = sample.at_ns.and_then(|at_ns| u64::try_from(at_ns).ok()).unwrap_or(times.now_ns);
            match (&mut metric.data, &sample.value) {
                (Some(Data::Gauge(gauge)), SampleValue::Number(number)) if number.is_finite() => {
                    gauge.data_points.push(point(attributes, number.as_f64(), (0, at_ns)));
                }
                (Some(Data::Sum(sum)), SampleValue::Number(number)) if number.is_finite() => {
                    let start_ns = if family.is_own() { times.start_ns } else { 0 };
                    let times = (start_ns, at_ns);
                    sum.data_points.push(point(attributes, number.as_f64(), times));
                }
                (Some(Data::Histogram(histogram)), SampleValue::Buckets(buckets)) => {
                    histogram.data_points.push(buckets_point(attributes, buckets, times));
                }
                _ => {}
            }
        }
    }
    metrics.into_values().collect()
}

/// The resource of the SDK in the form of the protocol.
pub(super) fn resource(resource: &opentelemetry_sdk::Resource) -> Resource {
    let attributes = ResourceAttributesWithSchema::from(resource).attributes.0;
    Resource { attributes, ..Resource::default() }
}

/// A metric without points.
fn empty(name: &str, family: &Family) -> Metric {
    let aggregation_temporality = AggregationTemporality::Cumulative.into();
    let sum =
        |is_monotonic| Data::Sum(Sum { data_points: Vec::new(), aggregation_temporality, is_monotonic });
    let data = match family.kind {
        Kind::Counter => sum(true),
        Kind::Histogram => Data::Histogram(Histogram { data_points: Vec::new(), aggregation_temporality }),
        Kind::Gauge | Kind::Info if UP_AND_DOWN.contains(&name) => sum(false),
        Kind::Gauge | Kind::Info => Data::Gauge(Gauge::default()),
    };
    let unit = UNITS.iter().find(|(unit, _)| *unit == family.unit).map_or("", |(_, ucum)| ucum);
    Metric {
        name: name.to_owned(),
        description: family.help.to_string(),
        unit: unit.to_owned(),
        data: Some(data),
        ..Metric::default()
    }
}

fn point(attributes: Vec<KeyValue>, value: f64, (start_ns, now_ns): (u64, u64)) -> NumberDataPoint {
    NumberDataPoint {
        attributes,
        start_time_unix_nano: start_ns,
        time_unix_nano: now_ns,
        value: Some(number_data_point::Value::AsDouble(value)),
        ..NumberDataPoint::default()
    }
}

fn buckets_point(attributes: Vec<KeyValue>, buckets: &BucketCounts, times: Times) -> HistogramDataPoint {
    let seconds = |micros: u64| float(micros) / 1e6;
    HistogramDataPoint {
        attributes,
        start_time_unix_nano: times.start_ns,
        time_unix_nano: times.now_ns,
        count: buckets.count(),
        sum: Some(seconds(buckets.micros)),
        bucket_counts: buckets.counts.to_vec(),
        explicit_bounds: BUCKET_BOUNDS.map(seconds).to_vec(),
        ..HistogramDataPoint::default()
    }
}

/// Labels as attributes; under a name of the conventions with their keys and values.
fn attributes(family: &Family, labels: &Labels) -> Vec<KeyValue> {
    let Some(otel) = family.otel else {
        return labels.iter().map(|(label, text)| attribute(label, text)).collect();
    };
    let is_gpu = labels.iter().any(|(label, _)| *label == "uuid");
    let of_gpu = is_gpu.then(|| attribute("hw.type", "gpu"));
    let of_family = otel.attribute.map(|(key, value)| attribute(key, value));
    let of_labels = labels.iter().map(|(label, text)| {
        let key = ATTRIBUTES.iter().find(|(ours, _)| ours == label).map_or(*label, |(_, theirs)| theirs);
        let direction = DIRECTIONS.iter().find(|(ours, _)| *label == "direction" && ours == text);
        attribute(key, direction.map_or(text.as_str(), |(_, theirs)| theirs))
    });
    of_gpu.into_iter().chain(of_family).chain(of_labels).collect()
}

/// An attribute that is text.
fn attribute(key: &str, value: &str) -> KeyValue {
    let value = AnyValue { value: Some(any_value::Value::StringValue(value.to_owned())) };
    KeyValue { key: key.to_owned(), value: Some(value), ..KeyValue::default() }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use gpuvitals_core::catalogue::OtelName;
    use gpuvitals_core::figures::{self, Number};

    use super::*;

    const TIMES: Times = Times { start_ns: 1, now_ns: 2 };

    fn shown(attributes: &[KeyValue]) -> String {
        let pair = |one: &KeyValue| match one.value.as_ref().and_then(|value| value.value.as_ref()) {
            Some(any_value::Value::StringValue(text)) => format!("{}={text}", one.key),
            other => panic!("{other:?}"),
        };
        attributes.iter().map(pair).collect::<Vec<_>>().join(",")
    }

    /// Name, unit, kind, and points with their attributes.
    fn line(metric: &Metric) -> String {
        let (kind, points) = match metric.data.as_ref().unwrap() {
            Data::Gauge(gauge) => ("gauge", &gauge.data_points),
            Data::Sum(sum) if sum.is_monotonic => ("counter", &sum.data_points),
            Data::Sum(sum) => ("up and down", &sum.data_points),
            other => panic!("{other:?}"),
        };
        let point = |point: &NumberDataPoint| match point.value {
            Some(number_data_point::Value::AsDouble(value)) => {
                format!("{{{}}} {value}", shown(&point.attributes))
            }
            other => panic!("{other:?}"),
        };
        let points: Vec<_> = points.iter().map(point).collect();
        format!("{} {} {kind}: {}", metric.name, metric.unit, points.join("; "))
    }

    fn family(name: &'static str, unit: &'static str, labels: &[(&'static str, &str)], value: f64) -> Family {
        let kind = if name.ends_with("_total") { Kind::Counter } else { Kind::Gauge };
        let labels = labels.iter().map(|(label, text)| (*label, (*text).to_owned())).collect();
        Family { unit, ..Family::new(name, kind, "").with(labels, Number::F64(value)) }
    }

    fn named(name: &'static str, attribute: Option<(&'static str, &'static str)>, family: Family) -> Family {
        Family { otel: Some(OtelName { name, attribute }), ..family }
    }

    #[test]
    fn families_take_the_names_of_the_conventions_and_keep_their_values() {
        let gpu = [("gpu", "0"), ("uuid", "GPU-1"), ("vendor", "nvidia")];
        let io = [("direction", "rx"), ("uuid", "GPU-1")];
        let engine = [("engine", "encoder"), ("uuid", "GPU-1")];
        let general = Some(("hw.gpu.task", "general"));
        let families = [
            named("hw.gpu.utilization", general, family("gpu_utilization_ratio", "ratio", &gpu, 0.5)),
            named("hw.gpu.utilization", None, family("gpu_engine_utilization_ratio", "ratio", &engine, 0.25)),
            named(
                "hw.gpu.memory.usage",
                None,
                family("gpu_memory_used_bytes", "bytes", &gpu[1..2], 1_048_576.0),
            ),
            named("hw.gpu.io", None, family("gpu_pcie_bytes_total", "bytes", &io, 7.0)),
            named("system.memory.usage", None, family("host_memory_used_bytes", "bytes", &[], 5.0)),
            family("gpu_power_average_watts", "watts", &gpu[1..2], 290.0),
            family("gpu_power_limit_watts", "watts", &gpu[1..2], f64::NAN),
        ];
        let lines: Vec<_> = metrics(&families, TIMES).iter().map(line).collect();
        assert_eq!(
            lines,
            [
                "gpu_power_average_watts W gauge: {uuid=GPU-1} 290",
                "gpu_power_limit_watts W gauge: ",
                "hw.gpu.io By counter: {hw.type=gpu,network.io.direction=receive,hw.id=GPU-1} 7",
                "hw.gpu.memory.usage By up and down: {hw.type=gpu,hw.id=GPU-1} 1048576",
                "hw.gpu.utilization 1 gauge: {hw.type=gpu,hw.gpu.task=general,gpu=0,hw.id=GPU-1,hw.vendor=nvidia} 0.5; \
                 {hw.type=gpu,hw.gpu.task=encoder,hw.id=GPU-1} 0.25",
                "system.memory.usage By up and down: {} 5",
            ]
        );
    }

    #[test]
    fn a_histogram_keeps_its_buckets() {
        let histogram = figures::Histogram::default();
        histogram.observe(Duration::from_millis(3));
        histogram.observe(Duration::from_mins(1));
        let labels = vec![("protocol", "http".to_owned())];
        let family = Family::new("wait_seconds", Kind::Histogram, "Time.").with(labels, histogram.read());
        let metrics = metrics(&[family, Family::new("empty", Kind::Gauge, "")], TIMES);
        assert_eq!(
            (metrics.len(), metrics[0].unit.as_str(), metrics[0].description.as_str()),
            (1, "s", "Time.")
        );
        let Some(Data::Histogram(histogram)) = &metrics[0].data else { panic!("{metrics:?}") };
        let point = &histogram.data_points[0];
        assert_eq!(
            (point.count, point.sum, shown(&point.attributes).as_str()),
            (2, Some(60.003), "protocol=http")
        );
        assert_eq!(point.bucket_counts.len(), point.explicit_bounds.len() + 1);
        assert_eq!(
            (point.explicit_bounds[5], point.bucket_counts[5], point.bucket_counts[15]),
            (0.005, 1, 1)
        );
    }

    #[test]
    fn every_unit_of_the_catalogue_has_a_spelling() {
        for metric in gpuvitals_core::catalogue::METRICS {
            let unit = metric.unit.base();
            let is_known = UNITS.iter().any(|(known, _)| *known == unit);
            assert!(is_known || ["", "transfers_per_second"].contains(&unit), "{}: {unit}", metric.column);
        }
    }
}
