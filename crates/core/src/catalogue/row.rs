//! The syntax of a row: a constructor per instrument, then its deviations from the usual.

use super::metric::{DcgmName, Metric, OtelName};
use super::table::Table;
use super::unit::{COUNT, ColumnType, Group, Instrument, Scope, Series, Tier, Unit};

/// A name of the dialect up to dcgm-exporter 4.8.
pub(super) const fn old(name: &'static str, factor: f64) -> DcgmName {
    DcgmName { name, factor, modern: false }
}

/// A name of the dialect from dcgm-exporter 4.9 on.
pub(super) const fn new(name: &'static str, factor: f64) -> DcgmName {
    DcgmName { name, factor, modern: true }
}

const fn row(
    instrument: Instrument,
    (column, column_type, unit): (&'static str, ColumnType, Unit),
    group: Group,
    prometheus: &'static str,
    help: &'static str,
) -> Metric {
    Metric {
        column,
        table: Table::GpuEvents,
        column_type,
        unit,
        instrument,
        scope: Scope::Device,
        group,
        tier: Tier::Slow,
        series: Series::All,
        range: if matches!(instrument, Instrument::Counter) { COUNT } else { unit.range() },
        prometheus,
        labels: &[],
        factor: unit.base_factor(),
        dcgm: &[],
        otel: None,
        aliases: &[],
        bits: &[],
        help,
    }
}

/// A value that goes up and down.
pub(super) const fn gauge(
    column: (&'static str, ColumnType, Unit),
    group: Group,
    prometheus: &'static str,
    help: &'static str,
) -> Metric {
    row(Instrument::Gauge, column, group, prometheus, help)
}

/// A 64-bit count of things that only grows.
pub(super) const fn count(
    column: &'static str,
    group: Group,
    prometheus: &'static str,
    help: &'static str,
) -> Metric {
    counter((column, ColumnType::I64, Unit::None), group, prometheus, help)
}

/// A sum that only grows and has a unit.
pub(super) const fn counter(
    column: (&'static str, ColumnType, Unit),
    group: Group,
    prometheus: &'static str,
    help: &'static str,
) -> Metric {
    row(Instrument::Counter, column, group, prometheus, help)
}

/// One of a few states, 32 bits, from 0 to `max`.
pub(super) const fn state(
    column: &'static str,
    max: f64,
    group: Group,
    prometheus: &'static str,
    help: &'static str,
) -> Metric {
    row(Instrument::State, (column, ColumnType::I32, Unit::None), group, prometheus, help).range(0.0, max)
}

/// A mask of bits, raw from the driver.
pub(super) const fn mask(
    column: &'static str,
    group: Group,
    prometheus: &'static str,
    help: &'static str,
) -> Metric {
    let cell = (column, ColumnType::I64, Unit::None);
    row(Instrument::State, cell, group, prometheus, help).range(COUNT.0, COUNT.1)
}

/// A value that changes only with the configuration.
pub(super) const fn info(
    column: (&'static str, ColumnType, Unit),
    group: Group,
    prometheus: &'static str,
    help: &'static str,
) -> Metric {
    row(Instrument::Info, column, group, prometheus, help).rare()
}

impl Metric {
    pub(super) const fn host(mut self) -> Self {
        self.table = Table::SystemEvents;
        self.scope = Scope::Host;
        self
    }

    pub(super) const fn scope(mut self, scope: Scope) -> Self {
        self.scope = scope;
        self
    }

    pub(super) const fn fast(mut self) -> Self {
        self.tier = Tier::Fast;
        self
    }

    pub(super) const fn rare(mut self) -> Self {
        self.tier = Tier::Rare;
        self
    }

    pub(super) const fn basic(mut self) -> Self {
        self.series = Series::Basic;
        self
    }

    pub(super) const fn standard(mut self) -> Self {
        self.series = Series::Standard;
        self
    }

    pub(super) const fn all(mut self) -> Self {
        self.series = Series::All;
        self
    }

    pub(super) const fn range(mut self, low: f64, high: f64) -> Self {
        self.range = (low, high);
        self
    }

    pub(super) const fn labels(mut self, labels: &'static [(&'static str, &'static str)]) -> Self {
        self.labels = labels;
        self
    }

    pub(super) const fn dcgm(mut self, names: &'static [DcgmName]) -> Self {
        self.dcgm = names;
        self
    }

    pub(super) const fn otel(mut self, name: &'static str) -> Self {
        self.otel = Some(OtelName { name, attribute: None });
        self
    }

    /// As [`Metric::otel`], with an attribute that distinguishes the family from others of the name.
    pub(super) const fn otel_as(
        mut self,
        name: &'static str,
        attribute: (&'static str, &'static str),
    ) -> Self {
        self.otel = Some(OtelName { name, attribute: Some(attribute) });
        self
    }

    pub(super) const fn bits(mut self, names: &'static [(u8, &'static str)]) -> Self {
        self.bits = names;
        self
    }

    pub(super) const fn aliases(mut self, names: &'static [&'static str]) -> Self {
        self.aliases = names;
        self
    }
}
