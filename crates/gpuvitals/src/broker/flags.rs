//! The flags of `gpuvitals broker`.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::Args;
use clap::builder::BoolishValueParser;

use crate::config::{Durability, Override, WhenFull, overrides, word};
use crate::telemetry::TelemetryFlags;

/// `gpuvitals broker`
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  gpuvitals broker                                          in memory, for this machine
  gpuvitals broker --persistence-path /data/mq              kept on disk
  gpuvitals broker --listen 0.0.0.0 --tls-cert cert.pem --tls-key key.pem --token-file tokens
  gpuvitals queue stats                                     a look into it

Docs: docs/broker.md, what it promises and how it is run; docs/queue-protocol.md, how a client talks to it.")]
pub(crate) struct BrokerFlags {
    /// Address to listen on [default: 127.0.0.1]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<IpAddr>,
    /// Port of HTTP and gRPC; 0 takes a free one [default: 9090]
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// Keep messages, groups and dead letters on disk, so that they outlive the process [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", value_parser = BoolishValueParser::new())]
    persistence: Option<bool>,
    /// Where they are kept; naming a directory turns persistence on [default: /data/mq]
    #[arg(long, value_name = "DIR")]
    persistence_path: Option<PathBuf>,
    /// When a publish is answered; written and synced need persistence [default: synced with it, memory without]
    #[arg(long, value_enum, value_name = "WHEN")]
    durability: Option<Durability>,
    /// Time to acknowledge before a message is delivered again: 5s, 500ms [default: 5s]
    #[arg(long, value_name = "DURATION")]
    ack_timeout: Option<String>,
    /// Deliveries after the first; then a message is a dead letter [default: 3]
    #[arg(long, value_name = "N")]
    max_retries: Option<u32>,
    /// Most messages (rows) a topic holds [default: 2000000]
    #[arg(long, value_name = "N")]
    messages_max: Option<u64>,
    /// Most bytes a topic holds: 64MiB, 2GiB [default: 256MiB]
    #[arg(long, value_name = "SIZE")]
    bytes_max: Option<String>,
    /// What a full topic does with the next frame [default: refuse]
    #[arg(long, value_enum, value_name = "WHAT")]
    when_full: Option<WhenFull>,
    /// Most connections at a time [default: 16384]
    #[arg(long, value_name = "N")]
    connections_max: Option<usize>,
    /// Serve TLS with this certificate chain (PEM)
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// Private key of the certificate (PEM)
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// Only serve clients with a certificate of one of these authorities (PEM)
    #[arg(long, value_name = "FILE")]
    tls_client_ca: Option<PathBuf>,
    /// Only serve clients with a token of this file; gpuvitals token create makes them
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    #[command(flatten)]
    telemetry: TelemetryFlags,
}

impl BrokerFlags {
    /// The settings these flags change.
    pub(crate) fn overrides(&self) -> Vec<Override> {
        let persistence = self.persistence.or(self.persistence_path.is_some().then_some(true));
        let mut set = self.telemetry.overrides();
        set.extend(overrides([
            ("broker.listen", &self.listen),
            ("broker.port", &self.port),
            ("broker.persistence", &persistence),
            ("broker.persistence_path", &self.persistence_path),
            ("broker.durability", &word(self.durability)),
            ("broker.ack_timeout", &self.ack_timeout),
            ("broker.max_retries", &self.max_retries),
            ("broker.messages_max", &self.messages_max),
            ("broker.bytes_max", &self.bytes_max),
            ("broker.when_full", &word(self.when_full)),
            ("broker.connections_max", &self.connections_max),
            ("broker.tls_cert", &self.tls_cert),
            ("broker.tls_key", &self.tls_key),
            ("broker.tls_client_ca", &self.tls_client_ca),
            ("broker.token_file", &self.token_file),
        ]));
        set
    }
}
