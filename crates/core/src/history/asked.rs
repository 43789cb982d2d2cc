//! A history answers questions, of which some are put in pages.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::buckets::Buckets;
use super::error::QueryError;
use super::fleet::Fleet;
use super::part::{Answered, Changes, Part};
use super::query::{BucketQuery, Rows, RowsQuery};
use super::selector::{Matcher, Selector, TextTest};
use super::steps::TimeSteps;
use super::sweep::{SWEPT_ROWS_MAX, TakeRows, ThreadSums, too_many_rows};
use crate::usage::{
    BatchJobs, GpuUse, HOLDINGS_MAX, Holdings, HoldingsQuery, JobSteps, JobText, JobTexts, RowsOfUse,
    USES_MAX, Usage, UseQuery, hour_of, use_columns,
};
use crate::{Batch, Health, IdentityColumn, Table};

/// Rows of a page that a history is asked for.
pub(super) const PAGE_ROWS: usize = 20_000;
/// Rows of a page that is one of very many: each costs a look at the keys of others.
const SWEPT_PAGE_ROWS: usize = 100_000;
/// Most jobs of which a text is held: two months of 50,000 a day. Each that has a number takes fifty bytes.
const JOBS_MAX: usize = 3_000_000;

/// Kept rows, to be asked. Answers take no thread of the caller's runtime, and every history bounds how many it works on
/// at a time. Dropping an answer before it is there ends the work on it soon.
pub trait History: Send + Sync + fmt::Debug {
    /// Changes with every visible change: the same question has the same answer until then.
    fn version(&self) -> u64;

    /// Latest state of all GPUs.
    fn fleet(&self) -> Answered<'_, Arc<Fleet>>;

    /// Rows of a range of time, a page at a time.
    fn rows(&self, query: RowsQuery) -> Answered<'_, Rows>;

    /// Gives all rows that a question is about to `take`, each once, in no order. The question's page, limit and order do not count.
    /// A history that gives them page by page refuses a question for more than [`SWEPT_ROWS_MAX`].
    fn sweep(&self, query: RowsQuery, take: TakeRows) -> Answered<'_, ()> {
        Box::pin(sweep_by_pages(self, query, take))
    }

    /// Values by steps of time.
    fn buckets(&self, query: BucketQuery) -> Answered<'_, Buckets>;

    /// The use of each GPU by each of its holders, and in each step if steps are asked for: by GPU, holder and step. A history that keeps no sums adds up rows.
    fn usage(&self, query: UseQuery) -> Answered<'_, Vec<GpuUse>> {
        Box::pin(use_of_history(self, query))
    }

    /// Rows as they become visible, from now on.
    fn changes(&self) -> Box<dyn Changes>;

    /// How it does.
    fn health(&self) -> Health;

    /// Counts and sizes.
    fn stats(&self) -> HistoryStats;
}

/// Counts and sizes of a history.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HistoryStats {
    /// Rows on a disk, if it counts them.
    pub rows_on_disk: Option<u64>,
    /// Rows in memory, if it counts them; some may be on a disk as well.
    pub rows_in_memory: Option<u64>,
    /// Everything that it counts, under names of its own: a JSON object.
    pub own: serde_json::Value,
}

/// Takes all rows that a question is about, in the order of time, so many a page, and says what is missing; none if there are more rows
/// than so many. The question's page, offset and limit do not count.
///
/// # Errors
/// When the history gives no rows, or `take` refuses some.
pub(crate) async fn each_page(
    history: &(impl History + ?Sized),
    query: &RowsQuery,
    (page_rows, rows_max): (usize, usize),
    mut take: impl FnMut(&Batch) -> Result<(), QueryError>,
) -> Result<Option<Vec<String>>, QueryError> {
    let (mut after, mut read, mut missing) = (None, 0_usize, BTreeSet::new());
    let all = RowsQuery { offset: 0, with_total: false, ..query.clone() };
    loop {
        let page = RowsQuery { after: after.take(), limit: page_rows, ..all.clone() };
        let Part { answer: rows, missing: unread } = history.rows(page).await?;
        missing.extend(unread);
        after = rows.end();
        let found = rows.batch.as_ref().map_or(0, Batch::rows);
        read = read.saturating_add(found);
        if read > rows_max {
            return Ok(None);
        }
        rows.batch.iter().try_for_each(&mut take)?;
        if found < page_rows {
            return Ok(Some(missing.into_iter().collect()));
        }
    }
}

