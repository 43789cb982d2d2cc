//! What holders used, also of GPUs that no agent of ours samples.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::asked::{History, check_groups, sums_of_holders};
use super::error::QueryError;
use super::fleet::{Fleet, GpuState};
use super::part::Part;
use crate::IdentityColumn;
use crate::time::DAY_NS;
use crate::usage::{
    HOLDINGS_MAX, HoldingGroup, Holdings, HoldingsQuery, JobTexts, ToldApart, UseDetail, UseQuery,
};

/// GPUs by their keys.
type GpusByKey = BTreeMap<Arc<str>, Arc<GpuState>>;

/// What holders used in a range: by the rows of `gpu_usage`, and of GPUs that have none in it by those of their samples. Such are GPUs of
/// files, and of clusters that are read from outside. Of one holder that has rows of `gpu_usage` these alone count. With `told` holders
/// are put together by what is told of jobs. Of very many groups [`Holdings::finish`] takes long, which is left to the caller.
///
/// # Errors
/// When the range has no length, there are more groups than [`HOLDINGS_MAX`], or the history gives no rows, no fleet or no use of GPUs.
pub async fn all_holdings(
    history: &(impl History + ?Sized),
    query: &HoldingsQuery,
    told: Option<Arc<JobTexts>>,
) -> Result<Part<Holdings>, QueryError> {
    let Part { answer: mut held, mut missing } = sums_of_holders(history, query.clone(), told).await?;
    let is_of_one = query.holder.is_some();
    if is_of_one && held.groups() > 0 {
        return Ok(Part { answer: held, missing });
    }
    let Part { answer: fleet, missing: lost } = history.fleet().await?;
    missing.extend(lost);
    let mut gpus = without_sums(&fleet, query, &held);
    if is_of_one && !gpus.is_empty() {
        let had = had_by_one(history, query, &gpus).await?;
        gpus = had.answer;
        missing.extend(had.missing);
    }
    if !gpus.is_empty() {
        let Part { answer: uses, missing: unread } = history.usage(uses_of(query, &gpus)).await?;
        missing.extend(unread);
        held.add_uses(&uses, |key| gpus.get(key).map(|gpu| gpu.identity.clone()));
        check_groups(held.groups(), HOLDINGS_MAX)?;
    }
    missing.sort_unstable();
    missing.dedup();
    Ok(Part { answer: held, missing })
}

/// A question for the uses of GPUs that makes holdings of them.
fn uses_of(query: &HoldingsQuery, gpus: &GpusByKey) -> UseQuery {
    let holders = [IdentityColumn::Namespace, IdentityColumn::Pod, IdentityColumn::Job];
    UseQuery {
        gpus: gpus.keys().cloned().collect(),
        step_ns: (query.by == HoldingGroup::Day).then_some(DAY_NS),
        told_apart: ToldApart::by(holders),
        ..UseQuery::of(query.start_ns, query.end_ns)
    }
}

/// The GPUs of a question that may have rows in its range, and of which nothing is added up.
fn without_sums(fleet: &Fleet, query: &HoldingsQuery, held: &Holdings) -> GpusByKey {
    let asked: HashSet<&Arc<str>> = query.gpus.iter().collect();
    let is_wanted = |gpu: &&Arc<GpuState>| {
        let is_asked = asked.is_empty() || asked.contains(&gpu.key);
        is_asked && gpu.last_seen_ns >= query.start_ns && !held.has(&gpu.identity)
    };
    fleet.gpus.iter().filter(is_wanted).map(|gpu| (Arc::clone(&gpu.key), Arc::clone(gpu))).collect()
}

/// Those of the GPUs that the holder of a question had, and the cards of its instances, if nobody has sums of them.
async fn had_by_one(
    history: &(impl History + ?Sized),
    query: &HoldingsQuery,
    gpus: &GpusByKey,
) -> Result<Part<GpusByKey>, QueryError> {
    let times = UseQuery { detail: UseDetail::Times, step_ns: None, ..uses_of(query, gpus) };
    let Part { answer: uses, mut missing } = history.usage(times).await?;
    let mut had = GpusByKey::new();
    for one in uses.iter().filter(|one| one.holder_name() == query.holder) {
        let Some(gpu) = gpus.get(&one.gpu) else { continue };
        let card = gpu.identity.card().and_then(|card| gpus.get(&card.key()?));
        for gpu in [gpu].into_iter().chain(card) {
            had.insert(Arc::clone(&gpu.key), Arc::clone(gpu));
        }
    }
    if had.is_empty() {
        return Ok(Part { answer: had, missing });
    }
    let of_all = HoldingsQuery { gpus: had.keys().cloned().collect(), holder: None, ..query.clone() };
    let Part { answer: sums, missing: unread } = sums_of_holders(history, of_all, None).await?;
    missing.extend(unread);
    had.retain(|_, gpu| !sums.has(&gpu.identity));
    Ok(Part { answer: had, missing })
}
