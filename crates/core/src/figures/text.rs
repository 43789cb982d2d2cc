//! Families as text.
//!
//! Formats: Prometheus text exposition 0.0.4; OpenMetrics 1.0.0, which omits the suffix of counters and infos
//! in the head, has a line for units, and ends in `# EOF`.

use super::{BucketCounts, Family, Kind, Labels, Number, SampleValue};

/// Text format of a scrape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Prometheus text, version 0.0.4.
    Prometheus,
    /// OpenMetrics text, version 1.0.0.
    OpenMetrics,
}

impl Format {
    /// Value of the `Content-Type` header.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// The format that an `Accept` header prefers: OpenMetrics if it is named and nothing named has a higher
    /// weight, else Prometheus text.
    pub fn accepted(header: &str) -> Self {
        let (mut open_metrics, mut plain) = (0.0_f32, 0.0_f32);
        for range in header.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default();
            let quality = parts.find_map(|part| part.strip_prefix("q=")).and_then(|q| q.parse().ok());
            let quality = quality.unwrap_or(1.0_f32);
            if media.eq_ignore_ascii_case("application/openmetrics-text") {
                open_metrics = open_metrics.max(quality);
            } else if media.eq_ignore_ascii_case("text/plain") {
                plain = plain.max(quality);
            }
        }
        if open_metrics > 0.0 && open_metrics >= plain { Self::OpenMetrics } else { Self::Prometheus }
    }
}

/// Families as Prometheus text, version 0.0.4.
pub fn render(families: &[Family]) -> Vec<u8> {
    let mut out = Vec::with_capacity(16 << 10);
    for family in families {
        family.write(Format::Prometheus, &mut out);
    }
    out
}

impl Family {
    /// Appends head and samples; nothing if no sample has a value.
    pub fn write(&self, format: Format, out: &mut Vec<u8>) {
        let start = out.len();
        self.write_head(format, out);
        let head_end = out.len();
        for sample in &self.samples {
            match &sample.value {
                SampleValue::Number(number) => write_sample(&self.name, "", &sample.labels, *number, out),
                SampleValue::Buckets(buckets) => write_buckets(&self.name, &sample.labels, buckets, out),
            }
        }
        if out.len() == head_end {
            out.truncate(start);
        }
    }

    /// Appends help, type and, in OpenMetrics, unit.
    pub fn write_head(&self, format: Format, out: &mut Vec<u8>) {
        let own = self.name.as_ref();
        let (name, kind, unit) = match (format, self.kind) {
            (_, Kind::Histogram) => (own, "histogram", self.unit),
            (Format::Prometheus, Kind::Counter) => (own, "counter", ""),
            (Format::Prometheus, Kind::Gauge | Kind::Info) => (own, "gauge", ""),
            (Format::OpenMetrics, Kind::Gauge) => (own, "gauge", self.unit),
            // A counter under another naming scheme (DCGM's) cannot be called one here.
            (Format::OpenMetrics, Kind::Counter) => match own.strip_suffix("_total") {
                Some(stem) => (stem, "counter", self.unit),
                None => (own, "unknown", self.unit),
            },
            (Format::OpenMetrics, Kind::Info) => match own.strip_suffix("_info") {
                Some(stem) => (stem, "info", self.unit),
                None => (own, "gauge", self.unit),
            },
        };
        write_all(out, &["# HELP ", name, " "]);
        let quotes = match format {
            Format::OpenMetrics => Quotes::Escaped,
            Format::Prometheus => Quotes::Plain,
        };
        write_escaped(out, &self.help, quotes);
        write_all(out, &["\n# TYPE ", name, " ", kind, "\n"]);
        let names_unit = name.strip_suffix(unit).is_some_and(|stem| stem.ends_with('_'));
        if format == Format::OpenMetrics && names_unit && !unit.is_empty() {
            write_all(out, &["# UNIT ", name, " ", unit, "\n"]);
        }
    }
}

/// Appends the line of a sample; nothing if its number is not finite.
fn write_sample(name: &str, suffix: &str, labels: &Labels, number: Number, out: &mut Vec<u8>) {
    let start = out.len();
    write_all(out, &[name, suffix]);
    if !labels.is_empty() {
        out.push(b'{');
        for (label, text) in labels {
            write_label(out, label, text);
        }
        out.push(b'}');
    }
    out.push(b' ');
    if number.write(out) {
        out.push(b'\n');
    } else {
        out.truncate(start);
    }
}

/// Appends the cumulative buckets, the sum in seconds and the count.
fn write_buckets(name: &str, labels: &Labels, buckets: &BucketCounts, out: &mut Vec<u8>) {
    for (suffix, bound, number) in buckets.series() {
        let labels: Labels = labels.iter().cloned().chain(bound.map(|bound| ("le", bound))).collect();
        write_sample(name, suffix, &labels, number, out);
    }
}

