//! A family has a head in either format, and its series.

use std::borrow::Cow;

use gpuvitals_core::catalogue::Metric;
use gpuvitals_core::figures::{Family, Format, Kind, write_all, write_label};

use crate::labels::LabelSet;
use crate::reading::Reading;

/// A series: its fixed part, its labels and its value.
#[derive(Debug)]
pub(crate) struct Line {
    /// `name{`, the fixed labels, and a comma; for the host everything up to the value.
    pub(crate) prefix: Box<[u8]>,
    pub(crate) fixed: Vec<(&'static str, &'static str)>,
    pub(crate) labels: LabelSet,
    pub(crate) reading: Reading,
    /// The catalogue's row, if the series shows its column as it is.
    pub(crate) metric: Option<&'static Metric>,
}

/// A family: its head in either format, and its series, each for every GPU.
#[derive(Debug)]
pub(crate) struct FamilyPlan {
    /// Name, type and help, without samples.
    pub(crate) family: Family,
    heads: [Box<[u8]>; 2],
    lines: Vec<Line>,
}

impl FamilyPlan {
    pub(crate) fn new(
        name: impl Into<Cow<'static, str>>,
        kind: Kind,
        unit: &'static str,
        help: impl Into<Cow<'static, str>>,
    ) -> Self {
        let family = Family { unit, ..Family::new(name, kind, help) };
        let heads = [Format::Prometheus, Format::OpenMetrics].map(|format| {
            let mut out = Vec::new();
            family.write_head(format, &mut out);
            out.into()
        });
        Self { family, heads, lines: Vec::new() }
    }

    pub(crate) fn head(&self, format: Format) -> &[u8] {
        let [prometheus, open_metrics] = &self.heads;
        if format == Format::Prometheus { prometheus } else { open_metrics }
    }

    pub(crate) fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// Adds a series that is not in the catalogue, or not its column unchanged.
    pub(crate) fn line(
        self,
        fixed: &[(&'static str, &'static str)],
        labels: LabelSet,
        reading: Reading,
    ) -> Self {
        self.add(fixed, labels, reading, None)
    }

    /// Adds the series of a row of the catalogue.
    pub(crate) fn line_of(self, metric: &'static Metric, labels: LabelSet, reading: Reading) -> Self {
        self.add(metric.labels, labels, reading, Some(metric))
    }

    fn add(
        mut self,
        fixed: &[(&'static str, &'static str)],
        labels: LabelSet,
        reading: Reading,
        metric: Option<&'static Metric>,
    ) -> Self {
        let mut prefix = Vec::new();
        write_all(&mut prefix, &[&self.family.name, "{"]);
        for (label, text) in fixed {
            write_label(&mut prefix, label, text);
        }
        match labels {
            LabelSet::Host if fixed.is_empty() => {
                prefix.pop();
                prefix.push(b' ');
            }
            LabelSet::Host => prefix.extend_from_slice(b"} "),
            _ if fixed.is_empty() => {}
            _ => prefix.push(b','),
        }
        self.lines.push(Line { prefix: prefix.into(), fixed: fixed.to_vec(), labels, reading, metric });
        self
    }
}

/// The catalogue's sentence without the column's unit, which is not the unit of a series in base units.
pub(crate) fn base_help(metric: &Metric) -> String {
    metric.help.replace(", in MiB", "").replace(", in ns", "").replace(", in revolutions per minute", "")
}
