//! A small Kubernetes API server: nodes, pods and exec as their protocol is, with the failures that a cluster has.
//!
//! It knows `/version`, lists of nodes and pods (selectors, pages, 410), and `pods/exec` over WebSocket (v5, v4). It
//! checks a bearer token and the right to each verb. What it knows of the protocol comes from the Kubernetes sources and
//! from other clients that work with it; it is no Kubernetes.
#![expect(clippy::unwrap_used, reason = "a test's server fails by panicking")]

mod answers;
mod exec;
mod objects;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// A node and its driver pod.
#[derive(Debug, Clone)]
pub(crate) struct NodeSpec {
    pub(crate) name: String,
    pub(crate) gpus: usize,
    /// Resource in the capacity; none: only labels tell.
    pub(crate) resource: Option<&'static str>,
    pub(crate) labels: BTreeMap<String, String>,
    /// Label of its driver pod; none: no pod.
    pub(crate) pod_label: Option<(&'static str, &'static str)>,
    pub(crate) is_ready: bool,
    pub(crate) behaviour: Behaviour,
}

/// What happens to an exec in a node's pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Behaviour {
    Normal,
    /// A GPU is lost: a sentence between the rows, and an exit code.
    Lost,
    /// Nothing is ever said.
    Hang,
    /// A byte at a time, for longer than anybody waits.
    Drip,
    /// The output and no status.
    NoStatus,
    /// Half the output, then the connection breaks.
    Cut,
    /// The runtime has no such program.
    NoTool,
    /// The runtime fails.
    Internal,
    /// Megabytes.
    Flood,
    /// The pod has just gone.
    Gone,
    /// nvidia-smi itself fails.
    NoDriver,
    /// It reads the GPUs and may not list processes.
    NoProcesses,
}

/// What the server answers with; tests change it at any time.
#[derive(Debug, Clone)]
pub(crate) struct World {
    pub(crate) nodes: Vec<NodeSpec>,
    /// The token it accepts; none: everybody.
    pub(crate) token: Option<String>,
    /// Verbs that are refused: `list`, and `get` and `create` of `pods/exec`.
    pub(crate) forbidden: BTreeSet<&'static str>,
    /// Pages that expire before they are answered.
    pub(crate) expiring: usize,
    /// Requests that are refused for its load, and the seconds to wait.
    pub(crate) busy: (usize, u64),
    /// Versions of the exec protocol it speaks.
    pub(crate) protocols: Vec<&'static str>,
    /// Lists are never answered.
    pub(crate) hangs: bool,
    /// Stands before each answer.
    pub(crate) latency: Duration,
}

/// A request as the server saw it, without its token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) status: u16,
}

/// The running server. Dropped, it is gone.
#[derive(Debug)]
pub(crate) struct Double {
    pub(crate) url: String,
    /// Its CA in PEM, if it serves TLS.
    pub(crate) ca: Option<String>,
    shared: Arc<Shared>,
    _accepting: JoinSet<()>,
}

#[derive(Debug)]
struct Shared {
    world: Mutex<World>,
    seen: watch::Sender<Vec<Seen>>,
    /// Execs that run now, by pod, and the most at once.
    running: Mutex<(BTreeMap<String, usize>, usize, usize)>,
}

impl NodeSpec {
    /// An NVIDIA node with a driver pod that works.
    pub(crate) fn new(name: &str, gpus: usize) -> Self {
        Self {
            name: name.to_owned(),
            gpus,
            resource: Some("nvidia.com/gpu"),
            labels: BTreeMap::from([("nvidia.com/gpu.present".to_owned(), "true".to_owned())]),
            pod_label: Some(("app", "nvidia-driver-daemonset")),
            is_ready: true,
            behaviour: Behaviour::Normal,
        }
    }

    pub(crate) fn with(mut self, behaviour: Behaviour) -> Self {
        self.behaviour = behaviour;
        self
    }

    fn pod(&self) -> String {
        format!("driver-{}", self.name)
    }
}