/// Appends texts, one behind the other.
pub fn write_all(out: &mut Vec<u8>, texts: &[&str]) {
    for text in texts {
        out.extend_from_slice(text.as_bytes());
    }
}

/// Appends `name="text"`, after a comma unless it is the first after `{`.
pub fn write_label(out: &mut Vec<u8>, name: &str, text: &str) {
    if out.last().is_some_and(|last| *last != b'{' && *last != b',') {
        out.push(b',');
    }
    write_all(out, &[name, "=\""]);
    write_escaped(out, text, Quotes::Escaped);
    out.push(b'"');
}

/// How a text has quotation marks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Quotes {
    Escaped,
    Plain,
}

fn write_escaped(out: &mut Vec<u8>, text: &str, quotes: Quotes) {
    for byte in text.bytes() {
        match byte {
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'"' if quotes == Quotes::Escaped => out.extend_from_slice(b"\\\""),
            _ => out.push(byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{BUCKET_BOUNDS, Histogram};
    use super::*;

    fn text(family: &Family, format: Format) -> String {
        let mut out = Vec::new();
        family.write(format, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn texts_of_labels_and_help_are_escaped() {
        let odd = "a \\ \"b\"\nc";
        let family = Family::new("jobs_total", Kind::Counter, odd)
            .with(vec![("job", odd.to_owned()), ("empty", String::new())], Number::Int(7));
        assert_eq!(
            text(&family, Format::Prometheus),
            "# HELP jobs_total a \\\\ \"b\"\\nc\n# TYPE jobs_total counter\n\
             jobs_total{job=\"a \\\\ \\\"b\\\"\\nc\",empty=\"\"} 7\n"
        );
    }

    #[test]
    fn a_histogram_has_cumulative_buckets_a_sum_in_seconds_and_a_count() {
        let histogram = Histogram::default();
        for took in [Duration::from_micros(100), Duration::from_micros(101), Duration::from_mins(1)] {
            histogram.observe(took);
        }
        let family = Family::new("wait_seconds", Kind::Histogram, "Time.")
            .with(vec![("route", "/".to_owned())], histogram.read());
        let text = text(&family, Format::Prometheus);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2 + BUCKET_BOUNDS.len() + 3);
        assert_eq!(
            lines[1..4],
            [
                "# TYPE wait_seconds histogram",
                "wait_seconds_bucket{route=\"/\",le=\"0.0001\"} 1",
                "wait_seconds_bucket{route=\"/\",le=\"0.00025\"} 2"
            ]
        );
        assert_eq!(
            lines[lines.len() - 4..],
            [
                "wait_seconds_bucket{route=\"/\",le=\"10\"} 2",
                "wait_seconds_bucket{route=\"/\",le=\"+Inf\"} 3",
                "wait_seconds_sum{route=\"/\"} 60.000201",
                "wait_seconds_count{route=\"/\"} 3"
            ]
        );
    }

    #[test]
    fn what_is_absent_is_not_written() {
        let empty = Family::new("a", Kind::Gauge, "A.");
        let not_finite = Family::gauge("b", "B.", f64::NAN);
        let one_of_two = Family::new("c", Kind::Gauge, "C.").by("of", [("x", f64::INFINITY), ("y", 0.5)]);
        let text = String::from_utf8(render(&[empty, not_finite, one_of_two])).unwrap();
        assert_eq!(text, "# HELP c C.\n# TYPE c gauge\nc{of=\"y\"} 0.5\n");
    }

    #[test]
    fn openmetrics_names_counters_and_infos_without_suffix_and_says_units() {
        let table = [
            (Family::counter("read_seconds_total", "R.", 1_u64), "read_seconds counter", "seconds"),
            (
                Family::new("build_info", Kind::Info, "B.").with(Labels::new(), Number::Int(1)),
                "build info",
                "",
            ),
            (Family::counter("DCGM_REPLAYS", "D.", 1_u64), "DCGM_REPLAYS unknown", ""),
            (Family::gauge("held_bytes", "H.", 1_u64), "held_bytes gauge", "bytes"),
        ];
        for (family, wanted, unit) in table {
            let text = text(&family, Format::OpenMetrics);
            assert!(text.contains(&format!("# TYPE {wanted}\n")), "{text}");
            assert_eq!(text.contains("# UNIT "), !unit.is_empty(), "{text}");
            assert!(text.contains(unit), "{text}");
        }
    }

    #[test]
    fn a_prometheus_server_gets_openmetrics_and_curl_gets_text() {
        let server = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                      text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        let table = [
            (server, Format::OpenMetrics),
            ("*/*", Format::Prometheus),
            ("", Format::Prometheus),
            ("text/plain, application/openmetrics-text;q=0.5", Format::Prometheus),
            ("application/openmetrics-text;q=0", Format::Prometheus),
        ];
        for (header, wanted) in table {
            assert_eq!(Format::accepted(header), wanted, "{header}");
        }
    }
}
