//! The HTTP side: connections with their limits, and the few paths there are.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use gpuvitals_core::clock::Moment;
use gpuvitals_core::figures::{Family, Format};
use gpuvitals_queue::Clock;
use http_body_util::Full;
use hyper::body::{Body, Incoming};
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::access::{Access, Refusal};
use super::node::Node;
use super::own::Counts;
use super::scrape::Scraper;

/// Connections at a time; for one more the oldest has to end. A few Prometheus servers and probes need a handful.
const CONNECTIONS_MAX: usize = 128;
/// Longest time for a TLS handshake, and for the last request of a connection that has to end.
const LAST_PATIENCE: Duration = Duration::from_secs(10);
/// Longest time until a request's head is there, counted from the answer before: above the usual minute between two scrapes.
const IDLE_PATIENCE: Duration = Duration::from_secs(75);
/// Longest time of a connection, so that one that nobody reads from ends; scrapers open another.
const CONNECTION_AGE_MAX: Duration = Duration::from_mins(5);
/// Longest head of a request, bytes.
const HEAD_LEN_MAX: usize = 16 << 10;
/// Most headers of a request.
const HEADERS_MAX: usize = 64;
/// Pause after a connection could not be accepted (no descriptor left), so that it is not tried a million times a second.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

type Answer = Response<Full<Bytes>>;

/// Who answers.
#[derive(Debug)]
pub(crate) struct Server {
    node: Arc<Node>,
    counts: Arc<Counts>,
    scraper: Scraper,
    terms: RwLock<Arc<Terms>>,
    clock: Clock,
}

/// What a reload can change.
#[derive(Debug)]
pub(crate) struct Terms {
    /// Path of the metrics.
    pub metrics_path: String,
    /// What a request must bring.
    pub access: Access,
}

impl Server {
    /// On these terms.
    pub(crate) fn new(node: Arc<Node>, counts: Arc<Counts>, scraper: Scraper, terms: Terms) -> Self {
        Self { node, counts, scraper, terms: RwLock::new(Arc::new(terms)), clock: Clock::system() }
    }

    /// From now on these terms; open connections keep their TLS.
    pub(crate) fn set_terms(&self, terms: Terms) {
        *self.terms.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(terms);
    }

