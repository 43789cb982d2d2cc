//! Conditions of a GPU, judged by its latest values: one table. The API's states, the series `gpu_condition` and the alerts on it
//! are made from it, and so are the findings.

use gpuvitals_core::MetricId;
use gpuvitals_core::batch::Value;
use gpuvitals_core::quantity;

/// How urgent a condition is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Nothing is broken; something costs speed or money.
    Notice,
    /// The GPU works; it needs a reset, better cooling or attention.
    Warning,
    /// The GPU failed, or its results may be wrong.
    Critical,
}

impl Severity {
    /// Every severity, the least first.
    pub const ALL: [Self; 3] = [Self::Notice, Self::Warning, Self::Critical];

    /// Its name for programs: `notice`, `warning` or `critical`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Notice => "notice",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

/// A row of the table.
#[derive(Debug, Clone, Copy)]
pub struct Condition {
    /// Name for programs; never changes. Rows with one name are adjacent and say the same from other columns:
    /// the first that matches counts.
    pub id: &'static str,
    /// Columns it is judged by. It does not match while one of them has no value.
    pub metrics: &'static [MetricId],
    /// How urgent it is.
    pub severity: Severity,
    holds: fn(&[Value]) -> bool,
    sentence: fn(&[Value]) -> String,
    /// What to do, for the person who is called: commands in backquotes.
    pub remedy: &'static str,
}

/// A condition that matches, with the values that show it.
#[derive(Debug, Clone, Copy)]
pub struct MatchedCondition {
    /// The condition.
    pub condition: &'static Condition,
    values: [Value; METRICS_MAX],
}

/// Most columns of one condition.
const METRICS_MAX: usize = 2;
/// XIDs that applications cause: the GPU is healthy. The list of NVIDIA's Kubernetes device plugin.
const XID_OF_APPLICATIONS: [i64; 6] = [13, 31, 43, 45, 68, 109];
/// Bits of `throttle_reasons`: slowed down because of heat by the hardware, and by the driver.
const HARDWARE_THERMAL: i64 = 0x40;
const SOFTWARE_THERMAL: i64 = 0x20;
/// Distance in degrees to the slowdown limit at which the condition begins: sensors and limits are whole
/// degrees, and changing load moves the temperature by more within a second.
const MARGIN_C: f64 = 3.0;

/// Every condition, the worst first.
pub const CONDITIONS: &[Condition] = &[
    critical(
        "xid",
        &[MetricId::of("xid_last")],
        is_fatal_xid,
        |values| format!("XID {}", whole(values)),
        "Look for the code with `dmesg | grep -i xid` on the node. 79: the GPU fell off the bus; drain the node, reboot it, and \
         reseat or exchange the board if it comes again. 48, 63, 64, 94, 95: memory; look at `nvidia-smi -q -d ECC,ROW_REMAPPER`, \
         drain the node and reset the GPU. 74: NVLink; look at `nvidia-smi nvlink -e`. 119, 120: the GPU's own processor (GSP); \
         reset the GPU, and update the driver. The code stays until the driver is loaded again.",
    ),
    critical(
        "ecc_uncorrected",
        &[MetricId::of("ecc_uncorrected_volatile")],
        is_some,
        |values| counted(values, "uncorrectable memory error", "since the driver was loaded"),
        "Results of the job may be wrong: run it again elsewhere. Drain the node, then reset the GPU with `nvidia-smi --gpu-reset -i \
         INDEX` so that the bad row is replaced. If errors come again, or `nvidia-smi -q -d ROW_REMAPPER` shows a failure, the board \
         is due for exchange.",
    ),
    critical(
        "ras_uncorrected",
        &[MetricId::of("ras_uncorrected")],
        is_some,
        |values| counted(values, "uncorrectable RAS error", "since the driver was loaded"),
        "Results of the job may be wrong: run it again elsewhere. `dmesg | grep -i ras` and `rocm-smi --showrasinfo all` name the \
         block. Drain the node and reboot it; if errors come again the board is due for exchange.",
    ),
    critical(
        "row_remap_failed",
        &[MetricId::of("remapped_rows_failed")],
        is_some,
        |_| "a memory row could not be replaced: the board is due for exchange".to_owned(),
        "Drain the node and have the board exchanged; `nvidia-smi -q -d ROW_REMAPPER` is what the vendor asks for.",
    ),
    critical(
        "bad_pages_in_use",
        &[MetricId::of("bad_pages_unreservable")],
        is_some,
        |values| counted(values, "bad memory page", "still in use"),
        "Drain the node and reboot it: the driver takes the pages out of use before any job gets them. `rocm-smi --showunreservablepages` \
         lists them.",
    ),
    critical(
        "sram_errors",
        &[MetricId::of("sram_threshold_exceeded")],
        is_some,
        |_| "SRAM errors passed their threshold".to_owned(),
        "Drain the node and have the board exchanged; `nvidia-smi -q -d ECC` is what the vendor asks for.",
    ),
    critical(
        "recovery_action",
        &[MetricId::of("recovery_action")],
        is_some,
        |values| match whole(values) {
            1 => "the driver asks for a reset of the GPU".to_owned(),
            2 => "the driver asks for a reboot of the node".to_owned(),
            3 => "the driver asks to drain the GPU's peer traffic".to_owned(),
            4 => "the driver asks to drain and reset the GPU".to_owned(),
            other => format!("the driver asks for recovery action {other}"),
        },
        "Drain the node and do what the driver asks for: reset the GPU with `nvidia-smi --gpu-reset -i INDEX`, or reboot the node.",
    ),
    critical(
        "hardware_thermal_slowdown",
        &[MetricId::of("throttle_reasons")],
        |values| has(values, HARDWARE_THERMAL),
        |_| "the hardware slows the GPU down because of heat".to_owned(),
        COOL,
    ),
    warning(
        "row_remap_pending",
        &[MetricId::of("remapped_rows_pending")],
        is_some,
        |_| "a memory row waits for a reset of the GPU to be replaced".to_owned(),
        "When the present job has ended, reset the GPU with `nvidia-smi --gpu-reset -i INDEX`, or reboot the node.",
    ),
    warning(
        "page_retirement_pending",
        &[MetricId::of("retired_pages_pending")],
        is_some,
        |_| "memory pages wait for a reset of the GPU to be taken out of use".to_owned(),
        "When the present job has ended, reset the GPU with `nvidia-smi --gpu-reset -i INDEX`, or reboot the node.",
    ),
    warning(
        "software_thermal_slowdown",
        &[MetricId::of("throttle_reasons")],
        |values| has(values, SOFTWARE_THERMAL),
        |_| "the driver slows the GPU down because of heat".to_owned(),
        COOL,
    ),
    warning(
        "thermal_margin",
        &[MetricId::of("temperature_margin_c")],
        |values| matches!(values, [left] if left.as_f64() <= MARGIN_C),
        |values| match values {
            [left, ..] => format!("{} °C left to the slowdown limit", left.as_f64()),
            [] => String::new(),
        },
        COOL,
    ),
    warning(
        "thermal_margin",
        &[MetricId::of("temperature_c"), MetricId::of("temperature_slowdown_c")],
        is_near,
        |values| degrees("GPU", values),
        COOL,
    ),
    warning(
        "memory_thermal_limit",
        &[MetricId::of("temperature_memory_c"), MetricId::of("temperature_memory_slowdown_c")],
        is_near,
        |values| degrees("device memory", values),
        COOL,
    ),
];

/// What to do about heat.
pub(crate) const COOL: &str = "Compare with the other GPUs of the node. One alone: its heat sink, fan or place; the whole node: inlet \
     temperature, fans of the chassis, blanking panels. Until then a lower power limit keeps the clocks steady: `nvidia-smi -i INDEX \
     -pl WATTS` or `rocm-smi -d INDEX --setpoweroverdrive WATTS`.";

/// Each kind of condition once, the worst first: of rows with one id the first.
pub fn kinds() -> impl Iterator<Item = &'static Condition> {
    let before = std::iter::once("").chain(CONDITIONS.iter().map(|condition| condition.id));
    CONDITIONS.iter().zip(before).filter(|(condition, before)| condition.id != *before).map(|(it, _)| it)
}