impl World {
    pub(crate) fn new(nodes: Vec<NodeSpec>) -> Self {
        Self {
            nodes,
            token: None,
            forbidden: BTreeSet::new(),
            expiring: 0,
            busy: (0, 0),
            protocols: vec!["v5.channel.k8s.io", "v4.channel.k8s.io"],
            hangs: false,
            latency: Duration::ZERO,
        }
    }
}

impl Double {
    /// Serves on a port of this machine, with TLS by a CA of its own if asked for.
    pub(crate) async fn start(world: World, is_tls: bool) -> Self {
        Self::start_at(world, is_tls, 0).await
    }

    pub(crate) async fn start_at(world: World, is_tls: bool, port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            world: Mutex::new(world),
            seen: watch::Sender::new(Vec::new()),
            running: Mutex::default(),
        });
        let (tls, ca) = if is_tls {
            papers().map_or((None, None), |(tls, ca)| (Some(tls), Some(ca)))
        } else {
            (None, None)
        };
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener, tls, Arc::clone(&shared)));
        let scheme = if is_tls { "https" } else { "http" };
        Self { url: url_of(scheme, address), ca, shared, _accepting: accepting }
    }

    /// Changes what it answers.
    pub(crate) fn change(&self, change: impl FnOnce(&mut World)) {
        change(&mut self.shared.world.lock().unwrap());
    }

    /// The requests so far.
    pub(crate) fn seen(&self) -> watch::Receiver<Vec<Seen>> {
        self.shared.seen.subscribe()
    }

    /// Most execs at once: in one pod, and in all.
    pub(crate) fn most_at_once(&self) -> (usize, usize) {
        let running = self.shared.running.lock().unwrap();
        (running.1, running.2)
    }
}

fn url_of(scheme: &str, address: SocketAddr) -> String {
    format!("{scheme}://{address}")
}

/// A certificate for this machine by a new CA, and that CA.
fn papers() -> Option<(TlsAcceptor, String)> {
    let mut params = CertificateParams::new(Vec::new()).ok()?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    // Under the same name as the server OpenSSL takes the certificate for a self-signed one.
    params.distinguished_name.push(DnType::CommonName, "CA of the double");
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().ok()?).ok()?;
    let key = KeyPair::generate().ok()?;
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned(), "kubernetes".to_owned()]).ok()?;
    let certificate = params.signed_by(&key, &authority).ok()?;
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .ok()?;
    Some((TlsAcceptor::from(Arc::new(config)), authority.pem()))
}

