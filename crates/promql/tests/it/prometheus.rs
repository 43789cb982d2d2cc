//! The same samples in Debian's Prometheus, and the same answers.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use gpuvitals_promql::{Grid, Outcome, PromAnswer, PromLimits, SeriesLabels, query};
use gpuvitals_rig::program::Finished as _;
use serde_json::Value;

use crate::queries::queries;
use crate::world::{BASE_NS, EVERY_NS, ROWS, SECOND_NS, World};

/// Larger than any rounding of sums in another order, smaller than any error.
const TOLERANCE: f64 = 1e-9;

/// By labels: instant in milliseconds, value.
type Lines = BTreeMap<String, BTreeMap<i64, f64>>;

struct Prometheus {
    child: Child,
    url: String,
}

impl Prometheus {
    /// With blocks of these samples.
    fn start(folder: &Path, text: &str) -> Self {
        let samples = folder.join("samples.txt");
        std::fs::write(&samples, text).unwrap();
        let made = Command::new("promtool")
            .args(["tsdb", "create-blocks-from", "openmetrics"])
            .args([&samples, &folder.join("tsdb")])
            .finished()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        std::fs::write(folder.join("prometheus.yml"), "").unwrap();
        let mut child = Command::new("prometheus")
            .arg(format!("--config.file={}", folder.join("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("tsdb").display()))
            .args(["--storage.tsdb.retention.time=100y", "--web.listen-address=127.0.0.1:0"])
            .args(["--log.level=info", "--enable-feature=promql-at-modifier,promql-negative-offset"])
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = lines.find_map(|line| {
            let line = line.unwrap();
            let (_, rest) = line.split_once("msg=\"Listening on\" address=")?;
            Some(rest.trim().to_owned())
        });
        let ready = lines.find(|line| line.as_ref().unwrap().contains("ready to receive web requests"));
        assert!(ready.is_some(), "Prometheus ended");
        // What it says from now on must not fill the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, url: format!("http://{}", address.unwrap()) }
    }

    fn ask(&self, text: &str, grid: Grid) -> Result<Lines, String> {
        let agent: ureq::Agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from_mins(1)))
            .build()
            .into();
        let time = |ns: i64| format!("{}", ns as f64 / 1e9);
        let request = if grid.count == 1 {
            agent.get(format!("{}/api/v1/query", self.url)).query("time", time(grid.start_ns))
        } else {
            agent
                .get(format!("{}/api/v1/query_range", self.url))
                .query("start", time(grid.start_ns))
                .query("end", time(grid.range_end_ns.unwrap()))
                .query("step", time(grid.step_ns))
        };
        let body = request.query("query", text).call().unwrap().body_mut().read_to_string().unwrap();
        let answer: Value = serde_json::from_str(&body).unwrap();
        if answer["status"] != "success" {
            return Err(answer["error"].to_string());
        }
        let data = &answer["data"];
        let mut lines = Lines::new();
        if data["resultType"] == "scalar" {
            let (time, value) = sample(&data["result"]);
            lines.entry(String::new()).or_default().insert(time, value);
            return Ok(lines);
        }
        for series in data["result"].as_array().unwrap() {
            let labels = series["metric"].as_object().unwrap();
            let labels: BTreeMap<&str, &str> =
                labels.iter().map(|(name, text)| (name.as_str(), text.as_str().unwrap())).collect();
            let line = lines.entry(format!("{labels:?}")).or_default();
            let values = series
                .get("values")
                .map_or_else(|| vec![&series["value"]], |all| all.as_array().unwrap().iter().collect());
            line.extend(values.into_iter().map(sample));
        }
        Ok(lines)
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ended_before = self.child.kill();
        let _reaped_before = self.child.wait();
    }
}

/// Milliseconds and value of a sample.
#[expect(clippy::cast_possible_truncation, reason = "milliseconds since 1970")]
fn sample(pair: &Value) -> (i64, f64) {
    let text = pair[1].as_str().unwrap();
    let value = match text {
        "+Inf" => f64::INFINITY,
        "-Inf" => f64::NEG_INFINITY,
        other => other.parse().unwrap(),
    };
    ((pair[0].as_f64().unwrap() * 1e3).round() as i64, value)
}

fn spelled(labels: &SeriesLabels) -> String {
    format!("{:?}", labels.iter().collect::<BTreeMap<_, _>>())
}

impl World {
    fn ask(&self, text: &str, grid: Grid) -> Result<Lines, String> {
        let PromAnswer { result, missing, notes } = self
            .runtime
            .block_on(query(&self.store, text, grid, PromLimits::default()))
            .map_err(|error| error.to_string())?;
        assert!(missing.is_empty() && notes.is_empty(), "{missing:?} {notes:?}");
        let at = |values: &[Option<f64>]| {
            let values =
                grid.times().zip(values).filter_map(|(time, value)| Some((time / 1_000_000, (*value)?)));
            values.collect::<BTreeMap<i64, f64>>()
        };
        Ok(match result {
            Outcome::Scalar(numbers) => {
                let numbers: Vec<Option<f64>> = numbers.into_iter().map(Some).collect();
                let key = if grid.count == 1 { String::new() } else { "{}".to_owned() };
                Lines::from([(key, at(&numbers))])
            }
            Outcome::Vector(series) => {
                series.iter().map(|one| (spelled(&one.labels), at(&one.values))).collect()
            }
            Outcome::Ranges(ranges) => {
                let line = |points: &[(i64, f64)]| {
                    points.iter().map(|(time, value)| (time / 1_000_000, *value)).collect()
                };
                ranges.iter().map(|(labels, points)| (spelled(labels), line(points))).collect()
            }
            Outcome::Text(_) => Lines::new(),
        })
    }

