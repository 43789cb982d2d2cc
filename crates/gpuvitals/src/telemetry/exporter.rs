//! The thread that exports.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use gpuvitals_api::figures::Figures;
use gpuvitals_core::clock::{self, Moment};
use gpuvitals_core::figures::Family;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::metrics::v1::{ResourceMetrics, ScopeMetrics};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans};

use super::convert::{Times, metrics};
use super::figures::{self, Counts};
use super::sender::{Partial, Sender, Trouble};
use super::settings::Otlp;
use super::spans::{BATCH, SPANS_MAX, Waiting};
use super::{LAST_PATIENCE, SCOPE};
use crate::failure::Failure;

/// Between two sendings of spans, as in OpenTelemetry's own processors.
const SPANS_INTERVAL: Duration = Duration::from_secs(5);
/// Pause after a first failure; it doubles up to the second.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// Longest pause that a receiver may ask for.
const ASKED_MAX: Duration = Duration::from_mins(5);
/// Batches of spans that are sent before it is the turn of the metrics: all that can wait.
const TURN: usize = SPANS_MAX / BATCH + 1;

/// What is exported, and by whom.
#[derive(Debug)]
pub(super) struct Exporter {
    spans: Arc<Waiting>,
    figures: Arc<RwLock<Option<Figures>>>,
    counts: Arc<Counts>,
    /// Hears when the thread has ended.
    ended: Mutex<Receiver<()>>,
}

impl Exporter {
    /// Starts the thread.
    ///
    /// # Errors
    /// When headers or authorities cannot be read, or there is no thread.
    pub(super) fn start(settings: &Otlp, resource: Resource) -> Result<Self, Failure> {
        let (end, ended) = sync_channel(1);
        let (spans, figures, counts) = (Arc::<Waiting>::default(), Arc::default(), Arc::default());
        let worker = Worker {
            sender: Sender::new(settings)?,
            resource,
            spans: Arc::clone(&spans),
            figures: Arc::clone(&figures),
            counts: Arc::clone(&counts),
            started_ns: nanoseconds(clock::now_ns()),
            interval: settings.metrics.then_some(settings.interval),
            timeout: settings.timeout,
            traces: Lane::new("traces"),
            metrics: Lane::new("metrics"),
            kept: None,
        };
        std::thread::Builder::new()
            .name("otlp".to_owned())
            .spawn(move || worker.run(&end))
            .map_err(|e| Failure::io("cannot start the thread otlp", e))?;
        Ok(Self { spans, figures, counts, ended: Mutex::new(ended) })
    }

    /// Where spans go that have ended.
    pub(super) fn spans(&self) -> &Arc<Waiting> {
        &self.spans
    }

    /// From now on these figures go out.
    pub(super) fn show(&self, figures: Figures) {
        *self.figures.write().unwrap_or_else(PoisonError::into_inner) = Some(figures);
    }

    /// The exporter's own figures.
    pub(super) fn families(&self) -> Vec<Family> {
        figures::families(&self.counts, &self.spans)
    }

    /// Lets the thread send what is left, for [`LAST_PATIENCE`] at most.
    pub(super) fn finish(&self) {
        self.spans.stop();
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if ended.recv_timeout(LAST_PATIENCE).is_err() {
            tracing::warn!(
                spans = self.spans.len(),
                "the receiver of OTLP does not answer; what was left is not sent"
            );
        }
    }
}

/// How one signal goes. A receiver may take metrics and no traces, or be short of room for one of them.
struct Lane {
    what: &'static str,
    /// The last pause, while what is sent is not taken.
    pause: Option<Duration>,
    until_ns: i64,
}

impl Lane {
    fn new(what: &'static str) -> Self {
        Self { what, pause: None, until_ns: i64::MIN }
    }

    /// Whether nothing is to be sent now.
    fn is_resting(&self) -> bool {
        monotonic_ns() < self.until_ns
    }

    fn taken(&mut self) {
        self.until_ns = i64::MIN;
        if self.pause.take().is_some() {
            tracing::info!(signal = self.what, "the receiver of OTLP takes what is sent again");
        }
    }

    /// Nothing is sent for a while. It is said once.
    fn not_taken(&mut self, why: &str, asked: Option<Duration>) {
        let pause = match self.pause {
            None => {
                tracing::warn!(
                    signal = self.what,
                    reason = why,
                    "the receiver of OTLP does not take what is sent; it is tried again"
                );
                BACKOFF.0
            }
            Some(pause) => (pause * 2).min(BACKOFF.1),
        };
        self.pause = Some(pause);
        let rest = pause.max(asked.unwrap_or_default().min(ASKED_MAX));
        self.until_ns = monotonic_ns() + signed(rest);
    }
}

struct Worker {
    sender: Sender,
    resource: Resource,
    spans: Arc<Waiting>,
    figures: Arc<RwLock<Option<Figures>>>,
    counts: Arc<Counts>,
    started_ns: u64,
    /// None: no metrics are sent.
    interval: Option<Duration>,
    timeout: Duration,
    traces: Lane,
    metrics: Lane,
    /// Spans that the receiver did not take yet, and how many.
    kept: Option<(ExportTraceServiceRequest, u64)>,
}

