//! Log lines: JSON for machines, coloured text for people. If their reader goes away, the program continues.

use std::io::{IsTerminal, Write};

use clap::ValueEnum;
use gpuvitals_settings::{Refusal, settings, words};
use opentelemetry::trace::TraceContextExt;
use opentelemetry_sdk::trace::SdkTracer;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::filter::{FilterExt, filter_fn};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

use crate::failure::{Exit, Failure};
use crate::terminal::Lines;

settings! {
    /// Logs
    pub(crate) struct Log = "log", check Self::check {
        /// Level: error, warn, info, debug, trace or off, or by module (info,gpuvitals_sources=debug); other programs' names, such as
        /// WARNING and critical, are understood
        pub level: String = "info", flag "--log-level LEVEL", also "LOG_LEVEL";
        /// Form of the lines; auto is human on a terminal, else json
        pub format: LogFormat = "auto";
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

words!(LogFormat);

impl Log {
    fn check(&self) -> Result<(), Refusal> {
        let is_word =
            |part: &&str| !part.contains(['=', '[']) && own_name(part).parse::<LevelFilter>().is_err();
        let wrong = self.level.split(',').map(str::trim).find(is_word);
        let wrong = wrong.or(filter(&self.level).err().map(|_| self.level.as_str()));
        let Some(word) = wrong else { return Ok(()) };
        let levels = "there is error, warn, info, debug, trace and off, or MODULE=LEVEL";
        Err(Refusal::new("log.level", format!("{word:?} is no level; {levels}")))
    }
}

/// Starts logging: for machines on standard output, for people on standard error, which keeps it apart from
/// answers. Spans go only to the tracer, if there is one: without one they cost one check of a flag.
///
/// # Errors
/// If the level is invalid.
pub(crate) fn start(
    settings: &Log,
    service: &'static str,
    tracer: Option<SdkTracer>,
) -> Result<Announcer, Failure> {
    let levels = filter(&settings.level)?;
    let human = match settings.format {
        LogFormat::Human => true,
        LogFormat::Json => false,
        LogFormat::Auto => std::io::stderr().is_terminal(),
    };
    let is_event = |metadata: &Metadata<'_>| metadata.is_event();
    let is_event = filter_fn(is_event).with_max_level_hint(LevelFilter::TRACE);
    let lines = if human {
        tracing_subscriber::fmt::layer()
            .with_writer(|| Lines)
            .with_ansi(std::io::stderr().is_terminal())
            .with_target(false)
            .log_internal_errors(false)
            .boxed()
    } else {
        let lines = tracing_subscriber::fmt::layer().event_format(JsonLines { service });
        lines.log_internal_errors(false).boxed()
    };
    let spans = tracer.map(|tracer| {
        let ours = |metadata: &Metadata<'_>| metadata.is_span() && metadata.target().starts_with("gpuvitals");
        let ours = filter_fn(ours).with_max_level_hint(LevelFilter::INFO);
        tracing_opentelemetry::layer()
            .with_tracer(tracer)
            .with_location(false)
            .with_threads(false)
            .with_tracked_inactivity(false)
            .with_target(false)
            .with_filter(ours)
    });
    tracing_subscriber::registry()
        .with(lines.with_filter(levels.and(is_event)))
        .with(spans)
        .try_init()
        .map_err(|e| Failure::caused(Exit::Bug, "logging was started twice", e))?;
    Ok(Announcer { service: (!human).then_some(service) })
}

/// Levels as other programs call them, since a container's `LOG_LEVEL` may be meant for several, with ours.
/// Python has numbers, too: they begin at 10, where those of ours end at 5.
const OTHER_NAMES: [(&str, &str); 28] = [
    ("warning", "warn"),
    ("critical", "error"),
    ("crit", "error"),
    ("fatal", "error"),
    ("panic", "error"),
    ("dpanic", "error"),
    ("alert", "error"),
    ("emerg", "error"),
    ("emergency", "error"),
    ("severe", "error"),
    ("err", "error"),
    ("notice", "info"),
    ("information", "info"),
    ("informational", "info"),
    ("default", "info"),
    ("notset", "info"),
    ("verbose", "debug"),
    ("all", "trace"),
    ("fine", "debug"),
    ("finer", "debug"),
    ("finest", "trace"),
    ("none", "off"),
    ("disabled", "off"),
    ("10", "debug"),
    ("20", "info"),
    ("30", "warn"),
    ("40", "error"),
    ("50", "error"),
];

/// Our name of a level; a text that names none stays as it is.
fn own_name(word: &str) -> &str {
    let known = OTHER_NAMES.iter().find(|(other, _)| word.eq_ignore_ascii_case(other));
    known.map_or(word, |(_, own)| own)
}

/// The levels a text names.
///
/// # Errors
/// When it names none.
pub(crate) fn filter(level: &str) -> Result<EnvFilter, Failure> {
    let part = |part: &str| match part.trim().rsplit_once('=') {
        Some((module, level)) => format!("{module}={}", own_name(level)),
        None => own_name(part.trim()).to_owned(),
    };
    let mut levels = level.split(',').map(part).collect::<Vec<_>>().join(",");
    // The client of NATS logs every try to connect, as an error if it fails; the queue's own lines log an outage once.
    if !levels.contains("async_nats") {
        levels.push_str(",async_nats=off");
    }
    EnvFilter::builder().parse(levels).map_err(|e| {
        Failure::caused(Exit::Config, format!("configuration: log.level {level:?} is no level"), e)
    })
}

/// Prints requested information on standard output, whatever the log level: as a line of text for people, as
/// a line of JSON for machines.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Announcer {
    /// Service of the JSON lines; none: text.
    service: Option<&'static str>,
}

impl Announcer {
    /// Prints a line for the person who started the service.
    pub(crate) fn tell(self, message: &str) {
        let line = match self.service {
            None => message.to_owned(),
            Some(service) => serde_json::Value::Object(head("info", service, Some(message))).to_string(),
        };
        // If this cannot be printed, nobody is left to report to.
        let _unprinted = writeln!(std::io::stdout(), "{line}");
    }
}

fn head(level: &str, service: &str, message: Option<&str>) -> serde_json::Map<String, serde_json::Value> {
    let mut line = serde_json::Map::new();
    line.insert("timestamp".to_owned(), gpuvitals_core::time::format(gpuvitals_core::clock::now_ns()).into());
    line.insert("level".to_owned(), level.into());
    line.insert("service".to_owned(), service.into());
    if let Some(message) = message {
        line.insert("message".to_owned(), message.into());
    }
    line
}

/// One JSON object a line: `timestamp`, `level`, `service`, `message`, and the event's fields beside them;
/// `trace_id` and `span_id` if it is part of a trace.
struct JsonLines {
    service: &'static str,
}

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> std::fmt::Result {
        let level = event.metadata().level().as_str().to_lowercase();
        let mut line = LogLine(head(&level, self.service, None));
        line.0.insert("target".to_owned(), event.metadata().target().into());
        event.record(&mut line);
        opentelemetry::Context::map_current(|context| {
            let span = context.span();
            let trace = span.span_context();
            if trace.is_valid() {
                line.0.insert("trace_id".to_owned(), trace.trace_id().to_string().into());
                line.0.insert("span_id".to_owned(), trace.span_id().to_string().into());
            }
        });
        writeln!(writer, "{}", serde_json::Value::Object(line.0))
    }
}

