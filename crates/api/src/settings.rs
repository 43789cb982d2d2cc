//! Section `api` of the configuration.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use gpuvitals_listener::WebOrigin;
use gpuvitals_settings::{Refusal, settings};

use crate::config::{
    ApiConfig, CACHE_ENTRIES, JobPrices, Limits, METRICS_MAX, PROMQL_VALUES_MAX, QUERIES, STEPS_MAX, STREAMS,
    VALUES_MAX,
};
use crate::rack::RackPattern;

settings! {
    /// REST and dashboard of `gpuvitals up`
    pub struct ApiSettings = "api" {
        /// Address to listen on. Any address but loopback needs listener.token_file
        pub listen: IpAddr = "127.0.0.1", flag "--listen ADDRESS";
        /// Port of REST, live stream and dashboard; 0 takes a free one and prints it
        pub port: u16 = 8081, flag "--port PORT";
        /// Origins whose pages may use the API from another site, such as `https://ops.example.org`
        pub cors: Vec<WebOrigin> = [];
        /// Answers kept until newer rows arrive
        cache_entries: usize = CACHE_ENTRIES;
        /// Most live streams at the same time; one more is refused with 503
        streams: usize = STREAMS, from 1;
        /// Queries computed at the same time; more wait for their turn
        queries: usize = QUERIES, from 1;
        /// Most steps of a query; more are refused with what to change
        steps_max: usize = STEPS_MAX, from 1 to 100_000;
        /// Most values of a query, steps times series; more are refused with what to change
        values_max: usize = VALUES_MAX, from 1 to 2_000_000;
        /// Most metrics of a query; more are refused
        metrics_max: usize = METRICS_MAX, from 1;
        /// Most values that a query in PromQL reads; beyond it rollups are read, or it is refused
        promql_values_max: usize = PROMQL_VALUES_MAX, from 1;
        /// A GPU without a sample for this long is shown as stale
        stale_after: Duration = "90s";
        /// Regular expression whose first group is the rack in a host's name, such as `^(r[0-9]+)-`; empty: racks are not known
        rack_pattern: Option<RackPattern> = "";
        /// Show users as numbers, and not by name
        hide_users: bool = false;
        /// Longest time for an answer; then it is an error, and the work on it ends
        request_timeout: Duration = "30s", from "100ms" to "1h";
    }
}

settings! {
    /// What jobs cost, and which of their labels are shown, by `/api/v1/jobs` and `gpuvitals jobs`
    pub struct JobsSettings = "jobs", check Self::check {
        /// Price of a GPU hour, in any currency; empty: no cost is shown
        price_per_gpu_hour: Option<f64> = "";
        /// Price of a kWh, in the same currency; empty: no cost of energy is shown
        price_per_kwh: Option<f64> = "";
        /// CO2 of a kWh, grams; empty: none is shown
        carbon_g_per_kwh: Option<f64> = "";
        /// Keys of the labels of jobs that are shown, and by which jobs can be put together
        labels: Vec<String> = [];
    }
}

impl JobsSettings {
    /// Refuses prices below 0, and what is no key of a label.
    fn check(&self) -> Result<(), Refusal> {
        if let Some(key) = self.labels.iter().find(|key| key.is_empty() || key.contains([',', '=', ' '])) {
            let why = format!("{key:?} is no key; write one without blanks, commas and =, such as team");
            return Err(Refusal::new("jobs.labels", why));
        }
        let prices = [
            ("jobs.price_per_gpu_hour", self.price_per_gpu_hour),
            ("jobs.price_per_kwh", self.price_per_kwh),
            ("jobs.carbon_g_per_kwh", self.carbon_g_per_kwh),
        ];
        match prices.into_iter().find_map(|(setting, price)| Some((setting, price.filter(|it| *it < 0.0)?))) {
            Some((setting, price)) => {
                Err(Refusal::new(setting, format!("{price} is too low: 0 is the least")))
            }
            None => Ok(()),
        }
    }

    fn prices(&self) -> JobPrices {
        JobPrices {
            per_gpu_hour: self.price_per_gpu_hour,
            per_kwh: self.price_per_kwh,
            carbon_g_per_kwh: self.carbon_g_per_kwh,
        }
    }
}

impl ApiSettings {
    /// The settings of the gateway, with the prices of what it shows.
    pub fn config(&self, jobs: &JobsSettings) -> ApiConfig {
        ApiConfig {
            stale_after: self.stale_after,
            rack_pattern: self.rack_pattern.clone(),
            prices: jobs.prices(),
            job_labels: jobs.labels.iter().map(|key| Arc::from(key.as_str())).collect(),
            hides_users: self.hide_users,
            cors: self.cors.clone(),
            cache_entries: self.cache_entries,
            limits: Limits {
                streams: self.streams,
                queries: self.queries,
                steps_max: self.steps_max,
                values_max: self.values_max,
                metrics_max: self.metrics_max,
                promql_values_max: self.promql_values_max,
                request_timeout: self.request_timeout,
                ..Limits::default()
            },
            ..ApiConfig::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use gpuvitals_core::history::{BUCKETS_MAX, POINTS_MAX};
    use gpuvitals_settings::Section as _;

    use super::*;

    #[test]
    fn a_price_is_a_number_from_0_on_or_not_given() {
        let read = |price: &str| JobsSettings::of(&[("jobs.price_per_kwh", price.into())]);
        let per_kwh =
            |price| read(price).map(|jobs| jobs.prices().per_kwh).map_err(|refusal| refusal.setting);
        assert_eq!(per_kwh("0.25"), Ok(Some(0.25)));
        assert!(JobsSettings::of(&[("jobs.labels", serde_json::json!(["team", "a/b"]))]).is_ok());
        assert!(JobsSettings::of(&[("jobs.labels", serde_json::json!(["team=nlp"]))]).is_err());
        assert_eq!(per_kwh("0"), Ok(Some(0.0)));
        assert_eq!(per_kwh(""), Ok(None));
        assert_eq!(per_kwh("-1"), Err("jobs.price_per_kwh"));
        assert_eq!(per_kwh("much"), Err("jobs.price_per_kwh"));
    }

    #[test]
    fn no_limit_is_above_that_of_a_history() {
        for (setting, most) in [("api.steps_max", BUCKETS_MAX), ("api.values_max", POINTS_MAX)] {
            let row = ApiSettings::TABLE.settings.iter().find(|row| row.path == setting);
            let row = row.expect("it is a setting");
            assert!((row.check)(&most.into()).is_ok(), "{setting}: {most}");
            assert!((row.check)(&(most + 1).into()).is_err(), "{setting}: {}", most + 1);
        }
    }
}
