//! What holders used in a range of time, by the rows of `gpu_usage`.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use arrow_array::DictionaryArray;
use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use foldhash::fast::RandomState;

use super::ledger::{EQUAL, HOLDING, NOBODY, UNOBSERVED, hour_of};
use crate::batch::{Value, numbers, text_at};
use crate::time::HOUR_NS;
use crate::{Batch, IdentityColumn};

/// What one holder used of all its GPUs. Time of a GPU that it shared counts by its part.
#[derive(Debug, Clone, PartialEq)]
pub struct Holding {
    /// The cluster; empty: none is named.
    pub cluster: Arc<str>,
    /// The holder, as `gpu_usage` names it.
    pub holder: Arc<str>,
    /// Its namespace, pod, container and job, as far as they are known.
    pub names: [Option<Arc<str>>; 4],
    /// Keys of its GPUs.
    pub gpus: BTreeSet<Arc<str>>,
    /// Names of their nodes.
    pub nodes: BTreeSet<Arc<str>>,
    /// Whether some of it is simulated.
    pub is_simulated: bool,
    /// Hours of GPUs, and the rest of the sums.
    pub sums: HoldingSums,
}

/// Sums of what was used.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct HoldingSums {
    /// Seconds of GPUs.
    pub held_s: f64,
    /// The part of them in which somebody else had the GPU too, and nothing says who used how much.
    pub shared_s: f64,
    /// Seconds times utilisation; none where that is never known.
    pub busy_s: Option<f64>,
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
    /// Whether a part of an hour was asked for: of that hour the same part is taken of everything.
    pub is_interpolated: bool,
}

/// Adds up rows of `gpu_usage` over a range.
#[derive(Debug)]
pub struct Holdings {
    start_ns: i64,
    end_ns: i64,
    held: HashMap<(Arc<str>, Arc<str>), Holding, RandomState>,
}

impl Holdings {
    /// Nothing yet, of a range from its first instant to its last, nanoseconds UTC since 1970.
    pub fn of(start_ns: i64, end_ns: i64) -> Self {
        Self { start_ns, end_ns, held: HashMap::default() }
    }

    /// The times of the rows that are wanted: rows have the start of their hour.
    pub fn rows_ns(&self) -> (i64, i64) {
        (hour_of(self.start_ns), self.end_ns)
    }

    /// Adds rows, each of its key once.
    pub fn add(&mut self, batch: &Batch) {
        let text = |name: &str| {
            let column = batch.records().column_by_name(name);
            column.and_then(|column| column.as_dictionary_opt::<Int32Type>())
        };
        let (holders, shares) = (text("holder"), text("share"));
        for (row, &hour_ns) in batch.timestamps().iter().enumerate() {
            let Some(holder) = held_text(holders, row) else { continue };
            let number = |name: &str| {
                batch.records().column_by_name(name).and_then(numbers)?.value(row).map(Value::as_f64)
            };
            let until_ns = match number("as_of_ns") {
                #[expect(clippy::cast_possible_truncation, reason = "an instant is far below 2^63")]
                Some(as_of_ns) => hour_ns.saturating_add(HOUR_NS).min(as_of_ns as i64),
                None => continue,
            };
            let Some(part) = self.part_of((hour_ns, until_ns)) else { continue };
            let scaled = |name: &str, unit: f64| number(name).map(|value| value * unit * part);
            let held_s = scaled("held_ns", 1e-9).unwrap_or(0.0);
            let sums = HoldingSums {
                held_s,
                shared_s: if held_text(shares, row) == Some(EQUAL) { held_s } else { 0.0 },
                busy_s: scaled("busy_ns", 1e-9),
                idle_s: scaled("idle_ns", 1e-9),
                throttled_s: scaled("throttled_ns", 1e-9),
                joules: scaled("used_mj", 1e-3),
                idle_joules: scaled("idle_mj", 1e-3),
                power_max_w: number("power_max_w"),
                is_interpolated: part < 1.0,
            };
            self.add_row(batch, row, holder, sums);
        }
    }

    /// The part of an hour, as far as it is added up, that lies in the range; none: nothing of it.
    fn part_of(&self, (from_ns, until_ns): (i64, i64)) -> Option<f64> {
        let whole_ns = until_ns.saturating_sub(from_ns);
        let within_ns = until_ns.min(self.end_ns).saturating_sub(from_ns.max(self.start_ns));
        #[expect(clippy::cast_precision_loss, reason = "an hour is far below 2^52 nanoseconds")]
        let part = within_ns as f64 / whole_ns as f64;
        (whole_ns > 0 && within_ns > 0).then(|| part.min(1.0))
    }

    fn add_row(&mut self, batch: &Batch, row: usize, holder: &str, sums: HoldingSums) {
        let identity = batch.identity(row);
        let cluster = identity.shared(IdentityColumn::Cluster).cloned().unwrap_or_default();
        let held =
            self.held.entry((Arc::clone(&cluster), Arc::from(holder))).or_insert_with_key(|key| Holding {
                cluster,
                holder: Arc::clone(&key.1),
                names: HOLDING.map(|column| identity.shared(column).cloned()),
                gpus: BTreeSet::new(),
                nodes: BTreeSet::new(),
                is_simulated: false,
                sums: HoldingSums::default(),
            });
        held.gpus.extend(identity.key());
        held.nodes.extend(identity.shared(IdentityColumn::Node).cloned());
        held.is_simulated |= identity.is_simulated();
        held.sums.add(&sums);
    }

    /// The holders, the one with the most time first; among them [`NOBODY`] and [`UNOBSERVED`].
    pub fn finish(self) -> Vec<Holding> {
        let mut held: Vec<Holding> = self.held.into_values().collect();
        held.sort_by(|one, other| {
            let most = other.sums.held_s.total_cmp(&one.sums.held_s);
            most.then_with(|| (&one.cluster, &one.holder).cmp(&(&other.cluster, &other.holder)))
        });
        held
    }
}

impl Holding {
    /// Whether somebody held it: it is neither the time of nobody nor that without rows.
    pub fn is_held(&self) -> bool {
        !self.is_nobody() && !self.is_unobserved()
    }

    /// Whether nobody held it.
    pub fn is_nobody(&self) -> bool {
        *self.holder == *NOBODY
    }

    /// Whether nobody saw it.
    pub fn is_unobserved(&self) -> bool {
        *self.holder == *UNOBSERVED
    }
}

impl HoldingSums {
    /// Adds more.
    pub fn add(&mut self, other: &Self) {
        let sum = |one: Option<f64>, other: Option<f64>| super::stay::sum(one, other, |a, b| a + b);
        self.held_s += other.held_s;
        self.shared_s += other.shared_s;
        self.busy_s = sum(self.busy_s, other.busy_s);
        self.idle_s = sum(self.idle_s, other.idle_s);
        self.throttled_s = sum(self.throttled_s, other.throttled_s);
        self.joules = sum(self.joules, other.joules);
        self.idle_joules = sum(self.idle_joules, other.idle_joules);
        self.power_max_w = super::stay::sum(self.power_max_w, other.power_max_w, f64::max);
        self.is_interpolated |= other.is_interpolated;
    }
}

fn held_text(texts: Option<&DictionaryArray<Int32Type>>, row: usize) -> Option<&str> {
    text_at(texts?, row)
}
