//! A port for a server that starts later, or again.

use std::fmt;
use std::ops::Deref;

use tokio::net::TcpSocket;

/// A port that the system gives to nobody else for as long as this is held. A server that asks for it by number gets it;
/// without one, connections are refused.
#[derive(Debug)]
pub struct Port {
    number: String,
    _socket: TcpSocket,
}

impl Port {
    /// A port of this machine.
    #[expect(clippy::new_without_default, reason = "a test asks for another port")]
    pub fn new() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        Self { number: socket.local_addr().unwrap().port().to_string(), _socket: socket }
    }
}

impl Deref for Port {
    type Target = str;

    fn deref(&self) -> &str {
        &self.number
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.number)
    }
}
