//! Merging against the plainest model: a map from a key to a map of columns.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Merge, MergeError, Order, without_empty};
use crate::batch::text_type;
use crate::catalogue::{ColumnRole, ColumnType};
use crate::{Batch, IdentityColumn, Origin, Table};
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, Int32Type, Int64Type};
use arrow_array::{
    Array, ArrayRef, DictionaryArray, Float32Array, Float64Array, Int32Array, Int64Array, RecordBatch,
    StringArray,
};
use arrow_schema::{DataType, Field, Schema};
use proptest::prelude::*;

/// A row as the model sees it: column name to spelt value.
type Cells = BTreeMap<String, String>;

#[derive(Debug, Clone, Default)]
struct MergeRow {
    gpu: u8,
    partition: Option<u8>,
    time: i64,
    /// The rest of the key, in tables that have more.
    rest: u8,
    /// In tables that have one.
    version: u8,
    index: Option<i32>,
    node: Option<u8>,
    power: Option<f32>,
    clock: Option<i32>,
    memory: Option<i32>,
    extra: Option<i32>,
    note: Option<u8>,
}

/// Which columns a part has and how they are stored.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "which columns there are")]
struct TableShape {
    partition: bool,
    node: bool,
    power: bool,
    clock: bool,
    /// `memory_used_mb` (64 bits in the catalogue): absent, as 32 bits, as 64 bits.
    memory: u8,
    /// `strange`: absent, numbers, text.
    extra: u8,
    note: bool,
    plain_text: bool,
}

fn text(values: Vec<Option<String>>, plain: bool) -> ArrayRef {
    if plain {
        Arc::new(values.into_iter().collect::<StringArray>())
    } else {
        Arc::new(values.iter().map(Option::as_deref).collect::<DictionaryArray<Int32Type>>())
    }
}

/// A merge of rows of `gpu_events`.
fn merge(parts: &[RecordBatch], order: Order) -> Result<Option<RecordBatch>, MergeError> {
    super::merge(Table::GpuEvents, parts, order)
}

fn build(rows: &[MergeRow], shape: TableShape) -> RecordBatch {
    build_of(Table::GpuEvents, rows, shape)
}

fn build_of(table: Table, rows: &[MergeRow], shape: TableShape) -> RecordBatch {
    let mut columns: Vec<(&str, ArrayRef)> = Vec::new();
    let texts =
        |get: &dyn Fn(&MergeRow) -> Option<String>| text(rows.iter().map(get).collect(), shape.plain_text);
    // Columns deliberately have no sensible order.
    if shape.note {
        columns.push(("note", texts(&|row| row.note.map(|n| format!("note {n}")))));
    }
    if shape.power {
        columns.push(("power_w", Arc::new(rows.iter().map(|row| row.power).collect::<Float32Array>())));
    }
    columns.push(("timestamp_ns", Arc::new(rows.iter().map(|row| row.time).collect::<Int64Array>())));
    match shape.extra {
        1 => columns.push((
            "strange",
            Arc::new(rows.iter().map(|row| row.extra.map(f64::from)).collect::<Float64Array>()),
        )),
        2 => columns.push(("strange", texts(&|row| row.extra.map(|n| n.to_string())))),
        _ => {}
    }
    match shape.memory {
        1 => columns
            .push(("memory_used_mb", Arc::new(rows.iter().map(|row| row.memory).collect::<Int32Array>()))),
        2 => columns.push((
            "memory_used_mb",
            Arc::new(rows.iter().map(|row| row.memory.map(i64::from)).collect::<Int64Array>()),
        )),
        _ => {}
    }
    if shape.node {
        columns.push(("node", texts(&|row| row.node.map(|n| format!("n{n}")))));
    }
    if shape.clock {
        columns.push(("gpu_clock_mhz", Arc::new(rows.iter().map(|row| row.clock).collect::<Int32Array>())));
    }
    columns.push(("gpu", Arc::new(rows.iter().map(|row| row.index).collect::<Int32Array>())));
    if shape.partition {
        columns.push(("partition", texts(&|row| row.partition.map(|p| format!("p{p}")))));
    }
    for column in table.required() {
        let array: ArrayRef = match column.column_type {
            _ if column.role == ColumnRole::Version => {
                Arc::new(rows.iter().map(|row| i64::from(row.version)).collect::<Int64Array>())
            }
            None => texts(&|row| Some(format!("{} {}", column.name, row.rest))),
            Some(ColumnType::I32) => {
                Arc::new(rows.iter().map(|row| i32::from(row.rest)).collect::<Int32Array>())
            }
            Some(_) => Arc::new(rows.iter().map(|row| i64::from(row.rest)).collect::<Int64Array>()),
        };
        columns.push((column.name, array));
    }
    columns.push(("uuid", texts(&|row| Some(format!("GPU-{}", row.gpu)))));
    let fields: Vec<Field> =
        columns.iter().map(|(name, array)| Field::new(*name, array.data_type().clone(), true)).collect();
    let arrays = columns.into_iter().map(|(_, array)| array).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap()
}

