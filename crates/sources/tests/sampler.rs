//! The sampler keeps its pace, and a sick device affects no other.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gpuvitals_core::batch::Value;
use gpuvitals_core::clock::Moment;
use gpuvitals_core::{AbsenceReason, Batch, Identity, IdentityColumn, MetricId};
use gpuvitals_rig::waiting;
use gpuvitals_sources::attribution::{GpuName, Owner, Owners};
use gpuvitals_sources::probe::{Driver, Due, Probe, ProbeError, Reading};
use gpuvitals_sources::sampler::{Liveness, Sampler, SamplerConfig, SamplerError};

const POWER: MetricId = MetricId::of("power_w");
const CLOCK: MetricId = MetricId::of("gpu_clock_mhz");
const FAN: MetricId = MetricId::of("fan_speed_pct");
const PATIENCE: Duration = Duration::from_secs(20);

type ScriptedAnswer =
    Box<dyn FnMut(Due, &mut gpuvitals_sources::probe::Row) -> Result<(), ProbeError> + Send>;

/// A device whose readings the test decides.
struct Scripted {
    identity: Arc<Identity>,
    deadline: Duration,
    answer: ScriptedAnswer,
}

impl Probe for Scripted {
    fn driver(&self) -> Driver {
        Driver::AmdSysfs
    }
    fn targets(&self) -> Vec<Arc<Identity>> {
        vec![Arc::clone(&self.identity)]
    }
    fn deadline(&self) -> Duration {
        self.deadline
    }
    fn fill(&mut self, due: Due, reading: &mut Reading) -> Result<(), ProbeError> {
        (self.answer)(due, reading.row(&self.identity))
    }
}

fn device(
    uuid: &str,
    answer: impl FnMut(Due, &mut gpuvitals_sources::probe::Row) -> Result<(), ProbeError> + Send + 'static,
) -> Box<dyn Probe> {
    let identity = Identity::default().with(IdentityColumn::Uuid, uuid).unwrap();
    let deadline = Duration::from_millis(20);
    Box::new(Scripted { identity: Arc::new(identity), deadline, answer: Box::new(answer) })
}

fn every(interval: Duration) -> SamplerConfig {
    SamplerConfig { interval, hand_on: Duration::ZERO, ..SamplerConfig::default() }
}

fn start(probes: Vec<Box<dyn Probe>>, interval: Duration) -> Sampler {
    Sampler::start(probes, every(interval), Owners::new()).unwrap()
}

fn uuid_of(batch: &Batch) -> String {
    batch.identity(0).uuid().unwrap().to_owned()
}

/// When the patience of a test with anything ends, monotonic.
fn deadline_ns() -> i64 {
    Moment::now().mono_ns + i64::try_from(waiting::PATIENCE.as_nanos()).unwrap()
}

/// Batches until the condition is true for those received so far.
fn until(sampler: &Sampler, what: &str, mut enough: impl FnMut(&Batch) -> bool) -> Vec<Batch> {
    let until_ns = deadline_ns();
    let mut batches = Vec::new();
    loop {
        assert!(Moment::now().mono_ns < until_ns, "{what} never came; {} batches did", batches.len());
        let batch = sampler.next(PATIENCE).unwrap_or_else(|| panic!("{what} never came; no batch did"));
        let done = enough(&batch);
        batches.push(batch);
        if done {
            return batches;
        }
    }
}

fn liveness(sampler: &Sampler, uuid: &str) -> Liveness {
    let state = sampler.states().into_iter().find(|state| state.identity.uuid() == Some(uuid));
    state.unwrap().liveness
}

#[test]
fn rows_lie_on_the_grid_and_carry_each_tier_in_its_time() {
    let sampler = start(
        vec![device("GPU-1", |due, row| {
            row.float(POWER, 100.0);
            if due.slow {
                row.float(FAN, 30.0);
            }
            Ok(())
        })],
        Duration::from_millis(10),
    );
    let mut seen = 0;
    let batches = until(&sampler, "20 rows", |batch| {
        seen += batch.rows();
        seen >= 20
    });
    let times: Vec<i64> = batches.iter().flat_map(|batch| batch.timestamps().to_vec()).collect();
    assert!(times.iter().all(|time| time % 1_000_000 == 0), "whole milliseconds: {times:?}");
    assert!(times.windows(2).all(|pair| pair[1] > pair[0]));
    let fans = batches.iter().filter(|batch| batch.metric(FAN).is_some()).count();
    assert_eq!(fans, 1, "the slow tier is read at the first tick and then a second later");
    assert_eq!(batches[0].metric(POWER).unwrap().value(0), Some(Value::Float32(100.0)));
    let stats = &sampler.stats()[0];
    assert!(stats.ticks >= 20 && stats.lateness.quantile(0.5).is_some());
}

