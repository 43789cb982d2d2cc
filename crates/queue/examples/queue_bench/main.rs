//! Drives one message queue and measures it: the client side of `bench/queue`.
//!
//! `queue_bench CONTESTANT ADDRESS MEASURE [AMOUNT]`, where CONTESTANT is `ours`, `ours-zstd`, `nats-memory`, `nats-file` or
//! `redis`, and MEASURE is
//!
//! - `sync`, `b100`, `b1000`: so many rows are sent, all their acknowledgements awaited, then the next; for AMOUNT seconds
//! - `c16`: sixteen connections that send one row each and await it
//! - `e2e`: one publisher (1,000 rows in flight) and one consumer that acknowledges, at once
//! - `paced`: 10,000 rows a second, ten each millisecond; time from publish to receipt
//! - `fill`, `drain`: AMOUNT rows in, out and acknowledged
//! - `ready`: tries until one row is taken; prints the milliseconds that took
//!
//! Prints one line: rows a second, p50 and p99 in microseconds (of an acknowledged publish, or from publish to
//! receipt; `-` where that means nothing).

#![expect(clippy::print_stdout, reason = "a measurement prints what it found")]

mod nats;
mod ours;
mod redis;
mod row;

use std::error::Error;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};

/// What can go wrong here ends the measurement.
pub(crate) type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Rows a second of the paced measure, and how many come each millisecond.
const PACED_ROWS: usize = 10;

#[derive(Clone)]
struct Target {
    contestant: String,
    address: String,
    topic: String,
    origin: Instant,
}

enum Publisher {
    Ours(ours::Publisher),
    Nats(Box<nats::Nats>),
    Redis(redis::Redis, String),
}

enum Subscriber {
    Ours(ours::Subscriber),
    Nats(Box<nats::Nats>),
    Redis(redis::Redis, String),
}

impl Target {
    async fn publisher(&self) -> Outcome<Publisher> {
        Ok(match self.contestant.as_str() {
            "ours" => Publisher::Ours(ours::Publisher::new(&self.address, &self.topic, false)?),
            "ours-zstd" => Publisher::Ours(ours::Publisher::new(&self.address, &self.topic, true)?),
            "nats-memory" => {
                Publisher::Nats(nats::Nats::connect(&self.address, &self.topic, true).await?.into())
            }
            "nats-file" => {
                Publisher::Nats(nats::Nats::connect(&self.address, &self.topic, false).await?.into())
            }
            "redis" => Publisher::Redis(redis::Redis::connect(&self.address).await?, self.topic.clone()),
            other => return Err(format!("no contestant {other}").into()),
        })
    }

