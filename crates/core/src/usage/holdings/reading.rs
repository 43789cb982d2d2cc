//! The rows of a batch of `gpu_usage`. Texts are looked at once for all rows that have the same ones: of a month of a large fleet there are
//! millions.

use std::collections::HashMap;

use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{Array as _, DictionaryArray};
use foldhash::fast::RandomState;

use super::answer::{HoldingGroup, HoldingSums};
use super::totals::{CountsTo, HeldRow, Holdings, NamedHolder};
use crate::batch::{MetricColumn, Value, numbers, text_at};
use crate::time::{DAY_NS, HOUR_NS};
use crate::usage::holders::HOLDING;
use crate::usage::ledger::{EQUAL, EXCLUSIVE, OCCUPANCY, PROCESS_TIME, UNOBSERVED};
use crate::{Batch, IdentityColumn};

/// The columns of numbers that are read, in the order of [`HoldingSums::of_row`].
const NUMBERS: [&str; 10] = [
    "held_ns",
    "known_ns",
    "busy_ns",
    "idle_ns",
    "throttled_ns",
    "used_mj",
    "idle_mj",
    "power_max_w",
    "temperature_max_c",
    "memory_max_mb",
];
/// The columns that say which GPU a row is about and where that is: all but those of its holder.
const PLACE: [IdentityColumn; 10] = [
    IdentityColumn::Cluster,
    IdentityColumn::Node,
    IdentityColumn::Uuid,
    IdentityColumn::Vendor,
    IdentityColumn::Model,
    IdentityColumn::Pci,
    IdentityColumn::Partition,
    IdentityColumn::Driver,
    IdentityColumn::Vbios,
    IdentityColumn::Source,
];

/// A column of texts.
type Texts<'a> = Option<&'a DictionaryArray<Int32Type>>;

/// The columns of a batch.
struct HeldColumns<'a> {
    holder: Texts<'a>,
    share: Texts<'a>,
    cluster: Texts<'a>,
    names: [Texts<'a>; HOLDING.len()],
    place: [Texts<'a>; PLACE.len()],
    as_of_ns: Option<MetricColumn<'a>>,
    numbers: [Option<MetricColumn<'a>>; NUMBERS.len()],
}

/// A number of a row. One that the row does not have is 0 here, and not whatever lies in its place: it is multiplied before anybody asks
/// whether it is there, and a processor takes a hundred times as long for bits that happen to be a number next to 0.
#[derive(Debug, Clone, Copy)]
struct RowNumber {
    number: f64,
    is_there: bool,
}

/// What tells apart to whom rows count, by the places of their texts in their columns.
#[derive(Debug, Clone, PartialEq, Eq)]
struct HolderCodes {
    holder: u32,
    cluster: u32,
    names: [u32; HOLDING.len()],
    /// What else tells its group apart.
    part: i64,
}

/// A batch whose rows are added to sums.
struct HeldRows<'a> {
    held: &'a mut Holdings,
    batch: &'a Batch,
    columns: HeldColumns<'a>,
    /// The column whose texts are the groups, if these are of one.
    group: Texts<'a>,
    places: HashMap<PlaceCodes, Option<u32>, RandomState>,
    /// The place of the row before.
    last_place: Option<(PlaceCodes, Option<u32>)>,
    /// To whom the last row of each holder counts, by the place of his text in its column.
    holders: Vec<Option<(HolderCodes, Option<CountsTo>)>>,
}

/// The places of the texts of a row in the columns of [`PLACE`].
type PlaceCodes = [u32; PLACE.len()];

/// The place of a row's text in its column; a row without one has a place that no text has.
fn code(texts: Texts<'_>, row: usize) -> u32 {
    let place = texts.and_then(|texts| texts.key(row));
    place.and_then(|place| u32::try_from(place).ok()).unwrap_or(u32::MAX)
}

impl Holdings {
    /// The columns of `gpu_usage` that are added up; who has the GPU, and which, is read with them.
    pub fn columns() -> impl Iterator<Item = &'static str> {
        ["holder", "share", "run", "as_of_ns"].into_iter().chain(NUMBERS)
    }

    /// Adds rows, each of its key once.
    pub fn add(&mut self, batch: &Batch) {
        let mut rows = HeldRows::of(self, batch);
        for (row, &hour_ns) in batch.timestamps().iter().enumerate() {
            if let Some(row) = rows.row(row, hour_ns) {
                rows.held.add_row(&row);
            }
        }
    }

    /// Takes these rows: of a holder whose GPU somebody else has by a later one, it is known that it has lost it.
    pub fn add_last(&mut self, batch: &Batch) {
        let columns = HeldColumns::of(batch);
        for row in 0..batch.rows() {
            let is_seen = held_text(columns.holder, row).is_some_and(|holder| holder != UNOBSERVED);
            let last = columns.as_of_ns(row).zip(batch.identity(row).key()).filter(|_| is_seen);
            if let Some((as_of_ns, gpu)) = last {
                let gpu = self.gpu(gpu);
                self.note_last(gpu, as_of_ns);
            }
        }
    }
}

impl<'a> HeldColumns<'a> {
    fn of(batch: &'a Batch) -> Self {
        let column = |name: &str| batch.records().column_by_name(name);
        let text = |name: &str| column(name).and_then(|column| column.as_dictionary_opt::<Int32Type>());
        let number = |name: &str| column(name).and_then(numbers);
        Self {
            holder: text("holder"),
            share: text("share"),
            cluster: batch.identity_column(IdentityColumn::Cluster),
            names: HOLDING.map(|column| batch.identity_column(column)),
            place: PLACE.map(|column| batch.identity_column(column)),
            as_of_ns: number("as_of_ns"),
            numbers: NUMBERS.map(number),
        }
    }

