//! What a file does not say, or says in another way: whose rows these are, when they were, where the table begins.

use gpuvitals_inputs::csv::{CsvInput, CsvSource, Hints};
use gpuvitals_inputs::replay::{Replay, ReplayConfig, ReplaySource};

use super::logs::{hinted, read_with, refused};
use super::reading::{NOW, POLLS_MAX, config, drain, open, reader, rows};

/// The rows of a text, each without its source.
fn read(text: &str) -> Vec<String> {
    read_with(reader(text.as_bytes().to_vec()), config()).0
}

/// Time of day, GPU and the rest of each row, from the beginning.
fn owners(text: &str) -> Vec<String> {
    let of = |row: &String| row.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut owners: Vec<String> = read(text).iter().map(of).collect();
    owners.sort();
    owners.dedup();
    owners
}

/// A file of that name, as one that can be read again.
fn file(folder: &tempfile::TempDir, name: &str, text: &str) -> std::path::PathBuf {
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    path
}

fn remarks(text: &str) -> String {
    let source = open(text);
    [source.warnings(), source.notes()].concat().join("; ")
}

#[test]
fn comments_are_no_table_of_a_tool() {
    for comments in [
        "# box log\n# started by alice\n",
        "#log\n#second\n#third\n",
        "# gpu log\n# gpu: RTX 3090, driver 550\n",
    ] {
        let text = format!("{comments}timestamp,power_w\n2025-03-21 02:06:50,155\n");
        assert_eq!(read(&text), ["2025-03-21T02:06:50Z rows:gpu0 power_w=155 gpu=0 node=rows"], "{comments}");
    }
}

#[test]
fn a_file_without_a_column_for_the_gpu_is_of_the_gpu_in_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let text = |power: u32| {
        format!(
            "timestamp, name, power.draw [W]\n2025/03/21 02:06:00.1, RTX, {power}\n2025/03/21 02:06:01.1, RTX, {power}\n"
        )
    };
    let paths = [0, 1].map(|gpu| file(&folder, &format!("power_gpu{gpu}.csv"), &text(gpu)));
    let hints = Hints { usual_host: Some("run".to_owned()), ..config().hints };
    let of = |paths: &[std::path::PathBuf]| {
        let mut source = ReplaySource::open_all(paths, hinted(hints.clone()), NOW)?;
        let mut found = Vec::new();
        for _ in 0..POLLS_MAX {
            match gpuvitals_core::ports::Source::poll(&mut source, NOW)? {
                gpuvitals_core::ports::Poll::Ready(batch) => found.extend(rows(&[batch])),
                gpuvitals_core::ports::Poll::NotBefore(_) => {}
                gpuvitals_core::ports::Poll::End => {
                    return Ok::<_, gpuvitals_inputs::replay::ReplayError>(found);
                }
            }
        }
        panic!("the end of the input never came");
    };
    let found = of(&paths).unwrap();
    assert_eq!(found.iter().filter(|row| row.contains(" run:gpu0 ")).count(), 2, "{found:?}");
    assert_eq!(found.iter().filter(|row| row.contains(" run:gpu1 ")).count(), 2, "{found:?}");
    // Two files of one GPU and time would replace each other's rows; what goes on with a log does not, nor what adds to it.
    let same = [file(&folder, "a.csv", &text(1)), file(&folder, "b.csv", &text(2))];
    let error = of(&same).unwrap_err().to_string();
    assert!(error.contains("the same GPU (RTX@run)") && error.contains("--gpu"), "{error}");
    let later = file(&folder, "c.csv", &text(1).replace("02:06", "02:07"));
    let other = file(&folder, "d.csv", &text(1).replace("power.draw [W]", "temperature.gpu"));
    assert_eq!(of(&[same[0].clone(), later, other]).unwrap().len(), 6);
}

