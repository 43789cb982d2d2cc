//! Rows go in one by one and come out as columns; impossible values stay out and are counted.

use gpuvitals_core::batch::{READ_ERROR_COLUMN, READ_US_COLUMN, Value, ValueError};
use gpuvitals_core::catalogue::by_column;
use gpuvitals_core::foreign::{Meaning, meaning};
use gpuvitals_core::{
    AbsenceReason, Batch, BatchBuilder, Identity, IdentityColumn, MetricId, Origin, Table, message, wire,
};

fn gpu(uuid: &str) -> Identity {
    Identity::default().with(IdentityColumn::Uuid, uuid).unwrap()
}

#[test]
fn absent_is_null_and_not_zero() {
    let mut builder = BatchBuilder::new(Table::GpuEvents);
    let id = builder.intern(&gpu("GPU-1"));
    let first = builder.row(10, id);
    let second = builder.row(20, id);
    let power = by_column("power_w").unwrap();
    builder.set(second, power, Value::Float(689.457)).unwrap();
    assert_eq!(
        builder.set(first, by_column("memory_used_mb").unwrap(), Value::Int(-5)),
        Err(ValueError::OutOfRange {
            column: "memory_used_mb",
            value: -5.0,
            min: 0.0,
            max: by_column("memory_used_mb").unwrap().metric().range.1
        })
    );
    assert!(matches!(builder.set(first, power, Value::Float(f64::NAN)), Err(ValueError::NotFinite { .. })));
    let batch = builder.finish(Origin::default(), 1).unwrap();
    let column = batch.metric(power).unwrap();
    assert_eq!(column.value(0), None);
    assert_eq!(column.value(1).map(|v| v.to_json().to_string()).as_deref(), Some("689.457"));
    assert!(
        batch.metric(by_column("memory_used_mb").unwrap()).is_none(),
        "a column without a value is not there"
    );
    let invalid =
        batch.absences().iter().filter(|a| a.reason == AbsenceReason::Invalid).map(|a| a.count).sum::<u32>();
    assert_eq!(invalid, 2);
    assert!(builder.finish(Origin::default(), 2).is_none(), "the builder is empty again");
}

