//! Section `agent` of the configuration.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use gpuvitals_core::catalogue::Series;
use gpuvitals_exposition::{Compat, ExpositionConfig};
use gpuvitals_settings::{Bytes, Refusal, settings, words};
use gpuvitals_sources::machine::Machine;

use crate::spool::LIMIT_MIN;

/// Where the agent listens unless told otherwise, if the folder is there.
pub const HOOK_SOCKET: &str = "/run/gpuvitals/agent.sock";

/// Paths that cannot be that of the metrics, since something else is there.
const OWN_PATHS: [&str; 4] = ["/", "/health", "/healthz", "/readyz"];

/// A setting that is as the machine is.
const AUTO: &str = "auto";
/// Words for no socket: YAML reads a bare `off` as `false`.
const NO_SOCKET: [&str; 3] = ["off", "false", ""];

settings! {
    /// The metrics of a node: `gpuvitals agent`
    pub struct AgentSettings = "agent", check Self::check {
        /// Address to listen on. Loopback unless told: metrics name users' pods and jobs, so think before you open it
        pub listen: IpAddr = "127.0.0.1", flag "--listen ADDRESS";
        /// Port; 0 takes a free one and prints it
        pub port: u16 = 9400, flag "--port PORT", also "EXPORTER_PORT";
        /// Path of the metrics
        pub metrics_path: String = "/metrics", flag "--path PATH", also "METRICS_PATH";
        /// Length of the windows that minimum, maximum, mean and p99 are over
        pub interval: Duration = "30s", from "1s" to "1h", flag "--interval DURATION", also "COLLECTION_INTERVAL";
        /// Which series; standard is at most 100 a GPU
        metrics: SetName = "standard", flag "--metrics SET";
        /// Which series of dcgm-exporter to add, for NVIDIA and AMD alike
        compat: CompatName = "off", flag "--compat NAMES";
        /// End with code 69 if no GPU is found, instead of serving the host alone
        pub require_gpus: bool = false, flag "--require-gpus BOOL";
        /// Labels of this Kubernetes node that are shown in gpuvitals_node_labels_info, read once with the pod's account; * at the
        /// end stands for anything
        pub node_labels: Vec<String> = ["nvidia.com/*", "amd.com/*", "beta.amd.com/*", "kubernetes.io/hostname",
            "node.kubernetes.io/instance-type", "topology.kubernetes.io/region", "topology.kubernetes.io/zone"];
        /// Socket on which hooks of Slurm tell of jobs: auto (/run/gpuvitals/agent.sock, if that folder exists), off, or an absolute path
        pub socket: String = "auto";
        /// Longest time of a row on its way to the queue, if message_queue.address names one
        pub publish_interval: Duration = "5s", from "100ms" to "1h", also "COLLECTION_INTERVAL";
        /// Directory for the rows that come while the queue is away; empty: they are kept in memory, 8 MiB at most
        spool_dir: Option<PathBuf> = "", flag "--spool-dir DIR";
        /// Bytes that the directory takes at most; beyond it the oldest rows go, counted
        pub spool_max: Bytes = "256MiB";
    }
}

/// Which series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SetName {
    /// The vital signs alone
    Basic,
    /// At most 100 series a GPU
    Standard,
    /// Everything that is read
    All,
}

/// Which series of other exporters are added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum CompatName {
    /// None
    Off,
    /// Those of dcgm-exporter
    Dcgm,
    /// Those of dcgm-exporter before its names were changed
    DcgmLegacy,
    /// Both
    Both,
}

words!(SetName, CompatName);

