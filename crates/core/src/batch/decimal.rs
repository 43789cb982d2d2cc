//! Floats on a decimal grid as whole numbers of its steps: milliwatts instead of watts. Files take half the room.
//!
//! A column is written so only if each float comes back bit for bit. Nothing is rounded.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Decimal32Type, Decimal64Type, Decimal128Type, Float32Type, Float64Type,
};
use arrow_array::{Array, ArrayRef, Decimal32Array, Decimal64Array, PrimitiveArray};
use arrow_schema::DataType;

/// Digits after the point, if a column has more than whole numbers: sensors count in thousandths of a unit.
const SCALE: i8 = 3;
/// Digits of a 32-bit float's decimal, which is a 32-bit integer.
const DIGITS_32: u8 = 9;
/// Digits of a 64-bit float's decimal, which is a 64-bit integer.
const DIGITS_64: u8 = 18;
/// Below this, thousandths have no more than [`DIGITS_32`].
const MAX_32: f32 = 1e6;
/// Below this, 64-bit floats hold every whole number of thousandths.
const MAX_64: f64 = 9e12;

/// The type of a float column as a decimal of this many digits after the point.
pub fn decimal(float: &DataType, scale: i8) -> Option<DataType> {
    match float {
        DataType::Float32 => Some(DataType::Decimal32(DIGITS_32, scale)),
        DataType::Float64 => Some(DataType::Decimal64(DIGITS_64, scale)),
        _ => None,
    }
}

/// The digits after the point of a decimal column, and the type of the floats that it holds.
pub fn float_of(decimal: &DataType) -> Option<(DataType, i8)> {
    match decimal {
        DataType::Decimal32(digits, scale)
        | DataType::Decimal64(digits, scale)
        | DataType::Decimal128(digits, scale) => {
            let float = if *digits <= DIGITS_32 { DataType::Float32 } else { DataType::Float64 };
            Some((float, *scale))
        }
        _ => None,
    }
}

/// The fewest digits after the point, and no fewer than `least`, with which each float of a column is exact; none if
/// there are values off the grid, without end, or too large.
pub fn scale_of(floats: &ArrayRef, least: i8) -> Option<i8> {
    match floats.data_type() {
        DataType::Float32 => fewest(floats.as_primitive::<Float32Type>(), least, steps_32),
        DataType::Float64 => fewest(floats.as_primitive::<Float64Type>(), least, steps_64),
        _ => None,
    }
}

fn fewest<T: ArrowPrimitiveType, I>(
    floats: &PrimitiveArray<T>,
    least: i8,
    steps: impl Fn(T::Native, f64) -> Option<I>,
) -> Option<i8> {
    let mut scale = least;
    // A whole number is exact in thousandths too.
    for value in floats.iter().flatten() {
        if steps(value, unit(scale)).is_none() {
            steps(value, unit(SCALE))?;
            scale = SCALE;
        }
    }
    Some(scale)
}

fn unit(scale: i8) -> f64 {
    10_f64.powi(scale.into())
}

/// A 32-bit float in steps of 1 / `unit`, if they are exact.
#[expect(clippy::cast_possible_truncation, reason = "the bound is checked, and the result compared")]
fn steps_32(value: f32, unit: f64) -> Option<i32> {
    // Not -0, whose sign a whole number has not.
    let steps = (f64::from(value) * unit).round() + 0.0;
    let is_exact = value.abs() < MAX_32 && ((steps / unit) as f32).to_bits() == value.to_bits();
    is_exact.then_some(steps as i32)
}

/// A 64-bit float in steps of 1 / `unit`, if they are exact.
#[expect(clippy::cast_possible_truncation, reason = "the bound is checked, and the result compared")]
fn steps_64(value: f64, unit: f64) -> Option<i64> {
    let steps = (value * unit).round() + 0.0;
    let is_exact = value.abs() < MAX_64 && (steps / unit).to_bits() == value.to_bits();
    is_exact.then_some(steps as i64)
}

/// Floats as a decimal; none if one of them is not exact, or the type is no decimal of theirs.
pub fn to_decimal(floats: &ArrayRef, wanted: &DataType) -> Option<ArrayRef> {
    let (float, scale) = float_of(wanted)?;
    let unit = unit(scale);
    if *floats.data_type() != float {
        return None;
    }
    Some(match wanted {
        DataType::Decimal32(..) => {
            let steps: Decimal32Array =
                collected(floats.as_primitive::<Float32Type>(), |value| steps_32(value, unit))?;
            Arc::new(steps.with_data_type(wanted.clone()))
        }
        DataType::Decimal64(..) => {
            let steps: Decimal64Array =
                collected(floats.as_primitive::<Float64Type>(), |value| steps_64(value, unit))?;
            Arc::new(steps.with_data_type(wanted.clone()))
        }
        _ => return None,
    })
}

fn collected<F: ArrowPrimitiveType, D: ArrowPrimitiveType>(
    floats: &PrimitiveArray<F>,
    steps: impl Fn(F::Native) -> Option<D::Native>,
) -> Option<PrimitiveArray<D>> {
    // Under nulls there may be anything.
    let exact = |value: Option<F::Native>| value.map_or(Some(None), |value| steps(value).map(Some));
    floats.iter().map(exact).collect::<Option<Vec<_>>>().map(PrimitiveArray::from_iter)
}

