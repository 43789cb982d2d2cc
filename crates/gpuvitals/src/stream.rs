//! `gpuvitals stream`: replays a CSV file into a queue elsewhere.
//!
//! One thread reads and cuts batches, which go to the workers in turn; each keeps its rate, packs a batch as a frame and
//! publishes it until the queue has it. In memory is what the reader cuts and two batches a worker. At the end what was
//! read is sent, within the grace; a second signal ends it at once.

mod progress;
mod publisher;
mod settings;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use gpuvitals_api::figures::{self, Figures};
use gpuvitals_core::Batch;
use gpuvitals_core::clock;
use gpuvitals_queue::link::AnyProducer;
use gpuvitals_sources::csv::{CsvConfig, CsvInput, CsvSource, Pace, Replay};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::config::{Config, Times};
use crate::failure::{Exit, Failure};
use crate::logging::Announcer;
use crate::pipe::{self, End, Sink};
use progress::{LOOK_PAUSE, Line, per_second};
use publisher::Terms;

pub(crate) use settings::{Stream, StreamFlags};

/// Batches that wait for a worker: one, so that it never waits for the reader.
const WAITING_BATCHES: usize = 1;
/// Threads: workers wait most of the time.
const THREADS: usize = 2;

/// Runs until the file, the time or the user's patience ends.
///
/// # Errors
/// When the file cannot be read, the queue will never take its rows, or rows that were read could not be sent in time.
pub(crate) fn run(config: &Config, announcer: Announcer) -> Result<(), Failure> {
    let source = open(&config.stream)?;
    let queue = config.queue_elsewhere();
    let client = queue.client()?;
    let producers =
        (0..config.stream.workers).map(|_| queue.producer(&client)).collect::<Result<Vec<_>, _>>()?;
    let url = &queue.address;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .enable_all()
        .build()
        .map_err(|e| Failure::io("cannot start the runtime", e))?;
    announcer.tell(&format!(
        "streaming {} to {url}, topic {}{}",
        config.stream.csv,
        config.message_queue.topic,
        if config.stream.once { "" } else { ", again and again" }
    ));
    let began = clock::now_ns();
    let outcome = runtime.block_on(serve(config, source, producers, announcer));
    // A reader may wait for standard input, and nobody can wake it.
    runtime.shutdown_timeout(Duration::from_millis(100));
    let (counts, failure) = outcome;
    let took = Duration::from_nanos(u64::try_from(clock::now_ns() - began).unwrap_or(0));
    announcer.tell(&format!(
        "sent {} rows in {} frames ({} bytes) in {:.1} s, {} rows/s; {} retries, {} bad rows",
        counts.rows,
        counts.frames,
        counts.bytes,
        took.as_secs_f64(),
        per_second(counts.rows, took),
        counts.retries,
        counts.bad
    ));
    match failure {
        Some(failure) => Err(failure),
        None if counts.left > 0 => Err(Failure::new(
            Exit::Unavailable,
            format!("{} rows were read and not taken by the queue at {url}", counts.left),
        )),
        None => Ok(()),
    }
}

fn open(settings: &Stream) -> Result<CsvSource, Failure> {
    if settings.csv.is_empty() {
        return Err(Failure::new(Exit::Usage, "there is nothing to stream; --csv FILE names a file"));
    }
    let (replay, pace) = match settings.times {
        Times::Recorded => (Replay::Recorded, Pace::Unthrottled),
        Times::Now => (Replay::Shifted, Pace::Recorded),
    };
    let config = CsvConfig {
        replay,
        pace,
        speed: settings.speed,
        // Standard input can be read once only, so that is what is meant.
        loop_file: !settings.once && settings.csv != "-",
        batch_rows: usize::try_from(settings.frame_rows()).unwrap_or(usize::MAX),
        batch_age_ns: i64::try_from(settings.linger.as_nanos()).unwrap_or(i64::MAX),
        node: Arc::from("stream"),
    };
    let input = CsvInput::from(std::path::Path::new(&settings.csv));
    CsvSource::open(input, config, clock::now_ns()).map_err(|error| pipe::cannot_replay(&error))
}

