//! GPUs that sleep, that answer with errors, and that go away.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use gpuvitals_core::AbsenceReason;
use gpuvitals_sources::dialect::amd_sysfs;
use gpuvitals_sources::machine::Machine;
use gpuvitals_sources::probe::{Due, ProbeError, Reading};
use gpuvitals_sources::registry::Verdict;
use proptest::prelude::*;
use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::machines::{absence, copy, fixture, machine, only_probe, value, write};

const SLOW: Due = Due { slow: true, rare: false };

/// Files with the identity and power state of a GPU; reading them does not wake one.
const HARMLESS: [&str; 11] = [
    "vendor",
    "device",
    "revision",
    "class",
    "uevent",
    "unique_id",
    "product_name",
    "vbios_version",
    "name",
    "control",
    "runtime_status",
];

/// Makes every file below a folder a pipe without a writer, on which an `open` would wait for ever, except
/// the harmless ones.
fn trap(folder: &Path) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        if entry.path().is_dir() {
            trap(&entry.path());
        } else if !HARMLESS.contains(&entry.file_name().to_str().unwrap()) {
            fs::remove_file(entry.path()).unwrap();
            mknodat(CWD, entry.path(), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        }
    }
}

#[test]
fn a_sleeping_gpu_is_asked_for_its_state_and_nothing_else() {
    let dir = copy("rx6900xt");
    let device = dir.path().join("class/drm/card0/device");
    write(&device, "power/control", "auto\n");
    write(&device, "power/runtime_status", "suspended\n");
    trap(&device);
    let machine = machine(dir.path());
    let (done, result) = sync_channel(1);
    std::thread::spawn(move || {
        let found = amd_sysfs::find(&machine);
        let notes: Vec<_> = found.findings.iter().map(|finding| finding.verdict).collect();
        let mut probe = found.probes.into_iter().next().unwrap();
        let mut reading = Reading::default();
        let mut down = |due| {
            reading.clear();
            probe.read(due, &mut reading).unwrap();
            reading.rows()[0].is_down().map(|(reason, _)| reason)
        };
        done.send((notes, [down(Due::ALL), down(Due::default()), down(Due::ALL)])).unwrap();
    });
    let (notes, down) = result.recv_timeout(Duration::from_secs(30)).expect("a sensor was opened");
    assert_eq!(notes, [Verdict::Good, Verdict::Note]);
    assert_eq!(down, [Some(AbsenceReason::Suspended); 3]);
}

#[test]
fn a_gpu_that_wakes_is_read_and_one_that_falls_asleep_is_left() {
    let dir = copy("rx6900xt");
    let device = dir.path().join("class/drm/card0/device");
    let mut probe = only_probe(&machine(dir.path()));
    let mut reading = Reading::default();
    let mut is_up = |due, status: &str| {
        write(&device, "power/runtime_status", status);
        reading.clear();
        probe.read(due, &mut reading).unwrap();
        assert_eq!(reading.rows().len(), 1);
        reading.rows()[0].is_down().is_none()
    };
    assert!(!is_up(Due::ALL, "suspended\n"));
    assert!(!is_up(Due::default(), "active\n"), "one that slept is asked once a second");
    assert!(is_up(SLOW, "active\n"));
    assert!(is_up(Due::default(), "active\n"));
    assert!(!is_up(Due::default(), "suspending\n"), "one that was awake is asked before every reading");
    write(&device, "power/control", "on\n");
    assert!(is_up(Due::ALL, "suspended\n"), "what is not managed does not sleep");
}

#[test]
fn a_power_that_the_parts_own_limit_rules_out_is_refused() {
    let dir = copy("rx580");
    let device = dir.path().join("class/drm/card0/device");
    let mut probe = only_probe(&machine(dir.path()));
    let mut reading = Reading::default();
    let mut power = |due, microwatts: &str| {
        write(&device, "hwmon/hwmon4/power1_average", microwatts);
        reading.clear();
        probe.read(due, &mut reading).unwrap();
        let row = &reading.rows()[0];
        let of = |column| (value(row, column), absence(row, column));
        assert_eq!(of("power_w"), of("power_average_w"));
        of("power_w")
    };
    // Its largest limit is 201 W. It is read after the first power.
    assert_eq!(power(Due::ALL, "41045000\n"), (Some(f64::from(41.045_f32)), None));
    assert_eq!(power(Due::default(), "600000000\n"), (Some(600.0), None));
    assert_eq!(power(Due::default(), "655350000\n"), (None, Some(AbsenceReason::Invalid)));
    assert_eq!(power(SLOW, "655350000\n"), (None, Some(AbsenceReason::Invalid)));
    assert_eq!(power(Due::default(), "180000000\n"), (Some(180.0), None));
}

