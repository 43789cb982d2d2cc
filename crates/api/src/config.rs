//! Settings of the gateway, with all of its limits.

use std::sync::Arc;
use std::time::Duration;

use gpuvitals_core::clock::Clock;
use gpuvitals_listener::WebOrigin;

use crate::assets::Page;
use crate::rack::RackPattern;

/// Entries of a list if a request does not say, and the most of them.
pub(crate) const PAGE: usize = 100;
pub(crate) const PAGE_MAX: usize = 10_000;
/// Defaults that are settings, too.
pub(crate) const CACHE_ENTRIES: usize = 1_024;
pub(crate) const STREAMS: usize = 2_048;
pub(crate) const QUERIES: usize = 8;
pub(crate) const STEPS_MAX: usize = 11_000;
pub(crate) const VALUES_MAX: usize = 2_000_000;
pub(crate) const METRICS_MAX: usize = 64;
pub(crate) const PROMQL_VALUES_MAX: usize = gpuvitals_promql::VALUES_MAX;

/// Settings of the gateway.
#[derive(Debug, Clone)]
pub struct ApiConfig {
    /// Age of its newest row from which a GPU counts as stale.
    pub stale_after: Duration,
    /// Takes the rack out of a host's name; none: racks are not known.
    pub rack_pattern: Option<RackPattern>,
    /// What a GPU hour and a kWh cost.
    pub prices: JobPrices,
    /// Keys of the labels of jobs that are shown.
    pub job_labels: Arc<[Arc<str>]>,
    /// Whether users are shown as numbers, and not by name.
    pub hides_users: bool,
    /// Origins whose pages may use the API; empty: only its own page.
    pub cors: Vec<WebOrigin>,
    /// Answers kept ready, about.
    pub cache_entries: usize,
    /// Limits on requests.
    pub limits: Limits,
    /// What is asked for the time.
    pub clock: Clock,
    /// The web page.
    pub page: Page,
}

impl Default for ApiConfig {
    fn default() -> Self {
        Self {
            stale_after: Duration::from_secs(90),
            rack_pattern: None,
            prices: JobPrices::default(),
            job_labels: Arc::default(),
            hides_users: false,
            cors: Vec::new(),
            cache_entries: CACHE_ENTRIES,
            limits: Limits::default(),
            clock: Clock::system(),
            page: Page::embedded(),
        }
    }
}

/// What the use of GPUs costs; without a price no cost is shown.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct JobPrices {
    /// Price of a GPU hour, in any currency.
    pub per_gpu_hour: Option<f64>,
    /// Price of a kWh, in the same one.
    pub per_kwh: Option<f64>,
    /// CO2 of a kWh, grams.
    pub carbon_g_per_kwh: Option<f64>,
}

/// Limits on requests and their duration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Entries of a list if the request does not say.
    pub page: usize,
    /// Most entries of a list.
    pub page_max: usize,
    /// Most steps of a query.
    pub steps_max: usize,
    /// Most values (steps × series) of a query.
    pub values_max: usize,
    /// Most metrics of a query.
    pub metrics_max: usize,
    /// Most values that a query in PromQL reads.
    pub promql_values_max: usize,
    /// How long a ready answer may be given again although newer rows have come.
    pub reuse: Duration,
    /// Bytes of ready answers.
    pub cache_bytes: u64,
    /// Queries computed at the same time; more wait.
    pub queries: usize,
    /// How long a request may take.
    pub request_timeout: Duration,
    /// Live streams at the same time.
    pub streams: usize,
    /// Bytes of rows that are kept for live streams: a client that was away, or is slow, gets them later.
    pub resume_bytes: usize,
    /// Silence on a live stream after which a comment is sent.
    pub heartbeat: Duration,
    /// Between two judgements of the fleet.
    pub judge_every: Duration,
    /// How long open requests may take to end after the shutdown began.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            page: PAGE,
            page_max: PAGE_MAX,
            steps_max: STEPS_MAX,
            values_max: VALUES_MAX,
            metrics_max: METRICS_MAX,
            promql_values_max: PROMQL_VALUES_MAX,
            reuse: Duration::from_millis(500),
            cache_bytes: 32 << 20,
            queries: QUERIES,
            request_timeout: Duration::from_secs(30),
            streams: STREAMS,
            resume_bytes: 32 << 20,
            heartbeat: Duration::from_secs(15),
            judge_every: Duration::from_secs(15),
            drain: Duration::from_secs(5),
        }
    }
}
