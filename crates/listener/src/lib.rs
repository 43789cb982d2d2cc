//! The port of a service, alike for all of them: one port for HTTP/1.1, HTTP/2 and gRPC, with or without TLS.
//!
//! A service hands over an [`axum::Router`] with its handlers and [`Terms`]; [`serve()`] does the rest:
//!
//! - **Connections** are bounded. For one more than there may be, the longest idle one is closed, so that connections
//!   that are held and ask nothing never keep others out ([`ListenerLimits`]).
//! - **Access**: TLS, certificates of clients, and named tokens with scopes, whose files are read anew when they change
//!   ([`Access`], [`Tokens`]). Probes never need any of them, `/metrics` only if that is set. A client sends so many requests a
//!   second at most. Pages of other sites read and change only what their [`WebOrigin`] is listed for, and a port on loopback without
//!   tokens answers only requests to this machine's own names.
//! - **Requests** have an id, a span in the trace that their headers name, a line in the log, time-outs and bounds.
//!   Those that fail are answered with `{error, message, code}` ([`refuse`]), or with a status of gRPC.
//! - **Health, readiness and figures** have the same paths everywhere ([`vitals`]).
//! - **Bodies** are received within a budget that all share ([`body`], [`Partial`]).
//!
//! [`client`] is the other end: how a service is reached, and [`relay`] passes requests on to one. [`trace`] is how a trace crosses the network.

mod access;
mod answer;
mod authority;
pub mod body;
mod certificate;
pub mod client;
mod connection;
mod host;
mod limits;
mod meter;
mod observe;
mod origin;
pub mod parameter;
mod partial;
pub mod relay;
pub mod secret;
mod serve;
mod service_url;
mod settings;
mod throttle;
mod tls;
mod tokens;
pub mod trace;
mod upload;
pub mod vitals;

pub use access::{Access, AccessError};
pub use answer::{echo, refuse, refuse_with};
pub use authority::{Authority, AuthorityError};
pub use certificate::Certificate;
pub use host::HostName;
pub use limits::{ListenerLimits, Terms};
pub use meter::Meter;
pub use origin::WebOrigin;
pub use partial::Partial;
pub use serve::{AcceptError, bind, serve};
pub use service_url::ServiceUrl;
pub use settings::{Listener, PortKind};
pub use tls::TlsError;
pub use tokens::{Token, TokenError, TokenScope, Tokens};
pub use vitals::{Figures, Vitals};
