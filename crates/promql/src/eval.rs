//! Evaluation of a query over what its selectors have found.

use std::borrow::Cow;
use std::cell::Cell;
use std::sync::Arc;

use gpuvitals_core::integral::seconds;

use crate::binary;
use crate::error::PromError;
use crate::expr::{LOOKBACK_NS, Node, Over, Ranged};
use crate::function::{Elementwise, OverRange, Span};
use crate::grid::{Grid, Lookup};
use crate::labels::SeriesLabels;
use crate::point::{Point, PointField, Points};
use crate::series::{PromSeries, SortOrder, Values, made, map, nameless, nan_last, series_of, unique};

/// A series that a selector has found.
#[derive(Debug, Clone)]
pub(crate) struct FoundSeries {
    pub(crate) labels: SeriesLabels,
    pub(crate) points: Points,
}

/// What is there to evaluate with.
pub(crate) struct Evaluation<'a> {
    pub(crate) found: &'a [Vec<FoundSeries>],
    /// Asked now and then; true ends the evaluation.
    pub(crate) is_cancelled: &'a (dyn Fn() -> bool + Sync),
    /// Most values that selectors and functions of ranges give, and that their results give in turn, together.
    pub(crate) values_max: usize,
    /// Those given so far.
    pub(crate) given: Cell<usize>,
}