impl AgentSettings {
    /// Refuses impossible settings.
    fn check(&self) -> Result<(), Refusal> {
        let path = self.metrics_path.as_str();
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"/-_.~".contains(&b);
        if !path.starts_with('/') || !path.bytes().all(is_plain) || OWN_PATHS.contains(&path) {
            let why = format!("{path:?} is not possible; a path such as /metrics is needed");
            return Err(Refusal::new("agent.metrics_path", why));
        }
        if self.spool_dir.is_some() && self.spool_max.0 < LIMIT_MIN {
            let why = format!("{} bytes are too few; 8MiB is the least on disk", self.spool_max.0);
            return Err(Refusal::new("agent.spool_max", why));
        }
        let socket = self.socket.as_str();
        if socket != AUTO && !NO_SOCKET.contains(&socket) && !Path::new(socket).is_absolute() {
            let why = format!("{socket:?} is not possible; write auto, off or an absolute path");
            return Err(Refusal::new("agent.socket", why));
        }
        Ok(())
    }

    /// Settings of the exposition of GPUs that are sampled at this interval.
    pub fn exposition(&self, interval: Duration) -> ExpositionConfig {
        ExpositionConfig {
            set: match self.metrics {
                SetName::Basic => Series::Basic,
                SetName::Standard => Series::Standard,
                SetName::All => Series::All,
            },
            compat: match self.compat {
                CompatName::Off => Compat::Off,
                CompatName::Dcgm => Compat::Dcgm,
                CompatName::DcgmLegacy => Compat::DcgmLegacy,
                CompatName::Both => Compat::Both,
            },
            window: self.interval,
            interval,
        }
    }

    /// Whether both expose the same.
    pub fn exposes_as(&self, other: &Self) -> bool {
        (self.interval, self.metrics, self.compat) == (other.interval, other.metrics, other.compat)
    }

    /// Directory of the spool; none: in memory.
    pub fn spool_dir(&self) -> Option<&Path> {
        self.spool_dir.as_deref()
    }

    /// The socket for hooks, as set, or the usual one if its folder is there. A captured tree has none: this machine's hooks would tell of
    /// another.
    pub(crate) fn hook_socket(&self, machine: &Machine) -> Option<PathBuf> {
        match self.socket.as_str() {
            word if NO_SOCKET.contains(&word) => None,
            AUTO => {
                let socket = PathBuf::from(HOOK_SOCKET);
                let has_folder = socket.parent().is_some_and(Path::is_dir);
                (has_folder && !machine.is_captured()).then_some(socket)
            }
            path => Some(PathBuf::from(path)),
        }
    }

    /// Whether the socket for hooks is the usual one, which may be missing.
    pub(crate) fn is_hook_socket_auto(&self) -> bool {
        self.socket == AUTO
    }

    /// Whether both publish in the same way.
    pub fn publishes_as(&self, other: &Self) -> bool {
        (self.publish_interval, &self.spool_dir, self.spool_max)
            == (other.publish_interval, &other.spool_dir, other.spool_max)
    }
}

#[cfg(test)]
mod tests {
    use gpuvitals_settings::{Section, Value};
    use serde_json::json;

    use super::*;

    #[test]
    fn settings_that_cannot_be_are_refused() {
        let check = |set: &[(&str, Value)], words: &str| {
            let refusal = AgentSettings::of(set).unwrap_err();
            let refusal = format!("{}: {}", refusal.setting, refusal.why);
            assert!(refusal.contains(words), "{set:?}: {refusal}");
        };
        for path in ["metrics", "/healthz", "/a b"] {
            check(&[("agent.metrics_path", json!(path))], "agent.metrics_path: ");
        }
        for socket in ["on", "Auto", "agent.sock", "./run/agent.sock"] {
            check(&[("agent.socket", json!(socket))], "agent.socket: ");
        }
        for socket in ["auto", "off", "/run/other/agent.sock"] {
            assert!(AgentSettings::of(&[("agent.socket", json!(socket))]).is_ok(), "{socket}");
        }
        check(&[("agent.interval", json!("10ms"))], "1s to 1h");
        check(&[("agent.metrics", json!("some"))], "none of basic, standard, all");
        check(&[("agent.publish_interval", json!("10ms"))], "100ms to 1h");
        check(&[("agent.spool_dir", json!("/spool")), ("agent.spool_max", json!("1MiB"))], "8MiB");
    }
}
