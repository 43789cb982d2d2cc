//! The form of files and lines.

use std::fs;
use std::path::Path;

use gpuvitals_core::batch::Value;
use gpuvitals_core::figures::render;
use gpuvitals_core::ports::{Sink, SinkError};
use gpuvitals_core::{BatchBuilder, Identity, IdentityColumn, Origin, Status, Table};
use gpuvitals_jsonl::{Jsonl, JsonlConfig, JsonlError};
use gpuvitals_log::FsDisk;

use crate::support::{Kept, SECOND, START, batch, read};

fn open(dir: &Path) -> Jsonl {
    Jsonl::open(&JsonlConfig::new(dir)).unwrap().0
}

fn text(dir: &Path, name: &str) -> String {
    fs::read_to_string(dir.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn names(dir: &Path) -> Vec<String> {
    let files = fs::read_dir(dir).unwrap().map(Result::unwrap).filter(|entry| entry.path().is_file());
    let mut names: Vec<_> = files.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn a_row_is_a_line_in_the_file_of_its_gpu() {
    let dir = tempfile::tempdir().unwrap();
    let jsonl = open(dir.path());
    let rows = [
        ("gpu_0@node-1", 0, [("power_w", 402.25), ("temperature_c", 61.0)].as_slice()),
        ("gpu_0@node-2", 0, &[("power_w", 0.1)]),
        ("GPU-5fd4:cpx3", 0, &[("a \"quoted\" name", 1e300)]),
        ("gpu_0@node-1", 1, &[]),
    ];
    jsonl.accept(vec![batch(&rows)]).await.unwrap();
    jsonl.close().await.unwrap();
    assert_eq!(names(dir.path()), ["GPU-5fd4%3Acpx3.jsonl", "gpu_0@node-1.jsonl", "gpu_0@node-2.jsonl"]);
    assert_eq!(
        text(dir.path(), "gpu_0@node-1.jsonl"),
        "{\"gpu_id\":\"gpu_0@node-1\",\"metrics\":{\"power_w\":402.25,\"temperature_c\":61.0},\"timestamp\":\"2026-01-01T00:00:00Z\"}\n\
         {\"gpu_id\":\"gpu_0@node-1\",\"metrics\":{},\"timestamp\":\"2026-01-01T00:00:01Z\"}\n"
    );
    assert_eq!(
        text(dir.path(), "gpu_0@node-2.jsonl"),
        "{\"gpu_id\":\"gpu_0@node-2\",\"metrics\":{\"power_w\":0.1},\"timestamp\":\"2026-01-01T00:00:00Z\"}\n"
    );
    assert_eq!(
        text(dir.path(), "GPU-5fd4%3Acpx3.jsonl"),
        "{\"gpu_id\":\"GPU-5fd4:cpx3\",\"metrics\":{\"a \\\"quoted\\\" name\":1e+300},\"timestamp\":\"2026-01-01T00:00:00Z\"}\n"
    );
}

#[tokio::test]
async fn the_end_of_the_log_that_is_gone_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let jsonl = open(dir.path());
    jsonl.accept(vec![batch(&[("GPU-1", 0, &[("power_w", 1.0)])])]).await.unwrap();
    // As the collector does each second.
    jsonl.accept(Vec::new()).await.unwrap();
    jsonl.close().await.unwrap();
    let jsonl = open(dir.path());
    assert_eq!(jsonl.health().status, Status::Healthy);
    jsonl.close().await.unwrap();
    drop(jsonl);
    let log = dir.path().join("jsonl-log");
    let segments = fs::read_dir(&log).unwrap().map(|entry| entry.unwrap().path());
    let newest = segments.filter(|path| path.file_name().unwrap() != "LOCK").max().unwrap();
    fs::remove_file(newest).unwrap();
    let health = open(dir.path()).health();
    assert_eq!(health.status, Status::Degraded);
    assert!(health.reason.starts_with("the end of the log is gone, with "), "{}", health.reason);
}

#[tokio::test]
async fn a_line_of_a_simulated_gpu_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let jsonl = open(dir.path());
    let mut builder = BatchBuilder::new(Table::GpuEvents);
    for (gpu, source) in [("made-up", "simulated"), ("measured", "nvml")] {
        let identity = Identity::default().with(IdentityColumn::Uuid, gpu);
        let identity = identity.and_then(|identity| identity.with(IdentityColumn::Source, source)).unwrap();
        let identity = builder.intern(&identity);
        builder.row(START, identity);
    }
    jsonl.accept(vec![builder.finish(Origin::default(), 0).unwrap()]).await.unwrap();
    jsonl.close().await.unwrap();
    let line =
        |gpu| format!("{{\"gpu_id\":\"{gpu}\",\"metrics\":{{}},\"timestamp\":\"2026-01-01T00:00:00Z\"");
    assert_eq!(text(dir.path(), "made-up.jsonl"), line("made-up") + ",\"simulated\":true}\n");
    assert_eq!(text(dir.path(), "measured.jsonl"), line("measured") + "}\n");
}

#[tokio::test]
async fn partial_rows_that_come_together_are_one_line_and_repeats_are_none() {
    let dir = tempfile::tempdir().unwrap();
    let jsonl = open(dir.path());
    let power = batch(&[("gpu_0", 0, &[("power_w", 1.0)]), ("gpu_0", 1, &[("power_w", 2.0)])]);
    let heat = batch(&[("gpu_0", 0, &[("temperature_c", 60.0)])]);
    jsonl.accept(vec![power.clone(), heat.clone()]).await.unwrap();
    jsonl.flush().await.unwrap();
    let line = |metrics: &str, second: i64| {
        format!(
            "{{\"gpu_id\":\"gpu_0\",\"metrics\":{{{metrics}}},\"timestamp\":\"2026-01-01T00:00:0{second}Z\"}}\n"
        )
    };
    let mut expected = line("\"power_w\":1.0,\"temperature_c\":60.0", 0) + &line("\"power_w\":2.0", 1);
    assert_eq!(text(dir.path(), "gpu_0.jsonl"), expected);

    // The same process and the next one see that they have it.
    for again in [power.clone(), heat.clone()] {
        jsonl.accept(vec![again]).await.unwrap();
        jsonl.flush().await.unwrap();
    }
    jsonl.close().await.unwrap();
    let jsonl = open(dir.path());
    jsonl.accept(vec![heat, power]).await.unwrap();
    jsonl.flush().await.unwrap();
    assert_eq!(text(dir.path(), "gpu_0.jsonl"), expected);
    let figures = String::from_utf8(render(&jsonl.families())).unwrap();
    assert!(figures.contains("gpuvitals_jsonl_repeats_total 2\n"), "{figures}");

    // A late row has a line, what a row has more a further one, and so has a value that is another.
    jsonl.accept(vec![batch(&[("gpu_0", -1, &[("power_w", 9.0)])])]).await.unwrap();
    jsonl.accept(vec![batch(&[("gpu_0", 1, &[("power_w", 2.0), ("temperature_c", 61.0)])])]).await.unwrap();
    jsonl.flush().await.unwrap();
    jsonl.accept(vec![batch(&[("gpu_0", 1, &[("power_w", 2.5)])])]).await.unwrap();
    jsonl.close().await.unwrap();
    expected += &line("\"power_w\":9.0", 0).replace("2026-01-01T00:00:00Z", "2025-12-31T23:59:59Z");
    expected += &(line("\"temperature_c\":61.0", 1) + &line("\"power_w\":2.5", 1));
    assert_eq!(text(dir.path(), "gpu_0.jsonl"), expected);
}

#[tokio::test]
async fn a_file_that_is_long_enough_gets_a_number_and_is_not_touched_again() {
    let dir = tempfile::tempdir().unwrap();
    let config = JsonlConfig { file_bytes: 230, ..JsonlConfig::new(dir.path()) };
    for restart in 0..3 {
        let (jsonl, _) = Jsonl::open(&config).unwrap();
        for second in restart * 4..restart * 4 + 4 {
            let values = [("power_w", f64::from(second))];
            jsonl.accept(vec![batch(&[("gpu_0", second.into(), &values)])]).await.unwrap();
        }
        // The rows of before, from full files.
        if restart > 0 {
            jsonl.accept(vec![batch(&[("gpu_0", 0, &[("power_w", 0.0)])])]).await.unwrap();
        }
        jsonl.close().await.unwrap();
    }
    // A line has 81 bytes or 82: three of them are long enough.
    assert_eq!(names(dir.path()).len(), 4);
    let mut kept = Kept::new();
    for number in 1..=4 {
        let lines = text(dir.path(), &format!("gpu_0~0000000{number}.jsonl"));
        assert_eq!(lines.lines().count(), 3);
        read(&mut kept, &lines);
    }
    assert_eq!(kept.len(), 12);
    // A number that was given is not given again, even if its file was packed.
    let [full, packed] =
        ["gpu_0~00000004.jsonl", "gpu_0~00000004.jsonl.gz"].map(|name| dir.path().join(name));
    fs::rename(full, packed).unwrap();
    let (jsonl, _) = Jsonl::open(&config).unwrap();
    let values = ("x", 1.0 / 3.0);
    jsonl
        .accept(vec![batch(&[("gpu_0", 20, &[values]), ("gpu_0", 21, &[values]), ("gpu_0", 22, &[values])])])
        .await
        .unwrap();
    jsonl.close().await.unwrap();
    assert!(dir.path().join("gpu_0~00000005.jsonl").exists(), "{:?}", names(dir.path()));
}

#[tokio::test]
async fn a_torn_last_line_is_removed_and_a_file_that_was_taken_away_begins_anew() {
    let dir = tempfile::tempdir().unwrap();
    let row = |second| batch(&[("gpu_0", second, &[("power_w", 7.0)])]);
    let jsonl = open(dir.path());
    jsonl.accept(vec![row(0)]).await.unwrap();
    jsonl.close().await.unwrap();
    let path = dir.path().join("gpu_0.jsonl");
    let whole = fs::read_to_string(&path).unwrap();
    fs::write(&path, format!("{whole}{{\"gpu_id\":\"gpu_0\",\"met")).unwrap();

    let jsonl = open(dir.path());
    jsonl.accept(vec![row(0), row(1)]).await.unwrap();
    jsonl.flush().await.unwrap();
    let both = format!("{whole}{}", whole.replace("00:00:00Z", "00:00:01Z"));
    assert_eq!(fs::read_to_string(&path).unwrap(), both);
    fs::remove_file(&path).unwrap();
    jsonl.accept(vec![row(2)]).await.unwrap();
    jsonl.close().await.unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), whole.replace("00:00:00Z", "00:00:02Z"));
}

