//! The displayed state: the latest values of every GPU, a short history, the processes, and the user's
//! choices.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use gpuvitals_core::integral::Blanks;
use gpuvitals_core::number::float;
use gpuvitals_core::throttle::{Residency, ThrottleColumns, Throttling};
use gpuvitals_core::{Batch, Identity, MetricId, Table};
use gpuvitals_sources::sampler::{Liveness, SamplerConfig, TargetState};

use super::grid::Glyphs;
use super::keys::{Action, KeyMode};
use super::listing::Listed;
use crate::sampling::lasts_ns;

/// Points of history a GPU keeps: as many as the widest terminal has columns.
pub(super) const HISTORY: usize = 240;
/// Rates of those who count bytes, with the count that they are made from.
const RATES: [(MetricId, MetricId); 4] = [
    (metric::PCIE_IN, MetricId::of("pcie_rx_bytes")),
    (metric::PCIE_OUT, MetricId::of("pcie_tx_bytes")),
    (metric::LINKS_IN, MetricId::of("interconnect_rx_bytes")),
    (metric::LINKS_OUT, MetricId::of("interconnect_tx_bytes")),
];

/// The metrics of the columns.
pub(super) mod metric {
    use gpuvitals_core::MetricId;

    pub(crate) const BUSY: MetricId = MetricId::of("utilization_pct");
    pub(crate) const USED: MetricId = MetricId::of("memory_used_mb");
    pub(crate) const TOTAL: MetricId = MetricId::of("memory_total_mb");
    pub(crate) const POWER: MetricId = MetricId::of("power_w");
    pub(crate) const POWER_AVERAGE: MetricId = MetricId::of("power_average_w");
    pub(crate) const CAP: MetricId = MetricId::of("power_limit_w");
    pub(crate) const HEAT: MetricId = MetricId::of("temperature_c");
    pub(crate) const CLOCK: MetricId = MetricId::of("gpu_clock_mhz");
    pub(crate) const MEMORY_CLOCK: MetricId = MetricId::of("mem_clock_mhz");
    pub(crate) const FAN: MetricId = MetricId::of("fan_speed_pct");
    pub(crate) const ENCODER: MetricId = MetricId::of("encoder_utilization_pct");
    pub(crate) const DECODER: MetricId = MetricId::of("decoder_utilization_pct");
    pub(crate) const MEDIA: MetricId = MetricId::of("media_utilization_pct");
    pub(crate) const JPEG: MetricId = MetricId::of("jpeg_utilization_pct");
    pub(crate) const PCIE_GENERATION: MetricId = MetricId::of("pcie_gen");
    pub(crate) const PCIE_WIDTH: MetricId = MetricId::of("pcie_width");
    pub(crate) const PCIE_IN: MetricId = MetricId::of("pcie_rx_bytes_per_s");
    pub(crate) const PCIE_OUT: MetricId = MetricId::of("pcie_tx_bytes_per_s");
    pub(crate) const LINKS_IN: MetricId = MetricId::of("interconnect_rx_bytes_per_s");
    pub(crate) const LINKS_OUT: MetricId = MetricId::of("interconnect_tx_bytes_per_s");
    pub(crate) const CPU: MetricId = MetricId::of("cpu_pct");
    pub(crate) const HOST_USED: MetricId = MetricId::of("memory_mb");
    pub(crate) const HOST_TOTAL: MetricId = MetricId::of("host_memory_total_mb");
    pub(crate) const LOAD: MetricId = MetricId::of("load1");
}

/// Order of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Index,
    Busy,
    Memory,
    Power,
    Heat,
}

impl Order {
    fn next(self) -> Self {
        match self {
            Self::Index => Self::Busy,
            Self::Busy => Self::Memory,
            Self::Memory => Self::Power,
            Self::Power => Self::Heat,
            Self::Heat => Self::Index,
        }
    }
}

/// A value, and the time of its row, UTC nanoseconds.
#[derive(Debug, Clone, Copy)]
struct Dated {
    value: f64,
    at_ns: i64,
}