/// A device that answers only when the test lets it.
fn gated(uuid: &str) -> (Box<dyn Probe>, SyncSender<()>) {
    let (open, gate): (SyncSender<()>, Receiver<()>) = sync_channel(1024);
    let probe = device(uuid, move |_, row| {
        gate.recv().map_err(|_| ProbeError::Failed("the test is over".to_owned()))?;
        row.float(POWER, 1.0);
        Ok(())
    });
    (probe, open)
}

#[test]
fn a_device_that_hangs_holds_up_nobody_and_comes_back() {
    let (sick, open) = gated("GPU-sick");
    let well = device("GPU-well", |_, row| {
        row.float(POWER, 2.0);
        Ok(())
    });
    let sampler = start(vec![sick, well], Duration::from_millis(5));
    let mut well_rows = 0;
    until(&sampler, "50 rows of the well device", |batch| {
        assert_eq!(uuid_of(batch), "GPU-well");
        well_rows += batch.rows();
        well_rows >= 50
    });
    assert!(matches!(liveness(&sampler, "GPU-sick"), Liveness::Stuck { for_ns } if for_ns > 20_000_000));
    assert_eq!(liveness(&sampler, "GPU-well"), Liveness::Up);
    let since = |uuid: &str| {
        let state = sampler.states().into_iter().find(|state| state.identity.uuid() == Some(uuid));
        state.unwrap().since_ns
    };
    let hung_since = since("GPU-sick");
    let missed = |uuid: &str| {
        let stats = sampler.stats().into_iter().find(|stats| &*stats.targets[0] == uuid);
        let stats = stats.unwrap();
        (stats.ticks, stats.ticks_missed)
    };
    assert_eq!(missed("GPU-sick").0, 0, "the reading is still out");

    (0..3).for_each(|_| open.send(()).unwrap());
    let mut sick_rows = 0;
    until(&sampler, "3 batches of the device that hung", |batch| {
        sick_rows += usize::from(uuid_of(batch) == "GPU-sick");
        sick_rows >= 3
    });
    assert!(since("GPU-sick") > hung_since, "it is well since it came back, not since it hung");
    assert!(missed("GPU-sick").1 > 10, "what was missed while it hung is counted, and not made up for");
    // The fourth reading is out again: the thread cannot be ended, only left, and is named.
    until(&sampler, "its second hang", |_| matches!(liveness(&sampler, "GPU-sick"), Liveness::Stuck { .. }));
    let out = sampler.stop(Duration::from_millis(100));
    assert_eq!(out.len(), 1);
    assert_eq!(out[0].identity.uuid(), Some("GPU-sick"));
}

#[test]
fn rows_say_how_long_their_reading_took_and_why_it_gave_nothing_if_they_are_to() {
    for reads in [false, true] {
        let mut readings = 0;
        let answer: ScriptedAnswer = Box::new(move |_, row| {
            readings += 1;
            let begin_ns = Moment::now().mono_ns;
            while readings == 2 && Moment::now().mono_ns < begin_ns + 3_000_000 {
                std::thread::yield_now();
            }
            if readings > 3 {
                return Err(ProbeError::Gone("fell off the bus".to_owned()));
            }
            row.float(POWER, 1.0);
            Ok(())
        });
        let identity = Arc::new(Identity::default().with(IdentityColumn::Uuid, "GPU-1").unwrap());
        // However busy the machine is, no reading is taken for one that hangs.
        let device: Box<dyn Probe> = Box::new(Scripted { identity, deadline: PATIENCE, answer });
        let config = SamplerConfig { reads, ..every(Duration::from_millis(5)) };
        let sampler = Sampler::start(vec![device], config, Owners::new()).unwrap();
        let batches = until(&sampler, "a row without a value", |batch| batch.metric(POWER).is_none());
        let took: Vec<f64> = batches
            .iter()
            .filter_map(|batch| Some((batch, batch.read_us()?)))
            .flat_map(|(batch, took)| {
                (0..batch.rows()).filter_map(move |row| took.value(row)).map(Value::as_f64)
            })
            .collect();
        let errors: Vec<_> = batches
            .iter()
            .flat_map(|batch| (0..batch.rows()).filter_map(move |row| batch.read_error(row)))
            .collect();
        if reads {
            assert_eq!((took.len(), errors), (4, vec!["gone"]));
            // Right to a factor of 1.5.
            assert!(took[1] >= 2_000.0, "{took:?}");
        } else {
            assert_eq!((took.len(), errors.len()), (0, 0));
        }
    }
}

