//! The content of a cell: a number in the column's unit, a marker of absence, or nonsense.

use gpuvitals_core::AbsenceReason;
use gpuvitals_core::batch::{Value, ValueError};
use gpuvitals_core::catalogue::{MetricId, second_by_dcgm};
use gpuvitals_core::foreign::{self, NoNumber, absence, blank_float, blank_integer, scaled};

/// Requirements on a metric's cells.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scale {
    pub(super) id: MetricId,
    /// Column value = cell × factor.
    factor: f64,
    range: (f64, f64),
    /// The name is DCGM's, whose blank values are numbers.
    dcgm: bool,
    /// The metric that the name means for a GPU that has [`Scale::id`] under another name.
    pub(super) second: Option<MetricId>,
    /// The name is such another name.
    pub(super) is_own: bool,
    /// What a MIG instance has of it is the card's.
    pub(super) is_of_card: bool,
}

impl Scale {
    pub(super) fn new(id: MetricId, factor: f64, name: &str) -> Self {
        let facts = id.metric();
        let dcgm = foreign::is_dcgm(name);
        let second = second_by_dcgm(name);
        let is_shared = |name: &str| second_by_dcgm(name).is_some_and(|second| second != id);
        let is_own = second.is_none() && facts.dcgm.iter().any(|name| is_shared(name.name));
        let is_of_card = foreign::is_of_card(id, name);
        Self { id, factor, range: facts.range, dcgm, second, is_own, is_of_card }
    }
}

/// A cell without a value.
#[derive(Debug)]
pub(super) enum Missing {
    /// The file marks it as missing.
    Absent(AbsenceReason),
    /// It is not a number or impossible; in words.
    Invalid(String),
}

/// The value of a metric's cell, in the column unit and within the catalogue's range.
pub(super) fn metric(cell: &[u8], scale: &Scale) -> Result<Value, Missing> {
    let value = match plain(cell) {
        Some(number) => scaled(number, scale.factor),
        None => value(std::str::from_utf8(cell).unwrap_or("\u{fffd}").trim(), scale)?,
    };
    let number = value.as_f64();
    if scale.dcgm
        && let Some(reason) = foreign::unread_by_dcgm(scale.id, number, "dcgm")
    {
        return Err(Missing::Absent(reason));
    }
    let (min, max) = scale.range;
    if (min..=max).contains(&number) {
        return Ok(value);
    }
    let column = column(scale);
    let error = if number.is_finite() {
        ValueError::OutOfRange { column, value: number, min, max }
    } else {
        ValueError::NotFinite { column: column.to_owned() }
    };
    Err(Missing::Invalid(error.to_string()))
}

/// A number as in nearly all cells: a float holds it, and it is below the blanks, the smallest of which is
/// 2^31 - 16.
fn plain(cell: &[u8]) -> Option<Value> {
    const MAX: f64 = 2_147_483_632.0;
    if (1..=9).contains(&cell.len()) && cell.iter().all(u8::is_ascii_digit) {
        return Some(Value::Int(cell.iter().fold(0, |number, digit| number * 10 + i64::from(digit - b'0'))));
    }
    let number = std::str::from_utf8(cell).ok()?.parse().ok()?;
    (-MAX..MAX).contains(&number).then_some(Value::Float(number))
}

/// A number in a column without a unit, if the cell is one.
pub(super) fn plain_number(text: &str) -> Option<f64> {
    text.trim().parse().ok().filter(|number: &f64| number.is_finite())
}

/// The value of a cell that is not a [`plain`] number.
fn value(text: &str, scale: &Scale) -> Result<Value, Missing> {
    if let Ok(whole) = text.parse::<i64>() {
        if let Some(reason) = blank_integer(whole, scale.dcgm) {
            return Err(Missing::Absent(reason));
        }
        return Ok(scaled(Value::Int(whole), scale.factor));
    }
    if let Ok(number) = text.parse::<f64>() {
        if let Some(reason) = blank_float(number) {
            return Err(Missing::Absent(reason));
        }
        return Ok(scaled(Value::Float(number), scale.factor));
    }
    if let Some(reason) = absence(text) {
        return Err(Missing::Absent(reason));
    }
    foreign::number(text, scale.id.metric()).map_err(|none| {
        Missing::Invalid(match none {
            NoNumber::NotNumber => format!("{:?} is no number", shortened(text)),
            NoNumber::Unit => {
                format!("{:?} has a unit that the column {} cannot have", shortened(text), column(scale))
            }
        })
    })
}

fn column(scale: &Scale) -> &'static str {
    scale.id.metric().column
}

fn shortened(text: &str) -> String {
    text.chars().take(40).collect()
}
