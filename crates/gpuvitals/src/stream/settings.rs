//! Section `stream` of the configuration.

use std::net::IpAddr;
use std::time::Duration;

use gpuvitals_settings::{Refusal, Texts, settings};

use crate::pipe::Format;
use crate::pipe::{Times, is_other_speed};

/// How long a row waits for others of its frame.
pub(super) const LINGER: Duration = Duration::from_millis(100);

/// Examples for the help.
pub(crate) const EXAMPLES: &str = "Examples:
  gpuvitals stream --csv data.csv                           again and again, 4 rows a second
  gpuvitals stream --csv data.csv --once --rate 0           once, as fast as the queue takes it
  gpuvitals stream --csv data.csv --times now --speed 10    as if it happened now, ten times faster
  gpuvitals stream --replay telemetry --once                the recording in a directory
  gpuvitals simulate | gpuvitals stream --csv - --once --rate 100";

settings! {
    /// From recorded rows to the queue: `gpuvitals stream`
    pub(crate) struct Stream = "stream", check Self::check {
        /// Replay this file, for ever unless told otherwise: CSV (long DCGM form or wide; .gz is understood, - is standard
        /// input), Parquet with our columns (a recording, a file of the store), or the directory of a recording; several CSV
        /// files are of one machine
        pub replay: Texts = ["data.csv"], flag "--replay FILE";
        /// Workers, each with a connection of its own; frames go to them in turn
        pub workers: usize = 4, from 1 to 256, flag "--workers N";
        /// Messages (rows) a second of each worker; 0: as fast as the queue takes them
        rate: f64 = 1.0, from 0, flag "--rate MESSAGES/S";
        /// End after this time, with rate times duration rows of each worker; 0: never
        pub duration: Duration = "0", flag "--duration DURATION";
        /// Rows that travel together at most
        batch_size: u32 = 100, from 1 to 1000, flag "--batch-size ROWS";
        /// Times of the rows: as recorded, or as if the recording began now, at its own pace
        pub times: Times = "recorded", flag "--times TIMES";
        /// With times now: how many times faster than recorded
        pub speed: f64 = 1.0, from 0.001, flag "--speed FACTOR";
        /// End with the file
        pub once: bool = false, flag "--once BOOL";
        /// How rows are written
        pub format: Format = "batch", flag "--format FORMAT";
        /// Address of health and metrics. Loopback unless told
        pub listen: IpAddr = "127.0.0.1", flag "--listen ADDRESS";
        /// Port of health and metrics; 0 takes a free one, and one that is taken is done without
        pub metrics_port: u16 = 8082, flag "--metrics-port PORT";
    }
}

impl Stream {
    /// Refuses impossible settings.
    fn check(&self) -> Result<(), Refusal> {
        match self.times {
            Times::Recorded if is_other_speed(self.speed) => Err(Refusal::new(
                "stream.speed",
                format!("{} goes with times: now (--times now); recorded times have stream.rate", self.speed),
            )),
            Times::Now if is_other_speed(self.rate) => Err(Refusal::new(
                "stream.rate",
                format!(
                    "{} goes with recorded times; with --times now rows come as recorded, --speed times faster",
                    self.rate
                ),
            )),
            _ => Ok(()),
        }
    }

    /// Time after which no row is due any more; none: never.
    pub(crate) fn end(&self) -> Option<Duration> {
        (!self.duration.is_zero()).then_some(self.duration)
    }

    /// Messages a second of each worker, if the rate sets the pace.
    pub(crate) fn rate(&self) -> Option<f64> {
        (self.times == Times::Recorded && self.rate > 0.0).then_some(self.rate)
    }

    /// Rows of a frame: as many as come within the linger, so that at low rates none waits for a full frame.
    pub(crate) fn frame_rows(&self) -> u32 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped; saturates")]
        let within = |rate: f64| (rate * LINGER.as_secs_f64()) as u32;
        self.rate().map_or(self.batch_size, |rate| within(rate).clamp(1, self.batch_size))
    }
}

#[cfg(test)]
mod tests {
    use gpuvitals_settings::{Section, Value};
    use serde_json::json;

    use super::Stream;

    #[test]
    fn frames_are_as_large_as_the_rate_fills_them_within_the_linger() {
        let frame_rows = |set: &[(&str, Value)]| Stream::of(set).unwrap().frame_rows();
        for (rate, rows) in [(0.1, 1), (1.0, 1), (25.0, 2), (500.0, 50), (1e9, 100), (0.0, 100)] {
            assert_eq!(frame_rows(&[("stream.rate", json!(rate))]), rows, "{rate}");
        }
        assert_eq!(frame_rows(&[("stream.times", json!("now"))]), 100, "there the recording sets the pace");
    }
}
