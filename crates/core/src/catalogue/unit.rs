//! The words of a column are its type, unit, instrument, scope, tier, series and group.

/// Type of the column, in memory, on the wire and on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ColumnType {
    /// Signed integer of 32 bits.
    I32,
    /// Signed integer of 64 bits.
    I64,
    /// IEEE 754 float of 32 bits.
    F32,
    /// IEEE 754 float of 64 bits.
    F64,
}

/// Unit of the column in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unit {
    /// A plain number or code.
    None,
    /// Per cent, 0 to 100.
    Percent,
    /// Share, 0 to 1.
    Ratio,
    /// Megahertz (10^6 cycles a second).
    Megahertz,
    /// Degrees Celsius; a distance to a limit is in them, too.
    Celsius,
    /// Watts, of power and its limits.
    Watt,
    /// Millijoules, of counters of energy.
    Millijoule,
    /// Mebibyte (2^20 bytes).
    Mebibyte,
    /// Bytes, of counters of traffic.
    Byte,
    /// Bytes per second.
    BytesPerSecond,
    /// Revolutions per minute.
    Rpm,
    /// Millivolts, of a supply rail.
    Millivolt,
    /// Nanoseconds, of durations and clocks.
    Nanosecond,
    /// Gigatransfers per second (10^9).
    GigatransfersPerSecond,
}

/// How the value behaves over time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Instrument {
    /// Goes up and down.
    Gauge,
    /// Only grows, until the driver or host restarts.
    Counter,
    /// One of a few states, or a bit mask of them.
    State,
    /// Changes only with the configuration.
    Info,
}

/// The subject of one value. Links, blocks and stacks have one value for all of them. The CPUs of a host are rows of
/// `system_events` beside its own, with the number in column `core`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// The whole GPU (or partition).
    Device,
    /// An NVLink or xGMI link; label `link`.
    Link,
    /// What links lead to: another GPU by its PCI address, or a switch; label `peer`.
    Peer,
    /// An ECC or RAS block; label `block`.
    Block,
    /// An HBM stack; label `stack`.
    HbmStack,
    /// The host, whatever GPUs it has.
    Host,
    /// A CPU of the host (hardware thread); label `core`. Read on request only.
    CpuCore,
    /// A process on a GPU; label `pid`.
    Process,
}

/// The price of a reading, and so its rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tier {
    /// At the sampling rate.
    Fast,
    /// At most once a second.
    Slow,
    /// Every 30 to 60 seconds.
    Rare,
}

/// The smallest of the exposition's sets that contains a metric; a larger set includes the smaller ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Series {
    /// The handful that everybody needs.
    Basic,
    /// The default: at most 100 series a GPU together with the basic ones.
    Standard,
    /// Every metric that has a series.
    All,
}

/// Panels and documents show metrics by group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Group {
    /// Load of the engines.
    Utilization,
    /// Power and energy.
    Power,
    /// Temperatures and their limits.
    Temperature,
    /// Clocks and their limits.
    Clock,
    /// Device memory: its size and use.
    Memory,
    /// Fans and voltages.
    Board,
    /// Modes of GPU and driver, and the clocks that time readings.
    Driver,
    /// Throttle reasons and throttled time.
    Throttle,
    /// PCIe link: its speed, traffic and errors.
    Pcie,
    /// NVLink and xGMI.
    Interconnect,
    /// ECC, RAS, retired pages, XID.
    Reliability,
    /// Hardware profiling ratios.
    Profiling,
    /// CPUs and memory of the host.
    Host,
}

/// Largest plausible count: DCGM's blanks (from 0x7fff_ffff_ffff_fff0) and all-ones are above or below zero.
pub(super) const COUNT: (f64, f64) = (0.0, 9.0e18);
/// Off or on.
pub(super) const FLAG: (f64, f64) = (0.0, 1.0);
