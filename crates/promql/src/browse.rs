//! Which series, labels and families there are: what a query editor asks for.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use gpuvitals_core::figures::Kind;
use gpuvitals_core::history::{Fleet, GpuState, History, Part, PatternRoom, QueryError, RowsQuery};
use gpuvitals_core::{Batch, IdentityColumn, MetricId, Table};
use gpuvitals_exposition::ColumnSeries;

use crate::error::PromError;
use crate::expr::{self, Node};
use crate::fetch::{host, work};
use crate::grid::Grid;
use crate::labels::SeriesLabels;
use crate::lines::table_of;
use crate::names::{self, Names};
use crate::needs::{Exported, Fetch};

/// Most series of an answer.
const SERIES_MAX: usize = 100_000;
/// The newest rows of hosts that say which series hosts have.
const HOST_ROWS: usize = 1_000;

/// Which series: those that any of the selectors matches, of GPUs with rows between two instants.
#[derive(Debug, Clone)]
pub struct WantedSeries {
    /// Selectors in PromQL; what empty means, each question says.
    pub selectors: Vec<String>,
    /// The first instant, nanoseconds UTC since 1970.
    pub start_ns: i64,
    /// The last instant; before the first there are no series.
    pub end_ns: i64,
}

/// The labels of the wanted series; labels are those of now.
///
/// # Errors
/// When a text is no selector, names what is not kept, or matches too many series; and when the history refuses.
pub async fn series(
    history: &dyn History,
    wanted: &WantedSeries,
) -> Result<Part<Vec<SeriesLabels>>, PromError> {
    matched(history, wanted, Exported::default()).await
}

async fn matched(
    history: &dyn History,
    wanted: &WantedSeries,
    exported: Exported,
) -> Result<Part<Vec<SeriesLabels>>, PromError> {
    let texts = wanted.selectors.clone();
    let fetches = work(move || {
        let mut room = PatternRoom::default();
        texts.iter().map(|text| fetch_of(text, &mut room)).collect::<Result<Vec<_>, _>>()
    });
    let fetches = fetches.await??;
    let Part { answer: there, missing } = PresentSubjects::of(history, wanted).await?;
    let found = work(move || {
        let mut all = BTreeSet::new();
        for fetch in &fetches {
            for series in Names::all().of(fetch)? {
                let labels = there.labels(series, fetch.exported.or(exported));
                all.extend(labels.filter(|labels| names::passes(fetch, labels)));
                if all.len() > SERIES_MAX {
                    return Err(PromError::TooMuch(format!(
                        "more than {SERIES_MAX} series match; name fewer"
                    )));
                }
            }
        }
        Ok(all.into_iter().collect())
    });
    Ok(Part { answer: found.await??, missing })
}

/// The names of labels of the wanted series; without a selector of all.
///
/// # Errors
/// As [`series`].
pub async fn label_names(
    history: &dyn History,
    wanted: &WantedSeries,
) -> Result<Part<BTreeSet<String>>, PromError> {
    let names = |labels: &SeriesLabels, found: &mut BTreeSet<String>| {
        found.extend(labels.iter().map(|(name, _)| name.to_owned()));
    };
    texts(history, wanted, Exported::default(), names).await
}

/// The texts that a label has in the wanted series; without a selector in all.
///
/// # Errors
/// As [`series`].
pub async fn label_values(
    history: &dyn History,
    name: &str,
    wanted: &WantedSeries,
) -> Result<Part<BTreeSet<String>>, PromError> {
    let label = name.to_owned();
    let values = move |labels: &SeriesLabels, found: &mut BTreeSet<String>| {
        let text = labels.get(&label);
        if !text.is_empty() && !found.contains(text) {
            found.insert(text.to_owned());
        }
    };
    texts(history, wanted, Exported::of(name), values).await
}

/// Texts of the labels of series.
async fn texts(
    history: &dyn History,
    wanted: &WantedSeries,
    exported: Exported,
    take: impl Fn(&SeriesLabels, &mut BTreeSet<String>) + Send + 'static,
) -> Result<Part<BTreeSet<String>>, PromError> {
    let mut found = BTreeSet::new();
    if !wanted.selectors.is_empty() {
        let Part { answer, missing } = matched(history, wanted, exported).await?;
        for labels in &answer {
            take(labels, &mut found);
        }
        return Ok(Part { answer: found, missing });
    }
    let Part { answer: there, missing } = PresentSubjects::of(history, wanted).await?;
    let job = work(move || {
        there.each_label(exported, |labels| take(labels, &mut found));
        found
    });
    Ok(Part { answer: job.await?, missing })
}

fn fetch_of(selector: &str, room: &mut PatternRoom) -> Result<Fetch, PromError> {
    let plan = expr::plan(selector, Grid::at(0), room)?;
    match (&plan.root, plan.fetches.as_slice()) {
        (Node::Instant { .. }, [fetch]) => Ok(fetch.clone()),
        _ => Err(PromError::Syntax(format!("{selector} is no selector of series"))),
    }
}

/// GPUs and hosts with rows in a time.
struct PresentSubjects {
    gpus: Vec<Arc<GpuState>>,
    hosts: BTreeSet<Arc<str>>,
    /// The metrics of hosts that have values.
    of_hosts: HashSet<MetricId>,
}

