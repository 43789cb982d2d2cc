//! The tables: their names, their keys, and the columns of each that are no metrics.
//!
//! Every table has `timestamp_ns` and the identity columns. A row's key is its subject (the GPU or the host), its
//! time, and the table's key columns: rows with equal keys are one row. They join, column by column; in a table with a version the
//! row with the larger one stays as it is.

use std::borrow::Cow;
use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::unit::{COUNT, ColumnType, Unit};
use crate::identity::IdentityColumn;

/// The table that holds a row. The place in [`Table::ALL`] is its number on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Table {
    /// One row per GPU and instant.
    GpuEvents,
    /// One row per host and instant.
    SystemEvents,
    /// One row per GPU, instant, metric and instance: the single links, ECC blocks and HBM stacks, of which
    /// `gpu_events` has one value for all. Written on change and at most every 30 s.
    GpuDetails,
    /// One row per process on a GPU and instant.
    GpuProcesses,
    /// One row per event in the health of a GPU.
    GpuHealthEvents,
    /// One row per GPU, hour and holder: what it used in that hour so far, added up where the samples are. Its time is the start of the hour.
    GpuUsage,
    /// One row per host, hour, batch job and who told of it: what is known of the job. Its time is the start of the hour.
    Jobs,
}

/// A column of one table that is no metric.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TableColumn {
    /// Its name, unique in the table.
    pub name: &'static str,
    /// Type of its numbers; none: text.
    pub column_type: Option<ColumnType>,
    /// Unit of its numbers.
    pub unit: Unit,
    /// Smallest and largest possible number.
    pub range: (f64, f64),
    /// What it is for.
    pub role: ColumnRole,
    /// One sentence for people.
    pub help: &'static str,
}

/// What a table's own column is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnRole {
    /// It belongs to the key: every row has a value.
    Key,
    /// Of two rows with one key the one with the larger value stays, whichever arrives later: every row has a value.
    Version,
    /// It says something about the row.
    Value,
}

impl Table {
    /// Every table, in the order of their numbers on the wire.
    pub const ALL: [Self; 7] = [
        Self::GpuEvents,
        Self::SystemEvents,
        Self::GpuDetails,
        Self::GpuProcesses,
        Self::GpuHealthEvents,
        Self::GpuUsage,
        Self::Jobs,
    ];

    /// Its name, the same in documents, JSON, files and queries.
    pub const fn name(self) -> &'static str {
        match self {
            Self::GpuEvents => "gpu_events",
            Self::SystemEvents => "system_events",
            Self::GpuDetails => "gpu_details",
            Self::GpuProcesses => "gpu_processes",
            Self::GpuHealthEvents => "gpu_health_events",
            Self::GpuUsage => "gpu_usage",
            Self::Jobs => "jobs",
        }
    }

    /// The table of that name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|table| table.name() == name)
    }

    /// The identity column that no row lacks: it tells what the row is about.
    pub const fn subject(self) -> IdentityColumn {
        match self {
            Self::SystemEvents | Self::Jobs => IdentityColumn::Node,
            _ => IdentityColumn::Uuid,
        }
    }

    /// Its columns that are no metrics, beside time and identity.
    pub const fn columns(self) -> &'static [TableColumn] {
        match self {
            Self::GpuEvents | Self::SystemEvents => &[],
            Self::GpuDetails => DETAILS,
            Self::GpuProcesses => PROCESSES,
            Self::GpuHealthEvents => HEALTH_EVENTS,
            Self::GpuUsage => USAGE,
            Self::Jobs => JOBS,
        }
    }

    /// One of [`Table::columns`], by name.
    pub fn column(self, name: &str) -> Option<&'static TableColumn> {
        self.columns().iter().find(|column| column.name == name)
    }

    /// The columns of the key, beside subject and time.
    pub fn key(self) -> impl Iterator<Item = &'static TableColumn> {
        self.columns().iter().filter(|column| column.role == ColumnRole::Key)
    }

    /// The column by which one of several rows of a key stays; none: they join.
    pub fn version(self) -> Option<&'static TableColumn> {
        self.columns().iter().find(|column| column.role == ColumnRole::Version)
    }

    /// The columns that every row and every answer has, beside subject and time: those of the key, and the version.
    pub fn required(self) -> impl Iterator<Item = &'static TableColumn> {
        self.key().chain(self.version())
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Serialize for Table {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Table {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = Cow::<str>::deserialize(deserializer)?;
        Self::by_name(&name).ok_or_else(|| D::Error::custom(format_args!("no table is called {name:?}")))
    }
}

