//! A GPU of a simulated fleet may be special.

/// Cases that exercise a dashboard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Special {
    /// Member of a training job of three whose application clocks were left at 78 %: lower clock (reason 0x2), busy
    /// for all of every step; the others wait for it at full utilisation and low power.
    Straggler,
    /// Held by a job and full of a model, but never used: utilisation 0 at full clock, as happens in fleets.
    IdleAllocated,
    /// Cannot dissipate its heat: reaches the slowdown temperature under load, clocks fall, thermal reason
    /// and time.
    Throttling,
    /// Gone for good five minutes after the first tick.
    Vanishing,
    /// Corrected memory errors at a growing rate, XID 63, and a memory row that waits for a reset.
    FailingMemory,
}

impl Special {
    /// The case at a place of the first host. The other members of the straggler's job are at 0 and 2.
    pub(super) fn of_place(index: usize) -> Option<Self> {
        match index {
            1 => Some(Self::Straggler),
            3 => Some(Self::IdleAllocated),
            4 => Some(Self::Throttling),
            5 => Some(Self::Vanishing),
            6 => Some(Self::FailingMemory),
            _ => None,
        }
    }
}
