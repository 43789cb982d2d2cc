//! The broker against a model that knows one row at a time.
//!
//! Random programs of publish, receive, acknowledge (whole, rows, cumulative, late, repeated, invented),
//! refuse, extend, join, leave, die and time. The model keeps a state for every row of every group; after each
//! step the broker's answer and statistics must be the model's. At the end everything is acknowledged, and
//! each row was settled exactly once in each group. `PROPTEST_CASES` makes it longer.

mod model {
    pub(crate) mod program;
    pub(crate) mod rows;
    pub(crate) mod run;
}

use gpuvitals_queue::WhenFull;
use model::program::{Step, steps};
use proptest::prelude::*;

fn check(program: &[Step], when_full: WhenFull, seed: u64) {
    let mut run = model::run::Run::new(when_full, seed);
    for step in program {
        run.step(step);
    }
    run.finish();
}

proptest! {
    #[test]
    fn the_broker_does_what_the_model_does(program in steps(), seed: u64) {
        check(&program, WhenFull::Refuse, seed);
    }

    #[test]
    fn the_broker_does_what_the_model_does_where_the_oldest_make_room(program in steps(), seed: u64) {
        check(&program, WhenFull::DropOldest, seed);
    }
}
