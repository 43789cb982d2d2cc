//! What the user says about a file: whose rows these are, and what its columns mean.

use std::str::FromStr;

use gpuvitals_core::catalogue::{self, MetricId, suggest};
use gpuvitals_core::foreign::unit_factor;
use gpuvitals_core::time::{DateOrder, Zone};

/// What the user says about a file. It goes before what the file says.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Hints {
    /// Meanings of columns.
    pub columns: Vec<ColumnHint>,
    /// Host of all rows.
    pub host: Option<String>,
    /// Host of rows whose GPU means nothing without one, if neither user nor file names one; without it the file's name.
    pub usual_host: Option<String>,
    /// The GPU of a file without a column for it.
    pub gpu: Option<String>,
    /// Zone of times without one; none: this machine's.
    pub timezone: Option<Zone>,
    /// They are for several files: one may lack a column that is another's.
    pub of_several: bool,
}

/// The meaning of one column: `NAME=METRIC[:UNIT]`.
#[derive(Debug, Clone, PartialEq)]
pub struct ColumnHint {
    /// Name in the file, without regard to case.
    pub name: String,
    /// What its cells are.
    pub sense: HintSense,
}

/// What a column is said to be.
#[derive(Debug, Clone, PartialEq)]
pub enum HintSense {
    /// A metric; column value = value in the file × factor. The unit as it was written.
    Metric(MetricId, f64, Option<String>),
    /// The time; the order of day and month in its dates.
    Time(DateOrder),
    /// The GPU that a row is of.
    Gpu,
    /// The host that a row is of.
    Host,
    /// Nothing that is known: it is kept under its own name.
    Own,
}

/// A hint that says nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HintError {
    /// It has no `=` between a name and a metric.
    #[error("{0:?} is not NAME=METRIC[:UNIT], such as \"Board Power=power_w:mW\"")]
    Form(String),
    /// No metric of that name.
    #[error("{name:?} is no metric{}; gpuvitals metrics lists them, and time, gpu, host and own are known, too",
        near.map(|near| format!(" (did you mean {near}?)")).unwrap_or_default())]
    Metric {
        /// The name that was written.
        name: String,
        /// The known name that is nearest to it, if one is near.
        near: Option<&'static str>,
    },
    /// A unit that the metric cannot have.
    #[error("{unit:?} is no unit of {metric}, which is in {}", if of.is_empty() { "no unit" } else { of })]
    Unit {
        /// The metric's column.
        metric: &'static str,
        /// The unit that was written.
        unit: String,
        /// The column's unit.
        of: &'static str,
    },
    /// An order of dates that there is not.
    #[error("{0:?} is no order of dates; write time:dmy (day first) or time:mdy (month first)")]
    Order(String),
}

impl FromStr for ColumnHint {
    type Err = HintError;

    fn from_str(text: &str) -> Result<Self, HintError> {
        let form = || HintError::Form(text.to_owned());
        let (name, sense) = text.rsplit_once('=').ok_or_else(form)?;
        let (name, (metric, unit)) =
            (name.trim(), sense.split_once(':').map_or((sense, None), |(m, u)| (m, Some(u))));
        let (metric, unit) = (metric.trim(), unit.map(str::trim));
        if name.is_empty() || metric.is_empty() {
            return Err(form());
        }
        let sense = match (metric.to_ascii_lowercase().as_str(), unit) {
            ("time", unit) => HintSense::Time(order(unit)?),
            ("gpu", None) => HintSense::Gpu,
            ("host", None) => HintSense::Host,
            ("own", None) => HintSense::Own,
            _ => metric_of(metric, unit)?,
        };
        Ok(Self { name: name.to_owned(), sense })
    }
}

fn order(unit: Option<&str>) -> Result<DateOrder, HintError> {
    match unit {
        None => Ok(DateOrder::Open),
        Some("dmy") => Ok(DateOrder::DayFirst),
        Some("mdy") => Ok(DateOrder::MonthFirst),
        Some(other) => Err(HintError::Order(other.to_owned())),
    }
}

fn metric_of(name: &str, unit: Option<&str>) -> Result<HintSense, HintError> {
    let id = catalogue::by_column(name).or_else(|| catalogue::by_alias(name));
    let id = id.ok_or_else(|| HintError::Metric { name: name.to_owned(), near: suggest(name) })?;
    let metric = id.metric();
    let Some(unit) = unit else { return Ok(HintSense::Metric(id, 1.0, None)) };
    let factor = unit_factor(unit, metric).ok_or_else(|| HintError::Unit {
        metric: metric.column,
        unit: unit.to_owned(),
        of: metric.unit.as_str(),
    })?;
    Ok(HintSense::Metric(id, factor, Some(unit.to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_is_a_name_a_metric_and_a_unit() {
        let hint: ColumnHint = "Board = Power=power_w:mW".parse().unwrap();
        assert_eq!(hint.name, "Board = Power");
        assert!(
            matches!(hint.sense, HintSense::Metric(id, factor, _) if id.metric().column == "power_w" && factor < 0.0011)
        );
        let sense = |text: &str| text.parse::<ColumnHint>().map(|hint| hint.sense);
        assert_eq!(sense("when=time:dmy"), Ok(HintSense::Time(DateOrder::DayFirst)));
        assert_eq!(sense("slot=gpu"), Ok(HintSense::Gpu));
        let refused = |text: &str| sense(text).unwrap_err().to_string();
        assert!(refused("power").contains("NAME=METRIC"));
        assert!(refused("a=powr_w").contains("did you mean power_w?"));
        assert_eq!(refused("a=power_w:MiB"), "\"MiB\" is no unit of power_w, which is in W");
        assert!(refused("a=time:ymd").contains("time:dmy"));
    }
}
