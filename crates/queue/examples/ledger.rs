//! Keeps account of what a queue has promised, outside it, while the queue is killed again and again: numbered frames
//! are published, and what was acknowledged must come out again, whole, and nothing else.
//!
//! ```text
//! ledger load   URL LEDGER [FRAMES/S]   publish until SIGTERM, reading along as the group `live`
//! ledger verify URL LEDGER              empty both groups and compare; exits with 1 when something is wrong
//! ```
//!
//! The group `late` is made before the first frame and reads nothing until the end: the queue has to hold everything
//! for it. Lines of the ledger: `s` a frame was sent, `t` it was taken (with its durability), `g` the group `live`
//! got it, `r` it was refused for good (a log that is broken says so until it is opened anew); each with the producer and the frame's number. The URL is one that leaves payloads as they are: `grpc://`,
//! not `http://`.
#![expect(clippy::print_stdout, reason = "its report")]
#![expect(clippy::unwrap_used, reason = "an instrument that is broken has to say so")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufRead, BufReader, Write as _};
use std::num::NonZeroU32;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gpuvitals_core::backoff::Backoff;
use gpuvitals_queue::link::{AnyConsumer, Client, Credentials, QueueUrl, Stamps, publish_until};
use gpuvitals_queue::{Consumer, ConsumerOptions, ContentType, Delivery, DeliveryId, Frame};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

const TOPIC: &str = "ledger";
const PRODUCERS: u32 = 4;
/// Frames of one producer under way at once.
const WINDOW: usize = 16;
const ROWS: u32 = 20;
/// How long nothing may come before a group counts as empty: longer than a lease and a backoff.
const IDLE: Duration = Duration::from_secs(12);
/// How long the end of a load waits for what is under way.
const LAST_PATIENCE: Duration = Duration::from_secs(30);

/// A frame: its producer and its number there.
type Number = (u32, u64);

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match *words.as_slice() {
        ["load", url, ledger] => load(&url.parse().unwrap(), ledger, 1_000.0).await,
        ["load", url, ledger, rate] => load(&url.parse().unwrap(), ledger, rate.parse().unwrap()).await,
        ["verify", url, ledger] => return verify(&url.parse().unwrap(), ledger).await,
        _ => {
            println!("ledger load URL LEDGER [FRAMES/S] | ledger verify URL LEDGER");
            return ExitCode::from(64);
        }
    }
    ExitCode::SUCCESS
}

/// The messages of a frame: anyone can say what they were.
fn frame((producer, number): Number) -> Frame {
    let mut text = String::from("[");
    for row in 0..ROWS {
        let comma = if row == 0 { "" } else { "," };
        let message = number * u64::from(ROWS) + u64::from(row);
        let _infallible = write!(
            text,
            r#"{comma}{{"timestamp":"2026-01-01T00:00:00Z","fields":{{"gpu_id":{producer},"message":{message}}}}}"#
        );
    }
    text.push(']');
    Frame::new(ContentType::Json, ROWS, text)
}

/// Which frame it is, if it is one of ours and as it was sent.
fn number_of(delivery: &Delivery) -> Option<Number> {
    let text = std::str::from_utf8(&delivery.frame.payload).ok()?;
    let number_behind = |name: &str| -> Option<u64> {
        let (_, rest) = text.split_once(name)?;
        rest.get(..rest.find(|c: char| !c.is_ascii_digit())?)?.parse().ok()
    };
    let producer = u32::try_from(number_behind("\"gpu_id\":")?).ok()?;
    let numbers = (producer, number_behind("\"message\":")? / u64::from(ROWS));
    let is_whole = delivery.frame.count == ROWS;
    (is_whole && frame(numbers).payload == delivery.frame.payload).then_some(numbers)
}

async fn consumer(url: &QueueUrl, group: &str) -> AnyConsumer {
    let options = ConsumerOptions {
        max_in_flight: NonZeroU32::MIN.saturating_add(ROWS * 100),
        ..ConsumerOptions::default()
    };
    client(url).consumer(TOPIC, group, &options).await.unwrap()
}

fn client(url: &QueueUrl) -> Client {
    Client::new(url.clone(), Credentials::default())
}

#[derive(Clone)]
struct Ledger(Arc<Mutex<File>>);

impl Ledger {
    fn note(&self, what: &str, (producer, number): Number, more: &str) {
        let line = format!("{what} {producer} {number}{more}\n");
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write_all(line.as_bytes()).unwrap();
    }
}

async fn load(url: &QueueUrl, path: &str, frames_per_second: f64) {
    let ledger = Ledger(Arc::new(Mutex::new(File::options().create(true).append(true).open(path).unwrap())));
    // Makes the group; there is nothing to receive yet.
    let mut late = consumer(url, "late").await;
    let _nothing = tokio::time::timeout(Duration::from_secs(3), late.receive()).await;
    late.leave().await;

    let stop = CancellationToken::new();
    let mut reading = JoinSet::new();
    reading.spawn(read_along(consumer(url, "live").await, ledger.clone(), stop.clone()));
    let mut publishing = JoinSet::new();
    for producer in 0..PRODUCERS {
        let pause = Duration::from_secs_f64(f64::from(PRODUCERS) / frames_per_second);
        publishing.spawn(publish(url.clone(), producer, pause, ledger.clone(), stop.clone()));
    }
    let mut ended = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).unwrap();
    println!("loading");
    ended.recv().await;
    stop.cancel();
    while let Some(ended) = publishing.join_next().await {
        ended.unwrap();
    }
    while let Some(ended) = reading.join_next().await {
        ended.unwrap();
    }
}

