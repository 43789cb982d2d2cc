//! The dialects that a header gives away: what a tool means by names that elsewhere mean something else.

use super::tool::ToolField;
use super::{nvidia_smi, rocm_smi, unit};
use crate::catalogue::{self, MetricId};
use crate::identity::IdentityColumn;

/// The names of a tool.
#[derive(Debug)]
pub struct Dialect {
    /// The tool, for people.
    pub name: &'static str,
    /// Columns that together only this tool has; `*` stands for digits, and at the end for anything.
    signature: &'static [&'static str],
    columns: &'static [(&'static str, Sense)],
    /// What the tool's own reader knows of its fields. One with a dot or a blank in its name gives the tool away.
    fields: &'static [ToolField],
}

/// What a dialect's column is.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Sense {
    /// A metric by column or alias, and its unit (empty: the column's).
    Metric(&'static str, &'static str),
    /// The GPU of the row.
    Gpu,
    /// Who or where it is.
    Identity(IdentityColumn),
    /// It is kept under its own name, whatever else the name means.
    Own,
}

use Sense::{Gpu, Identity, Metric, Own};

/// A column of a dialect.
#[derive(Debug, Clone)]
pub enum DialectColumn {
    /// Column value = foreign value × factor.
    Metric {
        /// The metric that its cells are values of.
        id: MetricId,
        /// From the cell's number to the column's unit.
        factor: f64,
        /// The GPU that the name has in it.
        gpu: Option<String>,
        /// The unit of the cells, if one is written or known.
        unit: Option<String>,
        /// Which of several columns of the metric counts; without it the first of the file is the only one.
        choice: Option<Choice>,
        /// The tool's field, if its cells are no plain numbers.
        field: Option<&'static ToolField>,
    },
    /// The GPU of the row.
    Gpu,
    /// An identity column.
    Identity(IdentityColumn),
    /// Kept under its own name.
    Own,
}

/// Which of several columns of one metric counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// The largest value: engines of a GPU that have a clock each.
    Largest,
    /// The first that can be true, in this order.
    First(usize),
}

