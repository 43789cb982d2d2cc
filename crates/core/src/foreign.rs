//! The meaning of foreign column names: the only place that maps a CSV header or a JSON field to the
//! catalogue.

mod bracket;
mod dialect;
mod exporter;
mod nvidia_smi;
mod rocm_smi;
mod spelling;
mod term;
mod tool;
mod unit;

use crate::absence::AbsenceReason;
use crate::batch::Value;
use crate::catalogue::{self, Group, Instrument, Metric, MetricId, Table, Unit};
use crate::identity::IdentityColumn;

use bracket::bracketed;

pub use dialect::{Choice, Dialect, DialectColumn, nvidia_smi_column};
pub use exporter::{Exported, depends_on_labels, exported};
pub use nvidia_smi::FIELDS as NVIDIA_SMI;
pub use rocm_smi::FIELDS as ROCM_SMI;
pub(crate) use term::is_anybodys_memory;
pub use term::{Topic, gpu_alone, gpu_in, names_gpu, writes_unit};
pub use tool::{ToolField, reason_of};

/// Meaning of a foreign name.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Meaning {
    /// The time of the row.
    Time,
    /// `gpu_id` and similar: an integer is the index on the node, anything else the GPU's identity.
    Gpu,
    /// A textual identity column.
    Identity(IdentityColumn),
    /// A metric; column value = foreign value × factor.
    Metric(MetricId, f64),
    /// Long form: the name of the row's metric.
    MetricName,
    /// Long form: the value of the row's metric.
    MetricValue,
    /// Prometheus labels as text (`labels_raw`).
    Labels,
    /// Unknown to the catalogue; kept under its own name.
    Unknown,
}

impl Meaning {
    /// Whether it is a metric of GPUs.
    pub fn is_of_gpus(self) -> bool {
        matches!(self, Self::Metric(id, _) if id.metric().table == Table::GpuEvents)
    }
}

/// Counted in millijoules; foreign names without that unit mean joules.
const ENERGY: MetricId = MetricId::of("energy_mj");
const POWER: MetricId = MetricId::of("power_w");
const MILLIJOULES: f64 = 1e3;

/// Possible names of the column that identifies the GPU, the most reliable first: `index` and `id` may number
/// the rows.
const GPU_NAMES: [&str; 5] = ["gpu_id", "gpu", "gpu_index", "index", "id"];

/// What a GPU's number is called before or behind a word for GPUs: `index_gpu`, `gpuid`, `GPU#`.
const NUMBER_NAMES: [&str; 7] = ["id", "index", "idx", "no", "nr", "#", "ordinal"];

/// Names that identify a GPU in files whose columns have no better one. The id of a device may be that of its kind, and a number
/// that of all.
const DEVICE_NAMES: [&str; 31] = [
    "device",
    "gpu_number",
    "gpu_num",
    "gpu_device",
    "device_id",
    "minor_number",
    "cuda_device",
    "minor",
    "card",
    "card_id",
    "card_index",
    "card_idx",
    "card_no",
    "card_num",
    "gpu_card",
    "gpunum",
    "accelerator",
    "deviceid",
    "gpu_slot",
    "device_no",
    "device_num",
    "device_number",
    "dev",
    "dev_id",
    "physical_gpu",
    "gpu_bus",
    "local_rank",
    "rank",
    "serial",
    "gpu_serial",
    "device_uuid",
];

/// Names that identify the host in files whose columns have no better one.
const HOST_NAMES: [&str; 24] = [
    "server",
    "server_name",
    "machine",
    "machine_id",
    "machineid",
    "machine_name",
    "instance",
    "instance_id",
    "instanceid",
    "instance_name",
    "ip",
    "ip_address",
    "host_ip",
    "host_id",
    "hostid",
    "worker",
    "worker_id",
    "node_id",
    "nodeid",
    "computer",
    "computer_name",
    "computername",
    "vm",
    "vm_name",
];

/// How reliably a name identifies the GPU, if it does at all: the smallest wins.
pub fn gpu_rank(name: &str) -> Option<usize> {
    let name = catalogue::folded(name);
    let rank = |name: &str| GPU_NAMES.iter().position(|known| *known == name);
    rank(&name).or_else(|| rank("gpu_index").filter(|_| is_number_of_gpu(&name)))
}

