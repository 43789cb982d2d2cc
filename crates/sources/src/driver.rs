//! A driver is a way to reach devices: its spelling, what it is, and the vendor whose devices it reads.

use std::fmt;

use serde::Deserialize;

macro_rules! drivers {
    ($(#[doc = $about:literal] $driver:ident, $name:literal, $vendor:literal;)+) => {
        /// How a device is reached. Its spelling is the `source` column of every row and the value of `--driver`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
        pub enum Driver { $(#[doc = $about] #[serde(rename = $name)] $driver,)+ }

        impl Driver {
            /// Every way, cheapest of a vendor first.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$driver,)+];

            /// In words, for a list of choices.
            pub fn about(self) -> &'static str {
                match self { $(Self::$driver => $about.trim(),)+ }
            }

            /// Its name in options, labels and column `source`.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$driver => $name,)+ }
            }

            /// The vendor whose devices it reads; `host` for the host. Ways of one vendor stand in for each other.
            pub fn vendor(self) -> &'static str {
                match self { $(Self::$driver => $vendor,)+ }
            }
        }
    };
}

// One line a driver, vendor by vendor, the cheapest first; the registry has the search that belongs to each.
drivers! {
    /// AMD by files of sysfs
    AmdSysfs, "amd-sysfs", "amd";
    /// AMD by ioctls on the render node
    AmdIoctl, "amd-ioctl", "amd";
    /// AMD by the rocm-smi command
    RocmSmi, "rocm-smi", "amd";
    /// NVIDIA by NVML, loaded at run time
    Nvml, "nvml", "nvidia";
    /// NVIDIA by the nvidia-smi command
    NvidiaSmi, "nvidia-smi", "nvidia";
    /// The host by files of procfs
    Procfs, "procfs", "host";
    /// Simulated GPUs, only if this is asked for
    Simulated, "simulated", "simulated";
}

impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