/// Reads and sends until all ends. What was sent, and why it failed if it did.
async fn serve(
    config: &Config,
    source: CsvSource,
    producers: Vec<AnyProducer>,
    announcer: Announcer,
) -> (progress::Counts, Option<Failure>) {
    let (stop, give_up) = (CancellationToken::new(), CancellationToken::new());
    let terms = Terms::new(config, &stop, &give_up);
    let (mut workers, mut lanes) = (JoinSet::new(), Vec::with_capacity(producers.len()));
    for producer in producers {
        let (lane, batches) = mpsc::channel(WAITING_BATCHES);
        lanes.push(lane);
        workers.spawn(publisher::publish(batches, producer, terms.clone()));
    }
    let read = Arc::new(pipe::Progress::silent());
    let _shown = show(config, &terms.progress, counted(&terms.progress, &read, config), announcer).await;
    let mut end = read_on_a_thread(source, lanes, Arc::clone(&read), &terms);

    let (began, duration) = (Instant::now(), config.stream.duration);
    let counts = || terms.progress.counts(read.number("rows_skipped"));
    let mut line = Line::new();
    let mut looks = tokio::time::interval(LOOK_PAUSE);
    looks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut signalled = pin!(crate::signal::ended());
    let (mut failure, mut was_signalled) = (None, false);
    // After a signal, or when the time is over: until when what was read may be sent.
    let mut deadline = None;
    loop {
        tokio::select! {
            ended = workers.join_next() => {
                let Some(ended) = ended else { break };
                let panicked = |error| Err(Failure::caused(Exit::Bug, "a worker ended by a panic", error));
                if let Err(ended) = ended.unwrap_or_else(panicked) {
                    failure.get_or_insert(ended);
                    stop.cancel();
                    give_up.cancel();
                }
            }
            signal = &mut signalled => {
                signalled.set(crate::signal::ended());
                tracing::info!(signal, "stopping");
                if was_signalled {
                    give_up.cancel();
                }
                was_signalled = true;
                stop.cancel();
                deadline.get_or_insert(Instant::now() + config.shutdown.grace);
            }
            () = tokio::time::sleep_until(began + duration), if !duration.is_zero() && deadline.is_none() => {
                tracing::info!("the time is over; rows that are due are sent");
                stop.cancel();
                deadline = Some(Instant::now() + config.shutdown.grace);
            }
            () = until(deadline), if !give_up.is_cancelled() => give_up.cancel(),
            _ = looks.tick() => {
                line.draw(counts(), began.elapsed());
                // It is no use to wait for a queue that most likely is not there.
                if deadline.is_some() && !was_signalled && let Some(nothing) = never_taken(&terms, config) {
                    failure.get_or_insert(nothing);
                    give_up.cancel();
                }
            }
        }
    }
    crate::terminal::leave();
    if let Ok(End::Failed(reason)) = end.try_recv() {
        failure.get_or_insert(Failure::new(Exit::Io, reason));
    }
    (counts(), failure)
}

/// The failure of a stream of which the queue has never taken a frame.
fn never_taken(terms: &Terms, config: &Config) -> Option<Failure> {
    let reason = terms.progress.never_taken()?;
    let url = config.queue_elsewhere().address;
    Some(Failure::new(Exit::Unavailable, format!("the queue at {url} has taken nothing: {reason}")))
}

/// What is counted, for whoever asks.
fn counted(progress: &Arc<progress::Progress>, read: &Arc<pipe::Progress>, config: &Config) -> Figures {
    let (progress, read, workers) = (Arc::clone(progress), Arc::clone(read), config.stream.workers);
    Figures::new(move || {
        let mut families = progress.families(read.number("rows_skipped"), workers);
        families.extend(crate::telemetry::families());
        families
    })
}

/// Serves them until the guard is dropped. A port that is taken is done without: several may run on one machine.
async fn show(
    config: &Config,
    progress: &Arc<progress::Progress>,
    figures: Figures,
    announcer: Announcer,
) -> DropGuard {
    crate::telemetry::show(figures.clone());
    let stop = CancellationToken::new();
    let (address, port) = (config.stream.listen, config.stream.metrics_port);
    match crate::collect::listen(address, port, "--metrics-port").await {
        Ok(listener) => {
            if let Ok(address) = listener.local_addr() {
                announcer.tell(&format!("metrics: http://{address}/metrics"));
            }
            let progress = Arc::clone(progress);
            tokio::spawn(figures::serve(listener, figures, move || progress.health(), stop.clone()));
        }
        Err(failure) => tracing::warn!(reason = %failure, "the metrics are not served"),
    }
    stop.drop_guard()
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Reading blocks, so it has a thread of its own. Tells how it ended.
fn read_on_a_thread(
    source: CsvSource,
    lanes: Vec<mpsc::Sender<Batch>>,
    progress: Arc<pipe::Progress>,
    terms: &Terms,
) -> oneshot::Receiver<End> {
    let (tell, end) = oneshot::channel();
    let (runtime, stop, give_up) = (Handle::current(), terms.stop.clone(), terms.give_up.clone());
    let work = move || {
        let mut workers = RoundRobin { lanes, next: 0 };
        let ended = pipe::run(source, &mut workers, &progress, &runtime, &stop, &give_up);
        // Before the lanes close: whoever sees them closed finds the end told.
        let _heard = tell.send(ended);
    };
    if let Err(error) = std::thread::Builder::new().name("reader".to_owned()).spawn(work) {
        tracing::error!(%error, "no thread for the reader");
    }
    end
}

/// Gives batches to the workers in turn.
struct RoundRobin {
    lanes: Vec<mpsc::Sender<Batch>>,
    next: usize,
}

impl Sink for RoundRobin {
    fn hand_over(&mut self, batch: Batch, _: &CancellationToken) -> Result<(), End> {
        let lane = self.lanes.get(self.next).ok_or(End::Stopped)?;
        self.next = (self.next + 1) % self.lanes.len();
        // A lane closes when its worker has ended; why is told by the worker.
        lane.blocking_send(batch).map_err(|_| End::Stopped)
    }
}
