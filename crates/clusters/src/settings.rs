//! Section `kubernetes` of the configuration.

use std::collections::BTreeSet;
use std::sync::Arc;

use gpuvitals_settings::{Notation, Refusal, Typed, Value, settings};

use crate::config::{Cluster, ClusterSettings, ConfigError, PARALLEL, PARALLEL_MAX};

settings! {
    /// Clusters on which nothing is installed: their NVIDIA GPUs, by nvidia-smi in the driver's pods; `up` and `serve` read them
    pub struct Kubernetes = "kubernetes", check Self::check {
        /// The clusters, each with name and api_url at least: [{name: east, api_url: "https://10.0.0.1:6443",
        /// token_file: /etc/gpuvitals/east.token, ca_file: /etc/gpuvitals/east-ca.pem}]; docs/kubernetes.md has the other
        /// settings of a cluster. In the environment JSON
        pub clusters: ClusterList = [];
        /// Labels of nodes that are kept and shown, also in gpuvitals_node_info; * at the end stands for anything
        pub node_labels: Vec<String> = ["nvidia.com/*", "amd.com/*", "beta.amd.com/*", "node-role.kubernetes.io/gpu",
            "kubernetes.io/hostname", "node.kubernetes.io/instance-type", "topology.kubernetes.io/region", "topology.kubernetes.io/zone"];
    }
}

impl Kubernetes {
    /// Refuses clusters that cannot be read as configured.
    fn check(&self) -> Result<(), Refusal> {
        let refused = |error: crate::ConfigError| Refusal::new("kubernetes.clusters", error.to_string());
        Cluster::checked(self).map(drop).map_err(refused)
    }
}

impl Cluster {
    /// The clusters of a configuration, checked.
    ///
    /// # Errors
    /// When one cannot be read as configured, or two have the same name.
    pub fn checked(Kubernetes { clusters, node_labels }: &Kubernetes) -> Result<Vec<Self>, ConfigError> {
        let all = &clusters.0;
        let node_labels: Arc<[String]> = Arc::from(node_labels.as_slice());
        let mut names = BTreeSet::new();
        for settings in all {
            if !names.insert(settings.name.as_str()) {
                return Err(ConfigError::Twice(settings.name.clone()));
            }
        }
        let read = || all.iter().filter(|settings| settings.has_gpu);
        let given = read().filter_map(|settings| settings.parallel).fold(0, usize::saturating_add);
        let open = read().filter(|settings| settings.parallel.is_none()).count();
        let share = (PARALLEL_MAX.saturating_sub(given) / open.max(1)).clamp(1, PARALLEL);
        let check =
            |settings: &ClusterSettings| Self::check(settings.clone(), share, Arc::clone(&node_labels));
        let clusters = all.iter().map(check).collect::<Result<Vec<_>, _>>()?;
        let parallel = given.saturating_add(share * open);
        if parallel > PARALLEL_MAX {
            return Err(ConfigError::Parallel(parallel));
        }
        Ok(clusters)
    }
}

/// Clusters as the file has them.
#[derive(Debug, Clone, PartialEq)]
pub struct ClusterList(pub Vec<ClusterSettings>);

impl Typed for ClusterList {
    const NOTATION: Notation = Notation::Objects(&["token"]);

    fn read(value: &Value) -> Result<Self, String> {
        let parsed;
        let value = match value {
            Value::String(text) if text.trim().is_empty() => return Ok(Self(Vec::new())),
            Value::String(text) => {
                // The text is not repeated: it may hold a token.
                parsed = serde_json::from_str(text).map_err(|_| "it is no JSON".to_owned())?;
                &parsed
            }
            other => other,
        };
        let Value::Array(entries) = value else { return Err("it is no list of clusters".to_owned()) };
        let read = |(at, entry)| entry_of(entry).map_err(|why| format!("entry {at}: {why}"));
        (1..).zip(entries).map(read).collect::<Result<_, _>>().map(Self)
    }
}

/// A cluster; if it is none the field at fault and why.
fn entry_of(entry: &Value) -> Result<ClusterSettings, String> {
    let Value::Object(fields) = entry else { return Err("it has no fields".to_owned()) };
    serde_path_to_error::deserialize(entry).map_err(|error| {
        let name = fields.get("name").and_then(Value::as_str);
        let name = name.map_or(String::new(), |name| format!("cluster {name}: "));
        // The path of the whole entry is a point.
        let field = Some(error.path().to_string()).filter(|path| path != ".");
        let field = field.map_or(String::new(), |field| format!("{field}: "));
        format!("{name}{field}{}", error.inner())
    })
}