#[test]
fn a_part_of_a_memory_is_not_larger_than_the_memory() {
    let message = |used: &str| {
        let document = format!(
            r#"{{"timestamp": 1000, "fields": {{"uuid": "GPU-1", "memory_total_mb": 81559, "memory_used_pct": 99, {used}}}}}"#
        );
        message::parse(document.as_bytes(), Origin::default(), 1).unwrap().batch.unwrap()
    };
    let value = |batch: &Batch, column: &str| batch.metric(by_column(column).unwrap())?.value(0);
    let right = message(r#""memory_used_mb": 81559"#);
    assert_eq!(value(&right, "memory_used_mb"), Some(Value::Int(81_559)));
    assert!(right.absences().is_empty());

    let wrong = message(r#""memory_used_mb": 81560"#);
    assert_eq!(value(&wrong, "memory_total_mb"), Some(Value::Int(81_559)));
    for column in ["memory_used_mb", "memory_used_pct"] {
        assert_eq!(value(&wrong, column), None, "{column}");
        let absence = wrong.absences().iter().find(|absence| absence.metric == by_column(column).unwrap());
        assert_eq!(absence.map(|it| (it.reason, it.count)), Some((AbsenceReason::Invalid, 1)), "{column}");
    }
}

#[test]
fn dcgms_mean_power_is_the_power_unless_the_message_has_the_instant() {
    let power = |fields: &str| {
        let document = format!(r#"{{"timestamp": 1000, "fields": {{"uuid": "GPU-1", {fields}}}}}"#);
        let batch = message::parse(document.as_bytes(), Origin::default(), 1).unwrap().batch.unwrap();
        let value = |column: &str| Some(batch.metric(by_column(column).unwrap())?.value(0)?.as_f64());
        (value("power_w"), value("power_average_w"))
    };
    let (mean, instant) = (r#""DCGM_FI_DEV_POWER_USAGE": 300"#, r#""DCGM_FI_DEV_POWER_USAGE_INSTANT": 410"#);
    assert_eq!(power(mean), (Some(300.0), None));
    for fields in [format!("{mean}, {instant}"), format!("{instant}, {mean}")] {
        assert_eq!(power(&fields), (Some(410.0), Some(300.0)), "{fields}");
    }
}

#[test]
fn foreign_columns_are_kept_and_bounded() {
    let mut builder = BatchBuilder::new(Table::GpuEvents);
    let id = builder.intern(&gpu("GPU-1"));
    let row = builder.row(10, id);
    builder.set_extra(row, "fan_noise_db", 31.5).unwrap();
    builder.set_extra_text(row, "rack", "r7").unwrap();
    assert!(matches!(builder.set_extra(row, "power_w", 1.0), Err(ValueError::ExtraName(_))));
    for n in 0..200 {
        let outcome = builder.set_extra(row, &format!("x{n}"), 1.0);
        assert_eq!(outcome.is_ok(), n < 126, "{n}");
    }
    let batch = builder.finish(Origin::default(), 1).unwrap();
    assert_eq!(batch.extras().count(), 128);
}

#[test]
fn a_foreign_column_of_numbers_becomes_text_with_the_first_text() {
    let mut builder = BatchBuilder::new(Table::GpuEvents);
    let id = builder.intern(&gpu("GPU-1"));
    let rows: Vec<_> = (0..4).map(|second| builder.row(second, id)).collect();
    builder.set_extra(rows[0], "slot", 7.0).unwrap();
    builder.set_extra_text(rows[2], "slot", "upper").unwrap();
    builder.set_extra(rows[3], "slot", 1.5).unwrap();
    let batch = builder.finish(Origin::default(), 1).unwrap();
    let slot = |row| Some(message::render(&batch, row)?["fields"].get("slot")?.as_str()?.to_owned());
    let texts: Vec<Option<String>> = (0..4).map(slot).collect();
    assert_eq!(texts, [Some("7".to_owned()), None, Some("upper".to_owned()), Some("1.5".to_owned())]);
}

#[test]
fn json_messages_may_have_units_words_and_several_names_of_one_meaning() {
    let document =
        br#"{"timestamp": 1, "fields": {"gpu_id": 0, "power.draw [mW]": 300123, "fan.speed [%]": "38 %",
      "pstate": "P8", "power_limit": "250 W", "sm_clock": "1.98 GHz", "encoder_utilization": "5 MiB",
      "temperature": 61, "temperature_gpu": 62, "utilization": 5, "utilization_pct": 6}}"#;
    let parsed = message::parse(document, Origin::default(), 1).unwrap();
    let invalid: Vec<String> = parsed.invalid.iter().map(|(_, error)| error.to_string()).collect();
    assert_eq!(invalid, ["encoder_utilization is not a number"], "a unit of something else");
    let fields = &message::render(&parsed.batch.unwrap(), 0).unwrap()["fields"];
    assert_eq!(
        fields,
        &serde_json::json!({
            "gpu": 0, "uuid": "unknown:gpu0", "source": "json", "power_w": 300.123, "fan_speed_pct": 38.0,
            "performance_state": 8, "power_limit_w": 250.0, "sm_clock_mhz": 1980, "temperature_c": 61.0,
            "temperature_gpu": 62.0, "utilization_pct": 6.0, "utilization": 5.0,
        }),
        "the column's own name first, else the first; the others stay under their own"
    );
}

#[test]
fn a_message_may_have_the_names_and_words_of_nvidia_smi() {
    let document =
        br#"{"timestamp": 1, "fields": {"uuid": "GPU-1", "clocks_event_reasons.active": "0x0000000000000004",
      "gpu.power.current_limit [W]": "250.00", "mig.mode.current": "Disabled", "power.draw": "66.84W",
      "clocks_event_reasons_counters.sw_power_cap": 5, "memory.used [bytes]": 8589934592, "pstate": 2,
      "temperature.memory": "none", "ecc.mode.current": "Enabled", "retired_pages.pending": "No"}}"#;
    let parsed = message::parse(document, Origin::default(), 1).unwrap();
    assert!(parsed.invalid.is_empty(), "{:?}", parsed.invalid);
    assert_eq!(
        message::render(&parsed.batch.unwrap(), 0).unwrap()["fields"],
        serde_json::json!({
            "uuid": "GPU-1", "source": "json", "throttle_reasons": 4, "power_limit_enforced_w": 250.0,
            "mig_mode": 0, "power_w": 66.84, "ecc_mode": 1, "retired_pages_pending": 0,
            "throttled_sw_power_cap_ns": 5000, "memory_used_mb": 8192, "performance_state": 2,
        })
    );
    // Bits may be a number, as pynvml has them; memory beside a CPU's load is the host's.
    let document =
        br#"{"timestamp": 1, "fields": {"uuid": "GPU-1", "clocks_event_reasons.active": 4, "cpu.percent": 12,
      "memory.used": 29593, "gpu.util": 7}}"#;
    let batch = message::parse(document, Origin::default(), 1).unwrap().batch.unwrap();
    assert_eq!(batch.metric(by_column("throttle_reasons").unwrap()).unwrap().value(0), Some(Value::Int(4)));
    assert!(batch.metric(by_column("memory_used_mb").unwrap()).is_none());
}

