//! What agents themselves say of GPUs.

use super::*;
use crate::health_event::event_rows;

/// What agents say: how many minutes ago, GPU, kind, code.
fn told(words: &[(i64, &str, &str, i64)]) -> Recent {
    let mut recent = Recent::default();
    recent.told.next_query(FRESH).unwrap();
    let event = |(minutes_ago, gpu, kind, code): &(i64, &str, &str, i64)| HealthEvent {
        at_ns: NOW_NS - minutes_ago * MINUTE_NS,
        gpu: (*gpu).into(),
        kind: (*kind).into(),
        detail: "its readings slowed from 0.3 to 41 ms".into(),
        code: Some(*code),
        ..HealthEvent::default()
    };
    let of = |event: &HealthEvent| Identity::default().with(IdentityColumn::Uuid, &event.gpu).unwrap();
    let events: Vec<HealthEvent> = words.iter().map(event).collect();
    let gpus: Vec<Identity> = events.iter().map(of).collect();
    let rows = event_rows(events.iter().zip(&gpus), Origin::default(), &mut 0);
    recent.told.take(rows.as_ref(), Coverage::Whole);
    recent
}

#[test]
fn readings_that_slow_down_are_a_finding_that_a_lost_gpu_covers() {
    let recent = told(&[(1, "a", "reads_slowed", 41_000)]);
    let gpus = [gpu("a", "n1", "", 0, &[("xid_count", 0)]), gpu("b", "n1", "", 0, &[("xid_count", 0)])];
    let found = judged(&gpus, &recent);
    assert_eq!(ids(&found), ["reads_slowed:a"]);
    assert_eq!(found[0].2, "its readings slowed from 0.3 to 41 ms");
    for kind in ["gpu_lost", "xid"] {
        assert!(kinds::kind(kind).covers.contains(&"reads_slowed"), "{kind}");
    }
}

#[test]
fn an_xid_that_the_kernel_alone_tells_of_is_a_finding_unless_the_driver_says_more() {
    let recent = told(&[(5, "a", "xid", 79)]);
    let sentence = |xid: i64| {
        let gpus = [gpu("a", "n1", "", 0, &[("xid_last", xid)]), gpu("b", "n1", "", 0, &[("xid_last", 0)])];
        let found = judged(&gpus, &recent);
        assert_eq!(ids(&found), ["xid:a"], "{xid}");
        found[0].2.clone()
    };
    let alone = "XID 79: the GPU has fallen off the bus, by the kernel's log alone";
    assert_eq!((sentence(0).as_str(), sentence(13).as_str()), (alone, alone));
    assert!(sentence(95).starts_with("XID 95"), "the driver's own");
    // One that programs cause is none.
    let gpus = [gpu("a", "n1", "", 0, &[("xid_last", 0)])];
    assert!(judged(&gpus, &told(&[(5, "a", "xid", 31)])).is_empty());
}

#[test]
fn a_lost_gpu_says_what_the_kernel_alone_has_told() {
    let gpus = [gpu("a", "n1", "", 300, &[]), gpu("b", "n1", "", 0, &[])];
    let found = judged(&gpus, &told(&[(5, "a", "xid", 79)]));
    assert!(found[0].2.ends_with("; before that, XID 79: the GPU has fallen off the bus"), "{found:?}");
}

#[test]
fn xids_that_the_kernel_alone_tells_of_are_asked_for_like_those_of_the_driver() {
    let Recent { mut xids, told, .. } = told(&[(90, "a", "xid", 31), (90, "b", "xid", 79)]);
    let gpus =
        [gpu("a", "n1", "", 0, &[]), gpu("b", "n1", "", 0, &[]), gpu("c", "n1", "", 0, &[("xid_last", 13)])];
    let asked = xids.next_query(&gpus, FRESH, &told).unwrap().gpus;
    assert_eq!(asked, [Arc::from("a"), Arc::from("c")]);
}
