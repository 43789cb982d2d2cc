//! Two sets of runs compared, on simulated runs: how often a verdict is false, what is found, which cause is named.
//!
//! `GPUVITALS_TEST_LONG=1` takes 200 pairs and more, otherwise 20. The data is simulated, with 0.5 % noise from run to run and 1 % within; minutes of a
//! server are real.

mod real;
mod simulated;

use gpuvitals_record::{
    ChangeVerdict, CompareError, ComparedRun, MetricGate, RunComparison, RunMetric, UnlikeRuns, compare,
};

use real::RealLoad;
use simulated::{Dice, HEAT, POWER_CAP, Simulated, TOKENS, of_one_row};

fn pairs() -> u64 {
    if std::env::var_os("GPUVITALS_TEST_LONG").is_some() { 200 } else { 20 }
}

fn compared(base: &[ComparedRun], new: &[ComparedRun]) -> RunComparison {
    compare(base, new, &[], UnlikeRuns::Compared).unwrap()
}

fn is_told(verdict: ChangeVerdict) -> bool {
    matches!(verdict, ChangeVerdict::Regression | ChangeVerdict::Improvement)
}

/// Within three times the standard deviation of a fair coin's throws.
fn as_often_more_as_less(rises: u64, pairs: u64) {
    let most = (9 * pairs / 4).isqrt();
    assert!(rises.abs_diff(pairs / 2) <= most, "as many rises as falls, but {rises} of {pairs}");
}

/// A run in which the clock lost this share, by heat.
fn hot(lost: f64) -> Simulated {
    let share = 1.0 - lost;
    Simulated { step_s: 1.0 / share, clocks: [share; 2], held: (HEAT, 0.3), ..Simulated::usual() }
}

#[test]
fn equal_runs_are_hardly_ever_told_apart() {
    let mut wrong = [0; 3];
    let mut rises = 0;
    for pair in 0..pairs() {
        let usual = Simulated::usual();
        let (base, new) = (usual.runs(5, 2 * pair), usual.runs(5, 2 * pair + 1));
        for (wrong, runs) in wrong.iter_mut().zip([1, 2, 5]) {
            let found = compared(&base[..runs], &new[..runs]);
            let metrics: Vec<_> = found.gates.iter().map(|gate| gate.metric).collect();
            assert_eq!(metrics, [RunMetric::StepS, RunMetric::StepEnergyJ], "the gates by default");
            *wrong += u64::from(found.gates.iter().any(|gate| is_told(gate.verdict)));
            if runs == 5 {
                rises += u64::from(found.metrics[&RunMetric::StepS].change_pct > 0.0);
            }
        }
    }
    let most = pairs().div_ceil(100);
    assert!(wrong.iter().all(|wrong| *wrong <= most), "false verdicts with 1, 2 and 5 runs: {wrong:?}");
    as_often_more_as_less(rises, pairs());
}

/// Of so many pairs of five parts of a load each: how many are told apart, and in how many the second five have more power.
fn drawn(load: &RealLoad, pairs: u64) -> (u64, u64) {
    let (gates, mut dice) = (["power_w:+1%".parse::<MetricGate>().unwrap()], Dice(7));
    let (mut wrong, mut rises) = (0, 0);
    for _ in 0..pairs {
        let runs: Vec<ComparedRun> =
            dice.draw(&load.parts, 10).into_iter().map(|part| load.run(part)).collect();
        let found = compare(&runs[..5], &runs[5..], &gates, UnlikeRuns::Refused).unwrap();
        wrong += u64::from(is_told(found.verdict));
        rises += u64::from(found.metrics[&RunMetric::PowerW].change_pct > 0.0);
    }
    (wrong, rises)
}

#[test]
fn minutes_of_a_real_server_are_hardly_ever_told_apart() {
    let minutes = RealLoad::minutes();
    assert!(minutes.parts.len() >= 40, "{}", minutes.parts.len());
    let (wrong, rises) = drawn(&minutes, pairs());
    assert!(wrong <= pairs().div_ceil(100), "{wrong} of {} are false", pairs());
    as_often_more_as_less(rises, pairs());
}

#[test]
fn periods_of_a_real_load_that_alternates_are_hardly_ever_told_apart() {
    let pairs: u64 = if pairs() < 200 { 5 } else { 1_000 };
    // One in a hundred, within three standard deviations.
    let most = pairs / 100 + (9 * pairs / 100).isqrt();
    for (card, period_ms) in [("a100", 105), ("rtx3090", 100)] {
        let periods = RealLoad::periods(card, period_ms);
        assert!(periods.parts.len() >= 60, "{card}: {}", periods.parts.len());
        let (wrong, rises) = drawn(&periods, pairs);
        assert!(wrong <= most, "{card}: {wrong} of {pairs} are false");
        as_often_more_as_less(rises, pairs);
    }
}

