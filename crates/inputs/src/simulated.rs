//! The simulated fleet: believable GPUs for demonstrations, tests and load, never mistaken for real ones.
//!
//! Every row says `source = "simulated"`, every identity begins with `51300000`, every node is a `sim-node-…`.
//!
//! - **Layout.** N GPUs on M hosts, 8 a host unless told otherwise; all GPUs of a host are of one model; models and
//!   vendors are mixed over the hosts.
//! - **Load.** Jobs of 1 to 8 GPUs come and go: training, inference, loaded but idle, debugging, each with its own
//!   rhythm. Clock and power follow the load at once, temperature later, memory fills at the start of a job and stays,
//!   counters are sums over ticks.
//! - **Links.** The NVLinks of a GPU lead to a switch, the xGMI links of an MI300X to each other one of its board; a workstation card
//!   has none. Who asks for it gets the ends as rows of `gpu_details`, at the first tick and every ten minutes.
//! - **Special cases**, one each, at fixed places of the first host: GPU 1 straggles, 3 idles while a job holds it, 4 throttles,
//!   5 vanishes, the memory of 6 fails. With fewer than seven GPUs there some are not in the fleet.
//! - **Same seed, same data**, bit for bit, on every machine: only exact arithmetic is used, and a GPU's series
//!   depends on seed, interval, host number and index, not on the fleet's size, on the time of day, on when or how
//!   often the source is polled, nor on how rows are cut into batches. Slow columns of a skipped tick come with the next row.
//!
//! Tick `k` is at `start + k * interval`. A tick that was not polled in time is computed but not handed over:
//! skipped and counted, never bunched. After a gap of more than 10,000 ticks (the machine slept) the fleet
//! counts as having slept too: the ticks of the gap are skipped without being computed.

mod columns;
mod gpu;
mod jobs;
mod links;
mod models;
pub mod probe;
mod special;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use gpuvitals_core::batch::BatchBuilder;
use gpuvitals_core::ports::{Poll, Source};
use gpuvitals_core::{Batch, IdentityError, MetricId, Origin, Table};

use columns::Tier;
use gpu::Gpu;
use jobs::{BOARD, SECOND_NS};
use special::Special;

/// Most rows of a batch.
pub const BATCH_ROWS_MAX: usize = 500;
/// Most GPUs of a fleet.
pub const GPUS_MAX: usize = 100_000;
/// Most GPUs of a host.
pub const GPUS_PER_HOST_MAX: usize = 2 * BOARD;
/// A longer gap than this many ticks is slept through instead of computed.
const GAP_TICKS_MAX: i64 = 10_000;
/// Most GPU ticks that one poll computes to catch up: some tens of milliseconds.
const CATCH_UP_GPU_TICKS: usize = 100_000;
/// Period of the rare columns.
const RARE_NS: i64 = 30 * SECOND_NS;
/// Period of the ends of links: what does not change is told anew as often by a sampled machine.
const LINKS_NS: i64 = 600 * SECOND_NS;

/// Timestamps of the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SimPace {
    /// A tick when it is due, for ever.
    #[default]
    Live,
    /// Tick after tick as fast as polled, whatever the time is, up to and including this time (nanoseconds
    /// UTC since 1970); then the end. For recordings.
    Unpaced {
        /// Last time that may have a tick.
        end_ns: i64,
    },
}

/// Settings of a simulated fleet.
#[derive(Debug, Clone, Copy)]
pub struct SimConfig {
    /// GPUs of the whole fleet.
    pub gpus: usize,
    /// Hosts, with GPUs spread evenly; `None`: enough for 8 GPUs a host.
    pub hosts: Option<usize>,
    /// Seed of all randomness.
    pub seed: u64,
    /// Between ticks, 1 ms to 1 hour.
    pub interval: Duration,
    /// Time of the first tick, nanoseconds UTC since 1970; rounded down to a whole millisecond, the grid of
    /// ticks.
    pub start_ns: i64,
    /// Live or as fast as possible.
    pub pace: SimPace,
    /// Whether there are batches of `gpu_details` as well, with what the links of each GPU lead to.
    pub links: bool,
}

impl Default for SimConfig {
    fn default() -> Self {
        Self {
            gpus: 8,
            hosts: None,
            seed: 1,
            interval: Duration::from_secs(1),
            start_ns: 0,
            pace: SimPace::Live,
            links: false,
        }
    }
}

const MILLISECOND_NS: i64 = 1_000_000;

