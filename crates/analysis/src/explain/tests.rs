use std::sync::Arc;

use gpuvitals_core::batch::Value;
use gpuvitals_core::history::{Aggregate, BucketQuery, Buckets, Cell, GroupName, LatestValue};
use gpuvitals_core::time::{MINUTE_NS, SECOND_NS};
use gpuvitals_core::{Identity, catalogue};

use super::*;
use crate::findings::{WorkLevel, WorkRhythm};

const SOUND: GpuWindow = GpuWindow {
    minutes: 10,
    held_minutes: 10,
    loaded_minutes: 10,
    utilization_pct: Some(99.0),
    power_w: Some(600.0),
    loaded_clock_mhz: Some(1980.0),
    loaded_power_w: Some(600.0),
    temperature_max_c: Some(70.0),
    fan_pct: None,
    heat_share: Some(0.0),
    power_share: Some(0.0),
    brake_share: Some(0.0),
    pcie_width: Some(16.0),
    pcie_generation: Some(5.0),
    links_up: Some(18.0),
    idle_since: None,
    level: None,
    busy_for_less: None,
    rhythm: WorkRhythm::UNKNOWN,
    two_nodes_minutes: 0,
};

fn latest(metric: MetricId, watts: f64) -> (MetricId, LatestValue) {
    (metric, LatestValue { value: Value::Float(watts), timestamp_ns: 0 })
}

#[expect(clippy::large_types_passed_by_value, reason = "made where it is passed")]
fn of(own: GpuWindow, events: &[HealthEvent]) -> Vec<(&'static str, String)> {
    let gpu = GpuState {
        key: Arc::from("a"),
        identity: Identity::default(),
        first_seen_ns: 0,
        last_seen_ns: 0,
        latest: vec![latest(POWER_SET, 500.0), latest(POWER_DEFAULT, 700.0)],
        extras: Vec::new(),
    };
    let neighbours = [SOUND, SOUND, GpuWindow { heat_share: Some(0.1), ..SOUND }];
    let time = SlowTime {
        gpu: &gpu,
        own: Some(own),
        peers: &[SOUND; 7],
        neighbours: &neighbours,
        presence: Presence { minutes: 10, silent: 10 - own.minutes },
        events,
        xid_before: None,
        model_power_w: Some(690.0),
    };
    explain(&time).into_iter().map(|cause| (cause.id, cause.sentence)).collect()
}

