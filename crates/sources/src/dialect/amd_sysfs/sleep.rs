//! Whether runtime power management has put the GPU to sleep. Reading almost anything else of a sleeping GPU wakes it on
//! kernels up to 6.12 or so, and keeps it awake for seconds.

use std::path::Path;

use crate::machine::PinnedFile;
use crate::probe::Due;

/// Watches `power/control` and `power/runtime_status`, which wake nothing.
#[derive(Debug)]
pub(in crate::dialect) struct Sleep {
    control: Option<PinnedFile>,
    status: Option<PinnedFile>,
    is_managed: bool,
    is_asleep: bool,
}

impl Sleep {
    /// Of the GPU of a device folder.
    pub(in crate::dialect) fn open(device: &Path) -> Self {
        let file = |name: &str| PinnedFile::open(&device.join("power").join(name)).ok();
        let mut sleep = Self {
            control: file("control"),
            status: file("runtime_status"),
            is_managed: false,
            is_asleep: false,
        };
        sleep.is_managed = sleep.read_managed();
        sleep
    }

    /// Whether it sleeps, or is on its way there or back. One that slept is asked once a second at most.
    pub(in crate::dialect) fn is_asleep(&mut self, due: Due) -> bool {
        if due.rare {
            self.is_managed = self.read_managed();
        }
        if !self.is_managed {
            self.is_asleep = false;
        } else if !self.is_asleep || due.slow {
            self.is_asleep = self
                .status
                .as_mut()
                .and_then(|file| file.read_text().ok())
                .is_some_and(|status| matches!(status, "suspended" | "suspending" | "resuming"));
        }
        self.is_asleep
    }

    fn read_managed(&mut self) -> bool {
        self.control.as_mut().and_then(|file| file.read_text().ok()).is_some_and(|control| control == "auto")
    }
}
