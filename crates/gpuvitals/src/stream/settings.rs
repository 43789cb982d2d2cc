//! Section `stream` of the configuration, and the flags over it.

use std::net::IpAddr;
use std::time::Duration;

use clap::Args;
use clap::builder::BoolishValueParser;
use serde::Deserialize;

use crate::config::{Override, Times, is_other_speed, overrides, word};
use crate::failure::{Exit, Failure};
use crate::pipe::Format;
use crate::quantity::deserialize_duration;
use crate::telemetry::TelemetryFlags;

/// Most workers, each with a connection of its own.
const WORKERS_MAX: usize = 256;
/// Most rows of a frame: as JSON they are still below what a collector takes.
const BATCH_SIZE_MAX: u32 = 1_000;

/// Section `stream`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Stream {
    /// File to replay.
    pub csv: String,
    /// Workers, each with a connection and a rate of its own.
    pub workers: usize,
    /// Messages (rows) a second of each worker; 0: as fast as they are taken.
    rate: f64,
    /// How long to replay; 0: without end.
    #[serde(deserialize_with = "deserialize_duration")]
    pub duration: Duration,
    /// Rows of a frame at most.
    batch_size: u32,
    /// How long a row waits for others of its frame.
    #[serde(deserialize_with = "deserialize_duration")]
    pub linger: Duration,
    /// Which times rows carry.
    pub times: Times,
    /// Speed-up with times of now.
    pub speed: f64,
    /// Whether to end with the file.
    pub once: bool,
    /// How rows are written.
    pub format: Format,
    /// Address of the metrics.
    pub listen: IpAddr,
    /// Port of the metrics; 0: a free one.
    pub metrics_port: u16,
}

impl Stream {
    /// Refuses what cannot be.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let refuse = |text: String| Err(Failure::new(Exit::Config, format!("configuration: stream.{text}")));
        if !(1..=WORKERS_MAX).contains(&self.workers) {
            return refuse(format!("workers is {}; 1 to {WORKERS_MAX} are possible", self.workers));
        }
        if !(1..=BATCH_SIZE_MAX).contains(&self.batch_size) {
            return refuse(format!("batch_size is {}; 1 to {BATCH_SIZE_MAX} are possible", self.batch_size));
        }
        if !(self.rate.is_finite() && self.rate >= 0.0) {
            return refuse(format!("rate is {}, it must be 0 or more", self.rate));
        }
        if !(self.speed.is_finite() && self.speed > 0.0) {
            return refuse(format!("speed is {}, it must be above 0", self.speed));
        }
        if self.times == Times::Recorded && is_other_speed(self.speed) {
            return refuse(format!(
                "speed is {}, and it is for times: now (--times now); recorded times have stream.rate",
                self.speed
            ));
        }
        Ok(())
    }

    /// Time after which no row is due any more; none: never.
    pub(crate) fn end(&self) -> Option<Duration> {
        (!self.duration.is_zero()).then_some(self.duration)
    }

    /// Messages a second of each worker, where it is the rate that sets the pace.
    pub(crate) fn rate(&self) -> Option<f64> {
        (self.times == Times::Recorded && self.rate > 0.0).then_some(self.rate)
    }

    /// Rows of a frame: as many as come within the linger, so that at low rates none waits for a full frame.
    pub(crate) fn frame_rows(&self) -> u32 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped; saturates")]
        let within = |rate: f64| (rate * self.linger.as_secs_f64()) as u32;
        self.rate().map_or(self.batch_size, |rate| within(rate).clamp(1, self.batch_size))
    }
}

/// `gpuvitals stream`
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  gpuvitals stream --csv data.csv                           again and again, 4 rows a second
  gpuvitals stream --csv data.csv --once --rate 0           once, as fast as the queue takes it
  gpuvitals stream --csv data.csv --times now --speed 10    as if it happened now, ten times faster
  gpuvitals simulate | gpuvitals stream --csv - --once --rate 100")]