    /// All samples as OpenMetrics.
    fn samples(&self) -> String {
        let all = r#"{__name__=~".+"}[2h]"#;
        let grid = Grid::at(BASE_NS + 3_601 * SECOND_NS);
        let answer = self.runtime.block_on(query(&self.store, all, grid, PromLimits::default())).unwrap();
        let Outcome::Ranges(mut ranges) = answer.result else { panic!("it asks for a range") };
        ranges.sort_by(|one, other| one.0.get("__name__").cmp(other.0.get("__name__")));
        let mut text = String::new();
        for (labels, points) in &ranges {
            let pairs: Vec<String> = labels
                .iter()
                .filter(|(name, _)| *name != "__name__")
                .map(|(name, text)| format!("{name}={text:?}"))
                .collect();
            for (time_ns, value) in points {
                let (name, pairs) = (labels.get("__name__"), pairs.join(","));
                // promtool cuts milliseconds off a float: a tenth more keeps them.
                let (seconds, millis) = (time_ns / SECOND_NS, time_ns / 1_000_000 % 1_000);
                writeln!(text, "{name}{{{pairs}}} {value} {seconds}.{millis:03}1").unwrap();
            }
        }
        text.push_str("# EOF\n");
        text
    }
}

/// The values at each instant, without their labels.
fn values(lines: &Lines) -> BTreeMap<i64, Vec<u64>> {
    let mut values: BTreeMap<i64, Vec<u64>> = BTreeMap::new();
    for (time, value) in lines.values().flatten() {
        values.entry(*time).or_default().push(value.to_bits());
    }
    for of_time in values.values_mut() {
        of_time.sort_unstable();
    }
    values
}

/// What is not the same, if anything.
fn difference(ours: &Lines, theirs: &Lines) -> Option<String> {
    for (labels, line) in theirs {
        let Some(own) = ours.get(labels) else { return Some(format!("only Prometheus has {labels}")) };
        for (time, value) in line {
            let Some(found) = own.get(time) else {
                return Some(format!("{labels} has nothing at {time}; wanted {value}"));
            };
            let is_same = (value.is_nan() && found.is_nan())
                || value == found
                || (value - found).abs() <= TOLERANCE * value.abs().max(1e-3);
            if !is_same {
                return Some(format!("{labels} at {time} is {found}; wanted {value}"));
            }
        }
        if let Some((time, value)) = own.iter().find(|(time, _)| !line.contains_key(time)) {
            return Some(format!("{labels} at {time} is {value}; Prometheus has nothing"));
        }
    }
    ours.keys().find(|labels| !theirs.contains_key(*labels)).map(|labels| format!("only we have {labels}"))
}

#[test]
fn answers_are_those_of_prometheus() {
    let world = World::new();
    let folder = tempfile::tempdir().unwrap();
    let prometheus = Prometheus::start(folder.path(), &world.samples());
    let end_ns = BASE_NS + ROWS * EVERY_NS;
    let grids = [
        // Grafana's: aligned to the step.
        Grid::between(BASE_NS, end_ns + 600 * SECOND_NS, 60 * SECOND_NS).unwrap(),
        // Not aligned to anything.
        Grid::between(BASE_NS + 700 * SECOND_NS + 123_000_000, end_ns, 47 * SECOND_NS).unwrap(),
        Grid::between(BASE_NS + 1_000 * SECOND_NS, BASE_NS + 1_300 * SECOND_NS, 7 * SECOND_NS).unwrap(),
        // Steps longer than the look back.
        Grid::between(BASE_NS - 900 * SECOND_NS, end_ns + 900 * SECOND_NS, 420 * SECOND_NS).unwrap(),
        Grid::at(BASE_NS + 2_222 * SECOND_NS),
    ];
    let queries = queries();
    assert_eq!(queries.len(), 741, "docs/promql.md says how many");
    let (mut asked, mut wrong, mut empty) = (0, Vec::new(), 0);
    for (number, text) in queries.iter().enumerate() {
        // Each by three of the grids, the instant among them.
        let of_it = grids.iter().cycle().skip(number).take(2).chain(&grids[4..]);
        for &grid in of_it {
            if text.contains("[2h]") && grid.count > 1 {
                continue;
            }
            asked += 1;
            match (world.ask(text, grid), prometheus.ask(text, grid)) {
                (Ok(ours), Ok(theirs)) => {
                    empty += usize::from(theirs.is_empty());
                    // Of equal values any may be among the first.
                    let is_tie = text.starts_with("topk") || text.starts_with("bottomk");
                    let is_other = |_: &String| !(is_tie && values(&ours) == values(&theirs));
                    wrong.extend(
                        difference(&ours, &theirs)
                            .filter(is_other)
                            .map(|what| format!("{text} by {}: {what}", grid.step_ns / SECOND_NS)),
                    );
                }
                (Err(_), Err(_)) => {}
                (ours, theirs) => {
                    wrong.push(format!(
                        "{text}: {:?} but {:?}",
                        ours.map(|lines| lines.len()),
                        theirs.map(|lines| lines.len())
                    ));
                }
            }
        }
    }
    eprintln!(
        "{} queries, {asked} questions, {empty} without an answer, {} different",
        queries.len(),
        wrong.len()
    );
    assert!(
        wrong.is_empty(),
        "{} of {asked}:\n{}",
        wrong.len(),
        wrong.iter().take(60).cloned().collect::<Vec<_>>().join("\n")
    );
    assert!(empty * 10 < asked, "too many questions without an answer");
}
