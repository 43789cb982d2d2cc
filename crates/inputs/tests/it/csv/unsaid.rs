//! What a file's names do not say: units that stand elsewhere or nowhere, GPUs in names, names in cells.

use gpuvitals_inputs::csv::{CsvSource, Hints};
use gpuvitals_inputs::replay::Cause;

use super::logs::{hinted, read_with, refused};
use super::reading::{NOW, config, drain, reader, rows};

/// The first row of a text, without its time and source, and the notes about it.
fn first(text: &str) -> (String, Vec<String>) {
    let mut source = CsvSource::open(reader(text.as_bytes().to_vec()), config(), NOW).unwrap();
    let read = rows(&drain(&mut source));
    assert_eq!(source.counts().values_invalid, 0, "{text}");
    let row = read.first().map_or("", |row| row.split_once(' ').unwrap().1);
    (row.replace(" gpu=0 node=rows source=csv", ""), source.notes().to_vec())
}

fn said(columns: &[&str]) -> Hints {
    Hints { columns: columns.iter().map(|hint| hint.parse().unwrap()).collect(), ..Hints::default() }
}

/// Rows of a header and of cells, one a second.
fn table(names: &str, rows: &[&str]) -> String {
    let lines = rows.iter().enumerate().map(|(at, row)| format!("170000000{at},{row}\n"));
    format!("timestamp,{names}\n{}", lines.collect::<String>())
}

fn check(text: &str, row: &str, note: &str) {
    let (found, notes) = first(text);
    assert_eq!(found, row, "{text}");
    let is_said = if note.is_empty() { notes.is_empty() } else { notes.iter().any(|it| it.contains(note)) };
    assert!(is_said, "{text}: {notes:?}");
}

#[test]
fn numbers_tell_the_unit_that_nobody_writes() {
    let ratios = ["0.56,0.1,60", "0.33,0,61", "0.1,0.5,62", "1,0.1,63", "0.25,0.2,64"];
    check(
        &table("gpu_load,gpu_mem_util,temp", &ratios),
        "rows:gpu0 memory_utilization_pct=10 temperature_c=60 utilization_pct=56",
        "no number of column gpu_load is above 1",
    );
    // An idle GPU, too few rows, a written unit.
    check(&table("gpu_load", &["0.1", "0", "0.2", "0.1", "0.05"]), "rows:gpu0 utilization_pct=0.1", "");
    check(&table("gpu_load", &["0.5", "0.9"]), "rows:gpu0 utilization_pct=0.5", "");
    let written = ["0.56", "0.33", "0.1", "1", "0.25"];
    check(&table("gpu_load_pct", &written), "rows:gpu0 utilization_pct=0.56", "");
    check(
        &table("memory_used,memory_total", &["3.5,24.0", "8,24.0"]),
        "rows:gpu0 memory_total_mb=24576 memory_used_mb=3584",
        "the numbers of column memory_total are taken for GiB",
    );
    check(
        &table(
            "mem_total,mem_used,power,power_limit,clock_sm",
            &["25769803776,1048576000,241850,400000,1410"],
        ),
        "rows:gpu0 memory_total_mb=24576 memory_used_mb=1000 power_limit_w=400 power_w=241.85 sm_clock_mhz=1410",
        "the numbers of column power are taken for mW",
    );
    check(
        &table("memory_used,memory_total", &["3500,24576"]),
        "rows:gpu0 memory_total_mb=24576 memory_used_mb=3500",
        "",
    );
    check(&table("total_energy_consumption", &["1000000"]), "rows:gpu0 energy_mj=1000000", "taken for mJ");
    check(&table("total_energy_consumption", &["1000.5"]), "rows:gpu0 energy_mj=1000500", "");
    assert!(
        refused(&table("power", &["-5", "-6"]))
            .contains("power (unknown: 2 of its first 2 values cannot be true")
    );
    // A glitch is none of another unit.
    let (row, notes) = {
        let text = table("gpu,memory_used", &["0,100", "0,100500000000", "0,100"]);
        let mut source = CsvSource::open(reader(text.into_bytes()), config(), NOW).unwrap();
        (rows(&drain(&mut source))[0].clone(), source.notes().to_vec())
    };
    assert!(row.contains("memory_used_mb=100 ") && notes.is_empty(), "{row} {notes:?}");
}

