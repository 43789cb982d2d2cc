//! Clocks beyond the two that every recording has.

use crate::catalogue::row::{gauge, new, old, state};
use crate::catalogue::unit::FLAG;
use crate::catalogue::{ColumnType, Group, Metric, Unit};

pub(super) const ROWS: &[Metric] = &[
    clock(
        "sm_clock_mhz",
        "gpu_clock_hertz",
        &[("clock", "sm")],
        "Clock of NVIDIA's streaming multiprocessors; as a rule the graphics clock.",
    )
    .fast()
    .standard()
    .dcgm(&[
        old("DCGM_FI_DEV_SM_CLOCK", 1.0),
        old("dcgm_sm_clock", 1.0),
        new("DCGM_FI_DEV_SM_CLOCK_HERTZ", 1e6),
    ])
    .aliases(&["sm_clock", "clocks_sm", "clocks_current_sm"]),
    clock(
        "video_clock_mhz",
        "gpu_clock_hertz",
        &[("clock", "video")],
        "Clock of the video engines (NVIDIA video, AMD vclk).",
    )
    .dcgm(&[old("DCGM_FI_DEV_VIDEO_CLOCK", 1.0), new("DCGM_FI_DEV_VIDEO_CLOCK_HERTZ", 1e6)])
    .aliases(&["video_clock", "clocks_video", "clocks_current_video", "vclk", "vclk0"]),
    clock(
        "video_decode_clock_mhz",
        "gpu_clock_hertz",
        &[("clock", "video_decode")],
        "Decode clock of AMD's video engines (dclk).",
    )
    .aliases(&["dclk", "dclk0"]),
    clock(
        "video1_clock_mhz",
        "gpu_clock_hertz",
        &[("clock", "video1")],
        "Clock of the second video engine (AMD vclk1); absent if it is 0 while the first runs, as on parts with one.",
    )
    .aliases(&["vclk1"]),
    clock(
        "video1_decode_clock_mhz",
        "gpu_clock_hertz",
        &[("clock", "video1_decode")],
        "Decode clock of the second video engine (AMD dclk1); absent if vclk1 is 0 while the first runs, as on parts with one.",
    )
    .aliases(&["dclk1"]),
    clock("soc_clock_mhz", "gpu_clock_hertz", &[("clock", "soc")], "Clock of the SoC part (AMD socclk).")
        .aliases(&["soc_clock", "socclk"]),
    clock(
        "fabric_clock_mhz",
        "gpu_clock_hertz",
        &[("clock", "fabric")],
        "Clock of the data fabric (AMD fclk).",
    )
    .aliases(&["fabric_clock", "fclk"]),
    clock(
        "gpu_clock_average_mhz",
        "gpu_clock_average_hertz",
        &[("clock", "graphics")],
        "Graphics clock averaged by the firmware (AMD average gfxclk).",
    )
    .fast()
    .aliases(&["average_gfxclk"]),
    clock(
        "mem_clock_average_mhz",
        "gpu_clock_average_hertz",
        &[("clock", "memory")],
        "Memory clock averaged by the firmware (AMD average uclk).",
    )
    .fast()
    .aliases(&["average_uclk"]),
    clock(
        "gpu_clock_max_mhz",
        "gpu_clock_max_hertz",
        &[("clock", "graphics")],
        "Highest graphics clock the part supports.",
    )
    .rare()
    .aliases(&["clocks_max_graphics", "clocks_max_gr"]),
    clock(
        "mem_clock_max_mhz",
        "gpu_clock_max_hertz",
        &[("clock", "memory")],
        "Highest memory clock the part supports.",
    )
    .rare()
    .dcgm(&[old("DCGM_FI_DEV_MAX_MEM_CLOCK", 1.0), new("DCGM_FI_DEV_MEMORY_MAX_CLOCK_HERTZ", 1e6)])
    .aliases(&["clocks_max_memory", "clocks_max_mem"]),
    clock(
        "sm_clock_max_mhz",
        "gpu_clock_max_hertz",
        &[("clock", "sm")],
        "Highest SM clock the part supports (NVIDIA).",
    )
    .rare()
    .dcgm(&[old("DCGM_FI_DEV_MAX_SM_CLOCK", 1.0), new("DCGM_FI_DEV_SM_MAX_CLOCK_HERTZ", 1e6)])
    .aliases(&["clocks_max_sm"]),
    clock(
        "video_clock_max_mhz",
        "gpu_clock_max_hertz",
        &[("clock", "video")],
        "Highest clock of the video engines the part supports.",
    )
    .rare()
    .dcgm(&[old("DCGM_FI_DEV_MAX_VIDEO_CLOCK", 1.0), new("DCGM_FI_DEV_VIDEO_MAX_CLOCK_HERTZ", 1e6)]),
    clock(
        "gpu_clock_application_mhz",
        "gpu_clock_application_hertz",
        &[("clock", "graphics")],
        "Graphics clock that applications asked for (NVIDIA, going away).",
    )
    .rare()
    .dcgm(&[old("DCGM_FI_DEV_APP_SM_CLOCK", 1.0), new("DCGM_FI_DEV_SM_APP_CLOCK_HERTZ", 1e6)])
    .aliases(&["clocks_applications_graphics", "clocks_applications_gr"]),
    clock(
        "mem_clock_application_mhz",
        "gpu_clock_application_hertz",
        &[("clock", "memory")],
        "Memory clock that applications asked for (NVIDIA, going away).",
    )
    .rare()
    .dcgm(&[old("DCGM_FI_DEV_APP_MEM_CLOCK", 1.0), new("DCGM_FI_DEV_MEMORY_APP_CLOCK_HERTZ", 1e6)])
    .aliases(&["clocks_applications_memory", "clocks_applications_mem"]),
    state(
        "gpu_clock_locked",
        FLAG.1,
        Group::Clock,
        "gpu_clock_locked",
        "1 while the graphics clock is held (AMD gfxclk lock status, or a lock that gpuvitals set).",
    ),
    state(
        "performance_state",
        15.0,
        Group::Clock,
        "gpu_performance_state",
        "NVIDIA performance state, 0 (P0, fastest) to 15.",
    )
    .standard()
    .dcgm(&[old("DCGM_FI_DEV_PSTATE", 1.0), new("DCGM_FI_DEV_GPU_PSTATE", 1.0)])
    .aliases(&["pstate"]),
    state(
        "performance_level",
        8.0,
        Group::Clock,
        "gpu_performance_level",
        "AMD performance level: 0 auto, 1 low, 2 high, 3 manual, 4 profile_standard, 5 profile_min_sclk, \
         6 profile_min_mclk, 7 profile_peak, 8 perf_determinism.",
    )
    .rare(),
    level(
        "gpu_clock_level",
        &[("clock", "graphics")],
        "Level of the graphics clock in force: its number in AMD's table pp_dpm_sclk; with three levels, on \
         RDNA2 and later, 1 is any clock between the lowest and the highest; absent in deep sleep.",
    ),
    level(
        "mem_clock_level",
        &[("clock", "memory")],
        "Level of the memory clock in force: its number in AMD's table pp_dpm_mclk; absent in deep sleep.",
    ),
];

/// Number of a level in a `pp_dpm_*` table.
const fn level(
    column: &'static str,
    labels: &'static [(&'static str, &'static str)],
    help: &'static str,
) -> Metric {
    state(column, 63.0, Group::Clock, "gpu_clock_level", help).labels(labels)
}

const fn clock(
    column: &'static str,
    prometheus: &'static str,
    labels: &'static [(&'static str, &'static str)],
    help: &'static str,
) -> Metric {
    gauge((column, ColumnType::I32, Unit::Megahertz), Group::Clock, prometheus, help).labels(labels)
}
