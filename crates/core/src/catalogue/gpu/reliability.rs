//! Failures and their signs: ECC, RAS, pages and rows taken out of use, XIDs.

use crate::catalogue::row::{count, gauge, new, old, state};
use crate::catalogue::unit::FLAG;
use crate::catalogue::{ColumnType, DcgmName, Group, Metric, Scope, Unit};

type Labels = &'static [(&'static str, &'static str)];

pub(super) const ROWS: &[Metric] = &[
    state(
        "xid_last",
        100_000.0,
        Group::Reliability,
        "gpu_xid_last",
        "Code of the last XID error (NVIDIA); stays after the cause is gone, 0 if there was none.",
    )
    .standard()
    .dcgm(&[
        old("DCGM_FI_DEV_XID_ERRORS", 1.0),
        old("dcgm_xid_errors", 1.0),
        new("DCGM_FI_DEV_XID_ERROR", 1.0),
    ])
    .aliases(&["xid", "xid_error", "xid_errors", "last_xid"]),
    count(
        "xid_count",
        Group::Reliability,
        "gpu_xid_errors_total",
        "XID errors seen since the agent started (NVIDIA), of any code.",
    )
    .standard()
    .otel_as("hw.errors", ("error.type", "xid")),
    ecc(
        "ecc_corrected_volatile",
        &[("severity", "corrected"), ("lifetime", "volatile")],
        &[
            old("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", 1.0),
            old("dcgm_ecc_sbe_volatile_total", 1.0),
            new("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", 1.0),
        ],
        "Memory errors corrected since the driver was loaded (NVIDIA), all blocks.",
    )
    .aliases(&["ecc_errors_corrected_volatile_total"]),
    ecc(
        "ecc_uncorrected_volatile",
        &[("severity", "uncorrected"), ("lifetime", "volatile")],
        &[
            old("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", 1.0),
            old("dcgm_ecc_dbe_volatile_total", 1.0),
            new("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", 1.0),
        ],
        "Memory errors beyond correction since the driver was loaded (NVIDIA), all blocks.",
    )
    .aliases(&["ecc_errors_uncorrected_volatile_total"]),
    ecc(
        "ecc_corrected_aggregate",
        &[("severity", "corrected"), ("lifetime", "aggregate")],
        &[
            old("DCGM_FI_DEV_ECC_SBE_AGG_TOTAL", 1.0),
            old("dcgm_ecc_sbe_aggregate_total", 1.0),
            new("DCGM_FI_DEV_ECC_SBE_AGG_TOTAL", 1.0),
        ],
        "Memory errors corrected in the life of the GPU (NVIDIA), all blocks.",
    )
    .aliases(&["ecc_errors_corrected_aggregate_total"]),
    ecc(
        "ecc_uncorrected_aggregate",
        &[("severity", "uncorrected"), ("lifetime", "aggregate")],
        &[
            old("DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", 1.0),
            old("dcgm_ecc_dbe_aggregate_total", 1.0),
            new("DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", 1.0),
        ],
        "Memory errors beyond correction in the life of the GPU (NVIDIA), all blocks.",
    )
    .aliases(&["ecc_errors_uncorrected_aggregate_total"]),
    ras(
        "ras_corrected",
        &[("severity", "corrected")],
        "Errors that AMD's RAS blocks corrected since the driver was loaded (ce), all blocks.",
    ),
    ras(
        "ras_uncorrected",
        &[("severity", "uncorrected")],
        "Errors that AMD's RAS blocks could not correct since the driver was loaded (ue), all blocks.",
    ),
    ras(
        "ras_deferred",
        &[("severity", "deferred")],
        "Errors that AMD's RAS blocks poisoned and left for their reader to meet (de), all blocks.",
    ),
    count(
        "retired_pages_sbe",
        Group::Reliability,
        "gpu_retired_pages_total",
        "Memory pages taken out of use after single-bit errors (NVIDIA up to Turing).",
    )
    .rare()
    .labels(&[("cause", "single_bit")])
    .dcgm(&[
        old("DCGM_FI_DEV_RETIRED_SBE", 1.0),
        old("dcgm_retired_pages_sbe", 1.0),
        new("DCGM_FI_DEV_PAGE_RETIRED_SBE_TOTAL", 1.0),
    ])
    .aliases(&["retired_pages_single_bit_ecc_count", "retired_pages_sbe_count"]),
    count(
        "retired_pages_dbe",
        Group::Reliability,
        "gpu_retired_pages_total",
        "Memory pages taken out of use after double-bit errors (NVIDIA up to Turing).",
    )
    .rare()
    .labels(&[("cause", "double_bit")])
    .dcgm(&[
        old("DCGM_FI_DEV_RETIRED_DBE", 1.0),
        old("dcgm_retired_pages_dbe", 1.0),
        new("DCGM_FI_DEV_PAGE_RETIRED_DBE_TOTAL", 1.0),
    ])
    .aliases(&["retired_pages_double_bit_count", "retired_pages_dbe_count"]),
    pages(
        "retired_pages_pending",
        "gpu_retired_pages_pending",
        "Memory pages that go out of use at the next reset (NVIDIA up to Turing; some drivers only say 0 or 1).",
    )
    .standard()
    .dcgm(&[
        old("DCGM_FI_DEV_RETIRED_PENDING", 1.0),
        old("dcgm_retired_pages_pending", 1.0),
        new("DCGM_FI_DEV_PAGE_RETIRED_PENDING", 1.0),
    ]),
    pages("bad_pages_retired", "gpu_bad_pages", "Memory pages that AMD's driver has taken out of use.")
        .standard()
        .labels(&[("state", "retired")]),
    pages("bad_pages_pending", "gpu_bad_pages", "Memory pages that AMD's driver takes out of use at the next chance.")
        .labels(&[("state", "pending")]),
    pages("bad_pages_unreservable", "gpu_bad_pages", "Bad memory pages that AMD's driver could not take out of use.")
        .labels(&[("state", "unreservable")]),
    count(
        "remapped_rows_correctable",
        Group::Reliability,
        "gpu_remapped_rows_total",
        "Memory rows replaced by spare ones after correctable errors (NVIDIA from Ampere on).",
    )
    .rare()
    .labels(&[("cause", "correctable")])
    .dcgm(&[
        old("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", 1.0),
        new("DCGM_FI_DEV_ROW_REMAP_CORRECTABLE_TOTAL", 1.0),
    ]),
    count(
        "remapped_rows_uncorrectable",
        Group::Reliability,
        "gpu_remapped_rows_total",
        "Memory rows replaced by spare ones after uncorrectable errors (NVIDIA from Ampere on).",
    )
    .rare()
    .standard()
    .labels(&[("cause", "uncorrectable")])
    .dcgm(&[
        old("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", 1.0),
        new("DCGM_FI_DEV_ROW_REMAP_UNCORRECTABLE_TOTAL", 1.0),
    ]),
    flag(
        "remapped_rows_pending",
        "gpu_row_remap_pending",
        &[old("DCGM_FI_DEV_ROW_REMAP_PENDING", 1.0), new("DCGM_FI_DEV_ROW_REMAP_PENDING", 1.0)],
        "1 if a memory row waits for a reset to be replaced (NVIDIA).",
    ),
    flag(
        "remapped_rows_failed",
        "gpu_row_remap_failed",
        &[old("DCGM_FI_DEV_ROW_REMAP_FAILURE", 1.0), new("DCGM_FI_DEV_ROW_REMAP_FAILED", 1.0)],
        "1 if a memory row could not be replaced (NVIDIA); the board is due for exchange.",
    ),
    banks(
        "remap_banks_max",
        &[("spare", "max")],
        &[old("DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_MAX", 1.0), new("DCGM_FI_DEV_BANK_REMAP_AVAIL_MAX", 1.0)],
        "Memory banks with all their spare rows left (NVIDIA).",
    )
    .aliases(&["remapped_rows_histogram_max"]),
    banks(
        "remap_banks_high",
        &[("spare", "high")],
        &[old("DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_HIGH", 1.0), new("DCGM_FI_DEV_BANK_REMAP_AVAIL_HIGH", 1.0)],
        "Memory banks with most of their spare rows left (NVIDIA).",
    )
    .aliases(&["remapped_rows_histogram_high"]),
    banks(
        "remap_banks_partial",
        &[("spare", "partial")],
        &[old("DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_PARTIAL", 1.0), new("DCGM_FI_DEV_BANK_REMAP_AVAIL_PARTIAL", 1.0)],
        "Memory banks with some of their spare rows left (NVIDIA).",
    )
    .aliases(&["remapped_rows_histogram_partial"]),
    banks(
        "remap_banks_low",
        &[("spare", "low")],
        &[old("DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_LOW", 1.0), new("DCGM_FI_DEV_BANK_REMAP_AVAIL_LOW", 1.0)],
        "Memory banks with few spare rows left (NVIDIA).",
    )
    .aliases(&["remapped_rows_histogram_low"]),
    banks(
        "remap_banks_none",
        &[("spare", "none")],
        &[old("DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_NONE", 1.0), new("DCGM_FI_DEV_BANK_REMAP_AVAIL_NONE", 1.0)],
        "Memory banks without a spare row (NVIDIA).",
    )
    .aliases(&["remapped_rows_histogram_none"]),
    flag(
        "sram_threshold_exceeded",
        "gpu_sram_threshold_exceeded",
        &[old("DCGM_FI_DEV_THRESHOLD_SRM", 1.0), new("DCGM_FI_DEV_SRAM_EXCEEDED", 1.0)],
        "1 if uncorrected errors of the SRAM passed their threshold (NVIDIA).",
    )
    .all(),
    state(
        "recovery_action",
        16.0,
        Group::Reliability,
        "gpu_recovery_action",
        "What the driver asks for (NVIDIA): 0 nothing, 1 reset of the GPU, 2 reboot of the node, \
         3 drain of peer traffic, 4 drain and reset.",
    )
    .rare()
    .standard()
    .dcgm(&[
        old("DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION", 1.0),
        new("DCGM_FI_DEV_GPU_RECOVERY_ACTION", 1.0),
    ]),
    count(
        "vram_lost_count",
        Group::Reliability,
        "gpu_vram_lost_total",
        "Times the content of the device memory was lost in a reset (AMD).",
    )
    .rare(),
];

