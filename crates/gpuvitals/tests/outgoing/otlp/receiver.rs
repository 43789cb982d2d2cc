//! A common receiver of OTLP: HTTP and gRPC on a free port.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use gpuvitals_rig::authority::Pair;
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_server::{
    MetricsService, MetricsServiceServer,
};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::metrics::v1::{Metric, metric, number_data_point};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use tonic::service::Routes;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Identity, ServerTlsConfig};
use tonic::{Request, Response, Status};

const PATIENCE: Duration = Duration::from_secs(30);

/// The received data.
#[derive(Debug, Default, Clone)]
pub(crate) struct Received {
    pub(crate) spans: Vec<Span>,
    /// The newest of each name.
    pub(crate) metrics: BTreeMap<String, Metric>,
    /// Times of the number of topics, nanoseconds since 1970, in the order of their coming.
    pub(crate) times: Vec<u64>,
    pub(crate) resource: Option<Resource>,
    /// `authorization` of every request.
    pub(crate) authorizations: Vec<String>,
    /// Paths of requests by HTTP and when they came, those that were refused among them.
    pub(crate) requests: Vec<(&'static str, Instant)>,
}

#[derive(Debug, Default)]
struct Shared {
    received: Mutex<Received>,
    refusals: Mutex<Vec<Refusal>>,
    came: Condvar,
}

#[derive(Debug, Clone)]
struct Refusal {
    path: &'static str,
    status: StatusCode,
    retry_after: Option<u32>,
}

/// The receiver; it ends with the test.
pub(crate) struct Receiver {
    shared: Arc<Shared>,
    /// `http://127.0.0.1:1234`, for both ways.
    pub(crate) url: String,
    _runtime: tokio::runtime::Runtime,
}

impl Receiver {
    pub(crate) fn start() -> Self {
        Self::start_with(None)
    }

    /// One that shows a certificate and speaks nothing in the clear.
    pub(crate) fn behind_tls(pair: &Pair) -> Self {
        let read = |path| std::fs::read(path).unwrap();
        let identity = Identity::from_pem(read(&pair.cert), read(&pair.key));
        Self::start_with(Some(ServerTlsConfig::new().identity(identity)))
    }

    fn start_with(tls: Option<ServerTlsConfig>) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let shared = Arc::new(Shared::default());
        let app = axum::Router::new()
            .route("/v1/traces", post(traces_by_http))
            .route("/v1/metrics", post(metrics_by_http))
            .with_state(Arc::clone(&shared));
        let routes = Routes::from(app)
            .add_service(TraceServiceServer::new(ByGrpc(Arc::clone(&shared))))
            .add_service(MetricsServiceServer::new(ByGrpc(Arc::clone(&shared))));
        let url = runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let scheme = if tls.is_some() { "https" } else { "http" };
            let url = format!("{scheme}://{}", listener.local_addr().unwrap());
            let mut server = tonic::transport::Server::builder().accept_http1(true);
            if let Some(tls) = tls {
                server = server.tls_config(tls).unwrap();
            }
            tokio::spawn(server.add_routes(routes).serve_with_incoming(TcpIncoming::from(listener)));
            url
        });
        Self { shared, url, _runtime: runtime }
    }

    /// Answers the next requests of a path by HTTP with a status, this many times.
    pub(crate) fn refuse(&self, path: &'static str, status: u16, retry_after: Option<u32>, times: usize) {
        let refusal = Refusal { path, status: StatusCode::from_u16(status).unwrap(), retry_after };
        self.shared.refusals.lock().unwrap().extend(std::iter::repeat_n(refusal, times));
    }

    /// The received data, once it satisfies the condition.
    pub(crate) fn until(&self, what: &str, is_so: impl Fn(&Received) -> bool) -> Received {
        let received = self.shared.received.lock().unwrap();
        let waited =
            self.shared.came.wait_timeout_while(received, PATIENCE, |received| !is_so(received)).unwrap();
        let names: Vec<_> = waited.0.metrics.keys().collect();
        assert!(
            !waited.1.timed_out(),
            "{what} never came; there are {:?} and {names:?}",
            span_names(&waited.0)
        );
        waited.0.clone()
    }
}

pub(crate) fn span_names(received: &Received) -> Vec<&str> {
    received.spans.iter().map(|span| span.name.as_str()).collect()
}