/// Settings that cannot be simulated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SimError {
    /// No GPU, or too many.
    #[error("a simulated fleet has 1 to {GPUS_MAX} GPUs, not {0}")]
    Gpus(usize),
    /// A host without a GPU would not be seen; a host with too many is unrealistic.
    #[error("{gpus} GPUs cannot be spread over {hosts} hosts with 1 to {GPUS_PER_HOST_MAX} each")]
    Hosts {
        /// GPUs in the settings.
        gpus: usize,
        /// Hosts in the settings.
        hosts: usize,
    },
    /// Too short or too long.
    #[error("the interval of a simulated fleet is 1 ms to 1 hour, not {0:?}")]
    Interval(Duration),
    /// A name that no GPU can have.
    #[error("cannot name the simulated GPUs")]
    Name(#[from] IdentityError),
}

/// The simulated source.
#[derive(Debug)]
pub struct Simulated {
    /// In the order of host and index.
    gpus: Vec<Gpu>,
    builder: BatchBuilder,
    origin: Origin,
    pace: SimPace,
    hosts: usize,
    start_ns: i64,
    interval_ns: i64,
    /// Ticks computed so far: the next one has this number.
    ticks: i64,
    /// Time of the latest tick, and its next GPU to hand over.
    timestamp_ns: i64,
    cursor: usize,
    due: Tier,
    /// Whether the ends of links are told at all, and the next GPU whose ends are due.
    links: bool,
    linked: usize,
    sequence: u64,
    rows: u64,
    skipped: u64,
}

impl Simulated {
    /// Builds the fleet, already at work. Nothing is computed per tick before the first poll.
    ///
    /// # Errors
    /// If the fleet has no or too many GPUs or hosts, or the interval is impossible.
    pub fn new(config: SimConfig) -> Result<Self, SimError> {
        if config.gpus == 0 || config.gpus > GPUS_MAX {
            return Err(SimError::Gpus(config.gpus));
        }
        if !(Duration::from_millis(1)..=Duration::from_hours(1)).contains(&config.interval) {
            return Err(SimError::Interval(config.interval));
        }
        let per_host = layout(config.gpus, config.hosts)?;
        let places =
            per_host.iter().enumerate().flat_map(|(host, &n)| (0..n).map(move |index| (host, index)));
        let gpus =
            places.map(|(host, index)| Gpu::new(config.seed, host, index)).collect::<Result<Vec<_>, _>>()?;
        let start_ns = config.start_ns - config.start_ns.rem_euclid(MILLISECOND_NS);
        Ok(Self {
            cursor: gpus.len(),
            linked: gpus.len(),
            gpus,
            builder: BatchBuilder::new(Table::GpuEvents),
            origin: Origin { node: Arc::from("simulated"), started_ns: config.start_ns },
            pace: config.pace,
            links: config.links,
            hosts: per_host.len(),
            start_ns,
            interval_ns: i64::try_from(config.interval.as_nanos()).unwrap_or(i64::MAX),
            ticks: 0,
            timestamp_ns: start_ns,
            due: Tier::Fast,
            sequence: 0,
            rows: 0,
            skipped: 0,
        })
    }

    /// Hosts of the fleet.
    pub fn hosts(&self) -> usize {
        self.hosts
    }

    /// GPUs of the fleet, those that vanished included.
    pub fn gpus(&self) -> usize {
        self.gpus.len()
    }

    /// Rows handed over so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Ticks that were not handed over because they were not polled in time.
    pub fn skipped_ticks(&self) -> u64 {
        self.skipped
    }

    /// All columns that simulated GPUs may have.
    pub fn metrics() -> impl Iterator<Item = MetricId> {
        columns::metrics()
    }

    fn time_of(&self, tick: i64) -> i64 {
        self.start_ns.saturating_add(tick.saturating_mul(self.interval_ns))
    }

    /// Computes the next tick.
    fn advance(&mut self) {
        let now_ns = self.ticks.saturating_mul(self.interval_ns);
        for gpu in self.gpus.iter_mut().filter(|gpu| !gpu.is_gone(now_ns)) {
            let named = gpu.step(now_ns, self.interval_ns);
            debug_assert!(named.is_ok(), "names of jobs are made of words and numbers: {named:?}");
        }
        let crosses = |period: i64| {
            now_ns < self.interval_ns || now_ns / period != (now_ns - self.interval_ns) / period
        };
        // The columns of a tick that is skipped come with the next one that is handed over.
        self.due = self.due.max(match (crosses(SECOND_NS), crosses(RARE_NS)) {
            (_, true) => Tier::Rare,
            (true, false) => Tier::Slow,
            (false, false) => Tier::Fast,
        });
        if self.links && crosses(LINKS_NS) {
            self.linked = 0;
        }
        self.timestamp_ns = self.time_of(self.ticks);
        self.ticks += 1;
    }

