//! Jobs that stand still.

use gpuvitals_core::history::Cell;

use super::*;

/// Eight GPUs of a job that worked for ten minutes, each as it is now; none: the last rows of another node are old.
fn hung(now: impl Fn(usize) -> Option<&'static [(&'static str, i64)]>) -> Vec<FleetFinding> {
    hung_of(8, 6, |index| now(index).map_or(("n2", 140, &[] as &[_]), |values| ("n1", 2, values)))
}

/// A GPU now: its node, the age of its rows in seconds, its values.
type Now = (&'static str, i64, &'static [(&'static str, i64)]);

/// So many GPUs with so many rows a minute.
fn hung_of(gpus: usize, rows: u32, now: impl Fn(usize) -> Now) -> Vec<FleetFinding> {
    hung_with_lost((gpus, rows), now, &HashMap::new())
}

/// Some of which agents report that they are lost.
fn hung_with_lost(
    (gpus, rows): (usize, u32),
    now: impl Fn(usize) -> Now,
    lost: &HashMap<Arc<str>, LostGpu>,
) -> Vec<FleetFinding> {
    const BEFORE: &[(&str, f64)] =
        &[("utilization_pct", 99.0), ("power_w", 650.0), ("memory_utilization_pct", 45.0)];
    let names: Vec<String> = (0..gpus).map(|index| format!("GPU-{index}")).collect();
    let steady: Vec<Steady<'_>> = names.iter().map(|name| (name.as_str(), "train", BEFORE)).collect();
    let recent = recent_of(10, rows, &steady);
    let state = |(index, name): (usize, &String)| {
        let (node, age_s, values) = now(index);
        gpu(name, node, "train", age_s, values)
    };
    let gpus: Vec<Arc<GpuState>> = names.iter().enumerate().map(state).collect();
    let found = judge(&Situation { fresh: FRESH, gpus: &gpus, recent: &recent, lost });
    let found = found.into_iter().filter(|one| one.opens && one.finding.kind.id == "job_hung");
    found.map(|one| one.finding).collect()
}

#[test]
fn a_job_whose_gpus_are_busy_and_do_far_less_than_before_stands_still() {
    const EVALUATES: &[(&str, i64)] =
        &[("utilization_pct", 100), ("power_w", 380), ("memory_utilization_pct", 30)];
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
            "train stands still: 7 GPUs say that they are busy, with 37 % of the power of before; n2 / GPU-3 fell silent at \
             1971-11-26T10:37:40Z",
            8
        )
    );
    assert_eq!(
        sentence(&|index| Some(if index == 5 { RESTS } else { WAITS })),
        said(
            "train stands still: 7 GPUs say that they are busy, with 37 % of the power of before; n1 / GPU-5 has done nothing since \
             about 1971-11-26T10:40:00Z and may be the one that they wait for",
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

const WAITS: &[(&str, i64)] = &[("utilization_pct", 100), ("power_w", 240), ("memory_utilization_pct", 3)];
const WORKS: &[(&str, i64)] = &[("utilization_pct", 99), ("power_w", 640), ("memory_utilization_pct", 44)];
const RESTS: &[(&str, i64)] = &[("utilization_pct", 0), ("power_w", 120), ("memory_utilization_pct", 0)];
const ALONE: &[(&str, i64)] = &[("utilization_pct", 100), ("power_w", 240)];
const NOTHING: &[(&str, i64)] = &[];

/// Who began, if a job of so many GPUs with so many rows a minute stands still.
fn who(gpus: usize, rows: u32, now: &dyn Fn(usize) -> Now) -> Option<String> {
    let found = hung_of(gpus, rows, now);
    Some(found.first()?.sentence.split_once("before; ").unwrap().1.to_owned())
}

#[test]
fn a_job_stands_still_though_up_to_half_of_it_fell_silent() {
    let said = |text: &str| Some(text.to_owned());
    let unknown = said("who began is not known");
    let since = |first: usize, node: &'static str, age_s: i64| {
        move |index: usize| if index < first { ("n1", 2, WAITS) } else { (node, age_s, NOTHING) }
    };
    // A node of two, some GPUs of one; more than half of the job says too little.
    assert_eq!(
        who(8, 6, &since(4, "n2", 140)),
        said("n2 fell silent with 4 of its GPUs at 1971-11-26T10:37:40Z")
    );
    assert_eq!(
        who(8, 6, &since(6, "n1", 140)),
        said("n1 / GPU-6 fell silent at 1971-11-26T10:37:40Z, and 1 more")
    );
    assert_eq!(who(8, 6, &since(3, "n2", 140)), None);
    // Who left long before the others stopped is not missed.
    assert_eq!(who(8, 6, &since(2, "n2", 400)), unknown);
    // With rows a minute apart nobody has fallen silent yet.
    let phases = |index: usize| ("n1", 2 + 8 * i64::try_from(index).unwrap(), WAITS);
    assert_eq!(who(8, 1, &phases), unknown);
}

#[test]
fn of_rare_rows_three_show_it() {
    let opens_after_s = |rows| {
        let found = hung_of(8, rows, |_| ("n1", 2, WAITS)).into_iter();
        let found: Vec<Candidate> =
            found.map(|finding| Candidate { opens: true, began: None, finding }).collect();
        let mut tracker = Tracker::default();
        (0..600_i64).find(|second| {
            tracker.update(NOW_NS + second * SECOND_NS, found.clone(), Coverage::Whole);
            !tracker.open().is_empty()
        })
    };
    assert_eq!([6, 2, 1].map(opens_after_s), [Some(30), Some(60), Some(120)]);
}

#[test]
fn a_job_that_stopped_long_before_the_gateway_started_stands_still() {
    const BEFORE: &[(&str, f64)] =
        &[("utilization_pct", 99.0), ("power_w", 650.0), ("memory_utilization_pct", 45.0)];
    const SINCE: &[(&str, f64)] =
        &[("utilization_pct", 100.0), ("power_w", 240.0), ("memory_utilization_pct", 3.0)];
    let names: Vec<String> = (0..8).map(|index| format!("GPU-{index}")).collect();
    let mut recent = Recent::default();
    while let Some(query) = recent.next_query(NOW_NS + 11 * SECOND_NS) {
        let steps = TimeSteps::new(query.start_ns, query.end_ns, query.step_ns, 0).unwrap();
        let mut buckets = Buckets::new(steps, &query.metrics, &[]);
        for name in &names {
            let job = Some(Arc::from("train"));
            let group: GroupName = Arc::from([Some(Arc::from(name.as_str())), None, None, job]);
            let group = buckets.group(&group);
            for step in 0..steps.count {
                let place = buckets.place(group, step);
                let worked = NOW_NS - steps.time(step) > 20 * MINUTE_NS;
                let last_ns = steps.time(step) + MINUTE_NS - SECOND_NS;
                for measured in buckets.metrics_mut() {
                    let column = measured.metric.metric().column;
                    let values = if worked { BEFORE } else { SINCE };
                    let Some(&(_, value)) = values.iter().find(|(name, _)| *name == column) else { continue };
                    let sum = 6.0 * value;
                    measured.cells[place] =
                        Cell { count: 6, sum, min: value, max: value, last_ns, last: value };
                }
            }
        }
        recent.take(&buckets);
    }
    let gpus: Vec<Arc<GpuState>> = names.iter().map(|name| gpu(name, "n1", "train", 2, WAITS)).collect();
    let found = judge(&Situation { fresh: FRESH, gpus: &gpus, recent: &recent, lost: &HashMap::new() });
    let hung = found.iter().find(|one| one.finding.kind.id == "job_hung").unwrap();
    assert!(hung.opens && hung.finding.sentence.contains("37 % of the power of before"), "{hung:?}");
}

#[test]
fn a_gpu_that_heat_held_down_is_named_where_nobody_else_began() {
    const COOL: &[(&str, f64)] =
        &[("utilization_pct", 99.0), ("power_w", 650.0), ("memory_utilization_pct", 45.0)];
    let hot = [COOL, &[("throttled_thermal_ns", 5e8)]].concat();
    let names = ["a", "b", "c", "d"];
    let began = |hot_ones: usize| {
        let of = |(index, name): (usize, &'static str)| {
            (name, "train", if index < hot_ones { hot.as_slice() } else { COOL })
        };
        let steady: Vec<Steady<'_>> = names.into_iter().enumerate().map(of).collect();
        let gpus: Vec<Arc<GpuState>> = names.iter().map(|name| gpu(name, "n1", "train", 2, WAITS)).collect();
        let (recent, lost) = (recent_of(10, 6, &steady), HashMap::new());
        let found = judge(&Situation { fresh: FRESH, gpus: &gpus, recent: &recent, lost: &lost });
        let hung = found.into_iter().find(|one| one.finding.kind.id == "job_hung").unwrap();
        hung.finding.sentence.split_once("before; ").unwrap().1.to_owned()
    };
    assert_eq!(began(1), "who began is not known, but heat held down n1 / a before");
    assert_eq!(began(2), "who began is not known, but heat held down n1 / a and 1 more before");
    assert_eq!(began(3), "who began is not known", "most of them were hot");
}

#[test]
fn why_the_first_left_is_said_where_it_is_known() {
    const GONE: &[(&str, i64)] = &[("utilization_pct", 0), ("power_w", 90), ("process_count", 0)];
    let gone = who(8, 6, &|index| ("n1", 2, if index == 5 { GONE } else { WAITS })).unwrap();
    assert_eq!(
        gone,
        "n1 / GPU-5 has done nothing since about 1971-11-26T10:40:00Z, has no process any more and may be the one that they wait for"
    );
    let lost = LostGpu { at_ns: NOW_NS - 140 * SECOND_NS, detail: Arc::from("fell off the bus") };
    let lost = HashMap::from([(Arc::from("GPU-3"), lost)]);
    let now = |index: usize| if index == 3 { ("n2", 140, NOTHING) } else { ("n1", 2, WAITS) };
    let found = hung_with_lost((8, 6), now, &lost);
    let sentence = &found.first().unwrap().sentence;
    assert!(
        sentence.ends_with("n2 / GPU-3 fell silent at 1971-11-26T10:37:40Z: fell off the bus"),
        "{sentence}"
    );
}

#[test]
fn one_of_two_stands_still_if_it_is_known_why() {
    let said = |text: &str| Some(text.to_owned());
    let two = |one: &'static [_], other: Now| move |index| if index == 0 { ("n1", 2, one) } else { other };
    let rests = ("n1", 2, RESTS);
    assert_eq!(
        who(2, 6, &two(WAITS, rests)),
        said(
            "n1 / GPU-1 has done nothing since about 1971-11-26T10:40:00Z and may be the one that they wait for"
        )
    );
    // Its last values say that it works, and are older than those of the other by more than its rows are apart.
    let works = |age_s| ("n1", age_s, WORKS);
    assert_eq!(who(2, 6, &two(WAITS, works(40))), said("n1 / GPU-1 fell silent at 1971-11-26T10:39:20Z"));
    assert_eq!(who(2, 6, &two(WAITS, works(20))), None);
    assert_eq!(who(2, 1, &two(WAITS, works(70))), None);
    // Work of another kind looks alike where little is read, and of one that tells nothing nothing is known.
    assert_eq!(who(2, 6, &two(ALONE, rests)), None);
    assert_eq!(who(2, 6, &two(WAITS, ("n1", 2, &[("temperature_c", 50)]))), None);
    assert_eq!(who(1, 6, &|_| ("n1", 2, WAITS)), None);
}

/// Whether the eight GPUs of a recording that stand still are a finding so many seconds after their last minute of work, if its program set
/// a mark so many seconds ago.
fn recording_is_hung(after_s: i64, marked_s_ago: Option<i64>) -> bool {
    const RUN: &str = "run:train";
    const BEFORE: &[(&str, f64)] = &[("utilization_pct", 99.0), ("power_w", 650.0)];
    let fresh = Freshness { now_ns: NOW_NS + after_s * SECOND_NS, ..FRESH };
    let names: Vec<String> = (0..8).map(|index| format!("GPU-{index}")).collect();
    let steady: Vec<Steady<'_>> = names.iter().map(|name| (name.as_str(), RUN, BEFORE)).collect();
    let mut recent = recent_of(10, 6, &steady);
    let gpus: Vec<Arc<GpuState>> =
        names.iter().map(|name| gpu(name, "n1", RUN, 2 - after_s, ALONE)).collect();
    let query = recent.marks.next_query(&gpus, fresh).unwrap();
    assert!(query.selector.selects(|column| (column == IdentityColumn::Job).then_some(RUN)));
    let rows = marked_s_ago.map(|age_s| {
        let mut builder = BatchBuilder::new(Table::Jobs);
        let of_run = Identity::default()
            .with(IdentityColumn::Node, "n1")
            .and_then(|identity| identity.with(IdentityColumn::Job, RUN));
        let of_run = builder.intern(&of_run.unwrap());
        let row = builder.row(query.start_ns.unwrap(), of_run);
        for (column, text) in [("job_id", RUN), ("step", "whole"), ("told_by", "run")] {
            builder.set_extra_text(row, column, text).unwrap();
        }
        let marked_ns = fresh.now_ns - age_s * SECOND_NS;
        for (column, at_ns) in [("as_of_ns", fresh.now_ns), ("marked_ns", marked_ns)] {
            builder.set_extra(row, column, Value::Int(at_ns)).unwrap();
        }
        builder.finish(Origin::default(), 1).unwrap()
    });
    recent.marks.take(rows.as_ref());
    let lost = HashMap::new();
    let found = judge(&Situation { fresh, gpus: &gpus, recent: &recent, lost: &lost });
    found.iter().any(|one| one.opens && one.finding.kind.id == "job_hung")
}

#[test]
fn a_program_that_sets_marks_goes_on() {
    assert!(recording_is_hung(0, None));
    assert!(!recording_is_hung(0, Some(20)));
    assert!(recording_is_hung(0, Some(40)), "it may have stopped with its GPUs");
    assert!(recording_is_hung(0, Some(-90)), "its clock is wrong");
    assert!(!recording_is_hung(180, Some(100)), "it went on when they had stopped");
    assert!(recording_is_hung(180, Some(190)));
}

#[test]
fn marks_are_asked_for_where_recordings_hold_gpus() {
    let mut marks = RunMarks::default();
    assert!(marks.next_query(&[gpu("a", "n1", "4711", 0, &[])], FRESH).is_none());
    assert!(marks.next_query(&[gpu("a", "n1", "run:train", 200, &[])], FRESH).is_none(), "it is away");
}
