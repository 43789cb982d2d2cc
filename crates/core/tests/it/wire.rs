//! The binary form of a batch: it decodes to its input, and foreign bytes never do harm.

use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{Array, DictionaryArray, Int32Array, RecordBatch, StringArray};
use bytes::Bytes;
use gpuvitals_core::batch::Value;
use gpuvitals_core::catalogue::{self, ColumnType};
use gpuvitals_core::wire::{WireError, decode, decode_keeping, encode, row_count};
use gpuvitals_core::{Absence, AbsenceReason, Batch, BatchBuilder, Identity, IdentityColumn, Origin, Table};
use proptest::prelude::*;

fn identity(n: u32) -> Identity {
    let mut identity = Identity::default()
        .with(IdentityColumn::Uuid, &format!("GPU-{n:04}"))
        .and_then(|i| i.with(IdentityColumn::Node, &format!("node-{}", n / 8)))
        .and_then(|i| i.with(IdentityColumn::Source, "simulated"))
        .unwrap();
    if n.is_multiple_of(3) {
        identity.set(IdentityColumn::Pod, &format!("pod-{n}")).unwrap();
    }
    identity.index = n.is_multiple_of(2).then_some((n % 8).cast_signed());
    identity
}

fn origin() -> Origin {
    Origin { node: "n1".into(), started_ns: 17 }
}

fn metrics() -> Vec<gpuvitals_core::MetricId> {
    ["power_w", "gpu_clock_mhz", "temperature_c", "memory_used_mb", "utilization_pct", "energy_mj"]
        .into_iter()
        .filter_map(catalogue::by_column)
        .collect()
}

prop_compose! {
    fn batches()(rows in 1_usize..300, cells in proptest::collection::vec((any::<u16>(), 0_u32..40, proptest::option::of(0.0_f64..1000.0)), 1..600), ragged in any::<bool>()) -> Batch {
        let mut builder = BatchBuilder::new(Table::GpuEvents);
        let metrics = metrics();
        let mut ids = Vec::new();
        for row in 0..rows {
            let gpu = u32::try_from(row % 40).unwrap();
            let id = builder.intern(&identity(gpu));
            ids.push(builder.row(1_750_000_000_000_000_000 + i64::try_from(row).unwrap() * 7_000_000, id));
        }
        for (at, metric, value) in cells {
            let row = ids[usize::from(at) % ids.len()];
            let metric = metrics[metric as usize % metrics.len()];
            match value {
                Some(value) => { drop(builder.set(row, metric, Value::Float(value))); }
                None => builder.absent(row, metric, AbsenceReason::TimedOut),
            }
            if ragged {
                builder.set_extra(row, "foreign number", f64::from(at)).unwrap();
                builder.set_extra_text(row, "foreign text", &format!("t{}", at % 5)).unwrap();
            }
        }
        builder.finish(origin(), 9).unwrap()
    }
}

fn same(a: &RecordBatch, b: &RecordBatch) -> bool {
    let names =
        |r: &RecordBatch| r.schema_ref().fields().iter().map(|f| f.name().clone()).collect::<Vec<_>>();
    names(a) == names(b)
        && a.columns().iter().zip(b.columns()).all(|(x, y)| {
            x.data_type() == y.data_type() && x.len() == y.len() && {
                let text = |c: &arrow_array::ArrayRef, row| {
                    use arrow_array::cast::AsArray;
                    c.as_dictionary_opt::<arrow_array::types::Int32Type>()
                        .and_then(|d| gpuvitals_core::batch::text_at(d, row).map(str::to_owned))
                };
                if matches!(x.data_type(), arrow_schema::DataType::Dictionary(..)) {
                    (0..x.len()).all(|row| text(x, row) == text(y, row))
                } else {
                    x.to_data() == y.to_data()
                }
            }
        })
}

