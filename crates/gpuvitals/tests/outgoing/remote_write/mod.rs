//! `gpuvitals agent` and `gpuvitals collect` send by remote write: the real binary, to a receiver made from the definitions
//! of the protocol, and to a real Prometheus.

mod access;
mod collector;
mod prometheus;
mod receiver;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use gpuvitals_rig::gpuvitals;
use gpuvitals_rig::port::Port;
use gpuvitals_rig::program::Process;
use gpuvitals_rig::waiting;

use receiver::{Got, Knows, Labels, Receiver, Sample};

pub(crate) const WAITING: &str = "gpuvitals_remote_write_samples_waiting";

/// A node with simulated GPUs, and where their metrics are read.
pub(crate) struct Agent {
    pub(crate) process: Process,
    pub(crate) url: String,
}

impl Agent {
    /// Sends often enough for a test.
    pub(crate) fn sending(to: &str, environment: &[(&str, &str)]) -> Self {
        Self::every("200ms", to, environment)
    }

    pub(crate) fn every(interval: &str, to: &str, environment: &[(&str, &str)]) -> Self {
        let mut command = gpuvitals!();
        command
            .args(["agent", "--node", "n1", "--port", "0", "--driver", "simulated", "--remote-write-url", to])
            .env("GPUVITALS_REMOTE_WRITE_INTERVAL", interval)
            .envs(environment.iter().copied());
        let process = Process::start(&mut command);
        let line: serde_json::Value = serde_json::from_str(&process.says("metrics: http")).unwrap();
        let url = line["message"].as_str().unwrap().trim_start_matches("metrics: ").to_owned();
        Self { process, url }
    }

    pub(crate) fn page(&self) -> String {
        page(&self.url)
    }

    /// Waits until so many more intervals' samples wait.
    pub(crate) fn waits_for_more(&self, times: usize) {
        let mut waiting = 0.0;
        for _ in 0..times {
            waiting = self.until(WAITING, |samples| samples > waiting);
        }
    }

    /// Looks at the page until a series is so.
    pub(crate) fn until(&self, series: &str, is_so: impl Fn(f64) -> bool) -> f64 {
        let found = waiting::until(series, || value(&self.page(), series), |it| it.is_some_and(&is_so));
        found.unwrap()
    }
}

pub(crate) fn page(url: &str) -> String {
    ureq::get(url).call().unwrap().body_mut().read_to_string().unwrap()
}

/// The value of the series with this text before it.
pub(crate) fn value(page: &str, series: &str) -> Option<f64> {
    page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}

/// Name and labels of each series of a page that begins so, with what a sender adds.
fn series_of(page: &str, beginning: &str) -> BTreeSet<Labels> {
    let lines = page.lines().filter(|line| line.starts_with(beginning));
    lines
        .map(|line| {
            let (name, labels) = line.split_once('{').unwrap_or((line.split(' ').next().unwrap(), ""));
            // No text of the simulation has a comma, a brace or a quote in it.
            let labels = labels.split('}').next().unwrap();
            let pairs = labels.split(',').filter(|pair| !pair.is_empty()).map(|pair| {
                let (label, text) = pair.split_once('=').unwrap();
                (label.to_owned(), text.trim_matches('"').to_owned())
            });
            let added = [("__name__", name), ("instance", "n1"), ("job", "gpuvitals")];
            // As Prometheus calls it after a scrape.
            let pairs = pairs.map(|(label, text)| match label.as_str() {
                "job" => ("exported_job".to_owned(), text),
                _ => (label, text),
            });
            pairs.chain(added.map(|(label, text)| (label.to_owned(), text.to_owned()))).collect()
        })
        .collect()
}

/// The times of each series in the order in which they came; those of refused requests are left out.
fn times(got: &[Got]) -> BTreeMap<Labels, Vec<i64>> {
    let mut times: BTreeMap<Labels, Vec<i64>> = BTreeMap::new();
    for sample in got.iter().filter(|got| got.status == 204).flat_map(|got| &got.samples) {
        times.entry(sample.labels.clone()).or_default().push(sample.at_ms);
    }
    times
}

