//! What the selectors of a query find in a history.
//!
//! An instant needs the newest value before it alone. So the history is asked for the newest value of each step, with steps that
//! end with the instants: it reads columns and keeps a value a step. Where all values of a time are needed rows are read.
//! If that would be too many, figures of 10 s, a minute or an hour stand in for the values, and the answer says so.

use std::sync::Arc;

use gpuvitals_core::history::{
    Aggregate, BucketQuery, Fleet, GpuState, GroupName, History, Part, QueryError, RowsQuery, Selector,
};
use gpuvitals_core::time::SECOND_NS;
use gpuvitals_core::{Identity, IdentityColumn, MetricId, Table};
use gpuvitals_exposition::ColumnSeries;

use crate::PromLimits;
use crate::error::PromError;
use crate::eval::Found;
use crate::expr::Fetch;
use crate::lines::{Figures, HOLDER, Lines, columns_of, group_by, table_of};
use crate::names::{self, Names};
use crate::point::Points;

/// Rows of a page.
const PAGE_ROWS: usize = 50_000;
/// Cells of one question.
const CELLS_AT_ONCE: usize = 1_000_000;
/// Between two values of a GPU, at the usual rate of an agent.
const USUAL_STEP_NS: i64 = SECOND_NS;
/// Widths of the steps that rollups have.
const ROLLUPS_NS: [i64; 3] = [3_600 * SECOND_NS, 60 * SECOND_NS, 10 * SECOND_NS];
/// Figures that a range must have at least, if they stand in for its values.
const FIGURES_MIN: i64 = 4;

/// What has been found, and what could not be read.
#[derive(Debug, Default)]
pub(crate) struct Finding {
    pub(crate) found: Vec<Vec<Found>>,
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

/// Whose series are read.
struct Subjects {
    /// Keys; empty: all.
    keys: Vec<Arc<str>>,
    count: usize,
}

impl Reader<'_> {
    /// Reads a series of every GPU or host that passes.
    async fn read(&mut self, fetch: &Fetch, series: &'static ColumnSeries) -> Result<Vec<Found>, PromError> {
        let Some(subjects) = self.subjects(fetch, series) else { return Ok(Vec::new()) };
        let rows = rows_of(fetch, subjects.count);
        let points = if fetch.needs_all && self.fits(rows) {
            self.each(fetch, series, subjects).await?
        } else {
            let width_ns = if fetch.needs_all { Some(self.width(fetch, rows)?) } else { None };
            self.newest(fetch, series, &subjects, width_ns).await?
        };
        let found = points.into_iter().filter_map(|(group, points)| {
            let labels = names::labels(series, &self.identity(&group, series))?;
            names::passes(fetch, &labels).then_some(Found { labels, points })
        });
        let mut found: Vec<Found> = found.collect();
        found.sort_by(|one, other| one.labels.cmp(&other.labels));
        Ok(found)
    }

