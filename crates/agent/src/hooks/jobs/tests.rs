use arrow_array::cast::AsArray as _;
use gpuvitals_core::batch::{numbers, text_at};
use gpuvitals_core::merge::{Order, merge};
use gpuvitals_core::time::SECOND_NS;
use gpuvitals_sources::attribution::slurm::SlurmStep;

use super::super::message::{HookMessage, RunNews};
use super::*;
use crate::doubles::gpu_up;

/// Half past an hour.
const HALF_PAST_NS: i64 = 1_795_168_800_000_000_000 + 30 * MINUTE_NS;

fn at(second: i64) -> Moment {
    Moment { wall_ns: HALF_PAST_NS + second * SECOND_NS, mono_ns: (1_000 + second) * SECOND_NS }
}

fn told(hook: JobHook, id: &str, more: &[(&str, &str)]) -> ToldJob {
    let environment = [&[("SLURM_JOB_ID", id)][..], more].concat();
    let variable = |name: &str| {
        environment.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
    };
    ToldJob::of(&HookMessage::of(hook, variable).unwrap()).unwrap()
}

fn jobs() -> Jobs {
    Jobs::new(Arc::new(Ownership::new()), "n1")
}

/// A row's job, who told of it, its state, a text, and its start and end in seconds.
type Shown = (String, String, String, Option<String>, [Option<i64>; 2]);

/// The rows of a batch with one of its texts.
fn shown(batch: Option<&Batch>, column: &str) -> Vec<Shown> {
    let Some(batch) = batch else { return Vec::new() };
    let text = |column: &str, row: usize| {
        let texts = batch.records().column_by_name(column)?.as_dictionary();
        text_at(texts, row).map(str::to_owned)
    };
    let second = |column: &str, row: usize| {
        let value = numbers(batch.records().column_by_name(column)?)?.value(row)?;
        let Value::Int(ns) = value else { panic!("{value:?}") };
        Some((ns - HALF_PAST_NS) / SECOND_NS)
    };
    let row = |row| {
        let of = |column| text(column, row).unwrap();
        (
            of("job_id"),
            of("told_by"),
            of("state"),
            text(column, row),
            ["start_ns", "end_ns"].map(|it| second(it, row)),
        )
    };
    (0..batch.rows()).map(row).collect()
}

fn row(id: &str, by: &str, state: &str, text: Option<&str>, times: [Option<i64>; 2]) -> Shown {
    (id.into(), by.into(), state.into(), text.map(str::to_owned), times)
}

#[test]
fn a_job_has_a_row_from_its_prolog_on_and_its_epilog_does_not_erase_what_the_controller_knew() {
    let jobs = jobs();
    assert!(jobs.hear(told(JobHook::Controller, "7", &[("SLURM_JOB_ACCOUNT", "ml")]), at(0)));
    assert!(jobs.hear(told(JobHook::Prolog, "7", &[("SLURM_JOB_GPUS", "0,1")]), at(1)));
    let begun = jobs.due(at(2));
    assert_eq!(
        shown(begun.as_ref(), "account"),
        [
            row("7", "prolog", "running", None, [Some(1), None]),
            row("7", "controller", "running", Some("ml"), [Some(0), None]),
        ]
    );
    assert_eq!(shown(begun.as_ref(), "gpus")[0].3.as_deref(), Some("0,1"));
    assert!(jobs.due(at(3)).is_none(), "nothing is new");
    let code = [("SLURM_JOB_EXIT_CODE2", "3:0")];
    assert!(jobs.hear(told(JobHook::Epilog, "7", &code), at(60)));
    assert!(jobs.hear(told(JobHook::Controller, "7", &code), at(61)));
    let ended = jobs.due(at(62));
    assert_eq!(
        shown(ended.as_ref(), "exit_code"),
        [
            row("7", "epilog", "ended", Some("3:0"), [Some(1), Some(60)]),
            row("7", "controller", "ended", Some("3:0"), [Some(0), Some(61)]),
        ]
    );
    assert_eq!(shown(ended.as_ref(), "account")[1].3.as_deref(), Some("ml"));
}

