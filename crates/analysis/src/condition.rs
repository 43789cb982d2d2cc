//! Conditions of a GPU, judged by its latest values: one table. The API's states, the series `gpu_condition` and the alerts on it
//! are made from it, and so are the findings.

pub mod xid;

mod remedy;

use std::borrow::Cow;

use gpuvitals_core::batch::Value;
use gpuvitals_core::{Identity, IdentityColumn, MetricId, quantity};

pub(crate) use remedy::{for_vendor, with_index};

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
    /// What to do about it where `remedy_of` has nothing for these values.
    remedy: &'static str,
    /// What to do about exactly these values.
    remedy_of: fn(&[Value]) -> Option<Cow<'static, str>>,
}

/// A condition that matches, with the values that show it.
#[derive(Debug, Clone, Copy)]
pub struct MatchedCondition {
    /// The row of the table of conditions that matches.
    pub condition: &'static Condition,
    values: [Value; METRICS_MAX],
}

/// Most columns of one condition.
const METRICS_MAX: usize = 2;
/// Bits of `throttle_reasons`: slowed down because of heat by the hardware, and by the driver.
const HARDWARE_THERMAL: i64 = 0x40;
const SOFTWARE_THERMAL: i64 = 0x20;
/// Distance in degrees to the slowdown limit at which the condition begins: sensors and limits are whole
/// degrees, and changing load moves the temperature by more within a second.
const MARGIN_C: f64 = 3.0;

/// The XIDs that need somebody at once, and those after which work may go on.
const XID: &str = "xid";
const XID_NONFATAL: &str = "xid_nonfatal";

/// Every condition, the worst first.
pub const CONDITIONS: &[Condition] = &[
    Condition {
        remedy_of: |values| Some(step_of_xid(values)),
        ..critical(
            XID,
            &[MetricId::of("xid_last")],
            |values| is_own_xid(values) && !xid::step(whole(values)).work_goes_on,
            |values| xid::sentence(whole(values)),
            "What to do depends on the code. `gpuvitals findings` says what it means and the step for it; so does \
             https://docs.nvidia.com/deploy/xid-errors/, and `dmesg | grep -i xid` on the node has the driver's words. 79, 48, 64, 95: \
             drain the node. The code stays until the driver is loaded again.",
        )
    },
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
    Condition {
        remedy_of: recovery,
        ..critical(
            "recovery_action",
            &[MetricId::of("recovery_action")],
            is_some,
            |values| format!("the driver asks for {}", asked_for(whole(values))),
            "Drain the node and do what the driver asks for: reset the GPU with `nvidia-smi --gpu-reset -i INDEX`, or reboot the node.",
        )
    },
    critical(
        "hardware_thermal_slowdown",
        &[MetricId::of("throttle_reasons")],
        |values| has(values, HARDWARE_THERMAL),
        |_| "the hardware slows the GPU down because of heat".to_owned(),
        COOL,
    ),
    Condition {
        remedy_of: |values| Some(step_of_xid(values)),
        ..warning(
            XID_NONFATAL,
            &[MetricId::of("xid_last")],
            |values| is_own_xid(values) && xid::step(whole(values)).work_goes_on,
            |values| xid::sentence(whole(values)),
            "Work may go on. What to do when there is time depends on the code: `gpuvitals findings` says what it means and the step \
             for it. The code stays until the driver is loaded again.",
        )
    },
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
     temperature, fans of the chassis, blanking panels. Until then a lower power limit keeps the clocks steady: {`nvidia-smi -i \
     INDEX -pl WATTS`//`rocm-smi -d INDEX --setpoweroverdrive WATTS`}.";

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
    /// What to do for GPUs of a vendor, for the person who is called: commands in backquotes.
    pub fn remedy(&self, vendor: Option<&str>) -> Cow<'static, str> {
        for_vendor(self.remedy, vendor)
    }

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

    /// What to do about these values on this GPU: its vendor's commands, with its number where it is known.
    pub fn remedy(&self, gpu: &Identity) -> Cow<'static, str> {
        let vendor = gpu.get(IdentityColumn::Vendor);
        let remedy =
            (self.condition.remedy_of)(self.values()).unwrap_or_else(|| self.condition.remedy(vendor));
        with_index(remedy, gpu.index)
    }

    /// Whether it is what the driver asks for, and asks for at once: a reset of the GPU, or a reboot of the node.
    pub(crate) fn is_asked_at_once(&self) -> bool {
        self.condition.id == "recovery_action" && matches!(whole(self.values()), 1 | 2)
    }

    /// Kinds of findings about the same GPU that tell of the same fault by these values: those that say less, and those that say more.
    pub(crate) fn same_fault(&self) -> (&'static [&'static str], &'static [&'static str]) {
        let is_xid = matches!(self.condition.id, XID | XID_NONFATAL);
        if is_xid { xid::same_fault(whole(self.values())) } else { (&[], &[]) }
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
    Condition { id, metrics, severity: Severity::Critical, holds, sentence, remedy, remedy_of: |_| None }
}

const fn warning(
    id: &'static str,
    metrics: &'static [MetricId],
    holds: fn(&[Value]) -> bool,
    sentence: fn(&[Value]) -> String,
    remedy: &'static str,
) -> Condition {
    Condition { severity: Severity::Warning, ..critical(id, metrics, holds, sentence, remedy) }
}

/// What to do about what the driver asks for.
fn recovery(values: &[Value]) -> Option<Cow<'static, str>> {
    let step = match whole(values) {
        1 => {
            "Take the GPU's jobs away, then reset it with `nvidia-smi --gpu-reset -i INDEX`; if that fails, reboot the node."
        }
        2 => "Drain the node and reboot it: the driver's state may be inconsistent.",
        3 => {
            "Take the jobs away that use this GPU together with others; the driver ends their peer traffic. `nvidia-smi -q -i INDEX` \
             shows when it asks for a reset."
        }
        4 => {
            "Start no new job on the GPU. When the present ones have ended, reset it with `nvidia-smi --gpu-reset -i INDEX`."
        }
        _ => return None,
    };
    Some(step.into())
}

/// What the driver asks for, by its code.
pub(crate) fn asked_for(action: i64) -> Cow<'static, str> {
    match action {
        0 => "nothing".into(),
        1 => "a reset of the GPU".into(),
        2 => "a reboot of the node".into(),
        3 => "an end of the GPU's peer traffic".into(),
        4 => "a reset of the GPU after its jobs".into(),
        other => format!("recovery action {other}").into(),
    }
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

/// Whether an XID is the GPU's own: programs do not cause it.
fn is_own_xid(values: &[Value]) -> bool {
    is_some(values) && !xid::is_of_application(whole(values))
}

fn step_of_xid(values: &[Value]) -> Cow<'static, str> {
    format!("{} The code stays until the driver is loaded again.", xid::step(whole(values)).words).into()
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
