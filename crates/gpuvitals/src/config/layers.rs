//! The layers of the configuration: defaults, file, environment, flags.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use gpuvitals_settings::{Override, Refusal, Setting, Variable};
use serde_json::Value;
use serde_saphyr::Spanned;

use super::render::render;
use super::sections::{Config, ELSEWHERE, SECTIONS, settings};
use crate::failure::{Exit, Failure};

const ENVIRONMENT_PREFIX: &str = "GPUVITALS_";
/// Variables of the command line itself, which are no settings.
const OWN_VARIABLES: [&str; 3] = ["GPUVITALS_CONFIG", "GPUVITALS_URL", "GPUVITALS_NVML_LIBRARY"];

/// The environment with the variables that exporters share under our names; if both are set, ours holds. An empty one is
/// not set.
pub(crate) fn with_shared(variables: impl Iterator<Item = Variable>) -> impl Iterator<Item = Variable> {
    let (mut shared, mut own) = (Vec::new(), Vec::new());
    for variable in variables {
        let sharing: Vec<_> = settings().filter(|setting| setting.also == Some(&variable.name)).collect();
        if sharing.is_empty() {
            own.push(variable);
        } else if !variable.value.is_empty() {
            let as_set = |it: &Setting| Variable { name: it.variable(), ..variable.clone() };
            shared.extend(sharing.into_iter().map(as_set));
        }
    }
    shared.into_iter().chain(own)
}

/// The layer of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ValueOrigin {
    Default,
    File { name: String, line: u64 },
    Variable(String),
    Flag(&'static str),
}

impl fmt::Display for ValueOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("configuration"),
            Self::File { name, line } => write!(f, "configuration {name} line {line}"),
            Self::Variable(name) => write!(f, "environment variable {name}"),
            Self::Flag(name) => f.write_str(name),
        }
    }
}

