//! Sampled rows reach a queue, whether it is always there or not.

use std::net::TcpListener;

use gpuvitals_rig::program::Finished as _;

use super::node::{Node, RX580, VEGA56, series};
use super::process::{Agent, value};
use super::queue::{Rows, TestQueue};

/// Often enough to have some rows soon.
const BRISK: [(&str, &str); 2] =
    [("GPUVITALS_AGENT_PUBLISH_INTERVAL", "200ms"), ("GPUVITALS_SAMPLING_RATE", "20")];

fn agent(node: &Node, queue: &str, more: &[&str]) -> Agent {
    node.agent_in(&[&["--mq-url", queue], more].concat(), &BRISK)
}

fn figure(text: &str, name: &str) -> f64 {
    value(text, &format!("{name} ")).unwrap()
}

fn of<'a>(rows: &'a Rows, gpu: &'a str) -> impl Iterator<Item = i64> + 'a {
    rows.keys().filter(move |(key, _)| key == gpu).map(|(_, time)| *time)
}

#[test]
fn rows_of_every_gpu_reach_the_queue_within_seconds() {
    let (node, mut queue) = (Node::new(), TestQueue::listening());
    let agent = agent(&node, &queue.url(), &[]);
    let rows = queue.rows(|rows| {
        of(rows, RX580).count() > 50
            && of(rows, VEGA56).count() > 50
            && rows.keys().any(|(key, _)| key.starts_with("system_events "))
    });
    let twice: Vec<_> = rows.iter().filter(|(_, times)| **times != 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
    let text = agent.until("the figures", |text| figure(text, "gpuvitals_published_rows_total") >= 100.0);
    assert_eq!((figure(&text, "gpuvitals_queue_up"), figure(&text, "gpuvitals_spool_rows")), (1.0, 0.0));
    assert_eq!(agent.get("/healthz", &[]).text(), "ok\n");
    assert_eq!(agent.terminate(), Some(0));
}

#[test]
fn details_and_events_in_the_health_of_a_gpu_reach_the_queue_in_their_own_tables() {
    let (node, mut queue) = (Node::new(), TestQueue::listening());
    let errors = |count: u32| {
        node.write("sys/class/drm/card0/device/ras/umc_err_count", &format!("ue: {count}\nce: 0\n"));
    };
    errors(2);
    let often = [&BRISK[..], &[("GPUVITALS_SAMPLING_RARE_INTERVAL", "200ms")]].concat();
    let agent = node.agent_in(&["--mq-url", &queue.url()], &often);
    // What was there before the agent is no event, but the details of the first reading leave at once.
    let is_detail = |key: &str| key.starts_with("gpu_details");
    let rows = queue.rows(|rows| of(rows, RX580).count() > 20 && rows.keys().any(|(key, _)| is_detail(key)));
    let of_details = rows.iter().filter(|((key, _), _)| is_detail(key));
    let of_details: Vec<_> = of_details.map(|((key, _), times)| (key.as_str(), *times)).collect();
    assert_eq!(of_details, [(&*format!("gpu_details {RX580}"), 2)], "both counts of the one block, once");
    let is_event = |(key, _): &(String, i64)| key.starts_with("gpu_health_events");
    assert!(!rows.keys().any(is_event), "{rows:?}");
    errors(3);
    let rows = queue.rows(|rows| rows.keys().any(is_event));
    let events: Vec<&str> = rows.keys().filter(|key| is_event(key)).map(|(key, _)| key.as_str()).collect();
    assert_eq!(events, [format!("gpu_health_events {RX580}")]);
    assert_eq!(agent.terminate(), Some(0));
}

#[test]
fn a_queue_that_goes_away_and_comes_back_misses_no_row_and_gets_none_twice() {
    for on_disk in [false, true] {
        let (node, mut queue) = (Node::new(), TestQueue::away());
        let directory = node.path("spool");
        let spool = ["--spool-dir", directory.to_str().unwrap()];
        let agent = agent(&node, &queue.url(), if on_disk { &spool } else { &[] });
        let text = agent.until("rows in the spool", |text| figure(text, "gpuvitals_spool_rows") > 100.0);
        assert_eq!(figure(&text, "gpuvitals_queue_up"), 0.0);
        let health = agent.get("/healthz", &[]);
        assert_eq!(health.status, 200, "no new process brings the queue back");
        assert!(health.text().contains("rows are kept"), "{}", health.text());
        assert_eq!(agent.get("/readyz", &[]).status, 200);
        queue.come();
        agent.until("an empty spool", |text| figure(text, "gpuvitals_spool_rows") == 0.0);
        queue.go();
        agent.until("rows in the spool", |text| figure(text, "gpuvitals_spool_rows") > 20.0);
        queue.come();
        let text = agent.until("an empty spool", |text| figure(text, "gpuvitals_spool_rows") == 0.0);
        let published = figure(&text, "gpuvitals_published_rows_total");
        assert!(figure(&text, "gpuvitals_published_rows_total") > 120.0, "{text}");
        assert_eq!(agent.terminate(), Some(0));
        let rows = queue.rows(|rows| rows.len() as f64 >= published);
        let twice: Vec<_> = rows.iter().filter(|(_, times)| **times != 1).collect();
        assert!(twice.is_empty(), "{twice:?}");
        for gpu in [RX580, VEGA56] {
            let times: Vec<i64> = of(&rows, gpu).collect();
            let gap = times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
            assert!(gap < 2_000_000_000, "{gpu}: {gap} ns without a row");
        }
    }
}

#[test]
fn what_a_killed_agent_had_spooled_is_sent_by_the_next_one() {
    let (node, mut queue) = (Node::new(), TestQueue::away());
    let directory = node.path("spool");
    let spool = ["--spool-dir", directory.to_str().unwrap()];
    let first = agent(&node, &queue.url(), &spool);
    let text = first.until("rows in the spool", |text| figure(text, "gpuvitals_spool_rows") > 200.0);
    let spooled = figure(&text, "gpuvitals_spool_rows");
    let rejected = gpuvitals_rig::gpuvitals!()
        .args(["agent", "--port", "0", "--mq-url", &queue.url()])
        .args(spool)
        .finished()
        .unwrap();
    assert_eq!(rejected.status.code(), Some(69), "a directory is one agent's");
    first.process.kill();
    queue.come();
    let second = agent(&node, &queue.url(), &spool);
    let started = figure(&second.scrape(), "process_start_time_seconds");
    second.until("an empty spool", |text| figure(text, "gpuvitals_spool_rows") == 0.0);
    assert_eq!(second.terminate(), Some(0));
    let before = |rows: &Rows| rows.keys().filter(|(_, time)| (*time as f64) < started * 1e9).count() as f64;
    let rows = queue.rows(|rows| before(rows) >= spooled);
    let twice: Vec<_> = rows.iter().filter(|(_, times)| **times != 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
}

#[test]
fn a_queue_that_hangs_holds_up_neither_samples_nor_scrapes_nor_the_end() {
    let node = Node::new();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("grpc://{}", silent.local_addr().unwrap());
    let agent = agent(&node, &url, &[]);
    let samples = series("gpu_samples_total", 1, VEGA56);
    let text = agent.until("samples", |text| value(text, &samples).is_some_and(|count| count > 100.0));
    assert_eq!(figure(&text, "gpuvitals_published_rows_total"), 0.0);
    assert_eq!(figure(&text, "gpuvitals_rows_dropped_total"), 0.0);
    let (seconds, scrapes) = ("gpuvitals_scrape_seconds_total", "gpuvitals_scrapes_total");
    let mean = figure(&text, seconds) / figure(&text, scrapes);
    assert!(mean < 0.1, "a scrape took {mean} s on average");
    assert_eq!(agent.terminate(), Some(0));
}

#[test]
fn what_waits_to_be_published_is_sent_at_the_end() {
    let (node, mut queue) = (Node::new(), TestQueue::listening());
    let slow = [("GPUVITALS_AGENT_PUBLISH_INTERVAL", "5m")];
    let agent = node.agent_in(&["--mq-url", &queue.url()], &slow);
    let samples = series("gpu_samples_total", 1, VEGA56);
    agent.until("samples", |text| value(text, &samples).is_some_and(|count| count > 2.0));
    assert_eq!(agent.terminate(), Some(0));
    let rows = queue.rows(|rows| of(rows, VEGA56).count() > 2);
    let twice: Vec<_> = rows.iter().filter(|(_, times)| **times != 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
}

#[test]
fn what_cannot_be_sent_at_the_end_is_spooled() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let hanging = format!("grpc://{}", silent.local_addr().unwrap());
    let slow = [("GPUVITALS_AGENT_PUBLISH_INTERVAL", "5m")];
    for hangs in [false, true] {
        let (node, mut queue) = (Node::new(), TestQueue::away());
        let directory = node.path("spool");
        let spool = ["--spool-dir", directory.to_str().unwrap()];
        let url = if hangs { hanging.clone() } else { queue.url() };
        let first = node.agent_in(&[&["--mq-url", &url], &spool[..]].concat(), &slow);
        let samples = series("gpu_samples_total", 1, VEGA56);
        first.until("samples", |text| value(text, &samples).is_some_and(|count| count > 2.0));
        assert_eq!(first.terminate(), Some(0));
        queue.come();
        let second = agent(&node, &queue.url(), &spool);
        let started = figure(&second.scrape(), "process_start_time_seconds");
        let before = |rows: &Rows| of(rows, VEGA56).filter(|time| (*time as f64) < started * 1e9).count();
        let rows = queue.rows(|rows| before(rows) > 2);
        let twice: Vec<_> = rows.iter().filter(|(_, times)| **times != 1).collect();
        assert!(twice.is_empty(), "{twice:?}");
        assert_eq!(second.terminate(), Some(0));
    }
}

#[test]
fn an_agent_whose_spool_is_moved_ends_with_74_and_says_why() {
    let (node, queue) = (Node::new(), TestQueue::away());
    let directory = node.path("spool");
    let agent = agent(&node, &queue.url(), &["--spool-dir", directory.to_str().unwrap()]);
    agent.until("rows in the spool", |text| figure(text, "gpuvitals_spool_rows") > 10.0);
    std::fs::rename(&directory, node.path("elsewhere")).unwrap();
    assert_eq!(agent.process.ended().0, Some(74));
    assert!(!directory.exists(), "it makes nothing anew");
}
