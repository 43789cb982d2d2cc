//! From a name to a metric, in constant time.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::LazyLock;

use foldhash::fast::RandomState;

use super::{METRICS, Metric, MetricId, Table};

type NameIndex<V> = HashMap<Cow<'static, str>, V, RandomState>;

/// Longest name that is looked up: no column, alias or DCGM name is longer, and foreign data is not trusted.
const NAME_MAX: usize = 96;

static COLUMNS: LazyLock<NameIndex<MetricId>> =
    LazyLock::new(|| all().map(|(id, metric)| (Cow::Borrowed(metric.column), id)).collect());

static ALIASES: LazyLock<NameIndex<MetricId>> = LazyLock::new(|| {
    let named =
        all().flat_map(|(id, metric)| metric.aliases.iter().map(move |alias| (Cow::Borrowed(*alias), id)));
    // A column is an alias of itself, so that another case or separator finds it too.
    let columns = all().map(|(id, metric)| (Cow::Borrowed(metric.column), id));
    named.chain(columns).collect()
});

static DCGM: LazyLock<NameIndex<(MetricId, f64)>> = LazyLock::new(|| {
    let mut names = NameIndex::default();
    for (id, metric) in all() {
        for name in metric.dcgm {
            let upper = Cow::Owned(name.name.to_ascii_uppercase());
            names.entry(upper).or_insert((id, 1.0 / name.factor));
        }
    }
    names
});

/// Names shared by two metrics, with the second.
static SHARED: LazyLock<NameIndex<MetricId>> = LazyLock::new(|| {
    let named = all().flat_map(|(id, metric)| metric.dcgm.iter().map(move |name| (name.name, id)));
    let second = named.filter(|(name, id)| by_dcgm(name).is_some_and(|(first, _)| first != *id));
    second.map(|(name, id)| (Cow::Owned(name.to_ascii_uppercase()), id)).collect()
});

fn all() -> impl Iterator<Item = (MetricId, &'static Metric)> {
    (0_u16..).map(MetricId).zip(METRICS)
}

/// The metric of a column, by its exact name.
pub fn by_column(name: &str) -> Option<MetricId> {
    COLUMNS.get(name).copied()
}

/// The metric that a foreign name with the same unit means. Case and round brackets are ignored, and `-`,
/// `.`, `/` and blanks equal `_`. A unit in brackets at the end (`power.draw [W]`, `Temperature (C)`) must be
/// the column's unit.
pub fn by_alias(name: &str) -> Option<MetricId> {
    if let Some(id) = ALIASES.get(name) {
        return Some(*id);
    }
    if name.len() > NAME_MAX {
        return None;
    }
    let (name, unit) = split_unit(name.trim());
    let id = *ALIASES.get(loosely(name).as_str())?;
    unit.is_none_or(|unit| id.metric().unit.is_spelled(unit)).then_some(id)
}

/// The metric that a DCGM field name means, in either dialect, and the factor from DCGM's value to the
/// column's. Values of integer columns must be rounded after it.
pub fn by_dcgm(name: &str) -> Option<(MetricId, f64)> {
    if let Some(found) = DCGM.get(name) {
        return Some(*found);
    }
    if name.len() > NAME_MAX || !name.get(..4).is_some_and(|head| head.eq_ignore_ascii_case("dcgm")) {
        return None;
    }
    DCGM.get(name.to_ascii_uppercase().as_str()).copied()
}

/// The second metric of a DCGM name that two share. The name means this one for a GPU that has the first
/// under a name of the first alone: field 155 is the mean power of a GPU with field 157.
pub fn second_by_dcgm(name: &str) -> Option<MetricId> {
    by_dcgm(name)?;
    SHARED.get(name).or_else(|| SHARED.get(name.to_ascii_uppercase().as_str())).copied()
}

/// The columns of `gpu_events`, in order.
pub fn gpu_metrics() -> impl Iterator<Item = (MetricId, &'static Metric)> {
    all().filter(|(_, metric)| metric.table == Table::GpuEvents)
}

/// The columns of `system_events`, in order.
pub fn host_metrics() -> impl Iterator<Item = (MetricId, &'static Metric)> {
    all().filter(|(_, metric)| metric.table == Table::SystemEvents)
}

/// The column that an unknown name probably meant, for "did you mean"; searches aliases as well.
pub fn suggest(name: &str) -> Option<&'static str> {
    if name.is_empty() || name.len() > NAME_MAX {
        return None;
    }
    let wanted = loosely(name);
    let near = all()
        .flat_map(|(_, metric)| {
            let column = metric.column;
            std::iter::once(column).chain(metric.aliases.iter().copied()).map(move |word| (word, column))
        })
        .map(|(word, column)| (distance(&wanted, word), column))
        .min_by_key(|(distance, _)| *distance);
    let most = (wanted.chars().count() / 3).max(1);
    near.filter(|(distance, _)| *distance <= most).map(|(_, column)| column)
}

/// A name in lower case with `_` for what separates its words, by which names are compared.
pub fn folded(name: &str) -> String {
    let fold = |c| if matches!(c, '-' | ' ' | '.' | '/' | ':') { '_' } else { c };
    name.trim().chars().map(|c| fold(c).to_ascii_lowercase()).collect()
}

/// The same without brackets.
fn loosely(name: &str) -> String {
    folded(&name.replace(['(', ')'], ""))
}

/// `power.draw [W]` to `power.draw` and `W`.
fn split_unit(name: &str) -> (&str, Option<&str>) {
    for (open, close) in [('[', ']'), ('(', ')')] {
        if let Some((head, unit)) = name.strip_suffix(close).and_then(|rest| rest.rsplit_once(open)) {
            return (head.trim_end(), Some(unit.trim()));
        }
    }
    (name, None)
}

/// Edits (one character inserted, deleted or changed) from one word to the other.
fn distance(from: &str, to: &str) -> usize {
    let mut costs: Vec<usize> = (0..=to.chars().count()).collect();
    for (row, a) in from.chars().enumerate() {
        let mut diagonal = row;
        let mut left = row + 1;
        let mut next = Vec::with_capacity(costs.len());
        next.push(left);
        for (b, &above) in to.chars().zip(costs.iter().skip(1)) {
            let cost = (diagonal + usize::from(a != b)).min(above + 1).min(left + 1);
            diagonal = above;
            left = cost;
            next.push(cost);
        }
        costs = next;
    }
    costs.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::distance;

    #[test]
    fn distance_counts_edits() {
        assert_eq!(distance("", ""), 0);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("power_w", "power_w"), 0);
        assert_eq!(distance("powr_w", "power_w"), 1);
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