/// A GPU, or the host.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) identity: Arc<Identity>,
    pub(super) liveness: Liveness,
    values: HashMap<MetricId, Dated>,
    /// Time of its newest row; none before the first.
    latest_ns: Option<i64>,
    counted: Residency,
    /// What holds its clocks down; none before its driver says so.
    pub(super) throttling: Option<Throttling>,
    pub(super) busy: VecDeque<f64>,
    pub(super) power: VecDeque<f64>,
}

impl Device {
    pub(super) fn get(&self, metric: MetricId) -> Option<f64> {
        self.values.get(&metric).map(|dated| dated.value)
    }

    /// The most instantaneous power available.
    pub(super) fn power_metric(&self) -> MetricId {
        if self.values.contains_key(&metric::POWER) { metric::POWER } else { metric::POWER_AVERAGE }
    }

    pub(super) fn power_now(&self) -> Option<f64> {
        self.get(self.power_metric())
    }

    /// How full its memory is.
    pub(super) fn memory_pct(&self) -> Option<f64> {
        let (used, total) = (self.get(metric::USED)?, self.get(metric::TOTAL)?);
        (total > 0.0).then(|| used / total * 100.0)
    }

    /// Takes the values of a row.
    fn take(&mut self, batch: &Batch, row: usize, at_ns: i64) {
        let before = RATES.map(|(_, count)| self.values.get(&count).copied());
        for (metric, column) in batch.metrics() {
            if let Some(value) = column.value(row) {
                self.values.insert(metric, Dated { value: value.as_f64(), at_ns });
            }
        }
        for ((rate, count), before) in RATES.into_iter().zip(before) {
            let (Some(before), Some(now)) = (before, self.values.get(&count)) else { continue };
            let seconds = float(now.at_ns - before.at_ns) / 1e9;
            let is_told = self.values.get(&rate).is_some_and(|told| told.at_ns == at_ns);
            // A count that fell began anew.
            if !is_told && seconds > 0.0 && now.value >= before.value {
                let value = (now.value - before.value) / seconds;
                self.values.insert(rate, Dated { value, at_ns });
            }
        }
        if let Some(now) = ThrottleColumns::of(batch.records()).at(row, &mut self.counted) {
            self.throttling = Some(now);
        }
        self.latest_ns = Some(at_ns);
        // A gap in the history would shift it against its neighbours.
        let (busy, power) = (self.get(metric::BUSY), self.power_now());
        remember(&mut self.busy, busy);
        remember(&mut self.power, power);
    }
}

/// All that is shown.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "switches of the user, each on its own key")]
pub(super) struct Model {
    pub(super) node: String,
    pub(super) sampler: SamplerConfig,
    pub(super) glyphs: Glyphs,
    pub(super) host: Option<Device>,
    /// Whether the host is read, and has given nothing yet.
    is_host_awaited: bool,
    gpus: Vec<Device>,
    pub(super) listed: Listed,
    pub(super) order: Order,
    reverse: bool,
    pub(super) filter: String,
    typing: bool,
    paused: bool,
    pub(super) show_processes: bool,
    /// Engines and links in place of the vitals.
    pub(super) show_traffic: bool,
    pub(super) show_help: bool,
    selected: Option<Arc<str>>,
    /// Time of the newest row, UTC nanoseconds.
    pub(super) newest_ns: i64,
    /// The time now, by which ages count.
    now_ns: i64,
}

impl Model {
    pub(super) fn new(node: String, sampler: SamplerConfig, glyphs: Glyphs) -> Self {
        Self {
            node,
            sampler,
            glyphs,
            host: None,
            is_host_awaited: false,
            gpus: Vec::new(),
            listed: Listed::default(),
            order: Order::Index,
            reverse: false,
            filter: String::new(),
            typing: false,
            paused: false,
            show_processes: true,
            show_traffic: false,
            show_help: false,
            selected: None,
            newest_ns: 0,
            now_ns: 0,
        }
    }

