use std::collections::HashMap;
use std::sync::Arc;

use gpuvitals_core::batch::Value;
use gpuvitals_core::history::{Buckets, GpuState, GroupName, LatestValue, TimeSteps};
use gpuvitals_core::time::{MINUTE_NS, SECOND_NS};
use gpuvitals_core::{Batch, BatchBuilder, Identity, IdentityColumn, Origin, Table, catalogue};
use proptest::prelude::*;

use super::*;
use crate::condition::Severity;
use crate::coverage::Coverage;
use crate::freshness::Freshness;
use crate::health_event::HealthEvent;

mod hung;
mod minutes;
mod stalled;
mod told;

const NOW_NS: i64 = 1_000_000 * MINUTE_NS;
const FRESH: Freshness = Freshness { now_ns: NOW_NS, stale_after_ns: 90 * SECOND_NS };

fn gpu(name: &str, node: &str, job: &str, seen_s_ago: i64, values: &[(&str, i64)]) -> Arc<GpuState> {
    let at_ns = NOW_NS - seen_s_ago * SECOND_NS;
    let texts = [
        (IdentityColumn::Uuid, name),
        (IdentityColumn::Node, node),
        (IdentityColumn::Model, "H100"),
        (IdentityColumn::Job, job),
    ];
    let mut identity = Identity::default();
    for (column, text) in &texts {
        identity.set(*column, text).unwrap();
    }
    let value = |(column, value): &(&str, i64)| {
        let latest = LatestValue { value: Value::Int(*value), timestamp_ns: at_ns };
        (catalogue::by_column(column).unwrap(), latest)
    };
    let mut latest: Vec<_> = values.iter().map(value).collect();
    latest.sort_by_key(|(id, _)| *id);
    Arc::new(GpuState {
        key: Arc::from(name),
        identity,
        first_seen_ns: 0,
        last_seen_ns: at_ns,
        latest,
        extras: Vec::new(),
    })
}

