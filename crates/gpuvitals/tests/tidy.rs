//! The house rules that a compiler does not check: allowed dependencies, sizes of files and functions,
//! accepted licences.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use gpuvitals_rig::program::Finished as _;

const FILE_LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 70;

/// Crate → the siblings it may know. Only the binary knows all.
const STAR: &[(&str, &[&str])] = &[
    ("core", &[]),
    ("log", &[]),
    ("settings", &["core"]),
    ("listener", &["core", "log", "settings"]),
    ("queue", &["core", "log", "listener", "settings"]),
    ("sources", &["core", "settings"]),
    ("inputs", &["core", "sources"]),
    ("record", &["core", "analysis", "log", "sources"]),
    ("report", &["core", "analysis", "record"]),
    ("flight", &["core", "analysis", "listener", "log", "settings"]),
    ("clocks", &["core", "sources"]),
    ("clusters", &["core", "settings", "sources"]),
    ("store", &["core", "log"]),
    ("jsonl", &["core", "log"]),
    ("postgres", &["core", "settings"]),
    ("remote", &["core", "listener"]),
    ("outgoing", &["core", "listener", "settings"]),
    ("suite", &["core"]),
    ("rig", &[]),
    ("api", &["core", "analysis", "flight", "listener", "promql", "settings"]),
    ("analysis", &["core"]),
    ("exposition", &["core", "analysis"]),
    ("promql", &["core", "exposition"]),
    ("collect", &["core", "settings", "listener", "queue"]),
    (
        "agent",
        &["core", "log", "settings", "listener", "queue", "sources", "analysis", "exposition", "flight"],
    ),
    (
        "gpuvitals",
        &[
            "agent",
            "clocks",
            "clusters",
            "collect",
            "core",
            "flight",
            "inputs",
            "log",
            "queue",
            "record",
            "report",
            "sources",
            "store",
            "jsonl",
            "postgres",
            "remote",
            "outgoing",
            "api",
            "analysis",
            "exposition",
            "listener",
            "settings",
        ],
    ),
];

/// Test programs beside the one of their crate. They change or measure what belongs to a whole process, keep a pace, or have bounds in
/// time that others' work would break; those of `gpuvitals` are long, so that one that hangs hides little.
const OTHER_TEST_PROGRAMS: &[&str] = &[
    "gpuvitals/agent",
    "gpuvitals/broker",
    "gpuvitals/gateway",
    "gpuvitals/outgoing",
    "gpuvitals/pipeline",
    "gpuvitals/streaming",
    "gpuvitals/terminal",
    "gpuvitals/tidy",
    "queue/abuse",
    "queue/crash",
    "queue/held",
    "queue/nats",
    "queue/served",
    "sources/sampler",
    "store/abandoned",
];

/// Licences compatible with Apache-2.0 that have come in so far.
const LICENCES: &[&str] = &[
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
    "0BSD",
    "BSL-1.0",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn sources(extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root().join("crates"), root().join("dashboard")];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            if path.is_dir()
                && !["node_modules", "dist", "target", "vendor", "test-results"].contains(&name.as_str())
            {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    assert!(!found.is_empty());
    found
}

#[test]
fn dependencies_form_a_star_around_core() {
    for entry in std::fs::read_dir(root().join("crates")).unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let manifest = std::fs::read_to_string(entry.path().join("Cargo.toml")).unwrap();
        let allowed = STAR
            .iter()
            .find(|(krate, _)| *krate == name)
            .unwrap_or_else(|| {
                panic!("crate {name} has no place in the star; give it one here and in ARCHITECTURE.md")
            })
            .1;
        let dependencies = manifest.split("[dev-dependencies]").next().unwrap();
        for line in dependencies.lines() {
            if let Some(sibling) =
                line.strip_prefix("gpuvitals-").and_then(|rest| rest.split(['.', ' ', '=']).next())
            {
                assert!(allowed.contains(&sibling), "crate {name} may not know {sibling}");
            }
            assert!(
                !line.contains("version =") || !line.contains('{'),
                "{name}: versions stand in the workspace manifest alone: {line}"
            );
        }
    }
}

#[test]
fn tests_share_code_as_crates_do() {
    // Pieces, so that this file has no such line.
    let by_path = ["#[", "path"].concat();
    let is_one = |path: &PathBuf| {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().any(|line| line.trim_start().starts_with(&by_path))
    };
    let offenders: Vec<_> = sources("rs").into_iter().filter(is_one).collect();
    assert!(
        offenders.is_empty(),
        "what several test programs use belongs into crates/rig, or they become one: {offenders:?}"
    );
}