/// Whether a condition of this id holds. `latest` gives the latest value of a metric, if it counts.
pub fn holds(id: &str, latest: impl Fn(MetricId) -> Option<Value>) -> bool {
    CONDITIONS.iter().any(|condition| condition.id == id && condition.judge(&latest).is_some())
}

/// The columns by which a condition is judged; empty: there is none of this id.
pub(crate) fn columns(id: &str) -> Vec<MetricId> {
    let mut columns: Vec<MetricId> = Vec::new();
    for metric in CONDITIONS.iter().filter(|condition| condition.id == id).flat_map(|row| row.metrics) {
        if !columns.contains(metric) {
            columns.push(*metric);
        }
    }
    columns
}

/// Whether the values of one instant show a condition; none: they say nothing about it. `fallback` gives limits, which are read seldom.
pub(crate) fn shows(
    id: &str,
    own: impl Fn(MetricId) -> Option<Value>,
    fallback: impl Fn(MetricId) -> Option<Value>,
) -> Option<bool> {
    let measured = |condition: &&Condition| {
        condition.id == id && condition.metrics.first().is_some_and(|metric| own(*metric).is_some())
    };
    let holds = |condition: &'static Condition| {
        condition.judge(|metric| own(metric).or_else(|| fallback(metric))).is_some()
    };
    CONDITIONS.iter().filter(measured).map(holds).reduce(|a, b| a || b)
}

