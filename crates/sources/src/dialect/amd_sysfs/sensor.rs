//! A kept-open file whose number is one metric, and the meaning of its errors.

use std::io;
use std::path::Path;

use gpuvitals_core::batch::Value;
use gpuvitals_core::catalogue::{ColumnType, Tier};
use gpuvitals_core::number::float;
use gpuvitals_core::{AbsenceReason, MetricId};
use rustix::io::Errno;

use super::parse::dpm_levels;
use crate::machine::PinnedFile;
use crate::probe::Row;

/// Why a file gave nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::dialect) enum Missing {
    /// As long as the driver is loaded: not asked again.
    Always(AbsenceReason),
    /// This time; it is asked again.
    Now(AbsenceReason),
    /// The driver has released the device; every open file of it is dead.
    Gone,
}

impl Missing {
    /// The meaning of an error of opening or reading a file of amdgpu.
    pub(in crate::dialect) fn of(error: &io::Error) -> Self {
        match Errno::from_io_error(error) {
            Some(Errno::NOENT | Errno::NOTSUP | Errno::INVAL | Errno::NOSYS) => {
                Self::Always(AbsenceReason::NotSupported)
            }
            Some(Errno::ACCESS) => Self::Always(AbsenceReason::Denied),
            // Newer kernels answer so while the device sleeps, older ones while it is reset.
            Some(Errno::PERM | Errno::BUSY | Errno::AGAIN) => Self::Now(AbsenceReason::Suspended),
            Some(Errno::NODEV | Errno::NXIO) => Self::Gone,
            // The firmware did not answer in time.
            Some(Errno::TIME | Errno::TIMEDOUT) => Self::Now(AbsenceReason::TimedOut),
            _ => Self::Now(AbsenceReason::Invalid),
        }
    }

    /// In the words of absences.
    pub(in crate::dialect) fn reason(self) -> AbsenceReason {
        match self {
            Self::Always(reason) | Self::Now(reason) => reason,
            Self::Gone => AbsenceReason::Gone,
        }
    }
}

/// How a raw number becomes one in the column unit: times, then divided by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Scale(pub(super) i64, pub(super) i64);

impl Scale {
    /// The column unit itself.
    pub(super) const ONE: Self = Self(1, 1);
}

/// Sets a metric to a raw number in its column unit; one below the metric's minimum is refused before it is scaled: −1 byte is
/// not 0 MiB.
pub(super) fn put(row: &mut Row, metric: MetricId, raw: i64, scale: Scale) {
    if raw < 0 && metric.metric().range.0 >= 0.0 {
        return row.refuse(metric);
    }
    row.set(metric, in_column_unit(metric, raw, scale));
}

/// A raw number, scaled, in the type of the metric's column; whole numbers are rounded.
pub(super) fn in_column_unit(metric: MetricId, raw: i64, Scale(times, by): Scale) -> Value {
    let by = by.max(1);
    match metric.metric().column_type {
        ColumnType::I32 | ColumnType::I64 => {
            let product = i128::from(raw) * i128::from(times);
            let rounded = (product + i128::from(by / 2)).div_euclid(i128::from(by));
            Value::Int(i64::try_from(rounded).unwrap_or(i64::MAX))
        }
        ColumnType::F32 => Value::Float32(narrow(scaled(raw, times, by))),
        ColumnType::F64 => Value::Float(scaled(raw, times, by)),
    }
}

fn scaled(raw: i64, times: i64, by: i64) -> f64 {
    float(raw) * float(times) / float(by)
}

/// To the type of most columns.
#[expect(clippy::cast_possible_truncation, reason = "the column has this precision")]
pub(super) fn narrow(value: f64) -> f32 {
    value as f32
}

