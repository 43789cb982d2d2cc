//! Units as people write them after a number or a column name.

use crate::catalogue::Unit;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Dimension {
    Share,
    Frequency,
    Temperature,
    /// On a scale with another zero: no factor leads to degrees Celsius.
    OtherTemperature,
    Power,
    Energy,
    Size,
    Rate,
    Rotation,
    Voltage,
    Duration,
    Transfers,
}

/// Spelling, dimension, size in the dimension's base unit.
const UNITS: &[(&str, Dimension, f64)] = &[
    ("%", Dimension::Share, 0.01),
    ("percent", Dimension::Share, 0.01),
    ("pct", Dimension::Share, 0.01),
    ("perc", Dimension::Share, 0.01),
    ("percentage", Dimension::Share, 0.01),
    ("prozent", Dimension::Share, 0.01),
    ("ratio", Dimension::Share, 1.0),
    ("fraction", Dimension::Share, 1.0),
    ("frac", Dimension::Share, 1.0),
    ("MHz", Dimension::Frequency, 1e6),
    ("Hz", Dimension::Frequency, 1.0),
    ("kHz", Dimension::Frequency, 1e3),
    ("GHz", Dimension::Frequency, 1e9),
    ("hertz", Dimension::Frequency, 1.0),
    ("megahertz", Dimension::Frequency, 1e6),
    ("C", Dimension::Temperature, 1.0),
    ("°C", Dimension::Temperature, 1.0),
    ("degC", Dimension::Temperature, 1.0),
    ("celsius", Dimension::Temperature, 1.0),
    ("deg", Dimension::Temperature, 1.0),
    ("degrees", Dimension::Temperature, 1.0),
    ("deg C", Dimension::Temperature, 1.0),
    ("degree C", Dimension::Temperature, 1.0),
    ("degrees C", Dimension::Temperature, 1.0),
    ("degrees Celsius", Dimension::Temperature, 1.0),
    ("Celsius degree", Dimension::Temperature, 1.0),
    ("F", Dimension::OtherTemperature, 1.0),
    ("°F", Dimension::OtherTemperature, 1.0),
    ("fahrenheit", Dimension::OtherTemperature, 1.0),
    ("kelvin", Dimension::OtherTemperature, 1.0),
    ("W", Dimension::Power, 1.0),
    ("mW", Dimension::Power, 1e-3),
    ("uW", Dimension::Power, 1e-6),
    ("kW", Dimension::Power, 1e3),
    ("watt", Dimension::Power, 1.0),
    ("watts", Dimension::Power, 1.0),
    ("milliwatt", Dimension::Power, 1e-3),
    ("milliwatts", Dimension::Power, 1e-3),
    ("microwatts", Dimension::Power, 1e-6),
    ("kilowatts", Dimension::Power, 1e3),
    ("J", Dimension::Energy, 1.0),
    ("mJ", Dimension::Energy, 1e-3),
    ("uJ", Dimension::Energy, 1e-6),
    ("kJ", Dimension::Energy, 1e3),
    ("Wh", Dimension::Energy, 3600.0),
    ("kWh", Dimension::Energy, 3.6e6),
    ("joule", Dimension::Energy, 1.0),
    ("joules", Dimension::Energy, 1.0),
    ("millijoules", Dimension::Energy, 1e-3),
    ("microjoules", Dimension::Energy, 1e-6),
    ("MiB", Dimension::Size, 1_048_576.0),
    ("B", Dimension::Size, 1.0),
    ("byte", Dimension::Size, 1.0),
    ("bytes", Dimension::Size, 1.0),
    ("KiB", Dimension::Size, 1024.0),
    ("GiB", Dimension::Size, 1_073_741_824.0),
    ("TiB", Dimension::Size, 1_099_511_627_776.0),
    ("kB", Dimension::Size, 1e3),
    ("MB", Dimension::Size, 1e6),
    ("GB", Dimension::Size, 1e9),
    ("TB", Dimension::Size, 1e12),
    ("mebibytes", Dimension::Size, 1_048_576.0),
    ("gibibytes", Dimension::Size, 1_073_741_824.0),
    ("megabytes", Dimension::Size, 1e6),
    ("gigabytes", Dimension::Size, 1e9),
    // Octets, in French.
    ("Mio", Dimension::Size, 1_048_576.0),
    ("Gio", Dimension::Size, 1_073_741_824.0),
    ("Mo", Dimension::Size, 1e6),
    ("Go", Dimension::Size, 1e9),
    ("octets", Dimension::Size, 1.0),
    ("B/s", Dimension::Rate, 1.0),
    ("bytes/s", Dimension::Rate, 1.0),
    ("KiB/s", Dimension::Rate, 1024.0),
    ("MiB/s", Dimension::Rate, 1_048_576.0),
    ("GiB/s", Dimension::Rate, 1_073_741_824.0),
    ("kB/s", Dimension::Rate, 1e3),
    ("MB/s", Dimension::Rate, 1e6),
    ("GB/s", Dimension::Rate, 1e9),
    ("RPM", Dimension::Rotation, 1.0),
    ("mV", Dimension::Voltage, 1e-3),
    ("V", Dimension::Voltage, 1.0),
    ("volt", Dimension::Voltage, 1.0),
    ("volts", Dimension::Voltage, 1.0),
    ("millivolts", Dimension::Voltage, 1e-3),
    ("uV", Dimension::Voltage, 1e-6),
    ("ns", Dimension::Duration, 1e-9),
    ("us", Dimension::Duration, 1e-6),
    ("µs", Dimension::Duration, 1e-6),
    ("ms", Dimension::Duration, 1e-3),
    ("s", Dimension::Duration, 1.0),
    ("GT/s", Dimension::Transfers, 1.0),
];

