//! Fans, voltages and modes of the board, and the clocks that time its readings.

use crate::catalogue::row::{counter, gauge, new, old, state};
use crate::catalogue::unit::FLAG;
use crate::catalogue::{ColumnType, Group, Metric, Unit};

pub(super) const ROWS: &[Metric] = &[
    gauge(
        ("fan_speed_pct", ColumnType::F32, Unit::Percent),
        Group::Board,
        "gpu_fan_speed_ratio",
        "Speed the fans are set to, of their maximum; may pass 100 %; absent on passive cards.",
    )
    .basic()
    .range(0.0, 200.0)
    .dcgm(&[old("DCGM_FI_DEV_FAN_SPEED", 1.0), new("DCGM_FI_DEV_FAN_SPEED_RATIO", 0.01)])
    .otel("hw.fan.speed_ratio")
    .aliases(&["fan_speed", "fan_speed_percent", "fan_pct", "fan_percent"]),
    gauge(
        ("fan_speed_rpm", ColumnType::I32, Unit::Rpm),
        Group::Board,
        "gpu_fan_speed_rpm",
        "Speed of the fan, in revolutions per minute; 0 is a fan at rest; absent on passive cards.",
    )
    .otel("hw.fan.speed")
    .aliases(&["fan_rpm"]),
    fan_limit("fan_speed_min_rpm", &[("limit", "min")], "Lowest speed of the fan that can be set (AMD fan1_min)."),
    fan_limit("fan_speed_max_rpm", &[("limit", "max")], "Highest speed of the fan that can be set (AMD fan1_max)."),
    gauge(
        ("fan_target_rpm", ColumnType::I32, Unit::Rpm),
        Group::Board,
        "gpu_fan_target_rpm",
        "Speed that the firmware keeps the fan at while the GPU is cool enough (AMD acoustic target, RDNA3 and later); \
         absent if overdrive is not enabled.",
    )
    .rare(),
    voltage("voltage_gfx_mv", &[("rail", "gfx")], "Voltage of the graphics rail (AMD vddgfx).")
        .aliases(&["voltage_gfx", "vddgfx"]),
    voltage("voltage_soc_mv", &[("rail", "soc")], "Voltage of the SoC rail (AMD; vddnb on APUs).")
        .aliases(&["voltage_soc", "vddnb"]),
    voltage("voltage_mem_mv", &[("rail", "mem")], "Voltage of the memory rail (AMD).")
        .aliases(&["voltage_mem"]),
    state(
        "persistence_mode",
        FLAG.1,
        Group::Driver,
        "gpu_persistence_mode",
        "1 if the driver stays loaded without a user of the GPU (NVIDIA persistence mode).",
    )
    .rare(),
    state(
        "compute_mode",
        3.0,
        Group::Driver,
        "gpu_compute_mode",
        "Who may compute (NVIDIA): 0 all, 1 one thread, 2 nobody, 3 one process.",
    )
    .rare(),
    state(
        "mig_mode",
        FLAG.1,
        Group::Driver,
        "gpu_mig_mode",
        "1 if the GPU is divided into MIG instances (NVIDIA).",
    )
    .rare()
    .dcgm(&[old("DCGM_FI_DEV_MIG_MODE", 1.0), new("DCGM_FI_DEV_MIG_MODE", 1.0)]),
    state(
        "mig_mode_pending",
        FLAG.1,
        Group::Driver,
        "gpu_mig_mode_pending",
        "1 if the GPU will be divided into MIG instances after the next reset (NVIDIA).",
    )
    .rare(),
    gauge(
        ("partition_count", ColumnType::I32, Unit::None),
        Group::Driver,
        "gpu_partitions",
        "Compute partitions the GPU is divided into (AMD XCP, NVIDIA MIG instances).",
    )
    .rare()
    .range(0.0, 1024.0),
    state(
        "ecc_mode",
        FLAG.1,
        Group::Driver,
        "gpu_ecc_mode",
        "1 if error correction of the device memory is on.",
    )
    .rare()
    .dcgm(&[old("DCGM_FI_DEV_ECC_CURRENT", 1.0), new("DCGM_FI_DEV_ECC_MODE", 1.0)]),
    state(
        "ecc_mode_pending",
        FLAG.1,
        Group::Driver,
        "gpu_ecc_mode_pending",
        "1 if error correction will be on after the next reset.",
    )
    .rare()
    .dcgm(&[old("DCGM_FI_DEV_ECC_PENDING", 1.0), new("DCGM_FI_DEV_ECC_PENDING", 1.0)]),
    state(
        "confidential_mode",
        8.0,
        Group::Driver,
        "gpu_confidential_mode",
        "State of confidential computing (NVIDIA): 0 off; other values as the driver numbers them.",
    )
    .rare()
    .dcgm(&[old("DCGM_FI_DEV_CC_MODE", 1.0), new("DCGM_FI_DEV_CC_MODE", 1.0)]),
    counter(
        ("driver_snapshot_ns", ColumnType::I64, Unit::Nanosecond),
        Group::Driver,
        "gpu_driver_snapshot_seconds_total",
        "Driver's monotonic clock when it took the snapshot that was read; equal values are one snapshot read twice.",
    )
    .fast()
    .aliases(&["system_clock_counter"]),
    counter(
        ("firmware_timestamp_ns", ColumnType::I64, Unit::Nanosecond),
        Group::Driver,
        "gpu_firmware_timestamp_seconds_total",
        "Firmware's clock when it sampled its sensors, in ns; equal values are one sample read twice.",
    )
    .fast(),
];

const fn fan_limit(
    column: &'static str,
    labels: &'static [(&'static str, &'static str)],
    help: &'static str,
) -> Metric {
    gauge((column, ColumnType::I32, Unit::Rpm), Group::Board, "gpu_fan_speed_limit_rpm", help)
        .rare()
        .labels(labels)
}

const fn voltage(
    column: &'static str,
    labels: &'static [(&'static str, &'static str)],
    help: &'static str,
) -> Metric {
    gauge((column, ColumnType::I32, Unit::Millivolt), Group::Board, "gpu_voltage_volts", help)
        .labels(labels)
        .otel("hw.voltage")
}
