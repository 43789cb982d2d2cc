//! The report of a run through its public surface, from recordings that are written here row by row.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod page;
mod written;

use std::path::{Path, PathBuf};

use gpuvitals_record::StepOrigin;
use gpuvitals_report::RunReport;

use written::{Run, Said, write_anew};

/// Compares with a file beside the tests; `UPDATE=1` writes it.
fn golden(name: &str, found: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/report").join(name);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, found).unwrap();
    }
    let wanted = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(found, wanted, "{name} differs; UPDATE=1 writes it anew");
}

/// The report of a run, whose directory is called `run`.
fn report(run: &Run) -> RunReport {
    let dir = tempfile::tempdir().unwrap();
    run.write(dir.path());
    let mut report = RunReport::read(&[dir.path().to_owned()]).unwrap();
    report.recordings.iter_mut().for_each(|recording| "run".clone_into(&mut recording.directory));
    report
}

#[test]
fn each_form_of_a_report_is_this() {
    let report = report(&Run::hot());
    golden("run.json", &report.json());
    golden("run.md", &report.markdown());
    // The browser tests look at this one: dashboard/e2e/report.spec.ts.
    golden("run.html", &report.html());
}

#[test]
fn a_run_is_told_in_three_sentences() {
    let report = report(&Run::hot());
    assert_eq!(report.title, "4 × NVIDIA H100 80GB HBM3 on n1");
    let [taken, held, behind] = report.sentences.as_slice() else { panic!("{:?}", report.sentences) };
    assert!(taken.starts_with("The run was recorded for 20.0 s; the 4 GPUs took "), "{taken}");
    assert!(taken.contains(" W together on average."), "{taken}");
    let error = report.energy_error.as_deref().unwrap();
    assert!(error.starts_with("± 5.") && taken.contains(error), "{taken}");
    assert!(held.starts_with("Heat held GPU 3 down for ") && held.ends_with(" % of the time."), "{held}");
    assert!(behind.starts_with("GPU 3 ran at ") && behind.contains("below the median"), "{behind}");
    assert!(report.html().contains(">Energy of GPU 0, 1, 2, 3: integrated from power; "));
    assert!(report.html().contains(">Error of the energy of GPU 0"), "how far it may be off");
    let held = report.gpus.iter().find(|gpu| gpu.name == "3").unwrap();
    let (share, by) = (held.summary.throttled.unwrap().share, held.held_by.unwrap());
    assert!((share - 0.4).abs() < 0.02, "{share}");
    assert!((by.heat - share).abs() < 0.002 && by.power + by.hardware + by.other < 0.001, "{by:?}");
}

#[test]
fn a_run_that_was_simulated_says_so_first() {
    let report = report(&Run { source: Some("simulated"), ..Run::hot() });
    let said = "Simulated, not measured: 4 of 4 GPUs.";
    assert_eq!(report.sentences.first().map(String::as_str), Some(said));
    assert!(report.html().contains(said) && report.markdown().contains("Simulated, not measured"));
}

#[test]
fn a_recording_that_another_program_wrote_anew_is_read() {
    let run =
        || Run { marks: vec![(5_000, "step 7".to_owned()), (12_000, "step 8".to_owned())], ..Run::hot() };
    let as_recorded = report(&run());
    let joules = |run: &RunReport| {
        let energies = run.gpus.iter().filter_map(|gpu| gpu.summary.energy.as_ref());
        energies.map(|energy| energy.joules).collect::<Vec<_>>()
    };
    for has_floats in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        run().write(dir.path());
        write_anew(dir.path(), has_floats);
        let report = RunReport::read(&[dir.path().to_owned()]).unwrap();
        assert_eq!(joules(&report), joules(&as_recorded));
        assert_eq!(joules(&report).len(), 4);
        assert!(report.markdown().contains("step 8"), "its marks too: {}", report.markdown());
    }
}

#[test]
fn a_run_on_two_machines_has_the_gpus_of_both_by_one_clock() {
    let dir = tempfile::tempdir().unwrap();
    let [first, second] = ["n1", "n2"].map(|node| dir.path().join(node));
    Run { node: "n1", gpus: 2, ..Run::hot() }.write(&first);
    // Its monotonic clock began at another time.
    Run { node: "n2", gpus: 2, monotonic_ns: 77_000_000_000, ..Run::hot() }.write(&second);
    let report = RunReport::read(&[second, first]).unwrap();
    let names: Vec<_> = report.gpus.iter().map(|gpu| gpu.name.as_str()).collect();
    assert_eq!(names, ["n1/0", "n1/1", "n2/0", "n2/1"], "those of a machine beside each other");
    assert_eq!(report.title, "4 × NVIDIA H100 80GB HBM3 on n1 and n2");
    assert!((report.duration_s - 20.0).abs() < 0.2, "{}", report.duration_s);
    assert_eq!(report.hosts.len(), 2);
    let times: Vec<_> = report.marks.iter().map(|mark| mark.at_s).collect();
    assert_eq!(times, [5.0, 5.0, 12.0, 12.0]);
    assert_eq!(report.markdown().matches("python train.py").count(), 1, "both ran the same command");
    assert_eq!(report.html().matches("<code>python train.py</code>").count(), 1);
}