#[test]
fn a_row_comes_again_so_that_the_last_one_stays_whichever_frames_are_lost() {
    let jobs = jobs();
    jobs.hear(told(JobHook::Prolog, "7", &[]), at(0));
    let mut sent = vec![jobs.due(at(0)).unwrap()];
    assert!(jobs.due(at(599)).is_none());
    sent.push(jobs.due(at(600)).unwrap());
    jobs.hear(told(JobHook::Controller, "7", &[]), at(700));
    jobs.hear(told(JobHook::Controller, "7", &[("SLURM_JOB_EXIT_CODE2", "0:0")]), at(701));
    sent.push(jobs.due(at(702)).unwrap());
    // The frame of the end is lost.
    let lost = sent.pop().unwrap();
    sent.push(jobs.due(at(1_302)).unwrap());
    assert!(shown(Some(&lost), "step").iter().all(|row| shown(sent.last(), "step").contains(row)));
    sent.reverse();
    let parts: Vec<_> = sent.iter().map(|batch| batch.records().clone()).collect();
    let merged = merge(Table::Jobs, &parts, Order::GpuTime).unwrap().unwrap();
    let merged = Batch::new(Table::Jobs, merged, Origin::default(), 0).unwrap();
    let mut kept = shown(Some(&merged), "step");
    kept.sort();
    assert_eq!(
        kept,
        [
            row("7", "controller", "ended", Some(WHOLE), [Some(700), Some(701)]),
            row("7", "prolog", "running", Some(WHOLE), [Some(0), None]),
        ]
    );
}

#[test]
fn a_step_has_rows_from_its_first_process_to_its_last_and_one_of_slurms_own_has_none() {
    let ownership = Arc::new(Ownership::new());
    let jobs = Jobs::new(Arc::clone(&ownership), "n1");
    let step = |name: &str, gpus: Option<&str>| SlurmStep {
        job: "7".into(),
        step: name.into(),
        gpus: gpus.map(Arc::from),
        devices: None,
    };
    let rows = |second: i64| {
        let batch = jobs.due(at(second));
        let steps = shown(batch.as_ref(), "step").into_iter().map(|row| row.3.unwrap());
        let gpus = shown(batch.as_ref(), "gpus").into_iter();
        steps.zip(gpus).map(|(step, (.., state, gpus, times))| (step, state, gpus, times)).collect::<Vec<_>>()
    };
    let of = |step: &str, state: &str, gpus: Option<&str>, times: [Option<i64>; 2]| {
        (step.to_owned(), state.to_owned(), gpus.map(str::to_owned), times)
    };
    ownership.take_steps(vec![step("batch", Some("0,1")), step("extern", None), step("0", None)]);
    let zero = of("0", "running", None, [Some(0), None]);
    assert_eq!(rows(0), [zero, of("batch", "running", Some("0,1"), [Some(0), None])]);
    assert_eq!(rows(20), [], "nothing is new");
    ownership.take_steps(vec![step("batch", Some("0,1")), step("0", Some("1"))]);
    assert_eq!(rows(30), [of("0", "running", Some("1"), [Some(0), None])]);
    ownership.take_steps(vec![step("batch", Some("0,1"))]);
    assert_eq!(rows(60), [of("0", "ended", Some("1"), [Some(0), Some(60)])]);
    assert_eq!(rows(630), [of("batch", "running", Some("0,1"), [Some(0), None])], "every ten minutes");
    ownership.take_steps(vec![step("0", Some("1"))]);
    let again = of("0", "running", Some("1"), [Some(700), None]);
    assert_eq!(rows(700), [again, of("batch", "ended", Some("0,1"), [Some(0), Some(700)])]);
}

/// What Slurm says of a job that is over.
fn ended(outcome: &'static str) -> SlurmWord {
    SlurmWord { outcome: Some(outcome), gpus_asked: None }
}

