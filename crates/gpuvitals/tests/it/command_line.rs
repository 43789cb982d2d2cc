//! Output of the command line when nothing runs.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use gpuvitals_rig::program::Finished as _;
use gpuvitals_rig::waiting::ended;

fn run(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gpuvitals"))
        .env_clear()
        .envs(environment.iter().copied())
        .args(arguments)
        .finished()
        .unwrap()
}

fn said(arguments: &[&str]) -> String {
    let output = run(arguments, &[]);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn path(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn file(name: &str) -> String {
    std::fs::read_to_string(path(name)).unwrap()
}

/// Every setting with its default, as configs/config.yaml is before anybody edits it.
const DEFAULTS: &str = "docs/config.yaml";

#[test]
fn help_tells_a_newcomer_where_to_begin() {
    let help = said(&["--help"]);
    for word in
        ["Start here", "--source simulated", "Exit codes", "query", "metrics", "completions", "config"]
    {
        assert!(help.contains(word), "{word} in\n{help}");
    }
    for command in [
        &["up", "--help"][..],
        &["query", "--help"],
        &["query", "range", "--help"],
        &["metrics", "--help"],
        &["simulate", "--help"],
        &["config", "--help"],
    ] {
        let help = said(command);
        assert!(help.contains("Usage:") && !help.contains("TODO"), "{command:?}\n{help}");
    }
    for command in [
        "agent", "broker", "collect", "compare", "doctor", "export", "flight", "mark", "query", "queue",
        "record", "report", "sample", "stream", "up",
    ] {
        let help = said(&[command, "--help"]);
        assert!(help.contains("Examples") && help.contains("[default: info]"), "{command}\n{help}");
    }
    assert!(said(&["--version"]).starts_with("gpuvitals "));
}

#[test]
fn help_begins_with_what_the_command_is_about_and_tls_stands_last() {
    for (command, first) in [
        (&["agent"][..], "--listen"),
        (&["broker"], "--listen"),
        (&["collect"], "--workers"),
        (&["explain"], "--last"),
        (&["findings"], "--severity"),
        (&["jobs"], "--last"),
        (&["query", "gpus"], "--judgement"),
        (&["queue", "stats"], "--json"),
        (&["serve"], "--collectors"),
        (&["stream"], "--replay"),
        (&["up"], "--source"),
    ] {
        let help = said(&[command, &["-h"]].concat());
        let (_, options) = help.split_once("Options:\n").unwrap();
        let (options, access) = options.split_once("TLS and tokens:\n").unwrap();
        assert!(options.trim_start().starts_with(first), "{command:?}\n{help}");
        assert!(access.contains("--token-file"), "{command:?}\n{help}");
        assert!(!options.contains("--token-file") && !options.contains("--ca "), "{command:?}\n{help}");
    }
    // Here the file is what the command is about.
    assert!(!said(&["token", "-h"]).contains("TLS and tokens"));
}

/// What is refused, and what is said of it.
const WRONG_WORDS: &[(&[&str], &str)] = &[
    (&["agent", "--port", "70000"], "--port"),
    (&["agent", "--rate", "5000"], "'--rate <HZ>': 5000 is out of range"),
    (&["agent", "--mq-url", "kafka://x"], "kafka://x"),
    (&["agent", "--log-level", "loud"], "\"loud\" is no level"),
    (&["broker", "--bytes-max", "5QB"], "5QB"),
    (&["collect", "--workers", "0"], "'--workers <N>': 0 is out of range"),
    (&["collect", "--mq-url", "a:1", "--broker-port", "1"], "cannot be used with"),
    (&["up", "--csv", "x", "--source", "none"], "cannot be used with"),
    (&["stream", "--csv", "x", "--duration", "soon"], "soon"),
    (&["stream", "--csv", "x", "--topic", "bad topic"], "message_queue.topic"),
    (&["collect", "--topic", "x.dead"], "belong to dead letters"),
    (&["collect", "--group", "a b"], "collector.group"),
    (&["queue", "tail", "bad name"], "bad name"),
    (&["queue", "tail", "t", "--count", "0"], "--count"),
    (&["queue", "stats", "--mq-url", "nowhere"], "nowhere"),
    (&["query", "gpus", "--url", "nowhere"], "nowhere"),
    (&["query", "gpus", "--judgement", "odd"], "unconfirmed"),
    (&["query", "hosts", "--judgement", "critical,odd"], "unconfirmed"),
    (&["query", "range", "power_w", "--last", "long"], "--last"),
    (&["jobs", "--last", "long"], "--last"),
    (&["jobs", "top", "--last", "long"], "--last"),
    (&["jobs", "--by", "label"], "namespace"),
    (&["jobs", "waste", "--by", "job"], "namespace"),
    (&["jobs", "waste", "--csv", "--html", "a"], "--csv"),
    (&["jobs", "waste", "--csv", "--json"], "--json is another form"),
    (&["jobs", "waste", "--html", "a", "--json"], "--json is another form"),
    (&["jobs", "show"], "<ID>"),
    (&["jobs", "show", "7", "--end", "soon"], "--end"),
    (&["jobs", "--last", "1h", "show", "7"], "show"),
    (&["jobs", "hook", "other"], "epilog"),
    (&["jobs", "summary", "~.*"], "no number of a job"),
    (&["jobs", "summary", ""], "no number of a job"),
    (&["jobs", "summary", "4711;node=n1"], "no number of a job"),
    (&["findings", "--silence", "host=a"], "--for <DURATION>"),
    (&["findings", "--silence", "node=a", "--for", "8h"], "neither host=NAME"),
    (&["findings", "--silence", "host=a", "--for", "soon"], "--for"),
    (&["findings", "--acknowledge", "xid:a", "--until", "soon"], "--until"),
    (&["findings", "--acknowledge", "xid:a", "--at", "2026-11-20"], "cannot be used with"),
    (&["findings", "--release", "xid:a", "--silences"], "cannot be used with"),
    (&["findings", "--for", "8h"], "required"),
    (&["sample", "--interval", "0"], "--interval"),
    (&["top", "--interval", "0.5ms"], "--interval"),
    (&["simulate", "--duration", "long"], "--duration"),
    (&["simulate", "--start", "now"], "--start"),
    (&["metrics", "no such metric"], "no such metric"),
    (&["metrics", "--json", "power_w"], "--format table"),
    (&["stream", "--csv", "x", "--speed", "10"], "--times now"),
    (&["up", "--csv", "x", "--speed", "10"], "--times now"),
    (&["broker", "--persistence", "perhaps"], "--persistence"),
    (&["top", "--otlp-endpoint", "http://x"], "--otlp-endpoint"),
];

#[test]
fn what_is_wrong_with_the_command_line_is_an_error_of_usage() {
    let check = |arguments: &[&str], environment: &[(&str, &str)], code: i32, words: &str| {
        let output = run(arguments, environment);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
        assert!(stderr.contains(words), "{arguments:?}: {stderr}");
    };
    for (arguments, words) in WRONG_WORDS {
        check(arguments, &[], 64, words);
    }
    // A value from the environment is refused with the name of its variable, as it is set there.
    for (variable, value, arguments) in [
        ("GPUVITALS_API_PORT", "many", &["up"][..]),
        ("GPUVITALS_BROKER_ACK_TIMEOUT", "soon", &["broker"]),
        ("GPUVITALS_SAMPLING_RATE", "5000", &["agent"]),
        ("GPUVITALS_LOG_LEVEL", "loud", &["config", "check"]),
        ("EXPORTER_PORT", "many", &["agent"]),
        ("COLLECTION_INTERVAL", "soon", &["agent"]),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "nowhere", &["collect"]),
    ] {
        let others = [(variable, value), ("GPUVITALS_STORE_DIR", "data"), ("GPUVITALS_API_LISTEN", "::1")];
        check(arguments, &others, 78, &format!("environment variable {variable}: "));
    }
    check(&["query", "gpus"], &[("GPUVITALS_URL", "nowhere")], 64, "GPUVITALS_URL");
    // The same from elsewhere is not the command line's fault, also where that is fine.
    check(&["agent", "--port", "0"], &[("GPUVITALS_SAMPLING_RATE", "5000")], 78, "sampling.rate");
    check(&["collect"], &[("GPUVITALS_COLLECTOR_GROUP", "a b")], 78, "collector.group");
    check(&["config", "check"], &[("GPUVITALS_LOG_LEVEL", "loud")], 78, "\"loud\" is no level");
    assert!(run(&["config", "check"], &[("GPUVITALS_LOG_LEVEL", "info,h2=off")]).status.success());
}

#[test]
fn what_is_not_there_is_answered_with_what_is() {
    let check = |arguments: &[&str], code: i32, words: &str| {
        let output = run(arguments, &[]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
        assert!(stderr.contains(words), "{arguments:?}: {stderr}");
    };
    for (arguments, words) in [
        (&["foo"][..], "Commands of `gpuvitals`: agent, broker, "),
        (&["queue", "foo"], "Commands of `gpuvitals queue`: dead, help, "),
        (&["store", "stats", "--foo"], "Flags of `gpuvitals store stats`: --"),
        (&["sample", "--port", "9"], "--port is a flag of: `gpuvitals agent`, "),
    ] {
        check(arguments, 64, words);
    }
    for (section, key, value) in [("collector", "worker_count", "1000000"), ("store", "dir", "\"\"")] {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), format!("{section}:\n  {key}: {value}\n")).unwrap();
        let setting = format!("{section}.{key}");
        check(&["config", "check", "--config", file.path().to_str().unwrap()], 78, &setting);
    }
}

