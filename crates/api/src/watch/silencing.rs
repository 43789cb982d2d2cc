//! Silences: somebody asks for one or ends it here, or has done so in another gateway.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use gpuvitals_analysis::findings::{SILENCE_MAX_NS, Silence, Silenced, Tracker, holder_of, host_of};
use gpuvitals_core::history::{
    Fleet, GpuState, History, Matcher, Part, QueryError, RowsQuery, Selector, TextTest,
};
use gpuvitals_core::identity::OPERATOR;
use gpuvitals_core::{IdentityColumn, Table};
use gpuvitals_listener::echo;

use super::{EVENTS_LATE_NS, EVENTS_MAX, FleetWatch, Judgement, Work, named, whole_events};
use crate::error::ApiError;

impl FleetWatch {
    /// Takes what was said in other gateways, and here before the last start.
    pub(super) async fn recall_silences(&self, history: &dyn History, now_ns: i64) -> Result<(), QueryError> {
        let read_ns = self.work(|work| work.read_ns);
        let start_ns = read_ns.saturating_sub(EVENTS_LATE_NS).max(now_ns.saturating_sub(SILENCE_MAX_NS));
        let said = Matcher { column: IdentityColumn::Source, test: TextTest::Is(vec![Arc::from(OPERATOR)]) };
        let query = RowsQuery {
            selector: Selector::new(vec![said]).map_err(QueryError::failed)?,
            start_ns: Some(start_ns),
            newest_first: true,
            ..RowsQuery::of(Table::GpuHealthEvents, EVENTS_MAX)
        };
        let Some(events) = whole_events(history, query).await else { return Ok(()) };
        let recall = move |work: &mut Work| {
            work.tracker.recall_silences(&events);
            work.read_ns = now_ns;
        };
        self.blocking(recall).await
    }

    /// Silences what people call so, and returns the silence.
    ///
    /// # Errors
    /// When it is not known, or the history gives no answer.
    pub(crate) async fn silence(
        &self,
        history: &dyn History,
        asked: &Silenced,
        (at_ns, until_ns): (i64, Option<i64>),
        note: Arc<str>,
    ) -> Result<Silence, ApiError> {
        self.say(history, |tracker, part| {
            let (silenced, gpu) = resolved(asked, tracker, part)?;
            let silence = Silence { silenced, at_ns, until_ns, note, gpu };
            tracker.silence(silence.clone());
            Ok(silence)
        })
        .await
    }

    /// Ends the silence that people call so, and returns it.
    ///
    /// # Errors
    /// When there is none, or the history gives no answer.
    pub(crate) async fn release(
        &self,
        history: &dyn History,
        asked: &Silenced,
        now_ns: i64,
    ) -> Result<Silence, ApiError> {
        let none = || ApiError::UnknownSilence(echo(asked.id()));
        self.say(history, |tracker, _| tracker.release(asked, now_ns).ok_or_else(none)).await
    }

    /// Changes what is silenced; at once in the last judgement, too.
    async fn say(
        &self,
        history: &dyn History,
        change: impl FnOnce(&mut Tracker, &Part<Arc<Fleet>>) -> Result<Silence, ApiError>,
    ) -> Result<Silence, ApiError> {
        let _turn = self.turn.lock().await;
        let part = history.fleet().await?;
        let silence = self.work(|work| change(&mut work.tracker, &part))?;
        let changes = self.work(|work| work.tracker.changes_but_openings());
        self.tell(&part.answer, &changes);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(judgement) = last.take() {
            let findings = self.work(|work| named(&part.answer, work.tracker.open()));
            let silences = self.work(|work| work.tracker.silences().into_iter().cloned().collect());
            *last = Some(Arc::new(Judgement { findings, silences, ..(*judgement).clone() }));
        }
        self.said.fetch_add(1, Ordering::Relaxed);
        Ok(silence)
    }
}

/// What is meant, and the GPU that its rows belong to: that of a host or job which reported last.
fn resolved(
    asked: &Silenced,
    tracker: &Tracker,
    Part { answer: fleet, missing }: &Part<Arc<Fleet>>,
) -> Result<(Silenced, Option<Arc<str>>), ApiError> {
    if let Silenced::Finding(id) = asked {
        let finding = tracker.open_one(id).ok_or_else(|| ApiError::unknown_finding(id))?;
        return Ok((asked.clone(), finding.reach.gpus.first().cloned()));
    }
    let named = |gpu: &GpuState| match asked {
        Silenced::Host(_) => host_of(gpu).map(Silenced::Host),
        _ => holder_of(gpu).map(Silenced::Job),
    };
    let mut found: BTreeMap<Silenced, &Arc<GpuState>> = BTreeMap::new();
    for gpu in &fleet.gpus {
        if let Some(silenced) = named(gpu).filter(|silenced| silenced.is_called(asked)) {
            let newest = found.entry(silenced).or_insert(gpu);
            if gpu.last_seen_ns > newest.last_seen_ns {
                *newest = gpu;
            }
        }
    }
    if let Some(gpu) = found.get(asked) {
        return Ok((asked.clone(), Some(Arc::clone(&gpu.key))));
    }
    let several = found.len() > 1;
    match found.pop_first() {
        Some((first, _)) if several => Err(ApiError::Body(format!(
            "{}: several {}s are called {:?}; give the cluster, too: {:?}",
            asked.type_name(),
            asked.type_name(),
            echo(asked.id()),
            first.id()
        ))),
        Some((silenced, gpu)) => Ok((silenced, Some(Arc::clone(&gpu.key)))),
        None if !missing.is_empty() => Err(ApiError::incomplete(asked.id(), missing)),
        None if matches!(asked, Silenced::Host(_)) => Err(ApiError::UnknownHost(echo(asked.id()))),
        None => Err(ApiError::UnknownJob(echo(asked.id()))),
    }
}