fn spell(array: &ArrayRef, row: usize) -> Option<String> {
    if array.is_null(row) {
        return None;
    }
    match array.data_type() {
        DataType::Int32 => Some(array.as_primitive::<Int32Type>().value(row).to_string()),
        DataType::Int64 => Some(array.as_primitive::<Int64Type>().value(row).to_string()),
        DataType::Float32 => Some(array.as_primitive::<Float32Type>().value(row).to_string()),
        DataType::Float64 => Some(array.as_primitive::<Float64Type>().value(row).to_string()),
        DataType::Utf8 => Some(array.as_string::<i32>().value(row).to_owned()),
        _ => {
            let dictionary = array.as_dictionary::<Int32Type>();
            Some(dictionary.values().as_string::<i32>().value(dictionary.key(row)?).to_owned())
        }
    }
}

fn cells(batch: &RecordBatch, row: usize) -> Cells {
    let fields = batch.schema_ref().fields().iter().zip(batch.columns());
    fields.filter_map(|(field, array)| Some((field.name().clone(), spell(array, row)?))).collect()
}

/// GPU, time, and the rest.
type RowKey = (String, i64, Vec<String>);

fn key(table: Table, cells: &Cells) -> RowKey {
    let uuid = &cells["uuid"];
    let key = cells.get("partition").map_or_else(|| uuid.clone(), |partition| format!("{uuid}:{partition}"));
    let rest = table.key().map(|column| cells[column.name].clone()).collect();
    (key, cells["timestamp_ns"].parse().unwrap(), rest)
}

fn model(table: Table, parts: &[RecordBatch]) -> BTreeMap<RowKey, Cells> {
    let mut model: BTreeMap<RowKey, Cells> = BTreeMap::new();
    for part in parts {
        for row in 0..part.num_rows() {
            let cells = cells(part, row);
            let row = model.entry(key(table, &cells)).or_default();
            match table.version() {
                None => row.extend(cells),
                // The versions have one digit.
                Some(version) if row.get(version.name) > cells.get(version.name) => {}
                Some(_) => *row = cells,
            }
        }
    }
    model
}

fn in_order(model: BTreeMap<RowKey, Cells>, order: Order) -> Vec<Cells> {
    let mut rows: Vec<_> = model.into_iter().collect();
    match order {
        Order::GpuTime => {}
        Order::TimeGpu => rows.sort_by_key(|((_, time, _), _)| *time),
        Order::NewestGpu => rows.sort_by_key(|((_, time, _), _)| std::cmp::Reverse(*time)),
    }
    rows.into_iter().map(|(_, cells)| cells).collect()
}

fn all_cells(batch: &RecordBatch) -> Vec<Cells> {
    (0..batch.num_rows()).map(|row| cells(batch, row)).collect()
}

fn rows() -> impl Strategy<Value = Vec<MergeRow>> {
    let identity = (
        0..5_u8,
        prop::option::weighted(0.2, 0..3_u8),
        0..12_i64,
        (0..3_u8, 0..4_u8),
        prop::option::of(0..8),
        prop::option::of(0..3_u8),
    );
    let values = (
        prop::option::of((0..4000_i32).prop_map(|mw| f32::from(i16::try_from(mw).unwrap()) / 8.0)),
        prop::option::of(0..3000_i32),
        prop::option::of(0..90_000_i32),
        prop::option::of(-5..5_i32),
        prop::option::of(0..4_u8),
    );
    let row = (identity, values).prop_map(
        |((gpu, partition, time, (rest, version), index, node), (power, clock, memory, extra, note))| {
            MergeRow { gpu, partition, time, rest, version, index, node, power, clock, memory, extra, note }
        },
    );
    prop::collection::vec(row, 0..40)
}

fn shapes() -> impl Strategy<Value = TableShape> {
    (any::<[bool; 6]>(), 0..3_u8, 0..3_u8).prop_map(
        |([partition, node, power, clock, note, plain_text], memory, extra)| TableShape {
            partition,
            node,
            power,
            clock,
            memory,
            extra,
            note,
            plain_text,
        },
    )
}

