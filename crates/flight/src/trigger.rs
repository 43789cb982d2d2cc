//! A trigger: what happened that an incident is kept for.

use serde::{Deserialize, Serialize};

/// The kind of what a gateway asks for.
pub(crate) const JOB: &str = "job";
/// The kind of what somebody dumps.
pub(crate) const DUMP: &str = "dump";

/// Something that happened on a node, or that somebody asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlightTrigger {
    /// `xid`, `ecc`, `ras`, `throttle`, `lost`, `stuck`, `reset`, `reads_slowed`, `finding`, `threshold`, `ended`, `signal`,
    /// `dump` or `job`.
    pub kind: String,
    /// Key of the GPU; none: it is about the node.
    pub gpu: Option<String>,
    /// The number of an `xid`; how many errors an `ecc` or `ras` adds.
    pub code: Option<i64>,
    /// What happened, in words.
    pub detail: String,
    /// The rule of a `threshold`, as it stands in the settings; the kind of a `finding`; the incident of a `job`.
    pub rule: Option<String>,
    /// When, nanoseconds UTC since 1970.
    pub at_ns: i64,
}

/// What makes two triggers the same one: it fires again and again as long as its cause lasts.
pub(crate) type Cause = (String, Option<String>, Option<i64>, Option<String>);

impl FlightTrigger {
    /// One that a GPU has no part in.
    pub(crate) fn of_node(kind: &str, detail: &str, at_ns: i64) -> Self {
        let (kind, detail) = (kind.to_owned(), detail.to_owned());
        Self { kind, gpu: None, code: None, detail, rule: None, at_ns }
    }

    /// Its cause. The number of an XID names another fault, that of an ECC error only counts.
    pub(crate) fn cause(&self) -> Cause {
        let code = self.code.filter(|_| self.kind == "xid");
        (self.kind.clone(), self.gpu.clone(), code, self.rule.clone())
    }

    /// Whether it is another node's: a gateway asked for what is here.
    pub fn is_of_job(&self) -> bool {
        self.kind == JOB
    }

    /// Whether somebody asked for it: then it is kept, however often.
    pub(crate) fn is_asked(&self) -> bool {
        matches!(self.kind.as_str(), "signal" | DUMP)
    }
}