#[test]
fn memory_beside_what_only_a_host_has_is_the_hosts() {
    let folder = tempfile::tempdir().unwrap();
    let text = "timestamp,mem_total_mb,mem_used_mb,mem_available_mb,mem_cached_mb\n1752871354,2014000,45000,1969000,7\n";
    let (rows, _) = read_with(file(&folder, "memory.csv", text), config());
    let expected =
        " host host_memory_available_mb=1969000 host_memory_total_mb=2014000 memory_mb=45000 node=memory ";
    assert!(rows.len() == 1 && rows[0].contains(expected), "{rows:?}");
    // Alone it may be a GPU's.
    let text = "timestamp,mem_total_mb,mem_used_mb\n1752871354,81920,45000\n";
    let (rows, _) = read_with(file(&folder, "mem.csv", text), config());
    assert!(rows[0].contains(" mem:gpu0 memory_total_mb=81920 memory_used_mb=45000 "), "{rows:?}");
}

#[test]
fn a_name_that_says_too_little_is_understood_after_the_files() {
    let folder = tempfile::tempdir().unwrap();
    for (name, columns, cells, expected) in [
        (
            "gpu_temp.csv",
            "edge,junction,memory",
            "50,55,60",
            "temperature_c=50 temperature_edge_c=50 temperature_junction_c=55 temperature_memory_c=60",
        ),
        ("vram.csv", "total,used", "206141652992,297771008", "memory_total_mb=196592 memory_used_mb=284"),
        ("gpu_usage.csv", "usage_percent,note", "50,7", "utilization_pct=50"),
    ] {
        let stem = name.trim_end_matches(".csv");
        let text =
            format!("timestamp,device,{columns}\n1752871354,card0,{cells}\n1752871355,card0,{cells}\n");
        let (rows, _) = read_with(file(&folder, name, &text), config());
        assert!(rows[0].contains(&format!(" card0@{stem} {expected}")), "{name}: {rows:?}");
    }
    let text = "timestamp,device,edge\n1752871354,card0,50\n";
    assert!(read(text)[0].contains("edge=50"), "{:?}", read(text));
    let text = "timestamp,device,cpu_percent,load,power_w\n1752871354,card0,7,12,100\n";
    let (rows, _) = read_with(file(&folder, "gpu_stats.csv", text), config());
    let has = |part: &str| rows.iter().any(|row| row.contains(part));
    assert!(has(" load=12") && !has("utilization_pct"), "{rows:?}");
}

#[test]
fn a_gpu_that_is_called_by_its_model_is_of_its_host() {
    let named = |gpu: &str| owners(&format!("timestamp,gpu,power_w\n1752871354,{gpu},100\n"))[0].clone();
    for (gpu, name) in [
        ("RTX 4090", "RTX_4090@rows"),
        ("A100", "A100@rows"),
        ("V100", "V100@rows"),
        ("T4", "T4@rows"),
        ("A10G", "A10G@rows"),
        ("gfx90a", "gfx90a@rows"),
        ("Arc A770", "Arc_A770@rows"),
        ("BR104 of tomorrow", "BR104_of_tomorrow@rows"),
        ("GPU 0: Tesla V100", "rows:gpu0"),
        ("0x1a2b3c4d5e6f7788", "0x1a2b3c4d5e6f7788"),
        ("left", "left"),
    ] {
        assert_eq!(named(gpu), name, "{gpu}");
    }
    let twice =
        "timestamp,gpu,id,power_w\n1752871354,A100,0,100\n1752871354,A100,1,200\n1752871355,A100,0,100\n";
    assert_eq!(owners(twice), ["rows:gpu0", "rows:gpu1"]);
    assert!(read(twice)[0].contains("model=A100"), "{:?}", read(twice));
    let numbered = read("timestamp,gpu,power_w\n1752871354,GPU 3: Tesla V100,100\n");
    assert!(numbered[0].contains("rows:gpu3 ") && numbered[0].contains("model=Tesla V100"), "{numbered:?}");
}

