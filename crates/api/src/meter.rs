//! Counts of the gateway.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gpuvitals_core::figures::{Family, Histogram, Kind, Number};

use crate::dto::GatewayStats;
use crate::route::PATHS;

/// Statuses with a line of their own; anything else is `other`.
const STATUSES: [u16; 11] = [200, 204, 304, 400, 404, 405, 413, 429, 500, 503, 504];
/// Label for the page's files and unknown paths.
const OTHER: &str = "other";

/// Counters of the gateway.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    routes: [RouteMeter; PATHS.len() + 1],
    hits: AtomicU64,
    misses: AtomicU64,
    missed: AtomicU64,
}

#[derive(Debug, Default)]
struct RouteMeter {
    statuses: [AtomicU64; STATUSES.len() + 1],
    took: Histogram,
}

fn grow(counter: Option<&AtomicU64>, by: u64) {
    if let Some(counter) = counter {
        counter.fetch_add(by, Ordering::Relaxed);
    }
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

impl Meter {
    /// A request was answered.
    pub(crate) fn answered(&self, path: Option<&str>, status: u16, took: Duration) {
        let place =
            path.and_then(|path| PATHS.iter().position(|known| *known == path)).unwrap_or(PATHS.len());
        let Some(route) = self.routes.get(place) else { return };
        let status = STATUSES.iter().position(|known| *known == status).unwrap_or(STATUSES.len());
        grow(route.statuses.get(status), 1);
        route.took.observe(took);
    }

    /// An answer came from the cache.
    pub(crate) fn hit(&self) {
        grow(Some(&self.hits), 1);
    }

    /// An answer had to be made.
    pub(crate) fn miss(&self) {
        grow(Some(&self.misses), 1);
    }

    /// A slow client lost batches.
    pub(crate) fn lagged(&self, batches: u64) {
        grow(Some(&self.missed), batches);
    }

    /// Answers from the cache.
    pub(crate) fn hits(&self) -> u64 {
        read(&self.hits)
    }

    /// Answers that were made.
    pub(crate) fn misses(&self) -> u64 {
        read(&self.misses)
    }

    /// Share of answers that came from the cache.
    #[expect(clippy::cast_precision_loss, reason = "a share needs no more than 53 bits")]
    pub(crate) fn hit_rate(&self) -> Option<f64> {
        let (hits, misses) = (self.hits(), self.misses());
        let all = hits.saturating_add(misses);
        (all > 0).then(|| hits as f64 / all as f64)
    }

    /// Requests answered.
    pub(crate) fn requests(&self) -> u64 {
        self.routes.iter().flat_map(|route| &route.statuses).map(read).sum()
    }

    /// As families.
    pub(crate) fn families(&self, stats: &GatewayStats) -> Vec<Family> {
        let mut requests = Family::new(
            "gpuvitals_gateway_requests_total",
            Kind::Counter,
            "Requests answered, by route and status.",
        );
        let mut latency = Family::new(
            "gpuvitals_gateway_request_duration_seconds",
            Kind::Histogram,
            "Time from the request to the head of the answer.",
        );
        for (name, route) in self.asked() {
            let statuses = STATUSES.iter().map(ToString::to_string).chain([OTHER.to_owned()]);
            for (status, count) in
                statuses.zip(route.statuses.iter().map(read)).filter(|(_, count)| *count > 0)
            {
                let labels = vec![("route", name.to_owned()), ("status", status)];
                requests = requests.with(labels, Number::from(count));
            }
            latency = latency.with(vec![("route", name.to_owned())], route.took.read());
        }
        vec![
            requests,
            latency,
            Family::counter(
                "gpuvitals_gateway_cache_hits_total",
                "Answers from the cache.",
                stats.cache_hits,
            ),
            Family::counter(
                "gpuvitals_gateway_cache_misses_total",
                "Answers that had to be made.",
                stats.cache_misses,
            ),
            Family::gauge("gpuvitals_gateway_cache_bytes", "Bytes of ready answers.", stats.cache_bytes),
            Family::gauge("gpuvitals_gateway_streams", "Live streams that are open.", stats.streams),
            Family::counter(
                "gpuvitals_gateway_stream_missed_total",
                "Batches that slow clients of live streams lost.",
                read(&self.missed),
            ),
            Family::gauge("gpuvitals_gateway_connections", "Connections that are open.", stats.connections),
            Family::gauge(
                "gpuvitals_gateway_uptime_seconds",
                "Time since the gateway started.",
                stats.uptime_seconds,
            ),
        ]
    }

    /// The routes that were asked at least once.
    fn asked(&self) -> impl Iterator<Item = (&'static str, &RouteMeter)> {
        let names = PATHS.iter().copied().chain([OTHER]);
        names.zip(&self.routes).filter(|(_, route)| route.statuses.iter().any(|count| read(count) > 0))
    }
}

#[cfg(test)]
mod tests {
    use gpuvitals_core::figures::render;

    use super::*;

    #[test]
    fn counts_by_route_status_and_bucket() {
        let meter = Meter::default();
        meter.answered(Some("/health"), 200, Duration::from_micros(300));
        meter.answered(Some("/health"), 503, Duration::from_mins(1));
        meter.answered(None, 404, Duration::ZERO);
        meter.answered(Some("/nowhere"), 299, Duration::ZERO);
        meter.hit();
        meter.hit();
        meter.miss();
        assert_eq!(meter.requests(), 4);
        assert_eq!(meter.hit_rate().map(|rate| (rate * 3.0).round()), Some(2.0));
        let families = meter.families(&GatewayStats {
            cache_hit_rate: meter.hit_rate(),
            cache_hits: meter.hits(),
            cache_misses: meter.misses(),
            cache_bytes: 10,
            requests: meter.requests(),
            uptime_seconds: 1.5,
            streams: 1,
            connections: 2,
        });
        let text = String::from_utf8(render(&families)).unwrap();
        for line in [
            "# TYPE gpuvitals_gateway_requests_total counter",
            "gpuvitals_gateway_requests_total{route=\"/health\",status=\"200\"} 1",
            "gpuvitals_gateway_requests_total{route=\"other\",status=\"404\"} 1",
            "gpuvitals_gateway_requests_total{route=\"other\",status=\"other\"} 1",
            "gpuvitals_gateway_request_duration_seconds_bucket{route=\"/health\",le=\"0.00025\"} 0",
            "gpuvitals_gateway_request_duration_seconds_bucket{route=\"/health\",le=\"0.0005\"} 1",
            "gpuvitals_gateway_request_duration_seconds_bucket{route=\"/health\",le=\"+Inf\"} 2",
            "gpuvitals_gateway_request_duration_seconds_sum{route=\"/health\"} 60.0003",
            "gpuvitals_gateway_request_duration_seconds_count{route=\"/health\"} 2",
            "gpuvitals_gateway_cache_hits_total 2",
            "gpuvitals_gateway_streams 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        assert!(!text.contains("/stats"));
    }

    #[test]
    fn no_rate_before_the_first_answer() {
        assert_eq!(Meter::default().hit_rate(), None);
    }
}
