//! A question for what holders used, and its answer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::IdentityColumn;
use crate::time::MINUTE_NS;

/// Most groups that are put together: each takes some hundred bytes.
pub const HOLDINGS_MAX: usize = 500_000;
/// By so much the rows of a holder that has its GPU still may end before now: they are published every ten seconds, and trail the
/// samples by four of them.
pub const HOLDINGS_TRAIL_NS: i64 = 5 * MINUTE_NS;

/// Asks for what holders used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HoldingsQuery {
    /// Keys of the GPUs; empty: all.
    pub gpus: Vec<Arc<str>>,
    /// First instant, nanoseconds UTC since 1970.
    pub start_ns: i64,
    /// Last instant, included.
    pub end_ns: i64,
    /// What is put together.
    pub by: HoldingGroup,
    /// This holder alone, in any cluster; none: all, with the time of nobody and the time without rows.
    pub holder: Option<Arc<str>>,
}

impl HoldingsQuery {
    /// A column and the text that all rows of the holder have there who is asked for; none: all holders are, or it is a user, whom no column
    /// names.
    pub fn holding_text(&self) -> Option<(IdentityColumn, &str)> {
        let (kind, name) = self.holder.as_deref()?.split_once(':')?;
        let (column, text) = match kind {
            "job" => (IdentityColumn::Job, name),
            "pod" => {
                let mut parts = name.split('/');
                let pod = parts.nth(1)?;
                // Of another name its parts are not known.
                (parts.count() == 1).then_some((IdentityColumn::Pod, pod))?
            }
            _ => return None,
        };
        (!text.is_empty()).then_some((column, text))
    }
}

/// What holders are put together by, the usual one first: what their rows know, and what is told of jobs. A label of them is
/// `label:KEY`.
pub const HOLDING_GROUPS: [&str; 12] = [
    "holder",
    "gpu",
    "node",
    "namespace",
    "job",
    "pod",
    "model",
    "cluster",
    "day",
    "user",
    "account",
    "queue",
];

/// By what the use of holders is put together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoldingGroup {
    /// By holder, in each cluster.
    Holder,
    /// By GPU, whoever holds it.
    Gpu,
    /// By the text of an identity column, such as namespace, node or model.
    Identity(IdentityColumn),
    /// By day, UTC.
    Day,
}

/// What holders used in a range of time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HoldingsAnswer {
    /// What was held, by group, the one with the most time first.
    pub groups: Vec<Holding>,
    /// Time in which nobody had the GPUs.
    pub nobody: HoldingSums,
    /// Time without rows.
    pub unobserved: HoldingSums,
    /// By key of each GPU all of its time: of its holders, of nobody and without rows. That of MIG instances is their card's.
    pub gpus: BTreeMap<Arc<str>, HoldingSums>,
    /// Keys of these instances.
    pub instances: BTreeSet<Arc<str>>,
    /// Keys of the GPUs and instances without rows of `gpu_usage`: what they have here is by the rows of their samples.
    pub by_rows: BTreeSet<Arc<str>>,
}

/// What a group of holders used: most often one of them. Time of a GPU that it shared counts by its part.
#[derive(Debug, Clone, PartialEq)]
pub struct Holding {
    /// What the group has in common; none: its rows have no text there.
    pub group: Option<Arc<str>>,
    /// The cluster; none: none is named, or several are.
    pub cluster: Option<Arc<str>>,
    /// The holder, as `gpu_usage` names it; none: there are several.
    pub holder: Option<Arc<str>>,
    /// Namespace, pod, container and job, as far as they are known and the same in all of it.
    pub names: [Option<Arc<str>>; 4],
    /// Keys of its GPUs, and as of when the last row about each is, nanoseconds UTC since 1970.
    pub gpus: BTreeMap<Arc<str>, i64>,
    /// Those of them whose use is known by the rows of their samples alone.
    pub by_rows: BTreeSet<Arc<str>>,
    /// Names of their nodes.
    pub nodes: BTreeSet<Arc<str>>,
    /// Models of its GPUs.
    pub models: BTreeSet<Arc<str>>,
    /// Whether some of it is simulated.
    pub is_simulated: bool,
    /// Whether it had a GPU at the end of the range: no other row about that GPU is a later one.
    pub is_last: bool,
    /// Hours of GPUs, and the rest of the sums.
    pub sums: HoldingSums,
}

/// A group of holders and what puts it in its place among others.
#[derive(Debug, Clone)]
pub struct RankedGroup {
    /// Its number in the sums that it is of.
    pub(super) number: u32,
    pub(super) cluster: Option<Arc<str>>,
    /// As of [`Holding`].
    pub group: Option<Arc<str>>,
    /// As of [`Holding`].
    pub is_last: bool,
    /// As of [`Holding`].
    pub sums: HoldingSums,
}

