//! `gpuvitals clocks`: the real program, on captured trees, with real commands and signals.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use gpuvitals_rig::program::Finished as _;
use gpuvitals_rig::tree;
use gpuvitals_rig::waiting::{ended, within};
use rustix::process::{Pid, Signal, geteuid, kill_process};

const LEVEL: &str = "power_dpm_force_performance_level";
/// Prints when it runs, and ends with 7 on request. A shell that was just forked still has the trap, and a
/// signal that it catches is lost when it becomes the sleep: hence KILL, so that none outlives the test and
/// holds its output open.
const OBEDIENT: &str = "trap 'kill -KILL $!; exit 7' TERM; sleep 600 & echo ready; wait";
/// Prints when it runs, and ends when its parent does.
const ENDS_ALONE: &str =
    "echo ready; while kill -0 $PPID 2>/dev/null && [ $(cut -d' ' -f4 /proc/$$/stat) = $PPID ]; do :; done";

/// A machine with a Vega 56 (`card0`) and an MI300X (`card1`).
struct Machine {
    dir: tempfile::TempDir,
    /// Directory of the journals.
    run: PathBuf,
}

impl Machine {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/amd/clocks");
        for name in ["vega56/card0", "mi300x/card1"] {
            tree::copy(
                &fixtures.join(name),
                &dir.path().join("sys").join(Path::new(name).file_name().unwrap()),
            );
        }
        Self { run: dir.path().join("run"), dir }
    }

    fn file(&self, card: &str, name: &str) -> PathBuf {
        self.dir.path().join("sys").join(card).join("device").join(name)
    }

    /// Files that say what was before a lock.
    fn noted(&self) -> usize {
        let files =
            |folder: PathBuf| fs::read_dir(folder).into_iter().flatten().flatten().map(|it| it.path());
        files(self.run.join("clocks")).flat_map(files).count()
    }

    fn level(&self, card: &str) -> String {
        fs::read_to_string(self.file(card, LEVEL)).unwrap().trim().to_owned()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let (action, rest) = arguments.split_first().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_gpuvitals"));
        command
            .args(["clocks", action, "--node", "n1", "--sysfs"])
            .arg(self.dir.path().join("sys"))
            .args(rest)
            .env("RUNTIME_DIRECTORY", &self.run)
            // Away from the terminal that the tests may run in.
            .process_group(0)
            .stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).finished().unwrap()
    }

    /// Starts a lock around a shell command and returns when that prints `ready`.
    fn start(&self, flags: &[&str], script: &str) -> Child {
        let mut arguments = vec!["lock"];
        arguments.extend(flags);
        arguments.extend(["--", "sh", "-c", script]);
        let mut child = self.command(&arguments).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let (line, output) = within("the start of the command", move || {
            let mut line = String::new();
            output.read_line(&mut line).unwrap();
            (line, output.into_inner())
        });
        assert_eq!(line, "ready\n");
        child.stdout = Some(output);
        child
    }
}

fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn a_dry_run_prints_the_writes_and_makes_none() {
    let machine = Machine::new();
    let vega = |name: &str| machine.file("card0", name).display().to_string();
    let mi300 = |name: &str| machine.file("card1", name).display().to_string();
    let check = |arguments: &[&str], expected: String| {
        let output = machine.run(arguments);
        assert_eq!(text(&output.stdout), expected, "{arguments:?} {}", text(&output.stderr));
        assert!(output.status.success());
    };
    check(
        &["lock", "--dry-run", "--level", "high"],
        format!("{} <- \"high\"\n{} <- \"high\"\n", vega(LEVEL), mi300(LEVEL)),
    );
    check(
        &["lock", "--dry-run", "--gpu", "0", "--sclk", "1269", "--mclk", "500"],
        format!(
            "{} <- \"manual\"\n{} <- \"3 \"\n{} <- \"1 \"\n",
            vega(LEVEL),
            vega("pp_dpm_sclk"),
            vega("pp_dpm_mclk")
        ),
    );
    let (level, table) = (mi300(LEVEL), mi300("pp_od_clk_voltage"));
    check(
        &["lock", "--dry-run", "--gpu", "0000:05:00.0", "--sclk", "1500", "--", "true"],
        format!(
            "{level} <- \"perf_determinism\"\n{table} <- \"s 1 1500\\n\"\n{table} <- \"c\"\n\
             # when the command has ended\n{level} <- \"auto\"\n"
        ),
    );
    check(
        &["reset", "--dry-run", "--gpu", "0"],
        format!("{} <- \"0\"\n{} <- \"auto\"\n", vega("pp_sclk_od"), vega(LEVEL)),
    );
    assert!(!machine.dir.path().join("run").exists(), "and notes nothing down");
    assert!(fs::read_to_string(machine.file("card0", "pp_dpm_sclk")).unwrap().starts_with("0: 852Mhz"));
}

