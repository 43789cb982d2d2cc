//! An agent that cannot start says why.

use std::io;

use gpuvitals_listener::client::{DialError, GetError};
use gpuvitals_queue::link::{ConnectError, CredentialError};
use gpuvitals_sources::sampler::SamplerError;

use crate::hooks::SocketError;
use crate::spool::SpoolError;

/// Why an agent cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentError {
    /// The sampler refuses the rates, or has no thread.
    #[error("cannot sample")]
    Sampler(#[from] SamplerError),
    /// A credential for the queue.
    #[error(transparent)]
    Credential(#[from] CredentialError),
    /// The client of the queue.
    #[error("message_queue")]
    Connect(#[from] ConnectError),
    /// The spool cannot be opened.
    #[error("agent.spool_dir")]
    Spool(#[from] SpoolError),
    /// Hooks cannot be listened for.
    #[error("agent.socket")]
    Socket(#[from] SocketError),
    /// The system gives no thread.
    #[error("cannot start the thread {name}")]
    Thread {
        /// Name that the thread would have.
        name: &'static str,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// The gateway that is told of incidents.
    #[error("flight.gateway")]
    Gateway(#[from] GatewayError),
    /// A source of owners.
    #[error("cannot ask for the owners of the GPUs")]
    Owners(#[source] io::Error),
}

/// Why a gateway is not told of incidents.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GatewayError {
    /// The file of the token.
    #[error(transparent)]
    Credential(#[from] CredentialError),
    /// A certificate or key.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// It is not reached, or refuses.
    #[error(transparent)]
    Asked(#[from] GetError),
}