impl TableColumn {
    /// Whether a number is possible.
    pub fn admits(&self, value: f64) -> bool {
        let (min, max) = self.range;
        (min..=max).contains(&value)
    }

    const fn key(mut self) -> Self {
        self.role = ColumnRole::Key;
        self
    }

    const fn version(mut self) -> Self {
        self.role = ColumnRole::Version;
        self
    }
}

const DETAILS: &[TableColumn] = &[
    text("metric", "Column of the metric in `gpu_events`.").key(),
    text("instance", "Number or name of the link, ECC block or HBM stack, whichever the metric has.").key(),
    number(
        "value",
        ColumnType::F64,
        Unit::None,
        (f64::MIN, f64::MAX),
        "The value, in the metric's column unit.",
    ),
];

const PROCESSES: &[TableColumn] = &[
    number("pid", ColumnType::I32, Unit::None, (0.0, 4_194_304.0), "Process id in the host's namespace.")
        .key(),
    text("process_type", "Kind of its work: `compute`, `graphics`, `compute+graphics`, `unknown`."),
    share("sm_utilization", "Share of the compute units."),
    share("memory_utilization", "Share of the memory controller."),
    share("encoder_utilization", "Share of the encoder."),
    share("decoder_utilization", "Share of the decoder."),
    number("fb_memory_mb", ColumnType::I64, Unit::Mebibyte, COUNT, "Device memory that it holds, in MiB."),
    number(
        "compute_units",
        ColumnType::I64,
        Unit::None,
        COUNT,
        "Compute units that its waves fill at the moment of the reading, where the driver knows no share of them (ROCm).",
    ),
    text("command", "Name of the program, never its arguments."),
];

const HEALTH_EVENTS: &[TableColumn] = &[
    text(
        "kind",
        "What happened: `xid`, `ecc`, `ras`, `throttle`, `lost`, `back`; `reads_slowed`, `reads_usual`; `kernel`: a line of the kernel; \
         `finding_opened`, `finding_closed`; `silenced`, `released`.",
    )
    .key(),
    number(
        "sequence",
        ColumnType::I64,
        Unit::None,
        COUNT,
        "Number of the event since the agent, or the gateway of a finding or silence, started.",
    )
    .key(),
    number(
        "code",
        ColumnType::I64,
        Unit::None,
        COUNT,
        "The number of an `xid`, also of a line of the kernel about one; how many errors an `ecc` or `ras` adds; the reason mask of a `throttle`; \
         how many microseconds a reading takes when `reads_slowed`; 1 if a `finding_opened` may have begun earlier.",
    ),
    text("detail", "The event in words; of a silence the note."),
    text("finding", "Id of the finding that the event belongs to, `kind:subject`."),
    text(
        "silenced",
        "What somebody silences or releases: a finding as `kind:subject`, a host as `host:NAME` or `host:CLUSTER/NAME`, \
         a job as `job:CLUSTER/NAMESPACE/NAME`.",
    ),
    text("until", "When a silence ends, as an instant in UTC; none: when the finding closes."),
];

const USAGE: &[TableColumn] = &[
    text(
        "holder",
        "Who had the GPU: `pod:NAMESPACE/POD/CONTAINER`, `job:ID`, `run:NAME`, `user:NAME`; `nobody`; `unobserved` is time without rows.",
    )
    .key(),
    text(
        "share",
        "How its part of the GPU is known: `exclusive`; `instance`: by the slices of MIG; `process_time`: by the time that its \
         processes worked; `occupancy`: by the compute units that they filled; `granted`: by the part that HAMi has given it; `equal` where several had the GPU and nothing says who used it.",
    )
    .key(),
    nanoseconds("run", "When the process began that added this up, since 1970 in UTC: runs of an hour add up.").key(),
    nanoseconds("as_of_ns", "Up to when it is added up, since 1970 in UTC: of two rows of one key the later one stays.")
        .version(),
    nanoseconds("held_ns", "Time that it had the GPU, or its part of it."),
    nanoseconds("known_ns", "The part in which its utilisation is known."),
    nanoseconds("busy_ns", "Time times utilisation."),
    nanoseconds("idle_ns", "Time in which the GPU did nothing: its utilisation was below 1 %."),
    nanoseconds("throttled_ns", "Time in which a limit held the clocks down."),
    nanoseconds("throttled_by_power_ns", "The part under a limit of power; several limits may be at once."),
    nanoseconds("throttled_by_heat_ns", "The part under a limit of temperature."),
    nanoseconds("throttled_by_hardware_ns", "The part under the hardware's own slowdown or the power brake of the chassis."),
    nanoseconds("throttled_by_other_ns", "The part under a limit that the driver does not name."),
    millijoules("used_mj", "Energy."),
    millijoules("idle_mj", "Energy of the time in which the GPU did nothing."),
    text("energy_source", "Where the energy is from: `counter` or `integrated` power."),
    number("samples", ColumnType::I64, Unit::None, COUNT, "Rows that were sampled meanwhile."),
    number("power_max_w", ColumnType::F32, Unit::Watt, (0.0, 5e3), "Highest power that was sampled."),
    number(
        "temperature_max_c",
        ColumnType::F32,
        Unit::Celsius,
        (-50.0, 200.0),
        "Highest temperature that was sampled.",
    ),
    number("memory_max_mb", ColumnType::I64, Unit::Mebibyte, COUNT, "Most device memory in use, in MiB."),
];

