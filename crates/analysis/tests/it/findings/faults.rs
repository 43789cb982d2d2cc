//! Faults: those of the simulated fleet itself, on its first host, and others made by changing its rows.

use gpuvitals_core::{Identity, IdentityColumn};

use super::lab::SimRow;

/// A kind of fault.
pub(crate) struct Fault {
    pub(crate) name: &'static str,
    /// The kinds of findings that are right about it.
    pub(crate) right: &'static [&'static str],
    pub(crate) place: Place,
    /// Changes a row; false: the row is lost.
    pub(crate) change: fn(&mut SimRow) -> bool,
}

/// Where a fault may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// The simulated fleet has it at this GPU of its first host.
    Own(usize),
    H100,
    Mi300x,
    Rtx6000,
    /// A whole node.
    Node,
    Fleet,
}

/// What a fault befalls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    Gpu(String, usize),
    Node(String),
    Fleet,
}

/// A fault at its place.
pub(crate) struct Trouble {
    pub(crate) fault: &'static Fault,
    pub(crate) target: Target,
}

/// The simulated fleet's own faults are there from the start.
fn own(_: &mut SimRow) -> bool {
    true
}

const fn fault(
    name: &'static str,
    right: &'static [&'static str],
    place: Place,
    change: fn(&mut SimRow) -> bool,
) -> Fault {
    Fault { name, right, place, change }
}

fn sets(row: &mut SimRow, values: &[(&str, f64)]) -> bool {
    for (column, value) in values {
        row.set(column, *value);
    }
    true
}

const HEAT: &[&str] = &["thermal_throttling", "hardware_thermal_slowdown"];
const SLOW: &[&str] = &["straggler", "clock_held"];

/// Every fault.
pub(crate) static FAULTS: &[Fault] = &[
    fault("application clocks left low (simulated)", SLOW, Place::Own(1), own),
    fault("held but never used (simulated)", &["idle_held"], Place::Own(3), own),
    fault("blocked airflow (simulated)", HEAT, Place::Own(4), own),
    fault("GPU vanishes (simulated)", &["gpu_lost"], Place::Own(5), own),
    fault("memory row fails (simulated)", &["xid_nonfatal", "row_remap_pending"], Place::Own(6), own),
    fault("XID 79", &["xid"], Place::H100, |row| sets(row, &[("xid_last", 79.0), ("xid_count", 1.0)])),
    fault("uncorrectable ECC error", &["ecc_uncorrected"], Place::H100, |row| {
        sets(row, &[("ecc_uncorrected_volatile", 1.0)])
    }),
    fault("uncorrectable RAS error", &["ras_uncorrected"], Place::Mi300x, |row| {
        sets(row, &[("ras_uncorrected", 2.0)])
    }),
    fault("row remap failed", &["row_remap_failed"], Place::H100, |row| {
        sets(row, &[("remapped_rows_failed", 1.0)])
    }),
    fault("SRAM threshold", &["sram_errors"], Place::H100, |row| {
        sets(row, &[("sram_threshold_exceeded", 1.0)])
    }),
    fault("driver asks for a reset", &["recovery_action"], Place::H100, |row| {
        sets(row, &[("recovery_action", 1.0)])
    }),
    fault("GPU reports nothing any more", &["gpu_lost"], Place::Mi300x, |_| false),
    fault("node reports nothing any more", &["node_silent"], Place::Node, |_| false),
    fault("other driver on a node", &["driver_mismatch"], Place::Node, |row| {
        row.identity.set(IdentityColumn::Driver, "999.1").unwrap();
        true
    }),
    fault("hot: a third of the time, NVIDIA", HEAT, Place::H100, |row| {
        row.scale("gpu_clock_mhz", 0.8);
        row.scale("sm_clock_mhz", 0.8);
        sets(row, &[("throttled_sw_thermal_ns", 1e12 + 0.33e9 * row.age_s)])
    }),
    fault("hot: a third of the time, AMD", HEAT, Place::Mi300x, |row| {
        row.scale("gpu_clock_mhz", 0.8);
        sets(row, &[("throttle_hbm_thermal_count", (330.0 * row.age_s).floor())])
    }),
    fault("hardware thermal slowdown", &["hardware_thermal_slowdown"], Place::H100, |row| {
        sets(row, &[("throttle_reasons", 72.0)])
    }),
    fault("at the slowdown limit", &["thermal_margin", "software_thermal_slowdown"], Place::H100, |row| {
        sets(row, &[("temperature_margin_c", 1.0)])
    }),
    fault("hot memory", &["memory_thermal_limit"], Place::H100, |row| {
        sets(row, &[("temperature_memory_c", 94.0), ("temperature_memory_slowdown_c", 95.0)])
    }),
    fault("power brake", &["power_brake"], Place::H100, |row| {
        sets(row, &[("throttled_hw_power_brake_ns", 1e12 + 0.2e9 * row.age_s)])
    }),
    fault("clock locked at 70 %", SLOW, Place::H100, |row| {
        row.scale("gpu_clock_mhz", 0.7);
        row.scale("sm_clock_mhz", 0.7);
        true
    }),
    fault("waits for its input", &["starved"], Place::H100, |row| {
        let idle = 70.0;
        let power = idle + 0.4 * (row.get("power_w") - idle).max(0.0);
        row.scale("utilization_pct", 0.4);
        sets(row, &[("power_w", power)])
    }),
    fault("half the PCIe lanes", &["pcie_degraded"], Place::H100, |row| sets(row, &[("pcie_width", 8.0)])),
    fault("PCIe two generations lower", &["pcie_degraded"], Place::H100, |row| {
        let generation = row.get("pcie_gen").min(3.0);
        sets(row, &[("pcie_gen", generation)])
    }),
    fault("one NVLink down", &["links_down"], Place::H100, |row| {
        sets(row, &[("interconnect_links_up", 17.0)])
    }),
    fault("fan stands still", &["fan_stopped"], Place::Rtx6000, |row| {
        let hot = row.get("temperature_c") + 30.0;
        sets(row, &[("fan_speed_pct", 0.0), ("temperature_c", hot)])
    }),
    fault("fan at its limit", &["fan_at_limit"], Place::Rtx6000, |row| {
        sets(row, &[("fan_speed_pct", 100.0)])
    }),
    fault("everything reports nothing any more", &["fleet_silent"], Place::Fleet, |_| false),
];

