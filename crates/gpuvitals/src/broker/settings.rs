//! Section `broker` of the configuration: the queue itself.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;

use gpuvitals_settings::{Bytes, Switch, settings, words};

/// Where messages are kept, if no other directory is named.
const DIRECTORY: &str = "/data/mq";

/// Examples for the help.
pub(crate) const EXAMPLES: &str = "Examples:
  gpuvitals broker                                          in memory, for this machine
  gpuvitals broker --persistence-path /data/mq              kept on disk
  gpuvitals broker --listen 0.0.0.0 --tls-cert cert.pem --tls-key key.pem --token-file tokens
  gpuvitals queue stats                                     a look into it

Docs: docs/broker.md, what it promises and how it is run; docs/queue-protocol.md, how a client talks to it.";

settings! {
    /// The queue itself: `gpuvitals broker`, and the one inside `up`
    pub(crate) struct Broker = "broker" {
        /// Address to listen on. Loopback unless told; another one needs listener.token_file
        pub listen: IpAddr = "127.0.0.1", flag "--listen ADDRESS";
        /// Port of HTTP and gRPC; 0 takes a free one and prints it
        pub port: u16 = 9090, flag "--port PORT";
        /// Keep messages, groups and dead letters on disk, so that they outlive the process: true, false, or auto, which is
        /// true if persistence_path names a directory
        persistence: Switch = "auto", flag "--persistence BOOL";
        /// Where they are kept; empty, with persistence: /data/mq
        persistence_path: Option<PathBuf> = "", flag "--persistence-path DIR";
        /// When a publish is answered; written and synced need persistence. Empty: synced with it, memory without
        durability: Option<Durability> = "", flag "--durability WHEN";
        /// Time to acknowledge before a message is delivered again; a consumer may ask for another
        pub ack_timeout: Duration = "5s", from "1ms", flag "--ack-timeout DURATION";
        /// Deliveries after the first; then a message is a dead letter
        pub max_retries: u32 = 3, flag "--max-retries N";
        /// Most messages (rows) a topic holds
        pub messages_max: u64 = 2_000_000, from 1, flag "--messages-max N";
        /// Most bytes a topic holds
        pub bytes_max: Bytes = "256MiB", from 1, flag "--bytes-max SIZE";
        /// Treatment of the next frame by a full topic
        pub when_full: WhenFull = "refuse", flag "--when-full WHAT";
        /// Most connections at a time; for one more, the longest idle one is closed
        pub connections_max: usize = 16384, from 1, flag "--connections-max N";
    }
}

/// Treatment of a frame by a full topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum WhenFull {
    /// Refuse it; nothing that is held is lost
    Refuse,
    /// Let the oldest go, counted
    DropOldest,
}

/// When a publish is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Durability {
    /// Once it is in memory: lost with the process
    Memory,
    /// Once it is written: lost with the machine's power
    Written,
    /// Once it is on disk
    Synced,
}

words!(WhenFull, Durability);

impl Broker {
    /// Directory of the messages; none: in memory.
    pub(crate) fn directory(&self) -> Option<&Path> {
        let named = self.persistence_path.as_deref();
        match self.persistence {
            Switch::Auto => named,
            Switch::On => Some(named.unwrap_or(Path::new(DIRECTORY))),
            Switch::Off => None,
        }
    }

    /// When a publish is answered.
    pub(crate) fn durability(&self) -> Durability {
        let best = if self.directory().is_some() { Durability::Synced } else { Durability::Memory };
        self.durability.unwrap_or(best)
    }

    /// Whether messages outlive the process.
    pub(crate) fn keeps(&self) -> bool {
        self.directory().is_some() && self.durability() != Durability::Memory
    }

    /// Settings without effect, since nothing is kept.
    pub(crate) fn ineffective_settings(&self) -> Vec<String> {
        if self.directory().is_some() {
            return Vec::new();
        }
        let path = self.persistence_path.as_deref().map(|path| {
            format!("broker.persistence_path is {}, but broker.persistence is false", path.display())
        });
        let is_asked = self.durability.is_some_and(|it| it != Durability::Memory);
        path.into_iter().chain(is_asked.then(|| "broker.durability is set".to_owned())).collect()
    }
}
