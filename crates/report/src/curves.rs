//! The course of a run: what each GPU and host did over time, thinned to what a picture can show.
//!
//! Buckets are as narrow as a millisecond at first and become twice as wide whenever there would be too many: one pass over
//! the rows is enough, and memory is bounded however long the run was.

use std::sync::Arc;

use gpuvitals_core::batch::{MetricColumn, RowKeys, Value};
use gpuvitals_core::catalogue::Scope;
use gpuvitals_core::integral::Blanks;
use gpuvitals_core::throttle::ThrottleColumns;
use gpuvitals_core::{Batch, Table};

use crate::curve::{Curve, CurveGrid};
use crate::held::Held;
use crate::panels::{GPU_PANELS, HOST_PANELS, RunPanel};

/// Most buckets of a curve: a chart has few more pixels.
pub(crate) const BUCKETS_MAX: i64 = 640;
const WIDTH_MIN_NS: i64 = 1_000_000;
/// Most GPUs and hosts whose course is kept; the others are in the tables.
const SUBJECTS_MAX: usize = 64;

/// The course of a GPU: a curve for each panel.
type GpuCourse = Course<{ GPU_PANELS.len() }>;
/// The course of a host.
type HostCourse = Course<{ HOST_PANELS.len() }>;

/// The curves of one GPU or host.
#[derive(Debug)]
pub(crate) struct Course<const N: usize> {
    curves: [Curve; N],
    /// What held its clocks down; a host has nothing of it.
    held: Held,
}

impl<const N: usize> Default for Course<N> {
    fn default() -> Self {
        Self { curves: std::array::from_fn(|_| Curve::default()), held: Held::default() }
    }
}

impl<const N: usize> Course<N> {
    fn add(&mut self, columns: &[PanelColumns<'_>; N], row: usize, index: i64) {
        for (curve, columns) in self.curves.iter_mut().zip(columns) {
            if let Some(value) = columns.value(row) {
                curve.add(index, value);
            }
        }
    }

    fn lose(&mut self) {
        self.curves.iter_mut().for_each(Curve::lose);
        self.held.lose();
    }

    fn fold(&mut self) {
        self.curves.iter_mut().for_each(Curve::fold);
        self.held.fold();
    }

    /// The curve of a panel, by its place in the list of panels.
    pub(crate) fn curve(&self, panel: usize) -> Option<&Curve> {
        self.curves.get(panel)
    }

    pub(crate) fn held(&self) -> &Held {
        &self.held
    }
}

/// The columns of a panel, looked up once a batch.
struct PanelColumns<'a> {
    own: Option<MetricColumn<'a>>,
    instead: Option<MetricColumn<'a>>,
    factor: f64,
}

impl<'a> PanelColumns<'a> {
    fn of(batch: &'a Batch, panel: &RunPanel) -> Self {
        let instead = panel.instead.and_then(|metric| batch.metric(metric));
        Self { own: batch.metric(panel.metric), instead, factor: panel.factor }
    }

    fn value(&self, row: usize) -> Option<f64> {
        let value = |column: Option<MetricColumn<'_>>| column?.value(row).map(Value::as_f64);
        value(self.own).or_else(|| value(self.instead)).map(|value| value * self.factor)
    }
}

/// The courses of all GPUs and hosts of a run.
#[derive(Debug)]
pub(crate) struct Curves {
    width_ns: i64,
    gap_ns: i64,
    span_ns: Option<(i64, i64)>,
    gpus: Vec<(Arc<str>, GpuCourse)>,
    hosts: Vec<(Arc<str>, HostCourse)>,
}

impl Curves {
    /// A line breaks where rows are further apart than this.
    pub(crate) fn new(gap_ns: i64) -> Self {
        Self { width_ns: WIDTH_MIN_NS, gap_ns, span_ns: None, gpus: Vec::new(), hosts: Vec::new() }
    }

