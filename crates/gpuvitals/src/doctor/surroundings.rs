//! What sampling needs beside the devices: a clock, a place to store, free ports, a queue that answers.

use std::io;
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::path::Path;
use std::time::Duration;

use gpuvitals_queue::link::{QueueUrl, Scheme};
use gpuvitals_sources::registry::{Finding, Verdict};

use crate::config::Config;

/// Below this much free space a store that writes all day is worth a word.
const FREE_BYTES_MIN: u64 = 2 << 30;

/// How long a queue has to accept a connection.
const QUEUE_PATIENCE: Duration = Duration::from_secs(2);

/// Looks around.
pub(super) fn look(config: &Config) -> Vec<Finding> {
    let mut findings =
        vec![clock(), store(&config.store.dir), port(config), queue(&config.message_queue.address)];
    findings.extend(kernel());
    findings
}

fn kernel() -> Option<Finding> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    let text = format!("Linux {} on {}", release.trim(), std::env::consts::ARCH);
    Some(Finding::new(Verdict::Good, "kernel", text))
}

/// Rows of several hosts are compared by their times.
fn clock() -> Finding {
    let files = [
        "/run/systemd/timesync/synchronized",
        "/run/chrony/chronyd.pid",
        "/run/chronyd.pid",
        "/run/ntpd.pid",
    ];
    match files.iter().find(|file| Path::new(file).exists()) {
        Some(file) => Finding::new(Verdict::Good, "clock", format!("a time service keeps it ({file})")),
        None => Finding::new(Verdict::Note, "clock", "no time service was seen; it may be kept from outside")
            .remedy("run chrony or systemd-timesyncd, so that rows of several hosts can be compared"),
    }
}

fn store(dir: &Path) -> Finding {
    let subject = format!("store {}", dir.display());
    let there = dir.ancestors().find(|path| path.as_os_str().is_empty() || path.exists());
    let there = there.filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if rustix::fs::access(there, rustix::fs::Access::WRITE_OK).is_err() {
        return Finding::new(Verdict::Partial, subject, format!("{} cannot be written", there.display()))
            .remedy("choose another directory with --data-dir, or give this user the right to write it");
    }
    let Some(free) = gpuvitals_store::free_bytes(there) else {
        return Finding::new(Verdict::Note, subject, "its free space is not known");
    };
    let text = format!("can be written, {} GiB are free", free >> 30);
    if free < FREE_BYTES_MIN {
        Finding::new(Verdict::Partial, subject, text).remedy("free some space, or choose another --data-dir")
    } else {
        Finding::new(Verdict::Good, subject, text)
    }
}

fn port(config: &Config) -> Finding {
    let (address, port) = (config.api.listen, config.api.port);
    match TcpListener::bind((address, port)) {
        Ok(_) => {
            Finding::new(Verdict::Good, "port", format!("{address}:{port} is free for API and dashboard"))
        }
        Err(error) => Finding::new(Verdict::Note, "port", format!("{address}:{port} cannot be had: {error}"))
            .remedy("another gpuvitals may run; --port takes another one"),
    }
}

/// Whether something accepts a connection where the queue is. Rights and certificates show at the first publish.
fn queue(url: &QueueUrl) -> Finding {
    if url.scheme == Scheme::InProcess {
        return Finding::new(Verdict::Good, "queue", "it is part of the process that uses it");
    }
    let subject = format!("queue {url}");
    let connect = || -> io::Result<()> {
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for address in (url.authority.host.as_str(), url.authority.port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, QUEUE_PATIENCE) {
                Ok(_) => return Ok(()),
                Err(error) => last = error,
            }
        }
        Err(last)
    };
    match connect() {
        Ok(()) => Finding::new(Verdict::Good, subject, "it accepts connections"),
        Err(error) => Finding::new(Verdict::Note, subject, format!("it cannot be reached: {error}")).remedy(
            "needed by agents that publish, and by collectors: start it, or set message_queue.address",
        ),
    }
}
