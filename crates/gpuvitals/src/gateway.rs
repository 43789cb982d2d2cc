//! Section `gateway` of the configuration: where `gpuvitals serve` finds its collectors.

use std::path::PathBuf;
use std::time::Duration;

use gpuvitals_listener::client::{BearerToken, Credentials};
use gpuvitals_listener::{ServiceUrl, secret};
use gpuvitals_settings::{Refusal, settings};

use crate::failure::{Exit, Failure};

/// Where a collector is.
pub(crate) type CollectorUrl = ServiceUrl<8080>;

settings! {
    /// `gpuvitals serve`: the gateway to collectors elsewhere
    pub(crate) struct Gateway = "gateway", check Self::check {
        /// Collectors to ask: http:// or https://HOST:PORT, several with commas between them. A name with several addresses is as
        /// many collectors, and is looked up again every few seconds
        pub collectors: Vec<CollectorUrl> = ["http://127.0.0.1:8080"], flag "--collectors URLS";
        /// Longest wait for a collector; after it an answer goes without its rows, and names it
        pub timeout: Duration = "5s", from "100ms" to "1h";
        /// Authorities (PEM) that sign the collectors' certificates; empty: those of the system
        ca: Option<PathBuf> = "";
        /// Certificate chain (PEM) of the gateway, if the collectors ask for one
        client_cert: Option<PathBuf> = "";
        /// Its private key (PEM)
        client_key: Option<PathBuf> = "";
        /// File with the token that the collectors ask for, mode 0600
        token_file: Option<PathBuf> = "";
    }
}

impl Gateway {
    /// Refuses impossible settings.
    fn check(&self) -> Result<(), Refusal> {
        if self.collectors.is_empty() {
            return Err(Refusal::new("gateway.collectors", "it names no collector".to_owned()));
        }
        Refusal::unless_both(
            ("gateway.client_cert", &self.client_cert),
            ("gateway.client_key", &self.client_key),
        )
    }

    /// The gateway's credentials, read from their files.
    ///
    /// # Errors
    /// If the file of the token cannot be read, or others can read it.
    pub(crate) fn access(&self) -> Result<Credentials, Failure> {
        let read = |path: &PathBuf| BearerToken::read(path, "gateway.token_file");
        let token = self.token_file.as_ref().map(read).transpose();
        let token = token.map_err(|e| Failure::caused(Exit::Config, "configuration", e))?;
        if let Some(key) = &self.client_key {
            secret::warn_of_key(key);
        }
        let identity = self.client_cert.clone().zip(self.client_key.clone());
        Ok(Credentials { ca: self.ca.clone(), identity, token, ..Credentials::default() })
    }
}
