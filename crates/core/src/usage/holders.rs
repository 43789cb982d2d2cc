//! The holders of a GPU use it, each for its time.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::fold::{HolderUse, UseFold};
use crate::IdentityColumn;
use crate::energy::EnergySource;

/// Columns that name a holder, in the order of [`GpuUse::holder`].
pub const HOLDER_COLUMNS: [IdentityColumn; 5] = [
    IdentityColumn::Cluster,
    IdentityColumn::Node,
    IdentityColumn::Namespace,
    IdentityColumn::Pod,
    IdentityColumn::Job,
];
/// The texts of a holder in [`HOLDER_COLUMNS`]; none: its rows have no text there.
pub type Holder = Arc<[Option<Arc<str>>]>;

/// Asks for the use of all GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UseQuery {
    /// First instant, inclusive, nanoseconds UTC since 1970.
    pub start_ns: i64,
    /// Last instant, inclusive.
    pub end_ns: i64,
}

/// The use of one GPU by one holder.
#[derive(Debug, Clone, PartialEq)]
pub struct GpuUse {
    /// Key of the GPU.
    pub gpu: Arc<str>,
    /// The holder.
    pub holder: Holder,
    /// What it used.
    pub held: HolderUse,
    /// Source of the GPU's energy; none without any.
    pub source: Option<EnergySource>,
    /// Time of the GPU's first row, under any holder, nanoseconds UTC since 1970.
    pub first_ns: i64,
    /// Of its last one.
    pub last_ns: i64,
}

impl GpuUse {
    /// Its text in a column; none of a column that names no holder.
    pub fn text(&self, column: IdentityColumn) -> Option<&Arc<str>> {
        let place = HOLDER_COLUMNS.iter().position(|one| *one == column)?;
        self.holder.get(place)?.as_ref()
    }

    /// Whether a job or pod holds the GPU.
    pub fn is_held(&self) -> bool {
        [IdentityColumn::Namespace, IdentityColumn::Pod, IdentityColumn::Job]
            .into_iter()
            .any(|column| self.text(column).is_some())
    }
}

/// The use of each GPU by each of its holders, added up from rows and [`Stay`](super::Stay)s in the order of their times.
#[derive(Debug, Default)]
pub struct Usage {
    gpus: HashMap<Arc<str>, UseFold, RandomState>,
    holders: Vec<Holder>,
    numbers: HashMap<Holder, u32, RandomState>,
    texts: HashSet<Arc<str>, RandomState>,
}

impl Usage {
    /// The number of a holder, which it keeps.
    pub fn holder(&mut self, texts: &[Option<Arc<str>>]) -> u32 {
        if let Some(number) = self.numbers.get(texts) {
            return *number;
        }
        let shared = texts.iter().map(|text| text.as_ref().map(|text| self.shared(text)));
        let holder: Holder = shared.collect::<Vec<_>>().into();
        let number = u32::try_from(self.holders.len()).unwrap_or(u32::MAX);
        self.holders.push(Arc::clone(&holder));
        self.numbers.insert(holder, number);
        number
    }

    /// One copy of each text: a namespace has a thousand holders.
    fn shared(&mut self, text: &Arc<str>) -> Arc<str> {
        if let Some(held) = self.texts.get(text) {
            return Arc::clone(held);
        }
        self.texts.insert(Arc::clone(text));
        Arc::clone(text)
    }

    /// The sums of a GPU.
    pub fn gpu(&mut self, key: &Arc<str>) -> &mut UseFold {
        self.gpus.entry(Arc::clone(key)).or_default()
    }

    /// The uses by GPU, then holder.
    pub fn finish(self) -> Vec<GpuUse> {
        let mut uses = Vec::new();
        for (gpu, fold) in self.gpus {
            let Some(sums) = fold.finish() else { continue };
            for (number, held) in sums.held {
                let Some(holder) = self.holders.get(number as usize) else { continue };
                uses.push(GpuUse {
                    gpu: Arc::clone(&gpu),
                    holder: Arc::clone(holder),
                    held,
                    source: sums.source,
                    first_ns: sums.first_ns,
                    last_ns: sums.last_ns,
                });
            }
        }
        uses.sort_by(GpuUse::by_name);
        uses
    }
}

/// The uses of several histories as one: what a holder used is added up. Also the keys of the GPUs whose times in two of them
/// overlap: both may have the same rows, and neither has all, so their sums are not those of their rows.
pub fn join(histories: Vec<Vec<GpuUse>>) -> (Vec<GpuUse>, Vec<Arc<str>>) {
    let mut spans: HashMap<Arc<str>, Vec<(i64, i64)>, RandomState> = HashMap::default();
    for uses in &histories {
        // A GPU's uses lie side by side, and all have its span.
        for of_gpu in uses.chunk_by(|one, next| one.gpu == next.gpu) {
            let Some(one) = of_gpu.first() else { continue };
            spans.entry(Arc::clone(&one.gpu)).or_default().push((one.first_ns, one.last_ns));
        }
    }
    let overlap = |spans: &mut Vec<(i64, i64)>| {
        spans.sort_unstable();
        spans.windows(2).any(|pair| matches!(pair, [one, next] if next.0 <= one.1))
    };
    let shared = spans.into_iter().filter_map(|(gpu, mut spans)| overlap(&mut spans).then_some(gpu));
    let mut shared: Vec<Arc<str>> = shared.collect();
    shared.sort();
    let mut uses: Vec<GpuUse> = histories.into_iter().flatten().collect();
    uses.sort_by(GpuUse::by_name);
    uses.dedup_by(|next, one| {
        let is_same = one.by_name(next) == Ordering::Equal;
        if is_same {
            one.add(next);
        }
        is_same
    });
    (uses, shared)
}

impl GpuUse {
    fn add(&mut self, other: &Self) {
        self.held.and(&other.held);
        self.source = self.source.or(other.source);
        self.first_ns = self.first_ns.min(other.first_ns);
        self.last_ns = self.last_ns.max(other.last_ns);
    }

    fn by_name(&self, other: &Self) -> Ordering {
        (&self.gpu, &self.holder).cmp(&(&other.gpu, &other.holder))
    }
}
