//! The thread that exports.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use gpuvitals_api::figures::Figures;
use gpuvitals_exposition::Family;
use gpuvitals_sources::sampler::Moment;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::metrics::v1::{ResourceMetrics, ScopeMetrics};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans};

use super::convert::{Names, Times, metrics};
use super::figures::{self, Counts};
use super::sender::{Sender, Trouble};
use super::settings::Otlp;
use super::spans::Waiting;
use super::{SCOPE, text};
use crate::clock;
use crate::failure::Failure;

/// Between two sendings of spans, as in OpenTelemetry's own processors.
const SPANS_INTERVAL: Duration = Duration::from_secs(5);
/// Pause after a first failure; it doubles up to the second.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

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
            names: Names::of_catalogue(),
            started_ns: nanoseconds(clock::now_ns()),
            interval: settings.metrics.then_some(settings.interval),
            timeout: settings.timeout,
            backoff: None,
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

    /// Lets the thread send what is left, for so long at most.
    pub(super) fn finish(&self, patience: Duration) {
        self.spans.stop();
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if ended.recv_timeout(patience).is_err() {
            tracing::warn!(
                spans = self.spans.len(),
                "the receiver of OTLP does not answer; what was left is not sent"
            );
        }
    }
}

/// Why nothing is sent now.
struct Backoff {
    pause: Duration,
    until_ns: i64,
}

struct Worker {
    sender: Sender,
    resource: Resource,
    spans: Arc<Waiting>,
    figures: Arc<RwLock<Option<Figures>>>,
    counts: Arc<Counts>,
    names: Names,
    started_ns: u64,
    /// None: no metrics are sent.
    interval: Option<Duration>,
    timeout: Duration,
    backoff: Option<Backoff>,
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
            if self.spans.wait(wait, !self.is_away()) {
                break;
            }
            let now = monotonic_ns();
            self.send_spans();
            spans_at = now + signed(SPANS_INTERVAL);
            if let (Some(at), Some(interval)) = (&mut metrics_at, self.interval)
                && *at <= now
            {
                *at = now + signed(interval);
                self.send_metrics();
            }
        }
        // Whoever stops has a bound of its own; one that is away now is asked once more.
        self.backoff = None;
        if self.interval.is_some() {
            self.send_metrics();
        }
        self.send_spans();
        let left = self.spans.len() as u64 + self.kept.as_ref().map_or(0, |(_, count)| *count);
        if left > 0 {
            tracing::warn!(spans = left, "spans were left that the receiver of OTLP did not take");
        }
        let _gone = end.send(());
    }

    fn is_away(&self) -> bool {
        self.backoff.as_ref().is_some_and(|backoff| monotonic_ns() < backoff.until_ns)
    }

    /// Sends what waits, batch by batch, unless the receiver is away.
    fn send_spans(&mut self) {
        while !self.is_away() {
            let Some((request, count)) = self.kept.take().or_else(|| self.batch()) else { return };
            match self.sender.spans(&request, self.timeout) {
                Ok(refused) => {
                    self.counts.spans_sent.fetch_add(count.saturating_sub(refused), Ordering::Relaxed);
                    self.counts.spans_refused.fetch_add(refused, Ordering::Relaxed);
                    self.is_back();
                }
                Err(Trouble::Away(why)) => {
                    self.kept = Some((request, count));
                    self.went_away(&why);
                }
                Err(Trouble::Refused(why)) => {
                    self.counts.spans_refused.fetch_add(count, Ordering::Relaxed);
                    self.went_away(&why);
                }
            }
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

    /// Sends all metrics as they stand, unless the receiver is away: the next time they say more.
    fn send_metrics(&mut self) {
        let figures = self.figures.read().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(figures) = figures.filter(|_| !self.is_away()) else { return };
        let shown = figures.text();
        let times = Times { start_ns: self.started_ns, now_ns: nanoseconds(clock::now_ns()) };
        let metrics = metrics(&text::families(&shown), &self.names, times);
        let scope_metrics = vec![ScopeMetrics { scope: Some(scope()), metrics, ..ScopeMetrics::default() }];
        let resource_metrics = vec![ResourceMetrics {
            resource: Some(self.resource.clone()),
            scope_metrics,
            ..ResourceMetrics::default()
        }];
        match self.sender.metrics(&ExportMetricsServiceRequest { resource_metrics }, self.timeout) {
            Ok(refused) => {
                self.counts.metrics_sent.fetch_add(1, Ordering::Relaxed);
                if refused > 0 {
                    tracing::debug!(refused, "the receiver of OTLP refused some of the metrics");
                }
                self.is_back();
            }
            Err(Trouble::Away(why) | Trouble::Refused(why)) => self.went_away(&why),
        }
    }

    fn is_back(&mut self) {
        if self.backoff.take().is_some() {
            tracing::info!("the receiver of OTLP takes what is sent again");
        }
    }

    /// Nothing is sent for a while. It is said once.
    fn went_away(&mut self, why: &str) {
        self.counts.failures.fetch_add(1, Ordering::Relaxed);
        let pause = match &self.backoff {
            None => {
                tracing::warn!(
                    reason = why,
                    "the receiver of OTLP does not take what is sent; it is tried again"
                );
                BACKOFF.0
            }
            Some(backoff) => (backoff.pause * 2).min(BACKOFF.1),
        };
        self.backoff = Some(Backoff { pause, until_ns: monotonic_ns() + signed(pause) });
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
