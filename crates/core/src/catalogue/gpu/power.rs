//! Power, energy and temperatures, with their limits.

use crate::catalogue::row::{counter, gauge, new, old};
use crate::catalogue::{ColumnType, Group, Metric, Scope, Unit};

pub(super) const ROWS: &[Metric] = &[
    gauge(
        ("power_average_w", ColumnType::F32, Unit::Watt),
        Group::Power,
        "gpu_power_average_watts",
        "Power averaged by the firmware (NVIDIA over 1 s, AMD average socket power), if the part reports it separately.",
    )
    .fast()
    .standard()
    .dcgm(&[
        old("DCGM_FI_DEV_POWER_USAGE", 1.0),
        old("dcgm_power_usage", 1.0),
        new("DCGM_FI_DEV_BOARD_POWER_WATTS", 1.0),
    ])
    .aliases(&["power_average", "power_draw_average", "average_socket_power", "average_graphics_package_power"]),
    gauge(
        ("power_limit_w", ColumnType::F32, Unit::Watt),
        Group::Power,
        "gpu_power_limit_watts",
        "Power limit that is set (NVIDIA requested limit, AMD power cap).",
    )
    .standard()
    .labels(&[("limit", "set")])
    .dcgm(&[
        old("DCGM_FI_DEV_POWER_MGMT_LIMIT", 1.0),
        new("DCGM_FI_DEV_BOARD_POWER_LIMIT_REQUESTED_WATTS", 1.0),
    ])
    .aliases(&["power_limit", "power_limit_watts", "power_cap", "power_cap_w", "max_graphics_package_power"]),
    gauge(
        ("power_limit_enforced_w", ColumnType::F32, Unit::Watt),
        Group::Power,
        "gpu_power_limit_watts",
        "Power limit in force after all limiters.",
    )
    .labels(&[("limit", "enforced")])
    .dcgm(&[
        old("DCGM_FI_DEV_ENFORCED_POWER_LIMIT", 1.0),
        new("DCGM_FI_DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS", 1.0),
    ])
    .aliases(&["enforced_power_limit"]),
    gauge(
        ("power_limit_default_w", ColumnType::F32, Unit::Watt),
        Group::Power,
        "gpu_power_limit_watts",
        "Power limit after a reset.",
    )
    .rare()
    .labels(&[("limit", "default")])
    .dcgm(&[
        old("DCGM_FI_DEV_POWER_MGMT_LIMIT_DEF", 1.0),
        new("DCGM_FI_DEV_BOARD_POWER_LIMIT_DEFAULT_WATTS", 1.0),
    ])
    .aliases(&["power_limit_default", "power_default_limit"]),
    gauge(
        ("power_limit_min_w", ColumnType::F32, Unit::Watt),
        Group::Power,
        "gpu_power_limit_watts",
        "Smallest power limit that can be set.",
    )
    .rare()
    .labels(&[("limit", "min")])
    .dcgm(&[
        old("DCGM_FI_DEV_POWER_MGMT_LIMIT_MIN", 1.0),
        new("DCGM_FI_DEV_BOARD_POWER_LIMIT_MIN_WATTS", 1.0),
    ])
    .aliases(&["power_limit_min", "power_min_limit"]),
    gauge(
        ("power_limit_max_w", ColumnType::F32, Unit::Watt),
        Group::Power,
        "gpu_power_limit_watts",
        "Largest power limit that can be set.",
    )
    .rare()
    .labels(&[("limit", "max")])
    .dcgm(&[
        old("DCGM_FI_DEV_POWER_MGMT_LIMIT_MAX", 1.0),
        new("DCGM_FI_DEV_BOARD_POWER_LIMIT_MAX_WATTS", 1.0),
    ])
    .aliases(&["power_limit_max", "power_max_limit"]),
    gauge(
        ("module_power_w", ColumnType::F32, Unit::Watt),
        Group::Power,
        "gpu_module_power_watts",
        "Power of the whole module, if GPU and CPU share one (Grace Hopper and newer).",
    )
    .fast()
    .range(0.0, 10_000.0)
    .aliases(&["module_power_draw_instant", "module_power"]),
    gauge(
        ("module_power_limit_w", ColumnType::F32, Unit::Watt),
        Group::Power,
        "gpu_module_power_limit_watts",
        "Power limit of the whole module, if GPU and CPU share one.",
    )
    .rare()
    .range(0.0, 10_000.0)
    .aliases(&["module_power_limit"]),
    apu("apu_power_w", &[("part", "all")], "Power of an AMD APU without a discrete GPU that shares its budget (v3.0)."),
    apu(
        "apu_cpu_power_w",
        &[("part", "cpu")],
        "Power of the CPU rail of an AMD APU (VDDCR_VDD; on Renoir and its kin the graphics are on it too).",
    ),
    apu("apu_cores_power_w", &[("part", "cores")], "Power of all CPU cores of an AMD APU, without what they share."),
    apu("apu_graphics_power_w", &[("part", "graphics")], "Power of the graphics of an AMD APU."),
    apu("apu_soc_power_w", &[("part", "soc")], "Power of the SoC rail of an AMD APU (VDDCR_SOC)."),
    counter(
        ("energy_mj", ColumnType::I64, Unit::Millijoule),
        Group::Power,
        "gpu_energy_joules_total",
        "Energy since the driver was loaded, by the part's own counter; absent if it has none.",
    )
    .basic()
    .range(0.0, 9.0e15)
    .dcgm(&[
        old("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 1.0),
        old("dcgm_total_energy_consumption", 1.0),
        new("DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL", 1e-3),
    ])
    .otel("hw.energy")
    .aliases(&["energy_millijoules", "total_energy_mj", "total_energy_millijoules", "gpu_energy_mj"]),
    // Temperatures
    sensor("temperature_edge_c", &[("sensor", "edge")], "Temperature at the edge of the die (AMD).").aliases(&[
        "temperature_edge",
        "temp_edge",
        "edge_temperature",
        "temperature_sensor_edge",
    ]),
    sensor(
        "temperature_junction_c",
        &[("sensor", "junction")],
        "Hottest place of the die (AMD junction or hotspot).",
    )
    .fast()
    .standard()
    .aliases(&[
        "temperature_junction",
        "temp_junction",
        "junction_temperature",
        "temperature_hotspot",
        "temperature_hotspot_c",
        "temp_hotspot",
        "hotspot_temperature",
        "temperature_sensor_junction",
    ]),
    sensor("temperature_memory_c", &[("sensor", "memory")], "Temperature of the device memory.")
        .standard()
        .dcgm(&[
            old("DCGM_FI_DEV_MEMORY_TEMP", 1.0),
            old("dcgm_memory_temp", 1.0),
            new("DCGM_FI_DEV_MEMORY_TEMP_CELSIUS", 1.0),
        ])
        .aliases(&[
            "temperature_memory",
            "memory_temp",
            "memory_temp_c",
            "memory_temperature",
            "mem_temp",
            "temp_mem",
            "temp_memory",
            "temperature_sensor_memory",
        ]),
    sensor("temperature_hbm_c", &[("sensor", "hbm")], "Temperature of the HBM stacks; the table holds the hottest.")
        .scope(Scope::HbmStack),
    sensor("temperature_vr_gfx_c", &[("sensor", "vr_gfx")], "Voltage regulator of the graphics rail (AMD)."),
    sensor("temperature_vr_soc_c", &[("sensor", "vr_soc")], "Voltage regulator of the SoC rail (AMD)."),
    sensor("temperature_vr_mem_c", &[("sensor", "vr_mem")], "Voltage regulator of the memory rail (AMD)."),
    sensor("temperature_soc_c", &[("sensor", "soc")], "Temperature of the SoC part (AMD APUs)."),
    sensor("temperature_cpu_c", &[("sensor", "cpu")], "Hottest CPU core of an AMD APU."),
    sensor(
        "temperature_skin_c",
        &[("sensor", "skin")],
        "Temperature of the case that an AMD APU is regulated by (v3.0: Strix Point and later).",
    ),
    gauge(
        ("temperature_margin_c", ColumnType::F32, Unit::Celsius),
        Group::Temperature,
        "gpu_temperature_margin_celsius",
        "Degrees left to the nearest slowdown limit (NVIDIA T.Limit); falls as it gets hotter.",
    )
    .dcgm(&[
        old("DCGM_FI_DEV_GPU_TEMP_LIMIT", 1.0),
        new("DCGM_FI_DEV_GPU_TEMP_MARGIN_CELSIUS", 1.0),
    ])
    .range(-100.0, 200.0)
    .aliases(&["temperature_gpu_tlimit", "temperature_margin"]),
    limit(
        "temperature_slowdown_c",
        &[("sensor", "gpu"), ("limit", "slowdown")],
        "Temperature at which the hardware slows the GPU down (AMD: critical limit).",
    )
    .dcgm(&[
        old("DCGM_FI_DEV_SLOWDOWN_TEMP", 1.0),
        new("DCGM_FI_DEV_GPU_TEMP_SLOWDOWN_CELSIUS", 1.0),
    ])
    .aliases(&["slowdown_temp", "temperature_slowdown"]),
    limit(
        "temperature_shutdown_c",
        &[("sensor", "gpu"), ("limit", "shutdown")],
        "Temperature at which the hardware switches the GPU off (AMD: emergency limit).",
    )
    .dcgm(&[
        old("DCGM_FI_DEV_SHUTDOWN_TEMP", 1.0),
        new("DCGM_FI_DEV_GPU_TEMP_SHUTDOWN_CELSIUS", 1.0),
    ])
    .aliases(&["shutdown_temp", "temperature_shutdown"]),
    limit(
        "temperature_max_operating_c",
        &[("sensor", "gpu"), ("limit", "max_operating")],
        "Highest temperature at which the GPU is meant to work.",
    )
    .dcgm(&[
        old("DCGM_FI_DEV_GPU_MAX_OP_TEMP", 1.0),
        new("DCGM_FI_DEV_GPU_MAX_OP_TEMP_CELSIUS", 1.0),
    ]),
    limit(
        "temperature_memory_max_operating_c",
        &[("sensor", "memory"), ("limit", "max_operating")],
        "Highest temperature at which the device memory is meant to work.",
    )
    .dcgm(&[
        old("DCGM_FI_DEV_MEM_MAX_OP_TEMP", 1.0),
        new("DCGM_FI_DEV_MEMORY_MAX_OP_TEMP_CELSIUS", 1.0),
    ]),
    limit(
        "temperature_memory_slowdown_c",
        &[("sensor", "memory"), ("limit", "slowdown")],
        "Memory temperature at which the hardware slows the GPU down (AMD: critical limit).",
    ),
    limit(
        "temperature_memory_shutdown_c",
        &[("sensor", "memory"), ("limit", "shutdown")],
        "Memory temperature at which the hardware switches the GPU off (AMD: emergency limit).",
    ),
    limit(
        "temperature_junction_slowdown_c",
        &[("sensor", "junction"), ("limit", "slowdown")],
        "Junction temperature at which the hardware slows the GPU down (AMD: critical limit).",
    ),
    limit(
        "temperature_junction_shutdown_c",
        &[("sensor", "junction"), ("limit", "shutdown")],
        "Junction temperature at which the hardware switches the GPU off (AMD: emergency limit).",
    ),
    limit(
        "temperature_fan_target_c",
        &[("sensor", "gpu"), ("limit", "fan_target")],
        "Temperature that the firmware regulates the fan to (AMD, RDNA3 and later); absent if overdrive is not enabled.",
    ),
];

/// A part of an APU. Not summed with `power_w`, which is the whole.
const fn apu(
    column: &'static str,
    labels: &'static [(&'static str, &'static str)],
    help: &'static str,
) -> Metric {
    gauge((column, ColumnType::F32, Unit::Watt), Group::Power, "gpu_apu_power_watts", help).labels(labels)
}

const fn sensor(
    column: &'static str,
    labels: &'static [(&'static str, &'static str)],
    help: &'static str,
) -> Metric {
    gauge((column, ColumnType::F32, Unit::Celsius), Group::Temperature, "gpu_temperature_celsius", help)
        .labels(labels)
        .otel("hw.temperature")
}

const fn limit(
    column: &'static str,
    labels: &'static [(&'static str, &'static str)],
    help: &'static str,
) -> Metric {
    gauge((column, ColumnType::F32, Unit::Celsius), Group::Temperature, "gpu_temperature_limit_celsius", help)
        .rare()
        .range(0.0, 200.0)
        .labels(labels)
        .otel("hw.temperature.limit")
}
