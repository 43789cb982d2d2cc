//! The series of a scrape: families with their heads and the fixed part of each series, written once.

use std::time::Duration;

use gpuvitals_analysis::condition;
use gpuvitals_core::catalogue::{self, Group, Instrument, Metric, Series, Tier};
use gpuvitals_core::energy::EnergySource;
use gpuvitals_core::figures::Kind;
use gpuvitals_core::{AbsenceReason, MetricId};

use crate::compat::Compat;
use crate::config::ExpositionConfig;
use crate::cores::CORE;
use crate::dcgm;
use crate::family::{FamilyPlan, base_help};
use crate::labels::LabelSet;
use crate::meters::{ENERGY, THROTTLED_FAMILY, Total};
use crate::reading::{Reading, Stat};
use crate::scale::Scale;

/// Metrics with windows in the sets below `all`: those that most dashboards show first.
const WINDOWED: [MetricId; 5] = [
    MetricId::of("utilization_pct"),
    MetricId::of("power_w"),
    MetricId::of("memory_used_mb"),
    MetricId::of("temperature_c"),
    MetricId::of("gpu_clock_mhz"),
];

const STATS: [(Stat, &str); 4] =
    [(Stat::Min, "min"), (Stat::Max, "max"), (Stat::Mean, "mean"), (Stat::P99, "p99")];

/// Every series that can be shown.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) gpu: Vec<FamilyPlan>,
    pub(crate) host: Vec<FamilyPlan>,
    /// Metrics with windows, by channel.
    pub(crate) channels: Vec<MetricId>,
    pub(crate) window_ns: i64,
    /// Usual time between two rows of a GPU.
    pub(crate) interval_ns: i64,
}

impl Plan {
    pub(crate) fn new(config: &ExpositionConfig) -> Self {
        let channels: Vec<MetricId> = match config.set {
            Series::Basic | Series::Standard => WINDOWED.to_vec(),
            Series::All => {
                let fast =
                    |metric: &Metric| metric.tier == Tier::Fast && metric.instrument == Instrument::Gauge;
                catalogue::gpu_metrics().filter(|(_, metric)| fast(metric)).map(|(id, _)| id).collect()
            }
        };
        let mut gpu = identities();
        gpu.extend(conditions());
        gpu.extend(measured(config.set));
        gpu.extend(totals(config.set));
        gpu.extend(windows(&channels, config));
        if config.compat != Compat::Off {
            gpu.extend(dcgm::families(config.compat, config.set));
        }
        let nanoseconds = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
        let (window_ns, interval_ns) = (nanoseconds(config.window).max(1), nanoseconds(config.interval));
        Self { gpu, host: host(config.set), channels, window_ns, interval_ns }
    }
}

/// Identities and holders of the GPUs.
fn identities() -> Vec<FamilyPlan> {
    use LabelSet::{Attribution, Info};
    let mut info = FamilyPlan::new(
        "gpu_info",
        Kind::Info,
        "",
        "The GPU: its whole identity, and the source of its energy total.",
    )
    .line(&[], Info, Reading::EnergyFrom(None));
    for (source, text) in [(EnergySource::Counter, "counter"), (EnergySource::Integrated, "integrated")] {
        info = info.line(&[("energy_source", text)], Info, Reading::EnergyFrom(Some(source)));
    }
    let attribution = FamilyPlan::new(
        "gpu_attribution_info",
        Kind::Info,
        "",
        "Present holder of the GPU: pod, namespace and container, or batch job. Join by uuid.",
    )
    .line(&[], Attribution, Reading::Here);
    vec![info, attribution]
}

