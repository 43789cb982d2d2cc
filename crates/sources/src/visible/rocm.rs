//! `ROCR_VISIBLE_DEVICES` and `HIP_VISIBLE_DEVICES` as ROCm reads them.
//!
//! The lower runtime (ROCr) counts the GPUs of the compute driver (KFD) in its order and shows those of its variable; HIP counts
//! what that leaves, and takes `CUDA_VISIBLE_DEVICES` where its own variable is unset or empty. Both lists end at the first word
//! that names nothing. An empty list shows none to ROCr; to HIP it is no list.

use super::name::{VisibleGpus, VisibleName};

/// Why the GPUs cannot be told.
const WITHOUT_KFD: &str = "this machine has no compute driver (KFD), whose order counts";
const DIVIDED: &str = "the names of the partitions of a divided GPU are not known";
const UUID: &str = "GPU-";

/// A GPU, or a partition of one, of the compute driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RocmGpu {
    /// Its unique id, 16 hexadecimal digits; none: it has none.
    pub(super) unique_id: Option<String>,
    /// PCI address of the GPU.
    pub(super) pci: String,
    /// Number of the partition; none: the GPU is not divided.
    pub(super) partition: Option<u32>,
}

/// The lists of GPUs in ROCm's variables.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RocmLists<'a> {
    pub(super) rocr: Option<&'a str>,
    pub(super) hip: Option<&'a str>,
    pub(super) cuda: Option<&'a str>,
}

impl<'a> RocmLists<'a> {
    /// Whether they leave all GPUs.
    pub(super) fn are_unset(self) -> bool {
        self.rocr.is_none() && self.of_hip().is_none()
    }

    /// What HIP takes.
    fn of_hip(self) -> Option<&'a str> {
        let given = |text: Option<&'a str>| text.filter(|text| !text.is_empty());
        given(self.hip).or_else(|| given(self.cuda))
    }
}

/// The GPUs that the lists show, of all in the order of the compute driver.
pub(super) fn visible(lists: RocmLists<'_>, gpus: &[RocmGpu]) -> VisibleGpus {
    if lists.are_unset() {
        return VisibleGpus::All;
    }
    let hip = lists.of_hip();
    if gpus.is_empty() {
        return VisibleGpus::Unclear(WITHOUT_KFD);
    }
    let has_names = [lists.rocr, hip].into_iter().flatten().any(|text| text.to_uppercase().contains(UUID));
    if has_names && gpus.iter().any(|gpu| gpu.partition.is_some()) {
        return VisibleGpus::Unclear(DIVIDED);
    }
    let mut shown: Vec<&RocmGpu> = gpus.iter().collect();
    if let Some(text) = lists.rocr {
        shown = listed(text, &shown, rocr_number);
    }
    if let Some(text) = hip {
        shown = listed(text, &shown, hip_number);
    }
    let name = |gpu: &RocmGpu| VisibleName::Place { pci: gpu.pci.as_str().into(), partition: gpu.partition };
    VisibleGpus::Named(shown.into_iter().map(name).collect())
}

/// Those of a list, up to a word that names nothing, or one that was named before.
fn listed<'a>(text: &str, gpus: &[&'a RocmGpu], number: fn(&str) -> Option<usize>) -> Vec<&'a RocmGpu> {
    let mut places: Vec<usize> = Vec::new();
    for word in text.split(',').map(|word| word.trim().to_uppercase()) {
        let place = if word.starts_with('G') { only(&word, gpus) } else { number(&word) };
        match place.filter(|place| *place < gpus.len() && !places.contains(place)) {
            Some(place) => places.push(place),
            None => break,
        }
    }
    places.into_iter().filter_map(|place| gpus.get(place).copied()).collect()
}

/// The one GPU whose name begins like this.
fn only(beginning: &str, gpus: &[&RocmGpu]) -> Option<usize> {
    let digits = beginning.strip_prefix(UUID).filter(|digits| !digits.is_empty())?;
    let is_it =
        |gpu: &RocmGpu| gpu.unique_id.as_ref().is_some_and(|id| id.to_uppercase().starts_with(digits));
    let mut found = gpus.iter().enumerate().filter(|(_, gpu)| is_it(gpu));
    let (place, _) = found.next()?;
    found.next().is_none().then_some(place)
}

