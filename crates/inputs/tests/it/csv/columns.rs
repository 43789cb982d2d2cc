//! What the columns of other people's files are taken for, and whose they are.

use gpuvitals_inputs::csv::{CsvSource, Hints};

use super::logs::{hinted, read_with, refused};
use super::reading::{NOW, config, drain, reader, rows};

/// The rows of a text without its source and the time of those that have none.
fn said(text: &str) -> Vec<String> {
    let (rows, skipped) = read_with(reader(text.as_bytes().to_vec()), config());
    assert_eq!(skipped, 0, "{text}");
    rows.iter().map(|row| row.split_once(' ').map_or("", |(_, row)| row).to_owned()).collect()
}

#[test]
fn rocm_smi_names_each_card_and_keeps_the_models_number() {
    let text = "device,GPU ID,Unique ID,Temperature (Sensor edge) (C),Average Graphics Package Power (W),GPU use (%),PCI Bus,\
                VIS_VRAM Total Used Memory (B),sclk clock level:,sclk clock speed:,GFX Activity\n\
                card0,0x738c,N/A,31.0,39.0,0,0000:1E:00.0,6782976,1,(852Mhz),77\n\
                card1,0x738c,N/A,30.0,0.0,5,0000:22:00.0,6782976,1,(852Mhz),77\n";
    assert_eq!(
        said(text),
        [
            "card0@rows gpu_clock_level=1 gpu_clock_mhz=852 power_average_w=39 power_w=39 temperature_c=31 \
             temperature_edge_c=31 utilization_pct=0 visible_memory_used_mb=6 node=rows pci=0000:1e:00.0 \
             GFX Activity=77 GPU ID=0x738c",
            "card1@rows gpu_clock_level=1 gpu_clock_mhz=852 temperature_c=30 temperature_edge_c=30 utilization_pct=5 \
             visible_memory_used_mb=6 node=rows pci=0000:22:00.0 GFX Activity=77 GPU ID=0x738c",
        ]
    );
}

#[test]
fn rocm_smis_count_of_steps_is_no_energy() {
    // As `--showenergycounter` writes them.
    for head in
        ["device,Energy counter,Accumulated Energy (uJ)", "device,Accumulated Energy (uJ),Energy counter"]
    {
        let counts = if head.ends_with("(uJ)") { "8091,123456000.0" } else { "123456000.0,8091" };
        let rows = said(&format!("{head}\ncard0,{counts}\n"));
        assert_eq!(rows, ["card0@rows energy_mj=123456 node=rows Energy counter=8091"], "{head}");
    }
}

#[test]
fn nvidia_smi_means_in_a_log_what_it_means_to_the_sampler() {
    let text = "timestamp, index, power.draw [W], power.draw.instant [W], gpu.power.current_limit [W], pstate, \
                clocks_throttle_reasons.active, clocks_event_reasons_counters.sw_power_cap [us], ecc.mode.current, \
                retired_pages.pending, gpu_recovery_action, temperature.memory\n\
                2025/07/18 20:42:34.123, 0, 60.00 W, 66.84 W, 300.00 W, P8, 0x0000000000000004, 12 us, Enabled, No, Reset, 0\n\
                2025/07/18 20:42:35.123, 0, 187.00 W, 0.00 W, 300.00 W, P0, 0x0000000000000000, 13 us, [N/A], Yes, None, 50\n\
                2025/07/18 20:42:36.123, 0, [N/A], 66.84 W, 300.00 W, P0, Active, 13 us, Odd, [N/A], None, 50\n";
    let mut source = CsvSource::open(reader(text.as_bytes().to_vec()), config(), NOW).unwrap();
    let read = rows(&drain(&mut source));
    assert_eq!(
        read.iter().map(|row| row.split_once(":gpu0 ").unwrap().1).collect::<Vec<_>>(),
        [
            "ecc_mode=1 performance_state=8 power_limit_enforced_w=300 power_w=66.84 recovery_action=1 \
             retired_pages_pending=0 throttle_reasons=4 throttled_sw_power_cap_ns=12000 gpu=0 node=rows source=csv",
            "performance_state=0 power_limit_enforced_w=300 power_w=187 recovery_action=0 retired_pages_pending=1 \
             temperature_memory_c=50 throttle_reasons=0 throttled_sw_power_cap_ns=13000 gpu=0 node=rows source=csv",
            "performance_state=0 power_limit_enforced_w=300 power_w=66.84 recovery_action=0 temperature_memory_c=50 \
             throttled_sw_power_cap_ns=13000 gpu=0 node=rows source=csv",
        ]
    );
    let counts = source.counts();
    assert_eq!((counts.values_absent, counts.values_invalid), (4, 3));
}

