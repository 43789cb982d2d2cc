//! `CUDA_VISIBLE_DEVICES` as CUDA reads it.
//!
//! Its first word decides what it is: numbers, beginnings of UUIDs (`GPU-8932f937`), or MIG instances (`MIG-…`). The list ends
//! at the first word that names nothing, such as `-1`; a GPU that is named twice makes it empty, and an empty list shows none.

use std::sync::Arc;

use super::name::{VisibleGpus, VisibleName};

/// Why numbers may name any of the GPUs.
const BY_SPEED: &str =
    "CUDA counts GPUs of several models by their speed, unless CUDA_DEVICE_ORDER=PCI_BUS_ID";
const UUID: &str = "GPU-";
const INSTANCE: &str = "MIG-";

/// In which order CUDA counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CudaOrder {
    /// The fastest first: what it does unless it is told another.
    Speed,
    /// By PCI address, as the driver does.
    Pci,
}

impl CudaOrder {
    /// The order that `CUDA_DEVICE_ORDER` asks for.
    pub(super) fn of(text: Option<&str>) -> Self {
        if text == Some("PCI_BUS_ID") { Self::Pci } else { Self::Speed }
    }
}

/// A GPU as far as its name counts here, in the driver's order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CudaGpu {
    pub(super) uuid: Arc<str>,
    pub(super) model: Option<Arc<str>>,
}

/// The GPUs that a list names.
pub(super) fn visible(text: &str, order: CudaOrder, gpus: &[CudaGpu]) -> VisibleGpus {
    let words = || text.split(',').map(str::trim);
    let first = words().next().unwrap_or_default();
    if first.starts_with(INSTANCE) {
        let names = unrepeated(words().map_while(|word| word.starts_with(INSTANCE).then_some(word)));
        return VisibleGpus::Named(
            names.into_iter().map(|name| VisibleName::Instance(name.into())).collect(),
        );
    }
    if first.starts_with(UUID) {
        let words = words().map_while(|word| word.starts_with(UUID).then(|| only(word, gpus)).flatten());
        return named(&unrepeated(words), gpus);
    }
    let numbers = unrepeated(words().map_while(number));
    let valid: Vec<usize> = numbers.into_iter().take_while(|number| *number < gpus.len()).collect();
    let is_alike = || gpus.windows(2).all(|pair| matches!(pair, [one, other] if one.model == other.model));
    let is_known = order == CudaOrder::Pci || valid.is_empty() || valid.len() == gpus.len() || is_alike();
    if is_known { named(&valid, gpus) } else { VisibleGpus::Unclear(BY_SPEED) }
}

fn named(places: &[usize], gpus: &[CudaGpu]) -> VisibleGpus {
    let name = |place: &usize| Some(VisibleName::Uuid(Arc::clone(&gpus.get(*place)?.uuid)));
    VisibleGpus::Named(places.iter().filter_map(name).collect())
}

/// The one GPU whose UUID begins like this.
fn only(beginning: &str, gpus: &[CudaGpu]) -> Option<usize> {
    let mut found = gpus.iter().enumerate().filter(|(_, gpu)| gpu.uuid.starts_with(beginning));
    let (place, _) = found.next()?;
    found.next().is_none().then_some(place)
}

/// The number that a word begins with: `1gpu` is 1. None below 0, and of a word that begins with none.
fn number(word: &str) -> Option<usize> {
    let digits = word.strip_prefix('+').unwrap_or(word);
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    digits.get(..end)?.parse().ok()
}

/// Nothing if one is there twice.
fn unrepeated<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut seen = Vec::new();
    for one in all {
        if seen.contains(&one) {
            return Vec::new();
        }
        seen.push(one);
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUIDS: [&str; 4] = ["GPU-aa11", "GPU-aa22", "GPU-bb33", "GPU-cc44"];

    fn gpus(models: [&str; 4]) -> Vec<CudaGpu> {
        let gpu = |(uuid, model): (&str, &str)| CudaGpu { uuid: uuid.into(), model: Some(model.into()) };
        UUIDS.into_iter().zip(models).map(gpu).collect()
    }

    fn uuids(places: &[usize]) -> VisibleGpus {
        VisibleGpus::Named(places.iter().map(|place| VisibleName::Uuid(UUIDS[*place].into())).collect())
    }

    fn instances(names: &[&str]) -> VisibleGpus {
        VisibleGpus::Named(names.iter().map(|name| VisibleName::Instance((*name).into())).collect())
    }

    #[test]
    fn a_list_is_read_as_cuda_reads_it() {
        let gpus = gpus(["H100"; 4]);
        for (text, wanted) in [
            ("0", uuids(&[0])),
            ("2,0", uuids(&[2, 0])),
            (" 1 , 3 ", uuids(&[1, 3])),
            ("+1", uuids(&[1])),
            ("1gpu,2ampere", uuids(&[1, 2])),
            // None is visible.
            ("", uuids(&[])),
            (" ", uuids(&[])),
            ("-1", uuids(&[])),
            ("none", uuids(&[])),
            ("NoDevFiles", uuids(&[])),
            // The list ends where it names nothing.
            ("1,-1,2", uuids(&[1])),
            ("0,4,1", uuids(&[0])),
            ("4", uuids(&[])),
            ("0,,1", uuids(&[0])),
            ("0,x,1", uuids(&[0])),
            ("0,GPU-bb33", uuids(&[0])),
            ("99999999999999999999", uuids(&[])),
            // One that is there twice makes it empty.
            ("0,1,0", uuids(&[])),
            ("GPU-bb33", uuids(&[2])),
            ("GPU-cc,GPU-aa1", uuids(&[3, 0])),
            ("GPU-aa", uuids(&[])),
            ("GPU-bb33,GPU-aa,GPU-cc44", uuids(&[2])),
            ("GPU-zz", uuids(&[])),
            ("GPU-bb33,1", uuids(&[2])),
            ("GPU-bb,GPU-bb33", uuids(&[])),
            ("MIG-7f", instances(&["MIG-7f"])),
            ("MIG-7f,MIG-8e", instances(&["MIG-7f", "MIG-8e"])),
            ("MIG-7f,0", instances(&["MIG-7f"])),
            ("MIG-7f,MIG-7f", instances(&[])),
            ("MIG-GPU-aa11/7/0", instances(&["MIG-GPU-aa11/7/0"])),
        ] {
            assert_eq!(visible(text, CudaOrder::Speed, &gpus), wanted, "{text:?}");
        }
    }

    #[test]
    fn numbers_name_gpus_of_several_models_only_in_the_order_of_their_addresses() {
        let gpus = gpus(["A100", "H100", "A100", "H100"]);
        let by = |order: Option<&str>, text: &str| visible(text, CudaOrder::of(order), &gpus);
        assert_eq!(by(None, "0"), VisibleGpus::Unclear(BY_SPEED));
        assert_eq!(by(Some("FASTEST_FIRST"), "0,1"), VisibleGpus::Unclear(BY_SPEED));
        assert_eq!(by(Some("PCI_BUS_ID"), "0,1"), uuids(&[0, 1]));
        assert_eq!(by(None, "GPU-bb33"), uuids(&[2]), "a name is one in any order");
        assert_eq!(by(None, "-1"), uuids(&[]), "and so is none");
        assert_eq!(by(None, "3,2,1,0"), uuids(&[3, 2, 1, 0]), "and so are all");
    }

    #[test]
    fn a_machine_without_gpus_shows_none() {
        assert_eq!(visible("0", CudaOrder::Speed, &[]), uuids(&[]));
    }
}