#[test]
fn other_names_of_the_gpu_and_the_host_are_known() {
    for name in [
        "DeviceId",
        "gpuId",
        "GPU#",
        "gpu_idx",
        "device_idx",
        "dev",
        "physical_gpu",
        "local_rank",
        "rank",
        "gpu_bus",
        "card_id",
        "gpunum",
        "minor",
        "serial",
    ] {
        let text = format!("timestamp,{name},power_w\n1752871354,0,1\n1752871354,1,2\n1752871355,0,3\n");
        assert_eq!(owners(&text), ["rows:gpu0", "rows:gpu1"], "{name}");
    }
    for name in [
        "server",
        "machine",
        "machineId",
        "instance",
        "InstanceId",
        "ip",
        "worker",
        "node_id",
        "ComputerName",
    ] {
        let text = format!("timestamp,{name},gpu,power_w\n1752871354,a,0,1\n1752871354,b,0,2\n");
        assert_eq!(owners(&text), ["a:gpu0", "b:gpu0"], "{name}");
    }
    for name in ["bus", "pcie_bus", "PCIe_Bus_ID"] {
        let text = format!("timestamp,{name},power_w\n1752871354,00000000:3B:00.0,1\n");
        assert_eq!(owners(&text), ["0000:3b:00.0@rows"], "{name}");
    }
    for name in ["JobID", "job_id", "SLURM_JOB_ID"] {
        let text = format!("timestamp,gpu,{name},power_w\n1752871354,0,77,1\n");
        assert!(read(&text)[0].contains("job=77"), "{name}: {:?}", read(&text));
    }
    // A column that not each row has, or that has a better one beside it, names none.
    assert_eq!(owners("timestamp,serial,power_w\n1752871354,N/A,1\n1752871355,N/A,2\n"), ["rows:gpu0"]);
    assert_eq!(owners("timestamp,hostname,server,gpu,power_w\n1752871354,h,x,0,1\n"), ["h:gpu0"]);
    // A name that nobody knows is told by the rows.
    let text = "timestamp,slot,gpu,power_w\n1752871354,x,0,1\n1752871354,y,0,2\n1752871355,x,0,1\n1752871355,y,0,2\n";
    assert!(
        remarks(text).contains("2 of the first 4 rows") && remarks(text).contains("--column \"slot=gpu\""),
        "{}",
        remarks(text)
    );
}

#[test]
fn numbers_that_do_not_count_from_1970_are_no_times() {
    let of = |name: &str, values: &[&str]| {
        let rows = values.iter().map(|value| format!("{value},100\n")).collect::<Vec<_>>().concat();
        format!("{name},power_w\n{rows}")
    };
    for (name, values, why) in [
        ("timestamp", ["123456789000000", "123457789000000"].as_slice(), "since the log began"),
        ("timestamp", &["0", "1000000000", "2000000000", "3000000000"], "since the log began"),
        ("timestamp", &["45737.088100", "45737.088112"], "an Excel date"),
        ("time", &["45737,0881", "45737,0882"], "an Excel date"),
        ("t", &["0.000", "0.250", "0.500"], "since the log began"),
        ("t_s", &["0.0", "0.2"], "since the log began"),
        ("seconds", &["0", "1"], "since the log began"),
        ("sec", &["1", "2"], "since the log began"),
    ] {
        let text = of(name, values)
            .replace("45737,", "\"45737,")
            .replace("81,100", "81\",100")
            .replace("82,100", "82\",100");
        let error = refused(&text);
        assert!(error.contains(why), "{text}: {error}");
    }
    let windows = read(&of("timestamp", &["133869964100000000", "133869964110000000"]));
    assert!(windows[1].starts_with("2025-03-21T02:06:51Z"), "{windows:?}");
    // The same names may be of something else, or of a time.
    assert!(
        remarks("epoch,start_time,gpu,power_w\nN/A,2025-07-18 20:42:34,0,1\nN/A,2025-07-18 20:42:35,0,2\n")
            .contains("start_time is taken for the time")
    );
    assert!(remarks("epoch,step,power_w\n0,1,1\n0,2,2\n1,3,3\n").contains("no column is a time"));
    for text in
        ["timestamp,t,power_w\n1752871354,45,1\n1752871355,47,2\n", "t,power_w\n1752871354,1\n1752871355,2\n"]
    {
        assert!(read(text)[1].starts_with("2025-07-18T20:42:35Z"), "{text}");
    }
    let shifted = ReplayConfig { replay: Replay::Shifted, ..config() };
    let (rows, _) = read_with(reader(of("t", &["0", "0.25"]).into_bytes()), shifted);
    assert!(rows[1].starts_with("2026-11-20T12:00:00.25Z"), "{rows:?}");
}

