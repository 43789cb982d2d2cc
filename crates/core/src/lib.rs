//! The nouns of gpuvitals: metric, row, identity, absence.
//!
//! This crate knows no file, socket or runtime, and so cannot fail for reasons of the machine. [`clock`] is
//! the only module of the workspace that reads the time.

pub mod absence;
pub mod backoff;
pub mod batch;
pub mod bucket;
pub mod catalogue;
mod causes;
pub mod clock;
pub mod clusters;
pub mod energy;
pub mod feed;
pub mod figures;
pub mod foreign;
pub mod health;
pub mod history;
pub mod identity;
pub mod integral;
pub mod merge;
pub mod message;
pub mod number;
pub mod ports;
pub mod quantity;
pub mod sketch;
pub mod throttle;
pub mod time;
pub mod usage;
pub mod wire;

pub use absence::{Absence, AbsenceReason};
pub use batch::{Batch, BatchBuilder, Origin, RowId, ValueError};
pub use catalogue::{Metric, MetricId, Table};
pub use causes::causes;
pub use health::{Health, Status};
pub use identity::{Identity, IdentityColumn, IdentityError};
