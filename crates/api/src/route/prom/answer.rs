//! Results of queries as Prometheus writes them.

use gpuvitals_core::figures::Number;
use gpuvitals_promql::{Grid, Outcome, PromSeries, SeriesLabels, spell};
use serde_json::{Map, Value};

use super::failure::MILLISECOND_NS;

/// Cuts a result to so many series. Returns whether there were more.
pub(super) fn cut(result: &mut Outcome, limit: usize) -> bool {
    let count = match result {
        Outcome::Vector(series) => {
            let count = series.len();
            series.truncate(limit);
            count
        }
        Outcome::Ranges(ranges) => {
            let count = ranges.len();
            ranges.truncate(limit);
            count
        }
        Outcome::Scalar(_) | Outcome::Text(_) => 0,
    };
    count > limit
}

/// The result of a query by steps.
pub(super) fn matrix(json: &mut Vec<u8>, result: Outcome, grid: Grid) -> Result<(), serde_json::Error> {
    let all = match result {
        Outcome::Vector(series) => series,
        Outcome::Scalar(numbers) => {
            vec![PromSeries {
                labels: SeriesLabels::default(),
                values: numbers.into_iter().map(Some).collect(),
            }]
        }
        Outcome::Text(_) | Outcome::Ranges(_) => Vec::new(),
    };
    json.extend_from_slice(b"{\"resultType\":\"matrix\",\"result\":[");
    for (at, PromSeries { labels, values }) in all.iter().enumerate() {
        separate(json, at);
        metric(json, labels)?;
        json.extend_from_slice(b",\"values\":[");
        let pairs = grid.times().zip(values).filter_map(|(time_ns, value)| Some((time_ns, (*value)?)));
        for (at, (time_ns, value)) in pairs.enumerate() {
            separate(json, at);
            pair(json, time_ns, value);
        }
        json.extend_from_slice(b"]}");
    }
    json.extend_from_slice(b"]}");
    Ok(())
}

/// The result of a query at one instant.
pub(super) fn instant(json: &mut Vec<u8>, result: Outcome, time_ns: i64) -> Result<(), serde_json::Error> {
    let begin = |json: &mut Vec<u8>, kind: &str| {
        json.extend_from_slice(format!("{{\"resultType\":\"{kind}\",\"result\":").as_bytes());
    };
    match result {
        Outcome::Scalar(numbers) => {
            begin(json, "scalar");
            pair(json, time_ns, numbers.first().copied().unwrap_or(f64::NAN));
        }
        Outcome::Text(text) => {
            begin(json, "string");
            json.push(b'[');
            seconds(json, time_ns);
            json.push(b',');
            serde_json::to_writer(&mut *json, &text)?;
            json.push(b']');
        }
        Outcome::Vector(all) => {
            begin(json, "vector");
            json.push(b'[');
            let there = all.iter().filter_map(|one| Some((&one.labels, (*one.values.first()?)?)));
            for (at, (labels, value)) in there.enumerate() {
                separate(json, at);
                metric(json, labels)?;
                json.extend_from_slice(b",\"value\":");
                pair(json, time_ns, value);
                json.push(b'}');
            }
            json.push(b']');
        }
        Outcome::Ranges(all) => {
            begin(json, "matrix");
            json.push(b'[');
            for (at, (labels, points)) in all.iter().enumerate() {
                separate(json, at);
                metric(json, labels)?;
                json.extend_from_slice(b",\"values\":[");
                for (at, (time_ns, value)) in points.iter().enumerate() {
                    separate(json, at);
                    pair(json, *time_ns, *value);
                }
                json.extend_from_slice(b"]}");
            }
            json.push(b']');
        }
    }
    json.push(b'}');
    Ok(())
}

fn separate(json: &mut Vec<u8>, at: usize) {
    if at > 0 {
        json.push(b',');
    }
}

/// The beginning of a series: its labels.
fn metric(json: &mut Vec<u8>, labels: &SeriesLabels) -> Result<(), serde_json::Error> {
    json.extend_from_slice(b"{\"metric\":");
    serde_json::to_writer(json, &labels_of(labels))
}

pub(super) fn labels_of(labels: &SeriesLabels) -> Map<String, Value> {
    labels.iter().map(|(name, text)| (name.to_owned(), text.into())).collect()
}

/// A time in seconds and a value.
fn pair(json: &mut Vec<u8>, time_ns: i64, value: f64) {
    json.push(b'[');
    seconds(json, time_ns);
    json.extend_from_slice(b",\"");
    spell(value, json);
    json.extend_from_slice(b"\"]");
}

/// Seconds to the millisecond.
fn seconds(json: &mut Vec<u8>, time_ns: i64) {
    Number::Nanoseconds(time_ns.div_euclid(MILLISECOND_NS) * MILLISECOND_NS).write(json);
}
