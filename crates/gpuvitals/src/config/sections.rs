//! The sections make the configuration; a new one is a line here.

use gpuvitals_agent::AgentSettings;
use gpuvitals_flight::FlightSettings;
use gpuvitals_listener::Listener;
use gpuvitals_outgoing::otlp::OtlpSettings;
use gpuvitals_outgoing::remote_write::RemoteWriteSettings;
use gpuvitals_queue::link::MessageQueue;
use gpuvitals_settings::{Refusal, Section, SectionTable, Setting};
use gpuvitals_sources::settings::{Attribution, Sampling};
use serde_json::Value;

macro_rules! sections {
    ($($(#[feature = $feature:literal])? $name:ident: $type:ty,)+) => {
        /// All settings, checked.
        #[derive(Debug, Clone)]
        pub(crate) struct Config {
            $($(#[cfg(feature = $feature)])? pub $name: $type,)+
        }

        /// The sections that this build has.
        pub(crate) const SECTIONS: &[SectionTable] =
            &[$($(#[cfg(feature = $feature)])? <$type as Section>::TABLE),+];

        /// Sections of roles that this build does not have: a file for several programs may have them.
        pub(super) const ELSEWHERE: &[&str] = &[$($(#[cfg(not(feature = $feature))] stringify!($name),)?)+];

        impl Config {
            /// Reads all settings.
            ///
            /// # Errors
            /// When one cannot be as it is, by itself or beside others.
            pub(super) fn read(value_of: &dyn Fn(&'static str) -> Value) -> Result<Self, Refusal> {
                Ok(Self { $($(#[cfg(feature = $feature)])? $name: Section::read(value_of)?),+ })
            }
        }
    };
}

sections! {
    log: crate::logging::Log,
    listener: Listener,
    #[feature = "services"]
    source: crate::source::Source,
    files: crate::files::Files,
    sampling: Sampling,
    attribution: Attribution,
    agent: AgentSettings,
    flight: FlightSettings,
    message_queue: MessageQueue,
    #[feature = "services"]
    broker: gpuvitals_queue::BrokerSettings,
    #[feature = "services"]
    collector: gpuvitals_collect::CollectorSettings,
    #[feature = "services"]
    stream: crate::stream::Stream,
    #[feature = "services"]
    store: crate::store::Store,
    #[feature = "services"]
    jsonl: crate::sinks::lines::JsonLines,
    #[feature = "services"]
    database: gpuvitals_postgres::Database,
    #[feature = "services"]
    api: gpuvitals_api::ApiSettings,
    #[feature = "services"]
    jobs: gpuvitals_api::JobsSettings,
    #[feature = "services"]
    gateway: crate::gateway::Gateway,
    #[feature = "services"]
    kubernetes: gpuvitals_clusters::Kubernetes,
    otlp: OtlpSettings,
    remote_write: RemoteWriteSettings,
    shutdown: crate::service::Shutdown,
}

/// The table of all settings.
pub(crate) fn settings() -> impl Iterator<Item = &'static Setting> {
    SECTIONS.iter().flat_map(|section| section.settings)
}

#[cfg(feature = "services")]
impl Config {
    /// The queue of a role without one of its own: without an address, that of this machine.
    pub(crate) fn queue_elsewhere(&self) -> MessageQueue {
        self.message_queue.elsewhere(self.listener.has_tls(), self.broker.port)
    }
}
