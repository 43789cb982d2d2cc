//! The host, read from a captured `/proc`, from ones that are odd, and from the real one.
#![expect(clippy::cast_precision_loss, reason = "the counts compared here are small")]

use std::fs;
use std::path::{Path, PathBuf};

use gpuvitals_core::batch::Value;
use gpuvitals_core::catalogue::{self, Scope, Table};
use gpuvitals_core::clock::Moment;
use gpuvitals_core::{AbsenceReason, IdentityColumn};
use gpuvitals_sources::dialect::procfs;
use gpuvitals_sources::machine::Machine;
use gpuvitals_sources::probe::{Detail, Due, Instance, Probe, ProbeError, Reading, Row};
use gpuvitals_sources::registry::Verdict;
use proptest::prelude::*;

const FILES: [&str; 5] = ["stat", "meminfo", "vmstat", "loadavg", "uptime"];

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/host/x86-2cpu")
}

fn machine(procfs: &Path) -> Machine {
    Machine { procfs: procfs.to_owned(), ..Machine::local("n1") }
}

fn probe(procfs: &Path) -> Box<dyn Probe> {
    procfs::find(&machine(procfs)).probes.pop().unwrap()
}

fn value(row: &Row, column: &str) -> Option<f64> {
    let id = catalogue::by_column(column).unwrap();
    row.get(id).map(|value| match value {
        Value::Int(v) => v as f64,
        Value::Float32(v) => f64::from(v),
        Value::Float(v) => v,
    })
}

fn absent(row: &Row, column: &str) -> Option<AbsenceReason> {
    let id = catalogue::by_column(column).unwrap();
    row.absences().iter().find(|(metric, _)| *metric == id).map(|(_, reason)| *reason)
}

fn read(probe: &mut dyn Probe, due: Due) -> Reading {
    let mut reading = Reading::default();
    probe.read(due, &mut reading).unwrap();
    reading
}

/// A directory like `/proc` whose files a test may change.
fn copy_of_fixture() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for file in FILES {
        fs::copy(fixture().join(file), dir.path().join(file)).unwrap();
    }
    dir
}

#[test]
fn a_captured_host_reads_as_its_files_say() {
    let mut probe = probe(&fixture());
    assert_eq!(probe.table(), Table::SystemEvents);
    let host = probe.targets().pop().unwrap();
    assert_eq!(host.node(), Some("n1"));
    assert_eq!(host.get(IdentityColumn::Source), Some("procfs"));
    assert_eq!((host.uuid(), host.get(IdentityColumn::Vendor)), (None, None));

    let reading = read(probe.as_mut(), Due::ALL);
    let row = &reading.rows()[0];
    for (column, expected) in [
        ("ctx_switches", 40_675_787.0),
        ("irqs", 13_156_269.0),
        ("soft_irqs", 15_289_369.0),
        ("forks", 1_304_421.0),
        ("procs_running", 1.0),
        ("procs_blocked", 0.0),
        ("cpu_count", 2.0),
        ("memory_mb", f64::from((24_684_084 - 24_097_576) / 1024)),
        ("host_memory_total_mb", f64::from(24_684_084 / 1024)),
        ("host_memory_available_mb", f64::from(24_097_576 / 1024)),
        ("swap_used_mb", 0.0),
        ("page_faults", 338_549_014.0),
        ("major_page_faults", 71_046.0),
        ("load1", f64::from(1.09_f32)),
        ("load5", f64::from(0.66_f32)),
        ("load15", f64::from(0.81_f32)),
        ("uptime_ns", 12_404_960_000_000.0),
    ] {
        assert_eq!(value(row, column), Some(expected), "{column}");
    }
    assert_eq!(value(row, "cpu_pct"), None, "one reading gives no share");
    assert_eq!(row.absences(), []);
}

#[test]
fn every_column_of_the_host_is_read() {
    let dir = copy_of_fixture();
    let mut probe = probe(dir.path());
    read(probe.as_mut(), Due::ALL);
    fs::write(
        dir.path().join("stat"),
        "cpu 1200000 114018 197353 1100000 13914 0 5268 2455\ncpu0 0\nctxt 1\n",
    )
    .unwrap();
    let second = read(probe.as_mut(), Due::ALL);
    let mut missing: Vec<_> = Vec::new();
    for (id, metric) in catalogue::host_metrics().filter(|(_, metric)| metric.scope == Scope::Host) {
        if second.rows()[0].get(id).is_none() {
            missing.push(metric.column);
        }
    }
    // Metrics missing in the second, shorter stat.
    assert_eq!(missing, ["irqs", "soft_irqs", "forks", "procs_running", "procs_blocked"]);
}

