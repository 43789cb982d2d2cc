//! The long form: records that name their metric.

use std::borrow::Cow;

use gpuvitals_core::foreign::{self, Meaning};

use super::{Places, RecordReading, RowBuilder, RowPlace, text};
use crate::csv::cell;
use crate::csv::decimal::{Decimal, pointed};
use crate::csv::part::Whose;
use crate::csv::series::{self, Series, SeriesMeaning, SeriesName};
use crate::csv::split::Splitter;
use crate::report::{Cause, Refusal};

/// Most names of metrics remembered; further ones are looked up again.
const NAMES_MAX: usize = 4096;

impl RowBuilder {
    /// Sets the metric that the row names; whether it is in the row of another than the record's.
    pub(super) fn read_named(
        &mut self,
        reading: &mut RecordReading<'_>,
        (name_column, value_column): (usize, usize),
        places: &mut Places,
    ) -> Result<bool, Refusal> {
        let record = reading.record;
        let name = record.field(name_column);
        let (scale, whose, is_of_several) = match self.named(record, name) {
            SeriesMeaning::Metric { scale, whose, is_of_several } => (scale, whose, is_of_several),
            SeriesMeaning::Extra(name) => {
                reading.rest.extra(&name, record.field(value_column));
                return Ok(false);
            }
        };
        let field = record.field(value_column);
        let unit = self.unit.map_or("", |column| text(record.field(column)).trim());
        let written = match self.plan.decimals.of_column(value_column) {
            // A cell without a unit beside it says itself what its commas are.
            Decimal::Point if unit.is_empty() => Cow::Borrowed(field),
            decimal => pointed(field, decimal),
        };
        let read = if unit.is_empty() {
            cell::metric(&written, &scale)
        } else {
            cell::metric(&series::united(text(name).trim(), &written, unit), &scale)
        };
        let value = match read {
            Ok(value) => value,
            Err(missing) => {
                let name = std::str::from_utf8(name).ok();
                reading.missing(scale.id, missing, name);
                if whose.is_some() {
                    reading.rest.absent.pop();
                }
                return Ok(false);
            }
        };
        let mut other = match &whose {
            Some(whose) => Some(self.place_of(record, whose, places.own.time_ns)?),
            None => None,
        };
        let place = other.as_mut().unwrap_or_else(|| places.of(&scale));
        if is_of_several && let Some(row) = self.row(place) {
            let largest = self.largest.entry((row, scale.id)).or_insert(f64::NEG_INFINITY);
            if *largest >= value.as_f64() {
                return Ok(false);
            }
            *largest = value.as_f64();
        }
        self.set(place, &scale, value);
        let row = place.row.filter(|_| !place.is_host);
        if let (Some(messages), Some((row, _))) = (&mut self.messages, row) {
            let name = text(name).trim();
            let is_understood = foreign::meaning(name) == Meaning::Metric(scale.id, scale.factor());
            if whose.is_none() && is_understood && !foreign::is_unit(unit) {
                messages.put(row, name, text(record.field(value_column)));
            } else {
                messages.put_value(row, scale.id.metric().column, value);
            }
        }
        Ok(other.is_some())
    }

    /// Why a record is left out that names no GPU: one of a metric that nobody knows is something else's (`go_goroutines`).
    pub(super) fn of_nobody(&mut self, record: &Splitter, refusal: Refusal) -> Refusal {
        let name = self.named.map_or(&b""[..], |(name, _)| record.field(name));
        if name.is_empty() || refusal.cause != Cause::Identity {
            return refusal;
        }
        match self.named(record, name) {
            SeriesMeaning::Extra(name) => {
                let reason = format!("no metric is known by the name {name}, and {}", refusal.reason);
                Refusal { cause: Cause::NoValue, column: None, reason }
            }
            SeriesMeaning::Metric { .. } => refusal,
        }
    }

    /// Where the values of one go whom a name of a metric names.
    fn place_of(&mut self, record: &Splitter, whose: &Whose, time_ns: i64) -> Result<RowPlace, Refusal> {
        let known = self.owners.iter().position(|known| known == whose);
        let number = known.unwrap_or_else(|| {
            self.owners.push(whose.clone());
            self.owners.len() - 1
        });
        let index = self.subjects.find(&self.plan, record, (self.parts.len() + number, whose))?;
        Ok(RowPlace { index, time_ns, is_host: *whose == Whose::Host, row: None, is_shared: true })
    }

    /// What a record's name is.
    fn named(&mut self, record: &Splitter, name: &[u8]) -> SeriesMeaning {
        let labels = || self.labels.map_or("", |column| text(record.field(column)));
        let in_plan = |name: &str| Series::in_plan(name, labels(), &self.plan).named;
        match self.names.get(name) {
            Some(SeriesName::Known(named)) => return named.clone(),
            Some(SeriesName::ByLabels) => return in_plan(text(name)),
            None => {}
        }
        if self.names.len() >= NAMES_MAX {
            self.names.clear();
        }
        let written = String::from_utf8_lossy(name);
        let named = in_plan(&written);
        let is_by_labels = self.labels.is_some() && foreign::depends_on_labels(written.trim());
        let known = if is_by_labels { SeriesName::ByLabels } else { SeriesName::Known(named.clone()) };
        self.names.insert(name.into(), known);
        named
    }
}
