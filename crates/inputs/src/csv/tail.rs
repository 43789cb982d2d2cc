//! The end of a log that was cut while it was written: its last field may be the beginning of a value.

use gpuvitals_core::foreign::absence;

use super::sample::Sample;

/// Rows that tell how a last field is written.
const ROWS_MAX: usize = 1_000;
/// Fewest of them that have a unit or a length, and fewest that have a number of digits behind the point: programs leave zeros out
/// there.
const ROWS_MIN: usize = 2;
const ROWS_OF_DIGITS_MIN: usize = 20;

/// What all last fields of a file have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Tail {
    /// This unit, behind a number.
    Unit(String),
    /// So many digits behind the decimal sign.
    Digits(usize),
    /// Of times: so many characters.
    Time(usize),
}

/// How a field is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Written<'a> {
    unit: &'a str,
    digits: usize,
    /// Characters, if it is a time.
    time_len: Option<usize>,
}

impl Tail {
    /// What the fields of the last column have, if they have the same; the very last row is not asked.
    pub(super) fn of(sample: &Sample, column: usize) -> Option<Self> {
        let known = sample.len() - usize::from(sample.is_all() && sample.len() > 0);
        let cells = sample.cells(column).take(known.min(ROWS_MAX));
        let mut fields = cells.filter(|text| absence(text).is_none()).map(Written::of);
        let first = fields.next()??;
        let mut count = 1;
        for field in fields {
            if !field.is_some_and(|field| field.is_like(first)) {
                return None;
            }
            count += 1;
        }
        if count < ROWS_MIN {
            return None;
        }
        match first {
            Written { time_len: Some(len), .. } => Some(Self::Time(len)),
            Written { unit: "", digits, .. } => {
                (digits > 0 && count >= ROWS_OF_DIGITS_MIN).then_some(Self::Digits(digits))
            }
            Written { unit, .. } => Some(Self::Unit(unit.to_owned())),
        }
    }

    /// Whether a field that nothing follows is the beginning of one only.
    pub(super) fn is_cut(&self, field: &[u8]) -> bool {
        let text = std::str::from_utf8(field).unwrap_or_default().trim();
        if absence(text).is_some() {
            return false;
        }
        let Some(Written { unit, digits, time_len }) = Written::of(text) else { return false };
        match self {
            Self::Unit(whole) => unit.len() < whole.len() && whole.starts_with(unit),
            Self::Digits(whole) => unit.is_empty() && digits < *whole,
            Self::Time(whole) => time_len.unwrap_or_else(|| text.chars().count()) < *whole,
        }
    }
}

impl<'a> Written<'a> {
    /// None: it begins as no number.
    fn of(text: &'a str) -> Option<Self> {
        if !text.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c)) {
            return None;
        }
        if text.contains(':') {
            return Some(Self { unit: "", digits: 0, time_len: Some(text.chars().count()) });
        }
        let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || "+-.,".contains(c));
        let number = text.strip_suffix(unit).unwrap_or(text);
        let digits = number.rsplit_once(['.', ',']).map_or(0, |(_, digits)| digits.len());
        Some(Self { unit: unit.trim(), digits, time_len: None })
    }

    /// Whether both are written alike. A number with a unit may have any digits.
    fn is_like(self, other: Self) -> bool {
        let has_digits = self.digits == other.digits || !self.unit.is_empty();
        self.unit == other.unit && self.time_len == other.time_len && has_digits
    }
}