#[test]
fn a_flag_that_is_true_or_false_is_written_in_every_way() {
    // What follows the flag is wrong, and named: the flag was understood.
    for (command, flag, follows) in [
        ("broker", "--persistence", &["--when-full", "odd"][..]),
        ("collect", "--checkpoint", &["--workers", "odd"]),
        ("up", "--loop", &["--port", "odd"]),
        ("stream", "--once", &["--workers", "odd"]),
        ("agent", "--require-gpus", &["--port", "odd"]),
        ("record", "--per-core", &["--rate", "odd"]),
        ("sample", "--per-core", &["--count", "odd"]),
    ] {
        for spelled in [&["", ""][..], &["", "true"], &["", "off"], &["=true", ""], &["=false", ""]] {
            let [glued, value] = spelled else { unreachable!() };
            let flag = format!("{flag}{glued}");
            let mut arguments = vec![command, &flag];
            arguments.extend(Some(*value).filter(|value| !value.is_empty()));
            arguments.extend(follows);
            let output = run(&arguments, &[]);
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert!(stderr.contains("invalid value 'odd'"), "{arguments:?}: {stderr}");
        }
        assert!(said(&[command, "--help"]).contains(&format!("{flag} [<BOOL>]")), "{command}");
    }
}

#[test]
fn a_duration_without_a_unit_is_seconds_and_the_help_says_so() {
    for command in [
        &["sample"][..],
        &["top"],
        &["record"],
        &["stream"],
        &["agent"],
        &["broker"],
        &["up"],
        &["simulate"],
        &["query", "range"],
    ] {
        let help = said(&[command, &["--help"]].concat());
        let lines = help.lines().collect::<Vec<_>>().join(" ");
        let words = lines.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("(without a unit: seconds)"), "{command:?}\n{help}");
    }
    let rows = |duration, interval| {
        said(&["simulate", "--gpus", "1", "--hosts", "1", "--duration", duration, "--interval", interval])
    };
    assert_eq!(rows("5", "1"), rows("5s", "1000ms"));
    let shown = run(&["config", "show"], &[("GPUVITALS_SHUTDOWN_GRACE", "7")]);
    assert!(String::from_utf8_lossy(&shown.stdout).contains("grace: 7 "));
    assert!(file(DEFAULTS).contains("a number alone is seconds"));
}

