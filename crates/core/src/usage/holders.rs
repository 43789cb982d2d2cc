//! The holders of a GPU use it, each for its time.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use arrow_array::RecordBatch;
use foldhash::fast::RandomState;

use super::Stay;
use super::fold::{HolderPlace, HolderUse, UseFold};
use crate::batch::{KeylessRow, RowKeys};
use crate::energy::EnergySource;
use crate::{IdentityColumn, Table};

/// Columns that say who holds a GPU, where, and with which driver: in the order of [`GpuUse::holder`].
pub const HOLDER_COLUMNS: [IdentityColumn; 7] = [
    IdentityColumn::Cluster,
    IdentityColumn::Node,
    IdentityColumn::Namespace,
    IdentityColumn::Pod,
    IdentityColumn::Job,
    IdentityColumn::Driver,
    IdentityColumn::Vbios,
];
/// The columns that say that somebody has the GPU.
pub(super) const HOLDING: [IdentityColumn; 4] =
    [IdentityColumn::Namespace, IdentityColumn::Pod, IdentityColumn::Container, IdentityColumn::Job];
/// The texts of a holder in [`HOLDER_COLUMNS`]; none: its rows have no text there.
pub type Holder = Arc<[Option<Arc<str>>]>;

/// By which of [`HOLDER_COLUMNS`] holders are told apart: cluster and node always, the others as asked. Of a namespace, pod or job that is not
/// asked for it stays known that somebody has the GPU: its text is empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ToldApart([bool; HOLDER_COLUMNS.len()]);

impl ToldApart {
    /// By all of them.
    pub const ALL: Self = Self([true; HOLDER_COLUMNS.len()]);

    /// By these and by cluster and node; what is no column of a holder tells none apart.
    pub fn by(columns: impl IntoIterator<Item = IdentityColumn>) -> Self {
        const PLACE: [IdentityColumn; 2] = [IdentityColumn::Cluster, IdentityColumn::Node];
        let asked: Vec<IdentityColumn> = PLACE.into_iter().chain(columns).collect();
        Self(HOLDER_COLUMNS.map(|column| asked.contains(&column)))
    }

    /// The columns by which it tells holders apart.
    pub fn columns(self) -> impl Iterator<Item = IdentityColumn> {
        HOLDER_COLUMNS.into_iter().zip(self.0).filter_map(|(column, is_told)| is_told.then_some(column))
    }

    /// The texts of a holder, those that are not asked for left out or empty.
    pub fn told<'a, T: From<&'a str>>(
        self,
        texts: impl IntoIterator<Item = Option<T>>,
    ) -> impl Iterator<Item = Option<T>> {
        let columns = HOLDER_COLUMNS.into_iter().zip(self.0);
        columns.zip(texts).map(|((column, is_told), text)| match text {
            text if is_told => text,
            Some(_) if HOLDING.contains(&column) => Some(T::from("")),
            _ => None,
        })
    }
}

impl Default for ToldApart {
    fn default() -> Self {
        Self::ALL
    }
}

/// Asks for the use of GPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UseQuery {
    /// Keys of the GPUs; empty: all.
    pub gpus: Vec<Arc<str>>,
    /// First instant, inclusive, nanoseconds UTC since 1970.
    pub start_ns: i64,
    /// Last instant, inclusive.
    pub end_ns: i64,
    /// Width of steps, nanoseconds, to have the use of each; they begin at multiples of it. None: the range as a whole.
    pub step_ns: Option<i64>,
    /// By what holders are told apart: what need not be costs room and time.
    pub told_apart: ToldApart,
    /// What of each use is asked for.
    pub detail: UseDetail,
}

/// What of a use is asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum UseDetail {
    /// Times and sums.
    #[default]
    Sums,
    /// The times of its rows, of a range as a whole: they cost far less. Sums may be there or not. Rows of one key that came apart may count
    /// each, also where one says less of the holder.
    Times,
}