#[test]
fn how_many_gpus_a_job_asked_for_stands_in_its_row_from_when_it_is_known_on() {
    let asked = |batch: Option<Batch>| {
        let batch = batch?;
        let value = numbers(batch.records().column_by_name("gpus_asked")?)?.value(0)?;
        let Value::Int(gpus) = value else { panic!("{value:?}") };
        Some(gpus)
    };
    let jobs = jobs();
    jobs.hear(told(JobHook::Controller, "7", &[]), at(0));
    assert_eq!(asked(jobs.due(at(0))), None);
    assert_eq!(jobs.to_ask(), ["7"]);
    let word = SlurmWord { outcome: None, gpus_asked: Some(8) };
    jobs.take_word("7", word, at(3));
    assert_eq!(asked(jobs.due(at(4))), Some(8));
    jobs.take_word("7", word, at(5));
    assert!(jobs.due(at(6)).is_none(), "that is known");
    jobs.hear(told(JobHook::Controller, "7", &[("SLURM_JOB_EXIT_CODE2", "0:0")]), at(60));
    assert_eq!(asked(jobs.due(at(61))), Some(8), "the end does not erase it");

    let by_script = told(JobHook::Controller, "8", &[("SLURM_GPUS", "h100:4")]);
    assert_eq!(ToldJob::of(&by_script.message().unwrap()), Some(by_script.clone()), "as it is kept");
    jobs.hear(by_script, at(70));
    assert_eq!(asked(jobs.due(at(71))), Some(4));
}

#[test]
fn how_a_job_ended_stands_in_its_row_once_slurm_was_asked() {
    let jobs = jobs();
    jobs.hear(told(JobHook::Controller, "7", &[]), at(0));
    jobs.hear(told(JobHook::Controller, "8", &[]), at(0));
    assert_eq!(jobs.to_ask(), ["7", "8"]);
    jobs.take_word("7", ended("cancelled"), at(1));
    assert!(jobs.to_ask().is_empty(), "both run");
    jobs.hear(told(JobHook::Controller, "7", &[("SLURM_JOB_EXIT_CODE2", "0:0")]), at(10));
    jobs.hear(told(JobHook::Epilog, "7", &[]), at(10));
    let _told = jobs.due(at(11));
    assert_eq!(jobs.to_ask(), ["7"]);
    jobs.take_word("7", ended("cancelled"), at(14));
    assert!(jobs.to_ask().is_empty(), "it is known");
    let known = jobs.due(at(15));
    assert_eq!(
        shown(known.as_ref(), "exit_code"),
        [row("7", "controller", "cancelled", Some("0:0"), [Some(0), Some(10)])]
    );
    let as_of = numbers(known.unwrap().records().column_by_name("as_of_ns").unwrap()).unwrap().value(0);
    assert_eq!(as_of, Some(Value::Int(at(14).wall_ns)), "of two rows the later one stays");
    jobs.hear(told(JobHook::Controller, "8", &[("SLURM_JOB_EXIT_CODE2", "0:0")]), at(20));
    let asked = (0..100).take_while(|_| !jobs.to_ask().is_empty()).count();
    assert_eq!(asked, usize::try_from(ASKED_TIMES).unwrap(), "not for ever");
}

#[test]
fn a_job_has_a_row_in_every_hour_in_which_it_runs() {
    let jobs = jobs();
    jobs.hear(told(JobHook::Prolog, "7", &[]), at(0));
    let hour_of =
        |batch: Option<Batch>| batch.map(|batch| (batch.timestamps()[0] - HALF_PAST_NS) / MINUTE_NS);
    assert_eq!(hour_of(jobs.due(at(1_799))), Some(-30));
    assert_eq!(hour_of(jobs.due(at(1_800))), Some(30));
    jobs.hear(told(JobHook::Epilog, "7", &[]), at(1_801));
    assert_eq!(hour_of(jobs.due(at(5_000))), Some(30), "the hour of its end");
    let nothing: [TargetState; 0] = [];
    jobs.allot(&nothing, at(5_402));
    assert!(jobs.due(at(20_000)).is_none(), "it is forgotten an hour after its end");
}