fn assert_in_order_and_once(got: &[Got]) {
    for (labels, times) in times(got) {
        assert!(times.is_sorted_by(|one, next| one < next), "{labels:?}: {times:?}");
    }
}

pub(crate) fn find<'a>(got: &'a Got, name: &str) -> &'a Sample {
    let found = got.samples.iter().find(|sample| sample.name() == name);
    found.unwrap_or_else(|| panic!("no {name} among {} samples", got.samples.len()))
}

#[test]
fn an_agents_values_arrive_under_the_names_of_its_page_with_their_own_times() {
    for (protocol, version) in [("1.0", 1), ("2.0", 2)] {
        let receiver = Receiver::start();
        let agent = Agent::sending(&receiver.url, &[("GPUVITALS_REMOTE_WRITE_PROTOCOL", protocol)]);
        // What came three times came twice with all that goes with it, in however many requests.
        let enough = |got: &[Got]| {
            let times = times(got);
            let is_often = |series: &Labels| times.get(series).is_some_and(|times| times.len() > 2);
            got.len() >= 6 && series_of(&agent.page(), "gpu_power").iter().all(is_often)
        };
        let got = receiver.until("all series", enough);
        assert!(got.iter().all(|got| (got.version, got.status) == (version, 204)));
        assert_in_order_and_once(&got);
        let page = agent.page();
        let shown = &series_of(&page, "gpu_") | &series_of(&page, "host_");
        // What is said while a GPU starts is said once, and may be over when the page is looked at.
        let sent: BTreeSet<Labels> =
            times(&got).into_iter().filter(|(_, times)| times.len() > 1).map(|(labels, _)| labels).collect();
        // Before its first reading the simulation does not know its GPUs.
        let is_ours = |labels: &&Labels| {
            let name = &labels["__name__"];
            ["gpu_", "host_"].iter().any(|of| name.starts_with(of)) && !is_unnamed(labels)
        };
        let unknown: Vec<_> = sent.iter().filter(is_ours).filter(|labels| !shown.contains(*labels)).collect();
        assert!(unknown.is_empty(), "not on the page: {unknown:?}");
        assert!(shown.iter().filter(|labels| sent.contains(*labels)).count() > 8 * 20, "{}", sent.len());
        assert!(sent.iter().any(|labels| labels["__name__"] == "gpuvitals_rows_total"));

        // A value is as old as its sample: that of the GPU's last one.
        let got = got.iter().rev().find(|got| got.samples.iter().any(|it| it.name() == "gpu_power_watts"));
        let (watts, last) = (find(got.unwrap(), "gpu_power_watts"), "gpu_last_sample_timestamp_seconds");
        let last = got
            .unwrap()
            .samples
            .iter()
            .find(|it| it.name() == last && it.labels["uuid"] == watts.labels["uuid"]);
        // A float of seconds is good to less than a millisecond.
        assert!((watts.at_ms - (last.unwrap().value * 1_000.0) as i64).abs() <= 1, "{watts:?} {last:?}");
        agent.until("gpuvitals_remote_write_samples_sent_total", |sent| sent > 0.0);
        assert_eq!(value(&agent.page(), "gpuvitals_remote_write_up"), Some(1.0));
        assert_eq!(agent.process.terminated().0, Some(0));
        described(&receiver.got(), version);
        ended(&receiver.got());
    }
}

fn is_unnamed(labels: &Labels) -> bool {
    labels.get("uuid").is_some_and(|uuid| uuid == "simulated")
}

/// Series that were gone have an end, and nothing after it.
fn ended(got: &[Got]) {
    let unnamed = || got.iter().flat_map(|got| &got.samples).filter(|it| is_unnamed(&it.labels));
    let ends = unnamed().filter(|sample| sample.value.to_bits() == 0x7ff0_0000_0000_0002);
    let last: BTreeMap<_, _> = unnamed().map(|sample| (&sample.labels, sample.at_ms)).collect();
    let ended: BTreeMap<_, _> = ends.map(|sample| (&sample.labels, sample.at_ms)).collect();
    assert_eq!(last, ended);
}

