//! What holders used of GPUs without rows of `gpu_usage`, by the rows of their samples.
//!
//! The rule is that of a ledger, as far as rows tell it: they name one holder of a GPU, which has all of it, and not its container. A MIG
//! instance has its slices of its card's time and energy. The highest values are not known.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::answer::HoldingSums;
use super::totals::{CountsTo, HeldRow, Holdings, NamedHolder};
use crate::integral::seconds;
use crate::usage::fold::HolderUse;
use crate::usage::holders::{GpuUse, HOLDING};
use crate::usage::ledger::{NOBODY, Slice, holder_name};
use crate::{Identity, IdentityColumn};

/// Time without rows that is told, seconds: less is a rounded sum.
const UNOBSERVED_MIN_S: f64 = 1e-3;

/// A GPU as its rows show it.
struct SeenGpu<'a> {
    key: &'a str,
    identity: Identity,
    /// By holder, and by day where days are asked for.
    uses: &'a [GpuUse],
    /// All of them together.
    whole: HolderUse,
}

/// The card of a MIG instance, and the part of it that the instance is.
struct SeenCard<'a> {
    card: &'a SeenGpu<'a>,
    part: f64,
}

/// Whose time a use is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TimeOf {
    /// That of the GPU or instance itself.
    Itself,
    /// A part of that of its card.
    Card,
}

impl Holdings {
    /// Whether the time of a GPU is added up, or that of the card which it is an instance of.
    pub fn has(&self, gpu: &Identity) -> bool {
        let has = |key: Option<Arc<str>>| key.is_some_and(|key| self.has_sums(&key));
        has(gpu.key()) || has(gpu.card().and_then(|card| card.key()))
    }

    /// Adds GPUs that it does not have, by these uses of the range. Those of a GPU lie side by side.
    pub fn add_uses(&mut self, uses: &[GpuUse], identity_of: impl Fn(&str) -> Option<Identity>) {
        let of_gpus = uses.chunk_by(|one, next| one.gpu == next.gpu);
        let seen: Vec<SeenGpu<'_>> = of_gpus.filter_map(|uses| SeenGpu::of(uses, &identity_of)).collect();
        let by_key: HashMap<&str, &SeenGpu<'_>, RandomState> =
            seen.iter().map(|gpu| (gpu.key, gpu)).collect();
        // By card the part of its time that is its instances'.
        let mut taken: HashMap<&str, f64, RandomState> = HashMap::default();
        for gpu in &seen {
            let Some(SeenCard { card, part }) = gpu.card(&by_key) else { continue };
            *taken.entry(card.key).or_default() += part * gpu.whole.seconds / card.whole.seconds;
            for one in gpu.uses {
                let used = card.whole.part(part * one.held.seconds / card.whole.seconds);
                self.add_use(gpu, one, (HoldingSums::of_use(&used), TimeOf::Card));
            }
        }
        for gpu in seen.iter().filter(|gpu| gpu.card(&by_key).is_none()) {
            let left = (1.0 - taken.get(gpu.key).copied().unwrap_or(0.0)).max(0.0);
            for one in gpu.uses {
                let used = one.held.part(left);
                self.add_use(gpu, one, (HoldingSums::of_use(&used), TimeOf::Itself));
            }
            self.add_unobserved(gpu);
        }
    }

    /// Adds what a holder used of a GPU.
    fn add_use(&mut self, gpu: &SeenGpu<'_>, one: &GpuUse, (sums, of): (HoldingSums, TimeOf)) {
        let identity = one.identity_on(&gpu.identity);
        let Some(place) = self.place(&identity) else { return };
        self.note_by_rows(place);
        let holder = if one.is_held() { holder_name(&identity) } else { NOBODY.into() };
        let (begins_ns, as_of_ns) = one.rows_ns;
        let named = NamedHolder {
            holder: &holder,
            cluster: identity.get(IdentityColumn::Cluster),
            names: HOLDING.map(|column| identity.get(column)),
            text: self.by.column().and_then(|column| identity.get(column)),
            place,
            time_ns: one.step_ns.unwrap_or(begins_ns),
        };
        if let Some(to) = self.counts_to(&named) {
            self.add_row(&HeldRow { place, to, as_of_ns, is_exclusive: of == TimeOf::Itself, sums });
        }
    }

    /// Adds the time of a GPU between rows that are too far apart.
    fn add_unobserved(&mut self, gpu: &SeenGpu<'_>) {
        let Some(GpuUse { first_ns, last_ns, .. }) = gpu.uses.first() else { return };
        let held_s = seconds(last_ns.saturating_sub(*first_ns)) - gpu.whole.seconds;
        let Some(place) = self.place(&gpu.identity).filter(|_| held_s >= UNOBSERVED_MIN_S) else { return };
        let sums = HoldingSums { held_s, ..HoldingSums::default() };
        let to = CountsTo::Unobserved;
        self.add_row(&HeldRow { place, to, as_of_ns: *last_ns, is_exclusive: true, sums });
    }
}

impl<'a> SeenGpu<'a> {
    /// None of a GPU that is not known any more.
    fn of(uses: &'a [GpuUse], identity_of: impl Fn(&str) -> Option<Identity>) -> Option<Self> {
        let key: &str = &uses.first()?.gpu;
        let mut whole = HolderUse::default();
        for one in uses {
            whole.and(&one.held);
        }
        Some(Self { key, identity: identity_of(key)?, uses, whole })
    }

    /// Of a MIG instance its card, if that has time of its own.
    fn card(&self, by_key: &HashMap<&str, &'a Self, RandomState>) -> Option<SeenCard<'a>> {
        let Slice { card, slices, of } = Slice::of(&self.identity)?;
        let card = by_key.get(&*card).copied().filter(|card| card.whole.seconds > 0.0)?;
        Some(SeenCard { card, part: slices / of })
    }
}

impl GpuUse {
    /// Who held the GPU, as `gpu_usage` names holders; the container is not known. None: nobody.
    pub(crate) fn holder_name(&self) -> Option<Arc<str>> {
        self.is_held().then(|| holder_name(&self.identity_on(&Identity::default())))
    }

    /// The GPU as it was when this holder had it.
    fn identity_on(&self, gpu: &Identity) -> Identity {
        let mut identity = gpu.clone();
        for column in HOLDING.into_iter().chain([IdentityColumn::Cluster, IdentityColumn::Node]) {
            let text = self.text(column).map_or("", |text| &**text);
            // It is a text of a row, and no text is always taken.
            let _taken = identity.set(column, text);
        }
        identity
    }
}

impl HoldingSums {
    /// Of samples. All of the time counts as known that is not known to be busy.
    fn of_use(used: &HolderUse) -> Self {
        Self {
            held_s: used.seconds,
            busy_s: used.busy_s,
            wasted_s: used.busy_s.map(|busy_s| used.seconds - busy_s),
            idle_s: used.idle_s,
            throttled_s: used.throttled_s,
            joules: used.joules,
            idle_joules: used.idle_joules,
            ..Self::default()
        }
    }
}
