//! Aggregations over series.

use std::collections::HashMap;
use std::sync::Arc;

use gpuvitals_core::figures::Number;
use gpuvitals_core::number::float;

use crate::error::PromError;
use crate::expr::{self, Aggregate, AggregateOp, Grouping};
use crate::function::{mean, quantile, sum, variance};
use crate::labels::{NAME, SeriesLabels};
use crate::series::{PromSeries, SortOrder, Values, nan_last};

impl Grouping {
    /// The labels of a group, or by which series are matched.
    pub(crate) fn of(&self, labels: &SeriesLabels) -> SeriesLabels {
        match self {
            Self::By(names) => labels.kept(|name| names.iter().any(|by| **by == *name)),
            Self::Without(names) => {
                labels.kept(|name| name != NAME && !names.iter().any(|without| **without == *name))
            }
        }
    }
}

/// Series that are aggregated into one value an instant, or into as many as the operator makes of them.
struct SeriesGroup {
    /// The labels that its series share.
    labels: SeriesLabels,
    members: Vec<PromSeries>,
}

impl Aggregate {
    /// The aggregation of series at each of `count` instants; count_values gives `values_max` values at most.
    ///
    /// # Errors
    /// When the parameter is not the operator's, or there are too many values.
    pub(crate) fn aggregated(
        &self,
        series: Vec<PromSeries>,
        parameter: Option<&Values>,
        count: usize,
        values_max: usize,
    ) -> Result<Vec<PromSeries>, PromError> {
        let numbers = match parameter {
            Some(Values::Scalar(numbers)) => numbers.as_slice(),
            _ => &[],
        };
        let number = |step: usize| numbers.get(step).copied().unwrap_or(f64::NAN);
        let mut places: HashMap<SeriesLabels, usize> = HashMap::new();
        let mut groups: Vec<SeriesGroup> = Vec::new();
        for one in series {
            let labels = self.by.of(&one.labels);
            let place = *places.entry(labels.clone()).or_insert_with(|| {
                groups.push(SeriesGroup { labels, members: Vec::new() });
                groups.len() - 1
            });
            if let Some(group) = groups.get_mut(place) {
                group.members.push(one);
            }
        }
        match (self.how, parameter) {
            (AggregateOp::Topk | AggregateOp::Bottomk, _) => {
                check_whole(numbers)?;
                let is_top = self.how == AggregateOp::Topk;
                let order = if is_top { SortOrder::LargestFirst } else { SortOrder::SmallestFirst };
                Ok(groups.iter().flat_map(|group| group.best(order, number, count)).collect())
            }
            (AggregateOp::CountValues, Some(Values::Text(label))) => {
                let label = expr::label(label)?;
                let (mut all, series_max) = (Vec::new(), values_max / count.max(1));
                for group in &groups {
                    all.extend(group.counted(&label, count, series_max.saturating_sub(all.len()))?);
                }
                Ok(regrouped(all, &self.by, &label))
            }
            (AggregateOp::CountValues, _) => {
                Err(PromError::Syntax("count_values needs the name of a label".to_owned()))
            }
            (how, _) => {
                let aggregated = groups.into_iter().map(|SeriesGroup { labels, members }| {
                    let at = |step: usize| {
                        let values: Vec<f64> = present(&members, step).map(|(_, value)| value).collect();
                        (!values.is_empty()).then(|| how.of(values, number(step)))
                    };
                    PromSeries { labels, values: (0..count).map(at).collect() }
                });
                Ok(aggregated.collect())
            }
        }
    }
}

/// Refuses numbers of series that are no whole ones.
fn check_whole(numbers: &[f64]) -> Result<(), PromError> {
    let bound = 2_f64.powi(63);
    match numbers.iter().find(|number| !(-bound..bound).contains(*number)) {
        Some(number) => {
            Err(PromError::Execution(format!("Scalar value {} overflows int64", spelled(*number))))
        }
        None => Ok(()),
    }
}

/// The values of an instant, with the places of their series.
fn present(series: &[PromSeries], step: usize) -> impl Iterator<Item = (usize, f64)> {
    series.iter().enumerate().filter_map(move |(place, one)| Some((place, (*one.values.get(step)?)?)))
}

impl AggregateOp {
    /// Of values, of which there is at least one.
    fn of(self, values: Vec<f64>, parameter: f64) -> f64 {
        let all = || values.iter().copied();
        match self {
            Self::Sum => sum(all()),
            Self::Avg => mean(all()),
            Self::Min => all().fold(f64::NAN, f64::min),
            Self::Max => all().fold(f64::NAN, f64::max),
            Self::Count => float(values.len()),
            Self::Group => 1.0,
            Self::Stddev => variance(all()).sqrt(),
            Self::Stdvar => variance(all()),
            Self::Quantile => quantile(parameter, values),
            Self::Topk | Self::Bottomk | Self::CountValues => f64::NAN,
        }
    }
}

