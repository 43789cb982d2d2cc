//! What a cell says: a number in the column's unit, that there is none, or nonsense.

use gpuvitals_core::AbsenceReason;
use gpuvitals_core::batch::{Value, ValueError};
use gpuvitals_core::catalogue::{MetricId, Unit};

use super::unit;

/// What a metric's cells must be to be taken.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scale {
    pub(super) id: MetricId,
    /// Column value = cell × factor.
    factor: f64,
    unit: Unit,
    range: (f64, f64),
    /// The name is DCGM's, whose blank values are numbers.
    dcgm: bool,
}

impl Scale {
    pub(super) fn new(id: MetricId, factor: f64, name: &str) -> Self {
        let facts = id.metric();
        let dcgm = name.get(..4).is_some_and(|head| head.eq_ignore_ascii_case("dcgm"));
        Self { id, factor, unit: facts.unit, range: facts.range, dcgm }
    }
}

/// Why a cell gives no value.
#[derive(Debug)]
pub(super) enum Missing {
    /// The file says that there is none.
    Absent(AbsenceReason),
    /// It is no number or cannot be true; in words.
    Invalid(String),
}

/// Integers up to here need no look at the blank sentinels, the smallest of which is 2^31 - 16.
const PLAIN_MAX: u64 = 2_147_483_631;

const POWERS_OF_TEN: [f64; 16] =
    [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];

/// The value of a metric's cell, in the column unit and within the catalogue's range.
pub(super) fn metric(cell: &[u8], scale: &Scale) -> Result<Value, Missing> {
    let value = match short_decimal(cell) {
        Some(number) => scaled(number, scale.factor),
        None => long_number(cell, scale)?,
    };
    let number = value.as_f64();
    let (min, max) = scale.range;
    if (min..=max).contains(&number) {
        return Ok(value);
    }
    let column = scale.id.metric().column;
    let error = if number.is_finite() {
        ValueError::OutOfRange { column, value: number, min, max }
    } else {
        ValueError::NotFinite { column: column.to_owned() }
    };
    Err(Missing::Invalid(error.to_string()))
}

/// A number in a column without a unit, if the cell is one.
pub(super) fn plain_number(cell: &[u8]) -> Option<f64> {
    short_decimal(cell)
        .map(Value::as_f64)
        .or_else(|| std::str::from_utf8(cell).ok()?.trim().parse().ok().filter(|n: &f64| n.is_finite()))
}

/// The reason, when the text says that there is no value: empty, `N/A`, `[Not Supported]`, `-`, `<<<NULL>>>` …
pub(super) fn absence(text: &str) -> Option<AbsenceReason> {
    let is = |words: &[&str]| words.iter().any(|word| text.eq_ignore_ascii_case(word));
    if text.is_empty() || is(&["N/A", "NA", "-", "--", "null", "none", "not supported", "unsupported"]) {
        return Some(AbsenceReason::NotSupported);
    }
    if is(&["ERR!"]) {
        return Some(AbsenceReason::Invalid);
    }
    if text.starts_with("<<<") && text.ends_with(">>>") {
        return Some(AbsenceReason::NotSupported);
    }
    let inner = text.strip_prefix('[')?.strip_suffix(']')?;
    let is = |word: &str| inner.eq_ignore_ascii_case(word);
    Some(if is("insufficient permissions") {
        AbsenceReason::Denied
    } else if is("gpu is lost") {
        AbsenceReason::Gone
    } else if is("unknown error") || is("gpu requires reset") {
        AbsenceReason::Invalid
    } else {
        AbsenceReason::NotSupported
    })
}