/// Whether a folded name is that of a GPU's number on its machine.
fn is_number_of_gpu(name: &str) -> bool {
    let is_of = |kind: &str, numbers: &[&str]| {
        let rest = name.strip_prefix(kind).or_else(|| name.strip_suffix(kind));
        rest.is_some_and(|rest| numbers.contains(&rest.trim_matches('_')))
    };
    is_of("gpu", &NUMBER_NAMES)
        || ["device", "accelerator"].iter().any(|kind| is_of(kind, &["index", "idx", "ordinal"]))
}

/// Whether a name identifies the GPU where no column has a better one.
pub fn names_device(name: &str) -> bool {
    is_among(&DEVICE_NAMES, name)
}

/// Whether a name identifies the host where no column has a better one.
pub fn names_host(name: &str) -> bool {
    is_among(&HOST_NAMES, name)
}

/// Whether a name is among others, which are folded; a large letter may begin a word: `physicalGpu`.
fn is_among(known: &[&str], name: &str) -> bool {
    let is_known = |name: &str| known.contains(&catalogue::folded(name).as_str());
    is_known(name) || is_known(&parted(name))
}

/// A name with a mark before each large letter that begins a word: `unixTimeMs` is `unix_Time_Ms`.
pub fn parted(name: &str) -> String {
    let mut words = String::with_capacity(name.len() + 4);
    let mut is_small = false;
    for c in name.trim().chars() {
        if is_small && c.is_ascii_uppercase() {
            words.push('_');
        }
        is_small = c.is_ascii_lowercase();
        words.push(c);
    }
    words
}

/// The meaning of a foreign column or field name. Case is ignored; catalogue and DCGM names come first, then known
/// spellings, then base term and unit (`mem_used_gib`, `power.draw [mW]`).
pub fn meaning(name: &str) -> Meaning {
    meaning_among(name, Topic::Gpu)
}

/// The meaning of a field of a message about `topic`.
pub fn meaning_among(name: &str, topic: Topic) -> Meaning {
    let column = column(name, topic);
    if column.gpu.is_some() { Meaning::Unknown } else { column.meaning }
}

/// A foreign column.
#[derive(Debug, Clone, PartialEq)]
pub struct ForeignColumn {
    /// What its values are.
    pub meaning: Meaning,
    /// The GPU that its name has in it (`gpu0_power_w`), as one would write it in a column of its own.
    pub gpu: Option<String>,
    /// The unit in the name.
    pub unit: Option<String>,
}

impl From<Meaning> for ForeignColumn {
    fn from(meaning: Meaning) -> Self {
        Self { meaning, gpu: None, unit: None }
    }
}

/// The meaning of a column in a file whose columns are about `topic` where they do not say what they are about.
pub fn column(name: &str, topic: Topic) -> ForeignColumn {
    let name = name.trim();
    let is_hosts = match topic {
        Topic::Host | Topic::HostMemoryAlone => true,
        Topic::Machine => catalogue::by_column(name).is_none(),
        _ => false,
    };
    if is_hosts && term::is_anybodys_memory(name) {
        let term =
            term::read(name, Topic::HostMemory).filter(|term| term.id.metric().table != Table::GpuEvents);
        return of_term(term);
    }
    let known = match meaning_without_unit(name) {
        Meaning::Unknown => meaning_with_unit(name),
        meaning => Some((meaning, bracketed(name).map(|(_, unit)| unit.to_owned()))),
    };
    if let Some((meaning, unit)) = known {
        return ForeignColumn { meaning, gpu: None, unit };
    }
    of_term(term::read(name, topic))
}

/// The metric that a name means without the unit behind it, and that unit, which the metric cannot have.
pub fn odd_unit(name: &str, topic: Topic) -> Option<(MetricId, &str)> {
    let (head, unit) = bracketed(name).filter(|(_, unit)| !unit.is_empty())?;
    match column(head, topic).meaning {
        Meaning::Metric(id, _) if unit::factor(unit, id.metric().unit).is_none() => Some((id, unit)),
        _ => None,
    }
}

