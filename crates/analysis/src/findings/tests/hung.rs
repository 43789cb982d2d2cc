//! Jobs that stand still.

use super::*;

/// Eight GPUs of a job that worked for ten minutes, each as it is now; none: the last rows of another node are old.
fn hung(now: impl Fn(usize) -> Option<&'static [(&'static str, i64)]>) -> Vec<FleetFinding> {
    hung_of(8, |index| now(index).map_or(("n2", 140, &[] as &[_]), |values| ("n1", 2, values)))
}

/// So many GPUs, each with its node, the age of its rows in seconds and its values.
fn hung_of(
    gpus: usize,
    now: impl Fn(usize) -> (&'static str, i64, &'static [(&'static str, i64)]),
) -> Vec<FleetFinding> {
    const BEFORE: &[(&str, f64)] =
        &[("utilization_pct", 99.0), ("power_w", 650.0), ("memory_utilization_pct", 45.0)];
    let names: Vec<String> = (0..gpus).map(|index| format!("GPU-{index}")).collect();
    let steady: Vec<Steady<'_>> = names.iter().map(|name| (name.as_str(), "train", BEFORE)).collect();
    let recent = recent(10, &steady);
    let state = |(index, name): (usize, &String)| {
        let (node, age_s, values) = now(index);
        gpu(name, node, "train", age_s, values)
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
            8
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

#[test]
fn a_job_stands_still_though_up_to_half_of_it_fell_silent() {
    const WAITS: &[(&str, i64)] =
        &[("utilization_pct", 100), ("power_w", 240), ("memory_utilization_pct", 3)];
    const WORKS: &[(&str, i64)] =
        &[("utilization_pct", 99), ("power_w", 640), ("memory_utilization_pct", 44)];
    const RESTS: &[(&str, i64)] = &[("utilization_pct", 0), ("power_w", 120), ("memory_utilization_pct", 0)];
    let who = |gpus, now: &dyn Fn(usize) -> (&'static str, i64, &'static [(&'static str, i64)])| {
        let found = hung_of(gpus, now);
        found.first().map(|one| one.sentence.split_once("before; ").unwrap().1.to_owned())
    };
    let said = |text: &str| Some(text.to_owned());
    // A node of two; more than half of the job says too little.
    let since = |first| move |index| if index < first { ("n1", 2, WAITS) } else { ("n2", 140, &[] as &[_]) };
    assert_eq!(who(8, &since(4)), said("n2 fell silent with 4 of its GPUs"));
    assert_eq!(who(8, &since(3)), None);
    // One of two: its last values say that it works, and are older than those of the other.
    let behind = |age_s| move |index| if index == 0 { ("n1", 2, WAITS) } else { ("n1", age_s, WORKS) };
    assert_eq!(who(2, &behind(40)), said("n1 / GPU-1 fell silent"));
    assert_eq!(who(2, &behind(20)), None);
    let rests = |index| ("n1", 2, if index == 0 { WAITS } else { RESTS });
    assert_eq!(who(2, &rests), said("n1 / GPU-1 does nothing and may be the one that they wait for"));
    assert_eq!(who(1, &rests), None);
}
