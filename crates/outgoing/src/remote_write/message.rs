//! The messages of the protocol: `io.prometheus.write.v2.Request` of remote write 2.0 and `prometheus.WriteRequest` of 1.0,
//! as far as they are sent. Fields and numbers are those of the definitions in Prometheus' repository (`prompb`,
//! Apache-2.0); the tests of the program decode with these definitions themselves.

use std::collections::{BTreeMap, HashMap, HashSet};

/// Label that holds the name of a metric.
pub(crate) const NAME: &str = "__name__";

/// A request of 2.0.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Request {
    /// All texts, each once; the first is empty.
    #[prost(string, repeated, tag = "4")]
    pub(crate) symbols: Vec<String>,
    #[prost(message, repeated, tag = "5")]
    pub(crate) timeseries: Vec<TimeSeries>,
}

/// A series of 2.0, texts by their place among the symbols.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct TimeSeries {
    /// Name and value in turn.
    #[prost(uint32, repeated, tag = "1")]
    pub(crate) labels_refs: Vec<u32>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) samples: Vec<Sample>,
    #[prost(message, optional, tag = "5")]
    pub(crate) metadata: Option<Metadata>,
}

/// A sample of 2.0.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(crate) struct Sample {
    #[prost(double, tag = "1")]
    pub(crate) value: f64,
    /// Milliseconds UTC since 1970.
    #[prost(int64, tag = "2")]
    pub(crate) timestamp: i64,
    /// Since when a counter counts; 0: not known.
    #[prost(int64, tag = "3")]
    pub(crate) start_timestamp: i64,
}

/// What a metric is, in 2.0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub(crate) struct Metadata {
    #[prost(enumeration = "MetricType", tag = "1")]
    pub(crate) r#type: i32,
    #[prost(uint32, tag = "3")]
    pub(crate) help_ref: u32,
    #[prost(uint32, tag = "4")]
    pub(crate) unit_ref: u32,
}

/// Type of a metric; the numbers are those of both versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum MetricType {
    Unspecified = 0,
    Counter = 1,
    Gauge = 2,
    Histogram = 3,
    Info = 6,
}

/// A request of 1.0.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct WriteRequest {
    #[prost(message, repeated, tag = "1")]
    pub(crate) timeseries: Vec<LabelledSeries>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) metadata: Vec<MetricMetadata>,
}

/// A series of 1.0.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct LabelledSeries {
    #[prost(message, repeated, tag = "1")]
    pub(crate) labels: Vec<Label>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) samples: Vec<TimedValue>,
}

/// A label of 1.0.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub(crate) struct Label {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) value: String,
}

/// A sample of 1.0.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(crate) struct TimedValue {
    #[prost(double, tag = "1")]
    pub(crate) value: f64,
    /// Milliseconds UTC since 1970.
    #[prost(int64, tag = "2")]
    pub(crate) timestamp: i64,
}

/// What a metric is, in 1.0.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub(crate) struct MetricMetadata {
    #[prost(enumeration = "MetricType", tag = "1")]
    pub(crate) r#type: i32,
    #[prost(string, tag = "2")]
    pub(crate) metric_family_name: String,
    #[prost(string, tag = "4")]
    pub(crate) help: String,
    #[prost(string, tag = "5")]
    pub(crate) unit: String,
}

/// A request of 2.0 that grows.
#[derive(Debug)]
pub(crate) struct Draft {
    request: Request,
    places: HashMap<Box<str>, u32>,
}

/// What a metric is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct About<'a> {
    pub(crate) kind: MetricType,
    pub(crate) help: &'a str,
    pub(crate) unit: &'a str,
}

impl Default for Draft {
    fn default() -> Self {
        let request = Request { symbols: vec![String::new()], timeseries: Vec::new() };
        Self { request, places: HashMap::from([(Box::default(), 0)]) }
    }
}

impl Draft {
    /// Adds a series, its labels by name, with one sample.
    pub(crate) fn add<'a>(
        &mut self,
        labels: impl Iterator<Item = (&'a str, &'a str)>,
        sample: Sample,
        about: Option<About<'_>>,
    ) {
        let mut labels_refs = Vec::with_capacity(16);
        for (name, value) in labels {
            labels_refs.push(self.place(name));
            labels_refs.push(self.place(value));
        }
        let metadata = about.map(|about| Metadata {
            r#type: about.kind.into(),
            help_ref: self.place(about.help),
            unit_ref: self.place(about.unit),
        });
        self.request.timeseries.push(TimeSeries { labels_refs, samples: vec![sample], metadata });
    }

    /// Number of samples.
    pub(crate) fn samples(&self) -> usize {
        self.request.timeseries.len()
    }

    /// The request of all that was added.
    pub(crate) fn finish(self) -> Request {
        self.request
    }

    fn place(&mut self, text: &str) -> u32 {
        if let Some(place) = self.places.get(text) {
            return *place;
        }
        let place = u32::try_from(self.request.symbols.len()).unwrap_or(0);
        self.request.symbols.push(text.to_owned());
        self.places.insert(text.into(), place);
        place
    }
}

