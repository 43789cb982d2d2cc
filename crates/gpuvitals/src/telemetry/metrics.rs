//! Metrics: the families of a service, sent every interval through an [`Outbox`].

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use gpuvitals_core::figures::Family;
use gpuvitals_core::{causes, clock};
use gpuvitals_queue::link::{Outbox, OutboxReceiver, SendLater};
use gpuvitals_queue::{ContentType, Frame};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsPartialSuccess, ExportMetricsServiceRequest,
};
use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::metrics::v1::{ResourceMetrics, ScopeMetrics};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message as _;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;

use super::convert::{Times, metrics};
use super::counts::{Counts, Signal};
use super::shown::{SCOPE, Shown};
use super::transport::{Transport, Verdict};

/// Most samples of a request: some 1.5 MB, below the 4 MiB that receivers of gRPC take unless told otherwise.
const SAMPLES_MAX: usize = 5_000;

/// Looks at the figures after which a series that is no longer among them is forgotten.
const ROUNDS_KEPT: u32 = 10;

/// The data to send, and its destination.
pub(super) struct Exporter {
    pub(super) receiver: Receiver,
    pub(super) outbox: Arc<Outbox>,
    pub(super) resource: Resource,
    pub(super) figures: Shown,
    pub(super) interval: Duration,
}

/// The receiver, as the outbox sees it.
pub(super) struct Receiver {
    pub(super) transport: Transport,
    pub(super) timeout: Duration,
    pub(super) counts: Arc<Counts>,
    pub(super) signal: Signal,
}

impl Exporter {
    /// Queues the values every interval until `stop`, and then once more, and sends what waits.
    pub(super) async fn run(self, stop: CancellationToken) {
        let started_ns = now_ns();
        let mut ticks = interval_at(Instant::now() + self.interval, self.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let looking = async {
            let mut sent = SentSamples::default();
            while stop.run_until_cancelled(ticks.tick()).await.is_some() {
                self.look(started_ns, &mut sent).await;
            }
            self.look(started_ns, &mut sent).await;
            self.outbox.emptied().await;
        };
        let failed = |reason: &str| {
            self.receiver.counts.failures.fetch_add(1, Ordering::Relaxed);
            self.receiver.signal.not_taken(reason);
        };
        let never = CancellationToken::new();
        tokio::select! {
            () = looking => {}
            ended = self.outbox.send(&self.receiver, &never, failed) => {
                if let Err(error) = ended {
                    tracing::error!(error = causes(&error), "the exporter of metrics by OTLP has stopped");
                }
            }
        }
    }

    async fn look(&self, started_ns: u64, sent: &mut SentSamples) {
        let figures = self.figures.read().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(figures) = figures else { return };
        let times = Times { start_ns: started_ns, now_ns: now_ns() };
        sent.round = sent.round.wrapping_add(1);
        for part in figures().flat_map(|families| parts(sent.new_in(families))) {
            let points = part.iter().map(|family| family.samples.len()).sum::<usize>();
            let points = u32::try_from(points).unwrap_or(u32::MAX);
            // The content type is a placeholder: nothing decodes this payload.
            let frame = Frame::new(ContentType::Batch, points, self.request(&part, times).encode_to_vec());
            if let Err(error) = self.outbox.push(frame).await {
                self.receiver.counts.points_no_room.fetch_add(points.into(), Ordering::Relaxed);
                tracing::debug!(
                    points,
                    error = causes(&error),
                    "metrics found no place in the queue of OTLP"
                );
            }
        }
        sent.forget();
    }

    fn request(&self, families: &[Family], times: Times) -> ExportMetricsServiceRequest {
        let scope_metrics = vec![ScopeMetrics {
            scope: Some(scope()),
            metrics: metrics(families, times),
            ..ScopeMetrics::default()
        }];
        let resource_metrics = vec![ResourceMetrics {
            resource: Some(self.resource.clone()),
            scope_metrics,
            ..ResourceMetrics::default()
        }];
        ExportMetricsServiceRequest { resource_metrics }
    }
}

/// The samples with a time of their own that were sent: a value that was not measured anew is no new point.
#[derive(Default)]
struct SentSamples {
    /// By a hash of name and labels.
    series: HashMap<u64, Sent>,
    hasher: RandomState,
    /// Looks so far.
    round: u32,
}

struct Sent {
    /// When its value was measured.
    at_ns: i64,
    /// The look that had it last.
    round: u32,
}

impl SentSamples {
    /// The families with those samples that have not been sent.
    fn new_in(&mut self, mut families: Vec<Family>) -> Vec<Family> {
        for Family { name, samples, .. } in &mut families {
            samples.retain(|sample| {
                let Some(at_ns) = sample.at_ns else { return true };
                let series = self.hasher.hash_one((name.as_ref(), &sample.labels));
                let before = self.series.insert(series, Sent { at_ns, round: self.round });
                before.is_none_or(|before| before.at_ns != at_ns)
            });
        }
        families
    }