/// The conditions that match, the worst first. `latest` gives the latest value of a metric, if it counts.
pub fn found(latest: impl Fn(MetricId) -> Option<Value>) -> impl Iterator<Item = MatchedCondition> {
    let mut last = "";
    CONDITIONS.iter().filter_map(move |condition| {
        let found = condition.judge(&latest).filter(|_| condition.id != last)?;
        last = condition.id;
        Some(found)
    })
}

impl Condition {
    fn judge(&'static self, latest: impl Fn(MetricId) -> Option<Value>) -> Option<MatchedCondition> {
        let mut values = [Value::Int(0); METRICS_MAX];
        for (value, metric) in values.iter_mut().zip(self.metrics) {
            *value = latest(*metric)?;
        }
        let found = MatchedCondition { condition: self, values };
        (self.holds)(found.values()).then_some(found)
    }
}

impl MatchedCondition {
    /// The condition in words, for people.
    pub fn sentence(&self) -> String {
        (self.condition.sentence)(self.values())
    }

    /// The values that show it, in the order of the condition's columns.
    pub fn values(&self) -> &[Value] {
        self.values.get(..self.condition.metrics.len()).unwrap_or_default()
    }
}

const fn critical(
    id: &'static str,
    metrics: &'static [MetricId],
    holds: fn(&[Value]) -> bool,
    sentence: fn(&[Value]) -> String,
    remedy: &'static str,
) -> Condition {
    Condition { id, metrics, severity: Severity::Critical, holds, sentence, remedy }
}

const fn warning(
    id: &'static str,
    metrics: &'static [MetricId],
    holds: fn(&[Value]) -> bool,
    sentence: fn(&[Value]) -> String,
    remedy: &'static str,
) -> Condition {
    Condition { id, metrics, severity: Severity::Warning, holds, sentence, remedy }
}

/// The first value as a whole number, as all counts, codes and masks are.
fn whole(values: &[Value]) -> i64 {
    match values {
        [Value::Int(number), ..] => *number,
        _ => 0,
    }
}

fn is_some(values: &[Value]) -> bool {
    whole(values) > 0
}

fn is_fatal_xid(values: &[Value]) -> bool {
    is_some(values) && !XID_OF_APPLICATIONS.contains(&whole(values))
}

fn has(values: &[Value], bit: i64) -> bool {
    whole(values) & bit != 0
}

/// Whether a temperature is near its limit.
fn is_near(values: &[Value]) -> bool {
    matches!(values, [now, limit] if now.as_f64() >= limit.as_f64() - MARGIN_C)
}

fn counted(values: &[Value], noun: &str, rest: &str) -> String {
    let count = quantity::counted(whole(values).unsigned_abs(), noun);
    format!("{count} {rest}")
}

fn degrees(part: &str, values: &[Value]) -> String {
    match values {
        [now, limit] => {
            format!("the {part} is at {} °C, the slowdown limit at {} °C", now.as_f64(), limit.as_f64())
        }
        _ => String::new(),
    }
}
