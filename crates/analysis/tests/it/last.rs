//! The machine for which others wait, by the steps of a real job and made-up ones.

use std::collections::BTreeMap;

use gpuvitals_analysis::steps::last_of_steps;

/// Work of each worker of a real job in each step, seconds, by its rank: fixtures/real/straggler.
fn real() -> BTreeMap<u32, BTreeMap<u32, f64>> {
    let mut ranks: BTreeMap<u32, BTreeMap<u32, f64>> = BTreeMap::new();
    for line in include_str!("../../../../fixtures/real/straggler/work.csv").lines().skip(1) {
        let cells: Vec<&str> = line.split(',').collect();
        let [step, rank, worked, _] = cells[..] else { panic!("{line}") };
        let worked = worked.parse().unwrap();
        ranks.entry(rank.parse().unwrap()).or_default().insert(step.parse().unwrap(), worked);
    }
    ranks
}

#[test]
fn the_slow_worker_of_a_real_job_is_found_and_equal_ones_are_not() {
    let mut ranks = real();
    let names: Vec<u32> = ranks.keys().copied().collect();
    let found = last_of_steps(&ranks.values().cloned().collect::<Vec<_>>()).unwrap();
    assert_eq!((names[found.at], found.steps, found.share), (0, 44, 1.0));
    // What was published of this job: stage 0 of the first pipeline makes it 1.97 times as slow.
    assert!((2.3..2.4).contains(&(found.worked_s / found.others_s)), "{found:?}");
    ranks.remove(&0);
    assert_eq!(
        last_of_steps(&ranks.into_values().collect::<Vec<_>>()),
        None,
        "the last stage has 5 % more work"
    );
}

#[test]
fn steps_that_not_all_machines_have_tell_nothing() {
    let of = |steps: std::ops::Range<u32>, worked_s: f64| -> BTreeMap<u32, f64> {
        steps.map(|step| (step, worked_s)).collect()
    };
    let machines = |second: BTreeMap<u32, f64>| last_of_steps(&[of(0..20, 0.2), second]);
    let found = machines(of(10..30, 0.4)).unwrap();
    assert_eq!((found.at, found.steps, found.worked_s, found.others_s), (1, 10, 0.4, 0.2));
    assert_eq!(machines(of(16..30, 0.4)), None, "four in common");
    assert_eq!(machines(BTreeMap::new()), None);
    assert_eq!(last_of_steps(&[of(0..20, 0.2)]), None, "nobody waits");
    let changing = (0..20).map(|step| (step, if step % 2 == 0 { 0.4 } else { 0.1 })).collect();
    assert_eq!(machines(changing), None, "each is the last in half of the steps");
}