const JOBS: &[TableColumn] = &[
    text("job_id", "Number of the job in its batch system; `run:NAME` of a recording, `pod:NAMESPACE/POD` of a pod.").key(),
    text("step", "Step of the job: its number, `batch` or `interactive`; `whole`: the job with all its steps.").key(),
    text(
        "told_by",
        "Who knows this of the job: the batch system's `prolog`, `epilog` or `controller`; of a step the `cgroup` of its processes; of a recording its recorder, `run`; of a pod its cluster, `kubernetes`. What each knows has a row of its own.",
    )
    .key(),
    nanoseconds("as_of_ns", "When it was so, since 1970 in UTC: of two rows of one key the later one stays.")
        .version(),
    text("job_name", "Name that its user gave it."),
    text("job_user", "Name of its user."),
    number("uid", ColumnType::I64, Unit::None, COUNT, "Number of its user on the host."),
    text("account", "Account that it is charged to."),
    text("queue", "Queue or partition that it ran in."),
    text("hosts", "Its hosts, as the batch system writes them: `gpu[01-04,07]`."),
    text("gpus", "The GPUs that it was given on this host, between commas: numbers on the host, or UUIDs."),
    number(
        "gpus_asked",
        ColumnType::I64,
        Unit::None,
        COUNT,
        "How many GPUs were asked for on all its hosts; of a pod the sum of the limits of its containers.",
    ),
    text("array_task", "Its array and its place there, `ARRAY_TASK`, if it is of one."),
    text("labels", "Its labels, `KEY=VALUE` between commas: the pairs in the comment of its user."),
    nanoseconds("start_ns", "When it began on this host, since 1970 in UTC."),
    nanoseconds("end_ns", "When it ended there, since 1970 in UTC; none: it runs."),
    nanoseconds("marked_ns", "When the program of a recording last set a mark, since 1970 in UTC."),
    text(
        "state",
        "`running` or `ended`; of a job that is over how it ended, where the batch system said so: `completed`, `failed`, `cancelled`, \
         `timeout`, `out_of_memory`, `node_fail`, `preempted`, `deadline`, `boot_fail`.",
    ),
    text(
        "exit_code",
        "How it ended, `CODE:SIGNAL`. Slurm tells its hooks `0:0` of a job that was cancelled or ran out of time, too.",
    ),
];

const fn text(name: &'static str, help: &'static str) -> TableColumn {
    TableColumn {
        name,
        column_type: None,
        unit: Unit::None,
        range: (0.0, 0.0),
        role: ColumnRole::Value,
        help,
    }
}

const fn number(
    name: &'static str,
    column_type: ColumnType,
    unit: Unit,
    range: (f64, f64),
    help: &'static str,
) -> TableColumn {
    TableColumn { name, column_type: Some(column_type), unit, range, role: ColumnRole::Value, help }
}

const fn nanoseconds(name: &'static str, help: &'static str) -> TableColumn {
    number(name, ColumnType::I64, Unit::Nanosecond, COUNT, help)
}

const fn millijoules(name: &'static str, help: &'static str) -> TableColumn {
    number(name, ColumnType::I64, Unit::Millijoule, COUNT, help)
}

const fn share(name: &'static str, help: &'static str) -> TableColumn {
    number(name, ColumnType::F32, Unit::Percent, (0.0, 100.0), help)
}