/// Sums of what was used.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct HoldingSums {
    /// Seconds of GPUs.
    pub held_s: f64,
    /// The part of them in which somebody else had the GPU too.
    pub shared_s: f64,
    /// Seconds times utilisation; none where that is never known.
    pub busy_s: Option<f64>,
    /// The rest of the seconds in which the utilisation is known: held for nothing.
    pub wasted_s: Option<f64>,
    /// Seconds in which a GPU did nothing; none as well.
    pub idle_s: Option<f64>,
    /// Seconds in which a limit held the clocks down; none where that is never known.
    pub throttled_s: Option<f64>,
    /// Energy, joules; none without any.
    pub joules: Option<f64>,
    /// Energy of the time in which a GPU did nothing, joules.
    pub idle_joules: Option<f64>,
    /// Highest power of a GPU, watts.
    pub power_max_w: Option<f64>,
    /// Highest temperature of a GPU, °C.
    pub temperature_max_c: Option<f64>,
    /// Most memory in use on a GPU, MB.
    pub memory_max_mb: Option<f64>,
    /// The part of the held seconds that is of hours of which only a part was asked for: there the same part is taken of everything.
    pub interpolated_s: f64,
}

impl HoldingGroup {
    /// The group of that name: `holder`, `gpu`, `day`, or an identity column.
    pub fn by_name(name: &str) -> Option<Self> {
        match name {
            "holder" => Some(Self::Holder),
            "gpu" => Some(Self::Gpu),
            "day" => Some(Self::Day),
            name => IdentityColumn::by_name(name).map(Self::Identity),
        }
    }

    /// The column whose texts are the groups, if these are of one.
    pub(super) fn column(self) -> Option<IdentityColumn> {
        match self {
            Self::Identity(column) => Some(column),
            Self::Holder | Self::Gpu | Self::Day => None,
        }
    }
}

impl Holding {
    /// Adds another group of the same question: what both have in common stays.
    pub fn and(&mut self, other: &Self) {
        keep_same(&mut self.group, other.group.as_deref());
        keep_same(&mut self.cluster, other.cluster.as_deref());
        keep_same(&mut self.holder, other.holder.as_deref());
        for (name, others) in self.names.iter_mut().zip(&other.names) {
            keep_same(name, others.as_deref());
        }
        for (gpu, as_of_ns) in &other.gpus {
            let last_ns = self.gpus.entry(Arc::clone(gpu)).or_insert(*as_of_ns);
            *last_ns = (*as_of_ns).max(*last_ns);
        }
        self.by_rows.extend(other.by_rows.iter().cloned());
        self.nodes.extend(other.nodes.iter().cloned());
        self.models.extend(other.models.iter().cloned());
        self.is_simulated |= other.is_simulated;
        self.is_last |= other.is_last;
        self.sums.add(&other.sums);
    }
}

impl HoldingSums {
    /// Seconds in which the utilisation is known; none where it never is.
    pub fn known_s(&self) -> Option<f64> {
        self.wasted_s.zip(self.busy_s).map(|(wasted_s, busy_s)| wasted_s + busy_s)
    }

    /// Whether a part of an hour was asked for.
    pub fn is_interpolated(&self) -> bool {
        self.interpolated_s > 0.0
    }

    /// Adds what others used.
    pub fn add(&mut self, other: &Self) {
        let sum = |one: Option<f64>, other: Option<f64>| crate::usage::stay::sum(one, other, |a, b| a + b);
        let higher = |one: Option<f64>, other: Option<f64>| crate::usage::stay::sum(one, other, f64::max);
        self.held_s += other.held_s;
        self.shared_s += other.shared_s;
        self.busy_s = sum(self.busy_s, other.busy_s);
        self.wasted_s = sum(self.wasted_s, other.wasted_s);
        self.idle_s = sum(self.idle_s, other.idle_s);
        self.throttled_s = sum(self.throttled_s, other.throttled_s);
        self.joules = sum(self.joules, other.joules);
        self.idle_joules = sum(self.idle_joules, other.idle_joules);
        self.power_max_w = higher(self.power_max_w, other.power_max_w);
        self.temperature_max_c = higher(self.temperature_max_c, other.temperature_max_c);
        self.memory_max_mb = higher(self.memory_max_mb, other.memory_max_mb);
        self.interpolated_s += other.interpolated_s;
    }
}

/// Keeps a text if another one is the same.
pub(super) fn keep_same(text: &mut Option<Arc<str>>, other: Option<&str>) {
    if text.as_deref() != other {
        *text = None;
    }
}