/// Types, help and units come along, and since when the program's own counters count.
fn described(got: &[Got], version: u8) {
    let all = || got.iter().flat_map(|got| &got.samples);
    let of = |name: &str| all().find(|sample| sample.name() == name).unwrap();
    let (watts, rows) = (of("gpu_power_watts"), of("gpuvitals_rows_total"));
    if version == 1 {
        let mut families: BTreeMap<&str, i32> = BTreeMap::new();
        for (family, kind) in got.iter().flat_map(|got| &got.families) {
            assert_eq!(families.insert(family, *kind), None, "{family} is described twice");
        }
        assert_eq!((families["gpu_power_watts"], families["gpuvitals_rows_total"]), (2, 1));
        assert_eq!(families["gpuvitals_agent_request_duration_seconds"], 3);
        return;
    }
    let (kind, help, unit) = watts.about.clone().unwrap();
    assert_eq!((kind, unit.as_str(), help.is_empty(), watts.start_ms), (2, "watts", false, 0));
    assert_eq!(rows.about.as_ref().unwrap().0, 1);
    assert!(rows.start_ms > 0 && rows.start_ms <= rows.at_ms);
    let bucket = of("gpuvitals_agent_request_duration_seconds_bucket");
    assert_eq!((bucket.about.as_ref().unwrap().0, bucket.labels.contains_key("le")), (3, true));
}

#[test]
fn a_receiver_that_was_away_gets_all_of_it_in_order_and_nothing_twice() {
    let port = Port::new();
    let agent = Agent::sending(&format!("http://127.0.0.1:{port}/api/v1/write"), &[]);
    agent.process.says("the receiver of remote write takes nothing");
    agent.waits_for_more(4);
    assert_eq!(value(&agent.page(), "gpuvitals_remote_write_up"), Some(0.0));
    let was_away_until = gpuvitals_core::clock::now_ns() / 1_000_000;
    let receiver = Receiver::that(Knows::Both, &port);
    // It comes when the next try is due; sending again after that needs no delay.
    agent.process.says("the receiver of remote write answers again");
    let is_early = |got: &Got| got.samples.iter().all(|sample| sample.at_ms < was_away_until);
    let got = receiver.until("something newer", |got| got.last().is_some_and(|got| !is_early(got)));
    let early = got.iter().filter(|got| is_early(got)).count();
    assert!(early >= 3, "{early} of {} requests are from before", got.len());
    assert!(value(&agent.page(), "gpuvitals_remote_write_failures_total").unwrap() >= 1.0);
    let (code, log) = agent.process.terminated();
    assert_eq!(code, Some(0));
    assert_eq!(log.matches("takes nothing").count(), 1, "{log}");
    assert_in_order_and_once(&receiver.got());
}

#[test]
fn what_a_receiver_refuses_is_dropped_and_counted_and_not_sent_again() {
    let receiver = Receiver::start();
    receiver.refuse(400, None, 3);
    let agent = Agent::sending(&receiver.url, &[]);
    let got = receiver.until("taken requests", |got| got.len() >= 6);
    let (refused, taken) = got.split_at(3);
    assert!(refused.iter().all(|got| got.status == 400) && taken.iter().all(|got| got.status == 204));
    let lost: usize = refused.iter().map(|got| got.samples.len()).sum();
    let counted =
        agent.until("gpuvitals_remote_write_samples_dropped_total{reason=\"refused\"}", |it| it > 0.0);
    assert_eq!(counted, f64::from(u32::try_from(lost).unwrap()));
    let all: Vec<_> = got.iter().flat_map(|got| &got.samples).collect();
    let different: BTreeSet<_> = all.iter().map(|sample| (&sample.labels, sample.at_ms)).collect();
    assert_eq!(different.len(), all.len(), "a sample came twice");
    let (code, log) = agent.process.terminated();
    assert_eq!(code, Some(0));
    assert_eq!(log.matches("refuses samples, which are dropped").count(), 1, "{log}");
    assert!(log.contains("400 Bad Request: because of a test") && !log.contains("and more"), "{log}");
    assert!(log.contains("the receiver of remote write takes samples again"), "{log}");
}

