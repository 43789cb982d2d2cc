//! Section `flight` of the configuration.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::Duration;

use gpuvitals_analysis::findings::KINDS;
use gpuvitals_listener::client::{BearerToken, CredentialError, Credentials};
use gpuvitals_listener::{ServiceUrl, secret};
use gpuvitals_log::state_directory;
use gpuvitals_settings::{Refusal, Texts, settings};

use crate::rule::FlightRule;

/// The directory that the system gives the agent.
const AUTO: &str = "auto";
/// Words for no ring: YAML reads a bare `off` as `false`.
const OFF: [&str; 3] = ["off", "false", ""];
/// Name of the directory below the one that the system gives.
const NAME: &str = "flight";
/// Most rules: each is looked at with every row.
const RULES_MAX: usize = 64;

settings! {
    /// The flight recorder of an agent: its last minutes on disk, kept around what happens
    pub struct FlightSettings = "flight", check Self::check {
        /// Directory of the ring and its incidents: auto (flight in $STATE_DIRECTORY, which systemd sets), off, or a path
        dir: String = "auto", flag "--flight-dir DIR";
        /// Minutes that the ring holds
        pub minutes: u32 = 10, from 1 to 60;
        /// Samples of a GPU a second for the ring alone, if more than the agent's; 0: the agent's
        pub rate: f64 = 0.0, from 0.0 to 1000.0;
        /// Time after a trigger that its incident has, too
        pub after: Duration = "60s", from "1s" to "10m";
        /// Most incidents that are kept; beyond them, or beyond 512 MiB, the oldest go
        pub keep: usize = 20, from 1 to 1000;
        /// Thresholds that are triggers, too: METRIC OP NUMBER or METRIC OP FACTOR * METRIC, then perhaps for DURATION, such as
        /// "temperature_c > 95 for 10s"
        triggers: Texts = [];
        /// Kinds of findings for which a gateway asks the nodes of the job that they are about, if these listen
        findings: Texts = ["job_hung", "node_silent"];
        /// Gateway that is told of incidents and asks the other nodes of the job for the same time: http:// or https://HOST:8081;
        /// empty: a node has its own incidents only
        pub gateway: Option<ServiceUrl<8081>> = "", flag "--flight-gateway URL";
        /// File with the token for the gateway, whose scope is flight, mode 0600
        gateway_token_file: Option<PathBuf> = "";
        /// Authorities (PEM) that sign the gateway's certificate; empty: those of the system
        gateway_ca: Option<PathBuf> = "";
        /// Certificate chain (PEM) of the agent, if the gateway asks for one
        gateway_client_cert: Option<PathBuf> = "";
        /// Its private key (PEM)
        gateway_client_key: Option<PathBuf> = "";
    }
}

impl FlightSettings {
    /// Refuses rules that are none, and half an identity.
    fn check(&self) -> Result<(), Refusal> {
        let refuse = |why: String| Refusal::new("flight.triggers", why);
        if self.triggers.0.len() > RULES_MAX {
            return Err(refuse(format!(
                "{} rules are too many: {RULES_MAX} are the most",
                self.triggers.0.len()
            )));
        }
        let read = |text: &String| text.parse::<FlightRule>().map(drop);
        self.triggers.0.iter().try_for_each(read).map_err(|error| refuse(error.to_string()))?;
        let is_kind = |name: &String| KINDS.iter().any(|kind| kind.id == name);
        if let Some(name) = self.findings.0.iter().find(|name| !is_kind(name)) {
            let why = format!("{name:?} is no kind of finding: docs/findings.md has a table of them");
            return Err(Refusal::new("flight.findings", why));
        }
        Refusal::unless_both(
            ("flight.gateway_client_cert", &self.gateway_client_cert),
            ("flight.gateway_client_key", &self.gateway_client_key),
        )
    }

    /// The agent's credentials for the gateway, as their files are now.
    ///
    /// # Errors
    /// If the file of the token cannot be read, or others can read it.
    pub fn gateway_access(&self) -> Result<Credentials, CredentialError> {
        let read = |path: &PathBuf| BearerToken::read(path, "flight.gateway_token_file");
        let token = self.gateway_token_file.as_ref().map(read).transpose()?;
        let identity = self.gateway_client_cert.clone().zip(self.gateway_client_key.clone());
        Ok(Credentials { ca: self.gateway_ca.clone(), identity, token, ..Credentials::default() })
    }