#[test]
fn only_services_speak_of_where_telemetry_goes() {
    for (command, has) in
        [("up", true), ("broker", true), ("top", false), ("query", false), ("metrics", false)]
    {
        assert_eq!(said(&[command, "--help"]).contains("--otlp-endpoint"), has, "{command}");
    }
}

#[test]
fn nobody_who_reads_is_no_failure() {
    let folder = tempfile::tempdir().unwrap();
    let csv = folder.path().join("rows.csv");
    std::fs::write(&csv, "timestamp,gpu_id,temperature\n2026-01-01T00:00:00Z,gpu_0,50\n").unwrap();
    let stream =
        ["stream", "--metrics-port", "0", "--mq-url", "http://127.0.0.1:1", "--duration", "100ms", "--csv"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpuvitals"));
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    command.args(stream).arg(&csv).env("GPUVITALS_SHUTDOWN_GRACE", "100ms");
    command.stdout(writer.try_clone().unwrap()).stderr(writer);
    // The row that nobody took is what it ends with.
    assert_eq!(ended(&mut command.spawn().unwrap()).code(), Some(69));
}

#[test]
fn the_catalogue_prints_in_three_forms() {
    assert_eq!(said(&["metrics", "--format", "markdown"]), file("docs/metrics.md"));
    let json: serde_json::Value = serde_json::from_str(&said(&["metrics", "--json"])).unwrap();
    let power = json.as_array().unwrap().iter().find(|metric| metric["column"] == "power_w").unwrap();
    assert_eq!(power["unit"], "W");
    let table = said(&["metrics", "power_w"]);
    assert!(table.contains("power_w") && !table.contains("fan_speed_pct"), "{table}");
}

#[test]
fn the_defaults_are_the_commented_file() {
    let defaults = said(&["config", "default"]);
    if std::env::var_os("UPDATE").is_some() {
        // The file of `make run` is its user's: what was changed there stays.
        let is_edited = file("configs/config.yaml") != file(DEFAULTS);
        for name in [DEFAULTS].into_iter().chain((!is_edited).then_some("configs/config.yaml")) {
            std::fs::write(path(name), &defaults).unwrap();
        }
    }
    assert!(defaults == file(DEFAULTS), "run `make generate`");
    assert!(said(&["config", "check"]).contains("valid"));
}

#[test]
fn show_says_what_is_in_force_and_check_names_strangers() {
    let shown = run(&["config", "show"], &[("GPUVITALS_API_PORT", "7000")]);
    let shown = String::from_utf8_lossy(&shown.stdout);
    let line = shown.lines().find(|line| line.contains("port: 7000")).unwrap();
    assert!(line.ends_with("# environment variable GPUVITALS_API_PORT"), "{line}");
    let checked = run(&["config", "check"], &[("GPUVITALS_API_PROT", "7000")]);
    assert!(String::from_utf8_lossy(&checked.stdout).contains("did you mean GPUVITALS_API_PORT?"));
}

#[test]
fn an_environment_that_is_no_text_does_no_harm() {
    use std::os::unix::ffi::OsStrExt;
    let odd = std::ffi::OsStr::from_bytes(&[0xff, 0xfe]);
    let output = Command::new(env!("CARGO_BIN_EXE_gpuvitals"))
        .env("ODD", odd)
        .args(["config", "check"])
        .finished()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn completions_are_written_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(said(&["completions", shell]).contains("gpuvitals"), "{shell}");
    }
    let bash = said(&["completions", "bash"]);
    let after = |flag: &str| {
        let at = bash.find(&format!("                {flag})\n")).unwrap();
        bash[at..].lines().nth(1).unwrap().trim()
    };
    assert_eq!(
        after("--log-level"),
        "COMPREPLY=($(compgen -W \"error warn info debug trace off\" -- \"${cur}\"))"
    );
    assert!(!after("--driver").contains("compgen -f") && !after("--node").contains("compgen -f"));
}