#[test]
fn memory_in_a_message_about_cpu_and_gpu_is_the_hosts_unless_it_says_the_gpus() {
    let document = br#"{"timestamp": "2026-01-01T00:00:00Z", "fields": {"gpu": "g", "cpu_percent": 12, "memory_used_gb": 28.9,
        "gpu_memory_used": 10240, "gpu_util": 7}}"#;
    let batch = message::parse(document, Origin::default(), 1).unwrap().batch.unwrap();
    assert_eq!(batch.metric(by_column("memory_used_mb").unwrap()).unwrap().value(0), Some(Value::Int(10240)));
}

#[test]
fn json_messages_from_anyone() {
    let document = br#"[
      {"timestamp": "2026-01-01T00:00:00Z", "fields": {"gpu_id": "gpu_0", "temperature": 61, "utilization": 97.5, "memory_used": 1024, "power_draw": 402.25, "note": "x"}},
      {"timestamp": "yesterday", "fields": {"gpu_id": "gpu_0", "temperature": 61}},
      {"timestamp": "2026-01-01T00:00:01Z", "fields": {"gpu_id": "../../x", "temperature": 61}},
      {"timestamp": "2026-01-01T00:00:01Z", "fields": {"gpu_id": 3, "hostname": "n1", "DCGM_FI_DEV_FB_USED": 77413, "temperature": -400}},
      {"timestamp": "2026-01-01T00:00:01Z", "fields": {"temperature": 61}}
    ]"#;
    let parsed = message::parse(document, Origin::default(), 1).unwrap();
    let refused: Vec<usize> = parsed.refused.iter().map(|(index, _)| *index).collect();
    assert_eq!(refused, [1, 2, 4]);
    assert_eq!(parsed.invalid.len(), 1);
    let batch = parsed.batch.unwrap();
    assert_eq!(batch.rows(), 2);
    assert_eq!(batch.identity(0).uuid(), Some("gpu_0"));
    assert_eq!(batch.identity(1).uuid(), Some("n1:gpu3"));
    assert_eq!(batch.metric(by_column("power_w").unwrap()).unwrap().value(0), Some(Value::Float32(402.25)));
    assert_eq!(batch.identity(0).get(IdentityColumn::Source), Some("json"));
    assert!(message::parse(b"not json", Origin::default(), 1).is_err());
}

