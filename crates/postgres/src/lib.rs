//! PostgreSQL 13 or later as a place that keeps rows and answers for them.
//!
//! ```text
//! gpuvitals_schema      the version of this layout
//! gpuvitals_subjects    id, name: the key of a GPU (`uuid` or `uuid:partition`), or the name of a node
//! gpuvitals_identities  id and the identity columns: one row for each distinct set of them
//! gpu_events, …         subject_id, timestamp_ns, identity_id, the table's own columns and its metrics, extras
//! gpu_events_20260101   its rows of that day, UTC
//! ```
//!
//! The primary key of a table is its subject, the time and its other key columns ([`Table::key`](gpuvitals_core::Table::key)).
//! `extras` is a JSON object with the columns that the catalogue does not know.
//!
//! # Writing
//! What is accepted together is one transaction. Of each table its rows are put together by key and copied (binary) into it. If a
//! row is there already they are copied into a temporary table instead, and merged from there: null never overwrites, the later
//! arrival wins. They are acknowledged after the commit.
//! Partitions are made a day ahead; rows of other days make theirs, unless they are too old to be kept: these are acknowledged,
//! counted and left out.
//!
//! # Reading
//! The latest state of each GPU is in memory: read some GPUs at a time when it is asked for first, then kept up to date by what this
//! process writes. Everything else is asked from the server. Its rows come in pieces; if the answer is dropped, its statement is
//! cancelled. Questions leave some of the connections to writing.

mod buckets;
mod condition;
mod encode;
mod error;
mod link;
mod names;
mod partition;
mod postgres;
mod read;
mod schema;
mod settings;
mod tls;
mod write;

pub use error::PostgresError;
pub use postgres::Postgres;
pub use settings::{Database, SslMode};
