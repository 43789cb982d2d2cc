//! PromQL over a [`History`]: Prometheus' query language on kept rows, without a Prometheus.
//!
//! Series have the names and labels of the exposition (`gpu_power_watts`, and DCGM's in both dialects), and the labels that a
//! scraper would add: `instance` and `node` (the host), `cluster`. Every column of the catalogue with a series is there, with
//! `gpu_info` and `gpu_attribution_info`; states and totals of an exporter, such as `gpu_up`, are not.
//!
//! The semantics are those of Prometheus 3: a range and a look back (5 minutes) are open at their beginning. Values that
//! are 32-bit floats are read as their shortest decimals, as from a scrape.
//!
//! ```text
//! text → plan (parsed, checked, selectors apart) → find (each selector asks the history) → evaluate
//! ```

mod aggregate;
mod binary;
mod browse;
mod error;
mod eval;
mod expr;
mod fetch;
mod function;
mod grid;
mod labels;
mod limits;
mod lines;
mod names;
mod needs;
mod point;
mod series;
mod text;

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gpuvitals_core::history::{History, PatternRoom};

use eval::Evaluation;
use expr::{Node, Plan};
use series::Values;

pub use aggregate::spell;
pub use browse::{FamilyInfo, WantedSeries, families, label_names, label_values, series};
pub use error::PromError;
pub use grid::Grid;
pub use labels::SeriesLabels;
pub use limits::{PromLimits, VALUES_MAX};
pub use series::PromSeries;
pub use text::duration;

/// The answer to a query.
#[derive(Debug)]
pub struct PromAnswer {
    /// What was asked for.
    pub result: Outcome,
    /// What could not be read, in words.
    pub missing: Vec<String>,
    /// Where figures stand in for values, in words.
    pub notes: Vec<String>,
}

/// What a query results in.
#[derive(Debug)]
pub enum Outcome {
    /// A number for each instant.
    Scalar(Vec<f64>),
    /// Series, with a value or none for each instant.
    Vector(Vec<PromSeries>),
    /// A text, for a query that is nothing else.
    Text(String),
    /// The values of series over a time: nanoseconds UTC since 1970, value.
    Ranges(Vec<(SeriesLabels, Vec<(i64, f64)>)>),
}

/// Evaluates a query at each instant. Dropped, it ends soon.
///
/// # Errors
/// When the text is no PromQL or not supported, there is too much, or the history refuses.
pub async fn query(
    history: &dyn History,
    text: &str,
    grid: Grid,
    limits: PromLimits,
) -> Result<PromAnswer, PromError> {
    let text = text.to_owned();
    let plan = fetch::work(move || expr::plan(&text, grid, &mut PatternRoom::default())).await??;
    let finding = fetch::find(history, &plan.fetches, limits).await?;
    let cancel = Cancel::default();
    let is_cancelled = Arc::clone(&cancel.0);
    let fetch::Finding { found, missing, notes } = finding;
    let job = fetch::work(move || {
        let evaluation = Evaluation {
            found: &found,
            is_cancelled: &|| is_cancelled.load(Ordering::Relaxed),
            values_max: limits.values_max.saturating_mul(2),
            given: Cell::new(0),
        };
        evaluate(&plan, &evaluation, grid)
    });
    let result = job.await??;
    drop(cancel);
    Ok(PromAnswer { result, missing, notes })
}

/// Lays a query out for people.
///
/// # Errors
/// When the text is no PromQL, or too long, too deep or too large.
pub async fn format(text: &str) -> Result<String, PromError> {
    let text = text.to_owned();
    fetch::work(move || Ok(expr::parsed(&text, &mut PatternRoom::default())?.prettify())).await?
}

/// Whether a text can be the name of a label.
pub fn is_label_name(text: &str) -> bool {
    expr::label(text).is_ok()
}

/// Ends the evaluation when nobody waits for it any more.
#[derive(Default)]
struct Cancel(Arc<AtomicBool>);

impl Drop for Cancel {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn evaluate(plan: &Plan, evaluation: &Evaluation<'_>, grid: Grid) -> Result<Outcome, PromError> {
    if let Node::All(all) = &plan.root {
        let to_ns = all.lookup.time(grid.start_ns);
        let from_ns = to_ns.saturating_sub(all.range_ns);
        let found = evaluation.ranged(&all.of)?;
        let ranges = found.iter().map(|found| {
            let window = found.points.windows().next(from_ns, to_ns);
            let points: Vec<_> = window.newest().map(|point| (point.time_ns, point.value)).collect();
            (found.labels.clone(), points)
        });
        return Ok(Outcome::Ranges(ranges.filter(|(_, points)| !points.is_empty()).collect()));
    }
    Ok(match evaluation.values(&plan.root, grid)? {
        Values::Scalar(numbers) => Outcome::Scalar(numbers),
        Values::Vector(series) => Outcome::Vector(series),
        Values::Text(text) => Outcome::Text(text),
    })
}