    /// Moves to the latest tick that is due. `Err` is the time before which there are no rows.
    fn catch_up(&mut self, now_ns: i64) -> Result<(), i64> {
        let next_ns = self.time_of(self.ticks);
        if now_ns < next_ns {
            return Err(next_ns);
        }
        let behind = (now_ns - next_ns) / self.interval_ns;
        if behind > GAP_TICKS_MAX {
            self.start_ns += behind * self.interval_ns;
            self.skipped += u64::try_from(behind).unwrap_or(0);
        }
        let latest = (now_ns - self.start_ns) / self.interval_ns;
        let mut budget = CATCH_UP_GPU_TICKS;
        while self.ticks < latest {
            if budget == 0 {
                return Err(now_ns);
            }
            budget = budget.saturating_sub(self.gpus.len());
            self.advance();
            self.skipped += 1;
        }
        self.advance();
        self.cursor = 0;
        Ok(())
    }

    /// Writes rows of the latest tick until it or the batch is complete.
    fn fill(&mut self) {
        let now_ns = (self.ticks - 1).saturating_mul(self.interval_ns);
        while let Some(gpu) = self.gpus.get(self.cursor) {
            if self.builder.rows() >= BATCH_ROWS_MAX {
                return;
            }
            self.cursor += 1;
            if gpu.is_gone(now_ns) {
                continue;
            }
            let identity = self.builder.intern(&gpu.identity);
            let row = self.builder.row(self.timestamp_ns, identity);
            columns::write(gpu, self.due, &mut self.builder, row);
        }
        self.due = Tier::Fast;
    }

    /// The ends of the links of the GPUs whose turn it is, as far as a batch goes; of those that are there.
    fn tell_links(&mut self) -> Option<Batch> {
        let now_ns = (self.ticks - 1).saturating_mul(self.interval_ns);
        let mut details = BatchBuilder::new(Table::GpuDetails);
        while let Some(gpu) = self.gpus.get(self.linked) {
            if details.rows() + BOARD > BATCH_ROWS_MAX {
                break;
            }
            let board = self.gpus.get(self.linked - gpu.place_on_board()..).unwrap_or_default();
            self.linked += 1;
            if !gpu.is_gone(now_ns) {
                links::write(gpu, board.get(..BOARD).unwrap_or(board), self.timestamp_ns, &mut details);
            }
        }
        self.hand_over(details)
    }

    fn finish(&mut self) -> Option<Batch> {
        let rows = std::mem::replace(&mut self.builder, BatchBuilder::new(Table::GpuEvents));
        self.hand_over(rows)
    }

    fn hand_over(&mut self, mut rows: BatchBuilder) -> Option<Batch> {
        let batch = rows.finish(self.origin.clone(), self.sequence + 1)?;
        self.sequence += 1;
        self.rows += batch.rows() as u64;
        Some(batch)
    }

    fn poll_live(&mut self, now_ns: i64) -> Poll {
        loop {
            self.fill();
            if let Some(batch) = self.finish() {
                return Poll::Ready(batch);
            }
            if let Err(next_ns) = self.catch_up(now_ns) {
                return Poll::NotBefore(next_ns);
            }
        }
    }

    fn poll_unpaced(&mut self, end_ns: i64) -> Poll {
        loop {
            self.fill();
            let over = self.time_of(self.ticks) > end_ns;
            if self.cursor < self.gpus.len() || over {
                return self.finish().map_or(Poll::End, Poll::Ready);
            }
            self.advance();
            self.cursor = 0;
            // The ends of links have the time of their tick: a batch has rows of many.
            let is_due = self.linked < self.gpus.len();
            if is_due && let Some(batch) = self.finish().or_else(|| self.tell_links()) {
                return Poll::Ready(batch);
            }
        }
    }
}

impl Source for Simulated {
    type Error = Infallible;

    fn poll(&mut self, now_ns: i64) -> Result<Poll, Self::Error> {
        if let Some(batch) = self.tell_links() {
            return Ok(Poll::Ready(batch));
        }
        Ok(match self.pace {
            SimPace::Live => self.poll_live(now_ns),
            SimPace::Unpaced { end_ns } => self.poll_unpaced(end_ns),
        })
    }
}

/// GPUs of each host.
fn layout(gpus: usize, hosts: Option<usize>) -> Result<Vec<usize>, SimError> {
    let Some(hosts) = hosts else {
        let full = std::iter::repeat_n(BOARD, gpus / BOARD);
        return Ok(full.chain((!gpus.is_multiple_of(BOARD)).then_some(gpus % BOARD)).collect());
    };
    if hosts == 0 || hosts > gpus || gpus.div_ceil(hosts) > GPUS_PER_HOST_MAX {
        return Err(SimError::Hosts { gpus, hosts });
    }
    Ok((0..hosts).map(|host| gpus / hosts + usize::from(host < gpus % hosts)).collect())
}
