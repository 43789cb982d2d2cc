//! Reasons that hold the clocks down, and their durations.

use crate::catalogue::row::{count, counter, mask, new, old, state};
use crate::catalogue::unit::FLAG;
use crate::catalogue::{ColumnType, DcgmName, Group, Metric, Unit};

type Labels = &'static [(&'static str, &'static str)];

/// Bits of NVML's `nvmlClocksEventReasons`.
const EVENT_REASONS: &[(u8, &str)] = &[
    (0, "idle"),
    (1, "application clocks"),
    (2, "software power cap"),
    (3, "hardware slowdown"),
    (4, "sync boost"),
    (5, "software thermal slowdown"),
    (6, "hardware thermal slowdown"),
    (7, "hardware power brake"),
    (8, "display clocks"),
];

/// Bits of `indep_throttle_status`, as `SMU_THROTTLER_*_BIT` of the Linux kernel numbers them.
const THROTTLERS: &[(u8, &str)] = &[
    (0, "PPT0"),
    (1, "PPT1"),
    (2, "PPT2"),
    (3, "PPT3"),
    (4, "SPL"),
    (5, "FPPT"),
    (6, "SPPT"),
    (7, "SPPT APU"),
    (16, "graphics current"),
    (17, "SoC current"),
    (18, "memory current"),
    (19, "VDD current"),
    (20, "CVIP current"),
    (21, "CPU peak current"),
    (22, "graphics peak current"),
    (23, "APCC"),
    (32, "GPU temperature"),
    (33, "core temperature"),
    (34, "memory temperature"),
    (35, "edge temperature"),
    (36, "hotspot temperature"),
    (37, "SoC temperature"),
    (38, "graphics regulator temperature"),
    (39, "SoC regulator temperature"),
    (40, "memory regulator 0 temperature"),
    (41, "memory regulator 1 temperature"),
    (42, "liquid 0 temperature"),
    (43, "liquid 1 temperature"),
    (44, "regulator 0 hot"),
    (45, "regulator 1 hot"),
    (46, "CPU processor-hot signal"),
    (47, "GPU processor-hot signal"),
    (56, "PPM"),
    (57, "FIT"),
];

