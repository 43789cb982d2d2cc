//! Configuration: flags over environment over file over the defaults in `configs/config.yaml`, which is built in.
//!
//! The defaults are the list of what can be set: a key that is not in them is refused with the nearest one that
//! is, and the name of a key's environment variable is its path in capitals.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::failure::{Exit, Failure};
use crate::quantity::{deserialize_bytes, deserialize_duration};

/// The commented defaults.
pub(crate) const DEFAULTS: &str = include_str!("../../../configs/config.yaml");

const ENVIRONMENT_PREFIX: &str = "GPUVITALS_";
/// Variables of the command line itself, which are no settings.
const OWN_VARIABLES: [&str; 3] = ["GPUVITALS_CONFIG", "GPUVITALS_URL", "GPUVITALS_NVML_LIBRARY"];

/// All settings, checked.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// Logs.
    pub log: Log,
    /// Where rows come from.
    pub source: Source,
    /// How GPUs and host are read.
    pub sampling: crate::sampling::Sampling,
    /// Who holds the GPUs.
    pub attribution: crate::ownership::Attribution,
    /// The metrics of a node.
    pub agent: crate::agent::Agent,
    /// The queue between source and store.
    pub message_queue: MessageQueue,
    /// From queue to store.
    pub collector: Collector,
    /// History.
    pub store: Store,
    /// REST and dashboard.
    pub api: Api,
    /// The end.
    pub shutdown: Shutdown,
}

/// Logs.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Log {
    /// Level, or levels by module.
    pub level: String,
    /// Human or JSON.
    pub format: LogFormat,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// Human on a terminal, JSON otherwise.
    Auto,
    /// For people.
    Human,
    /// For machines.
    Json,
}

/// Kind of source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SourceKind {
    /// The GPUs of this machine if it has any; else what is stored is served.
    Auto,
    /// The GPUs of this machine.
    Machine,
    /// No source: only what is stored is served.
    None,
    /// Replay of a CSV file.
    Csv,
    /// A simulated fleet; every row says so.
    Simulated,
}

/// Which times replayed rows carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Times {
    /// Those of the file.
    Recorded,
    /// Shifted, so that the first row is now.
    Now,
}

/// Where rows come from.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Source {
    /// Kind.
    pub kind: SourceKind,
    /// File to replay.
    pub csv: String,
    /// Times of replayed rows.
    pub times: Times,
    /// Speed-up of shifted replays.
    pub speed: f64,
    /// Rows a second; 0: unthrottled, or as recorded.
    pub rate: f64,
    /// Begin again at the end.
    #[serde(rename = "loop")]
    pub looped: bool,
    /// Simulated GPUs.
    pub gpus: u32,
    /// Simulated hosts.
    pub hosts: u32,
    /// Seed of the simulation.
    pub seed: u64,
    /// Simulated sampling interval.
    #[serde(deserialize_with = "deserialize_duration")]
    pub interval: Duration,
}

/// What a full topic does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WhenFull {
    /// The publisher waits.
    Wait,
    /// The oldest rows go, counted.
    DropOldest,
}

/// The queue between source and store.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MessageQueue {
    /// `inproc:`.
    pub address: String,
    /// Topic of GPU rows.
    pub topic: String,
    /// Rows a topic holds at most.
    pub messages_max: u64,
    /// Bytes a topic holds at most.
    #[serde(deserialize_with = "deserialize_bytes")]
    pub bytes_max: u64,
    /// What happens at the bound.
    pub when_full: WhenFull,
    /// Deliveries after the first.
    pub max_retries: u32,
}

/// From queue to store.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Collector {
    /// Rows taken at a time.
    pub batch_size: u32,
    /// Rows in flight per worker.
    pub max_in_flight: u32,
    /// After how many seconds an unacknowledged frame is delivered again.
    pub ack_timeout_seconds: u64,
    /// Workers.
    pub worker_count: usize,
}

/// History.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Store {
    /// Directory.
    pub dir: PathBuf,
    /// Longest time of a row in memory before it lies in a file.
    #[serde(deserialize_with = "deserialize_duration")]
    pub flush_age: Duration,
    /// Most rows in memory.
    pub flush_rows: usize,
    /// Most bytes of rows in memory.
    #[serde(deserialize_with = "deserialize_bytes")]
    pub flush_bytes: u64,
}

/// REST and dashboard.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Api {
    /// Address to listen on.
    pub listen: std::net::IpAddr,
    /// Port; 0 takes a free one and prints it.
    pub port: u16,
    /// Origins allowed to call from elsewhere.
    pub cors: Vec<String>,
    /// Cached answers.
    pub cache_entries: usize,
    /// Age after which a GPU is stale.
    #[serde(deserialize_with = "deserialize_duration")]
    pub stale_after: Duration,
}

