//! The service.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use futures_util::{Stream, StreamExt, stream};
use gpuvitals_core::history::{Fleet, History, Part, Rows, spelling};
use gpuvitals_core::{Batch, Status as Health, clock, wire};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tonic::codegen::Service;
use tonic::{Request, Response, Status};
use tonic_health::ServingStatus;

use crate::changes::{Filter, Following};
use crate::v1::history_server::{History as Calls, HistoryServer};
use crate::{DEFINITION, MESSAGE_BYTES, border, buckets, refusal, v1};

/// Calls that follow rows at a time, and calls that watch; each holds a stream open.
const FOLLOWERS_MAX: usize = 256;
/// GPUs of one message.
const PART_GPUS: usize = 200;
/// Rows of one message.
const PART_ROWS: usize = 8_192;
/// Between two looks whether the history has changed.
const LOOK: Duration = Duration::from_millis(100);
/// Longest time between two states.
const STATE_EVERY: Duration = Duration::from_secs(5);
/// Name of the service.
const NAME: &str = "gpuvitals.history.v1.History";

/// The paths of a history on the network: the service itself, reflection and health. Streams end with `UNAVAILABLE` at `stop`.
pub async fn serve(history: Arc<dyn History>, stop: &CancellationToken) -> Router {
    let (reporter, health) = tonic_health::server::health_reporter();
    reporter.set_service_status(NAME, ServingStatus::Serving).await;
    let (watched, stopped) = (Arc::clone(&history), stop.clone());
    tokio::spawn(async move {
        let mut looks = looks();
        while stopped.run_until_cancelled(looks.tick()).await.is_some() {
            let serves = watched.health().status != Health::Unhealthy;
            let status = if serves { ServingStatus::Serving } else { ServingStatus::NotServing };
            for name in ["", NAME] {
                reporter.set_service_status(name, status).await;
            }
        }
    });
    let answers = Answers {
        history,
        life: u64::try_from(clock::now_ns()).unwrap_or(1),
        followers: Arc::new(Semaphore::new(FOLLOWERS_MAX)),
        watchers: Arc::new(Semaphore::new(FOLLOWERS_MAX)),
        stop: stop.clone(),
    };
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(DEFINITION)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1();
    let router = route(Router::new(), HistoryServer::new(answers).max_encoding_message_size(MESSAGE_BYTES));
    let router = route(router, health);
    // The definitions are those that this crate was built with.
    reflection.map_or(router.clone(), |reflection| route(router, reflection))
}

/// Adds the calls of a service.
fn route<S>(router: Router, service: S) -> Router
where
    S: Service<
            http::Request<axum::body::Body>,
            Response = http::Response<tonic::body::Body>,
            Error = Infallible,
        > + tonic::server::NamedService
        + Clone
        + Send
        + Sync
        + 'static,
    S::Future: Send + 'static,
{
    router.route_service(&format!("/{}/{{*call}}", S::NAME), service)
}

fn looks() -> tokio::time::Interval {
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    looks
}

/// Answers the calls.
struct Answers {
    history: Arc<dyn History>,
    /// Versions of another life say nothing.
    life: u64,
    followers: Arc<Semaphore>,
    watchers: Arc<Semaphore>,
    stop: CancellationToken,
}

type Parts<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// An answer that is there, in parts.
fn parts<T: Send + 'static>(parts: Vec<T>) -> Response<Parts<T>> {
    Response::new(Box::pin(stream::iter(parts.into_iter().map(Ok))))
}

/// Works on a thread for blocking work.
async fn work<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Status> + Send + 'static,
) -> Result<T, Status> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| Err(Status::internal("the answer broke off")))
}

fn permit(of: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Status> {
    Arc::clone(of)
        .try_acquire_owned()
        .map_err(|_| Status::resource_exhausted(format!("{FOLLOWERS_MAX} calls follow this history already")))
}

impl Answers {
    /// A stream that ends with the service.
    fn until_the_end<T: Send + 'static>(
        &self,
        permit: OwnedSemaphorePermit,
        stream: impl Stream<Item = Result<T, Status>> + Send + 'static,
    ) -> Response<Parts<T>> {
        let end = stream::once(async { Err(Status::unavailable("the service stops")) });
        let stream = stream.take_until(self.stop.clone().cancelled_owned()).chain(end);
        Response::new(Box::pin(stream.map(move |item| {
            let _held = &permit;
            item
        })))
    }
}

#[tonic::async_trait]
impl Calls for Answers {
    type FleetStream = Parts<v1::FleetPart>;
    type RowsStream = Parts<v1::RowsPart>;
    type BucketsStream = Parts<v1::BucketsPart>;
    type ChangesStream = Parts<v1::ChangesPart>;
    type WatchStream = Parts<v1::State>;