/// States of the GPUs.
fn conditions() -> Vec<FamilyPlan> {
    use LabelSet::Own;
    let one = |name: &'static str, kind, unit, reading, help: &'static str| {
        FamilyPlan::new(name, kind, unit, help).line(&[], Own, reading)
    };
    let mut down = FamilyPlan::new(
        "gpu_down_reason",
        Kind::Gauge,
        "",
        "1 for the reason why the GPU is down; no series while it is up.",
    )
    .line(&[("reason", "stuck")], Own, Reading::Stuck)
    .line(&[("reason", "starting")], Own, Reading::DownFor(None));
    let mut absent = FamilyPlan::new(
        "gpu_absent_total",
        Kind::Counter,
        "",
        "Values that could not be read since the start, by reason.",
    );
    for reason in AbsenceReason::ALL {
        let fixed = [("reason", reason.as_str())];
        down = down.line(&fixed, Own, Reading::DownFor(Some(reason)));
        absent = absent.line(&fixed, Own, Reading::Absences(reason));
    }
    let mut holding = FamilyPlan::new(
        "gpu_condition",
        Kind::Gauge,
        "",
        "1 for each condition that holds, of those that make a GPU unhealthy; no series while none does (see docs/alerts.md).",
    );
    for condition in condition::kinds() {
        let fixed = [("condition", condition.id), ("severity", condition.severity.name())];
        holding = holding.line(&fixed, Own, Reading::Condition(condition.id));
    }
    vec![
        holding,
        one("gpu_up", Kind::Gauge, "", Reading::Up, "1 if the last reading of the GPU gave a sample."),
        down,
        one(
            "gpu_state_change_timestamp_seconds",
            Kind::Gauge,
            "seconds",
            Reading::Since,
            "When gpu_up or its reason last changed, in seconds since 1970.",
        ),
        one(
            "gpu_last_sample_timestamp_seconds",
            Kind::Gauge,
            "seconds",
            Reading::LastSample,
            "When the last sample was taken, in seconds since 1970.",
        ),
        one(
            "gpu_update_interval_seconds",
            Kind::Gauge,
            "seconds",
            Reading::UpdateInterval,
            "How often the driver's values really change, as observed so far; sampling faster shows nothing more.",
        ),
        one("gpu_samples_total", Kind::Counter, "", Reading::Samples, "Samples taken since the start."),
        absent,
    ]
}

/// The latest values, family by family in the catalogue's order. Metrics with a total of ours are left to
/// that.
fn measured(set: Series) -> Vec<FamilyPlan> {
    let is_counted = |id, metric: &Metric| id == ENERGY || metric.prometheus == THROTTLED_FAMILY;
    columns(|id, metric| metric.series <= set && !is_counted(id, metric))
}

/// The series of a fleet, whose totals are the hardware's.
pub(crate) fn fleet(set: Series) -> Vec<FamilyPlan> {
    let of_history = |plan: &FamilyPlan| {
        let known = [
            "gpu_info",
            "gpu_attribution_info",
            "gpu_condition",
            "gpu_up",
            "gpu_last_sample_timestamp_seconds",
        ];
        known.contains(&&*plan.family.name)
    };
    let states = identities().into_iter().chain(conditions()).filter(of_history);
    states.chain(columns(|_, metric| metric.series <= set)).collect()
}

/// The latest values of these columns of the GPUs.
fn columns(is_kept: impl Fn(MetricId, &Metric) -> bool) -> Vec<FamilyPlan> {
    let kept = catalogue::gpu_metrics().filter(|(id, metric)| is_kept(*id, metric));
    grouped(kept.collect())
        .into_iter()
        .map(|family| {
            let mut plan = family_head(&family, "", "");
            for (id, metric) in family {
                let reading = Reading::Latest(id, None, Scale::of(metric.factor));
                plan = plan.line_of(metric, LabelSet::Own, reading);
            }
            plan
        })
        .collect()
}

