//! The displayed state: the latest values of every GPU, a short history, the processes, and the user's
//! choices.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use gpuvitals_core::integral::Blanks;
use gpuvitals_core::{Batch, Identity, MetricId, Table};
use gpuvitals_sources::processes::ProcessList;
use gpuvitals_sources::sampler::{Liveness, TargetState};

use super::keys::Action;

/// Points of history a GPU keeps: as many as the widest terminal has columns.
pub(super) const HISTORY: usize = 240;

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
    pub(crate) const THROTTLED: MetricId = MetricId::of("throttled");
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
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Index => "index",
            Self::Busy => "busy",
            Self::Memory => "memory",
            Self::Power => "power",
            Self::Heat => "temperature",
        }
    }

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

/// A GPU, or the host.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) identity: Arc<Identity>,
    pub(super) liveness: Liveness,
    values: HashMap<MetricId, f64>,
    pub(super) busy: VecDeque<f64>,
    pub(super) power: VecDeque<f64>,
}

impl Device {
    pub(super) fn get(&self, metric: MetricId) -> Option<f64> {
        self.values.get(&metric).copied()
    }

    /// The most instantaneous power available.
    pub(super) fn power_now(&self) -> Option<f64> {
        self.get(metric::POWER).or_else(|| self.get(metric::POWER_AVERAGE))
    }
}

/// All that is shown.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "switches of the user, each on its own key")]
pub(super) struct Model {
    pub(super) node: String,
    pub(super) interval: Duration,
    pub(super) ascii: bool,
    pub(super) host: Option<Device>,
    gpus: Vec<Device>,
    pub(super) listed: ProcessList,
    pub(super) order: Order,
    reverse: bool,
    pub(super) filter: String,
    typing: bool,
    paused: bool,
    pub(super) show_processes: bool,
    pub(super) show_help: bool,
    selected: Option<Arc<str>>,
    /// Time of the newest row, UTC nanoseconds.
    pub(super) newest_ns: i64,
}

impl Model {
    pub(super) fn new(node: String, interval: Duration, ascii: bool) -> Self {
        Self {
            node,
            interval,
            ascii,
            host: None,
            gpus: Vec::new(),
            listed: ProcessList::default(),
            order: Order::Index,
            reverse: false,
            filter: String::new(),
            typing: false,
            paused: false,
            show_processes: true,
            show_help: false,
            selected: None,
            newest_ns: 0,
        }
    }

    /// Takes rows.
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
            for (metric, column) in batch.metrics() {
                if let Some(value) = column.value(row) {
                    device.values.insert(metric, value.as_f64());
                }
            }
            // A gap in the history would shift it against its neighbours.
            remember(&mut device.busy, device.values.get(&metric::BUSY).copied());
            let power = device.power_now();
            remember(&mut device.power, power);
        }
    }

    /// Takes the states of the devices: the list holds exactly these. A device that never gave a row is among them; a tool
    /// that stood in for its GPUs until it had run is not any more.
    pub(super) fn states(&mut self, states: Vec<TargetState>) {
        let is_there = |gpu: &Device| states.iter().any(|state| state.identity.key() == gpu.identity.key());
        self.gpus.retain(is_there);
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
    pub(super) fn processes(&mut self, listed: ProcessList) {
        self.listed = listed;
    }

    /// Whether every device has answered.
    pub(super) fn is_complete(&self) -> bool {
        let has_said = |gpu: &Device| match gpu.liveness {
            Liveness::Starting => false,
            Liveness::Up => !gpu.values.is_empty(),
            Liveness::Down { .. } | Liveness::Stuck { .. } => true,
        };
        !self.gpus.is_empty() && self.gpus.iter().all(has_said)
    }

    pub(super) fn is_typing(&self) -> bool {
        self.typing
    }

    pub(super) fn is_paused(&self) -> bool {
        self.paused
    }

    pub(super) fn is_reversed(&self) -> bool {
        self.reverse
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
            let order = by_value.then_with(|| a.identity.index.cmp(&b.identity.index));
            order.then_with(|| a.identity.key().cmp(&b.identity.key()))
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
