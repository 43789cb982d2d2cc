//! A small Kubernetes API server: nodes, pods and exec as their protocol is, with the failures that a cluster has.
//!
//! It knows `/version`, lists of nodes and pods (selectors, pages, 410), and `pods/exec` over WebSocket (v5, v4). It
//! checks a bearer token and the right to each verb. What it knows of the protocol comes from the Kubernetes sources and
//! from other clients that work with it; it is no Kubernetes.

mod answers;
mod exec;
mod objects;
mod reply;
mod world;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use http::Request;
use http::header::{AUTHORIZATION, RETRY_AFTER};
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

use self::exec::RunningExecs;
use self::reply::{Reply, failure, json_reply, params};
pub use self::world::{Behaviour, NodeSpec, World};

/// A request as the server saw it, without its token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenRequest {
    /// Path of the request, without its query.
    pub path: String,
    /// Its query, as it came.
    pub query: String,
    /// What it was answered.
    pub status: u16,
}

/// The running server. Dropped, it is gone.
#[derive(Debug)]
pub struct Double {
    /// Where it serves.
    pub url: String,
    /// Its CA in PEM, if it serves TLS.
    pub ca: Option<String>,
    shared: Arc<DoubleState>,
    _accepting: JoinSet<()>,
}

#[derive(Debug)]
struct DoubleState {
    world: Mutex<World>,
    seen: watch::Sender<Vec<SeenRequest>>,
    running: Arc<RunningExecs>,
}

impl Double {
    /// Serves without TLS on a free port of this machine.
    pub async fn start(world: World) -> Self {
        Self::serve(world, 0, None).await
    }

    /// The same with TLS, by a CA of its own.
    pub async fn start_tls(world: World) -> Self {
        Self::start_tls_at(world, 0).await
    }

    /// The same with TLS on this port; 0: a free one.
    pub async fn start_tls_at(world: World, port: u16) -> Self {
        Self::serve(world, port, Some(papers().unwrap())).await
    }

    async fn serve(world: World, port: u16, papers: Option<(TlsAcceptor, String)>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(DoubleState {
            world: Mutex::new(world),
            seen: watch::Sender::new(Vec::new()),
            running: Arc::default(),
        });
        let scheme = if papers.is_some() { "https" } else { "http" };
        let (tls, ca) = papers.unzip();
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener, tls, Arc::clone(&shared)));
        Self { url: url_of(scheme, address), ca, shared, _accepting: accepting }
    }

    /// Changes what it answers.
    pub fn change(&self, change: impl FnOnce(&mut World)) {
        change(&mut self.shared.world.lock().unwrap());
    }

    /// The requests so far.
    pub fn seen(&self) -> watch::Receiver<Vec<SeenRequest>> {
        self.shared.seen.subscribe()
    }

    /// Most execs at once: in one pod, and in all.
    pub fn most_at_once(&self) -> (usize, usize) {
        self.shared.running.most_at_once()
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

async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, shared: Arc<DoubleState>) {
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

async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(stream: S, shared: Arc<DoubleState>) {
    let answer = move |request| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, Infallible>(shared.answer(request).await) }
    };
    let service = hyper::service::service_fn(answer);
    let connection =
        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    let _ended = connection.with_upgrades().await;
}

impl DoubleState {
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
            None if path.ends_with("/exec") => {
                let world = self.world.lock().unwrap().clone();
                exec::answer(&world, &self.running, request)
            }
            None => self.object(&path, &query),
        };
        let seen = SeenRequest { path, query, status: reply.status().as_u16() };
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
            _ if path == world.pods_path() => objects::pods(&world),
            // No pod is in other namespaces, and the API does not say whether there is such a namespace.
            _ if path.starts_with("/api/v1/namespaces/") && path.ends_with("/pods") => Vec::new(),
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
}