    /// Adds a batch. Its monotonic clock, if it has one, is this far behind UTC.
    pub(crate) fn add(&mut self, batch: &Batch, behind_ns: i64) {
        let (times, behind_ns) = match batch.monotonic() {
            Some(times) => (times, behind_ns),
            None => (batch.timestamps(), 0),
        };
        // Every row of a batch names its GPU or host.
        let Ok(keys) = RowKeys::of(batch.records(), batch.table()) else { return };
        let rows = times.iter().zip(&keys.ids).map(|(time_ns, id)| (time_ns.saturating_add(behind_ns), *id));
        match batch.table() {
            Table::GpuEvents => self.add_gpus(batch, &keys.keys, rows),
            Table::SystemEvents => self.add_hosts(batch, &keys.keys, rows),
            _ => {}
        }
    }

    fn add_gpus(&mut self, batch: &Batch, keys: &[Arc<str>], rows: impl Iterator<Item = (i64, u32)>) {
        let places = places(&mut self.gpus, keys);
        let columns = GPU_PANELS.map(|panel| PanelColumns::of(batch, &panel));
        let (blanks, limits) = (Blanks::of(batch), ThrottleColumns::of(batch.records()));
        for (row, (time_ns, id)) in rows.enumerate() {
            let index = self.index(time_ns);
            let place = places.get(id as usize).copied().flatten();
            let Some((_, gpu)) = place.and_then(|place| self.gpus.get_mut(place)) else { continue };
            if blanks.has(row) {
                gpu.lose();
                continue;
            }
            gpu.add(&columns, row, index);
            gpu.held.add(&limits, row, index);
        }
    }

    fn add_hosts(&mut self, batch: &Batch, keys: &[Arc<str>], rows: impl Iterator<Item = (i64, u32)>) {
        let places = places(&mut self.hosts, keys);
        let columns = HOST_PANELS.map(|panel| PanelColumns::of(batch, &panel));
        for (row, (time_ns, id)) in rows.enumerate() {
            if batch.instance(Scope::CpuCore, row).is_some() {
                // Of one CPU; the host's own row covers all.
                continue;
            }
            let index = self.index(time_ns);
            let place = places.get(id as usize).copied().flatten();
            if let Some((_, host)) = place.and_then(|place| self.hosts.get_mut(place)) {
                host.add(&columns, row, index);
            }
        }
    }

    /// The bucket of an instant; the buckets become wider if there would be too many.
    fn index(&mut self, time_ns: i64) -> i64 {
        let (first, last) = self.span_ns.unwrap_or((time_ns, time_ns));
        self.span_ns = Some((first.min(time_ns), last.max(time_ns)));
        self.thin(BUCKETS_MAX);
        time_ns.div_euclid(self.width_ns)
    }

    /// Makes buckets wider until there are fewer than this.
    pub(crate) fn thin(&mut self, most: i64) {
        let Some((first, last)) = self.span_ns else { return };
        while last.div_euclid(self.width_ns) - first.div_euclid(self.width_ns) >= most {
            self.width_ns *= 2;
            self.gpus.iter_mut().for_each(|(_, gpu)| gpu.fold());
            self.hosts.iter_mut().for_each(|(_, host)| host.fold());
        }
    }

    /// Where the buckets are; none without a row.
    pub(crate) fn grid(&self) -> Option<CurveGrid> {
        let (first_ns, last_ns) = self.span_ns?;
        Some(CurveGrid::new((first_ns, last_ns), self.width_ns, self.gap_ns))
    }

    /// The course of a GPU by its key.
    pub(crate) fn gpu(&self, key: &str) -> Option<&GpuCourse> {
        self.gpus.iter().find(|(known, _)| **known == *key).map(|(_, gpu)| gpu)
    }

    /// The hosts by name.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = (&str, &HostCourse)> {
        self.hosts.iter().map(|(name, host)| (&**name, host))
    }
}

/// Where each of these keys is in the list, to which new ones are added; none beyond the bound.
fn places<const N: usize>(known: &mut Vec<(Arc<str>, Course<N>)>, keys: &[Arc<str>]) -> Vec<Option<usize>> {
    let place = |key: &Arc<str>| {
        let place = known.iter().position(|(other, _)| other == key).unwrap_or(known.len());
        if place == known.len() && place < SUBJECTS_MAX {
            known.push((Arc::clone(key), Course::default()));
        }
        Some(place).filter(|place| *place < known.len())
    };
    keys.iter().map(place).collect()
}
