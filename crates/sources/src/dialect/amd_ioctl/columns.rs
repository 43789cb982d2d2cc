//! Which answer is which column.

use gpuvitals_core::batch::Value;
use gpuvitals_core::number::float;
use gpuvitals_core::{AbsenceReason, MetricId};

use super::answer::{DEV_INFO_LEN, GpuHeaps, Heap, MEMORY_LEN, parse_dev_info, parse_memory};
use super::{Device, Query};
use crate::dialect::amd_sysfs::Missing;
use crate::probe::{Due, Row};

/// A sensor and its column.
struct Sensor {
    number: u32,
    metric: MetricId,
    value: fn(u32) -> Value,
}

const fn sensor(number: u32, metric: &str, value: fn(u32) -> Value) -> Sensor {
    Sensor { number, metric: MetricId::of(metric), value }
}

/// The stable and peak clocks of profiling (8 to 11) have no column.
const SENSORS: [Sensor; 8] = [
    sensor(0x1, "gpu_clock_mhz", whole),
    sensor(0x2, "mem_clock_mhz", whole),
    sensor(0x3, "temperature_c", celsius),
    sensor(0x4, "utilization_pct", plain),
    sensor(0x5, "power_average_w", plain),
    sensor(0xc, "power_w", plain),
    sensor(0x6, "voltage_soc_mv", whole),
    sensor(0x7, "voltage_gfx_mv", whole),
];

const TEMPERATURE: MetricId = MetricId::of("temperature_c");
const TEMPERATURE_EDGE: MetricId = MetricId::of("temperature_edge_c");
const POWER: MetricId = MetricId::of("power_w");
const POWER_AVERAGE: MetricId = MetricId::of("power_average_w");
const CLOCK: MetricId = MetricId::of("gpu_clock_mhz");
const VOLTAGE_GFX: MetricId = MetricId::of("voltage_gfx_mv");
const VOLTAGE_SOC: MetricId = MetricId::of("voltage_soc_mv");
const MEMORY_USED: MetricId = MetricId::of("memory_used_mb");
const MEMORY_FREE: MetricId = MetricId::of("memory_free_mb");
const MEMORY_USED_PCT: MetricId = MetricId::of("memory_used_pct");
/// A heap, its size and the part in use.
const HEAPS: [(PickHeap, MetricId, MetricId); 3] = [
    (|memory| memory.vram, MetricId::of("memory_total_mb"), MetricId::of("memory_used_mb")),
    (
        |memory| memory.visible,
        MetricId::of("visible_memory_total_mb"),
        MetricId::of("visible_memory_used_mb"),
    ),
    (|memory| memory.gtt, MetricId::of("gtt_total_mb"), MetricId::of("gtt_used_mb")),
];
type PickHeap = fn(&GpuHeaps) -> Heap;
const CLOCK_MAX: MetricId = MetricId::of("gpu_clock_max_mhz");
const MEMORY_CLOCK_MAX: MetricId = MetricId::of("mem_clock_max_mhz");

fn whole(raw: u32) -> Value {
    Value::Int(raw.into())
}

#[expect(clippy::cast_precision_loss, reason = "watts and per cent are far below 2^24")]
fn plain(raw: u32) -> Value {
    Value::Float32(raw as f32)
}

/// From the kernel's millidegrees, which are signed.
#[expect(clippy::cast_precision_loss, reason = "temperatures have six digits at most")]
fn celsius(raw: u32) -> Value {
    Value::Float32(raw.cast_signed() as f32 / 1000.0)
}

/// Which sensors a GPU has been found to lack, and why.
pub(super) type Lacks = [Option<AbsenceReason>; SENSORS.len()];

/// The device is no longer there.
#[derive(Debug)]
pub(super) struct Lost;

/// Reads what is due into a row.
pub(super) fn fill(device: &dyn Device, lacks: &mut Lacks, due: Due, row: &mut Row) -> Result<(), Lost> {
    read_sensors(device, lacks, due, row)?;
    read_memory(device, due, row)?;
    if due.rare { read_constants(device, row) } else { Ok(()) }
}

/// The answer to a query, or the reason why it has none.
fn ask(device: &dyn Device, query: Query, answer: &mut [u8]) -> Result<(), Missing> {
    device.info(query, answer).map_err(|error| Missing::of(&error))
}

fn read_sensors(device: &dyn Device, lacks: &mut Lacks, due: Due, row: &mut Row) -> Result<(), Lost> {
    let (mut no_power, mut no_edge) = (AbsenceReason::NotSupported, AbsenceReason::NotSupported);
    for (sensor, lack) in SENSORS.iter().zip(lacks).filter(|(sensor, _)| is_due(sensor.metric, due)) {
        match sense(device, sensor, lack, row)? {
            Ok(value) => row.set(sensor.metric, value),
            // There may still be an average.
            Err(reason) if sensor.metric == POWER => no_power = reason,
            Err(reason) => {
                if sensor.metric == TEMPERATURE {
                    no_edge = reason;
                }
                row.missing(sensor.metric, reason, due);
            }
        }
    }
    match (row.get(POWER), row.get(POWER_AVERAGE)) {
        (Some(_), _) => {}
        (None, Some(average)) => row.set(POWER, average),
        (None, None) => row.missing(POWER, no_power, due),
    }
    // The only temperature it reports is that of the edge.
    if is_due(TEMPERATURE_EDGE, due) {
        match row.get(TEMPERATURE) {
            Some(edge) => row.set(TEMPERATURE_EDGE, edge),
            None => row.missing(TEMPERATURE_EDGE, no_edge, due),
        }
    }
    Ok(())
}