#[test]
fn shares_come_from_two_readings_and_wait_for_enough_ticks() {
    let dir = tempfile::tempdir().unwrap();
    let stat = |cpu: &str| {
        fs::write(dir.path().join("stat"), format!("cpu  {cpu}\ncpu0 1 1\ncpu1 1 1\n")).unwrap();
    };
    stat("100 0 50 1000 10 0 0 0 7 0");
    let mut probe = probe(dir.path());
    let mut share = |cpu: &str| {
        stat(cpu);
        let reading = read(probe.as_mut(), Due::default());
        let row = &reading.rows()[0];
        ["cpu_pct", "cpu_user_pct", "cpu_system_pct", "cpu_iowait_pct"].map(|column| value(row, column))
    };
    assert_eq!(share("100 0 50 1000 10 0 0 0 7 0"), [None; 4], "the first");
    assert_eq!(share("100 0 50 1000 10 0 0 0 7 0"), [None; 4], "no tick has passed");
    assert_eq!(share("101 0 50 1001 10 0 0 0 7 0"), [None; 4], "two ticks of two CPUs say nothing");
    // 5 user, 1 nice, 2 system, 1 irq, 1 softirq, 5 idle, 3 iowait, 2 steal since the first.
    assert_eq!(
        share("105 1 52 1005 13 1 1 2 9 0"),
        [Some(60.0), Some(30.0), Some(20.0), Some(15.0)],
        "steal is not idle, guests are users already"
    );
    assert_eq!(share("105 1 52 1025 12 1 1 2 9 0"), [Some(0.0); 4], "one time went back by a tick");
    assert_eq!(share("1 0 1 1 0 0 0 0 0 0"), [None; 4], "the counts began anew");
    assert_eq!(share("21 0 1 1 0 0 0 0 0 0"), [Some(100.0), Some(100.0), Some(0.0), Some(0.0)]);
}

/// Number and share of each CPU that the row of the host has.
fn cores(reading: &Reading) -> Vec<(u32, f64)> {
    let [host] = reading.rows() else { panic!("{:?}", reading.rows()) };
    assert_eq!(value(host, "cpu_core_pct"), None);
    let core = |detail: &Detail| {
        assert_eq!(detail.metric.metric().column, "cpu_core_pct");
        let Instance::Number(number) = detail.instance else { panic!("{detail:?}") };
        (number, detail.value.as_f64())
    };
    host.details().iter().map(core).collect()
}

#[test]
fn each_cpu_has_a_share_of_its_own_where_it_is_asked_for() {
    let dir = copy_of_fixture();
    let (mut whole, mut each) = (probe(dir.path()), probe(dir.path()));
    each.read_instances();
    assert_eq!(cores(&read(each.as_mut(), Due::ALL)), [], "one reading gives no share");
    read(whole.as_mut(), Due::ALL);
    // The capture a tenth of a second later: CPU 0 idle but for its I/O, CPU 1 busy for 4 ticks in 10.
    let stat = fs::read_to_string(fixture().join("stat")).unwrap();
    let later = stat
        .replace("cpu0 554252 55784 93384 525123 4178 ", "cpu0 554252 55784 93384 525128 4183 ")
        .replace("cpu1 566856 58233 103969 491965 ", "cpu1 566859 58233 103970 491971 ");
    assert_ne!(stat, later);
    fs::write(dir.path().join("stat"), later).unwrap();
    assert_eq!(cores(&read(each.as_mut(), Due::default())), [(0, 0.0), (1, 40.0)]);
    assert_eq!(cores(&read(whole.as_mut(), Due::default())), [], "the host alone where nobody asked");
}

#[test]
fn a_cpu_that_goes_offline_has_no_value_and_begins_anew_when_it_is_back() {
    let dir = tempfile::tempdir().unwrap();
    let mut probe = {
        fs::write(dir.path().join("stat"), "").unwrap();
        probe(dir.path())
    };
    probe.read_instances();
    let mut shares = |lines: &str| {
        fs::write(dir.path().join("stat"), format!("cpu 1 1 1 1\n{lines}ctxt 1\n")).unwrap();
        cores(&read(probe.as_mut(), Due::default()))
    };
    assert_eq!(shares("cpu0 0 0 0 10\ncpu1 0 0 0 10\ncpu7 0 0 0 10\n"), []);
    assert_eq!(
        shares("cpu0 10 0 0 10\ncpu1 5 0 0 15\ncpu7 1 0 0 19\n"),
        [(0, 100.0), (1, 50.0), (7, 10.0)],
        "numbers need not follow one another"
    );
    assert_eq!(shares("cpu0 15 0 0 15\ncpu7 1 0 0 20\n"), [(0, 50.0)], "one is gone, one has too few ticks");
    assert_eq!(
        shares("cpu0 20 0 0 20\ncpu1 25 0 0 15\ncpu7 1 0 0 29\n"),
        [(0, 50.0), (7, 0.0)],
        "what passed while it was away is no share"
    );
    assert_eq!(shares("cpu0 30 0 0 20\ncpu1 25 0 0 25\n"), [(0, 100.0), (1, 0.0)]);
    assert_eq!(shares("cpu0 1 0 0 1\ncpu1 25 0 0 35\n"), [(1, 0.0)], "counts that began anew");
}

