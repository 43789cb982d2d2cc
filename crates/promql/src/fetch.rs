//! What the selectors of a query find in a history.
//!
//! Columns are read by steps of time, and as little as will do is kept of each step. An instant needs the newest value before
//! it: the steps end with the instants. A mean, an extreme or a rate of a range needs figures of the values: the ranges consist of
//! equal steps. For any other function, and for sums of 32-bit floats, which count as their decimals, each value is needed: the steps
//! are so short that they have one value at most. If some have more, rows are read.
//! If all that would be too much, figures of 10 s, a minute or an hour stand in for the values, and the answer says so.

use std::collections::HashSet;
use std::sync::Arc;

use gpuvitals_core::catalogue::ColumnType;
use gpuvitals_core::history::{
    Aggregate, BUCKETS_MAX, BucketQuery, Fleet, GpuState, GroupName, History, Part, QueryError, RowsQuery,
};
use gpuvitals_core::time::{HOUR_NS, MINUTE_NS, SECOND_NS};
use gpuvitals_core::{Identity, IdentityColumn, MetricId, Table};
use gpuvitals_exposition::ColumnSeries;

use crate::PromLimits;
use crate::error::PromError;
use crate::eval::FoundSeries;
use crate::grid::Grid;
use crate::lines::{Figures, HOLDER, Lines, Shape, columns_of, group_by, table_of};
use crate::names::{self, Names};
use crate::needs::{Fetch, Needs};
use crate::point::Points;

/// Rows of a page.
const PAGE_ROWS: usize = 50_000;
/// Values of one question's answer: groups × columns × steps × aggregates. Half of what a history gives.
const VALUES_AT_ONCE: usize = 1_000_000;
/// Between two values of a GPU, at the usual rate of an agent.
const USUAL_STEP_NS: i64 = SECOND_NS;
/// Widths of the steps that rollups have.
const ROLLUPS_NS: [i64; 3] = [HOUR_NS, MINUTE_NS, 10 * SECOND_NS];
/// Figures that a range must have at least, if they stand in for its values.
const FIGURES_MIN: i64 = 4;

/// What has been found, and what could not be read.
#[derive(Debug, Default)]
pub(crate) struct Finding {
    pub(crate) found: Vec<Vec<FoundSeries>>,
    pub(crate) missing: Vec<String>,
    /// What stands in for the values, in words.
    pub(crate) notes: Vec<String>,
}

/// Asks for what all selectors need.
///
/// # Errors
/// When there is too much, a name is not kept, or the history refuses.
pub(crate) async fn find(
    history: &dyn History,
    fetches: &[Fetch],
    limits: PromLimits,
) -> Result<Finding, PromError> {
    let Part { answer: fleet, missing } = history.fleet().await?;
    let finding = Finding { missing, ..Finding::default() };
    let mut reader = Reader { history, fleet, finding, values_left: limits.values_max, limits };
    for fetch in fetches {
        let mut found = Vec::new();
        for series in Names::all().of(fetch)? {
            found.extend(reader.read(fetch, series).await?);
        }
        reader.finding.found.push(found);
    }
    let mut finding = reader.finding;
    for texts in [&mut finding.missing, &mut finding.notes] {
        texts.sort();
        texts.dedup();
    }
    Ok(finding)
}

/// Works on a thread for blocking work.
pub(crate) async fn work<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, PromError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| PromError::History(QueryError::failed(error)))
}

struct Reader<'a> {
    history: &'a dyn History,
    fleet: Arc<Fleet>,
    finding: Finding,
    values_left: usize,
    limits: PromLimits,
}

/// The GPUs or hosts to read.
struct Subjects {
    /// Keys; empty: all.
    keys: Vec<Arc<str>>,
    /// Of host metrics the number of hosts with GPUs; other hosts are found only by their rows.
    count: usize,
}

/// A question about columns that hold a series.
struct SeriesQuestion<'a> {
    fetch: &'a Fetch,
    series: &'static ColumnSeries,
    columns: Vec<MetricId>,
    subjects: Subjects,
}

