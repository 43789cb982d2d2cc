//! Jobs that stand still.

use super::*;

/// Eight GPUs of a job that worked for ten minutes, each as it is now.
fn hung(now: impl Fn(usize) -> Option<&'static [(&'static str, i64)]>) -> Vec<FleetFinding> {
    const BEFORE: &[(&str, f64)] =
        &[("utilization_pct", 99.0), ("power_w", 650.0), ("memory_utilization_pct", 45.0)];
    let names: Vec<String> = (0..8).map(|index| format!("GPU-{index}")).collect();
    let steady: Vec<Steady<'_>> = names.iter().map(|name| (name.as_str(), "train", BEFORE)).collect();
    let recent = recent(10, &steady);
    let state = |(index, name): (usize, &String)| match now(index) {
        Some(values) => gpu(name, "n1", "train", 2, values),
        None => gpu(name, "n2", "train", 140, &[]),
    };
    let gpus: Vec<Arc<GpuState>> = names.iter().enumerate().map(state).collect();
    let lost = HashMap::new();
    let found = judge(&Situation { fresh: FRESH, gpus: &gpus, recent: &recent, lost: &lost });
    let found = found.into_iter().filter(|one| one.opens && one.finding.kind.id == "job_hung");
    found.map(|one| one.finding).collect()
}

#[test]
fn a_job_whose_gpus_are_busy_and_do_far_less_than_before_stands_still() {
    const WAITS: &[(&str, i64)] =
        &[("utilization_pct", 100), ("power_w", 240), ("memory_utilization_pct", 3)];
    const ALONE: &[(&str, i64)] = &[("utilization_pct", 100), ("power_w", 240)];
    const WORKS: &[(&str, i64)] =
        &[("utilization_pct", 99), ("power_w", 640), ("memory_utilization_pct", 44)];
    const EVALUATES: &[(&str, i64)] =
        &[("utilization_pct", 100), ("power_w", 380), ("memory_utilization_pct", 30)];
    const RESTS: &[(&str, i64)] = &[("utilization_pct", 0), ("power_w", 120), ("memory_utilization_pct", 0)];
    let sentence = |now: &dyn Fn(usize) -> Option<&'static [(&'static str, i64)]>| {
        let found = hung(now);
        assert!(found.len() < 2);
        found.first().map(|one| (one.id(), one.sentence.clone(), one.reach.concerned_gpus))
    };
    let said = |text: &str, gpus| Some(("job_hung://train".to_owned(), text.to_owned(), gpus));
    assert_eq!(
        sentence(&|_| Some(WAITS)),
        said(
            "train stands still: 8 GPUs say that they are busy, with 37 % of the power of before; who began is not known",
            8
        )
    );
    assert_eq!(
        sentence(&|index| (index != 3).then_some(WAITS)),
        said(
            "train stands still: 7 GPUs say that they are busy, with 37 % of the power of before; n2 / GPU-3 fell silent",
            7
        )
    );
    assert_eq!(
        sentence(&|index| Some(if index == 5 { RESTS } else { WAITS })),
        said(
            "train stands still: 7 GPUs say that they are busy, with 37 % of the power of before; n1 / GPU-5 does nothing and may be the \
             one that they wait for",
            8
        )
    );
    let unsure = sentence(&|_| Some(ALONE)).unwrap().1;
    assert!(
        unsure.starts_with("train seems to stand still") && unsure.contains("only utilisation and power")
    );
    // One that works, work of another kind, a pause of all, and most of them at rest are no such thing.
    assert_eq!(sentence(&|index| Some(if index == 5 { WORKS } else { WAITS })), None);
    for other in [WORKS, EVALUATES, RESTS] {
        assert_eq!(sentence(&|_| Some(other)), None);
    }
    assert_eq!(sentence(&|index| Some(if index < 4 { RESTS } else { WAITS })), None);
}
