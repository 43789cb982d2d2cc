//! `gpuvitals stream`: replays recorded rows into a queue elsewhere.
//!
//! Each worker has its own connection and rate. At the end rows already read are sent, within the grace; a
//! second signal ends it at once.

mod line;
mod settings;

use std::sync::Arc;
use std::time::Duration;

use gpuvitals_core::figures::Family;
use gpuvitals_core::{Health, causes, clock};
use gpuvitals_inputs::replay::{ReplayConfig, ReplaySource};
use gpuvitals_listener::{Figures, Listener, Meter, PortKind, Vitals, vitals};
use gpuvitals_queue::PublishError;
use gpuvitals_queue::link::{AnyProducer, MessageQueue};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::failure::{Exit, Failure};
use crate::files::Files;
use crate::listening;
use crate::logging::Announcer;
use crate::pipe::{self, Format, PipeError, Progress, Rate, Terms};
use crate::service::Service;
use line::{LOOK_PAUSE, Line, per_second};

use settings::LINGER;
pub(crate) use settings::{EXAMPLES, Stream};

/// Threads: workers wait most of the time.
pub(crate) const THREADS: usize = 2;

/// What a stream is run with.
#[derive(Clone, Copy)]
pub(crate) struct Parts<'a> {
    /// The section `stream` of the settings.
    pub settings: &'a Stream,
    /// The user's word on the files.
    pub files: &'a Files,
    /// The queue that takes the rows.
    pub queue: &'a MessageQueue,
    /// What protects its port.
    pub listener: &'a Listener,
    /// Time for the end.
    pub grace: Duration,
}

/// Runs until the file, the time or the user's patience ends.
///
/// # Errors
/// When the file cannot be read, the queue will never take its rows, or rows that were read could not be sent in time.
pub(crate) fn run(parts: Parts<'_>, mut service: Service) -> Result<(), Failure> {
    let Parts { settings, queue, .. } = parts;
    let to_open = (settings.clone(), parts.files.clone());
    let Some(source) = service.open(move || open(&to_open.0, &to_open.1))? else { return Ok(()) };
    let client = queue.client()?;
    let producers = (0..parts.settings.workers)
        .map(|_| client.producer(queue.topic.as_str()))
        .collect::<Result<Vec<_>, _>>()?;
    let url = &queue.address;
    let announcer = service.announcer;
    announcer.tell(&format!(
        "streaming {} to {url}, topic {}{}",
        parts.settings.replay.0.join(", "),
        queue.topic,
        if parts.settings.once { "" } else { ", again and again" }
    ));
    let began = clock::now_ns();
    let progress = Arc::new(Progress::new());
    let runtime = service.runtime.clone();
    let failure = runtime.block_on(serve(parts, source, producers, service, &progress));
    let counts = progress.counts();
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
        // Who streams a file once wants to know that nothing of it went.
        None if parts.settings.once => {
            progress.nothing_read().map_or(Ok(()), |why| Err(Failure::new(Exit::Data, why)))
        }
        None => Ok(()),
    }
}

fn open(settings: &Stream, files: &Files) -> Result<ReplaySource, Failure> {
    let config = ReplayConfig {
        speed: settings.speed,
        // Standard input can be read only once, so this is implied.
        loop_file: !settings.once && !settings.replay.0.iter().any(|path| path == "-"),
        batch_rows: usize::try_from(settings.frame_rows()).unwrap_or(usize::MAX),
        batch_age_ns: i64::try_from(LINGER.as_nanos()).unwrap_or(i64::MAX),
        messages: settings.format == Format::Json,
        hints: files.hints()?,
        ..ReplayConfig::default()
    };
    pipe::open_replay(&settings.replay.0, settings.times, config)
}

