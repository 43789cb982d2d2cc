//! Errors of single memories of a GPU (NVIDIA); the sums over all of them are in [`super::reliability`].

use crate::catalogue::row::{count, old};
use crate::catalogue::{DcgmName, Group, Metric};

type Labels = &'static [(&'static str, &'static str)];
type Names = &'static [&'static str];

/// The counters of each block: its name, DCGM's name of it, and how a sentence names it.
macro_rules! blocks {
    ($($name:literal $dcgm:literal $place:literal;)+) => { &[$(
        block(
            concat!("ecc_", $name, "_corrected_volatile"),
            &[("block", $name), ("severity", "corrected"), ("lifetime", "volatile")],
            &[old(concat!("DCGM_FI_DEV_ECC_SBE_VOL_", $dcgm), 1.0)],
            &[concat!("ecc_errors_corrected_volatile_", $name)],
            concat!("Errors corrected in ", $place, " since the driver was loaded (NVIDIA)."),
        ),
        block(
            concat!("ecc_", $name, "_uncorrected_volatile"),
            &[("block", $name), ("severity", "uncorrected"), ("lifetime", "volatile")],
            &[old(concat!("DCGM_FI_DEV_ECC_DBE_VOL_", $dcgm), 1.0)],
            &[concat!("ecc_errors_uncorrected_volatile_", $name)],
            concat!("Errors beyond correction in ", $place, " since the driver was loaded (NVIDIA)."),
        ),
        block(
            concat!("ecc_", $name, "_corrected_aggregate"),
            &[("block", $name), ("severity", "corrected"), ("lifetime", "aggregate")],
            &[old(concat!("DCGM_FI_DEV_ECC_SBE_AGG_", $dcgm), 1.0)],
            &[concat!("ecc_errors_corrected_aggregate_", $name)],
            concat!("Errors corrected in ", $place, " in the life of the GPU (NVIDIA)."),
        ),
        block(
            concat!("ecc_", $name, "_uncorrected_aggregate"),
            &[("block", $name), ("severity", "uncorrected"), ("lifetime", "aggregate")],
            &[old(concat!("DCGM_FI_DEV_ECC_DBE_AGG_", $dcgm), 1.0)],
            &[concat!("ecc_errors_uncorrected_aggregate_", $name)],
            concat!("Errors beyond correction in ", $place, " in the life of the GPU (NVIDIA)."),
        ),
    )+] };
}

/// The two that GPUs count from Ampere on. Older parts count caches and register files instead of the SRAM; the sums
/// contain those.
pub(super) const BLOCKS: &[Metric] = blocks! {
    "dram" "DEV" "the device memory";
    "sram" "SRM" "the SRAM of the chip";
};

/// Uncorrected errors of the SRAM: how they were found, and where.
pub(super) const SRAM: &[Metric] = &[
    sram(
        "ecc_sram_parity_volatile",
        &[("found_by", "parity"), ("lifetime", "volatile")],
        &["ecc_errors_uncorrected_volatile_sram_parity"],
        "Uncorrected SRAM errors found by parity since the driver was loaded (NVIDIA from Ampere on), each once.",
    ),
    sram(
        "ecc_sram_secded_volatile",
        &[("found_by", "secded"), ("lifetime", "volatile")],
        &["ecc_errors_uncorrected_volatile_sram_secded"],
        "Uncorrected SRAM errors found by SEC-DED since the driver was loaded (NVIDIA from Ampere on), each once.",
    ),
    sram(
        "ecc_sram_parity_aggregate",
        &[("found_by", "parity"), ("lifetime", "aggregate")],
        &["ecc_errors_uncorrected_aggregate_sram_parity"],
        "Uncorrected SRAM errors found by parity in the life of the GPU (NVIDIA from Ampere on), each once.",
    ),
    sram(
        "ecc_sram_secded_aggregate",
        &[("found_by", "secded"), ("lifetime", "aggregate")],
        &["ecc_errors_uncorrected_aggregate_sram_secded"],
        "Uncorrected SRAM errors found by SEC-DED in the life of the GPU (NVIDIA from Ampere on), each once.",
    ),
    source(
        "ecc_sram_source_l2",
        &[("source", "l2")],
        &["ecc_errors_uncorrected_aggregate_sram_l2"],
        "Uncorrected SRAM errors of the L2 cache in the life of the GPU (NVIDIA from Ampere on).",
    ),
    source(
        "ecc_sram_source_sm",
        &[("source", "sm")],
        &["ecc_errors_uncorrected_aggregate_sram_sm"],
        "Uncorrected SRAM errors of the multiprocessors in the life of the GPU (NVIDIA from Ampere on).",
    ),
    source(
        "ecc_sram_source_mcu",
        &[("source", "mcu")],
        &["ecc_errors_uncorrected_aggregate_sram_mcu"],
        "Uncorrected SRAM errors of the microcontrollers in the life of the GPU (NVIDIA from Ampere on).",
    ),
    source(
        "ecc_sram_source_pcie",
        &[("source", "pcie")],
        &["ecc_errors_uncorrected_aggregate_sram_pcie"],
        "Uncorrected SRAM errors of the PCIe unit in the life of the GPU (NVIDIA from Ampere on).",
    ),
    source(
        "ecc_sram_source_other",
        &[("source", "other")],
        &["ecc_errors_uncorrected_aggregate_sram_other"],
        "Uncorrected SRAM errors of other units in the life of the GPU (NVIDIA from Ampere on).",
    ),
];

const fn block(
    column: &'static str,
    labels: Labels,
    dcgm: &'static [DcgmName],
    aliases: Names,
    help: &'static str,
) -> Metric {
    errors(column, "gpu_ecc_block_errors_total", labels, aliases, help).dcgm(dcgm)
}

const fn sram(column: &'static str, labels: Labels, aliases: Names, help: &'static str) -> Metric {
    errors(column, "gpu_ecc_sram_errors_total", labels, aliases, help)
}

const fn source(column: &'static str, labels: Labels, aliases: Names, help: &'static str) -> Metric {
    errors(column, "gpu_ecc_sram_source_errors_total", labels, aliases, help)
}

const fn errors(
    column: &'static str,
    family: &'static str,
    labels: Labels,
    aliases: Names,
    help: &'static str,
) -> Metric {
    count(column, Group::Reliability, family, help).rare().labels(labels).aliases(aliases)
}