fn of_term(term: Option<term::Term>) -> ForeignColumn {
    term.map_or(Meaning::Unknown.into(), |term| ForeignColumn {
        meaning: Meaning::Metric(term.id, term.factor),
        gpu: term.gpu,
        unit: term.unit,
    })
}

/// Whether a text is a unit.
pub fn is_unit(text: &str) -> bool {
    unit::is_known(text)
}

/// The factor from a number in a written unit to the metric's; none if the unit is unknown or measures something else.
pub fn unit_factor(written: &str, metric: &Metric) -> Option<f64> {
    unit::factor(written, metric.unit)
}

fn meaning_with_unit(name: &str) -> Option<(Meaning, Option<String>)> {
    let (head, written) = bracketed(name)?;
    match meaning_without_unit(head) {
        Meaning::Metric(id, _) => {
            let factor = unit::factor(written, id.metric().unit)?;
            Some((Meaning::Metric(id, factor), Some(written.to_owned())))
        }
        _ => None,
    }
}

fn meaning_without_unit(name: &str) -> Meaning {
    if let Some(id) = catalogue::by_column(name) {
        return Meaning::Metric(id, 1.0);
    }
    if let Some((id, factor)) = catalogue::by_dcgm(name) {
        return Meaning::Metric(id, factor);
    }
    let folded = catalogue::folded(name);
    match folded.as_str() {
        "timestamp" | "time" | "ts" | "timestamp_ns" | "datetime" | "date" => Meaning::Time,
        name if GPU_NAMES.contains(&name) || is_number_of_gpu(name) => Meaning::Gpu,
        "uuid" | "gpu_uuid" | "unique_id" | "gpu_unique_id" => Meaning::Identity(IdentityColumn::Uuid),
        "hostname" | "host" | "host_name" | "node" | "node_name" | "nodename" | "instance_host" => {
            Meaning::Identity(IdentityColumn::Node)
        }
        "modelname" | "model" | "model_name" | "name" | "gpu_name" | "gpu_model" | "product_name"
        | "device_name" | "card_series" => Meaning::Identity(IdentityColumn::Model),
        "pci" | "pci_bus_id" | "bus_id" | "pci_address" | "bus" | "bdf" | "pci_bdf" | "gpu_bus_id"
        | "pci_device_bus_id" | "pcie_bus" | "pcie_bus_id" | "pci_bus_address" => {
            Meaning::Identity(IdentityColumn::Pci)
        }
        "gpu_i_id" | "mig_instance" | "partition" => Meaning::Identity(IdentityColumn::Partition),
        "driver" | "driver_version" | "dcgm_fi_driver_version" | "dcgm_fi_system_driver_version" => {
            Meaning::Identity(IdentityColumn::Driver)
        }
        "vbios" | "vbios_version" | "dcgm_fi_dev_vbios_version" => Meaning::Identity(IdentityColumn::Vbios),
        "vendor" => Meaning::Identity(IdentityColumn::Vendor),
        "cluster" | "cluster_id" => Meaning::Identity(IdentityColumn::Cluster),
        "pod" | "exported_pod" => Meaning::Identity(IdentityColumn::Pod),
        "namespace" | "exported_namespace" => Meaning::Identity(IdentityColumn::Namespace),
        "container" | "exported_container" => Meaning::Identity(IdentityColumn::Container),
        "job" | "job_id" | "jobid" | "hpc_job" | "slurm_job" | "slurm_job_id" | "slurm_jobid" => {
            Meaning::Identity(IdentityColumn::Job)
        }
        "source" => Meaning::Identity(IdentityColumn::Source),
        "metric_name" | "metric" | "__name__" => Meaning::MetricName,
        "value" | "metric_value" => Meaning::MetricValue,
        "labels_raw" | "labels" => Meaning::Labels,
        "watts" | "wattage" => Meaning::Metric(POWER, 1.0),
        "energy"
        | "energy_j"
        | "energy_joules"
        | "total_energy_j"
        | "total_energy_joules"
        | "gpu_energy_j" => Meaning::Metric(ENERGY, MILLIJOULES),
        _ => catalogue::by_alias(name).map_or(Meaning::Unknown, |id| Meaning::Metric(id, 1.0)),
    }
}

/// Why a text has no number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoNumber {
    /// It is neither a number nor a word for one.
    NotNumber,
    /// Its unit is unknown, or measures something else.
    Unit,
}

