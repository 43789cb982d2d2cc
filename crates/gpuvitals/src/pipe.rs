//! From a source to a queue: one thread polls the source and gives its batches to workers in turn; each
//! worker packs them as frames and publishes them until the queue has taken them.
//!
//! In memory are the batch being read, and for each worker one waiting batch and the frames in flight.
//! Nothing that was read is lost unless the pipe must give up; then it is counted.

mod progress;
mod side;
mod sources;
mod start;
mod terms;
mod worker;

pub(crate) use progress::{Counts, Progress, SourceCounts};
pub(crate) use side::{FINDING_ROWS, SidePipe, worst};
pub(crate) use sources::{Sampled, open_replay};
pub(crate) use start::start;
pub(crate) use terms::{Format, PipeError, Rate, Terms, Times, is_other_speed};