/// Steps of time: they begin at the multiples of their width plus a phase, nanoseconds.
#[derive(Debug, Clone, Copy)]
struct ReadSteps {
    width_ns: i64,
    phase_ns: i64,
    /// Whether they end with the instants, or up to a rollup's step before.
    is_exact: bool,
}

impl ReadSteps {
    /// Steps that end with the instants.
    fn ending_with(grid: Grid, width_ns: i64) -> Self {
        Self { width_ns, phase_ns: grid.start_ns.saturating_add(1), is_exact: true }
    }
}

impl Reader<'_> {
    /// Reads a series of every GPU or host that passes.
    async fn read(
        &mut self,
        fetch: &Fetch,
        series: &'static ColumnSeries,
    ) -> Result<Vec<FoundSeries>, PromError> {
        let Some(subjects) = self.subjects(fetch, series) else { return Ok(Vec::new()) };
        let columns = columns_of(series);
        let mut points = self.points(&SeriesQuestion { fetch, series, columns, subjects }).await?;
        if let Some((column, subjects)) = self.without(series, fetch, &points) {
            points.extend(
                self.points(&SeriesQuestion { fetch, series, columns: vec![column], subjects }).await?,
            );
        }
        let found = points.into_iter().filter_map(|(group, points)| {
            let labels = names::labels(series, &self.identity(&group, series), fetch.exported)?;
            names::passes(fetch, &labels).then_some(FoundSeries { labels, points })
        });
        let mut found: Vec<FoundSeries> = found.collect();
        found.sort_by(|one, other| one.labels.cmp(&other.labels));
        Ok(found)
    }

    /// The GPUs of which nothing was found, and the column that stands in.
    fn without(
        &self,
        series: &'static ColumnSeries,
        fetch: &Fetch,
        points: &[(GroupName, Points)],
    ) -> Option<(MetricId, Subjects)> {
        let known: HashSet<&str> = points.iter().filter_map(|(group, _)| group.first()?.as_deref()).collect();
        let gpus = self.fleet.gpus.iter().filter(|gpu| !known.contains(&*gpu.key));
        let gpus = gpus.filter_map(|gpu| Some((series.instead(&gpu.identity)?, gpu)));
        let passing: Vec<_> = gpus.filter(|(_, gpu)| may_pass(fetch, series, gpu)).collect();
        let column = passing.first()?.0;
        let keys: Vec<Arc<str>> = passing.into_iter().map(|(_, gpu)| Arc::clone(&gpu.key)).collect();
        Some((column, Subjects { count: keys.len(), keys }))
    }

    /// Reads as little as will do.
    async fn points(&mut self, question: &SeriesQuestion<'_>) -> Result<Vec<(GroupName, Points)>, PromError> {
        let SeriesQuestion { fetch, .. } = question;
        let shape = match fetch.needs {
            Needs::Newest => {
                let steps = self.steps(question);
                return self.kept(question, steps, Shape::Newest).await;
            }
            Needs::Moves => Shape::Moves,
            Needs::Extremes | Needs::Sums | Needs::Every => Shape::Figures,
        };
        if let Some(steps) = self.shared(question) {
            return self.kept(question, steps, shape).await;
        }
        if self.fits(question.rows()) {
            return self.values(question).await;
        }
        let width_ns = self.width(question)?;
        self.kept(question, ReadSteps { width_ns, phase_ns: 0, is_exact: false }, shape).await
    }

    /// Steps of which every range consists, so that their figures are enough; none if each value is needed, or too many rows would be
    /// looked through.
    fn shared(&self, question: &SeriesQuestion<'_>) -> Option<ReadSteps> {
        let SeriesQuestion { fetch, series, subjects, .. } = question;
        let is_decimal =
            |column: MetricId| column.metric().column_type == ColumnType::F32 && fetch.needs == Needs::Sums;
        if fetch.needs == Needs::Every || series.column.is_none_or(is_decimal) {
            return None;
        }
        let width_ns =
            if fetch.grid.count == 1 { fetch.back_ns } else { gcd(fetch.back_ns, fetch.grid.step_ns) };
        let steps = (span_of(fetch) / width_ns.max(1)).saturating_add(2);
        let is_worth_it = width_ns > USUAL_STEP_NS
            && steps.unsigned_abs() <= BUCKETS_MAX
            && self.fits(steps.saturating_mul(count(subjects.count)))
            && question.rows().unsigned_abs() <= self.limits.scanned_max;
        is_worth_it.then(|| ReadSteps::ending_with(fetch.grid, width_ns))
    }

    /// Width of the steps whose figures stand in for too many values.
    fn width(&mut self, question: &SeriesQuestion<'_>) -> Result<i64, PromError> {
        let (back_ns, rows) = (question.fetch.back_ns, question.rows());
        let width_ns = ROLLUPS_NS.into_iter().rev().find(|width_ns| {
            back_ns / width_ns >= FIGURES_MIN && self.fits(rows / (width_ns / USUAL_STEP_NS))
        });
        let width_ns = width_ns.ok_or_else(|| self.too_many())?;
        self.note(width_ns);
        Ok(width_ns)
    }

    fn fits(&self, values: i64) -> bool {
        usize::try_from(values).is_ok_and(|values| values <= self.values_left)
    }

    fn too_many(&self) -> PromError {
        let max = self.limits.values_max;
        PromError::TooMuch(format!(
            "the query reads more than {max} values; take fewer GPUs or a shorter range"
        ))
    }

    fn spend(&mut self, values: usize) -> Result<(), PromError> {
        self.values_left = self.values_left.checked_sub(values).ok_or_else(|| self.too_many())?;
        Ok(())
    }

    fn note(&mut self, width_ns: i64) {
        let width = width_ns / SECOND_NS;
        let text = format!(
            "too many values to read one by one: {width} s rollups were read, so a value may be up to {width} s older"
        );
        self.finding.notes.push(text);
    }

    /// The GPUs whose labels may pass; none: there is none. Of hosts all.
    fn subjects(&self, fetch: &Fetch, series: &ColumnSeries) -> Option<Subjects> {
        if table_of(series) == Table::SystemEvents {
            let nodes: HashSet<&str> = self.fleet.gpus.iter().filter_map(|gpu| gpu.identity.node()).collect();
            return Some(Subjects { keys: Vec::new(), count: nodes.len().max(1) });
        }
        let all = self.fleet.gpus.len();
        let passing = self.fleet.gpus.iter().filter(|gpu| may_pass(fetch, series, gpu));
        let keys: Vec<Arc<str>> = passing.map(|gpu| Arc::clone(&gpu.key)).collect();
        let count = keys.len();
        let keys = if count == all { Vec::new() } else { keys };
        (count > 0).then_some(Subjects { keys, count })
    }

    /// What is kept of each step.
    async fn kept(
        &mut self,
        question: &SeriesQuestion<'_>,
        steps: ReadSteps,
        shape: Shape,
    ) -> Result<Vec<(GroupName, Points)>, PromError> {
        let figures = self.figures(question, steps, shape, u64::MAX).await?;
        work(move || figures.points().collect()).await
    }

    /// Each value: by steps that have one at most, or of rows.
    async fn values(&mut self, question: &SeriesQuestion<'_>) -> Result<Vec<(GroupName, Points)>, PromError> {
        let steps = ReadSteps::ending_with(question.fetch.grid, USUAL_STEP_NS);
        if span_of(question.fetch) / USUAL_STEP_NS < BUCKETS_MAX.cast_signed() {
            let before = self.values_left;
            let figures = self.figures(question, steps, Shape::Newest, 1).await?;
            if figures.most <= 1 {
                return work(move || figures.points().collect()).await;
            }
            self.values_left = before;
            // There are no rows for a part of the time.
            if figures.rollup_ns > 0 {
                return self.kept(question, steps, Shape::Figures).await;
            }
        }
        self.rows(question).await
    }

    /// What is kept of each step, asked of some GPUs at a time; it ends when a step has more than so many values.
    async fn figures(
        &mut self,
        question: &SeriesQuestion<'_>,
        steps: ReadSteps,
        shape: Shape,
        most: u64,
    ) -> Result<Figures, PromError> {
        let SeriesQuestion { fetch, series, columns, .. } = question;
        let mut figures = Figures::new(series, shape);
        let query = BucketQuery {
            phase_ns: steps.phase_ns,
            aggregates: figures.aggregates(),
            group_by: group_by(series),
            ..BucketQuery::of(
                table_of(series),
                columns.clone(),
                start_of(fetch),
                fetch.grid.end_ns(),
                steps.width_ns,
            )
        };
        let cells = usize::try_from(span_of(fetch) / steps.width_ns + 2).unwrap_or(usize::MAX);
        let values = cells.saturating_mul(columns.len().max(1) * query.aggregates.len());
        for keys in self.by_turns(question, VALUES_AT_ONCE / values).await? {
            let Part { answer, missing } =
                self.history.buckets(BucketQuery { gpus: keys, ..query.clone() }).await?;
            self.finding.missing.extend(missing);
            // Coarser than planned means that the rows have been deleted.
            let (rollup_ns, announced_ns) =
                (answer.rollup_ns(), if steps.is_exact { 0 } else { steps.width_ns });
            if rollup_ns > announced_ns {
                let width = rollup_ns / SECOND_NS;
                self.finding.notes.push(format!(
                    "part of the range is kept only as {width} s rollups: a value may be up to {width} s older or newer"
                ));
            }
            let came;
            (figures, came) = work(move || {
                let came = figures.add(&answer);
                (figures, came)
            })
            .await?;
            self.spend(came)?;
            if figures.most > most {
                break;
            }
        }
        Ok(figures)
    }

    /// The keys to ask for, so many at a time; no key: all.
    async fn by_turns(
        &mut self,
        question: &SeriesQuestion<'_>,
        at_once: usize,
    ) -> Result<Vec<Vec<Arc<str>>>, PromError> {
        let SeriesQuestion { series, subjects, .. } = question;
        if subjects.count <= at_once {
            return Ok(vec![subjects.keys.clone()]);
        }
        let all: Vec<Arc<str>>;
        let keys = if !subjects.keys.is_empty() {
            &subjects.keys
        } else if table_of(series) == Table::SystemEvents {
            all = self.hosts(question).await?;
            &all
        } else {
            all = self.fleet.gpus.iter().map(|gpu| Arc::clone(&gpu.key)).collect();
            &all
        };
        Ok(keys.chunks(at_once.max(1)).map(<[_]>::to_vec).collect())
    }

    /// The hosts that have rows in the range.
    async fn hosts(&mut self, question: &SeriesQuestion<'_>) -> Result<Vec<Arc<str>>, PromError> {
        let SeriesQuestion { fetch, series, columns, .. } = question;
        let (start_ns, end_ns) = (start_of(fetch), fetch.grid.end_ns());
        let query = BucketQuery {
            phase_ns: start_ns,
            aggregates: vec![Aggregate::Last],
            group_by: group_by(series),
            ..BucketQuery::of(table_of(series), columns.clone(), start_ns, end_ns, span_of(fetch).max(1))
        };
        let Part { answer, missing } = self.history.buckets(query).await?;
        self.finding.missing.extend(missing);
        Ok(answer.groups().iter().filter_map(|group| group.first()?.clone()).collect())
    }

    /// Steps that end with the instants, as the instants look back. If that would read too many rows, they end up to a rollup's
    /// step before.
    fn steps(&mut self, question: &SeriesQuestion<'_>) -> ReadSteps {
        let grid = question.fetch.grid;
        if grid.count == 1 {
            return ReadSteps::ending_with(grid, question.fetch.back_ns.max(1));
        }
        let exact = ReadSteps::ending_with(grid, grid.step_ns);
        let coarse = ROLLUPS_NS.into_iter().find(|width_ns| grid.step_ns % width_ns == 0);
        match coarse {
            Some(width_ns) if question.rows().unsigned_abs() > self.limits.scanned_max => {
                self.note(width_ns);
                ReadSteps {
                    phase_ns: exact.phase_ns.div_euclid(width_ns) * width_ns,
                    is_exact: false,
                    ..exact
                }
            }
            _ => exact,
        }
    }

    /// Every value of the rows, of some GPUs at a time: the rows of all would come in the order of their times.
    async fn rows(&mut self, question: &SeriesQuestion<'_>) -> Result<Vec<(GroupName, Points)>, PromError> {
        let SeriesQuestion { fetch, series, columns, .. } = question;
        let series: &'static ColumnSeries = series;
        let query = RowsQuery {
            start_ns: Some(start_of(fetch)),
            end_ns: Some(fetch.grid.end_ns()),
            metrics: Some(columns.iter().map(|metric| metric.metric().column.to_owned()).collect()),
            ..RowsQuery::of(table_of(series), PAGE_ROWS)
        };
        let of_one = usize::try_from(span_of(fetch) / USUAL_STEP_NS + 1).unwrap_or(usize::MAX);
        let mut lines = Lines::default();
        for keys in self.by_turns(question, PAGE_ROWS / of_one).await? {
            let mut query = RowsQuery { gpus: keys, ..query.clone() };
            loop {
                let Part { answer: rows, missing } = self.history.rows(query.clone()).await?;
                self.finding.missing.extend(missing);
                let end = rows.end();
                let Some(batch) = rows.batch else { break };
                let is_last = batch.rows() < query.limit;
                let columns = columns.clone();
                let came;
                (lines, came) = work(move || {
                    let came = lines.add(&batch, series, &columns);
                    (lines, came)
                })
                .await?;
                self.spend(came)?;
                if is_last {
                    break;
                }
                query.after = end;
            }
        }
        Ok(lines.points().collect())
    }

    /// The identity of a group: the GPU as known now, its holder as the group says.
    fn identity(&self, group: &GroupName, series: &ColumnSeries) -> Identity {
        let text = |at: usize| group.get(at).and_then(Option::as_deref);
        if table_of(series) == Table::SystemEvents {
            return text(0).and_then(host).unwrap_or_default();
        }
        let known = text(0).and_then(|key| self.fleet.get(key));
        let mut identity = known.map_or_else(Identity::default, |gpu| gpu.identity.clone());
        if series.names_holder() {
            for (at, column) in HOLDER.into_iter().enumerate() {
                // Checked when the rows came in.
                let _checked = identity.set(column, text(at + 1).unwrap_or(""));
            }
        }
        identity
    }
}

