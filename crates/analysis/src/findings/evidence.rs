//! The values that show a finding, and their words.

use gpuvitals_core::{MetricId, catalogue};
use serde::Serialize;

use crate::condition::{asked_for, xid};

/// A value that shows a finding.
#[derive(Debug, Clone, PartialEq)]
pub struct Evidence {
    /// Column of the catalogue, or a quantity derived from some.
    pub quantity: &'static str,
    /// Its unit; empty for none.
    pub unit: &'static str,
    /// The value that was found.
    pub value: f64,
    /// What it is compared with.
    pub compared_with: Option<ComparedValue>,
}

/// The other value of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ComparedValue {
    /// In the unit of the value beside it.
    pub value: f64,
    /// Where it comes from.
    pub origin: &'static str,
}

/// Ends of names of columns that say the unit.
const UNIT_ENDS: [&str; 9] = ["_bytes_per_s", "_pct", "_mhz", "_rpm", "_ratio", "_ns", "_mb", "_w", "_c"];
/// Words of columns that are written in another way.
const SPELLINGS: [(&str, &str); 8] = [
    ("gpu", "GPU"),
    ("gpus", "GPUs"),
    ("pcie", "PCIe"),
    ("gen", "generation"),
    ("ecc", "ECC"),
    ("ras", "RAS"),
    ("xid", "XID"),
    ("sram", "SRAM"),
];

impl Evidence {
    /// A value of a metric.
    pub fn of(metric: MetricId, value: f64) -> Self {
        let metric = metric.metric();
        Self { quantity: metric.column, unit: metric.unit.as_str(), value, compared_with: None }
    }

    /// A value of a derived quantity. If a sentence has it as a whole number, it is rounded as texts are: halves to the even one.
    pub fn derived(quantity: &'static str, unit: &'static str, value: f64) -> Self {
        Self { quantity, unit, value, compared_with: None }
    }

    /// Beside another value.
    #[must_use]
    pub fn beside(self, value: f64, origin: &'static str) -> Self {
        Self { compared_with: Some(ComparedValue { value, origin }), ..self }
    }

    /// The value in words, with its name, its unit and what it is compared with: `GPU clock 1530 MHz against 1980 MHz, median of the
    /// job`.
    pub fn text(&self) -> String {
        #[expect(clippy::cast_possible_truncation, reason = "codes and masks")]
        let whole = self.value as i64;
        let own = match self.quantity {
            "xid_last" => xid::sentence(whole),
            "recovery_action" => format!("the driver asks for {}", asked_for(whole)),
            "robust_distance" => {
                let side = if self.value < 0.0 { "below" } else { "above" };
                format!("{} times the usual spread {side} its peers", number(self.value.abs()))
            }
            quantity => format!("{} {}", name(quantity), self.amount(self.value)),
        };
        match self.compared_with {
            None => own,
            Some(ComparedValue { value, origin }) => {
                format!("{own} against {}, {origin}", self.amount(value))
            }
        }
    }

    fn amount(&self, value: f64) -> String {
        let metric = catalogue::by_column(self.quantity).map(MetricId::metric);
        if let Some(metric) = metric.filter(|metric| !metric.bits.is_empty()) {
            #[expect(clippy::cast_possible_truncation, reason = "a mask")]
            return metric.names_of(value as i64);
        }
        match self.unit {
            "" => number(value),
            "ratio" => format!("{} %", number(100.0 * value)),
            unit => format!("{} {unit}", number(value)),
        }
    }
}

/// `gpu_clock_mhz` as words: `GPU clock`.
fn name(quantity: &str) -> String {
    let stem = UNIT_ENDS.iter().find_map(|end| quantity.strip_suffix(end)).unwrap_or(quantity);
    let spelling = |word: &str| {
        let known = SPELLINGS.iter().find(|(plain, _)| *plain == word);
        known.map_or_else(|| word.to_owned(), |(_, spelling)| (*spelling).to_owned())
    };
    let words: Vec<String> = stem.split('_').map(spelling).collect();
    words.join(" ")
}

/// To three digits or the whole number.
fn number(value: f64) -> String {
    let decimals = match value.abs() {
        large if large >= 100.0 => 0,
        middle if middle >= 10.0 => 1,
        _ => 2,
    };
    let text = format!("{value:.decimals$}");
    if decimals == 0 { text } else { text.trim_end_matches('0').trim_end_matches('.').to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_said_with_its_name_and_unit() {
        let of = |column: &str, value| Evidence::of(catalogue::by_column(column).unwrap(), value);
        for (evidence, words) in [
            (of("xid_last", 79.0), "XID 79: the GPU has fallen off the bus"),
            (of("xid_last", 9_999.0), "XID 9999"),
            (of("throttle_reasons", 32.0), "throttle reasons software thermal slowdown"),
            (of("recovery_action", 2.0), "the driver asks for a reboot of the node"),
            (of("ecc_uncorrected_volatile", 3.0), "ECC uncorrected volatile 3"),
            (
                of("pcie_gen", 3.0).beside(5.0, "most GPUs of the model"),
                "PCIe generation 3 against 5, most GPUs of the model",
            ),
            (
                Evidence::derived("gpu_clock_mhz", "MHz", 1530.0).beside(1980.0, "median of the job"),
                "GPU clock 1530 MHz against 1980 MHz, median of the job",
            ),
            (
                Evidence::derived("share_of_time_held_down_by_heat", "ratio", 0.927),
                "share of time held down by heat 92.7 %",
            ),
            (
                Evidence::derived("robust_distance", "deviations", -22.7),
                "22.7 times the usual spread below its peers",
            ),
        ] {
            assert_eq!(evidence.text(), words);
        }
    }
}