async fn publish(url: QueueUrl, producer: u32, pause: Duration, ledger: Ledger, stop: CancellationToken) {
    let way = Arc::new(client(&url).producer(TOPIC).unwrap());
    let stamps = Stamps::new();
    let give_up = CancellationToken::new();
    let mut ticks = tokio::time::interval(pause);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut under_way = JoinSet::new();
    let mut next = 0;
    while !stop.is_cancelled() {
        if under_way.len() >= WINDOW {
            under_way.join_next().await.unwrap().unwrap();
        }
        ticks.tick().await;
        let number = (producer, next);
        next += 1;
        ledger.note("s", number, "");
        let (way, ledger, give_up) = (Arc::clone(&way), ledger.clone(), give_up.clone());
        let stamped = stamps.stamp(frame(number));
        under_way.spawn(async move {
            let backoff = Backoff { base: Duration::from_millis(20), cap: Duration::from_millis(500) };
            match publish_until(&*way, stamped, &give_up, &backoff).await {
                Ok(receipt) => {
                    ledger.note("t", number, &format!(" {:?}", receipt.durability).to_lowercase());
                }
                Err(error) => ledger.note("r", number, &format!(" {error}")),
            }
        });
    }
    let settled = async { while under_way.join_next().await.is_some() {} };
    if tokio::time::timeout(LAST_PATIENCE, settled).await.is_err() {
        give_up.cancel();
    }
}

async fn read_along(mut live: AnyConsumer, ledger: Ledger, stop: CancellationToken) {
    loop {
        let deliveries = tokio::select! {
            () = stop.cancelled() => break,
            received = live.receive() => received.unwrap(),
        };
        for delivery in &deliveries {
            match number_of(delivery) {
                Some(number) => ledger.note("g", number, ""),
                None => println!("invented or torn: {} {:?}", delivery.id, delivery.frame.payload),
            }
        }
        let ids: Vec<DeliveryId> = deliveries.iter().map(|delivery| delivery.id).collect();
        // What could not be acknowledged comes again.
        let _comes_again = live.ack(&ids).await;
    }
    live.leave().await;
}

#[derive(Default)]
struct Account {
    sent: BTreeSet<Number>,
    taken: BTreeSet<Number>,
    got: BTreeSet<Number>,
    durabilities: BTreeMap<String, u64>,
    refused: u64,
}

impl Account {
    fn read(path: &str) -> Self {
        let mut account = Self::default();
        for line in BufReader::new(File::open(path).unwrap()).lines() {
            let line = line.unwrap();
            let mut words = line.split(' ');
            let what = words.next().unwrap();
            let number = (words.next().unwrap().parse().unwrap(), words.next().unwrap().parse().unwrap());
            match what {
                "s" => drop(account.sent.insert(number)),
                "g" => drop(account.got.insert(number)),
                "r" => account.refused += 1,
                _ => {
                    *account.durabilities.entry(words.next().unwrap().to_owned()).or_default() += 1;
                    account.taken.insert(number);
                }
            }
        }
        account
    }
}

async fn verify(url: &QueueUrl, path: &str) -> ExitCode {
    let account = Account::read(path);
    let mut wrong = 0;
    println!(
        "{} frames of {ROWS} messages sent, {} acknowledged {:?}, {} refused, {} read along",
        account.sent.len(),
        account.taken.len(),
        account.durabilities,
        account.refused,
        account.got.len()
    );
    for (group, before) in [("live", &account.got), ("late", &BTreeSet::new())] {
        let mut seen = before.clone();
        let (mut came, mut repeats, mut invented) = (0_u64, 0_u64, 0_u64);
        let mut consumer = consumer(url, group).await;
        while let Ok(received) = tokio::time::timeout(IDLE, consumer.receive()).await {
            let deliveries = received.unwrap();
            for delivery in &deliveries {
                came += 1;
                match number_of(delivery).filter(|number| account.sent.contains(number)) {
                    None => invented += 1,
                    Some(number) => repeats += u64::from(!seen.insert(number)),
                }
            }
            let ids: Vec<DeliveryId> = deliveries.iter().map(|delivery| delivery.id).collect();
            consumer.ack(&ids).await.unwrap();
        }
        consumer.leave().await;
        let lost = account.taken.difference(&seen).count();
        let unanswered = seen.difference(&account.taken).count();
        println!(
            "group {group}: {came} frames came, {repeats} of them again, {unanswered} that were never answered; \
             LOST {lost}, INVENTED OR TORN {invented}"
        );
        wrong += lost + usize::try_from(invented).unwrap();
    }
    println!("{}", if wrong == 0 { "nothing acknowledged is lost, nothing is invented" } else { "WRONG" });
    if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
