//! The driver's answers: small structs of native integers, by offset. An older kernel writes fewer fields, so
//! an answer may be shorter.

/// Bytes of `struct drm_amdgpu_info_device` that are of use; it has grown to some 400.
pub(super) const DEV_INFO_LEN: usize = 48;
/// Bytes of `struct drm_amdgpu_memory_info`.
pub(super) const MEMORY_LEN: usize = 96;

/// Fixed properties of a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DevInfo {
    /// Highest clock of the engine, kHz; 0 if the driver does not know it.
    pub engine_clock_max_khz: u64,
    /// Highest clock of the memory, kHz; 0 if the driver does not know it.
    pub memory_clock_max_khz: u64,
}

/// `AMDGPU_INFO_DEV_INFO`; none if the answer is too short.
pub fn parse_dev_info(answer: &[u8]) -> Option<DevInfo> {
    Some(DevInfo { engine_clock_max_khz: u64_at(answer, 32)?, memory_clock_max_khz: u64_at(answer, 40)? })
}

/// A kind of memory, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heap {
    /// Size of the memory.
    pub total: u64,
    /// In use by anybody.
    pub used: u64,
}

/// The kinds of memory a GPU uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GpuHeaps {
    /// The memory on the board.
    pub vram: Heap,
    /// The part of it that the host can address.
    pub visible: Heap,
    /// Host memory that the GPU may map.
    pub gtt: Heap,
}

/// `AMDGPU_INFO_MEMORY`: three heaps of total, usable, used and largest allocation; none if the answer is too
/// short.
pub fn parse_memory(answer: &[u8]) -> Option<GpuHeaps> {
    Some(GpuHeaps { vram: heap_at(answer, 0)?, visible: heap_at(answer, 32)?, gtt: heap_at(answer, 64)? })
}

fn heap_at(answer: &[u8], at: usize) -> Option<Heap> {
    Some(Heap { total: u64_at(answer, at)?, used: u64_at(answer, at + 16)? })
}

fn u64_at(answer: &[u8], at: usize) -> Option<u64> {
    answer.get(at..at + 8)?.try_into().ok().map(u64::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `libdrm-info` on a Radeon RX 560 (Polaris 11), its fields in the order of the struct.
    fn polaris() -> Vec<u8> {
        let words: [u32; 8] = [26_623, 1, 91, 207, 130, 2, 1, 25_000];
        let clocks: [u64; 2] = [1_196_000, 1_750_000];
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        bytes.extend(clocks.iter().flat_map(|clock| clock.to_ne_bytes()));
        bytes
    }

    #[test]
    fn clocks_lie_where_a_real_card_has_them() {
        let expected = DevInfo { engine_clock_max_khz: 1_196_000, memory_clock_max_khz: 1_750_000 };
        assert_eq!(polaris().len(), DEV_INFO_LEN);
        assert_eq!(parse_dev_info(&polaris()), Some(expected));
    }

    #[test]
    fn heaps_lie_one_behind_the_other() {
        let numbers = 1u64..=12;
        let bytes: Vec<u8> = numbers.flat_map(u64::to_ne_bytes).collect();
        assert_eq!(bytes.len(), MEMORY_LEN);
        let heap = |total, used| Heap { total, used };
        let expected = GpuHeaps { vram: heap(1, 3), visible: heap(5, 7), gtt: heap(9, 11) };
        assert_eq!(parse_memory(&bytes), Some(expected));
    }

    #[test]
    fn a_short_answer_is_none_at_every_length() {
        for len in 0..DEV_INFO_LEN {
            assert!(parse_dev_info(&polaris()[..len]).is_none(), "{len}");
        }
        for len in 0..MEMORY_LEN - 8 {
            assert!(parse_memory(&vec![0; len]).is_none(), "{len}");
        }
    }
}
