//! The service.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use futures_util::{Stream, StreamExt, stream};
use gpuvitals_core::history::{Fleet, History, Part, Rows, fleet_as_of, spelling};
use gpuvitals_core::{Batch, Status as Health, clock, wire};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;
use tonic::codegen::Service;
use tonic::{Request, Response, Status};
use tonic_health::ServingStatus;

use crate::changes::{ChangesFilter, Following};
use crate::limits::{DEFINITION, MESSAGE_BYTES};
use crate::v1::history_server::{History as Calls, HistoryServer};
use crate::{border, buckets, refusal, usage, v1};

/// Calls that follow rows at a time, and calls that watch; each holds a stream open.
const FOLLOWERS_MAX: usize = 256;
/// Longest wait for a turn, as long as one by HTTP waits unless told otherwise.
const TURN_WITHIN: Duration = Duration::from_secs(15);
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

/// The paths of a history on the network: the service itself, reflection and health. A question takes one of the `queries` while its answer
/// is computed, and waits for one, not for long; so may others who ask the same history. Streams, and the wait for a turn, end with
/// `UNAVAILABLE` at `stop`.
pub async fn serve(history: Arc<dyn History>, queries: Arc<Semaphore>, stop: &CancellationToken) -> Router {
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
    let answers = CallAnswers {
        history,
        queries,
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
struct CallAnswers {
    history: Arc<dyn History>,
    /// As many questions are computed at the same time.
    queries: Arc<Semaphore>,
    /// Identifies this process: versions of another one are not comparable.
    life: u64,
    followers: Arc<Semaphore>,
    watchers: Arc<Semaphore>,
    stop: CancellationToken,
}

pub(crate) type Parts<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// An answer in parts. Each is made when it is wanted, on a thread for blocking work: nothing is made for a client that has gone.
pub(crate) fn parts<T: Send + 'static>(
    parts: impl Iterator<Item = Result<T, Status>> + Send + 'static,
) -> Response<Parts<T>> {
    Response::new(Box::pin(stream::try_unfold(parts, async |mut parts| {
        let next = tokio::task::spawn_blocking(move || (parts.next(), parts));
        let (part, parts) = next.await.map_err(|_| Status::internal("the answer broke off"))?;
        Ok(part.transpose()?.map(|part| (part, parts)))
    })))
}

fn permit(of: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Status> {
    Arc::clone(of)
        .try_acquire_owned()
        .map_err(|_| Status::resource_exhausted(format!("{FOLLOWERS_MAX} calls follow this history already")))
}

fn stops() -> Status {
    Status::unavailable("the service stops")
}

async fn turn<'a>(queries: &'a Semaphore, stop: &CancellationToken) -> Result<SemaphorePermit<'a>, Status> {
    tokio::select! {
        // What waits for nothing is answered until the end.
        biased;
        turn = timeout(TURN_WITHIN, queries.acquire()) => match turn {
            Ok(turn) => turn.map_err(|_| stops()),
            Err(_) => Err(Status::unavailable("too many questions are answered at the same time; try again")),
        },
        () = stop.cancelled() => Err(stops()),
    }
}

impl CallAnswers {
    /// The turn of a question. It ends with the computing: whoever is slow to take an answer holds up nobody.
    async fn turn(&self) -> Result<SemaphorePermit<'_>, Status> {
        turn(&self.queries, &self.stop).await
    }

    /// A stream that ends with the service.
    fn until_the_end<T: Send + 'static>(
        &self,
        permit: OwnedSemaphorePermit,
        stream: impl Stream<Item = Result<T, Status>> + Send + 'static,
    ) -> Response<Parts<T>> {
        let end = stream::once(async { Err(stops()) });
        let stream = stream.take_until(self.stop.clone().cancelled_owned()).chain(end);
        Response::new(Box::pin(stream.map(move |item| {
            let _held = &permit;
            item
        })))
    }
}

#[tonic::async_trait]
impl Calls for CallAnswers {
    type FleetStream = Parts<v1::FleetPart>;
    type RowsStream = Parts<v1::RowsPart>;
    type BucketsStream = Parts<v1::BucketsPart>;
    type UsageStream = Parts<v1::UsagePart>;
    type ChangesStream = Parts<v1::ChangesPart>;
    type WatchStream = Parts<v1::State>;

    async fn fleet(&self, request: Request<v1::FleetRequest>) -> Result<Response<Self::FleetStream>, Status> {
        let asked = request.into_inner();
        let life = self.life;
        let answer = match asked.at_ns {
            Some(at_ns) => {
                let _turn = self.turn().await?;
                fleet_as_of(self.history.as_ref(), at_ns).await
            }
            // It is ready.
            None => self.history.fleet().await,
        };
        let Part { answer: fleet, missing } = answer.map_err(|error| refusal::status(&error))?;
        let version = fleet.version;
        let is_known = (asked.known_version, asked.known_life) == (version, life);
        if is_known && asked.at_ns.is_none() && missing.is_empty() {
            let unchanged = v1::FleetPart { version, life, unchanged: true, ..Default::default() };
            return Ok(Response::new(Box::pin(stream::iter([Ok(unchanged)]))));
        }
        Ok(parts(fleet_parts(fleet, life, missing)))
    }

