//! The content of a cell: a number in the column's unit, a marker of absence, or nonsense.

use std::borrow::Cow;
use std::sync::Arc;

use gpuvitals_core::AbsenceReason;
use gpuvitals_core::batch::{Value, ValueError};
use gpuvitals_core::catalogue::{MetricId, second_by_dcgm};
use gpuvitals_core::foreign::{
    self, NoNumber, ToolField, absence, blank_float, blank_integer, no_reading, scaled,
};
use serde_json::Value as Json;

use super::decimal::{Decimal, joined, pointed};

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
    /// Its cells are texts of a tool.
    field: Option<&'static ToolField>,
    /// Its cells are pairs, of which it is this.
    side: Option<PairSide>,
}

/// One of the two that a cell has: `60W / 350W`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PairSide {
    /// The one in front: the value.
    First,
    /// The most that it can be.
    Second,
}

impl Scale {
    pub(super) fn new(id: MetricId, factor: f64, name: &str) -> Self {
        let facts = id.metric();
        let dcgm = foreign::is_dcgm(name);
        let second = second_by_dcgm(name);
        let is_shared = |name: &str| second_by_dcgm(name).is_some_and(|second| second != id);
        let is_own = second.is_none() && facts.dcgm.iter().any(|name| is_shared(name.name));
        let is_of_card = foreign::is_of_card(id, name);
        Self { id, factor, range: facts.range, dcgm, second, is_own, is_of_card, field: None, side: None }
    }

    /// The same for cells that a tool writes in its own way.
    pub(super) fn written_as(self, field: Option<&'static ToolField>) -> Self {
        Self { field, ..self }
    }

    /// The same for one side of cells that are pairs.
    pub(super) fn of_pair(self, side: PairSide) -> Self {
        Self { side: Some(side), ..self }
    }

    /// Whether it is the value of cells that are pairs.
    pub(super) fn is_of_pair(&self) -> bool {
        self.side == Some(PairSide::First)
    }

    /// Whether its cells are written in a tool's own way.
    pub(super) fn is_of_tool(&self) -> bool {
        self.field.is_some() || self.side.is_some()
    }

    /// The same for cells that are in another unit: column value = cell × factor.
    pub(super) fn in_unit(self, factor: f64) -> Self {
        Self { factor, ..self }
    }

    /// The same cells as another metric's.
    pub(super) fn also(self, id: MetricId) -> Self {
        Self { field: self.field, ..Self::new(id, self.factor, "") }
    }

    /// Column value = cell × this.
    pub(super) fn factor(&self) -> f64 {
        self.factor
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
    let text = || std::str::from_utf8(cell).unwrap_or("\u{fffd}").trim();
    if let Some(side) = scale.side {
        let whole = Scale { side: None, ..*scale };
        return match (pair(text()), side) {
            (Some((first, second)), PairSide::First) if plain(first.as_bytes()).is_some() => {
                let unit = second.trim_start_matches(|c: char| c.is_ascii_digit() || "+-., ".contains(c));
                metric(format!("{first} {unit}").as_bytes(), &whole)
            }
            (Some((first, _)), PairSide::First) => metric(first.as_bytes(), &whole),
            (Some((_, second)), PairSide::Second) => metric(second.as_bytes(), &whole),
            (None, PairSide::First) => metric(cell, &whole),
            (None, PairSide::Second) => Err(Missing::Absent(AbsenceReason::NotSupported)),
        };
    }
    let value = match (scale.field, plain(cell)) {
        (Some(field), _) => of_tool(text(), field)?,
        (None, Some(number)) => scaled(number, scale.factor),
        (None, None) => value(text(), scale)?,
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

/// A value and the most that it can be, of which the latter has a unit: `60W / 350W`, `4.5/24 GB`.
pub(super) fn pair(text: &str) -> Option<(&str, &str)> {
    let (first, second) = text.split_once('/')?;
    let (first, second) = (first.trim(), second.trim());
    let begins = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
    let has_unit = second.contains(char::is_alphabetic);
    (begins(first) && begins(second) && has_unit && !second.contains('/')).then_some((first, second))
}

/// A number in a column without a unit, if the cell is one.
pub(super) fn plain_number(text: &str) -> Option<f64> {
    text.trim().parse().ok().filter(|number: &f64| number.is_finite())
}

/// The value of a cell as the tool's own reader understands it.
fn of_tool(text: &str, field: &ToolField) -> Result<Value, Missing> {
    field.value(text, None).map_err(|reason| match reason {
        AbsenceReason::Invalid if no_reading(text).is_none() => {
            Missing::Invalid(format!("{:?} is no {}", shortened(text), field.metric.metric().column))
        }
        reason => Missing::Absent(reason),
    })
}

/// The value of a cell that is not a [`plain`] number.
fn value(text: &str, scale: &Scale) -> Result<Value, Missing> {
    // Before numbers: `nan` and `inf` are some to the parser.
    if let Some(reason) = no_reading(text) {
        return Err(Missing::Absent(reason));
    }
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
    if let Some(written) = joined(text.as_bytes()) {
        return value(std::str::from_utf8(&written).unwrap_or_default(), scale);
    }
    if let Cow::Owned(written) = pointed(text.as_bytes(), Decimal::Point) {
        return value(std::str::from_utf8(&written).unwrap_or_default(), scale);
    }
    if let Some(mean) = list(text) {
        return mean.map(|mean| scaled(Value::Float(mean), scale.factor));
    }
    // `(1700Mhz)` of rocm-smi.
    let bare = text.strip_prefix('(').and_then(|text| text.strip_suffix(')')).unwrap_or(text);
    foreign::number(bare, scale.id.metric()).map_err(|none| {
        Missing::Invalid(match none {
            NoNumber::NotNumber => format!("{:?} is no number", shortened(text)),
            NoNumber::Unit => {
                format!("{:?} has a unit that the column {} cannot have", shortened(text), column(scale))
            }
        })
    })
}

/// The mean of a list (`[3, 0, 'N/A']`), which tools write for the engines of a GPU; none if it is no list.
fn list(text: &str) -> Option<Result<f64, Missing>> {
    let inner = text.strip_prefix('[')?.strip_suffix(']')?;
    let parts = inner.split(',').map(|part| part.trim().trim_matches(['\'', '"']));
    let (mut sum, mut count, mut parts_count) = (0.0, 0.0, 0);
    for part in parts {
        parts_count += 1;
        match part.parse::<f64>() {
            Ok(number) if number.is_finite() => {
                sum += number;
                count += 1.0;
            }
            _ if absence(part).is_some() => {}
            _ => return None,
        }
    }
    if parts_count < 2 && count == 0.0 {
        return None;
    }
    Some(if count > 0.0 { Ok(sum / count) } else { Err(Missing::Absent(AbsenceReason::NotSupported)) })
}

fn column(scale: &Scale) -> &'static str {
    scale.id.metric().column
}

fn shortened(text: &str) -> String {
    text.chars().take(40).collect()
}

/// A field of a message.
pub(super) type MessageField = (Arc<str>, Json);

/// A value of a column that the catalogue does not know.
#[derive(Debug, Clone)]
pub(super) struct ExtraCell {
    /// Name of its column.
    pub(super) name: Arc<str>,
    /// As a number, if it is one.
    pub(super) number: Option<f64>,
    /// As in the file.
    pub(super) text: String,
}