#[test]
fn a_crates_integration_tests_are_one_program_where_they_can_be() {
    let mut others = BTreeSet::new();
    for entry in std::fs::read_dir(root().join("crates")).unwrap().flatten() {
        let krate = entry.file_name().to_string_lossy().into_owned();
        let Ok(tests) = std::fs::read_dir(entry.path().join("tests")) else { continue };
        let is_program =
            |path: &PathBuf| path.extension().is_some_and(|it| it == "rs") || path.join("main.rs").is_file();
        let name = |path: PathBuf| format!("{krate}/{}", path.file_stem().unwrap().to_string_lossy());
        let programs = tests.flatten().map(|test| test.path()).filter(is_program).map(name);
        let (known, own): (BTreeSet<_>, BTreeSet<_>) =
            programs.partition(|program| OTHER_TEST_PROGRAMS.contains(&program.as_str()));
        assert!(own.len() <= 1, "each is linked with all of its crate: make them one, {krate}/it: {own:?}");
        others.extend(known);
    }
    assert!(others.iter().eq(OTHER_TEST_PROGRAMS), "one that is gone leaves the list: {others:?}");
}

#[test]
fn files_fit_on_a_few_screens() {
    for extension in ["rs", "ts", "tsx"] {
        for path in sources(extension) {
            if ["schema.d.ts", "queue-schema.d.ts"]
                .iter()
                .any(|made| path.ends_with(Path::new("src/api").join(made)))
            {
                continue;
            }
            let lines = std::fs::read_to_string(&path).unwrap().lines().count();
            assert!(
                lines <= FILE_LINES_MAX,
                "{} has {lines} lines; are there two rooms in it?",
                path.display()
            );
        }
    }
}

#[test]
fn every_file_is_a_module() {
    let all = sources("rs");
    let sources: Vec<_> =
        all.iter().filter(|path| path.components().any(|part| part.as_os_str() == "src")).collect();
    let mut named = BTreeSet::from(["lib".to_owned(), "main".to_owned()]);
    for path in &sources {
        let text = std::fs::read_to_string(path).unwrap();
        let ends = |c: char| !c.is_alphanumeric() && c != '_';
        let names = text.split("mod ").skip(1).filter_map(|rest| rest.split(ends).next());
        named.extend(names.map(str::to_owned));
    }
    for path in &sources {
        let stem = path.file_stem().unwrap().to_string_lossy();
        let name =
            if stem == "mod" { path.parent().unwrap().file_name().unwrap().to_string_lossy() } else { stem };
        assert!(named.contains(&*name), "no module names {}", path.display());
    }
}