#[test]
fn a_device_that_is_gone_is_asked_ever_more_slowly_and_says_why() {
    let asked = Arc::new(Mutex::new(0));
    let count = Arc::clone(&asked);
    let gone = device("GPU-gone", move |_, _| {
        *count.lock().unwrap() += 1;
        Err(ProbeError::Gone("fell off the bus".to_owned()))
    });
    let asleep = device("GPU-asleep", |_, row| {
        row.down(AbsenceReason::Suspended, "runtime suspended");
        Ok(())
    });
    let well = device("GPU-well", |_, row| {
        row.float(POWER, 2.0);
        Ok(())
    });
    let sampler = start(vec![gone, asleep, well], Duration::from_millis(2));
    let mut rows = 0;
    until(&sampler, "100 batches of the well device", |batch| {
        assert_eq!(uuid_of(batch), "GPU-well", "nothing is made up for the others");
        rows += 1;
        rows >= 100
    });
    assert!(*asked.lock().unwrap() <= 2, "not at the sampling rate");
    let detail = "gone: fell off the bus".to_owned();
    assert_eq!(liveness(&sampler, "GPU-gone"), Liveness::Down { reason: AbsenceReason::Gone, detail });
    assert!(matches!(
        liveness(&sampler, "GPU-asleep"),
        Liveness::Down { reason: AbsenceReason::Suspended, .. }
    ));
}

#[test]
fn a_repeated_snapshot_is_no_new_row_once_snapshots_are_known_to_move() {
    let mut tick = 0_u64;
    let sampler = start(
        vec![device("GPU-1", move |due, row| {
            tick += 1;
            // The driver takes a snapshot at every fifth tick.
            row.snapshot(tick / 5);
            row.int(MetricId::of("gpu_clock_mhz"), i64::try_from(tick / 5).unwrap());
            if due.slow {
                row.float(FAN, 30.0);
            }
            Ok(())
        })],
        Duration::from_millis(2),
    );
    let mut rows = 0;
    let batches = until(&sampler, "30 batches", |_| {
        rows += 1;
        rows >= 30
    });
    let clocks: Vec<f64> = batches[10..]
        .iter()
        .filter(|batch| batch.metric(FAN).is_none())
        .map(|batch| batch.metric(MetricId::of("gpu_clock_mhz")).unwrap().value(0).unwrap().as_f64())
        .collect();
    assert!(clocks.windows(2).all(|pair| pair[1] > pair[0]), "each snapshot once: {clocks:?}");
    let stats = &sampler.stats()[0];
    assert!(stats.repeats >= 3 * (rows - 12), "{stats:?}");
    let update = sampler.states()[0].update_interval.unwrap();
    assert!(update >= Duration::from_millis(6), "the driver's own rate is seen: {update:?}");
}

/// The times of the rows with power and of those without any value, as the test's device `GPU-1` gave them.
fn told(batches: &[Batch]) -> (Vec<i64>, Vec<i64>) {
    let rows = batches.iter().flat_map(|batch| {
        let power = batch.metric(POWER);
        (0..batch.rows()).map(move |row| {
            (batch.timestamps().get(row).copied().unwrap(), power.and_then(|power| power.value(row)))
        })
    });
    let (known, blank): (Vec<_>, Vec<_>) = rows.partition(|(_, power)| power.is_some());
    let times = |rows: Vec<(i64, _)>| rows.into_iter().map(|(time, _)| time).collect();
    (times(known), times(blank))
}

