//! Who a row belongs to: the GPU that it names, or the one that the file or the user names.
//!
//! A name that no other GPU has (a UUID, a serial number) or that somebody gave (`gpu_0`) stays as it is. What means nothing
//! without its machine (an index, a PCI address, a model) gets the host that the user names, else the row's, else the file's
//! name: never this machine's.

use std::borrow::Cow;
use std::fmt::Write as _;

use gpuvitals_core::foreign::vendor_of;
use gpuvitals_core::identity::INDEX_COLUMN;
use gpuvitals_core::{Identity, IdentityColumn, IdentityError};
use serde_json::Value as Json;

use super::cell::{ExtraCell, MessageField};
use super::model;
use super::part::Whose;
use super::plan::Plan;

/// Whom a record is of, as it is read.
#[derive(Debug, Default)]
pub(super) struct SubjectDraft {
    pub(super) identity: Identity,
    /// The other identity of the rows.
    pub(super) extras: Vec<ExtraCell>,
    /// What identifies it, as in the file.
    pub(super) fields: Vec<MessageField>,
}

/// Completes the identity of a draft. `gpu` is the GPU's name in the row; what the row does not say is added to the
/// fields of its message.
pub(super) fn settle(
    draft: &mut SubjectDraft,
    plan: &Plan,
    whose: &Whose,
    gpu: Option<&str>,
) -> Result<(), IdentityError> {
    let SubjectDraft { identity, fields, .. } = draft;
    let mut named = |column: IdentityColumn, text: &str, identity: &mut Identity| {
        fields.push((column.name().into(), text.into()));
        identity.set(column, text)
    };
    if let Some(host) = &plan.owner.host {
        named(IdentityColumn::Node, &safe(IdentityColumn::Node, host), identity)?;
    }
    let usual = safe(IdentityColumn::Node, &plan.owner.usual_host);
    let usual = if usual.is_empty() { Cow::Borrowed("unknown") } else { usual };
    if identity.get(IdentityColumn::Source).is_none() {
        identity.set(IdentityColumn::Source, "csv")?;
    }
    if *whose == Whose::Host {
        *identity = of_host(identity, &usual)?;
        return Ok(());
    }
    if identity.get(IdentityColumn::Vendor).is_none()
        && let Some(vendor) = identity.get(IdentityColumn::Model).and_then(vendor_of)
    {
        identity.set(IdentityColumn::Vendor, vendor)?;
    }
    let from_file = gpu.is_some();
    let gpu = match whose {
        Whose::Gpu(name) => Some(Cow::Borrowed(&**name)),
        _ if gpu.is_some() || plan.names_gpu() => gpu.map(Cow::Borrowed),
        // One GPU: named by the user, else by its model.
        _ => {
            let model = || identity.get(IdentityColumn::Model).map(str::to_owned);
            Some(plan.owner.gpu.clone().or_else(model).map_or(Cow::Borrowed("0"), Cow::Owned))
        }
    };
    let is_model = gpu.as_deref().is_some_and(|gpu| from_file && is_model(gpu));
    let behind = gpu.as_deref().filter(|_| from_file).and_then(numbered).map(|(_, model)| model.to_owned());
    if let Some(model) = behind.filter(|_| identity.get(IdentityColumn::Model).is_none()) {
        identity.set(IdentityColumn::Vendor, vendor_of(&model).unwrap_or_default())?;
        named(IdentityColumn::Model, &model, identity)?;
    }
    let is_placed = identity.uuid().is_none() && gpu.as_deref().is_none_or(|gpu| !from_file || !is_own(gpu));
    if let Some(model) = gpu.as_deref().filter(|_| is_model && identity.get(IdentityColumn::Model).is_none())
    {
        named(IdentityColumn::Model, model, identity)?;
        identity.set(IdentityColumn::Vendor, vendor_of(model).unwrap_or_default())?;
    }
    let gpu = gpu.map(|gpu| gpu_name(&gpu).into_owned());
    let is_somebody = gpu.is_some() || identity.get(IdentityColumn::Pci).is_some();
    if is_placed && is_somebody && identity.node().is_none() {
        named(IdentityColumn::Node, &usual, identity)?;
    }
    if let Some(gpu) = &gpu {
        identity.name_gpu(gpu)?;
        if !from_file {
            let index: Option<i32> = gpu.parse().ok();
            match (index, identity.uuid()) {
                (Some(index), _) => fields.push((INDEX_COLUMN.into(), Json::from(index))),
                (None, Some(uuid)) => fields.push((IdentityColumn::Uuid.name().into(), uuid.into())),
                (None, None) => {}
            }
        }
    }
    identity.resolve()
}