#[test]
fn every_command_has_a_manual_page() {
    let folder = tempfile::tempdir().unwrap();
    said(&["man", folder.path().to_str().unwrap()]);
    let page = |command: &str| std::fs::read_to_string(folder.path().join(command).with_extension("1"));
    let main = page("gpuvitals").unwrap();
    assert_eq!(said(&["man"]), main);
    let words = ["SYNOPSIS", "Start here", "GPUVITALS_CONFIG", "gpuvitals\\-top(1)"];
    assert!(words.iter().all(|word| main.contains(word)), "{main}");
    for command in ["up", "agent", "man", "query-range", "queue-dead", "config-default"] {
        assert!(page(&format!("gpuvitals-{command}")).unwrap().contains(".SH NAME"), "{command}");
    }
    assert!(page("gpuvitals-agent").unwrap().contains("\\-\\-rate"));
    let pages = std::fs::read_dir(folder.path()).unwrap().flatten().map(|entry| entry.file_name());
    assert!(pages.into_iter().all(|page| !page.to_string_lossy().contains("help")));
    assert_eq!(run(&["man", "/nowhere"], &[]).status.code(), Some(74));
}

#[test]
fn the_same_seed_writes_the_same_recording() {
    let arguments = ["simulate", "--gpus", "3", "--hosts", "1", "--duration", "5s", "--seed", "9"];
    let first = said(&arguments);
    assert_eq!(first.lines().count(), 1 + 3 * 5);
    assert_eq!(first, said(&arguments));
    assert!(
        first.lines().skip(1).all(|line| line.contains(",simulated,")),
        "every row says that it is simulated"
    );
}

