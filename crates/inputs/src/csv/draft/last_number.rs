//! GPUs that only the last number in a name tells: `gpu_power_0`, `gpu_power_1`.

use std::collections::HashMap;

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
        let parts: Vec<Option<Numbered<'_>>> = self.names.iter().map(|name| Numbered::of(name)).collect();
        for (index, (sense, part)) in senses.iter_mut().zip(&parts).enumerate() {
            let Some(part) = part else { continue };
            let has_like = |is: &dyn Fn(&str) -> bool| {
                parts.iter().flatten().any(|other| other.is_like(part) && is(other.number))
            };
            let column = foreign::column(part.stem, self.topic);
            // A number in brackets was taken for a unit.
            let is_unsaid = sense.why.is_none() || part.mark == NumberMark::Brackets;
            let is_open = sense.evidence != Evidence::User && is_unsaid && !dropped.contains_key(&index);
            if is_open
                && column.meaning.is_of_gpus()
                && column.gpu.is_none()
                && has_like(&|number| number != part.number)
                && (part.mark != NumberMark::None || has_like(&|number| number == "0"))
            {
                let gpu = Some(part.number.to_owned());
                *sense = Sense { meaning: column.meaning, gpu, unit: column.unit, ..Sense::default() };
            }
        }
    }
}

/// What stands between a name and its last number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NumberMark {
    /// `power_0`
    Sign,
    /// `power[0]`
    Brackets,
    /// `power0`. The sensors of a chip are counted so, too, but from 1.
    None,
}

/// A name that a number ends.
#[derive(Debug, Clone, Copy)]
struct Numbered<'a> {
    stem: &'a str,
    mark: NumberMark,
    number: &'a str,
}

impl<'a> Numbered<'a> {
    /// `gpu_power_1` as `gpu_power` and `1`. A GPU has fans and memory stacks of its own with numbers, and without a mark clocks,
    /// engines and links.
    fn of(name: &'a str) -> Option<Self> {
        const OWN: [&str; 2] = ["fan", "hbm"];
        const OWN_UNMARKED: [&str; 9] = ["clk", "clock", "freq", "enc", "dec", "vcn", "jpeg", "link", "xgmi"];
        let name = name.trim();
        let inner = name.strip_suffix([']', ')']);
        let bare = inner.unwrap_or(name);
        let head = bare.trim_end_matches(|c: char| c.is_ascii_digit());
        let number = bare.get(head.len()..).filter(|number| (1..=3).contains(&number.len()))?;
        let (stem, mark) = match (inner, head.strip_suffix(['_', ' ', '.', '-', '#'])) {
            (Some(_), _) => (head.strip_suffix(['[', '('])?.trim_end(), NumberMark::Brackets),
            (None, Some(stem)) => (stem, NumberMark::Sign),
            (None, None) => (head, NumberMark::None),
        };
        let lower = stem.to_ascii_lowercase();
        let has = |parts: &[&str]| parts.iter().any(|part| lower.contains(part));
        let is_own = has(&OWN) || (mark == NumberMark::None && has(&OWN_UNMARKED));
        (!is_own).then_some(Self { stem, mark, number })
    }

    /// Whether both are written alike but for the number.
    fn is_like(&self, other: &Self) -> bool {
        self.mark == other.mark && is_named(self.stem, other.stem)
    }
}