/// Metrics by family; families in the order of their first metric.
fn grouped(metrics: Vec<(MetricId, &'static Metric)>) -> Vec<Vec<(MetricId, &'static Metric)>> {
    let mut families: Vec<Vec<(MetricId, &'static Metric)>> = Vec::new();
    for (id, metric) in metrics {
        let of_it = |family: &&mut Vec<(MetricId, &'static Metric)>| {
            family.first().is_some_and(|(_, first)| first.prometheus == metric.prometheus)
        };
        match families.iter_mut().find(of_it) {
            Some(family) => family.push((id, metric)),
            None => families.push(vec![(id, metric)]),
        }
    }
    families
}

/// Head of a family of catalogue metrics; one with several metrics describes each.
fn family_head(family: &[(MetricId, &'static Metric)], suffix: &str, before: &str) -> FamilyPlan {
    let Some((_, first)) = family.first() else { return FamilyPlan::new("", Kind::Gauge, "", "") };
    let kind = if first.instrument == Instrument::Counter && suffix.is_empty() {
        Kind::Counter
    } else {
        Kind::Gauge
    };
    let mut help = before.to_owned();
    for (at, (_, metric)) in family.iter().enumerate() {
        if at > 0 {
            help.push(' ');
        }
        if family.len() > 1 {
            let texts: Vec<&str> = metric.labels.iter().map(|(_, text)| *text).collect();
            help.push_str(&texts.join(" "));
            help.push_str(": ");
        }
        help.push_str(&base_help(metric));
    }
    FamilyPlan::new(format!("{}{suffix}", first.prometheus), kind, first.unit.base(), help)
}

fn totals(set: Series) -> Vec<FamilyPlan> {
    let one = |name: &'static str, unit, total, help: &'static str| {
        let reading = Reading::Total(total);
        FamilyPlan::new(name, Kind::Counter, unit, help).line(&[], LabelSet::Own, reading)
    };
    let mut families = vec![
        FamilyPlan::new(
            ENERGY.metric().prometheus,
            Kind::Counter,
            "joules",
            "Energy used since the start: the rise of the part's own counter if it has one that agrees with the power, \
             else power integrated over time (see energy_source of gpu_info).",
        )
        .line_of(ENERGY.metric(), LabelSet::Own, Reading::Total(Total::Energy)),
        one(
            "gpu_busy_seconds_total",
            "seconds",
            Total::Busy,
            "Utilisation integrated over time since the start: seconds of full utilisation.",
        ),
        one(
            "gpu_unobserved_seconds_total",
            "seconds",
            Total::Gap,
            "Time without samples since the start: samples too far apart to be integrated, or the GPU reported nothing. Integrals leave it out.",
        ),
    ];
    if set >= Series::Standard {
        let mut throttled = FamilyPlan::new(
            THROTTLED_FAMILY,
            Kind::Counter,
            "seconds",
            "Time since the start in which the clocks were held down, by reason, several of which may apply at once; any: \
             by any of them. The driver's own time if it counts it, else integrated from samples.",
        )
        .line(&[("reason", "any")], LabelSet::Own, Reading::Total(Total::Throttled));
        for (id, metric) in catalogue::gpu_metrics() {
            if metric.prometheus == THROTTLED_FAMILY && metric.series <= set {
                let reading = Reading::Total(Total::ThrottledBy(id));
                throttled = throttled.line_of(metric, LabelSet::Own, reading);
            }
        }
        families.push(throttled);
    }
    families
}

fn windows(channels: &[MetricId], config: &ExpositionConfig) -> Vec<FamilyPlan> {
    let before = format!(
        "Over the last complete window of {:?}: smallest, largest and mean sample, and the value that 99 of 100 samples do not \
         exceed, within 1 %. ",
        config.window
    );
    let end = "gpu_window_end_timestamp_seconds";
    let mut families = vec![
        FamilyPlan::new(
            end,
            Kind::Gauge,
            "seconds",
            "End of the window of the _window series, in seconds since 1970.",
        )
        .line(&[], LabelSet::Own, Reading::WindowEnd),
    ];
    for family in grouped(channels.iter().map(|id| (*id, id.metric())).collect()) {
        let mut plan = family_head(&family, "_window", &before);
        for (id, metric) in family {
            let channel = channels.iter().position(|other| *other == id).unwrap_or(usize::MAX);
            for (stat, text) in STATS {
                let mut fixed = metric.labels.to_vec();
                fixed.push(("stat", text));
                let reading = Reading::Window(channel, stat, Scale::of(metric.factor), metric.column_type);
                plan = plan.line(&fixed, LabelSet::Own, reading);
            }
        }
        families.push(plan);
    }
    families
}

/// The series of the host.
fn host(set: Series) -> Vec<FamilyPlan> {
    let kept =
        catalogue::host_metrics().filter(|(_, metric)| metric.series <= set && metric.group == Group::Host);
    grouped(kept.collect())
        .into_iter()
        .map(|family| {
            let mut plan = family_head(&family, "", "");
            for (id, metric) in family {
                let scale = Scale::of(metric.factor);
                plan = if id == CORE {
                    plan.line_of(metric, LabelSet::Core, Reading::Cores(scale))
                } else {
                    plan.line_of(metric, LabelSet::Host, Reading::Latest(id, None, scale))
                };
            }
            plan
        })
        .collect()
}