/// Reads and sends until all ends. Why it failed, if it did.
async fn serve(
    parts: Parts<'_>,
    source: ReplaySource,
    producers: Vec<AnyProducer>,
    Service { announcer, mut signals, .. }: Service,
    progress: &Arc<Progress>,
) -> Option<Failure> {
    let Parts { settings, queue, grace, .. } = parts;
    let (stop, give_up) = (CancellationToken::new(), CancellationToken::new());
    let rate = |messages| Rate { messages, burst: settings.frame_rows(), end: settings.end() };
    let terms = Terms {
        format: settings.format,
        rate: settings.rate().map(rate),
        stop: stop.clone(),
        give_up: give_up.clone(),
    };
    let _shown = match show(parts, progress, announcer) {
        Ok(shown) => shown,
        Err(failure) => return Some(failure),
    };
    let mut pipe = pipe::start(source, producers, progress, terms);

    let (began, duration) = (Instant::now(), settings.duration);
    let mut line = Line::new();
    let mut looks = tokio::time::interval(LOOK_PAUSE);
    looks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let (mut failure, mut was_signalled) = (None, false);
    // After a signal, or when the time is over: the deadline for sending rows already read.
    let mut deadline = None;
    let ended = loop {
        tokio::select! {
            ended = &mut pipe => break ended.unwrap_or(Err(PipeError::Panicked)),
            signal = signals.next() => {
                tracing::info!(signal, "stopping");
                if was_signalled {
                    give_up.cancel();
                }
                was_signalled = true;
                stop.cancel();
                deadline.get_or_insert(Instant::now() + grace);
            }
            () = tokio::time::sleep_until(began + duration), if !duration.is_zero() && deadline.is_none() => {
                tracing::info!("the time is over; rows that are due are sent");
                stop.cancel();
                deadline = Some(Instant::now() + grace);
            }
            () = until(deadline), if !give_up.is_cancelled() => give_up.cancel(),
            _ = looks.tick() => {
                line.draw(progress.counts(), began.elapsed());
                // It is no use to wait for a queue that most likely is not there.
                if deadline.is_some() && !was_signalled && let Some(reason) = progress.never_taken() {
                    let text = format!("the queue at {} has taken nothing: {reason}", queue.address);
                    failure.get_or_insert(Failure::new(Exit::Unavailable, text));
                    give_up.cancel();
                }
            }
        }
    };
    crate::terminal::leave();
    failure.or_else(|| ended.err().map(|error| failed(&error, &queue.way_in())))
}

/// What the streamer shows of itself.
struct StreamerVitals {
    progress: Arc<Progress>,
    workers: usize,
    meter: Arc<Meter>,
}

impl Vitals for StreamerVitals {
    fn health(&self) -> Health {
        pipe::worst(self.progress.queue(), std::iter::once(self.progress.reading()))
    }

    fn families(&self) -> Vec<Family> {
        let mut families = self.progress.families(self.workers);
        families.extend(self.meter.families());
        families.extend(crate::outgoing::families());
        families
    }
}

/// Serves what is counted until the guard is dropped. A port that is taken is done without: several may run on one machine.
///
/// # Errors
/// When a setting of the listener is wrong.
fn show(parts: Parts<'_>, progress: &Arc<Progress>, announcer: Announcer) -> Result<DropGuard, Failure> {
    let meter = Arc::new(Meter::new("stream"));
    let (progress, workers) = (Arc::clone(progress), parts.settings.workers);
    let shown = Arc::new(StreamerVitals { progress, workers, meter: Arc::clone(&meter) });
    let figures = Arc::clone(&shown);
    crate::outgoing::show(Figures::new(move || figures.families()));
    let stop = CancellationToken::new();
    match listening::listen(parts.settings.listen, parts.settings.metrics_port, "--metrics-port") {
        Ok((socket, address)) => {
            let access = listening::access(parts.listener, address, PortKind::Metrics)?;
            announcer.tell(&format!("metrics: {}://{address}/metrics", parts.listener.scheme()));
            let app = vitals::routes(shown);
            tokio::spawn(gpuvitals_listener::serve(
                socket,
                app,
                gpuvitals_listener::Terms { access, ..gpuvitals_listener::Terms::new(meter) },
                stop.clone(),
            ));
        }
        Err(failure) => tracing::warn!(reason = %failure, "the metrics are not served"),
    }
    Ok(stop.drop_guard())
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

fn failed(error: &PipeError, way_in: &str) -> Failure {
    let (exit, advice) = match error {
        PipeError::Source(_) | PipeError::Thread(_) => (Exit::Io, ""),
        PipeError::Pack(_) | PipeError::Panicked => (Exit::Bug, ""),
        PipeError::Refused(PublishError::Denied { .. }) => (Exit::Permission, way_in),
        PipeError::Refused(PublishError::Topic(_)) => (Exit::Config, "--topic names another"),
        PipeError::Refused(PublishError::TooLarge { .. }) => {
            (Exit::Config, "a smaller --batch-size makes smaller frames")
        }
        PipeError::Refused(_) => (Exit::Unavailable, ""),
    };
    let separator = if advice.is_empty() { "" } else { "; " };
    Failure::new(exit, format!("{}{separator}{advice}", causes(error)))
}
