//! A receiver of remote write 1.0 and 2.0, made from the definitions that Prometheus publishes.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use gpuvitals_rig::authority::Pair;
use prost_reflect::{DescriptorPool, DynamicMessage, Value};
use tonic::service::Routes;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Certificate, Identity, ServerTlsConfig};

const PATIENCE: Duration = Duration::from_mins(1);
/// Longest time that a stopped server has for its connections.
const LAST_PATIENCE: Duration = Duration::from_secs(1);
const TYPE_1: &str = "application/x-protobuf";
const TYPE_2: &str = "application/x-protobuf;proto=io.prometheus.write.v2.Request";

pub(crate) type Labels = BTreeMap<String, String>;

/// A sample as it came.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    pub(crate) labels: Labels,
    pub(crate) value: f64,
    pub(crate) at_ms: i64,
    /// Since when it counts; 0 in 1.0.
    pub(crate) start_ms: i64,
    /// Type, help and unit, in 2.0.
    pub(crate) about: Option<(i32, String, String)>,
}

impl Sample {
    pub(crate) fn name(&self) -> &str {
        &self.labels["__name__"]
    }
}

/// A request and its answer.
#[derive(Debug, Clone)]
pub(crate) struct Got {
    pub(crate) version: u8,
    pub(crate) at: Instant,
    pub(crate) authorization: Option<String>,
    pub(crate) tenant: Option<String>,
    pub(crate) status: u16,
    pub(crate) samples: Vec<Sample>,
    /// Types of the families that a request of 1.0 describes.
    pub(crate) families: BTreeMap<String, i32>,
}

/// What a receiver knows of 2.0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Knows {
    Both,
    /// It refuses the type of 2.0.
    One,
    /// It looks at no type, and takes everything for 1.0.
    OneBlindly,
}

struct Shared {
    pool: DescriptorPool,
    knows: Knows,
    got: Mutex<Vec<Got>>,
    refusals: Mutex<Vec<(u16, Option<u32>)>>,
    came: Condvar,
}

pub(crate) struct Receiver {
    shared: Arc<Shared>,
    /// `http://127.0.0.1:1234/api/v1/write`
    pub(crate) url: String,
    runtime: Option<tokio::runtime::Runtime>,
}

impl Receiver {
    pub(crate) fn start() -> Self {
        Self::that(Knows::Both, "0")
    }

    /// On a port.
    pub(crate) fn that(knows: Knows, port: &str) -> Self {
        Self::serve(knows, port, None)
    }

    /// One that shows a certificate, and asks clients for one of this authority.
    pub(crate) fn behind_tls(pair: &Pair, clients: &Path) -> Self {
        let read = |path: &Path| std::fs::read(path).unwrap();
        let identity = Identity::from_pem(read(&pair.cert), read(&pair.key));
        let tls = ServerTlsConfig::new().identity(identity);
        Self::serve(Knows::Both, "0", Some(tls.client_ca_root(Certificate::from_pem(read(clients)))))
    }

    fn serve(knows: Knows, port: &str, tls: Option<ServerTlsConfig>) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (got, refusals, came) = Default::default();
        let shared = Arc::new(Shared { pool: definitions(), knows, got, refusals, came });
        let app = axum::Router::new().route("/api/v1/write", post(write)).with_state(Arc::clone(&shared));
        let url = runtime.block_on(async {
            let socket = tokio::net::TcpSocket::new_v4().unwrap();
            socket.set_reuseaddr(true).unwrap();
            socket.bind(format!("127.0.0.1:{port}").parse().unwrap()).unwrap();
            let listener = socket.listen(16).unwrap();
            let scheme = if tls.is_some() { "https" } else { "http" };
            let url = format!("{scheme}://{}/api/v1/write", listener.local_addr().unwrap());
            let mut server = tonic::transport::Server::builder().accept_http1(true);
            if let Some(tls) = tls {
                server = server.tls_config(tls).unwrap();
            }
            let serving =
                server.add_routes(Routes::from(app)).serve_with_incoming(TcpIncoming::from(listener));
            tokio::spawn(serving);
            url
        });
        Self { shared, url, runtime: Some(runtime) }
    }

    /// Answers the next requests with a status.
    pub(crate) fn refuse(&self, status: u16, retry_after: Option<u32>, times: usize) {
        self.shared.refusals.lock().unwrap().extend(std::iter::repeat_n((status, retry_after), times));
    }

    /// The requests, once they satisfy the condition.
    pub(crate) fn until(&self, what: &str, is_so: impl Fn(&[Got]) -> bool) -> Vec<Got> {
        let got = self.shared.got.lock().unwrap();
        let waited = self.shared.came.wait_timeout_while(got, PATIENCE, |got| !is_so(got)).unwrap();
        let seen: Vec<_> = waited.0.iter().map(|it| (it.version, it.status, it.samples.len())).collect();
        assert!(!waited.1.timed_out(), "{what} never came; there are {seen:?}");
        waited.0.clone()
    }

    /// The requests so far.
    pub(crate) fn got(&self) -> Vec<Got> {
        self.shared.got.lock().unwrap().clone()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.runtime.take().into_iter().for_each(|runtime| runtime.shutdown_timeout(LAST_PATIENCE));
    }
}

fn definitions() -> DescriptorPool {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/prometheus/remote-write");
    let files = ["remote.proto", "io/prometheus/write/v2/types.proto"];
    DescriptorPool::from_file_descriptor_set(protox::compile(files, [root]).unwrap()).unwrap()
}