/// Decimal units of memory, in MiB as they are meant.
const BINARY: &[(&str, f64)] = &[
    ("kB", 1.0 / 1024.0),
    ("MB", 1.0),
    ("megabytes", 1.0),
    ("GB", 1024.0),
    ("gigabytes", 1024.0),
    ("TB", 1_048_576.0),
    ("Mo", 1.0),
    ("Go", 1024.0),
    // Of a size that a GPU has nothing else is meant.
    ("K", 1.0 / 1024.0),
    ("M", 1.0),
    ("G", 1024.0),
    ("T", 1_048_576.0),
];

/// Whether the text is a unit.
pub(super) fn is_known(written: &str) -> bool {
    UNITS.iter().any(|(spelling, _, _)| spelling.eq_ignore_ascii_case(written))
}

/// The factor from a number in the written unit to the column unit; `None` if the unit is unknown or measures
/// something else. Case matters only if it distinguishes units (`mW`).
pub(super) fn factor(written: &str, column: Unit) -> Option<f64> {
    let (dimension, column_size) = match column {
        Unit::None => return None,
        Unit::Percent => (Dimension::Share, 0.01),
        Unit::Ratio => (Dimension::Share, 1.0),
        Unit::Megahertz => (Dimension::Frequency, 1e6),
        Unit::Celsius => (Dimension::Temperature, 1.0),
        Unit::Watt => (Dimension::Power, 1.0),
        Unit::Millijoule => (Dimension::Energy, 1e-3),
        Unit::Mebibyte => (Dimension::Size, 1_048_576.0),
        Unit::Byte => (Dimension::Size, 1.0),
        Unit::BytesPerSecond => (Dimension::Rate, 1.0),
        Unit::Rpm => (Dimension::Rotation, 1.0),
        Unit::Millivolt => (Dimension::Voltage, 1e-3),
        Unit::Nanosecond => (Dimension::Duration, 1e-9),
        Unit::GigatransfersPerSecond => (Dimension::Transfers, 1.0),
    };
    // Tools that print MB or GB for memory (amd-smi, old nvidia-smi, free) count in powers of 1024.
    if column == Unit::Mebibyte
        && let Some((_, size)) = BINARY.iter().find(|(unit, _)| written.eq_ignore_ascii_case(unit))
    {
        return Some(*size);
    }
    let mut known = UNITS.iter().filter(|(_, d, _)| *d == dimension);
    let (_, _, size) = known
        .clone()
        .find(|(spelling, _, _)| *spelling == written)
        .or_else(|| known.find(|(spelling, _, _)| spelling.eq_ignore_ascii_case(written)))?;
    // The same unit must give exactly one: 0.01 / 0.01 does. 1e-6 / 1e-9 is just below 1000.
    let factor = size / column_size;
    let whole = factor.round();
    Some(if whole >= 1.0 && (factor - whole).abs() < whole * 1e-12 { whole } else { factor })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn megabytes_of_memory_are_the_same_in_header_and_cell() {
        assert_eq!(factor("MB", Unit::Mebibyte), Some(1.0));
        assert_eq!(factor("MiB", Unit::Mebibyte), Some(1.0));
        assert_eq!(factor("GB", Unit::Mebibyte), Some(1024.0));
        assert_eq!(factor("gb", Unit::Mebibyte), factor("GiB", Unit::Mebibyte));
        assert_eq!(factor("B", Unit::Mebibyte), Some(1.0 / 1_048_576.0));
        assert_eq!(factor("MB/s", Unit::BytesPerSecond), Some(1e6));
        assert_eq!(factor("mW", Unit::Watt), Some(1e-3));
        assert_eq!(factor("W", Unit::Mebibyte), None);
        assert_eq!(factor("us", Unit::Nanosecond), Some(1e3));
        assert_eq!(factor("percentage", Unit::Percent), Some(1.0));
    }
}
