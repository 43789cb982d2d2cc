//! Configuration: flags over environment over file over defaults.
//!
//! Each part of the program declares its section with [`settings!`]: a field with its documentation, default, range and flag.
//! From that come the flag and its help, the key of the file, the environment variable and `configs/config.yaml`. A new
//! section is such a declaration and a line in [`Config`].

mod layers;
mod listener;
mod queue;
mod setting;

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use gpuvitals_queue::link::{QueueUrl, Scheme};
use tracing::level_filters::LevelFilter;

pub(crate) use layers::{Layers, Override, Values, Variable, with_shared};
pub(crate) use listener::{Listener, PortKind};
pub(crate) use queue::{MessageQueue, token};
pub(crate) use setting::{
    Bytes, Form, Refusal, Secret, Section, Setting, Switch, Table, Typed, settings, text, within, words,
};

macro_rules! sections {
    ($($name:ident: $type:ty,)+) => {
        /// All settings, checked.
        #[derive(Debug, Clone)]
        pub(crate) struct Config {
            $(pub $name: $type,)+
        }

        /// All sections.
        pub(crate) const SECTIONS: &[Table] = &[$(<$type as Section>::TABLE),+];

        impl Config {
            /// Reads all settings.
            ///
            /// # Errors
            /// When one cannot be as it is, by itself or beside others.
            fn read(values: &Values) -> Result<Self, Refusal> {
                let config = Self { $($name: Section::read(values)?),+ };
                config.check()?;
                Ok(config)
            }
        }
    };
}

sections! {
    log: Log,
    listener: Listener,
    source: crate::up::Source,
    sampling: crate::sampling::Sampling,
    attribution: crate::ownership::Attribution,
    agent: crate::agent::Agent,
    message_queue: MessageQueue,
    broker: crate::broker::Broker,
    collector: crate::collect::Collector,
    stream: crate::stream::Stream,
    store: Store,
    database: Database,
    api: crate::up::ApiSettings,
    otlp: crate::telemetry::Otlp,
    shutdown: Shutdown,
}

settings! {
    /// Logs
    pub(crate) struct Log = "log" {
        /// Level: error, warn, info, debug or trace, or by module (info,gpuvitals_sources=debug)
        pub level: String = "info", flag "--log-level LEVEL", also "LOG_LEVEL";
        /// Form of the lines; auto is human on a terminal, else json
        pub format: LogFormat = "auto";
    }
}

settings! {
    /// History: tables in files
    pub(crate) struct Store = "store" {
        /// Directory; one process writes it, any number read it
        pub dir: PathBuf = "data", flag "--data-dir DIR";
        /// Rows leave memory for a file after this time,
        pub flush_age: Duration = "60s", from "1ms";
        /// or this many rows,
        pub flush_rows: usize = 400_000, from 1;
        /// or this much memory, whichever is first
        pub flush_bytes: Bytes = "64MiB", from 1;
    }
}

settings! {
    /// PostgreSQL. Not supported yet: the section is read, and rows go to the embedded store
    pub(crate) struct Database = "database" {
        /// Host; empty: none
        pub host: String = "";
        /// Port
        pub port: u16 = 5432;
        /// User
        pub user: String = "";
        /// Password
        pub password: Secret = "";
        /// Database
        pub dbname: String = "";
        /// Whether TLS is used: disable, prefer, require, verify-ca, verify-full
        pub sslmode: String = "prefer";
    }
}

settings! {
    /// The end
    pub(crate) struct Shutdown = "shutdown" {
        /// Time for all of it after a signal: stop the source, drain, flush, close; then what was left is reported
        pub grace: Duration = "20s", from "1ms";
    }
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Human on a terminal, JSON otherwise
    Auto,
    /// For people
    Human,
    /// For machines
    Json,
}

/// Which times replayed rows carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Times {
    /// Those of the file
    Recorded,
    /// Shifted, so that the first row is now
    Now,
}

words!(LogFormat, Times);

/// Whether a replay should run faster or slower than recorded.
pub(crate) fn is_other_speed(speed: f64) -> bool {
    (speed - 1.0).abs() > f64::EPSILON
}

/// The table of all settings.
pub(crate) fn settings() -> impl Iterator<Item = &'static Setting> {
    SECTIONS.iter().flat_map(|section| section.settings)
}

/// The commented defaults.
pub(crate) fn defaults() -> String {
    const HEAD: &str = "# gpuvitals: every setting with its default, as `gpuvitals config default` prints it. A file of yours needs only the\n\
        # lines it changes. Flags win over the environment, the environment over a file, a file over these defaults.\n\
        # An environment variable is the path of the key in capitals: GPUVITALS_API_PORT, GPUVITALS_STORE_DIR …\n\
        # Durations are written 500ms, 30s, 5m, 1h, and a number alone is seconds; sizes 64KiB, 256MiB, 2GiB, alone bytes.\n\n";
    let sections = setting::render(SECTIONS, |setting| ((setting.default)(), setting.comment()));
    format!("{HEAD}{sections}")
}

impl Config {
    /// The queue of a role without one of its own: without an address, that of this machine.
    pub(crate) fn queue_elsewhere(&self) -> MessageQueue {
        let mut queue = self.message_queue.clone();
        if queue.address.scheme == Scheme::InProcess {
            let (scheme, host) = (Scheme::Http, "127.0.0.1".to_owned());
            let (tls, port) = (self.listener.has_tls(), self.broker.port);
            queue.address = QueueUrl { scheme, tls, host, port, ..queue.address };
        }
        queue
    }

    /// Refuses settings that contradict each other.
    fn check(&self) -> Result<(), Refusal> {
        self.log.check()?;
        self.listener.check()?;
        self.source.check()?;
        self.agent.check()?;
        self.message_queue.check()?;
        self.collector.check()?;
        self.stream.check()?;
        self.otlp.check()
    }
}

impl Log {
    fn check(&self) -> Result<(), Refusal> {
        let is_word = |part: &&str| !part.contains(['=', '[']) && part.parse::<LevelFilter>().is_err();
        let wrong = self.level.split(',').map(str::trim).find(is_word);
        let wrong = wrong.or(crate::logging::filter(&self.level).err().map(|_| self.level.as_str()));
        let Some(word) = wrong else { return Ok(()) };
        let levels = "there is error, warn, info, debug, trace and off, or MODULE=LEVEL";
        Err(Refusal::new("log.level", format!("{word:?} is no level; {levels}")))
    }
}
