//! Health events from rows, and which rows leave a node.

use gpuvitals_analysis::events::HealthEvents;
use gpuvitals_analysis::outgoing::Outgoing;
use gpuvitals_core::batch::Value;
use gpuvitals_core::catalogue::{self, Scope};
use gpuvitals_core::{AbsenceReason, Batch, BatchBuilder, Identity, IdentityColumn, Origin, Table, message};

const SECOND: i64 = 1_000_000_000;

/// Values of a row; a reason instead of them: it reports nothing.
type Values<'a> = Result<&'a [(&'a str, i64)], AbsenceReason>;

fn gpu_rows(gpu: &str, rows: &[(i64, Values<'_>)]) -> Batch {
    let mut builder = BatchBuilder::new(Table::GpuEvents);
    let identity = Identity::default().with(IdentityColumn::Uuid, gpu).unwrap();
    let identity = builder.intern(&identity);
    for (time, values) in rows {
        let row = builder.row(*time, identity);
        match values {
            Ok(values) => {
                for (column, value) in *values {
                    builder.set(row, catalogue::by_column(column).unwrap(), Value::Int(*value)).unwrap();
                }
            }
            Err(reason) => builder.absent(row, catalogue::by_column("power_w").unwrap(), *reason),
        }
    }
    builder.finish(Origin::default(), 3).unwrap()
}

/// Kind, sequence, code and words of each event.
fn spelled(batch: Option<&Batch>) -> Vec<(String, i64, Option<i64>, String)> {
    let Some(batch) = batch else { return Vec::new() };
    assert_eq!(batch.table(), Table::GpuHealthEvents);
    let event = |row| {
        let fields = message::render(batch, row).unwrap()["fields"].clone();
        let text = |name: &str| fields[name].as_str().unwrap().to_owned();
        (text("kind"), fields["sequence"].as_i64().unwrap(), fields["code"].as_i64(), text("detail"))
    };
    (0..batch.rows()).map(event).collect()
}

#[track_caller]
fn check(
    events: &mut HealthEvents,
    values: Values<'_>,
    at: i64,
    expected: &[(&str, i64, Option<i64>, &str)],
) {
    let found = events.of(&gpu_rows("GPU-1", &[(at * SECOND, values)]));
    let found = spelled(found.as_ref());
    let found: Vec<_> = found
        .iter()
        .map(|(kind, number, code, text)| (kind.as_str(), *number, *code, text.as_str()))
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn counts_that_rise_are_events_and_what_was_there_at_first_is_none() {
    let mut events = HealthEvents::default();
    let before = [("ecc_uncorrected_volatile", 7), ("xid_count", 0), ("xid_last", 0)];
    check(&mut events, Ok(&before), 0, &[]);
    let xid = [("ecc_uncorrected_volatile", 7), ("xid_count", 1), ("xid_last", 79)];
    check(&mut events, Ok(&xid), 1, &[("xid", 1, Some(79), "XID 79 (the GPU has fallen off the bus)")]);
    check(&mut events, Ok(&xid), 2, &[]);
    // A row of the fast tier has no counts.
    check(&mut events, Ok(&[("power_w", 100)]), 3, &[]);
    let both = [("ecc_uncorrected_volatile", 9), ("xid_count", 3), ("xid_last", 48)];
    let expected = [
        ("xid", 2, Some(48), "2 XIDs, the last XID 48 (an uncorrectable memory error of two bits)"),
        ("ecc", 3, Some(2), "2 uncorrectable ECC errors"),
    ];
    check(&mut events, Ok(&both), 4, &expected);
    // The driver was loaded anew: its count begins at 0.
    check(&mut events, Ok(&[("ecc_uncorrected_volatile", 0)]), 5, &[]);
    check(
        &mut events,
        Ok(&[("ecc_uncorrected_volatile", 1)]),
        6,
        &[("ecc", 4, Some(1), "1 uncorrectable ECC error")],
    );
    // An XID before the first row was seen by this agent too.
    let first = events.of(&gpu_rows("GPU-2", &[(0, Ok(&[("xid_count", 1), ("xid_last", 31)]))]));
    assert_eq!(
        spelled(first.as_ref()),
        [("xid".to_owned(), 5, Some(31), "XID 31 (a program used memory that it does not have)".to_owned())]
    );
}

#[test]
fn throttling_is_an_event_when_it_begins_and_not_while_it_comes_and_goes() {
    let mut events = HealthEvents::default();
    let free = [("throttled", 0), ("throttle_reasons", 0x1)];
    let capped = [("throttled", 1), ("throttle_reasons", 0x4)];
    check(&mut events, Ok(&free), 0, &[]);
    check(&mut events, Ok(&capped), 1, &[("throttle", 1, Some(4), "software power cap")]);
    for at in 2..40 {
        check(&mut events, Ok(if at % 2 == 0 { &free } else { &capped }), at, &[]);
    }
    check(&mut events, Ok(&capped), 60, &[("throttle", 2, Some(4), "software power cap")]);
    // From MI300 on only the firmware's counters tell.
    let mut events = HealthEvents::default();
    let steps = |total: i64, power: i64| [("throttle_sample_count", total), ("throttle_ppt_count", power)];
    check(&mut events, Ok(&steps(100, 5)), 0, &[]);
    check(&mut events, Ok(&steps(200, 5)), 1, &[]);
    check(&mut events, Ok(&steps(300, 15)), 2, &[("throttle", 1, None, "power limit")]);
}

#[test]
fn a_gpu_is_lost_once_and_back_once_and_a_sleeping_one_is_neither() {
    let mut events = HealthEvents::default();
    check(&mut events, Err(AbsenceReason::NotSupported), 0, &[]);
    check(&mut events, Ok(&[("power_w", 100)]), 1, &[]);
    check(&mut events, Err(AbsenceReason::Suspended), 2, &[]);
    check(&mut events, Ok(&[("power_w", 100)]), 3, &[]);
    let lost = ("lost", 1, None, "it reports nothing any more: timed_out");
    check(&mut events, Err(AbsenceReason::TimedOut), 4, &[lost]);
    check(&mut events, Err(AbsenceReason::Gone), 5, &[]);
    check(&mut events, Ok(&[("power_w", 100)]), 6, &[("back", 2, None, "it reports again")]);
    // One that its driver names and never reaches.
    let mut events = HealthEvents::default();
    check(&mut events, Err(AbsenceReason::Gone), 0, &[("lost", 1, None, "it cannot be read: gone")]);
    check(&mut events, Err(AbsenceReason::Gone), 1, &[]);
}

fn details(value: f64, at: i64) -> Batch {
    let mut builder = BatchBuilder::new(Table::GpuDetails);
    let identity = builder.intern(&Identity::default().with(IdentityColumn::Uuid, "GPU-1").unwrap());
    for (instance, value) in [("0", value), ("1", 7.0)] {
        let row = builder.row(at * SECOND, identity);
        builder.set_extra_text(row, "metric", "nvlink_rx_bytes").unwrap();
        builder.set_extra_text(row, "instance", instance).unwrap();
        builder.set_extra(row, "value", value).unwrap();
    }
    builder.finish(Origin::default(), 1).unwrap()
}

#[test]
fn details_leave_on_change_at_most_every_30_s_and_every_10_minutes() {
    let mut outgoing = Outgoing::default();
    let mut rows = |value, at| outgoing.take(details(value, at)).map(|batch| batch.rows()).sum::<usize>();
    assert_eq!(rows(1.0, 0), 2, "the first of each instance");
    assert_eq!(rows(2.0, 10), 0, "too soon");
    assert_eq!(rows(2.0, 30), 1, "the one that changed");
    assert_eq!(rows(2.0, 90), 0, "nothing changed");
    assert_eq!(rows(3.0, 91), 1);
    assert_eq!(rows(4.0, 120), 1, "a reading that came a little early");
    assert_eq!(rows(4.0, 600), 1, "who began to store since then has the other one too");
    assert_eq!(rows(4.0, 720), 1);
    assert_eq!(rows(5.0, 20), 2, "the clock was set back");
    assert_eq!(rows(6.0, 50), 1);
}

#[test]
fn a_hosts_row_leaves_without_those_of_its_cpus() {
    let mut builder = BatchBuilder::new(Table::SystemEvents);
    let host = builder.intern(&Identity::default().with(IdentityColumn::Node, "n1").unwrap());
    let whole = builder.row(SECOND, host);
    builder.set(whole, catalogue::by_column("cpu_pct").unwrap(), Value::Int(50)).unwrap();
    let core = builder.row(SECOND, host);
    builder.set_instance(core, Scope::CpuCore, "3").unwrap();
    builder.set(core, catalogue::by_column("cpu_core_pct").unwrap(), Value::Int(90)).unwrap();
    let sent: Vec<Batch> = Outgoing::default().take(builder.finish(Origin::default(), 1).unwrap()).collect();
    assert_eq!(sent.iter().map(Batch::rows).collect::<Vec<_>>(), [1]);
    assert!(sent.iter().all(|batch| batch.table() == Table::SystemEvents));
}
