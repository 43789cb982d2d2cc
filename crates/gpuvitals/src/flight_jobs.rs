//! The incidents of jobs that a gateway keeps, where it has a directory for them.

use std::sync::Arc;

use gpuvitals_api::Api;
use gpuvitals_core::causes;
use gpuvitals_flight::{FlightSettings, JobIncidents};

use crate::agent::STATE_DIRECTORY;

/// Opens them in the directory of the settings. A gateway without one keeps none, which its answers say.
pub(crate) fn keep(api: &Api, settings: &FlightSettings) {
    let state = std::env::var_os(STATE_DIRECTORY);
    let directory = match settings.directory(state.as_deref()) {
        Ok(directory) => directory,
        Err(why) => {
            tracing::debug!(why, "no incidents of jobs are kept");
            return;
        }
    };
    match JobIncidents::open(&directory, settings.keep) {
        Ok(incidents) => api.keep_flight(Arc::new(incidents), settings.findings()),
        Err(error) => {
            let directory = directory.display();
            tracing::warn!(
                %directory,
                error = causes(&error),
                "no incidents of jobs are kept: they need a directory that this user may write"
            );
        }
    }
}
