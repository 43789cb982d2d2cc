//! Operators between scalars and series.

use std::collections::HashMap;
use std::sync::Arc;

use crate::error::PromError;
use crate::expr::{Binary, BinaryOp, Grouping, ManySide};
use crate::labels::{NAME, SeriesLabels};
use crate::series::{PromSeries, Values, map, nameless, series_of, unique};

/// The operator's result.
pub(crate) fn operate(of: &Binary, left: Values, right: Values) -> Result<Values, PromError> {
    match (left, right) {
        (Values::Scalar(left), Values::Scalar(right)) => {
            let pairs = left.into_iter().zip(right);
            Ok(Values::Scalar(pairs.map(|(left, right)| of.op.number(left, right)).collect()))
        }
        (Values::Vector(series), Values::Scalar(numbers)) => {
            let one = |value, step| of.value(value, *numbers.get(step)?, value);
            of.named(map(series, one)).map(Values::Vector)
        }
        (Values::Scalar(numbers), Values::Vector(series)) => {
            let one = |value, step| of.value(*numbers.get(step)?, value, value);
            of.named(map(series, one)).map(Values::Vector)
        }
        (Values::Vector(left), Values::Vector(right)) => {
            let series = if of.op.is_set() { unique(of.set(left, right))? } else { of.matched(left, right)? };
            Ok(Values::Vector(series))
        }
        (Values::Text(_), _) | (_, Values::Text(_)) => {
            Err(PromError::Syntax("an operator takes no text".to_owned()))
        }
    }
}

impl BinaryOp {
    /// Of two numbers; 1 or 0 if it compares.
    fn number(self, left: f64, right: f64) -> f64 {
        match self {
            Self::Add => left + right,
            Self::Sub => left - right,
            Self::Mul => left * right,
            Self::Div => left / right,
            Self::Mod => left % right,
            Self::Pow => left.powf(right),
            Self::Atan2 => left.atan2(right),
            _ => f64::from(u8::from(self.holds(left, right))),
        }
    }

    #[expect(clippy::float_cmp, reason = "what the operator says")]
    fn holds(self, left: f64, right: f64) -> bool {
        match self {
            Self::Equal => left == right,
            Self::NotEqual => left != right,
            Self::Less => left < right,
            Self::LessOrEqual => left <= right,
            Self::Greater => left > right,
            Self::GreaterOrEqual => left >= right,
            _ => false,
        }
    }
}

/// One side of a match: the series of each group of labels.
type Sides = HashMap<SeriesLabels, Vec<PromSeries>>;

impl Binary {
    /// Whether it compares and drops the values for which that does not hold, instead of giving 0 or 1.
    fn filters(&self) -> bool {
        self.op.compares() && !self.is_bool
    }

    /// Of two values; a comparison that does not hold leaves none, one that holds `kept`.
    fn value(&self, left: f64, right: f64, kept: f64) -> Option<f64> {
        if self.filters() {
            return self.op.holds(left, right).then_some(kept);
        }
        Some(self.op.number(left, right))
    }

    /// A comparison that filters keeps the name.
    fn named(&self, series: Vec<PromSeries>) -> Result<Vec<PromSeries>, PromError> {
        if self.filters() { Ok(series) } else { nameless(series) }
    }

    fn set(&self, left: Vec<PromSeries>, right: Vec<PromSeries>) -> Vec<PromSeries> {
        let (kept, filtered, others, wanted) = match self.op {
            BinaryOp::Or => {
                let others = self.steps(&left);
                (left, right, others, false)
            }
            op => (Vec::new(), left, self.steps(&right), op == BinaryOp::And),
        };
        let rest = filtered.into_iter().filter_map(|PromSeries { labels, values }| {
            let there = others.get(&self.on.of(&labels));
            let is_there = |step: usize| there.and_then(|steps| steps.get(step)).copied().unwrap_or(false);
            let values = values.into_iter().enumerate();
            series_of(
                labels,
                values.map(|(step, value)| value.filter(|_| is_there(step) == wanted)).collect(),
            )
        });
        let rest: Vec<PromSeries> = rest.collect();
        kept.into_iter().chain(rest).collect()
    }

