//! Families of `/metrics` as OTLP metrics.
//!
//! Names, labels and values stay as they are, except where the catalogue has a name of OpenTelemetry's: there the series
//! takes it, with `hw.id` (the GPU's uuid), `hw.type`, `hw.vendor` and the other attributes of the conventions. Of several
//! families that the catalogue gives one such name the first takes it, unless an attribute tells them apart: a sum over
//! `hw.power` must not count a GPU twice.

use std::collections::{BTreeMap, HashMap};

use gpuvitals_core::catalogue::{self, Metric as CatalogueMetric, Table};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, Sum, metric,
    number_data_point,
};

use super::resource::attribute;
use super::text::{Family, Kind, Sample};

/// Attributes that tell families of one OpenTelemetry name apart.
const TOLD_APART: [(&str, &str, &str); 6] = [
    ("gpu_utilization_ratio", "hw.gpu.task", "general"),
    ("gpu_engine_utilization_ratio", "hw.gpu.task", ""), // its label
    ("gpu_interconnect_errors_total", "error.type", "interconnect"),
    ("gpu_ecc_errors_total", "error.type", "ecc"),
    ("gpu_ras_errors_total", "error.type", "ras"),
    ("gpu_xid_errors_total", "error.type", "xid"),
];
/// Labels of ours and their attributes, where the series has a name of OpenTelemetry's.
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
/// Endings of names and their units, in UCUM.
const UNITS: [(&str, &str); 10] = [
    ("_seconds", "s"),
    ("_bytes", "By"),
    ("_ratio", "1"),
    ("_joules", "J"),
    ("_watts", "W"),
    ("_celsius", "Cel"),
    ("_hertz", "Hz"),
    ("_volts", "V"),
    ("_rpm", "{rpm}"),
    ("_bytes_per_second", "By/s"),
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
    /// Since when counters count.
    pub(super) start_ns: u64,
    pub(super) now_ns: u64,
}

/// OpenTelemetry's names of catalogue rows, by family.
#[derive(Debug)]
pub(super) struct Names(HashMap<&'static str, Vec<&'static CatalogueMetric>>);

impl Names {
    /// Those of the catalogue.
    pub(super) fn of_catalogue() -> Self {
        let mut names: HashMap<_, Vec<_>> = HashMap::new();
        // Which family has a name already.
        let mut taken: HashMap<(&str, Table), &str> = HashMap::new();
        let rows = catalogue::gpu_metrics().chain(catalogue::host_metrics()).map(|(_, metric)| metric);
        for metric in rows {
            let is_told_apart = TOLD_APART.iter().any(|(family, _, _)| *family == metric.prometheus);
            let holder = *taken.entry((metric.otel, metric.table)).or_insert(metric.prometheus);
            if metric.otel.is_empty() || is_told_apart || holder == metric.prometheus {
                names.entry(metric.prometheus).or_default().push(metric);
            }
        }
        Self(names)
    }