#[tokio::test]
async fn a_directory_has_one_writer_and_a_closed_sink_takes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let config = JsonlConfig::new(dir.path());
    let jsonl = open(dir.path());
    assert!(matches!(Jsonl::open(&config), Err(JsonlError::Locked(_))));
    jsonl.close().await.unwrap();
    jsonl.close().await.unwrap();
    let row = || vec![batch(&[("gpu_0", 0, &[("power_w", 7.0)])])];
    assert!(matches!(jsonl.accept(row()).await, Err(SinkError::Closed)));
    let next = open(dir.path());
    next.accept(row()).await.unwrap();
}

#[tokio::test]
async fn rows_without_a_gpu_file_are_refused_and_those_of_other_tables_left_out_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let jsonl = open(dir.path());
    let long = "x".repeat(240);
    let refused = jsonl.accept(vec![batch(&[(&long, 0, &[("power_w", 7.0)])])]).await.unwrap_err();
    let SinkError::Refused(error) = &refused else { panic!("{refused:?}") };
    assert!(error.to_string().ends_with("would have 240 bytes, more than 228"), "{error}");

    let mut builder = BatchBuilder::new(Table::SystemEvents);
    let host = builder.intern(&Identity::default().with(IdentityColumn::Node, "node-1").unwrap());
    builder.row(1, host);
    jsonl.accept(vec![builder.finish(Origin::default(), 0).unwrap()]).await.unwrap();
    // Sums of holders, of which the later version stays: a line that is written stays whatever comes later, so they are in none.
    for version in [2, 1] {
        let mut builder = BatchBuilder::new(Table::GpuUsage);
        let gpu = builder.intern(&Identity::default().with(IdentityColumn::Uuid, "gpu_0").unwrap());
        let row = builder.row(1, gpu);
        for (column, text) in [("holder", "job:7"), ("share", "exclusive")] {
            builder.set_extra_text(row, column, text).unwrap();
        }
        for (column, number) in [("run", 1), ("as_of_ns", version)] {
            builder.set_extra(row, column, Value::Int(number)).unwrap();
        }
        jsonl.accept(vec![builder.finish(Origin::default(), 0).unwrap()]).await.unwrap();
    }
    jsonl.close().await.unwrap();
    assert_eq!(names(dir.path()), Vec::<String>::new());
    let figures = String::from_utf8(render(&jsonl.families())).unwrap();
    assert!(figures.contains("gpuvitals_jsonl_left_out_total{table=\"system_events\"} 1\n"), "{figures}");
    assert!(figures.contains("gpuvitals_jsonl_left_out_total{table=\"gpu_usage\"} 2\n"), "{figures}");
}

