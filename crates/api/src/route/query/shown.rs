//! How the values of a series are shown.

use std::borrow::Cow;

use gpuvitals_core::batch::Value;
use gpuvitals_core::catalogue::ColumnType;
use gpuvitals_core::history::{Aggregate, BucketSeries};

/// The unit of the values of a series.
pub(super) fn unit_of(series: &BucketSeries) -> Cow<'static, str> {
    let unit = series.metric.metric().unit;
    match series.aggregate {
        Aggregate::Count => Cow::Borrowed(""),
        Aggregate::Rate if let Some((unit, _)) = unit.per_second() => Cow::Borrowed(unit.as_str()),
        Aggregate::Rate => Cow::Owned(format!("{}/s", unit.as_str())),
        _ => Cow::Borrowed(unit.as_str()),
    }
}

/// Whether its values come from 32-bit floats.
pub(super) fn is_single(series: &BucketSeries) -> bool {
    let is_value = series.aggregate != Aggregate::Count && !series.aggregate.needs_tracks();
    is_value && series.metric.metric().column_type == ColumnType::F32
}

/// Values that come from 32-bit floats, for a column of 64-bit ones: 100.3 does not become 100.30000305175781.
pub(super) fn in_own_digits(series: &mut BucketSeries) {
    if is_single(series) {
        series.values.iter_mut().flatten().for_each(|value| *value = Value::figure_of_singles(*value));
    }
}