/// Corrected or uncorrected errors of the memories.
const fn ecc(column: &'static str, labels: Labels, dcgm: &'static [DcgmName], help: &'static str) -> Metric {
    count(column, Group::Reliability, "gpu_ecc_errors_total", help)
        .scope(Scope::Block)
        .rare()
        .standard()
        .labels(labels)
        .dcgm(dcgm)
        .otel_as("hw.errors", ("error.type", "ecc"))
}

const fn ras(column: &'static str, labels: Labels, help: &'static str) -> Metric {
    count(column, Group::Reliability, "gpu_ras_errors_total", help)
        .scope(Scope::Block)
        .rare()
        .standard()
        .labels(labels)
        .otel_as("hw.errors", ("error.type", "ras"))
}

const fn pages(column: &'static str, family: &'static str, help: &'static str) -> Metric {
    gauge((column, ColumnType::I64, Unit::None), Group::Reliability, family, help).rare().range(0.0, 1e9)
}

const fn flag(
    column: &'static str,
    family: &'static str,
    dcgm: &'static [DcgmName],
    help: &'static str,
) -> Metric {
    state(column, FLAG.1, Group::Reliability, family, help).rare().standard().dcgm(dcgm)
}

const fn banks(
    column: &'static str,
    labels: Labels,
    dcgm: &'static [DcgmName],
    help: &'static str,
) -> Metric {
    gauge((column, ColumnType::I32, Unit::None), Group::Reliability, "gpu_remap_banks", help)
        .rare()
        .range(0.0, 1e6)
        .labels(labels)
        .dcgm(dcgm)
}