#[test]
fn memory_beside_the_cpu_and_a_gpu_is_the_hosts_unless_it_says_the_gpus() {
    let lines = |text: &str| said(text).join("; ").replace(" source=csv", "");
    assert_eq!(
        lines(
            "timestamp,cpu_percent,memory_percent,memory_used_gb,gpu_util,gpu_memory_used,gpu_temp\n\
             1752871354,12.5,45.3,28.9,77,10240,61\n"
        ),
        "rows:gpu0 memory_used_mb=10240 temperature_c=61 utilization_pct=77 gpu=0 node=rows memory_percent=45.3; \
         host cpu_pct=12.5 memory_mb=29594 node=rows"
    );
    assert_eq!(
        lines("timestamp,cpu_usage,memory_usage,gpu_usage,gpu_memory_usage\n1752871354,12.5,45.3,77,60.5\n"),
        "rows:gpu0 utilization_pct=77 gpu=0 node=rows gpu_memory_usage=60.5 memory_usage=45.3; \
         host cpu_pct=12.5 node=rows"
    );
    // Without the CPU it is the GPU's, and the name that says so goes first.
    assert_eq!(
        lines("timestamp,memory_used,gpu_memory_used,gpu_util\n1752871354,5,10240,77\n"),
        "rows:gpu0 memory_used_mb=10240 utilization_pct=77 gpu=0 node=rows memory_used=5"
    );
}

#[test]
fn numbers_of_a_column_that_is_called_gpu_or_index_may_name_none() {
    let owners = |text: &str| {
        let rows = said(text);
        let owner = |row: &String| row.split(' ').take(2).collect::<Vec<_>>().join(" ");
        rows.iter().map(owner).collect::<Vec<_>>()
    };
    let check = |text: &str, expected: &[&str]| assert_eq!(owners(text), expected, "{text}");
    let load = ["rows:gpu0 temperature_c=60", "rows:gpu0 temperature_c=61"];
    check("time,gpu,temp\n1752871354,45,60\n1752871355,77,61\n", &load);
    check("time,gpu,temp\n1752871354,45.5,60\n1752871355,77.2,61\n", &load);
    check(
        "time,gpu,temp\n1752871354,45,60\n1752871355,77,61\n1752871356,99,62\n",
        &[load[0], load[1], "rows:gpu0 temperature_c=62"],
    );
    check("time,GPU,temp\n1752871354,45%,60\n1752871355,77%,61\n", &load);
    assert!(said("time,gpu,temp\n1752871354,45,60\n1752871355,77,61\n")[0].contains("utilization_pct=45"));
    for name in ["id", "index"] {
        let text = format!("{name},time,power_w\n0,1752871354,7\n1,1752871355,8\n2,1752871356,9\n");
        check(&text, &["rows:gpu0 power_w=7", "rows:gpu0 power_w=8", "rows:gpu0 power_w=9"]);
    }
    // Loads that come again, far apart or beside those of a CPU, and GPUs in no turn or in turn.
    let rows = |names: &str, numbers: &[u32]| {
        let row = |(at, number): (usize, &u32)| format!("{},7,{number}\n", 1_752_871_354 + at);
        format!("time,{names}\n{}", numbers.iter().enumerate().map(row).collect::<String>())
    };
    let loads = [98, 97, 98, 0, 98, 98, 0, 97, 98, 0];
    let low = [3, 0, 0, 5, 3, 0, 5, 0];
    for text in [rows("power_w,gpu", &loads), rows("cpu,gpu", &low)] {
        assert!(
            owners(&text).iter().all(|owner| !owner.contains(":gpu9") && !owner.contains(":gpu3")),
            "{text}"
        );
        assert!(said(&text)[0].contains("utilization_pct="), "{text}");
    }
    assert!(owners(&rows("power_w,gpu", &low))[0].starts_with("rows:gpu3 "));
    assert!(owners(&rows("power_w,gpu", &[20, 40, 20, 40, 20, 40]))[0].starts_with("rows:gpu20 "));
    // Texts that are times, as a table of several levels has them below the word.
    let levels = "gpu,0,1\nmetric,power,power\ntime,,\n2025-07-18T20:42:34Z,250,251\n";
    assert!(refused(levels).contains("\"0\" is data"), "{}", refused(levels));
    let loads = "gpu,power_w\n2025-07-18T20:42:34Z,250\n2025-07-18T20:42:35Z,251\n";
    assert_eq!(owners(loads), ["rows:gpu0 power_w=250", "rows:gpu0 power_w=251"]);
    // One look at several GPUs, rows of one time, and rows that come back to a GPU.
    check(
        "index,time,power_w\n0,1752871354.1,7\n1,1752871354.2,8\n2,1752871354.3,9\n",
        &["rows:gpu0 power_w=7", "rows:gpu1 power_w=8", "rows:gpu2 power_w=9"],
    );
    check(
        "time,gpu,power_w\n1752871354,20,7\n1752871354,40,8\n1752871355,20,9\n",
        &["rows:gpu20 power_w=7", "rows:gpu40 power_w=8", "rows:gpu20 power_w=9"],
    );
    check(
        "time,gpu,power_w\n1752871354.1,0,7\n1752871354.2,1,8\n1752871355.6,0,9\n",
        &["rows:gpu0 power_w=7", "rows:gpu1 power_w=8", "rows:gpu0 power_w=9"],
    );
}

