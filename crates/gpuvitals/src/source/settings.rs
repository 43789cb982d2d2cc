//! Section `source` of the configuration.

use std::time::Duration;

use clap::ValueEnum;
use gpuvitals_settings::{Refusal, Texts, settings, words};

use crate::pipe::{Times, is_other_speed};

settings! {
    /// Where the rows of `gpuvitals up` come from
    pub(crate) struct Source = "source", check Self::check {
        /// Where rows come from; simulated rows are labelled so
        pub kind: SourceKind = "auto", flag "--source KIND";
        /// Replay this file: CSV (long DCGM form or wide; .gz is understood, - is standard input), Parquet with our columns
        /// (a recording, a file of the store), or the directory of a recording; several CSV files are of one machine
        pub replay: Texts = [], flag "--replay FILE";
        /// Times of replayed rows: as recorded, or shifted so that the first is now
        pub times: Times = "recorded", flag "--times TIMES";
        /// With times now: how many times faster than recorded
        pub speed: f64 = 1.0, from 0.001, flag "--speed FACTOR";
        /// Replay recorded times at this many rows a second; 0: as fast as they are stored
        pub rate: f64 = 0.0, from 0, flag "--rate ROWS/S";
        /// Begin again at the end of the file
        pub looped("loop"): bool = false, flag "--loop BOOL";
        /// Simulated: size of the fleet
        pub gpus: u32 = 64, from 1, flag "--gpus N";
        /// Simulated: hosts of the fleet; 0: one for each 8 GPUs
        pub hosts: u32 = 0, flag "--hosts N";
        /// Simulated: same seed, same data
        pub seed: u64 = 1, flag "--seed N";
        /// Simulated: time between two samples of a GPU
        pub interval: Duration = "1s", from "1ms", flag "--interval DURATION";
    }
}

/// Kind of source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SourceKind {
    /// The GPUs of this machine if it has any; else only stored rows are served
    Auto,
    /// The GPUs of this machine
    Machine,
    /// No source: only stored rows are served
    None,
    /// Replay of recorded rows
    Replay,
    /// A simulated fleet; every row says so
    Simulated,
}

words!(SourceKind);

impl Source {
    /// Refuses settings that contradict each other.
    fn check(&self) -> Result<(), Refusal> {
        let refuse = |setting, why: &str| Err(Refusal::new(setting, why));
        let is_replay = self.kind == SourceKind::Replay;
        match self.times {
            _ if is_replay && self.replay.0.is_empty() => {
                refuse("source.kind", "it is replay, but source.replay names no file")
            }
            Times::Now if is_replay && self.rate > 0.0 => {
                refuse("source.rate", "it goes with recorded times; with times: now there is source.speed")
            }
            Times::Recorded if is_other_speed(self.speed) => refuse(
                "source.speed",
                "it goes with times: now (--times now); recorded times have source.rate",
            ),
            Times::Recorded if is_replay && self.looped && self.rate == 0.0 => refuse(
                "source.loop",
                "with recorded times and no rate it would send the same rows without pause; \
                 add --times now to replay as if live, or --rate",
            ),
            _ => Ok(()),
        }
    }
}