/// A decimal column as the floats that it holds; none if the wanted floats may not hold them.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "steps and unit are exact, so the quotient is the nearest float, which is what was written"
)]
pub(super) fn floats(decimal: &ArrayRef, wanted: &DataType) -> Option<ArrayRef> {
    let (float, scale) = float_of(decimal.data_type())?;
    let unit = unit(scale);
    let is_short = float == DataType::Float32;
    Some(match (decimal.data_type(), wanted) {
        (DataType::Decimal32(..), DataType::Float32) => {
            let steps = decimal.as_primitive::<Decimal32Type>();
            Arc::new(steps.unary::<_, Float32Type>(|steps| (f64::from(steps) / unit) as f32))
        }
        (DataType::Decimal64(..), DataType::Float32) if is_short => {
            let steps = decimal.as_primitive::<Decimal64Type>();
            Arc::new(steps.unary::<_, Float32Type>(|steps| (steps as f64 / unit) as f32))
        }
        (DataType::Decimal128(..), DataType::Float32) if is_short => {
            let steps = decimal.as_primitive::<Decimal128Type>();
            Arc::new(steps.unary::<_, Float32Type>(|steps| (steps as f64 / unit) as f32))
        }
        (DataType::Decimal32(..), DataType::Float64) => {
            let steps = decimal.as_primitive::<Decimal32Type>();
            Arc::new(steps.unary::<_, Float64Type>(|steps| f64::from(steps) / unit))
        }
        (DataType::Decimal64(..), DataType::Float64) => {
            let steps = decimal.as_primitive::<Decimal64Type>();
            Arc::new(steps.unary::<_, Float64Type>(|steps| steps as f64 / unit))
        }
        (DataType::Decimal128(..), DataType::Float64) => {
            let steps = decimal.as_primitive::<Decimal128Type>();
            Arc::new(steps.unary::<_, Float64Type>(|steps| steps as f64 / unit))
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use arrow_array::{Float32Array, Float64Array};
    use proptest::prelude::*;

    use super::*;
    use crate::batch::widened;

    fn bits(array: &ArrayRef) -> Vec<Option<u64>> {
        match array.data_type() {
            DataType::Float32 => {
                array.as_primitive::<Float32Type>().iter().map(|v| v.map(|v| v.to_bits().into())).collect()
            }
            _ => array.as_primitive::<Float64Type>().iter().map(|v| v.map(f64::to_bits)).collect(),
        }
    }

    /// The scale of a column, which comes back from the decimal bit for bit.
    fn there_and_back(floats: &ArrayRef) -> Option<i8> {
        let scale = scale_of(floats, 0)?;
        for scale in [scale, SCALE] {
            let wanted = decimal(floats.data_type(), scale).unwrap();
            let steps = to_decimal(floats, &wanted).unwrap();
            assert_eq!(*steps.data_type(), wanted);
            assert_eq!(bits(&widened(&steps, floats.data_type()).unwrap()), bits(floats));
        }
        Some(scale)
    }

    #[test]
    fn sensors_have_a_grid_and_quotients_do_not() {
        let short =
            |values: &[f32]| there_and_back(&(Arc::new(Float32Array::from(values.to_vec())) as ArrayRef));
        let long =
            |values: &[f64]| there_and_back(&(Arc::new(Float64Array::from(values.to_vec())) as ArrayRef));
        assert_eq!(short(&[61.0, 700.0]), Some(0));
        assert_eq!(short(&[61.5, 72.137]), Some(3));
        assert_eq!(short(&[61.5, 72.137, 1.0 / 3.0]), None);
        assert_eq!(long(&[123_456_789_012.345]), Some(3));
        assert_eq!(long(&[9e12]), None);
        for odd in [-0.0, f32::NAN, f32::INFINITY, 4e9] {
            assert_eq!(short(&[1.0, odd]), None, "{odd}");
        }
        assert_eq!(short(&[]), Some(0));
    }

    #[test]
    fn a_value_off_the_grid_is_never_rounded() {
        let floats: ArrayRef = Arc::new(Float64Array::from(vec![0.125]));
        assert!(to_decimal(&floats, &DataType::Decimal64(DIGITS_64, 0)).is_none());
        assert!(to_decimal(&floats, &DataType::Decimal64(DIGITS_64, 3)).is_some());
        assert!(to_decimal(&floats, &DataType::Decimal32(DIGITS_32, 3)).is_none());
    }

    proptest! {
        #[test]
        fn steps_are_found_and_come_back(steps in prop::collection::vec(prop::option::of(-999_999_i32..999_999), 0..50), scale in prop::sample::select(vec![0, SCALE])) {
            #[expect(clippy::cast_possible_truncation, reason = "the nearest float is meant")]
            let short: Float32Array = steps.iter().map(|v| v.map(|v| (f64::from(v) / unit(scale)) as f32)).collect();
            let long: Float64Array = steps.iter().map(|v| v.map(|v| f64::from(v) / unit(scale))).collect();
            prop_assert!(there_and_back(&(Arc::new(short) as ArrayRef)).is_some_and(|found| found <= scale));
            prop_assert!(there_and_back(&(Arc::new(long) as ArrayRef)).is_some_and(|found| found <= scale));
        }

        #[test]
        fn any_floats_come_back_or_stay(short in prop::collection::vec(any::<f32>(), 0..5), long in prop::collection::vec(any::<f64>(), 0..5)) {
            there_and_back(&(Arc::new(Float32Array::from(short)) as ArrayRef));
            there_and_back(&(Arc::new(Float64Array::from(long)) as ArrayRef));
        }
    }
}
