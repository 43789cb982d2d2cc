//! What is drawn: the metrics of a chart each, and how their values are written.

use gpuvitals_core::MetricId;

/// A chart of one metric.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunPanel {
    /// Its heading, and what its parts are called after in the page.
    pub(crate) title: &'static str,
    /// The unit that its axis shows.
    pub(crate) unit: &'static str,
    pub(crate) metric: MetricId,
    /// Where the metric has no value.
    pub(crate) instead: Option<MetricId>,
    /// Shown units in a unit of the column.
    pub(crate) factor: f64,
}

const fn panel(title: &'static str, unit: &'static str, column: &'static str) -> RunPanel {
    RunPanel { title, unit, metric: MetricId::of(column), instead: None, factor: 1.0 }
}

const MIB_IN_GIB: f64 = 1.0 / 1024.0;

/// The charts of the GPUs.
pub(crate) const GPU_PANELS: [RunPanel; 6] = [
    RunPanel { instead: Some(MetricId::of("power_average_w")), ..panel("Power", "W", "power_w") },
    panel("Clock", "MHz", "gpu_clock_mhz"),
    panel("Memory clock", "MHz", "mem_clock_mhz"),
    panel("Temperature", "°C", "temperature_c"),
    panel("Utilisation", "%", "utilization_pct"),
    RunPanel { factor: MIB_IN_GIB, ..panel("Memory", "GiB", "memory_used_mb") },
];

/// The charts of the hosts.
pub(crate) const HOST_PANELS: [RunPanel; 2] = [
    panel("CPUs of the host", "%", "cpu_pct"),
    RunPanel { factor: MIB_IN_GIB, ..panel("Memory of the host", "GiB", "memory_mb") },
];
