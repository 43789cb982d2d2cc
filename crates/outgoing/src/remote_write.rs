//! Prometheus remote write, 1.0 and 2.0: the families of a service, sent to a receiver at every interval.
//!
//! - **Samples** are the values of the families under the names and labels of `/metrics`, each with the time at which it was
//!   measured. A value that was sent is not sent again; a series that is no longer there is ended with Prometheus'
//!   staleness marker. A process that ends marks nothing: the next one goes on.
//! - **The receiver** decides: 5xx, 429 and silence are tried again until the samples are too old, every other refusal drops
//!   the request. Which version it speaks is found out with the first request.

mod answer;
mod figures;
mod message;
mod packing;
mod receiver;
mod series;
mod settings;

use std::time::Duration;

use gpuvitals_listener::Figures;
use gpuvitals_listener::client::CredentialError;

use self::receiver::PrometheusReceiver;
use crate::families::ReadFamilies;
use crate::sending::{Outgoing, Terms};

pub use self::settings::RemoteWriteSettings;

/// Sends a service's families.
#[derive(Debug)]
pub struct RemoteWrite(Outgoing<PrometheusReceiver>);

impl RemoteWrite {
    /// Starts sending what `families` reads; `origin` is the node's name. Called inside the runtime that it is to run on.
    ///
    /// # Errors
    /// When a file of the settings cannot be used.
    pub fn start(
        settings: &RemoteWriteSettings,
        http: ureq::Agent,
        origin: &str,
        families: ReadFamilies,
    ) -> Result<Self, CredentialError> {
        // Said at the start, not with the first request.
        settings.headers()?;
        let terms = Terms {
            interval: settings.interval,
            queue_max: settings.queue_max.0,
            max_age: Some(settings.max_age),
        };
        let receiver = PrometheusReceiver::new(settings, http, origin);
        let sending = Outgoing::start(receiver, terms, families);
        tracing::info!(receiver = settings.shown_url(), "metrics are sent by remote write");
        Ok(Self(sending))
    }

    /// What became of its samples, as families of metrics.
    pub fn figures(&self) -> Figures {
        let sender = self.0.sender();
        Figures::new(move || figures::families(sender.counts(), sender.waiting()))
    }

    /// Takes the last values and sends what waits, at most for `grace`; what is left is dropped, and said.
    pub async fn finish(self, grace: Duration) {
        self.0.finish(grace).await;
    }
}