proptest! {
    #[test]
    fn what_goes_in_comes_out(batch in batches()) {
        let bytes = encode(&batch).unwrap();
        prop_assert_eq!(row_count(&bytes).unwrap() as usize, batch.rows());
        let decoded = decode(&bytes).unwrap();
        prop_assert!(same(batch.records(), decoded.records()));
        prop_assert_eq!(batch.origin(), decoded.origin());
        prop_assert_eq!(batch.sequence(), decoded.sequence());
        prop_assert_eq!(batch.absences(), decoded.absences());
        for row in [0, batch.rows() / 2, batch.rows() - 1] {
            prop_assert_eq!(batch.identity(row), decoded.identity(row));
        }
    }

    #[test]
    fn foreign_bytes_are_refused_without_harm(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(decode(&bytes).is_err());
        prop_assert!(row_count(&bytes).is_err());
    }

    #[test]
    fn a_flipped_bit_never_panics(batch in batches(), at in any::<proptest::sample::Index>(), bit in 0_u8..8) {
        let mut bytes = encode(&batch).unwrap().to_vec();
        let index = at.index(bytes.len());
        bytes[index] ^= 1 << bit;
        let count = row_count(&bytes);
        if let Ok(batch) = decode(&bytes) {
            prop_assert_eq!(count.unwrap() as usize, batch.rows());
        }
    }

    #[test]
    fn a_damaged_body_never_panics(batch in batches(), flips in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..6)) {
        let bytes = encode(&batch).unwrap();
        let len = u32::from_le_bytes(bytes[4..8].try_into().unwrap()) as usize;
        let mut body = zstd::bulk::decompress(&bytes[8..], len).unwrap();
        for (at, with) in flips {
            let index = at.index(body.len());
            body[index] = with;
        }
        let mut frame = bytes[..8].to_vec();
        frame.extend(zstd::bulk::compress(&body, 1).unwrap());
        drop(decode(&frame));
    }
}

/// A row of each table, with a value in each of its own columns.
fn one_of_each() -> Vec<Batch> {
    let row_of = |table: Table| {
        let mut builder = BatchBuilder::new(table);
        let id = builder.intern(&identity(3));
        let row = builder.row(1_750_000_000_000_000_000, id);
        for column in table.columns() {
            match column.column_type {
                Some(_) => builder.set_extra(row, column.name, Value::Int(7)).unwrap(),
                None => builder.set_extra_text(row, column.name, "seven").unwrap(),
            }
        }
        builder.finish(origin(), 1).unwrap()
    };
    Table::ALL.into_iter().map(row_of).collect()
}

#[test]
fn every_table_travels_with_its_own_columns() {
    for batch in one_of_each() {
        let decoded = decode(&encode(&batch).unwrap()).unwrap();
        assert_eq!(decoded.table(), batch.table());
        assert_eq!(decoded.extras().count(), batch.table().columns().len());
        assert!(same(batch.records(), decoded.records()), "{}", batch.table());
    }
}

#[test]
fn a_row_without_its_whole_key_and_a_number_out_of_its_range_are_refused() {
    use gpuvitals_core::batch::{BatchError, ValueError};
    for batch in one_of_each() {
        let table = batch.table();
        for key in table.required() {
            let index = batch.schema().index_of(key.name).unwrap();
            let kept: Vec<usize> = (0..batch.records().num_columns()).filter(|&at| at != index).collect();
            let without = batch.records().project(&kept).unwrap();
            let refused = Batch::new(table, without, origin(), 1).err();
            assert_eq!(refused, Some(BatchError::Required(key.name)), "{table}");
        }
    }
    let mut builder = BatchBuilder::new(Table::GpuProcesses);
    let id = builder.intern(&identity(3));
    let row = builder.row(1, id);
    assert!(matches!(builder.set_extra(row, "pid", Value::Int(-1)), Err(ValueError::OutOfRange { .. })));
    assert!(matches!(builder.set_extra_text(row, "pid", "init"), Err(ValueError::Mixed(_))));
    // In another table the name is foreign, and may be anything.
    let mut builder = BatchBuilder::new(Table::GpuEvents);
    let id = builder.intern(&identity(3));
    let row = builder.row(1, id);
    builder.set_extra_text(row, "pid", "init").unwrap();
    assert_eq!(builder.finish(origin(), 1).unwrap().extras().count(), 1);
}

#[test]
fn a_length_that_lies_is_not_believed() {
    let mut frame = b"GVB1".to_vec();
    frame.extend(u32::MAX.to_le_bytes());
    assert!(matches!(decode(&frame), Err(WireError::Limit { what: "bytes", .. })));
    assert!(matches!(row_count(&frame), Err(WireError::Limit { what: "bytes", .. })));
    assert!(matches!(decode(b"PAR1...."), Err(WireError::Magic)));
}