    /// The instants at which each group has a value.
    fn steps(&self, series: &[PromSeries]) -> HashMap<SeriesLabels, Vec<bool>> {
        let mut steps: HashMap<SeriesLabels, Vec<bool>> = HashMap::new();
        for one in series {
            let found = steps.entry(self.on.of(&one.labels)).or_insert_with(|| vec![false; one.values.len()]);
            found.iter_mut().zip(&one.values).for_each(|(is, value)| *is |= value.is_some());
        }
        steps
    }

    fn matched(&self, left: Vec<PromSeries>, right: Vec<PromSeries>) -> Result<Vec<PromSeries>, PromError> {
        let is_swapped = matches!(self.many, ManySide::Right(_));
        let (many, one) = if is_swapped { (right, left) } else { (left, right) };
        let mut sides: Sides = HashMap::new();
        for series in one {
            sides.entry(self.on.of(&series.labels)).or_default().push(series);
        }
        let is_there =
            |series: &PromSeries, step: usize| series.values.get(step).is_some_and(Option::is_some);
        let count = many.first().map_or(0, |series| series.values.len());
        let asked: Vec<usize> =
            (0..count).filter(|step| many.iter().any(|series| is_there(series, *step))).collect();
        for (group, others) in sides.iter().filter(|(_, others)| others.len() > 1) {
            let is_twice =
                |step: &usize| others.iter().filter(|other| is_there(other, *step)).nth(1).is_some();
            if asked.iter().any(is_twice) {
                return Err(ambiguous(group, if is_swapped { "left" } else { "right" }));
            }
        }
        let mut results = Vec::new();
        let mut taken: HashMap<SeriesLabels, Vec<bool>> = HashMap::new();
        for series in many {
            let group = self.on.of(&series.labels);
            let Some(others) = sides.get(&group) else { continue };
            let pairs = self.pairs(&series, others, is_swapped);
            if self.many == ManySide::Neither {
                // A pair that the comparison filters out is not a match.
                let taken = taken.entry(group.clone()).or_insert_with(|| vec![false; count]);
                for (step, taken) in taken.iter_mut().enumerate() {
                    let is_pair = pairs.iter().any(|pair| is_there(pair, step));
                    if is_pair && std::mem::replace(taken, true) {
                        return Err(ambiguous(&group, "left"));
                    }
                }
            }
            results.extend(pairs);
        }
        unique(results).map_err(|_| {
            PromError::Execution(
                "multiple matches for labels: grouping labels must ensure unique matches".to_owned(),
            )
        })
    }

    /// A series with each of those that match it, of which one has a value at an instant.
    fn pairs(&self, series: &PromSeries, others: &[PromSeries], is_swapped: bool) -> Vec<PromSeries> {
        let pairs = others.iter().filter_map(|other| {
            let both = series.values.iter().zip(&other.values);
            let values = both.map(|(own, other)| {
                let (own, other) = ((*own)?, (*other)?);
                let (left, right) = if is_swapped { (other, own) } else { (own, other) };
                self.value(left, right, left)
            });
            series_of(self.labels(&series.labels, &other.labels), values.collect())
        });
        pairs.collect()
    }

    /// The labels of a result, from those of the side that may have many and those of the other.
    fn labels(&self, many: &SeriesLabels, one: &SeriesLabels) -> SeriesLabels {
        let mut labels = if self.filters() { many.clone() } else { many.without_name() };
        let taken: &[Arc<str>] = match &self.many {
            ManySide::Neither => {
                labels = match &self.on {
                    Grouping::By(names) => labels.kept(|name| names.iter().any(|by| **by == *name)),
                    Grouping::Without(names) => {
                        labels.kept(|name| !names.iter().any(|without| **without == *name))
                    }
                };
                &[]
            }
            ManySide::Left(names) | ManySide::Right(names) => names,
        };
        for name in taken {
            labels.copy(name, one);
        }
        if !self.filters() {
            labels = labels.kept(|name| name != NAME);
        }
        labels
    }
}

fn ambiguous(group: &SeriesLabels, side: &str) -> PromError {
    let labels: Vec<String> = group.iter().map(|(name, text)| format!("{name}={text:?}")).collect();
    PromError::Execution(format!(
        "found duplicate series for the match group {{{}}} on the {side} hand-side of the operation; many-to-many matching not \
         allowed: matching labels must be unique on one side",
        labels.join(", ")
    ))
}
