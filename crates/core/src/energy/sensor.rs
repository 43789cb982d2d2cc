//! The power sensors of GPUs: how far a reading may be off, how often it is made, over which time it is averaged.
//!
//! One table, an entry for each kind of board, each with its source. A board that is not in it has no sensor here: nobody
//! has held a meter beside one, so nothing is said about its error.

use crate::{Identity, IdentityColumn};

const VENDOR: &str = "nvidia";
/// Boards of the same name for laptops have other sensors.
const OTHERS: [&str; 3] = ["Laptop", "Max", "Mobile"];
/// What the model of an instance has in its name, before the profile.
const INSTANCE: &str = "MIG";

const STUDY: &str = "a study of 70 GPUs beside a meter (arXiv 2312.02741)";
const MANUAL: &str = "±5 % by the study of 70 GPUs (arXiv 2312.02741), ±5 W by the manual of nvidia-smi";

/// A kind of power sensor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PowerSensor {
    /// Words of the model's name, any of which means this sensor.
    names: &'static [&'static str],
    /// How far its readings may be off, as a share of them.
    pub(super) gain: f64,
    /// How far they may be off at least, watts: what the sensor does not see of the board does not grow with its load.
    pub(super) floor_w: f64,
    /// Where these two come from.
    pub(super) gain_source: &'static str,
    /// Time between two readings, seconds.
    pub(super) period_s: f64,
    /// The time that a reading averages, seconds.
    pub(super) window_s: f64,
    /// The time that the reading of the average averages, seconds.
    pub(super) average_s: f64,
    /// Where the times come from.
    pub(super) timing_source: &'static str,
}

static SENSORS: [PowerSensor; 9] = [
    PowerSensor {
        names: &["K10", "K20", "K20c", "K20m", "K20X", "K20Xm", "K40", "K40c", "K40m", "K80"],
        gain: 0.05,
        floor_w: 0.0,
        gain_source: "the maker: NVML's reference gives ±5 % for Fermi and Kepler",
        period_s: 0.03,
        window_s: 0.2,
        average_s: 0.2,
        timing_source: "the study (arXiv 2312.02741), and its log of a K40m: 30 ms",
    },
    PowerSensor {
        names: &["M4", "M6", "M10", "M40", "M60", "960", "970", "980"],
        gain: 0.05,
        floor_w: 5.0,
        gain_source: MANUAL,
        period_s: 0.02,
        window_s: 0.2,
        average_s: 0.2,
        timing_source: STUDY,
    },
    PowerSensor {
        names: &["P4", "P6", "P40", "P100", "1050", "1060", "1070", "1080", "V100", "V100S"],
        gain: 0.05,
        floor_w: 5.0,
        gain_source: MANUAL,
        period_s: 0.02,
        window_s: 0.01,
        average_s: 0.01,
        timing_source: STUDY,
    },
    PowerSensor {
        names: &["T4", "1650", "1660", "2060", "2070", "2080"],
        gain: 0.05,
        floor_w: 5.0,
        gain_source: MANUAL,
        period_s: 0.1,
        window_s: 0.1,
        average_s: 0.1,
        timing_source: STUDY,
    },
    PowerSensor {
        names: &["A30", "A100", "A800"],
        gain: 0.05,
        floor_w: 5.0,
        gain_source: MANUAL,
        period_s: 0.1,
        window_s: 0.025,
        average_s: 0.025,
        timing_source: STUDY,
    },
    PowerSensor {
        names: &[
            "3050", "3060", "3070", "3080", "3090", "A2", "A10", "A16", "A40", "A2000", "A4000", "A4500",
            "A5000", "A5500", "A6000",
        ],
        gain: 0.08,
        floor_w: 5.0,
        gain_source: "a meter beside one RTX 3090: 5.7 % more than its readings (GPU_Power_Benchmark)",
        period_s: 0.1,
        window_s: 0.1,
        average_s: 1.0,
        timing_source: STUDY,
    },
    PowerSensor {
        names: &["4060", "4070", "4080", "4090"],
        gain: 0.05,
        floor_w: 20.0,
        gain_source: "a meter beside one RTX 4090: 18 W more than its readings when idle, 1 % under load (GPU_Power_Benchmark)",
        period_s: 0.1,
        window_s: 0.1,
        average_s: 1.0,
        timing_source: "the log of an RTX 4090 beside a meter (GPU_Power_Benchmark)",
    },
    PowerSensor {
        names: &["H100", "H200", "H800"],
        gain: 0.05,
        floor_w: 5.0,
        gain_source: MANUAL,
        period_s: 0.1,
        window_s: 0.025,
        average_s: 1.0,
        timing_source: "the study (arXiv 2312.02741) of the H100; H200 and H800 have its chip",
    },
    PowerSensor {
        names: &["GH200"],
        gain: 0.05,
        floor_w: 5.0,
        gain_source: MANUAL,
        period_s: 0.1,
        window_s: 0.02,
        average_s: 1.0,
        timing_source: STUDY,
    },
];

