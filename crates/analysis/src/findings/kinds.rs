//! The kinds of findings: one table.

use gpuvitals_core::time::MINUTE_NS;

use crate::condition::{COOL, Severity};

/// A kind of finding.
#[derive(Debug, PartialEq)]
pub struct FindingKind {
    /// Name for programs; never changes. Those of the conditions are the conditions'.
    pub id: &'static str,
    /// How urgent it is.
    pub severity: Severity,
    /// How long it must hold until it opens, nanoseconds.
    pub opens_after_ns: i64,
    /// Whether it must have been seen for so long: the history says since when, and not that it is so, while a part of the fleet may be
    /// away.
    pub opens_by_looks: bool,
    /// How long it must be away until it closes, nanoseconds.
    pub closes_after_ns: i64,
    /// Kinds about the same GPU that say less: they are not shown beside it. What a finding covers by its values is
    /// `FleetFinding::covers`.
    pub covers: &'static [&'static str],
    /// What it means, for the documentation.
    pub meaning: &'static str,
    /// What to do, with `{for NVIDIA//for AMD}` where vendors differ; empty: the condition knows.
    pub remedy: &'static str,
}

/// Every kind, the worst first.
pub const KINDS: &[FindingKind] = &[
    FindingKind {
        covers: &["node_silent", "gpu_lost"],
        opens_after_ns: MINUTE_NS,
        remedy: "The nodes are hardly down all at once: look at what collects from them. `gpuvitals query health` names the failing \
                 part; then the queue (`gpuvitals queue stats`), the network, and the agents' tokens and certificates.",
        ..critical("fleet_silent", "Most nodes stopped reporting.")
    },
    FindingKind {
        opens_after_ns: MINUTE_NS / 2,
        remedy: "`ping` the node and look at its console. If it is up: `systemctl status gpuvitals-agent` and its log. If it is down, \
                 its jobs are lost: drain it, start it again and read `journalctl -b -1`.",
        ..critical("node_silent", "No GPU of a node reports any more.")
    },
    FindingKind {
        opens_after_ns: MINUTE_NS / 2,
        covers: &["reads_slowed"],
        remedy: "{`nvidia-smi -L`//`amd-smi list`} on the node: is it there? `dmesg | grep -iE 'xid|nvrm|amdgpu'` says why not. Drain the \
                 node and reboot it; if the GPU stays away, reseat or exchange the board.",
        ..critical("gpu_lost", "A GPU reports nothing any more, while its node does.")
    },
    FindingKind {
        covers: &["reads_slowed"],
        ..condition(
            Severity::Critical,
            "xid",
            "The driver reported an XID that programs do not cause, and that needs somebody.",
        )
    },
    FindingKind {
        covers: &["recovery_action", "row_remap_pending", "page_retirement_pending"],
        ..condition(Severity::Critical, "ecc_uncorrected", "Device memory had an error beyond correction.")
    },
    condition(Severity::Critical, "ras_uncorrected", "A block of an AMD GPU had an error beyond correction."),
    FindingKind {
        covers: &["row_remap_pending"],
        ..condition(Severity::Critical, "row_remap_failed", "A memory row could not be replaced.")
    },
    condition(Severity::Critical, "bad_pages_in_use", "Bad memory pages are still in use."),
    condition(Severity::Critical, "sram_errors", "Errors of the SRAM passed the vendor's threshold."),
    condition(Severity::Critical, "recovery_action", "The driver asks for a reset, drain or reboot."),
    FindingKind {
        covers: &[
            "software_thermal_slowdown",
            "thermal_margin",
            "memory_thermal_limit",
            "thermal_throttling",
            "straggler",
            "clock_held",
        ],
        ..unsteady(
            Severity::Critical,
            "hardware_thermal_slowdown",
            "The hardware slows the GPU down because of heat.",
        )
    },
    FindingKind {
        opens_after_ns: 0,
        remedy: "GPUs that fell off the bus slowed down like this before. Let the job save what it has, and take the node out of service when \
                 it ends. `dmesg | grep -iE 'xid|nvrm|amdgpu|aer'` on the node, and `lspci -vv` (LnkSta, DevSta): does the bus have errors? \
                 `gpuvitals flight list` on the node shows whether its recorder kept the minutes around it.",
        ..unsteady(
            Severity::Warning,
            "reads_slowed",
            "Readings of a GPU take far longer than before, and those of the others of its node do not.",
        )
    },
    FindingKind {
        covers: &["straggler", "clock_held"],
        opens_after_ns: MINUTE_NS,
        remedy: "Look at the power supplies and the power budget of the chassis: `ipmitool sdr type 'Power Supply'` or the BMC's page.",
        ..unsteady(Severity::Warning, "power_brake", "The chassis' power brake holds the clock down.")
    },
    FindingKind {
        covers: &[
            "software_thermal_slowdown",
            "thermal_margin",
            "memory_thermal_limit",
            "straggler",
            "clock_held",
        ],
        remedy: COOL,
        ..unsteady(
            Severity::Warning,
            "thermal_throttling",
            "Heat holds the clock down for a share of the time.",
        )
    },
    FindingKind {
        opens_after_ns: 5 * MINUTE_NS,
        opens_by_looks: true,
        remedy: "{`nvidia-smi -L`//`amd-smi list`} on the node, and `lspci | grep -iE 'nvidia|amd'`: does the bus still see the GPU? `dmesg \
                 | grep -iE 'xid|nvrm|amdgpu'` says why the driver does not. Drain the node and reboot it; if the GPU stays away, reseat or \
                 exchange the board. If it was taken out on purpose, nothing is wrong.",
        ..unsteady(
            Severity::Warning,
            "gpu_missing",
            "A node has fewer GPUs than its peers, and the missing ones never reported.",
        )
    },
    FindingKind {
        opens_after_ns: MINUTE_NS,
        remedy: "`timedatectl` on the host: is its clock synchronised? `chronyc tracking` or `ntpq -p` says how far it is off. Rows with a \
                 wrong time stay where they are.",
        ..unsteady(Severity::Warning, "clock_wrong", "The rows of a host have times that have not come yet.")
    },
    FindingKind {
        remedy: "Two agents report one GPU: one was copied with its configuration, a virtual machine was cloned, or a host has two names. \
                 Stop one, or give each its own name (`sampling.node`, `NODE_NAME`). Until then the rows of both are mixed.",
        ..unsteady(Severity::Warning, "duplicate_gpu", "Several nodes send rows of one GPU.")
    },
    FindingKind {
        remedy: "Give each agent its own name (`sampling.node`, `NODE_NAME`): hosts that were cloned often keep one. Until \
                 then the values of both hosts are mixed.",
        ..unsteady(Severity::Warning, "duplicate_node", "Two agents report under one name.")
    },
    condition(Severity::Warning, "xid_nonfatal", "The driver reported an XID after which work may go on."),
    FindingKind {
        opens_after_ns: 0,
        remedy: "Move the jobs away and run `dcgmi diag -r 3 -i INDEX`. If it finds nothing and the XIDs come again, give NVIDIA the output of \
                 `nvidia-bug-report.sh` and ask for its field diagnostics. If all those jobs run one program, look at that first.",
        ..unsteady(
            Severity::Warning,
            "xid_repeats",
            "XIDs that programs cause (13, 31) come again and again on one GPU, whoever runs there.",
        )
    },
    condition(Severity::Warning, "row_remap_pending", "A memory row waits for a reset to be replaced."),
    condition(
        Severity::Warning,
        "page_retirement_pending",
        "Memory pages wait for a reset to be taken out of use.",
    ),
    unsteady(
        Severity::Warning,
        "software_thermal_slowdown",
        "The driver slows the GPU down because of heat.",
    ),
    unsteady(Severity::Warning, "thermal_margin", "The GPU is within 3 °C of its slowdown limit."),
    unsteady(Severity::Warning, "memory_thermal_limit", "The memory is within 3 °C of its slowdown limit."),
    FindingKind {
        remedy: "A fan that stands still: exchange it, or the card. Until then drain the GPU. {`nvidia-smi -q -d TEMPERATURE`//`amd-smi \
                 metric -t`} and `sensors` show whether others are hot as well.",
        ..unsteady(Severity::Warning, "fan_stopped", "A fan stands still while the GPU is hot.")
    },
    FindingKind {
        remedy: "Look for what hinders the GPU's airflow: dust, cables, a missing blanking panel, a neighbour too close.",
        ..unsteady(Severity::Warning, "fan_at_limit", "A fan runs at its limit, its peers' fans do not.")
    },
    FindingKind {
        covers: &["clock_held"],
        remedy: "{`nvidia-smi -q -d CLOCK,PERFORMANCE -i INDEX` on the node: application clocks or a lock from an earlier job? `nvidia-smi \
                 -rac -i INDEX` and `-rgc` give them back.//`amd-smi metric -c -g INDEX` on the node: was the clock limited by hand, or by an \
                 earlier job? `rocm-smi -d INDEX --resetclocks` gives it back.} If the clocks are free, look at power limit, temperature and link, and move the job.",
        ..unsteady(
            Severity::Warning,
            "straggler",
            "A GPU is slower than the others of its job, which wait for it.",
        )
    },
    FindingKind {
        opens_after_ns: MINUTE_NS / 2,
        closes_after_ns: MINUTE_NS,
        remedy: "Look at the job's log: a time-out of NCCL or RCCL names the collective and the ranks that are missing. `py-spy dump --pid \
                 PID` on each rank shows where it waits. If nothing moves, end the job, take out the GPU or node that left first, and start \
                 it from its last checkpoint.",
        ..unsteady(
            Severity::Warning,
            "job_hung",
            "All GPUs of a job say that they are busy and do far less than before: they wait for each other.",
        )
    },
    FindingKind {
        covers: &["idle_held"],
        opens_after_ns: 0,
        closes_after_ns: MINUTE_NS,
        remedy: "Look at the job's log, and at `py-spy dump --pid PID`: does it wait for data, a file system, a lock, another service? Has its \
                 program ended, and its script not? If nothing moves, end the job: that frees the GPUs.",
        ..unsteady(
            Severity::Warning,
            "job_stalled",
            "All GPUs of a job have worked and do nothing any more, while it holds them.",
        )
    },
    FindingKind {
        remedy: "Look at the process of that GPU: `py-spy dump`, its input, its share of the data. A GPU that waits for its own input \
                 holds up the job.",
        ..unsteady(Severity::Notice, "starved", "A GPU does far less than the others of its job.")
    },
    FindingKind {
        remedy: "`lspci -vv` (LnkSta) or {`nvidia-smi -q -d PCIE`//`amd-smi metric -P`} on the node. Reseat the board and its riser; look at the slot's setting in the \
                 BIOS. Until then give it no work that loads much data.",
        ..unsteady(
            Severity::Warning,
            "pcie_degraded",
            "The PCIe link is slower than that of the same model elsewhere.",
        )
    },
    FindingKind {
        remedy: "{`nvidia-smi nvlink -s` on the node, and `dmesg` for XID 74.//`rocm-smi --shownodesbw` on the node.} Drain the node and reset the GPUs; \
                 if the link stays down, the board or the baseboard is due for exchange.",
        ..unsteady(
            Severity::Warning,
            "links_down",
            "Fewer links between GPUs are up than on the same model elsewhere.",
        )
    },
    FindingKind {
        remedy: "{`nvidia-smi -q -d CLOCK -i INDEX`: application clocks or a lock from an earlier job? `nvidia-smi -rac -i INDEX` and `-rgc` \
                 give them back.//Was the clock limited by hand, or by an earlier job? `rocm-smi -d INDEX --resetclocks` gives it back.}",
        ..unsteady(
            Severity::Notice,
            "clock_held",
            "The clock is low under load, and neither power nor heat explains it.",
        )
    },
    FindingKind {
        opens_after_ns: 10 * MINUTE_NS,
        closes_after_ns: 10 * MINUTE_NS,
        remedy: "If this is no update under way, bring the nodes to one version: jobs over several nodes meet different libraries.",
        ..unsteady(Severity::Notice, "driver_mismatch", "Nodes with the same model have different drivers.")
    },
    FindingKind {
        opens_after_ns: 0,
        remedy: "Ask the owner whether the job still works: a server without requests, a notebook left open, a job that hangs. `gpuvitals \
                 query gpu ID` shows the holder; ending the job frees the GPUs.",
        ..unsteady(Severity::Notice, "idle_held", "A job holds GPUs that have done nothing for half an hour.")
    },
];