#[test]
fn words_for_no_number_are_absences_and_do_not_cost_the_column_its_meaning() {
    for word in [
        "nan",
        "NaN",
        "-inf",
        "Infinity",
        "-1.#IND",
        "unknown",
        "n.a.",
        "error",
        "null",
        "(null)",
        "None",
        "-",
        "—",
        "<NA>",
        "\\N",
        "#N/A",
        "#DIV/0!",
        "Not Available",
        "N/A W",
        "[N/A] W",
        "nan%",
    ] {
        let rest = format!("0,{word},45\n").repeat(3);
        let text = format!("gpu,power,temp\n{rest}0,100,45\n");
        let mut source = CsvSource::open(reader(text.into_bytes()), config(), NOW).unwrap();
        let read = rows(&drain(&mut source));
        assert!(read[3].contains(" power_w=100 temperature_c=45 "), "{word}: {read:?}");
        assert!(!read[0].contains("power"), "{word}: {read:?}");
        let counts = source.counts();
        assert_eq!((counts.values_absent, counts.values_invalid), (3, 0), "{word}");
    }
    let text = "gpu_power_watts{gpu=\"0\"} NaN\ngpu_power_watts{gpu=\"1\"} 70\n";
    let (rows, skipped) = read_with(reader(text.into()), config());
    assert_eq!((rows.len(), skipped), (1, 1));
}

