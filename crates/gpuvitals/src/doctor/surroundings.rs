//! What sampling needs beside the devices: a clock, a queue that answers.

use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
use std::time::Duration;

use gpuvitals_queue::link::{QueueUrl, Scheme};
use gpuvitals_sources::registry::{Finding, Verdict};

use crate::config::Config;

/// How long a queue has to accept a connection.
const QUEUE_PATIENCE: Duration = Duration::from_secs(2);

/// What is to say about this machine beside its GPUs, and about what the settings name on it.
pub(super) fn look(config: &Config) -> Vec<Finding> {
    let mut findings = vec![clock()];
    #[cfg(feature = "services")]
    findings.extend(super::history::look(config));
    findings.push(queue(&config.message_queue.address));
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
