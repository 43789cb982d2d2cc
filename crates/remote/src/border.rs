//! Questions as messages and back. What a message says is checked here: whoever sent it hears which field is wrong.

use std::sync::Arc;

use gpuvitals_core::catalogue::by_column;
use gpuvitals_core::history::{
    Aggregate, BucketQuery, FleetBounds, GroupColumn, MATCHERS_MAX, Matcher, PatternRoom, QueryError,
    RowPlace, RowsQuery, Selector, TextTest, TooManyMatchers,
};
use gpuvitals_core::usage::{HOLDER_COLUMNS, ToldApart, UseDetail, UseQuery};
use gpuvitals_core::{IdentityColumn, MetricId, Table, causes};
use tokio_util::task::AbortOnDropHandle;
use tonic::Status;

use crate::limits::PAGE_END_MAX;
use crate::v1::matcher::Test;
use crate::{refusal, v1};

/// Most entries of one list of a question.
const LIST_LEN_MAX: usize = 100_000;

fn wrong(field: &str, what: &str) -> Status {
    Status::invalid_argument(format!("{field}: {what}"))
}

pub(crate) fn table(name: &str) -> Result<Table, Status> {
    Table::by_name(name).ok_or_else(|| wrong("table", &format!("no table is called {name:?}")))
}

pub(crate) fn names(field: &str, names: Vec<String>) -> Result<Vec<Arc<str>>, Status> {
    if names.len() > LIST_LEN_MAX {
        return Err(wrong(field, &format!("{} entries are more than {LIST_LEN_MAX}", names.len())));
    }
    Ok(names.into_iter().map(Arc::from).collect())
}

fn whole(field: &str, number: u64) -> Result<usize, Status> {
    usize::try_from(number).map_err(|_| wrong(field, "too large"))
}

/// Reads a question, whose regular expressions are compiled, on a thread for blocking work.
///
/// # Errors
/// Those of `read`.
pub(crate) async fn reading<T: Send + 'static, U: Send + 'static>(
    request: T,
    read: fn(T) -> Result<U, Status>,
) -> Result<U, Status> {
    // Nothing is compiled for a question that was given up while it waited for a thread.
    let job = AbortOnDropHandle::new(tokio::task::spawn_blocking(move || read(request)));
    job.await.map_err(|_| Status::internal("the question could not be read"))?
}

pub(crate) fn selector(matchers: Vec<v1::Matcher>) -> Result<Selector, Status> {
    let too_many = |error: TooManyMatchers| wrong("selector", &error.to_string());
    if matchers.len() > MATCHERS_MAX {
        return Err(too_many(TooManyMatchers(matchers.len())));
    }
    let mut room = PatternRoom::default();
    let matcher = |matcher: v1::Matcher| {
        let column = IdentityColumn::by_name(&matcher.column);
        let column = column.ok_or_else(|| {
            wrong("selector.column", &format!("{:?} is no identity column", matcher.column))
        })?;
        let test = matcher.test();
        let mut pattern = || match matcher.texts.as_slice() {
            [pattern] => room.pattern(pattern).map_err(|error| wrong("selector.texts", &causes(&error))),
            _ => Err(wrong("selector.texts", "one pattern is expected")),
        };
        let test = match test {
            Test::Unspecified => return Err(wrong("selector.test", "missing")),
            Test::Is => TextTest::Is(names("selector.texts", matcher.texts)?),
            Test::IsNot => TextTest::IsNot(names("selector.texts", matcher.texts)?),
            Test::Matches => TextTest::Matches(pattern()?),
            Test::MatchesNot => TextTest::MatchesNot(pattern()?),
        };
        Ok(Matcher { column, test })
    };
    let matchers = matchers.into_iter().map(matcher).collect::<Result<_, _>>()?;
    Selector::new(matchers).map_err(too_many)
}

pub(crate) fn matchers(selector: &Selector) -> Vec<v1::Matcher> {
    let texts = |texts: &[Arc<str>]| texts.iter().map(ToString::to_string).collect();
    let matcher = |matcher: &Matcher| {
        let (test, texts) = match &matcher.test {
            TextTest::Is(all) => (Test::Is, texts(all)),
            TextTest::IsNot(all) => (Test::IsNot, texts(all)),
            TextTest::Matches(pattern) => (Test::Matches, vec![pattern.text().to_owned()]),
            TextTest::MatchesNot(pattern) => (Test::MatchesNot, vec![pattern.text().to_owned()]),
        };
        v1::Matcher { column: matcher.column.name().to_owned(), test: test.into(), texts }
    };
    selector.matchers().iter().map(matcher).collect()
}

/// # Errors
/// If there are too many rows up to the end of a page.
pub(crate) fn check_page_end(rows: usize) -> Result<(), QueryError> {
    if rows > PAGE_END_MAX {
        return Err(QueryError::TooManyRows { rows: rows as u64, max: PAGE_END_MAX as u64 });
    }
    Ok(())
}

pub(crate) fn rows_query(request: v1::RowsRequest) -> Result<RowsQuery, Status> {
    let after =
        request.after.map(|v1::RowPlace { timestamp_ns, key }| RowPlace { timestamp_ns, key: key.into() });
    let limit = whole("limit", request.limit)?;
    check_page_end(limit).map_err(|error| refusal::status(&error))?;
    Ok(RowsQuery {
        table: table(&request.table)?,
        gpus: names("gpus", request.gpus)?,
        selector: selector(request.selector)?,
        start_ns: request.start_ns,
        end_ns: request.end_ns,
        metrics: request.metrics.map(|columns| columns.names),
        limit,
        after,
        offset: whole("offset", request.offset)?,
        newest_first: request.newest_first,
        with_total: request.with_total,
        days_within: None,
    })
}

