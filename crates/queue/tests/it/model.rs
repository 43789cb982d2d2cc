//! The broker against a model that knows one frame at a time.
//!
//! Random programs of publish, receive, acknowledge (in time, late, repeated, invented),
//! refuse, extend, join, leave, die and time. The model keeps a state for every frame of every group; after each
//! step the broker's answer and statistics must be the model's. At the end everything is acknowledged, and
//! each frame was settled exactly once in each group.
//!
//! A broker beside a log is also compared, after each step, with what follows from the facts that it noted; now and
//! then it is restarted from these, or from its own image. `PROPTEST_CASES` makes it longer.

mod frames;
mod memory;
mod program;
mod run;

use gpuvitals_queue::WhenFull;
use program::{Step, steps};
use proptest::prelude::*;
use run::Run;

fn check(program: &[Step], when_full: WhenFull, is_kept: bool, seed: u64) {
    let mut run = Run::new(when_full, is_kept, seed);
    for step in program {
        run.step(step);
    }
    run.finish();
}

proptest! {
    #[test]
    fn the_broker_does_what_the_model_does(program in steps(), seed: u64) {
        check(&program, WhenFull::Refuse, false, seed);
    }

    #[test]
    fn the_broker_does_what_the_model_does_where_the_oldest_make_room(program in steps(), seed: u64) {
        check(&program, WhenFull::DropOldest, false, seed);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases / 4, ..ProptestConfig::default() })]

    #[test]
    fn what_is_noted_is_enough_for_a_restart(program in steps(), drops: bool, seed: u64) {
        check(&program, if drops { WhenFull::DropOldest } else { WhenFull::Refuse }, true, seed);
    }
}
