//! A receiver of OTLP: the families as requests, which are sent as they were written.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gpuvitals_core::clock;
use gpuvitals_core::figures::Family;
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsPartialSuccess, ExportMetricsServiceRequest,
};
use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::metrics::v1::{ResourceMetrics, ScopeMetrics};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message as _;

use super::convert::{Times, metrics};
use super::counts::{OtlpCounts, tell};
use super::resource::SCOPE;
use super::transport::Transport;
use crate::counts::ReceiverCounts;
use crate::families::FamilyParts;
use crate::receiver::{Packed, Receiver, SAMPLES_MAX};
use crate::verdict::{Standing, Verdict};

/// Looks at the figures after which a series that is no longer among them is forgotten.
const ROUNDS_KEPT: u32 = 10;

/// The receiver that the settings name.
#[derive(Debug)]
pub(super) struct OtlpReceiver {
    transport: Transport,
    timeout: Duration,
    counts: Arc<OtlpCounts>,
    resource: Resource,
    /// Since when the program's own counters count, nanoseconds since 1970.
    started_ns: u64,
    sent: Mutex<SentSamples>,
}

impl OtlpReceiver {
    /// Of a program that counts from now on. An answer is waited for for `timeout`.
    pub(super) fn new(
        transport: Transport,
        timeout: Duration,
        counts: Arc<OtlpCounts>,
        resource: Resource,
    ) -> Self {
        Self { transport, timeout, counts, resource, started_ns: now_ns(), sent: Mutex::default() }
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

impl Receiver for OtlpReceiver {
    const PROTOCOL: &str = "OTLP";
    const SAMPLES: &str = "data points";
    type Form = ();

    fn counts(&self) -> &ReceiverCounts {
        &self.counts.points
    }

    fn pack(&self, families: FamilyParts, emit: &mut dyn FnMut(Packed<()>)) {
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        let times = Times { start_ns: self.started_ns, now_ns: now_ns() };
        sent.round = sent.round.wrapping_add(1);
        for part in families.flat_map(|families| parts(sent.new_in(families))) {
            let samples = part.iter().map(|family| family.samples.len()).sum::<usize>();
            if samples > 0 {
                let body = self.request(&part, times).encode_to_vec().into();
                let samples = samples.try_into().unwrap_or(u64::MAX);
                emit(Packed { body, form: (), samples, newest_ms: clock::now_ns() / 1_000_000 });
            }
        }
        sent.forget();
    }

    async fn send(&self, request: &Packed<()>) -> Verdict {
        self.counts.points.goes_out(request.body.len());
        match self.transport.metrics(request.body.clone(), self.timeout).await {
            Ok(answer) => {
                let left_out = left_out(answer.partial_success.unwrap_or_default());
                Verdict::Taken { left_out: left_out.min(request.samples) }
            }
            Err(error) => error.verdict(request.samples),
        }
    }

    fn tell(&self, before: Standing, verdict: &Verdict) {
        tell("metrics", before, verdict);
    }
}

/// The data points that a receiver refused out of metrics it took. It may do so with every request, so the log has it at
/// `debug`.
fn left_out(answer: ExportMetricsPartialSuccess) -> u64 {
    let ExportMetricsPartialSuccess { rejected_data_points, error_message } = answer;
    let refused = u64::try_from(rejected_data_points).unwrap_or(0);
    if refused > 0 || !error_message.is_empty() {
        tracing::debug!(refused, reason = error_message, "the receiver of OTLP refused data points");
    }
    refused
}

/// The samples with a time of their own that were sent: a value that was not measured anew is no new point.
#[derive(Debug, Default)]
struct SentSamples {
    /// By a hash of name and labels.
    series: HashMap<u64, Sent>,
    hasher: RandomState,
    /// Looks so far.
    round: u32,
}

#[derive(Debug)]
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