impl PresentSubjects {
    async fn of(history: &dyn History, wanted: &WantedSeries) -> Result<Part<Self>, PromError> {
        let WantedSeries { start_ns, end_ns, .. } = *wanted;
        if end_ns < start_ns {
            // As in Prometheus, nothing was there then.
            return Ok(Part::whole(Self {
                gpus: Vec::new(),
                hosts: BTreeSet::new(),
                of_hosts: HashSet::new(),
            }));
        }
        let Part { answer: fleet, mut missing } = history.fleet().await?;
        let is_there = |gpu: &&Arc<GpuState>| gpu.first_seen_ns <= end_ns && gpu.last_seen_ns >= start_ns;
        let gpus: Vec<Arc<GpuState>> = fleet.gpus.iter().filter(is_there).cloned().collect();
        let node = |gpu: &Arc<GpuState>| gpu.identity.shared(IdentityColumn::Node).cloned();
        let hosts = gpus.iter().filter_map(node).collect();
        let newest = RowsQuery {
            start_ns: Some(start_ns),
            end_ns: Some(end_ns),
            newest_first: true,
            ..RowsQuery::of(Table::SystemEvents, HOST_ROWS)
        };
        let of_hosts = match history.rows(newest).await {
            Ok(Part { answer, missing: of_hosts }) => {
                missing.extend(of_hosts);
                answer.batch.map_or_else(HashSet::new, |batch| metrics_of(&batch))
            }
            Err(QueryError::NotKept { .. }) => HashSet::new(),
            Err(error) => return Err(error.into()),
        };
        Ok(Part { answer: Self { gpus, hosts, of_hosts }, missing })
    }

    /// The labels of a series of each that has it.
    fn labels(&self, series: &ColumnSeries, exported: Exported) -> impl Iterator<Item = SeriesLabels> {
        let is_host = table_of(series) == Table::SystemEvents;
        let has_host = is_host && series.column.is_some_and(|column| self.of_hosts.contains(&column));
        let hosts = self.hosts.iter().filter(move |_| has_host);
        let hosts = hosts.filter_map(move |node| names::labels(series, &host(node)?, exported));
        let gpus = self.gpus.iter().filter(move |gpu| !is_host && has_value(series, gpu));
        hosts.chain(gpus.filter_map(move |gpu| names::labels(series, &gpu.identity, exported)))
    }

    /// Labels of series, each text of each label at least once: of a series, and of a GPU with labels of one kind, one is enough.
    fn each_label(&self, exported: Exported, mut take: impl FnMut(&SeriesLabels)) {
        let mut kinds: Vec<(&ColumnSeries, Vec<bool>)> = Vec::new();
        for series in &Names::all().series {
            self.labels(series, exported).take(1).for_each(|labels| take(&labels));
            if table_of(series) == Table::SystemEvents {
                self.labels(series, exported).for_each(|labels| take(&labels));
                continue;
            }
            let at = kinds.iter().position(|(of, _)| of.has_labels_of(series)).unwrap_or_else(|| {
                kinds.push((series, vec![false; self.gpus.len()]));
                kinds.len() - 1
            });
            let Some((_, known)) = kinds.get_mut(at) else { continue };
            for (gpu, is_known) in self.gpus.iter().zip(known).filter(|(_, is_known)| !**is_known) {
                if let Some(labels) =
                    has_value(series, gpu).then(|| names::labels(series, &gpu.identity, exported))
                {
                    *is_known = true;
                    labels.iter().for_each(&mut take);
                }
            }
        }
    }
}

/// Whether a GPU has the series.
fn has_value(series: &ColumnSeries, gpu: &GpuState) -> bool {
    let columns = [series.column, series.instead(&gpu.identity)];
    series.column.is_none()
        || columns.into_iter().flatten().any(|column| Fleet::latest(gpu, column).is_some())
}

/// The metrics of which some row has a value.
fn metrics_of(batch: &Batch) -> HashSet<MetricId> {
    let columns = Names::all().series.iter().filter_map(|series| series.column);
    let has_value = |column: &MetricId| {
        let values = batch.metric(*column);
        values.is_some_and(|values| (0..batch.rows()).any(|row| values.value(row).is_some()))
    };
    columns.collect::<HashSet<_>>().into_iter().filter(has_value).collect()
}

/// A family of series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FamilyInfo {
    /// Its name in queries, such as `gpu_power_watts`.
    pub name: String,
    /// `counter` or `gauge`.
    pub kind: &'static str,
    /// The sentence that explains it.
    pub help: String,
    /// Base unit; empty: none.
    pub unit: &'static str,
}

/// Every family, in the order of the exposition.
pub fn families() -> Vec<FamilyInfo> {
    let mut families: Vec<FamilyInfo> = Vec::new();
    for series in &Names::all().series {
        if families.last().is_none_or(|last| last.name != series.name) {
            families.push(FamilyInfo {
                name: series.name.to_string(),
                kind: if series.kind == Kind::Counter { "counter" } else { "gauge" },
                help: series.help.to_string(),
                unit: series.unit,
            });
        }
    }
    families
}
