//! Who has which part of a GPU.

use std::sync::Arc;

use super::sharing::{NOBODY, RUN_HOLDER, Sharing};
use crate::identity::split_profile;
use crate::number::float;
use crate::usage::holders::HOLDING;
use crate::{Identity, IdentityColumn};

pub(in crate::usage) const EQUAL: &str = "equal";
pub(in crate::usage) const EXCLUSIVE: &str = "exclusive";
pub(in crate::usage) const PROCESS_TIME: &str = "process_time";
pub(in crate::usage) const OCCUPANCY: &str = "occupancy";
pub(super) const INSTANCE: &str = "instance";
pub(super) const GRANTED: &str = "granted";

/// A part that is smaller is none: sums of parts are not exact.
const PART_MIN: f64 = 1e-9;

/// Slices of compute of a GPU that can be divided by MIG.
const SLICES: f64 = 7.0;
/// Those of the smaller ones, by what their names have in them.
const SMALLER: ([&str; 2], f64) = ([" A30", " RTX PRO "], 4.0);

/// A holder's part of a GPU.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Part {
    pub(super) holder: Arc<str>,
    /// How the part is known.
    pub(super) share: &'static str,
    /// The GPU or the MIG instance, with the holder.
    pub(super) identity: Arc<Identity>,
    /// How much of the GPU it is, 0 to 1.
    pub(super) fraction: f64,
    /// Key of the MIG instance, if it is one.
    pub(super) instance: Option<Arc<str>>,
}

/// The parts of a GPU, which are the whole together; nobody has a part too.
pub(super) type Parts = Arc<[Part]>;

/// Whether both are the same parts.
pub(super) fn are_same(one: &Parts, other: &Parts) -> bool {
    Arc::ptr_eq(one, other) || one == other
}

/// A MIG instance of a GPU.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::usage) struct Slice {
    /// Key of the GPU.
    pub(in crate::usage) card: Arc<str>,
    /// Slices of compute that it has.
    pub(in crate::usage) slices: f64,
    /// Slices of compute that the whole GPU has.
    pub(in crate::usage) of: f64,
}

impl Slice {
    /// The MIG instance that an identity names; none if it is no instance, or its profile is not known.
    pub(in crate::usage) fn of(identity: &Identity) -> Option<Self> {
        let card = identity.card()?.shared(IdentityColumn::Uuid).cloned()?;
        let (model, profile) = split_profile(identity.get(IdentityColumn::Model)?);
        // `1g.10gb`; `1c.3g.40gb` is one compute instance of three.
        let slices = profile?.split('.').next()?.strip_suffix(['g', 'c'])?;
        let slices = f64::from(slices.parse::<u8>().ok().filter(|slices| *slices > 0)?);
        let (names, fewer) = SMALLER;
        let of = if names.iter().any(|name| model.contains(name)) { fewer } else { SLICES };
        Some(Self { card, slices, of })
    }
}

/// A MIG instance as it was seen last.
#[derive(Debug)]
pub(super) struct Instance {
    pub(super) key: Arc<str>,
    pub(super) slice: Slice,
    /// Who has it.
    pub(super) parts: Parts,
    pub(super) seen_ns: i64,
}

/// The parts of the GPU or instance of a row.
pub(super) fn of_row(identity: Identity, sharing: &dyn Sharing) -> Parts {
    let identity = Arc::new(identity);
    let several = sharing.sharers(&identity);
    let is_held = HOLDING.into_iter().any(|column| identity.get(column).is_some());
    if several.is_empty() && !is_held {
        return nobodys(&identity);
    }
    let holders = if several.is_empty() { vec![identity] } else { several };
    let granted: Option<Vec<f64>> = holders.iter().map(|held| sharing.granted(held)).collect();
    let holders = holders.into_iter().map(|identity| (holder_name(&identity), identity)).collect();
    match granted {
        Some(granted) => by_grant(holders, &granted),
        None => equal(holders),
    }
}

/// All of a GPU is nobody's.
fn nobodys(gpu: &Arc<Identity>) -> Parts {
    equal(vec![(NOBODY.into(), Arc::clone(gpu))])
}

