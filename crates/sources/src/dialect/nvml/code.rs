//! The meaning of NVML's return codes for a reading.

use std::fmt;

use gpuvitals_core::AbsenceReason;

use crate::probe::ProbeError;

/// Result of a call.
pub(crate) type Answer<T> = Result<T, Code>;

/// A return code that is not success, as the library gave it; newer libraries have codes that are not named here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code(pub(crate) u32);

/// The consequence of a code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Meaning {
    /// This call will never answer on this device: not repeated before the device is reopened.
    Never(AbsenceReason),
    /// No value this time.
    NotNow(AbsenceReason),
    /// The handle may be stale: the device is looked up again, then the call gets one more chance.
    Stale,
    /// No value, for a cause the driver does not know; several in a row mean a sick device.
    Unknown,
    /// The whole device gives nothing.
    Device(ProbeError),
}

impl Code {
    pub(crate) const UNINITIALIZED: Self = Self(1);
    pub(crate) const INVALID_ARGUMENT: Self = Self(2);
    /// The part cannot do it.
    pub const NOT_SUPPORTED: Self = Self(3);
    /// The right is missing.
    pub const NO_PERMISSION: Self = Self(4);
    pub(crate) const NOT_FOUND: Self = Self(6);
    pub(crate) const INSUFFICIENT_SIZE: Self = Self(7);
    pub(crate) const DRIVER_NOT_LOADED: Self = Self(9);
    pub(crate) const TIMEOUT: Self = Self(10);
    /// The driver is too old for this call.
    pub const FUNCTION_NOT_FOUND: Self = Self(13);
    pub(crate) const GPU_IS_LOST: Self = Self(15);
    pub(crate) const RESET_REQUIRED: Self = Self(16);
    pub(crate) const OPERATING_SYSTEM: Self = Self(17);
    pub(crate) const LIB_RM_VERSION_MISMATCH: Self = Self(18);
    pub(crate) const ARGUMENT_VERSION_MISMATCH: Self = Self(25);
    pub(crate) const UNKNOWN: Self = Self(999);

    /// Success as nothing, all else as itself.
    pub(super) fn check(code: u32) -> Answer<()> {
        if code == 0 { Ok(()) } else { Err(Self(code)) }
    }

    /// Whether an older call may know a value that a newer one does not.
    pub(super) fn asks_for_older_call(self) -> bool {
        matches!(self, Self::FUNCTION_NOT_FOUND | Self::ARGUMENT_VERSION_MISMATCH)
    }

    pub(super) fn meaning(self) -> Meaning {
        match self {
            // not supported, library or function not found, no ECC on this vGPU, clocks that do not exist, struct or call of
            // another age
            Self(3 | 12 | 13 | 22 | 24 | 25 | 26) => Meaning::Never(AbsenceReason::NotSupported),
            Self::NO_PERMISSION => Meaning::Never(AbsenceReason::Denied),
            Self::INVALID_ARGUMENT => Meaning::Stale,
            Self::TIMEOUT => Meaning::NotNow(AbsenceReason::TimedOut),
            Self::UNKNOWN | Self(20) => Meaning::Unknown,
            Self(9 | 15 | 16 | 28) => Meaning::Device(ProbeError::Gone(self.to_string())),
            Self::OPERATING_SYSTEM => Meaning::Device(ProbeError::Denied(self.to_string())),
            Self(1 | 18) => Meaning::Device(ProbeError::Failed(self.to_string())),
            _ => Meaning::NotNow(AbsenceReason::Invalid),
        }
    }

    fn text(self) -> &'static str {
        match self.0 {
            1 => "NVML is not initialised",
            2 => "NVML refused the handle",
            3 => "not supported",
            4 => "no permission",
            6 => "not found",
            9 => "the NVIDIA driver is not loaded",
            10 => "the driver did not answer in time",
            13 => "the driver is too old for this call",
            15 => "the GPU is lost: it has fallen off the bus or its driver gave it up",
            16 => "the GPU needs a reset",
            17 => "the operating system blocks the device files (in a container: restart the container)",
            18 => {
                "NVML and the kernel module are of different driver versions: the driver was changed under this process; \
                 restart it"
            }
            28 => "no such GPU any more",
            999 => "the driver says: unknown error",
            _ => "NVML error",
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (NVML {})", self.text(), self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_mean_what_the_driver_means_by_them() {
        let device = |code: u32| match Code(code).meaning() {
            Meaning::Device(error) => Some(error.reason()),
            _ => None,
        };
        for code in [3, 12, 13, 25, 26] {
            assert_eq!(Code(code).meaning(), Meaning::Never(AbsenceReason::NotSupported), "{code}");
        }
        assert_eq!(Code(4).meaning(), Meaning::Never(AbsenceReason::Denied));
        assert_eq!(Code(2).meaning(), Meaning::Stale);
        assert_eq!(Code(999).meaning(), Meaning::Unknown);
        for code in [6, 7, 8, 11, 14, 19, 21, 23, 27, 29, 77] {
            assert_eq!(Code(code).meaning(), Meaning::NotNow(AbsenceReason::Invalid), "{code}");
        }
        for code in [9, 15, 16, 28] {
            assert_eq!(device(code), Some(AbsenceReason::Gone), "{code}");
        }
        assert_eq!(device(17), Some(AbsenceReason::Denied));
        assert_eq!(device(18), Some(AbsenceReason::Invalid));
    }
}