/// The value of each setting, and its layer.
#[derive(Debug)]
struct LayerValues(BTreeMap<&'static str, (Value, ValueOrigin)>);

impl LayerValues {
    fn defaults() -> Self {
        Self(settings().map(|setting| (setting.path, ((setting.default)(), ValueOrigin::Default))).collect())
    }

    /// Why the settings are refused, with the place of the one at fault.
    fn failure(&self, refusal: &Refusal) -> Failure {
        let origin = self.0.get(refusal.setting).map_or(&ValueOrigin::Default, |(_, origin)| origin);
        let exit = if matches!(origin, ValueOrigin::Flag(_)) { Exit::Usage } else { Exit::Config };
        Failure::new(exit, format!("{origin}: {}: {}", refusal.setting, refusal.why))
    }
}

/// All settings, still to be checked; `config show` prints them.
pub(crate) struct Layers {
    values: LayerValues,
    /// Environment variables with our prefix that name no setting, with the nearest that does.
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
        environment: impl Iterator<Item = Variable>,
        flags: Vec<Override>,
    ) -> Result<Self, Failure> {
        let mut values = LayerValues::defaults();
        if let Some(path) = file {
            let name = path.display().to_string();
            let text = std::fs::read_to_string(path)
                .map_err(|e| Failure::caused(Exit::Config, format!("cannot read configuration {name}"), e))?;
            values.0.extend(of_file(&text, &name)?.0);
        }
        let (mut strangers, mut service_links) = (Vec::new(), Vec::new());
        for Variable { name, given, value } in environment {
            let is_elsewhere = || ELSEWHERE.iter().any(|section| is_of(&name, section));
            if !name.starts_with(ENVIRONMENT_PREFIX)
                || OWN_VARIABLES.contains(&name.as_str())
                || is_elsewhere()
            {
                continue;
            }
            if is_service_link(&name, &value) {
                service_links.push(given);
            } else if let Some(setting) = settings().find(|setting| setting.variable() == name) {
                values.0.insert(setting.path, (value.into(), ValueOrigin::Variable(given)));
            } else {
                let nearest = nearest(&name, settings().map(Setting::variable));
                strangers.push((name, nearest));
            }
        }
        values.0.extend(flags.into_iter().map(|it| (it.setting, (it.value, ValueOrigin::Flag(it.flag)))));
        Ok(Self { values, strangers, service_links })
    }

    /// Settings as flags would give them.
    #[cfg(test)]
    pub(crate) fn of(set: Vec<(&'static str, Value)>) -> Self {
        let flags = set.into_iter().map(|(setting, value)| Override { setting, value, flag: "--flag" });
        Self::load(None, std::iter::empty(), flags.collect()).unwrap()
    }

    /// The settings, checked.
    ///
    /// # Errors
    /// When a value has the wrong type or cannot be: an error of usage if it comes from a flag.
    pub(crate) fn check(&self) -> Result<Config, Failure> {
        let values = &self.values;
        let value_of = |path| values.0.get(path).map(|(value, _)| value.clone()).unwrap_or_default();
        Config::read(&value_of).map_err(|refusal| values.failure(&refusal))
    }

    /// The settings as a file; a comment names the layer of a value, unless it is the default.
    pub(crate) fn render(&self) -> String {
        render(SECTIONS, |setting| {
            let given = self.values.0.get(setting.path).cloned();
            let (value, origin) = given.unwrap_or((Value::Null, ValueOrigin::Default));
            let is_default = value == (setting.default)();
            let value = if is_default { value } else { setting.notation.shown(value) };
            let comment = if origin == ValueOrigin::Default { String::new() } else { origin.to_string() };
            (value, comment)
        })
    }
}

type Keys<T> = Option<BTreeMap<String, T>>;

/// The settings in a file.
fn of_file(text: &str, name: &str) -> Result<LayerValues, Failure> {
    let refuse = |text: String| Failure::new(Exit::Config, format!("configuration {name}{text}"));
    // Without the lines around: one may be a password.
    let invalid = |e: serde_saphyr::Error| refuse(format!(" is not valid YAML: {}", e.without_snippet()));
    let plain: Value = serde_saphyr::from_str::<Option<Value>>(text).map_err(invalid)?.into();
    let sections = match &plain {
        Value::Null => return Ok(LayerValues(BTreeMap::new())),
        Value::Object(sections) => sections,
        _ => return Err(refuse(" has no sections".to_owned())),
    };
    let unknown = |line: u64, key: &str, among: Vec<&str>| {
        let last = key.rsplit('.').next().unwrap_or(key);
        let hint = nearest(last, among.iter().map(|&known| known.to_owned())).map_or_else(
            || format!("known here: {}", among.join(", ")),
            |near| format!("did you mean {near}?"),
        );
        refuse(format!(" line {line}: unknown key {key}; {hint}"))
    };
    for (section, value) in sections {
        let begins =
            |line: &str| line.strip_prefix(section.as_str()).is_some_and(|rest| rest.starts_with(':'));
        let line = (1..).zip(text.lines()).find(|(_, line)| begins(line)).map_or(0, |(number, _)| number);
        if !SECTIONS.iter().any(|known| known.name == section) && !ELSEWHERE.contains(&section.as_str()) {
            return Err(unknown(line, section, SECTIONS.iter().map(|known| known.name).collect()));
        }
        if !value.is_object() && !value.is_null() {
            return Err(refuse(format!(
                " line {line}: {section} has settings below it, and no value of its own"
            )));
        }
    }
    let placed: Keys<Keys<Spanned<Value>>> = serde_saphyr::from_str(text).map_err(invalid)?;
    let mut found = LayerValues(BTreeMap::new());
    for (section, keys) in placed.into_iter().flatten() {
        if ELSEWHERE.contains(&section.as_str()) {
            continue;
        }
        let known =
            SECTIONS.iter().find(|known| known.name == section).map_or(&[][..], |known| known.settings);
        for (key, value) in keys.into_iter().flatten() {
            let line = value.referenced.line();
            let Some(setting) = known.iter().find(|setting| setting.key() == key) else {
                let keys = known.iter().map(Setting::key).collect();
                return Err(unknown(line, &format!("{section}.{key}"), keys));
            };
            // A key without a value has its default.
            if !value.value.is_null() {
                found
                    .0
                    .insert(setting.path, (value.value, ValueOrigin::File { name: name.to_owned(), line }));
            }
        }
    }
    Ok(found)
}

/// Whether a variable of ours is of a section.
fn is_of(variable: &str, section: &str) -> bool {
    let rest = variable.strip_prefix(ENVIRONMENT_PREFIX).unwrap_or_default();
    rest.strip_prefix(&section.to_uppercase()).is_some_and(|rest| rest.starts_with('_'))
}

fn nearest(name: &str, candidates: impl Iterator<Item = String>) -> Option<String> {
    candidates
        .map(|candidate| (strsim::jaro_winkler(name, &candidate), candidate))
        .filter(|(score, _)| *score > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

/// Whether Kubernetes has set a variable: for each service of a namespace its pods have `NAME_PORT=tcp://10.0.0.1:9400` and more,
/// and a service `gpuvitals-agent` gives the very name of a setting.
fn is_service_link(name: &str, value: &str) -> bool {
    name.ends_with("_PORT") && value.contains("://")
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use gpuvitals_agent::AgentSettings;
    use gpuvitals_listener::WebOrigin;
    use gpuvitals_queue::BrokerSettings;
    use gpuvitals_settings::Typed as _;
    use serde_json::json;

    use super::*;

    fn load(text: &str, environment: &[(&str, &str)], flags: Vec<Override>) -> Result<Config, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let environment = environment.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()).into());
        let layers = Layers::load(Some(file.path()), environment, flags);
        layers.and_then(|layers| layers.check()).map_err(|e| e.to_string())
    }

    #[test]
    fn a_variable_belongs_to_the_section_that_it_begins_with() {
        assert!(is_of("GPUVITALS_API_PORT", "api") && is_of("GPUVITALS_MESSAGE_QUEUE_CA", "message_queue"));
        assert!(!is_of("GPUVITALS_APIS_PORT", "api") && !is_of("GPUVITALS_API", "api"));
    }

    #[test]
    fn flags_win_over_environment_over_file_over_defaults() {
        let flag = || Override { setting: "api.port", value: "3".into(), flag: "--port" };
        let port = |text, environment: &[_], flags| load(text, environment, flags).unwrap().api.port;
        assert_eq!(port("", &[], vec![]), 8081);
        assert_eq!(port("api:\n  port: 1\n", &[], vec![]), 1);
        assert_eq!(port("api:\n  port: 1\n", &[("GPUVITALS_API_PORT", "2")], vec![]), 2);
        assert_eq!(port("api:\n  port: 1\n", &[("GPUVITALS_API_PORT", "2")], vec![flag()]), 3);
    }

    fn agent(variables: &[(&str, &str)], flags: Vec<Override>) -> Result<AgentSettings, String> {
        let variables = variables.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()).into());
        let layers = Layers::load(None, with_shared(variables), flags);
        layers.and_then(|layers| layers.check()).map(|config| config.agent).map_err(|e| e.to_string())
    }

    #[test]
    fn shared_variables_set_the_agent_and_ours_and_flags_win() {
        let shared = [
            ("EXPORTER_PORT", "1234"),
            ("COLLECTION_INTERVAL", "15"),
            ("METRICS_PATH", "/m"),
            ("LOG_LEVEL", ""),
        ];
        let set = agent(&shared, vec![]).unwrap();
        let quarter = Duration::from_secs(15);
        assert_eq!((set.port, set.interval, &*set.metrics_path), (1234, quarter, "/m"));
        assert_eq!(set.publish_interval, quarter);
        assert_eq!(
            agent(&[("COLLECTION_INTERVAL", "30s")], vec![]).unwrap().interval,
            Duration::from_secs(30)
        );
        let both = [("GPUVITALS_AGENT_PORT", "2"), ("EXPORTER_PORT", "1")];
        assert_eq!(agent(&both, vec![]).unwrap().port, 2);
        let flag = Override { setting: "agent.port", value: "3".into(), flag: "--port" };
        assert_eq!(agent(&both, vec![flag]).unwrap().port, 3);
        let linked = [("GPUVITALS_AGENT_PORT", "2"), ("EXPORTER_PORT", "tcp://10.0.0.1:80")];
        assert_eq!(agent(&linked, vec![]).unwrap().port, 2, "a service is called exporter");
        assert_eq!(agent(&linked[1..], vec![]).unwrap().port, 9400);
        assert!(agent(&[("EXPORTER_PORT", "many")], vec![]).unwrap_err().contains("variable EXPORTER_PORT"));
    }

    #[test]
    fn what_is_wrong_in_a_file_has_its_line() {
        for (text, line, words) in [
            ("api:\n  listen: 127.0.0.1\n  prot: 1\n", "line 3", "unknown key api.prot; did you mean port?"),
            ("# none\napu: {}\n", "line 2", "unknown key apu; did you mean api?"),
            ("api: 5\n", "line 1", "api has settings below it, and no value of its own"),
            ("api:\n  port: abc\n", "line 2", "api.port: \"abc\" is no whole number from 0 to 65535"),
            ("log:\n  level: info\napi:\n\n  port: 70000\n", "line 5", "api.port: \"70000\""),
            ("store:\n  flush_age: soon\n", "line 2", "store.flush_age: \"soon\""),
            ("source:\n  speed: -1\n", "line 2", "source.speed: -1 is too low"),
            ("shutdown:\n  grace: later\n", "line 2", "shutdown.grace: "),
            ("log:\n  level: nonsense=loud\n", "line 2", "log.level: "),
            ("agent:\n  interval: 2h\n", "line 2", "agent.interval: 2h is out of range: 1s to 1h"),
            ("collector:\n  ack_timeout_seconds: 0\n", "line 2", "0 is too low: 1 is the least"),
            ("broker:\n  messages_max: 0\n", "line 2", "0 is too low"),
            ("broker:\n  persistence: maybe\n", "line 2", "\"maybe\" is none of auto, true, false"),
            ("collector:\n  sinks: []\n", "line 2", "it names no sink; there are store, "),
            ("broker:\n  durability: safe\n", "line 2", "\"safe\" is none of memory, written, synced"),
            ("listener:\n  tls_cert: a.pem\n", "line 2", "listener.tls_cert: it needs listener.tls_key"),
            ("sampling:\n  drivers: [nvml, cuda]\n", "line 2", "\"cuda\" is none of"),
            ("api:\n  port: [1]\n", "line 2", "api.port: [1] is no single value"),
        ] {
            let error = load(text, &[], vec![]).unwrap_err();
            assert!(error.contains(line) && error.contains(words), "{text}: {error}");
        }
        assert!(load("- a\n", &[], vec![]).unwrap_err().contains("has no sections"));
        assert!(load("a: b: c\n", &[], vec![]).unwrap_err().contains("is not valid YAML"));
    }

    #[test]
    fn a_directory_turns_persistence_on_wherever_it_is_named() {
        let broker = |text: &str, environment: &[_], flags| -> BrokerSettings {
            load(&format!("broker:\n  max_retries: 3\n{text}"), environment, flags).unwrap().broker
        };
        let directory = |text: &str, environment: &[_], flags| {
            let broker = broker(text, environment, flags);
            (broker.directory().map(|path| path.display().to_string()), broker.ineffective_settings().len())
        };
        let (named, kept) = ("  persistence_path: mq\n", (Some("mq".to_owned()), 0));
        let flag =
            Override { setting: "broker.persistence_path", value: "mq".into(), flag: "--persistence-path" };
        let variable = [("GPUVITALS_BROKER_PERSISTENCE_PATH", "mq")];
        assert_eq!(directory("", &[], vec![]), (None, 0));
        assert_eq!(directory(named, &[], vec![]), kept);
        assert_eq!(directory("", &variable, vec![]), kept);
        assert_eq!(directory("", &[], vec![flag]), kept);
        assert_eq!(directory("  persistence: true\n", &[], vec![]), (Some("/data/mq".to_owned()), 0));
        assert_eq!(directory(named, &[("GPUVITALS_BROKER_PERSISTENCE", "true")], vec![]), kept);
        // An ineffective setting is reported.
        assert_eq!(directory("  persistence: false\n", &variable, vec![]), (None, 1));
        assert_eq!(directory("  durability: written\n", &[], vec![]), (None, 1));
        assert_eq!(directory("  durability: memory\n", &[], vec![]), (None, 0));
        assert!(broker("  persistence: true\n", &[], vec![]).keeps());
        assert!(!broker("  persistence: true\n  durability: memory\n", &[], vec![]).keeps());
    }

    #[test]
    fn the_queue_is_named_by_a_url_without_secrets() {
        let address = |url: &str| load(&format!("message_queue:\n  address: \"{url}\"\n"), &[], vec![]);
        assert_eq!(address("nats://n").unwrap().message_queue.address.authority.port, 4222);
        let error = address("http://user:secret@host").unwrap_err();
        assert!(error.contains("message_queue.address: ") && !error.contains("secret@"), "{error}");
    }

    #[test]
    fn the_queue_of_this_machine_is_reached_as_it_is_served() {
        let address = |text: &str| load(text, &[], vec![]).unwrap().queue_elsewhere().address.to_string();
        assert_eq!(address(""), "http://127.0.0.1:9090");
        let tls = "broker:\n  port: 9443\nlistener:\n  tls_cert: a.pem\n  tls_key: b.pem\n";
        assert_eq!(address(tls), "https://127.0.0.1:9443");
        assert_eq!(address(&format!("{tls}message_queue:\n  address: grpc://q\n")), "grpc://q:9090");
    }

    #[test]
    fn a_file_with_database_queue_and_collector_alone_is_accepted() {
        let text = "database:\n  host: localhost\n  port: 5432\n  user: gpu\n  password: s3cret\n  dbname: telemetry\n  \
            sslmode: disable\nmessage_queue:\n  address: \"localhost:50051\"\ncollector:\n  batch_size: 100\n  \
            max_in_flight: 1000\n  ack_timeout_seconds: 30\n  worker_count: 4\n";
        let config = load(text, &[], vec![]).unwrap();
        assert_eq!(config.message_queue.address.to_string(), "grpc://localhost:50051");
        assert_eq!((config.database.host.as_str(), config.database.port), ("localhost", 5432));
        let shown = Layers::of(vec![("database.password", json!("s3cret"))]).render();
        assert!(shown.contains("password: \"***\"") && !shown.contains("s3cret"), "{shown}");
    }

    #[test]
    fn replays_that_would_flood_or_invent_the_future_are_refused() {
        let file = "source:\n  kind: replay\n  replay: x.csv\n";
        let refused = |text: &str| load(&format!("{file}{text}"), &[], vec![]).unwrap_err();
        assert!(refused("  loop: true\n").contains("--times now"));
        assert!(refused("  times: now\n  rate: 5\n").contains("source.speed"));
        assert!(load(&format!("{file}  times: now\n  loop: true\n"), &[], vec![]).is_ok());
    }

    #[test]
    fn a_text_is_read_as_the_type_of_the_setting() {
        let environment = [
            ("GPUVITALS_MESSAGE_QUEUE_ADDRESS", "inproc:"),
            ("GPUVITALS_STORE_DIR", "2024"),
            ("GPUVITALS_LOG_LEVEL", "off"),
            ("GPUVITALS_API_CORS", "https://a.b, https://c.d"),
            ("GPUVITALS_AGENT_REQUIRE_GPUS", "ON"),
            ("GPUVITALS_SAMPLING_DRIVERS", "nvml,procfs"),
        ];
        let config =
            load("agent:\n  compat: off\nattribution:\n  slurm: off\n", &environment, vec![]).unwrap();
        assert_eq!(config.store.dir, PathBuf::from("2024"));
        assert_eq!(
            config.api.cors,
            ["https://a.b", "https://c.d"].map(|it| WebOrigin::read(&it.into()).unwrap())
        );
        assert!(config.agent.require_gpus);
        assert_eq!(config.sampling.drivers.len(), 2);
    }

    #[test]
    fn the_address_of_a_service_is_no_port_of_ours() {
        let (name, link) = ("GPUVITALS_AGENT_PORT".to_owned(), "tcp://10.0.0.1:9400".to_owned());
        let layers = Layers::load(None, [(name.clone(), link).into()].into_iter(), vec![]).unwrap();
        assert_eq!(layers.check().unwrap().agent.port, 9400);
        assert_eq!((layers.service_links, layers.strangers), (vec![name], vec![]));
        let shared = [("EXPORTER_PORT".to_owned(), "tcp://10.0.0.1:80".to_owned()).into()];
        let layers = Layers::load(None, with_shared(shared.into_iter()), vec![]).unwrap();
        assert_eq!(layers.service_links, ["EXPORTER_PORT"], "the name that was read");
        assert!(load("", &[("GPUVITALS_AGENT_PORT", "tcp")], vec![]).unwrap_err().contains("port"));
    }

    #[test]
    fn a_stranger_in_the_environment_is_named() {
        let environment = [("GPUVITALS_API_PROT".to_owned(), "1".to_owned()).into()].into_iter();
        let layers = Layers::load(None, environment, vec![]).unwrap();
        let near = Some("GPUVITALS_API_PORT".to_owned());
        assert_eq!(layers.strangers, vec![("GPUVITALS_API_PROT".to_owned(), near)]);
    }
}