struct LogLine(serde_json::Map<String, serde_json::Value>);

impl Visit for LogLine {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}").into());
    }
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.into());
    }
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.0.insert(field.name().to_owned(), value.into());
    }
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.insert(field.name().to_owned(), value.into());
    }
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.0.insert(field.name().to_owned(), value.into());
    }
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_of_other_programs_are_understood() {
        let check = |level: &str| Log { level: level.to_owned(), format: LogFormat::Auto }.check().is_ok();
        for level in [
            "WARNING",
            "Warn",
            "critical",
            "CRITICAL",
            "fatal",
            "notice",
            "none",
            "verbose",
            "FINE",
            "30",
            "info,gpuvitals_store=WARNING",
            "gpuvitals_store=debug",
            "off",
            "TRACE",
        ] {
            assert!(check(level), "{level}");
            filter(level).unwrap();
        }
        for wrong in ["loud", "warnings", "info,loud", "info=loud", "1 2"] {
            assert!(!check(wrong), "{wrong}");
        }
        let written = |level: &str| filter(level).unwrap().to_string();
        assert_eq!(written("WARNING"), written("warn"));
        assert_eq!(written("critical"), written("error"));
        assert_eq!((written("30"), written("10")), (written("warn"), written("debug")));
        // The client of NATS is silent unless it is named.
        assert!(written("debug").contains("async_nats=off"));
        assert!(!written("debug,async_nats=debug").contains("async_nats=off"));
    }
}