#[test]
fn a_batch_keeps_the_bytes_it_was_decoded_from_until_it_changes() {
    let mut builder = BatchBuilder::new(Table::GpuEvents);
    for gpu in 0..4 {
        let id = builder.intern(&identity(gpu));
        builder.row(i64::from(gpu), id);
    }
    let ours = encode(&builder.finish(origin(), 3).unwrap()).unwrap();
    let body = zstd::bulk::decompress(&ours[8..], 1 << 20).unwrap();
    // Another writer's bytes of the same rows: they tell apart what is kept and what is encoded.
    let theirs: Bytes = [&ours[..8], &zstd::bulk::compress(&body, 19).unwrap()].concat().into();
    let batch = decode_keeping(&theirs).unwrap();
    assert_ne!(ours, theirs);
    assert_eq!(encode(&batch).unwrap(), theirs);
    assert_eq!(encode(&batch.filter(&[true; 4]).unwrap()).unwrap(), theirs, "all rows are the same rows");

    let some = batch.filter(&[true, false, true, false]).unwrap();
    assert_eq!(decode(&encode(&some).unwrap()).unwrap().timestamps(), [0, 2]);
    let two = Batch::concat(&[batch.clone(), batch.clone()]).unwrap();
    assert_eq!(decode(&encode(&two).unwrap()).unwrap().rows(), 8);
    let gpu = batch.identity(0).key().unwrap();
    let absence = Absence { gpu, metric: metrics()[0], reason: AbsenceReason::Denied, count: 1 };
    let lacking = batch.clone().with_absences(vec![absence.clone()]);
    assert_eq!(decode(&encode(&lacking).unwrap()).unwrap().absences(), [absence]);
    let mut plain = batch;
    plain.forget_wire();
    assert_eq!(encode(&plain).unwrap(), ours);
}

#[test]
fn values_that_cannot_be_true_are_refused_on_arrival() {
    use std::sync::Arc;
    let mut builder = BatchBuilder::new(Table::GpuEvents);
    let id = builder.intern(&identity(1));
    let row = builder.row(1, id);
    let power = catalogue::by_column("power_w").unwrap();
    assert_eq!(power.metric().column_type, ColumnType::F32);
    builder.set(row, power, Value::Float(100.0)).unwrap();
    let batch = builder.finish(origin(), 0).unwrap();
    let index = batch.records().schema().index_of("power_w").unwrap();
    let mut columns = batch.records().columns().to_vec();
    columns[index] = Arc::new(arrow_array::Float32Array::from(vec![f32::NAN]));
    let records = RecordBatch::try_new(batch.records().schema(), columns).unwrap();
    let forged = Batch::new(Table::GpuEvents, records, origin(), 0).unwrap();
    let error = decode(&encode(&forged).unwrap()).unwrap_err();
    assert!(matches!(error, WireError::Range { column: "power_w", .. }), "{error}");
}

fn varint(body: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        body.push(u8::try_from(value & 0x7f).unwrap() | 0x80);
        value >>= 7;
    }
    body.push(u8::try_from(value).unwrap());
}

fn text(body: &mut Vec<u8>, text: &str) {
    varint(body, text.len());
    body.extend(text.as_bytes());
}

/// A frame of columns that are spelled by hand, each with one value for all rows.
fn frame(rows: usize, columns: &[(&str, u8, &[u8])]) -> Vec<u8> {
    let mut body = vec![0];
    text(&mut body, "n1");
    body.extend([0; 16]);
    varint(&mut body, rows);
    varint(&mut body, columns.len());
    for (name, kind, value) in columns {
        text(&mut body, name);
        body.extend([*kind, 0]);
        body.extend(*value);
    }
    body.push(0);
    let mut frame = b"GVB1".to_vec();
    frame.extend(u32::try_from(body.len()).unwrap().to_le_bytes());
    frame.extend(zstd::bulk::compress(&body, 1).unwrap());
    frame
}

const TIME: (&str, u8, &[u8]) = ("timestamp_ns", 1, &[0, 1, 0, 0, 0, 0, 0, 0, 0]);
const UUID: (&str, u8, &[u8]) = ("uuid", 4, &[1, 1, b'g', 0, 0]);