impl Request {
    /// The same samples for 1.0, which has no start times. Metrics are described whose family is not among `described`,
    /// and join it.
    pub(crate) fn for_version_1(&self, described: &mut HashSet<String>) -> WriteRequest {
        let mut metadata: BTreeMap<&str, MetricMetadata> = BTreeMap::new();
        let mut timeseries = Vec::with_capacity(self.timeseries.len());
        for series in &self.timeseries {
            let pair = |pair: &[u32]| match pair {
                [name, value] => Some((self.symbol(*name), self.symbol(*value))),
                _ => None,
            };
            let labels: Vec<(&str, &str)> = series.labels_refs.chunks(2).filter_map(pair).collect();
            let name = labels.iter().find(|(name, _)| *name == NAME).map(|(_, value)| *value);
            if let (Some(name), Some(about)) = (name, &series.metadata) {
                let family = family_of(name, about.r#type());
                if !described.contains(family) {
                    metadata.entry(family).or_insert_with(|| MetricMetadata {
                        r#type: about.r#type,
                        metric_family_name: family.to_owned(),
                        help: self.symbol(about.help_ref).to_owned(),
                        unit: self.symbol(about.unit_ref).to_owned(),
                    });
                }
            }
            let label =
                |(name, value): (&str, &str)| Label { name: name.to_owned(), value: value.to_owned() };
            let sample = |sample: &Sample| TimedValue { value: sample.value, timestamp: sample.timestamp };
            timeseries.push(LabelledSeries {
                labels: labels.into_iter().map(label).collect(),
                samples: series.samples.iter().map(sample).collect(),
            });
        }
        described.extend(metadata.keys().map(|family| (*family).to_owned()));
        WriteRequest { timeseries, metadata: metadata.into_values().collect() }
    }

    /// Time of the newest sample, milliseconds since 1970.
    pub(crate) fn newest_ms(&self) -> i64 {
        let samples = self.timeseries.iter().flat_map(|series| &series.samples);
        samples.map(|sample| sample.timestamp).max().unwrap_or(i64::MIN)
    }

    fn symbol(&self, place: u32) -> &str {
        let place = usize::try_from(place).unwrap_or(usize::MAX);
        self.symbols.get(place).map_or("", String::as_str)
    }
}

/// Family of a series: without the suffix of a histogram's parts.
fn family_of(name: &str, kind: MetricType) -> &str {
    let is_histogram = kind == MetricType::Histogram;
    let stem = ["_bucket", "_sum", "_count"].into_iter().find_map(|part| name.strip_suffix(part));
    stem.filter(|_| is_histogram).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_1_has_the_same_samples_and_describes_a_family_once() {
        let mut draft = Draft::default();
        let sample = Sample { value: 2.0, timestamp: 5, start_timestamp: 1 };
        let about = |kind| Some(About { kind, help: "Help.", unit: "seconds" });
        let names = [
            ("x_seconds_bucket", MetricType::Histogram),
            ("x_seconds_sum", MetricType::Histogram),
            ("y_sum", MetricType::Gauge),
        ];
        for (name, kind) in names {
            draft.add([(NAME, name), ("job", "g")].into_iter(), sample, about(kind));
        }
        draft.add([(NAME, "gone")].into_iter(), sample, None);
        let request = draft.finish();
        assert_eq!(request.newest_ms(), 5);
        let mut described = HashSet::from(["y_sum".to_owned()]);
        let old = request.for_version_1(&mut described);
        let label = |name: &str, value: &str| Label { name: name.to_owned(), value: value.to_owned() };
        assert_eq!(old.timeseries.len(), 4);
        assert_eq!(old.timeseries[0].labels, [label(NAME, "x_seconds_bucket"), label("job", "g")]);
        assert_eq!(old.timeseries[0].samples, [TimedValue { value: 2.0, timestamp: 5 }]);
        assert_eq!(
            old.metadata,
            [MetricMetadata {
                r#type: MetricType::Histogram.into(),
                metric_family_name: "x_seconds".to_owned(),
                help: "Help.".to_owned(),
                unit: "seconds".to_owned(),
            }]
        );
        assert_eq!(request.for_version_1(&mut described).metadata, []);
    }
}