/// A table with a GPU key, and parts of it.
fn parts() -> impl Strategy<Value = (Table, Vec<RecordBatch>)> {
    let tables = Table::ALL.into_iter().filter(|table| table.subject() == IdentityColumn::Uuid);
    prop::sample::select(tables.collect::<Vec<_>>()).prop_flat_map(|table| (Just(table), parts_of(table)))
}

fn parts_of(table: Table) -> impl Strategy<Value = Vec<RecordBatch>> {
    let part = (rows(), shapes(), any::<bool>()).prop_map(move |(mut rows, shape, sorted)| {
        if sorted {
            // Long runs go another way through the code than scattered rows.
            rows.sort_by_key(|row| (row.gpu, row.time));
        }
        build_of(table, &rows, shape)
    });
    prop::collection::vec(part, 0..6)
}

fn orders() -> impl Strategy<Value = Order> {
    prop::sample::select(vec![Order::GpuTime, Order::TimeGpu, Order::NewestGpu])
}

proptest! {
    #[test]
    fn merging_equals_the_model((table, parts) in parts(), order in orders(), chunk in 1..30_usize) {
        let expected = in_order(model(table, &parts), order);
        let plan = Merge::plan(table, &parts, order).unwrap();
        prop_assert_eq!(plan.rows(), expected.len());
        let starts = (0..plan.rows()).step_by(chunk);
        let chunks: Vec<RecordBatch> = starts.map(|start| plan.batch(start..start + chunk).unwrap()).collect();
        let found: Vec<Cells> = chunks.iter().flat_map(all_cells).collect();
        prop_assert_eq!(&found, &expected);
        match super::merge(table, &parts, order).unwrap() {
            None => prop_assert!(expected.is_empty()),
            Some(whole) => {
                prop_assert_eq!(all_cells(&whole), expected);
                // The result is a batch of the table.
                let whole = without_empty(&whole).unwrap();
                prop_assert!(Batch::new(table, whole, Origin::default(), 0).is_ok());
            }
        }
    }

    #[test]
    fn merging_twice_changes_nothing((table, parts) in parts()) {
        if let Some(once) = super::merge(table, &parts, Order::GpuTime).unwrap() {
            let again = super::merge(table, &[once.clone(), once.clone()], Order::GpuTime).unwrap().unwrap();
            prop_assert_eq!(all_cells(&again), all_cells(&once));
            prop_assert_eq!(again.schema(), once.schema());
        }
    }

    #[test]
    fn parts_merge_in_steps_as_at_once((table, parts) in parts()) {
        let at_once = super::merge(table, &parts, Order::GpuTime).unwrap();
        let mut stepwise: Option<RecordBatch> = None;
        for part in parts {
            let both: Vec<RecordBatch> = stepwise.into_iter().chain([part]).collect();
            stepwise = super::merge(table, &both, Order::GpuTime).unwrap();
        }
        prop_assert_eq!(stepwise.as_ref().map(all_cells), at_once.as_ref().map(all_cells));
    }

    #[test]
    fn a_plan_names_each_gpu_with_its_first_row((table, parts) in parts()) {
        let plan = Merge::plan(table, &parts, Order::GpuTime).unwrap();
        let cells = all_cells(&plan.batch(0..plan.rows()).unwrap());
        let mut expected: Vec<(String, usize)> =
            cells.iter().enumerate().map(|(row, cells)| (key(table, cells).0, row)).collect();
        expected.dedup_by(|next, first| next.0 == first.0);
        let gpus: Vec<(String, usize)> =
            plan.gpus().into_iter().map(|(key, start)| (key.as_ref().to_owned(), start)).collect();
        prop_assert_eq!(gpus, expected);
    }
}

const PLAIN: TableShape = TableShape {
    partition: false,
    node: true,
    power: true,
    clock: true,
    memory: 2,
    extra: 0,
    note: false,
    plain_text: false,
};

#[test]
fn columns_stand_in_canonical_order() {
    let row = MergeRow { power: Some(1.5), extra: Some(3), note: Some(1), ..MergeRow::default() };
    let one = build(std::slice::from_ref(&row), TableShape { extra: 1, ..PLAIN });
    let two = build(&[row], TableShape { partition: true, note: true, ..PLAIN });
    let merged = merge(&[one, two], Order::GpuTime).unwrap().unwrap();
    let schema = merged.schema();
    let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    assert_eq!(names[..5], ["timestamp_ns", "gpu", "node", "uuid", "partition"]);
    assert_eq!(names[names.len() - 2..], ["note", "strange"]);
    let mut metrics = names[5..names.len() - 2].to_vec();
    metrics.sort_unstable();
    assert_eq!(metrics, ["gpu_clock_mhz", "memory_used_mb", "power_w"]);
    let slim = without_empty(&merged).unwrap();
    assert!(slim.column_by_name("partition").is_none());
    assert!(slim.column_by_name("note").is_some());
}

