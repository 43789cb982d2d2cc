//! A way to a server that can be cut: connections stay open, and nothing comes through, as when a network is split.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

/// A port of this machine that leads to another one, until it is cut.
#[derive(Debug)]
pub struct CutLink {
    port: u16,
    state: Arc<LinkState>,
}

#[derive(Debug, Default)]
struct LinkState {
    is_cut: Mutex<bool>,
    changed: Condvar,
}

impl CutLink {
    /// To a port of this machine, whether a server is there yet or not. Its threads end with the process.
    pub fn to(target: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (state, target) = (Arc::<LinkState>::default(), format!("127.0.0.1:{target}"));
        let link = Self { port, state: Arc::clone(&state) };
        thread::spawn(move || {
            for client in listener.incoming() {
                // Who connects while it is cut gets no answer until it is mended.
                let was_cut = state.wait_while_cut();
                let (Ok(client), Ok(server), false) = (client, TcpStream::connect(&target), was_cut) else {
                    continue;
                };
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let state = Arc::clone(&state);
                    thread::spawn(move || pass(from, to, &state));
                }
            }
        });
        link
    }

    /// Its own port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Cuts the link: nothing comes through from now on. Neither side gets an error.
    pub fn cut(&self) {
        *self.state.is_cut.lock().unwrap() = true;
    }

    /// What connects from now on comes through. A connection of which something was lost is closed.
    pub fn mend(&self) {
        *self.state.is_cut.lock().unwrap() = false;
        self.state.changed.notify_all();
    }
}

impl LinkState {
    /// Waits until it is not cut; whether it was.
    fn wait_while_cut(&self) -> bool {
        let is_cut = self.is_cut.lock().unwrap();
        let was_cut = *is_cut;
        drop(self.changed.wait_while(is_cut, |is_cut| *is_cut).unwrap());
        was_cut
    }
}

/// Passes on what comes, until either side ends or something is lost.
fn pass(mut from: TcpStream, mut to: TcpStream, state: &LinkState) {
    let mut bytes = [0; 16 << 10];
    loop {
        let len = from.read(&mut bytes).unwrap_or(0);
        // An end is something that comes, too.
        if state.wait_while_cut() || len == 0 || to.write_all(&bytes[..len]).is_err() {
            break;
        }
    }
    for stream in [&from, &to] {
        // The other direction may have closed it.
        let _closed_before = stream.shutdown(Shutdown::Both);
    }
}
