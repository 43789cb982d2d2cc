//! Crashes: whatever a queue in a directory was doing, after any crash of the machine all that was answered is there.
//!
//! Random programs of publish (stamped, in bursts, awaited or not), receive, acknowledge, refuse, reject,
//! replay, purge, failing writes, orderly restarts and crashes run on a disk that forgets what was not synced, sector by
//! sector. Segments are tiny, so that checkpoints, the removal of segments and the moving of records happen all the time.
//! `GPUVITALS_SEEDS` is how many programs run (default 1,000, and 150 with damage), from `GPUVITALS_SEED` on, which alone
//! runs one. A failure names its seed.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a program that goes astray fails its test"
)]

mod dice;
mod known;
mod life;
mod log;
mod records;
mod script;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

use tokio::runtime::Builder;

fn number_from(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|number| number.parse().ok())
}

/// Runs the program of each seed, on two threads. Answers how many these were, and the sum of what they answered.
fn for_each_seed(count: u64, run: impl Fn(u64) -> usize + Sync) -> (usize, usize) {
    let first = number_from("GPUVITALS_SEED");
    let count = number_from("GPUVITALS_SEEDS").or(first.map(|_| 1)).unwrap_or(count);
    let first = first.unwrap_or(0);
    let next = AtomicU64::new(first);
    let (programs, sum) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + count {
                        return;
                    }
                    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(seed)));
                    let Ok(answer) = outcome else { panic!("failed with GPUVITALS_SEED={seed}") };
                    programs.fetch_add(1, Ordering::Relaxed);
                    sum.fetch_add(answer, Ordering::Relaxed);
                }
            });
        }
    });
    (programs.into_inner(), sum.into_inner())
}

fn on_a_runtime<T>(program: impl Future<Output = T>) -> T {
    Builder::new_current_thread().enable_time().build().unwrap().block_on(program)
}

#[test]
fn what_was_answered_survives_any_crash() {
    let (programs, checkpoints) = for_each_seed(1_000, |seed| on_a_runtime(life::program(seed)).checkpoints);
    assert!(checkpoints > 5 * programs, "{checkpoints} checkpoints in {programs} programs");
}

#[test]
fn what_was_moved_survives_any_crash() {
    let (programs, moved) = for_each_seed(100, |seed| on_a_runtime(life::moving(seed)).moved);
    assert!(moved > programs, "{moved} records moved in {programs} programs");
}

#[test]
fn every_crash_point_of_a_script_leaves_what_was_answered() {
    let calls = script::calls();
    // Appends that meet are written together: on a busy machine these are fewer calls.
    assert!(calls > 30, "{calls} calls to the disk");
    for at in 0..calls {
        for seed in 0..3 {
            on_a_runtime(script::cut_off_at(at, seed));
        }
    }
}

#[test]
fn damage_loses_what_it_hit_and_invents_nothing() {
    let (programs, checkpoints) = for_each_seed(150, |seed| on_a_runtime(life::damaged(seed)).checkpoints);
    assert!(checkpoints >= programs, "{checkpoints} checkpoints in {programs} programs");
}