#[test]
fn functions_fit_on_one_screen() {
    let mut offenders = Vec::new();
    for path in sources("rs") {
        if path.components().any(|part| part.as_os_str() == "catalogue") {
            continue; // tables
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        for (start, line) in lines.iter().enumerate() {
            let length = function_length(&lines[start..], line).unwrap_or(0);
            if length > FUNCTION_LINES_MAX {
                offenders.push(format!("{}:{}: function of {length} lines", path.display(), start + 1));
            }
        }
    }
    assert!(offenders.is_empty(), "{}", offenders.join("\n"));
}

/// Lines from a function's first to its closing brace, as rustfmt lays it out; none if the line begins no function
/// with a body.
fn function_length(lines: &[&str], first: &str) -> Option<usize> {
    let word = first.trim_start();
    let indent = first.len() - word.len();
    let visible =
        word.strip_prefix("pub").map_or(word, |rest| rest.split_once(' ').map_or(rest, |(_, rest)| rest));
    let plain = ["const ", "async ", "unsafe "].iter().fold(visible, |w, p| w.strip_prefix(p).unwrap_or(w));
    plain.strip_prefix("fn ")?;
    let body = lines.iter().position(|l| l.trim_end().ends_with(['{', ';', '}']))?;
    if !lines[body].trim_end().ends_with('{') {
        return None;
    }
    let close = format!("{}}}", " ".repeat(indent));
    lines.iter().position(|l| *l == close).map(|end| end + 1)
}

#[test]
fn no_room_is_named_for_what_it_lacks_a_name_for() {
    let nameless = ["util", "utils", "common", "helpers", "helper", "misc", "manager", "types"];
    let is_nameless = |path: &PathBuf| {
        let inside = path.strip_prefix(root()).unwrap().with_extension("");
        inside.components().any(|part| nameless.contains(&part.as_os_str().to_string_lossy().as_ref()))
    };
    let offenders: Vec<_> = sources("rs").into_iter().filter(is_nameless).collect();
    assert!(offenders.is_empty(), "name it for what it holds: {offenders:?}");
}

#[test]
fn one_type_name_means_one_thing_in_all_crates() {
    let mut crates_of: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for path in sources("rs") {
        let inside = path.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
        let mut parts = inside.split('/');
        let (Some("crates"), Some(name), Some("src")) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        if inside.ends_with("tests.rs") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let shipped = text.split("\n#[cfg(test)]\nmod ").next().unwrap();
        for line in shipped.lines() {
            let declared = ["pub struct ", "pub enum ", "pub trait ", "pub type "];
            let Some(rest) = declared.iter().find_map(|words| line.trim_start().strip_prefix(words)) else {
                continue;
            };
            let word = rest.split(|c: char| !c.is_alphanumeric()).next().unwrap();
            crates_of.entry(word.to_owned()).or_default().insert(name.to_owned());
        }
    }
    crates_of.retain(|word, crates| crates.len() > 1 && !["Error", "Config"].contains(&word.as_str()));
    assert!(crates_of.is_empty(), "a name for two things; qualify one of them: {crates_of:?}");
}

/// The texts of errors in a file: what stands in `#[error("…")]`.
fn error_texts(text: &str) -> impl Iterator<Item = &str> {
    text.split("#[error(").skip(1).filter_map(|rest| rest.trim_start().strip_prefix('"')?.split('"').next())
}

/// One of them makes a text a sentence. Add yours, if it is a verb and nothing else.
const VERBS: &[&str] = &[
    "answers", "are", "begins", "belong", "broke", "came", "can", "cannot", "closed", "could", "denied",
    "did", "do", "does", "ended", "ends", "exclude", "expired", "failed", "fit", "give", "gives", "has",
    "have", "holds", "is", "knows", "lacks", "listens", "may", "must", "names", "needs", "panicked", "reads",
    "refused", "speaks", "stay", "take", "takes", "waits", "was", "went", "were", "write", "wrote",
];

/// What continues "failed to …".
const INFINITIVES: &[&str] = &["append", "configure", "open", "read", "replay", "start", "subscribe", "use"];

/// What stands before its cause or in a table: the name of a setting or a field, a word that tells a state.
const FRAGMENTS: &[&str] = &[
    "agent.socket",
    "agent.spool_dir",
    "flight.gateway",
    "given back",
    "gone: {0}",
    "message_queue",
    "no answer within {0:?}",
    "not acknowledged in time",
    "otlp.endpoint",
    "rejected by consumer: {0}",
    "the body: {0}",
    "timestamp: {0}",
    "tls_cert, tls_key or tls_client_ca",
    "token_file: {}",
    "topic: {0}",
];

/// Whether a text of an error says what failed.
fn says_what_failed(text: &str) -> bool {
    // What is filled in is a text of its own, or brings the verb.
    let fixed = text.split('{').map(|part| part.rsplit('}').next().unwrap());
    let mut words =
        fixed.flat_map(|part| part.split(|c: char| !c.is_alphabetic())).filter(|word| !word.is_empty());
    let first = text.split(' ').next().unwrap_or_default();
    let is_filled_in =
        text.starts_with("{action}") || text.contains("{reason}") || words.clone().next().is_none();
    is_filled_in
        || INFINITIVES.contains(&first)
        || FRAGMENTS.contains(&text)
        || words.any(|word| VERBS.contains(&word))
}

#[test]
fn errors_say_what_failed() {
    for fragment in ["topic for publish", "writing the answer", "damaged batch: {0}", "{0}, never filled"] {
        assert!(!says_what_failed(fragment), "{fragment}");
    }
    let mut offenders = Vec::new();
    for path in
        sources("rs").into_iter().filter(|path| path.components().any(|part| part.as_os_str() == "src"))
    {
        let text = std::fs::read_to_string(&path).unwrap();
        let bad = error_texts(&text).filter(|text| !says_what_failed(text));
        offenders.extend(bad.map(|text| format!("{}: {text}", path.display())));
    }
    assert!(
        offenders.is_empty(),
        "say in a sentence what is wrong, or in an infinitive what could not be done: {offenders:#?}"
    );
}

#[test]
fn functions_that_the_architecture_names_stand_where_it_says() {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut checked = 0;
    // `function` (`path`)
    for (before, after) in text.split("` (`").zip(text.split("` (`").skip(1)) {
        let function = before.rsplit('`').next().unwrap();
        let path = after.split('`').next().unwrap();
        if !path.contains('.') || path.contains(' ') {
            continue;
        }
        let source = std::fs::read_to_string(root().join(path)).unwrap_or_default();
        let is_there = ["fn", "function"]
            .iter()
            .any(|word| ["(", "<"].iter().any(|open| source.contains(&format!("{word} {function}{open}"))));
        assert!(is_there, "{path} has no function {function}");
        checked += 1;
    }
    assert!(checked >= 14, "only {checked} are found");
}

#[test]
fn modules_do_not_import_each_other_in_a_circle() {
    let output = Command::new(root().join("scripts/circles")).finished().unwrap();
    let (said, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}{error}");
}

#[test]
fn licences_of_dependencies_are_compatible() {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--format-version",
            "1",
            "--locked",
            "--filter-platform",
            "x86_64-unknown-linux-gnu",
        ])
        .current_dir(root())
        .finished()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut offenders = BTreeMap::new();
    for package in metadata["packages"].as_array().unwrap() {
        let licence = package["license"].as_str().unwrap_or("").replace('/', " OR ");
        // A choice is fine if one side is; a sum only if every part is.
        let fine = licence.split(" OR ").any(|choice| {
            choice.split(" AND ").all(|part| LICENCES.contains(&part.trim_matches(|c| "() ".contains(c))))
        });
        if !fine {
            offenders.insert(package["name"].to_string(), licence);
        }
    }
    assert!(offenders.is_empty(), "licences to look at: {offenders:#?}");
}
