//! The records of GPUs and processes, from the columns of a batch.

use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use serde::Serialize;

use super::whole;
use crate::batch::{Value, numbers, text_at};
use crate::{Batch, IdentityColumn, MetricId};

const TEMPERATURE: MetricId = MetricId::of("temperature_c");
const UTILIZATION: MetricId = MetricId::of("utilization_pct");
const MEMORY_UTILIZATION: MetricId = MetricId::of("memory_utilization_pct");
const MEMORY_TOTAL: MetricId = MetricId::of("memory_total_mb");
const MEMORY_USED: MetricId = MetricId::of("memory_used_mb");
const MEMORY_FREE: MetricId = MetricId::of("memory_free_mb");
const POWER: MetricId = MetricId::of("power_w");
const POWER_AVERAGE: MetricId = MetricId::of("power_average_w");
const POWER_LIMIT: MetricId = MetricId::of("power_limit_w");
const PCIE_GENERATION: MetricId = MetricId::of("pcie_gen");
const PCIE_WIDTH: MetricId = MetricId::of("pcie_width");
const FAN_SPEED: MetricId = MetricId::of("fan_speed_pct");

/// A GPU. A value that was not read is none, never 0.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct GpuRecord {
    /// Index on the node.
    pub index: Option<i32>,
    /// UUID, as the driver writes it: `GPU-…`.
    pub uuid: Option<String>,
    /// Product name, as the driver gives it.
    pub name: Option<String>,
    /// Version of the node's driver.
    pub driver_version: Option<String>,
    /// Temperature of the chip, °C.
    #[serde(serialize_with = "whole::option")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<i64>))]
    pub temperature_celsius: Option<f64>,
    /// Utilisation of the GPU, %.
    #[serde(serialize_with = "whole::option")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<i64>))]
    pub utilization_gpu_percent: Option<f64>,
    /// Utilisation of the memory controller, %.
    #[serde(serialize_with = "whole::option")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<i64>))]
    pub utilization_memory_percent: Option<f64>,
    /// Memory of the device, MiB.
    #[serde(serialize_with = "whole::option")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<i64>))]
    pub memory_total_mb: Option<f64>,
    /// Used memory, MiB.
    #[serde(serialize_with = "whole::option")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<i64>))]
    pub memory_used_mb: Option<f64>,
    /// Free memory, MiB.
    #[serde(serialize_with = "whole::option")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<i64>))]
    pub memory_free_mb: Option<f64>,
    /// Power, W: the most instantaneous that the part reports.
    pub power_draw_watts: Option<f64>,
    /// Power limit, W.
    pub power_limit_watts: Option<f64>,
    /// Generation of the PCIe link now; it falls when idle.
    #[serde(serialize_with = "whole::option")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<i64>))]
    pub pcie_generation: Option<f64>,
    /// Lanes of the PCIe link now.
    #[serde(serialize_with = "whole::option")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<i64>))]
    pub pcie_link_width: Option<f64>,
    /// Fan speed, %.
    #[serde(serialize_with = "whole::option")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<i64>))]
    pub fan_speed_percent: Option<f64>,
    /// The processes on it.
    pub processes: Vec<ProcessRecord>,
}

/// A process on a GPU. A value that was not read is none, never 0.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ProcessRecord {
    /// Process id on the node.
    pub pid: i64,
    /// Index of the GPU on the node.
    pub gpu_index: Option<i32>,
    /// `compute`, `graphics`, `compute+graphics`, `unknown`.
    pub process_type: String,
    /// Share of the SMs, %.
    #[serde(serialize_with = "whole::option")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<i64>))]
    pub sm_utilization: Option<f64>,
    /// Share of the memory controller, %.
    #[serde(serialize_with = "whole::option")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<i64>))]
    pub memory_utilization: Option<f64>,
    /// Share of the encoder, %.
    #[serde(serialize_with = "whole::option")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<i64>))]
    pub encoder_utilization: Option<f64>,
    /// Share of the decoder, %.
    #[serde(serialize_with = "whole::option")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<i64>))]
    pub decoder_utilization: Option<f64>,
    /// Device memory, MiB.
    #[serde(serialize_with = "whole::option")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<i64>))]
    pub fb_memory_mb: Option<f64>,
    /// Name of the program, never its arguments.
    pub command: Option<String>,
    /// Name of the node that it runs on.
    pub node_name: String,
    /// Name of the node's cluster.
    pub cluster_id: String,
}

/// The record of a row of `gpu_events`, without its processes.
pub(super) fn gpu_of(batch: &Batch, row: usize) -> GpuRecord {
    let identity = batch.identity(row);
    let text = |column| identity.get(column).map(str::to_owned);
    let value = |metric| Some(batch.metric(metric)?.value(row)?.as_decimal());
    GpuRecord {
        index: identity.index,
        uuid: text(IdentityColumn::Uuid),
        name: text(IdentityColumn::Model),
        driver_version: text(IdentityColumn::Driver),
        temperature_celsius: value(TEMPERATURE),
        utilization_gpu_percent: value(UTILIZATION),
        utilization_memory_percent: value(MEMORY_UTILIZATION),
        memory_total_mb: value(MEMORY_TOTAL),
        memory_used_mb: value(MEMORY_USED),
        memory_free_mb: value(MEMORY_FREE),
        power_draw_watts: value(POWER).or_else(|| value(POWER_AVERAGE)),
        power_limit_watts: value(POWER_LIMIT),
        pcie_generation: value(PCIE_GENERATION),
        pcie_link_width: value(PCIE_WIDTH),
        fan_speed_percent: value(FAN_SPEED),
        processes: Vec::new(),
    }
}

/// The record of a row of `gpu_processes`.
pub(super) fn process_of(batch: &Batch, row: usize) -> Option<ProcessRecord> {
    let identity = batch.identity(row);
    let column = |name: &str| batch.records().column_by_name(name);
    let value = |name: &str| Some(numbers(column(name)?)?.value(row)?.as_decimal());
    let text = |name: &str| text_at(column(name)?.as_dictionary_opt::<Int32Type>()?, row).map(str::to_owned);
    let Value::Int(pid) = numbers(column("pid")?)?.value(row)? else { return None };
    Some(ProcessRecord {
        pid,
        gpu_index: identity.index,
        process_type: text("process_type").unwrap_or_else(|| "unknown".to_owned()),
        sm_utilization: value("sm_utilization"),
        memory_utilization: value("memory_utilization"),
        encoder_utilization: value("encoder_utilization"),
        decoder_utilization: value("decoder_utilization"),
        fb_memory_mb: value("fb_memory_mb"),
        command: text("command"),
        node_name: identity.node().unwrap_or_default().to_owned(),
        cluster_id: identity.get(IdentityColumn::Cluster).unwrap_or_default().to_owned(),
    })
}