    async fn fleet(&self, request: Request<v1::FleetRequest>) -> Result<Response<Self::FleetStream>, Status> {
        let asked = request.into_inner();
        let life = self.life;
        let Part { answer: fleet, missing } =
            self.history.fleet().await.map_err(|error| refusal::status(&error))?;
        let version = fleet.version;
        if (asked.known_version, asked.known_life) == (version, life) && missing.is_empty() {
            return Ok(parts(vec![v1::FleetPart { version, life, unchanged: true, ..Default::default() }]));
        }
        Ok(parts(work(move || fleet_parts(&fleet, life, missing)).await?))
    }

    async fn rows(&self, request: Request<v1::RowsRequest>) -> Result<Response<Self::RowsStream>, Status> {
        let query = border::rows_query(request.into_inner())?;
        let answer = self.history.rows(query).await.map_err(|error| refusal::status(&error))?;
        Ok(parts(work(move || rows_parts(answer)).await?))
    }

    async fn buckets(
        &self,
        request: Request<v1::BucketsRequest>,
    ) -> Result<Response<Self::BucketsStream>, Status> {
        let query = border::bucket_query(request.into_inner())?;
        let answer = self.history.buckets(query).await.map_err(|error| refusal::status(&error))?;
        Ok(parts(work(move || Ok(buckets::parts(answer))).await?))
    }

    async fn changes(
        &self,
        request: Request<v1::ChangesRequest>,
    ) -> Result<Response<Self::ChangesStream>, Status> {
        let filter = Filter::of(request.into_inner())?;
        let permit = permit(&self.followers)?;
        let following = Following::new(self.history.changes(), filter);
        let changes = stream::unfold(following, |mut following| async {
            let part = following.next().await?;
            Some((part, following))
        });
        Ok(self.until_the_end(permit, changes))
    }

    async fn watch(
        &self,
        _request: Request<v1::WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let permit = permit(&self.watchers)?;
        let (history, life) = (Arc::clone(&self.history), self.life);
        let told: Option<(u64, Instant)> = None;
        let states = stream::unfold((looks(), told), move |(mut looks, told)| {
            let history = Arc::clone(&history);
            async move {
                loop {
                    let now = looks.tick().await;
                    let version = history.version();
                    let is_news = told.is_none_or(|(known, at)| known != version || now - at >= STATE_EVERY);
                    if is_news {
                        return Some((Ok(state(&*history, version, life)), (looks, Some((version, now)))));
                    }
                }
            }
        });
        Ok(self.until_the_end(permit, states))
    }
}

fn state(history: &dyn History, version: u64, life: u64) -> v1::State {
    let (health, stats) = (history.health(), history.stats());
    let status = match health.status {
        Health::Healthy => "healthy",
        Health::Degraded => "degraded",
        Health::Unhealthy => "unhealthy",
    };
    v1::State {
        version,
        life,
        status: status.to_owned(),
        reason: health.reason,
        since_ns: health.since_ns,
        rows_on_disk: stats.rows_on_disk,
        rows_in_memory: stats.rows_in_memory,
        own: stats.own.to_string(),
    }
}

fn fleet_parts(fleet: &Fleet, life: u64, missing: Vec<String>) -> Result<Vec<v1::FleetPart>, Status> {
    let head = v1::FleetPart { version: fleet.version, life, missing, ..Default::default() };
    let of_gpus = fleet.gpus.chunks(PART_GPUS).map(|gpus| {
        let gpus = spelling::write(gpus).map_err(|error| Status::internal(error.to_string()))?;
        Ok(v1::FleetPart { gpus: gpus.into(), ..Default::default() })
    });
    std::iter::once(Ok(head)).chain(of_gpus).collect()
}

fn rows_parts(answer: Part<Rows>) -> Result<Vec<v1::RowsPart>, Status> {
    let Part { answer: Rows { batch, total }, missing } = answer;
    let total = total.map(|total| total as u64);
    let head = v1::RowsPart { total, missing, ..Default::default() };
    let mut parts = vec![head];
    if let Some(batch) = batch {
        let broken = |error: &dyn std::error::Error| Status::internal(error.to_string());
        for start in (0..batch.rows()).step_by(PART_ROWS) {
            let rows = batch.records().slice(start, PART_ROWS.min(batch.rows() - start));
            let rows = Batch::new(batch.table(), rows, batch.origin().clone(), batch.sequence());
            let bytes = wire::encode(&rows.map_err(|error| broken(&error))?);
            let batch = bytes.map_err(|error| broken(&error))?;
            parts.push(v1::RowsPart { batch, ..Default::default() });
        }
    }
    Ok(parts)
}