const DIALECTS: &[Dialect] = &[
    Dialect { name: "nvidia-smi", signature: &[], columns: &[], fields: nvidia_smi::FIELDS },
    Dialect {
        name: "rocm-smi",
        signature: &["device"],
        columns: &[
            ("device", Gpu),
            ("pci_bus", Identity(IdentityColumn::Pci)),
            // The model's number, which all cards of a kind have.
            ("gpu_id", Own),
            // Where it is a number it is the same for all cards of a machine.
            ("gfx_activity", Own),
            ("memory_activity", Own),
            ("temperature_(sensor_hbm_*)", Metric("temperature_hbm_c", "C")),
        ],
        fields: rocm_smi::FIELDS,
    },
    Dialect { name: "amd-smi metric", signature: &["gfx_activity", "umc_activity"], ..AMD_METRIC },
    Dialect { name: "amd-smi metric", signature: &["edge", "hotspot", "mem"], ..AMD_METRIC },
    Dialect { name: "amd-smi metric", signature: &["gfx_*_clk", "mem_*_clk"], ..AMD_METRIC },
    Dialect { name: "amd-smi metric", signature: &["socket_power", "gfx_voltage"], ..AMD_METRIC },
    Dialect { name: "amd-smi metric", signature: &["total_vram", "used_vram"], ..AMD_METRIC },
    Dialect {
        name: "amd-smi monitor",
        signature: &["power_usage", "hotspot_temperature"],
        columns: &[
            ("gpu", Gpu),
            ("power_usage", Metric("power_w", "W")),
            ("max_power", Metric("power_limit_w", "W")),
            ("hotspot_temperature", Metric("temperature_junction_c", "C")),
            ("memory_temperature", Metric("temperature_memory_c", "C")),
            ("gfx_clk", Metric("gpu_clock_mhz", "MHz")),
            ("gfx", Metric("utilization_pct", "%")),
            ("mem", Metric("memory_utilization_pct", "%")),
            ("mem_clock", Metric("mem_clock_mhz", "MHz")),
            ("encoder", Metric("encoder_utilization_pct", "%")),
            ("decoder", Metric("decoder_utilization_pct", "%")),
            ("vclock", Metric("video_clock_mhz", "MHz")),
            ("dclock", Metric("video_decode_clock_mhz", "MHz")),
            ("single_bit_ecc", Metric("ecc_corrected_volatile", "")),
            ("double_bit_ecc", Metric("ecc_uncorrected_volatile", "")),
            ("pcie_replay", Metric("pcie_replays", "")),
            ("vram_used", Metric("memory_used_mb", "MB")),
            ("vram_free", Metric("memory_free_mb", "MB")),
            ("vram_total", Metric("memory_total_mb", "MB")),
            ("vram_percent", Metric("memory_used_pct", "%")),
        ],
        fields: &[],
    },
    Dialect { name: "nvidia-smi dmon", signature: &["pwr", "gtemp"], columns: DMON, fields: &[] },
    Dialect { name: "nvidia-smi dmon", signature: &["sm", "mem", "enc", "dec"], columns: DMON, fields: &[] },
    Dialect { name: "nvidia-smi dmon", signature: &["mclk", "pclk"], columns: DMON, fields: &[] },
    // What one of its other flags asks for (`-s m`, `v`, `e`, `t`).
    Dialect { name: "nvidia-smi dmon", signature: &["fb", "bar1"], columns: DMON, fields: &[] },
    Dialect { name: "nvidia-smi dmon", signature: &["pviol", "tviol"], columns: DMON, fields: &[] },
    Dialect { name: "nvidia-smi dmon", signature: &["sbecc", "dbecc"], columns: DMON, fields: &[] },
    Dialect { name: "nvidia-smi dmon", signature: &["rxpci", "txpci"], columns: DMON, fields: &[] },
    Dialect {
        name: "dcgmi dmon",
        signature: &["entity"],
        columns: &[
            ("entity", Gpu),
            ("gputl", Metric("utilization_pct", "%")),
            ("mcutl", Metric("memory_utilization_pct", "%")),
            ("power", Metric("power_w", "W")),
            ("tmptr", Metric("temperature_c", "C")),
            ("mmtmp", Metric("temperature_memory_c", "C")),
            ("totec", Metric("energy_mj", "mJ")),
            ("smclk", Metric("sm_clock_mhz", "MHz")),
            ("mmclk", Metric("mem_clock_mhz", "MHz")),
            ("encutl", Metric("encoder_utilization_pct", "%")),
            ("decutl", Metric("decoder_utilization_pct", "%")),
            ("fbttl", Metric("memory_total_mb", "MB")),
            ("fbfre", Metric("memory_free_mb", "MB")),
            ("fbusd", Metric("memory_used_mb", "MB")),
            ("gract", Metric("graphics_engine_active_ratio", "ratio")),
            ("smact", Metric("sm_active_ratio", "ratio")),
            ("smocc", Metric("sm_occupancy_ratio", "ratio")),
            ("tenso", Metric("tensor_active_ratio", "ratio")),
            ("drama", Metric("dram_active_ratio", "ratio")),
            ("fp64a", Metric("fp64_active_ratio", "ratio")),
            ("fp32a", Metric("fp32_active_ratio", "ratio")),
            ("fp16a", Metric("fp16_active_ratio", "ratio")),
            ("pcitx", Metric("pcie_tx_bytes_per_s", "B/s")),
            ("pcirx", Metric("pcie_rx_bytes_per_s", "B/s")),
            ("nvltx", Metric("interconnect_tx_bytes_per_s", "B/s")),
            ("nvlrx", Metric("interconnect_rx_bytes_per_s", "B/s")),
        ],
        fields: &[],
    },
    Dialect { name: "GPU-Z", signature: &["perfcap_reason", "gpu_clock"], ..GPU_Z },
    // Of an AMD card it has no reasons.
    Dialect { name: "GPU-Z", signature: &["memory_used_(dedicated)", "gpu_clock"], ..GPU_Z },
    Dialect {
        name: "jtop",
        signature: &["jetson_clocks"],
        columns: &[
            ("gpu", Metric("utilization_pct", "%")),
            ("gpu1", Metric("utilization_pct", "%")),
            ("temp_gpu", Metric("temperature_c", "C")),
            ("nvenc", Own),
            ("nvdec", Own),
            ("nvjpg", Own),
            ("emc", Metric("memory_utilization_pct", "%")),
            ("fan", Metric("fan_speed_pct", "%")),
            ("fan*", Metric("fan_speed_pct", "%")),
            ("power_tot", Metric("module_power_w", "mW")),
            ("power_total", Metric("module_power_w", "mW")),
            ("cpu*", Own),
            ("ram", Own),
            ("swap", Own),
        ],
        fields: &[],
    },
    Dialect {
        name: "codecarbon",
        signature: &["emissions_rate", "energy_consumed"],
        columns: &[
            ("gpu_power", Metric("power_w", "W")),
            // Since the start of the run, over all GPUs.
            ("gpu_energy", Metric("energy_mj", "kWh")),
            // Of CPU, memory and GPUs together, and of the former.
            ("energy_consumed", Own),
            ("cpu_energy", Own),
            ("ram_energy", Own),
            ("gpu_model", Own),
            ("gpu_count", Own),
            ("cpu_power", Own),
            ("ram_power", Own),
            ("os", Own),
            ("cpu_count", Metric("cpu_count", "")),
        ],
        fields: &[],
    },
    Dialect {
        name: "Zeus",
        signature: &["window_name", "elapsed_time"],
        // Joules of a window, which add up to no counter.
        columns: &[("gpu*_energy", Own)],
        fields: &[],
    },
    Dialect { signature: &["system_gpu_*_utilization_percentage"], ..MLFLOW },
    Dialect { signature: &["system_gpu_*_memory_usage_megabytes"], ..MLFLOW },
    Dialect { signature: &["system_gpu_*_memory_usage_percentage"], ..MLFLOW },
    Dialect { signature: &["system_gpu_*_power_usage_watts"], ..MLFLOW },
    Dialect {
        name: "wandb",
        signature: &["system_gpu_*"],
        columns: &[
            ("system_gpu_*_gpu", Metric("utilization_pct", "%")),
            ("system_gpu_*_memory", Metric("memory_utilization_pct", "%")),
            ("system_gpu_*_memoryallocated", Metric("memory_used_pct", "%")),
            ("system_gpu_*_memoryallocatedbytes", Metric("memory_used_mb", "B")),
            ("system_gpu_*_temp", Metric("temperature_c", "C")),
            ("system_gpu_*_powerwatts", Metric("power_w", "W")),
            ("system_gpu_*_enforcedpowerlimitwatts", Metric("power_limit_enforced_w", "W")),
            ("system_gpu_*_smclock", Metric("sm_clock_mhz", "MHz")),
            ("system_gpu_*_graphicsclock", Metric("gpu_clock_mhz", "MHz")),
            ("system_gpu_*_memoryclock", Metric("mem_clock_mhz", "MHz")),
            ("system_gpu_*_correctedmemoryerrors", Metric("ecc_corrected_volatile", "")),
            ("system_gpu_*_uncorrectedmemoryerrors", Metric("ecc_uncorrected_volatile", "")),
            ("system_gpu_*", Own),
            ("system_cpu", Metric("cpu_pct", "%")),
            ("system_*", Own),
        ],
        fields: &[],
    },
];

