//! A wire between two services that can be cut: connections stay open, and nothing comes through any more.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) struct Wire {
    pub(crate) port: u16,
    is_cut: Arc<AtomicBool>,
}

impl Wire {
    /// A wire to a port of this machine.
    pub(crate) fn to(port: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (here, there) = (listener.local_addr().unwrap().port(), format!("127.0.0.1:{port}"));
        let is_cut = Arc::new(AtomicBool::new(false));
        let cut = Arc::clone(&is_cut);
        std::thread::spawn(move || {
            // Connections that are taken while it is cut are held, as a network that loses packets holds them.
            let mut held = Vec::new();
            for near in listener.incoming().map_while(Result::ok) {
                if cut.load(Ordering::SeqCst) {
                    held.push(near);
                    continue;
                }
                held.clear();
                let Ok(far) = TcpStream::connect(&there) else { continue };
                pass(near.try_clone().unwrap(), far.try_clone().unwrap(), &cut);
                pass(far, near, &cut);
            }
        });
        Self { port: here, is_cut }
    }

    pub(crate) fn cut(&self) {
        self.is_cut.store(true, Ordering::SeqCst);
    }

    pub(crate) fn mend(&self) {
        self.is_cut.store(false, Ordering::SeqCst);
    }
}

/// Passes bytes on until an end closes; those of a cut wire are lost, and the connection with them.
fn pass(mut from: TcpStream, mut to: TcpStream, cut: &Arc<AtomicBool>) {
    let cut = Arc::clone(cut);
    std::thread::spawn(move || {
        let (mut bytes, mut has_lost) = ([0; 4096], false);
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            has_lost |= cut.load(Ordering::SeqCst);
            if !has_lost && to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        // The other end may be gone already.
        let _closed = to.shutdown(std::net::Shutdown::Both);
    });
}