impl Shared {
    fn authorized(&self, header: Option<&str>) {
        self.received.lock().unwrap().authorizations.push(header.unwrap_or_default().to_owned());
    }

    fn traces(&self, request: ExportTraceServiceRequest) {
        let mut received = self.received.lock().unwrap();
        for of_resource in request.resource_spans {
            received.resource = of_resource.resource;
            received.spans.extend(of_resource.scope_spans.into_iter().flat_map(|scope| scope.spans));
        }
        self.came.notify_all();
    }

    fn metrics(&self, request: ExportMetricsServiceRequest) {
        let mut received = self.received.lock().unwrap();
        for of_resource in request.resource_metrics {
            received.resource = of_resource.resource;
            let metrics = of_resource.scope_metrics.into_iter().flat_map(|scope| scope.metrics);
            let metrics: Vec<Metric> = metrics.collect();
            let topics = metrics.iter().find(|metric| metric.name == "gpuvitals_queue_topics");
            if let Some(metric::Data::Gauge(gauge)) = topics.and_then(|topics| topics.data.as_ref()) {
                received.times.extend(gauge.data_points.iter().map(|point| point.time_unix_nano));
            }
            let metrics = metrics.into_iter();
            received.metrics.extend(metrics.map(|metric| (metric.name.clone(), metric)));
        }
        self.came.notify_all();
    }
}

type HttpAnswer = Result<Vec<u8>, (StatusCode, HeaderMap)>;

/// Records a request, and reads it unless it must be refused.
fn by_http<M: Message + Default>(
    shared: &Shared,
    path: &'static str,
    headers: &HeaderMap,
    body: Bytes,
) -> Result<M, (StatusCode, HeaderMap)> {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap());
    shared.authorized(text("authorization"));
    shared.received.lock().unwrap().requests.push((path, Instant::now()));
    shared.came.notify_all();
    let mut refusals = shared.refusals.lock().unwrap();
    if let Some(at) = refusals.iter().position(|refusal| refusal.path == path) {
        let refusal = refusals.remove(at);
        let after = refusal.retry_after.map(|after| ("retry-after".parse().unwrap(), after.into()));
        return Err((refusal.status, after.into_iter().collect()));
    }
    if text("content-type") != Some("application/x-protobuf") {
        return Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, HeaderMap::new()));
    }
    M::decode(body).map_err(|_| (StatusCode::BAD_REQUEST, HeaderMap::new()))
}

async fn traces_by_http(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Bytes) -> HttpAnswer {
    shared.traces(by_http(&shared, "/v1/traces", &headers, body)?);
    Ok(ExportTraceServiceResponse::default().encode_to_vec())
}

async fn metrics_by_http(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Bytes) -> HttpAnswer {
    shared.metrics(by_http(&shared, "/v1/metrics", &headers, body)?);
    Ok(ExportMetricsServiceResponse::default().encode_to_vec())
}

struct ByGrpc(Arc<Shared>);

#[tonic::async_trait]
impl TraceService for ByGrpc {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.0.authorized(request.metadata().get("authorization").map(|value| value.to_str().unwrap()));
        self.0.traces(request.into_inner());
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

#[tonic::async_trait]
impl MetricsService for ByGrpc {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        self.0.authorized(request.metadata().get("authorization").map(|value| value.to_str().unwrap()));
        self.0.metrics(request.into_inner());
        Ok(Response::new(ExportMetricsServiceResponse::default()))
    }
}

/// The value of an attribute that is text.
pub(crate) fn attribute<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a str> {
    let found = attributes.iter().find(|one| one.key == key)?;
    match found.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text),
        _ => None,
    }
}

/// Attributes and values of the points of a gauge or sum.
pub(crate) fn points(metric: &Metric) -> Vec<(&[KeyValue], f64)> {
    let points = match metric.data.as_ref().unwrap() {
        metric::Data::Gauge(gauge) => &gauge.data_points,
        metric::Data::Sum(sum) => &sum.data_points,
        other => panic!("{other:?}"),
    };
    let value = |value: &Option<number_data_point::Value>| match value {
        Some(number_data_point::Value::AsDouble(value)) => *value,
        other => panic!("{other:?}"),
    };
    points.iter().map(|point| (point.attributes.as_slice(), value(&point.value))).collect()
}