#[test]
fn clocks_are_shown_for_people_and_programs() {
    let machine = Machine::new();
    let output = text(&machine.run(&["show"]).stdout);
    assert!(output.contains("0: 852, 1: 991") && output.contains("not held (level auto)"), "{output}");
    let rows: serde_json::Value =
        serde_json::from_slice(&machine.run(&["show", "--json", "--gpu", "1"]).stdout).unwrap();
    assert_eq!(rows[0]["pci"], "0000:05:00.0");
    assert_eq!(rows[0]["gpu_mhz"], 142);
    assert_eq!(rows[0]["is_locked"], false);
    assert_eq!(rows[0]["gpu_range_mhz"], serde_json::json!([500, 2100]));
}

#[test]
fn a_lock_is_kept_until_it_is_reset() {
    let machine = Machine::new();
    assert!(machine.run(&["lock", "--gpu", "0", "--level", "high"]).status.success());
    assert_eq!((machine.level("card0"), machine.level("card1")), ("high".into(), "auto".into()));
    assert!(machine.run(&["lock", "--gpu", "0", "--level", "low", "--", "true"]).status.success());
    assert_eq!(machine.level("card0"), "high", "a command's lock brings back the lock before it");
    assert_eq!(machine.noted(), 1, "the lock that is kept");
    let output = machine.run(&["reset"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(machine.level("card0"), "auto");
    assert_eq!(fs::read_to_string(machine.file("card0", "pp_sclk_od")).unwrap(), "0");
    assert_eq!(machine.noted(), 0, "nothing is left behind");
}

#[test]
fn a_frequency_that_is_kept_ends_with_the_lock_of_a_command() {
    let machine = Machine::new();
    let list = machine.file("card0", "pp_dpm_sclk");
    let listed = fs::read_to_string(&list).unwrap();
    for (lock, allowed) in [(["--sclk", "1590"], "0 1 2 3 4 5 6 7 "), (["--level", "low"], &*listed)] {
        assert!(machine.run(&["lock", "--gpu", "0", "--sclk", "1250"]).status.success());
        // The driver shows its list, whatever is allowed.
        fs::write(&list, &listed).unwrap();
        let output = machine.run(&["lock", "--gpu", "0", lock[0], lock[1], "--", "true"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(
            (machine.level("card0"), fs::read_to_string(&list).unwrap()),
            ("manual".into(), allowed.into())
        );
        fs::write(&list, &listed).unwrap();
    }
}

#[test]
fn a_command_runs_with_the_clocks_and_its_exit_code_is_passed_on() {
    let machine = Machine::new();
    fs::write(machine.file("card0", LEVEL), "profile_peak\n").unwrap();
    let script = format!("cat {}; exit 3", machine.file("card0", LEVEL).display());
    let output = machine.run(&["lock", "--level", "high", "--", "sh", "-c", &script]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "high", "standard output is the command's alone");
    assert_eq!(machine.noted(), 0, "nothing is left behind");
    assert_eq!((machine.level("card0"), machine.level("card1")), ("profile_peak".into(), "auto".into()));

    let crashed = machine.run(&["lock", "--level", "high", "--", "sh", "-c", "kill -SEGV $$"]);
    assert_eq!(crashed.status.code(), Some(128 + 11));
    assert_eq!(machine.level("card0"), "profile_peak");

    let missing = machine.run(&["lock", "--level", "high", "--", "/no/such/program"]);
    assert_eq!(missing.status.code(), Some(127));
    let no_program = machine.run(&["lock", "--level", "high", "--", "/"]);
    assert_eq!(no_program.status.code(), Some(126), "as shells say it");
    assert_eq!(machine.level("card0"), "profile_peak");
}

#[test]
fn signals_go_on_to_the_command_and_the_clocks_come_back() {
    let machine = Machine::new();
    let mut child = machine.start(&["--level", "high"], OBEDIENT);
    assert_eq!((machine.level("card0"), machine.level("card1")), ("high".into(), "high".into()));
    send(&child, Signal::TERM);
    assert_eq!(ended(&mut child).code(), Some(7), "the command decides how it ends");
    assert_eq!((machine.level("card0"), machine.level("card1")), ("auto".into(), "auto".into()));

    for signal in [Signal::INT, Signal::HUP, Signal::QUIT] {
        let mut child = machine.start(&["--level", "high"], "echo ready; exec sleep 600");
        send(&child, signal);
        assert_eq!(ended(&mut child).code(), Some(128 + signal.as_raw()));
        assert_eq!((machine.level("card0"), machine.level("card1")), ("auto".into(), "auto".into()));
    }
}

#[test]
fn signals_that_were_ignored_stay_so_for_the_command_too() {
    let machine = Machine::new();
    let plain = machine.command(&["lock", "--level", "high", "--", "sh", "-c"]);
    let run = |script: &str| {
        let mut command = Command::new("sh");
        command
            .args(["-c", r#"trap "" HUP; exec "$@""#, "nohup"])
            .arg(plain.get_program())
            .args(plain.get_args())
            .arg(script)
            .env("RUNTIME_DIRECTORY", machine.dir.path().join("run"));
        command.finished().unwrap()
    };
    // A shell cannot trap a signal that was ignored when it began.
    let output = run("trap 'exit 9' HUP; kill -HUP $$; exit 3");
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    let status = text(&run("cat /proc/$PPID/status").stdout);
    let mask = |name| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        u64::from_str_radix(line.trim(), 16).unwrap()
    };
    let hup = 1 << (Signal::HUP.as_raw() - 1);
    assert_eq!((mask("SigIgn:") & hup, mask("SigCgt:") & hup), (hup, 0), "{status}");
}

#[test]
fn what_a_killed_holder_left_is_brought_back() {
    let machine = Machine::new();
    let killed = |script: &str| {
        let mut child = machine.start(&["--level", "high", "--gpu", "0"], script);
        send(&child, Signal::KILL);
        ended(&mut child);
        // The command is an orphan now; its output ends with it.
        let mut output = child.stdout.take().unwrap();
        within("the end of the orphan", move || output.read_to_string(&mut String::new()).unwrap());
        assert_eq!(machine.level("card0"), "high");
    };
    fs::write(machine.file("card0", LEVEL), "profile_peak\n").unwrap();
    killed(ENDS_ALONE);
    let next = machine.run(&["lock", "--gpu", "0", "--level", "low", "--", "true"]);
    assert!(next.status.success() && text(&next.stderr).contains("was killed"), "{}", text(&next.stderr));
    assert_eq!(machine.level("card0"), "profile_peak", "not the lock of the one that was killed");

    killed(ENDS_ALONE);
    assert!(machine.run(&["reset", "--gpu", "0"]).status.success());
    assert_eq!(machine.level("card0"), "auto");
}

#[test]
fn what_a_killed_holder_left_finds_its_gpu_under_another_number() {
    let machine = Machine::new();
    let mut child = machine.start(&["--level", "high", "--gpu", "0"], ENDS_ALONE);
    send(&child, Signal::KILL);
    ended(&mut child);
    let card = |name: &str| machine.dir.path().join("sys").join(name);
    let lock = ["lock", "--level", "low", "--", "true"];
    // It fell off the bus: the other GPU has its number, and is not touched in its place.
    fs::rename(card("card0"), machine.dir.path().join("away")).unwrap();
    fs::rename(card("card1"), card("card0")).unwrap();
    fs::write(machine.file("card0", LEVEL), "profile_peak\n").unwrap();
    let output = machine.run(&lock);
    let stderr = text(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert_eq!(machine.level("card0"), "profile_peak");
    // It is back, as another card.
    fs::rename(machine.dir.path().join("away"), card("card1")).unwrap();
    let output = machine.run(&lock);
    let stderr = text(&output.stderr);
    assert!(output.status.success() && stderr.contains("was killed"), "{stderr}");
    assert_eq!((machine.level("card0"), machine.level("card1")), ("profile_peak".into(), "auto".into()));
}

#[test]
fn a_way_back_that_is_gone_does_not_stop_a_reset() {
    let machine = Machine::new();
    fs::write(machine.file("card0", LEVEL), "manual\n").unwrap();
    let mut child = machine.start(&["--gpu", "0", "--sclk", "1269"], ENDS_ALONE);
    send(&child, Signal::KILL);
    ended(&mut child);
    let list = machine.file("card0", "pp_dpm_sclk");
    fs::remove_file(&list).unwrap();
    fs::create_dir(&list).unwrap();
    let lock = ["lock", "--gpu", "0", "--level", "low", "--", "true"];
    let refused = machine.run(&lock);
    assert!(!refused.status.success() && text(&refused.stderr).contains("clocks reset"));
    let reset = machine.run(&["reset", "--gpu", "0"]);
    let stderr = text(&reset.stderr);
    assert!(reset.status.success() && stderr.contains("not restored"), "{stderr}");
    assert_eq!(machine.level("card0"), "auto");
    let output = machine.run(&lock);
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn of_several_kept_locks_each_is_undone() {
    let machine = Machine::new();
    fs::write(machine.file("card0", LEVEL), "manual\n").unwrap();
    let read = |name| fs::read_to_string(machine.file("card0", name)).unwrap();
    for flags in [["--sclk", "1269"], ["--mclk", "500"]] {
        assert!(machine.run(&["lock", "--gpu", "0", flags[0], flags[1]]).status.success());
        // The driver shows its list, whatever is allowed.
        fs::write(machine.file("card0", "pp_dpm_sclk"), "0: 852Mhz *\n1: 991Mhz\n").unwrap();
    }
    assert!(machine.run(&["reset", "--gpu", "0"]).status.success());
    assert_eq!((read("pp_dpm_sclk"), read("pp_dpm_mclk")), ("0 1 2 3 4 5 6 7 ".into(), "0 1 2 3 ".into()));
}

#[test]
fn two_holders_are_kept_apart() {
    let machine = Machine::new();
    let mut first = machine.start(&["--level", "high", "--gpu", "0"], OBEDIENT);
    let second = machine.run(&["lock", "--level", "low", "--gpu", "0"]);
    assert_eq!(second.status.code(), Some(69));
    assert!(text(&second.stderr).contains("another gpuvitals holds its clocks"), "{}", text(&second.stderr));
    assert_eq!(machine.level("card0"), "high");
    assert!(machine.run(&["lock", "--level", "low", "--gpu", "1", "--", "true"]).status.success());
    send(&first, Signal::TERM);
    ended(&mut first);
}

#[test]
fn a_captured_tree_has_notes_of_its_own() {
    let (machine, mut other) = (Machine::new(), Machine::new());
    let mut first = machine.start(&["--level", "high", "--gpu", "0"], OBEDIENT);
    // A GPU of the same name on another tree, with the notes in the same place.
    let own = std::mem::replace(&mut other.run, machine.run.clone());
    let second = other.run(&["lock", "--level", "low", "--gpu", "0", "--", "true"]);
    assert!(second.status.success(), "{}", text(&second.stderr));
    assert!(!own.exists() && machine.level("card0") == "high");
    send(&first, Signal::TERM);
    ended(&mut first);
    assert_eq!(machine.level("card0"), "auto");
}

#[test]
fn one_gpu_that_refuses_leaves_none_locked() {
    let machine = Machine::new();
    fs::remove_file(machine.file("card1", LEVEL)).unwrap();
    symlink("/dev/null", machine.file("card1", LEVEL)).unwrap();
    let marker = machine.dir.path().join("ran");
    let output = machine.run(&["lock", "--level", "high", "--", "touch", marker.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(69));
    assert!(text(&output.stderr).contains("without effect"), "{}", text(&output.stderr));
    assert_eq!(machine.level("card0"), "auto");
    assert!(!marker.exists(), "the command does not run");
    let quiet = machine.run(&["lock", "--gpu", "0", "--level", "high", "--", "true"]);
    assert_eq!(text(&quiet.stderr), "", "nothing is left over");
}

#[test]
fn without_the_right_it_says_which_and_ends_with_77() {
    let machine = Machine::new();
    fs::set_permissions(machine.dir.path(), Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(machine.dir.path().join("run")).unwrap();
    fs::set_permissions(machine.dir.path().join("run"), Permissions::from_mode(0o777)).unwrap();
    for card in ["card0", "card1"] {
        fs::set_permissions(machine.file(card, LEVEL), Permissions::from_mode(0o444)).unwrap();
    }
    let marker = machine.dir.path().join("run/ran");
    for arguments in [
        &["lock", "--level", "high", "--", "touch", marker.to_str().unwrap()][..],
        &["lock", "--level", "high"],
        &["reset", "--gpu", "1"],
    ] {
        let mut command = machine.command(arguments);
        if geteuid().is_root() {
            // Root may write anything; nobody may not, and may not see where the program was built.
            let program = machine.dir.path().join("gpuvitals");
            if !program.exists() {
                // By another process: a file that any thread here has open for writing while another one forks is busy.
                let copied =
                    Command::new("cp").arg(env!("CARGO_BIN_EXE_gpuvitals")).arg(&program).finished().unwrap();
                assert!(copied.status.success(), "{copied:?}");
            }
            let old = command;
            command = Command::new(program);
            command
                .args(old.get_args())
                .env("RUNTIME_DIRECTORY", machine.dir.path().join("run"))
                .uid(65534)
                .gid(65534);
        }
        let output = command.finished().unwrap();
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(77), "{arguments:?}: {stderr}");
        assert!(stderr.contains(LEVEL) && stderr.contains("root") && stderr.contains("udev"), "{stderr}");
    }
    assert!(!marker.exists());
    assert_eq!((machine.level("card0"), machine.level("card1")), ("auto".into(), "auto".into()));
}

#[test]
fn what_cannot_be_asked_for_is_said() {
    let machine = Machine::new();
    let check = |arguments: &[&str], code: i32, words: &str| {
        let output = machine.run(arguments);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
        assert!(stderr.contains(words), "{arguments:?}: {stderr}");
    };
    check(&["lock"], 64, "nothing to lock");
    check(&["lock", "--level", "fast"], 64, "profile_peak");
    check(&["lock", "--gpu", "7", "--level", "high"], 64, "no GPU is called \"7\"");
    check(&["lock", "--gpu", "1", "--sclk", "9000"], 64, "500 to 2100 MHz");
    check(&["show", "--driver", "procfs"], 69, "no GPU with readable clocks was found");
    fs::remove_file(machine.file("card1", LEVEL)).unwrap();
    check(&["lock", "--gpu", "1", "--level", "high"], 69, "SR-IOV");
}
