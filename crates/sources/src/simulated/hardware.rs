//! The models of the simulated fleet: what they are called, what they can do, and what they do not tell.
//!
//! Figures are those of data sheets and captures: an idle H100 at 345 MHz draws about 70 W, one with a loaded model
//! about 115 W at full clock; an MI300X idles at 132 MHz and has no edge sensor; an MI250X has one power sensor a
//! card, read through the first of its two dies; a workstation card has a fan, no NVLink and no memory sensor.

/// Whose part it is; decides which columns exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Vendor {
    Nvidia,
    Amd,
}

impl Vendor {
    /// Text of the `vendor` column.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Nvidia => "nvidia",
            Self::Amd => "amd",
        }
    }
}

/// A model. Clocks in MHz, power in W, temperatures in degrees Celsius, memory in MiB, rates in bytes per second.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each says what a part has; a table, not a state")]
pub(super) struct Model {
    pub(super) name: &'static str,
    pub(super) vendor: Vendor,
    pub(super) driver: &'static str,
    pub(super) clock_idle: f64,
    pub(super) clock_boost: f64,
    pub(super) clock_step: f64,
    pub(super) memory_clock_idle: f64,
    pub(super) memory_clock: f64,
    pub(super) video_clock_idle: f64,
    pub(super) video_clock: f64,
    /// Keeps the boost clock while a process holds the GPU, even one that does nothing.
    pub(super) holds_clock: bool,
    pub(super) power_idle: f64,
    /// More than idle when a process holds the GPU.
    pub(super) power_held: f64,
    pub(super) power_limit: f64,
    /// Tells a one-second average beside the momentary power.
    pub(super) power_average: bool,
    /// What full load would draw at boost clock without a limit.
    pub(super) power_demand: f64,
    /// Kelvin above the air per watt, and the time constant in seconds.
    pub(super) thermal_resistance: f64,
    pub(super) thermal_seconds: f64,
    /// Software slow-down begins here, hardware slow-down there.
    pub(super) slowdown: f64,
    pub(super) slowdown_hardware: f64,
    pub(super) memory_total: f64,
    /// Held by the driver and in neither used nor free; `None` where the driver does not tell.
    pub(super) memory_reserved: Option<f64>,
    pub(super) memory_idle: f64,
    /// Bytes per second, where the part states it.
    pub(super) memory_bandwidth: Option<f64>,
    pub(super) pcie_generation: i64,
    pub(super) pcie_rate: f64,
    /// NVLink or xGMI, one direction; 0 where there is none.
    pub(super) link_rate: f64,
    pub(super) links: i64,
    /// Has an edge sensor; of AMD's parts those before MI300.
    pub(super) edge_sensor: bool,
    pub(super) memory_sensor: bool,
    pub(super) fan: bool,
    /// Hardware profiling ratios can be read.
    pub(super) profiling: bool,
    /// Dies of a card that share one power sensor; the first tells the card's power.
    pub(super) dies: usize,
    /// Voltage at idle and at boost, mV; `None` where the driver does not tell.
    pub(super) millivolts: Option<(f64, f64)>,
}

/// NVIDIA H100 SXM, the base of its siblings.
pub(super) const H100: Model = Model {
    name: "NVIDIA H100 80GB HBM3",
    vendor: Vendor::Nvidia,
    driver: "550.90.07",
    clock_idle: 345.0,
    clock_boost: 1980.0,
    clock_step: 15.0,
    memory_clock_idle: 2619.0,
    memory_clock: 2619.0,
    video_clock_idle: 765.0,
    video_clock: 1545.0,
    holds_clock: true,
    power_idle: 70.0,
    power_held: 45.0,
    power_limit: 700.0,
    power_average: true,
    power_demand: 745.0,
    thermal_resistance: 0.064,
    thermal_seconds: 18.0,
    slowdown: 86.0,
    slowdown_hardware: 89.0,
    memory_total: 81_559.0,
    memory_reserved: Some(552.0),
    memory_idle: 4.0,
    memory_bandwidth: None,
    pcie_generation: 5,
    pcie_rate: 55e9,
    link_rate: 450e9,
    links: 18,
    edge_sensor: true,
    memory_sensor: true,
    fan: false,
    profiling: true,
    dies: 1,
    millivolts: None,
};

/// NVIDIA H200 SXM.
pub(super) const H200: Model = Model {
    name: "NVIDIA H200",
    driver: "570.124.06",
    memory_clock_idle: 3201.0,
    memory_clock: 3201.0,
    power_idle: 76.0,
    power_demand: 735.0,
    memory_total: 143_771.0,
    memory_reserved: Some(614.0),
    ..H100
};