#[test]
fn a_snapshot_that_stands_still_is_repeated_and_then_stale_until_it_moves_again() {
    let script = Arc::new(Mutex::new((0_u64, true)));
    let played = Arc::clone(&script);
    let sampler = start(
        vec![device("GPU-1", move |_, row| {
            let mut script = played.lock().unwrap();
            script.0 += u64::from(script.1);
            row.snapshot(script.0);
            row.int(CLOCK, i64::try_from(script.0).unwrap());
            row.float(POWER, 200.0);
            Ok(())
        })],
        Duration::from_millis(5),
    );
    let take = |sampler: &Sampler, rows: usize| {
        let mut left = rows;
        until(sampler, "a batch for each row", |_| {
            left -= 1;
            left == 0
        })
    };
    let mut batches = take(&sampler, 20);
    let still = {
        let mut script = script.lock().unwrap();
        script.1 = false;
        Value::Int(i64::try_from(script.0).unwrap())
    };
    let is_blank = |batch: &Batch| !told(std::slice::from_ref(batch)).1.is_empty();
    batches.extend(until(&sampler, "a row without values", is_blank));
    let (_, blank) = told(&batches);
    let clock = |batch: &&Batch| batch.metric(CLOCK).is_some_and(|clock| clock.value(0) == Some(still));
    let repeated: Vec<i64> = batches.iter().filter(clock).map(|batch| batch.timestamps()[0]).collect();
    assert!(repeated.len() <= 4, "after the first what the slow tier gives of it: {repeated:?}");
    let for_ns = blank[0] - repeated[0];
    assert!((2_000_000_000..3_000_000_000).contains(&for_ns), "{for_ns}");
    let absence = &batches.last().unwrap().absences()[0];
    assert_eq!((absence.metric, absence.reason), (POWER, AbsenceReason::Invalid));
    match liveness(&sampler, "GPU-1") {
        Liveness::Down { reason: AbsenceReason::Invalid, detail } => {
            assert!(detail.contains("does not change"), "{detail}");
        }
        other => panic!("{other:?}"),
    }
    assert!(sampler.next(Duration::from_millis(1_500)).is_none(), "also the slow tier gives nothing of it");
    script.lock().unwrap().1 = true;
    let (known, blank) = told(&take(&sampler, 20));
    assert_eq!((known.len(), blank.len()), (20, 0));
    assert_eq!(liveness(&sampler, "GPU-1"), Liveness::Up);
}

#[test]
fn a_device_that_stops_giving_rows_says_so_once_in_a_row_without_values() {
    let mut tick = 0;
    let sampler = start(
        vec![device("GPU-1", move |_, row| {
            tick += 1;
            match tick {
                20..40 => return Err(ProbeError::Failed("EIO".to_owned())),
                60..80 => row.down(AbsenceReason::Suspended, "runtime suspended"),
                _ => row.float(POWER, 200.0),
            }
            Ok(())
        })],
        Duration::from_millis(5),
    );
    let mut rows = 0;
    let batches = until(&sampler, "70 rows", |batch| {
        rows += batch.rows();
        rows >= 70
    });
    let (known, blank) = told(&batches);
    assert_eq!(blank.len(), 2, "{blank:?}");
    let reasons: Vec<_> = batches.iter().flat_map(Batch::absences).map(|a| (a.metric, a.reason)).collect();
    assert_eq!(reasons, [(POWER, AbsenceReason::Invalid), (POWER, AbsenceReason::Suspended)]);
    for blank in blank {
        let before = known.iter().filter(|time| **time < blank).max().unwrap();
        let after = known.iter().filter(|time| **time > blank).min().unwrap();
        assert!(after - blank >= 90_000_000 && blank - before < after - blank, "{before} {blank} {after}");
    }
}

#[test]
fn a_device_whose_every_reading_is_late_is_slow_and_not_lost() {
    let (_open, never) = sync_channel::<()>(0);
    let slow = device("GPU-1", move |_, row| {
        let _late = never.recv_timeout(Duration::from_millis(40));
        row.float(POWER, 200.0);
        Ok(())
    });
    let sampler = start(vec![slow], Duration::from_millis(5));
    let mut rows = 0;
    let batches = until(&sampler, "12 rows", |batch| {
        rows += batch.rows();
        rows >= 12
    });
    let (known, blank) = told(&batches);
    assert!(blank.len() * 3 < known.len(), "{} rows, {} without a value", known.len(), blank.len());
}

