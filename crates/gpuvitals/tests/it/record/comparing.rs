//! `gpuvitals compare` on recordings of captured machines: its exit codes and its forms.

use std::path::Path;
use std::process::Output;

use gpuvitals_rig::gpuvitals;
use gpuvitals_rig::program::Finished as _;
use serde_json::Value;

use super::{record, said};

/// Records a captured machine for some time.
fn recorded(tree: &str, output: &Path, duration: &str) {
    let recorded = record(tree, output).args(["--quiet", "--duration", duration]).finished().unwrap();
    assert!(recorded.status.success(), "{recorded:?}");
}

fn compare(flags: &[&str], base: &Path, new: &Path) -> Output {
    gpuvitals!().arg("compare").args(flags).arg(base).arg("--").arg(new).finished().unwrap()
}

#[test]
fn a_gate_that_fails_is_an_exit_code_and_noise_one_only_if_asked() {
    let dir = tempfile::tempdir().unwrap();
    let (short, long) = (dir.path().join("short"), dir.path().join("long"));
    recorded("rx7900xtx", &short, "500ms");
    recorded("rx7900xtx", &long, "2s");
    let check = |flags: &[&str], base: &Path, new: &Path, code: i32| {
        let output = compare(flags, base, new);
        assert_eq!(output.status.code(), Some(code), "{flags:?}: {:?}", said(&output));
        said(&output).0
    };
    check(&["--gate", "duration_s:+50%"], &short, &long, 1);
    check(&["--gate", "duration_s:+50%"], &long, &short, 0);
    check(&["--gate", "duration_s:+1%"], &short, &short, 0);
    check(&["--gate", "duration_s:+1%", "--strict"], &short, &short, 2);

    let text = check(&["--gate", "duration_s:+50%"], &short, &long, 1);
    assert!(text.contains("gate duration_s:+50%: failed") && text.contains("is assumed"), "{text}");
    let markdown = check(&["--gate", "duration_s:+50%", "--markdown"], &short, &long, 1);
    assert!(markdown.starts_with("### gpuvitals: regression\n\n| metric |"), "{markdown}");
    let json = check(&["--gate", "duration_s:+50%", "--json"], &short, &long, 1);
    let json: Value = serde_json::from_str(&json).unwrap();
    let change = &json["metrics"]["duration_s"];
    assert_eq!((&change["verdict"], &json["verdict"]), (&"regression".into(), &"regression".into()));
    assert!(change["change_pct"].as_f64().unwrap() > 100.0, "{json:#}");
    assert_eq!(json["gates"][0]["metric"], "duration_s");
}

#[test]
fn what_cannot_be_compared_is_refused_with_the_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let (one, other) = (dir.path().join("one"), dir.path().join("other"));
    recorded("rx7900xtx", &one, "300ms");
    recorded("rx580", &other, "300ms");
    let check = |flags: &[&str], base: &Path, new: &Path, code: i32, words: &str| {
        let output = compare(flags, base, new);
        let (_, stderr) = said(&output);
        assert_eq!(output.status.code(), Some(code), "{flags:?}: {stderr}");
        assert!(stderr.contains(words), "{words} is not in {stderr}");
    };
    check(&[], &one, &other, 65, "--anyway");
    check(&["--gate", "step_s:+2%"], &one, &one, 65, "gpuvitals mark");
    check(&[], &one, dir.path(), 65, "holds no recording");
    check(&["--gate", "steps:+2%"], &one, &one, 64, "step_s, step_energy_j");
    check(&[], &one, Path::new("--json"), 64, "put flags before it");
    let anyway = compare(&["--anyway", "--gate", "duration_s:+90%"], &one, &other);
    assert!(said(&anyway).0.contains("model differs"), "{anyway:?}");

    // The unit is the run: a recording named twice is one of it.
    let twice = gpuvitals!().arg("compare").args([&one, &one]).arg("--").arg(&one).finished().unwrap();
    assert_eq!(twice.status.code(), Some(65), "{twice:?}");
    assert!(said(&twice).1.contains("are one recording, which would count twice"), "{twice:?}");
}
