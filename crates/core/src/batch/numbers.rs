//! Numbers of other types than ours: what pandas, Polars and SQL write for the same values.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Decimal32Type, Decimal64Type, Decimal128Type, Float32Type, Float64Type, Int8Type,
    Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, Float64Array};
use arrow_schema::DataType;

use super::columns::widened;
use crate::number::float;

/// Largest whole number of which a 64-bit float holds all smaller ones, too: 2^53.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// Numbers of any type in another one. Integers are rounded, and what is no finite number is none. None if one of the types is no number,
/// or a value does not fit: an integer beyond 2^53 might be another one.
pub fn as_numbers(array: &ArrayRef, wanted: &DataType) -> Option<ArrayRef> {
    let most = match wanted {
        DataType::Int32 => f64::from(i32::MAX),
        DataType::Int64 => EXACT_MAX,
        DataType::Float32 => f64::from(f32::MAX),
        DataType::Float64 => f64::MAX,
        _ => return None,
    };
    widened(array, wanted).or_else(|| {
        let finite = floats(array)?.iter().map(|value| value.filter(|value| value.is_finite())).collect();
        let fits = |values: &Float64Array| values.iter().flatten().all(|value| value.abs() <= most);
        Some(finite).filter(fits).map(|finite| narrowed(&finite, wanted))
    })
}

/// Numbers of any type as 64-bit floats; none if they are no numbers. Integers beyond 2^53 lose their last digits.
pub fn floats(array: &ArrayRef) -> Option<Float64Array> {
    let unit = |scale: i8| 10_f64.powi(scale.into());
    Some(match array.data_type() {
        DataType::Int8 => each::<Int8Type>(array, f64::from),
        DataType::Int16 => each::<Int16Type>(array, f64::from),
        DataType::Int32 => each::<Int32Type>(array, f64::from),
        DataType::Int64 => each::<Int64Type>(array, float),
        DataType::UInt8 => each::<UInt8Type>(array, f64::from),
        DataType::UInt16 => each::<UInt16Type>(array, f64::from),
        DataType::UInt32 => each::<UInt32Type>(array, f64::from),
        DataType::UInt64 => each::<UInt64Type>(array, float),
        DataType::Float32 => each::<Float32Type>(array, f64::from),
        DataType::Float64 => each::<Float64Type>(array, |value| value),
        DataType::Decimal32(_, scale) => {
            each::<Decimal32Type>(array, |steps| f64::from(steps) / unit(*scale))
        }
        DataType::Decimal64(_, scale) => each::<Decimal64Type>(array, |steps| float(steps) / unit(*scale)),
        DataType::Decimal128(_, scale) => each::<Decimal128Type>(array, |steps| float(steps) / unit(*scale)),
        _ => return None,
    })
}

fn each<T: ArrowPrimitiveType>(array: &ArrayRef, number: impl Fn(T::Native) -> f64) -> Float64Array {
    array.as_primitive::<T>().unary(number)
}

/// Floats within a column's range in its type: integers are rounded, as from text.
#[expect(clippy::cast_possible_truncation, reason = "the range is checked, and integers are rounded first")]
pub fn narrowed(floats: &Float64Array, wanted: &DataType) -> ArrayRef {
    match wanted {
        DataType::Int32 => Arc::new(floats.unary::<_, Int32Type>(|value| value.round() as i32)),
        DataType::Int64 => Arc::new(floats.unary::<_, Int64Type>(|value| value.round() as i64)),
        DataType::Float32 => Arc::new(floats.unary::<_, Float32Type>(|value| value as f32)),
        _ => Arc::new(floats.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_and_no_number_is_none() {
        let fitted = |values: Vec<Option<f64>>, wanted| {
            as_numbers(&(Arc::new(Float64Array::from(values)) as ArrayRef), &wanted)
        };
        let numbers = fitted(vec![Some(7.0), None, Some(f64::NAN)], DataType::Int32).unwrap();
        assert_eq!(numbers.as_primitive::<Int32Type>().iter().collect::<Vec<_>>(), [Some(7), None, None]);
        assert!(fitted(vec![Some(3e9)], DataType::Int32).is_none());
        assert!(fitted(vec![Some(1.79e18)], DataType::Int64).is_none(), "a time in nanoseconds");
        assert!(fitted(vec![Some(1.0)], DataType::Utf8).is_none());
    }
}
