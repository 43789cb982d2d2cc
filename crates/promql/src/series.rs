//! A series has labels and a value at each step.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use crate::error::PromError;
use crate::labels::{NAME, SeriesLabels};

/// Longest text of a label that a query makes.
const LABEL_LEN_MAX: usize = 4 << 10;

/// A series of a result: a value, or none, for each instant.
#[derive(Debug, Clone, PartialEq)]
pub struct PromSeries {
    /// Its labels, the name among them as `__name__`.
    pub labels: SeriesLabels,
    /// A value for each instant of the grid; none: it has none there.
    pub values: Vec<Option<f64>>,
}

/// A value of every instant.
#[derive(Debug, Clone)]
pub(crate) enum Values {
    Scalar(Vec<f64>),
    Vector(Vec<PromSeries>),
    Text(String),
}

/// The text of a label that a query makes.
pub(crate) fn made(text: String) -> Result<Arc<str>, PromError> {
    if text.len() > LABEL_LEN_MAX {
        return Err(PromError::TooMuch(format!("a label may have {LABEL_LEN_MAX} bytes at most")));
    }
    Ok(text.into())
}

/// A series, unless it has no value at all.
pub(crate) fn series_of(labels: SeriesLabels, values: Vec<Option<f64>>) -> Option<PromSeries> {
    values.iter().any(Option::is_some).then_some(PromSeries { labels, values })
}

/// With each value replaced.
pub(crate) fn map(series: Vec<PromSeries>, with: impl Fn(f64, usize) -> Option<f64>) -> Vec<PromSeries> {
    let mapped = series.into_iter().filter_map(|PromSeries { labels, values }| {
        let values = values.into_iter().enumerate();
        series_of(labels, values.map(|(step, value)| with(value?, step)).collect())
    });
    mapped.collect()
}

/// The series without their names, as what is computed has none.
pub(crate) fn nameless(mut series: Vec<PromSeries>) -> Result<Vec<PromSeries>, PromError> {
    for one in &mut series {
        if !one.labels.get(NAME).is_empty() {
            one.labels = one.labels.without_name();
        }
    }
    unique(series)
}

/// Series with equal labels become one, if they have no value at the same instant.
pub(crate) fn unique(series: Vec<PromSeries>) -> Result<Vec<PromSeries>, PromError> {
    let mut places: HashMap<SeriesLabels, usize> = HashMap::with_capacity(series.len());
    let mut kept: Vec<PromSeries> = Vec::with_capacity(series.len());
    for one in series {
        let Some(known) = places.get(&one.labels).and_then(|place| kept.get_mut(*place)) else {
            places.insert(one.labels.clone(), kept.len());
            kept.push(one);
            continue;
        };
        for (own, other) in known.values.iter_mut().zip(one.values) {
            match (&own, other) {
                (Some(_), Some(_)) => {
                    let text = "vector cannot contain metrics with the same labelset";
                    return Err(PromError::Execution(text.to_owned()));
                }
                (None, Some(_)) => *own = other,
                (_, None) => {}
            }
        }
    }
    Ok(kept)
}

/// Which values come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SortOrder {
    SmallestFirst,
    LargestFirst,
}

/// The order of two values, in which NaN comes last in either direction.
pub(crate) fn nan_last(one: f64, other: f64, order: SortOrder) -> Ordering {
    match (one.is_nan(), other.is_nan()) {
        (false, false) => match order {
            SortOrder::SmallestFirst => one.total_cmp(&other),
            SortOrder::LargestFirst => other.total_cmp(&one),
        },
        (one, other) => one.cmp(&other),
    }
}