#[test]
fn the_tables_of_tools_are_read() {
    let check = |text: &str, expected: &[&str]| {
        let rows: Vec<String> = said(text).iter().map(|row| row.replace(" node=rows", "")).collect();
        assert_eq!(rows, expected, "{text}");
    };
    check(
        "#gpu, pwr, gtemp, sm\n#Idx, W, C, %\n0, 50, 44, 12\n#gpu, pwr, gtemp, sm\n#Idx, W, C, %\n1, 51, -, 13\n",
        &[
            "rows:gpu0 power_w=50 temperature_c=44 utilization_pct=12 gpu=0",
            "rows:gpu1 power_w=51 utilization_pct=13 gpu=1",
        ],
    );
    // Each of its flags alone: `pci` counts replays and is no address.
    for (names, values, expected) in [
        ("sbecc dbecc pci", "1 0 3", "ecc_corrected_aggregate=1 ecc_uncorrected_aggregate=0 pcie_replays=3"),
        ("rxpci txpci", "12 7", "pcie_rx_bytes_per_s=12000000 pcie_tx_bytes_per_s=7000000"),
        ("fb bar1", "512 4", "bar1_used_mb=4 memory_used_mb=512"),
    ] {
        let units = names.split(' ').map(|name| match name {
            "rxpci" | "txpci" => "MB/s",
            "fb" | "bar1" => "MB",
            _ => "errs",
        });
        let units = units.collect::<Vec<_>>().join(" ");
        let text = format!("# gpu {names}\n# Idx {units}\n 0 {values}\n 1 {values}\n");
        let of = |gpu: u8| format!("rows:gpu{gpu} {expected} gpu={gpu}");
        check(&text, &[of(0).as_str(), of(1).as_str()]);
    }
    check(
        "#Date       Time        gpu   pid  type    sm   mem   enc   dec    fb   command\n\
         #YYYYMMDD   HH:MM:SS    Idx     #   C/G     %     %     %     %    MB   name\n\
         \x2020250718   20:42:34      0    12     C    45    10     -     -   100   python -m x\n\
         \x2020250718   20:42:34      0    13     C    65     1     -     -    50   java\n\
         \x2020250718   20:42:35      0    12     C    47     -     -     -   100   python\n",
        &[
            "rows:gpu0 memory_used_mb=150 memory_utilization_pct=11 utilization_pct=100 gpu=0",
            "rows:gpu0 memory_used_mb=100 utilization_pct=47 gpu=0",
        ],
    );
    check(
        " 0, pwrDraw , 1752871354000000, 63\n 0, gpuUtil , 1752871354000000, 7\n 1, temp    , 1752871354500000, 45\n",
        &["rows:gpu0 power_w=63 utilization_pct=7 gpu=0", "rows:gpu1 temperature_c=45 gpu=1"],
    );
    // Without times a process that comes again begins another look.
    check(
        "# gpu  pid  type  sm  mem  enc  dec  command\n# Idx    #   C/G   %    %    %    %  name\n\
         0 12 C 45 10 - - a\n0 13 C 5 1 - - b\n0 12 C 7 1 - - a\n",
        &[
            "rows:gpu0 memory_utilization_pct=11 utilization_pct=50 gpu=0",
            "rows:gpu0 memory_utilization_pct=1 utilization_pct=7 gpu=0",
        ],
    );
    check(
        "#Entity   GPUTL  POWER   TMPTR  GRACT\nID                W       C      \nGPU 0     45      150.5   56    0.25\n\
         #Entity   GPUTL  POWER   TMPTR  GRACT\nID                W       C      \nGPU 1     46      N/A     57    0.5\n",
        &[
            "GPU_0@rows graphics_engine_active_ratio=0.25 power_w=150.5 temperature_c=56 utilization_pct=45",
            "GPU_1@rows graphics_engine_active_ratio=0.5 temperature_c=57 utilization_pct=46",
        ],
    );
    check(
        "# Entity  POWER                TOTEC                \n      Id  W                    mJ                   \n\
         GPU 0     26.123               1234567              \n",
        &["GPU_0@rows energy_mj=1234567 power_w=26.123"],
    );
    check(
        "#Entity   SMACT   PCITX      NVLRX\nID\nGPU 0     0.5     12345678   7\n",
        &["GPU_0@rows interconnect_rx_bytes_per_s=7 pcie_tx_bytes_per_s=12345678 sm_active_ratio=0.5"],
    );
}

#[test]
fn what_means_nothing_without_its_machine_gets_a_host() {
    let named = |gpu: &str| {
        let rows = said(&format!("timestamp,gpu,power_w\n1752871354,{gpu},100\n"));
        rows[0].split(' ').next().unwrap().to_owned()
    };
    for (gpu, name) in [
        ("gpu 0", "gpu_0@rows"),
        ("GPU 0", "GPU_0@rows"),
        ("/dev/nvidia3", "nvidia3@rows"),
        ("1000", "rows:gpu1000"),
        ("NVIDIA A100-SXM4-80GB", "NVIDIA_A100-SXM4-80GB@rows"),
        ("gpu_0", "gpu_0"),
        ("GPU-5fd4a100-86f3-7a43-b711-4771313afc50", "GPU-5fd4a100-86f3-7a43-b711-4771313afc50"),
    ] {
        assert_eq!(named(gpu), name, "{gpu}");
    }
    let hints = Hints { host: Some("日志".to_owned()), ..Hints::default() };
    let (rows, _) = read_with(reader(b"power_w\n1\n".to_vec()), hinted(hints));
    assert!(rows[0].contains(" +65e5+5fd7:gpu0 "), "{rows:?}");
}