const GPU_Z: Dialect = Dialect {
    name: "GPU-Z",
    signature: &[],
    columns: &[
        ("gpu_clock", Metric("gpu_clock_mhz", "MHz")),
        ("memory_clock", Metric("mem_clock_mhz", "MHz")),
        ("gpu_temperature", Metric("temperature_c", "C")),
        ("hot_spot", Metric("temperature_junction_c", "C")),
        ("gpu_temperature_(hot_spot)", Metric("temperature_junction_c", "C")),
        ("memory_temperature", Metric("temperature_memory_c", "C")),
        ("fan_*_speed_(%)", Metric("fan_speed_pct", "%")),
        ("fan_*_speed_(rpm)", Metric("fan_speed_rpm", "RPM")),
        ("memory_used", Metric("memory_used_mb", "MB")),
        ("memory_used_(dedicated)", Metric("memory_used_mb", "MB")),
        // The system's memory that the card uses.
        ("memory_used_(dynamic)", Own),
        ("fan_speed_(%)", Metric("fan_speed_pct", "%")),
        ("fan_speed_(rpm)", Metric("fan_speed_rpm", "RPM")),
        ("gpu_load", Metric("utilization_pct", "%")),
        ("memory_controller_load", Metric("memory_utilization_pct", "%")),
        ("video_engine_load", Metric("media_utilization_pct", "%")),
        ("board_power_draw", Metric("power_w", "W")),
        ("gpu_chip_power_draw", Own),
        ("power_consumption_(%)", Own),
        ("gpu_voltage", Metric("voltage_gfx_mv", "V")),
        ("system_memory_used", Metric("memory_mb", "MB")),
    ],
    fields: &[],
};