impl SeriesGroup {
    /// The first values of each instant in that order; the other values are none.
    fn best(&self, order: SortOrder, wanted: impl Fn(usize) -> f64, count: usize) -> Vec<PromSeries> {
        let mut kept: Vec<PromSeries> = self
            .members
            .iter()
            .map(|one| PromSeries { labels: one.labels.clone(), values: vec![None; count] })
            .collect();
        // In an instant query the best come first.
        let mut places: Vec<usize> = (0..self.members.len()).collect();
        for step in 0..count {
            let mut values: Vec<(usize, f64)> = present(&self.members, step).collect();
            values.sort_by(|(_, one), (_, other)| nan_last(*one, *other, order));
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below 1 it is none")]
            let wanted = wanted(step).max(0.0) as usize;
            if count == 1 {
                places = values.iter().map(|(place, _)| *place).collect();
            }
            for (place, value) in values.into_iter().take(wanted) {
                if let Some(kept) = kept.get_mut(place).and_then(|one| one.values.get_mut(step)) {
                    *kept = Some(value);
                }
            }
        }
        let mut kept: Vec<Option<PromSeries>> = kept.into_iter().map(Some).collect();
        let in_order = places.into_iter().filter_map(|place| kept.get_mut(place)?.take());
        in_order.filter(|one| one.values.iter().any(Option::is_some)).collect()
    }

    /// How many series have each value, as text of `label`.
    fn counted(
        &self,
        label: &Arc<str>,
        count: usize,
        series_max: usize,
    ) -> Result<Vec<PromSeries>, PromError> {
        let mut series: HashMap<String, Vec<Option<f64>>> = HashMap::new();
        for step in 0..count {
            for (_, value) in present(&self.members, step) {
                let counts = series.entry(spelled(value)).or_insert_with(|| vec![None; count]);
                if let Some(of_step) = counts.get_mut(step) {
                    *of_step = Some(of_step.unwrap_or(0.0) + 1.0);
                }
                if series.len() > series_max {
                    let text = "count_values finds too many values; round them, or take a larger step or a shorter range";
                    return Err(PromError::TooMuch(text.to_owned()));
                }
            }
        }
        let counted = series.into_iter().map(|(value, values)| {
            let mut labels = self.labels.clone();
            labels.set(Arc::clone(label), value.into());
            PromSeries { labels, values }
        });
        Ok(counted.collect())
    }
}

/// Series of counts put together by their groups: the label of the values may be one that groups differ in, or one that they lack.
fn regrouped(counted: Vec<PromSeries>, by: &Grouping, label: &Arc<str>) -> Vec<PromSeries> {
    let drops_label = matches!(by, Grouping::Without(names) if names.iter().any(|name| name == label));
    let mut places: HashMap<SeriesLabels, usize> = HashMap::new();
    let mut all: Vec<PromSeries> = Vec::with_capacity(counted.len());
    for mut one in counted {
        if drops_label {
            one.labels = one.labels.kept(|name| *name != **label);
        }
        let place = *places.entry(one.labels.clone()).or_insert(all.len());
        let Some(known) = all.get_mut(place) else {
            all.push(one);
            continue;
        };
        for (sum, more) in known.values.iter_mut().zip(one.values) {
            *sum = sum.map_or(more, |sum| Some(sum + more.unwrap_or(0.0)));
        }
    }
    all
}

/// Appends a number as the answers of Prometheus have it: a very small or large one has an exponent of two digits or more. Zero has no
/// sign here.
pub fn spell(value: f64, out: &mut Vec<u8>) {
    if !value.is_finite() || value == 0.0 || (1e-6..1e21).contains(&value.abs()) {
        spell_plainly(value, out);
        return;
    }
    let text = format!("{value:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((text.as_str(), "0"));
    let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |exponent| ('-', exponent));
    out.extend(format!("{digits}e{sign}{exponent:0>2}").bytes());
}

/// The same without an exponent, as labels have it.
fn spell_plainly(value: f64, out: &mut Vec<u8>) {
    if value.is_nan() {
        out.extend_from_slice(b"NaN");
    } else if value.is_infinite() {
        out.extend_from_slice(if value > 0.0 { b"+Inf" } else { b"-Inf" });
    } else {
        Number::F64(value).write(out);
    }
}

fn spelled(value: f64) -> String {
    let mut text = Vec::new();
    spell_plainly(value, &mut text);
    String::from_utf8(text).unwrap_or_default()
}
