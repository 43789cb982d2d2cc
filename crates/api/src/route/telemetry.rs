//! Rows of one GPU or several.

use std::collections::HashSet;
use std::sync::Arc;

use arrow_array::RecordBatch;
use axum::extract::State as Shared;
use axum::http::HeaderMap;
use gpuvitals_core::history::{Fleet, GpuState, History, Part, QueryError, RowPlace, Rows, RowsQuery};
use gpuvitals_core::{IdentityColumn, Table};
use serde::Deserialize;
use utoipa::IntoParams;

use super::answered::Answered;
use super::rows::GpuRows;
use crate::answers;
use crate::api::Api;
use crate::ask::{self, Ask, Body, Rendered, View};
use crate::asked::{Columns, Cursor, Flag, FormatName, GpuTable, Instant, Limit, Offset, TableName, Where};
use crate::config::Limits;
use crate::cursor;
use crate::dto::{Pagination, TelemetryList};
use crate::error::{ApiError, ErrorBody};
use crate::format::{Format, NextPage, TablePage};
use crate::parameter::{self, Asked, Named};
use crate::selector::{self, Tests};

/// Makes the parameters of a question for rows: which tables may be named, and what else comes before those of all.
macro_rules! rows_params {
    ($(#[$doc:meta])+ $name:ident { table: $table:ident, $($(#[$of:meta])+ $gpus:ident: $list:ty,)? }) => {
        $(#[$doc])+
        #[derive(Debug, Deserialize, IntoParams)]
        #[serde(deny_unknown_fields)]
        #[into_params(parameter_in = Query)]
        pub(crate) struct $name {
            /// The table of the rows, see `/api/v1/metrics` and the documentation of metrics.
            #[param(inline, example = "gpu_events")]
            table: Option<$table>,
            $($(#[$of])+ $gpus: Option<$list>,)?
            /// First instant, inclusive: RFC 3339, or seconds, milliseconds or nanoseconds since 1970.
            #[param(example = "2026-11-20T15:00:00Z")]
            start: Option<Instant>,
            /// Last instant, inclusive.
            #[param(example = "2026-11-20T16:00:00Z")]
            end: Option<Instant>,
            /// The older name of `start`, which counts where both are given.
            #[param(example = "2026-11-20T15:00:00Z")]
            start_time: Option<Instant>,
            /// The older name of `end`, which counts where both are given.
            #[param(example = "2026-11-20T16:00:00Z")]
            end_time: Option<Instant>,
            /// Most rows to return.
            #[param(inline)]
            limit: Option<Limit>,
            /// Rows to pass over, in the order asked.
            #[param(inline)]
            offset: Option<Offset>,
            /// Only rows behind this place: `next` of the answer before. It is the way through many rows: a time in nanoseconds, `_`, and
            /// a text in UTF-8 as hexadecimal bytes.
            #[param(inline, example = "1795190390000000000_4750552d61")]
            after: Option<Cursor>,
            /// Only rows whose identity passes these tests, between semicolons: `column=value,value`, `column!=value,value`,
            /// `column=~pattern`, `column!~pattern`. A row without a text in the column has the empty one.
            #[serde(rename = "where")]
            #[param(rename = "where", inline, example = "namespace=research;pod=~train-.*")]
            selector: Option<Where>,
            /// Of `gpu_health_events` only rows of these kinds, between commas. Rows of other tables have none.
            #[param(example = "finding_opened,finding_closed")]
            kind: Option<String>,
            /// Columns wanted, between commas; all without it. Rows without a value in any of them are kept.
            #[param(inline, example = "power_w,utilization_pct")]
            metrics: Option<Columns>,
            /// Oldest first; newest first without it.
            #[param(inline)]
            reverse: Option<Flag>,
            /// `json`, `csv` or `arrow`; without it what `Accept` prefers.
            #[param(inline, example = "csv")]
            format: Option<FormatName>,
        }

        impl $name {
            /// The question for rows of all GPUs.
            ///
            /// # Errors
            /// If a parameter is not allowed.
            fn ask(&self, limits: &Limits, headers: &HeaderMap) -> Result<TelemetryAsk, ApiError> {
                let start_ns = Instant::either(
                    ("start", self.start.as_ref()),
                    ("start_time", self.start_time.as_ref()),
                )?;
                let end_ns =
                    Instant::either(("end", self.end.as_ref()), ("end_time", self.end_time.as_ref()))?;
                if start_ns.zip(end_ns).is_some_and(|(start, end)| end < start) {
                    return Err(ApiError::EndBeforeStart);
                }
                let table = $table::read(self.table.as_ref())?;
                Ok(TelemetryAsk {
                    table,
                    gpus: Vec::new(),
                    start_ns,
                    end_ns,
                    limit: Limit::read(self.limit.as_ref(), limits)?,
                    offset: Offset::read(self.offset.as_ref())?,
                    after: cursor::read(self.after.as_ref())?,
                    tests: Tests::parse(self.selector.as_ref())?,
                    kinds: parameter::list("kind", self.kind.as_ref())?,
                    metrics: Columns::read(table, self.metrics.as_ref())?,
                    oldest_first: Flag::read("reverse", self.reverse.as_ref())?,
                    format: Format::asked(self.format.as_ref(), headers)?,
                })
            }
        }
    };
}

rows_params! {
    /// Which rows of a GPU.
    GpuTelemetryParams {
        table: GpuTable,
    }
}

rows_params! {
    /// Which rows of which GPUs.
    TelemetryParams {
        table: TableName,
        /// Ids or other names of the GPUs, between commas; of `system_events` names of hosts. All without it.
        #[param(example = "GPU-5c1d0a44-9f0e-4d53-8f0a-0d1c6c5a7e21")]
        gpus: String,
    }
}

/// A question for rows.
#[derive(Debug)]
pub(crate) struct TelemetryAsk {
    table: Table,
    gpus: Vec<Arc<str>>,
    start_ns: Option<i64>,
    end_ns: Option<i64>,
    tests: Tests,
    kinds: Vec<Arc<str>>,
    limit: usize,
    offset: usize,
    after: Option<RowPlace>,
    metrics: Option<Vec<String>>,
    oldest_first: bool,
    format: Format,
}

/// The rows of a GPU, newest first.
#[utoipa::path(
    get, path = "/api/v1/gpus/{id}/telemetry", tag = "telemetry", operation_id = "get_gpu_telemetry",
    params(("id" = String, Path, description = "The GPU's id, as for `/api/v1/gpus/{id}`.", example = "GPU-5c1d0a44-9f0e-4d53-8f0a-0d1c6c5a7e21"), GpuTelemetryParams),
    responses(
        (status = 200, description = "Its rows; as CSV or Arrow the header `x-next` says what to give as `after`.",
         content((TelemetryList<'static> = "application/json"), (String = "text/csv"), (String = "application/vnd.apache.arrow.stream")),
         headers(("x-partial" = Option<String>, description = "What could not be read; missing if the answer is whole."))),
        (status = 400, description = "A parameter is not allowed.", body = ErrorBody),
        (status = 404, description = "No such GPU, or such rows are not kept.", body = ErrorBody),
        (status = 503, description = "Too busy, or a name may be in what could not be read (code `incomplete`); try again.", body = ErrorBody),
    )
)]
pub(crate) async fn of_one(
    Shared(api): Shared<Api>,
    Named(id): Named,
    headers: HeaderMap,
    Asked(params): Asked<GpuTelemetryParams>,
) -> Answered {
    let mut ask = params.ask(&api.config().limits, &headers)?;
    ask.gpus = vec![Arc::from(id)];
    api.answer(ask, &headers).await
}

/// The rows of several GPUs, newest first.
#[utoipa::path(
    get, path = "/api/v1/telemetry", tag = "telemetry", operation_id = "list_telemetry", params(TelemetryParams),
    responses(
        (status = 200, description = "Their rows, by time, then by GPU; as CSV or Arrow the header `x-next` says what to give as `after`.",
         content((TelemetryList<'static> = "application/json"), (String = "text/csv"), (String = "application/vnd.apache.arrow.stream")),
         headers(("x-partial" = Option<String>, description = "What could not be read; missing if the answer is whole."))),
        (status = 400, description = "A parameter is not allowed.", body = ErrorBody),
        (status = 404, description = "One of the GPUs or hosts is unknown, or such rows are not kept.", body = ErrorBody),
        (status = 503, description = "Too busy, or a name may be in what could not be read (code `incomplete`); try again.", body = ErrorBody),
    )
)]
pub(crate) async fn of_several(
    Shared(api): Shared<Api>,
    headers: HeaderMap,
    Asked(params): Asked<TelemetryParams>,
) -> Answered {
    let mut ask = params.ask(&api.config().limits, &headers)?;
    ask.gpus = parameter::list("gpus", params.gpus.as_ref())?;
    api.answer(ask, &headers).await
}

impl Ask for TelemetryAsk {
    async fn answer(self, view: View) -> Result<Rendered, ApiError> {
        let fleet = view.history.fleet().await?;
        parameter::known_columns(self.table, self.metrics.as_deref(), &fleet)?;
        let selector = self.tests.selector().await?;
        let mut hosts = selector::named_hosts(&selector);
        let query = RowsQuery {
            table: self.table,
            gpus: match self.table.subject() {
                IdentityColumn::Node => self.gpus.clone(),
                _ => keys(&fleet, &self.gpus)?,
            },
            selector,
            start_ns: self.start_ns,
            end_ns: self.end_ns,
            // One more than shown: whether there is a next page.
            limit: self.limit.saturating_add(1),
            after: self.after.clone(),
            offset: self.offset,
            metrics: self.read_columns(),
            newest_first: !self.oldest_first,
            with_total: self.after.is_none(),
            days_within: None,
        };
        let (rows, more) = if self.kinds.is_empty() {
            (view.history.rows(query).await?, None)
        } else {
            answers::rows_of_kinds(view.history.as_ref(), &query, &self.kinds).await?
        };
        let Part { answer: rows, mut missing } = rows;
        missing.extend(more);
        if rows.batch.is_none() {
            if self.table.subject() == IdentityColumn::Node {
                hosts.extend_from_slice(&self.gpus);
            }
            hosts_with_rows(view.history.as_ref(), &fleet, &hosts, &missing).await?;
        }
        let missing = ask::joined(fleet.missing, missing);
        view.render(missing, move |_, partial| {
            if self.format != Format::Json {
                return self.table(&rows, partial);
            }
            let found = rows.batch.as_ref().and_then(|batch| GpuRows::of(batch, self.metrics.as_deref()));
            let has_next = rows.batch.as_ref().is_some_and(|batch| batch.rows() > self.limit);
            let last = self.limit.checked_sub(1).filter(|_| has_next);
            let list = TelemetryList {
                data: found.iter().flat_map(GpuRows::entries).take(self.limit).collect(),
                total: rows.total,
                pagination: Pagination { limit: self.limit, offset: self.offset, has_next },
                next: last.and_then(|last| rows.place(last)).map(|place| cursor::write(&place)),
                partial,
            };
            Body::until(i64::MAX, &list)
        })
        .await
    }
}

impl TelemetryAsk {
    /// The columns that are read: those that are wanted, and the one by which rows are chosen.
    fn read_columns(&self) -> Option<Vec<String>> {
        let mut columns = self.metrics.clone()?;
        if !self.kinds.is_empty() && columns.iter().all(|column| column != answers::KIND) {
            columns.push(answers::KIND.to_owned());
        }
        Some(columns)
    }

    /// The page as a table. Without a row it has no columns.
    fn table(&self, rows: &Rows, partial: &[String]) -> Result<Body, ApiError> {
        let mut found =
            rows.batch.as_ref().map(|batch| batch.records().slice(0, self.limit.min(batch.rows())));
        let has_unwanted = self.read_columns() != self.metrics;
        if let Some(records) = found.as_mut().filter(|_| has_unwanted)
            && let Ok(place) = records.schema().index_of(answers::KIND)
        {
            let _kind = records.remove_column(place);
        }
        let has_next = rows.batch.as_ref().is_some_and(|batch| batch.rows() > self.limit);
        let next = self.limit.checked_sub(1).filter(|_| has_next).and_then(|last| rows.place(last));
        let next = next.map(|place| NextPage {
            parameter: "after",
            value: cursor::write(&place),
            left: rows.total.map(|total| total.saturating_sub(self.offset.saturating_add(self.limit))),
        });
        let none = || RecordBatch::new_empty(Arc::new(arrow_schema::Schema::empty()));
        let records = &found.unwrap_or_else(none);
        Body::table(i64::MAX, self.format, &TablePage { records, next, partial })
    }
}

/// The keys of the GPUs that are asked for, each once.
///
/// # Errors
/// When one is unknown or ambiguous, or may be in what could not be read.
pub(crate) fn keys(fleet: &Part<Arc<Fleet>>, ids: &[Arc<str>]) -> Result<Vec<Arc<str>>, ApiError> {
    let mut keys = Vec::with_capacity(ids.len());
    for id in ids {
        let gpu = fleet.answer.find(id).map_err(|why| ApiError::no_gpu(id, why, &fleet.missing))?;
        keys.push(Arc::clone(&gpu.key));
    }
    keys.sort_unstable();
    keys.dedup();
    Ok(keys)
}

/// The keys of the GPUs that are asked for by name, by host, or by both, which these have in common; none if neither is given.
///
/// # Errors
/// When a name or host is unknown, or may be in what could not be read.
pub(crate) fn selected(
    fleet: &Part<Arc<Fleet>>,
    gpus: &[Arc<str>],
    hosts: &[Arc<str>],
) -> Result<Option<Vec<Arc<str>>>, ApiError> {
    let named = keys(fleet, gpus)?;
    if hosts.is_empty() {
        return Ok((!named.is_empty()).then_some(named));
    }
    known_hosts(fleet, hosts)?;
    let hosts: HashSet<&str> = hosts.iter().map(AsRef::as_ref).collect();
    let is_there = |gpu: &&Arc<GpuState>| gpu.identity.node().is_some_and(|node| hosts.contains(node));
    let on_hosts = fleet.answer.gpus.iter().filter(is_there).map(|gpu| &gpu.key);
    let wanted = on_hosts.filter(|key| gpus.is_empty() || named.binary_search(key).is_ok());
    Ok(Some(wanted.cloned().collect()))
}

/// Checks that each of these hosts has, or had, a GPU or rows of its own. `missing` is what could not be read of these rows.
///
/// # Errors
/// When one is unknown, or may be in what could not be read.
pub(crate) async fn hosts_with_rows(
    history: &dyn History,
    fleet: &Part<Arc<Fleet>>,
    hosts: &[Arc<str>],
    missing: &[String],
) -> Result<(), ApiError> {
    for host in hosts {
        let unknown = known_hosts(fleet, std::slice::from_ref(host));
        if unknown.is_ok() {
            continue;
        }
        let any = RowsQuery {
            gpus: vec![Arc::clone(host)],
            metrics: Some(Vec::new()),
            newest_first: true,
            ..RowsQuery::of(Table::SystemEvents, 1)
        };
        let Part { answer, missing: more } = match history.rows(any).await {
            // Then hosts are known by their GPUs alone.
            Err(QueryError::NotKept { .. }) => return unknown,
            rows => rows?,
        };
        if answer.batch.is_some() {
            continue;
        }
        let unread = [missing, &more].concat();
        return if unread.is_empty() { unknown } else { Err(ApiError::no_host(host, &unread)) };
    }
    Ok(())
}

/// Checks that each of these hosts has, or had, a GPU.
///
/// # Errors
/// When one is unknown, or may be in what could not be read.
pub(crate) fn known_hosts(fleet: &Part<Arc<Fleet>>, hosts: &[Arc<str>]) -> Result<(), ApiError> {
    let is_known = |host: &str| fleet.answer.gpus.iter().any(|gpu| gpu.identity.node() == Some(host));
    let unknown = hosts.iter().find(|host| !is_known(host));
    unknown.map_or(Ok(()), |host| Err(ApiError::no_host(host, &fleet.missing)))
}