#[test]
fn what_a_table_that_is_broken_this_time_alone_has_is_absent_this_time() {
    let dir = copy("rx6900xt");
    let device = dir.path().join("class/drm/card0/device");
    let whole = fs::read(device.join("gpu_metrics")).unwrap();
    let mut probe = only_probe(&machine(dir.path()));
    let mut reading = Reading::default();
    let mut read = |due, bytes: &[u8]| {
        write(&device, "gpu_metrics", bytes);
        reading.clear();
        probe.read(due, &mut reading).unwrap();
        let row = &reading.rows()[0];
        (
            value(row, "power_w"),
            value(row, "throttle_status"),
            absence(row, "throttle_status"),
            value(row, "memory_used_mb"),
        )
    };
    let invalid = Some(AbsenceReason::Invalid);
    let (power, memory) = (Some(36.0), Some(637.0));
    let (up, broken) = ((power, Some(0.0), None, memory), (power, None, invalid, memory));
    assert_eq!(read(Due::ALL, &whole), up);
    for _ in 0..3 {
        assert_eq!(read(Due::default(), &whole[..whole.len() - 1]), broken);
    }
    assert_eq!(read(Due::default(), &whole), broken, "after three failures it is asked once a second");
    assert_eq!(read(SLOW, &whole), up);
    assert_eq!(read(Due::default(), &whole), up);
}

#[test]
fn a_table_of_an_unknown_version_leaves_its_values_to_hwmon() {
    let dir = copy("rx6900xt");
    let device = dir.path().join("class/drm/card0/device");
    let mut bytes = fs::read(device.join("gpu_metrics")).unwrap();
    bytes[3] = 42;
    write(&device, "gpu_metrics", bytes);
    let mut reading = Reading::default();
    only_probe(&machine(dir.path())).read(Due::ALL, &mut reading).unwrap();
    let row = &reading.rows()[0];
    for (column, wanted) in
        [("power_w", 36.0), ("gpu_clock_mhz", 500.0), ("temperature_c", 56.0), ("utilization_pct", 3.0)]
    {
        assert_eq!(value(row, column), Some(wanted), "{column}");
    }
    assert_eq!(row.snapshot_id(), None);
}

#[test]
fn nothing_comes_of_a_value_that_cannot_be_true() {
    let invalid = Some(AbsenceReason::Invalid);
    // File, its content, the metrics absent because of it.
    let memory = &["memory_used_mb", "memory_used_pct", "memory_free_mb"][..];
    for (file, text, absent) in [
        ("mem_info_vram_used", "-2147483648", memory),
        ("mem_info_vram_used", "-1", memory),
        ("mem_info_vram_used", "99999999999999", memory),
        ("mem_info_gtt_used", "-1", &["gtt_used_mb"]),
        ("hwmon/hwmon5/freq1_input", "-1", &["gpu_clock_mhz"]),
        ("hwmon/hwmon5/freq2_input", "32768000000", &["mem_clock_mhz"]),
        ("hwmon/hwmon5/power1_average", "4294967295", &["power_w", "power_average_w"]),
        ("hwmon/hwmon5/fan1_input", "65535", &["fan_speed_rpm"]),
        ("hwmon/hwmon5/power1_cap", "-1", &["power_limit_w"]),
    ] {
        let dir = copy("rx6900xt");
        let device = dir.path().join("class/drm/card0/device");
        fs::remove_file(device.join("gpu_metrics")).unwrap();
        write(&device, file, text);
        let mut probe = only_probe(&machine(dir.path()));
        for _ in 0..2 {
            let mut reading = Reading::default();
            probe.read(Due::ALL, &mut reading).unwrap();
            let row = &reading.rows()[0];
            assert_eq!((row.refused(), row.is_down()), (1, None), "{file} {text}");
            for column in absent {
                let told = (value(row, column), absence(row, column));
                assert_eq!(told, (None, invalid), "{file} {text}: {column}");
            }
        }
    }
}

