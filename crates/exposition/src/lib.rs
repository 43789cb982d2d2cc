//! What a scrape gets: the latest values, windows and integrals as Prometheus or OpenMetrics text.
