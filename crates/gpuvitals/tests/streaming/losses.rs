//! A collector that is killed with all its connections, repeatedly: its frames are no dead letters, and not
//! lost.

use std::path::Path;
use std::process::Command;

use gpuvitals_rig::port::Port;
use gpuvitals_rig::program::{Finished as _, Process};
use gpuvitals_rig::small_disk::SmallDisk;
use gpuvitals_rig::waiting::PATIENCE;

use crate::process::{Keys, get, start, start_with, stored, until};

/// Frames published in a round, and rows in each.
const FRAMES: u64 = 20;
const ROWS: u64 = 20;
const STATS: &str = "/stats/gpu-telemetry";

/// Worker counts and rounds of each.
fn extent() -> (&'static [&'static str], u64) {
    if std::env::var_os("GPUVITALS_TEST_LONG").is_some() {
        (&["1", "4", "8", "16"], 50)
    } else {
        (&["1", "8"], 2)
    }
}

pub(crate) struct Pipeline {
    broker: Process,
    port: Port,
    workers: &'static str,
    data: String,
    keys: Keys,
}

impl Pipeline {
    pub(crate) fn new(workers: &'static str, data: &Path) -> Self {
        let port = Port::new();
        let broker = start(&["broker", "--port", &port]);
        broker.says("queue: http");
        Self { broker, port, workers, data: data.to_str().unwrap().to_owned(), keys: Keys::new() }
    }

    /// A collector, once all its workers have joined.
    fn collector(&self) -> Process {
        self.collector_with(&[])
    }

    /// The same with more in its environment.
    pub(crate) fn collector_with(&self, environment: &[(&str, &str)]) -> Process {
        let collector = start_with(
            &[
                "collect",
                "--workers",
                self.workers,
                "--api-port",
                "0",
                "--broker-port",
                &self.port,
                "--data-dir",
                &self.data,
            ],
            // The rows of all rounds may be out at once.
            &[&[("GPUVITALS_COLLECTOR_MAX_IN_FLIGHT", "1000000")], environment].concat(),
        );
        until(&self.port, STATS, "all workers", |stats| {
            stats["groups"]["store"]["members"] == workers(self.workers)
        });
        collector
    }

    /// Publishes rows that were never published before.
    pub(crate) fn publish(&mut self) {
        let agent: ureq::Agent = ureq::Agent::config_builder().timeout_global(Some(PATIENCE)).build().into();
        for _ in 0..FRAMES {
            let rows = (0..ROWS).map(|_| {
                let number = self.keys.len() as u64;
                let (second, milli) = (1_767_225_600 + number / 1_000, number % 1_000);
                self.keys
                    .insert(("GPU-0".to_owned(), i64::try_from(second * 1_000 + milli).unwrap() * 1_000_000));
                let (minute, second) = (number / 60_000, number / 1_000 % 60);
                let at = format!("2026-01-01T00:{minute:02}:{second:02}.{milli:03}Z");
                format!(r#"{{"timestamp":"{at}","fields":{{"uuid":"GPU-0","power_w":{}}}}}"#, number % 500)
            });
            let body = format!("[{}]", rows.collect::<Vec<_>>().join(","));
            let url = format!("http://127.0.0.1:{}/publish/gpu-telemetry", self.port);
            agent.post(url).header("content-type", "application/json").send(body).unwrap();
        }
    }

    /// Waits until everything that was published is acknowledged.
    pub(crate) fn until_empty(&self) {
        until(&self.port, STATS, "an empty queue", |stats| stats["messages"] == 0);
    }

    /// Waits until the queue is empty; everything is in the store, once, and nothing is a dead letter.
    pub(crate) fn check(self, collector: Process) {
        self.until_empty();
        let stats = get(&self.port, STATS);
        assert_eq!((&stats["dead"], &stats["dropped"]), (&0.into(), &0.into()), "{stats}");
        let (code, said) = collector.terminated();
        assert_eq!(code, Some(0), "{said}");
        assert!(stored(Path::new(&self.data)) == self.keys, "every row that was published is there");
        assert_eq!(self.broker.terminated().0, Some(0));
    }
}

fn workers(count: &str) -> u64 {
    count.parse().unwrap()
}

#[test]
fn rows_of_a_collector_that_is_stopped_and_killed_are_no_dead_letters() {
    let (counts, rounds) = extent();
    for count in counts {
        let folder = tempfile::tempdir().unwrap();
        let mut pipeline = Pipeline::new(count, &folder.path().join("data"));
        let mut collector = pipeline.collector();
        for _ in 0..rounds {
            pipeline.until_empty();
            collector.signal("STOP");
            pipeline.publish();
            until(&pipeline.port, STATS, "rows with the collector", |stats| {
                stats["groups"]["store"]["in_flight"] == FRAMES * ROWS
            });
            collector.kill();
            collector = pipeline.collector();
        }
        assert_eq!(
            get(&pipeline.port, STATS)["subscribers"],
            1,
            "one collector, however many workers it has"
        );
        pipeline.check(collector);
    }
}

#[test]
fn rows_of_a_collector_whose_disk_is_full_and_that_is_killed_are_no_dead_letters() {
    let (counts, rounds) = extent();
    for count in counts {
        let folder = tempfile::tempdir().unwrap();
        let disk = folder.path().join("disk");
        let Some(_mounted) = SmallDisk::mount(&disk, "8k") else { return };
        let mut pipeline = Pipeline::new(count, &disk.join("data"));
        for _ in 0..rounds {
            let collector = pipeline.collector();
            pipeline.publish();
            collector.says("rows cannot be stored");
            collector.kill();
        }
        let larger = Command::new("mount").args(["-o", "remount,size=256m"]).arg(&disk).finished().unwrap();
        assert!(larger.status.success(), "{larger:?}");
        let collector = pipeline.collector();
        pipeline.check(collector);
    }
}