impl PowerSensor {
    /// The sensor of a GPU, by vendor and model; none that nobody has measured. An instance has none of its own: what it is said to draw is
    /// a part of its card's power.
    pub fn of(gpu: &Identity) -> Option<&'static Self> {
        let is_other =
            gpu.get(IdentityColumn::Vendor).is_some_and(|vendor| !vendor.eq_ignore_ascii_case(VENDOR));
        let model = gpu.get(IdentityColumn::Model).filter(|_| !is_other)?;
        let has = |name: &str| words(model).any(|word| word.eq_ignore_ascii_case(name));
        let is_instance = gpu.get(IdentityColumn::Partition).is_some() || has(INSTANCE);
        if is_instance || OTHERS.iter().any(|name| has(name)) {
            return None;
        }
        SENSORS.iter().find(|sensor| sensor.names.iter().any(|name| has(name)))
    }

    /// Time between two readings, and the time that one averages, seconds.
    pub fn timing_s(&self) -> (f64, f64) {
        (self.period_s, self.window_s)
    }

    /// The same of the readings of its average.
    pub fn average_timing_s(&self) -> (f64, f64) {
        (self.period_s, self.average_s)
    }
}

fn words(model: &str) -> impl Iterator<Item = &str> {
    model.split(|c: char| !c.is_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(vendor: Option<&str>, model: &str) -> Option<(f64, f64)> {
        let mut gpu = Identity::default().with(IdentityColumn::Model, model).unwrap();
        if let Some(vendor) = vendor {
            gpu = gpu.with(IdentityColumn::Vendor, vendor).unwrap();
        }
        PowerSensor::of(&gpu).map(PowerSensor::timing_s)
    }

    #[test]
    fn a_board_is_known_by_a_word_of_its_name() {
        for model in ["NVIDIA A100-SXM4-80GB", "NVIDIA A100-PCIE-40GB", "NVIDIA H100 80GB HBM3"] {
            assert_eq!(of(Some("nvidia"), model), Some((0.1, 0.025)), "{model}");
        }
        assert_eq!(of(None, "NVIDIA GeForce RTX 3090"), Some((0.1, 0.1)));
        assert_eq!(of(None, "Tesla K40m"), Some((0.03, 0.2)));
        assert_eq!(of(None, "NVIDIA GH200 480GB"), Some((0.1, 0.02)), "GH200 is not H200");
    }

    #[test]
    fn what_nobody_has_measured_has_no_sensor() {
        for model in ["NVIDIA B200", "NVIDIA L4", "NVIDIA GeForce RTX 3080 Laptop GPU", "Tesla A1000", ""] {
            assert_eq!(of(Some("nvidia"), model), None, "{model}");
        }
        assert_eq!(of(Some("amd"), "AMD Instinct MI300X"), None);
        assert_eq!(of(Some("amd"), "AMD Radeon A100"), None, "another maker's board of that name");
    }

    #[test]
    fn an_instance_has_no_sensor() {
        assert_eq!(of(Some("nvidia"), "NVIDIA A100-PCIE-40GB MIG 1g.5gb"), None);
        let card = Identity::default().with(IdentityColumn::Model, "NVIDIA A100-PCIE-40GB").unwrap();
        assert!(PowerSensor::of(&card).is_some());
        let instance = card.with(IdentityColumn::Partition, "1").unwrap();
        assert_eq!(PowerSensor::of(&instance), None);
    }

    #[test]
    fn a_name_stands_in_one_entry_and_every_entry_says_its_sources() {
        let names: Vec<_> = SENSORS.iter().flat_map(|sensor| sensor.names).collect();
        let all: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(all.len(), names.len());
        for sensor in &SENSORS {
            assert!(!sensor.gain_source.is_empty() && !sensor.timing_source.is_empty());
            assert!(sensor.gain >= 0.05 && sensor.average_s >= sensor.window_s, "{sensor:?}");
        }
    }
}