#[test]
fn who_asks_gets_what_the_workers_have_not_handed_on_yet_without_waiting_for_a_device() {
    let (sick, open) = gated("GPU-sick");
    let well = device("GPU-well", |_, row| {
        row.float(POWER, 2.0);
        Ok(())
    });
    let config = SamplerConfig { hand_on: Duration::from_hours(1), ..every(Duration::from_millis(5)) };
    let sampler = Sampler::start(vec![sick, well], config, Owners::new()).unwrap();
    open.send(()).unwrap();
    let mut batches = Vec::new();
    let last_row = |uuid: &str| {
        let mut states = sampler.states().into_iter();
        states.find(|state| state.identity.uuid() == Some(uuid)).unwrap().last_row_ns
    };
    let until_ns = deadline_ns();
    // Its second reading is out and does not come back.
    while last_row("GPU-sick").is_none() || !matches!(liveness(&sampler, "GPU-sick"), Liveness::Stuck { .. })
    {
        assert!(Moment::now().mono_ns < until_ns, "the hang of the sick device never showed");
        let known = last_row("GPU-well");
        sampler.take_all(|batch| batches.push(batch));
        let of = |batch: &&Batch| uuid_of(batch) == "GPU-well";
        let taken = batches.iter().filter(of).flat_map(|batch| batch.timestamps().to_vec()).max();
        assert!(taken >= known, "what a state tells of was taken: {taken:?} {known:?}");
    }
    let mut times: HashMap<String, Vec<i64>> = HashMap::new();
    for batch in &batches {
        times.entry(uuid_of(batch)).or_default().extend(batch.timestamps());
    }
    assert_eq!(times["GPU-sick"].len(), 1);
    assert!(times["GPU-well"].windows(2).all(|pair| pair[1] > pair[0]), "each once, in order");
    assert_eq!(sampler.rows_dropped(), 0);
}

#[test]
fn a_captured_tree_that_never_moves_still_gives_rows() {
    let sampler = start(
        vec![device("GPU-1", |_, row| {
            row.snapshot(7);
            row.float(POWER, 1.0);
            Ok(())
        })],
        Duration::from_millis(2),
    );
    let mut rows = 0;
    until(&sampler, "20 batches", |_| {
        rows += 1;
        rows >= 20
    });
    assert_eq!(sampler.stats()[0].repeats, 0);
    let failures = &sampler.stats()[0].failures;
    assert!(failures.len() == AbsenceReason::ALL.len() && failures.iter().all(|(_, count)| *count == 0));
}

#[test]
fn who_takes_nothing_gets_the_newest_rows_and_the_count_of_the_others() {
    let sampler = start(
        vec![device("GPU-1", |_, row| {
            row.float(POWER, 1.0);
            Ok(())
        })],
        Duration::from_millis(1),
    );
    // A batch a millisecond fills the hand-off (64 batches); sampling continues meanwhile.
    waiting::until("rows that go", || sampler.rows_dropped(), |dropped| *dropped >= 20);
    let first = sampler.next(PATIENCE).unwrap();
    assert!(first.sequence() > 20, "the oldest went: {}", first.sequence());
    assert!(sampler.stop(PATIENCE).is_empty(), "the worker ends");
    let mut left = 1;
    while sampler.next(PATIENCE).is_some() {
        left += 1;
    }
    let rows = sampler.stats();
    assert!(rows.is_empty(), "stopped workers are gone");
    assert!(left > 50);
}

#[test]
fn what_cannot_be_true_is_left_out_and_counted() {
    let sampler = start(
        vec![device("GPU-1", |_, row| {
            row.float(POWER, f32::NAN);
            row.absent(FAN, AbsenceReason::NotSupported);
            Ok(())
        })],
        Duration::from_millis(5),
    );
    let batch = sampler.next(PATIENCE).unwrap();
    assert!(batch.metric(POWER).is_none());
    let reasons: HashMap<_, _> = batch.absences().iter().map(|a| (a.metric, (a.reason, a.count))).collect();
    assert_eq!(reasons[&POWER], (AbsenceReason::Invalid, 1));
    assert_eq!(reasons[&FAN], (AbsenceReason::NotSupported, 1));
    assert!(sampler.stats()[0].invalid >= 1);
}

