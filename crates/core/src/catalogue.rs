//! The catalogue: the only list of metrics.
//!
//! One row a metric. Column names, wire fields, JSON names, Prometheus, DCGM and OpenTelemetry names, units,
//! ranges, prices and help sentences all come from here; no other code spells a metric.
//!
//! A value travels in its *column unit* (the field's own unit: MHz, W, MiB, %) from the dialect that read it to
//! the screen. Only an exposition multiplies by [`Metric::factor`] to get Prometheus base units.

mod gpu;
mod host;
mod lookup;
mod names;
mod render;
mod row;
mod table;

pub use lookup::{by_alias, by_column, by_dcgm, folded, gpu_metrics, host_metrics, second_by_dcgm, suggest};
pub use render::{json, markdown, table};
pub use table::{Table, TableColumn};

/// Every metric, GPU columns first; the position is the [`MetricId`] and the order of columns in files.
pub static METRICS: &[Metric] = &JOINED;

#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler, which would refuse to build")]
const LENGTH: usize = {
    let mut length = host::ROWS.len();
    let mut part = 0;
    while part < gpu::PARTS.len() {
        length += gpu::PARTS[part].len();
        part += 1;
    }
    length
};

#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler, which would refuse to build")]
static JOINED: [Metric; LENGTH] = {
    let mut joined = [host::ROWS[0]; LENGTH];
    let mut at = 0;
    let mut part = 0;
    while part <= gpu::PARTS.len() {
        let rows = if part < gpu::PARTS.len() { gpu::PARTS[part] } else { host::ROWS };
        let mut row = 0;
        while row < rows.len() {
            joined[at] = rows[row];
            at += 1;
            row += 1;
        }
        part += 1;
    }
    joined
};

/// Index of a metric in the catalogue; stable within one build, never stored or sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MetricId(pub u16);

impl MetricId {
    /// The metric of a column, found at compile time: a misspelt name does not build.
    ///
    /// # Panics
    /// If no metric has the column.
    #[expect(
        clippy::indexing_slicing,
        clippy::cast_possible_truncation,
        clippy::panic,
        reason = "evaluated by the compiler, which would refuse to build"
    )]
    pub const fn of(column: &str) -> Self {
        let mut at = 0;
        while at < JOINED.len() {
            if same(JOINED[at].column.as_bytes(), column.as_bytes()) {
                return Self(at as u16);
            }
            at += 1;
        }
        panic!("no metric has this column")
    }

    /// The catalogue row of this id.
    pub fn metric(self) -> &'static Metric {
        lookup::metric(self)
    }
}

#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler, within the lengths compared first")]
const fn same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut at = 0;
    while at < a.len() {
        if a[at] != b[at] {
            return false;
        }
        at += 1;
    }
    true
}

/// Type of the column, in memory, on the wire and on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ColumnType {
    /// 32-bit integer.
    I32,
    /// 64-bit integer.
    I64,
    /// 32-bit float.
    F32,
    /// 64-bit float.
    F64,
}

/// Unit of the column in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unit {
    /// A plain number or code.
    None,
    /// Per cent, 0 to 100.
    Percent,
    /// Share, 0 to 1.
    Ratio,
    /// Megahertz.
    Megahertz,
    /// Degrees Celsius.
    Celsius,
    /// Watt.
    Watt,
    /// Millijoule.
    Millijoule,
    /// Mebibyte (2^20 bytes).
    Mebibyte,
    /// Byte.
    Byte,
    /// Bytes per second.
    BytesPerSecond,
    /// Revolutions per minute.
    Rpm,
    /// Millivolt.
    Millivolt,
    /// Nanoseconds.
    Nanosecond,
    /// Gigatransfers per second (10^9).
    GigatransfersPerSecond,
}

/// How the value behaves over time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Instrument {
    /// Goes up and down.
    Gauge,
    /// Only grows, until the driver or host restarts.
    Counter,
    /// One of a few states, or a bit mask of them.
    State,
    /// Changes only with the configuration.
    Info,
}

/// The subject of one value. Links, blocks and stacks have one value for all of them. The CPUs of a host are rows of
/// `system_events` beside its own, with the number in column `core`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// The whole GPU (or partition).
    Device,
    /// An NVLink or xGMI link; label `link`.
    Link,
    /// An ECC or RAS block; label `block`.
    Block,
    /// An HBM stack; label `stack`.
    HbmStack,
    /// The host.
    Host,
    /// A CPU of the host (hardware thread); label `core`. Read on request only.
    CpuCore,
    /// A process on a GPU; label `pid`.
    Process,
}

/// The price of a reading, and so its rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tier {
    /// At the sampling rate.
    Fast,
    /// At most once a second.
    Slow,
    /// Every 30 to 60 seconds.
    Rare,
}

/// The smallest of the exposition's sets that contains a metric; a larger set includes the smaller ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Series {
    /// The handful that everybody needs.
    Basic,
    /// The default: at most 100 series a GPU together with the basic ones.
    Standard,
    /// Everything.
    All,
}

/// Panels and documents show metrics by group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Group {
    /// Load of the engines.
    Utilization,
    /// Power and energy.
    Power,
    /// Temperatures.
    Temperature,
    /// Clocks.
    Clock,
    /// Device memory.
    Memory,
    /// Fans and voltages.
    Board,
    /// Modes of GPU and driver, and the clocks that time readings.
    Driver,
    /// Throttle reasons and throttled time.
    Throttle,
    /// PCIe link.
    Pcie,
    /// NVLink and xGMI.
    Interconnect,
    /// ECC, RAS, retired pages, XID.
    Reliability,
    /// Hardware profiling ratios.
    Profiling,
    /// The host.
    Host,
}

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
    /// `hw.gpu.utilization`.
    pub name: &'static str,
    /// Attribute that distinguishes the family from others of the same name: `("error.type", "ecc")`.
    pub attribute: Option<(&'static str, &'static str)>,
}

/// A row of the catalogue.
#[derive(Debug, Clone, Copy)]
pub struct Metric {
    /// Column name; ends in the column unit. Also the JSON name.
    pub column: &'static str,
    /// The table.
    pub table: Table,
    /// Column type.
    pub column_type: ColumnType,
    /// Column unit.
    pub unit: Unit,
    /// Behaviour over time.
    pub instrument: Instrument,
    /// The subject of a value.
    pub scope: Scope,
    /// Panel group.
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