/// A GPU, its job and values that stay the same; a counter rises by its value every second.
type Steady<'a> = (&'a str, &'a str, &'a [(&'a str, f64)]);

/// So many minutes of GPUs.
fn recent(minutes: usize, gpus: &[Steady<'_>]) -> Recent {
    recent_of(minutes, 6, gpus)
}

/// The same from so many rows a minute.
fn recent_of(minutes: usize, rows: u32, gpus: &[Steady<'_>]) -> Recent {
    let mut recent = Recent::default();
    while let Some(query) = recent.next_query(NOW_NS + 11 * SECOND_NS) {
        let steps = TimeSteps::new(query.start_ns, query.end_ns, query.step_ns, 0).unwrap();
        let mut buckets = Buckets::new(steps, &query.metrics, &[]);
        let first_ns = NOW_NS - i64::try_from(minutes).unwrap() * MINUTE_NS;
        for (name, job, values) in gpus {
            let job = (!job.is_empty()).then(|| Arc::from(*job));
            let group: GroupName = Arc::from([Some(Arc::from(*name)), None, None, job]);
            let group = buckets.group(&group);
            for step in 0..steps.count {
                let place = buckets.place(group, step);
                for measured in buckets.metrics_mut() {
                    let column = measured.metric.metric().column;
                    let set = values.iter().find(|(name, _)| *name == column);
                    let Some((_, value)) = set.filter(|_| steps.time(step) >= first_ns) else { continue };
                    let last_ns = steps.time(step) + MINUTE_NS - SECOND_NS;
                    let seconds = f64::from(i32::try_from((last_ns - NOW_NS) / SECOND_NS + 9_000).unwrap());
                    let is_counter = column.ends_with("_ns") || column.ends_with("_count");
                    let value = if is_counter { value * seconds } else { *value };
                    let cell = measured.cells.get_mut(place).unwrap();
                    *cell = gpuvitals_core::history::Cell {
                        count: u64::from(rows),
                        sum: f64::from(rows) * value,
                        min: value,
                        max: value,
                        last_ns,
                        last: value,
                    };
                }
            }
        }
        recent.take(&buckets);
    }
    recent
}

fn judged(gpus: &[Arc<GpuState>], recent: &Recent) -> Vec<(String, bool, String)> {
    let lost = HashMap::new();
    let situation = Situation { fresh: FRESH, gpus, recent, lost: &lost };
    let found = judge(&situation).into_iter();
    let mut found: Vec<_> = found.map(|one| (one.finding.id(), one.opens, one.finding.sentence)).collect();
    found.sort();
    found
}

fn ids(found: &[(String, bool, String)]) -> Vec<&str> {
    found.iter().map(|(id, ..)| id.as_str()).collect()
}

#[test]
fn a_matched_condition_is_a_finding_with_its_value_and_remedy() {
    let gpus = [gpu("a", "n1", "", 0, &[("xid_last", 79)]), gpu("b", "n1", "", 0, &[("xid_last", 31)])];
    let found = judged(&gpus, &Recent::default());
    assert_eq!(found, [("xid:a".to_owned(), true, "XID 79: the GPU has fallen off the bus".to_owned())]);
}

/// The open findings of a GPU with these values that holds them for long, as they are shown.
fn shown(vendor: &str, values: &[(&str, i64)]) -> Vec<FleetFinding> {
    let mut one = GpuState::clone(&gpu("a", "n1", "", 0, values));
    one.identity.set(IdentityColumn::Vendor, vendor).unwrap();
    one.identity.index = Some(6);
    let (gpus, recent, lost) = ([Arc::new(one)], Recent::default(), HashMap::new());
    let mut tracker = Tracker::default();
    for minutes in 0..5 {
        let situation = Situation { fresh: FRESH, gpus: &gpus, recent: &recent, lost: &lost };
        tracker.update(NOW_NS + minutes * MINUTE_NS, judge(&situation), Coverage::Whole);
    }
    tracker.open()
}

#[test]
fn one_fault_is_one_card_with_the_values_of_all_that_tell_of_it() {
    const XID: &str = "xid_last";
    const ECC: &str = "ecc_uncorrected_volatile";
    const PENDING: &str = "remapped_rows_pending";
    const FAILED: &str = "remapped_rows_failed";
    const ASKED: &str = "recovery_action";
    // Values, and the cards by kind, each with its evidence.
    type Cards = &'static [(&'static str, &'static [&'static str])];
    let table: &[(&[(&str, i64)], Cards)] = &[
        (&[(XID, 63), (PENDING, 1)], &[("xid_nonfatal", &[XID, PENDING])]),
        (&[(PENDING, 1)], &[("row_remap_pending", &[PENDING])]),
        (&[(XID, 64), (PENDING, 1)], &[("xid", &[XID, PENDING])]),
        (&[(XID, 64), (FAILED, 1), (PENDING, 1)], &[("row_remap_failed", &[FAILED, XID, PENDING])]),
        (&[(XID, 63), (ECC, 2), (PENDING, 1)], &[("ecc_uncorrected", &[ECC, XID, PENDING])]),
        (&[(XID, 48), (ECC, 2), (PENDING, 1)], &[("xid", &[XID, ECC, PENDING])]),
        (&[(XID, 94), (ECC, 2)], &[("xid_nonfatal", &[XID, ECC])]),
        (&[(XID, 95), (ECC, 2), (ASKED, 1)], &[("xid", &[XID, ECC, ASKED])]),
        (&[(XID, 64), (FAILED, 1), (ECC, 2)], &[("row_remap_failed", &[FAILED, XID, ECC])]),
        (&[(XID, 154), (ASKED, 2)], &[("recovery_action", &[ASKED, XID])]),
        (&[(XID, 9_999), (ASKED, 2)], &[("xid", &[XID, ASKED])]),
        (&[(ECC, 1), (ASKED, 1), (PENDING, 1)], &[("ecc_uncorrected", &[ECC, ASKED, PENDING])]),
        // Faults of their own.
        (&[(XID, 79), (ECC, 1)], &[("xid", &[XID]), ("ecc_uncorrected", &[ECC])]),
        (&[(XID, 31), (PENDING, 1)], &[("row_remap_pending", &[PENDING])]),
    ];
    for (values, cards) in table {
        let found = shown("nvidia", values);
        let found: Vec<(&str, Vec<&str>)> = found
            .iter()
            .map(|one| (one.kind.id, one.evidence.iter().map(|evidence| evidence.quantity).collect()))
            .collect();
        let wanted: Vec<(&str, Vec<&str>)> =
            cards.iter().map(|(kind, evidence)| (*kind, evidence.to_vec())).collect();
        assert_eq!(found, wanted, "{values:?}");
    }
}

#[test]
fn what_to_do_is_of_the_code_the_vendor_and_the_gpu_and_the_driver_knows_best() {
    let step = |vendor, values: &[(&str, i64)]| shown(vendor, values).remove(0).remedy;
    let row = step("nvidia", &[("xid_last", 63)]);
    assert!(row.starts_with("Work may go on") && row.contains("--gpu-reset -i 6`"), "{row}");
    assert!(row.ends_with("The code stays until the driver is loaded again."), "{row}");
    assert!(step("nvidia", &[("xid_last", 79)]).starts_with("Drain the node and reboot it"));
    let asked = shown("nvidia", &[("xid_last", 119), ("recovery_action", 2)]).remove(0);
    assert_eq!(
        asked.sentence,
        "XID 119: the GPU's own processor (GSP) does not answer; the driver asks for a reboot of the node"
    );
    assert!(asked.remedy.starts_with("Drain the node and reboot it"), "{}", asked.remedy);
    let hot = |vendor| step(vendor, &[("throttle_reasons", 0x40)]);
    assert!(hot("nvidia").contains("`nvidia-smi -i 6 -pl") && !hot("nvidia").contains("rocm"));
    assert!(hot("amd").contains("`rocm-smi -d 6") && !hot("amd").contains("nvidia"));
}

/// Counts by block of the GPU `a`: age in seconds, block, count.
fn ras_rows(rows: &[(i64, &str, u32)]) -> Batch {
    let mut builder = BatchBuilder::new(Table::GpuDetails);
    for (ago_s, block, count) in rows {
        let who = builder.intern(&Identity::default().with(IdentityColumn::Uuid, "a").unwrap());
        let row = builder.row(NOW_NS - ago_s * SECOND_NS, who);
        builder.set_extra_text(row, "metric", "ras_uncorrected").unwrap();
        builder.set_extra_text(row, "instance", block).unwrap();
        builder.set_extra(row, "value", f64::from(*count)).unwrap();
    }
    builder.finish(Origin { node: Arc::from("n1"), started_ns: 1 }, 1).unwrap()
}

#[test]
fn every_ras_block_of_the_driver_has_words_and_a_step() {
    let gpus = [gpu("a", "n1", "", 0, &[("ras_uncorrected", 1)])];
    for block in [
        "umc",
        "sdma",
        "gfx",
        "mmhub",
        "athub",
        "pcie_bif",
        "hdp",
        "xgmi_wafl",
        "df",
        "smn",
        "sem",
        "mp0",
        "mp1",
        "fuse",
        "mca",
        "vcn",
        "jpeg",
        "ih",
        "mpio",
    ] {
        let mut recent = Recent::default();
        recent.ras.take(Some(&ras_rows(&[(10, block, 1)])));
        let lost = HashMap::new();
        let found = judge(&Situation { fresh: FRESH, gpus: &gpus, recent: &recent, lost: &lost });
        let one = &found.first().unwrap().finding;
        assert!(one.sentence.contains(&format!(" ({block})")), "{}", one.sentence);
        assert!(!one.remedy.contains("--showrasinfo"), "{block}: that of all blocks: {}", one.remedy);
    }
}

#[test]
fn a_ras_error_names_its_block_where_the_details_do() {
    let gpus = [gpu("a", "n1", "", 0, &[("ras_uncorrected", 3)])];
    let mut recent = Recent::default();
    let asked = recent.ras.next_query(&gpus, FRESH).unwrap();
    assert!(recent.ras.next_query(&gpus, FRESH).is_some(), "there was no answer");
    recent.ras.take(None);
    assert!(recent.ras.next_query(&gpus, FRESH).is_none(), "it may have none");
    assert_eq!((asked.table, asked.gpus.len()), (Table::GpuDetails, 1));
    // The newest first.
    recent.ras.take(Some(&ras_rows(&[(10, "umc", 2), (40, "umc", 1), (70, "gfx", 1), (70, "sdma", 0)])));
    assert!(recent.ras.next_query(&gpus, FRESH).is_none(), "they are known");
    let lost = HashMap::new();
    let found = judge(&Situation { fresh: FRESH, gpus: &gpus, recent: &recent, lost: &lost });
    let one = &found.first().unwrap().finding;
    assert_eq!(
        one.sentence,
        "3 uncorrectable RAS errors since the driver was loaded, in device memory (umc) and the compute units and their caches (gfx)"
    );
    assert!(one.remedy.contains("--showretiredpages"), "{}", one.remedy);
}

#[test]
fn a_silent_node_is_one_finding_and_a_silent_gpu_another() {
    let mut gpus: Vec<_> = (0..8).map(|n| gpu(&format!("a{n}"), "n1", "", 300, &[])).collect();
    gpus.extend((0..8).map(|n| gpu(&format!("b{n}"), "n2", "", if n == 3 { 300 } else { 5 }, &[])));
    gpus.extend((0..8).map(|n| gpu(&format!("c{n}"), "n3", "", 5, &[])));
    let found = judged(&gpus, &Recent::default());
    assert_eq!(ids(&found), ["gpu_lost:b3", "node_silent:n1"]);
    assert_eq!(found.first().unwrap().2, "it reports nothing any more, 7 other GPUs of its node do");
    let all: Vec<_> =
        (0..6).map(|n| gpu(&format!("a{n}"), &format!("n{}", n / 2), "", 300, &[("xid_last", 79)])).collect();
    assert!(ids(&judged(&all, &Recent::default())).contains(&"fleet_silent:fleet"));
    let gone: Vec<_> = (0..2).map(|n| gpu(&format!("a{n}"), "n1", "", 8 * 86_400, &[])).collect();
    assert!(judged(&gone, &Recent::default()).is_empty());
}

#[test]
fn a_node_with_a_gap_lacks_a_gpu_and_a_smaller_node_does_not() {
    let node = |name: &str, indices: &[i32]| {
        let gpu = |index: &i32| {
            let mut gpu = (*gpu(&format!("{name}-{index}"), name, "", 0, &[])).clone();
            gpu.identity.index = Some(*index);
            Arc::new(gpu)
        };
        indices.iter().map(gpu).collect::<Vec<_>>()
    };
    let whole = [0, 1, 2, 3, 4, 5, 6, 7];
    let found = |other: &[i32]| {
        let mut gpus: Vec<_> = (0..6).flat_map(|n| node(&format!("n{n}"), &whole)).collect();
        gpus.extend(node("odd", other));
        judged(&gpus, &Recent::default()).pop().map(|(id, _, sentence)| (id, sentence))
    };
    let (id, sentence) = found(&[0, 1, 2, 3, 4, 5, 7]).unwrap();
    assert_eq!(id, "gpu_missing:odd");
    assert_eq!(sentence, "the node has 7 GPUs (GPU 6 is missing), most nodes with H100 have 8");
    assert_eq!(found(&[0, 1, 2, 3, 4, 5, 6]).unwrap().1, "the node has 7 GPUs, most nodes with H100 have 8");
    assert_eq!(found(&[0, 1, 2, 3]), None, "a node of four");
    // A collector that knows the eighth GPU may be away for a moment.
    let mut gpus: Vec<_> = (0..6).flat_map(|n| node(&format!("n{n}"), &whole)).collect();
    gpus.extend(node("odd", &[0, 1, 2, 3, 4, 5, 7]));
    let (lost, recent, mut tracker) = (HashMap::new(), Recent::default(), Tracker::default());
    for (seconds, open) in [(0, 0), (240, 0), (300, 1)] {
        let situation = Situation { fresh: FRESH, gpus: &gpus, recent: &recent, lost: &lost };
        tracker.update(NOW_NS + seconds * SECOND_NS, judge(&situation), Coverage::Whole);
        assert_eq!(tracker.open().len(), open, "after {seconds} s");
    }
}

#[test]
fn nodes_with_another_driver_are_one_finding_and_of_two_neither_is_the_odd_one() {
    let with = |name: &str, driver: &str| {
        let mut gpu = (*gpu(name, name, "", 0, &[])).clone();
        gpu.identity.set(IdentityColumn::Driver, driver).unwrap();
        Arc::new(gpu)
    };
    let sentence = |gpus: &[Arc<GpuState>]| judged(gpus, &Recent::default()).pop().map(|(_, _, text)| text);
    let odd = [with("n1", "550"), with("n2", "550"), with("n3", "535")];
    assert_eq!(sentence(&odd).unwrap(), "nodes with H100 have driver 535 on n3, most have 550");
    let tie = [with("n1", "550"), with("n3", "535")];
    assert_eq!(sentence(&tie).unwrap(), "nodes with H100 have driver 535 on n3 and 550 on n1");
    assert_eq!(sentence(&[with("n1", "550"), with("n2", "550")]), None);
}

#[test]
fn a_lost_gpu_says_what_was_wrong_before() {
    let gpus = [gpu("a", "n1", "", 300, &[("xid_last", 79)]), gpu("b", "n1", "", 0, &[])];
    let found = judged(&gpus, &Recent::default());
    assert_eq!(
        found.first().unwrap().2,
        "it reports nothing any more, another GPU of its node does; before that, XID 79: the GPU has fallen off the bus"
    );
}

#[test]
fn a_gpu_with_rows_but_no_values_is_lost_if_its_agent_says_so() {
    let mut identity = Identity::default();
    identity.set(IdentityColumn::Uuid, "a").unwrap();
    let mut builder = BatchBuilder::new(Table::GpuHealthEvents);
    for (sequence, (second, kind)) in [(10, "lost"), (20, "back"), (30, "lost")].into_iter().enumerate() {
        let who = builder.intern(&identity);
        let row = builder.row(NOW_NS - 900 * SECOND_NS + second * SECOND_NS, who);
        builder.set_extra(row, "sequence", i64::try_from(sequence).unwrap()).unwrap();
        builder.set_extra_text(row, "kind", kind).unwrap();
        builder.set_extra_text(row, "detail", "it fell off the bus").unwrap();
    }
    let events = builder.finish(Origin { node: Arc::from("n1"), started_ns: 1 }, 1).unwrap();
    let lost = lost_gpus(&HealthEvent::of_rows(&events));
    assert_eq!(lost.get("a").map(|lost| lost.at_ns), Some(NOW_NS - 870 * SECOND_NS));

    let mut state = (*gpu("a", "n1", "", 600, &[("xid_last", 79)])).clone();
    state.last_seen_ns = NOW_NS;
    let (gpus, recent) = ([Arc::new(state)], Recent::default());
    let situation = Situation { fresh: FRESH, gpus: &gpus, recent: &recent, lost: &lost };
    let found = judge(&situation);
    let one = found.first().unwrap();
    assert_eq!((found.len(), one.finding.kind.id), (1, "gpu_lost"));
    assert_eq!(
        one.finding.sentence,
        "it fell off the bus; before that, XID 79: the GPU has fallen off the bus"
    );
    // One that never gave a value.
    let gpus = [gpu("a", "n1", "", 0, &[])];
    let found = judge(&Situation { gpus: &gpus, ..situation });
    assert_eq!(found.first().map(|one| one.finding.sentence.as_str()), Some("it fell off the bus"));
}

#[test]
fn a_slow_gpu_of_a_job_is_a_straggler_and_equal_ones_are_not() {
    let names = ["a", "b", "c", "d"];
    let gpus: Vec<_> = names.iter().map(|name| gpu(name, "n1", "train", 0, &[])).collect();
    let at = |slow: f64| {
        let fast: &[(&str, f64)] = &[("utilization_pct", 99.0), ("gpu_clock_mhz", 1980.0)];
        let slow = vec![("utilization_pct", 99.0), ("gpu_clock_mhz", slow)];
        let rows = names.map(|name| (name, "train", if name == "c" { slow.as_slice() } else { fast }));
        judged(&gpus, &recent(10, &rows))
    };
    let found = at(1530.0);
    assert_eq!(ids(&found), ["straggler:c"]);
    assert_eq!(
        found.first().unwrap().2,
        "its clock of 1530 MHz is 23 % below that of its job, whose 3 other GPUs wait for it"
    );
    assert!(at(1910.0).is_empty());
    assert_eq!(at(1860.0).first().map(|(_, opens, _)| *opens), Some(false), "it keeps one open");
}

#[test]
fn heat_power_brake_and_a_clock_without_a_reason() {
    let gpus: Vec<_> = ["a", "b", "c", "d", "e"].iter().map(|name| gpu(name, "n1", "", 0, &[])).collect();
    let at = |values: &[(&str, f64)]| {
        let fast: &[(&str, f64)] = &[("utilization_pct", 99.0), ("gpu_clock_mhz", 2000.0)];
        let mut slow = vec![("utilization_pct", 99.0), ("gpu_clock_mhz", 1500.0)];
        slow.extend_from_slice(values);
        let rows = ["a", "b", "c", "d"].map(|name| (name, "", fast));
        judged(&gpus, &recent(10, &[rows.as_slice(), &[("e", "", &slow)]].concat()))
    };
    let heat = at(&[("throttled_sw_thermal_ns", 0.25e9), ("throttled_power_ns", 0.9e9)]);
    assert_eq!(ids(&heat), ["thermal_throttling:e"]);
    assert_eq!(
        heat.first().unwrap().2,
        "heat held the clock down for 25 % of the last ten minutes, 25 % below the clock of its peers"
    );
    let amd = at(&[
        ("throttle_sample_count", 1000.0),
        ("throttle_hbm_thermal_count", 500.0),
        ("throttle_ppt_count", 300.0),
    ]);
    assert_eq!(ids(&amd), ["thermal_throttling:e"]);
    assert_eq!(ids(&at(&[("throttled_hw_power_brake_ns", 0.5e9)])), ["power_brake:e"]);
    let free = [("throttled_thermal_ns", 0.0), ("throttled_power_ns", 0.01e9)];
    assert_eq!(ids(&at(&free)), ["clock_held:e"]);
    assert!(
        at(&[("throttled_power_ns", 0.9e9), ("throttled_thermal_ns", 0.0)]).is_empty(),
        "the power limit"
    );
    assert!(at(&[]).is_empty(), "without counters no reason is ruled out");
}

#[test]
fn a_narrow_link_under_load_is_degraded_and_a_sleeping_one_is_not() {
    let names = ["a", "b", "c", "d", "e"];
    let gpus: Vec<_> = names.iter().map(|name| gpu(name, "n1", "", 0, &[])).collect();
    let at = |busy: f64, generation: f64| {
        let sound: &[(&str, f64)] = &[
            ("utilization_pct", 99.0),
            ("pcie_width", 16.0),
            ("pcie_gen", 5.0),
            ("interconnect_links_up", 18.0),
        ];
        let other = vec![("utilization_pct", busy), ("pcie_width", 8.0), ("pcie_gen", generation)];
        let rows = names.map(|name| (name, "", if name == "e" { other.as_slice() } else { sound }));
        judged(&gpus, &recent(10, &rows))
    };
    assert_eq!(ids(&at(99.0, 5.0)), ["pcie_degraded:e"]);
    assert!(at(2.0, 1.0).is_empty());
}

#[test]
fn a_job_that_does_nothing_for_half_an_hour_is_one_finding() {
    let gpus: Vec<_> = ["a", "b"].iter().map(|name| gpu(name, "n1", "serve", 0, &[])).collect();
    let idle: &[(&str, f64)] = &[("utilization_pct", 0.0)];
    let at = |minutes| judged(&gpus, &recent(minutes, &[("a", "serve", idle), ("b", "serve", idle)]));
    let found = at(33);
    assert_eq!(
        found,
        [(
            "idle_held://serve".to_owned(),
            true,
            "serve holds 2 GPUs that did nothing for at least 33 minutes".to_owned()
        )]
    );
    assert!(at(25).is_empty());
    let free = judged(&[gpu("a", "n1", "", 0, &[])], &recent(33, &[("a", "", idle)]));
    assert!(free.is_empty(), "nobody holds it");
}

/// Strong enough to open a finding.
fn strong(kind: &'static str) -> Candidate {
    Candidate { opens: true, ..weak(kind) }
}

/// Only enough to keep one open.
fn weak(kind: &'static str) -> Candidate {
    let subject = Subject::Gpu(Arc::from("a"));
    Candidate {
        opens: false,
        began: None,
        finding: finding(kind, subject, String::new(), Vec::new(), Reach::default()),
    }
}

#[test]
fn a_finding_opens_late_closes_later_and_keeps_its_beginning() {
    let mut tracker = Tracker::default();
    let mut at = |second: i64, candidates: Vec<Candidate>, coverage| {
        tracker.update(second * SECOND_NS, candidates, coverage);
        tracker.open().first().map(|finding| finding.since_ns / SECOND_NS)
    };
    let strong = || vec![strong("straggler")];
    let weak = || vec![weak("straggler")];
    assert_eq!(at(0, weak(), Coverage::Whole), None);
    assert_eq!(at(15, strong(), Coverage::Whole), None);
    assert_eq!(at(120, strong(), Coverage::Whole), None, "105 s are too short");
    assert_eq!(at(135, strong(), Coverage::Whole), Some(15));
    assert_eq!(at(150, weak(), Coverage::Whole), Some(15));
    assert_eq!(at(400, vec![], Coverage::Whole), Some(15));
    assert_eq!(at(420, vec![], Coverage::Partial), Some(15));
    assert_eq!(at(700, vec![], Coverage::Partial), Some(15), "what is missing closes nothing");
    assert_eq!(at(999, vec![], Coverage::Whole), Some(15));
    assert_eq!(at(1_001, vec![], Coverage::Whole), None);
    assert_eq!(at(1_016, strong(), Coverage::Whole), None, "it begins anew");
    assert_eq!(at(1_031, vec![], Coverage::Partial), None);
    assert_eq!(at(1_200, strong(), Coverage::Whole), None, "in between it was not seen, missing or not");
}

#[test]
fn what_needs_no_peers_is_found_without_a_model_too() {
    let mut hot = GpuState::clone(&gpu("hot", "n1", "", 0, &[]));
    hot.identity = Identity::default().with(IdentityColumn::Uuid, "hot").unwrap();
    let values = &[("throttled_sw_thermal_ns", 0.5e9), ("temperature_c", 90.0), ("fan_speed_pct", 0.0)][..];
    let found = judged(&[Arc::new(hot)], &recent(12, &[("hot", "", values)]));
    assert_eq!(ids(&found), ["fan_stopped:hot", "thermal_throttling:hot"]);
}

#[test]
fn what_says_less_about_the_same_gpu_is_not_shown() {
    let mut tracker = Tracker::default();
    for second in [0, 60, 120, 180] {
        let both = vec![strong("straggler"), strong("thermal_throttling")];
        tracker.update(second * SECOND_NS, both, Coverage::Whole);
    }
    let open = tracker.open();
    assert_eq!(open.iter().map(|finding| finding.kind.id).collect::<Vec<_>>(), ["thermal_throttling"]);
}

proptest! {
    /// However candidates come and go: it opens only after its time, closes only after its time, and keeps its beginning.
    #[test]
    fn findings_do_not_flap(seen in proptest::collection::vec((1_i64..90, 0_u8..3), 1..300)) {
        let kind = kinds::kind("straggler");
        let mut tracker = Tracker::default();
        let (mut now_ns, mut changed_ns, mut was_open, mut since_ns) = (0, 0, false, None);
        for (seconds, strength) in seen {
            now_ns += seconds * SECOND_NS;
            let candidates = match strength {
                0 => vec![],
                1 => vec![weak("straggler")],
                _ => vec![strong("straggler")],
            };
            tracker.update(now_ns, candidates, Coverage::Whole);
            let open = tracker.open();
            let is_open = !open.is_empty();
            if is_open != was_open {
                let least_ns = if is_open { kind.opens_after_ns } else { kind.closes_after_ns };
                prop_assert!(now_ns - changed_ns >= least_ns, "{} after {}", is_open, now_ns - changed_ns);
                (was_open, changed_ns, since_ns) = (is_open, now_ns, None);
            }
            if let Some(finding) = open.first() {
                prop_assert_eq!(*since_ns.get_or_insert(finding.since_ns), finding.since_ns);
            }
        }
    }
}

#[test]
fn a_host_whose_rows_are_ahead_has_a_wrong_clock() {
    let gpus = [gpu("a", "n1", "", 0, &[]), gpu("b", "n1", "", 0, &[]), gpu("c", "n2", "", 0, &[])];
    let row = |uuid: &str, node: Option<&str>, ahead_ns: i64| {
        let mut identity = Identity::default().with(IdentityColumn::Uuid, uuid).unwrap();
        if let Some(node) = node {
            identity.set(IdentityColumn::Node, node).unwrap();
        }
        RowAhead { at_ns: NOW_NS + ahead_ns, identity }
    };
    let ahead = |seconds: i64| {
        [
            row("a", Some("n1"), 50 * MINUTE_NS + seconds * SECOND_NS),
            row("d", Some("n9"), (9 + seconds) * SECOND_NS),
            row("e", None, (9 + seconds) * SECOND_NS),
            // Set right meanwhile.
            row("b", Some("n8"), 50 * MINUTE_NS),
        ]
    };
    let mut clocks = ClockWatch::default();
    assert!(clocks.look(&ahead(0), None, &gpus, NOW_NS).is_empty(), "one look says nothing");
    let found = clocks.look(&ahead(15), None, &gpus, NOW_NS + 15 * SECOND_NS);
    let ids: Vec<String> = found.iter().map(|one| one.finding.id()).collect();
    assert_eq!(ids, ["clock_wrong:n1", "clock_wrong:n9", "clock_wrong:e"]);
    let [n1, n9, _] = &found[..] else { panic!("{found:?}") };
    assert!(n1.finding.sentence.starts_with("its rows come with a time 50 min ahead"), "{n1:?}");
    assert_eq!(n1.finding.reach.gpus.len(), 2);
    assert_eq!((n9.finding.reach.gpus.len(), n9.finding.reach.node.as_deref()), (1, Some("n9")));
    // A row a minute, half a minute ahead: half of the looks meet none, and it is wrong all the same.
    let (mut slow, mut tracker) = (ClockWatch::default(), Tracker::default());
    for look in 0..20 {
        let second = look * 15;
        let newest = row("s", Some("n7"), (second / 60 * 60 + 30) * SECOND_NS);
        let ahead = if second % 60 < 25 { vec![newest] } else { Vec::new() };
        let now_ns = NOW_NS + second * SECOND_NS;
        tracker.update(now_ns, slow.look(&ahead, None, &gpus, now_ns), Coverage::Whole);
    }
    assert_eq!(tracker.open().iter().map(FleetFinding::id).collect::<Vec<_>>(), ["clock_wrong:n7"]);
    // It opens after a minute.
    let mut tracker = Tracker::default();
    tracker.update(NOW_NS, found.clone(), Coverage::Whole);
    assert_eq!(tracker.open().len(), 0);
    tracker.update(NOW_NS + MINUTE_NS, found, Coverage::Whole);
    assert_eq!(tracker.open().len(), 3);
    assert!(
        clocks.look(&ahead(15), None, &gpus, NOW_NS + 3 * MINUTE_NS).is_empty(),
        "no more rows are ahead"
    );
}

#[test]
fn what_has_time_by_its_code_has_none_if_the_driver_wants_it_at_once() {
    for (action, severity) in [(0, Severity::Warning), (4, Severity::Warning), (2, Severity::Critical)] {
        let found = shown("nvidia", &[("xid_last", 63), ("recovery_action", action)]);
        let [one] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((one.kind.id, one.severity), ("xid_nonfatal", severity), "{action}");
    }
}