    /// Takes rows of GPUs or of the host as the newest values.
    pub(super) fn observe(&mut self, batch: &Batch) {
        let blanks = Blanks::of(batch);
        // A row without values means that the device reports nothing; its state has the reason.
        for row in (0..batch.rows()).filter(|&row| !blanks.has(row)) {
            let identity = batch.identity(row);
            let at = batch.timestamps().get(row).copied().unwrap_or_default();
            self.newest_ns = self.newest_ns.max(at);
            let device = match batch.table() {
                Table::SystemEvents => self.host.get_or_insert_with(|| device(identity)),
                Table::GpuEvents => {
                    let key = identity.key();
                    let known = self.gpus.iter().position(|gpu| gpu.identity.key() == key);
                    let at = known.unwrap_or_else(|| {
                        self.gpus.push(device(identity));
                        self.gpus.len() - 1
                    });
                    let Some(gpu) = self.gpus.get_mut(at) else { continue };
                    gpu
                }
                _ => return,
            };
            device.liveness = Liveness::Up;
            device.take(batch, row, at);
        }
    }

    /// Says what time it is; whether that changes what is shown.
    pub(super) fn tick(&mut self, now_ns: i64) -> bool {
        let is_next = now_ns / 1_000_000_000 != self.now_ns / 1_000_000_000;
        self.now_ns = now_ns;
        is_next && self.gpus.iter().any(|gpu| gpu.liveness != Liveness::Up || self.is_old(gpu))
    }

    /// Seconds since the newest row of a GPU; none before the first.
    pub(super) fn age(&self, gpu: &Device) -> Option<i64> {
        Some((self.now_ns - gpu.latest_ns?).max(0) / 1_000_000_000)
    }

    /// Whether the values of a GPU are not of now.
    pub(super) fn is_old(&self, gpu: &Device) -> bool {
        let is_late = |at_ns| self.now_ns - at_ns > lasts_ns(metric::BUSY, &self.sampler);
        gpu.liveness != Liveness::Up || gpu.latest_ns.is_some_and(is_late)
    }

    /// Whether a value is not of now: its GPU is silent, or this one is not read any more.
    pub(super) fn is_value_old(&self, gpu: &Device, metric: MetricId) -> bool {
        let is_late = |dated: &Dated| self.now_ns - dated.at_ns > lasts_ns(metric, &self.sampler);
        gpu.liveness != Liveness::Up || gpu.values.get(&metric).is_some_and(is_late)
    }

    /// Takes the states of the devices: the list holds exactly these. A device that never gave a row is among them; a tool
    /// that stood in for its GPUs until it had run is not any more.
    pub(super) fn states(&mut self, states: Vec<TargetState>) {
        let is_there = |gpu: &Device| states.iter().any(|state| state.identity.key() == gpu.identity.key());
        self.gpus.retain(is_there);
        let is_awaited = |state: &TargetState| {
            let may_come = matches!(state.liveness, Liveness::Starting | Liveness::Up);
            state.table == Table::SystemEvents && may_come
        };
        self.is_host_awaited = self.host.is_none() && states.iter().any(is_awaited);
        for state in states {
            let known = if state.table == Table::SystemEvents {
                self.host.as_mut()
            } else {
                let key = state.identity.key();
                self.gpus.iter_mut().find(|gpu| gpu.identity.key() == key)
            };
            if let Some(device) = known {
                device.liveness = state.liveness;
                device.identity = state.identity;
            } else if state.table == Table::GpuEvents {
                let identity = Identity::clone(&state.identity);
                self.gpus.push(Device { liveness: state.liveness, ..device(identity) });
            }
        }
    }

    /// Takes the processes.
    pub(super) fn processes(&mut self, listed: Listed) {
        self.listed = listed;
    }

    /// Whether every device has answered.
    pub(super) fn is_complete(&self) -> bool {
        let has_said = |gpu: &Device| match gpu.liveness {
            Liveness::Starting => false,
            Liveness::Up => !gpu.values.is_empty(),
            Liveness::Down { .. } | Liveness::Stuck { .. } => true,
        };
        !self.gpus.is_empty() && !self.is_host_awaited && self.gpus.iter().all(has_said)
    }

    pub(super) fn is_typing(&self) -> bool {
        self.typing
    }

    pub(super) fn key_mode(&self) -> KeyMode {
        if self.typing { KeyMode::Filter } else { KeyMode::Commands }
    }

    pub(super) fn is_paused(&self) -> bool {
        self.paused
    }

