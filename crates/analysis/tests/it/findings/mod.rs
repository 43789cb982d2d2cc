//! Findings on simulated fleets with known faults, and on fleets without any: how many are found, how soon, and how many
//! false ones come.
//!
//! `GPUVITALS_TEST_LONG=1` takes many seeds; `UPDATE=1` then writes the table into docs/findings.md.

use std::fmt::Write as _;

mod capture;
mod faults;
mod jobs;
mod lab;
mod reads;
mod score;
mod stalls;

use faults::FAULTS;
use gpuvitals_analysis::findings::KINDS;
use gpuvitals_core::time::MINUTE_NS;
use jobs::{JobScore, Jobs};
use lab::Lab;
use reads::ReadScore;
use score::Score;
use stalls::{StallScore, Stalls};

/// Faults of one run: each on a GPU or node of its own.
const FAULTS_OF_A_RUN: usize = 5;
const FAULT_AT_MINUTE: i64 = 30;
const RUN_MINUTES: i64 = 90;

/// What the tests have of a kind: a real capture, simulated fleets and jobs, or rows that they make up.
fn proven_on(kind: &str) -> &'static str {
    match kind {
        "gpu_missing" => "real rows",
        "job_hung" | "job_stalled" => "simulated jobs",
        "reads_slowed" => "simulated readings",
        _ if FAULTS.iter().any(|fault| fault.right.contains(&kind)) => "simulated faults",
        _ => "made-up rows",
    }
}

#[test]
fn the_documentation_lists_every_kind() {
    let mut table =
        "| kind | severity | opens after | closes after | covers | proven on | meaning |\n|---|---|---|---|---|---|---|\n"
            .to_owned();
    for kind in KINDS {
        let seconds = |ns: i64| format!("{:.0} s", lab::gpu_seconds(ns));
        writeln!(
            table,
            "| `{}` | {} | {} | {} | {} | {} | {} |",
            kind.id,
            kind.severity.name(),
            seconds(kind.opens_after_ns),
            seconds(kind.closes_after_ns),
            kind.covers.join(", "),
            proven_on(kind.id),
            kind.meaning
        )
        .unwrap();
    }
    let is_written = score::put("kinds", &table, std::env::var_os("UPDATE").is_some());
    assert!(is_written, "docs/findings.md is old; UPDATE=1 writes it");
}

#[test]
fn faults_are_found_and_sound_gpus_are_left_alone() {
    let is_long = std::env::var_os("GPUVITALS_TEST_LONG").is_some();
    let seeds = if is_long { 25 } else { 1 };
    let mut score = Score::default();
    for seed in 1..=seeds {
        // The last one befalls the whole fleet.
        let (others, last) = FAULTS.split_at(FAULTS.len() - 1);
        for some in others.chunks(FAULTS_OF_A_RUN).chain([last]) {
            let mut lab = Lab::new(seed, some, FAULT_AT_MINUTE * MINUTE_NS);
            lab.run(RUN_MINUTES * MINUTE_NS);
            score.add(&lab);
        }
    }
    let mut clean = Score::default();
    let (runs, minutes) = if is_long { (100, 24 * 60) } else { (1, RUN_MINUTES) };
    for seed in 1_001..1_001 + runs {
        let mut lab = Lab::new(seed, &[], 0);
        lab.run(minutes * MINUTE_NS);
        clean.add(&lab);
    }
    let table = score.table(is_long) + &clean.clean_line(minutes / 60);
    eprintln!("{table}");
    if is_long && std::env::var_os("UPDATE").is_some() {
        score::put("proof", &table, true);
    }
    assert!(score.false_alarms_per_gpu_day() < 0.01, "{table}");
    assert!(clean.false_alarms_per_gpu_day() < 0.01, "{table}");
    assert!(score.recall() > 0.9, "{table}");
}

#[test]
fn jobs_that_stand_still_are_named_and_others_are_left_alone() {
    let is_long = std::env::var_os("GPUVITALS_TEST_LONG").is_some();
    let mut score = JobScore::default();
    let seeds = if is_long { 100 } else { 4 };
    for seed in 1..=seeds {
        let mut lab = Lab::new(seed, &[], 0);
        lab.jobs = Some(Jobs::new(seed));
        // Jobs live for up to twenty minutes, and each works for eight before its story begins.
        lab.run(120 * MINUTE_NS);
        score.add(&lab);
    }
    let table = score.table();
    eprintln!("{table}");
    if is_long && std::env::var_os("UPDATE").is_some() {
        score::put("jobs", &table, true);
    }
    assert!(at_least(score.recall(), 95), "{table}");
    assert!(at_least(score.precision(), 99), "{table}");
    assert!(at_least(score.firsts(), 80), "{table}");
}

#[test]
fn jobs_that_have_stalled_are_named_and_those_that_only_rest_are_left_alone() {
    let is_long = std::env::var_os("GPUVITALS_TEST_LONG").is_some();
    let mut score = StallScore::default();
    let seeds = if is_long { 200 } else { 8 };
    for seed in 1..=seeds {
        let mut lab = Lab::new(seed, &[], 0);
        lab.stalls = Some(Stalls::new(seed));
        // A story begins after 25 minutes, and none that stalls needs more than 30 to be seen.
        lab.run(60 * MINUTE_NS);
        score.add(&lab);
    }
    let table = score.table();
    eprintln!("{table}");
    let (told, stories) = score.stories();
    assert_eq!(told, stories, "{table}");
    assert!(at_least(score.recall(), 95), "{table}");
    assert!(at_least(score.precision(), 99), "{table}");
}

#[test]
fn readings_that_slow_down_are_found_and_busy_nodes_are_left_alone() {
    let is_long = std::env::var_os("GPUVITALS_TEST_LONG").is_some();
    let seeds = if is_long { 100 } else { 2 };
    let mut score = ReadScore::default();
    (1..=seeds).for_each(|seed| score.add(seed));
    let table = score.table(seeds);
    eprintln!("{table}");
    if is_long && std::env::var_os("UPDATE").is_some() {
        score::put("reads", &table, true);
    }
    assert!(at_least(score.recall(), 95), "{table}");
    assert!(at_least(score.precision(), 99), "{table}");
}

/// Whether so many of a whole are at least so many hundredths of it.
fn at_least((part, whole): (usize, usize), hundredths: usize) -> bool {
    part * 100 >= whole * hundredths
}