#[test]
fn a_job_that_is_put_back_into_the_queue_begins_anew() {
    let jobs = jobs();
    for (second, hook) in [(0, JobHook::Prolog), (10, JobHook::Epilog), (130, JobHook::Prolog)] {
        jobs.hear(told(hook, "7", &[]), at(second));
    }
    assert_eq!(
        shown(jobs.due(at(131)).as_ref(), "step"),
        [
            row("7", "prolog", "running", Some(WHOLE), [Some(130), None]),
            row("7", "epilog", "ended", Some(WHOLE), [Some(0), Some(10)]),
        ]
    );
    jobs.hear(told(JobHook::Epilog, "7", &[]), at(200));
    let again = row("7", "epilog", "ended", Some(WHOLE), [Some(130), Some(200)]);
    assert_eq!(shown(jobs.due(at(201)).as_ref(), "step"), [again]);
}

#[test]
fn a_job_holds_its_gpus_between_prolog_and_epilog_and_the_newest_counts() {
    let jobs = jobs();
    let mut gpu = Identity::default().with(IdentityColumn::Uuid, "GPU-1").unwrap();
    gpu.set(IdentityColumn::Vendor, "nvidia").unwrap();
    gpu.index = Some(1);
    let gpu = Arc::new(gpu);
    let states = [gpu_up(Arc::clone(&gpu))];
    let held = |second| {
        jobs.allot(&states, at(second));
        jobs.ownership.owners().attribute(&gpu).get(IdentityColumn::Job).map(str::to_owned)
    };
    assert_eq!(held(0), None);
    jobs.hear(told(JobHook::Prolog, "7", &[("SLURM_JOB_GPUS", "0,1")]), at(1));
    assert_eq!(held(2).as_deref(), Some("7"));
    jobs.hear(told(JobHook::Prolog, "8", &[("SLURM_JOB_GPUS", "1")]), at(3));
    assert_eq!(held(4).as_deref(), Some("8"), "the epilog of 7 is late");
    jobs.hear(told(JobHook::Controller, "9", &[("SLURM_JOB_GPUS", "1")]), at(5));
    assert_eq!(held(6).as_deref(), Some("8"), "only a prolog gives");
    jobs.hear(told(JobHook::Epilog, "8", &[]), at(7));
    assert_eq!(held(8), None, "7 has lost what was given to another");
    jobs.hear(told(JobHook::Epilog, "7", &[]), at(9));
    assert_eq!(held(10), None);
    let late = shown(jobs.due(at(11)).as_ref(), "step");
    assert!(late.contains(&row("7", "epilog", "ended", Some(WHOLE), [Some(1), Some(9)])), "{late:?}");
}

/// What a recorder of this process tells of the run `train` on a GPU.
fn run(gpu: &str, mark_age_s: Option<u64>, is_over: bool) -> ToldJob {
    let gpus: [Arc<str>; 1] = [Arc::from(gpu)];
    let mark_age = mark_age_s.map(std::time::Duration::from_secs);
    let news = RunNews { name: "train", gpus: &gpus, age: std::time::Duration::ZERO, mark_age, is_over };
    ToldJob::of(&HookMessage::of_run(&news)).unwrap()
}

#[test]
fn a_recording_holds_gpus_that_no_job_has_until_it_ends_or_falls_silent() {
    let jobs = jobs();
    let gpu = Arc::new(Identity::default().with(IdentityColumn::Uuid, "GPU-1").unwrap());
    let held = |second| {
        jobs.allot(&[], at(second));
        jobs.ownership.owners().attribute(&gpu).get(IdentityColumn::Job).map(str::to_owned)
    };
    jobs.hear(run("GPU-1", None, false), at(0));
    assert_eq!(held(1).as_deref(), Some("run:train"));
    jobs.hear(told(JobHook::Prolog, "7", &[("CUDA_VISIBLE_DEVICES", "GPU-1")]), at(2));
    assert_eq!(held(3).as_deref(), Some("7"), "Slurm gives GPUs out");
    jobs.hear(told(JobHook::Epilog, "7", &[]), at(4));
    assert_eq!(held(5).as_deref(), Some("run:train"));
    assert_eq!(held(60), None, "its recorder was killed");
    jobs.hear(run("GPU-1", None, false), at(70));
    assert_eq!(held(71).as_deref(), Some("run:train"));
    jobs.hear(run("GPU-1", None, true), at(80));
    assert_eq!(held(81), None);
    let rows = shown(jobs.due(at(82)).as_ref(), "step");
    assert!(rows.contains(&row("run:train", "run", "ended", Some(WHOLE), [Some(70), Some(80)])), "{rows:?}");
}

