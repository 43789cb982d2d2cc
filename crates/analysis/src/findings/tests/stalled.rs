//! Jobs that worked, and do nothing any more.

use gpuvitals_core::history::Cell;

use super::*;

const GPUS: usize = 4;
const RESTS: &[(&str, i64)] = &[("utilization_pct", 0)];
const WORKS: &[(&str, i64)] = &[("utilization_pct", 90)];

/// The last minutes of the GPUs of a job, by their utilisation so many minutes ago.
fn minutes(busy: &dyn Fn(usize, i64) -> f64) -> Recent {
    let mut recent = Recent::default();
    read(&mut recent, NOW_NS, IdentityColumn::Job, busy);
    recent
}

/// Reads what there is by then of the minutes of GPUs that are held by this.
fn read(recent: &mut Recent, now_ns: i64, holder: IdentityColumn, busy: &dyn Fn(usize, i64) -> f64) {
    while let Some(query) = recent.next_query(now_ns + 11 * SECOND_NS) {
        let steps = TimeSteps::new(query.start_ns, query.end_ns, query.step_ns, 0).unwrap();
        let mut buckets = Buckets::new(steps, &query.metrics, &[]);
        for index in 0..GPUS {
            let name: Arc<str> = format!("GPU-{index}").into();
            let of = |column: IdentityColumn| (column == holder).then(|| Arc::<str>::from("train"));
            let group: GroupName =
                Arc::from([Some(name), None, of(IdentityColumn::Pod), of(IdentityColumn::Job)]);
            let group = buckets.group(&group);
            for step in 0..steps.count {
                let place = buckets.place(group, step);
                let value = busy(index, (NOW_NS - steps.time(step)) / MINUTE_NS);
                let last_ns = steps.time(step) + MINUTE_NS - SECOND_NS;
                let cell = Cell { count: 6, sum: 6.0 * value, min: value, max: value, last_ns, last: value };
                let mut all = buckets.metrics_mut().iter_mut();
                let utilization = all.find(|one| one.metric.metric().column == "utilization_pct").unwrap();
                utilization.cells[place] = cell;
            }
        }
        recent.take(&buckets);
    }
}

/// What is found of the job, if its GPUs are like this now.
fn found(busy: &dyn Fn(usize, i64) -> f64, now: &[(&str, i64)]) -> Vec<Candidate> {
    judged_now(&held(now), &minutes(busy))
}

/// The GPUs of the job, with these values now.
fn held(now: &[(&str, i64)]) -> Vec<Arc<GpuState>> {
    (0..GPUS).map(|index| gpu(&format!("GPU-{index}"), "n1", "train", 2, now)).collect()
}

fn judged_now(gpus: &[Arc<GpuState>], recent: &Recent) -> Vec<Candidate> {
    judge(&Situation { fresh: FRESH, gpus, recent, lost: &HashMap::new() })
}

fn is_stalled(found: &[Candidate]) -> bool {
    found.iter().any(|one| one.finding.kind.id == "job_stalled")
}

fn kinds(busy: &dyn Fn(usize, i64) -> f64, now: &[(&str, i64)]) -> Vec<&'static str> {
    found(busy, now).iter().map(|one| one.finding.kind.id).collect()
}

#[test]
fn a_job_that_worked_and_does_nothing_while_it_holds_its_gpus_has_stalled() {
    // The last of them stopped two minutes after the others.
    let stopped = |index: usize| if index == 2 { 12 } else { 14 };
    let busy = |index: usize, ago: i64| if ago > stopped(index) { 95.0 } else { 0.0 };
    let found = found(&busy, RESTS);
    assert_eq!(found.len(), 1, "{found:?}");
    let Candidate { opens, began, finding } = &found[0];
    assert_eq!((finding.id().as_str(), *opens), ("job_stalled://train", true));
    assert_eq!(*began, Some(Began::exactly(NOW_NS - 12 * MINUTE_NS)));
    assert_eq!(
        finding.sentence,
        "train worked, has done nothing on its 4 GPUs for 12 minutes, and still holds them"
    );
    assert_eq!((finding.reach.concerned_gpus, finding.wasted_gpu_hours_per_hour()), (4, Some(4.0)));
}