    /// Warns of a private key that everyone can read. Credentials are read for each connection, and this is said once.
    pub fn warn_of_key(&self) {
        if let Some(key) = &self.gateway_client_key {
            secret::warn_of_key(key);
        }
    }

    /// The rules that `triggers` names.
    pub fn rules(&self) -> Vec<FlightRule> {
        // Those that are none were refused when the settings were read.
        self.triggers.0.iter().filter_map(|text| text.parse().ok()).collect()
    }

    /// The kinds of findings for which a gateway asks the nodes of a job.
    pub fn findings(&self) -> Vec<String> {
        self.findings.0.clone()
    }

    /// The directory, where `state` is what the system says in `STATE_DIRECTORY`.
    ///
    /// # Errors
    /// Why there is none, and what gives one.
    pub fn directory(&self, state: Option<&OsStr>) -> Result<PathBuf, String> {
        match self.dir.as_str() {
            word if OFF.contains(&word) => Err("flight.dir is off".to_owned()),
            AUTO => state.and_then(|given| state_directory(given, NAME)).ok_or_else(|| {
                "STATE_DIRECTORY is not set; flight.dir names a directory, such as /var/lib/gpuvitals/flight".to_owned()
            }),
            path => Ok(PathBuf::from(path)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use gpuvitals_settings::{Section, Value};
    use serde_json::json;

    use super::*;

    fn of(set: &[(&str, Value)]) -> Result<FlightSettings, String> {
        FlightSettings::of(set).map_err(|refusal| format!("{}: {}", refusal.setting, refusal.why))
    }

    #[test]
    fn the_directory_is_the_systems_unless_one_is_named() {
        let check = |dir: &str, state: Option<&str>, wanted: Result<&str, &str>| {
            let settings = of(&[("flight.dir", json!(dir))]).unwrap();
            match (settings.directory(state.map(OsStr::new)), wanted) {
                (Ok(path), Ok(wanted)) => assert_eq!(path, Path::new(wanted), "{dir} {state:?}"),
                (Err(why), Err(wanted)) => assert!(why.contains(wanted), "{why}"),
                (found, wanted) => panic!("{dir} {state:?}: {found:?}, {wanted:?}"),
            }
        };
        check("auto", Some("/var/lib/gpuvitals"), Ok("/var/lib/gpuvitals/flight"));
        check("auto", Some("/var/lib/x/spool:/var/lib/x/flight"), Ok("/var/lib/x/flight"));
        check("auto", Some("relative"), Err("STATE_DIRECTORY"));
        check("auto", None, Err("STATE_DIRECTORY"));
        check("off", Some("/var/lib/gpuvitals"), Err("off"));
        check("/data/ring", None, Ok("/data/ring"));
    }

    #[test]
    fn a_gateway_is_named_by_its_url_and_an_identity_is_whole() {
        let gateway = of(&[("flight.gateway", json!("https://gpuvitals.example/"))]).unwrap().gateway;
        assert_eq!(gateway.unwrap().to_string(), "https://gpuvitals.example:8081");
        assert!(of(&[]).unwrap().gateway.is_none());
        for (setting, text) in
            [("flight.gateway", "gpuvitals.example"), ("flight.gateway_client_cert", "c.pem")]
        {
            let refused = of(&[(setting, json!(text))]).unwrap_err();
            assert!(refused.starts_with("flight.gateway"), "{refused}");
        }
    }

    #[test]
    fn a_wrong_rule_is_refused_with_a_caret() {
        let refused = of(&[("flight.triggers", json!(["power_w > 1", "power_w >> 1"]))]).unwrap_err();
        assert!(refused.starts_with("flight.triggers: "), "{refused}");
        assert!(refused.ends_with("\n  power_w >> 1\n          ^"), "{refused}");
        assert!(of(&[("flight.triggers", json!(vec!["power_w > 1"; RULES_MAX + 1]))]).is_err());
        assert_eq!(of(&[("flight.triggers", json!(["power_w > 1 for 2s"]))]).unwrap().rules().len(), 1);
    }

    #[test]
    fn findings_are_named_by_their_kinds() {
        assert_eq!(of(&[]).unwrap().findings(), ["job_hung", "node_silent"]);
        assert_eq!(of(&[("flight.findings", json!(["straggler"]))]).unwrap().findings(), ["straggler"]);
        let refused = of(&[("flight.findings", json!(["job_hung", "job_hang"]))]).unwrap_err();
        assert!(refused.starts_with("flight.findings: \"job_hang\" is no kind"), "{refused}");
    }
}