/// `system/gpu_0_power_usage_watts`, which W&B calls `system.gpu.0.powerWatts`.
const MLFLOW: Dialect = Dialect {
    name: "MLflow",
    signature: &[],
    columns: &[
        ("system_gpu_*_utilization_percentage", Metric("utilization_pct", "%")),
        ("system_gpu_*_memory_usage_megabytes", Metric("memory_used_mb", "MB")),
        ("system_gpu_*_memory_usage_percentage", Metric("memory_used_pct", "%")),
        ("system_gpu_*_power_usage_watts", Metric("power_w", "W")),
        ("system_gpu_*", Own),
        ("system_cpu_utilization_percentage", Metric("cpu_pct", "%")),
        ("system_system_memory_usage_megabytes", Metric("memory_mb", "MB")),
        ("system_*", Own),
    ],
    fields: &[],
};

/// All of it, or what one of its flags asks for (`-t`, `-c`, `-p`, `-m`).
const AMD_METRIC: Dialect = Dialect {
    name: "amd-smi metric",
    signature: &[],
    columns: &[
        ("gpu", Gpu),
        ("gfx_activity", Metric("utilization_pct", "%")),
        ("umc_activity", Metric("memory_utilization_pct", "%")),
        ("mm_activity", Metric("media_utilization_pct", "%")),
        ("vcn_activity", Metric("media_utilization_pct", "%")),
        ("jpeg_activity", Metric("jpeg_utilization_pct", "%")),
        ("socket_power", Metric("power_w", "W")),
        ("gfx_voltage", Metric("voltage_gfx_mv", "mV")),
        ("soc_voltage", Metric("voltage_soc_mv", "mV")),
        ("mem_voltage", Metric("voltage_mem_mv", "mV")),
        ("gfx_*_clk", Metric("gpu_clock_mhz", "MHz")),
        ("gfx_*_max_clk", Metric("gpu_clock_max_mhz", "MHz")),
        ("mem_*_clk", Metric("mem_clock_mhz", "MHz")),
        ("mem_*_max_clk", Metric("mem_clock_max_mhz", "MHz")),
        ("vclk_*_clk", Metric("video_clock_mhz", "MHz")),
        ("dclk_*_clk", Metric("video_decode_clock_mhz", "MHz")),
        ("socclk_*_clk", Metric("soc_clock_mhz", "MHz")),
        ("fclk_*_clk", Metric("fabric_clock_mhz", "MHz")),
        ("edge", Metric("temperature_edge_c", "C")),
        ("hotspot", Metric("temperature_junction_c", "C")),
        ("mem", Metric("temperature_memory_c", "C")),
        ("total_energy_consumption", Metric("energy_mj", "J")),
        ("total_vram", Metric("memory_total_mb", "MB")),
        ("used_vram", Metric("memory_used_mb", "MB")),
        ("free_vram", Metric("memory_free_mb", "MB")),
        ("total_visible_vram", Metric("visible_memory_total_mb", "MB")),
        ("used_visible_vram", Metric("visible_memory_used_mb", "MB")),
        ("total_gtt", Metric("gtt_total_mb", "MB")),
        ("used_gtt", Metric("gtt_used_mb", "MB")),
        ("width", Metric("pcie_width", "")),
        ("replay_count", Metric("pcie_replays", "")),
        ("total_correctable_count", Metric("ecc_corrected_volatile", "")),
        ("total_uncorrectable_count", Metric("ecc_uncorrected_volatile", "")),
        ("rpm", Metric("fan_speed_rpm", "RPM")),
        ("throttle_status", Own),
    ],
    fields: &[],
};

const DMON: &[(&str, Sense)] = &[
    ("gpu", Gpu),
    ("pwr", Metric("power_w", "W")),
    ("gtemp", Metric("temperature_c", "C")),
    ("mtemp", Metric("temperature_memory_c", "C")),
    ("sm", Metric("utilization_pct", "%")),
    ("mem", Metric("memory_utilization_pct", "%")),
    ("enc", Metric("encoder_utilization_pct", "%")),
    ("dec", Metric("decoder_utilization_pct", "%")),
    ("jpg", Metric("jpeg_utilization_pct", "%")),
    ("ofa", Metric("ofa_utilization_pct", "%")),
    ("mclk", Metric("mem_clock_mhz", "MHz")),
    ("pclk", Metric("gpu_clock_mhz", "MHz")),
    ("fb", Metric("memory_used_mb", "MB")),
    ("bar1", Metric("bar1_used_mb", "MB")),
    ("sbecc", Metric("ecc_corrected_aggregate", "")),
    ("dbecc", Metric("ecc_uncorrected_aggregate", "")),
    ("pci", Metric("pcie_replays", "")),
    ("rxpci", Metric("pcie_rx_bytes_per_s", "MB/s")),
    ("txpci", Metric("pcie_tx_bytes_per_s", "MB/s")),
];

