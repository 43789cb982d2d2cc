//! Robust statistics: a few wild values change nothing.

use serde::Serialize;

use crate::findings::threshold::PEERS_MIN;

/// Factor by which the median absolute deviation of normal values is multiplied to be their standard deviation.
const NORMAL: f64 = 1.4826;

/// Middle and width of some values, which a few wild ones do not change.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = SpreadEntry))]
pub struct Spread {
    /// The median, in the unit of the values.
    pub median: f64,
    /// Median distance to it, scaled to the standard deviation of normal values.
    pub deviation: f64,
}

impl Spread {
    /// Of these values; none without one. Values that are not finite do not count.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        let median = median(&mut values)?;
        for value in &mut values {
            *value = (*value - median).abs();
        }
        let deviation = NORMAL * self::median(&mut values)?;
        Some(Self { median, deviation })
    }

    /// Of the values of a GPU's peers, none left out; none of too few to compare it with.
    pub fn of_peers(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        Self::of_some(values, PEERS_MIN)
    }

    /// Of the values of a GPU and its peers: one among many changes neither middle nor width. None of too few peers.
    pub fn of_group(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        Self::of_some(values, PEERS_MIN + 1)
    }

    fn of_some(values: impl IntoIterator<Item = f64>, least: usize) -> Option<Self> {
        let values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        Self::of(values.iter().copied()).filter(|_| values.len() >= least)
    }

    /// Distance of a value from the median in deviations, negative below it. `least` is the smallest deviation that counts, so
    /// that a value next to equal ones is not infinitely far away.
    pub fn distance(self, value: f64, least: f64) -> f64 {
        (value - self.median) / self.deviation.max(least).max(f64::MIN_POSITIVE)
    }
}

/// The median; of an even number of values the mean of the middle two. Changes their order.
pub fn median(values: &mut [f64]) -> Option<f64> {
    if values.is_empty() {
        return None;
    }
    let is_even = values.len().is_multiple_of(2);
    let middle = values.len() / 2;
    let (below, upper, _) = values.select_nth_unstable_by(middle, f64::total_cmp);
    let lower = below.iter().copied().max_by(f64::total_cmp).filter(|_| is_even);
    Some(lower.map_or(*upper, |lower| f64::midpoint(lower, *upper)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        let check = |values: &[f64], middle| assert_eq!(median(&mut values.to_vec()), middle, "{values:?}");
        check(&[], None);
        check(&[3.0], Some(3.0));
        check(&[9.0, 1.0], Some(5.0));
        check(&[9.0, 1.0, 2.0], Some(2.0));
        check(&[4.0, 1.0, 3.0, 2.0], Some(2.5));
    }

    #[test]
    fn a_wild_value_changes_neither_middle_nor_width() {
        let spread = Spread::of([1980.0, 1980.0, 1965.0, 1995.0, 345.0]).unwrap();
        assert!((spread.median - 1980.0).abs() < 1e-9);
        assert!((spread.deviation - 15.0 * NORMAL).abs() < 1e-9);
        assert!(spread.distance(345.0, 1.0) < -70.0);
        assert!(Spread::of([f64::NAN]).is_none());
        let equal = Spread::of([5.0, 5.0, 5.0]).unwrap();
        assert!((equal.distance(7.0, 0.5) - 4.0).abs() < 1e-9);
    }
}
