//! Counts of a listener.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use gpuvitals_core::figures::{Family, Histogram, Kind, Number};
use http::StatusCode;

use crate::access::Access;

/// The label of requests whose path is none of the service's.
const OTHER: &str = "other";

/// What a listener counts. The names of its families begin with those of the service.
#[derive(Debug)]
pub struct Meter {
    service: &'static str,
    /// Routes are those of the service, so there are few.
    routes: Mutex<BTreeMap<String, Route>>,
    pub(crate) connections: AtomicU64,
    /// Connections closed since all places were taken, and each other was in use or idle for a shorter time.
    pub(crate) displaced: AtomicU64,
    /// Connections refused since all places were taken and in use.
    pub(crate) refused: AtomicU64,
    /// Requests without the token or certificate they need.
    pub(crate) denied: AtomicU64,
    /// Requests beyond the rate of their client.
    pub(crate) limited: AtomicU64,
    /// What holds the certificate that is served.
    access: OnceLock<Access>,
}

#[derive(Debug, Default)]
struct Route {
    statuses: BTreeMap<u16, u64>,
    took: Histogram,
}

impl Meter {
    /// Nothing yet, for families `gpuvitals_{service}_…`.
    pub fn new(service: &'static str) -> Self {
        Self {
            service,
            routes: Mutex::default(),
            connections: AtomicU64::new(0),
            displaced: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            denied: AtomicU64::new(0),
            limited: AtomicU64::new(0),
            access: OnceLock::new(),
        }
    }

    /// Shows the certificate of this access from now on; the first counts.
    pub(crate) fn watch(&self, access: &Access) {
        self.access.get_or_init(|| access.clone());
    }

    fn routes(&self) -> MutexGuard<'_, BTreeMap<String, Route>> {
        self.routes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request was answered.
    pub(crate) fn answered(&self, route: Option<&str>, status: StatusCode, took: Duration) {
        let name = route.unwrap_or(OTHER);
        let mut routes = self.routes();
        if !routes.contains_key(name) {
            routes.insert(name.to_owned(), Route::default());
        }
        if let Some(route) = routes.get_mut(name) {
            *route.statuses.entry(status.as_u16()).or_default() += 1;
            route.took.observe(took);
        }
    }

    /// Connections that are open.
    pub fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    /// Requests that were answered since the start.
    pub fn requests(&self) -> u64 {
        self.routes().values().flat_map(|route| route.statuses.values()).sum()
    }

    /// The counts as families of metrics.
    pub fn families(&self) -> Vec<Family> {
        let family =
            |name: &str, kind, help| Family::new(format!("gpuvitals_{}_{name}", self.service), kind, help);
        let mut requests =
            family("requests_total", Kind::Counter, "Requests answered, by route and HTTP status.");
        let mut took = family(
            "request_duration_seconds",
            Kind::Histogram,
            "Time from the request to the head of the answer, by route.",
        );
        for (name, route) in &*self.routes() {
            for (status, count) in &route.statuses {
                let labels = vec![("route", name.clone()), ("status", status.to_string())];
                requests = requests.with(labels, Number::from(*count));
            }
            took = took.with(vec![("route", name.clone())], route.took.read());
        }
        let read = |count: &AtomicU64| Number::from(count.load(Ordering::Relaxed));
        let one = |name, kind, help, count| family(name, kind, help).with(Vec::new(), read(count));
        let expires = self.access.get().and_then(|access| access.terms().certificate.as_ref()?.expires_s());
        let expires = expires.map(|at| {
            let help = "When the certificate that is served expires, seconds since 1970.";
            family("certificate_expires_timestamp_seconds", Kind::Gauge, help)
                .with(Vec::new(), Number::Int(at))
        });
        let mut families = vec![
            requests,
            took,
            one("connections", Kind::Gauge, "Connections that are open.", &self.connections),
            family(
                "connections_closed_total",
                Kind::Counter,
                "Connections closed for want of a place: idle ones to make room, and new ones where none was idle.",
            )
            .by("which", [("idle", read(&self.displaced)), ("new", read(&self.refused))]),
            one(
                "requests_denied_total",
                Kind::Counter,
                "Requests without the token or certificate they need.",
                &self.denied,
            ),
            one(
                "requests_limited_total",
                Kind::Counter,
                "Requests beyond the rate that a token or an address has.",
                &self.limited,
            ),
        ];
        families.extend(expires);
        families
    }
}

#[cfg(test)]
mod tests {
    use gpuvitals_core::figures::render;

    use super::*;

    #[test]
    fn requests_are_counted_by_route_status_and_bucket() {
        let meter = Meter::new("gateway");
        meter.answered(Some("/health"), StatusCode::OK, Duration::from_micros(300));
        meter.answered(Some("/health"), StatusCode::SERVICE_UNAVAILABLE, Duration::from_mins(1));
        meter.answered(None, StatusCode::NOT_FOUND, Duration::ZERO);
        assert_eq!(meter.requests(), 3);
        let text = String::from_utf8(render(&meter.families())).unwrap();
        for line in [
            "# TYPE gpuvitals_gateway_requests_total counter",
            "gpuvitals_gateway_requests_total{route=\"/health\",status=\"200\"} 1",
            "gpuvitals_gateway_requests_total{route=\"other\",status=\"404\"} 1",
            "gpuvitals_gateway_request_duration_seconds_bucket{route=\"/health\",le=\"0.00025\"} 0",
            "gpuvitals_gateway_request_duration_seconds_bucket{route=\"/health\",le=\"0.0005\"} 1",
            "gpuvitals_gateway_request_duration_seconds_bucket{route=\"/health\",le=\"+Inf\"} 2",
            "gpuvitals_gateway_request_duration_seconds_sum{route=\"/health\"} 60.0003",
            "gpuvitals_gateway_request_duration_seconds_count{route=\"/health\"} 2",
            "gpuvitals_gateway_connections_closed_total{which=\"idle\"} 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }
}