#[test]
fn a_level_not_known_at_first_is_told_once_one_line_alone_has_the_star() {
    let dir = copy("rx6900xt");
    let device = dir.path().join("class/drm/card0/device");
    write(&device, "pp_dpm_sclk", "0: 500Mhz *\n1: 2660Mhz *\n");
    write(&device, "pp_dpm_mclk", "0: 96Mhz\n1: 1000Mhz\n");
    let mut probe = only_probe(&machine(dir.path()));
    let mut reading = Reading::default();
    let mut read = |due| {
        reading.clear();
        probe.read(due, &mut reading).unwrap();
        let row = &reading.rows()[0];
        ["gpu_clock_level", "mem_clock_level"].map(|column| (value(row, column), absence(row, column)))
    };
    let unknown = (None, Some(AbsenceReason::Invalid));
    assert_eq!(read(Due::ALL), [unknown; 2]);
    write(&device, "pp_dpm_sclk", "0: 500Mhz\n1: 2660Mhz *\n");
    write(&device, "pp_dpm_mclk", "0: 96Mhz *\n1: 1000Mhz\n");
    assert_eq!(read(SLOW), [(Some(1.0), None), (Some(0.0), None)]);
}

#[test]
fn the_second_video_engine_has_no_clock_of_zero_while_the_first_runs() {
    for (vclk0, vclk1, clocks) in
        [(0_u16, 0_u16, [Some(0.0); 2]), (25, 0, [None; 2]), (25, 30, [Some(30.0), Some(0.0)])]
    {
        let dir = copy("rx6900xt");
        let device = dir.path().join("class/drm/card0/device");
        let mut bytes = fs::read(device.join("gpu_metrics")).unwrap();
        bytes[60..62].copy_from_slice(&vclk0.to_le_bytes());
        bytes[64..66].copy_from_slice(&vclk1.to_le_bytes());
        write(&device, "gpu_metrics", bytes);
        let mut reading = Reading::default();
        only_probe(&machine(dir.path())).read(Due::ALL, &mut reading).unwrap();
        let row = &reading.rows()[0];
        let told = ["video1_clock_mhz", "video1_decode_clock_mhz"].map(|column| value(row, column));
        assert_eq!(told, clocks, "{vclk0} {vclk1}");
    }
}

#[test]
fn what_has_no_total_has_a_reason() {
    let dir = copy("rx6900xt");
    fs::remove_file(dir.path().join("class/drm/card0/device/mem_info_vram_total")).unwrap();
    let mut reading = Reading::default();
    only_probe(&machine(dir.path())).read(Due::ALL, &mut reading).unwrap();
    let row = &reading.rows()[0];
    assert_eq!(value(row, "memory_used_mb"), Some(637.0));
    for column in ["memory_total_mb", "memory_free_mb", "memory_used_pct"] {
        assert_eq!(absence(row, column), Some(AbsenceReason::NotSupported), "{column}");
    }
}

/// Reading a process's memory at 0 is an I/O error, as a firmware that does not answer gives one.
const IO_ERROR: &str = "/proc/self/mem";

#[test]
fn a_gpu_whose_firmware_does_not_answer_at_first_is_read_without_its_table() {
    let dir = copy("rx6900xt");
    let device = dir.path().join("class/drm/card0/device");
    for file in ["gpu_metrics", "hwmon/hwmon5/in0_input"] {
        fs::remove_file(device.join(file)).unwrap();
        symlink(IO_ERROR, device.join(file)).unwrap();
    }
    let mut probe = only_probe(&machine(dir.path()));
    let mut reading = Reading::default();
    for _ in 0..3 {
        reading.clear();
        probe.read(SLOW, &mut reading).unwrap();
        let row = &reading.rows()[0];
        assert_eq!(value(row, "power_w"), Some(36.0));
        assert_eq!(absence(row, "voltage_gfx_mv"), Some(AbsenceReason::Invalid), "asked again each time");
    }
    fs::remove_file(device.join("gpu_metrics")).unwrap();
    fs::copy(fixture("rx6900xt").join("class/drm/card0/device/gpu_metrics"), device.join("gpu_metrics"))
        .unwrap();
    reading.clear();
    probe.read(Due::ALL, &mut reading).unwrap();
    assert!(reading.rows()[0].snapshot_id().is_some(), "a file that was made anew is found, rarely");
}

