//! Spelling of the two text formats: heads of families, numbers, labels.
//!
//! Formats: Prometheus text exposition 0.0.4; OpenMetrics 1.0.0, which differs in that counters and infos are named
//! without their suffix in the head, units have a line, and the text ends in `# EOF`.

use std::io::Write as _;

use gpuvitals_core::batch::Value;

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

    /// What an `Accept` header asks for: OpenMetrics if it is named and nothing named is liked better, else Prometheus
    /// text.
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

/// What a family is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Goes up and down.
    Gauge,
    /// Only grows, from 0 at the start of whoever counts.
    Counter,
    /// Always 1; its labels are what it tells.
    Info,
}

/// Head of a family: name, kind, unit (empty for none) and help.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head<'a> {
    pub(crate) name: &'a str,
    pub(crate) kind: Kind,
    pub(crate) unit: &'a str,
    pub(crate) help: &'a str,
}

impl Head<'_> {
    pub(crate) fn write(&self, format: Format, out: &mut Vec<u8>) {
        let (name, kind, unit) = match format {
            Format::Prometheus => {
                let kind = if self.kind == Kind::Counter { "counter" } else { "gauge" };
                (self.name, kind, "")
            }
            Format::OpenMetrics => {
                let stem = |suffix| self.name.strip_suffix(suffix);
                let (name, kind) = match self.kind {
                    Kind::Gauge => (self.name, "gauge"),
                    // A counter of another naming (DCGM's) cannot be called one here.
                    Kind::Counter => stem("_total").map_or((self.name, "unknown"), |stem| (stem, "counter")),
                    Kind::Info => stem("_info").map_or((self.name, "gauge"), |stem| (stem, "info")),
                };
                let has_unit = name.strip_suffix(self.unit).is_some_and(|stem| stem.ends_with('_'));
                (name, kind, if has_unit { self.unit } else { "" })
            }
        };
        write_all(out, &["# HELP ", name, " "]);
        write_escaped(out, self.help, format == Format::OpenMetrics);
        write_all(out, &["\n# TYPE ", name, " ", kind, "\n"]);
        if !unit.is_empty() {
            write_all(out, &["# UNIT ", name, " ", unit, "\n"]);
        }
    }
}

/// Appends texts.
pub(crate) fn write_all(out: &mut Vec<u8>, texts: &[&str]) {
    for text in texts {
        out.extend_from_slice(text.as_bytes());
    }
}

/// Appends `name="text"`, after a comma unless it is the first after `{`.
pub(crate) fn write_label(out: &mut Vec<u8>, name: &str, text: &str) {
    if out.last().is_some_and(|last| *last != b'{' && *last != b',') {
        out.push(b',');
    }
    write_all(out, &[name, "=\""]);
    write_escaped(out, text, true);
    out.push(b'"');
}

fn write_escaped(out: &mut Vec<u8>, text: &str, quotes: bool) {
    for byte in text.bytes() {
        match byte {
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'"' if quotes => out.extend_from_slice(b"\\\""),
            _ => out.push(byte),
        }
    }
}

/// A number on its way into the text.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Number {
    Int(i64),
    F32(f32),
    F64(f64),
    /// Seconds, exactly, from nanoseconds.
    Nanoseconds(i64),
}

impl Number {
    /// Appends the shortest spelling that reads back as the same number, without an exponent; false, and nothing, if it is
    /// not finite.
    pub(crate) fn write(self, out: &mut Vec<u8>) -> bool {
        match self {
            Self::Int(v) => write_int(out, v),
            Self::Nanoseconds(v) => write_nanoseconds(out, v),
            Self::F32(v) if v.is_finite() => match whole(f64::from(v)) {
                Some(v) => write_int(out, v),
                // Writing to a vector cannot fail.
                None => drop(write!(out, "{v}")),
            },
            Self::F64(v) if v.is_finite() => match whole(v) {
                Some(v) => write_int(out, v),
                None => drop(write!(out, "{v}")),
            },
            Self::F32(_) | Self::F64(_) => return false,
        }
        true
    }
}

/// The integer that a float is, where it is one.
#[expect(clippy::cast_possible_truncation, reason = "within 2^53")]
fn whole(value: f64) -> Option<i64> {
    (value.abs() < 9e15 && value.fract() == 0.0).then_some(value as i64)
}

