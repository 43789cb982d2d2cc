//! How much of the fleet an answer tells of.

/// Whether parts of an answer are missing: what they would have shown is not known then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coverage {
    /// Nothing is missing.
    Whole,
    /// Some services, or some of their rows, could not be read.
    Partial,
}

impl Coverage {
    /// By what is missing, in words.
    pub fn of(missing: &[String]) -> Self {
        if missing.is_empty() { Self::Whole } else { Self::Partial }
    }
}
