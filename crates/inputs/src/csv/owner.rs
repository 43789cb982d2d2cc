//! Who a row belongs to: the GPU that it names, or the one that the file or the user names.
//!
//! A name of a GPU (`gpu_0`, a UUID) stays as it is. What means nothing without its machine gets the host that the user
//! names, else the row's, else the file's name: never this machine's.

use std::borrow::Cow;
use std::fmt::Write as _;

use gpuvitals_core::foreign::vendor_of;
use gpuvitals_core::identity::INDEX_COLUMN;
use gpuvitals_core::{Identity, IdentityColumn, IdentityError};
use serde_json::Value as Json;

use super::cell::Field;
use super::part::Whose;
use super::plan::Plan;

/// Completes an identity. `gpu` is the GPU's name in the row; what the row does not say is added to the fields of its
/// message.
pub(super) fn settle(
    identity: &mut Identity,
    plan: &Plan,
    whose: &Whose,
    gpu: Option<&str>,
    fields: &mut Vec<Field>,
) -> Result<(), IdentityError> {
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
    let is_placed =
        identity.uuid().is_none() && gpu.as_deref().is_none_or(|gpu| !from_file || is_model || is_place(gpu));
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
fn is_model(name: &str) -> bool {
    let bare = ["GPU-", "MIG-", "0x"].iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name);
    // The digits of a UUID may spell `a100`.
    let is_id = bare.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    !is_place(name) && !is_id && !name.contains([':', '@']) && vendor_of(name).is_some()
}

/// `cuda:3` is index 3.
fn index_of(name: &str) -> Option<&str> {
    let rest = name.strip_prefix("cuda").or_else(|| name.strip_prefix("CUDA"))?;
    let number = rest.strip_prefix(':').unwrap_or(rest);
    (!number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())).then_some(number)
}

/// Whether a GPU's name, as the file has it, says only where on its machine it is: an index, `card0`, `GPU 0`,
/// `/dev/nvidia0`, a PCI address.
fn is_place(name: &str) -> bool {
    let name = name.strip_prefix("/dev/").unwrap_or(name);
    // A name in a column of GPUs such as gpu_0 is one that somebody gave.
    if name.starts_with("gpu_") {
        return false;
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
        for name in [
            "gpu_0",
            "GPU-5fd4f087-86f3-7a43-b711-4771313afc50",
            "g",
            "mi300x-left",
            "0x1a2b3c4d5e6f7788",
            "h1:gpu0",
        ] {
            assert!(!is_place(name), "{name}");
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
