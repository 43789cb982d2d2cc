//! The gateway: REST, live stream, OpenAPI document and the embedded web page.
//!
//! A request passes the listener (access, limits, statistics, log), a handler in `route` (parse, ask, render) and, unless its answer
//! is ready in the `cache`, an `Ask` that asks the history and renders the answer on a thread for blocking work. A question
//! whose client has gone is dropped. `dto` holds the answers; the OpenAPI document is generated from it.
//!
//! The caller owns the socket and the shutdown:
//!
//! ```no_run
//! # use std::sync::Arc;
//! # use gpuvitals_core::history::History;
//! # async fn example(history: Arc<dyn History>, status: Arc<dyn gpuvitals_api::StatusView>)
//! # -> Result<(), Box<dyn std::error::Error>> {
//! use gpuvitals_api::{Api, ApiConfig, Beside, serve};
//!
//! let socket = gpuvitals_listener::bind("127.0.0.1:8081".parse()?)?;
//! let shutdown = tokio_util::sync::CancellationToken::new();
//! let api = Api::new(ApiConfig::default(), history, status);
//! serve(socket, api, Beside::reading(axum::Router::new()), gpuvitals_listener::Access::open(), shutdown).await?;
//! # Ok(())
//! # }
//! ```

mod accept;
mod answers;
mod api;
mod ask;
mod asked;
mod assets;
mod cache;
pub mod collector;
mod columns;
mod compress;
mod condition;
mod config;
mod cursor;
mod dto;
mod error;
mod format;
mod found_jobs;
mod hidden;
mod job_members;
mod jobs_kept;
mod meter;
mod parameter;
mod past;
mod peer;
mod rack;
mod recent;
mod route;
mod selector;
mod serve;
mod settings;
mod tag;
mod watch;

pub use api::{Api, StatusView};
pub use assets::Page;
pub use config::{ApiConfig, JobPrices, Limits};
pub use peer::Peer;
pub use rack::RackPattern;
pub use route::document;
pub use serve::{Beside, own_scope, serve};
pub use settings::{ApiSettings, JobsSettings};
