//! The gateway's state, and how a question gets its answer.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::{AGE, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, HeaderName, VARY};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use gpuvitals_core::Health;
use gpuvitals_core::figures::Family;
use gpuvitals_store::Store;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::ask::{Ask, View};
use crate::cache::{Cache, Key, Now, Ready};
use crate::compress;
use crate::config::ApiConfig;
use crate::dto::GatewayStats;
use crate::error::ApiError;
use crate::meter::Meter;

/// Shortest answer in bytes that is worth compressing.
const GZIP_FROM: usize = 1_024;

/// The gateway's view of the rest of the program: the parts it shows but does not own.
pub trait StatusView: Send + Sync {
    /// The queue's `GET /stats`: `topics`, `total_processed`, `uptime_seconds` and its other fields. An empty object if the
    /// queue runs elsewhere.
    fn queue_stats(&self) -> serde_json::Value;
    /// Health of the queue.
    fn queue_health(&self) -> Health;
    /// Health of the collector.
    fn collector_health(&self) -> Health;
    /// The source of the rows and its progress: a JSON object.
    fn source(&self) -> serde_json::Value;
    /// Figures of the parts beside the gateway that have no port of their own.
    fn families(&self) -> Vec<Family> {
        Vec::new()
    }
}

/// The gateway. Cheap to clone.
#[derive(Clone)]
pub struct Api(Arc<State>);

struct State {
    config: ApiConfig,
    store: Store,
    status: Arc<dyn StatusView>,
    cache: Cache,
    meter: Meter,
    queries: Arc<Semaphore>,
    streams: Arc<Semaphore>,
    listener: Arc<gpuvitals_listener::Meter>,
    stopping: CancellationToken,
    started: Instant,
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api").field("config", &self.0.config).finish_non_exhaustive()
    }
}

impl Api {
    /// A gateway to that store.
    pub fn new(config: ApiConfig, store: Store, status: Arc<dyn StatusView>) -> Self {
        let limits = &config.limits;
        Self(Arc::new(State {
            cache: Cache::new(config.cache_entries, limits.cache_bytes, limits.reuse),
            meter: Meter::default(),
            queries: Arc::new(Semaphore::new(limits.queries)),
            streams: Arc::new(Semaphore::new(limits.streams)),
            listener: Arc::new(gpuvitals_listener::Meter::new("gateway")),
            stopping: CancellationToken::new(),
            started: Instant::now(),
            config,
            store,
            status,
        }))
    }

    pub(crate) fn config(&self) -> &ApiConfig {
        &self.0.config
    }

    pub(crate) fn store(&self) -> &Store {
        &self.0.store
    }

    pub(crate) fn status(&self) -> &dyn StatusView {
        self.0.status.as_ref()
    }

    pub(crate) fn meter(&self) -> &Meter {
        &self.0.meter
    }

    /// Cancelled when the gateway stops.
    pub(crate) fn stopping(&self) -> &CancellationToken {
        &self.0.stopping
    }

    /// What the listener counts.
    pub(crate) fn listener(&self) -> &Arc<gpuvitals_listener::Meter> {
        &self.0.listener
    }

    /// A place among the live streams.
    ///
    /// # Errors
    /// When all are taken.
    pub(crate) fn stream_permit(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        let permit = Arc::clone(&self.0.streams).try_acquire_owned();
        permit.map_err(|_| ApiError::Streams(self.0.config.limits.streams))
    }

    /// The answer to a question, cached or computed now. Equal questions at the same time are computed once.
    ///
    /// # Errors
    /// If the question has no answer or the gateway is too busy.
    pub(crate) async fn answer(&self, ask: impl Ask, headers: &HeaderMap) -> Result<Response, ApiError> {
        let state = &self.0;
        let key = Key { ask: format!("{ask:?}"), gzip: compress::accepts_gzip(headers) };
        let version = if ask.is_of_store() { state.store.version() } else { 0 };
        let now = Now { version, wall_ns: state.config.clock.now_ns() };
        let making = match state.cache.get(&key, now).await {
            Ok(ready) => {
                state.meter.hit();
                gpuvitals_listener::trace::note("gpuvitals.cache", "hit");
                return Ok(respond(&ready, "hit"));
            }
            Err(making) => making,
        };
        state.meter.miss();
        gpuvitals_listener::trace::note("gpuvitals.cache", "miss");
        let ready = self.make(ask, key.gzip, now).await?;
        making.keep(&ready);
        Ok(respond(&ready, "miss"))
    }

    async fn make(
        &self,
        ask: impl Ask,
        gzip: bool,
        Now { version, wall_ns }: Now,
    ) -> Result<Ready, ApiError> {
        let waited = tokio::time::timeout(
            self.0.config.limits.request_timeout / 2,
            Arc::clone(&self.0.queries).acquire_owned(),
        );
        let Ok(Ok(permit)) = waited.await else { return Err(ApiError::Overloaded) };
        let api = self.clone();
        let made = Instant::now();
        let span = tracing::info_span!("query");
        let job = tokio::task::spawn_blocking(move || {
            let (_permit, _inside) = (permit, span.entered());
            let is_partial = Cell::new(false);
            let view = View { store: api.store(), config: api.config(), now_ns: wall_ns, is_partial };
            let body = ask.answer(&view)?;
            let until_ns = if view.is_partial.get() { wall_ns } else { ask.until_ns(&view) };
            let gzip = gzip && body.len() >= GZIP_FROM;
            let body = if gzip { compress::gzip(&body).map_err(ApiError::Compress)? } else { body };
            Ok(Ready { body: Bytes::from(body), gzip, made, version, until_ns })
        });
        job.await.unwrap_or(Err(ApiError::Crashed))
    }

    /// The gateway's own statistics.
    pub(crate) fn gateway_stats(&self) -> GatewayStats {
        let State { meter, cache, config, streams, listener, started, .. } = self.0.as_ref();
        GatewayStats {
            cache_hit_rate: meter.hit_rate(),
            cache_hits: meter.hits(),
            cache_misses: meter.misses(),
            cache_bytes: cache.bytes(),
            requests: listener.requests(),
            uptime_seconds: seconds(started.elapsed()),
            streams: config.limits.streams.saturating_sub(streams.available_permits()),
            connections: listener.connections(),
        }
    }

    /// The gateway's figures and those of the parts beside it.
    pub fn families(&self) -> Vec<Family> {
        let mut families = self.0.meter.families(&self.gateway_stats());
        families.extend(self.0.listener.families());
        families.extend(self.0.status.families());
        families
    }

    /// The store's statistics.
    ///
    /// # Errors
    /// When they cannot be written as JSON, which would be a defect.
    pub(crate) fn store_stats(&self) -> Result<serde_json::Value, serde_json::Error> {
        serde_json::to_value(self.0.store.stats())
    }
}

/// Rounded to the millisecond, for people.
fn seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e3).round() / 1e3
}

fn respond(ready: &Ready, cache: &'static str) -> Response {
    let mut response = Body::from(ready.body.clone()).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
    headers.insert(AGE, HeaderValue::from(ready.made.elapsed().as_secs()));
    headers.insert(HeaderName::from_static("x-cache"), HeaderValue::from_static(cache));
    if ready.gzip {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}