#[test]
fn a_last_number_is_the_gpus_where_names_differ_in_it_alone() {
    let check = |text: &str, expected: &[&str]| {
        let rows: Vec<String> = said(text).iter().map(|row| row.replace(" node=rows", "")).collect();
        assert_eq!(rows, expected, "{text}");
    };
    check(
        "timestamp,gpu_power_0,gpu_power_1,power_w_2,util_0,util_1\n1752871354,100,101,9,45,46\n",
        &[
            "rows:gpu0 power_w=100 utilization_pct=45 gpu=0",
            "rows:gpu1 power_w=101 utilization_pct=46 gpu=1",
            "host power_w_2=9",
        ],
    );
    for names in ["power0,power1,temp0,temp1", "power[0],power[1],temp[0],temp[1]"] {
        check(
            &format!("timestamp,{names}\n1752871354,100,101,45,46\n"),
            &["rows:gpu0 power_w=100 temperature_c=45 gpu=0", "rows:gpu1 power_w=101 temperature_c=46 gpu=1"],
        );
    }
    for names in ["gpus.0.power,gpus.1.power", "nvidia0_power,nvidia1_power", "rank0 power,rank1 power"] {
        check(
            &format!("timestamp,{names}\n1752871354,100,101\n"),
            &["rows:gpu0 power_w=100 gpu=0", "rows:gpu1 power_w=101 gpu=1"],
        );
    }
    // Sensors of one chip, which are counted from 1, and its clocks.
    check(
        "timestamp,power,temp1,temp2,gfxclk0,gfxclk1\n1752871354,100,45,46,900,901\n",
        &["rows:gpu0 power_w=100 gpu=0 gfxclk0=900 gfxclk1=901 temp1=45 temp2=46"],
    );
    // Beside a column for the GPU they are not, and fans are a GPU's own.
    check(
        "timestamp,gpu,util_0,util_1,power_w\n1752871354,0,1,2,3\n",
        &["rows:gpu0 power_w=3 gpu=0 util_0=1 util_1=2"],
    );
    // What amd-smi metric writes for one of its flags.
    check(
        "gpu,edge,hotspot,mem\n0,45,50,40\n",
        &[
            "rows:gpu0 temperature_c=45 temperature_edge_c=45 temperature_junction_c=50 temperature_memory_c=40 gpu=0",
        ],
    );
    check(
        "gpu,gfx_0_clk,gfx_0_max_clk,mem_0_clk\n0,2100,2200,1300\n",
        &["rows:gpu0 gpu_clock_max_mhz=2200 gpu_clock_mhz=2100 mem_clock_mhz=1300 gpu=0"],
    );
    check(
        "gpu,total_vram,used_vram,used_gtt,width,replay_count,total_correctable_count\n0,196592,283,17,16,2,1\n",
        &[
            "rows:gpu0 ecc_corrected_volatile=1 gtt_used_mb=17 memory_total_mb=196592 memory_used_mb=283 pcie_replays=2 \
             pcie_width=16 gpu=0",
        ],
    );
    check(
        "gpu,socket_power,gfx_voltage,soc_voltage,throttle_status\n0,120,800,801,UNTHROTTLED\n",
        &["rows:gpu0 power_w=120 voltage_gfx_mv=800 voltage_soc_mv=801 gpu=0 throttle_status_2=UNTHROTTLED"],
    );
}

#[test]
fn what_is_of_another_run_or_of_more_than_the_gpu_is_kept_apart() {
    let text = "Runtime [s],Timestamp,a - system/gpu.0.powerWatts,b - system/gpu.0.powerWatts,b - system/gpu.0.temp\n\
                1,1752871354,100,200,60\n";
    assert_eq!(
        said(text),
        [
            "rows:gpu0 power_w=100 gpu=0 node=rows",
            "host node=rows Runtime [s]=1 b - system/gpu.0.powerWatts=200 b - system/gpu.0.temp=60"
        ]
    );
    let source = CsvSource::open(reader(text.as_bytes().to_vec()), config(), NOW).unwrap();
    assert!(
        source.notes().iter().any(|note| note.contains("only the run a is read")),
        "{:?}",
        source.notes()
    );
    let text = "timestamp,emissions_rate,cpu_energy,gpu_energy,ram_energy,energy_consumed\n1752871354,0.01,1,0.01,2,0.012\n";
    assert_eq!(
        said(text),
        [
            "rows:gpu0 energy_mj=36000000 gpu=0 node=rows cpu_energy=1 emissions_rate=0.01 energy_consumed=0.012 ram_energy=2"
        ]
    );
}

