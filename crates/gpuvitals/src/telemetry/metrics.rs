//! Metrics: the families of a service, sent every interval.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use gpuvitals_core::{causes, clock};
use gpuvitals_listener::Figures;
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsPartialSuccess, ExportMetricsServiceRequest,
};
use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::metrics::v1::{ResourceMetrics, ScopeMetrics};
use opentelemetry_proto::tonic::resource::v1::Resource;
use tokio_util::sync::CancellationToken;

use super::SCOPE;
use super::convert::{Times, metrics};
use super::counts::{Counts, Signal};
use super::transport::Transport;

/// The data to send, and its destination.
pub(super) struct Exporter {
    pub(super) transport: Transport,
    pub(super) resource: Resource,
    pub(super) figures: Arc<RwLock<Option<Figures>>>,
    pub(super) counts: Arc<Counts>,
    pub(super) interval: Duration,
    pub(super) timeout: Duration,
}

impl Exporter {
    /// Sends every interval until `stop`, and then once more. Sums are cumulative, so what a receiver has not taken is in the
    /// next request.
    pub(super) async fn run(self, stop: CancellationToken) {
        let signal = Signal::new("metrics");
        let started_ns = now_ns();
        while stop.run_until_cancelled(tokio::time::sleep(self.interval)).await.is_some() {
            self.send(started_ns, &signal).await;
        }
        self.send(started_ns, &signal).await;
    }

    async fn send(&self, started_ns: u64, signal: &Signal) {
        let figures = self.figures.read().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(figures) = figures else { return };
        let times = Times { start_ns: started_ns, now_ns: now_ns() };
        let scope_metrics = vec![ScopeMetrics {
            scope: Some(scope()),
            metrics: metrics(&figures.read(), times),
            ..ScopeMetrics::default()
        }];
        let resource_metrics = vec![ResourceMetrics {
            resource: Some(self.resource.clone()),
            scope_metrics,
            ..ResourceMetrics::default()
        }];
        let request = ExportMetricsServiceRequest { resource_metrics };
        match self.transport.metrics(request, self.timeout).await {
            Ok(answer) => {
                signal.taken();
                self.counts.metrics_sent.fetch_add(1, Ordering::Relaxed);
                self.refused(answer.partial_success.unwrap_or_default());
            }
            Err(error) => {
                self.counts.failures.fetch_add(1, Ordering::Relaxed);
                signal.not_taken(&causes(&error));
            }
        }
    }

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