#[test]
fn a_value_of_another_kind_is_counted_and_never_becomes_a_number() {
    let parse = |fields: &str| {
        let document = format!(r#"{{"timestamp": "2026-01-01T00:00:00Z", "fields": {fields}}}"#);
        message::parse(document.as_bytes(), Origin::default(), 1).unwrap()
    };
    let parsed = parse(
        r#"{"uuid": "GPU-1", "power_w": true, "memory_used": [1], "process_count": "yes", "pcie_replays": "P8", "ecc_mode": "Enabled", "performance_state": "P8", "persistence_mode": true, "idle": false, "tags": {}, "labels": {}}"#,
    );
    let mut wrong: Vec<String> = parsed.invalid.iter().map(|(_, error)| error.to_string()).collect();
    wrong.sort();
    let expected = [
        "\"labels\" cannot be the name of an unknown column",
        "memory_used is not a number",
        "pcie_replays is not a number",
        "power_w is not a number",
        "process_count is not a number",
        "tags is neither a number nor a text",
    ];
    assert_eq!(wrong, expected);
    let batch = parsed.batch.unwrap();
    let fields = &message::render(&batch, 0).unwrap()["fields"];
    assert_eq!((&fields["persistence_mode"], &fields["idle"]), (&1.into(), &"false".into()));
    assert_eq!((&fields["ecc_mode"], &fields["performance_state"]), (&1.into(), &8.into()));
    assert_eq!((fields.get("power_w"), fields.get("memory_used_mb")), (None, None));
    assert_eq!((fields.get("process_count"), fields.get("pcie_replays")), (None, None));
    for fields in [
        r#"{"uuid": {"id": "GPU-1"}, "gpu_id": 3, "hostname": "n1", "power_w": 5}"#,
        r#"{"gpu_id": true, "index": 3, "hostname": "n1", "power_w": 5}"#,
        r#"{"uuid": "GPU-1", "hostname": ["n1"], "power_w": 5}"#,
    ] {
        let parsed = parse(fields);
        assert!(parsed.batch.is_none(), "the row would be that of another GPU: {fields}");
        let reason = parsed.refused[0].1.to_string();
        assert!(reason.ends_with("is neither a text nor a number"), "{reason}");
    }
}

#[test]
fn a_row_is_written_as_the_message_it_is_read_from() {
    let document = br#"[
      {"timestamp": "2026-01-01T00:00:00.5Z", "fields": {"gpu_id": "gpu_0", "temperature": 61, "power_draw": 402.25, "note": "x", "noise": 31.5}},
      {"timestamp": "2026-01-01T00:00:01Z", "fields": {"gpu_id": 3, "hostname": "n1", "pod": "p", "DCGM_FI_DEV_FB_USED": 77413}}
    ]"#;
    let parse = |document: &[u8]| message::parse(document, Origin::default(), 1).unwrap().batch.unwrap();
    let batch = parse(document);
    let rendered: Vec<_> = (0..2).map(|row| message::render(&batch, row).unwrap()).collect();
    assert_eq!(
        rendered[0].to_string(),
        r#"{"fields":{"noise":31.5,"note":"x","power_w":402.25,"source":"json","temperature_c":61.0,"uuid":"gpu_0"},"timestamp":"2026-01-01T00:00:00.5Z"}"#
    );
    let again = parse(serde_json::Value::from(rendered).to_string().as_bytes());
    assert_eq!(again.records(), batch.records());
    assert_eq!(message::render(&batch, 2), None);
}