#[test]
fn what_windows_writes_is_read_and_a_header_of_one_column_says_what_parts_fields() {
    let latin =
        |text: &str| -> Vec<u8> { text.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect() };
    let text = "  Date  , GPU Clock [MHz] , GPU Temperature [°C] , Memory Used [MB] , GPU Load [%] , Board Power Draw [W] , \
                GPU Chip Power Draw [W] , PerfCap Reason [] , GPU Voltage [V] , CPU Temperature [°C] , System Memory Used [MB] ,\n\
                2025-07-18 20:42:34 , 300.0 , 45.0 , 1024 , 12 , 100.5 , 50.2 , 16 , 0.850 , 50.0 , 16000 ,\n";
    let mut source = CsvSource::open(reader(latin(text)), config(), NOW).unwrap();
    assert!(source.notes().iter().any(|note| note.contains("Windows-1252")), "{:?}", source.notes());
    let read = rows(&drain(&mut source)).join("\n");
    for words in [
        "gpu_clock_mhz=300 memory_used_mb=1024 power_w=100.5 temperature_c=45 utilization_pct=12 voltage_gfx_mv=850",
        "memory_mb=16000",
    ] {
        assert!(read.contains(words), "{words}: {read}");
    }
    for text in [
        "timestamp gpu power_w\n1752871354 0 100\n",
        "|timestamp|gpu|power_w|\n|---|---|---|\n|1752871354|0|100|\n",
    ] {
        let parted = "fields are parted by comma, semicolon, tab or pipe";
        assert!(refused(text).contains(parted), "{}", refused(text));
    }
    for text in [
        "'timestamp','gpu','power_w'\n'1752871354','0','100'\n",
        "\"timestamp\" ; \"gpu\" ; \"power_w\"\n\"1752871354\" ; \"0\" ; \"100\"\n",
        "sep=:\ntimestamp:gpu:power_w\n1752871354:0:100\n",
        "sep=|\ntimestamp|gpu|power_w\n1752871354|0|100\n",
        "timestamp|gpu|power_w\n1752871354|0|100\n",
        "timestamp | gpu | power_w\n2025-07-18 20:42:34,500 | 0 | 100\n",
    ] {
        assert_eq!(said(text), ["rows:gpu0 power_w=100 gpu=0 node=rows"], "{text}");
    }
}

#[test]
fn why_a_column_is_kept_apart_is_said_truly() {
    let why = |text: &str, name: &str| {
        let source = CsvSource::open(reader(text.as_bytes().to_vec()), config(), NOW).unwrap();
        let columns = source.description().columns;
        let column = columns.iter().rfind(|column| column.name == name).unwrap();
        assert_eq!(column.role, "own", "{text}");
        column.why.clone().unwrap_or_default()
    };
    for (text, name, reason) in [
        ("gpu,power_w,power_w\n0,1,2\n", "power_w", "column power_w is taken for the same"),
        ("gpu0_util,gpu1_util,power_w\n1,2,3\n", "power_w", "does not say which GPU's"),
        ("gpu,edge,hotspot,mem,throttle_status\n0,1,2,3,x\n", "throttle_status", "amd-smi metric"),
        (
            "gpu,power_w,Temperature (F)\n0,1,120\n",
            "Temperature (F)",
            "F is no unit that temperature_c can have",
        ),
        ("gpu,power_w,colour\n0,1,120\n", "colour", "no metric is known by that name"),
    ] {
        assert!(why(text, name).contains(reason), "{text}: {}", why(text, name));
    }
    let text = "timestamp,gpu,power\n1752871354,0,45\n# restarted\n1752871355,0,46\n";
    let source = CsvSource::open(reader(text.as_bytes().to_vec()), config(), NOW).unwrap();
    assert!(!source.notes().iter().any(|note| note.contains("zone")), "{:?}", source.notes());
}