impl Place {
    /// Hosts of the fleet of 64 with such GPUs; the first host is that of the fleet's own faults.
    fn hosts(self) -> &'static [usize] {
        match self {
            Self::H100 => &[2, 4],
            Self::Mi300x => &[1, 5, 6],
            Self::Rtx6000 => &[7],
            Self::Node => &[2, 5, 6],
            Self::Own(_) | Self::Fleet => &[0],
        }
    }
}

impl Trouble {
    /// Faults at GPUs of their own.
    pub(crate) fn place(seed: u64, faults: &'static [Fault]) -> Vec<Self> {
        let mut taken: Vec<Target> = Vec::new();
        let mut placed = Vec::new();
        // Nodes first: the GPUs find others.
        let mut order: Vec<(usize, &'static Fault)> = faults.iter().enumerate().collect();
        order.sort_by_key(|(_, fault)| fault.place != Place::Node);
        for (number, fault) in order {
            let hosts = fault.place.hosts();
            let start = usize::try_from(seed).unwrap() * 5 + number * 3;
            let candidates = (start..).map(|n| {
                let node = format!("sim-node-{:04}", hosts[n % hosts.len()] + 1);
                match fault.place {
                    Place::Own(index) => Target::Gpu("sim-node-0001".to_owned(), index),
                    Place::Node => Target::Node(node),
                    Place::Fleet => Target::Fleet,
                    _ => Target::Gpu(node, n / hosts.len() % 8),
                }
            });
            let is_free = |target: &Target| {
                !taken.iter().any(|other| match (target, other) {
                    (Target::Gpu(node, _), Target::Node(other))
                    | (Target::Node(node), Target::Gpu(other, _)) => node == other,
                    _ => target == other,
                })
            };
            let target = candidates.take(64).find(is_free).unwrap();
            taken.push(target.clone());
            placed.push(Self { fault, target });
        }
        placed
    }

    pub(crate) fn is_of(&self, identity: &Identity) -> bool {
        match &self.target {
            Target::Gpu(node, index) => {
                identity.node() == Some(node) && identity.index == i32::try_from(*index).ok()
            }
            Target::Node(node) => identity.node() == Some(node),
            Target::Fleet => true,
        }
    }
}