/// The value of a sensor, or the reason why it has none. A missing sensor is not queried again.
fn sense(
    device: &dyn Device,
    sensor: &Sensor,
    lack: &mut Option<AbsenceReason>,
    row: &Row,
) -> Result<Result<Value, AbsenceReason>, Lost> {
    if let Some(reason) = *lack {
        return Ok(Err(reason));
    }
    let mut raw = [0; 4];
    Ok(match ask(device, Query::Sensor(sensor.number), &mut raw) {
        Ok(()) if raw == [0; 4] && says_nothing(sensor.metric, row) => Err(AbsenceReason::NotSupported),
        Ok(()) => Ok((sensor.value)(u32::from_ne_bytes(raw))),
        Err(Missing::Gone) => return Err(Lost),
        Err(Missing::Now(reason)) => Err(reason),
        Err(Missing::Always(reason)) => Err(*lack.insert(reason)),
    })
}

/// Whether 0 is the driver's value for something the GPU does not have: no GPU that answers draws nothing,
/// and none runs without a voltage.
fn says_nothing(metric: MetricId, row: &Row) -> bool {
    match metric {
        POWER | POWER_AVERAGE => true,
        VOLTAGE_GFX | VOLTAGE_SOC => row.get(CLOCK) != Some(Value::Int(0)),
        _ => false,
    }
}

fn read_memory(device: &dyn Device, due: Due, row: &mut Row) -> Result<(), Lost> {
    let mut answer = [0; MEMORY_LEN];
    let memory = match ask(device, Query::Memory, &mut answer) {
        Ok(()) => parse_memory(&answer).ok_or(AbsenceReason::Invalid),
        Err(Missing::Gone) => return Err(Lost),
        Err(missing) => Err(missing.reason()),
    };
    for (heap, total, used) in HEAPS {
        let sizes = memory.map(|memory| heap(&memory)).map(|heap| (heap.total, heap.used));
        for (metric, bytes) in [(total, sizes.map(|sizes| sizes.0)), (used, sizes.map(|sizes| sizes.1))] {
            match bytes {
                _ if !is_due(metric, due) => {}
                Ok(bytes) => row.int(metric, mebibytes(bytes)),
                Err(reason) => row.missing(metric, reason, due),
            }
        }
    }
    let is_true = |heap: &Heap| heap.total > 0 && heap.used <= heap.total && row.get(MEMORY_USED).is_some();
    match memory.and_then(|memory| Some(memory.vram).filter(is_true).ok_or(AbsenceReason::Invalid)) {
        Ok(Heap { total, used }) => {
            row.float(MEMORY_USED_PCT, share(used, total));
            if is_due(MEMORY_FREE, due) {
                row.int(MEMORY_FREE, mebibytes(total) - mebibytes(used));
            }
        }
        Err(reason) => {
            for metric in [MEMORY_USED_PCT, MEMORY_FREE].into_iter().filter(|&metric| is_due(metric, due)) {
                row.missing(metric, reason, due);
            }
        }
    }
    Ok(())
}

fn read_constants(device: &dyn Device, row: &mut Row) -> Result<(), Lost> {
    let mut answer = [0; DEV_INFO_LEN];
    let info = match ask(device, Query::DevInfo, &mut answer) {
        Ok(()) => parse_dev_info(&answer).ok_or(AbsenceReason::Invalid),
        Err(Missing::Gone) => return Err(Lost),
        Err(missing) => Err(missing.reason()),
    };
    let clocks = [
        (CLOCK_MAX, info.map(|info| info.engine_clock_max_khz)),
        (MEMORY_CLOCK_MAX, info.map(|info| info.memory_clock_max_khz)),
    ];
    for (metric, khz) in clocks {
        match khz.map(|khz| i64::try_from(khz / 1000).unwrap_or(i64::MAX)) {
            Ok(0) => row.absent(metric, AbsenceReason::NotSupported),
            Ok(mhz) => row.int(metric, mhz),
            Err(reason) => row.absent(metric, reason),
        }
    }
    Ok(())
}

fn is_due(metric: MetricId, due: Due) -> bool {
    due.has(metric.metric().tier)
}

/// To the nearest.
fn mebibytes(bytes: u64) -> i64 {
    // Without its last 20 bits it is far below the largest signed number.
    (bytes.saturating_add(1 << 19) >> 20).cast_signed()
}

#[expect(clippy::cast_possible_truncation, reason = "a share in per cent")]
fn share(part: u64, whole: u64) -> f32 {
    (float(part) / float(whole) * 100.0) as f32
}