    /// The direction of the order, beside the head of its column: `▲` if the values rise downwards.
    pub(super) fn arrow(&self) -> &'static str {
        let rises = (self.order == Order::Index) != self.reverse;
        match (rises, self.glyphs) {
            (true, Glyphs::Blocks) => "▲",
            (false, Glyphs::Blocks) => "▼",
            (true, Glyphs::Ascii) => "^",
            (false, Glyphs::Ascii) => "v",
        }
    }

    /// Whether some of the GPUs are simulated.
    pub(super) fn is_simulated(&self) -> bool {
        self.gpus.iter().any(|gpu| gpu.identity.is_simulated())
    }

    /// Number of GPUs, filtered or not.
    pub(super) fn count(&self) -> usize {
        self.gpus.len()
    }

    /// The GPUs that the filter leaves, in order.
    pub(super) fn visible(&self) -> Vec<&Device> {
        let needle = self.filter.to_lowercase();
        let mut gpus: Vec<&Device> = self
            .gpus
            .iter()
            .filter(|gpu| {
                needle.is_empty()
                    || gpuvitals_core::IdentityColumn::ALL
                        .into_iter()
                        .filter_map(|column| gpu.identity.get(column))
                        .any(|text| text.to_lowercase().contains(&needle))
            })
            .collect();
        let value = |gpu: &Device| match self.order {
            Order::Index => None,
            Order::Busy => gpu.get(metric::BUSY),
            Order::Memory => gpu.get(metric::USED),
            Order::Power => gpu.power_now(),
            Order::Heat => gpu.get(metric::HEAT),
        };
        gpus.sort_by(|a, b| {
            // The largest first; GPUs without a value come last.
            let by_value = value(b).unwrap_or(f64::MIN).total_cmp(&value(a).unwrap_or(f64::MIN));
            let place = |gpu: &Device| {
                (gpu.identity.node().map(str::to_owned), gpu.identity.index, gpu.identity.key())
            };
            by_value.then_with(|| place(a).cmp(&place(b)))
        });
        if self.reverse {
            gpus.reverse();
        }
        gpus
    }

    /// Place of the selected GPU among the visible ones.
    pub(super) fn selected(&self, visible: &[&Device]) -> usize {
        let at = self
            .selected
            .as_ref()
            .and_then(|key| visible.iter().position(|gpu| gpu.identity.key().as_ref() == Some(key)));
        at.unwrap_or(0)
    }

    /// Executes the user's command; quitting is the caller's.
    pub(super) fn apply(&mut self, action: Action) {
        match action {
            Action::Quit => {}
            Action::Up => self.select(|at, _| at.saturating_sub(1)),
            Action::Down => self.select(|at, last| (at + 1).min(last)),
            Action::First => self.select(|_, _| 0),
            Action::Last => self.select(|_, last| last),
            Action::Sort => self.order = self.order.next(),
            Action::Reverse => self.reverse = !self.reverse,
            Action::Filter => self.typing = true,
            Action::Type(c) => self.filter.push(c),
            Action::Erase => {
                self.filter.pop();
            }
            Action::Done => self.typing = false,
            Action::Escape => {
                if !std::mem::take(&mut self.show_help) {
                    self.filter.clear();
                    self.typing = false;
                }
            }
            Action::Processes => self.show_processes = !self.show_processes,
            Action::Traffic => self.show_traffic = !self.show_traffic,
            Action::Pause => self.paused = !self.paused,
            Action::Help => self.show_help = !self.show_help,
        }
    }

    fn select(&mut self, to: impl Fn(usize, usize) -> usize) {
        let visible = self.visible();
        let last = visible.len().saturating_sub(1);
        let at = to(self.selected(&visible), last);
        let key = visible.get(at).and_then(|gpu| gpu.identity.key());
        self.selected = key;
    }
}

fn device(identity: Identity) -> Device {
    Device {
        identity: Arc::new(identity),
        liveness: Liveness::Starting,
        values: HashMap::new(),
        latest_ns: None,
        counted: Residency::default(),
        throttling: None,
        busy: VecDeque::new(),
        power: VecDeque::new(),
    }
}

fn remember(history: &mut VecDeque<f64>, value: Option<f64>) {
    if history.len() >= HISTORY {
        history.pop_front();
    }
    history.push_back(value.unwrap_or(f64::NAN));
}
