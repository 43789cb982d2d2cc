//! The gateway: REST, live stream, OpenAPI document and the embedded web page.
//!
//! A request passes `serve` (limits, statistics, log), a handler in `route` (parse, ask, render) and, unless
//! its answer is ready in the `cache`, an `Ask` that reads the store on a thread for blocking work. `dto`
//! holds the answers, and the OpenAPI document is generated from it.
//!
//! The caller owns the socket and the shutdown:
//!
//! ```no_run
//! # async fn example(store: gpuvitals_store::Store, status: std::sync::Arc<dyn gpuvitals_api::StatusView>)
//! # -> Result<(), Box<dyn std::error::Error>> {
//! use gpuvitals_api::{Api, ApiConfig, serve};
//!
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:8081").await?;
//! let shutdown = tokio_util::sync::CancellationToken::new();
//! serve(listener, Api::new(ApiConfig::default(), store, status), shutdown).await?;
//! # Ok(())
//! # }
//! ```

mod api;
mod ask;
mod assets;
mod cache;
pub mod collector;
mod compress;
mod condition;
mod config;
pub mod document;
mod dto;
mod error;
pub mod figures;
mod meter;
mod parameter;
mod probe;
mod route;
mod serve;

pub use api::{Api, StatusView};
pub use assets::Page;
pub use config::{ApiConfig, Limits};
pub use serve::{ServeError, serve};