#[test]
fn rows_of_one_minute_are_refused_and_those_of_one_second_spread() {
    let minutes = "timestamp;utilization.gpu [%];power.draw [W]\n21.03.2025 02:06;41 %;193,68 W\n21.03.2025 02:06;46 %;70,75 W\n21.03.2025 02:07;46 %;71,75 W\n";
    assert!(refused(minutes).contains("a time to the minute"), "{}", refused(minutes));
    let seconds = (0..20)
        .map(|row| format!("2025-03-21 02:06:{:02},{},{row}\n", row / 8, row % 2))
        .collect::<Vec<_>>()
        .concat();
    let found = read(&format!("timestamp,gpu,power_w\n{seconds}"));
    let times: Vec<&str> =
        found.iter().filter(|row| row.contains(":gpu1 ")).map(|row| row.split(' ').next().unwrap()).collect();
    assert_eq!(
        times[..5],
        [
            "2025-03-21T02:06:00Z",
            "2025-03-21T02:06:00.25Z",
            "2025-03-21T02:06:00.5Z",
            "2025-03-21T02:06:00.75Z",
            "2025-03-21T02:06:01Z"
        ]
    );
    assert!(remarks(&format!("timestamp,gpu,power_w\n{seconds}")).contains("up to 4 rows of a GPU"));
    // Without a column of the GPU they may be of several.
    let untold = "timestamp,power_w\n2025-03-21 02:06:01,100\n2025-03-21 02:06:01,200\n2025-03-21 02:06:02,101\n2025-03-21 02:06:02,201\n";
    assert_eq!(read(untold).iter().filter(|row| row.starts_with("2025-03-21T02:06:01Z")).count(), 2);
    assert!(remarks(untold).contains("2 of the first 4 rows have the GPU and time"), "{}", remarks(untold));
}

#[test]
fn messages_among_rows_say_nothing_about_the_columns() {
    let lost = "Unable to determine the device handle for GPU 0000:01:00.0: Unknown Error\n".repeat(3);
    let rows = (0..9)
        .map(|row| format!("{row} %, 100 W, 2025/03/21 02:06:0{row}.123\n"))
        .collect::<Vec<_>>()
        .concat();
    let text = format!("utilization.gpu [%], power.draw [W], timestamp\n{rows}{lost}{rows}");
    let (read, skipped) = read_with(reader(text.into_bytes()), config());
    assert_eq!((read.len(), skipped), (18, 3));
    assert!(read[1].contains("utilization_pct=1"), "{read:?}");
}

#[test]
fn another_header_settles_the_columns_anew() {
    let text = "timestamp,gpu,utilization,power_w\n1752871354,0,7,100\n1752871355,0,8,101\n\
                timestamp,gpu,power_w,temperature\n1752871356,0,102,50\n1752871357,0,103,51\n";
    let mut source = open(text);
    let found = rows(&drain(&mut source));
    let rest: Vec<&str> =
        found.iter().filter_map(|row| row.split_once(":gpu0 ")).map(|(_, rest)| rest).collect();
    assert_eq!(
        rest,
        [
            "power_w=100 utilization_pct=7 gpu=0 node=rows source=csv",
            "power_w=101 utilization_pct=8 gpu=0 node=rows source=csv",
            "power_w=102 temperature_c=50 gpu=0 node=rows source=csv",
            "power_w=103 temperature_c=51 gpu=0 node=rows source=csv",
        ]
    );
    assert_eq!(source.counts().rows_skipped(), 0);
    let reports = source.drain_reports();
    assert!(reports.iter().any(|it| it.line == 4 && it.reason.starts_with("another header")), "{reports:?}");
}