pub(crate) struct StreamFlags {
    /// Replay this CSV file (long DCGM form or wide; .gz understood; - is standard input), for ever unless told otherwise
    #[arg(long, value_name = "FILE")]
    csv: Option<String>,
    /// Workers, each with a connection of its own; rows go to them in turn [default: 4]
    #[arg(long, value_name = "N")]
    workers: Option<usize>,
    /// Messages (rows) a second of each worker; 0: as fast as the queue takes them [default: 1]
    #[arg(long, value_name = "MESSAGES/S")]
    rate: Option<f64>,
    /// End after this time, with rate times duration rows of each worker: 30s, 5m; 0: never [default: 0]
    #[arg(long, value_name = "DURATION")]
    duration: Option<String>,
    /// Queue to publish to: http://, grpc:// or nats://HOST:PORT, or HOST:PORT [default: http://127.0.0.1:9090]
    #[arg(long, value_name = "URL")]
    mq_url: Option<String>,
    /// Topic to publish to [default: gpu-telemetry]
    #[arg(long, value_name = "NAME")]
    topic: Option<String>,
    /// Rows that travel together at most [default: 100]
    #[arg(long, value_name = "ROWS")]
    batch_size: Option<u32>,
    /// Times of the rows: as recorded, or as if the recording began now, at its own pace [default: recorded]
    #[arg(long, value_enum)]
    times: Option<Times>,
    /// With --times now: how many times faster than recorded [default: 1]
    #[arg(long, value_name = "FACTOR")]
    speed: Option<f64>,
    /// End with the file [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", value_parser = BoolishValueParser::new())]
    once: Option<bool>,
    /// How rows are written [default: batch]
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Port of health and metrics; 0 takes a free one [default: 8082]
    #[arg(long, value_name = "PORT")]
    metrics_port: Option<u16>,
    #[command(flatten)]
    telemetry: TelemetryFlags,
}

impl StreamFlags {
    /// The settings these flags change.
    ///
    /// # Errors
    /// When two of them contradict each other.
    pub(crate) fn overrides(&self) -> Result<Vec<Override>, Failure> {
        if self.rate.is_some() && self.times == Some(Times::Now) {
            return Err(Failure::new(
                Exit::Usage,
                "--rate is for recorded times; with --times now rows come as they were recorded, --speed times faster",
            ));
        }
        let mut set = self.telemetry.overrides();
        set.extend(overrides([
            ("stream.csv", &self.csv),
            ("stream.workers", &self.workers),
            ("stream.rate", &self.rate),
            ("stream.duration", &self.duration),
            ("message_queue.address", &self.mq_url),
            ("message_queue.topic", &self.topic),
            ("stream.batch_size", &self.batch_size),
            ("stream.times", &word(self.times)),
            ("stream.speed", &self.speed),
            ("stream.once", &self.once),
            ("stream.format", &word(self.format)),
            ("stream.metrics_port", &self.metrics_port),
        ]));
        Ok(set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_as_large_as_the_rate_fills_them_within_the_linger() {
        let frame_rows = |rate, times| {
            let linger = Duration::from_millis(100);
            let rest = (String::new(), Duration::ZERO, Format::Batch);
            let (csv, duration, format) = rest;
            let stream = Stream {
                csv,
                workers: 4,
                rate,
                duration,
                batch_size: 100,
                linger,
                times,
                speed: 1.0,
                once: false,
                format,
                listen: IpAddr::from([127, 0, 0, 1]),
                metrics_port: 0,
            };
            stream.check().unwrap();
            stream.frame_rows()
        };
        for (rate, rows) in [(0.1, 1), (1.0, 1), (25.0, 2), (500.0, 50), (1e9, 100), (0.0, 100)] {
            assert_eq!(frame_rows(rate, Times::Recorded), rows, "{rate}");
        }
        assert_eq!(frame_rows(1.0, Times::Now), 100, "there the recording sets the pace");
    }
}