/// One text of 64 KiB that all rows have: the batch is small, its lines are not.
#[tokio::test]
async fn texts_are_written_for_each_row_and_a_batch_with_too_much_of_them_is_refused_before_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let jsonl = open(dir.path());
    let note = "n".repeat(64 << 10);
    let noted = |rows: i64| {
        let mut builder = BatchBuilder::new(Table::GpuEvents);
        let gpu = builder.intern(&Identity::default().with(IdentityColumn::Uuid, "gpu_0").unwrap());
        for row in 0..rows {
            let row = builder.row(START + row * SECOND, gpu);
            builder.set_extra_text(row, "note", &note).unwrap();
        }
        vec![builder.finish(Origin::default(), 0).unwrap()]
    };
    let refused = jsonl.accept(noted(1_025)).await.unwrap_err();
    let SinkError::Refused(error) = &refused else { panic!("{refused:?}") };
    assert!(error.to_string().ends_with("67174400 bytes of text, more than 67108864"), "{error}");
    jsonl.accept(noted(3)).await.unwrap();
    jsonl.close().await.unwrap();
    let lines = text(dir.path(), "gpu_0.jsonl");
    assert_eq!(lines.lines().filter(|line| line.contains(&format!(":{{\"note\":\"{note}\"}},"))).count(), 3);
}