/// The rows of a history that reads them page by page.
///
/// # Errors
/// When there are more than [`SWEPT_ROWS_MAX`], the history gives none, or `take` refuses some.
async fn sweep_by_pages(
    history: &(impl History + ?Sized),
    query: RowsQuery,
    take: TakeRows,
) -> Result<Part<()>, QueryError> {
    let taking = each_page(history, &query, (SWEPT_PAGE_ROWS, SWEPT_ROWS_MAX), |batch| take(batch));
    let missing = taking.await?.ok_or_else(too_many_rows)?;
    Ok(Part { answer: (), missing })
}

/// The use of GPUs, from the rows of a history that has no sums of them.
///
/// # Errors
/// When the history gives no rows.
pub async fn use_of_history(
    history: &(impl History + ?Sized),
    query: UseQuery,
) -> Result<Part<Vec<GpuUse>>, QueryError> {
    let uses = use_of_rows(history, query, usize::MAX).await?;
    Ok(uses.unwrap_or_default())
}

/// The use of GPUs, from the rows of a history, page by page; none if there are more rows than so many.
///
/// # Errors
/// When the history gives no rows.
pub async fn use_of_rows(
    history: &(impl History + ?Sized),
    query: UseQuery,
    rows_max: usize,
) -> Result<Option<Part<Vec<GpuUse>>>, QueryError> {
    check_use(&query)?;
    let (mut usage, mut rows_of_use) = (Usage::of(&query), RowsOfUse::default());
    let columns = use_columns().filter(|_| !query.is_of_times());
    let rows = RowsQuery {
        metrics: Some(columns.map(str::to_owned).collect()),
        gpus: query.gpus,
        start_ns: Some(query.start_ns),
        end_ns: Some(query.end_ns),
        ..RowsQuery::of(Table::GpuEvents, 0)
    };
    let taking = each_page(history, &rows, (PAGE_ROWS, rows_max), |batch| {
        rows_of_use.add(&mut usage, batch.records()).map_err(QueryError::failed)?;
        check_uses(&usage)
    });
    let missing = taking.await?;
    Ok(missing.map(|missing| Part { answer: usage.finish(), missing }))
}