#[test]
fn a_message_names_one_gpu_and_has_values() {
    let parse = |fields: &str| {
        let document = format!(r#"{{"timestamp": "2026-01-01T00:00:00Z", "fields": {fields}}}"#);
        message::parse(document.as_bytes(), Origin::default(), 1).unwrap()
    };
    let uuid =
        |fields: &str| parse(fields).batch.and_then(|batch| batch.identity(0).key()).map(|k| k.to_string());
    let check = |fields: &str, wanted: Option<&str>| assert_eq!(uuid(fields).as_deref(), wanted, "{fields}");
    // The row's own number is not the GPU, and a name belongs to its host.
    check(r#"{"gpu_id": 0, "id": 123456, "index": 9, "node": "n1", "power_w": 5}"#, Some("n1:gpu0"));
    check(r#"{"gpu_id": "gpu_0", "node": "n1", "power_w": 5}"#, Some("gpu_0@n1"));
    check(r#"{"gpu_id": "gpu_0", "node": "n2", "power_w": 5}"#, Some("gpu_0@n2"));
    check(r#"{"pci_bus_id": "00000000:0C:00.0", "node": "n1", "power_w": 5}"#, Some("0000:0c:00.0@n1"));
    check(r#"{"uuid": "N/A", "gpu": 2, "node": "n1", "power_w": 5}"#, Some("n1:gpu2"));
    check(r#"{"gpu": -1, "node": "n1", "power_w": 5}"#, None);
    // Nothing that can be stored: no row, so the GPU was not seen.
    check(r#"{"gpu": 1, "power_w": -5}"#, None);
    check(r#"{"gpu": 1, "power_w": "N/A", "note": [1]}"#, None);
    check(r#"{"gpu": 1, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 140737488355328.0}"#, None);
    check(r#"{"gpu": 1, "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": 2147483632}"#, None);
    assert_eq!(parse(r#"{"gpu": 1, "power_w": "hot", "temperature": 40}"#).invalid.len(), 1);
    assert_eq!(parse(r#"{"gpu": 1, "power_w": "[N/A]", "temperature": 40}"#).invalid.len(), 0);
    // A value without a column is reported, whatever it holds.
    for nested in ["{\"b\": 1}", "[1, 2]", "{}", "[]"] {
        let parsed = parse(&format!(r#"{{"gpu": 1, "a": {nested}, "power_w": 1}}"#));
        let words: Vec<String> = parsed.invalid.iter().map(|(_, error)| error.to_string()).collect();
        assert_eq!(words, ["a is neither a number nor a text"], "{nested}");
    }
    let many = format!("[{}0]", "0,".repeat(70_000));
    let refused = message::parse(many.as_bytes(), Origin::default(), 1);
    assert!(matches!(refused, Err(message::MessageError::TooMany(70_001))));
}

#[test]
fn a_text_is_no_longer_than_the_wire_takes() {
    use gpuvitals_core::wire::{self, TEXT_LEN_MAX};
    let mut builder = BatchBuilder::new(Table::GpuEvents);
    let id = builder.intern(&gpu("GPU-1"));
    let row = builder.row(10, id);
    let long = "x".repeat(TEXT_LEN_MAX + 1);
    let refused = builder.set_extra_text(row, "note", &long);
    assert_eq!(refused, Err(ValueError::TextTooLong { column: "note".into(), len: TEXT_LEN_MAX + 1 }));
    builder.set_extra_text(row, "note", &long[1..]).unwrap();
    let batch = builder.finish(Origin::default(), 1).unwrap();
    assert!(wire::decode(&wire::encode(&batch).unwrap()).is_ok());
}

#[test]
fn a_message_of_a_mig_instance_gives_its_card_what_is_the_cards() {
    let document =
        br#"{"timestamp": "2026-01-01T00:00:00Z", "fields": {"uuid": "GPU-1", "GPU_I_ID": "3", "pod": "a",
        "DCGM_FI_DEV_POWER_USAGE": 80, "DCGM_FI_DEV_MEMORY_TEMP": 0, "DCGM_FI_DEV_FB_USED": 13}}"#;
    let parsed = message::parse(document, Origin::default(), 1).unwrap();
    let batch = parsed.batch.unwrap();
    let told = |row: usize| {
        let value = |id: &str| {
            batch.metric(by_column(id).unwrap()).and_then(|column| column.value(row)).map(Value::as_f64)
        };
        let identity = batch.identity(row);
        (
            identity.key().unwrap().to_string(),
            identity.get(IdentityColumn::Pod).map(str::to_owned),
            [value("power_w"), value("memory_used_mb"), value("temperature_memory_c")],
        )
    };
    assert_eq!(told(0), ("GPU-1:3".to_owned(), Some("a".to_owned()), [None, Some(13.0), None]));
    assert_eq!(told(1), ("GPU-1".to_owned(), None, [Some(80.0), None, None]));
    assert_eq!(batch.rows(), 2);
}

#[test]
fn foreign_names_mean_what_people_mean() {
    let metric = |column: &str, factor: f64| Meaning::Metric(by_column(column).unwrap(), factor);
    let check = |name: &str, wanted: Meaning| assert_eq!(meaning(name), wanted, "{name}");
    check("DCGM_FI_DEV_GPU_UTIL", metric("utilization_pct", 1.0));
    check("Temperature", metric("temperature_c", 1.0));
    check("power_draw", metric("power_w", 1.0));
    check("memory_used", metric("memory_used_mb", 1.0));
    for name in
        ["gpu_id", "index_gpu", "gpuId", "GPU#", "idx-gpu", "gpu nr", "device_index", "Accelerator Idx"]
    {
        check(name, Meaning::Gpu);
    }
    check("device_id", Meaning::Unknown);
    check("gpu_count", Meaning::Unknown);
    check("UUID", Meaning::Identity(IdentityColumn::Uuid));
    check("Hostname", Meaning::Identity(IdentityColumn::Node));
    check("modelName", Meaning::Identity(IdentityColumn::Model));
    check("metric_name", Meaning::MetricName);
    check("fan_noise_db", Meaning::Unknown);
}

#[test]
#[should_panic(expected = "every row has its key")]
fn rows_of_nobody_are_a_bug_and_not_lost_in_silence() {
    let mut builder = BatchBuilder::new(Table::GpuEvents);
    let mut unresolved = Identity::default();
    unresolved.index = Some(3);
    let id = builder.intern(&unresolved);
    let row = builder.row(10, id);
    builder.set(row, by_column("power_w").unwrap(), Value::Float(1.0)).unwrap();
    drop(builder.finish(Origin::default(), 1));
}

#[test]
fn a_filter_keeps_what_it_is_told_to() {
    let mut builder = BatchBuilder::new(Table::GpuEvents);
    let id = builder.intern(&gpu("GPU-1"));
    for time in [10, 20, 30] {
        builder.row(time, id);
    }
    let batch = builder.finish(Origin::default(), 1).unwrap();
    assert_eq!(batch.filter(&[true, false, true]).unwrap().timestamps(), [10, 30]);
    assert!(batch.filter(&[false; 3]).is_none());
}

#[test]
fn the_monotonic_clock_stays_on_its_host() {
    let mut builder = BatchBuilder::new(Table::GpuEvents);
    let id = builder.intern(&gpu("GPU-1"));
    for tick in 1..=2 {
        let row = builder.row_at(tick * 10, tick, id);
        builder.set(row, MetricId::of("power_w"), Value::Float(1.5)).unwrap();
    }
    let batch = builder.finish(Origin::default(), 1).unwrap();
    assert_eq!(batch.monotonic(), Some(&[1, 2][..]));
    let sent = wire::decode(&wire::encode(&batch).unwrap()).unwrap();
    assert_eq!(sent.monotonic(), None);
    assert_eq!(sent.timestamps(), batch.timestamps());
    assert_eq!(sent.extras().count(), 0);
    let id = builder.intern(&gpu("GPU-1"));
    builder.row_at(1, 1, id);
    builder.row(2, id);
    assert_eq!(builder.finish(Origin::default(), 2).unwrap().monotonic(), None);
}

#[test]
fn how_long_a_reading_took_is_packed_and_never_sent() {
    let mut builder = BatchBuilder::new(Table::GpuEvents);
    let id = builder.intern(&gpu("GPU-1"));
    let read = builder.row_at(10, 1, id);
    builder.set(read, MetricId::of("power_w"), Value::Float(1.5)).unwrap();
    builder.set_extra(read, READ_US_COLUMN, 310_i64).unwrap();
    let lost = builder.row_at(20, 2, id);
    builder.set_extra(lost, READ_US_COLUMN, 41_000_i64).unwrap();
    builder.set_extra_text(lost, READ_ERROR_COLUMN, "gone").unwrap();
    let batch = builder.finish(Origin::default(), 1).unwrap();
    let mut packed = Vec::new();
    wire::pack(&batch, &mut packed).unwrap();
    let here = wire::unpack(&packed).unwrap();
    let took = here.read_us().unwrap();
    assert_eq!([0, 1].map(|row| took.value(row)), [310.0, 41_000.0].map(|us| Some(Value::Float(us))));
    assert_eq!([0, 1].map(|row| here.read_error(row)), [None, Some("gone")]);
    assert_eq!(here.monotonic(), Some(&[1, 2][..]));
    // What was unpacked is sent without them, too.
    for batch in [&batch, &here] {
        let sent = wire::decode(&wire::encode(batch).unwrap()).unwrap();
        assert_eq!((sent.extras().count(), sent.rows()), (0, 2));
        let message = message::render(batch, 1).unwrap();
        assert!(!message.to_string().contains("read_"), "{message}");
    }
}

#[test]
fn batches_of_one_table_become_one() {
    let power = by_column("power_w").unwrap();
    let clock = by_column("gpu_clock_max_mhz").unwrap();
    let small = |uuid: &str, time: i64, pod: Option<&str>, metric: MetricId, value: f64| {
        let mut builder = BatchBuilder::new(Table::GpuEvents);
        let identity = gpu(uuid).with(IdentityColumn::Pod, pod.unwrap_or_default()).unwrap();
        let id = builder.intern(&identity);
        let row = builder.row_at(time, time, id);
        builder.set(row, metric, Value::Float(value)).unwrap();
        builder.absent(row, power, AbsenceReason::NotSupported);
        builder.set_extra(row, "rack_u", value).unwrap();
        builder.finish(Origin::default(), time.unsigned_abs()).unwrap()
    };
    let parts = [
        small("GPU-1", 10, Some("train"), power, 300.0),
        small("GPU-2", 11, None, clock, 1500.0),
        small("GPU-1", 20, Some("train"), power, 310.0),
    ];
    let whole = Batch::concat(&parts).unwrap();
    assert_eq!((whole.rows(), whole.sequence(), whole.timestamps()), (3, 20, &[10, 11, 20][..]));
    assert_eq!(whole.monotonic(), Some(&[10, 11, 20][..]));
    let identities: Vec<_> = (0..3).map(|row| whole.identity(row)).collect();
    let originals: Vec<_> = parts.iter().map(|part| part.identity(0)).collect();
    assert_eq!(identities, originals);
    let values = |metric| (0..3).map(|row| whole.metric(metric).unwrap().value(row)).collect::<Vec<_>>();
    let float = |value: f64| Some(Value::Float(value).as_f64());
    let floats = |metric| values(metric).iter().map(|v| v.map(Value::as_f64)).collect::<Vec<_>>();
    assert_eq!(floats(power), [float(300.0), None, float(310.0)]);
    assert_eq!(floats(clock), [None, float(1500.0), None]);
    assert_eq!(whole.extras().map(|(name, _)| name).collect::<Vec<_>>(), ["rack_u"]);
    let mut absences: Vec<_> = whole.absences().iter().map(|a| (a.gpu.as_ref(), a.count)).collect();
    absences.sort_unstable();
    assert_eq!(absences, [("GPU-1", 2), ("GPU-2", 1)]);
    // The joined batch encodes like any other.
    let decoded = wire::decode(&wire::encode(&whole).unwrap()).unwrap();
    assert_eq!((0..3).map(|row| decoded.identity(row)).collect::<Vec<_>>(), originals);

    assert!(Batch::concat(&[]).is_none());
    let mut host = BatchBuilder::new(Table::SystemEvents);
    let id = host.intern(&Identity::default().with(IdentityColumn::Node, "n1").unwrap());
    host.row(1, id);
    let host = host.finish(Origin::default(), 1).unwrap();
    assert!(Batch::concat(&[parts[0].clone(), host]).is_none(), "two tables are not one");
}

#[test]
fn a_32_bit_float_is_read_as_its_shortest_decimal() {
    let same = |value: f32| {
        let (found, wanted) = (Value::Float32(value).as_decimal(), value.to_string().parse::<f64>().unwrap());
        assert_eq!(found.to_bits(), wanted.to_bits(), "{value}: {found}");
    };
    // Every length of a decimal, at every size.
    for digits in (0..9_000_000_u32).step_by(77).chain([8_388_607, 8_388_608, 8_388_609, 16_777_217]) {
        for power in [0, 1, 2, 3, 4, 5, 6, 9, 12] {
            same(format!("{digits}e-{power}").parse().unwrap());
            same(format!("-{digits}e-{power}").parse().unwrap());
        }
    }
    // Every exponent, with mantissas all over.
    for bits in (0..=u32::MAX).step_by(4_093).map(f32::from_bits).filter(|value| value.is_finite()) {
        same(bits);
    }
    // Halfway between two decimals of a length, both of which are this number.
    same("1048576.25".parse().unwrap());
    same(-0.0);
}

#[test]
fn a_message_has_nvidia_smis_time_in_utc_and_what_stands_beside_its_fields_is_counted() {
    let document = br#"[
        {"timestamp": "2026/04/24 10:00:00.5", "fields": {"uuid": "GPU-1", "power.draw [mW]": 99100}},
        {"timestamp": "2026-04-24 10:00:00.5+02:00", "fields": {"uuid": "GPU-1", "mem_used_gib": 2}, "host": "a", "power_w": 3}
    ]"#;
    let parsed = message::parse(document, Origin::default(), 1).unwrap();
    assert!(parsed.refused.is_empty(), "{:?}", parsed.refused);
    let batch = parsed.batch.unwrap();
    let times: Vec<String> = batch.timestamps().iter().map(|at| gpuvitals_core::time::format(*at)).collect();
    assert_eq!(times, ["2026-04-24T10:00:00.5Z", "2026-04-24T08:00:00.5Z"]);
    let value = |column: &str, row: usize| {
        batch.metrics().find(|(id, _)| id.metric().column == column).and_then(|(_, values)| values.value(row))
    };
    assert_eq!(value("power_w", 0).map(Value::as_decimal), Some(99.1));
    assert_eq!(value("memory_used_mb", 1).map(Value::as_f64), Some(2048.0));
    let left_out: Vec<(usize, String)> =
        parsed.invalid.iter().map(|(index, error)| (*index, error.to_string())).collect();
    let beside = |name: &str| {
        (
            1,
            format!(
                "\"{name}\" stands beside timestamp and fields, and is left out; a value goes into fields"
            ),
        )
    };
    assert_eq!(left_out, [beside("host"), beside("power_w")]);
}
