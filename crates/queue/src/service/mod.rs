//! What other parts of the program hold of the queue.
//!
//! [`Producer`] and [`Consumer`] are what every transport offers; [`Queue`] offers them within one process.

mod clock;
mod ends;
mod in_process;
mod publishing;
mod queue;
mod shared;

pub use clock::QueueClock;
pub use ends::{Consumer, Producer};
pub use in_process::{InProcessConsumer, InProcessProducer};
pub use publishing::Publishing;
pub use queue::{DrainReport, Queue};