    fn terms(&self) -> Arc<Terms> {
        Arc::clone(&self.terms.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Serves until the shutdown, and then until open requests are answered or the grace is over. Gives the number of
    /// connections that were still open.
    pub(crate) async fn serve(
        self: Arc<Self>,
        listener: TcpListener,
        shutdown: CancellationToken,
        grace: Duration,
    ) -> usize {
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let mut connections = JoinSet::new();
        // In the order they came; a token is cancelled when its connection ends or has to.
        let mut open: VecDeque<CancellationToken> = VecDeque::new();
        loop {
            let accepted = tokio::select! {
                () = shutdown.cancelled() => break,
                Some(_) = connections.join_next() => continue,
                accepted = accept(&listener, &places) => accepted,
            };
            match accepted {
                Ok((stream, place)) => {
                    let (server, end) = (Arc::clone(&self), shutdown.child_token());
                    open.retain(|end| !end.is_cancelled());
                    open.push_back(end.clone());
                    connections.spawn(async move {
                        server.counts.connections.fetch_add(1, Ordering::Relaxed);
                        Arc::clone(&server).connected(stream, end.clone()).await;
                        server.counts.connections.fetch_sub(1, Ordering::Relaxed);
                        end.cancel();
                        drop(place);
                    });
                    // Somebody who holds connections and asks nothing must not keep the others out.
                    if places.available_permits() == 0
                        && let Some(oldest) = open.pop_front()
                    {
                        oldest.cancel();
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        drop(listener);
        let drained = async { while connections.join_next().await.is_some() {} };
        // What is left is dropped, and with it its connection.
        let _late = tokio::time::timeout(grace, drained).await;
        connections.len()
    }

    async fn connected(self: Arc<Self>, stream: TcpStream, end: CancellationToken) {
        // An answer must not wait for the acknowledgement of the one before.
        let _set = stream.set_nodelay(true);
        let Some(tls) = self.terms().access.tls.clone() else {
            return self.speak(stream, false, end).await;
        };
        match tokio::time::timeout(LAST_PATIENCE, TlsAcceptor::from(tls).accept(stream)).await {
            Ok(Ok(stream)) => {
                let has_certificate = stream.get_ref().1.peer_certificates().is_some();
                self.speak(stream, has_certificate, end).await;
            }
            Ok(Err(error)) => tracing::debug!(%error, "no TLS connection came about"),
            Err(_) => tracing::debug!("a TLS handshake took too long"),
        }
    }

    async fn speak<S>(self: Arc<Self>, stream: S, has_certificate: bool, end: CancellationToken)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin,
    {
        let service = service_fn(|request: Request<Incoming>| {
            let server = Arc::clone(&self);
            async move { Ok::<_, Infallible>(server.answer(&request, has_certificate).await) }
        });
        let mut connection = pin!(
            http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(IDLE_PATIENCE)
                .max_buf_size(HEAD_LEN_MAX)
                .max_headers(HEADERS_MAX)
                .serve_connection(TokioIo::new(stream), service)
        );
        let ended = tokio::select! {
            ended = connection.as_mut() => Some(ended),
            () = end.cancelled() => None,
            () = tokio::time::sleep(CONNECTION_AGE_MAX) => None,
        };
        let ended = if let Some(ended) = ended {
            ended
        } else {
            connection.as_mut().graceful_shutdown();
            tokio::time::timeout(LAST_PATIENCE, connection).await.unwrap_or(Ok(()))
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection broke");
        }
    }

    async fn answer(&self, request: &Request<Incoming>, has_certificate: bool) -> Answer {
        let path = request.uri().path();
        let terms = self.terms();
        let route =
            [&terms.metrics_path, "/healthz", "/readyz", "/"].into_iter().find(|known| *known == path);
        let span = gpuvitals_listener::trace::served(
            request.method(),
            route.unwrap_or_default(),
            path,
            request.headers(),
        );
        let mut answer = self.route(request, &terms, has_certificate).instrument(span.clone()).await;
        gpuvitals_listener::trace::answered(&span, answer.status());
        let len = answer.body().size_hint().exact().unwrap_or_default();
        let headers = answer.headers_mut();
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(
            header::CONTENT_SECURITY_POLICY,
            HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'"),
        );
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(len));
        if request.method() == Method::HEAD {
            *answer.body_mut() = Full::default();
        }
        answer
    }

    async fn route(&self, request: &Request<Incoming>, terms: &Terms, has_certificate: bool) -> Answer {
        if request.method() != Method::GET && request.method() != Method::HEAD {
            let mut answer = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
            answer.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            return closing(answer);
        }
        if !request.body().is_end_stream() {
            return closing(text(StatusCode::PAYLOAD_TOO_LARGE, "no path takes a body\n"));
        }
        let path = request.uri().path();
        // Probes bring neither certificate nor login.
        match path {
            "/healthz" => return self.health(),
            "/readyz" => return self.readiness(),
            _ => {}
        }
        let authorization = request.headers().get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
        if let Err(refusal) = terms.access.check(has_certificate, authorization) {
            self.counts.refused.fetch_add(1, Ordering::Relaxed);
            return refused(refusal);
        }
        if path == terms.metrics_path {
            return self.metrics(request.headers()).await;
        }
        match path {
            "/" => html(&terms.metrics_path),
            _ => text(StatusCode::NOT_FOUND, "no such path\n"),
        }
    }

    async fn metrics(&self, headers: &HeaderMap) -> Answer {
        let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
        let format = Format::accepted(accept);
        let scrape = self.scraper.scrape(format, accepts_gzip(headers)).await;
        let mut answer = Response::new(Full::new(scrape.body));
        let headers = answer.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(format.content_type()));
        headers.insert(header::VARY, HeaderValue::from_static("Accept, Accept-Encoding"));
        if scrape.is_gzip {
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        answer
    }

    /// The families of a scrape at this moment.
    pub(crate) fn families(&self) -> Vec<Family> {
        self.scraper.families()
    }

    fn health(&self) -> Answer {
        match self.node.ailment(Moment::now()) {
            // No new process brings the queue back.
            None => match self.node.publisher().and_then(|publisher| publisher.ailment(&self.clock)) {
                Some(ailment) => text(StatusCode::OK, format!("ok; {ailment}\n")),
                None => text(StatusCode::OK, "ok\n"),
            },
            Some(ailment) => text(StatusCode::SERVICE_UNAVAILABLE, format!("{ailment}\n")),
        }
    }

    fn readiness(&self) -> Answer {
        match (self.node.starting(), self.node.gpus()) {
            (0, 0) => text(StatusCode::OK, "ok; there is no GPU\n"),
            (0, gpus) => text(StatusCode::OK, format!("ok; GPUs: {gpus}\n")),
            (waiting, _) => text(
                StatusCode::SERVICE_UNAVAILABLE,
                format!("waiting for the first sample of {waiting} devices\n"),
            ),
        }
    }
}

/// A place, and a connection for it: while there is no place, who wants to connect waits.
async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> std::io::Result<(TcpStream, Option<tokio::sync::OwnedSemaphorePermit>)> {
    // The semaphore is never closed. Who is cancelled here gives the place back.
    let place = Arc::clone(places).acquire_owned().await.ok();
    let (stream, _) = listener.accept().await?;
    Ok((stream, place))
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    answer.headers_mut().insert(header::CONTENT_TYPE, plain);
    answer
}

fn html(metrics_path: &str) -> Answer {
    // The path is checked to be plain.
    let page = format!(
        "<!doctype html><title>gpuvitals agent</title><h1>gpuvitals agent {}</h1><p><a href=\"{metrics_path}\">metrics</a> \
         <a href=\"/healthz\">alive?</a> <a href=\"/readyz\">ready?</a></p>\n",
        env!("CARGO_PKG_VERSION")
    );
    let mut answer = Response::new(Full::from(page));
    let kind = HeaderValue::from_static("text/html; charset=utf-8");
    answer.headers_mut().insert(header::CONTENT_TYPE, kind);
    answer
}

fn refused(refusal: Refusal) -> Answer {
    match refusal {
        Refusal::Certificate => text(StatusCode::FORBIDDEN, "a client certificate is asked for\n"),
        Refusal::Login => {
            let mut answer = text(StatusCode::UNAUTHORIZED, "a login is asked for\n");
            let scheme = HeaderValue::from_static("Basic realm=\"gpuvitals\", charset=\"UTF-8\"");
            answer.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
            answer
        }
    }
}

/// Nobody reads what else this connection brings.
fn closing(mut answer: Answer) -> Answer {
    answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    answer
}

fn accepts_gzip(headers: &HeaderMap) -> bool {
    let offers = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    offers.flat_map(|value| value.split(',')).any(|offer| {
        let (name, quality) = offer.split_once(";q=").unwrap_or((offer, "1"));
        name.trim().eq_ignore_ascii_case("gzip") && quality.trim().parse::<f32>().is_ok_and(|q| q > 0.0)
    })
}