#[test]
fn clocks_in_gigahertz_and_voltages_in_volts_are_told_by_their_fractions() {
    check(&table("sm_clock", &["1.41", "1.38"]), "rows:gpu0 sm_clock_mhz=1410", "taken for GHz");
    check(&table("gpu_voltage", &["0.712", "0.8"]), "rows:gpu0 voltage_gfx_mv=712", "taken for V");
    check(&table("sm_clock,power_w", &["5,60"]), "rows:gpu0 power_w=60 sm_clock_mhz=5", "");
    check(&table("persistence_mode", &["On", "Off"]), "rows:gpu0 persistence_mode=1", "");
}

#[test]
fn cells_and_a_line_below_the_names_tell_the_unit() {
    check(
        "timestamp,gpu,memory_used,power\n[s],[-],[GB],[mW]\n1700000000,0,1.5,2908\n[s],[-],[GB],[mW]\n",
        "rows:gpu0 memory_used_mb=1536 power_w=2.908",
        "the line below the names has their units",
    );
    let hinted_unit = read_with(
        reader(b"timestamp,gpu,board\n,,mW\n1700000000,0,2908\n".to_vec()),
        hinted(said(&["board=power_w:mW"])),
    );
    assert!(hinted_unit.0[0].contains("power_w=2.908"), "{hinted_unit:?}");
    check(&table("vram", &["3.5 GiB", "512MiB"]), "rows:gpu0 memory_used_mb=3584", "");
    check(&table("memory_used", &["1.5G", "512M", "1572864K"]), "rows:gpu0 memory_used_mb=1536", "");
    check(&table("vram", &["4485M", "4486M"]), "rows:gpu0 memory_used_mb=4485", "");
    check(&table("mem", &["58%", "60%"]), "rows:gpu0 memory_used_pct=58", "");
    check(
        &table("power,memory", &["60W / 350W,4485MiB / 24576MiB"]),
        "rows:gpu0 memory_total_mb=24576 memory_used_mb=4485 power_limit_w=350 power_w=60",
        "",
    );
    check(&table("memory", &["4.5/24 GB"]), "rows:gpu0 memory_total_mb=24576 memory_used_mb=4608", "");
}

#[test]
fn numbers_are_read_behind_blanks_and_with_thousands_parted() {
    check(
        "timestamp; power_w; memory_used\n2023-11-14 22:13:20; 251,24; 1 432\n2023-11-14 22:13:21; 139,38 W; 12 500\n",
        "rows:gpu0 memory_used_mb=1432 power_w=251.24",
        "decimal comma",
    );
    check(
        &table("memory_used,power_w", &["6'162,1 432.5 W"]),
        "rows:gpu0 memory_used_mb=6162 power_w=1432.5",
        "",
    );
    check(&table("memory_used", &["12\u{202f}345 MiB"]), "rows:gpu0 memory_used_mb=12345", "");
}

#[test]
fn a_file_of_a_cpu_has_no_gpu_that_nothing_names() {
    let text = table("cpu_usage,temp,power,memory_used_mb", &["87,42,224.5,3544"]);
    check(&text, "host cpu_pct=87 memory_mb=3544 node=rows source=csv power=224.5 temp=42", "");
    check(
        &table("cpu_usage,gpu_util,power", &["87,42,224.5"]),
        "rows:gpu0 power_w=224.5 utilization_pct=42",
        "",
    );
    // PyTorch's own count is neither the host's memory nor a GPU's.
    assert!(
        refused("timestamp,step,allocated_gb,reserved_gb\n1700000000,1,2.5,3\n")
            .contains("no column has a metric")
    );
}

#[test]
fn the_processes_of_a_gpu_are_put_together() {
    let text = "timestamp, gpu_uuid, pid, process_name, used_gpu_memory [MiB]\n\
                2025/03/21 02:06:00.100, GPU-a, 1000, python, 1000 MiB\n\
                2025/03/21 02:06:00.101, GPU-a, 1001, python, 2000 MiB\n\
                2025/03/21 02:06:00.102, GPU-b, 1002, python, 500 MiB\n\
                2025/03/21 02:06:01.100, GPU-a, 1000, python, 1000 MiB\n";
    let mut source = CsvSource::open(reader(text.as_bytes().to_vec()), config(), NOW).unwrap();
    assert_eq!(
        rows(&drain(&mut source)),
        [
            "2025-03-21T02:06:00.1Z GPU-a memory_used_mb=3000 source=csv",
            "2025-03-21T02:06:00.102Z GPU-b memory_used_mb=500 source=csv",
            "2025-03-21T02:06:01.1Z GPU-a memory_used_mb=1000 source=csv",
        ]
    );
    assert!(source.notes().iter().any(|note| note.contains("sum of its processes")));
}