/// The number of a GPU in the name of its file: `power_gpu1`, `gpu_1`, `node7-GPU3`. A number with more digits is a model or a date.
pub(super) fn in_file_name(stem: &str) -> Option<&str> {
    let lower = stem.to_ascii_lowercase();
    let at = |(from, word): (usize, &str)| {
        let is_begun = stem.get(..from)?.ends_with(|c: char| c.is_ascii_alphanumeric());
        let rest = stem.get(from + word.len()..).filter(|_| !is_begun)?;
        let bare = rest.strip_prefix(['_', '-', '#', '.']).unwrap_or(rest);
        let behind = bare.trim_start_matches(|c: char| c.is_ascii_digit());
        let number =
            bare.get(..bare.len() - behind.len()).filter(|number| (1..=2).contains(&number.len()))?;
        // `gpu8x`, `gpu_21-03-2025`, `gpu_02_06`
        let mut parts = behind.split(|c: char| !c.is_ascii_alphanumeric()).filter(|part| !part.is_empty());
        let is_part = |part: &str| part.len() <= 2 && part.bytes().all(|byte| byte.is_ascii_digit());
        let is_date = bare.len() < rest.len() && parts.next().is_some_and(is_part);
        (!behind.starts_with(|c: char| c.is_ascii_alphanumeric()) && !is_date).then_some(number)
    };
    let is_index = |(word, number): &(&str, &str)| {
        number.parse().is_ok_and(|number: u8| number < if *word == "cuda" { 10 } else { GPUS })
    };
    let mut found = ["gpu", "card", "cuda"]
        .iter()
        .flat_map(|word| lower.match_indices(word))
        .filter_map(|it| Some((it.1, at(it)?)))
        .filter(is_index)
        .map(|it| it.1);
    let first = found.next()?;
    // Two numbers do not say which.
    found
        .all(|other| other == first)
        .then(|| first.trim_start_matches('0'))
        .map(|number| if number.is_empty() { "0" } else { number })
}

/// What of an identity is its host's.
fn of_host(identity: &Identity, usual: &str) -> Result<Identity, IdentityError> {
    let mut host = Identity::default();
    for column in [IdentityColumn::Cluster, IdentityColumn::Node, IdentityColumn::Source] {
        host.set(column, identity.get(column).unwrap_or_default())?;
    }
    if host.node().is_none() {
        host.set(IdentityColumn::Node, usual)?;
    }
    Ok(host)
}

/// The name of a GPU in a file, as an identity can have it.
pub(super) fn gpu_name(text: &str) -> Cow<'_, str> {
    let bare = text.strip_prefix("/dev/").unwrap_or(text);
    safe(IdentityColumn::Uuid, index_of(bare).unwrap_or(bare))
}

/// Whether a GPU is called by its model, which others have, too.
pub(super) fn is_model(name: &str) -> bool {
    !is_place(name) && !is_id(name) && !name.contains([':', '@']) && model::names_gpu(name)
}

/// Whether a name is of one GPU only: an id, a name with its machine in it, or one that somebody gave (`gpu_0`, `left`,
/// `rack/1`, `node7-slot3`). A word with one short number, or blanks, may be a model that nobody knows here.
fn is_own(name: &str) -> bool {
    let is_given = || {
        name.starts_with("gpu_")
            || name.contains([':', '@', '/'])
            || (!name.contains(' ') && !has_one_short_number(name))
    };
    !is_place(name) && (is_id(name) || (is_given() && !is_model(name)))
}

/// Whether a name has one number, as `C500` or `GPU-1` have.
fn has_one_short_number(name: &str) -> bool {
    const SHORT: usize = 5;
    let mut numbers = name.split(|c: char| !c.is_ascii_digit()).filter(|number| !number.is_empty());
    numbers.next().is_some_and(|number| number.len() <= SHORT) && numbers.next().is_none()
}

/// Whether a name is a UUID, a serial number or the like. The digits of one may spell `a100`.
fn is_id(name: &str) -> bool {
    let bare = ["GPU-", "MIG-", "0x"].iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name);
    let digits = bare.bytes().filter(u8::is_ascii_hexdigit).count();
    digits >= ID_LEN_MIN && bare.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}

/// A machine has fewer GPUs; `cuda12` is a version.
const GPUS: u8 = 16;

/// Fewest hexadecimal digits of an id that no other GPU has.
const ID_LEN_MIN: usize = 8;

/// `cuda:3` is index 3, and so is `GPU 3: Tesla V100`.
fn index_of(name: &str) -> Option<&str> {
    let is_number = |text: &&str| (1..=3).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    if let Some(number) = numbered(name).map(|(number, _)| number).filter(is_number) {
        return Some(number);
    }
    let rest = name.strip_prefix("cuda").or_else(|| name.strip_prefix("CUDA"))?;
    let number = rest.strip_prefix(':').unwrap_or(rest);
    (!number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())).then_some(number)
}

/// `GPU 3: Tesla V100` as `3` and `Tesla V100`.
fn numbered(name: &str) -> Option<(&str, &str)> {
    let (_, rest) = name.split_at_checked(3).filter(|(word, _)| word.eq_ignore_ascii_case("gpu"))?;
    let (number, model) = rest.trim_start().split_once(':')?;
    let (number, model) = (number.trim(), model.trim());
    (!number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()) && !model.is_empty())
        .then_some((number, model))
}