    /// The name of a series, where the catalogue has one.
    fn of(&self, sample: &Sample<'_>) -> Option<&'static str> {
        let has = |(label, text): &(&str, &str)| sample.labels.iter().any(|(l, t)| l == label && t == text);
        let rows = self.0.get(sample.name)?.iter();
        let row = rows.filter(|row| row.labels.iter().all(has)).max_by_key(|row| row.labels.len())?;
        (!row.otel.is_empty()).then_some(row.otel)
    }
}

/// The metrics of families.
pub(super) fn metrics(families: &[Family<'_>], names: &Names, times: Times) -> Vec<Metric> {
    // By name, since families may share one of OpenTelemetry's.
    let mut metrics: BTreeMap<&str, Metric> = BTreeMap::new();
    for family in families {
        if family.kind == Kind::Histogram {
            metrics.insert(family.name, histogram(family, times));
            continue;
        }
        for sample in &family.samples {
            let theirs = names.of(sample);
            let name = theirs.unwrap_or(family.name);
            let metric = metrics.entry(name).or_insert_with(|| empty(name, family));
            let attributes = match theirs {
                Some(_) => conventional(sample),
                None => plain(&sample.labels, None),
            };
            let start_time_unix_nano =
                if matches!(metric.data, Some(metric::Data::Gauge(_))) { 0 } else { times.start_ns };
            let point = NumberDataPoint {
                attributes,
                start_time_unix_nano,
                time_unix_nano: times.now_ns,
                value: Some(number_data_point::Value::AsDouble(sample.value)),
                ..NumberDataPoint::default()
            };
            match &mut metric.data {
                Some(metric::Data::Gauge(gauge)) => gauge.data_points.push(point),
                Some(metric::Data::Sum(sum)) => sum.data_points.push(point),
                _ => {}
            }
        }
    }
    metrics.into_values().collect()
}

/// A metric without points.
fn empty(name: &str, family: &Family<'_>) -> Metric {
    let sum = |is_monotonic| {
        metric::Data::Sum(Sum {
            data_points: Vec::new(),
            aggregation_temporality: AggregationTemporality::Cumulative.into(),
            is_monotonic,
        })
    };
    let data = match family.kind {
        Kind::Counter => sum(true),
        _ if UP_AND_DOWN.contains(&name) => sum(false),
        _ => metric::Data::Gauge(Gauge::default()),
    };
    Metric {
        name: name.to_owned(),
        description: family.help.to_string(),
        unit: unit(family.name).to_owned(),
        data: Some(data),
        ..Metric::default()
    }
}

fn unit(family: &str) -> &'static str {
    let stem = family.strip_suffix("_total").or_else(|| family.strip_suffix("_window")).unwrap_or(family);
    UNITS.iter().find(|(ending, _)| stem.ends_with(ending)).map_or("", |(_, unit)| unit)
}

fn plain(labels: &[(&str, std::borrow::Cow<'_, str>)], without: Option<&str>) -> Vec<KeyValue> {
    let kept = labels.iter().filter(|(label, _)| Some(*label) != without);
    kept.map(|(label, text)| attribute(label, text.as_ref())).collect()
}

/// The attributes of the conventions.
fn conventional(sample: &Sample<'_>) -> Vec<KeyValue> {
    let mut attributes = Vec::with_capacity(sample.labels.len() + 2);
    if sample.labels.iter().any(|(label, _)| *label == "uuid") {
        attributes.push(attribute("hw.type", "gpu"));
    }
    if let Some((_, key, value)) =
        TOLD_APART.iter().find(|(family, _, value)| *family == sample.name && !value.is_empty())
    {
        attributes.push(attribute(key, *value));
    }
    for (label, text) in &sample.labels {
        let key = ATTRIBUTES.iter().find(|(ours, _)| ours == label).map_or(*label, |(_, theirs)| theirs);
        let text = match DIRECTIONS.iter().find(|(ours, _)| *label == "direction" && ours == text) {
            Some((_, theirs)) => theirs,
            None => text.as_ref(),
        };
        attributes.push(attribute(key, text));
    }
    attributes
}

/// A histogram: the buckets of each set of labels, apart instead of added up.
fn histogram(family: &Family<'_>, times: Times) -> Metric {
    let mut points: Vec<(Vec<KeyValue>, HistogramDataPoint)> = Vec::new();
    for sample in &family.samples {
        let attributes = plain(&sample.labels, Some("le"));
        let at = points.iter().position(|(known, _)| *known == attributes).unwrap_or_else(|| {
            let point = HistogramDataPoint {
                attributes: attributes.clone(),
                start_time_unix_nano: times.start_ns,
                time_unix_nano: times.now_ns,
                ..HistogramDataPoint::default()
            };
            points.push((attributes, point));
            points.len() - 1
        });
        let Some((_, point)) = points.get_mut(at) else { continue };
        match sample.name.strip_prefix(family.name) {
            Some("_sum") => point.sum = Some(sample.value),
            Some("_count") => point.count = count(sample.value),
            Some("_bucket") => {
                let bound = sample.labels.iter().find(|(label, _)| *label == "le");
                let bound = bound.and_then(|(_, text)| text.parse::<f64>().ok());
                point.explicit_bounds.extend(bound.filter(|bound| bound.is_finite()));
                let before: u64 = point.bucket_counts.iter().sum();
                point.bucket_counts.push(count(sample.value).saturating_sub(before));
            }
            _ => {}
        }
    }
    let data = metric::Data::Histogram(Histogram {
        data_points: points.into_iter().map(|(_, point)| point).collect(),
        aggregation_temporality: AggregationTemporality::Cumulative.into(),
    });
    Metric { data: Some(data), ..empty(family.name, family) }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a count, which the text has whole"
)]
fn count(value: f64) -> u64 {
    value as u64
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::common::v1::any_value::Value;

    use super::super::text;
    use super::*;

    const TIMES: Times = Times { start_ns: 1, now_ns: 2 };

    fn converted(text: &str) -> Vec<Metric> {
        metrics(&text::families(text), &Names::of_catalogue(), TIMES)
    }

    fn shown(attributes: &[KeyValue]) -> String {
        let pair = |one: &KeyValue| match one.value.as_ref().and_then(|value| value.value.as_ref()) {
            Some(Value::StringValue(text)) => format!("{}={text}", one.key),
            other => panic!("{other:?}"),
        };
        attributes.iter().map(pair).collect::<Vec<_>>().join(",")
    }

    /// Name, unit, kind, and points with their attributes.
    fn line(metric: &Metric) -> String {
        let (kind, points) = match metric.data.as_ref().unwrap() {
            metric::Data::Gauge(gauge) => ("gauge", &gauge.data_points),
            metric::Data::Sum(sum) if sum.is_monotonic => ("counter", &sum.data_points),
            metric::Data::Sum(sum) => ("up and down", &sum.data_points),
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

    #[test]
    fn gpu_metrics_take_the_names_of_the_conventions_and_keep_their_values() {
        let text = "# TYPE gpu_utilization_ratio gauge\n\
             gpu_utilization_ratio{gpu=\"0\",uuid=\"GPU-1\",vendor=\"nvidia\"} 0.5\n\
             # TYPE gpu_engine_utilization_ratio gauge\n\
             gpu_engine_utilization_ratio{engine=\"encoder\",uuid=\"GPU-1\"} 0.25\n\
             # TYPE gpu_memory_used_bytes gauge\ngpu_memory_used_bytes{uuid=\"GPU-1\"} 1048576\n\
             # TYPE gpu_power_watts gauge\ngpu_power_watts{uuid=\"GPU-1\"} 300.5\n\
             # TYPE gpu_power_average_watts gauge\ngpu_power_average_watts{uuid=\"GPU-1\"} 290\n\
             # TYPE gpu_pcie_bytes_total counter\ngpu_pcie_bytes_total{direction=\"rx\",uuid=\"GPU-1\"} 7\n\
             # TYPE gpu_power_watts_window gauge\ngpu_power_watts_window{stat=\"max\",uuid=\"GPU-1\"} 310\n\
             # TYPE host_memory_used_bytes gauge\nhost_memory_used_bytes 5\n";
        let lines: Vec<_> = converted(text).iter().map(line).collect();
        assert_eq!(
            lines,
            [
                "gpu_power_average_watts W gauge: {uuid=GPU-1} 290",
                "gpu_power_watts_window W gauge: {stat=max,uuid=GPU-1} 310",
                "hw.gpu.io By counter: {hw.type=gpu,network.io.direction=receive,hw.id=GPU-1} 7",
                "hw.gpu.memory.usage By up and down: {hw.type=gpu,hw.id=GPU-1} 1048576",
                "hw.gpu.utilization 1 gauge: {hw.type=gpu,hw.gpu.task=general,gpu=0,hw.id=GPU-1,hw.vendor=nvidia} 0.5; \
                 {hw.type=gpu,hw.gpu.task=encoder,hw.id=GPU-1} 0.25",
                "hw.power W gauge: {hw.type=gpu,hw.id=GPU-1} 300.5",
                "system.memory.usage By up and down: {} 5",
            ]
        );
    }

    #[test]
    fn buckets_of_a_histogram_are_taken_apart() {
        let text = "# HELP t_seconds Time.\n# TYPE t_seconds histogram\n\
             t_seconds_bucket{p=\"http\",le=\"0.1\"} 2\nt_seconds_bucket{p=\"http\",le=\"1\"} 5\n\
             t_seconds_bucket{p=\"http\",le=\"+Inf\"} 6\nt_seconds_sum{p=\"http\"} 3.5\nt_seconds_count{p=\"http\"} 6\n";
        let metrics = converted(text);
        let Some(metric::Data::Histogram(histogram)) = &metrics[0].data else { panic!("{metrics:?}") };
        let point = &histogram.data_points[0];
        assert_eq!((metrics[0].unit.as_str(), metrics[0].description.as_str()), ("s", "Time."));
        assert_eq!(
            (point.explicit_bounds.as_slice(), point.bucket_counts.as_slice()),
            (&[0.1, 1.0][..], &[2, 3, 1][..])
        );
        assert_eq!((point.count, point.sum, shown(&point.attributes).as_str()), (6, Some(3.5), "p=http"));
    }

    #[test]
    fn no_name_of_the_conventions_has_two_families_that_nothing_tells_apart() {
        let names = Names::of_catalogue();
        let mut families: HashMap<(&str, Table), Vec<&str>> = HashMap::new();
        for row in names.0.values().flatten().filter(|row| !row.otel.is_empty()) {
            let of_name = families.entry((row.otel, row.table)).or_default();
            if !of_name.contains(&row.prometheus) {
                of_name.push(row.prometheus);
            }
        }
        families.retain(|_, of_name| of_name.len() > 1);
        for (name, of_name) in families {
            let told = |family: &&str| TOLD_APART.iter().any(|(known, _, _)| known == family);
            assert!(of_name.iter().all(told), "{name:?}: {of_name:?}");
        }
    }

    #[test]
    fn all_rows_of_a_name_of_the_conventions_are_of_one_kind_and_unit() {
        let names = Names::of_catalogue();
        let mut kinds: HashMap<&str, (bool, &str)> = HashMap::new();
        for row in names.0.values().flatten().filter(|row| !row.otel.is_empty()) {
            let kind = (row.prometheus.ends_with("_total"), unit(row.prometheus));
            assert_eq!(*kinds.entry(row.otel).or_insert(kind), kind, "{}: {}", row.otel, row.prometheus);
        }
    }
}