/// The identity of a host, which its name makes; none if the name cannot be one.
pub(crate) fn host(node: &str) -> Option<Identity> {
    Identity::default().with(IdentityColumn::Node, node).ok()
}

/// The first instant whose values count.
fn start_of(fetch: &Fetch) -> i64 {
    fetch.grid.start_ns.saturating_sub(fetch.back_ns).saturating_add(1)
}

/// From the first instant whose values count to the last.
fn span_of(fetch: &Fetch) -> i64 {
    fetch.grid.end_ns().saturating_sub(fetch.grid.start_ns).saturating_add(fetch.back_ns)
}

impl SeriesQuestion<'_> {
    /// About how many rows it is about.
    fn rows(&self) -> i64 {
        (span_of(self.fetch) / USUAL_STEP_NS).saturating_mul(count(self.subjects.count))
    }
}

/// Whether the labels of a GPU's series may pass: without a test they do, and those of a holder change with time.
fn may_pass(fetch: &Fetch, series: &ColumnSeries, gpu: &GpuState) -> bool {
    fetch.matchers.matchers.is_empty()
        || series.names_holder()
        || names::labels(series, &gpu.identity, fetch.exported)
            .is_some_and(|labels| names::passes(fetch, &labels))
}

fn count(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// The largest width that divides both.
fn gcd(one: i64, other: i64) -> i64 {
    if other == 0 { one } else { gcd(other, one % other) }
}