#[test]
fn a_gpu_that_went_away_is_found_again_under_another_number() {
    let dir = copy("rx6900xt");
    let drm = dir.path().join("class/drm");
    let cap = drm.join("card0/device/hwmon/hwmon5/power1_cap");
    fs::remove_file(&cap).unwrap();
    // Opening a socket as a file fails as for a missing device.
    let socket = UnixListener::bind(&cap).unwrap();
    let mut probe = only_probe(&machine(dir.path()));
    let whom = probe.targets();
    let mut reading = Reading::default();
    assert!(matches!(probe.read(Due::ALL, &mut reading), Err(ProbeError::Gone(_))));
    assert!(reading.rows().is_empty());
    drop(socket);
    fs::rename(drm.join("card0"), dir.path().join("elsewhere")).unwrap();
    assert!(matches!(probe.read(Due::ALL, &mut reading), Err(ProbeError::Gone(_))));
    fs::rename(dir.path().join("elsewhere"), drm.join("card7")).unwrap();
    let cap = drm.join("card7/device/hwmon/hwmon5/power1_cap");
    fs::remove_file(&cap).unwrap();
    fs::write(&cap, "200000000\n").unwrap();
    probe.read(Due::ALL, &mut reading).unwrap();
    assert_eq!(value(&reading.rows()[0], "power_limit_w"), Some(200.0));
    assert_eq!(probe.targets(), whom);
}

#[test]
fn a_node_of_the_longest_name_leaves_its_gpus_their_address() {
    let dir = copy("vega56");
    for len in [243, 244, 256] {
        let machine = Machine { node: "n".repeat(len).into(), ..machine(dir.path()) };
        let key = only_probe(&machine).targets()[0].key().unwrap();
        assert!(key.starts_with("0000:0b:00.0") && key.len() <= 256, "{key}");
        assert_eq!(key.len() > 12, len == 243, "with the node where both fit");
    }
}

#[test]
fn a_capture_without_class_drm_and_a_card_without_vendor_are_found() {
    let dir = tempfile::tempdir().unwrap();
    fs::rename(copy("vega56").keep().join("class/drm/card0"), dir.path().join("card0")).unwrap();
    fs::remove_file(dir.path().join("card0/device/vendor")).unwrap();
    let probe = only_probe(&machine(dir.path()));
    assert_eq!(probe.targets()[0].uuid(), Some("0000:0b:00.0@node1"));
}