/// A kind of this name.
pub(super) fn kind(id: &str) -> &'static FindingKind {
    static UNKNOWN: FindingKind =
        unsteady(Severity::Warning, "unknown", "A condition that the table of kinds lacks.");
    KINDS.iter().find(|kind| kind.id == id).unwrap_or(&UNKNOWN)
}

/// What a value that only grows, or a driver's own verdict, shows: true at once.
const fn condition(severity: Severity, id: &'static str, meaning: &'static str) -> FindingKind {
    FindingKind {
        id,
        severity,
        opens_after_ns: 0,
        opens_by_looks: false,
        closes_after_ns: 5 * MINUTE_NS,
        covers: &[],
        meaning,
        remedy: "",
    }
}

const fn critical(id: &'static str, meaning: &'static str) -> FindingKind {
    FindingKind { closes_after_ns: MINUTE_NS, ..condition(Severity::Critical, id, meaning) }
}

/// What comes and goes with the load.
const fn unsteady(severity: Severity, id: &'static str, meaning: &'static str) -> FindingKind {
    FindingKind { opens_after_ns: 2 * MINUTE_NS, ..condition(severity, id, meaning) }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::condition;

    #[test]
    fn every_condition_is_a_kind_of_its_severity_and_no_name_is_twice() {
        for condition in condition::kinds() {
            let kind = kind(condition.id);
            assert_eq!((kind.id, kind.severity), (condition.id, condition.severity));
        }
        let ids: HashSet<&str> = KINDS.iter().map(|kind| kind.id).collect();
        assert_eq!(ids.len(), KINDS.len());
        for kind in KINDS {
            assert!(
                kind.covers.iter().all(|covered| ids.contains(covered) && *covered != kind.id),
                "{}",
                kind.id
            );
            let of_condition = condition::kinds().any(|condition| condition.id == kind.id);
            assert_eq!(kind.remedy.is_empty(), of_condition, "{}", kind.id);
        }
    }
}
