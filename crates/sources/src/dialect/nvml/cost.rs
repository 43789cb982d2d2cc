//! Cost of each call on a GPU: the reason for its tier.

use std::time::Duration;

use gpuvitals_core::IdentityColumn;
use gpuvitals_core::catalogue::Tier;
use gpuvitals_core::clock::Moment;

use super::KnownGpu;
use super::code::Answer;
use super::ecc::Blocks;
use super::fields::FieldGroup;
use super::raw::Contexts;
use super::{several, singles};
use crate::finding::{Finding, Verdict};

/// How often each call is made.
const TIMES: usize = 20;

/// Times the calls on a GPU, one after the other: a finding for each, dearest first.
pub(super) fn measure(known: &KnownGpu) -> Vec<Finding> {
    let (raw, gpu) = (known.raw, known.gpu);
    let driver = known.identity.get(IdentityColumn::Driver).unwrap_or_default();
    let mut costs = Vec::new();
    for tier in [Tier::Fast, Tier::Slow, Tier::Rare] {
        let mut group = FieldGroup::new(tier, driver);
        costs.push(cost(format!("{} field values ({tier})", group.len()), || group.ask(raw, gpu)));
    }
    let mut list = Vec::new();
    let mut contexts = |kind| raw.contexts(gpu, kind, &mut list);
    costs.push(cost("compute contexts".to_owned(), || contexts(Contexts::Compute)));
    costs.push(cost("graphics contexts".to_owned(), || contexts(Contexts::Graphics)));
    costs.push(cost("MPS contexts".to_owned(), || contexts(Contexts::Mps)));
    costs.push(cost("utilization".to_owned(), || raw.utilization_pct(gpu).map(drop)));
    costs.push(cost("memory".to_owned(), || raw.memory(gpu).map(drop)));
    costs.push(cost("throttle reasons".to_owned(), || raw.clock_reasons(gpu).map(drop)));
    costs.push(cost("BAR1".to_owned(), || raw.bar1(gpu).map(drop)));
    if let Ok(mut sample) = raw.gpm_sample() {
        costs.push(cost("GPM sample".to_owned(), || raw.gpm_take(gpu, None, &mut sample)));
    }
    for (column, get) in singles::all() {
        costs.push(cost(column.to_owned(), || get(raw, gpu).map(drop)));
    }
    for (about, ask) in several::ALL {
        costs.push(cost(about.to_owned(), || ask(raw, gpu)));
    }
    let blocks = Blocks::new();
    costs.push(cost("ECC errors of all memories".to_owned(), || blocks.ask_all(raw, gpu)));
    costs.sort_by_key(|cost| std::cmp::Reverse(cost.median));
    let subject = format!("nvml {}", known.identity.uuid().unwrap_or_default());
    costs.iter().map(|cost| Finding::new(Verdict::Note, &subject, cost.text())).collect()
}

struct Cost {
    call: String,
    median: Duration,
    longest: Duration,
    /// The answer of the last call.
    answer: Answer<()>,
}

fn cost(call: String, mut ask: impl FnMut() -> Answer<()>) -> Cost {
    let mut answer = Ok(());
    let mut took = [Duration::ZERO; TIMES];
    for slot in &mut took {
        let begin_ns = Moment::now().mono_ns;
        answer = ask();
        let took_ns = Moment::now().mono_ns.saturating_sub(begin_ns);
        *slot = Duration::from_nanos(u64::try_from(took_ns).unwrap_or(0));
    }
    took.sort_unstable();
    let at = |index: usize| took.get(index).copied().unwrap_or_default();
    Cost { call, median: at(TIMES / 2), longest: at(TIMES - 1), answer }
}

impl Cost {
    fn text(&self) -> String {
        let Self { call, median, longest, .. } = self;
        let answer = self.answer.map_or_else(|code| format!(": {code}"), |()| String::new());
        format!("{call}: {median:.1?}, at most {longest:.1?}{answer}")
    }
}