#[test]
fn numbers_that_no_cpu_has_are_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let stat = |ticks: u64| {
        let lines: String = [0, 4_095, 4_096, 18_446_744_073_709_551_615_u64]
            .map(|cpu| format!("cpu{cpu} {ticks} 0 0 0\n"))
            .concat();
        fs::write(
            dir.path().join("stat"),
            format!("cpu {ticks} 0 0 0\n{lines}cpu99999999999999999999 1 1 1 1\n"),
        )
        .unwrap();
    };
    stat(10);
    let mut probe = probe(dir.path());
    probe.read_instances();
    read(probe.as_mut(), Due::ALL);
    stat(100);
    assert_eq!(cores(&read(probe.as_mut(), Due::ALL)), [(0, 100.0), (4_095, 100.0)]);
}

#[test]
fn the_real_host_gives_each_of_its_cpus() {
    let mut probe = probe(Path::new("/proc"));
    probe.read_instances();
    let online = procfs::parse_cores(&fs::read("/proc/stat").unwrap()).count();
    let until_ns = Moment::now().mono_ns + 20_000_000_000;
    // Not all have moved on by enough ticks at the same reading.
    let mut seen = std::collections::BTreeSet::new();
    while seen.len() < online {
        let shares = cores(&read(probe.as_mut(), Due::default()));
        assert!(shares.iter().all(|(_, share)| (0.0..=100.0).contains(share)), "{shares:?}");
        seen.extend(shares.into_iter().map(|(core, _)| core));
        assert!(Moment::now().mono_ns < until_ns, "the CPUs gave no shares");
    }
}

#[test]
fn tiers_are_kept() {
    let mut probe = probe(&fixture());
    let reading = read(probe.as_mut(), Due::default());
    let row = &reading.rows()[0];
    assert!(row.values().iter().all(|(id, _)| id.metric().tier == catalogue::Tier::Fast));
    assert_eq!(row.values().len(), 4, "memory, context switches, page faults, interrupts");
    let reading = read(probe.as_mut(), Due { slow: true, rare: false });
    assert_eq!(value(&reading.rows()[0], "load1"), Some(f64::from(1.09_f32)));
    assert_eq!(value(&reading.rows()[0], "cpu_count"), None);
}

#[test]
fn what_an_old_kernel_or_a_container_lacks_is_absent_with_a_reason() {
    let dir = copy_of_fixture();
    fs::write(dir.path().join("meminfo"), "MemTotal: 1048576 kB\nMemFree: 1024 kB\nHugePages_Total: 0\n")
        .unwrap();
    fs::write(dir.path().join("stat"), "cpu  10 20 30 40\nctxt many\nintr\nnews 1\n").unwrap();
    fs::remove_file(dir.path().join("vmstat")).unwrap();
    fs::write(dir.path().join("loadavg"), "nan -1 0.5 1/1 1").unwrap();
    fs::write(dir.path().join("uptime"), "").unwrap();
    let mut probe = probe(dir.path());
    let first = read(probe.as_mut(), Due::ALL);
    let row = &first.rows()[0];
    assert_eq!(value(row, "host_memory_total_mb"), Some(1024.0));
    assert_eq!(value(row, "load15"), Some(0.5));
    for column in
        ["memory_mb", "host_memory_available_mb", "swap_used_mb", "ctx_switches", "irqs", "cpu_count"]
    {
        assert_eq!(
            (value(row, column), absent(row, column)),
            (None, Some(AbsenceReason::NotSupported)),
            "{column}"
        );
    }
    assert_eq!(absent(row, "cpu_iowait_pct"), Some(AbsenceReason::NotSupported));
    assert_eq!(absent(row, "page_faults"), Some(AbsenceReason::NotSupported));
    assert_eq!(absent(row, "load1"), Some(AbsenceReason::Invalid));

    let fast = read(probe.as_mut(), Due::default());
    assert_eq!(fast.rows()[0].absences(), [], "what is not there for good is told at the rare tier only");

    fs::copy(fixture().join("vmstat"), dir.path().join("vmstat")).unwrap();
    let later = read(probe.as_mut(), Due { slow: false, rare: true });
    assert_eq!(value(&later.rows()[0], "page_faults"), Some(338_549_014.0), "a file that came is found");
}

