//! What listings of processes say of the work on the GPUs.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use foldhash::fast::RandomState;

use super::part::{OCCUPANCY, PROCESS_TIME, holder_name};
use super::sharing::{ProcessOwner, Sharing};
use crate::batch::{RowKeys, Value, numbers, text_at};
use crate::{Batch, IdentityColumn, Table};

/// Least part of the work that must be the holders': what others do is not theirs.
const KNOWN: f64 = 0.9;
/// Shares of the engines of a process. What it works is the largest of them.
const ENGINES: [&str; 3] = ["sm_utilization", "encoder_utilization", "decoder_utilization"];
/// Compute units that a process fills when it is listed: what is known of work whose time no engine tells.
const UNITS: &str = "compute_units";

/// A process on a GPU.
#[derive(Debug)]
pub(super) struct ListedProcess {
    pid: u32,
    computes: bool,
    /// Its share of the GPU's time, %; none if that is not read.
    percent: Option<f64>,
    /// Compute units that it fills; none if that is not read.
    units: Option<f64>,
    /// Whether it may have worked all the same: AMD's engine times leave out what ROCm computes.
    is_hidden: bool,
}

/// How long each holder's processes worked, in any unit.
pub(super) type WorkTimes = Arc<[(Arc<str>, f64)]>;

/// The processes of the GPUs, by key.
pub(super) type ProcessesByGpu = HashMap<Arc<str>, Vec<ListedProcess>, RandomState>;

/// The listings in rows of `gpu_processes`, by time.
pub(super) fn listings(batch: &Batch) -> BTreeMap<i64, ProcessesByGpu> {
    let mut listings: BTreeMap<i64, ProcessesByGpu> = BTreeMap::new();
    let Ok(keys) = RowKeys::of(batch.records(), Table::GpuProcesses) else { return listings };
    let column = |name: &str| batch.records().column_by_name(name);
    let kinds = column("process_type").and_then(|kinds| kinds.as_dictionary_opt::<Int32Type>());
    let pids = column("pid").and_then(numbers);
    let vendors = batch.identity_column(IdentityColumn::Vendor);
    let engines = ENGINES.map(|name| column(name).and_then(numbers));
    let units = column(UNITS).and_then(numbers);
    for (row, (id, &time_ns)) in keys.ids.iter().zip(batch.timestamps()).enumerate() {
        let Some(key) = keys.keys.get(*id as usize) else { continue };
        let Some(Value::Int(pid)) = pids.as_ref().and_then(|pids| pids.value(row)) else { continue };
        let shares = engines.iter().filter_map(|engine| engine.as_ref()?.value(row).map(Value::as_f64));
        let is_amd = vendors.and_then(|vendors| text_at(vendors, row)) == Some("amd");
        let kind = kinds.and_then(|kinds| text_at(kinds, row));
        let computes = kind.is_some_and(|kind| kind.contains("compute"));
        let [compute, ..] = &engines;
        let has_share = compute.as_ref().is_some_and(|compute| compute.value(row).is_some());
        let process = ListedProcess {
            pid: u32::try_from(pid).unwrap_or_default(),
            computes,
            percent: shares.max_by(f64::total_cmp),
            units: units.as_ref().and_then(|units| units.value(row)).map(Value::as_f64),
            is_hidden: is_amd && computes && !has_share,
        };
        listings.entry(time_ns).or_default().entry(Arc::clone(key)).or_default().push(process);
    }
    listings
}

/// The work on a GPU by a listing.
#[derive(Debug, Default)]
pub(super) struct Work {
    /// The users whose processes compute, as holders.
    pub(super) users: Vec<Arc<str>>,
    /// How much of the GPU the processes of each holder had; none if that is not known.
    pub(super) times: Option<WorkTimes>,
    /// How that is known, as rows call it.
    pub(super) share: &'static str,
}

/// How much of a GPU each process had, in one unit for all.
struct Weights {
    share: &'static str,
    of: fn(&ListedProcess) -> Option<f64>,
    /// Whether it is known of all of them.
    are_known: bool,
}

impl Weights {
    /// By engine time; where some of it is hidden, by compute units, if nobody works in another way.
    fn of(processes: &[ListedProcess]) -> Self {
        if !processes.iter().any(|process| process.is_hidden) {
            // A process that did nothing has no share with some drivers, so one that has is enough.
            let are_known = processes.iter().any(|process| process.percent.is_some());
            return Self { share: PROCESS_TIME, of: |process| process.percent, are_known };
        }
        let is_known = |process: &ListedProcess| {
            let has_units = process.units.is_some() || !process.is_hidden;
            has_units && process.percent.is_none_or(|percent| percent <= 0.0)
        };
        Self { share: OCCUPANCY, of: |process| process.units, are_known: processes.iter().all(is_known) }
    }
}

impl Work {
    /// The work of processes on a GPU that these hold. Users hold it by computing.
    pub(super) fn of(
        processes: &[ListedProcess],
        sharing: &dyn Sharing,
        holds: impl Fn(&str) -> bool,
    ) -> Self {
        let mut users: Vec<Arc<str>> = Vec::new();
        let mut times: Vec<(Arc<str>, f64)> = Vec::new();
        let mut unknown = 0.0;
        let weights = Weights::of(processes);
        for process in processes {
            let ListedProcess { pid, computes, .. } = process;
            let weight = (weights.of)(process).unwrap_or(0.0);
            let Some(owner) = sharing.owner_of(*pid) else {
                unknown += weight;
                continue;
            };
            let (holder, is_user) = match owner {
                ProcessOwner::Holder(identity) => (holder_name(&identity), false),
                ProcessOwner::User(name) => (Arc::from(format!("user:{name}")), true),
            };
            let is_user = is_user && *computes;
            // What others work is not the holders': it says nothing of their parts.
            if !is_user && !holds(&holder) {
                unknown += weight;
                continue;
            }
            if is_user && !users.contains(&holder) {
                users.push(Arc::clone(&holder));
            }
            match times.iter_mut().find(|(known, _)| *known == holder) {
                Some((_, sum)) => *sum += weight,
                None => times.push((holder, weight)),
            }
        }
        users.sort();
        let known: f64 = times.iter().map(|(_, weight)| weight).sum();
        let is_known = weights.are_known && !times.is_empty() && known >= KNOWN * (known + unknown);
        Self { users, times: is_known.then(|| times.into()), share: weights.share }
    }
}