#[test]
fn names_in_cells_have_a_gpu_or_labels() {
    let read = |text: &str| {
        rows(&drain(&mut CsvSource::open(reader(text.as_bytes().to_vec()), config(), NOW).unwrap()))
    };
    assert_eq!(
        read("time,gpu,variable,value\n1700000000,0,power_w,100\n1700000000,0,temp,50\n"),
        ["2023-11-14T22:13:20Z rows:gpu0 power_w=100 temperature_c=50 gpu=0 node=rows source=csv"]
    );
    assert_eq!(
        read("time,sensor,value,unit\n1700000000,GPU1 Temp,50,degrees C\n1700000000,GPU1 Power,200,Watts\n"),
        ["2023-11-14T22:13:20Z rows:gpu1 power_w=200 temperature_c=50 gpu=1 node=rows source=csv"]
    );
    let mlflow = "metric,timestamp,value\nsystem/gpu_0_power_usage_watts,1700000000000,100\n\
                  system/gpu_1_power_usage_watts,1700000000000,200\nsystem/cpu_utilization_percentage,1700000000000,7\n";
    assert_eq!(
        read(mlflow),
        [
            "2023-11-14T22:13:20Z rows:gpu0 power_w=100 gpu=0 node=rows source=csv",
            "2023-11-14T22:13:20Z rows:gpu1 power_w=200 gpu=1 node=rows source=csv",
            "2023-11-14T22:13:20Z host cpu_pct=7 node=rows source=csv",
        ]
    );
    let amd = "gpu_clock{gpu_id=\"0\",clock_type=\"GPU_CLOCK_TYPE_SYSTEM\",clock_index=\"0\",card_model=\"MI300X\",hostname=\"a\"} 1500 1700000000000\n\
               gpu_clock{gpu_id=\"0\",clock_type=\"system\",clock_index=\"1\",card_model=\"MI300X\",hostname=\"a\"} 900 1700000000000\n\
               gpu_clock{gpu_id=\"0\",clock_type=\"memory\",clock_index=\"8\",card_model=\"MI300X\",hostname=\"a\"} 1292 1700000000000\n\
               gpu_energy_consumed{gpu_id=\"0\",card_model=\"MI300X\",hostname=\"a\"} 5e6 1700000000000\n";
    assert_eq!(
        read(amd),
        [
            "2023-11-14T22:13:20Z a:gpu0 energy_mj=5000 gpu_clock_mhz=1500 mem_clock_mhz=1292 gpu=0 model=MI300X node=a \
             source=csv vendor=amd"
        ]
    );
    let source = CsvSource::open(reader(amd.as_bytes().to_vec()), config(), NOW).unwrap();
    let metrics = source.description().metrics;
    let said: Vec<_> = metrics.iter().map(|it| (it.name.as_str(), it.column.as_deref().unwrap())).collect();
    assert_eq!(
        said,
        [
            ("gpu_clock_system", "gpu_clock_mhz"),
            ("gpu_clock_memory", "mem_clock_mhz"),
            ("gpu_energy_consumed", "energy_mj"),
        ]
    );
}

#[test]
fn a_scrape_whose_labels_name_no_gpu_is_of_one_and_what_nobody_knows_is_none_of_a_gpus() {
    let text = "# TYPE gpu_temp_celsius gauge\ngpu_temp_celsius 45\ngpu_util{kind=\"all\"} 7\n";
    let (read, skipped) = read_with(reader(text.as_bytes().to_vec()), config());
    assert_eq!(skipped, 0);
    assert!(read[0].contains(" rows:gpu0 temperature_c=45 utilization_pct=7 "), "{read:?}");
    let hints = Hints { gpu: Some("left".to_owned()), ..Hints::default() };
    let (read, _) = read_with(reader(text.as_bytes().to_vec()), hinted(hints));
    assert!(read[0].contains(" left"), "{read:?}");
    // What may tell several GPUs apart is not taken for one.
    for labels in [["{device=\"0\"}", "{device=\"1\"}"], ["{slot=\"a\"}", "{slot=\"b\"}"]] {
        let [one, other] = labels;
        let text = format!("gpu_temp_celsius{one} 45\ngpu_temp_celsius{other} 46\n");
        let (read, skipped) = read_with(reader(text.into_bytes()), config());
        assert_eq!((read.len(), skipped), (0, 2), "{labels:?}: {read:?}");
    }
    let text = "gpu_temp_celsius{gpu=\"0\"} 45\ngo_goroutines 12\ngo_threads 7\nprocess_open_fds 9\ngpu_power_watts 100\n";
    let mut source = CsvSource::open(reader(text.as_bytes().to_vec()), config(), NOW).unwrap();
    assert_eq!(rows(&drain(&mut source)).len(), 1);
    let counts = source.counts();
    let of = |cause: Cause| counts.skipped(cause);
    assert_eq!((of(Cause::NoValue), of(Cause::Identity)), (3, 1));
    let reports: Vec<String> = source.drain_reports().iter().map(ToString::to_string).collect();
    assert!(
        reports.iter().any(|it| it.contains("no metric is known by the name go_goroutines")),
        "{reports:?}"
    );
}

