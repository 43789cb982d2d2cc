//! A family has values under one name, each with its labels.

use std::borrow::Cow;

use super::histogram::{BucketCounts, Histogram};
use super::number::Number;
use crate::catalogue::OtelName;

/// Units in the names of the services' own figures.
const UNITS: [&str; 4] = ["seconds", "bytes", "ratio", "hertz"];

/// Type of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Goes up and down.
    Gauge,
    /// Only grows, from 0 at the start of the process that counts.
    Counter,
    /// Always 1; the labels carry the information.
    Info,
    /// Durations, counted in buckets.
    Histogram,
}

/// Labels of a sample, in the order in which they are written.
pub type Labels = Vec<(&'static str, String)>;

/// A metric with all its samples.
#[derive(Debug, Clone, PartialEq)]
pub struct Family {
    /// Name, in base units; a counter's ends in `_total`, an info's in `_info`.
    pub name: Cow<'static, str>,
    /// How its numbers behave, which formats call its type.
    pub kind: Kind,
    /// Base unit as in names (`seconds`, `bytes`); empty for none.
    pub unit: &'static str,
    /// Name over OTLP; none: the same.
    pub otel: Option<OtelName>,
    /// What it measures, in one sentence.
    pub help: Cow<'static, str>,
    /// Its samples; no two have the same labels.
    pub samples: Vec<Sample>,
}

/// Value of a sample.
#[derive(Debug, Clone, PartialEq)]
pub enum SampleValue {
    /// Of a gauge, counter or info.
    Number(Number),
    /// Of a histogram.
    Buckets(BucketCounts),
}

impl Family {
    /// Whether it counts from the start of the process that shows it, if it counts: those of the program itself do. Counters of
    /// GPUs and hosts may be the hardware's, which began at a time that nobody knows.
    pub fn is_own(&self) -> bool {
        self.name.starts_with("gpuvitals_")
    }

    /// A family without samples yet. The end of its name gives the unit.
    pub fn new(name: impl Into<Cow<'static, str>>, kind: Kind, help: impl Into<Cow<'static, str>>) -> Self {
        let (name, help) = (name.into(), help.into());
        let stem = name.strip_suffix("_total").unwrap_or(&name);
        let unit = UNITS.into_iter().find(|unit| stem.ends_with(unit)).unwrap_or_default();
        Self { name, kind, unit, otel: None, help, samples: Vec::new() }
    }

    /// A counter with one sample and no labels.
    pub fn counter(name: &'static str, help: &'static str, value: impl Into<Number>) -> Self {
        Self::new(name, Kind::Counter, help).with(Labels::new(), value.into())
    }

    /// A gauge with one sample and no labels.
    pub fn gauge(name: &'static str, help: &'static str, value: impl Into<Number>) -> Self {
        Self::new(name, Kind::Gauge, help).with(Labels::new(), value.into())
    }

    /// A histogram without labels.
    pub fn histogram(name: &'static str, help: &'static str, histogram: &Histogram) -> Self {
        Self::new(name, Kind::Histogram, help).with(Labels::new(), histogram.read())
    }

    /// With one more sample.
    #[must_use]
    pub fn with(mut self, labels: Labels, value: impl Into<SampleValue>) -> Self {
        self.samples.push(Sample { labels, value: value.into(), at_ns: None });
        self
    }

    /// With a sample for each text of one label.
    #[must_use]
    pub fn by<T: Into<String>, N: Into<Number>>(
        mut self,
        label: &'static str,
        samples: impl IntoIterator<Item = (T, N)>,
    ) -> Self {
        let of_text = |(text, value): (T, N)| Sample {
            labels: vec![(label, text.into())],
            value: SampleValue::Number(value.into()),
            at_ns: None,
        };
        self.samples.extend(samples.into_iter().map(of_text));
        self
    }
}

impl From<Number> for SampleValue {
    fn from(number: Number) -> Self {
        Self::Number(number)
    }
}

impl From<BucketCounts> for SampleValue {
    fn from(buckets: BucketCounts) -> Self {
        Self::Buckets(buckets)
    }
}

/// One series of a family.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Labels that distinguish it from the other samples of the family.
    pub labels: Labels,
    /// Its number, or its buckets.
    pub value: SampleValue,
    /// When it was measured, nanoseconds UTC since 1970; none: it is read now.
    pub at_ns: Option<i64>,
}
