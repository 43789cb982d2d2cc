//! The port of a role: its address, and its protection.

use std::net::{IpAddr, SocketAddr};

use gpuvitals_listener::Access;
use gpuvitals_listener::{Listener, PortKind};
use tokio::net::TcpListener;

use crate::failure::{Exit, Failure};

/// Takes a port; `flag` names another one.
///
/// # Errors
/// When it is taken or may not be used.
pub(crate) fn listen(address: IpAddr, port: u16, flag: &str) -> Result<(TcpListener, SocketAddr), Failure> {
    let address = SocketAddr::new(address, port);
    let refused = |error: std::io::Error| {
        let (exit, hint) = match error.kind() {
            std::io::ErrorKind::AddrInUse => {
                let hint = format!("; is another gpuvitals running? {flag} 0 takes a free one");
                (Exit::Unavailable, hint)
            }
            std::io::ErrorKind::PermissionDenied => (Exit::Permission, String::new()),
            _ => (Exit::Unavailable, String::new()),
        };
        Failure::caused(exit, format!("cannot listen on {address}{hint}"), error)
    };
    let socket = gpuvitals_listener::bind(address).map_err(refused)?;
    let address = socket.local_addr().map_err(refused)?;
    Ok((socket, address))
}

/// Reads the files that protect a port, and refuses an address beyond this machine that everyone could use. The metrics
/// alone may be open there.
///
/// # Errors
/// When a file cannot be read or used, holds a secret that others can read, or nothing protects the port and that was not
/// asked for.
pub(crate) fn access(listener: &Listener, address: SocketAddr, kind: PortKind) -> Result<Access, Failure> {
    let access = Access::load(listener, kind)?;
    access.check_address(address)?;
    Ok(access)
}