#[test]
fn the_machine_for_which_the_others_wait_is_named_by_its_marks() {
    let dir = tempfile::tempdir().unwrap();
    // All steps last a second; one machine works for most of it, and the others wait.
    let works_ms = [("n1", 400), ("n2", 900), ("n3", 440)];
    let paths = works_ms.map(|(node, _)| dir.path().join(node));
    let write = |waits: &str| {
        for ((node, work_ms), path) in works_ms.into_iter().zip(&paths) {
            let marks = (0..20).flat_map(|step| {
                let begin = (step * 1_000, format!("step {step}"));
                [begin, (step * 1_000 + work_ms, format!("phase {waits}"))]
            });
            Run { node, gpus: 1, marks: marks.collect(), ..Run::hot() }.write(path);
        }
        RunReport::read(&paths).unwrap()
    };
    let report = write("wait");
    let last = report.last.as_ref().unwrap();
    assert_eq!((last.node.as_str(), last.steps, last.share), ("n2", 19, 1.0));
    assert!((last.worked_s - 0.9).abs() < 1e-9 && (last.others_s - 0.42).abs() < 1e-9, "{last:?}");
    let said = "n2 was the last in 100 % of 19 steps: it worked for 0.90 s in one and the others for 0.42 s, and they waited for it.";
    assert!(report.sentences.iter().any(|sentence| sentence == said), "{:?}", report.sentences);
    let alone = RunReport::read(&paths[1..2]).unwrap();
    assert!(alone.last.is_none(), "nobody waits for it");
    let silent = write("train");
    assert!(silent.last.is_none(), "nobody says when it waits");
}

#[test]
fn the_host_alone_is_a_run_as_well() {
    let report = report(&Run { gpus: 0, ..Run::hot() });
    assert_eq!(report.title, "No GPU on n1");
    let [only] = report.sentences.as_slice() else { panic!("{:?}", report.sentences) };
    assert!(only.starts_with("The host alone was recorded, for "), "{only}");
    assert!(report.energy_j.is_none() && report.html().contains("CPUs of the host"));
}

#[test]
fn marks_beyond_a_few_hundred_are_counted() {
    let marks: Vec<(i64, String)> = (0..1_000).map(|step| (step * 19, format!("step {step}"))).collect();
    let report = report(&Run { marks, ..Run::hot() });
    assert_eq!((report.marks.len(), report.marks_left_out), (200, 800));
    assert!(report.html().contains("800 more marks"));
    assert!(report.markdown().contains("1000 marks"));
}

#[test]
fn marked_steps_have_their_distribution_and_energy() {
    let marks = (0..20).map(|step| (step * 1_000, format!("step {step}"))).collect();
    let report = report(&Run { marks, ..Run::hot() });
    let steps = report.steps.as_ref().unwrap();
    assert_eq!((steps.count, steps.warm_up, steps.origin), (19, 0, StepOrigin::Marks));
    assert!((steps.median_s - 1.0).abs() < 1e-9 && (steps.longest_s - 1.0).abs() < 1e-9, "{steps:?}");
    // Four GPUs of about 610 W, one of which is held to 450 W for eight of the steps.
    let joules = steps.energy_j.unwrap();
    assert!((2_200.0..2_500.0).contains(&joules), "{joules}");
    // Of a second an H100 sees a quarter, a tenth late: 11 % of the highest power beside the 5 % of its sensor.
    let interval = steps.energy_interval.as_ref().unwrap();
    assert!((0.11..0.15).contains(&interval.share), "{interval:?}");
    assert!(interval.low_j < joules && joules < interval.high_j, "{interval:?}");
    assert_eq!(steps.energy_error.as_deref(), Some(interval.to_string().as_str()));
    let [_, sentence, ..] = report.sentences.as_slice() else { panic!("{:?}", report.sentences) };
    assert!(sentence.starts_with("A step took 1.00 s and 2."), "{sentence}");
    assert!(sentence.ends_with("19 steps by its marks."), "{sentence}");
    let page = report.html();
    assert!(page.contains("Duration of 19 steps") && page.contains("How long 19 steps took"));
    assert!(report.markdown().contains("| Median | 1.00 s |"), "{}", report.markdown());
}

