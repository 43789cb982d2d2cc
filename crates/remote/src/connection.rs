//! A connection makes calls of a service.

use std::fmt;
use std::sync::Arc;

use gpuvitals_listener::client::Dial;
use tonic::Request;
use tonic::transport::Channel;

use crate::limits::MESSAGE_BYTES;
use crate::v1::history_client::HistoryClient;

/// How calls are made.
pub(crate) struct Connection {
    pub(crate) name: Arc<str>,
    pub(crate) channel: Channel,
    pub(crate) dial: Dial,
}

impl Connection {
    pub(crate) fn client(&self) -> HistoryClient<Channel> {
        HistoryClient::new(self.channel.clone()).max_decoding_message_size(MESSAGE_BYTES)
    }

    /// A request with the token.
    pub(crate) fn request<T>(&self, body: T) -> Request<T> {
        self.dial.request(body)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("name", &self.name).finish_non_exhaustive()
    }
}