#[tokio::test]
async fn more_gpus_than_files_may_be_open_are_all_written() {
    let dir = tempfile::tempdir().unwrap();
    let jsonl = open(dir.path());
    let gpus: Vec<String> = (0..1_500).map(|gpu| format!("GPU-{gpu:04}")).collect();
    for second in 0..2 {
        let rows: Vec<_> = gpus.iter().map(|gpu| (gpu.as_str(), second, [("power_w", 7.0)])).collect();
        let rows: Vec<_> =
            rows.iter().map(|(gpu, second, values)| (*gpu, *second, values.as_slice())).collect();
        jsonl.accept(vec![batch(&rows)]).await.unwrap();
        jsonl.flush().await.unwrap();
        let open = fs::read_dir("/proc/self/fd").unwrap().count();
        assert!(open < 600, "{open} files are open");
    }
    jsonl.close().await.unwrap();
    assert_eq!(names(dir.path()).len(), 1_500);
    assert!(gpus.iter().all(|gpu| text(dir.path(), &format!("{gpu}.jsonl")).lines().count() == 2));
}

#[tokio::test]
async fn a_file_that_cannot_be_written_degrades_and_memory_is_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let [files, log] = ["files", "log"].map(|name| FsDisk::open(dir.path().join(name)).unwrap());
    let config = JsonlConfig { pending_bytes: 32 << 10, ..JsonlConfig::new(dir.path()) };
    let (jsonl, _) = Jsonl::open_on(&config, files, log).unwrap();
    let obstacle = dir.path().join("files/gpu_0.jsonl");
    fs::create_dir(&obstacle).unwrap();
    let row = |second| {
        vec![batch(&[("gpu_0", second, &[("power_w", 7.0)]), ("gpu_1", second, &[("power_w", 7.0)])])]
    };
    let mut accepted = 0;
    let error = loop {
        match jsonl.accept(row(accepted)).await {
            Ok(()) => accepted += 1,
            Err(error) => break error,
        }
        drop(jsonl.flush().await);
    };
    assert!(
        matches!(&error, SinkError::Busy(error) if error.to_string().contains("memory is full")),
        "{error:?}"
    );
    let health = jsonl.health();
    assert_eq!(health.status, Status::Degraded);
    assert!(health.reason.starts_with("JSON lines are not written: cannot open gpu_0.jsonl"), "{health:?}");
    assert!(accepted > 3, "{accepted}");

    fs::remove_dir(&obstacle).unwrap();
    jsonl.flush().await.unwrap();
    assert_eq!(jsonl.health().status, Status::Healthy);
    jsonl.accept(row(accepted)).await.unwrap();
    jsonl.close().await.unwrap();
    for gpu in ["gpu_0", "gpu_1"] {
        let lines = text(&dir.path().join("files"), &format!("{gpu}.jsonl"));
        assert_eq!(i64::try_from(lines.lines().count()).unwrap(), accepted + 1);
        read(&mut Kept::new(), &lines);
    }
}

