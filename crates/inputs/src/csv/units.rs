//! A line of units below the names: `timestamp,power` and `,mW`.

use std::sync::Arc;

use gpuvitals_core::foreign::{self, Meaning, Topic};

use super::error::CsvError;
use super::hints::{ColumnHint, Hints};
use super::plan::{self, Plan, Surroundings, is_named};
use super::sample::Sample;

/// What stands below a name that has no unit.
const NO_UNIT: [&str; 12] =
    ["", "-", "--", "n/a", "none", "utc", "text", "string", "datetime", "timestamp", "count", "#"];

/// Settles what the columns under a header are, with the units below their names if there is a line of them.
pub(super) fn settled(
    names: Vec<String>,
    sample: &mut Sample,
    around: Surroundings<'_>,
    place: (&Arc<str>, u64),
) -> Result<Plan, CsvError> {
    let Some(titled) = titled(&names, &sample.first()) else {
        return plan::settled(&names, sample, around, place);
    };
    let below: Vec<String> = sample.first().into_iter().map(str::to_owned).collect();
    sample.drop_first();
    let hints = hints(around.hints, &names, &titled);
    let mut plan = plan::settled(&titled, sample, Surroundings { hints: &hints, ..around }, place)?;
    plan.heads = vec![names, below];
    plan.notes.push("the line below the names has their units".to_owned());
    Ok(plan)
}

/// The names with the units below them, if these cells are units.
fn titled(names: &[String], below: &[&str]) -> Option<Vec<String>> {
    let bare = |cell: &str| {
        let inner = [('[', ']'), ('(', ')')]
            .iter()
            .find_map(|&(open, close)| cell.strip_prefix(open)?.strip_suffix(close));
        inner.unwrap_or(cell).trim().to_owned()
    };
    let cells: Vec<String> = below.iter().map(|cell| bare(cell.trim())).collect();
    let is_none = |cell: &str| NO_UNIT.iter().any(|none| cell.eq_ignore_ascii_case(none));
    let is_line = cells.len() == names.len()
        && cells.iter().all(|cell| is_none(cell) || foreign::is_unit(cell))
        && cells.iter().any(|cell| foreign::is_unit(cell));
    let title = |(name, unit): (&String, &String)| {
        let is_time = foreign::column(name, Topic::Gpu).meaning == Meaning::Time;
        if is_none(unit) || is_time { name.clone() } else { format!("{} [{unit}]", name.trim()) }
    };
    is_line.then(|| names.iter().zip(&cells).map(title).collect())
}

/// What the user says of columns under their names, for the names with units.
fn hints(hints: &Hints, names: &[String], titled: &[String]) -> Hints {
    let rename = |hint: &ColumnHint| {
        let place = names.iter().position(|name| is_named(name, &hint.name));
        let name = place.and_then(|place| titled.get(place)).unwrap_or(&hint.name);
        ColumnHint { name: name.clone(), ..hint.clone() }
    };
    Hints { columns: hints.columns.iter().map(rename).collect(), ..hints.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_of_units_if_each_cell_is_one_or_empty() {
        let check = |names: &[&str], below: &[&str], expected: Option<&str>| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            assert_eq!(titled(&names, below).map(|names| names.join(",")).as_deref(), expected, "{below:?}");
        };
        check(&["timestamp", "gpu", "power"], &["[s]", "[-]", "[mW]"], Some("timestamp,gpu,power [mW]"));
        check(&["time", "memory_used"], &["", "GB"], Some("time,memory_used [GB]"));
        check(&["time", "power"], &["", ""], None);
        check(&["time", "power"], &["2025-03-21", "W"], None);
        check(&["time", "power"], &["", "60 W"], None);
    }
}