/// Whether a GPU's name, as the file has it, says only where on its machine it is: an index, `card0`, `GPU 0`,
/// `/dev/nvidia0`, a PCI address.
fn is_place(name: &str) -> bool {
    let name = name.strip_prefix("/dev/").unwrap_or(name);
    // A name in a column of GPUs such as gpu_0 is one that somebody gave.
    if name.starts_with("gpu_") {
        return false;
    }
    if numbered(name).is_some() {
        return true;
    }
    let bare = name.strip_suffix(".0").filter(|rest| !rest.contains(':')).unwrap_or(name);
    let rest = bare.trim_start_matches(|c: char| c.is_ascii_alphabetic());
    let (word, number) = bare.split_at_checked(bare.len() - rest.len()).unwrap_or((bare, ""));
    let number = number.trim_start_matches(['-', '_', ':', '#', ' ']);
    // A serial number is longer than any index.
    let len_max = if word.is_empty() { 11 } else { 3 };
    let is_counted = ["", "card", "gpu", "nvidia", "renderd", "device", "dev", "cuda", "gcd"]
        .iter()
        .any(|known| word.eq_ignore_ascii_case(known));
    let is_number =
        !number.is_empty() && number.len() <= len_max && number.bytes().all(|b| b.is_ascii_digit());
    let is_address = name.matches(':').count() >= 1
        && name.contains('.')
        && name.bytes().all(|b| b.is_ascii_hexdigit() || b == b':' || b == b'.');
    (is_counted && is_number) || is_address
}

/// A text that such a column can have: what no name has becomes `_`, a letter of another script its code, so that two names
/// stay two.
pub(super) fn safe(column: IdentityColumn, text: &str) -> Cow<'_, str> {
    let is_name = matches!(column, IdentityColumn::Uuid | IdentityColumn::Node | IdentityColumn::Partition);
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.:@+".contains(c) || c.is_control();
    if !is_name || text.chars().all(fits) {
        return Cow::Borrowed(text);
    }
    let mut name = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            c if fits(c) => name.push(c),
            c if c.is_alphanumeric() => drop(write!(name, "+{:x}", u32::from(c))),
            _ => name.push('_'),
        }
    }
    Cow::Owned(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_told_from_a_name() {
        for place in [
            "0",
            "7.0",
            "card0",
            "GPU0",
            "GPU_0",
            "nvidia3",
            "renderD128",
            "0000:0c:00.0",
            "00000000:0C:00.0",
            "01:00.0",
        ] {
            assert!(is_place(place), "{place}");
        }
        for model in [
            "RTX 4090",
            "A100",
            "V100",
            "Tesla V100",
            "T4",
            "A10G",
            "L40S",
            "GTX 1080",
            "gfx90a",
            "S80 Pro",
            "BR104",
        ] {
            assert!(!is_own(model), "{model}");
        }
        assert_eq!(index_of("GPU 3: Tesla V100"), Some("3"));
        for name in [
            "gpu_0",
            "GPU-5fd4f087-86f3-7a43-b711-4771313afc50",
            "g",
            "left",
            "a100a100a100",
            "0x1a2b3c4d5e6f7788",
            "h1:gpu0",
        ] {
            assert!(!is_place(name) && is_own(name), "{name}");
        }
    }

    #[test]
    fn a_file_is_called_after_its_gpu() {
        for (stem, number) in [
            ("power_gpu1", "1"),
            ("gpu_0", "0"),
            ("node7-GPU3", "3"),
            ("gpu02", "2"),
            ("gpu1_2025-03-21", "1"),
            ("gpu_1_2025-03-21", "1"),
            ("card0.power", "0"),
            ("gpu1-power-gpu1", "1"),
        ] {
            assert_eq!(in_file_name(stem), Some(number), "{stem}");
        }
        for stem in [
            "gpu",
            "gpus",
            "gpu8x",
            "multigpu2",
            "gpu_20250321",
            "gpu_21-03-2025",
            "gpu_02_06",
            "gpu4090",
            "gpu0_vs_gpu1",
            "8gpu",
            "discard1",
            "power-only",
            "gpu_usage",
        ] {
            assert_eq!(in_file_name(stem), None, "{stem}");
        }
    }

    #[test]
    fn names_are_made_safe() {
        let safe = |text| safe(IdentityColumn::Uuid, text).into_owned();
        assert_eq!(safe("NVIDIA GeForce RTX 4090"), "NVIDIA_GeForce_RTX_4090");
        assert_eq!(safe("rack 1/gpu"), "rack_1_gpu");
        assert_eq!(safe("GPU-1"), "GPU-1");
        assert_eq!(safe("日志"), "+65e5+5fd7");
    }
}