    fn as_of_ns(&self, row: usize) -> Option<i64> {
        match self.as_of_ns?.value(row)? {
            Value::Int(as_of_ns) => Some(as_of_ns),
            Value::Float32(_) | Value::Float(_) => None,
        }
    }

    fn numbers(&self, row: usize) -> [RowNumber; NUMBERS.len()] {
        self.numbers.map(|column| {
            let value = column.and_then(|column| column.value(row));
            RowNumber { number: value.map_or(0.0, Value::as_f64), is_there: value.is_some() }
        })
    }
}

impl<'a> HeldRows<'a> {
    /// A batch of rows that are added to these.
    fn of(held: &'a mut Holdings, batch: &'a Batch) -> Self {
        let group = held.by.column().and_then(|column| batch.identity_column(column));
        let columns = HeldColumns::of(batch);
        Self {
            held,
            batch,
            holders: vec![None; columns.holder.map_or(0, |holder| holder.values().len())],
            columns,
            group,
            places: HashMap::default(),
            last_place: None,
        }
    }

    /// A row, as far as it counts.
    fn row(&mut self, row: usize, hour_ns: i64) -> Option<HeldRow> {
        let as_of_ns = self.columns.as_of_ns(row)?;
        let until_ns = hour_ns.saturating_add(HOUR_NS).min(as_of_ns);
        let part = self.held.part_of((hour_ns, until_ns))?;
        let place = self.place(row)?;
        let to = self.counts_to(row, hour_ns, place)?;
        let share = held_text(self.columns.share, row).unwrap_or(EXCLUSIVE);
        let is_shared = [EQUAL, PROCESS_TIME, OCCUPANCY].contains(&share);
        let sums = HoldingSums::of_row(self.columns.numbers(row), part, is_shared);
        Some(HeldRow { place, to, as_of_ns, is_exclusive: share == EXCLUSIVE, sums })
    }

    fn place(&mut self, row: usize) -> Option<u32> {
        let codes: PlaceCodes = self.columns.place.map(|texts| code(texts, row));
        if let Some((last, place)) = self.last_place
            && last == codes
        {
            return place;
        }
        let Self { held, batch, places, .. } = self;
        let place = *places.entry(codes).or_insert_with(|| held.place(&batch.identity(row)));
        self.last_place = Some((codes, place));
        place
    }

    /// To whom a row counts; none: it names no holder.
    fn counts_to(&mut self, row: usize, hour_ns: i64, place: u32) -> Option<CountsTo> {
        let part = match self.held.by {
            HoldingGroup::Holder => 0,
            HoldingGroup::Gpu => i64::from(place),
            HoldingGroup::Identity(_) => i64::from(code(self.group, row)),
            HoldingGroup::Day => hour_ns.div_euclid(DAY_NS),
        };
        let HeldColumns { holder, cluster, names, .. } = &self.columns;
        let names = names.map(|texts| code(texts, row));
        let codes = HolderCodes { holder: code(*holder, row), cluster: code(*cluster, row), names, part };
        let known = self.holders.get(codes.holder as usize).and_then(Option::as_ref);
        if let Some((_, to)) = known.filter(|(known, _)| *known == codes) {
            return *to;
        }
        let to = self.find(row, hour_ns, place);
        if let Some(known) = self.holders.get_mut(codes.holder as usize) {
            *known = Some((codes, to));
        }
        to
    }

    fn find(&mut self, row: usize, hour_ns: i64, place: u32) -> Option<CountsTo> {
        let holder = held_text(self.columns.holder, row)?;
        // An empty text is none, as in an identity.
        let text = |texts| held_text(texts, row).filter(|text| !text.is_empty());
        self.held.counts_to(&NamedHolder {
            holder,
            cluster: text(self.columns.cluster),
            names: self.columns.names.map(text),
            text: text(self.group),
            place,
            time_ns: hour_ns,
        })
    }
}

impl RowNumber {
    /// In another unit, and so much of it; none: the row does not have it.
    fn scaled(self, unit: f64, part: f64) -> Option<f64> {
        let scaled = self.number * unit * part;
        self.is_there.then_some(scaled)
    }

    fn known(self) -> Option<f64> {
        self.is_there.then_some(self.number)
    }
}

impl HoldingSums {
    /// So much of the numbers of a row.
    fn of_row(numbers: [RowNumber; NUMBERS.len()], part: f64, is_shared: bool) -> Self {
        let [
            held,
            known,
            busy,
            idle,
            throttled,
            used,
            used_idle,
            power_max_w,
            temperature_max_c,
            memory_max_mb,
        ] = numbers;
        let scaled = |number: RowNumber, unit: f64| number.scaled(unit, part);
        let held_s = scaled(held, 1e-9).unwrap_or(0.0);
        let busy_s = scaled(busy, 1e-9);
        Self {
            held_s,
            shared_s: if is_shared { held_s } else { 0.0 },
            busy_s,
            wasted_s: scaled(known, 1e-9).zip(busy_s).map(|(known_s, busy_s)| known_s - busy_s),
            idle_s: scaled(idle, 1e-9),
            throttled_s: scaled(throttled, 1e-9),
            joules: scaled(used, 1e-3),
            idle_joules: scaled(used_idle, 1e-3),
            power_max_w: power_max_w.known(),
            temperature_max_c: temperature_max_c.known(),
            memory_max_mb: memory_max_mb.known(),
            interpolated_s: if part < 1.0 { held_s } else { 0.0 },
        }
    }
}

fn held_text(texts: Texts<'_>, row: usize) -> Option<&str> {
    text_at(texts?, row)
}