#[test]
fn a_language_model_and_its_temperature_are_none_of_a_gpu() {
    let text =
        "timestamp,model,temperature,power_w\n1752871354,llama3:8b,0.7,37\n1752871355,mistral-7b,0.9,38\n";
    assert_eq!(owners(text), ["rows:gpu0"]);
    assert!(read(text)[0].contains("model_2=llama3:8b temperature=0.7"), "{:?}", read(text));
    assert!(remarks(text).contains("no GPU's temperature"), "{}", remarks(text));
    let gpu = "timestamp,model,temperature,power_w\n1752871354,Tesla T4,40,37\n";
    assert_eq!(owners(gpu), ["Tesla_T4@rows"]);
}

#[test]
fn a_name_beside_the_number_of_a_process_is_no_model() {
    let of = |name: &str| read(&format!("timestamp,gpu,name,pid,gpu_util\n1752871354,0,{name},12,7\n"));
    assert!(
        of("python")[0].contains("name=python") && !of("python")[0].contains("model="),
        "{:?}",
        of("python")
    );
    assert!(of("NVIDIA A100")[0].contains("model=NVIDIA A100"), "{:?}", of("NVIDIA A100"));
}

#[test]
fn gpus_in_turn_without_a_name_are_said() {
    let rows = (0..12)
        .map(|row| format!("2025-03-21 02:06:{:02}.10{},{}\n", row / 2, row % 2, row))
        .collect::<Vec<_>>()
        .concat();
    let text = format!("timestamp,power_w\n{rows}");
    assert!(remarks(&text).contains("look like 2 GPUs in turn"), "{}", remarks(&text));
}

#[test]
fn columns_that_come_again_are_of_the_next_gpu() {
    let head = "Date,Time,\"GPU Temperature [°C]\",\"GPU Clock [MHz]\",\"GPU Temperature [°C]\",\"GPU Power [W]\",\"GPU Clock [MHz]\"\n";
    let row = "9.6.2025,12:00:00.000,41,600,71,320.5,2505\n";
    let last = ",,\"GPU [#0]: AMD Radeon\",\"GPU [#0]: AMD Radeon\",\"GPU [#1]: RTX\",\"GPU [#1]: RTX\",\"GPU [#1]: RTX\"\n";
    for (text, is_guess) in [(format!("{head}{row}{row}{last}"), false), (format!("{head}{row}"), true)] {
        let found = read(&text);
        assert!(
            found[0].contains(":gpu0 ") && found[0].contains("gpu_clock_mhz=600 temperature_c=41"),
            "{found:?}"
        );
        let second = found.iter().find(|row| row.contains(":gpu1 ")).unwrap();
        assert!(second.contains("gpu_clock_mhz=2505 power_w=320.5 temperature_c=71"), "{found:?}");
        assert_eq!(remarks(&text).contains("are taken for GPU 1"), is_guess, "{}", remarks(&text));
    }
}

#[test]
fn a_table_may_begin_behind_lines_about_the_machine() {
    let rows = (0..9)
        .map(|row| format!("58.08,16.6,{row},59,2025-03-21 02:06:0{row}\n"))
        .collect::<Vec<_>>()
        .concat();
    let text = format!(
        "os,cpu,gpu\nSteamOS,AMD Custom APU 0405,AMD Custom GPU 0405\nfps,frametime,gpu_load,gpu_temp,timestamp\n{rows}"
    );
    let (read, skipped) = read_with(reader(text.clone().into_bytes()), config());
    assert_eq!((read.len(), skipped), (9, 0));
    assert!(read[1].contains("temperature_c=59 utilization_pct=1"), "{read:?}");
    assert!(remarks(&text).contains("in line 3"), "{}", remarks(&text));
}

