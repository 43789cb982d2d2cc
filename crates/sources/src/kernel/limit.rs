//! At most so many lines a second of a device: a driver that is in trouble may write thousands.

use std::collections::HashMap;

use gpuvitals_core::time::SECOND_NS;

/// Most lines of a device in a second.
const LINES_MAX: u32 = 100;
/// Most devices that are told apart; a machine has fewer.
const DEVICES_MAX: usize = 1_024;

/// How many lines of each device have come in the present second.
#[derive(Debug, Default)]
pub(super) struct LineLimit {
    second: i64,
    counts: HashMap<Option<String>, u32>,
}

impl LineLimit {
    /// Whether one more line of a device, or of none, may pass now.
    pub(super) fn admits(&mut self, device: Option<&str>, mono_ns: i64) -> bool {
        let second = mono_ns.div_euclid(SECOND_NS);
        if second != self.second {
            self.second = second;
            self.counts.clear();
        }
        let device = device.map(str::to_owned);
        if self.counts.len() >= DEVICES_MAX && !self.counts.contains_key(&device) {
            return false;
        }
        let count = self.counts.entry(device).or_default();
        *count += 1;
        *count <= LINES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_floods_silences_no_other() {
        let mut limit = LineLimit::default();
        let passed = |limit: &mut LineLimit, device, mono_ns| {
            (0..1_000).filter(|_| limit.admits(device, mono_ns)).count()
        };
        assert_eq!(passed(&mut limit, Some("0000:01:00.0"), 0), 100);
        assert_eq!(passed(&mut limit, Some("0000:02:00.0"), SECOND_NS - 1), 100);
        assert_eq!(passed(&mut limit, None, SECOND_NS - 1), 100);
        assert_eq!(passed(&mut limit, Some("0000:01:00.0"), SECOND_NS), 100);
    }

    #[test]
    fn invented_devices_take_no_memory() {
        let mut limit = LineLimit::default();
        let passed = (0..100_000).filter(|device| limit.admits(Some(&device.to_string()), 0)).count();
        assert_eq!((passed, limit.counts.len()), (DEVICES_MAX, DEVICES_MAX));
    }
}