impl UseQuery {
    /// The use of all GPUs by each holder in a range as a whole.
    pub fn of(start_ns: i64, end_ns: i64) -> Self {
        let (told_apart, detail) = (ToldApart::ALL, UseDetail::Sums);
        Self { gpus: Vec::new(), start_ns, end_ns, step_ns: None, told_apart, detail }
    }

    /// Whether times do as its answer: steps need the rows in their order.
    pub fn is_of_times(&self) -> bool {
        self.detail == UseDetail::Times && self.step_ns.is_none()
    }
}

/// Most uses of an answer: of 4,096 GPUs in each hour of a week, and some changes of hands.
pub const USES_MAX: usize = 1_000_000;

/// The use of one GPU by one holder, in a step if steps were asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct GpuUse {
    /// Key of the GPU.
    pub gpu: Arc<str>,
    /// Who held the GPU.
    pub holder: Holder,
    /// Start of the step, nanoseconds UTC since 1970; none of a range as a whole. Time and energy between two rows belong to the step of
    /// the earlier one, so the steps add up to the whole.
    pub step_ns: Option<i64>,
    /// Times of the first of these rows and of the last, nanoseconds UTC since 1970.
    pub rows_ns: (i64, i64),
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
        HOLDING.into_iter().any(|column| self.text(column).is_some())
    }
}

/// The use of each GPU by each of its holders, added up from rows and [`Stay`](super::Stay)s in the order of their times.
#[derive(Debug, Default)]
pub struct Usage {
    width_ns: Option<i64>,
    told_apart: ToldApart,
    gpus: HashMap<Arc<str>, UseFold, RandomState>,
    /// By GPU the times of the first row and the last of each holder, where nothing is added up.
    noted: HashMap<Arc<str>, BTreeMap<u32, (i64, i64)>, RandomState>,
    holders: Vec<Holder>,
    numbers: HashMap<Holder, u32, RandomState>,
    texts: HashSet<Arc<str>, RandomState>,
    /// Holders and steps, which number what is added up of a GPU.
    places: Vec<(u32, Option<i64>)>,
    place_numbers: HashMap<(u32, Option<i64>), u32, RandomState>,
}

impl Usage {
    /// Nothing yet, by the steps and holders that a question tells apart.
    pub fn of(query: &UseQuery) -> Self {
        Self { width_ns: query.step_ns, told_apart: query.told_apart, ..Self::default() }
    }

