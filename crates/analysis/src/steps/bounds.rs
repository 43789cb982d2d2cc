//! What makes steps of a signal steps.

/// Fewest steps that are found: a signal may be like itself by chance.
pub(super) const STEPS_MIN: usize = 8;
/// Distance of two begins, in periods, from which there was a pause between them, and no step.
pub(super) const PAUSE_FROM: f64 = 1.5;
/// A place that fits that much less well than the usual step is none.
pub(super) const FIT_SHARE: f64 = 0.6;
