//! A search leaves findings, and each has a verdict.

/// How good a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// As it should be.
    Good,
    /// Works; worth knowing.
    Note,
    /// Part of the values will be missing.
    Partial,
    /// Keeps this from being sampled.
    Broken,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How good or bad it is.
    pub verdict: Verdict,
    /// Subject: `amd-sysfs card0 (0000:0c:00.0)`, `nvml`.
    pub subject: String,
    /// The finding: driver version, what is missing, on which file or call.
    pub text: String,
    /// The remedy: the right, version or package.
    pub remedy: Option<String>,
    /// Whether it is a right that is missing.
    pub is_denied: bool,
}

impl Finding {
    /// A finding that asks for nothing.
    pub fn new(verdict: Verdict, subject: impl Into<String>, text: impl Into<String>) -> Self {
        Self { verdict, subject: subject.into(), text: text.into(), remedy: None, is_denied: false }
    }

    /// A finding about a right that is missing.
    pub fn denied(mut self) -> Self {
        self.is_denied = true;
        self
    }

    /// With a remedy.
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }
}
