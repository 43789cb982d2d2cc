//! A GPU of the list with its state and its judgement.

use std::sync::Arc;

use gpuvitals_analysis::judgement::{GpuJudge, GpuJudgement};
use gpuvitals_core::history::GpuState;

use crate::condition::StateRules;
use crate::dto::{Gpu, LatestMetrics, State};

/// A GPU, and how it does.
#[derive(Debug, Clone, Copy)]
pub(crate) struct JudgedGpu<'a> {
    pub(crate) gpu: &'a Arc<GpuState>,
    pub(crate) state: State,
    pub(crate) judgement: GpuJudgement,
    /// That of the finding that the judgement comes from.
    sentence: Option<&'a str>,
}

impl<'a> JudgedGpu<'a> {
    /// By the rules of states and what the findings say.
    pub(crate) fn of(gpu: &'a Arc<GpuState>, rules: StateRules, judge: &'a GpuJudge) -> Self {
        let state = rules.state(gpu);
        let (judgement, sentence) = judge.judge(gpu, state.into());
        Self { gpu, state, judgement, sentence }
    }

    /// Of which nobody wants to know how it does.
    pub(super) fn unjudged(gpu: &'a Arc<GpuState>) -> Self {
        Self { gpu, state: State::Unknown, judgement: GpuJudgement::Unknown, sentence: None }
    }

    /// As the API shows it.
    pub(super) fn show(self, rules: StateRules, metrics: Option<LatestMetrics<'a>>) -> Gpu<'a> {
        let shown = rules.show(self.gpu, self.state, metrics);
        // The reason of the state tells every condition, where the finding is one of them.
        let reason = match (&shown.state_reason, self.sentence) {
            (Some(reason), _) if self.judgement == GpuJudgement::Lost => Some(reason.clone()),
            (Some(reason), Some(sentence)) if reason.contains(sentence) => Some(reason.clone()),
            (_, Some(sentence)) => Some(sentence.to_owned()),
            (reason, None) => reason.clone(),
        };
        Gpu { judgement: self.judgement.name(), judgement_reason: reason, ..shown }
    }
}