#[test]
fn the_energy_of_a_step_has_no_error_where_nobody_has_measured_the_sensor_and_that_is_said() {
    let marks = || (0..20).map(|step| (step * 1_000, format!("step {step}"))).collect();
    let unknown = report(&Run { marks: marks(), model: "AMD Instinct MI300X", ..Run::hot() });
    let steps = unknown.steps.as_ref().unwrap();
    assert!(steps.energy_j.is_some() && steps.energy_interval.is_none());
    let error = steps.energy_error.as_deref().unwrap();
    assert!(error.starts_with("not known: nobody has measured"), "{error}");
    assert!(unknown.markdown().contains("kJ, error not known |"), "{}", unknown.markdown());
    assert_eq!(unknown.energy_error, None);
    assert!(unknown.markdown().contains("kJ, error not known."), "{}", unknown.markdown());
}

#[test]
fn the_energy_of_a_short_step_is_less_sure_than_that_of_a_long_one() {
    let share = |apart_ms: i64| {
        let marks = (0..20_000 / apart_ms).map(|step| (step * apart_ms, format!("step {step}"))).collect();
        let report = report(&Run { marks, ..Run::hot() });
        report.steps.unwrap().energy_interval.unwrap().share
    };
    let (short, long) = (share(500), share(2_000));
    assert!(short > 1.8 * long, "{short} {long}");
}

#[test]
fn steps_and_phases_are_shown_without_marks() {
    let said = |_: i32, row: i64| {
        let watts = match row {
            ..100 => 90,
            _ if row % 10 < 8 => 600,
            _ => 300,
        };
        Some(Said { watts, clock_mhz: 1_980, is_hot: false })
    };
    let report = report(&Run { rows: 700, marks: Vec::new(), said, ..Run::hot() });
    let steps = report.steps.as_ref().unwrap();
    assert_eq!(steps.origin, StepOrigin::Signals);
    assert!((58..=61).contains(&steps.count), "{steps:?}");
    assert!((steps.median_s - 1.0).abs() < 0.02 && steps.certainty > 0.7, "{steps:?}");
    assert!(report.sentences.iter().any(|sentence| sentence.contains("as the signals show")));
    let phase = |name: &str| report.phases.iter().find(|phase| phase.name == name).unwrap();
    let (idle, steady) = (phase("idle"), phase("steady"));
    assert!(
        (idle.duration_s - 10.0).abs() < 1.0 && (steady.duration_s - 60.0).abs() < 2.0,
        "{:?}",
        report.phases
    );
    let (idle_w, steady_w) =
        (idle.energy_j.unwrap() / idle.duration_s, steady.energy_j.unwrap() / steady.duration_s);
    let share = |phase: &gpuvitals_report::PhaseFigures| phase.energy_interval.as_ref().unwrap().share;
    assert!(share(steady) > 0.05 && share(steady) < 0.2, "{steady:?}");
    assert!((idle_w - 360.0).abs() < 60.0 && (steady_w - 2_160.0).abs() < 60.0, "{idle_w} W, {steady_w} W");
}

#[test]
fn a_directory_without_a_recording_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let error = RunReport::read(&[dir.path().to_owned()]).unwrap_err().to_string();
    assert!(error.contains("holds no recording") && error.contains(dir.path().to_str().unwrap()), "{error}");
    Run::hot().write(dir.path());
    std::fs::write(dir.path().join("gpu_events.parquet"), "PAR1 and no more").unwrap();
    let error = RunReport::read(&[dir.path().to_owned()]).unwrap_err().to_string();
    assert!(error.contains("gpu_events.parquet"), "{error}");
    assert!(RunReport::read(&[Path::new("/nonexistent").to_owned()]).is_err());
}

#[test]
fn a_recording_that_is_given_twice_is_refused_also_as_a_copy() {
    let dir = tempfile::tempdir().unwrap();
    let [run, copy] = ["run", "copy"].map(|name| dir.path().join(name));
    Run::hot().write(&run);
    Run::hot().write(&copy);
    for again in [&run, &copy] {
        let error = RunReport::read(&[run.clone(), again.clone()]).unwrap_err().to_string();
        assert!(error.contains("are one recording") && error.contains(again.to_str().unwrap()), "{error}");
    }
}

#[test]
fn markdown_has_no_markup_of_strangers() {
    let hostile = "`</details>` | @team <b>**bold**</b> [x](y) ![z](http://z)\n# heading \u{202e}\u{2066}";
    let run =
        Run { model: "a | b", command: hostile, marks: vec![(1_000, hostile.to_owned())], ..Run::hot() };
    let report = report(&run);
    let text = report.markdown();
    assert_eq!(text.matches("</details>").count(), 1, "{text}");
    for markup in
        ["<b>", "**bold", "| @team", "@team", "[x](y)", "\n# heading", "http://", "\u{202e}", "\u{2066}"]
    {
        assert!(!text.contains(markup), "{markup} in\n{text}");
    }
    let cells = |line: &str| line.replace("\\|", "").matches('|').count();
    let table: Vec<_> = text.lines().filter(|line| line.starts_with("| ")).take(6).map(cells).collect();
    assert!(table.iter().all(|count| *count == 12), "{table:?} in\n{text}");
}
