//! The fields of a tool: which column each fills, and how the tool writes its value.

use crate::absence::AbsenceReason;
use crate::batch::Value;
use crate::catalogue::MetricId;
use crate::number::float;

/// A field of a tool and the column that it fills.
#[derive(Debug)]
pub struct ToolField {
    /// Its spellings, the present one first; other versions know only a later one.
    pub names: &'static [&'static str],
    /// What it fills.
    pub metric: MetricId,
    spelling: Spelling,
}

/// How a field spells its value.
#[derive(Debug, Clone, Copy)]
pub(super) enum Spelling {
    /// A number in the column's unit, unless header or cell name another.
    Number,
    /// Microseconds, unless header or cell name another unit; the column has nanoseconds.
    Microseconds,
    /// Degrees; 0 means that there is no sensor.
    Sensor,
    /// Bits in hexadecimal, `0x0000000000000004`.
    Bits,
    /// `P0` to `P15`.
    State,
    /// `Enabled`, `Yes`, `Active` and their contraries, or a count.
    Switch,
    /// One of these words; the value is its position.
    Word(&'static [&'static str]),
    /// A number in the unit that the name has, as the tool's own reader gives it.
    Figure(fn(&str) -> Result<Value, AbsenceReason>),
    /// A text of the tool's own.
    Text(fn(&str) -> Result<Value, AbsenceReason>),
}

impl ToolField {
    pub(super) const fn new(names: &'static [&'static str], column: &str, spelling: Spelling) -> Self {
        Self { names, metric: MetricId::of(column), spelling }
    }

    /// Whether its cells are numbers in the unit that the header names, and else in the column's.
    pub fn is_number(&self) -> bool {
        matches!(self.spelling, Spelling::Number | Spelling::Microseconds | Spelling::Figure(_))
    }

    /// The unit of its numbers that neither header nor cell name; empty: the column's.
    pub(super) fn usual_unit(&self) -> &'static str {
        if matches!(self.spelling, Spelling::Microseconds) { "us" } else { "" }
    }

    /// The value of a cell, in the column's unit. `unit` is the one in the header.
    ///
    /// # Errors
    /// The reason, if it has none.
    pub fn value(&self, cell: &str, unit: Option<&str>) -> Result<Value, AbsenceReason> {
        if let Spelling::Figure(read) | Spelling::Text(read) = self.spelling {
            // The tool has many words for what a card lacks.
            let word = cell.to_ascii_lowercase();
            let lacks = ["n/a", "none", "unknown", "unsupported", "not supported"];
            let is_lacking = word.is_empty() || lacks.iter().any(|lack| word.starts_with(lack));
            return if is_lacking { Err(AbsenceReason::NotSupported) } else { read(cell) };
        }
        if let Some(reason) = reason_of(cell) {
            return Err(reason);
        }
        let value = match self.spelling {
            Spelling::Figure(_) | Spelling::Text(_) => None,
            Spelling::Number => number_of(cell, unit),
            Spelling::Microseconds => number_of(cell, unit.or(Some("us"))),
            Spelling::Sensor => match number_of(cell, unit) {
                Some(Value::Int(0)) => return Err(AbsenceReason::NotSupported),
                value => value,
            },
            Spelling::Bits => {
                let digits = cell.strip_prefix("0x").and_then(|hex| u64::from_str_radix(hex, 16).ok());
                digits.and_then(|bits| i64::try_from(bits).ok()).map(Value::Int)
            }
            Spelling::State => cell.strip_prefix('P').and_then(|state| state.parse().ok()).map(Value::Int),
            Spelling::Switch => switch_of(cell).map(Value::Int),
            Spelling::Word(words) => {
                let place = words.iter().position(|word| word.eq_ignore_ascii_case(cell));
                place.and_then(|place| i64::try_from(place).ok()).map(Value::Int)
            }
        };
        value.ok_or(AbsenceReason::Invalid)
    }
}

/// The reason for a missing value, if the cell has one. Nothing in brackets is a value.
pub fn reason_of(cell: &str) -> Option<AbsenceReason> {
    let bare = cell.strip_prefix('[').map(|rest| rest.strip_suffix(']').unwrap_or(rest));
    let text = bare.unwrap_or(cell).to_ascii_lowercase();
    let is_one_of = |words: &[&str]| words.iter().any(|word| text.contains(word));
    Some(match text.as_str() {
        "" | "-" | "n/a" => AbsenceReason::NotSupported,
        "err!" => AbsenceReason::Invalid,
        _ if is_one_of(&["not supported", "deprecated", "not found", "not available"]) => {
            AbsenceReason::NotSupported
        }
        _ if is_one_of(&["permission"]) => AbsenceReason::Denied,
        _ if is_one_of(&["is lost", "requires reset", "reset required"]) => AbsenceReason::Gone,
        _ if is_one_of(&["timeout", "timed out"]) => AbsenceReason::TimedOut,
        _ if bare.is_some() || is_one_of(&["unknown error"]) => AbsenceReason::Invalid,
        _ => return None,
    })
}

/// `111.50`, `111.50 W`: a number whose unit is its own, the header's, or that of the column.
fn number_of(cell: &str, header: Option<&str>) -> Option<Value> {
    let (number, own) = match cell.split_once(' ') {
        Some((number, unit)) => (number, Some(unit.trim())),
        None => (cell.strip_suffix('%').unwrap_or(cell), None),
    };
    let (times, over) = factor_of(own.or(header).unwrap_or_default())?;
    if let (Ok(whole), 1) = (number.parse::<i64>(), over) {
        return whole.checked_mul(times).map(Value::Int);
    }
    let parts: f64 = number.parse().ok()?;
    let value = parts * float(times) / float(over);
    value.is_finite().then_some(Value::Float(value))
}

/// A unit as a fraction of its column's unit: times, over.
fn factor_of(unit: &str) -> Option<(i64, i64)> {
    Some(match unit {
        "" | "%" | "W" | "MiB" | "MB" | "MHz" | "C" | "ns" => (1, 1),
        "mW" => (1, 1000),
        "GiB" | "GB" => (1024, 1),
        "KiB" | "kB" => (1, 1024),
        "GHz" | "us" => (1000, 1),
        "ms" => (1_000_000, 1),
        "s" | "seconds" => (1_000_000_000, 1),
        _ => return None,
    })
}

fn switch_of(cell: &str) -> Option<i64> {
    match cell.to_ascii_lowercase().as_str() {
        "enabled" | "yes" | "active" | "on" | "true" => Some(1),
        "disabled" | "no" | "not active" | "off" | "false" => Some(0),
        count => count.parse().ok(),
    }
}
