//! What can be done to a broker.

use gpuvitals_queue::NackKind;
use proptest::collection::vec;
use proptest::prelude::*;

/// One step. Numbers that choose (`who`, `what`) are taken modulo what there is.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Publish { count: u32, repeat: bool },
    Join { group: usize, credits: u32, batch: Option<u32>, timeout_ms: Option<u64>, newest: bool },
    Leave { who: usize },
    Kill { who: usize },
    Receive { who: usize },
    Ack { who: usize, what: usize },
    AckUnknown { who: usize, what: usize, how: u8 },
    Nack { who: usize, what: usize, kind: NackKind },
    Extend { who: usize, what: usize, by_ms: u64 },
    Replay { limit: usize },
    Purge { limit: usize },
    RemoveGroup { group: usize },
    Pass { ms: u64 },
    Restart { from_facts: bool },
}

pub(crate) fn steps() -> impl Strategy<Value = Vec<Step>> {
    vec(step(), 1..120)
}

fn step() -> impl Strategy<Value = Step> {
    let who = 0_usize..6;
    let what = 0_usize..1_000;
    let kind =
        prop_oneof![4 => Just(NackKind::Retry), 1 => Just(NackKind::Reject), 1 => Just(NackKind::Release)];
    let timeout = proptest::option::weighted(0.3, 1_u64..9_000);
    let batch = proptest::option::weighted(0.3, 1_u32..12);
    prop_oneof![
        6 => (1_u32..8, prop::bool::weighted(0.1)).prop_map(|(count, repeat)| Step::Publish { count, repeat }),
        2 => (0_usize..3, 1_u32..24, batch, timeout, any::<bool>()).prop_map(
            |(group, credits, batch, timeout_ms, newest)| Step::Join { group, credits, batch, timeout_ms, newest }
        ),
        1 => who.clone().prop_map(|who| Step::Leave { who }),
        1 => who.clone().prop_map(|who| Step::Kill { who }),
        8 => who.clone().prop_map(|who| Step::Receive { who }),
        4 => (who.clone(), what.clone()).prop_map(|(who, what)| Step::Ack { who, what }),
        1 => (who.clone(), what.clone(), 0_u8..3).prop_map(|(who, what, how)| Step::AckUnknown { who, what, how }),
        3 => (who.clone(), what.clone(), kind).prop_map(|(who, what, kind)| Step::Nack { who, what, kind }),
        1 => (who, what, 0_u64..20_000).prop_map(|(who, what, by_ms)| Step::Extend { who, what, by_ms }),
        1 => (0_usize..4).prop_map(|limit| Step::Replay { limit }),
        1 => (0_usize..2).prop_map(|limit| Step::Purge { limit }),
        1 => (0_usize..12).prop_map(|group| Step::RemoveGroup { group }),
        1 => any::<bool>().prop_map(|from_facts| Step::Restart { from_facts }),
        4 => prop_oneof![0_u64..50, 0_u64..3_000, 3_000_u64..20_000].prop_map(|ms| Step::Pass { ms }),
    ]
}
