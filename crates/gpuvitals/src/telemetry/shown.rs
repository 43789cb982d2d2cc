//! The exporter shows families in parts.

use std::sync::{Arc, RwLock};

use gpuvitals_core::figures::Family;

/// Instrumentation scope of the spans and metrics.
pub(super) const SCOPE: &str = "gpuvitals";
/// Families, in parts of any size.
pub(crate) type Parts = Box<dyn Iterator<Item = Vec<Family>>>;
/// What reads the families that go out as metrics; none yet at the start.
pub(super) type Shown = Arc<RwLock<Option<Arc<dyn Fn() -> Parts + Send + Sync>>>>;
