//! Spellings of the catalogue's own words for people, JSON and files, and the meaning of units.

use std::fmt;

use serde::{Serialize, Serializer};

use super::{ColumnType, Group, Instrument, Metric, Scope, Series, Tier, Unit};

macro_rules! spelled {
    ($type:ident: $($variant:ident $word:literal),+ $(,)?) => {
        impl $type {
            /// Its word, the same in documents, JSON and files.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }
    };
}

spelled!(ColumnType: I32 "int32", I64 "int64", F32 "float32", F64 "float64");
spelled!(
    Unit: None "", Percent "%", Ratio "ratio", Megahertz "MHz", Celsius "°C", Watt "W", Millijoule "mJ", Mebibyte "MiB",
    Byte "B", BytesPerSecond "B/s", Rpm "rpm", Millivolt "mV", Nanosecond "ns", GigatransfersPerSecond "GT/s",
);
spelled!(Instrument: Gauge "gauge", Counter "counter", State "state", Info "info");
spelled!(
    Scope: Device "device", Link "link", Peer "peer", Block "block", HbmStack "stack", Host "host", CpuCore "core",
    Process "process",
);
spelled!(Tier: Fast "fast", Slow "slow", Rare "rare");
spelled!(Series: Basic "basic", Standard "standard", All "all");
spelled!(
    Group: Utilization "utilization", Power "power", Temperature "temperature", Clock "clock", Memory "memory",
    Board "board", Driver "driver", Throttle "throttle", Pcie "pcie", Interconnect "interconnect", Reliability "reliability",
    Profiling "profiling", Host "host",
);

impl Scope {
    /// Label that distinguishes the instances of such a metric, if it has any.
    pub const fn label(self) -> Option<&'static str> {
        match self {
            Self::Device | Self::Host => None,
            Self::Link => Some("link"),
            Self::Peer => Some("peer"),
            Self::Block => Some("block"),
            Self::HbmStack => Some("stack"),
            Self::CpuCore => Some("core"),
            Self::Process => Some("pid"),
        }
    }
}

impl Metric {
    /// The set bits of a mask by name, `bit 12` for one without a name and `none` if none is set; empty for a
    /// metric that is not a mask.
    pub fn names_of(&self, mask: i64) -> String {
        if self.bits.is_empty() {
            return String::new();
        }
        let name = |bit: u8| {
            let known = self.bits.iter().find(|(number, _)| *number == bit);
            known.map_or_else(|| format!("bit {bit}"), |(_, name)| (*name).to_owned())
        };
        let set: Vec<String> = (0..63).filter(|bit| mask & (1 << bit) != 0).map(name).collect();
        if set.is_empty() { "none".to_owned() } else { set.join(", ") }
    }
}

impl Group {
    /// Heading for people.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Utilization => "Utilisation",
            Self::Power => "Power and energy",
            Self::Temperature => "Temperature",
            Self::Clock => "Clocks",
            Self::Memory => "Memory",
            Self::Board => "Fans and voltages",
            Self::Driver => "Driver and modes",
            Self::Throttle => "Throttling",
            Self::Pcie => "PCIe",
            Self::Interconnect => "NVLink and xGMI",
            Self::Reliability => "Reliability",
            Self::Profiling => "Profiling",
            Self::Host => "Host",
        }
    }
}