pub(super) const GPU_CLOCK: MetricId = MetricId::of("gpu_clock_mhz");
const VOLTAGE_GFX: MetricId = MetricId::of("voltage_gfx_mv");
const FAN: MetricId = MetricId::of("fan_speed_rpm");
const LEVELS: [MetricId; 2] = [MetricId::of("gpu_clock_level"), MetricId::of("mem_clock_level")];

/// Whether a voltage of the graphics rail is none: 0 mV while the clock runs. With the clock at 0 the rail is off.
pub(super) fn is_dead_rail(row: &Row, metric: MetricId, raw: i64) -> bool {
    metric == VOLTAGE_GFX && raw == 0 && row.get(GPU_CLOCK).is_some_and(|clock| clock.as_f64() > 0.0)
}

/// Raw number of a file's text.
pub(super) type Parse = fn(&str) -> Option<i64>;

/// The number of a part that is in deep sleep and therefore has none.
pub(super) const ASLEEP: i64 = i64::MIN;

/// A file whose number is one metric.
#[derive(Debug)]
pub(super) struct Gauge {
    pub(super) metric: MetricId,
    pub(super) tier: Tier,
    file: PinnedFile,
    parse: Parse,
    scale: Scale,
}

impl Gauge {
    /// Opens the file and reads it once into the row, the only proof that it can be read.
    pub(super) fn open(
        path: &Path,
        (metric, parse, scale): (MetricId, Parse, Scale),
        row: &mut Row,
    ) -> Result<Self, Missing> {
        let file = PinnedFile::open(path).map_err(|error| Missing::of(&error))?;
        let mut gauge = Self { metric, tier: metric.metric().tier, file, parse, scale };
        match gauge.read(row) {
            Ok(()) => Ok(gauge),
            // Text that is no number now (an empty file, a sensor that is not there) will not become one.
            Err(Missing::Now(AbsenceReason::Invalid)) if gauge.is_final() => {
                Err(Missing::Always(AbsenceReason::NotSupported))
            }
            Err(Missing::Now(reason)) => {
                row.absent(metric, reason);
                Ok(gauge)
            }
            // A fan at rest may answer so.
            Err(Missing::Always(AbsenceReason::NotSupported)) if metric == FAN => {
                row.absent(metric, AbsenceReason::Invalid);
                Ok(gauge)
            }
            Err(missing) => Err(missing),
        }
    }

    /// Reads it into the row.
    pub(super) fn read(&mut self, row: &mut Row) -> Result<(), Missing> {
        let text = self.file.read_text().map_err(|error| Missing::of(&error))?;
        let raw = (self.parse)(text).filter(|&raw| !is_dead_rail(row, self.metric, raw));
        let raw = raw.ok_or(Missing::Now(AbsenceReason::Invalid))?;
        if raw == ASLEEP {
            return Err(Missing::Now(AbsenceReason::Suspended));
        }
        put(row, self.metric, raw, self.scale);
        Ok(())
    }

    /// Whether the text stays without a number. Not that of a table of levels without one star: which lines have it
    /// changes with the load.
    fn is_final(&mut self) -> bool {
        let is_level = LEVELS.contains(&self.metric);
        self.file.read_text().is_ok_and(|text| !is_level || dpm_levels(text).next().is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_has_its_meaning() {
        let check = |errno: Errno, meaning| {
            assert_eq!(Missing::of(&io::Error::from(errno)), meaning, "{errno:?}");
        };
        for errno in [Errno::NOENT, Errno::OPNOTSUPP, Errno::INVAL] {
            check(errno, Missing::Always(AbsenceReason::NotSupported));
        }
        check(Errno::ACCESS, Missing::Always(AbsenceReason::Denied));
        check(Errno::PERM, Missing::Now(AbsenceReason::Suspended));
        check(Errno::BUSY, Missing::Now(AbsenceReason::Suspended));
        check(Errno::NODEV, Missing::Gone);
        check(Errno::TIME, Missing::Now(AbsenceReason::TimedOut));
        check(Errno::IO, Missing::Now(AbsenceReason::Invalid));
    }
}