impl Worker {
    fn run(mut self, end: &SyncSender<()>) {
        let mut metrics_at = self.interval.map(|interval| monotonic_ns() + signed(interval));
        let mut spans_at = monotonic_ns() + signed(SPANS_INTERVAL);
        loop {
            let next = metrics_at.map_or(spans_at, |at| at.min(spans_at));
            let wait = Duration::from_nanos(nanoseconds(next - monotonic_ns()));
            if self.spans.wait(wait, !self.traces.is_resting()) {
                break;
            }
            self.send_spans(i64::MAX);
            let now = monotonic_ns();
            spans_at =
                if self.traces.is_resting() { self.traces.until_ns } else { now + signed(SPANS_INTERVAL) };
            if let (Some(at), Some(interval)) = (&mut metrics_at, self.interval)
                && *at <= now
            {
                let may_be_taken_soon = self.send_metrics(self.timeout);
                let regular = now + signed(interval);
                *at = if may_be_taken_soon { regular.min(self.metrics.until_ns) } else { regular };
            }
        }
        self.last();
        let _gone = end.send(());
    }

    /// What is left. Whoever stops waits no longer than that; a receiver that is away now is asked once more.
    fn last(&mut self) {
        let until_ns = monotonic_ns() + signed(LAST_PATIENCE);
        (self.traces.until_ns, self.metrics.until_ns) = (i64::MIN, i64::MIN);
        if self.interval.is_some() {
            self.send_metrics(self.timeout.min(LAST_PATIENCE / 2));
        }
        self.send_spans(until_ns);
        let spans = self.spans.len();
        if spans > 0 {
            tracing::warn!(spans, "spans were left that the receiver of OTLP did not take");
        }
    }

    /// Sends what waits, batch by batch, unless the receiver takes none now, and not beyond that time.
    fn send_spans(&mut self, until_ns: i64) {
        for _ in 0..TURN {
            let left = Duration::from_nanos(nanoseconds(until_ns - monotonic_ns()));
            if left.is_zero() || self.traces.is_resting() {
                return;
            }
            let Some((request, count)) = self.kept.take().or_else(|| self.batch()) else { return };
            let refused = match self.sender.send(&request, self.timeout.min(left)) {
                Ok(partial) => {
                    partial.tell("spans");
                    self.counts
                        .spans_sent
                        .fetch_add(count.saturating_sub(partial.refused), Ordering::Relaxed);
                    self.traces.taken();
                    partial.refused
                }
                Err(Trouble::Away(why, asked)) => {
                    self.kept = Some((request, count));
                    self.counts.failures.fetch_add(1, Ordering::Relaxed);
                    return self.traces.not_taken(&why, asked);
                }
                Err(Trouble::Refused(why)) => {
                    self.counts.failures.fetch_add(1, Ordering::Relaxed);
                    self.traces.not_taken(&why, None);
                    count
                }
            };
            self.counts.spans_refused.fetch_add(refused, Ordering::Relaxed);
            self.spans.settle();
        }
    }

    fn batch(&self) -> Option<(ExportTraceServiceRequest, u64)> {
        let spans: Vec<_> = self.spans.take().into_iter().map(Into::into).collect();
        let count = spans.len() as u64;
        let scope_spans = vec![ScopeSpans { scope: Some(scope()), spans, ..ScopeSpans::default() }];
        let resource_spans = vec![ResourceSpans {
            resource: Some(self.resource.clone()),
            scope_spans,
            ..ResourceSpans::default()
        }];
        (count > 0).then_some((ExportTraceServiceRequest { resource_spans }, count))
    }

    /// Sends all metrics as they stand. Whether they were not taken and may be before the next time: as they stand then.
    fn send_metrics(&mut self, patience: Duration) -> bool {
        let figures = self.figures.read().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(figures) = figures.filter(|_| !self.metrics.is_resting()) else { return false };
        let times = Times { start_ns: self.started_ns, now_ns: nanoseconds(clock::now_ns()) };
        let metrics = metrics(&figures.read(), times);
        let scope_metrics = vec![ScopeMetrics { scope: Some(scope()), metrics, ..ScopeMetrics::default() }];
        let resource_metrics = vec![ResourceMetrics {
            resource: Some(self.resource.clone()),
            scope_metrics,
            ..ResourceMetrics::default()
        }];
        let (why, asked, is_away) =
            match self.sender.send(&ExportMetricsServiceRequest { resource_metrics }, patience) {
                Ok(partial) => {
                    partial.tell("data points");
                    self.counts.metrics_sent.fetch_add(1, Ordering::Relaxed);
                    self.counts.points_refused.fetch_add(partial.refused, Ordering::Relaxed);
                    self.metrics.taken();
                    return false;
                }
                Err(Trouble::Away(why, asked)) => (why, asked, true),
                Err(Trouble::Refused(why)) => (why, None, false),
            };
        self.counts.failures.fetch_add(1, Ordering::Relaxed);
        self.metrics.not_taken(&why, asked);
        is_away
    }
}

impl Partial {
    /// What a receiver took and still finds fault with; in the log of who looks for it, since it comes with every sending.
    fn tell(&self, what: &str) {
        if *self != Self::default() {
            tracing::debug!(
                refused = self.refused,
                what,
                reason = self.words,
                "the receiver of OTLP took not all"
            );
        }
    }
}

fn scope() -> InstrumentationScope {
    InstrumentationScope {
        name: SCOPE.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    }
}

fn monotonic_ns() -> i64 {
    Moment::now().mono_ns
}

fn nanoseconds(ns: i64) -> u64 {
    u64::try_from(ns).unwrap_or(0)
}

fn signed(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX / 2)
}