/// A GPU of these users.
pub(super) fn of_users(users: &[Arc<str>], gpu: &Arc<Identity>) -> Parts {
    equal(users.iter().map(|user| (Arc::clone(user), Arc::clone(gpu))).collect())
}

/// Each has the same part.
fn equal(holders: Vec<(Arc<str>, Arc<Identity>)>) -> Parts {
    let fraction = 1.0 / float(holders.len().max(1));
    let share = if holders.len() > 1 { EQUAL } else { EXCLUSIVE };
    let part = |(holder, identity)| Part { holder, share, identity, fraction, instance: None };
    holders.into_iter().map(part).collect()
}

/// Each has what it was given, and what nobody was given is nobody's. Where more was given than there is, each has less.
fn by_grant(holders: Vec<(Arc<str>, Arc<Identity>)>, granted: &[f64]) -> Parts {
    let taken: f64 = granted.iter().sum();
    let all = taken.max(1.0);
    let rest = holders.first().map(|(_, identity)| Arc::new(free(identity)));
    let part = |holder, identity, granted: f64| Part {
        holder,
        share: GRANTED,
        identity,
        fraction: granted / all,
        instance: None,
    };
    let given = holders.into_iter().zip(granted);
    let mut parts: Vec<Part> =
        given.map(|((holder, identity), granted)| part(holder, identity, *granted)).collect();
    if let Some(gpu) = rest.filter(|_| all - taken > PART_MIN) {
        parts.push(part(NOBODY.into(), gpu, all - taken));
    }
    parts.into()
}

/// A GPU with MIG instances: each has its slices, and the rest belongs to whoever has the GPU itself.
pub(super) fn by_slices(instances: &[Instance], rest: &Parts) -> Parts {
    let taken: f64 = instances.iter().map(|one| one.slice.slices).sum();
    let all = instances.iter().map(|one| one.slice.of).fold(taken, f64::max);
    let scaled = |part: &Part, slices: f64, instance: Option<&Arc<str>>| Part {
        // Of a part that several have together nothing better is known.
        share: if part.share == EXCLUSIVE { INSTANCE } else { part.share },
        fraction: part.fraction * slices / all,
        instance: instance.cloned(),
        ..part.clone()
    };
    let mut parts = Vec::new();
    for Instance { key, slice, parts: own, .. } in instances {
        parts.extend(own.iter().map(|part| scaled(part, slice.slices, Some(key))));
    }
    if all > taken {
        parts.extend(rest.iter().map(|part| scaled(part, all - taken, None)));
    }
    parts.into()
}

/// Of the parts of a GPU, how much work of its processes each had, which are 1 together; by time where none had any.
pub(super) fn by_work(parts: &[Part], times: &[(Arc<str>, f64)]) -> Vec<f64> {
    let time_of =
        |part: &Part| times.iter().find(|(holder, _)| *holder == part.holder).map_or(0.0, |of| of.1);
    let all: f64 = parts.iter().map(time_of).sum();
    parts.iter().map(|part| if all > 0.0 { time_of(part) / all } else { part.fraction }).collect()
}

/// The holder that an identity names: `pod:NAMESPACE/POD/CONTAINER`, or `job:ID`.
pub fn holder_name(identity: &Identity) -> Arc<str> {
    let text = |column| identity.get(column).unwrap_or_default();
    if let (None, Some(job)) = (identity.get(IdentityColumn::Pod), identity.get(IdentityColumn::Job)) {
        return if job.starts_with(RUN_HOLDER) { job.into() } else { format!("job:{job}").into() };
    }
    let [namespace, pod, container] =
        [IdentityColumn::Namespace, IdentityColumn::Pod, IdentityColumn::Container].map(text);
    format!("pod:{namespace}/{pod}/{container}").into()
}

/// The GPU of an identity, without a holder.
pub(super) fn free(identity: &Identity) -> Identity {
    let mut gpu = identity.clone();
    for column in HOLDING {
        // No text is always taken.
        let _taken = gpu.set(column, "");
    }
    gpu
}
