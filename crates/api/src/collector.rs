//! The collector's own small API: health, statistics, the rows of a GPU, and metrics for Prometheus.
//!
//! | path | answer |
//! |---|---|
//! | `GET /health` | `{"status", "timestamp"}`; 503 where it is unhealthy |
//! | `GET /healthz`, `GET /readyz` | whether the process answers, and whether it is not unhealthy, as text |
//! | `GET /stats` | `{"total_processed", "active_gpus", "file_entries", "cache_entries", "uptime_seconds"}` |
//! | `GET /telemetry/{gpu}?limit=&reverse=` | `[{"gpu_id", "metrics", "timestamp"}]`, newest first |
//! | `GET /metrics` | Prometheus text |
//!
//! The header `x-partial` says what of an answer could not be read.

use std::borrow::Cow;
use std::sync::Arc;

use axum::Router;
use axum::extract::State as Shared;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use axum::routing::get;
use gpuvitals_core::Table;
use gpuvitals_core::history::{History, NoGpu, Part, Rows, RowsQuery};
use gpuvitals_listener::{Vitals, echo, refuse, vitals};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::ask;
use crate::asked::{Flag, Limit};
use crate::config::Limits;
use crate::dto::{Moment, RowMetrics};
use crate::error::{ApiError, ErrorCode};
use crate::parameter::{Asked, Named};
use crate::route::rows::GpuRows;
use crate::route::stats::fresh;

/// What the API asks of the collector.
pub trait CollectorView: Vitals {
    /// Rows made durable since the start, repeats among them.
    fn rows_stored(&self) -> u64;
}

struct CollectorApi {
    history: Arc<dyn History>,
    view: Arc<dyn CollectorView>,
    limits: Limits,
    queries: Arc<Semaphore>,
    started: Instant,
}

/// The paths of a collector that fills that history. A question takes one of the `queries` while its answer is computed; so may others who
/// ask the same history.
pub fn router(history: Arc<dyn History>, queries: Arc<Semaphore>, view: Arc<dyn CollectorView>) -> Router {
    let limits = Limits::default();
    let vitals: Arc<dyn Vitals> = Arc::clone(&view) as _;
    Router::new()
        .route("/stats", get(stats))
        .route("/telemetry/{gpu}", get(telemetry))
        .merge(vitals::routes(vitals))
        .fallback(nothing)
        .with_state(Arc::new(CollectorApi { history, view, limits, queries, started: Instant::now() }))
}

#[derive(Serialize)]
struct StatsAnswer {
    /// Rows made durable since the start.
    total_processed: u64,
    /// GPUs that have rows.
    active_gpus: usize,
    /// Rows in files. Nobody counts the lines of JSON files or the rows of a database: there, those made durable since the start,
    /// as `total_processed`.
    file_entries: u64,
    /// Rows in memory. With the store those that are not in files yet, and the newest of each GPU of those that are; with JSON
    /// lines alone the newest of each GPU; with a database the latest values, which count as a row a GPU, as `active_gpus`.
    cache_entries: u64,
    uptime_seconds: u64,
}

async fn stats(Shared(api): Shared<Arc<CollectorApi>>) -> Result<Response, ApiError> {
    let fleet = api.history.fleet().await?;
    let stats = api.history.stats();
    let (stored, gpus) = (api.view.rows_stored(), fleet.answer.gpus.len());
    let answer = StatsAnswer {
        total_processed: stored,
        active_gpus: gpus,
        file_entries: stats.rows_on_disk.unwrap_or(stored),
        cache_entries: stats.rows_in_memory.unwrap_or(gpus as u64),
        uptime_seconds: api.started.elapsed().as_secs(),
    };
    Ok(ask::with_partial(fresh(StatusCode::OK, &answer)?, ask::partial(&fleet.missing)))
}

/// Which rows of a GPU.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RowsWanted {
    limit: Option<Limit>,
    reverse: Option<Flag>,
}

#[derive(Serialize)]
struct Row<'a> {
    gpu_id: Cow<'a, str>,
    metrics: RowMetrics<'a>,
    timestamp: Moment,
}

async fn telemetry(
    Shared(api): Shared<Arc<CollectorApi>>,
    Named(gpu): Named,
    Asked(wanted): Asked<RowsWanted>,
) -> Result<Response, ApiError> {
    let limit = Limit::read(wanted.limit.as_ref(), &api.limits)?;
    let oldest_first = Flag::read("reverse", wanted.reverse.as_ref())?;
    let Part { answer: fleet, missing } = api.history.fleet().await?;
    let key = match fleet.find(&gpu) {
        Ok(state) => Arc::clone(&state.key),
        Err(NoGpu::Unknown) if missing.is_empty() => {
            let text = "no GPU of this name has rows here";
            return Ok(refuse(StatusCode::NOT_FOUND, ErrorCode::UnknownGpu, text));
        }
        Err(why) => return Err(ApiError::no_gpu(&gpu, why, &missing)),
    };
    let permit = Arc::clone(&api.queries).acquire_owned().await.map_err(|_| ApiError::Overloaded)?;
    let of_table = RowsQuery::of(Table::GpuEvents, limit);
    let query = RowsQuery { gpus: vec![key], newest_first: !oldest_first, ..of_table };
    let mut rows = api.history.rows(query).await?;
    rows.missing = ask::joined(missing, rows.missing);
    let rendered = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        render(&rows)
    });
    rendered.await.unwrap_or(Err(ApiError::Crashed))
}

fn render(Part { answer: rows, missing }: &Part<Rows>) -> Result<Response, ApiError> {
    if !missing.is_empty() {
        tracing::warn!(words = missing.join("; "), "rows were left out of an answer");
    }
    let found = rows.batch.as_ref().and_then(|batch| GpuRows::of(batch, None));
    let list: Vec<Row<'_>> = found
        .iter()
        .flat_map(GpuRows::entries)
        .map(|entry| Row { gpu_id: entry.gpu_id, metrics: entry.metrics, timestamp: entry.timestamp })
        .collect();
    Ok(ask::with_partial(fresh(StatusCode::OK, &list)?, ask::partial(missing)))
}

async fn nothing(uri: Uri) -> Response {
    let words = format!(
        "there is nothing at {:?}; a collector answers /health, /healthz, /readyz, /stats, /metrics and \
         /telemetry/{{gpu}}",
        echo(uri.path())
    );
    refuse(StatusCode::NOT_FOUND, ErrorCode::NotFound, &words)
}