#[test]
fn a_pause_is_no_stall() {
    let stops = |minutes: i64| move |_: usize, ago: i64| if ago > minutes { 95.0 } else { 0.0 };
    assert!(kinds(&stops(9), RESTS).is_empty(), "a long checkpoint");
    assert!(kinds(&stops(12), WORKS).is_empty(), "it has just gone on");
    assert!(kinds(&stops(12), &[("temperature_c", 50)]).is_empty(), "nobody knows how they are now");
    // It once paused for five minutes: three times as long is nothing new.
    let pauses = |minutes: i64| {
        move |_: usize, ago: i64| if ago > minutes && !(25..30).contains(&ago) { 95.0 } else { 0.0 }
    };
    assert!(kinds(&pauses(14), RESTS).is_empty());
    assert_eq!(kinds(&pauses(16), RESTS), ["job_stalled"]);
}

#[test]
fn a_pod_may_wait_for_requests_for_half_an_hour() {
    let of_pod = |gpu: &Arc<GpuState>| {
        let mut gpu = GpuState::clone(gpu);
        gpu.identity.set(IdentityColumn::Job, "").unwrap();
        gpu.identity.set(IdentityColumn::Pod, "train").unwrap();
        Arc::new(gpu)
    };
    let gpus: Vec<Arc<GpuState>> = held(RESTS).iter().map(of_pod).collect();
    let stopped = |minutes: i64| {
        let busy = move |_: usize, ago: i64| if ago > minutes { 95.0 } else { 0.0 };
        let mut recent = Recent::default();
        for now_ns in [NOW_NS - 35 * MINUTE_NS, NOW_NS] {
            read(&mut recent, now_ns, IdentityColumn::Pod, &busy);
        }
        judged_now(&gpus, &recent)
    };
    assert!(!is_stalled(&stopped(28)));
    assert!(is_stalled(&stopped(31)));
}

#[test]
fn a_job_with_a_gpu_that_reports_nothing_may_work_there() {
    let recent = minutes(&|_, ago| if ago > 12 { 95.0 } else { 0.0 });
    let mut gpus = held(RESTS);
    assert!(is_stalled(&judged_now(&gpus, &recent)));
    gpus.push(gpu("GPU-4", "n2", "train", 600, WORKS));
    assert!(!is_stalled(&judged_now(&gpus, &recent)));
}

#[test]
fn a_job_of_which_one_gpu_works_or_that_never_worked_has_not_stalled() {
    let one_works = |index: usize, ago: i64| if ago > 12 || index == 0 { 95.0 } else { 0.0 };
    assert!(!kinds(&one_works, RESTS).contains(&"job_stalled"));
    assert_eq!(kinds(&|_, _| 0.0, RESTS), ["idle_held"]);
    let hardly = |_: usize, ago: i64| if ago > 28 { 95.0 } else { 0.0 };
    assert!(!kinds(&hardly, RESTS).contains(&"job_stalled"), "it worked for some minutes only");
}

#[test]
fn a_straggler_costs_the_time_in_which_the_gpus_of_its_job_wait_for_it() {
    let names = ["a", "b", "c", "d"];
    let gpus: Vec<Arc<GpuState>> = names.iter().map(|name| gpu(name, "n1", "train", 0, &[])).collect();
    let fast: &[(&str, f64)] = &[("utilization_pct", 99.0), ("gpu_clock_mhz", 2000.0)];
    let slow: &[(&str, f64)] = &[("utilization_pct", 99.0), ("gpu_clock_mhz", 1500.0)];
    let recent = recent(10, &names.map(|name| (name, "train", if name == "c" { slow } else { fast })));
    let lost = HashMap::new();
    let found = judge(&Situation { fresh: FRESH, gpus: &gpus, recent: &recent, lost: &lost });
    let costs = |kind: &str| {
        let found = found.iter().find(|one| one.finding.kind.id == kind);
        found.unwrap().finding.wasted_gpu_hours_per_hour()
    };
    assert_eq!(costs("straggler"), Some(0.75), "three wait for a quarter of their time");
}

#[test]
fn a_starved_gpu_costs_the_time_in_which_it_does_less_than_the_others_of_its_job() {
    let names = ["a", "b", "c", "d"];
    let gpus: Vec<Arc<GpuState>> = names.iter().map(|name| gpu(name, "n1", "train", 0, &[])).collect();
    let works: &[(&str, f64)] = &[("utilization_pct", 99.0), ("power_w", 600.0)];
    let waits: &[(&str, f64)] = &[("utilization_pct", 24.0), ("power_w", 200.0)];
    let recent = recent(10, &names.map(|name| (name, "train", if name == "c" { waits } else { works })));
    let lost = HashMap::new();
    let found = judge(&Situation { fresh: FRESH, gpus: &gpus, recent: &recent, lost: &lost });
    let starved = found.iter().find(|one| one.finding.kind.id == "starved").unwrap();
    assert_eq!(starved.finding.wasted_gpu_hours_per_hour(), Some(0.75));
}