/// A whole word in decimal, hexadecimal (`0x1`) or octal (`01`) digits.
fn rocr_number(word: &str) -> Option<usize> {
    let word = word.strip_prefix('+').unwrap_or(word);
    let of = |digits: &str, radix| {
        let is_number = digits.bytes().all(|byte| byte.is_ascii_alphanumeric());
        usize::from_str_radix(digits, radix).ok().filter(|_| is_number)
    };
    match word.strip_prefix("0X") {
        Some(digits) => of(digits, 16),
        None if word.len() > 1 && word.starts_with('0') => of(word, 8),
        None => of(word, 10),
    }
}

/// The number that a word begins with; 0 only of `0` itself.
fn hip_number(word: &str) -> Option<usize> {
    let digits = word.strip_prefix('+').unwrap_or(word);
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let number: usize = digits.get(..end)?.parse().ok()?;
    (number > 0 || word == "0").then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpus() -> Vec<RocmGpu> {
        let gpu = |(at, id): (u32, &str)| RocmGpu {
            unique_id: Some(id.to_owned()).filter(|id| !id.is_empty()),
            pci: format!("0000:0{at}:00.0"),
            partition: None,
        };
        let ids = ["b75e000000000001", "b75e000000000002", "c0de000000000003", ""];
        (0..).zip(ids).map(gpu).collect()
    }

    fn places(places: &[u32]) -> VisibleGpus {
        let name = |at: &u32| VisibleName::Place { pci: format!("0000:0{at}:00.0").into(), partition: None };
        VisibleGpus::Named(places.iter().map(name).collect())
    }

    #[test]
    fn the_list_of_rocr_ends_where_it_names_nothing() {
        for (text, wanted) in [
            ("0", places(&[0])),
            ("2,1", places(&[2, 1])),
            (" 3 ", places(&[3])),
            ("0x2,01", places(&[2, 1])),
            ("", places(&[])),
            ("-1", places(&[])),
            ("0,9,1", places(&[0])),
            ("0,1x,2", places(&[0])),
            ("1,1,2", places(&[1])),
            ("0,,1", places(&[0])),
            ("GPU-c0de000000000003", places(&[2])),
            ("gpu-C0DE,0", places(&[2, 0])),
            ("0,GPU-b75e", places(&[0])),
            ("GPU-", places(&[])),
        ] {
            let lists = RocmLists { rocr: Some(text), ..RocmLists::default() };
            assert_eq!(visible(lists, &gpus()), wanted, "{text:?}");
        }
    }

    #[test]
    fn hip_counts_what_rocr_leaves_and_takes_the_variable_of_cuda_for_its_own() {
        let shown = |rocr, hip, cuda| visible(RocmLists { rocr, hip, cuda }, &gpus());
        assert_eq!(shown(None, None, None), VisibleGpus::All);
        assert_eq!(shown(None, Some("2"), None), places(&[2]));
        assert_eq!(shown(Some("2,3"), Some("1"), None), places(&[3]));
        assert_eq!(shown(Some("2,3"), Some("2"), None), places(&[]));
        assert_eq!(shown(None, None, Some("1,2")), places(&[1, 2]));
        assert_eq!(shown(None, Some("3"), Some("1,2")), places(&[3]));
        assert_eq!(shown(None, Some(""), Some("1")), places(&[1]), "an empty one of HIP is none");
        assert_eq!(shown(None, Some(""), Some("")), VisibleGpus::All);
        assert_eq!(shown(None, Some("-1"), None), places(&[]));
        assert_eq!(shown(None, Some("x,1"), None), places(&[]));
        assert_eq!(shown(None, Some("1x,0"), None), places(&[1, 0]));
        assert_eq!(shown(None, Some("GPU-c0de"), None), places(&[2]));
    }

    #[test]
    fn partitions_are_counted_and_not_named() {
        let part = |at| RocmGpu { unique_id: None, pci: "0000:05:00.0".to_owned(), partition: Some(at) };
        let parts: Vec<RocmGpu> = (0..8).map(part).collect();
        let shown = |hip| visible(RocmLists { hip: Some(hip), ..RocmLists::default() }, &parts);
        let wanted = VisibleName::Place { pci: "0000:05:00.0".into(), partition: Some(6) };
        assert_eq!(shown("6"), VisibleGpus::Named(vec![wanted]));
        assert_eq!(shown("GPU-b75e"), VisibleGpus::Unclear(DIVIDED));
        let none = RocmLists { rocr: Some("0"), ..RocmLists::default() };
        assert_eq!(visible(none, &[]), VisibleGpus::Unclear(WITHOUT_KFD));
    }
}