#[test]
fn a_clock_that_lost_2_percent_is_found_and_named() {
    let (mut found, mut named) = (0, 0);
    for pair in 0..pairs() {
        let (base, new) = (Simulated::usual().runs(5, 5_000 + pair), hot(0.02).runs(5, 9_000 + pair));
        let comparison = compared(&base, &new);
        let is_found = comparison.gates[0].verdict == ChangeVerdict::Regression;
        assert!(!is_found || comparison.verdict == ChangeVerdict::Regression, "the worst of the gates");
        found += u64::from(is_found);
        named += u64::from(comparison.why.first().is_some_and(|cause| cause.id == "clock_heat"));
    }
    // Of 20 pairs one more may be missed than of many: 95 % of them is 19.
    let (found_min, named_min) = ((pairs() * 95 / 100).min(pairs() - 2), pairs() * 90 / 100);
    assert!(found >= found_min && named >= named_min, "of {} found {found}, named {named}", pairs());
}

#[test]
fn values_of_marks_are_tokens_per_second_and_joules_per_token() {
    let found = compared(&Simulated::usual().runs(5, 21), &hot(0.05).runs(5, 22));
    let [seconds, speed, joules, cost] =
        [RunMetric::StepS, RunMetric::TokensPerS, RunMetric::StepEnergyJ, RunMetric::JoulesPerToken]
            .map(|metric| found.metrics[&metric]);
    assert!((speed.base * seconds.base / TOKENS - 1.0).abs() < 0.01, "{speed:?}");
    assert!((cost.base * TOKENS / joules.base - 1.0).abs() < 0.01, "{cost:?}");
    assert_eq!(speed.verdict, Some(ChangeVerdict::Regression), "{speed:?}");
    assert!(speed.change_pct < -4.0, "{speed:?}");
}

#[test]
fn the_other_way_round_it_is_an_improvement_for_the_same_reason() {
    let found = compared(&hot(0.05).runs(5, 1), &Simulated::usual().runs(5, 2));
    assert_eq!(found.metrics[&RunMetric::StepS].verdict, Some(ChangeVerdict::Improvement));
    assert_eq!(found.why[0].id, "clock_heat", "{:?}", found.why);
}

#[test]
fn each_cause_has_its_name() {
    let usual = Simulated::usual;
    let slow = |step_s| Simulated { step_s, ..usual() };
    let check = |new: Simulated, wanted: &str, gpu: Option<&str>| {
        let found = compared(&usual().runs(3, 31), &new.runs(3, 32));
        let first = found.why.first().map(|cause| (cause.id, cause.gpu.as_deref()));
        assert_eq!(first, Some((wanted, gpu)), "{new:?}: {:?}", found.why);
        assert!(found.why[0].explains > 0.7, "{:?}", found.why);
    };
    check(hot(0.05), "clock_heat", None);
    let capped = Simulated { clocks: [0.95; 2], held: (POWER_CAP, 0.6), ..slow(1.0 / 0.95) };
    check(capped, "clock_power_limit", None);
    let locked = Simulated { clocks: [0.95; 2], clock_asked_mhz: 1_615.0, ..slow(1.0 / 0.95) };
    check(locked, "clock_lock", None);
    check(Simulated { clocks: [0.95; 2], ..slow(1.0 / 0.95) }, "clock", None);
    check(Simulated { clocks: [1.0, 0.9], ..slow(1.0 / 0.9) }, "slowest_gpu", Some("1"));
    check(Simulated { mem_clock_mhz: 2_340.0, ..slow(1.0 / 0.9) }, "memory", None);
    check(Simulated { busy_pct: 78.4, ..slow(1.25) }, "host", None);
}

#[test]
fn a_change_that_nothing_explains_has_no_cause() {
    let found = compared(
        &Simulated::usual().runs(3, 41),
        &Simulated { step_s: 1.2, ..Simulated::usual() }.runs(3, 42),
    );
    assert_eq!(found.verdict, ChangeVerdict::Regression);
    assert!(found.why.is_empty(), "{:?}", found.why);
}