#[test]
fn zero_cpu_times_are_no_times() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("stat"), "cpu  0 0 0 0 0 0 0 0 0 0\ncpu0 0 0 0 0\n").unwrap();
    let mut probe = probe(dir.path());
    let reading = read(probe.as_mut(), Due::ALL);
    assert_eq!(absent(&reading.rows()[0], "cpu_pct"), Some(AbsenceReason::NotSupported));
}

#[test]
fn a_host_without_files_gives_nothing_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let found = procfs::find(&machine(dir.path()));
    assert!(found.probes.is_empty());
    assert_eq!(found.findings[0].verdict, Verdict::Broken);

    fs::write(dir.path().join("stat"), "cpu 1 1 1 1\n").unwrap();
    let mut probe = probe(dir.path());
    fs::remove_file(dir.path().join("stat")).unwrap();
    let failed = probe.read(Due::ALL, &mut Reading::default());
    assert!(matches!(failed, Err(ProbeError::Gone(_))), "{failed:?}");
}

#[test]
fn the_real_host_agrees_with_its_files() {
    let ctxt = || procfs::parse_stat(&fs::read("/proc/stat").unwrap()).context_switches.unwrap() as f64;
    let mut probe = probe(Path::new("/proc"));
    let before = ctxt();
    let reading = read(probe.as_mut(), Due::ALL);
    let row = &reading.rows()[0];
    assert!((before..=ctxt()).contains(&value(row, "ctx_switches").unwrap()));
    let total: f64 = fs::read_to_string("/proc/meminfo")
        .unwrap()
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))
        .and_then(|rest| rest.trim().trim_end_matches(" kB").parse().ok())
        .unwrap();
    assert_eq!(value(row, "host_memory_total_mb"), Some((total / 1024.0).floor()));
    assert!(value(row, "page_faults") > Some(0.0) && value(row, "uptime_ns") > Some(0.0));

    // This thread keeps a CPU busy until a share comes.
    let until_ns = Moment::now().mono_ns + 20_000_000_000;
    let share = loop {
        let reading = read(probe.as_mut(), Due::default());
        if let Some(share) = value(&reading.rows()[0], "cpu_pct") {
            break share;
        }
        assert!(Moment::now().mono_ns < until_ns, "no share came");
    };
    assert!(share > 0.0 && share <= 100.0, "{share}");
    let now = value(&read(probe.as_mut(), Due::ALL).rows()[0], "ctx_switches").unwrap();
    assert!(now >= before);
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        procfs::parse_stat(&bytes);
        procfs::parse_cores(&bytes).count();
        procfs::parse_memory(&bytes);
        procfs::parse_vmstat(&bytes);
        procfs::parse_load(&bytes);
        procfs::parse_uptime_ns(&bytes);
    }

    #[test]
    fn no_times_panic_and_shares_are_shares(
        first in proptest::collection::vec(any::<u64>(), 0..11),
        second in proptest::collection::vec(any::<u64>(), 0..11),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let line = |times: &[u64]| {
            let times: Vec<String> = times.iter().map(u64::to_string).collect();
            format!("cpu  {}\n", times.join(" "))
        };
        fs::write(dir.path().join("stat"), line(&first)).unwrap();
        let mut probe = probe(dir.path());
        read(probe.as_mut(), Due::ALL);
        fs::write(dir.path().join("stat"), line(&second)).unwrap();
        let reading = read(probe.as_mut(), Due::ALL);
        for column in ["cpu_pct", "cpu_user_pct", "cpu_system_pct", "cpu_iowait_pct"] {
            if let Some(share) = value(&reading.rows()[0], column) {
                prop_assert!((0.0..=100.001).contains(&share), "{} {}", column, share);
            }
        }
    }

    #[test]
    fn counts_are_read_as_written(ctxt in any::<u64>(), intr in any::<u64>(), faults in any::<u64>()) {
        let stat = procfs::parse_stat(format!("intr {intr} 1 2\nctxt {ctxt}\n").as_bytes());
        prop_assert_eq!(stat.context_switches, Some(ctxt));
        prop_assert_eq!(stat.interrupts, Some(intr));
        let vmstat = format!("pgfaulty 1\npgfault {faults}");
        prop_assert_eq!(procfs::parse_vmstat(vmstat.as_bytes()).all, Some(faults));
    }
}