fn write_int(out: &mut Vec<u8>, value: i64) {
    let mut digits = [0_u8; 20];
    let mut at = digits.len();
    let mut rest = value.unsigned_abs();
    loop {
        at -= 1;
        if let Some(digit) = digits.get_mut(at) {
            *digit = b'0' + u8::try_from(rest % 10).unwrap_or(0);
        }
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(digits.get(at..).unwrap_or_default());
}

fn write_nanoseconds(out: &mut Vec<u8>, value: i64) {
    const SECOND: u64 = 1_000_000_000;
    if value < 0 {
        out.push(b'-');
    }
    let (seconds, mut rest) = (value.unsigned_abs() / SECOND, value.unsigned_abs() % SECOND);
    write_int(out, i64::try_from(seconds).unwrap_or(i64::MAX));
    if rest > 0 {
        out.push(b'.');
    }
    let mut place = SECOND / 10;
    while rest > 0 {
        out.push(b'0' + u8::try_from(rest / place).unwrap_or(0));
        rest %= place;
        place /= 10;
    }
}

/// From the column's unit to that of a series. A factor below 1 is a division by a whole number, which is exact to the
/// last digit where multiplying is not.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Scale {
    Times(i64),
    Over(f64),
    By(f64),
}

impl Scale {
    pub(crate) fn of(factor: f64) -> Self {
        if let Some(times) = whole(factor) {
            return Self::Times(times);
        }
        let inverse = (1.0 / factor).round();
        if (inverse * factor - 1.0).abs() < 1e-12 { Self::Over(inverse) } else { Self::By(factor) }
    }

    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "the type of the column"
    )]
    pub(crate) fn apply(self, value: Value) -> Number {
        match (value, self) {
            (Value::Int(v), Self::Times(times)) => {
                v.checked_mul(times).map_or(Number::F64(v as f64 * times as f64), Number::Int)
            }
            (Value::Int(v), Self::Over(1e9)) => Number::Nanoseconds(v),
            (Value::Float32(v), Self::Times(1)) => Number::F32(v),
            (Value::Float32(v), _) => Number::F32(self.float(v.into()) as f32),
            _ => Number::F64(self.float(value.as_f64())),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "factors are far below 2^52")]
    fn float(self, value: f64) -> f64 {
        match self {
            Self::Times(times) => value * times as f64,
            Self::Over(parts) => value / parts,
            Self::By(factor) => value * factor,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(number: Number) -> String {
        let mut out = Vec::new();
        number.write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn numbers_are_short_and_have_no_exponent() {
        let table = [
            (Number::Int(i64::MIN), "-9223372036854775808"),
            (Number::Int(0), "0"),
            (Number::F32(689.457), "689.457"),
            (Number::F32(97.0), "97"),
            (Number::F64(0.1 + 0.2), "0.30000000000000004"),
            (Number::F64(1e-7), "0.0000001"),
            (Number::F64(322_435_711_239.0), "322435711239"),
            (Number::F64(-0.5), "-0.5"),
            (Number::F64(f64::NAN), ""),
            (Number::F32(f32::INFINITY), ""),
            (Number::Nanoseconds(1_752_871_354_250_000_001), "1752871354.250000001"),
            (Number::Nanoseconds(3_000_000_000), "3"),
            (Number::Nanoseconds(-1_500_000_000), "-1.5"),
        ];
        for (number, wanted) in table {
            assert_eq!(text(number), wanted, "{number:?}");
        }
    }

    #[test]
    fn scaling_adds_no_digits() {
        let table = [
            (Value::Float32(97.5), 0.01, "0.975"),
            (Value::Float32(33.3), 0.01, "0.333"),
            (Value::Float32(689.457), 1.0, "689.457"),
            (Value::Int(1_755), 1e6, "1755000000"),
            (Value::Int(77_413), 1_048_576.0, "81173413888"),
            (Value::Int(1_250), 1e-3, "1.25"),
            (Value::Int(1_200_000_000), 1e-9, "1.2"),
            (Value::Int(i64::MAX), 1e6, "9223372036854776000000000"),
            (Value::Float(12.5), 1e3, "12500"),
            (Value::Float32(32.0), 1e9, "32000000000"),
        ];
        for (value, factor, wanted) in table {
            assert_eq!(text(Scale::of(factor).apply(value)), wanted, "{value:?} × {factor}");
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
