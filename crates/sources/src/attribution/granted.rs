//! The part of a GPU that HAMi has given a container, by the environment of its processes: its device plugin writes it there, and the kubelet
//! does not tell of it.

use super::slurm::variable;

/// Percent of the compute of each of its GPUs that a container may use.
const LIMIT: &[u8] = b"CUDA_DEVICE_SM_LIMIT=";

/// The part in the environment of a process, `NAME=value` each ended by a zero byte: above 0, and 1 for all of it. None: its compute is not
/// limited, which HAMi writes as 0 or not at all.
pub(super) fn granted(environment: &[u8]) -> Option<f64> {
    let percent: u32 = variable(environment, LIMIT)?.trim().parse().ok()?;
    (1..=100).contains(&percent).then(|| f64::from(percent) / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_a_part_and_none_is_none() {
        for (environment, part) in [
            (&b"PATH=/bin\0CUDA_DEVICE_SM_LIMIT=30\0CUDA_DEVICE_MEMORY_LIMIT_0=3000m\0"[..], Some(0.3)),
            (b"CUDA_DEVICE_SM_LIMIT=100", Some(1.0)),
            (b"CUDA_DEVICE_SM_LIMIT=0\0", None),
            (b"CUDA_DEVICE_SM_LIMIT=250\0", None),
            (b"CUDA_DEVICE_SM_LIMIT=-5\0", None),
            (b"CUDA_DEVICE_SM_LIMIT=\0", None),
            (b"CUDA_DEVICE_MEMORY_LIMIT_0=3000m\0", None),
            (b"", None),
        ] {
            assert_eq!(granted(environment), part, "{}", String::from_utf8_lossy(environment));
        }
    }
}
