//! PCIe, NVLink and xGMI: links, traffic, errors.

use crate::catalogue::row::{count, counter, gauge, info, new, old, state};
use crate::catalogue::unit::FLAG;
use crate::catalogue::{ColumnType, DcgmName, Group, Metric, Scope, Unit};

type Labels = &'static [(&'static str, &'static str)];

const TX: Labels = &[("direction", "tx")];
const RX: Labels = &[("direction", "rx")];

pub(super) const ROWS: &[Metric] = &[
    gauge(
        ("pcie_gen", ColumnType::I32, Unit::None),
        Group::Pcie,
        "gpu_pcie_link_generation",
        "Generation at which the PCIe link runs now; falls at idle by design.",
    )
    .standard()
    .range(1.0, 8.0)
    .dcgm(&[old("DCGM_FI_DEV_PCIE_LINK_GEN", 1.0), new("DCGM_FI_DEV_PCIE_LINK_GEN", 1.0)])
    .aliases(&["pcie_generation", "pcie_link_gen", "pcie_link_gen_current", "pcie_link_generation"]),
    gauge(
        ("pcie_width", ColumnType::I32, Unit::None),
        Group::Pcie,
        "gpu_pcie_link_width",
        "Lanes of the PCIe link in use now.",
    )
    .standard()
    .range(1.0, 32.0)
    .dcgm(&[old("DCGM_FI_DEV_PCIE_LINK_WIDTH", 1.0), new("DCGM_FI_DEV_PCIE_LINK_WIDTH", 1.0)])
    .aliases(&["pcie_link_width", "pcie_link_width_current"]),
    info(
        ("pcie_gen_max", ColumnType::I32, Unit::None),
        Group::Pcie,
        "gpu_pcie_link_generation_max",
        "Highest PCIe generation that GPU and slot can do together.",
    )
    .range(1.0, 8.0)
    .dcgm(&[old("DCGM_FI_DEV_PCIE_MAX_LINK_GEN", 1.0), new("DCGM_FI_DEV_PCIE_MAX_LINK_GEN", 1.0)])
    .aliases(&["pcie_link_gen_max"]),
    info(
        ("pcie_width_max", ColumnType::I32, Unit::None),
        Group::Pcie,
        "gpu_pcie_link_width_max",
        "Largest number of PCIe lanes that GPU and slot can use together.",
    )
    .range(1.0, 32.0)
    .dcgm(&[old("DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH", 1.0), new("DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH", 1.0)])
    .aliases(&["pcie_link_width_max"]),
    info(
        ("numa_node", ColumnType::I32, Unit::None),
        Group::Pcie,
        "gpu_numa_node",
        "NUMA node of the host that the GPU is plugged into.",
    )
    .range(0.0, 65_535.0),
    gauge(
        ("pcie_speed_gtps", ColumnType::F32, Unit::GigatransfersPerSecond),
        Group::Pcie,
        "gpu_pcie_link_transfers_per_second",
        "Transfers per second on a lane of the PCIe link, in GT/s.",
    ),
    rate(
        "pcie_tx_bytes_per_s",
        Group::Pcie,
        "gpu_pcie_bytes_per_second",
        TX,
        "Bytes the GPU sends over PCIe per second, headers included.",
    )
    .standard()
    .dcgm(&[old("DCGM_FI_PROF_PCIE_TX_BYTES", 1.0), new("DCGM_FI_PROF_PCIE_TX_BYTES", 1.0)]),
    rate(
        "pcie_rx_bytes_per_s",
        Group::Pcie,
        "gpu_pcie_bytes_per_second",
        RX,
        "Bytes the GPU receives over PCIe per second, headers included.",
    )
    .standard()
    .dcgm(&[old("DCGM_FI_PROF_PCIE_RX_BYTES", 1.0), new("DCGM_FI_PROF_PCIE_RX_BYTES", 1.0)]),
    traffic("pcie_tx_bytes", Group::Pcie, "gpu_pcie_bytes_total", TX, "Bytes the GPU has sent over PCIe.")
        .dcgm(&[old("DCGM_FI_PROF_PCIE_TX_BYTES_TOTAL", 1.0), new("DCGM_FI_PROF_PCIE_TX_BYTES_TOTAL", 1.0)])
        .otel("hw.gpu.io"),
    traffic("pcie_rx_bytes", Group::Pcie, "gpu_pcie_bytes_total", RX, "Bytes the GPU has received over PCIe.")
        .dcgm(&[old("DCGM_FI_PROF_PCIE_RX_BYTES_TOTAL", 1.0), new("DCGM_FI_PROF_PCIE_RX_BYTES_TOTAL", 1.0)])
        .otel("hw.gpu.io"),
    count(
        "pcie_bandwidth_acc",
        Group::Pcie,
        "gpu_pcie_bandwidth_accumulated_total",
        "Running sum of the PCIe bandwidth as AMD's firmware counts it, raw; its unit differs between tables.",
    ),
    gauge(
        ("pcie_bandwidth_raw", ColumnType::I64, Unit::None),
        Group::Pcie,
        "gpu_pcie_bandwidth_raw",
        "PCIe bandwidth now as AMD's firmware states it, raw; its unit differs between tables.",
    )
    .range(0.0, 9.0e18),
    count(
        "pcie_replays",
        Group::Pcie,
        "gpu_pcie_replays_total",
        "PCIe packets that were sent again.",
    )
    .standard()
    .dcgm(&[
        old("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", 1.0),
        old("dcgm_pcie_replay_counter", 1.0),
        new("DCGM_FI_DEV_PCIE_REPLAY_TOTAL", 1.0),
    ])
    .aliases(&["pcie_replay_count", "pcie_replay_counter"]),
    count(
        "pcie_replay_rollovers",
        Group::Pcie,
        "gpu_pcie_replay_rollovers_total",
        "Times the PCIe replay number rolled over.",
    ),
    count("pcie_naks_sent", Group::Pcie, "gpu_pcie_naks_total", "PCIe packets the GPU refused.").labels(TX),
    count("pcie_naks_received", Group::Pcie, "gpu_pcie_naks_total", "PCIe packets the other end refused.")
        .labels(RX),
    count(
        "pcie_recoveries",
        Group::Pcie,
        "gpu_pcie_recoveries_total",
        "Times the PCIe link went from L0 to recovery.",
    )
    .labels(&[("end", "gpu")]),
    count(
        "pcie_other_end_recoveries",
        Group::Pcie,
        "gpu_pcie_recoveries_total",
        "Recoveries of the PCIe link that the other end began (AMD).",
    )
    .labels(&[("end", "other")]),
    count(
        "pcie_correctable_errors",
        Group::Pcie,
        "gpu_pcie_correctable_errors_total",
        "PCIe errors that were corrected (NVIDIA).",
    )
    .dcgm(&[
        old("DCGM_FI_DEV_PCIE_COUNT_CORRECTABLE_ERRORS", 1.0),
        new("DCGM_FI_DEV_PCIE_CORRECTABLE_ERROR_TOTAL", 1.0),
    ]),
    // NVLink and xGMI
    traffic(
        "interconnect_tx_bytes",
        Group::Interconnect,
        "gpu_interconnect_bytes_total",
        TX,
        "Bytes sent over NVLink or xGMI, all links.",
    )
    .scope(Scope::Link)
    .standard()
    .dcgm(&[old("DCGM_FI_DEV_NVLINK_COUNT_TX_BYTES", 1.0), new("DCGM_FI_DEV_NVLINK_TX_BYTES_TOTAL", 1.0)])
    .aliases(&["nvlink_tx_bytes", "xgmi_tx_bytes"]),
    traffic(
        "interconnect_rx_bytes",
        Group::Interconnect,
        "gpu_interconnect_bytes_total",
        RX,
        "Bytes received over NVLink or xGMI, all links.",
    )
    .scope(Scope::Link)
    .standard()
    .dcgm(&[old("DCGM_FI_DEV_NVLINK_COUNT_RX_BYTES", 1.0), new("DCGM_FI_DEV_NVLINK_RX_BYTES_TOTAL", 1.0)])
    .aliases(&["nvlink_rx_bytes", "xgmi_rx_bytes"]),
    rate(
        "interconnect_tx_bytes_per_s",
        Group::Interconnect,
        "gpu_interconnect_bytes_per_second",
        TX,
        "Bytes sent over NVLink or xGMI per second, all links, headers included.",
    )
    .scope(Scope::Link)
    .dcgm(&[old("DCGM_FI_PROF_NVLINK_TX_BYTES", 1.0), new("DCGM_FI_PROF_NVLINK_TX_BYTES", 1.0)]),
    rate(
        "interconnect_rx_bytes_per_s",
        Group::Interconnect,
        "gpu_interconnect_bytes_per_second",
        RX,
        "Bytes received over NVLink or xGMI per second, all links, headers included.",
    )
    .scope(Scope::Link)
    .dcgm(&[old("DCGM_FI_PROF_NVLINK_RX_BYTES", 1.0), new("DCGM_FI_PROF_NVLINK_RX_BYTES", 1.0)]),
    rate(
        "interconnect_bytes_per_s",
        Group::Interconnect,
        "gpu_interconnect_both_directions_bytes_per_second",
        &[],
        "Bytes sent and received over NVLink or xGMI per second, all links; a row has it only from a source that gives the sum alone.",
    )
    .scope(Scope::Link)
    // The old name is KiB/s divided by 1,000, which DCGM calls MB/s.
    .dcgm(&[
        old("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", 1.0 / 1_024_000.0),
        old("DCGM_FI_DEV_NVLINK_THROUGHPUT_TOTAL", 1.0 / 1_024_000.0),
        old("dcgm_nvlink_bandwidth_total", 1.0 / 1_024_000.0),
        new("DCGM_FI_DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND", 1.0),
    ]),
    counted(
        "interconnect_tx_packets",
        "gpu_interconnect_packets_total",
        TX,
        &[old("DCGM_FI_DEV_NVLINK_COUNT_TX_PACKETS", 1.0), new("DCGM_FI_DEV_NVLINK_TX_PACKET_TOTAL", 1.0)],
        "Packets sent over NVLink, all links (NVLink 5).",
    ),
    counted(
        "interconnect_rx_packets",
        "gpu_interconnect_packets_total",
        RX,
        &[old("DCGM_FI_DEV_NVLINK_COUNT_RX_PACKETS", 1.0), new("DCGM_FI_DEV_NVLINK_RX_PACKET_TOTAL", 1.0)],
        "Packets received over NVLink, all links (NVLink 5).",
    ),
    error(
        "interconnect_crc_flit_errors",
        &[("error", "crc_flit")],
        &[
            old("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", 1.0),
            old("dcgm_nvlink_flit_crc_error_count_total", 1.0),
            new("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_TOTAL", 1.0),
        ],
        "Checksum errors of NVLink flow control, all links.",
    )
    .standard(),
    error(
        "interconnect_crc_data_errors",
        &[("error", "crc_data")],
        &[
            old("DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", 1.0),
            old("dcgm_nvlink_data_crc_error_count_total", 1.0),
            new("DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_TOTAL", 1.0),
        ],
        "Checksum errors of NVLink data, all links.",
    )
    .standard(),
    error(
        "interconnect_crc_errors",
        &[("error", "crc")],
        &[old("DCGM_FI_DEV_NVLINK_ERROR_DL_CRC", 1.0), new("DCGM_FI_DEV_NVLINK_CRC_ERROR_TOTAL", 1.0)],
        "Checksum errors of the NVLink data link, all links, if they are not distinguished (Hopper on).",
    ),
    error(
        "interconnect_replay_errors",
        &[("error", "replay")],
        &[
            old("DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", 1.0),
            old("DCGM_FI_DEV_NVLINK_ERROR_DL_REPLAY", 1.0),
            old("dcgm_nvlink_replay_error_count_total", 1.0),
            new("DCGM_FI_DEV_NVLINK_REPLAY_ERROR_TOTAL", 1.0),
            new("DCGM_FI_DEV_NVLINK_REPLAY_TOTAL", 1.0),
        ],
        "NVLink transfers that were repeated, all links.",
    )
    .standard(),
    error(
        "interconnect_recovery_errors",
        &[("error", "recovery")],
        &[
            old("DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", 1.0),
            old("DCGM_FI_DEV_NVLINK_ERROR_DL_RECOVERY", 1.0),
            old("dcgm_nvlink_recovery_error_count_total", 1.0),
            new("DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_TOTAL", 1.0),
            new("DCGM_FI_DEV_NVLINK_RECOVERY_TOTAL", 1.0),
        ],
        "Times an NVLink had to recover, all links.",
    )
    .standard(),
    error(
        "interconnect_ecc_errors",
        &[("error", "ecc")],
        &[
            old("DCGM_FI_DEV_NVLINK_ECC_DATA_ERROR_COUNT_TOTAL", 1.0),
            new("DCGM_FI_DEV_NVLINK_ECC_ERROR_TOTAL", 1.0),
        ],
        "ECC errors of NVLink data, all links.",
    ),
    error(
        "interconnect_rx_errors",
        &[("error", "rx")],
        &[old("DCGM_FI_DEV_NVLINK_COUNT_RX_ERRORS", 1.0), new("DCGM_FI_DEV_NVLINK_RX_ERROR_TOTAL", 1.0)],
        "Packets received with an error, all links (NVLink 5).",
    ),
    error(
        "interconnect_symbol_errors",
        &[("error", "symbol")],
        &[old("DCGM_FI_DEV_NVLINK_COUNT_RX_SYMBOL_ERRORS", 1.0), new("DCGM_FI_DEV_NVLINK_RX_SYMBOL_ERROR_TOTAL", 1.0)],
        "Symbols received with an error, all links (NVLink 5).",
    ),
    error(
        "interconnect_effective_errors",
        &[("error", "effective")],
        &[old("DCGM_FI_DEV_NVLINK_COUNT_EFFECTIVE_ERRORS", 1.0), new("DCGM_FI_DEV_NVLINK_EFFECTIVE_ERROR_TOTAL", 1.0)],
        "Errors left after forward correction, all links (NVLink 5).",
    ),
    error(
        "interconnect_integrity_errors",
        &[("error", "integrity")],
        &[
            old("DCGM_FI_DEV_NVLINK_COUNT_LOCAL_LINK_INTEGRITY_ERRORS", 1.0),
            new("DCGM_FI_DEV_NVLINK_INTEGRITY_ERROR_TOTAL", 1.0),
        ],
        "Times local errors passed their threshold, all links (NVLink 5).",
    ),
    counted(
        "interconnect_recoveries_succeeded",
        "gpu_interconnect_recoveries_total",
        &[("result", "succeeded")],
        &[
            old("DCGM_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_SUCCESSFUL_EVENTS", 1.0),
            new("DCGM_FI_DEV_NVLINK_RECOVERY_SUCCESSFUL_TOTAL", 1.0),
        ],
        "Recoveries after which the link came back, all links (NVLink 5).",
    ),
    counted(
        "interconnect_recoveries_failed",
        "gpu_interconnect_recoveries_total",
        &[("result", "failed")],
        &[
            old("DCGM_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS", 1.0),
            new("DCGM_FI_DEV_NVLINK_RECOVERY_FAILED_TOTAL", 1.0),
        ],
        "Recoveries after which the link was given up, all links (NVLink 5).",
    ),
    gauge(
        ("interconnect_links_up", ColumnType::I32, Unit::None),
        Group::Interconnect,
        "gpu_interconnect_links_up",
        "NVLink or xGMI links that are up.",
    )
    .scope(Scope::Link)
    .standard()
    .range(0.0, 256.0),
    info(
        ("interconnect_links", ColumnType::I32, Unit::None),
        Group::Interconnect,
        "gpu_interconnect_links",
        "NVLink or xGMI links whose other end is known: another GPU, or a switch. Of xGMI the driver tells the GPUs that are linked, not how many links go there: each counts as one.",
    )
    .scope(Scope::Peer)
    .range(0.0, 256.0),
    gauge(
        ("interconnect_width", ColumnType::I32, Unit::None),
        Group::Interconnect,
        "gpu_interconnect_link_width",
        "Lanes of an NVLink or xGMI link; the table holds the narrowest link that is up.",
    )
    .scope(Scope::Link)
    .range(0.0, 256.0),
    gauge(
        ("interconnect_speed_gtps", ColumnType::F32, Unit::GigatransfersPerSecond),
        Group::Interconnect,
        "gpu_interconnect_link_transfers_per_second",
        "Transfers per second on a lane of an NVLink or xGMI link, in GT/s; the table holds the slowest link that is up.",
    )
    .scope(Scope::Link),
    state(
        "fabric_state",
        3.0,
        Group::Interconnect,
        "gpu_fabric_state",
        "Registration with the NVLink fabric (NVSwitch machines): 1 not started, 2 in progress, 3 completed; without it \
         the GPU computes alone.",
    )
    .rare(),
    state(
        "fabric_health",
        3.0,
        Group::Interconnect,
        "gpu_fabric_health",
        "Health of the NVLink fabric as the GPU sees it: 1 healthy, 2 unhealthy, 3 limited capacity.",
    )
    .rare(),
    state(
        "c2c_mode",
        FLAG.1,
        Group::Interconnect,
        "gpu_c2c_mode",
        "1 if the GPU is linked to the CPU of its module (NVLink C2C).",
    )
    .rare(),
    gauge(
        ("c2c_links", ColumnType::I32, Unit::None),
        Group::Interconnect,
        "gpu_c2c_links",
        "Links to the CPU of the module (NVLink C2C).",
    )
    .rare()
    .range(0.0, 256.0)
    .dcgm(&[old("DCGM_FI_DEV_C2C_LINK_COUNT", 1.0), new("DCGM_FI_DEV_C2C_LINK_QUANTITY", 1.0)]),
    rate(
        "c2c_tx_bytes_per_s",
        Group::Interconnect,
        "gpu_c2c_bytes_per_second",
        TX,
        "Bytes sent to the CPU of the module per second (NVLink C2C), headers included.",
    )
    .dcgm(&[old("DCGM_FI_PROF_C2C_TX_ALL_BYTES", 1.0), new("DCGM_FI_PROF_C2C_TX_ALL_BYTES", 1.0)]),
    rate(
        "c2c_rx_bytes_per_s",
        Group::Interconnect,
        "gpu_c2c_bytes_per_second",
        RX,
        "Bytes received from the CPU of the module per second (NVLink C2C), headers included.",
    )
    .dcgm(&[old("DCGM_FI_PROF_C2C_RX_ALL_BYTES", 1.0), new("DCGM_FI_PROF_C2C_RX_ALL_BYTES", 1.0)]),
];

const fn traffic(
    column: &'static str,
    group: Group,
    family: &'static str,
    labels: Labels,
    help: &'static str,
) -> Metric {
    counter((column, ColumnType::I64, Unit::Byte), group, family, help).labels(labels)
}

const fn rate(
    column: &'static str,
    group: Group,
    family: &'static str,
    labels: Labels,
    help: &'static str,
) -> Metric {
    gauge((column, ColumnType::I64, Unit::BytesPerSecond), group, family, help).labels(labels)
}

const fn counted(
    column: &'static str,
    family: &'static str,
    labels: Labels,
    dcgm: &'static [DcgmName],
    help: &'static str,
) -> Metric {
    count(column, Group::Interconnect, family, help).scope(Scope::Link).rare().labels(labels).dcgm(dcgm)
}

const fn error(
    column: &'static str,
    labels: Labels,
    dcgm: &'static [DcgmName],
    help: &'static str,
) -> Metric {
    counted(column, "gpu_interconnect_errors_total", labels, dcgm, help)
        .otel_as("hw.errors", ("error.type", "interconnect"))
}
