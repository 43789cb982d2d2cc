//! An allocation may be that of no GPU, for a cause.

/// Why an allocation is that of no GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unresolved {
    /// The device's id has no form that is known.
    UnknownId,
    /// A claim (DRA) names a device that only the claim's driver can tell.
    Claim,
    /// The id names a GPU, and none of this node is called so.
    NoSuchGpu,
}

impl Unresolved {
    /// Every cause, in the order of the enum.
    pub const ALL: [Self; 3] = [Self::UnknownId, Self::Claim, Self::NoSuchGpu];

    /// Spelling in the label `cause`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::UnknownId => "unknown_id",
            Self::Claim => "claim",
            Self::NoSuchGpu => "no_such_gpu",
        }
    }
}