#[test]
fn the_later_arrival_stays_and_null_never_overwrites() {
    let row = |power, clock| MergeRow { power, clock, ..MergeRow::default() };
    let older = build(&[row(Some(100.0), Some(1)), row(Some(200.0), None)], PLAIN);
    let newer = build(&[row(None, Some(2))], PLAIN);
    let merged = merge(&[older, newer], Order::GpuTime).unwrap().unwrap();
    assert_eq!(merged.num_rows(), 1);
    let cells = cells(&merged, 0);
    assert_eq!((cells["power_w"].as_str(), cells["gpu_clock_mhz"].as_str()), ("200", "2"));
}

#[test]
fn a_partition_is_another_gpu_than_the_whole() {
    let row = |partition| MergeRow { partition, power: Some(1.0), ..MergeRow::default() };
    let batch = build(&[row(Some(1)), row(None), row(Some(0))], TableShape { partition: true, ..PLAIN });
    let merged = merge(&[batch], Order::GpuTime).unwrap().unwrap();
    let keys: Vec<String> = all_cells(&merged).iter().map(|cells| key(Table::GpuEvents, cells).0).collect();
    assert_eq!(keys, ["GPU-0", "GPU-0:p0", "GPU-0:p1"]);
}

#[test]
fn sorted_parts_that_do_not_overlap_are_copied() {
    let rows = |gpu, times: std::ops::Range<i64>| {
        times.map(move |time| MergeRow { gpu, time, power: Some(1.0), ..MergeRow::default() })
    };
    let one = build(&rows(0, 0..100).collect::<Vec<_>>(), PLAIN);
    let only = merge(std::slice::from_ref(&one), Order::GpuTime).unwrap().unwrap();
    let address = |batch: &RecordBatch| {
        batch.column_by_name("power_w").unwrap().as_primitive::<Float32Type>().values().as_ptr()
    };
    assert_eq!(address(&only), address(&one), "a single sorted part is not even copied");
    let two = build(&rows(1, 0..100).collect::<Vec<_>>(), PLAIN);
    let both = merge(&[one, two], Order::GpuTime).unwrap().unwrap();
    assert_eq!(both.num_rows(), 200);
}

#[test]
fn what_is_no_table_is_refused() {
    let whole = build(&[MergeRow::default()], PLAIN);
    let without = |name: &str| {
        let index = whole.schema().index_of(name).unwrap();
        let keep: Vec<usize> = (0..whole.num_columns()).filter(|&i| i != index).collect();
        whole.project(&keep).unwrap()
    };
    let refused = |batch: RecordBatch| merge(&[whole.clone(), batch], Order::GpuTime).unwrap_err();
    assert!(matches!(
        refused(without("timestamp_ns")),
        MergeError::Required { part: 1, column: "timestamp_ns" }
    ));
    let nobody = without("uuid").project(&[0]).unwrap();
    assert!(matches!(refused(nobody), MergeError::Required { part: 1, .. }));

    let time: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let uuid: ArrayRef = Arc::new([None::<&str>].into_iter().collect::<DictionaryArray<Int32Type>>());
    let field = |name: &str, data_type| Field::new(name, data_type, true);
    let schema = Schema::new(vec![field("timestamp_ns", DataType::Int64), field("uuid", text_type())]);
    let keyless = RecordBatch::try_new(Arc::new(schema), vec![Arc::clone(&time), uuid]).unwrap();
    assert!(matches!(refused(keyless), MergeError::Nobody { part: 1, row: 0 }));

    let uuid = Arc::clone(whole.column_by_name("uuid").unwrap());
    let power: ArrayRef = Arc::new(Float64Array::from(vec![1.0]));
    let schema = Schema::new(vec![
        field("timestamp_ns", DataType::Int64),
        field("uuid", text_type()),
        field("power_w", DataType::Float64),
    ]);
    let narrowed = RecordBatch::try_new(Arc::new(schema), vec![time, uuid, power]).unwrap();
    let MergeError::Type { column, found, wanted } = refused(narrowed) else {
        panic!("refused for another reason")
    };
    assert_eq!((column.as_str(), found, wanted), ("power_w", DataType::Float64, DataType::Float32));
}

#[test]
fn nothing_merges_to_nothing() {
    assert!(merge(&[], Order::GpuTime).unwrap().is_none());
    assert!(merge(&[build(&[], PLAIN)], Order::TimeGpu).unwrap().is_none());
}