#[test]
fn columns_that_no_builder_makes_are_refused() {
    assert_eq!(decode(&frame(2, &[TIME, UUID])).unwrap().rows(), 2);
    let check = |columns: &[(&str, u8, &[u8])], words: &str| {
        let error = decode(&frame(2, columns)).unwrap_err();
        let text = format!("{error}: {:?}", std::error::Error::source(&error).map(ToString::to_string));
        assert!(text.contains(words), "{text}");
    };
    check(&[TIME, UUID, UUID], "\\\"uuid\\\" is there twice");
    check(&[("timestamp_ns", 1, &[0, 0, 0, 0, 0, 0, 0, 0, 0x80]), UUID], "timestamp_ns has a value outside");
    check(&[TIME, UUID, ("gpu", 0, &[0, 0xff, 0xff, 0xff, 0xff])], "gpu has a value outside");
    check(&[TIME, ("uuid", 4, &[1, 0, 0, 0])], "an identity text is empty");
    check(&[TIME, UUID, ("partition", 4, &[1, 0, 0, 0])], "an identity text is empty");
}

#[test]
fn a_small_frame_does_not_become_a_large_batch() {
    let names: Vec<String> = (0..500).map(|n| format!("x{n}")).collect();
    let mut columns = vec![TIME, UUID];
    columns.extend(names.iter().map(|name| (name.as_str(), 3_u8, [0_u8; 9].as_slice())));
    let frame = frame(65_536, &columns);
    assert!(frame.len() < 10_000);
    assert!(matches!(decode(&frame), Err(WireError::Limit { what: "bytes of values", .. })));
}

#[test]
fn as_many_absences_as_a_batch_may_have_come_through() {
    let mut builder = BatchBuilder::new(Table::GpuEvents);
    for gpu in 0..600 {
        let id = builder.intern(&identity(gpu));
        let row = builder.row(1, id);
        for (metric, _) in catalogue::gpu_metrics() {
            builder.absent(row, metric, AbsenceReason::NotSupported);
        }
    }
    let batch = builder.finish(origin(), 1).unwrap();
    assert!(batch.absences().len() > 65_536);
    assert_eq!(decode(&encode(&batch).unwrap()).unwrap().absences().len(), batch.absences().len());
}

#[test]
fn a_hundred_rows_of_ten_metrics_stay_small() {
    let names = [
        "utilization_pct",
        "memory_utilization_pct",
        "power_w",
        "temperature_c",
        "memory_used_mb",
        "memory_free_mb",
        "gpu_clock_mhz",
        "mem_clock_mhz",
        "encoder_utilization_pct",
        "decoder_utilization_pct",
    ];
    for (rows, bytes_max) in [(8, 150), (100, 60)] {
        let mut builder = BatchBuilder::new(Table::GpuEvents);
        let mut state = 1_u64;
        for row in 0..rows {
            let id = builder.intern(&identity(row % 8));
            let row = builder.row(1_750_000_000_000_000_000 + i64::from(row / 8) * 1_000_000_000, id);
            for name in names {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let value = f64::from(u32::try_from(state >> 48).unwrap()) / 700.0;
                builder.set(row, catalogue::by_column(name).unwrap(), Value::Float(value)).unwrap();
            }
        }
        let size = encode(&builder.finish(origin(), 1).unwrap()).unwrap().len() / rows as usize;
        assert!(size <= bytes_max, "{size} bytes a row at {rows} rows of random values");
    }
}

/// Readers of files put such texts where a row has none.
#[test]
fn an_empty_name_that_no_row_has_is_not_sent() {
    let mut builder = BatchBuilder::new(Table::GpuEvents);
    for (node, at_ns) in [(Some("n1"), 1), (None, 2)] {
        let gpu = Identity::default().with(IdentityColumn::Uuid, "GPU-1").unwrap();
        let gpu = match node {
            Some(node) => gpu.with(IdentityColumn::Node, node).unwrap(),
            None => gpu,
        };
        let gpu = builder.intern(&gpu);
        builder.row(at_ns, gpu);
    }
    let batch = builder.finish(Origin::default(), 1).unwrap();
    let at = batch.schema().index_of(IdentityColumn::Node.name()).unwrap();
    let mut columns = batch.records().columns().to_vec();
    let keys = Int32Array::from(vec![Some(1), None]);
    columns[at] =
        Arc::new(DictionaryArray::<Int32Type>::new(keys, Arc::new(StringArray::from(vec!["", "n1"]))));
    let records = RecordBatch::try_new(batch.schema(), columns).unwrap();
    let odd = Batch::new(Table::GpuEvents, records, Origin::default(), 1).unwrap();
    let read = decode(&encode(&odd).unwrap()).unwrap();
    let nodes: Vec<Option<String>> =
        (0..2).map(|row| read.identity(row).node().map(ToString::to_string)).collect();
    assert_eq!(nodes, [Some("n1".to_owned()), None]);
}