impl Dialect {
    /// The dialect that a header gives away.
    pub fn of(names: &[String]) -> Option<&'static Self> {
        let folded: Vec<String> = names.iter().map(|name| folded(name)).collect();
        let has = |pattern: &&str| folded.iter().any(|name| matches(pattern, name));
        let has_field = |fields: &'static [ToolField]| {
            let tells =
                |name: &String| field(fields, name).is_some_and(|(.., known, _)| known.contains(['.', ' ']));
            fields.is_empty() || names.iter().any(tells)
        };
        DIALECTS.iter().find(|dialect| dialect.signature.iter().all(has) && has_field(dialect.fields))
    }

    /// The run that a column is of, where the tool writes several beside each other.
    pub fn run<'a>(&self, name: &'a str) -> Option<&'a str> {
        let is_of_runs = self.signature.iter().any(|pattern| pattern.starts_with("system_"));
        of_run(name).filter(|_| is_of_runs).map(|(run, _)| run.trim())
    }

    /// What its column of that name is; a unit in brackets goes before the dialect's.
    pub fn column(&self, name: &str) -> Option<DialectColumn> {
        self.field_column(name).or_else(|| self.listed_column(name))
    }

    /// What a column is beside what [`Dialect::column`] says: the mean power is all the power that an old tool knows.
    pub fn beside(&self, name: &str) -> impl Iterator<Item = &'static ToolField> {
        let own = field(self.fields, name);
        let is_other = move |(rank, other): &(usize, &'static ToolField)| {
            own.is_some_and(|(own, _, known, _)| own != *rank && other.names.contains(&known))
        };
        self.fields.iter().enumerate().filter(is_other).map(|(_, field)| field)
    }

    fn field_column(&self, name: &str) -> Option<DialectColumn> {
        let (rank, field, known, unit) = field(self.fields, name)?;
        let of = |unit: &str| unit::factor(unit, field.metric.metric().unit);
        // What the reader of the tool takes for a number has the unit of its name, as others' columns have.
        let in_name =
            super::bracketed(known).and_then(|_| super::bracketed(name.trim().trim_end_matches(':')));
        let written = unit.or(in_name.map(|(_, unit)| unit)).unwrap_or(field.usual_unit());
        let factor = if written.is_empty() || !field.is_number() { 1.0 } else { of(written)? };
        Some(DialectColumn::Metric {
            id: field.metric,
            factor,
            gpu: None,
            unit: Some(written.to_owned()).filter(|unit| !unit.is_empty()),
            choice: Some(Choice::First(rank)),
            field: (!field.is_number()).then_some(field),
        })
    }

    fn listed_column(&self, name: &str) -> Option<DialectColumn> {
        let bare = folded(name);
        let (pattern, sense) = self.columns.iter().find(|(pattern, _)| matches(pattern, &bare))?;
        Some(match *sense {
            Gpu => DialectColumn::Gpu,
            Own => DialectColumn::Own,
            Identity(column) => DialectColumn::Identity(column),
            Metric(metric, unit) => {
                let id = catalogue::by_alias(metric)?;
                let factor = |unit: &str| unit::factor(unit, id.metric().unit);
                let written = super::bracketed(name).filter(|(_, written)| factor(written).is_some());
                let unit = written.map_or(unit, |(_, written)| written);
                let factor = if unit.is_empty() { 1.0 } else { factor(unit)? };
                let of_gpu = pattern.contains("gpu_*");
                let is_of_several = (pattern.contains('*') && !of_gpu)
                    || self.columns.iter().any(|(other, sense)| {
                        other != pattern && matches!(sense, Metric(name, _) if *name == metric)
                    });
                DialectColumn::Metric {
                    id,
                    factor,
                    gpu: of_gpu.then(|| digits(&bare)),
                    unit: Some(unit.to_owned()).filter(|unit| !unit.is_empty()),
                    choice: is_of_several.then_some(Choice::Largest),
                    field: None,
                }
            }
        })
    }
}

