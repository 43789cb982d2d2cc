//! A metric is a row of the catalogue, and an id is its place there.

use super::table::Table;
use super::unit::{ColumnType, FLAG, Group, Instrument, Scope, Series, Tier, Unit};

/// Index of a metric in the catalogue; stable within one build, never stored or sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MetricId(pub u16);

/// A name under which dcgm-exporter publishes the metric, in one of its two dialects.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DcgmName {
    /// Whole series name: `DCGM_FI_DEV_GPU_UTIL`.
    pub name: &'static str,
    /// DCGM value = column value × factor.
    pub factor: f64,
    /// `false`: up to 4.8 (MHz, %, MiB); `true`: 4.9 on (base units).
    pub modern: bool,
}

/// A name of OpenTelemetry's semantic conventions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OtelName {
    /// Name of the instrument: `hw.gpu.utilization`.
    pub name: &'static str,
    /// Attribute that distinguishes the family from others of the same name: `("error.type", "ecc")`.
    pub attribute: Option<(&'static str, &'static str)>,
}

/// A row of the catalogue.
#[derive(Debug, Clone, Copy)]
pub struct Metric {
    /// Column name; ends in the column unit. Also the JSON name.
    pub column: &'static str,
    /// The table that has the column.
    pub table: Table,
    /// Type of the column's values.
    pub column_type: ColumnType,
    /// Unit of the column's values.
    pub unit: Unit,
    /// Behaviour over time.
    pub instrument: Instrument,
    /// The subject of a value.
    pub scope: Scope,
    /// Group under which panels and documents show it.
    pub group: Group,
    /// Price of a reading.
    pub tier: Tier,
    /// Smallest set of series that contains it.
    pub series: Series,
    /// Smallest and largest possible value, in the column unit; outside is `Invalid`.
    pub range: (f64, f64),
    /// Prometheus family, in base units, with `_total` for counters.
    pub prometheus: &'static str,
    /// Constant labels that distinguish siblings of one family (`clock="graphics"`); the instance's own label
    /// (`link`, `block`, `stack`) is added to them.
    pub labels: &'static [(&'static str, &'static str)],
    /// Prometheus value = column value × factor.
    pub factor: f64,
    /// Names in DCGM's dialects; the first of a dialect is published, all are understood. A name in two rows
    /// means the first row's metric, unless the GPU has that under another name.
    pub dcgm: &'static [DcgmName],
    /// Name of its series over OTLP; none: the Prometheus name. If the conventions have one name for several
    /// families, only the first has it here, unless an attribute distinguishes them: a sum over `hw.power`
    /// must not count a GPU twice.
    pub otel: Option<OtelName>,
    /// Names in foreign data with the same unit, lower case with `_` for any separator.
    pub aliases: &'static [&'static str],
    /// Of a mask: number and name of each bit with a meaning.
    pub bits: &'static [(u8, &'static str)],
    /// One sentence for people: meaning, source, and the meaning of absence if it is not plain.
    pub help: &'static str,
}

impl Metric {
    /// Whether a value in the column unit is possible.
    pub fn admits(&self, value: f64) -> bool {
        let (min, max) = self.range;
        (min..=max).contains(&value)
    }

    /// Whether it has the two states 0 and 1, which words and booleans may stand for.
    pub fn is_flag(&self) -> bool {
        self.instrument == Instrument::State && self.range == FLAG
    }
}
