//! The layers of the configuration: defaults, file, environment, flags.

use std::path::Path;

use serde_json::{Map, Value};

use super::{Config, DEFAULTS};
use crate::failure::{Exit, Failure};

const ENVIRONMENT_PREFIX: &str = "GPUVITALS_";
/// Variables of the command line itself, which are no settings.
const OWN_VARIABLES: [&str; 3] = ["GPUVITALS_CONFIG", "GPUVITALS_URL", "GPUVITALS_NVML_LIBRARY"];

/// A setting from the command line: path (`store.dir`) and value.
pub(crate) type Override = (&'static str, Value);

/// An environment variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Variable {
    /// Its name, or ours of the same meaning.
    pub name: String,
    /// Its name in the environment.
    pub given: String,
    /// Its value.
    pub value: String,
}

impl From<(String, String)> for Variable {
    fn from((name, value): (String, String)) -> Self {
        Self { given: name.clone(), name, value }
    }
}

/// Settings as a tree, still to be checked; `config show` prints it.
pub(crate) struct Layers {
    tree: Value,
    /// The tree without environment and flags.
    file: Value,
    /// Settings from the environment: name of the variable, path and value of the setting.
    variables: Vec<(String, String, Value)>,
    flags: Vec<Override>,
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
        environment: impl Iterator<Item = Variable>,
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
        let (mut strangers, mut service_links, mut variables) = (Vec::new(), Vec::new(), Vec::new());
        for Variable { name, given, value } in
            environment.filter(|it| it.name.starts_with(ENVIRONMENT_PREFIX))
        {
            if is_service_link(&name, &value) {
                service_links.push(name);
                continue;
            }
            match paths.iter().find(|path| variable_of(path) == name) {
                Some(path) => variables.push((given, path.clone(), typed(&value, get(&tree, path)))),
                None if OWN_VARIABLES.contains(&name.as_str()) => {}
                None => {
                    let nearest = nearest(&name, paths.iter().map(|path| variable_of(path)));
                    strangers.push((name, nearest));
                }
            }
        }
        let mut layers = Self { tree: Value::Null, file: tree, variables, flags, strangers, service_links };
        layers.tree = layers.laid(None, &layers.flags);
        Ok(layers)
    }

    /// The tree with the flags, and with all variables but one.
    fn laid(&self, without: Option<usize>, flags: &[Override]) -> Value {
        let mut tree = self.file.clone();
        let variables = self.variables.iter().enumerate().filter(|(at, _)| Some(*at) != without);
        for (_, (_, path, value)) in variables {
            set(&mut tree, path, value.clone());
        }
        for (path, value) in flags {
            set(&mut tree, path, value.clone());
        }
        tree
    }

    /// The settings, checked.
    ///
    /// # Errors
    /// When a value has the wrong type or cannot be: an error of usage where all is well without the flags.
    pub(crate) fn check(&self) -> Result<Config, Failure> {
        checked(&self.tree).map_err(|failure| {
            if checked(&self.laid(None, &[])).is_ok() {
                return failure.exiting(Exit::Usage);
            }
            // The variable at fault is the one without which all is well, or something else is wrong.
            let words = failure.to_string();
            let is_at_fault = |at: &usize| {
                checked(&self.laid(Some(*at), &self.flags))
                    .map_or_else(|other| other.to_string() != words, |_| true)
            };
            let at_fault = (0..self.variables.len()).find(is_at_fault).and_then(|at| self.variables.get(at));
            match at_fault {
                Some((name, ..)) => {
                    Failure::new(Exit::Config, format!("{words} (environment variable {name})"))
                }
                None => failure,
            }
        })
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

fn checked(tree: &Value) -> Result<Config, Failure> {
    let config: Config = serde_path_to_error::deserialize(tree).map_err(|error| {
        Failure::new(Exit::Config, format!("configuration: {}: {}", error.path(), error.inner()))
    })?;
    config.consistent()?;
    Ok(config)
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
    if defaults.is_empty() {
        return Ok(()); // its keys are names that a user gives
    }
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
    use std::path::PathBuf;

    use super::*;

    fn load(text: &str, environment: &[(&str, &str)], flags: Vec<Override>) -> Result<Config, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let environment = environment.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()).into());
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
    fn a_wrong_value_names_its_setting() {
        let error = load("store:\n  flush_age: soon\n", &[], vec![]).unwrap_err();
        assert!(error.contains("store.flush_age: ") && error.contains("soon"), "{error}");
        assert!(load("source:\n  speed: -1\n", &[], vec![]).unwrap_err().contains("source.speed"));
        assert!(load("api: 5\n", &[], vec![]).unwrap_err().contains("wrong shape"));
        assert!(load("shutdown:\n  grace: later\n", &[], vec![]).unwrap_err().contains("shutdown.grace: "));
        assert!(load("log:\n  level: nonsense=loud\n", &[], vec![]).unwrap_err().contains("log.level"));
        for zero in [
            "collector:\n  ack_timeout_seconds: 0\n",
            "broker:\n  messages_max: 0\n",
            "source:\n  interval: 0\n",
        ] {
            assert!(load(zero, &[], vec![]).unwrap_err().contains("must be above 0"), "{zero}");
        }
    }

    #[test]
    fn topics_have_names_of_their_own_and_known_terms() {
        let terms = |text: &str| load(&format!("broker:\n  topics: {text}\n"), &[], vec![]);
        let config = terms("{ any-name: { durability: memory } }").unwrap();
        assert_eq!(
            config.broker.topics["any-name"].durability,
            Some(crate::config::queue::Durability::Memory)
        );
        let kept = |settings: &str| {
            let config = load(
                &format!("broker:\n  topics: {{ a: {{ durability: memory }} }}\n{settings}"),
                &[],
                vec![],
            );
            ["a", "b"].map(|topic| config.as_ref().unwrap().broker.keeps(topic))
        };
        assert_eq!(kept(""), [false, false]);
        assert_eq!(kept("  persistence: true\n"), [false, true]);
        assert!(terms("{ a: { durable: memory } }").unwrap_err().contains("durable"));
        assert!(terms("[a]").unwrap_err().contains("broker.topics has the wrong shape"));
        let environment = [("GPUVITALS_BROKER_TOPICS", "{ b: { durability: written } }")];
        assert!(load("", &environment, vec![]).unwrap().broker.topics.contains_key("b"));
    }

    #[test]
    fn a_directory_turns_persistence_on_wherever_it_is_named() {
        let directory = |text: &str, environment: &[(&str, &str)], flags| {
            let config = load(&format!("broker:\n  max_retries: 3\n{text}"), environment, flags).unwrap();
            let in_vain = config.broker.in_vain().len();
            (config.broker.directory().map(|path| path.display().to_string()), in_vain)
        };
        let (named, kept) = ("  persistence_path: mq\n", (Some("mq".to_owned()), 0));
        let variable = [("GPUVITALS_BROKER_PERSISTENCE_PATH", "mq")];
        assert_eq!(directory("", &[], vec![]), (None, 0));
        assert_eq!(directory(named, &[], vec![]), kept);
        assert_eq!(directory("", &variable, vec![]), kept);
        assert_eq!(directory("", &[], vec![("broker.persistence_path", "mq".into())]), kept);
        assert_eq!(directory("  persistence: true\n", &[], vec![]), (Some("/data/mq".to_owned()), 0));
        let environment = [("GPUVITALS_BROKER_PERSISTENCE", "true")];
        assert_eq!(directory(named, &environment, vec![]), kept);
        // What is asked for and not had is said.
        assert_eq!(directory("  persistence: false\n", &variable, vec![]), (None, 1));
        assert_eq!(directory("  durability: written\n", &[], vec![]), (None, 1));
        assert_eq!(directory("  topics: { a: { durability: synced } }\n", &[], vec![]), (None, 1));
        assert_eq!(directory("  durability: memory\n", &[], vec![]), (None, 0));
        assert!(load("broker:\n  persistence: maybe\n", &[], vec![]).unwrap_err().contains("maybe"));
        assert!(load("broker:\n  durability: safe\n", &[], vec![]).unwrap_err().contains("safe"));
    }

    #[test]
    fn the_queue_is_named_by_a_url_without_secrets() {
        let address = |url: &str| load(&format!("message_queue:\n  address: {url}\n"), &[], vec![]);
        assert_eq!(address("nats://n").unwrap().message_queue.address.port, 4222);
        let error = address("http://user:secret@host").unwrap_err();
        assert!(error.contains("message_queue.address: ") && !error.contains("secret@"), "{error}");
        let half = load("message_queue:\n  client_cert: a.pem\n", &[], vec![]).unwrap_err();
        assert!(half.contains("belong together"), "{half}");
    }

    #[test]
    fn the_queue_of_this_machine_is_reached_as_it_is_served() {
        let address = |text: &str| load(text, &[], vec![]).unwrap().queue_elsewhere().address.to_string();
        assert_eq!(address(""), "http://127.0.0.1:9090");
        let tls = "broker:\n  port: 9443\n  tls_cert: a.pem\n  tls_key: b.pem\n";
        assert_eq!(address(tls), "https://127.0.0.1:9443");
        assert_eq!(address(&format!("{tls}message_queue:\n  address: grpc://q\n")), "grpc://q:9090");
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
        let layers = Layers::load(None, [(name.clone(), link).into()].into_iter(), vec![]).unwrap();
        assert_eq!(layers.check().unwrap().agent.port, 9400);
        assert_eq!((layers.service_links, layers.strangers), (vec![name], vec![]));
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
