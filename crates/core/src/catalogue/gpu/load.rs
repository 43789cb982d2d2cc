//! Load of the engines, use of the memory, profiling counters.

use crate::catalogue::row::{count, gauge, info, new, old};
use crate::catalogue::{ColumnType, Group, Metric, Unit};

pub(super) const ROWS: &[Metric] = &[
    gauge(
        ("memory_utilization_pct", ColumnType::F32, Unit::Percent),
        Group::Utilization,
        "gpu_memory_controller_utilization_ratio",
        "Share of time in which device memory was read or written (NVIDIA memory utilisation, AMD UMC activity); \
         not how full it is.",
    )
    .fast()
    .standard()
    .dcgm(&[
        old("DCGM_FI_DEV_MEM_COPY_UTIL", 1.0),
        old("dcgm_mem_copy_utilization", 1.0),
        new("DCGM_FI_DEV_MEMORY_UTIL_RATIO", 0.01),
    ])
    .aliases(&[
        "memory_utilization",
        "memory_utilisation",
        "utilization_memory",
        "utilization_memory_percent",
        "memory_util",
        "memory_utilization_percent",
        "mem_util",
        "mem_utilization",
        "mem_copy_util",
        "mem_busy_percent",
        "umc_activity",
        "gpu_memory_use",
        "gpu_memory_read_write_activity",
    ]),
    gauge(
        ("encoder_utilization_pct", ColumnType::F32, Unit::Percent),
        Group::Utilization,
        "gpu_engine_utilization_ratio",
        "Utilisation of the video encoders.",
    )
    .standard()
    .labels(&[("engine", "encoder")])
    .dcgm(&[
        old("DCGM_FI_DEV_ENC_UTIL", 1.0),
        old("dcgm_enc_utilization", 1.0),
        new("DCGM_FI_DEV_ENC_UTIL_RATIO", 0.01),
    ])
    .otel("hw.gpu.utilization")
    .aliases(&["encoder_utilization", "utilization_encoder", "enc_util", "encoder_util"]),
    gauge(
        ("decoder_utilization_pct", ColumnType::F32, Unit::Percent),
        Group::Utilization,
        "gpu_engine_utilization_ratio",
        "Utilisation of the video decoders.",
    )
    .standard()
    .labels(&[("engine", "decoder")])
    .dcgm(&[
        old("DCGM_FI_DEV_DEC_UTIL", 1.0),
        old("dcgm_dec_utilization", 1.0),
        new("DCGM_FI_DEV_DEC_UTIL_RATIO", 0.01),
    ])
    .otel("hw.gpu.utilization")
    .aliases(&["decoder_utilization", "utilization_decoder", "dec_util", "decoder_util"]),
    gauge(
        ("jpeg_utilization_pct", ColumnType::F32, Unit::Percent),
        Group::Utilization,
        "gpu_engine_utilization_ratio",
        "Utilisation of the JPEG engines, mean over those present.",
    )
    .labels(&[("engine", "jpeg")])
    .aliases(&["jpeg_utilization", "utilization_jpeg", "jpg_util", "jpeg_activity"]),
    gauge(
        ("ofa_utilization_pct", ColumnType::F32, Unit::Percent),
        Group::Utilization,
        "gpu_engine_utilization_ratio",
        "Utilisation of the optical flow accelerators.",
    )
    .labels(&[("engine", "ofa")])
    .aliases(&["ofa_utilization", "utilization_ofa", "ofa_util"]),
    gauge(
        ("media_utilization_pct", ColumnType::F32, Unit::Percent),
        Group::Utilization,
        "gpu_engine_utilization_ratio",
        "Utilisation of AMD's video engines (VCN), which encode and decode, mean over those present.",
    )
    .labels(&[("engine", "media")])
    .aliases(&["media_utilization", "vcn_activity", "vcn_busy_percent", "mm_activity"]),
    gauge(
        ("encoder_sessions", ColumnType::I32, Unit::None),
        Group::Utilization,
        "gpu_encoder_sessions",
        "Sessions of the video encoders (NVIDIA NVENC); GeForce parts allow only a few.",
    )
    .rare()
    .range(0.0, 1e6)
    .aliases(&["encoder_stats_sessioncount"]),
    gauge(
        ("encoder_fps", ColumnType::I32, Unit::None),
        Group::Utilization,
        "gpu_encoder_frame_rate",
        "Frames per second of an encoder session, mean over the sessions (NVIDIA); absent without a session.",
    )
    .rare()
    .range(0.0, 1e6)
    .aliases(&["encoder_stats_averagefps"]),
    gauge(
        ("encoder_latency_ns", ColumnType::I64, Unit::Nanosecond),
        Group::Utilization,
        "gpu_encoder_latency_seconds",
        "Time to encode a frame, mean over the sessions (NVIDIA); absent without a session.",
    )
    .rare()
    .range(0.0, 1e12),
    count(
        "gfx_activity_acc",
        Group::Utilization,
        "gpu_activity_accumulated_total",
        "Running sum of AMD's graphics activity as the firmware counts it, 32 bits, wraps; only differences tell.",
    )
    .fast()
    .labels(&[("engine", "graphics")]),
    count(
        "mem_activity_acc",
        Group::Utilization,
        "gpu_activity_accumulated_total",
        "Running sum of AMD's memory activity as the firmware counts it, 32 bits, wraps; only differences tell.",
    )
    .fast()
    .labels(&[("engine", "memory")]),
    gauge(
        ("process_count", ColumnType::I32, Unit::None),
        Group::Utilization,
        "gpu_processes",
        "Processes that have a context on the GPU.",
    )
    .range(0.0, 1e6)
    .aliases(&["processes", "num_processes"]),
    // Memory
    gauge(
        ("memory_total_mb", ColumnType::I64, Unit::Mebibyte),
        Group::Memory,
        "gpu_memory_total_bytes",
        "Size of the device memory, in MiB.",
    )
    .basic()
    .dcgm(&[old("DCGM_FI_DEV_FB_TOTAL", 1.0), new("DCGM_FI_DEV_FB_CAPACITY_BYTES", 1_048_576.0)])
    .otel("hw.gpu.memory.limit")
    .aliases(&[
        "memory_total",
        "memory_total_mib",
        "mem_total",
        "mem_total_mb",
        "total_memory",
        "total_memory_mb",
        "gpu_memory_total",
        "gpu_memory_total_mb",
        "fb_total",
        "vram_total",
        "vram_total_mb",
    ]),
    gauge(
        ("memory_free_mb", ColumnType::I64, Unit::Mebibyte),
        Group::Memory,
        "gpu_memory_free_bytes",
        "Device memory that is free, in MiB.",
    )
    .dcgm(&[
        old("DCGM_FI_DEV_FB_FREE", 1.0),
        old("dcgm_fb_free", 1.0),
        new("DCGM_FI_DEV_FB_FREE_BYTES", 1_048_576.0),
    ])
    .aliases(&["memory_free", "memory_free_mib", "mem_free", "mem_free_mb", "free_memory", "fb_free", "vram_free"]),
    gauge(
        ("memory_reserved_mb", ColumnType::I64, Unit::Mebibyte),
        Group::Memory,
        "gpu_memory_reserved_bytes",
        "Device memory that driver and firmware keep for themselves, in MiB.",
    )
    .dcgm(&[old("DCGM_FI_DEV_FB_RESERVED", 1.0), new("DCGM_FI_DEV_FB_RESERVED_BYTES", 1_048_576.0)])
    .aliases(&["memory_reserved", "fb_reserved"]),
    gauge(
        ("memory_used_pct", ColumnType::F32, Unit::Percent),
        Group::Memory,
        "gpu_memory_used_ratio",
        "Share of the device memory that is in use; under DCGM's names, of the unreserved memory.",
    )
    .fast()
    .basic()
    .dcgm(&[old("DCGM_FI_DEV_FB_USED_PERCENT", 0.01), new("DCGM_FI_DEV_FB_USED_RATIO", 0.01)])
    .otel("hw.gpu.memory.utilization")
    .aliases(&[
        "memory_used_percent",
        "memory_usage_pct",
        "memory_usage_percent",
        "mem_used_pct",
        "mem_used_percent",
        "vram_pct",
        "vram_used_pct",
        "vram_used_percent",
    ]),
    gauge(
        ("visible_memory_total_mb", ColumnType::I64, Unit::Mebibyte),
        Group::Memory,
        "gpu_memory_visible_total_bytes",
        "Device memory that the host can address (AMD visible VRAM), in MiB.",
    )
    .rare()
    .aliases(&["vis_vram_total_mb"]),
    gauge(
        ("visible_memory_used_mb", ColumnType::I64, Unit::Mebibyte),
        Group::Memory,
        "gpu_memory_visible_used_bytes",
        "Host-visible device memory in use (AMD visible VRAM), in MiB.",
    )
    .aliases(&["vis_vram_used_mb"]),
    gauge(
        ("gtt_total_mb", ColumnType::I64, Unit::Mebibyte),
        Group::Memory,
        "gpu_memory_gtt_total_bytes",
        "Host memory that the GPU may map (AMD GTT), in MiB.",
    )
    .rare(),
    gauge(
        ("gtt_used_mb", ColumnType::I64, Unit::Mebibyte),
        Group::Memory,
        "gpu_memory_gtt_used_bytes",
        "Host memory that the GPU has mapped (AMD GTT), in MiB; on APUs most memory in use is here.",
    ),
    gauge(
        ("bar1_total_mb", ColumnType::I64, Unit::Mebibyte),
        Group::Memory,
        "gpu_memory_bar1_total_bytes",
        "Size of the BAR1 window to device memory (NVIDIA), in MiB.",
    )
    .rare()
    .dcgm(&[old("DCGM_FI_DEV_BAR1_TOTAL", 1.0), new("DCGM_FI_DEV_BAR1_CAPACITY_BYTES", 1_048_576.0)]),
    gauge(
        ("bar1_used_mb", ColumnType::I64, Unit::Mebibyte),
        Group::Memory,
        "gpu_memory_bar1_used_bytes",
        "BAR1 window in use (NVIDIA), in MiB.",
    )
    .dcgm(&[old("DCGM_FI_DEV_BAR1_USED", 1.0), new("DCGM_FI_DEV_BAR1_USED_BYTES", 1_048_576.0)]),
    gauge(
        ("bar1_free_mb", ColumnType::I64, Unit::Mebibyte),
        Group::Memory,
        "gpu_memory_bar1_free_bytes",
        "BAR1 window that is free (NVIDIA), in MiB.",
    )
    .dcgm(&[old("DCGM_FI_DEV_BAR1_FREE", 1.0), new("DCGM_FI_DEV_BAR1_FREE_BYTES", 1_048_576.0)]),
    info(
        ("memory_bandwidth_max_bytes_per_s", ColumnType::I64, Unit::BytesPerSecond),
        Group::Memory,
        "gpu_memory_bandwidth_max_bytes_per_second",
        "Largest bandwidth of the device memory, as the part states it.",
    ),
    dram(
        "dram_read_bytes_per_s",
        &[("direction", "read")],
        "Bytes read from the memory of an AMD APU per second, by CPU and GPU (v3.0: Strix Point and later).",
    ),
    dram(
        "dram_write_bytes_per_s",
        &[("direction", "write")],
        "Bytes written to the memory of an AMD APU per second, by CPU and GPU (v3.0: Strix Point and later).",
    ),
    // Profiling
    gauge(
        ("graphics_engine_active_ratio", ColumnType::F32, Unit::Ratio),
        Group::Profiling,
        "gpu_graphics_engine_active_ratio",
        "Share of time in which the graphics or compute engine was active.",
    )
    .standard()
    .dcgm(&[old("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 1.0), new("DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO", 1.0)])
    .aliases(&["graphics_engine_active", "gr_engine_active"]),
    gauge(
        ("sm_active_ratio", ColumnType::F32, Unit::Ratio),
        Group::Profiling,
        "gpu_sm_active_ratio",
        "Share of cycles in which an SM had at least one warp, mean over all SMs.",
    )
    .standard()
    .dcgm(&[old("DCGM_FI_PROF_SM_ACTIVE", 1.0), new("DCGM_FI_PROF_SM_UTIL_RATIO", 1.0)])
    .aliases(&["sm_active"]),
    gauge(
        ("sm_occupancy_ratio", ColumnType::F32, Unit::Ratio),
        Group::Profiling,
        "gpu_sm_occupancy_ratio",
        "Warps resident on an SM as a share of the most it can hold, mean over all SMs.",
    )
    .dcgm(&[old("DCGM_FI_PROF_SM_OCCUPANCY", 1.0), new("DCGM_FI_PROF_SM_OCCUPANCY_RATIO", 1.0)])
    .aliases(&["sm_occupancy"]),
    gauge(
        ("tensor_active_ratio", ColumnType::F32, Unit::Ratio),
        Group::Profiling,
        "gpu_pipe_active_ratio",
        "Share of cycles in which a tensor pipe was active, whatever its type.",
    )
    .standard()
    .labels(&[("pipe", "tensor")])
    .dcgm(&[old("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", 1.0), new("DCGM_FI_PROF_TENSOR_UTIL_RATIO", 1.0)])
    .aliases(&["tensor_active", "pipe_tensor_active"]),
    gauge(
        ("dram_active_ratio", ColumnType::F32, Unit::Ratio),
        Group::Profiling,
        "gpu_dram_active_ratio",
        "Share of cycles in which the interface to the device memory moved data.",
    )
    .standard()
    .dcgm(&[old("DCGM_FI_PROF_DRAM_ACTIVE", 1.0), new("DCGM_FI_PROF_DRAM_UTIL_RATIO", 1.0)])
    .aliases(&["dram_active"]),
    pipe(
        "fp64_active_ratio",
        &[("pipe", "fp64")],
        &[old("DCGM_FI_PROF_PIPE_FP64_ACTIVE", 1.0), new("DCGM_FI_PROF_FP64_UTIL_RATIO", 1.0)],
        &["fp64_active", "pipe_fp64_active"],
        "Share of cycles in which the FP64 pipe was active.",
    ),
    pipe(
        "fp32_active_ratio",
        &[("pipe", "fp32")],
        &[old("DCGM_FI_PROF_PIPE_FP32_ACTIVE", 1.0), new("DCGM_FI_PROF_FP32_UTIL_RATIO", 1.0)],
        &["fp32_active", "pipe_fp32_active"],
        "Share of cycles in which the FP32 pipe was active; it also does integer work.",
    ),
    pipe(
        "fp16_active_ratio",
        &[("pipe", "fp16")],
        &[old("DCGM_FI_PROF_PIPE_FP16_ACTIVE", 1.0), new("DCGM_FI_PROF_FP16_UTIL_RATIO", 1.0)],
        &["fp16_active", "pipe_fp16_active"],
        "Share of cycles in which the FP16 pipe was active, without tensor work.",
    ),
    pipe(
        "int_active_ratio",
        &[("pipe", "int")],
        &[old("DCGM_FI_PROF_PIPE_INT_ACTIVE", 1.0), new("DCGM_FI_PROF_INT_UTIL_RATIO", 1.0)],
        &["int_active", "pipe_int_active"],
        "Share of cycles in which the integer pipe was active.",
    ),
    pipe(
        "tensor_imma_active_ratio",
        &[("pipe", "tensor_imma")],
        &[old("DCGM_FI_PROF_PIPE_TENSOR_IMMA_ACTIVE", 1.0), new("DCGM_FI_PROF_IMMA_UTIL_RATIO", 1.0)],
        &["tensor_imma_active"],
        "Share of cycles in which the tensor pipe did integer products (IMMA).",
    ),
    pipe(
        "tensor_hmma_active_ratio",
        &[("pipe", "tensor_hmma")],
        &[old("DCGM_FI_PROF_PIPE_TENSOR_HMMA_ACTIVE", 1.0), new("DCGM_FI_PROF_HMMA_UTIL_RATIO", 1.0)],
        &["tensor_hmma_active"],
        "Share of cycles in which the tensor pipe did half-precision products (HMMA).",
    ),
    pipe(
        "tensor_dfma_active_ratio",
        &[("pipe", "tensor_dfma")],
        &[old("DCGM_FI_PROF_PIPE_TENSOR_DFMA_ACTIVE", 1.0), new("DCGM_FI_PROF_DFMA_UTIL_RATIO", 1.0)],
        &["tensor_dfma_active"],
        "Share of cycles in which the tensor pipe did double-precision work (DFMA).",
    ),
];

/// A direction of the memory that CPU and GPU of an APU share.
const fn dram(
    column: &'static str,
    labels: &'static [(&'static str, &'static str)],
    help: &'static str,
) -> Metric {
    let cell = (column, ColumnType::I64, Unit::BytesPerSecond);
    gauge(cell, Group::Memory, "gpu_dram_bytes_per_second", help).labels(labels)
}

/// A row of the family of execution pipes.
const fn pipe(
    column: &'static str,
    labels: &'static [(&'static str, &'static str)],
    dcgm: &'static [crate::catalogue::DcgmName],
    aliases: &'static [&'static str],
    help: &'static str,
) -> Metric {
    let cell = (column, ColumnType::F32, Unit::Ratio);
    gauge(cell, Group::Profiling, "gpu_pipe_active_ratio", help).labels(labels).dcgm(dcgm).aliases(aliases)
}