#[test]
fn a_recording_began_when_its_recorder_did_and_not_the_agent() {
    let jobs = jobs();
    let gpus: [Arc<str>; 1] = [Arc::from("GPU-1")];
    let age = std::time::Duration::from_secs(40);
    for (is_over, second, state, end) in [(false, 50, "running", None), (true, 60, "ended", Some(60))] {
        let news = RunNews { name: "train", gpus: &gpus, age, mark_age: None, is_over };
        jobs.hear(ToldJob::of(&HookMessage::of_run(&news)).unwrap(), at(second));
        let rows = shown(jobs.due(at(second)).as_ref(), "step");
        let expected = row("run:train", "run", state, Some(WHOLE), [Some(10), end]);
        assert!(rows.contains(&expected), "{rows:?}");
    }
}

#[test]
fn two_recordings_of_one_name_hold_the_gpus_of_both_and_one_has_those_of_its_last_word() {
    let jobs = jobs();
    let mut other = run("GPU-2", None, false);
    assert_eq!(other.key(), run("GPU-1", None, false).key());
    other.process = Some(0);
    let held = |second| {
        jobs.allot(&[], at(second));
        ["GPU-1", "GPU-2", "GPU-3"].map(|uuid| {
            let gpu = Arc::new(Identity::default().with(IdentityColumn::Uuid, uuid).unwrap());
            jobs.ownership.owners().attribute(&gpu).get(IdentityColumn::Job).is_some()
        })
    };
    jobs.hear(run("GPU-1", None, false), at(0));
    jobs.hear(other, at(1));
    assert_eq!(held(2), [true, true, false]);
    jobs.hear(run("GPU-3", None, false), at(10));
    assert_eq!(held(11), [false, true, true]);
}

#[test]
fn a_row_of_a_recording_says_when_its_program_last_set_a_mark() {
    let jobs = jobs();
    jobs.hear(run("GPU-1", Some(4), false), at(10));
    let batch = jobs.due(at(11)).unwrap();
    let marked = numbers(batch.records().column_by_name("marked_ns").unwrap()).unwrap().value(0);
    assert_eq!(marked, Some(Value::Int(at(6).wall_ns)));
}

#[test]
fn an_agent_that_starts_again_knows_what_runs_and_after_a_boot_only_what_the_controller_told() {
    let folder = tempfile::tempdir().unwrap();
    let agent = |boot: &str, second| {
        jobs().kept_in(Some(KeptJobs::of_boot(&folder.path().join("jobs"), boot.to_owned())), at(second))
    };
    let first = agent("a", 0);
    let on_gpu = |id: &str, gpu: &str| told(JobHook::Prolog, id, &[("SLURM_JOB_GPUS", gpu)]);
    first.hear(on_gpu("6", "0"), at(1));
    first.hear(told(JobHook::Epilog, "6", &[]), at(2));
    first.hear(on_gpu("7", "0"), at(3));
    first.hear(on_gpu("8", "1"), at(4));
    first.hear(told(JobHook::Controller, "7", &[("SLURM_JOB_NAME", "a train")]), at(5));
    first.keep();
    // What is told after the last writing is lost with the process.
    first.hear(told(JobHook::Epilog, "8", &[]), at(6));
    let running = |id: &str, by: &str, name, start| row(id, by, "running", name, [Some(start), None]);
    let prologs = [running("7", "prolog", None, 3), running("8", "prolog", None, 4)];
    let controllers = [running("7", "controller", Some("a train"), 5)];
    let second = agent("a", 60);
    assert_eq!(shown(second.due(at(61)).as_ref(), "job_name"), [&prologs[..], &controllers].concat());
    second.hear(told(JobHook::Epilog, "7", &[]), at(70));
    let ended = row("7", "epilog", "ended", None, [Some(3), Some(70)]);
    assert_eq!(shown(second.due(at(71)).as_ref(), "job_name"), [ended]);
    let rebooted = agent("b", 120);
    assert_eq!(shown(rebooted.due(at(121)).as_ref(), "job_name"), controllers);
    std::fs::write(folder.path().join("jobs/told"), "BOOT=a\0\0SINCE=x\0\0rest").unwrap();
    assert!(agent("a", 180).due(at(181)).is_none(), "what nobody wrote names no job");
}

