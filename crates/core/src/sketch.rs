//! Quantiles of a stream in bounded memory.
//!
//! A value is counted in the bucket of its sign, exponent and first six bits of mantissa: 64 buckets an
//! octave, each at most 1/64 wide, so its middle is within 1/128 (0.8 %) of every value in it. Finding the
//! bucket is a shift of the float's bits; only non-empty buckets take memory.

use crate::number::float;

/// Bits of a float's mantissa below those of the bucket.
const SHIFT: u32 = 17;
/// Magnitudes below count as 0.
const SMALLEST: f32 = 1.0 / 1024.0;
/// Magnitudes above count as this: every 64-bit integer is below.
const LARGEST: f32 = 9_223_372_036_854_775_808.0;

/// Frequencies of values, within 1 % of the value; at most 9,347 buckets of 8 bytes, usually some dozens.
///
/// Magnitudes below 2^-10 count as 0, those above 2^63 as 2^63.
#[derive(Debug, Clone, Default)]
pub struct Sketch {
    /// Ordered by key; no count is 0.
    buckets: Vec<(i16, u32)>,
    count: u64,
    /// The bucket of the last value: usually also that of the next.
    hint: usize,
}

impl Sketch {
    /// Counts a value; NaN is left out.
    pub fn add(&mut self, value: f64) {
        if value.is_nan() {
            return;
        }
        let key = key_of(value);
        self.count += 1;
        if let Some((last, count)) = self.buckets.get_mut(self.hint)
            && *last == key
        {
            *count = count.saturating_add(1);
            return;
        }
        match self.buckets.binary_search_by_key(&key, |(key, _)| *key) {
            Ok(at) => {
                if let Some((_, count)) = self.buckets.get_mut(at) {
                    *count = count.saturating_add(1);
                }
                self.hint = at;
            }
            Err(at) => {
                self.buckets.insert(at, (key, 1));
                self.hint = at;
            }
        }
    }

    /// Adds the values of another sketch.
    pub fn merge(&mut self, other: &Self) {
        self.count += other.count;
        if self.buckets.is_empty() {
            self.buckets.clone_from(&other.buckets);
            return;
        }
        for &(key, count) in &other.buckets {
            match self.buckets.binary_search_by_key(&key, |(key, _)| *key) {
                Ok(at) => {
                    if let Some((_, own)) = self.buckets.get_mut(at) {
                        *own = own.saturating_add(count);
                    }
                }
                Err(at) => self.buckets.insert(at, (key, count)),
            }
        }
    }

    /// Appends its bytes: for every bucket the distance from the one before and the count, as LEB128 numbers.
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        let mut before = i32::from(i16::MIN);
        for &(key, count) in &self.buckets {
            number(bytes, i32::from(key).abs_diff(before));
            number(bytes, count);
            before = i32::from(key);
        }
    }

    /// Adds the values of a sketch that was encoded. Returns whether the bytes are one; if not, some were added.
    #[must_use]
    pub fn merge_encoded(&mut self, mut bytes: &[u8]) -> bool {
        let mut other = Self::default();
        let mut key = i32::from(i16::MIN);
        while !bytes.is_empty() {
            let (Some(distance), Some(count)) = (taken(&mut bytes), taken(&mut bytes)) else { return false };
            let next = i32::try_from(distance).ok().and_then(|distance| key.checked_add(distance));
            let Some(bucket) = next.and_then(|next| i16::try_from(next).ok()) else { return false };
            key = i32::from(bucket);
            other.buckets.push((bucket, count));
            other.count += u64::from(count);
        }
        self.merge(&other);
        true
    }

    /// Buckets that hold a value: the memory it takes.
    pub fn buckets(&self) -> usize {
        self.buckets.len()
    }

    /// Number of values that were added.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The smallest value that at least this share (0 to 1) of the values do not exceed, within 1 %; none
    /// without values.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let total: u64 = self.buckets.iter().map(|(_, count)| u64::from(*count)).sum();
        self.at_rank(rank_of(share, total))
    }

    /// The value of this rank among the sorted values, counted from 1, within 1 %; none without so many values.
    pub fn at_rank(&self, rank: u64) -> Option<f64> {
        let mut seen = 0;
        for (key, count) in &self.buckets {
            seen += u64::from(*count);
            if seen >= rank {
                return Some(middle_of(*key));
            }
        }
        None
    }

    /// Forgets all values and keeps the memory.
    pub fn clear(&mut self) {
        self.buckets.clear();
        self.count = 0;
        self.hint = 0;
    }
}

/// Appends a number in groups of seven bits, the lowest first.
fn number(bytes: &mut Vec<u8>, mut number: u32) {
    while number >= 0x80 {
        bytes.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    bytes.push(number.to_le_bytes()[0]);
}

/// Takes such a number from the front.
fn taken(bytes: &mut &[u8]) -> Option<u32> {
    let mut number = 0_u32;
    for shift in (0..u32::BITS).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let group = u32::from(byte & 0x7f);
        if group.leading_zeros() < shift {
            return None;
        }
        number |= group << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// Rank of the quantile among the sorted values, counted from 1.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counts are far below 2^52 and the product lies between 0 and the count"
)]
fn rank_of(share: f64, total: u64) -> u64 {
    ((share.clamp(0.0, 1.0) * float(total)).ceil() as u64).max(1)
}

#[expect(clippy::cast_possible_truncation, reason = "a bucket is wider than what a 32-bit float leaves out")]
fn key_of(value: f64) -> i16 {
    let value = value as f32;
    let magnitude = value.abs();
    if magnitude < SMALLEST {
        return 0;
    }
    let steps = (magnitude.min(LARGEST).to_bits() >> SHIFT) - (SMALLEST.to_bits() >> SHIFT);
    let key = i16::try_from(steps + 1).unwrap_or(i16::MAX);
    if value < 0.0 { -key } else { key }
}

fn middle_of(key: i16) -> f64 {
    let Some(steps) = u32::from(key.unsigned_abs()).checked_sub(1) else { return 0.0 };
    let first = (SMALLEST.to_bits() >> SHIFT) + steps;
    let low = f64::from(f32::from_bits(first << SHIFT));
    let high = f64::from(f32::from_bits((first + 1) << SHIFT));
    let middle = f64::midpoint(low, high);
    if key < 0 { -middle } else { middle }
}

impl PartialEq for Sketch {
    fn eq(&self, other: &Self) -> bool {
        self.buckets == other.buckets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encoded_sketch_is_the_same_and_other_bytes_are_none() {
        let mut sketch = Sketch::default();
        for value in [0.0, -1e30, 1e30, f64::from(f32::MAX), 0.001, -3.5, 7.0, 7.0, 7.01] {
            sketch.add(value);
        }
        (0..70_000).for_each(|_| sketch.add(300.0));
        let mut bytes = Vec::new();
        sketch.encode(&mut bytes);
        let mut again = Sketch::default();
        assert!(again.merge_encoded(&bytes));
        assert_eq!((&again, again.count()), (&sketch, 70_009));
        assert!(again.merge_encoded(&[]), "no values");
        for wrong in [&bytes[..bytes.len() - 1], &[0xff; 6][..], &[0xff, 0xff, 0xff, 0xff, 0x0f, 1][..]] {
            assert!(!Sketch::default().merge_encoded(wrong), "{wrong:?}");
        }
    }
}