/// The number that tools print with a unit or as a word, in the metric's unit: `70.5 W`; without a unit
/// `0x0000000000000004`, of a state `P8`, of a metric with two states `Not Active`.
///
/// # Errors
/// If there is no number, or none of that unit.
pub fn number(text: &str, metric: &Metric) -> Result<Value, NoNumber> {
    if metric.unit == Unit::None
        && let Some(value) = code(text, metric)
    {
        return Ok(value);
    }
    let (number, written) = split_unit(text).ok_or(NoNumber::NotNumber)?;
    let factor = unit::factor(written, metric.unit).ok_or(NoNumber::Unit)?;
    Ok(scaled(number, factor))
}

/// A value times a factor; a factor of one leaves it as it came.
pub fn scaled(value: Value, factor: f64) -> Value {
    #[expect(clippy::float_cmp, reason = "exactly one means: leave the number as it came")]
    if factor == 1.0 { value } else { Value::Float(value.as_f64() * factor) }
}

/// States that tools print as words.
fn code(text: &str, metric: &Metric) -> Option<Value> {
    let is_flag = metric.is_flag();
    let is = |words: &[&str]| is_flag && words.iter().any(|word| text.eq_ignore_ascii_case(word));
    if is(&["enabled", "active", "true", "yes", "on"]) {
        return Some(Value::Int(1));
    }
    if is(&["disabled", "not active", "false", "no", "off"]) {
        return Some(Value::Int(0));
    }
    if let Some(hex) = text.strip_prefix("0x") {
        return i64::from_str_radix(hex, 16).ok().map(Value::Int);
    }
    let state = text.strip_prefix('P').filter(|_| metric.instrument == Instrument::State)?;
    state.parse::<u8>().ok().map(|state| Value::Int(state.into()))
}

/// `70.5 W` to its number and its unit.
fn split_unit(text: &str) -> Option<(Value, &str)> {
    let number_len = text.find(|c: char| !(c.is_ascii_digit() || "+-.".contains(c)))?;
    let (number, unit) = text.split_at_checked(number_len)?;
    Some((Value::Float(number.parse().ok()?), unit.trim()))
}

/// The reason, if the text marks a missing value: empty, `N/A`, `[Not Supported]`, `-`, `<<<NULL>>>` …
pub fn absence(text: &str) -> Option<AbsenceReason> {
    let is = |words: &[&str]| words.iter().any(|word| text.eq_ignore_ascii_case(word));
    let marks = [
        "N/A",
        "NA",
        "n.a.",
        "-",
        "--",
        "–",
        "—",
        "null",
        "(null)",
        "none",
        "<NA>",
        "#N/A",
        "\\N",
        "not supported",
        "unsupported",
        "not available",
    ];
    if text.is_empty() || is(&marks) || is_no_number(text) {
        return Some(AbsenceReason::NotSupported);
    }
    if is(&["ERR!"]) {
        return Some(AbsenceReason::Invalid);
    }
    if text.starts_with("<<<") && text.ends_with(">>>") {
        return Some(AbsenceReason::NotSupported);
    }
    let inner = text.strip_prefix('[')?.strip_suffix(']')?;
    let is = |word: &str| inner.eq_ignore_ascii_case(word);
    Some(if is("insufficient permissions") {
        AbsenceReason::Denied
    } else if is("gpu is lost") {
        AbsenceReason::Gone
    } else if is("unknown error") || is("gpu requires reset") {
        AbsenceReason::Invalid
    } else {
        AbsenceReason::NotSupported
    })
}

/// Whether programs write a number so that they do not have: `NaN`, `-Inf`, on Windows `-1.#IND`.
fn is_no_number(text: &str) -> bool {
    let bare = text.strip_prefix(['-', '+']).unwrap_or(text);
    bare.starts_with("1.#") || ["nan", "inf", "infinity"].iter().any(|word| bare.eq_ignore_ascii_case(word))
}