#[test]
fn values_of_a_long_form_are_in_the_unit_beside_them() {
    let text = "time,gpu,metric,unit,value\n1700000000,0,power,mW,100000\n1700000000,0,mem_used,GiB,1.5\n\
                1700000000,0,energy,mJ,5e6\n1700000000,0,temp,F,113\n1700000000,0,fan_speed,,30\n\
                1700000000,0,DCGM_FI_DEV_FB_FREE,MB,7\n1700000001,0,temp,F,114\n1700000001,0,power,mW,100500\n";
    let mut source = CsvSource::open(reader(text.as_bytes().to_vec()), config(), NOW).unwrap();
    assert_eq!(
        rows(&drain(&mut source)),
        [
            "2023-11-14T22:13:20Z rows:gpu0 energy_mj=5000000 fan_speed_pct=30 memory_free_mb=7 memory_used_mb=1536 \
             power_w=100 gpu=0 node=rows source=csv temp=113",
            "2023-11-14T22:13:21Z rows:gpu0 power_w=100.5 gpu=0 node=rows source=csv temp=114",
        ]
    );
    let description = source.description();
    let unit = description.columns.iter().find(|column| column.name == "unit").unwrap();
    assert_eq!(unit.role, "unit");
    let power = description.metrics.iter().find(|metric| metric.name == "power").unwrap();
    assert_eq!((power.file_unit.as_deref(), power.factor), (Some("mW"), Some(0.001)));
    assert!(
        description.remarks.iter().any(|it| it.contains("temp is kept under its own name")),
        "{description:?}"
    );
    // Also of numbers whose thousands commas part.
    let parted = "time,gpu,metric,value,unit\n1700000000,0,power,\"100,500\",mW\n1700000000,0,memory_used,\"83,886,080\",KiB\n\
                  1700000001,0,power,\"1,234.5\",mW\n";
    let mut source = CsvSource::open(reader(parted.as_bytes().to_vec()), config(), NOW).unwrap();
    assert_eq!(
        rows(&drain(&mut source)),
        [
            "2023-11-14T22:13:20Z rows:gpu0 memory_used_mb=81920 power_w=100.5 gpu=0 node=rows source=csv",
            "2023-11-14T22:13:21Z rows:gpu0 power_w=1.2345 gpu=0 node=rows source=csv",
        ]
    );
    // The wide form may have a column of that name.
    let wide = "time,gpu,unit,power_w\n1700000000,0,left,100\n";
    assert!(first(wide).0.contains("unit=left"), "{:?}", first(wide));
}

#[test]
fn headers_have_a_gpu_or_labels() {
    let grafana = "Time,\"DCGM_FI_DEV_POWER_USAGE{gpu=\"\"0\"\", Hostname=\"\"n1\"\"}\",\"DCGM_FI_DEV_POWER_USAGE{gpu=\"\"0\"\", Hostname=\"\"n2\"\"}\"\n\
                   1700000000,515 W,594 W\n";
    let read =
        rows(&drain(&mut CsvSource::open(reader(grafana.as_bytes().to_vec()), config(), NOW).unwrap()));
    assert_eq!(
        read,
        [
            "2023-11-14T22:13:20Z n1:gpu0 power_w=515 gpu=0 node=n1 source=csv",
            "2023-11-14T22:13:20Z n2:gpu0 power_w=594 gpu=0 node=n2 source=csv",
        ]
    );
    let hints = hinted(said(&["GPU 0=power_w", "GPU 1=power_w"]));
    let (read, _) = read_with(reader(b"Time,GPU 0,GPU 1\n1700000000,44,41\n".to_vec()), hints);
    assert!(read[0].contains("gpu0 power_w=44") && read[1].contains("gpu1 power_w=41"), "{read:?}");
}