pub(crate) fn rows_request(query: RowsQuery) -> v1::RowsRequest {
    let after =
        query.after.map(|RowPlace { timestamp_ns, key }| v1::RowPlace { timestamp_ns, key: key.to_string() });
    v1::RowsRequest {
        table: query.table.name().to_owned(),
        gpus: query.gpus.iter().map(ToString::to_string).collect(),
        selector: matchers(&query.selector),
        start_ns: query.start_ns,
        end_ns: query.end_ns,
        metrics: query.metrics.map(|names| v1::Columns { names }),
        limit: query.limit as u64,
        after,
        offset: query.offset as u64,
        newest_first: query.newest_first,
        with_total: query.with_total,
    }
}

pub(crate) fn use_query(request: v1::UsageRequest) -> Result<UseQuery, Status> {
    let v1::UsageRequest { start_ns, end_ns, step_ns, gpus, told_apart, times_only } = request;
    let column = |name: &String| {
        let column = IdentityColumn::by_name(name).filter(|column| HOLDER_COLUMNS.contains(column));
        column.ok_or_else(|| wrong("told_apart", &format!("no column of holders is called {name:?}")))
    };
    let columns = told_apart.iter().map(column).collect::<Result<Vec<_>, _>>()?;
    let told_apart = if columns.is_empty() { ToldApart::ALL } else { ToldApart::by(columns) };
    let detail = if times_only { UseDetail::Times } else { UseDetail::Sums };
    Ok(UseQuery { gpus: names("gpus", gpus)?, start_ns, end_ns, step_ns, told_apart, detail })
}

pub(crate) fn usage_request(query: &UseQuery) -> v1::UsageRequest {
    let UseQuery { start_ns, end_ns, step_ns, told_apart, detail, .. } = *query;
    let gpus = query.gpus.iter().map(ToString::to_string).collect();
    let told_apart = told_apart.columns().map(|column| column.name().to_owned()).collect();
    let times_only = detail == UseDetail::Times;
    v1::UsageRequest { start_ns, end_ns, step_ns, gpus, told_apart, times_only }
}

pub(crate) fn bucket_query(request: v1::BucketsRequest) -> Result<BucketQuery, Status> {
    let metric = |name: String| -> Result<MetricId, Status> {
        by_column(&name).ok_or_else(|| wrong("metrics", &format!("no metric is called {name:?}")))
    };
    let aggregate = |name: String| {
        Aggregate::by_name(&name)
            .ok_or_else(|| wrong("aggregates", &format!("no aggregate is called {name:?}")))
    };
    let column = |name: String| {
        GroupColumn::by_name(&name)
            .ok_or_else(|| wrong("group_by", &format!("{name:?} is no column of groups")))
    };
    Ok(BucketQuery {
        table: table(&request.table)?,
        gpus: names("gpus", request.gpus)?,
        selector: selector(request.selector)?,
        metrics: request.metrics.into_iter().map(metric).collect::<Result<_, _>>()?,
        start_ns: request.start_ns,
        end_ns: request.end_ns,
        step_ns: request.step_ns,
        phase_ns: request.phase_ns,
        aggregates: request.aggregates.into_iter().map(aggregate).collect::<Result<_, _>>()?,
        group_by: request.group_by.into_iter().map(column).collect::<Result<_, _>>()?,
    })
}

pub(crate) fn buckets_request(query: &BucketQuery) -> v1::BucketsRequest {
    v1::BucketsRequest {
        table: query.table.name().to_owned(),
        gpus: query.gpus.iter().map(ToString::to_string).collect(),
        selector: matchers(&query.selector),
        metrics: query.metrics.iter().map(|metric| metric.metric().column.to_owned()).collect(),
        start_ns: query.start_ns,
        end_ns: query.end_ns,
        step_ns: query.step_ns,
        phase_ns: query.phase_ns,
        aggregates: query.aggregates.iter().map(|aggregate| aggregate.name().into_owned()).collect(),
        group_by: query.group_by.iter().map(|column| column.name().to_owned()).collect(),
    }
}

/// What a fleet lacks from which GPUs had to leave.
pub(crate) fn too_many(bounds: FleetBounds, forgotten: u64) -> Option<String> {
    let most = bounds.gpus_max;
    (forgotten > 0).then(|| {
        format!("there are more than {most} GPUs (collector.gpus_max); the longest silent are left out")
    })
}

/// Works on a thread for blocking work.
pub(crate) async fn work<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, QueryError> + Send + 'static,
) -> Result<T, QueryError> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(QueryError::failed(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_counted_before_they_are_compiled_and_share_a_bound() {
        let matcher = |pattern: &str| v1::Matcher {
            column: "pod".to_owned(),
            test: Test::Matches.into(),
            texts: vec![pattern.to_owned()],
        };
        let refused = |matchers: Vec<v1::Matcher>| selector(matchers).unwrap_err().message().to_owned();
        // The first of them would be refused if it was compiled.
        assert!(refused(vec![matcher("("); MATCHERS_MAX + 1]).contains("33 tests"));
        let large = refused(vec![matcher(".{0,300}"); MATCHERS_MAX]);
        assert!(large.contains("together"), "{large}");
        assert_eq!(selector(vec![matcher("train-.*"); MATCHERS_MAX]).unwrap().matchers().len(), MATCHERS_MAX);
    }
}