#[test]
fn several_lines_without_fields_before_the_names_are_titles() {
    let table = "time,gpu,power_w\n1752871354,0,100\n1752871355,0,101\n";
    for title in
        ["", "Logger 1.0\n", "Logger 1.0\nStarted 2025-07-18\n\n", "Logger\n\nNode: n1 | 8 GPUs\n# x, y\n\n"]
    {
        let rows = read(&format!("{title}{table}"));
        assert_eq!(rows.len(), 2, "{title}: {rows:?}");
        assert!(rows[1].ends_with("rows:gpu0 power_w=101 gpu=0 node=rows"), "{title}: {rows:?}");
    }
    // One column of numbers, some with a comma.
    assert_eq!(read("gpu_power_w\n100\n99\n\"1,250\"\n").len(), 3);
}

#[test]
fn what_cannot_be_read_says_what_to_do() {
    for (text, what) in [
        ("<?xml version=\"1.0\" ?>\n<nvidia_smi_log>\n", "--query-gpu"),
        (
            "TIMESTAMP  GPU  XCP  POWER  PWR_CAP\n1786038263    0    0  311 W    750 W\n",
            "amd-smi monitor --csv",
        ),
        ("RAM 2016/7782MB (lfb 148x4MB) SWAP 0/3891MB CPU [3%@1400,off] GR3D_FREQ 0%@1100\n", "jtop"),
        ("00, 21-03-2025 02:06:50, Hardware monitoring log v1.6 \n01, x\n", "MSI Afterburner"),
        ("Time,12-23-2020 10:21:00.507,Watts,36.040000,Volts,228.233000,Amps,0.2\n", "MLPerf"),
        (",/amdcpu/0/load/0,/nvidiagpu/0/load/0\nTime,\"CPU Total\",\"GPU Core\"\n", "OpenHardwareMonitor"),
        (
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n",
            "reached no driver",
        ),
        ("No devices were found\n", "found no GPU"),
    ] {
        let error = refused(text);
        assert!(error.contains(what), "{text}: {error}");
    }
    for (bytes, what) in [
        (b"PK\x03\x04\x14\0\x06\0\x08\0[Content_Types].xml".as_slice(), "export its sheet as CSV"),
        (b"PK\x03\x04\x14\0\x06\0\x08\0log.csv", "a zip archive"),
        (b"\x28\xb5\x2f\xfd\x04\0", "zstd"),
        (b"\xfd7zXZ\0\0\x04", "xz"),
        (b"SQLite format 3\0", "SQLite"),
    ] {
        let input =
            CsvInput::Reader { name: "x".to_owned(), reader: Box::new(std::io::Cursor::new(bytes.to_vec())) };
        let error = CsvSource::open(input, config(), NOW).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    }
}

#[test]
fn a_log_that_was_copied_while_it_was_written_goes_on_in_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let log = |name: &str, rows: &[(u32, u32)]| {
        let rows =
            rows.iter().map(|(at, power)| format!("17528713{at},{power}\n")).collect::<Vec<_>>().concat();
        file(&folder, name, &format!("timestamp,power_w\n{rows}"))
    };
    let first = log("a.csv", &[(50, 100), (51, 101), (52, 102)]);
    let next = log("b.csv", &[(51, 101), (52, 102), (53, 103)]);
    let other = log("c.csv", &[(51, 201), (52, 202), (53, 203)]);
    let open = |second: &std::path::PathBuf| {
        ReplaySource::open_all(&[first.clone(), second.clone()], config(), NOW).map(drop)
    };
    open(&next).unwrap();
    assert!(open(&other).unwrap_err().to_string().contains("would replace that file's"));
}
