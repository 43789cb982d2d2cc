//! The columns of `system_events`, read from `/proc`. Counts are the kernel's, cumulative since boot.

use super::row::{count, counter, gauge, info};
use super::{ColumnType, Group, Metric, Scope, Unit};

type Labels = &'static [(&'static str, &'static str)];

/// All of them, in order.
pub(super) const ROWS: &[Metric] = &[
    gauge(
        ("cpu_pct", ColumnType::F32, Unit::Percent),
        Group::Host,
        "host_cpu_utilization_ratio",
        "Share of the host's CPU time that was not idle since the reading before; waiting for I/O counts as idle.",
    )
    .host()
    .fast()
    .basic()
    .otel("system.cpu.utilization")
    .aliases(&["cpu", "cpu_percent", "cpu_usage", "cpu_util", "cpu_utilization", "cpu_utilization_pct"]),
    gauge(
        ("memory_mb", ColumnType::I64, Unit::Mebibyte),
        Group::Host,
        "host_memory_used_bytes",
        "Host memory in use (MemTotal less MemAvailable), in MiB.",
    )
    .host()
    .fast()
    .basic()
    .otel("system.memory.usage")
    .aliases(&["host_memory_used_mb", "host_memory_mb", "host_memory_used", "system_memory_mb"]),
    kernel(
        "ctx_switches",
        "host_context_switches_total",
        "Context switches of all CPUs since boot (ctxt of /proc/stat).",
    )
    .fast()
    .basic()
    .aliases(&["context_switches", "ctxt"]),
    kernel("page_faults", "host_page_faults_total", "Page faults since boot, major ones included (pgfault).")
        .fast()
        .basic()
        .otel("system.paging.faults")
        .aliases(&["pgfault"]),
    kernel("irqs", "host_interrupts_total", "Interrupts served since boot (intr of /proc/stat).")
        .fast()
        .basic()
        .aliases(&["irq", "irq_count", "interrupts", "intr"]),
    load("load1", &[("window", "1m")], "Mean number of runnable or blocked tasks, over 1 minute.")
        .basic()
        .aliases(&["load_1", "loadavg_1", "load_1m", "load_average_1m"]),
    load("load5", &[("window", "5m")], "Mean number of runnable or blocked tasks, over 5 minutes.")
        .aliases(&["load_5", "loadavg_5", "load_5m", "load_average_5m"]),
    load("load15", &[("window", "15m")], "Mean number of runnable or blocked tasks, over 15 minutes.")
        .aliases(&["load_15", "loadavg_15", "load_15m", "load_average_15m"]),
    info(
        ("host_memory_total_mb", ColumnType::I64, Unit::Mebibyte),
        Group::Host,
        "host_memory_total_bytes",
        "Memory of the host (MemTotal), in MiB.",
    )
    .host()
    .basic()
    .otel("system.memory.limit")
    .aliases(&["host_memory_total", "system_memory_total_mb"]),
    gauge(
        ("host_memory_available_mb", ColumnType::I64, Unit::Mebibyte),
        Group::Host,
        "host_memory_available_bytes",
        "Host memory that can be had without swapping (MemAvailable), in MiB.",
    )
    .host()
    .standard()
    .otel("system.linux.memory.available"),
    gauge(
        ("swap_used_mb", ColumnType::I64, Unit::Mebibyte),
        Group::Host,
        "host_swap_used_bytes",
        "Swap space in use, in MiB.",
    )
    .host()
    .standard()
    .otel("system.paging.usage"),
    mode("cpu_user_pct", &[("mode", "user")], "Share of CPU time in programs, niced ones included."),
    mode("cpu_system_pct", &[("mode", "system")], "Share of CPU time in the kernel, interrupts included."),
    mode("cpu_iowait_pct", &[("mode", "iowait")], "Share of CPU time idle while I/O was under way."),
    info(
        ("cpu_count", ColumnType::I32, Unit::None),
        Group::Host,
        "host_cpus",
        "CPUs (hardware threads) that are online.",
    )
    .host()
    .standard()
    .range(1.0, 65_536.0)
    .otel("system.cpu.logical.count"),
    kernel("major_page_faults", "host_major_page_faults_total", "Page faults that had to read (pgmajfault).")
        .standard()
        .aliases(&["pgmajfault"]),
    kernel("soft_irqs", "host_soft_interrupts_total", "Soft interrupts served since boot.").aliases(&["softirqs"]),
    kernel("forks", "host_forks_total", "Processes and threads started since boot (processes of /proc/stat)."),
    gauge(
        ("procs_running", ColumnType::I32, Unit::None),
        Group::Host,
        "host_processes_running",
        "Tasks that run or could run now.",
    )
    .host()
    .standard()
    .range(0.0, 1e8),
    gauge(
        ("procs_blocked", ColumnType::I32, Unit::None),
        Group::Host,
        "host_processes_blocked",
        "Tasks that wait for I/O now.",
    )
    .host()
    .standard()
    .range(0.0, 1e8),
    counter(
        ("uptime_ns", ColumnType::I64, Unit::Nanosecond),
        Group::Host,
        "host_uptime_seconds_total",
        "Time since the host booted.",
    )
    .host()
    .otel("system.uptime"),
    gauge(
        ("cpu_core_pct", ColumnType::F32, Unit::Percent),
        Group::Host,
        "host_cpu_core_utilization_ratio",
        "Share of one CPU's time that was not idle since the reading before; on request, in rows of its own.",
    )
    .host()
    .scope(Scope::CpuCore)
    .fast()
    .standard(),
];

const fn kernel(column: &'static str, family: &'static str, help: &'static str) -> Metric {
    count(column, Group::Host, family, help).host()
}

const fn load(column: &'static str, labels: Labels, help: &'static str) -> Metric {
    gauge((column, ColumnType::F32, Unit::None), Group::Host, "host_load_average", help)
        .host()
        .standard()
        .range(0.0, 1e6)
        .labels(labels)
}

const fn mode(column: &'static str, labels: Labels, help: &'static str) -> Metric {
    gauge((column, ColumnType::F32, Unit::Percent), Group::Host, "host_cpu_mode_ratio", help)
        .host()
        .standard()
        .labels(labels)
}