#[test]
fn cards_are_counted_in_drm_order_named_by_the_lists_and_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let sysfs = dir.path().join("sys");
    for (card, name) in [(0, "vega56"), (2, "rx6900xt"), (10, "rx6900xt")] {
        let original = fixture(name).join("class/drm/card0/device");
        let device = sysfs.join(format!("class/drm/card{card}/device"));
        for file in ["vendor", "device", "uevent", "unique_id", "revision"] {
            if let Ok(text) = fs::read_to_string(original.join(file)) {
                write(&device, file, text.replace("0c:00.0", &format!("{card:02x}:00.0")));
            }
        }
    }
    for connector in ["card0-DP-1", "renderD128", "version"] {
        write(&sysfs.join("class/drm").join(connector), "vendor", "0x1002\n");
    }
    write(&sysfs, "class/drm/card1/device/vendor", "0x10de\n");
    write(&sysfs, "module/amdgpu/version", "6.8.5\n");
    fs::remove_file(sysfs.join("class/drm/card10/device/revision")).unwrap();
    write(dir.path(), "usr/share/libdrm/amdgpu.ids", "1.0.0\n687F,\tC3,\tThe machine's\n");
    let cards = amd_sysfs::cards(&machine(&sysfs));
    let told: Vec<_> =
        cards.iter().map(|card| (card.index, card.name.as_str(), card.model.as_str())).collect();
    assert_eq!(
        told,
        [
            (0, "card0", "The machine's"),
            (1, "card2", "AMD Radeon RX 6900 XT"),
            (2, "card10", "AMD GPU 0x73bf")
        ],
        "by the machine's list, by ours, by neither"
    );
    assert!(cards.iter().all(|card| card.unique_id.is_none()), "the same id twice is no identity");
    assert_eq!(cards[1].driver_version.as_deref(), Some("6.8.5"));
    std::fs::remove_dir_all(sysfs.join("module")).unwrap();
    let here = Machine { procfs: "/proc".into(), ..machine(&sysfs) };
    assert_eq!(
        amd_sysfs::cards(&here)[0].driver_version,
        None,
        "this machine's kernel is not the captured one's"
    );
    let procfs = dir.path().join("proc");
    write(&procfs, "sys/kernel/osrelease", "6.1.0-18-amd64\n");
    let captured = Machine { procfs, ..machine(&sysfs) };
    assert_eq!(amd_sysfs::cards(&captured)[0].driver_version.as_deref(), Some("6.1.0-18-amd64"));
}

#[test]
fn a_gpu_that_no_driver_has_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let bus = dir.path().join("bus/pci/devices");
    write(&bus.join("0000:03:00.0"), "vendor", "0x1002\n");
    write(&bus.join("0000:03:00.0"), "class", "0x120000\n");
    write(&bus.join("0000:03:00.1"), "vendor", "0x1002\n");
    write(&bus.join("0000:03:00.1"), "class", "0x040300\n");
    let findings = amd_sysfs::find(&machine(dir.path())).findings;
    assert_eq!(findings.len(), 1);
    assert_eq!(findings[0].verdict, Verdict::Broken);
    assert_eq!(findings[0].subject, "amd-sysfs 0000:03:00.0");
}

/// Tables that are known: size, format, content.
const TABLES: [(u16, u8, u8); 12] = [
    (80, 1, 0),
    (120, 1, 3),
    (288, 1, 4),
    (384, 1, 6),
    (1664, 1, 6),
    (2208, 1, 7),
    (3872, 1, 8),
    (400, 1, 9),
    (120, 2, 0),
    (128, 2, 2),
    (168, 2, 4),
    (264, 3, 0),
];

const FILES: [&str; 12] = [
    "uevent",
    "unique_id",
    "product_name",
    "mem_info_vram_total",
    "mem_info_vram_used",
    "pp_dpm_fclk",
    "power_dpm_force_performance_level",
    "ras/umc_err_count",
    "ras/gpu_vram_bad_pages",
    "hwmon/hwmon5/temp1_label",
    "hwmon/hwmon5/pwm1",
    "hwmon/hwmon5/pwm1_max",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn whatever_the_files_hold_a_reading_ends(
        (size, format, content) in prop::sample::select(&TABLES[..]),
        bytes in prop::collection::vec(prop::collection::vec(any::<u8>(), 3872), 2),
        files in prop::collection::vec(
            (prop::sample::select(&FILES[..]), "\\PC*|-?[0-9]{0,20}\n|ue: [0-9]{0,22}\nce: [0-9]{0,22}"),
            0..6,
        ),
    ) {
        let dir = copy("rx6900xt");
        let device = dir.path().join("class/drm/card0/device");
        for (file, text) in files {
            write(&device, file, text);
        }
        let mut probe = only_probe(&machine(dir.path()));
        let mut reading = Reading::default();
        for mut bytes in bytes {
            bytes[..2].copy_from_slice(&size.to_le_bytes());
            (bytes[2], bytes[3]) = (format, content);
            write(&device, "gpu_metrics", &bytes[..size.into()]);
            for due in [Due::ALL, Due::default(), SLOW] {
                reading.clear();
                probe.read(due, &mut reading).unwrap();
                prop_assert!(!reading.rows().is_empty());
            }
        }
    }
}
