//! In the steady state a reading allocates nothing, and the sampler turns readings into rows.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

use gpuvitals_core::Origin;
use gpuvitals_core::batch::Value;
use gpuvitals_rig::waiting;
use gpuvitals_sources::attribution::Owners;
use gpuvitals_sources::dialect::amd_sysfs;
use gpuvitals_sources::probe::{Due, Probe, Reading};
use gpuvitals_sources::sampler::{Liveness, Sampler, SamplerConfig};

use super::machines::{CAPTURED, captured, id, linked, machine, only_probe};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// Counts the allocations of each thread.
struct Counting;

#[expect(
    unsafe_code,
    reason = "the one way to count allocations; all is passed on to the system's allocator"
)]
// SAFETY: every call goes to `System` unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that ends has no counter any more, and nobody asks for it.
        let _counted = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: as it came.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: as it came.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// How many details its last reading has.
fn reads_without_allocating(mut probe: Box<dyn Probe>, name: &str) -> usize {
    let mut reading = Reading::default();
    let mut read = |due| {
        reading.clear();
        probe.read(due, &mut reading).unwrap();
    };
    read(Due::ALL);
    read(Due::ALL);
    let before = ALLOCATIONS.get();
    assert!(before > 0, "opening allocates");
    for _ in 0..100 {
        read(Due::default());
        read(Due { slow: true, rare: false });
    }
    read(Due::ALL);
    assert_eq!(ALLOCATIONS.get() - before, 0, "{name}");
    reading.rows()[0].details().len()
}

#[test]
fn a_reading_allocates_nothing_once_everything_is_open() {
    for name in CAPTURED {
        reads_without_allocating(only_probe(&captured(name)), name);
    }
}

#[test]
fn a_reading_of_linked_gpus_allocates_nothing_either() {
    let dir = linked();
    let probes = amd_sysfs::find(&machine(dir.path())).probes;
    let ends = probes.into_iter().map(|probe| reads_without_allocating(probe, "mi210"));
    assert_eq!(ends.collect::<Vec<_>>(), [2, 2, 0]);
}

#[test]
fn the_sampler_turns_readings_into_rows() {
    let probes = ["rx6900xt", "strixpoint"].map(|name| only_probe(&captured(name))).into();
    let config = SamplerConfig {
        interval: Duration::from_millis(2),
        hand_on: Duration::from_millis(20),
        origin: Origin { node: "node1".into(), started_ns: 1 },
        ..SamplerConfig::default()
    };
    let sampler = Sampler::start(probes, config, Owners::new()).unwrap();
    let mut powers = [None; 2];
    let look = || {
        let batch = sampler.next(Duration::from_secs(30)).expect("a batch");
        let identity = batch.identity(0);
        let at = usize::from(identity.uuid() != Some("946d7e1ef9b172dd"));
        powers[at] = batch.metric(id("power_w")).and_then(|column| column.value(0));
        powers
    };
    let powers = waiting::until("the power of both GPUs", look, |powers| !powers.contains(&None));
    assert_eq!(powers, [Some(Value::Float32(36.0)), Some(Value::Float32(9.087))]);
    assert!(sampler.states().iter().all(|state| state.liveness == Liveness::Up));
    let invalid: u64 = sampler.stats().iter().map(|stats| stats.invalid).sum();
    assert_eq!(invalid, 0);
    assert!(sampler.stop(Duration::from_secs(30)).is_empty());
}
