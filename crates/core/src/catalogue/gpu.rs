//! The columns of `gpu_events`. First those of every recording, then group by group; files and documents use
//! this order.

mod board;
mod clock;
mod ecc;
mod link;
mod load;
mod power;
mod reliability;
mod throttle;

use super::row::{gauge, new, old};
use super::{ColumnType, Group, Metric, Unit};

/// All of them, in order.
pub(super) const PARTS: [&[Metric]; 10] = [
    RECORDED,
    load::ROWS,
    power::ROWS,
    clock::ROWS,
    throttle::ROWS,
    board::ROWS,
    link::ROWS,
    reliability::ROWS,
    ecc::BLOCKS,
    ecc::SRAM,
];

/// The columns of every recording, under their promised names and types.
const RECORDED: &[Metric] = &[
    gauge(
        ("gpu_clock_mhz", ColumnType::I32, Unit::Megahertz),
        Group::Clock,
        "gpu_clock_hertz",
        "Clock of the graphics and compute engine (NVIDIA graphics clock, AMD gfxclk).",
    )
    .fast()
    .basic()
    .labels(&[("clock", "graphics")])
    .aliases(&[
        "gpu_clock",
        "core_clock",
        "graphics_clock",
        "graphics_clock_mhz",
        "gfx_clock",
        "gfxclk",
        "sclk",
        "sclk_mhz",
        "clocks_gr",
        "clocks_current_graphics",
        "clock_speed",
    ]),
    gauge(
        ("mem_clock_mhz", ColumnType::I32, Unit::Megahertz),
        Group::Clock,
        "gpu_clock_hertz",
        "Clock of the device memory.",
    )
    .fast()
    .basic()
    .labels(&[("clock", "memory")])
    .dcgm(&[
        old("DCGM_FI_DEV_MEM_CLOCK", 1.0),
        old("dcgm_memory_clock", 1.0),
        new("DCGM_FI_DEV_MEMORY_CLOCK_HERTZ", 1e6),
    ])
    .aliases(&[
        "mem_clock",
        "memory_clock",
        "memory_clock_mhz",
        "mclk",
        "mclk_mhz",
        "uclk",
        "clocks_mem",
        "clocks_current_memory",
    ]),
    gauge(
        ("temperature_c", ColumnType::F32, Unit::Celsius),
        Group::Temperature,
        "gpu_temperature_celsius",
        "Main temperature of the GPU: NVIDIA's GPU reading; AMD's edge sensor, else its junction.",
    )
    .fast()
    .basic()
    .labels(&[("sensor", "gpu")])
    .dcgm(&[
        old("DCGM_FI_DEV_GPU_TEMP", 1.0),
        old("dcgm_gpu_temp", 1.0),
        new("DCGM_FI_DEV_GPU_TEMP_CELSIUS", 1.0),
    ])
    .otel("hw.temperature")
    .aliases(&[
        "temperature",
        "temp",
        "temp_c",
        "temperature_celsius",
        "temperature_gpu",
        "gpu_temp",
        "gpu_temp_c",
        "gpu_temperature",
        "gpu_temperature_c",
        "gpu_temperature_celsius",
    ]),
    gauge(
        ("power_w", ColumnType::F32, Unit::Watt),
        Group::Power,
        "gpu_power_watts",
        "Power of the board or socket, the most instantaneous reading the part has.",
    )
    .fast()
    .basic()
    // In a capture, DCGM field 155 is usually the only power. It is published as `power_average_w`, and also
    // read as such if field 157, the instant, is there.
    .dcgm(&[
        old("DCGM_FI_DEV_POWER_USAGE_INSTANT", 1.0),
        old("DCGM_FI_DEV_POWER_USAGE", 1.0),
        old("dcgm_power_usage", 1.0),
        new("DCGM_FI_DEV_BOARD_POWER_RAW_WATTS", 1.0),
        new("DCGM_FI_DEV_BOARD_POWER_WATTS", 1.0),
    ])
    .otel("hw.power")
    .aliases(&[
        "power_draw_instant",
        "power_draw",
        "power_draw_w",
        "power_draw_watts",
        "power",
        "power_watts",
        "power_usage",
        "power_usage_w",
        "power_usage_watts",
        "power_consumption",
        "gpu_power",
        "gpu_power_w",
        "gpu_power_watts",
        "gpu_power_draw",
        "gpu_power_usage",
        "socket_power",
        "current_socket_power",
        "current_socket_graphics_package_power",
    ]),
    gauge(
        ("memory_used_mb", ColumnType::I64, Unit::Mebibyte),
        Group::Memory,
        "gpu_memory_used_bytes",
        "Device memory in use, in MiB, without the driver's own reserve if it reports that separately.",
    )
    .fast()
    .basic()
    .dcgm(&[
        old("DCGM_FI_DEV_FB_USED", 1.0),
        old("dcgm_fb_used", 1.0),
        new("DCGM_FI_DEV_FB_USED_BYTES", 1_048_576.0),
    ])
    .otel("hw.gpu.memory.usage")
    .aliases(&[
        "memory_used",
        "memory_used_mib",
        "mem_used",
        "mem_used_mb",
        "mem_used_mib",
        "used_memory",
        "used_memory_mb",
        "gpu_memory_used",
        "gpu_memory_used_mb",
        "gpu_memory_used_mib",
        "gpu_mem_used",
        "gpu_mem_used_mb",
        "fb_used",
        "fb_used_mb",
        "fb_memory_mb",
        "vram_used",
        "vram_used_mb",
        "vram_used_mib",
    ]),
    gauge(
        ("utilization_pct", ColumnType::F32, Unit::Percent),
        Group::Utilization,
        "gpu_utilization_ratio",
        "Share of the driver's last sampling period in which the GPU had work; not how many of its units were busy.",
    )
    .fast()
    .basic()
    .dcgm(&[
        old("DCGM_FI_DEV_GPU_UTIL", 1.0),
        old("dcgm_gpu_utilization", 1.0),
        new("DCGM_FI_DEV_GPU_UTIL_RATIO", 0.01),
    ])
    .otel_as("hw.gpu.utilization", ("hw.gpu.task", "general"))
    .aliases(&[
        "utilization",
        "utilisation",
        "util",
        "util_pct",
        "utilization_percent",
        "utilization_gpu",
        "utilization_gpu_percent",
        "utilization_gpu_pct",
        "gpu_utilization",
        "gpu_utilisation",
        "gpu_utilization_pct",
        "gpu_utilization_percent",
        "gpu_util",
        "gpu_util_pct",
        "gpu_util_percent",
        "gpu_usage",
        "gpu_use",
        "gpu_use_pct",
        "gpu_busy",
        "gpu_busy_percent",
        "gpu_load",
    ]),
];