#[test]
fn a_simulated_fleet_has_a_host_for_each_eight_gpus_unless_told() {
    let csv = said(&["simulate", "--gpus", "24", "--duration", "1s"]);
    let hosts: std::collections::BTreeSet<&str> =
        csv.split([',', '\n']).filter(|cell| cell.starts_with("sim-node-")).collect();
    assert_eq!(hosts.len(), 3, "{hosts:?}");
}

#[test]
fn the_commands_that_alerts_name_exist() {
    let text = include_str!("../../../../docs/alerts.md");
    let commands = text.split('`').filter_map(|code| code.strip_prefix("gpuvitals "));
    let commands: Vec<Vec<&str>> = commands.map(|words| words.split(' ').collect()).collect();
    assert!(commands.len() > 5, "{commands:?}");
    for words in commands {
        let help = run(&[&words[..], &["--help"]].concat(), &[]);
        assert!(help.status.success(), "gpuvitals {}", words.join(" "));
    }
}

#[test]
fn one_script_makes_the_tokens_of_the_manifests() {
    let folder = tempfile::tempdir().unwrap();
    let (bin, asked) = (folder.path().join("bin"), folder.path().join("asked"));
    std::fs::create_dir(&bin).unwrap();
    // In a folder where the script itself lies, as beside the manifests.
    let here = folder.path().join("manifests");
    std::fs::create_dir(&here).unwrap();
    // Written by another process: a file that a thread here has open for writing while another one forks is busy.
    let write = r#"cp "$1" "$2" && printf '#!/bin/sh\necho "$*" >>%s\n' "$3" >"$4" && chmod 755 "$4""#;
    let written = Command::new("sh")
        .args(["-c", write, "sh"])
        .args([&path("deploy/kubernetes/tokens"), &here, &asked, &bin.join("kubectl")])
        .finished()
        .unwrap();
    assert!(written.status.success(), "{written:?}");
    let tokens = here.join("gpuvitals-tokens");
    let make = || {
        let made = Command::new("./tokens")
            .current_dir(&here)
            .env("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").unwrap()))
            .env("GPUVITALS", env!("CARGO_BIN_EXE_gpuvitals"))
            .finished()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let names = ["agent", "collector", "gateway", "reader", "admin", "tokens"];
        names.map(|name| std::fs::read_to_string(tokens.join(name)).unwrap())
    };
    let first = make();
    assert!(first.iter().all(|text| !text.is_empty()));
    assert_eq!(make(), first, "again it keeps those that are there");
    let asked = std::fs::read_to_string(asked).unwrap();
    assert!(asked.contains("create secret generic gpuvitals-tokens --from-file"), "{asked}");

    let manifests = file("deploy/kubernetes/gpuvitals.yaml");
    let images = manifests.lines().filter(|line| line.contains("image: ") && !line.ends_with("*image"));
    assert_eq!(images.count(), 1, "one line names the image");
}