    async fn rows(&self, request: Request<v1::RowsRequest>) -> Result<Response<Self::RowsStream>, Status> {
        let query = border::reading(request.into_inner(), border::rows_query).await?;
        let _turn = self.turn().await?;
        let answer = self.history.rows(query).await.map_err(|error| refusal::status(&error))?;
        Ok(parts(rows_parts(answer)))
    }

    async fn buckets(
        &self,
        request: Request<v1::BucketsRequest>,
    ) -> Result<Response<Self::BucketsStream>, Status> {
        let query = border::reading(request.into_inner(), border::bucket_query).await?;
        let _turn = self.turn().await?;
        let answer = self.history.buckets(query).await.map_err(|error| refusal::status(&error))?;
        Ok(parts(buckets::parts(answer).map(Ok)))
    }

    async fn usage(&self, request: Request<v1::UsageRequest>) -> Result<Response<Self::UsageStream>, Status> {
        let query = border::use_query(request.into_inner())?;
        let _turn = self.turn().await?;
        let answer = self.history.usage(query).await;
        Ok(parts(usage::parts(answer.map_err(|error| refusal::status(&error))?)))
    }

    async fn changes(
        &self,
        request: Request<v1::ChangesRequest>,
    ) -> Result<Response<Self::ChangesStream>, Status> {
        let filter = border::reading(request.into_inner(), ChangesFilter::of).await?;
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
    v1::State {
        version,
        life,
        status: health.status.name().to_owned(),
        reason: health.reason,
        since_ns: health.since_ns,
        rows_on_disk: stats.rows_on_disk,
        rows_in_memory: stats.rows_in_memory,
        own: stats.own.to_string(),
    }
}

fn fleet_parts(
    fleet: Arc<Fleet>,
    life: u64,
    missing: Vec<String>,
) -> impl Iterator<Item = Result<v1::FleetPart, Status>> {
    let head = v1::FleetPart { version: fleet.version, life, missing, ..Default::default() };
    let of_gpus = (0..fleet.gpus.len()).step_by(PART_GPUS).map(move |start| {
        let end = fleet.gpus.len().min(start + PART_GPUS);
        let gpus = spelling::write(fleet.gpus.get(start..end).unwrap_or_default());
        let gpus = gpus.map_err(|error| Status::internal(error.to_string()))?;
        Ok(v1::FleetPart { gpus: gpus.into(), ..Default::default() })
    });
    std::iter::once(Ok(head)).chain(of_gpus)
}

fn rows_parts(answer: Part<Rows>) -> impl Iterator<Item = Result<v1::RowsPart, Status>> {
    let Part { answer: Rows { batch, total }, missing } = answer;
    let total = total.map(|total| total as u64);
    let head = v1::RowsPart { total, missing, ..Default::default() };
    let of_rows = batch.into_iter().flat_map(|batch| {
        (0..batch.rows()).step_by(PART_ROWS).map(move |start| {
            let broken = |error: &dyn std::error::Error| Status::internal(error.to_string());
            let rows = batch.records().slice(start, PART_ROWS.min(batch.rows() - start));
            let rows = Batch::new(batch.table(), rows, batch.origin().clone(), batch.sequence());
            let bytes = wire::encode(&rows.map_err(|error| broken(&error))?);
            Ok(v1::RowsPart { batch: bytes.map_err(|error| broken(&error))?, ..Default::default() })
        })
    });
    std::iter::once(Ok(head)).chain(of_rows)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_question_waits_for_its_turn_until_the_end_of_the_service_and_never_for_long() {
        let (queries, stop) = (Semaphore::new(1), CancellationToken::new());
        let first = turn(&queries, &stop).await.unwrap();
        let began = Instant::now();
        let late = turn(&queries, &stop).await.unwrap_err();
        assert!(late.code() == tonic::Code::Unavailable && began.elapsed() >= TURN_WITHIN, "{late}");
        assert!(late.message().contains("try again"), "{late}");
        let began = Instant::now();
        let (ended, ()) = tokio::join!(turn(&queries, &stop), async { stop.cancel() });
        assert_eq!(ended.unwrap_err().message(), "the service stops");
        assert_eq!(began.elapsed(), Duration::ZERO);
        drop(first);
        assert!(turn(&queries, &stop).await.is_ok(), "one that is free is taken to the end");
    }

    #[tokio::test]
    async fn nothing_is_made_of_an_answer_that_nobody_takes_any_more() {
        let made = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&made);
        let mut answer = parts((0..10).map(move |part| {
            count.fetch_add(1, Ordering::Relaxed);
            Ok(part)
        }))
        .into_inner();
        assert!(matches!((answer.next().await, answer.next().await), (Some(Ok(0)), Some(Ok(1)))));
        drop(answer);
        assert_eq!(made.load(Ordering::Relaxed), 2);
    }
}