#[test]
fn one_run_each_says_what_it_could_tell() {
    let base = Simulated::usual().runs(1, 51);
    let found = compared(&base, &base);
    assert_eq!(found.verdict, ChangeVerdict::CannotTell, "they are equal, but others might not be");
    let (caution, least) = (found.caution.unwrap(), found.metrics[&RunMetric::StepS].detectable_pct);
    assert!(caution.contains(&format!("of step_s a change beyond {least:.1} %")), "{caution}");
    assert!(caution.contains("0.6 % is assumed"), "{caution}");
    let caution = compared(&base, &Simulated::usual().runs(3, 52)).caution.unwrap();
    assert!(caution.contains("of step_s") && !caution.contains("is assumed"), "three runs say it: {caution}");
    let slow = Simulated { step_s: 1.1, ..Simulated::usual() }.runs(1, 53);
    assert_eq!(compared(&base, &slow).verdict, ChangeVerdict::Regression);
}

#[test]
fn a_gate_decides_how_much_is_too_much_and_in_which_direction() {
    let (base, new) = (Simulated::usual().runs(5, 61), hot(0.05).runs(5, 62));
    let check = |gate: &str, wanted| {
        let gates = [gate.parse::<MetricGate>().unwrap()];
        let found = compare(&base, &new, &gates, UnlikeRuns::Refused).unwrap();
        assert_eq!(found.verdict, wanted, "{gate}: {:?}", found.metrics);
    };
    check("step_s:+2%", ChangeVerdict::Regression);
    check("step_s:+20%", ChangeVerdict::Same);
    check("step_s:-2%", ChangeVerdict::Improvement);
    check("gpu_clock_mhz:-2%", ChangeVerdict::Regression);
    check("power_w:+2%", ChangeVerdict::Improvement);
}

#[test]
fn a_gate_on_what_no_run_has_is_refused() {
    let runs = Simulated::usual().runs(1, 71);
    let gates = ["cpu_pct:+2%".parse::<MetricGate>().unwrap()];
    let refused = compare(&runs, &runs, &gates, UnlikeRuns::Refused).unwrap_err();
    assert!(matches!(refused, CompareError::Missing { metric: RunMetric::CpuPct }), "{refused}");
    let refused = compare(&runs, &[], &[], UnlikeRuns::Refused).unwrap_err();
    assert!(matches!(refused, CompareError::Runs), "{refused}");
}

#[test]
fn runs_that_nothing_can_be_judged_by_are_not_the_same() {
    let refused = compare(&[of_one_row()], &[of_one_row()], &[], UnlikeRuns::Refused).unwrap_err();
    assert!(matches!(refused, CompareError::Nothing), "{refused}");
}

#[test]
fn runs_on_other_gpus_are_refused_and_other_drivers_are_said() {
    let usual = Simulated::usual;
    let base = usual().runs(2, 81);
    let check = |new: Simulated, wanted: &str| {
        let new = new.runs(2, 82);
        let Err(CompareError::Unlike(found)) = compare(&base, &new, &[], UnlikeRuns::Refused) else {
            panic!("{wanted} is not refused")
        };
        let found: Vec<_> = found.iter().map(|difference| difference.what).collect();
        assert_eq!(found, [wanted]);
        assert!(compare(&base, &new, &[], UnlikeRuns::Compared).is_ok(), "anyway");
    };
    check(Simulated { model: "NVIDIA A100", ..usual() }, "model");
    check(Simulated { power_limit_w: Some(500.0), ..usual() }, "power_limit");
    check(Simulated { clock_asked_mhz: 1_410.0, ..usual() }, "clock_lock");

    let said = |new: Simulated| {
        let found = compare(&base, &new.runs(2, 83), &[], UnlikeRuns::Refused).unwrap();
        found.differs.into_iter().map(|it| (it.what, it.base, it.new)).collect::<Vec<_>>()
    };
    let words = |text: &str| vec![text.to_owned()];
    assert!(said(usual()).is_empty());
    let driver = Simulated { driver: "590.10", ..usual() };
    assert_eq!(said(driver), [("driver", words("580.65"), words("590.10"))]);
    let made_up = Simulated { source: "simulated", ..usual() };
    assert_eq!(said(made_up), [("source", words("nvml"), words("simulated"))]);
    let silent = Simulated { power_limit_w: None, ..usual() };
    assert_eq!(said(silent), [("power_limit", words("700 W"), words("not known"))]);
}

#[test]
fn runs_without_marks_are_compared_by_their_duration() {
    let found = compared(&Simulated::usual().without_marks(3, 91), &hot(0.05).without_marks(3, 92));
    assert!(!found.metrics.contains_key(&RunMetric::StepS));
    let gates: Vec<_> = found.gates.iter().map(|gate| gate.metric).collect();
    assert_eq!(gates, [RunMetric::DurationS, RunMetric::EnergyJ]);
    assert_eq!(found.gates[0].verdict, ChangeVerdict::Regression, "{:?}", found.metrics);
    assert_eq!(found.why[0].id, "clock_heat", "{:?}", found.why);
}