    async fn subscriber(&self) -> Outcome<Subscriber> {
        Ok(match self.publisher().await? {
            Publisher::Ours(_) => Subscriber::Ours(ours::Subscriber::new(&self.address, &self.topic).await?),
            Publisher::Nats(mut nats) => {
                nats.make_consumer().await?;
                Subscriber::Nats(nats)
            }
            Publisher::Redis(mut redis, key) => {
                redis.make_group(&key).await?;
                Subscriber::Redis(redis, key)
            }
        })
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn rows(&self, first: u64, count: usize) -> Vec<Vec<u8>> {
        let at_ns = self.now_ns();
        (first..).take(count).map(|number| row::row(number, at_ns)).collect()
    }
}

impl Publisher {
    async fn publish(&mut self, rows: &[Vec<u8>]) -> Outcome<()> {
        match self {
            Self::Ours(ours) => ours.publish(rows).await,
            Self::Nats(nats) => nats.publish(rows).await,
            Self::Redis(redis, key) => redis.publish(key, rows).await,
        }
    }
}

impl Subscriber {
    async fn take(&mut self) -> Outcome<Vec<u64>> {
        match self {
            Self::Ours(ours) => ours.take().await,
            Self::Nats(nats) => nats.take().await,
            Self::Redis(redis, key) => redis.take(key).await,
        }
    }
}

#[derive(Default)]
struct Measured {
    rows: u64,
    seconds: f64,
    latencies_ns: Vec<u64>,
}

impl Measured {
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    fn print(mut self) {
        self.latencies_ns.sort_unstable();
        let at = |share: usize| {
            let place =
                (self.latencies_ns.len() * share / 100).min(self.latencies_ns.len().saturating_sub(1));
            self.latencies_ns.get(place).map_or("-".to_owned(), |ns| format!("{:.0}", *ns as f64 / 1e3))
        };
        println!("{:.0}\t{}\t{}", self.rows as f64 / self.seconds, at(50), at(99));
    }
}

/// Sends `count` rows, awaits them, sends the next, for `seconds`.
async fn lockstep(target: &Target, count: usize, seconds: f64) -> Outcome<Measured> {
    let mut publisher = target.publisher().await?;
    let mut measured = Measured::default();
    // The first ones pay for connection and topic.
    for number in 0..20 {
        publisher.publish(&target.rows(number, 1)).await?;
    }
    let start = Instant::now();
    while start.elapsed().as_secs_f64() < seconds {
        let rows = target.rows(measured.rows, count);
        let sent = Instant::now();
        publisher.publish(&rows).await?;
        measured.latencies_ns.push(u64::try_from(sent.elapsed().as_nanos())?);
        measured.rows += u64::try_from(count)?;
    }
    measured.seconds = start.elapsed().as_secs_f64();
    Ok(measured)
}

async fn sixteen(target: &Target, seconds: f64) -> Outcome<Measured> {
    target.publisher().await?.publish(&target.rows(0, 1)).await?;
    let mut connections = JoinSet::new();
    for _ in 0..16 {
        let target = target.clone();
        connections.spawn(async move { lockstep(&target, 1, seconds).await });
    }
    let mut all = Measured::default();
    while let Some(one) = connections.join_next().await {
        let one = one??;
        all.rows += one.rows;
        all.seconds = all.seconds.max(one.seconds);
        all.latencies_ns.extend(one.latencies_ns);
    }
    Ok(all)
}

/// Publishes in steps of `count`, each `pace` or as fast as it goes, for `seconds`, while one consumer acknowledges.
async fn end_to_end(
    target: &Target,
    count: usize,
    pace: Option<Duration>,
    seconds: f64,
) -> Outcome<Measured> {
    let mut subscriber = target.subscriber().await?;
    let publishing = target.clone();
    let publisher = tokio::spawn(async move {
        let mut publisher = publishing.publisher().await?;
        let (start, mut sent) = (Instant::now(), 0_u64);
        let mut ticks = tokio::time::interval(pace.unwrap_or(Duration::from_secs(1)));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        while start.elapsed().as_secs_f64() < seconds {
            if pace.is_some() {
                ticks.tick().await;
            }
            publisher.publish(&publishing.rows(sent, count)).await?;
            sent += u64::try_from(count)?;
        }
        Outcome::Ok(sent)
    });
    let start = Instant::now();
    let mut measured = Measured::default();
    let end = start + Duration::from_secs_f64(seconds);
    while let Ok(times) = tokio::time::timeout_at(end, subscriber.take()).await {
        let times = times?;
        let now = target.now_ns();
        measured.rows += u64::try_from(times.len())?;
        if pace.is_some() {
            measured.latencies_ns.extend(times.into_iter().map(|at| now.saturating_sub(at)));
        }
    }
    measured.seconds = start.elapsed().as_secs_f64();
    publisher.await??;
    Ok(measured)
}

async fn fill(target: &Target, rows: u64) -> Outcome<Measured> {
    let mut publisher = target.publisher().await?;
    let start = Instant::now();
    let mut sent = 0;
    while sent < rows {
        let step = usize::try_from((rows - sent).min(1000))?;
        publisher.publish(&target.rows(sent, step)).await?;
        sent += u64::try_from(step)?;
    }
    Ok(Measured { rows, seconds: start.elapsed().as_secs_f64(), latencies_ns: Vec::new() })
}

/// Until a server that was just started takes a row of the topic that was filled.
async fn ready(target: &Target) -> Outcome<()> {
    loop {
        let tried = async { target.publisher().await?.publish(&target.rows(0, 1)).await };
        if let Ok(Ok(())) = tokio::time::timeout(Duration::from_secs(1), tried).await {
            println!("{}", target.origin.elapsed().as_millis());
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn drain(target: &Target, rows: u64) -> Outcome<Measured> {
    let mut subscriber = target.subscriber().await?;
    let start = Instant::now();
    let mut taken = 0;
    while taken < rows {
        taken += u64::try_from(subscriber.take().await?.len())?;
    }
    Ok(Measured { rows: taken, seconds: start.elapsed().as_secs_f64(), latencies_ns: Vec::new() })
}

#[tokio::main]
async fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [contestant, address, measure, amount @ ..] = arguments.as_slice() else {
        return Err("queue_bench CONTESTANT ADDRESS MEASURE [AMOUNT]".into());
    };
    let amount: f64 = amount.first().map_or(Ok(2.0), |text| text.parse())?;
    // What is filled is drained by another run.
    let topic = if matches!(measure.as_str(), "fill" | "drain" | "ready") { "held" } else { measure };
    let target = Target {
        contestant: contestant.clone(),
        address: address.clone(),
        topic: format!("bench-{topic}"),
        origin: Instant::now(),
    };
    if measure == "ready" {
        return ready(&target).await;
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a count from the command line"
    )]
    let count = amount as u64;
    // Not on the thread that only waits: what it would await comes from tasks, and each word between threads costs a wake.
    let measure = measure.clone();
    tokio::spawn(async move { run(&target, &measure, amount, count).await }).await??.print();
    Ok(())
}

async fn run(target: &Target, measure: &str, amount: f64, count: u64) -> Outcome<Measured> {
    match measure {
        "sync" => lockstep(target, 1, amount).await,
        "b100" => lockstep(target, 100, amount).await,
        "b1000" => lockstep(target, 1000, amount).await,
        "c16" => sixteen(target, amount).await,
        "e2e" => end_to_end(target, 1000, None, amount).await,
        "paced" => end_to_end(target, PACED_ROWS, Some(Duration::from_millis(1)), amount).await,
        "fill" => fill(target, count).await,
        "drain" => drain(target, count).await,
        other => Err(format!("no measure {other}").into()),
    }
}