#[test]
fn a_new_owner_is_on_the_next_rows() {
    let owners = Owners::new();
    let probe = device("GPU-1", |_, row| {
        row.float(POWER, 1.0);
        Ok(())
    });
    let sampler = Sampler::start(vec![probe], every(Duration::from_millis(2)), Arc::clone(&owners)).unwrap();
    let pod = |batch: &Batch| batch.identity(0).get(IdentityColumn::Pod).map(str::to_owned);
    assert_eq!(pod(&sampler.next(PATIENCE).unwrap()), None);
    let owner = Owner { pod: Some("train-0".into()), ..Owner::default() };
    owners.replace(vec![(GpuName::Uuid("GPU-1".into()), owner)]);
    until(&sampler, "the new owner", |batch| pod(batch).as_deref() == Some("train-0"));
    assert_eq!(sampler.states().len(), 1, "one device, whoever holds it");
    assert_eq!(sampler.states()[0].identity.get(IdentityColumn::Pod), Some("train-0"));
    owners.replace(Vec::new());
    until(&sampler, "the end of the owner", |batch| pod(batch).is_none());
}

#[test]
fn the_owner_of_a_device_that_hangs_is_told_as_it_is_now() {
    let owners = Owners::new();
    let (sick, open) = gated("GPU-sick");
    let sampler = Sampler::start(vec![sick], every(Duration::from_millis(5)), Arc::clone(&owners)).unwrap();
    let pod = || sampler.states()[0].identity.get(IdentityColumn::Pod).map(str::to_owned);
    let owner = Owner { pod: Some("train-0".into()), ..Owner::default() };
    owners.replace(vec![(GpuName::Uuid("GPU-sick".into()), owner)]);
    assert_eq!(pod().as_deref(), Some("train-0"));
    owners.replace(Vec::new());
    assert_eq!(pod(), None);
    drop(open);
}

#[test]
fn a_rate_that_a_driver_cannot_stand_is_refused_with_the_reason() {
    struct Tool(Arc<Identity>);
    impl Probe for Tool {
        fn driver(&self) -> Driver {
            Driver::NvidiaSmi
        }
        fn targets(&self) -> Vec<Arc<Identity>> {
            vec![Arc::clone(&self.0)]
        }
        fn interval_min(&self) -> Duration {
            Duration::from_secs(1)
        }
        fn fill(&mut self, _: Due, _: &mut Reading) -> Result<(), ProbeError> {
            Ok(())
        }
    }
    let tool = || -> Vec<Box<dyn Probe>> {
        let identity = Identity::default().with(IdentityColumn::Uuid, "GPU-1").unwrap();
        vec![Box::new(Tool(Arc::new(identity)))]
    };
    let fast = every(Duration::from_millis(10));
    let refused = Sampler::start(tool(), fast.clone(), Owners::new()).unwrap_err();
    assert!(matches!(refused, SamplerError::TooFast { .. }));
    assert_eq!(refused.to_string(), "nvidia-smi cannot be read every 10ms: once in 1s at most");
    let sampler = Sampler::start(tool(), SamplerConfig { exact: false, ..fast }, Owners::new()).unwrap();
    assert_eq!(sampler.stats()[0].interval, Duration::from_secs(1), "nobody asked for it by name");
}

#[test]
fn a_probe_that_panics_takes_nobody_with_it() {
    let broken = device("GPU-broken", |_, _| panic!("a bug of this test's probe"));
    let well = device("GPU-well", |_, row| {
        row.float(POWER, 2.0);
        Ok(())
    });
    let sampler = start(vec![broken, well], Duration::from_millis(2));
    until(&sampler, "the panic", |_| matches!(liveness(&sampler, "GPU-broken"), Liveness::Down { .. }));
    assert!(sampler.next(PATIENCE).is_some());
    assert!(sampler.stop(PATIENCE).is_empty());
}