fn ids(causes: &[(&'static str, String)]) -> Vec<&'static str> {
    causes.iter().map(|(id, _)| *id).collect()
}

#[test]
fn a_sound_gpu_has_no_cause_and_the_heaviest_comes_first() {
    assert!(of(SOUND, &[]).is_empty());
    let hot = GpuWindow {
        heat_share: Some(0.6),
        loaded_clock_mhz: Some(1584.0),
        power_share: Some(0.2),
        pcie_width: Some(8.0),
        ..SOUND
    };
    let causes = of(hot, &[]);
    assert_eq!(ids(&causes), ["heat", "pcie", "clock", "power_limit"]);
    let (_, heat) = causes.first().unwrap();
    assert_eq!(
        heat,
        "heat held the clock down for 60 % of the time; it held down 1 of the 3 other GPUs of the host; the GPU reached 70 °C"
    );
    assert_eq!(
        causes[3].1,
        "the power limit held the clock down for 20 % of the time; it held down no other GPU of the host; the limit is set to \
         500 W, the default is 700 W"
    );
    let [gpu, kind, detail] = ["a", "xid", "XID 79"].map(Arc::from);
    let event = HealthEvent { gpu, at_ns: 0, kind, detail, ..HealthEvent::default() };
    let lost = GpuWindow { minutes: 4, ..SOUND };
    let causes = of(lost, &[event]);
    assert_eq!(ids(&causes), ["events", "no_data"]);
    assert_eq!(causes[1].1, "it reported nothing for 6 of 10 minutes");
    let slow_link = GpuWindow { pcie_generation: Some(4.0), ..SOUND };
    assert_eq!(of(slow_link, &[])[0].1, "its PCIe link runs at generation 4, its peers' at 5");
    let starved = GpuWindow { utilization_pct: Some(40.0), ..SOUND };
    assert_eq!(ids(&of(starved, &[])), ["little_work"]);
}

#[test]
fn of_a_gpu_that_says_that_it_is_busy_at_low_power_it_is_said_that_its_values_cannot_tell_why() {
    let small = GpuWindow { power_w: Some(140.0), ..SOUND };
    let said = of(small, &[]);
    assert_eq!(ids(&said), ["low_power"]);
    assert_eq!(
        said[0].1,
        "it said all the time that it is busy and drew 140 W of 500 W: many small kernels look like that, and so does a kernel that \
         waits; its values cannot tell which"
    );
    let level = WorkLevel { minutes: 6, power_w: 650.0, ..WorkLevel::default() };
    let hung = GpuWindow { level: Some(level), busy_for_less: Some((4, 240.0)), ..SOUND };
    let said = of(hung, &[]);
    assert_eq!(ids(&said), ["low_power"]);
    let begin =
        "for 4 of 10 minutes it said that it is busy and drew 240 W, 37 % of the power of its work before";
    assert!(said[0].1.starts_with(begin) && said[0].1.ends_with("cannot tell which"), "{}", said[0].1);
    let hot = GpuWindow { heat_share: Some(0.1), ..hung };
    assert_eq!(ids(&of(hot, &[])), ["heat", "low_power"], "what is known comes first");
    let idle = GpuWindow { utilization_pct: Some(80.0), ..small };
    assert_eq!(ids(&of(idle, &[])), ["little_work"]);
}

#[test]
fn where_no_limit_is_known_low_power_is_that_beside_what_the_model_draws() {
    let said = |power_w, model_power_w| {
        let time = SlowTime {
            gpu: &gpu_since(0),
            own: Some(GpuWindow { power_w: Some(power_w), ..SOUND }),
            peers: &[],
            neighbours: &[],
            presence: Presence { minutes: 10, silent: 0 },
            events: &[],
            xid_before: None,
            model_power_w,
        };
        explain(&time).into_iter().map(|cause| cause.sentence).collect::<Vec<_>>()
    };
    assert_eq!(
        said(118.0, Some(689.0)),
        [
            "it said all the time that it is busy and drew 118 W, while a GPU of its model draws 689 W: many small kernels look like \
          that, and so does a kernel that waits; its values cannot tell which"
        ]
    );
    assert!(said(118.0, Some(300.0)).is_empty());
    assert!(said(118.0, None).is_empty(), "there is nothing to compare with");
}

/// A GPU that began to report so many seconds after the start.
fn gpu_since(second: i64) -> GpuState {
    GpuState {
        key: Arc::from("a"),
        identity: Identity::default(),
        first_seen_ns: START_NS + second * SECOND_NS,
        last_seen_ns: i64::MAX,
        latest: Vec::new(),
        extras: Vec::new(),
    }
}

const START_NS: i64 = 1_000_000 * MINUTE_NS;

/// The answer to a question about rows of one GPU: seconds after the start, column and value.
fn answer(query: &BucketQuery, rows: impl IntoIterator<Item = (i64, &'static str, f64)>) -> Buckets {
    let steps = query.steps().unwrap();
    let mut buckets = Buckets::new(steps, &query.metrics, &[]);
    let mut name = vec![None; query.group_by.len()];
    name[0] = Some(Arc::from("a"));
    let group = buckets.group(&GroupName::from(name));
    for (second, column, value) in rows {
        let at_ns = START_NS + second * SECOND_NS;
        if at_ns < query.start_ns || at_ns > query.end_ns {
            continue;
        }
        let place = buckets.place(group, steps.at(at_ns));
        let metric = catalogue::by_column(column).unwrap();
        let mut all = buckets.metrics_mut().iter_mut();
        let measured = all.find(|measured| measured.metric == metric).unwrap();
        // A store that has rollups gives the figures alone that are asked for.
        let figure = |asked, none| if query.aggregates.contains(&asked) { value } else { none };
        let one = Cell {
            count: 1,
            sum: figure(Aggregate::Mean, 0.0),
            min: figure(Aggregate::Min, f64::INFINITY),
            max: figure(Aggregate::Max, f64::NEG_INFINITY),
            last_ns: at_ns,
            last: figure(Aggregate::Last, f64::NAN),
        };
        measured.cells[place].merge(&one);
    }
    buckets
}

#[test]
fn a_peer_that_does_nothing_is_a_peer() {
    let idle = GpuWindow { utilization_pct: Some(0.0), ..SOUND };
    let half = [idle, idle, idle, idle, SOUND, SOUND, SOUND];
    let causes = |peers: &[GpuWindow], busy| {
        let time = SlowTime {
            gpu: &gpu_since(0),
            own: Some(GpuWindow { utilization_pct: Some(busy), ..SOUND }),
            peers,
            neighbours: &[],
            presence: Presence { minutes: 10, silent: 0 },
            events: &[],
            xid_before: None,
            model_power_w: None,
        };
        explain(&time).into_iter().map(|cause| cause.sentence).collect::<Vec<_>>()
    };
    assert!(causes(&half, 0.0).is_empty(), "most of its peers do nothing");
    let busy = [idle, idle, idle, SOUND, SOUND, SOUND, SOUND];
    assert_eq!(causes(&busy, 0.0), ["it was busy for 0 % of the time, the median of its peers is 99 %"]);
}

#[test]
fn the_values_beside_a_sentence_are_rounded_as_in_it() {
    let peer = GpuWindow { utilization_pct: Some(96.5), ..SOUND };
    let time = SlowTime {
        gpu: &gpu_since(0),
        own: Some(GpuWindow { utilization_pct: Some(0.5), ..SOUND }),
        peers: &[peer; 3],
        neighbours: &[],
        presence: Presence { minutes: 10, silent: 0 },
        events: &[],
        xid_before: None,
        model_power_w: None,
    };
    let causes = explain(&time);
    let first = causes.first().unwrap();
    assert_eq!(first.sentence, "it was busy for 0 % of the time, the median of its peers is 96 %");
    assert_eq!(first.evidence[0].text(), "utilization 0 % against 96 %, median of its peers");
}

#[test]
fn a_minute_is_silent_if_a_row_was_due_in_it() {
    // (what, rows: every so many seconds, but not in these seconds; first row, range in seconds, now) -> (minutes, silent)
    type Case = (&'static str, usize, std::ops::Range<i64>, i64, (i64, i64), i64, (usize, usize));
    let table: [Case; 12] = [
        ("whole minutes", 1, 0..0, -600, (0, 600), 9_000, (10, 0)),
        ("an end within a minute", 1, 0..0, -600, (0, 630), 9_000, (11, 0)),
        ("an end in the future", 1, 601..9_000, -600, (0, 660), 605, (11, 0)),
        ("the minute that has just ended is under way", 1, 540..9_000, -600, (0, 600), 605, (9, 0)),
        ("an outage", 1, 120..300, -600, (0, 600), 9_000, (10, 3)),
        ("it stopped", 1, 240..9_000, -600, (0, 600), 9_000, (10, 6)),
        ("silent from the start", 1, -120..300, -600, (0, 600), 9_000, (10, 5)),
        ("it is new", 1, 0..0, 300, (0, 600), 9_000, (5, 0)),
        ("a row every half minute", 30, 0..0, -600, (0, 600), 9_000, (10, 0)),
        ("a row every five minutes", 300, 0..0, -600, (0, 3_600), 9_000, (60, 0)),
        ("a row every five minutes, and two are missing", 300, 500..1_100, -600, (0, 3_600), 9_000, (60, 14)),
        ("nothing", 1, -600..9_000, -600, (0, 600), 9_000, (10, 10)),
    ];
    for (what, every, missing, first, (start, end), now, (minutes, silent)) in table {
        let (start_ns, end_ns) = (START_NS + start * SECOND_NS, START_NS + end * SECOND_NS);
        let query = crate::findings::Recent::range_query(vec![Arc::from("a")], start_ns, end_ns);
        let rows = (first..now.min(4_000)).step_by(every).filter(|second| !missing.contains(second));
        let buckets = answer(&query, rows.map(|second| (second, "power_w", 600.0)));
        let now_ns = START_NS + now * SECOND_NS;
        let presence = Presence::of(&buckets, &gpu_since(first), end_ns, now_ns);
        assert_eq!(presence, Presence { minutes, silent }, "{what}");
    }
    // A reading once a minute is late now and then: some minutes have none, others two.
    let query =
        crate::findings::Recent::range_query(vec![Arc::from("a")], START_NS, START_NS + 600 * SECOND_NS);
    let rows = (-1..11).map(|n| (60 * n + if n % 2 == 0 { 1 } else { -1 }, "power_w", 600.0));
    let presence =
        Presence::of(&answer(&query, rows), &gpu_since(-600), START_NS + 600 * SECOND_NS, i64::MAX);
    assert_eq!(presence.silent, 0);
}

/// What it is; the GPU's first row and its rows, in seconds of the range; the events, and the code before it.
type Case = (&'static str, i64, Vec<(i64, &'static str, f64)>, &'static [(i64, &'static str)], Option<i64>);

/// Rows of power, and more.
fn powered(more: Vec<(i64, &'static str, f64)>) -> Vec<(i64, &'static str, f64)> {
    (-60..60).map(|n| (10 * n, "power_w", 300.0)).chain(more).collect()
}

fn cases_of_events() -> Vec<Case> {
    let every = |column, value: fn(i64) -> f64| (-60..60).map(move |n| (10 * n, column, value(n))).collect();
    vec![
        (
            "a code appears",
            -600,
            every("xid_last", |n| if n < 12 { 0.0 } else { 79.0 }),
            &[(120, "XID 79 (the GPU has fallen off the bus)")],
            None,
        ),
        (
            "it was cleared again",
            -600,
            every("xid_last", |n| if n == 12 { 31.0 } else { 0.0 }),
            &[(120, "XID 31 (a program used memory that it does not have)")],
            None,
        ),
        (
            "another code",
            -600,
            every("xid_last", |n| if n < 12 { 31.0 } else { 79.0 }),
            &[(120, "XID 79 (the GPU has fallen off the bus)")],
            None,
        ),
        (
            "its first row has one",
            30,
            vec![(30, "xid_last", 79.0), (40, "xid_last", 79.0)],
            &[(30, "XID 79 (the GPU has fallen off the bus)")],
            None,
        ),
        (
            "a code where there was no column for one",
            -90_000,
            powered((20..60).map(|n| (10 * n, "xid_last", 79.0)).collect()),
            &[(200, "XID 79 (the GPU has fallen off the bus)")],
            None,
        ),
        (
            "the same, before the range",
            -90_000,
            powered((-20..60).map(|n| (10 * n, "xid_last", 79.0)).collect()),
            &[],
            Some(79),
        ),
        (
            "a code in one row alone",
            -90_000,
            powered(vec![(120, "xid_last", 79.0)]),
            &[(120, "XID 79 (the GPU has fallen off the bus)")],
            None,
        ),
        ("it stands from before", -90_000, every("xid_last", |_| 79.0), &[], Some(79)),
        (
            "counted",
            -600,
            every("xid_count", |n| if n < 6 { 0.0 } else { 2.0 }),
            &[(60, "2 XIDs, the last XID")],
            None,
        ),
        (
            "errors, the count of which began before",
            -600,
            every("ecc_uncorrected_volatile", |n| if n < 6 { 3.0 } else { 4.0 }),
            &[(60, "1 uncorrectable ECC error")],
            None,
        ),
        ("nothing", -600, every("xid_last", |_| 0.0), &[], None),
    ]
}

#[test]
fn what_the_values_show_are_events() {
    for (what, first, rows, events, before) in cases_of_events() {
        let gpu = gpu_since(first);
        let query = Happened::query(&gpu, START_NS, START_NS + 600 * SECOND_NS);
        let happened = Happened::of(&answer(&query, rows), &gpu, START_NS);
        let found: Vec<(i64, &str)> = happened
            .events
            .iter()
            .map(|event| ((event.at_ns - START_NS) / SECOND_NS, event.detail.as_ref()))
            .collect();
        assert_eq!((found.as_slice(), happened.xid_before), (events, before), "{what}");
    }
}

/// A bit of AMD's throttle status: a limit of temperature.
const HOTSPOT: f64 = 8_589_934_592.0;

#[test]
fn bits_that_name_a_limit_are_shares_of_time_where_nothing_is_counted() {
    type Of = fn(&GpuWindow) -> Option<f64>;
    type Case = (&'static str, &'static str, fn(i64) -> f64, Of, Option<f64>);
    let heat: Of = |window| window.heat_share;
    let power: Of = |window| window.power_share;
    let brake: Of = |window| window.brake_share;
    let table: [Case; 9] = [
        ("always", "throttle_reasons", |_| 64.0, heat, Some(1.0)),
        ("never", "throttle_reasons", |_| 0.0, heat, Some(0.0)),
        ("every other sample", "throttle_reasons", |n| if n % 2 == 0 { 0.0 } else { 64.0 }, heat, Some(0.5)),
        (
            "one sample in three",
            "throttle_reasons",
            |n| if n % 3 == 0 { 32.0 } else { 1.0 },
            heat,
            Some(1.0 / 3.0),
        ),
        ("half of the minutes", "throttle_reasons", |n| if n < 30 { 0.0 } else { 64.0 }, heat, Some(0.5)),
        ("another limit", "throttle_reasons", |_| 4.0, heat, Some(0.0)),
        ("the power cap", "throttle_reasons", |_| 4.0, power, Some(1.0)),
        ("the power brake", "throttle_reasons", |_| 128.0, brake, Some(1.0)),
        ("AMD's bits", "throttle_status", |_| HOTSPOT, heat, Some(1.0)),
    ];
    let end_ns = START_NS + 600 * SECOND_NS;
    let query = crate::findings::Recent::range_query(vec![Arc::from("a")], START_NS, end_ns);
    let window = |rows: Vec<(i64, &'static str, f64)>| {
        let mut recent = crate::findings::Recent::of_range();
        recent.take(&answer(&query, rows));
        recent.window(&gpu_since(-600)).unwrap()
    };
    for (what, column, bits, share, right) in table {
        let own = window((-6..60).map(|n| (10 * n, column, bits(n))).collect());
        let found = share(&own).map(|share| (share * 1e6).round());
        assert_eq!(found, right.map(|share| (share * 1e6).round()), "{what}");
        let held = right.is_some_and(|share| share > 0.0);
        let is_told =
            of(GpuWindow { heat_share: share(&own), ..SOUND }, &[]).iter().any(|(id, _)| *id == "heat");
        assert_eq!(is_told, held, "{what}");
    }
    // Steps are counted by the firmware: bits that are derived from them say less.
    let counted = (-6..60_i32).flat_map(|n| {
        let second = i64::from(10 * n);
        let steps = 100.0 * f64::from(n + 7);
        [
            (second, "throttle_sample_count", steps),
            (second, "throttle_prochot_count", steps / 4.0),
            (second, "throttle_status", HOTSPOT),
        ]
    });
    assert_eq!(window(counted.collect()).heat_share, Some(0.25));
}