    /// Width of the steps whose figures stand in for too many values.
    fn width(&mut self, fetch: &Fetch, rows: i64) -> Result<i64, PromError> {
        let width_ns = ROLLUPS_NS.into_iter().rev().find(|width_ns| {
            fetch.back_ns / width_ns >= FIGURES_MIN && self.fits(rows / (width_ns / USUAL_STEP_NS))
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
        let text =
            format!("for so many values figures of {width} s are read: a value may be that much older");
        self.finding.notes.push(text);
    }

    /// The GPUs whose labels may pass; none: there is none. Of hosts all.
    fn subjects(&self, fetch: &Fetch, series: &ColumnSeries) -> Option<Subjects> {
        if table_of(series) == Table::SystemEvents {
            return Some(Subjects { keys: Vec::new(), count: 1 });
        }
        let all = self.fleet.gpus.len();
        if series.names_holder() {
            return (all > 0).then_some(Subjects { keys: Vec::new(), count: all });
        }
        let passes = |gpu: &&Arc<GpuState>| {
            names::labels(series, &gpu.identity).is_some_and(|labels| names::passes(fetch, &labels))
        };
        let passing = self.fleet.gpus.iter().filter(passes);
        let keys: Vec<Arc<str>> = passing.map(|gpu| Arc::clone(&gpu.key)).collect();
        let count = keys.len();
        let keys = if count == all { Vec::new() } else { keys };
        (count > 0).then_some(Subjects { keys, count })
    }

    /// The newest value of each step, with steps that end with the instants; or figures of steps of a width.
    async fn newest(
        &mut self,
        fetch: &Fetch,
        series: &'static ColumnSeries,
        subjects: &Subjects,
        width_ns: Option<i64>,
    ) -> Result<Vec<(GroupName, Points)>, PromError> {
        let (step_ns, phase_ns) =
            width_ns.map_or_else(|| self.steps(fetch, subjects.count), |width_ns| (width_ns, 0));
        let aggregates = match width_ns {
            Some(_) => vec![Aggregate::Min, Aggregate::Max, Aggregate::Mean, Aggregate::Last],
            None => vec![Aggregate::Last],
        };
        let query = BucketQuery {
            table: table_of(series),
            gpus: Vec::new(),
            selector: Selector::default(),
            metrics: Vec::new(),
            start_ns: start_of(fetch),
            end_ns: fetch.grid.end_ns(),
            step_ns,
            phase_ns,
            aggregates,
            group_by: group_by(series),
        };
        let are_kept = width_ns.is_some();
        let mut points: Vec<(GroupName, Points)> = Vec::new();
        for columns in [columns_of(series), series.instead.into_iter().collect()] {
            if columns.is_empty() {
                continue;
            }
            let figures = self.figures(&query, columns, subjects).await?;
            let merged = work(move || {
                let known: std::collections::HashSet<GroupName> =
                    points.iter().map(|(group, _)| Arc::clone(group)).collect();
                points.extend(figures.points(series, are_kept).filter(|(group, _)| !known.contains(group)));
                points
            });
            points = merged.await?;
        }
        Ok(points)
    }

    /// The answer to a question about these columns, asked of some GPUs at a time.
    async fn figures(
        &mut self,
        query: &BucketQuery,
        columns: Vec<MetricId>,
        subjects: &Subjects,
    ) -> Result<Figures, PromError> {
        let steps =
            usize::try_from((query.end_ns - query.start_ns) / query.step_ns + 2).unwrap_or(usize::MAX);
        let at_once = (CELLS_AT_ONCE / steps.max(1) / columns.len()).max(1);
        let all: Vec<Arc<str>>;
        let keys = if subjects.keys.is_empty() && subjects.count > at_once {
            all = self.fleet.gpus.iter().map(|gpu| Arc::clone(&gpu.key)).collect();
            &all
        } else {
            &subjects.keys
        };
        let mut chunks: Vec<&[Arc<str>]> = keys.chunks(at_once).collect();
        if chunks.is_empty() {
            chunks.push(&[]);
        }
        let query_step_ns = query.step_ns;
        let mut figures = Figures::default();
        for keys in chunks {
            let query = BucketQuery { gpus: keys.to_vec(), metrics: columns.clone(), ..query.clone() };
            let Part { answer, missing } = self.history.buckets(query).await?;
            self.finding.missing.extend(missing);
            // Rows of that time have been deleted.
            if answer.rollup_ns() > query_step_ns {
                self.note(answer.rollup_ns());
            }
            let came;
            (figures, came) = work(move || {
                let came = figures.add(&answer);
                (figures, came)
            })
            .await?;
            self.spend(came)?;
        }
        Ok(figures)
    }

    /// Steps that end with the instants, as the instants look back. If that would read too many rows, they end up to a rollup's
    /// step before.
    fn steps(&mut self, fetch: &Fetch, subjects: usize) -> (i64, i64) {
        let grid = fetch.grid;
        let end_ns = grid.start_ns.saturating_add(1);
        if grid.count == 1 {
            return (fetch.back_ns.max(1), end_ns);
        }
        let coarse = ROLLUPS_NS.into_iter().find(|width_ns| grid.step_ns % width_ns == 0);
        match coarse {
            Some(width_ns) if rows_of(fetch, subjects).unsigned_abs() > self.limits.scanned_max => {
                self.note(width_ns);
                (grid.step_ns, end_ns.div_euclid(width_ns) * width_ns)
            }
            _ => (grid.step_ns, end_ns),
        }
    }

    /// Every value.
    async fn each(
        &mut self,
        fetch: &Fetch,
        series: &'static ColumnSeries,
        subjects: Subjects,
    ) -> Result<Vec<(GroupName, Points)>, PromError> {
        let name = |metric: &MetricId| metric.metric().column.to_owned();
        let mut query = RowsQuery {
            gpus: subjects.keys,
            start_ns: Some(start_of(fetch)),
            end_ns: Some(fetch.grid.end_ns()),
            metrics: Some(columns_of(series).iter().chain(&series.instead).map(name).collect()),
            ..RowsQuery::of(table_of(series), PAGE_ROWS)
        };
        let mut lines = Lines::default();
        loop {
            let Part { answer: rows, missing } = self.history.rows(query.clone()).await?;
            self.finding.missing.extend(missing);
            let end = rows.end();
            let Some(batch) = rows.batch else { break };
            let is_last = batch.rows() < query.limit;
            let came;
            (lines, came) = work(move || {
                let came = lines.add(&batch, series);
                (lines, came)
            })
            .await?;
            self.spend(came)?;
            if is_last {
                break;
            }
            query.after = end;
        }
        Ok(lines.points().collect())
    }

    /// Who a group's values are of: the GPU as it is known now, held by whom the group says.
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

/// A host.
pub(crate) fn host(node: &str) -> Option<Identity> {
    Identity::default().with(IdentityColumn::Node, node).ok()
}

/// The first instant whose values count.
fn start_of(fetch: &Fetch) -> i64 {
    fetch.grid.start_ns.saturating_sub(fetch.back_ns).saturating_add(1)
}

/// About how many values a selector would read one by one.
fn rows_of(fetch: &Fetch, subjects: usize) -> i64 {
    let span_ns = fetch.grid.end_ns().saturating_sub(fetch.grid.start_ns).saturating_add(fetch.back_ns);
    (span_ns / USUAL_STEP_NS).saturating_mul(i64::try_from(subjects).unwrap_or(i64::MAX))
}