/// What holders used in a range, by the rows of `gpu_usage`: sums, to which more can be added. With `told` holders are put together by what
/// is told of jobs.
///
/// # Errors
/// When the range has no length, there are more groups than [`HOLDINGS_MAX`], or the history gives no rows.
pub(super) async fn sums_of_holders(
    history: &(impl History + ?Sized),
    query: HoldingsQuery,
    told: Option<Arc<JobTexts>>,
) -> Result<Part<Holdings>, QueryError> {
    check_use(&UseQuery::of(query.start_ns, query.end_ns))?;
    let mut held = Holdings::of(&query, told.as_ref());
    let (from_ns, until_ns) = held.rows_ns();
    let of_holder = query.holding_text().map(|(column, text)| {
        let test = TextTest::Is(vec![Arc::from(text)]);
        Matcher { column, test }
    });
    let is_selected = of_holder.is_some();
    let rows = RowsQuery {
        selector: Selector::new(of_holder.into_iter().collect()).map_err(QueryError::failed)?,
        gpus: query.gpus.clone(),
        start_ns: Some(from_ns),
        end_ns: Some(until_ns),
        metrics: Some(Holdings::columns().map(str::to_owned).collect()),
        // An hour is whole where the range goes on to its end.
        days_within: Some((query.start_ns, query.end_ns.saturating_sub(1))),
        ..RowsQuery::of(Table::GpuUsage, 0)
    };
    let columns = rows.metrics.clone();
    let sums = Arc::new(ThreadSums::default());
    let begin = move || Holdings::of(&query, told.as_ref());
    let groups = AtomicUsize::new(0);
    let take = ThreadSums::taking(&sums, begin, move |held: &mut Holdings, batch| {
        let before = held.groups();
        held.add(batch);
        // Several threads may have the same group.
        check_groups(added(&groups, held.groups().saturating_sub(before)), 2 * HOLDINGS_MAX)
    });
    let Part { mut missing, .. } = history.sweep(rows, take).await?;
    let mut sums = sums.all().into_iter();
    held = sums.next().unwrap_or(held);
    sums.for_each(|some| held.and(some));
    check_groups(held.groups(), HOLDINGS_MAX)?;
    let (gpus, (from_ns, until_ns)) = held.last_rows();
    // Without a selector all rows were read.
    if is_selected && !gpus.is_empty() {
        let (start_ns, end_ns) = (Some(from_ns), Some(until_ns));
        let rows =
            RowsQuery { gpus, start_ns, end_ns, metrics: columns, ..RowsQuery::of(Table::GpuUsage, 0) };
        let taking = each_page(history, &rows, (PAGE_ROWS, SWEPT_ROWS_MAX), |batch| {
            held.add_last(batch);
            Ok(())
        });
        missing.extend(taking.await?.ok_or_else(too_many_rows)?);
        missing.sort_unstable();
        missing.dedup();
    }
    Ok(Part { answer: held, missing })
}

pub(super) fn check_groups(groups: usize, max: usize) -> Result<(), QueryError> {
    let is_too_much = groups > max;
    if is_too_much { Err(QueryError::TooManyPoints { max: HOLDINGS_MAX as u64 }) } else { Ok(()) }
}

/// A count with so many more.
fn added(count: &AtomicUsize, more: usize) -> usize {
    count.fetch_add(more, Ordering::Relaxed).saturating_add(more)
}

/// One text of each batch job of a range, by the rows of `jobs`. A history that keeps no such rows has none.
///
/// # Errors
/// When there are more jobs than are held, or the history gives no rows.
pub async fn job_texts(
    history: &(impl History + ?Sized),
    text: JobText,
    (start_ns, end_ns): (i64, i64),
) -> Result<Part<JobTexts>, QueryError> {
    let rows = RowsQuery {
        // Rows have the start of their hour.
        start_ns: Some(hour_of(start_ns)),
        end_ns: Some(end_ns),
        metrics: Some(JobTexts::columns(&text).into_iter().map(str::to_owned).collect()),
        ..RowsQuery::of(Table::Jobs, 0)
    };
    let mut texts = JobTexts::of(text.clone());
    let found = Arc::new(ThreadSums::default());
    let begin = move || JobTexts::of(text.clone());
    let jobs = AtomicUsize::new(0);
    let take = ThreadSums::taking(&found, begin, move |texts: &mut JobTexts, batch| {
        let before = texts.jobs();
        texts.add(batch);
        let is_too_much = added(&jobs, texts.jobs().saturating_sub(before)) > JOBS_MAX;
        if is_too_much { Err(QueryError::TooManyValues { max: JOBS_MAX as u64 }) } else { Ok(()) }
    });
    let missing = match history.sweep(rows, take).await {
        Err(QueryError::NotKept { .. }) => Vec::new(),
        swept => swept?.missing,
    };
    let mut found = found.all().into_iter();
    texts = found.next().unwrap_or(texts);
    found.for_each(|some| texts.and(some));
    Ok(Part { answer: texts, missing })
}