/// `12`, `-3.25`: exact as long as digits and power of ten are both exact in a 64-bit float (Clinger).
fn short_decimal(cell: &[u8]) -> Option<Value> {
    let (negative, digits) = match cell {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    let (mut mantissa, mut point) = (0_u64, None);
    for (at, &byte) in digits.iter().enumerate() {
        match byte {
            b'0'..=b'9' => mantissa = mantissa * 10 + u64::from(byte - b'0'),
            b'.' if point.is_none() => point = Some(at),
            _ => return None,
        }
    }
    let Some(point) = point else {
        let value = i64::try_from(mantissa).ok().filter(|_| mantissa <= PLAIN_MAX)?;
        return Some(Value::Int(if negative { -value } else { value }));
    };
    let decimals = digits.len() - point - 1;
    if digits.len() == 1
        || mantissa > 1 << 53
        || mantissa / 10_u64.pow(u32::try_from(decimals).ok()?) > PLAIN_MAX
    {
        return None;
    }
    #[expect(clippy::cast_precision_loss, reason = "at most 2^53")]
    let value = mantissa as f64 / POWERS_OF_TEN.get(decimals)?;
    Some(Value::Float(if negative { -value } else { value }))
}

/// Everything else a metric's cell may be.
fn long_number(cell: &[u8], scale: &Scale) -> Result<Value, Missing> {
    let text = std::str::from_utf8(cell).unwrap_or("\u{fffd}").trim();
    if let Some(reason) = absence(text) {
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
    if scale.unit == Unit::None
        && let Some(value) = code(text)
    {
        return Ok(value);
    }
    let no_number = || Missing::Invalid(format!("{:?} is no number", shortened(text)));
    let (number, written) = split_unit(text).ok_or_else(no_number)?;
    let factor = unit::factor(written, scale.unit).ok_or_else(|| {
        Missing::Invalid(format!(
            "{:?} has a unit that the column {} cannot have",
            shortened(text),
            column(scale)
        ))
    })?;
    Ok(scaled(number, factor))
}

fn column(scale: &Scale) -> &'static str {
    scale.id.metric().column
}

fn scaled(value: Value, factor: f64) -> Value {
    #[expect(clippy::float_cmp, reason = "exactly one means: leave the number as it came")]
    if factor == 1.0 { value } else { Value::Float(value.as_f64() * factor) }
}

/// States that tools print as words: `P8`, `Not Active`, `0x0000000000000004`.
fn code(text: &str) -> Option<Value> {
    let is = |words: &[&str]| words.iter().any(|word| text.eq_ignore_ascii_case(word));
    if is(&["enabled", "active", "true", "yes"]) {
        return Some(Value::Int(1));
    }
    if is(&["disabled", "not active", "false", "no"]) {
        return Some(Value::Int(0));
    }
    if let Some(hex) = text.strip_prefix("0x") {
        return i64::from_str_radix(hex, 16).ok().map(Value::Int);
    }
    let state = text.strip_prefix('P')?;
    state.parse::<u8>().ok().map(|state| Value::Int(state.into()))
}

/// DCGM's blank integers: blank, not found, not supported, no permission.
fn blank_integer(value: i64, dcgm: bool) -> Option<AbsenceReason> {
    const BLANK_I64: i64 = 0x7fff_ffff_ffff_fff0;
    const BLANK_I32: i64 = 0x7fff_fff0;
    const BLANK_FLOAT: i64 = 1 << 47;
    [BLANK_I64, BLANK_FLOAT, BLANK_I32]
        .iter()
        .filter(|blank| dcgm || **blank != BLANK_I32)
        .find_map(|blank| value.checked_sub(*blank).filter(|kind| (0..=3).contains(kind)))
        .map(blank_kind)
}

fn blank_float(value: f64) -> Option<AbsenceReason> {
    const BLANK: f64 = 140_737_488_355_328.0;
    // As a float, the 64-bit blanks are all 2^63.
    const BLANK_I64: f64 = 9_223_372_036_854_775_808.0;
    if (BLANK..BLANK + 4.0).contains(&value) {
        return Some(blank_kind(if value < BLANK + 3.0 { 0 } else { 3 }));
    }
    (value == BLANK_I64).then(|| blank_kind(0))
}

fn blank_kind(kind: i64) -> AbsenceReason {
    if kind == 3 { AbsenceReason::Denied } else { AbsenceReason::NotSupported }
}

/// `70.5 W` to its number and its unit.
fn split_unit(text: &str) -> Option<(Value, &str)> {
    let number_len = text.find(|c: char| !(c.is_ascii_digit() || "+-.".contains(c)))?;
    let (number, unit) = text.split_at_checked(number_len)?;
    let number = match short_decimal(number.as_bytes()) {
        Some(value) => value,
        None => Value::Float(number.parse().ok()?),
    };
    Some((number, unit.trim()))
}

fn shortened(text: &str) -> String {
    text.chars().take(40).collect()
}
