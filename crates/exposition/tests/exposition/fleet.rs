//! GPUs to observe: identities, rows and how they do.

use std::sync::Arc;
use std::time::Duration;

use gpuvitals_core::batch::Value;
use gpuvitals_core::catalogue::{ColumnType, METRICS, Scope, Series, Table, by_column};
use gpuvitals_core::figures::{Family, Format};
use gpuvitals_core::{Batch, BatchBuilder, Identity, IdentityColumn, MetricId, Origin};
use gpuvitals_exposition::{Compat, DeviceStatus, Exposition, ExpositionConfig};

/// A second in nanoseconds.
pub(crate) const S: i64 = 1_000_000_000;
/// A whole minute of the wall clock.
pub(crate) const NOON: i64 = 1_752_840_000 * S;

/// An identity from its columns.
pub(crate) fn identity(index: i32, columns: &[(IdentityColumn, &str)]) -> Arc<Identity> {
    let mut identity = Identity::default();
    identity.index = Some(index);
    for (column, text) in columns {
        identity.set(*column, text).unwrap();
    }
    Arc::new(identity)
}

/// An H100 that a pod holds.
pub(crate) fn nvidia() -> Arc<Identity> {
    identity(
        0,
        &[
            (IdentityColumn::Node, "n1"),
            (IdentityColumn::Uuid, "GPU-5fd4f087-86f3-7a43-b711-4771313afc50"),
            (IdentityColumn::Vendor, "nvidia"),
            (IdentityColumn::Model, "NVIDIA H100 80GB HBM3"),
            (IdentityColumn::Pci, "0000:1b:00.0"),
            (IdentityColumn::Driver, "535.129.03"),
            (IdentityColumn::Source, "nvml"),
            (IdentityColumn::Pod, "train-0"),
            (IdentityColumn::Namespace, "ml"),
            (IdentityColumn::Container, "main"),
        ],
    )
}

/// A partition of an MI300X without a holder.
pub(crate) fn amd() -> Arc<Identity> {
    identity(
        1,
        &[
            (IdentityColumn::Node, "n1"),
            (IdentityColumn::Uuid, "9f4c2bb8e1d04417"),
            (IdentityColumn::Vendor, "amd"),
            (IdentityColumn::Model, "AMD Instinct MI300X"),
            (IdentityColumn::Pci, "0000:c1:00.0"),
            (IdentityColumn::Partition, "xcp3"),
            (IdentityColumn::Driver, "6.12.12"),
            (IdentityColumn::Vbios, "113-M3000100-102"),
            (IdentityColumn::Source, "amd-sysfs"),
        ],
    )
}

/// The host.
pub(crate) fn host() -> Arc<Identity> {
    let mut identity = Identity::default();
    identity.set(IdentityColumn::Node, "n1").unwrap();
    Arc::new(identity)
}

/// A device that is up.
pub(crate) fn up(identity: &Arc<Identity>) -> DeviceStatus {
    DeviceStatus {
        identity: Arc::clone(identity),
        sharers: Vec::new(),
        up: true,
        reason: None,
        stuck: false,
        since_ns: NOON - 60 * S,
        update_interval: None,
    }
}

/// A row: when, and values by column.
pub(crate) type Row<'a> = (i64, &'a [(&'a str, f64)]);

/// A batch of rows of one device.
pub(crate) fn batch(identity: &Arc<Identity>, rows: &[Row<'_>]) -> Batch {
    let table = if identity.uuid().is_some() { Table::GpuEvents } else { Table::SystemEvents };
    let mut builder = BatchBuilder::new(table);
    let id = builder.add_identity(identity);
    for (at_ns, values) in rows {
        let row = builder.row(*at_ns, id);
        for (column, value) in *values {
            builder.set(row, by_column(column).unwrap(), value_of(column, *value)).unwrap();
        }
    }
    builder.finish(Origin::default(), 1).unwrap()
}

#[expect(clippy::cast_possible_truncation, reason = "values of a test")]
fn value_of(column: &str, value: f64) -> Value {
    match by_column(column).unwrap().metric().column_type {
        ColumnType::I32 | ColumnType::I64 => Value::Int(value as i64),
        ColumnType::F32 => Value::Float32(value as f32),
        ColumnType::F64 => Value::Float(value),
    }
}

/// Rows of the host's CPUs: when, which, and its share in %.
pub(crate) fn cores(rows: &[(i64, &str, f32)]) -> Batch {
    let mut builder = BatchBuilder::new(Table::SystemEvents);
    let id = builder.add_identity(&host());
    for (at_ns, core, share) in rows {
        let row = builder.row(*at_ns, id);
        builder.set_instance(row, Scope::CpuCore, core).unwrap();
        builder.set(row, MetricId::of("cpu_core_pct"), Value::Float32(*share)).unwrap();
    }
    builder.finish(Origin::default(), 1).unwrap()
}

/// A row with a possible value in every column of the table: half of the maximum, or 7 if that is absurd.
pub(crate) fn everything(identity: &Arc<Identity>, at_ns: i64) -> Batch {
    let table = if identity.uuid().is_some() { Table::GpuEvents } else { Table::SystemEvents };
    let mut builder = BatchBuilder::new(table);
    let id = builder.add_identity(identity);
    let row = builder.row(at_ns, id);
    for metric in METRICS.iter().filter(|metric| metric.table == table) {
        let (low, high) = metric.range;
        let half = if high > 1e9 { 7.0 } else { f64::midpoint(low.max(0.0), high).floor() };
        let id: MetricId = by_column(metric.column).unwrap();
        builder.set(row, id, value_of(metric.column, half.max(low))).unwrap();
    }
    builder.finish(Origin::default(), 1).unwrap()
}

/// An exposition with windows of 30 s.
pub(crate) fn exposition(set: Series, compat: Compat) -> Exposition {
    Exposition::new(ExpositionConfig {
        set,
        compat,
        window: Duration::from_secs(30),
        interval: Duration::ZERO,
    })
}

/// The whole text.
pub(crate) fn text(
    exposition: &mut Exposition,
    format: Format,
    now_ns: i64,
    devices: &[DeviceStatus],
    own: &[Family],
) -> String {
    let mut out = Vec::new();
    exposition.render(format, now_ns, devices, own, &mut out);
    String::from_utf8(out).unwrap()
}