async fn write(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, HeaderMap, String) {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap().to_owned());
    assert_eq!(text("content-encoding").as_deref(), Some("snappy"));
    assert!(text("user-agent").unwrap().starts_with("gpuvitals/"));
    let kind = (text("content-type").unwrap(), text("x-prometheus-remote-write-version").unwrap());
    let version = match (kind.0.as_str(), kind.1.as_str()) {
        (TYPE_1, "0.1.0") => 1,
        (TYPE_2, "2.0.0") => 2,
        other => panic!("{other:?}"),
    };
    let body = snap::raw::Decoder::new().decompress_vec(&body).unwrap();
    let refusal = {
        let mut refusals = shared.refusals.lock().unwrap();
        if refusals.is_empty() { None } else { Some(refusals.remove(0)) }
    };
    let is_2 = version == 2;
    let (status, retry_after) = match refusal {
        Some(refusal) => refusal,
        None if is_2 && shared.knows == Knows::One => (415, None),
        None => (204, None),
    };
    let (samples, families) = if is_2 {
        (samples_of_2(&decoded(&shared.pool, "io.prometheus.write.v2.Request", &body)), BTreeMap::new())
    } else {
        let request = decoded(&shared.pool, "prometheus.WriteRequest", &body);
        (samples_of_1(&request), families_of(&request))
    };
    let mut answer = HeaderMap::new();
    if let Some(seconds) = retry_after {
        answer.insert("retry-after", seconds.into());
    }
    if is_2 && shared.knows == Knows::Both {
        let written = if status == 204 { samples.len() } else { 0 };
        answer.insert("x-prometheus-remote-write-samples-written", written.into());
    }
    shared.got.lock().unwrap().push(Got {
        version,
        at: Instant::now(),
        authorization: text("authorization"),
        tenant: text("x-scope-orgid"),
        status,
        samples,
        families,
    });
    shared.came.notify_all();
    let text = if status == 204 { String::new() } else { "because of a test\nand more".to_owned() };
    (StatusCode::from_u16(status).unwrap(), answer, text)
}

fn decoded(pool: &DescriptorPool, name: &str, body: &[u8]) -> DynamicMessage {
    let message = DynamicMessage::decode(pool.get_message_by_name(name).unwrap(), body).unwrap();
    assert_eq!(message.unknown_fields().count(), 0, "{name}");
    message
}

fn field(message: &DynamicMessage, name: &str) -> Value {
    message.get_field_by_name(name).unwrap_or_else(|| panic!("{name}")).into_owned()
}

fn messages(message: &DynamicMessage, name: &str) -> Vec<DynamicMessage> {
    let list = field(message, name);
    list.as_list().unwrap().iter().map(|one| one.as_message().unwrap().clone()).collect()
}

fn texts(message: &DynamicMessage, name: &str) -> String {
    field(message, name).as_str().unwrap().to_owned()
}

fn whole(message: &DynamicMessage, name: &str) -> i64 {
    field(message, name).as_i64().unwrap()
}

fn only(mut messages: Vec<DynamicMessage>) -> DynamicMessage {
    assert_eq!(messages.len(), 1);
    messages.remove(0)
}

/// By name, each once, none without a value, as the protocol wants it.
fn labels(pairs: Vec<(String, String)>) -> Labels {
    assert!(pairs.is_sorted_by(|(one, _), (next, _)| one < next), "{pairs:?}");
    assert!(pairs.iter().all(|(_, value)| !value.is_empty()), "{pairs:?}");
    pairs.into_iter().collect()
}

fn samples_of_1(request: &DynamicMessage) -> Vec<Sample> {
    let sample = |series: DynamicMessage| {
        let pairs = messages(&series, "labels");
        let pairs = pairs.iter().map(|label| (texts(label, "name"), texts(label, "value"))).collect();
        let sample = only(messages(&series, "samples"));
        Sample {
            labels: labels(pairs),
            value: field(&sample, "value").as_f64().unwrap(),
            at_ms: whole(&sample, "timestamp"),
            start_ms: 0,
            about: None,
        }
    };
    messages(request, "timeseries").into_iter().map(sample).collect()
}

fn families_of(request: &DynamicMessage) -> BTreeMap<String, i32> {
    let described = messages(request, "metadata");
    let kind = |about: &DynamicMessage| field(about, "type").as_enum_number().unwrap();
    described.iter().map(|about| (texts(about, "metric_family_name"), kind(about))).collect()
}

fn samples_of_2(request: &DynamicMessage) -> Vec<Sample> {
    let symbols = field(request, "symbols");
    let symbols: Vec<_> = symbols.as_list().unwrap().iter().map(|text| text.as_str().unwrap()).collect();
    assert_eq!(symbols[0], "");
    let symbol = |place: &Value| symbols[place.as_u32().unwrap() as usize].to_owned();
    let sample = |series: DynamicMessage| {
        let places = field(&series, "labels_refs");
        let (pairs, rest) = places.as_list().unwrap().as_chunks::<2>();
        assert!(rest.is_empty());
        let pairs = pairs.iter().map(|[name, value]| (symbol(name), symbol(value))).collect();
        let sample = only(messages(&series, "samples"));
        let about = series.has_field_by_name("metadata").then(|| {
            let about = field(&series, "metadata");
            let about = about.as_message().unwrap();
            let kind = field(about, "type").as_enum_number().unwrap();
            (kind, symbol(&field(about, "help_ref")), symbol(&field(about, "unit_ref")))
        });
        Sample {
            labels: labels(pairs),
            value: field(&sample, "value").as_f64().unwrap(),
            at_ms: whole(&sample, "timestamp"),
            start_ms: whole(&sample, "start_timestamp"),
            about,
        }
    };
    messages(request, "timeseries").into_iter().map(sample).collect()
}
