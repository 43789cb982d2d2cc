//! The nouns of gpuvitals: what a metric is, what a row is, whose row it is, why a value is missing.
//!
//! This crate knows no file, socket, clock or runtime, and so cannot fail for reasons of the machine.

pub mod absence;
pub mod batch;
pub mod catalogue;
mod causes;
pub mod figures;
pub mod foreign;
pub mod health;
pub mod identity;
pub mod message;
pub mod ports;
pub mod quantity;
pub mod time;
pub mod wire;

pub use absence::{Absence, AbsenceReason};
pub use batch::{Batch, BatchBuilder, Origin, RowId, ValueError};
pub use catalogue::{Metric, MetricId, Table};
pub use causes::causes;
pub use health::{Health, Status};
pub use identity::{Identity, IdentityColumn, IdentityError};
