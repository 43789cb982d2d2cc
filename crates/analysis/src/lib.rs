//! Analysis over batches: windows, integrals, summaries, steps, conditions, events, findings. Pure: time comes with the rows.

mod cells;
pub mod condition;
pub mod course;
pub mod coverage;
pub mod details;
pub mod events;
pub mod explain;
pub mod findings;
pub mod freshness;
pub mod health_event;
pub mod hints;
pub mod judgement;
pub mod outgoing;
pub mod robust;
pub mod row_reads;
pub mod slow_reads;
pub mod steps;
pub mod summary;
pub mod window;
