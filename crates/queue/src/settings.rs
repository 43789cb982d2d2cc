//! Section `broker` of the configuration: the queue itself.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gpuvitals_listener::WebOrigin;
use gpuvitals_settings::{Bytes, Switch, settings, words};

use crate::broker::FrameDurability;
use crate::config::{Drain, QueueConfig, WhenFull};

/// Part of the grace that the queue may take to drain; the rest is that of the connections, or of the store behind it.
const DRAIN_SHARE: u32 = 2;
/// Where messages are kept, if no other directory is named.
const DIRECTORY: &str = "/data/mq";

settings! {
    /// The queue itself: `gpuvitals broker`, and the one inside `up`
    pub struct BrokerSettings = "broker" {
        /// Address to listen on. Any address but loopback needs listener.token_file
        pub listen: IpAddr = "127.0.0.1", flag "--listen ADDRESS";
        /// Port of HTTP and gRPC; 0 takes a free one and prints it
        pub port: u16 = 9090, flag "--port PORT";
        /// Keep messages, groups and dead letters on disk, so that they outlive the process: true, false, or auto, which is
        /// true if persistence_path names a directory
        persistence: Switch = "auto", flag "--persistence BOOL";
        /// Where they are kept; empty, with persistence: /data/mq
        persistence_path: Option<PathBuf> = "", flag "--persistence-path DIR";
        /// When a publish is answered; written and synced need persistence. Empty: synced with it, memory without
        durability: Option<FrameDurability> = "", flag "--durability WHEN";
        /// Time to acknowledge before a message is delivered again; a consumer may ask for another
        ack_timeout: Duration = "5s", from "1ms", flag "--ack-timeout DURATION";
        /// Deliveries after the first; then a message is a dead letter
        max_retries: u32 = 3, flag "--max-retries N";
        /// Most messages (rows) a topic holds
        messages_max: u64 = 2_000_000, from 1, flag "--messages-max N";
        /// Most bytes a topic holds
        bytes_max: Bytes = "256MiB", from 1, flag "--bytes-max SIZE";
        /// Treatment of the next frame by a full topic
        when_full: WhenFull = "refuse", flag "--when-full WHAT";
        /// Most connections at a time; for one more, the longest idle one is closed
        pub connections_max: usize = 16384, from 1, flag "--connections-max N";
        /// Origins whose pages may use the queue from another site, such as `https://ops.example.org`
        pub cors: Vec<WebOrigin> = [];
    }
}

words!(WhenFull, FrameDurability);

impl BrokerSettings {
    /// The settings of the queue, which has to end within the grace.
    pub fn queue(&self, grace: Duration) -> QueueConfig {
        QueueConfig {
            max_messages: self.messages_max,
            max_bytes: self.bytes_max.0,
            ack_timeout: self.ack_timeout,
            max_retries: self.max_retries,
            when_full: self.when_full,
            durability: self.durability(),
            drain: if self.directory().is_some() { Drain::Return } else { Drain::Deliver },
            drain_timeout: grace / DRAIN_SHARE,
            ..QueueConfig::default()
        }
    }

    /// Directory of the messages; none: in memory.
    pub fn directory(&self) -> Option<&Path> {
        let named = self.persistence_path.as_deref();
        match self.persistence {
            Switch::Auto => named,
            Switch::On => Some(named.unwrap_or(Path::new(DIRECTORY))),
            Switch::Off => None,
        }
    }

    /// When a publish is answered.
    pub fn durability(&self) -> FrameDurability {
        let best = if self.directory().is_some() { FrameDurability::Synced } else { FrameDurability::Memory };
        self.durability.unwrap_or(best)
    }

    /// Whether messages outlive the process.
    pub fn keeps(&self) -> bool {
        self.directory().is_some() && self.durability() != FrameDurability::Memory
    }

    /// Settings without effect, since nothing is kept.
    pub fn ineffective_settings(&self) -> Vec<String> {
        if self.directory().is_some() {
            return Vec::new();
        }
        let path = self.persistence_path.as_deref().map(|path| {
            format!("broker.persistence_path is {}, but broker.persistence is false", path.display())
        });
        let is_asked = self.durability.is_some_and(|it| it != FrameDurability::Memory);
        path.into_iter().chain(is_asked.then(|| "broker.durability is set".to_owned())).collect()
    }
}