#[test]
fn a_job_whose_gpu_another_one_is_given_is_over_and_begins_anew_with_its_next_prolog() {
    let jobs = jobs();
    let on_gpu = |id: &str| told(JobHook::Prolog, id, &[("SLURM_JOB_GPUS", "0,1")]);
    jobs.hear(on_gpu("7"), at(0));
    assert_eq!(jobs.due(at(1)).map(|batch| batch.rows()), Some(1));
    jobs.hear(told(JobHook::Prolog, "8", &[("SLURM_JOB_GPUS", "1")]), at(100));
    jobs.hear(told(JobHook::Prolog, "9", &[("SLURM_JOB_GPUS", "11")]), at(101));
    let running = |id: &str, start| row(id, "prolog", "running", Some(WHOLE), [Some(start), None]);
    let shown_at = |second| shown(jobs.due(at(second)).as_ref(), "step");
    assert_eq!(shown_at(700), [running("8", 100), running("9", 101)]);
    jobs.hear(on_gpu("7"), at(800));
    assert_eq!(shown_at(1_400), [running("7", 800), running("9", 101)], "8 had a GPU of those");
    jobs.hear(on_gpu("7"), at(1_500));
    assert_eq!(shown_at(1_501), [running("7", 1_500)]);
}

#[test]
fn many_jobs_are_told_of_in_several_batches() {
    let jobs = jobs();
    for id in 0..1_200 {
        jobs.hear(told(JobHook::Controller, &id.to_string(), &[]), at(0));
    }
    let rows = || jobs.due(at(1)).map(|batch| batch.rows());
    assert_eq!([rows(), rows(), rows(), rows()], [Some(500), Some(500), Some(200), None]);
}

#[test]
fn of_too_many_jobs_those_that_have_ended_make_room() {
    let jobs = jobs();
    jobs.hear(told(JobHook::Epilog, "1", &[]), at(0));
    for id in 2..=JOBS_MAX {
        assert!(jobs.hear(told(JobHook::Prolog, &id.to_string(), &[]), at(1)));
    }
    assert!(jobs.hear(told(JobHook::Prolog, "20000", &[]), at(2)), "job 1 is over");
    assert!(!jobs.hear(told(JobHook::Prolog, "20001", &[]), at(3)));
    assert!(jobs.hear(told(JobHook::Prolog, "20000", &[]), at(4)), "it is known");
    assert!(jobs.hear(told(JobHook::Epilog, "2", &[]), at(5)));
}

#[test]
fn of_too_many_jobs_those_whose_gpus_others_have_make_room() {
    let jobs = jobs();
    let with_gpu = |id: usize, gpu: &str| told(JobHook::Prolog, &id.to_string(), &[("SLURM_JOB_GPUS", gpu)]);
    for id in 1..=2 {
        assert!(jobs.hear(with_gpu(id, "0"), at(0)));
    }
    for id in 3..=JOBS_MAX {
        assert!(jobs.hear(told(JobHook::Prolog, &id.to_string(), &[]), at(1)));
    }
    assert!(jobs.hear(told(JobHook::Prolog, "20000", &[]), at(2)), "job 1 is over");
    assert!(!jobs.hear(told(JobHook::Prolog, "20001", &[]), at(3)));
}