/// NVIDIA A100 SXM.
pub(super) const A100: Model = Model {
    name: "NVIDIA A100-SXM4-80GB",
    driver: "535.183.01",
    clock_idle: 210.0,
    clock_boost: 1410.0,
    memory_clock_idle: 1593.0,
    memory_clock: 1593.0,
    video_clock_idle: 585.0,
    video_clock: 1275.0,
    power_idle: 52.0,
    power_held: 28.0,
    power_limit: 400.0,
    power_average: false,
    power_demand: 415.0,
    thermal_resistance: 0.098,
    thermal_seconds: 20.0,
    memory_total: 81_920.0,
    memory_reserved: Some(669.0),
    pcie_generation: 4,
    pcie_rate: 25e9,
    link_rate: 300e9,
    links: 12,
    ..H100
};

/// NVIDIA RTX 6000 Ada, a workstation card.
pub(super) const RTX_6000: Model = Model {
    name: "NVIDIA RTX 6000 Ada Generation",
    driver: "550.90.07",
    clock_idle: 210.0,
    clock_boost: 3105.0,
    memory_clock_idle: 405.0,
    memory_clock: 10_001.0,
    video_clock_idle: 1185.0,
    video_clock: 2415.0,
    power_idle: 22.0,
    power_held: 30.0,
    power_limit: 300.0,
    power_demand: 325.0,
    thermal_resistance: 0.17,
    thermal_seconds: 30.0,
    slowdown: 90.0,
    slowdown_hardware: 94.0,
    memory_total: 49_140.0,
    memory_reserved: Some(634.0),
    memory_idle: 2.0,
    pcie_generation: 4,
    pcie_rate: 25e9,
    link_rate: 0.0,
    links: 0,
    memory_sensor: false,
    fan: true,
    profiling: false,
    ..H100
};

/// AMD Instinct MI300X.
pub(super) const MI300X: Model = Model {
    name: "AMD Instinct MI300X",
    vendor: Vendor::Amd,
    driver: "6.10.5",
    clock_idle: 132.0,
    clock_boost: 2100.0,
    clock_step: 1.0,
    memory_clock_idle: 900.0,
    memory_clock: 1300.0,
    video_clock_idle: 29.0,
    video_clock: 29.0,
    holds_clock: false,
    power_idle: 138.0,
    power_held: 22.0,
    power_limit: 750.0,
    power_average: false,
    power_demand: 800.0,
    thermal_resistance: 0.052,
    thermal_seconds: 22.0,
    slowdown: 100.0,
    slowdown_hardware: 105.0,
    memory_total: 196_592.0,
    memory_reserved: None,
    memory_idle: 283.0,
    memory_bandwidth: Some(5.3e12),
    pcie_generation: 5,
    pcie_rate: 55e9,
    link_rate: 448e9,
    links: 7,
    edge_sensor: false,
    memory_sensor: true,
    fan: false,
    profiling: false,
    dies: 1,
    millivolts: None,
};

/// A die of an AMD Instinct MI250X: the system shows each of the two as a GPU.
pub(super) const MI250X: Model = Model {
    name: "AMD Instinct MI250X",
    driver: "6.7.0",
    clock_idle: 800.0,
    clock_boost: 1700.0,
    memory_clock_idle: 400.0,
    memory_clock: 1600.0,
    video_clock_idle: 800.0,
    video_clock: 800.0,
    power_idle: 45.0,
    power_held: 10.0,
    power_limit: 280.0,
    power_demand: 285.0,
    thermal_resistance: 0.13,
    thermal_seconds: 20.0,
    memory_total: 65_520.0,
    memory_idle: 10.0,
    memory_bandwidth: None,
    pcie_generation: 4,
    pcie_rate: 25e9,
    link_rate: 200e9,
    links: 8,
    edge_sensor: true,
    dies: 2,
    millivolts: Some((762.0, 906.0)),
    ..MI300X
};

/// Models of the four hosts of an island. The first two make every model appear within eight hosts; later islands
/// draw one of all. The first host of the first island is an H100 host: it holds the special cases.
pub(super) static ISLANDS: [[&Model; 4]; 6] = [
    [&H100, &MI300X, &H100, &A100],
    [&H200, &MI250X, &MI300X, &RTX_6000],
    [&H100, &H100, &H100, &H100],
    [&H200, &H200, &MI300X, &MI300X],
    [&MI300X, &MI300X, &MI250X, &MI250X],
    [&H100, &H100, &A100, &A100],
];