#[test]
fn a_receiver_without_room_is_left_alone_for_as_long_as_it_wants() {
    let receiver = Receiver::start();
    receiver.refuse(429, Some(2), 1);
    receiver.refuse(503, None, 1);
    let agent = Agent::sending(&receiver.url, &[]);
    let got = receiver.until("a taken request", |got| got.iter().any(|got| got.status == 204));
    let statuses: Vec<_> = got.iter().take(3).map(|got| got.status).collect();
    assert_eq!(statuses, [429, 503, 204]);
    assert!(got[1].at.duration_since(got[0].at) >= Duration::from_secs(2));
    let samples =
        |got: &Got| -> Vec<_> { got.samples.iter().map(|it| (it.labels.clone(), it.at_ms)).collect() };
    assert!(samples(&got[0]) == samples(&got[1]) && samples(&got[0]) == samples(&got[2]));
    let (code, log) = agent.process.terminated();
    assert_eq!(code, Some(0));
    assert!(log.contains("\"reason\":\"429 Too Many Requests: because of a test\""), "{log}");
    assert_in_order_and_once(&receiver.got());
}

#[test]
fn at_the_end_the_rest_is_sent_and_a_receiver_that_is_away_holds_nothing_up() {
    let receiver = Receiver::start();
    let agent = Agent::every("1h", &receiver.url, &[]);
    waiting::until("a GPU", || agent.page(), |page| page.contains("gpu_power_watts{"));
    assert_eq!(agent.process.terminated().0, Some(0));
    let got = receiver.got();
    assert_eq!(got.len(), 1);
    find(&got[0], "gpu_power_watts");

    let port = Port::new();
    let agent = Agent::sending(&format!("http://127.0.0.1:{port}/"), &[("GPUVITALS_SHUTDOWN_GRACE", "4s")]);
    agent.process.says("the receiver of remote write takes nothing");
    let began = Instant::now();
    let (code, log) = agent.process.terminated();
    assert_eq!(code, Some(0));
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    assert!(log.contains("samples were left that the receiver of remote write did not take"), "{log}");
}

#[test]
fn a_receiver_of_1_0_gets_1_0_and_loses_nothing_by_the_question() {
    for knows in [Knows::One, Knows::OneBlindly] {
        let receiver = Receiver::that(knows, "0");
        let agent = Agent::sending(&receiver.url, &[]);
        let got = receiver.until("more requests", |got| got.len() >= 5);
        let versions: Vec<_> = got.iter().map(|got| got.version).take(5).collect();
        assert_eq!(versions, [2, 1, 1, 1, 1], "{knows:?}");
        let samples =
            |got: &Got| -> Vec<_> { got.samples.iter().map(|it| (it.labels.clone(), it.at_ms)).collect() };
        assert_eq!(samples(&got[0]), samples(&got[1]));
        agent.process.says("the receiver does not take remote write 2.0");
        assert_eq!(agent.process.terminated().0, Some(0));
    }
}

#[test]
fn beyond_the_bound_the_oldest_samples_go() {
    let port = Port::new();
    let url = format!("http://127.0.0.1:{port}/api/v1/write");
    let agent = Agent::sending(&url, &[("GPUVITALS_REMOTE_WRITE_QUEUE_MAX", "64KiB")]);
    let began = gpuvitals_core::clock::now_ns() / 1_000_000;
    let dropped = "gpuvitals_remote_write_samples_dropped_total{reason=\"limit\"}";
    agent.until(dropped, |samples| samples > 1_000.0);
    let receiver = Receiver::that(Knows::Both, &port);
    let got = receiver.until("requests", |got| got.len() >= 3);
    assert!(got[1].samples.iter().map(|sample| sample.at_ms).max() > Some(began));
    assert_eq!(agent.process.terminated().0, Some(0));
    assert_in_order_and_once(&receiver.got());
}

#[test]
fn samples_that_have_waited_too_long_are_not_sent() {
    let port = Port::new();
    let url = format!("http://127.0.0.1:{port}/api/v1/write");
    let agent = Agent::sending(&url, &[("GPUVITALS_REMOTE_WRITE_MAX_AGE", "1s")]);
    agent.until("gpuvitals_remote_write_samples_dropped_total{reason=\"age\"}", |samples| samples > 0.0);
    assert_eq!(agent.process.terminated().0, Some(0));
}