/// The reason, if the text has no reading of a metric: a mark of absence, also with a unit behind it (`N/A W`), or a word that
/// elsewhere says something.
pub fn no_reading(text: &str) -> Option<AbsenceReason> {
    // Nearly all cells are numbers.
    if text.starts_with(|c: char| c.is_ascii_digit()) && !text.contains('#') {
        return None;
    }
    let is = |words: &[&str]| words.iter().any(|word| text.eq_ignore_ascii_case(word));
    let before_unit = || {
        let parts = text.rsplit_once(' ').or_else(|| Some((text.strip_suffix('%')?, "%")));
        let (head, unit) = parts.filter(|(head, _)| !head.trim().is_empty())?;
        absence(head.trim()).filter(|_| unit::is_known(unit))
    };
    absence(text).or_else(before_unit).or_else(|| match text {
        _ if is(&["unknown", "missing", "undefined", "nil", "?"]) => Some(AbsenceReason::NotSupported),
        _ if is(&["error", "err"]) => Some(AbsenceReason::Invalid),
        // A spreadsheet's: `#DIV/0!`.
        _ if text.starts_with('#') && text.ends_with('!') => Some(AbsenceReason::Invalid),
        _ => None,
    })
}

/// DCGM's blank integers: blank, not found, not supported, no permission. Those of 32 bits count only under a
/// DCGM name.
pub fn blank_integer(value: i64, dcgm: bool) -> Option<AbsenceReason> {
    const BLANK_I64: i64 = 0x7fff_ffff_ffff_fff0;
    const BLANK_I32: i64 = 0x7fff_fff0;
    const BLANK_FLOAT: i64 = 1 << 47;
    [BLANK_I64, BLANK_FLOAT, BLANK_I32]
        .iter()
        .filter(|blank| dcgm || **blank != BLANK_I32)
        .find_map(|blank| value.checked_sub(*blank).filter(|kind| (0..=3).contains(kind)))
        .map(blank_kind)
}

/// DCGM's blank floats, and its 64-bit blanks read as floats.
pub fn blank_float(value: f64) -> Option<AbsenceReason> {
    const BLANK: f64 = 140_737_488_355_328.0;
    // As a float, the 64-bit blanks are all 2^63.
    const BLANK_I64: f64 = 9_223_372_036_854_775_808.0;
    if (BLANK..BLANK + 4.0).contains(&value) {
        return Some(blank_kind(if value < BLANK + 3.0 { 0 } else { 3 }));
    }
    (value == BLANK_I64).then(|| blank_kind(0))
}

fn blank_kind(kind: i64) -> AbsenceReason {
    if kind == 3 { AbsenceReason::Denied } else { AbsenceReason::NotSupported }
}

/// Whether a name is one of DCGM's.
pub fn is_dcgm(name: &str) -> bool {
    name.trim_start().get(..4).is_some_and(|head| head.eq_ignore_ascii_case("dcgm"))
}

/// Whether a value that DCGM reports of a MIG instance is one of the whole GPU: memory, load and profiling are the instance's
/// own, while power, energy, temperatures, clocks and all else come once on each instance of the card.
pub fn is_of_card(id: MetricId, name: &str) -> bool {
    is_dcgm(name) && !matches!(id.metric().group, Group::Memory | Group::Utilization | Group::Profiling)
}

/// Why a number that DCGM gives is no reading: the memory of a GPU that runs has no 0 °C, which stands for a sensor that the
/// board lacks.
pub fn unread_by_dcgm(id: MetricId, value: f64, name: &str) -> Option<AbsenceReason> {
    const MEMORY: MetricId = MetricId::of("temperature_memory_c");
    (id == MEMORY && value == 0.0 && is_dcgm(name)).then_some(AbsenceReason::NotSupported)
}

/// Whether a reading can be what the metric says: of two sources of one quantity one that cannot does not count.
pub fn is_credible(id: MetricId, value: Value) -> bool {
    // A GPU that answers draws something.
    id.metric().admits(value.as_f64()) && (id != POWER || value.as_f64() > 0.0)
}

/// Vendor derived from the product name, if possible.
pub fn vendor_of(model: &str) -> Option<&'static str> {
    let model = model.to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| model.contains(word));
    if has(&["nvidia", "tesla", "geforce", "quadro", "h100", "h200", "a100", "b200"]) {
        Some("nvidia")
    } else if has(&["amd", "radeon", "instinct", "mi300", "mi250", "mi210"]) {
        Some("amd")
    } else {
        None
    }
}