async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok((socket, _)) = listener.accept().await {
        let (tls, shared) = (tls.clone(), Arc::clone(&shared));
        connections.spawn(async move {
            match tls {
                None => serve(socket, shared).await,
                // A client that does not trust it goes away here.
                Some(tls) => match tls.accept(socket).await {
                    Ok(stream) => serve(stream, shared).await,
                    Err(error) => eprintln!("double: no TLS: {error}"),
                },
            }
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(stream: S, shared: Arc<Shared>) {
    let answer = move |request| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, Infallible>(shared.answer(request).await) }
    };
    let service = hyper::service::service_fn(answer);
    let connection =
        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    let _ended = connection.with_upgrades().await;
}

type Reply = Response<Full<Bytes>>;

impl Shared {
    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Reply {
        let path = request.uri().path().to_owned();
        let query = request.uri().query().unwrap_or_default().to_owned();
        let latency = self.world.lock().unwrap().latency;
        if !latency.is_zero() {
            tokio::time::sleep(latency).await;
        }
        let hangs = self.world.lock().unwrap().hangs && !path.ends_with("/exec");
        if hangs {
            std::future::pending::<()>().await;
        }
        let reply = match self.refusal(&request) {
            Some(refusal) => refusal,
            None if path.ends_with("/exec") => exec::answer(&self, request, &path, &query),
            None => self.object(&path, &query),
        };
        let seen = Seen { path, query, status: reply.status().as_u16() };
        self.seen.send_modify(|all| all.push(seen));
        reply
    }

    /// Load and token come before everything else.
    fn refusal(&self, request: &Request<Incoming>) -> Option<Reply> {
        let mut world = self.world.lock().unwrap();
        if world.busy.0 > 0 {
            world.busy.0 -= 1;
            let mut reply = failure(429, "TooManyRequests", "too many requests, please try again later");
            reply.headers_mut().insert(RETRY_AFTER, world.busy.1.to_string().parse().unwrap());
            return Some(reply);
        }
        let wanted = format!("Bearer {}", world.token.as_ref()?);
        let sent = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        (sent != Some(wanted.as_str())).then(|| failure(401, "Unauthorized", "Unauthorized"))
    }

    fn object(&self, path: &str, query: &str) -> Reply {
        let mut world = self.world.lock().unwrap();
        let params = params(query);
        let objects = match path {
            "/version" | "/version/" => {
                return json_reply(200, &objects::version());
            }
            "/api" | "/apis" | "/api/v1" => return json_reply(200, &objects::discovery(path)),
            _ if world.forbidden.contains("list") => {
                return failure(
                    403,
                    "Forbidden",
                    "nodes is forbidden: User \"gpuvitals\" cannot list resource \"nodes\"",
                );
            }
            "/api/v1/nodes" => world.nodes.iter().map(objects::node).collect(),
            "/api/v1/namespaces/gpu-operator/pods" => objects::pods(&world),
            _ => return objects::pod_named(&world, path),
        };
        let first = |name: &str| params.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone());
        let begin: usize = match first("continue").filter(|token| !token.is_empty()) {
            Some(_) if world.expiring > 0 => {
                world.expiring -= 1;
                return failure(410, "Expired", "The provided continue parameter is too old");
            }
            Some(token) => token.trim_start_matches("from-").parse().unwrap_or_default(),
            None => 0,
        };
        let limit = first("limit")
            .and_then(|limit| limit.parse().ok())
            .filter(|limit| *limit > 0)
            .unwrap_or(usize::MAX);
        let matching: Vec<Value> = objects
            .into_iter()
            .filter(|object| {
                objects::matches(
                    object,
                    &first("labelSelector").unwrap_or_default(),
                    &first("fieldSelector").unwrap_or_default(),
                )
            })
            .collect();
        let end = begin.saturating_add(limit).min(matching.len());
        let more = if end < matching.len() { format!("from-{end}") } else { String::new() };
        let items = matching.get(begin..end).unwrap_or_default();
        let kind = if path == "/api/v1/nodes" { "NodeList" } else { "PodList" };
        let metadata = json!({"resourceVersion": "1", "continue": more});
        json_reply(200, &json!({"kind": kind, "apiVersion": "v1", "metadata": metadata, "items": items}))
    }

    fn begin(&self, pod: &str) {
        let mut running = self.running.lock().unwrap();
        let here = running.0.entry(pod.to_owned()).or_default();
        *here += 1;
        let here = *here;
        let all: usize = running.0.values().sum();
        (running.1, running.2) = (running.1.max(here), running.2.max(all));
    }

    fn end(&self, pod: &str) {
        if let Some(count) = self.running.lock().unwrap().0.get_mut(pod) {
            *count -= 1;
        }
    }
}

/// The pairs of a query, decoded.
fn params(query: &str) -> Vec<(String, String)> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(key, value)| (decoded(key), decoded(value))).collect()
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let digit = |byte: Option<u8>| char::from(byte.unwrap_or(b'0')).to_digit(16).unwrap_or_default();
        bytes.push(match byte {
            b'%' => u8::try_from(digit(rest.next()) * 16 + digit(rest.next())).unwrap(),
            b'+' => b' ',
            other => other,
        });
    }
    String::from_utf8(bytes).unwrap()
}

fn json_reply(status: u16, value: &Value) -> Reply {
    let mut reply = Response::new(Full::new(Bytes::from(value.to_string())));
    *reply.status_mut() = StatusCode::from_u16(status).unwrap();
    reply.headers_mut().insert(CONTENT_TYPE, "application/json".parse().unwrap());
    reply
}

fn failure(code: u16, reason: &str, message: &str) -> Reply {
    json_reply(code, &objects::status("Failure", reason, message, code))
}
