//! Which series, labels and families there are: what a query editor asks for.

use std::collections::BTreeSet;
use std::sync::Arc;

use gpuvitals_core::Table;
use gpuvitals_core::figures::Kind;
use gpuvitals_core::history::{Fleet, GpuState, History, Part, PatternRoom};
use gpuvitals_exposition::ColumnSeries;

use crate::error::PromError;
use crate::expr::{self, Fetch, Node};
use crate::fetch::{host, work};
use crate::grid::Grid;
use crate::labels::{NAME, SeriesLabels};
use crate::lines::table_of;
use crate::names::{self, Names};

/// Most series of an answer.
const SERIES_MAX: usize = 100_000;
/// Series with every label of a GPU between them.
const EVERY_LABEL: &str = r#"{__name__=~"gpu_info|gpu_attribution_info|DCGM_FI_DEV_GPU_UTIL"}"#;

/// The labels of the series that any of these selectors matches, of GPUs with rows between two instants; labels are those of now.
///
/// # Errors
/// When a text is no selector, names what is not kept, or matches too many series; and when the history refuses.
pub async fn series(
    history: &dyn History,
    selectors: &[String],
    start_ns: i64,
    end_ns: i64,
) -> Result<Part<Vec<SeriesLabels>>, PromError> {
    let texts = selectors.to_vec();
    let fetches = work(move || {
        let mut room = PatternRoom::default();
        texts.iter().map(|text| fetch_of(text, &mut room)).collect::<Result<Vec<_>, _>>()
    });
    let fetches = fetches.await??;
    let Part { answer: fleet, missing } = history.fleet().await?;
    let found = work(move || {
        let there = There::of(&fleet, start_ns, end_ns);
        let mut all = BTreeSet::new();
        for fetch in &fetches {
            for series in Names::all().of(fetch)? {
                let labels = there.labels(series);
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

/// The names of labels of the series that any of these selectors matches; without a selector of all.
///
/// # Errors
/// As [`series`].
pub async fn label_names(
    history: &dyn History,
    selectors: &[String],
    start_ns: i64,
    end_ns: i64,
) -> Result<Part<BTreeSet<String>>, PromError> {
    let every = [EVERY_LABEL.to_owned()];
    let asked = if selectors.is_empty() { &every } else { selectors };
    let Part { answer, missing } = series(history, asked, start_ns, end_ns).await?;
    let found = answer.iter().flat_map(|labels| labels.iter().map(|(name, _)| name.to_owned()));
    let mut found: BTreeSet<String> = found.collect();
    if selectors.is_empty() {
        let fixed = Names::all().series.iter().flat_map(|series| &series.fixed);
        found.extend(fixed.map(|(name, _)| (*name).to_owned()));
    }
    Ok(Part { answer: found, missing })
}

/// The texts that a label has in the series that any of these selectors matches; without a selector in all.
///
/// # Errors
/// As [`series`].
pub async fn label_values(
    history: &dyn History,
    name: &str,
    selectors: &[String],
    start_ns: i64,
    end_ns: i64,
) -> Result<Part<BTreeSet<String>>, PromError> {
    if selectors.is_empty() && name == NAME {
        let Part { answer: fleet, missing } = history.fleet().await?;
        let there = There::of(&fleet, start_ns, end_ns);
        let named = Names::all().series.iter().filter(|series| there.labels(series).next().is_some());
        return Ok(Part { answer: named.map(|series| series.name.to_string()).collect(), missing });
    }
    let every = [EVERY_LABEL.to_owned()];
    let asked = if selectors.is_empty() { &every } else { selectors };
    let Part { answer, missing } = series(history, asked, start_ns, end_ns).await?;
    let mut found: BTreeSet<String> = answer.iter().map(|labels| labels.get(name).to_owned()).collect();
    if selectors.is_empty() {
        let fixed = Names::all().series.iter().flat_map(|series| &series.fixed);
        found.extend(fixed.filter(|(label, _)| *label == name).map(|(_, text)| (*text).to_owned()));
    }
    found.remove("");
    Ok(Part { answer: found, missing })
}

fn fetch_of(selector: &str, room: &mut PatternRoom) -> Result<Fetch, PromError> {
    let plan = expr::plan(selector, Grid::at(0), room)?;
    match (&plan.root, plan.fetches.as_slice()) {
        (Node::Instant { .. }, [fetch]) => Ok(fetch.clone()),
        _ => Err(PromError::Syntax(format!("{selector} is no selector of series"))),
    }
}

/// GPUs and hosts with rows in a time.
struct There<'a> {
    gpus: Vec<&'a Arc<GpuState>>,
    hosts: BTreeSet<&'a str>,
}

impl<'a> There<'a> {
    fn of(fleet: &'a Fleet, start_ns: i64, end_ns: i64) -> Self {
        let is_there = |gpu: &&Arc<GpuState>| gpu.first_seen_ns <= end_ns && gpu.last_seen_ns >= start_ns;
        let gpus: Vec<&Arc<GpuState>> = fleet.gpus.iter().filter(is_there).collect();
        let hosts = gpus.iter().filter_map(|gpu| gpu.identity.node()).collect();
        Self { gpus, hosts }
    }

    /// The labels of a series of each that has it.
    fn labels(&self, series: &ColumnSeries) -> impl Iterator<Item = SeriesLabels> {
        let is_host = table_of(series) == Table::SystemEvents;
        let hosts = self.hosts.iter().filter(move |_| is_host);
        let hosts = hosts.filter_map(|node| names::labels(series, &host(node)?));
        let has_value = move |gpu: &GpuState| {
            let columns = [series.column, series.instead(&gpu.identity)];
            series.column.is_none()
                || columns.into_iter().flatten().any(|column| Fleet::latest(gpu, column).is_some())
        };
        let gpus = self.gpus.iter().filter(move |gpu| !is_host && has_value(gpu));
        hosts.chain(gpus.filter_map(|gpu| names::labels(series, &gpu.identity)))
    }
}

/// A family of series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FamilyInfo {
    /// Its name.
    pub name: String,
    /// `counter` or `gauge`.
    pub kind: &'static str,
    /// Its sentence.
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