impl Evaluation<'_> {
    /// The values of a part at each instant of a grid.
    ///
    /// # Errors
    /// When series cannot be matched, or there are too many values.
    pub(crate) fn values(&self, node: &Node, grid: Grid) -> Result<Values, PromError> {
        self.go_on()?;
        Ok(match node {
            Node::Number(number) => Values::Scalar(vec![*number; grid.count]),
            Node::Text(text) => Values::Text(text.clone()),
            Node::Time => Values::Scalar(grid.times().map(seconds).collect()),
            Node::Instant { fetch, lookup, field } => {
                Values::Vector(self.instant(*fetch, *lookup, *field, grid)?)
            }
            // Taken apart by who asks.
            Node::All(_) => Values::Vector(Vec::new()),
            Node::Over(over) => Values::Vector(self.over(over, grid)?),
            Node::Call(function, arguments) => self.call(*function, arguments, grid)?,
            Node::Aggregate(of) => {
                let series = self.vector(&of.of, grid)?;
                let parameter = of.parameter.as_ref().map(|node| self.values(node, grid)).transpose()?;
                Values::Vector(of.aggregated(series, parameter.as_ref(), grid.count, self.values_max)?)
            }
            Node::Binary(of) => {
                let (left, right) = (self.values(&of.left, grid)?, self.values(&of.right, grid)?);
                binary::operate(of, left, right)?
            }
            Node::Negated(of) => match self.values(of, grid)? {
                Values::Scalar(numbers) => {
                    Values::Scalar(numbers.into_iter().map(|number| -number).collect())
                }
                Values::Vector(series) => Values::Vector(nameless(map(series, |value, _| Some(-value)))?),
                Values::Text(_) => return Err(PromError::Syntax("a text has no sign".to_owned())),
            },
            Node::Scalar(of) => Values::Scalar(scalar(&self.vector(of, grid)?, grid.count)),
            Node::Vector(of) => {
                let values = self.scalar(of, grid)?.into_iter().map(Some).collect();
                Values::Vector(vec![PromSeries { labels: SeriesLabels::default(), values }])
            }
            Node::Absent(of, told) => Values::Vector(absent(&self.vector(of, grid)?, told, grid.count)),
            Node::LabelReplace { of, to, with, from, pattern } => {
                let mut series = self.vector(of, grid)?;
                for one in &mut series {
                    let text = one.labels.get(from).to_owned();
                    if let Some(found) = pattern.captures(&text) {
                        let mut new = String::new();
                        found.expand(with, &mut new);
                        one.labels.set(Arc::clone(to), made(new)?);
                    }
                }
                Values::Vector(unique(series)?)
            }
            Node::LabelJoin { of, to, with, from } => {
                let mut series = self.vector(of, grid)?;
                for one in &mut series {
                    let texts: Vec<&str> = from.iter().map(|name| one.labels.get(name)).collect();
                    let text = texts.join(with);
                    one.labels.set(Arc::clone(to), made(text)?);
                }
                Values::Vector(unique(series)?)
            }
            Node::Sorted(of, order) => {
                let mut series = self.vector(of, grid)?;
                // Only an instant query has an order.
                if grid.count == 1 {
                    sort(&mut series, *order);
                }
                Values::Vector(series)
            }
        })
    }

    fn vector(&self, node: &Node, grid: Grid) -> Result<Vec<PromSeries>, PromError> {
        match self.values(node, grid)? {
            Values::Vector(series) => Ok(series),
            Values::Scalar(_) | Values::Text(_) => {
                Err(PromError::Syntax("an instant vector is needed here".to_owned()))
            }
        }
    }

    fn scalar(&self, node: &Node, grid: Grid) -> Result<Vec<f64>, PromError> {
        match self.values(node, grid)? {
            Values::Scalar(numbers) => Ok(numbers),
            Values::Vector(_) | Values::Text(_) => {
                Err(PromError::Syntax("a scalar is needed here".to_owned()))
            }
        }
    }

    fn found(&self, fetch: usize) -> &[FoundSeries] {
        self.found.get(fetch).map(Vec::as_slice).unwrap_or_default()
    }

    /// Fails once nobody waits for the result any more.
    fn go_on(&self) -> Result<(), PromError> {
        if (self.is_cancelled)() {
            return Err(PromError::Execution("the query was cancelled".to_owned()));
        }
        Ok(())
    }

    /// Counts what is about to be given: parts of a query may all be held at a time.
    fn check(&self, series: usize, grid: Grid) -> Result<(), PromError> {
        let given = self.given.get().saturating_add(series.saturating_mul(grid.count));
        self.given.set(given);
        if given > self.values_max {
            return Err(PromError::TooMuch(format!(
                "{series} series at {} instants, and what else the query computes, are more than {} values; take fewer series, a \
                 larger step or a shorter range",
                grid.count, self.values_max
            )));
        }
        Ok(())
    }

    fn instant(
        &self,
        fetch: usize,
        lookup: Lookup,
        field: PointField,
        grid: Grid,
    ) -> Result<Vec<PromSeries>, PromError> {
        let found = self.found(fetch);
        self.check(found.len(), grid)?;
        let value = |point: Point| match field {
            PointField::Value => point.value,
            PointField::Time => seconds(point.time_ns),
        };
        let series = found.iter().filter_map(|found| {
            let mut windows = found.points.windows();
            let mut newest = |time_ns: i64| {
                let to_ns = lookup.time(time_ns);
                windows.next(to_ns.saturating_sub(LOOKBACK_NS), to_ns).newest().next_back()
            };
            let values: Vec<Option<f64>> = grid.times().map(|time_ns| newest(time_ns).map(value)).collect();
            series_of(found.labels.clone(), values)
        });
        let series = series.collect();
        match field {
            PointField::Value => Ok(series),
            PointField::Time => nameless(series),
        }
    }

    fn over(&self, over: &Over, grid: Grid) -> Result<Vec<PromSeries>, PromError> {
        let parameter = match &over.parameter {
            Some(node) => self.scalar(node, grid)?,
            None => vec![0.0; grid.count],
        };
        let found = self.ranged(&over.of)?;
        self.check(found.len(), grid)?;
        let span = |time_ns: i64| {
            let to_ns = over.lookup.time(time_ns);
            Span { from_ns: to_ns.saturating_sub(over.range_ns), to_ns, now_ns: time_ns }
        };
        let mut all = Vec::with_capacity(found.len());
        for one in found.iter() {
            let mut windows = one.points.windows();
            let mut at = |(time_ns, parameter): (i64, &f64)| {
                self.go_on()?;
                let span = span(time_ns);
                let window = windows.next(span.from_ns, span.to_ns);
                let function =
                    if over.function == OverRange::Absent { OverRange::Present } else { over.function };
                Ok(function.apply(window, span, *parameter))
            };
            let values: Result<_, PromError> = grid.times().zip(&parameter).map(&mut at).collect();
            all.extend(series_of(one.labels.clone(), values?));
        }
        if over.function == OverRange::Absent {
            return Ok(absent(&all, &over.told, grid.count));
        }
        if over.function.keeps_name() { Ok(all) } else { nameless(all) }
    }

    /// The series whose values a range is of.
    pub(crate) fn ranged(&self, of: &Ranged) -> Result<Cow<'_, [FoundSeries]>, PromError> {
        Ok(match of {
            Ranged::Fetch(fetch) => Cow::Borrowed(self.found(*fetch)),
            Ranged::Subquery(node, inner) => Cow::Owned(self.subquery(node, *inner)?),
        })
    }

    /// The values of a part at the instants of a subquery, as those of a series.
    fn subquery(&self, node: &Node, inner: Grid) -> Result<Vec<FoundSeries>, PromError> {
        let found = |series: PromSeries| {
            let points = inner.times().zip(series.values);
            let points = points.filter_map(|(time_ns, value)| Some(Point { time_ns, value: value? }));
            FoundSeries { labels: series.labels, points: Points::Each(points.collect()) }
        };
        Ok(match self.values(node, inner)? {
            Values::Vector(series) => series.into_iter().map(found).collect(),
            Values::Scalar(numbers) => {
                let values = numbers.into_iter().map(Some).collect();
                vec![found(PromSeries { labels: SeriesLabels::default(), values })]
            }
            Values::Text(_) => return Err(PromError::Syntax("a text has no range".to_owned())),
        })
    }

    fn call(&self, function: Elementwise, arguments: &[Node], grid: Grid) -> Result<Values, PromError> {
        let now: Vec<f64> = grid.times().map(seconds).collect();
        let Some((first, others)) = arguments.split_first() else {
            // A part of the date of the instant.
            let values = now.iter().map(|time| function.apply(*time, &[], *time)).collect();
            return Ok(Values::Vector(vec![PromSeries { labels: SeriesLabels::default(), values }]));
        };
        let others: Vec<Vec<f64>> =
            others.iter().map(|node| self.scalar(node, grid)).collect::<Result<_, _>>()?;
        let series = self.vector(first, grid)?;
        let series = map(series, |value, step| {
            let others: Vec<f64> = others.iter().filter_map(|other| other.get(step).copied()).collect();
            function.apply(value, &others, now.get(step).copied().unwrap_or(f64::NAN))
        });
        Ok(Values::Vector(nameless(series)?))
    }
}

/// The value of the only series of each instant.
fn scalar(series: &[PromSeries], count: usize) -> Vec<f64> {
    let at = |step: usize| {
        let mut values = series.iter().filter_map(|one| *one.values.get(step)?);
        let first = values.next();
        first.filter(|_| values.next().is_none()).unwrap_or(f64::NAN)
    };
    (0..count).map(at).collect()
}

/// 1 where no series has a value.
fn absent(series: &[PromSeries], told: &[(Arc<str>, Arc<str>)], count: usize) -> Vec<PromSeries> {
    let is_there = |step: usize| series.iter().any(|one| one.values.get(step).is_some_and(Option::is_some));
    let values = (0..count).map(|step| (!is_there(step)).then_some(1.0)).collect();
    series_of(SeriesLabels::of(told.iter().cloned()), values).into_iter().collect()
}

/// By the value at the only instant, NaN last.
fn sort(series: &mut [PromSeries], order: SortOrder) {
    let value = |one: &PromSeries| one.values.first().copied().flatten().unwrap_or(f64::NAN);
    series.sort_by(|one, other| nan_last(value(one), value(other), order));
}