#[tokio::test]
async fn a_file_that_cannot_be_written_leaves_room_for_the_rows_of_other_gpus() {
    let dir = tempfile::tempdir().unwrap();
    let config = JsonlConfig { pending_bytes: 32 << 10, ..JsonlConfig::new(dir.path()) };
    let (mut jsonl, _) = Jsonl::open(&config).unwrap();
    let obstacle = dir.path().join("gpu_0.jsonl");
    fs::create_dir(&obstacle).unwrap();
    let row = |gpu, second| vec![batch(&[(gpu, second, &[("power_w", 7.0)])])];
    jsonl.accept(row("gpu_0", 0)).await.unwrap();
    // An accept takes at least 1 KiB of the 32.
    for second in 0..100 {
        jsonl.accept(row("gpu_1", second)).await.unwrap();
        jsonl.flush().await.unwrap_err();
    }
    assert_eq!(text(dir.path(), "gpu_1.jsonl").lines().count(), 100);
    // What opening anew has in memory is bounded, too, also over restarts.
    let mut accepted = 100;
    for _ in 0..8 {
        while jsonl.accept(row("gpu_1", accepted)).await.is_ok() {
            jsonl.flush().await.unwrap_err();
            accepted += 1;
        }
        // A row of one value takes 400 bytes or more.
        assert!(accepted < 8 * 32 * 1024 / 400, "{accepted}");
        drop(jsonl.close().await);
        jsonl = Jsonl::open(&config).unwrap().0;
        jsonl.flush().await.unwrap_err();
    }

    fs::remove_dir(&obstacle).unwrap();
    jsonl.flush().await.unwrap();
    jsonl.accept(row("gpu_1", accepted)).await.unwrap();
    jsonl.close().await.unwrap();
    for (gpu, lines) in [("gpu_0", 1), ("gpu_1", accepted + 1)] {
        let text = text(dir.path(), &format!("{gpu}.jsonl"));
        assert_eq!(i64::try_from(text.lines().count()).unwrap(), lines);
        read(&mut Kept::new(), &text);
    }
}
