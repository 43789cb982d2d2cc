//! The models of the simulated fleet.
//!
//! The figures come from data sheets and captures: an idle H100 draws about 70 W, one that holds a model but does no work
//! about 115 W at full clock; an MI300X idles at 132 MHz; a workstation card has a fan and no NVLink.

/// A model. Clocks in MHz, power in W, temperatures in degrees Celsius, memory in MiB, rates in bytes per second.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) name: &'static str,
    /// Value of the `vendor` column; decides which columns exist.
    pub(super) vendor: &'static str,
    pub(super) driver: &'static str,
    pub(super) clock_idle: f64,
    pub(super) clock_max: f64,
    pub(super) clock_step: f64,
    pub(super) memory_clock_idle: f64,
    pub(super) memory_clock: f64,
    pub(super) power_idle: f64,
    /// Additional power while a process holds the GPU.
    pub(super) power_held: f64,
    pub(super) power_limit: f64,
    /// Power at full load and maximum clock without a limit.
    pub(super) power_demand: f64,
    /// Kelvin above the air per watt.
    pub(super) thermal_resistance: f64,
    /// The driver slows the GPU down from this temperature on, the hardware from 3 degrees more.
    pub(super) slowdown: f64,
    pub(super) memory_total: f64,
    /// Held by the driver, in neither used nor free; 0 if the driver does not report it.
    pub(super) memory_reserved: f64,
    pub(super) memory_idle: f64,
    pub(super) pcie_generation: f64,
    /// Bytes a second in one direction.
    pub(super) pcie_rate: f64,
    /// NVLinks or xGMI links; 0 for a card without.
    pub(super) links: f64,
    /// Of all links, one direction.
    pub(super) link_rate: f64,
}

impl Model {
    pub(super) fn is_nvidia(&self) -> bool {
        self.vendor == "nvidia"
    }
}

/// NVIDIA H100 SXM, the base of its siblings.
const H100: Model = Model {
    name: "NVIDIA H100 80GB HBM3",
    vendor: "nvidia",
    driver: "550.90.07",
    clock_idle: 345.0,
    clock_max: 1980.0,
    clock_step: 15.0,
    memory_clock_idle: 2619.0,
    memory_clock: 2619.0,
    power_idle: 70.0,
    power_held: 45.0,
    power_limit: 700.0,
    power_demand: 745.0,
    thermal_resistance: 0.064,
    slowdown: 86.0,
    memory_total: 81_559.0,
    memory_reserved: 552.0,
    memory_idle: 4.0,
    pcie_generation: 5.0,
    pcie_rate: 55e9,
    links: 18.0,
    link_rate: 450e9,
};

/// NVIDIA A100 SXM.
const A100: Model = Model {
    name: "NVIDIA A100-SXM4-80GB",
    driver: "535.183.01",
    clock_idle: 210.0,
    clock_max: 1410.0,
    memory_clock_idle: 1593.0,
    memory_clock: 1593.0,
    power_idle: 52.0,
    power_held: 28.0,
    power_limit: 400.0,
    power_demand: 415.0,
    thermal_resistance: 0.098,
    memory_total: 81_920.0,
    memory_reserved: 669.0,
    pcie_generation: 4.0,
    pcie_rate: 25e9,
    links: 12.0,
    link_rate: 300e9,
    ..H100
};

/// NVIDIA RTX 6000 Ada, a workstation card.
const RTX_6000: Model = Model {
    name: "NVIDIA RTX 6000 Ada Generation",
    clock_idle: 210.0,
    clock_max: 3105.0,
    memory_clock_idle: 405.0,
    memory_clock: 10_001.0,
    power_idle: 22.0,
    power_held: 30.0,
    power_limit: 300.0,
    power_demand: 325.0,
    thermal_resistance: 0.17,
    slowdown: 90.0,
    memory_total: 49_140.0,
    memory_reserved: 634.0,
    memory_idle: 2.0,
    pcie_generation: 4.0,
    pcie_rate: 25e9,
    links: 0.0,
    link_rate: 0.0,
    ..H100
};

/// AMD Instinct MI300X. Its temperature is that of the junction: it has no edge sensor.
const MI300X: Model = Model {
    name: "AMD Instinct MI300X",
    vendor: "amd",
    driver: "6.10.5",
    clock_idle: 132.0,
    clock_max: 2100.0,
    clock_step: 1.0,
    memory_clock_idle: 900.0,
    memory_clock: 1300.0,
    power_idle: 138.0,
    power_held: 22.0,
    power_limit: 750.0,
    power_demand: 800.0,
    thermal_resistance: 0.068,
    slowdown: 100.0,
    memory_total: 196_592.0,
    memory_reserved: 0.0,
    memory_idle: 283.0,
    pcie_generation: 5.0,
    pcie_rate: 55e9,
    links: 7.0,
    link_rate: 448e9,
};

/// The models of the hosts, repeated: two hosts have both vendors, eight hosts all models.
static HOSTS: [&Model; 8] = [&H100, &MI300X, &H100, &A100, &H100, &MI300X, &MI300X, &RTX_6000];

/// Model of all GPUs of a host.
pub(super) fn of_host(host: usize) -> &'static Model {
    HOSTS.get(host % HOSTS.len()).copied().unwrap_or(&H100)
}
