//! GPUs that only the last number in a name tells: `gpu_power_0`, `gpu_power_1`.

use std::collections::HashMap;

use gpuvitals_core::Table;
use gpuvitals_core::foreign::{self, Meaning};

use super::{Draft, Evidence, Sense};
use crate::csv::plan::{is_named, tells_gpu};

impl Draft<'_> {
    /// Names that differ in a last number alone are of a GPU each: `gpu_power_0`, `gpu_power_1`.
    pub(super) fn number(&self, senses: &mut [Sense], dropped: &HashMap<usize, String>) {
        let is_told = |sense: &Sense| sense.meaning == Meaning::Gpu || tells_gpu(sense.meaning);
        if self.dialect.is_some() || senses.iter().any(is_told) {
            return;
        }
        let parts: Vec<Option<(&str, &str)>> = self.names.iter().map(|name| numbered(name)).collect();
        for (index, (sense, part)) in senses.iter_mut().zip(&parts).enumerate() {
            let Some((stem, number)) = part else { continue };
            let is_like = |other: &Option<(&str, &str)>| {
                other.is_some_and(|(like, other)| is_named(like, stem) && other != *number)
            };
            let column = foreign::column(stem, self.topic);
            let is_gpus =
                matches!(column.meaning, Meaning::Metric(id, _) if id.metric().table == Table::GpuEvents);
            let is_open =
                sense.evidence != Evidence::User && sense.why.is_none() && !dropped.contains_key(&index);
            if is_open && is_gpus && column.gpu.is_none() && parts.iter().any(is_like) {
                let gpu = Some((*number).to_owned());
                *sense = Sense { meaning: column.meaning, gpu, unit: column.unit, ..Sense::default() };
            }
        }
    }
}

/// `gpu_power_1` as `gpu_power` and `1`. A GPU has fans and memory stacks of its own with numbers.
fn numbered(name: &str) -> Option<(&str, &str)> {
    let name = name.trim();
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let number = name.get(stem.len()..).filter(|number| (1..=3).contains(&number.len()))?;
    let stem = stem.strip_suffix(['_', ' ', '.', '-', '#'])?;
    let lower = stem.to_ascii_lowercase();
    (!["fan", "hbm"].iter().any(|part| lower.contains(part))).then_some((stem, number))
}