pub(super) const ROWS: &[Metric] = &[
    mask(
        "throttle_reasons",
        Group::Throttle,
        "gpu_throttle_reasons",
        "NVIDIA clock event reasons, raw bits: 0x1 idle, 0x2 application clocks, 0x4 software power cap, \
         0x8 hardware slowdown, 0x10 sync boost, 0x20 software thermal, 0x40 hardware thermal, \
         0x80 power brake, 0x100 display.",
    )
    .fast()
    .standard()
    .dcgm(&[
        old("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", 1.0),
        old("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", 1.0),
        new("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", 1.0),
    ])
    .aliases(&["clock_throttle_reasons", "clocks_event_reasons"])
    .bits(EVENT_REASONS),
    mask(
        "throttle_status",
        Group::Throttle,
        "gpu_throttle_status",
        "AMD throttle status independent of the chip, raw bits: 0 to 15 power, 16 to 31 current, \
         32 to 47 temperature; absent from MI300 on, which counts residency instead.",
    )
    .fast()
    .standard()
    .aliases(&["indep_throttle_status"])
    .bits(THROTTLERS),
    state(
        "throttled",
        FLAG.1,
        Group::Throttle,
        "gpu_throttled",
        "1 while power, heat or the hardware hold the clocks down; idling and chosen clocks do not count.",
    )
    .fast()
    .standard(),
    reason("throttled_sw_power_cap", &[("reason", "sw_power_cap")], "1 while the software power cap holds the clocks down (0x4)."),
    reason("throttled_hw_slowdown", &[("reason", "hw_slowdown")],
        "1 while the hardware halves the clocks or worse (0x8): heat, power brake, or power beyond what is safe.",
    ),
    reason("throttled_sync_boost", &[("reason", "sync_boost")], "1 while the clocks follow the slowest GPU of a sync boost group (0x10)."),
    reason("throttled_sw_thermal", &[("reason", "sw_thermal")], "1 while the software thermal slowdown holds the clocks down (0x20)."),
    reason("throttled_hw_thermal", &[("reason", "hw_thermal")], "1 while the hardware thermal slowdown holds the clocks down (0x40)."),
    reason("throttled_hw_power_brake", &[("reason", "hw_power_brake")], "1 while the external power brake holds the clocks down (0x80)."),
    time(
        "throttled_power_ns",
        &[("reason", "power")],
        &[
            old("DCGM_FI_DEV_POWER_VIOLATION", 1.0),
            old("dcgm_power_violation", 1.0),
            new("DCGM_FI_DEV_GPU_POWER_THROTTLE_SECONDS_TOTAL", 1e-9),
        ],
        "Time the clocks were held down by the power limit.",
    )
    .standard()
    .aliases(&["power_violation"]),
    time(
        "throttled_thermal_ns",
        &[("reason", "thermal")],
        &[
            old("DCGM_FI_DEV_THERMAL_VIOLATION", 1.0),
            old("dcgm_thermal_violation", 1.0),
            new("DCGM_FI_DEV_GPU_THERMAL_THROTTLE_SECONDS_TOTAL", 1e-9),
        ],
        "Time the clocks were held down by temperature.",
    )
    .standard()
    .aliases(&["thermal_violation"]),
    time(
        "throttled_sync_boost_ns",
        &[("reason", "sync_boost")],
        &[
            old("DCGM_FI_DEV_SYNC_BOOST_VIOLATION", 1.0),
            old("DCGM_FI_DEV_CLOCKS_EVENT_REASON_SYNC_BOOST_NS", 1.0),
            old("DCGM_FI_DEV_CLOCKS_EVENT_REASON_SYNC_BOOST_COUNT_NS", 1.0),
            old("dcgm_sync_boost_violation", 1.0),
        ],
        "Time the clocks were held down to match the other GPUs of a sync boost group.",
    ),
    time(
        "throttled_board_limit_ns",
        &[("reason", "board_limit")],
        &[
            old("DCGM_FI_DEV_BOARD_LIMIT_VIOLATION", 1.0),
            old("dcgm_board_limit_violation", 1.0),
        ],
        "Time the clocks were held down by a limit of the board.",
    ),
    time(
        "throttled_low_utilization_ns",
        &[("reason", "low_utilization")],
        &[
            old("DCGM_FI_DEV_LOW_UTIL_VIOLATION", 1.0),
            old("dcgm_low_util_violation", 1.0),
        ],
        "Time the clocks were held down because there was too little work.",
    ),
    time(
        "throttled_reliability_ns",
        &[("reason", "reliability")],
        &[
            old("DCGM_FI_DEV_RELIABILITY_VIOLATION", 1.0),
            old("dcgm_reliability_violation", 1.0),
        ],
        "Time the clocks were held down by the voltage that reliability allows.",
    ),
    time(
        "throttled_application_clocks_ns",
        &[("reason", "application_clocks")],
        &[old("DCGM_FI_DEV_TOTAL_APP_CLOCKS_VIOLATION", 1.0)],
        "Time below the application clocks.",
    ),
    time(
        "throttled_base_clocks_ns",
        &[("reason", "base_clocks")],
        &[old("DCGM_FI_DEV_TOTAL_BASE_CLOCKS_VIOLATION", 1.0)],
        "Time below the base clocks.",
    ),
    time(
        "throttled_sw_power_cap_ns",
        &[("reason", "sw_power_cap")],
        &[
            old("DCGM_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP_NS", 1.0),
            new("DCGM_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP_NS", 1.0),
        ],
        "Time under the software power cap (clock event reason 0x4).",
    ),
    time(
        "throttled_sw_thermal_ns",
        &[("reason", "sw_thermal")],
        &[
            old("DCGM_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN_NS", 1.0),
            new("DCGM_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN_NS", 1.0),
        ],
        "Time under the software thermal slowdown (clock event reason 0x20).",
    ),
    time(
        "throttled_hw_thermal_ns",
        &[("reason", "hw_thermal")],
        &[
            old("DCGM_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN_NS", 1.0),
            new("DCGM_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN_NS", 1.0),
        ],
        "Time under the hardware thermal slowdown (clock event reason 0x40).",
    )
    .standard(),
    time(
        "throttled_hw_power_brake_ns",
        &[("reason", "hw_power_brake")],
        &[
            old("DCGM_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN_NS", 1.0),
            new("DCGM_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN_NS", 1.0),
        ],
        "Time under the hardware power brake (clock event reason 0x80).",
    )
    .standard(),
    // AMD, MI300 on: share of time = difference of the residency / difference of throttle_sample_count.
    count(
        "throttle_sample_count",
        Group::Throttle,
        "gpu_throttle_samples_total",
        "Firmware's sampling steps, the measure of the residencies below (AMD accumulation counter, 32 bits, wraps).",
    )
    .fast()
    .standard(),
    residency("throttle_prochot_count", &[("reason", "prochot")], "Steps with the processor-hot signal."),
    residency("throttle_ppt_count", &[("reason", "ppt")], "Steps at the package power limit.").standard(),
    residency("throttle_socket_thermal_count", &[("reason", "socket_thermal")], "Steps at the socket's thermal limit.")
        .standard(),
    residency(
        "throttle_vr_thermal_count",
        &[("reason", "vr_thermal")],
        "Steps at the thermal limit of the voltage regulators.",
    ),
    residency("throttle_hbm_thermal_count", &[("reason", "hbm_thermal")], "Steps at the thermal limit of the HBM.")
        .standard(),
    below("below_limit_ppt_count", &[("reason", "ppt")], "Steps below the host's clock limit, because of power."),
    below(
        "below_limit_thermal_count",
        &[("reason", "thermal")],
        "Steps below the host's clock limit, because of heat.",
    ),
    below(
        "below_limit_low_utilization_count",
        &[("reason", "low_utilization")],
        "Steps below the host's clock limit, because of too little work.",
    ),
    below(
        "below_limit_total_count",
        &[("reason", "any")],
        "Steps below the host's clock limit, for any reason.",
    ),
];

/// One bit of `throttle_reasons` (NVIDIA): Prometheus cannot test a bit of a mask.
const fn reason(column: &'static str, labels: Labels, help: &'static str) -> Metric {
    state(column, FLAG.1, Group::Throttle, "gpu_throttle_reason_active", help).labels(labels)
}

/// Driver's own time under a reason.
const fn time(column: &'static str, labels: Labels, dcgm: &'static [DcgmName], help: &'static str) -> Metric {
    let cell = (column, ColumnType::I64, Unit::Nanosecond);
    counter(cell, Group::Throttle, "gpu_throttled_seconds_total", help).labels(labels).dcgm(dcgm)
}

/// Firmware's sampling steps under a reason (AMD, 32 bits, wraps).
const fn residency(column: &'static str, labels: Labels, help: &'static str) -> Metric {
    count(column, Group::Throttle, "gpu_throttle_residency_total", help).fast().labels(labels)
}

/// Firmware's sampling steps below the clock limit of the host (AMD), sum over the XCCs.
const fn below(column: &'static str, labels: Labels, help: &'static str) -> Metric {
    count(column, Group::Throttle, "gpu_below_limit_residency_total", help).labels(labels)
}