    /// Forgets the series that are gone.
    fn forget(&mut self) {
        let round = self.round;
        self.series.retain(|_, sent| round.wrapping_sub(sent.round) < ROUNDS_KEPT);
    }
}

impl Receiver {
    /// Counts the data points that a receiver refused out of metrics it took. It may do so with every
    /// request, so the log has it at `debug`.
    fn refused(
        &self,
        ExportMetricsPartialSuccess { rejected_data_points, error_message }: ExportMetricsPartialSuccess,
    ) {
        let refused = u64::try_from(rejected_data_points).unwrap_or(0);
        self.counts.points_refused.fetch_add(refused, Ordering::Relaxed);
        if refused > 0 || !error_message.is_empty() {
            tracing::debug!(refused, reason = error_message, "the receiver of OTLP refused data points");
        }
    }
}

impl OutboxReceiver for Receiver {
    async fn send(&self, frame: Frame) -> Result<(), SendLater> {
        let points = u64::from(frame.count);
        match self.transport.metrics(frame.payload, self.timeout).await {
            Ok(answer) => {
                self.refused(answer.partial_success.unwrap_or_default());
                self.counts.points_sent.fetch_add(points, Ordering::Relaxed);
                self.signal.taken();
            }
            Err(error) => {
                let reason = causes(&error);
                if let Verdict::Later(retry_after) = error.verdict() {
                    return Err(SendLater { reason: reason.into(), retry_after });
                }
                self.counts.failures.fetch_add(1, Ordering::Relaxed);
                self.counts.points_not_taken.fetch_add(points, Ordering::Relaxed);
                self.signal.not_taken(&reason);
            }
        }
        Ok(())
    }
}

/// The families in parts of [`SAMPLES_MAX`] samples at most. A collector of a large fleet has more.
fn parts(families: Vec<Family>) -> Vec<Vec<Family>> {
    let (mut parts, mut part, mut room) = (Vec::new(), Vec::new(), SAMPLES_MAX);
    for mut family in families {
        while family.samples.len() > room {
            let rest = family.samples.split_off(room);
            let samples = std::mem::replace(&mut family.samples, rest);
            part.push(Family { samples, ..family.clone() });
            parts.push(std::mem::take(&mut part));
            room = SAMPLES_MAX;
        }
        room -= family.samples.len();
        part.push(family);
    }
    parts.push(part);
    parts
}

fn scope() -> InstrumentationScope {
    InstrumentationScope {
        name: SCOPE.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    }
}

fn now_ns() -> u64 {
    u64::try_from(clock::now_ns()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use gpuvitals_core::figures::Kind;

    use super::*;

    #[test]
    fn many_samples_are_several_requests_and_none_is_lost() {
        let family = |name: &'static str, samples: usize| {
            let values = (0..samples).map(|at| (at.to_string(), at));
            Family::new(name, Kind::Gauge, "").by("at", values)
        };
        let sizes = |families: Vec<Family>| -> Vec<Vec<(String, usize)>> {
            let of = |family: &Family| (family.name.to_string(), family.samples.len());
            parts(families).iter().map(|part| part.iter().map(of).collect()).collect()
        };
        assert_eq!(sizes(vec![family("a", 3), family("b", 0)]), [[("a".into(), 3), ("b".into(), 0)]]);
        assert_eq!(
            sizes(vec![family("a", SAMPLES_MAX - 1), family("b", SAMPLES_MAX + 3)]),
            [
                vec![("a".into(), SAMPLES_MAX - 1), ("b".into(), 1)],
                vec![("b".into(), SAMPLES_MAX)],
                vec![("b".into(), 2)]
            ]
        );
    }

    #[test]
    fn a_value_that_was_not_measured_anew_is_sent_once() {
        let family = |name: &'static str, times: [Option<i64>; 2]| {
            let mut family = Family::new(name, Kind::Gauge, "").by("gpu", [("a", 1_u64), ("b", 2)]);
            for (sample, at_ns) in family.samples.iter_mut().zip(times) {
                sample.at_ns = at_ns;
            }
            family
        };
        let mut sent = SentSamples::default();
        let mut look = |times| -> usize {
            sent.round += 1;
            let found = sent.new_in(vec![family("watts", times), family("own", [None, None])]);
            sent.forget();
            found.iter().map(|family| family.samples.len()).sum::<usize>() - 2
        };
        assert_eq!(look([Some(1), Some(1)]), 2);
        assert_eq!(look([Some(1), Some(2)]), 1);
        assert_eq!(look([Some(1), Some(2)]), 0);
        assert_eq!(look([Some(3), Some(1)]), 2, "also after the clock was set back");
        assert!(sent.series.len() == 2);
        for _ in 0..ROUNDS_KEPT {
            sent.round += 1;
            sent.forget();
        }
        assert!(sent.series.is_empty());
    }
}
