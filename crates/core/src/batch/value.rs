//! A value is a number on its way into or out of a column, or it is refused.

use crate::MetricId;
use crate::catalogue::ColumnType;
use crate::number::float;

/// Most columns of a batch that are neither time, identity nor metric.
pub const EXTRA_COLUMNS_MAX: usize = 128;

/// Longest text of a column, in bytes.
pub const TEXT_LEN_MAX: usize = 64 << 10;

/// A number on its way into or out of a column.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value {
    /// An integer, whatever integer type its column has.
    Int(i64),
    /// A 32-bit float, kept apart because its shortest decimal spelling is not that of the 64-bit one.
    Float32(f32),
    /// A 64-bit float.
    Float(f64),
}

impl Value {
    /// A value as the column of its metric has it.
    #[expect(clippy::cast_possible_truncation, reason = "a whole number, or one that was a 32-bit float")]
    pub fn of(metric: MetricId, value: f64) -> Self {
        match metric.metric().column_type {
            ColumnType::I32 | ColumnType::I64 => Self::Int(value as i64),
            ColumnType::F32 => Self::Float32(value as f32),
            ColumnType::F64 => Self::Float(value),
        }
    }

    /// As a 64-bit float; integers beyond 2^53 lose their last digits.
    pub fn as_f64(self) -> f64 {
        match self {
            Self::Int(v) => float(v),
            Self::Float32(v) => v.into(),
            Self::Float(v) => v,
        }
    }

    /// As people read it: a 32-bit float is its shortest decimal, so that 30.12 is not 30.1200008.
    pub fn as_decimal(self) -> f64 {
        match self {
            Self::Float32(v) => few_decimals(v).unwrap_or_else(|| v.to_string().parse().unwrap_or(v.into())),
            other => other.as_f64(),
        }
    }

    /// A figure of 32-bit floats, such as their mean, without the digits that none of them has.
    #[expect(clippy::cast_possible_truncation, reason = "it is as exact as what it was made from")]
    pub fn figure_of_singles(figure: f64) -> f64 {
        Self::Float32(figure as f32).as_decimal()
    }

    /// As JSON number; a 32-bit float in its shortest spelling.
    pub fn to_json(self) -> serde_json::Value {
        match self {
            Self::Int(v) => v.into(),
            Self::Float32(_) => self.as_decimal().into(),
            Self::Float(v) => v.into(),
        }
    }
}

/// The shortest decimal of a number with few digits, as measured ones have, without the detour by a text.
#[expect(
    clippy::cast_possible_truncation,
    clippy::float_cmp,
    reason = "it tests whether a decimal is this number"
)]
pub(crate) fn few_decimals(value: f32) -> Option<f64> {
    /// From here on two decimals of the same length may both be this number.
    const PARTS_MAX: f64 = 8_388_608.0;
    // Up to here both products and powers of ten are exact, so the quotient is the float nearest to the decimal.
    const POWERS: [f64; 10] = [1.0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9];
    let within = POWERS.into_iter().take_while(|power| (f64::from(value) * power).abs() < PARTS_MAX);
    // A shorter decimal has zeros at its end here, and is the same float.
    let power = within.last()?;
    let decimal = (f64::from(value) * power).round() / power;
    (decimal as f32 == value).then_some(decimal)
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

/// A value that is refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ValueError {
    /// NaN or infinite.
    #[error("{column} is not a finite number")]
    NotFinite {
        /// Column that the value was meant for.
        column: String,
    },
    /// Outside the possible range.
    #[error("{column} is {value}, outside {min} to {max}")]
    OutOfRange {
        /// Column that the value was meant for.
        column: &'static str,
        /// Offered value, in the column unit.
        value: f64,
        /// Smallest possible value.
        min: f64,
        /// Largest possible value.
        max: f64,
    },
    /// More foreign columns than [`EXTRA_COLUMNS_MAX`].
    #[error("column {0:?} is one more than the {EXTRA_COLUMNS_MAX} unknown columns a batch may have")]
    TooManyExtras(String),
    /// A foreign column name that no table can have.
    #[error("{0:?} cannot be the name of an unknown column")]
    ExtraName(String),
    /// Not a number where one is needed.
    #[error("{column} is not a number")]
    NotNumber {
        /// Column that the value was meant for.
        column: String,
    },
    /// An object or array instead of a number or text.
    #[error("{column} is neither a number nor a text")]
    Nested {
        /// Column that the value was meant for.
        column: String,
    },
    /// A text longer than [`TEXT_LEN_MAX`].
    #[error("{column:?} is a text of {len} bytes, more than {TEXT_LEN_MAX}")]
    TextTooLong {
        /// Column that the text was meant for.
        column: String,
        /// Its length in bytes.
        len: usize,
    },
    /// A key of a message that stands beside `timestamp` and `fields`.
    #[error("{0:?} stands beside timestamp and fields, and is left out; a value goes into fields")]
    Beside(String),
    /// Text for a column of the table that holds numbers.
    #[error("column {0:?} holds numbers, not text")]
    Mixed(String),
}