/// What is known of batch jobs by the rows of `jobs` in a range of time: of those with these numbers, without any of all. A history that
/// keeps no such rows knows nothing.
///
/// # Errors
/// When there are more rows about whole jobs than so many, those about steps not counted, or the history gives none.
pub async fn batch_jobs(
    history: &(impl History + ?Sized),
    ids: Vec<Arc<str>>,
    range: (i64, i64),
    rows_max: usize,
) -> Result<Part<BatchJobs>, QueryError> {
    let rows = rows_of_jobs(ids, range, BatchJobs::columns())?;
    told(history, rows, rows_max, BatchJobs::add).await
}

/// What is known of the steps of the batch job of this number by the rows of `jobs` in a range of time. A history that keeps no such rows
/// knows nothing.
///
/// # Errors
/// When there are more rows about steps than so many, or the history gives none.
pub async fn job_steps(
    history: &(impl History + ?Sized),
    id: Arc<str>,
    range: (i64, i64),
    rows_max: usize,
) -> Result<Part<JobSteps>, QueryError> {
    let rows = rows_of_jobs(vec![id], range, JobSteps::columns())?;
    told(history, rows, rows_max, JobSteps::add).await
}

/// Asks for these columns of the rows about jobs with these numbers, without any about all.
fn rows_of_jobs(
    ids: Vec<Arc<str>>,
    (start_ns, end_ns): (i64, i64),
    columns: impl Iterator<Item = &'static str>,
) -> Result<RowsQuery, QueryError> {
    let of_ids =
        (!ids.is_empty()).then_some(Matcher { column: IdentityColumn::Job, test: TextTest::Is(ids) });
    Ok(RowsQuery {
        selector: Selector::new(of_ids.into_iter().collect()).map_err(QueryError::failed)?,
        // Rows have the start of their hour.
        start_ns: Some(hour_of(start_ns)),
        end_ns: Some(end_ns),
        metrics: Some(columns.map(str::to_owned).collect()),
        ..RowsQuery::of(Table::Jobs, 0)
    })
}

/// What rows tell together, as this adds them. So many are taken at most: it says how many of a batch it has taken.
async fn told<T: Default + Send + 'static>(
    history: &(impl History + ?Sized),
    rows: RowsQuery,
    rows_max: usize,
    add: fn(&mut T, &Batch) -> usize,
) -> Result<Part<T>, QueryError> {
    let joined = Arc::new(Mutex::new((T::default(), 0_usize)));
    let max = rows_max as u64;
    let of_all = Arc::clone(&joined);
    let take: TakeRows = Arc::new(move |batch: &Batch| {
        let mut of_all = of_all.lock().unwrap_or_else(PoisonError::into_inner);
        let (told, rows) = &mut *of_all;
        *rows = rows.saturating_add(add(told, batch));
        let is_too_much = *rows > rows_max;
        if is_too_much { Err(QueryError::TooManyRows { rows: max.saturating_add(1), max }) } else { Ok(()) }
    });
    let missing = match history.sweep(rows, take).await {
        Err(QueryError::NotKept { .. }) => Vec::new(),
        swept => swept?.missing,
    };
    let (answer, _) = std::mem::take(&mut *joined.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(Part { answer, missing })
}

/// Checks that a question for use has a range, and steps that an answer can have.
///
/// # Errors
/// If it has not.
pub fn check_use(query: &UseQuery) -> Result<(), QueryError> {
    let UseQuery { start_ns, end_ns, step_ns, .. } = *query;
    match step_ns {
        Some(step_ns) => TimeSteps::new(start_ns, end_ns, step_ns, 0).map(|_| ()),
        None if end_ns < start_ns => Err(QueryError::Range { start_ns, end_ns, step_ns: 0 }),
        None => Ok(()),
    }
}

/// Checks the number of uses so far against the bound of an answer.
///
/// # Errors
/// If there are too many.
pub fn check_uses(usage: &Usage) -> Result<(), QueryError> {
    let is_too_much = usage.uses() > USES_MAX;
    if is_too_much { Err(QueryError::TooManyPoints { max: USES_MAX as u64 }) } else { Ok(()) }
}