/// What a field is that has a name of nvidia-smi's query. All names that it is asked for have a dot, but for few that mean the
/// same elsewhere.
pub fn nvidia_smi_column(name: &str) -> Option<DialectColumn> {
    let nvidia_smi = DIALECTS.first().filter(|_| name.contains('.'))?;
    nvidia_smi.field_column(name)
}

/// A field's place, itself, the name of it that was found, and the unit behind that.
type FoundField<'a> = (usize, &'static ToolField, &'static str, Option<&'a str>);

/// The field that a column of that name is, if it is one. A field whose first name it is goes before one that has it
/// as another.
fn field<'a>(fields: &'static [ToolField], name: &'a str) -> Option<FoundField<'a>> {
    let bare = |name: &str| name.trim().trim_end_matches(':').to_owned();
    let find = |name: &str, unit| {
        let name = bare(name);
        let of = |first: bool| {
            fields.iter().enumerate().find_map(|(rank, field)| {
                let names = if first { field.names.get(..1)? } else { field.names };
                let known = names.iter().find(|known| known.eq_ignore_ascii_case(&name))?;
                Some((rank, field, *known, unit))
            })
        };
        of(true).or_else(|| of(false))
    };
    find(name, None).or_else(|| super::bracketed(name).and_then(|(head, unit)| find(head, Some(unit))))
}

/// The first number in a name.
fn digits(name: &str) -> String {
    let from = name.find(|c: char| c.is_ascii_digit()).unwrap_or(name.len());
    name.chars().skip(from).take_while(char::is_ascii_digit).collect()
}

/// The name of a run stands before a chart's: `brave-sky-3 - system/gpu.0.temp`.
fn of_run(name: &str) -> Option<(&str, &str)> {
    name.rsplit_once(" - ")
}

/// A name to be compared, without run and a unit in brackets.
fn folded(name: &str) -> String {
    let bare = super::bracketed(name).map_or(name, |(head, _)| head);
    let bare = bare.trim().trim_end_matches(':');
    catalogue::folded(of_run(bare).map_or(bare, |(_, name)| name))
}

/// Whether a name fits a pattern: `*` is one or more digits, or at the end anything.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((head, tail)) = pattern.split_once('*') else { return pattern == name };
    let Some(rest) = name.strip_prefix(head) else { return false };
    if tail.is_empty() {
        return !rest.is_empty();
    }
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    digits > 0 && rest.get(digits..) == Some(tail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_of_a_dialect_is_in_the_catalogue_with_its_unit() {
        for dialect in DIALECTS {
            for (name, sense) in dialect.columns {
                let Metric(metric, unit) = *sense else { continue };
                let id = catalogue::by_alias(metric).unwrap_or_else(|| panic!("{name}: {metric}"));
                assert!(unit.is_empty() || unit::factor(unit, id.metric().unit).is_some(), "{name}: {unit}");
            }
        }
    }

    #[test]
    fn a_header_gives_its_tool_away() {
        let of = |names: &str| {
            let names: Vec<String> = names.split(',').map(str::to_owned).collect();
            Dialect::of(&names).map(|dialect| dialect.name)
        };
        assert_eq!(of("timestamp,gpu,gfx_activity,umc_activity,hotspot,mem"), Some("amd-smi metric"));
        assert_eq!(of("gpu,power_usage,hotspot_temperature,gfx,mem"), Some("amd-smi monitor"));
        assert_eq!(of("gpu,pwr [W],gtemp [C],sm [%],mem [%]"), Some("nvidia-smi dmon"));
        assert_eq!(of("time,run - system/gpu.0.temp"), Some("wandb"));
        assert_eq!(of("time,system/gpu_0_power_usage_watts"), Some("MLflow"));
        assert_eq!(of("timestamp, pstate, power.draw [W]"), Some("nvidia-smi"));
        assert_eq!(of("device,GPU ID,GPU use (%)"), Some("rocm-smi"));
        assert_eq!(of("start_time,window_name,elapsed_time,gpu0_energy"), Some("Zeus"));
        assert_eq!(of("timestamp,gpu_id,mem_used"), None);
        assert_eq!(of("timestamp,device,pstate"), None);
        assert_eq!(of("Date,GPU Clock [MHz],Memory Used (Dedicated) [MB]"), Some("GPU-Z"));
    }
}
