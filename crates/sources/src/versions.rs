//! The oldest versions of drivers and libraries that the fixtures cover. Older ones are read too; nobody has tested them.

use crate::finding::{Finding, Verdict};

/// What has a version, and the oldest one that a fixture was captured with.
const COVERED: [(&str, &[u32]); 4] = [
    // fixtures/amd/rocm-smi/vega-20-WKS-GL-XE.json
    ("amdgpu", &[5, 9, 17]),
    // fixtures/amd/rocm-smi/rx6700xt_rocm430.json
    ("ROCm", &[4, 3]),
    // fixtures/nvidia/query-csv/rtx4090x8-535.154.05.derived.csv
    ("NVIDIA driver", &[535, 154, 5]),
    // The library of that driver.
    ("NVML", &[12, 535, 154]),
];

/// A finding about a version that is older than any that was tested; none if it is not, or is no version.
pub fn untested(subject: &str, what: &str, version: &str) -> Option<Finding> {
    let (_, oldest) = COVERED.iter().find(|(covered, _)| *covered == what)?;
    let numbers = numbers(version);
    if numbers.is_empty() || numbers.as_slice() >= *oldest {
        return None;
    }
    let oldest: Vec<String> = oldest.iter().map(u32::to_string).collect();
    let text = format!("{what} {version} is older than {}, the oldest that was tested", oldest.join("."));
    let finding = Finding::new(Verdict::Note, subject, text);
    Some(finding.remedy("values may be missing; a newer driver gives more of them"))
}

/// The numbers that a version begins with: `6.1.0-18-amd64` is 6, 1, 0.
fn numbers(version: &str) -> Vec<u32> {
    let digits = |part: &str| part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
    let mut numbers = Vec::new();
    for part in version.trim().split('.') {
        let len = digits(part);
        let Some(number) = part.get(..len).and_then(|number| number.parse().ok()) else { break };
        numbers.push(number);
        if len < part.len() {
            break;
        }
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_older_than_every_fixture_is_named() {
        for (what, version, is_untested) in [
            ("NVIDIA driver", "470.256.02", true),
            ("NVIDIA driver", "535.104.05", true),
            ("NVIDIA driver", "535.154.05", false),
            ("NVIDIA driver", "580.82.07", false),
            ("NVIDIA driver", "?", false),
            ("NVML", "11.470.256.02", true),
            ("NVML", "12.590.48.01", false),
            ("amdgpu", "5.4.0-150-generic", true),
            ("amdgpu", "5.10", false),
            ("amdgpu", "6.12.12", false),
            ("ROCm", "4.2.0-21", true),
            ("ROCm", "6.0.2-115", false),
            ("something", "0.1", false),
        ] {
            let finding = untested("x", what, version);
            assert_eq!(finding.is_some(), is_untested, "{what} {version}");
            assert!(finding.is_none_or(|finding| finding.text.contains(version)));
        }
    }
}