impl Unit {
    /// Suffix of a column of this unit; empty for plain numbers.
    pub const fn column_suffix(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Percent => "_pct",
            Self::Ratio => "_ratio",
            Self::Megahertz => "_mhz",
            Self::Celsius => "_c",
            Self::Watt => "_w",
            Self::Millijoule => "_mj",
            Self::Mebibyte => "_mb",
            Self::Byte => "_bytes",
            Self::BytesPerSecond => "_bytes_per_s",
            Self::Rpm => "_rpm",
            Self::Millivolt => "_mv",
            Self::Nanosecond => "_ns",
            Self::GigatransfersPerSecond => "_gtps",
        }
    }

    /// The unit of its rise in a second and the factor to it, if that unit has a name of its own.
    pub const fn per_second(self) -> Option<(Self, f64)> {
        match self {
            Self::Millijoule => Some((Self::Watt, 1e-3)),
            Self::Byte => Some((Self::BytesPerSecond, 1.0)),
            _ => None,
        }
    }

    /// The Prometheus base unit, as families name it; empty for plain numbers.
    pub const fn base(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Percent | Self::Ratio => "ratio",
            Self::Megahertz => "hertz",
            Self::Celsius => "celsius",
            Self::Watt => "watts",
            Self::Millijoule => "joules",
            Self::Mebibyte | Self::Byte => "bytes",
            Self::BytesPerSecond => "bytes_per_second",
            Self::Rpm => "rpm",
            Self::Millivolt => "volts",
            Self::Nanosecond => "seconds",
            Self::GigatransfersPerSecond => "transfers_per_second",
        }
    }

    /// Value in the base unit = value × this.
    pub const fn base_factor(self) -> f64 {
        match self {
            Self::Percent => 0.01,
            Self::Megahertz => 1e6,
            Self::Mebibyte => 1_048_576.0,
            Self::Millivolt | Self::Millijoule => 1e-3,
            Self::Nanosecond => 1e-9,
            Self::GigatransfersPerSecond => 1e9,
            Self::None
            | Self::Ratio
            | Self::Celsius
            | Self::Watt
            | Self::Byte
            | Self::BytesPerSecond
            | Self::Rpm => 1.0,
        }
    }

    /// Possible values when the metric does not know better. Wide enough for the next generation of parts,
    /// narrow enough to refuse values in a unit a thousand times too small, and blanks: a part of 1,400 W,
    /// memory of 18,000 MHz and a fan of 25,000 rpm exist; 4,295 W (32 bits of ones in milliwatts), 32,768
    /// MHz and 65,535 rpm do not.
    pub(super) const fn range(self) -> (f64, f64) {
        match self {
            Self::None => (-1e15, 1e15),
            Self::Percent => (0.0, 100.0),
            Self::Ratio => (0.0, 1.01), // two hardware counters read one after the other: 1 may be overshot
            Self::Megahertz => (0.0, 30_000.0),
            Self::Celsius => (-50.0, 150.0),
            Self::Watt => (0.0, 4_000.0),
            Self::Millijoule => (0.0, 9.0e15),
            Self::Mebibyte => (0.0, 67_108_864.0), // 64 TiB
            Self::Byte | Self::Nanosecond => super::unit::COUNT,
            Self::BytesPerSecond => (0.0, 1e14),
            Self::Rpm => (0.0, 40_000.0),
            Self::Millivolt => (0.0, 20_000.0),
            Self::GigatransfersPerSecond => (0.0, 1000.0),
        }
    }

    /// Whether a foreign header means this unit by `text`; the sources' spellings, ignoring case.
    pub(super) fn is_spelled(self, text: &str) -> bool {
        let spellings: &[&str] = match self {
            Self::None => &["", "count"],
            Self::Percent => &["%", "percent", "pct"],
            Self::Ratio => &["ratio", "0-1"],
            Self::Megahertz => &["mhz"],
            Self::Celsius => &["c", "°c", "celsius", "degc"],
            Self::Watt => &["w", "watt", "watts"],
            Self::Millijoule => &["mj", "millijoule", "millijoules"],
            Self::Mebibyte => &["mib", "mb"],
            Self::Byte => &["b", "byte", "bytes"],
            Self::BytesPerSecond => &["b/s", "bytes/s"],
            Self::Rpm => &["rpm"],
            Self::Millivolt => &["mv"],
            Self::Nanosecond => &["ns"],
            Self::GigatransfersPerSecond => &["gt/s"],
        };
        spellings.iter().any(|spelling| spelling.eq_ignore_ascii_case(text))
    }
}
