//! Units that stand in the cells alone: `memory` with `4485MiB`, `power` with `60W / 350W`.

use gpuvitals_core::foreign::{self, ForeignColumn, Meaning, unit_factor};

use super::Draft;
use crate::csv::cell::pair;

/// Cells that are looked at.
const CELLS_MAX: usize = 1_000;
/// Most different units of a column.
const UNITS_MAX: usize = 8;

/// What the cells of a column say of it.
pub(super) struct InCells {
    /// The units that stand in them, each once.
    units: Vec<String>,
    /// Each is a value and the most that it can be.
    pub(super) is_pair: bool,
}

impl Draft<'_> {
    /// The units of a column's cells, if each has one.
    pub(super) fn in_cells(&self, index: usize) -> Option<InCells> {
        let cells = || {
            let cells = self.sample.cells(index).take(CELLS_MAX);
            cells.filter(|text| foreign::no_reading(text).is_none())
        };
        let is_pair = cells().next().is_some() && cells().all(|text| pair(text).is_some());
        let mut units: Vec<String> = Vec::new();
        for text in cells() {
            let unit = pair(text).map_or_else(
                || unit(text),
                |(value, limit)| match unit(value) {
                    "" => unit(limit),
                    unit => unit,
                },
            );
            if unit.is_empty() || units.len() > UNITS_MAX {
                return None;
            }
            if units.iter().all(|known| known != unit) {
                units.push(unit.to_owned());
            }
        }
        (!units.is_empty()).then_some(InCells { units, is_pair })
    }

    /// The meaning of a column of that name whose cells have these units, if it is another than the name's alone.
    pub(super) fn with_unit(
        &self,
        name: &str,
        cells: &InCells,
        alone: &ForeignColumn,
    ) -> Option<ForeignColumn> {
        let fits = |id: gpuvitals_core::catalogue::MetricId| {
            cells.units.iter().all(|unit| unit_factor(unit, id.metric()).is_some())
        };
        match alone.meaning {
            Meaning::Metric(id, _) if fits(id) => return None,
            Meaning::Metric(..) | Meaning::Unknown => {}
            _ => return None,
        }
        let unit = cells.units.first()?;
        // `1.5G` of memory.
        let is_prefix = ["K", "M", "G", "T"].iter().any(|prefix| unit.eq_ignore_ascii_case(prefix));
        let rest = if is_prefix { "iB" } else { "" };
        let column = foreign::column(&format!("{name} [{unit}{rest}]"), self.topic);
        matches!(column.meaning, Meaning::Metric(id, _) if fits(id)).then_some(column)
    }
}

/// What stands behind a number; empty: nothing, or there is no number.
fn unit(text: &str) -> &str {
    let is_number = |c: char| c.is_ascii_digit() || "+-.,'  ".contains(c);
    if !text.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c)) {
        return "";
    }
    text.trim_start_matches(is_number).trim()
}