    /// The number of a holder with these texts, which it keeps: holders that are not told apart have one.
    pub fn holder(&mut self, texts: &[Option<Arc<str>>]) -> u32 {
        let texts: Vec<Option<Arc<str>>> = self.told_apart.told(texts.iter().cloned()).collect();
        if let Some(number) = self.numbers.get(texts.as_slice()) {
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

    /// Adds rows of a GPU and of the holder of this number, which lie in one step.
    pub fn add(&mut self, gpu: &Arc<str>, holder: u32, stay: Stay) {
        let step = self.width_ns.map(|width_ns| stay.first_ns.div_euclid(width_ns).saturating_mul(width_ns));
        let place = *self.place_numbers.entry((holder, step)).or_insert_with(|| {
            self.places.push((holder, step));
            u32::try_from(self.places.len() - 1).unwrap_or(u32::MAX)
        });
        self.gpus.entry(Arc::clone(gpu)).or_default().add(place, stay);
    }

    /// Notes the times of rows, which come in any order, and adds nothing up. A row, as that of a rollup, begins and ends at some time; one
    /// that ends after `until_ns` is left out.
    ///
    /// # Errors
    /// The first row that names no GPU.
    pub fn note_times(
        &mut self,
        records: &RecordBatch,
        (begins, ends): (&[i64], &[i64]),
        until_ns: i64,
    ) -> Result<(), KeylessRow> {
        let keys = RowKeys::of(records, Table::GpuEvents)?;
        let holders = self.holders(records);
        // Rows of a GPU and holder lie side by side: they are noted as one.
        let mut run: Option<(u32, u32, (i64, i64))> = None;
        let times = begins.iter().zip(ends).map(|(begin_ns, end_ns)| (*begin_ns, *end_ns));
        for ((id, holder), times) in keys.ids.iter().copied().zip(holders).zip(times) {
            if times.1 > until_ns {
                continue;
            }
            match &mut run {
                Some((of, by, rows_ns)) if (*of, *by) == (id, holder) => *rows_ns = around(*rows_ns, times),
                run => {
                    if let Some(ended) = run.replace((id, holder, times)) {
                        self.note(&keys, ended);
                    }
                }
            }
        }
        if let Some(ended) = run {
            self.note(&keys, ended);
        }
        Ok(())
    }

    fn note(&mut self, keys: &RowKeys, (id, holder, times): (u32, u32, (i64, i64))) {
        let Some(key) = keys.keys.get(id as usize) else { return };
        if !self.noted.contains_key(key) {
            self.noted.insert(Arc::clone(key), BTreeMap::new());
        }
        let Some(of_gpu) = self.noted.get_mut(key) else { return };
        let rows_ns = of_gpu.entry(holder).or_insert(times);
        *rows_ns = around(*rows_ns, times);
    }

    /// How many uses there are so far.
    pub fn uses(&self) -> usize {
        let noted: usize = self.noted.values().map(BTreeMap::len).sum();
        noted + self.gpus.values().map(UseFold::places).sum::<usize>()
    }

    /// The uses by GPU, then holder, then step.
    pub fn finish(self) -> Vec<GpuUse> {
        let mut uses = Vec::new();
        for (gpu, fold) in self.gpus {
            let Some(sums) = fold.finish() else { continue };
            for HolderPlace { number, rows_ns, held } in sums.held {
                let Some(&(holder, step_ns)) = self.places.get(number as usize) else { continue };
                let Some(holder) = self.holders.get(holder as usize) else { continue };
                uses.push(GpuUse {
                    gpu: Arc::clone(&gpu),
                    holder: Arc::clone(holder),
                    step_ns,
                    rows_ns,
                    // Rollups do not know it.
                    held: HolderUse { known_s: None, ..held },
                    source: sums.source,
                    first_ns: sums.first_ns,
                    last_ns: sums.last_ns,
                });
            }
        }
        for (gpu, noted) in self.noted {
            let Some((first_ns, last_ns)) = noted.values().copied().reduce(around) else { continue };
            for (holder, rows_ns) in noted {
                let Some(holder) = self.holders.get(holder as usize) else { continue };
                uses.push(GpuUse {
                    gpu: Arc::clone(&gpu),
                    holder: Arc::clone(holder),
                    step_ns: None,
                    rows_ns,
                    held: HolderUse::default(),
                    source: None,
                    first_ns,
                    last_ns,
                });
            }
        }
        uses.sort_by(GpuUse::by_name);
        uses
    }
}

/// From the earlier beginning to the later end.
fn around(one: (i64, i64), other: (i64, i64)) -> (i64, i64) {
    (one.0.min(other.0), one.1.max(other.1))
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
    for of_gpu in uses.chunk_by_mut(|one, next| one.gpu == next.gpu) {
        let spans = of_gpu.iter().map(|one| (one.first_ns, one.last_ns));
        let Some((first_ns, last_ns)) = spans.reduce(around) else { continue };
        for one in of_gpu {
            (one.first_ns, one.last_ns) = (first_ns, last_ns);
        }
    }
    (uses, shared)
}

impl GpuUse {
    fn add(&mut self, other: &Self) {
        self.held.and(&other.held);
        self.rows_ns = around(self.rows_ns, other.rows_ns);
        self.source = self.source.or(other.source);
        self.first_ns = self.first_ns.min(other.first_ns);
        self.last_ns = self.last_ns.max(other.last_ns);
    }

    fn by_name(&self, other: &Self) -> Ordering {
        (&self.gpu, &self.holder, self.step_ns).cmp(&(&other.gpu, &other.holder, other.step_ns))
    }
}