/// The end.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Shutdown {
    /// Time to drain.
    #[serde(deserialize_with = "deserialize_duration")]
    pub grace: Duration,
}

/// A setting from the command line: path (`store.dir`) and value.
pub(crate) type Override = (&'static str, Value);

/// Settings as a tree, still to be checked; `config show` prints it.
pub(crate) struct Layers {
    tree: Value,
    /// Environment variables with our prefix that name no key, with the nearest that does.
    pub strangers: Vec<(String, Option<String>)>,
    /// Environment variables of ours that Kubernetes has set, for a service that happens to have such a name.
    pub service_links: Vec<String>,
}

impl Layers {
    /// Lays file, environment and flags over the defaults.
    ///
    /// # Errors
    /// When the file cannot be read, is no YAML, or has an unknown key.
    pub(crate) fn load(
        file: Option<&Path>,
        environment: impl Iterator<Item = (String, String)>,
        flags: Vec<Override>,
    ) -> Result<Self, Failure> {
        let mut tree = yaml(DEFAULTS, "the built-in defaults")?;
        if let Some(path) = file {
            let name = path.display().to_string();
            let text = std::fs::read_to_string(path)
                .map_err(|e| Failure::caused(Exit::Config, format!("cannot read configuration {name}"), e))?;
            let layer = yaml(&text, &name)?;
            if !layer.is_null() {
                known(&tree, &layer, "", &text, &name)?;
                merge(&mut tree, layer);
            }
        }
        let paths = paths_of(&tree);
        let (mut strangers, mut service_links) = (Vec::new(), Vec::new());
        for (name, value) in environment.filter(|(name, _)| name.starts_with(ENVIRONMENT_PREFIX)) {
            if is_service_link(&name, &value) {
                service_links.push(name);
                continue;
            }
            match paths.iter().find(|path| variable_of(path) == name) {
                Some(path) => {
                    let value = typed(&value, get(&tree, path));
                    set(&mut tree, path, value);
                }
                None if OWN_VARIABLES.contains(&name.as_str()) => {}
                None => {
                    let nearest = nearest(&name, paths.iter().map(|path| variable_of(path)));
                    strangers.push((name, nearest));
                }
            }
        }
        for (path, value) in flags {
            set(&mut tree, path, value);
        }
        Ok(Self { tree, strangers, service_links })
    }

    /// The settings, checked.
    ///
    /// # Errors
    /// When a value has the wrong type or cannot be.
    pub(crate) fn check(&self) -> Result<Config, Failure> {
        let config: Config = serde_path_to_error::deserialize(&self.tree).map_err(|error| {
            let path = error.path().to_string();
            let place = match path.split_once('.') {
                Some((section, key)) => format!("section {section}: {key}"),
                None => format!("section {path}"),
            };
            Failure::new(Exit::Config, format!("configuration: {place}: {}", error.inner()))
        })?;
        config.consistent()?;
        Ok(config)
    }

    /// The tree as YAML.
    pub(crate) fn render(&self) -> String {
        let sections = self.tree.as_object().into_iter().flatten().map(|(section, value)| {
            let keys = value.as_object().into_iter().flatten();
            let lines: Vec<String> = keys.map(|(key, value)| format!("  {key}: {value}\n")).collect();
            format!("{section}:\n{}", lines.concat())
        });
        sections.collect()
    }
}

impl Config {
    fn consistent(&self) -> Result<(), Failure> {
        let refuse = |text: String| Err(Failure::new(Exit::Config, format!("configuration: {text}")));
        let source = &self.source;
        if source.kind == SourceKind::Csv && source.csv.is_empty() {
            return refuse("source.kind is csv but source.csv names no file".to_owned());
        }
        if source.kind == SourceKind::Csv && source.times == Times::Now && source.rate > 0.0 {
            return refuse(
                "source.rate is for recorded times; with times: now the speed is source.speed".to_owned(),
            );
        }
        if source.kind == SourceKind::Csv
            && source.looped
            && source.times == Times::Recorded
            && source.rate == 0.0
        {
            return refuse(
                "source.loop with recorded times and no rate would send the same rows without pause; \
                 add --times now to replay as if live, or --rate"
                    .to_owned(),
            );
        }
        crate::logging::filter(&self.log.level)?;
        self.sampling.check()?;
        self.agent.check()?;
        let some = |there: bool| f64::from(u8::from(there));
        let above_zero = [
            ("source.speed", source.speed),
            ("source.gpus", source.gpus.into()),
            ("source.hosts", source.hosts.into()),
            ("source.interval", source.interval.as_secs_f64()),
            ("message_queue.messages_max", some(self.message_queue.messages_max > 0)),
            ("message_queue.bytes_max", some(self.message_queue.bytes_max > 0)),
            ("collector.ack_timeout_seconds", some(self.collector.ack_timeout_seconds > 0)),
            ("collector.worker_count", some(self.collector.worker_count > 0)),
            ("collector.batch_size", self.collector.batch_size.into()),
            ("collector.max_in_flight", self.collector.max_in_flight.into()),
            ("store.flush_rows", some(self.store.flush_rows > 0)),
            ("store.flush_bytes", some(self.store.flush_bytes > 0)),
            ("store.flush_age", self.store.flush_age.as_secs_f64()),
            ("shutdown.grace", self.shutdown.grace.as_secs_f64()),
        ];
        if let Some((name, value)) =
            above_zero.into_iter().find(|(_, value)| !(value.is_finite() && *value > 0.0))
        {
            return refuse(format!("{name} is {value}, it must be above 0"));
        }
        if !(source.rate.is_finite() && source.rate >= 0.0) {
            return refuse(format!("source.rate is {}, it must be 0 or more", source.rate));
        }
        if self.message_queue.address != "inproc:" {
            return refuse(format!(
                "message_queue.address is {:?}; this version has the queue in the same process only: \"inproc:\"",
                self.message_queue.address
            ));
        }
        Ok(())
    }
}

fn yaml(text: &str, name: &str) -> Result<Value, Failure> {
    serde_saphyr::from_str::<Option<Value>>(text)
        .map(|value| value.unwrap_or(Value::Null))
        .map_err(|e| Failure::new(Exit::Config, format!("configuration {name} is not valid YAML: {e}")))
}

/// Refuses keys that the defaults do not have.
fn known(defaults: &Value, layer: &Value, path: &str, text: &str, name: &str) -> Result<(), Failure> {
    let (Value::Object(defaults), Value::Object(layer)) = (defaults, layer) else {
        return if defaults.is_object() == layer.is_object() {
            Ok(())
        } else {
            let place = if path.is_empty() { "the file" } else { path };
            Err(Failure::new(Exit::Config, format!("configuration {name}: {place} has the wrong shape")))
        };
    };
    for (key, value) in layer {
        let full = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        let Some(default) = defaults.get(key) else {
            let line = text
                .lines()
                .position(|line| {
                    line.trim_start().strip_prefix(key.as_str()).is_some_and(|r| r.starts_with(':'))
                })
                .map_or(String::new(), |index| format!(" line {}", index + 1));
            let hint = nearest(key, defaults.keys().cloned()).map_or_else(
                || format!("known here: {}", defaults.keys().cloned().collect::<Vec<_>>().join(", ")),
                |near| format!("did you mean {near}?"),
            );
            return Err(Failure::new(
                Exit::Config,
                format!("configuration {name}{line}: unknown key {full}; {hint}"),
            ));
        };
        known(default, value, &full, text, name)?;
    }
    Ok(())
}

fn nearest(name: &str, candidates: impl Iterator<Item = String>) -> Option<String> {
    candidates
        .map(|candidate| (strsim::jaro_winkler(name, &candidate), candidate))
        .filter(|(score, _)| *score > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

fn merge(base: &mut Value, layer: Value) {
    match (base, layer) {
        (Value::Object(base), Value::Object(layer)) => {
            for (key, value) in layer {
                merge(base.entry(key).or_insert(Value::Null), value);
            }
        }
        (base, layer) => *base = layer,
    }
}

fn set(tree: &mut Value, path: &str, value: Value) {
    let mut place = tree;
    for key in path.split('.') {
        let Value::Object(map) = place else { return };
        place = map.entry(key).or_insert_with(|| Value::Object(Map::new()));
    }
    *place = value;
}

fn paths_of(tree: &Value) -> Vec<String> {
    let mut paths = Vec::new();
    for (section, value) in tree.as_object().into_iter().flatten() {
        for key in value.as_object().into_iter().flat_map(Map::keys) {
            paths.push(format!("{section}.{key}"));
        }
    }
    paths
}

fn variable_of(path: &str) -> String {
    format!("{ENVIRONMENT_PREFIX}{}", path.replace('.', "_").to_uppercase())
}

/// Whether Kubernetes has set a variable: for each service of a namespace its pods have `NAME_PORT=tcp://10.0.0.1:9400` and more,
/// and a service `gpuvitals-agent` gives the very name of a setting.
fn is_service_link(name: &str, value: &str) -> bool {
    name.ends_with("_PORT") && value.contains("://")
}

fn get<'a>(tree: &'a Value, path: &str) -> &'a Value {
    path.split('.').try_fold(tree, |place, key| place.get(key)).unwrap_or(&Value::Null)
}

/// A value from the environment, of the type that the default has: `2024` is a directory where a text is expected.
fn typed(text: &str, default: &Value) -> Value {
    match default {
        Value::String(_) => Value::String(text.to_owned()),
        Value::Array(_) if !text.trim_start().starts_with('[') => {
            let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
            items.map(|item| Value::String(item.to_owned())).collect()
        }
        _ => serde_saphyr::from_str::<Value>(text).unwrap_or_else(|_| Value::String(text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &str, environment: &[(&str, &str)], flags: Vec<Override>) -> Result<Config, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let environment = environment.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        Layers::load(Some(file.path()), environment, flags).and_then(|l| l.check()).map_err(|e| e.to_string())
    }

    #[test]
    fn flags_win_over_environment_over_file_over_defaults() {
        assert_eq!(load("", &[], vec![]).unwrap().api.port, 8081);
        assert_eq!(load("api:\n  port: 1\n", &[], vec![]).unwrap().api.port, 1);
        assert_eq!(load("api:\n  port: 1\n", &[("GPUVITALS_API_PORT", "2")], vec![]).unwrap().api.port, 2);
        let flags = vec![("api.port", Value::from(3))];
        assert_eq!(load("api:\n  port: 1\n", &[("GPUVITALS_API_PORT", "2")], flags).unwrap().api.port, 3);
    }

    #[test]
    fn an_unknown_key_is_refused_with_line_and_suggestion() {
        let error = load("api:\n  listen: 127.0.0.1\n  prot: 1\n", &[], vec![]).unwrap_err();
        assert!(
            error.contains("line 3") && error.contains("api.prot") && error.contains("did you mean port?"),
            "{error}"
        );
        assert!(load("apu: {}\n", &[], vec![]).unwrap_err().contains("did you mean api?"));
    }

    #[test]
    fn a_wrong_value_names_its_section() {
        let error = load("store:\n  flush_age: soon\n", &[], vec![]).unwrap_err();
        assert!(error.contains("section store") && error.contains("soon"), "{error}");
        assert!(load("source:\n  speed: -1\n", &[], vec![]).unwrap_err().contains("source.speed"));
        assert!(load("api: 5\n", &[], vec![]).unwrap_err().contains("wrong shape"));
        assert!(load("shutdown:\n  grace: later\n", &[], vec![]).unwrap_err().contains("section shutdown"));
        assert!(load("log:\n  level: nonsense=loud\n", &[], vec![]).unwrap_err().contains("log.level"));
        for zero in [
            "collector:\n  ack_timeout_seconds: 0\n",
            "message_queue:\n  messages_max: 0\n",
            "source:\n  interval: 0\n",
        ] {
            assert!(load(zero, &[], vec![]).unwrap_err().contains("must be above 0"), "{zero}");
        }
    }

    #[test]
    fn replays_that_would_flood_or_invent_the_future_are_refused() {
        let csv = "source:\n  kind: csv\n  csv: x.csv\n";
        assert!(load(&format!("{csv}  loop: true\n"), &[], vec![]).unwrap_err().contains("--times now"));
        assert!(
            load(&format!("{csv}  times: now\n  rate: 5\n"), &[], vec![])
                .unwrap_err()
                .contains("source.speed")
        );
        assert!(load(&format!("{csv}  times: now\n  loop: true\n"), &[], vec![]).is_ok());
    }

    #[test]
    fn the_environment_has_the_type_of_the_default() {
        let environment = [
            ("GPUVITALS_MESSAGE_QUEUE_ADDRESS", "inproc:"),
            ("GPUVITALS_STORE_DIR", "2024"),
            ("GPUVITALS_LOG_LEVEL", "off"),
            ("GPUVITALS_API_CORS", "https://a.b, https://c.d"),
        ];
        let config = load("", &environment, vec![]).unwrap();
        assert_eq!(config.store.dir, PathBuf::from("2024"));
        assert_eq!(config.api.cors, ["https://a.b", "https://c.d"]);
    }

    #[test]
    fn the_address_of_a_service_is_no_port_of_ours() {
        let (name, link) = ("GPUVITALS_AGENT_PORT".to_owned(), "tcp://10.0.0.1:9400".to_owned());
        let layers = Layers::load(None, [(name.clone(), link)].into_iter(), vec![]).unwrap();
        assert_eq!(layers.check().unwrap().agent.port, 9400);
        assert_eq!((layers.service_links, layers.strangers), (vec![name], vec![]));
        assert!(load("", &[("GPUVITALS_AGENT_PORT", "tcp")], vec![]).unwrap_err().contains("port"));
    }

    #[test]
    fn a_stranger_in_the_environment_is_named() {
        let environment = [("GPUVITALS_API_PROT".to_owned(), "1".to_owned())].into_iter();
        let layers = Layers::load(None, environment, vec![]).unwrap();
        let near = Some("GPUVITALS_API_PORT".to_owned());
        assert_eq!(layers.strangers, vec![("GPUVITALS_API_PROT".to_owned(), near)]);
    }
}
