//! Records to rows of a batch.

mod looks;
mod named;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use gpuvitals_core::batch::{IdentityId, RowId, Value};
use gpuvitals_core::catalogue::MetricId;
use gpuvitals_core::foreign::{Choice, absence, is_credible};
use gpuvitals_core::time::{self, FUTURE_MAX_NS};
use gpuvitals_core::{AbsenceReason, Batch, BatchBuilder, Origin, Table};

use super::cell::{self, ExtraCell, Missing, Scale};
use super::decimal::{Decimal, pointed};
use super::messages::Messages;
use super::part::{MetricCell, MetricCells, RecordPart, Whose};
use super::plan::{Plan, Role};
use super::sample;
use super::series::SeriesName;
use super::split::Splitter;
use super::subject::{Subject, Subjects};
use super::tail::Tail;
use super::times::Times;
use crate::report::{Cause, Ledger, Refusal};
use crate::timeline::Replay;

/// What the processes of a GPU have together.
const MEMORY_USED: MetricId = MetricId::of("memory_used_mb");

/// Most unknown columns of a file that are remembered as text columns.
const TEXT_COLUMNS_MAX: usize = 4096;

/// Step between rows without a time that one GPU has in one batch.
const UNTIMED_STEP_NS: i64 = 1_000;

type FastMap<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// The destination of a part's values. The first value opens the row: a part without any creates none.
#[derive(Debug)]
struct RowPlace {
    /// Number of the subject ([`Subjects`]).
    index: usize,
    time_ns: i64,
    is_host: bool,
    /// The row, and whether it has the subject's unknown columns already.
    row: Option<(RowId, bool)>,
    /// Other records have values of the same subject and time.
    is_shared: bool,
}

/// The destinations of a record of a MIG instance: what belongs to its card is the card's.
#[derive(Debug)]
struct Places {
    own: RowPlace,
    card: Option<RowPlace>,
}

impl Places {
    fn of(&mut self, scale: &Scale) -> &mut RowPlace {
        match &mut self.card {
            Some(card) if scale.is_of_card => card,
            _ => &mut self.own,
        }
    }
}

/// The parts of a record besides values of metrics.
#[derive(Debug, Default)]
struct RecordRest {
    absent: Vec<(MetricId, AbsenceReason)>,
    extras: Vec<ExtraCell>,
    invalid: u64,
}

/// A record that is put into rows, and where what it has besides values goes.
struct RecordReading<'a> {
    record: &'a Splitter,
    rest: &'a mut RecordRest,
    ledger: &'a mut Ledger,
}

/// Fills batches from records.
#[derive(Debug)]
pub(super) struct RowBuilder {
    plan: Arc<Plan>,
    times: Option<Times>,
    /// The columns that tell whose value a row is.
    subject: Vec<usize>,
    parts: Arc<[RecordPart]>,
    labels: Option<usize>,
    named: Option<(usize, usize)>,
    /// The column of the units of named values.
    unit: Option<usize>,
    names: FastMap<Box<[u8]>, SeriesName>,
    /// Whom names of metrics name; the place of each is its number behind the parts'.
    owners: Vec<Whose>,
    /// Values of this batch of which the largest counts.
    largest: FastMap<(RowId, MetricId), f64>,
    subjects: Subjects,
    builder: BatchBuilder,
    /// Rows of hosts.
    hosts: BatchBuilder,
    batch: u64,
    /// By table (whether hosts'), identity and time.
    by_time: FastMap<(bool, IdentityId, i64), RowId>,
    /// Values of this batch that were set under the first meaning of a shared name, with the second.
    shared: FastMap<RowId, (MetricId, Value)>,
    text_columns: HashSet<Arc<str>, foldhash::fast::RandomState>,
    /// The rows as messages, if wanted: of this batch, and of the last.
    messages: Option<Messages>,
    handed_over: Vec<serde_json::Value>,
    rest: RecordRest,
}

impl RowBuilder {
    pub(super) fn new(plan: Arc<Plan>, with_messages: bool) -> Self {
        let name = plan.find(|role| matches!(role, Role::MetricName));
        Self {
            times: plan.times.clone(),
            subject: plan.subject(),
            parts: RecordPart::all(&plan, with_messages).into(),
            labels: plan.find(|role| matches!(role, Role::Labels)),
            named: name.zip(plan.find(|role| matches!(role, Role::MetricValue))),
            unit: plan.find(|role| matches!(role, Role::Unit)),
            names: FastMap::default(),
            owners: Vec::new(),
            largest: FastMap::default(),
            subjects: Subjects::new(&plan),
            plan,
            builder: BatchBuilder::new(Table::GpuEvents),
            hosts: BatchBuilder::new(Table::SystemEvents),
            batch: 1,
            by_time: FastMap::default(),
            shared: FastMap::default(),
            text_columns: HashSet::default(),
            messages: with_messages.then(Messages::default),
            handed_over: Vec::new(),
            rest: RecordRest::default(),
        }
    }

    /// Whether records have anything that rows or messages can have.
    pub(super) fn has_parts(&self) -> bool {
        !self.parts.is_empty()
    }

    pub(super) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Whether the rows have times of their own.
    pub(super) fn is_timed(&self) -> bool {
        self.times.is_some()
    }

    /// Reads on by another header, or by that of another pass, which may have changed since the last. Returns what the rows
    /// were read by.
    pub(super) fn go_on_with(&mut self, plan: Arc<Plan>) -> Arc<Plan> {
        let like =
            |a: &Plan, b: &Plan| a.columns.iter().map(|c| &c.name).eq(b.columns.iter().map(|c| &c.name));
        if like(&self.plan, &plan) {
            if let Some(times) = &mut self.times {
                times.restart();
            }
            return plan;
        }
        let with_messages = self.messages.is_some();
        let subjects = self.subjects.after(&plan);
        let before = std::mem::replace(self, Self { subjects, ..Self::new(plan, with_messages) });
        (self.builder, self.hosts, self.batch) = (before.builder, before.hosts, before.batch);
        self.messages = before.messages;
        self.text_columns = before.text_columns;
        before.plan
    }

    /// Whether the current record is the header again.
    pub(super) fn is_names(&self, record: &Splitter) -> bool {
        self.plan.heads.first().is_some_and(|head| sample::is_header(record, head.iter().map(|it| it.trim())))
    }

    /// Rows of the batch under construction.
    pub(super) fn len(&self) -> usize {
        self.builder.rows() + self.hosts.rows()
    }

    /// Whether the current record is a line of names or units.
    pub(super) fn is_header(&self, record: &Splitter) -> bool {
        let is_one = |head: &Vec<String>| sample::is_header(record, head.iter().map(|name| name.trim()));
        self.plan.heads.iter().any(is_one)
    }

    /// Whether the current record is one that can be read, and its recorded time; without a column of times, now.
    pub(super) fn check(&mut self, record: &Splitter, now_ns: i64, replay: Replay) -> Result<i64, Refusal> {
        let (found, wanted) = (record.len(), self.plan.columns.len());
        // A delimiter behind the last field makes no field.
        let is_fit = (self.plan.fields_min..=wanted).contains(&found)
            || (found > wanted && (wanted..found).all(|index| record.field(index).trim_ascii().is_empty()));
        if !is_fit {
            let reason = format!("{found} fields where the header has {wanted}");
            return Err(Refusal { cause: Cause::Fields, column: None, reason });
        }
        let last = found.saturating_sub(1);
        let is_cut = |tail: &Tail| found == self.plan.fields_min && tail.is_cut(record.field(last));
        if record.is_unended() && self.plan.tail.as_ref().is_some_and(is_cut) {
            let reason = "the file ends within this field".to_owned();
            return Err(Refusal { cause: Cause::Fields, column: Some(last), reason });
        }
        if let column @ Some(_) = record.not_text() {
            return Err(Refusal { cause: Cause::Encoding, column, reason: "not UTF-8".to_owned() });
        }
        let Some(times) = &mut self.times else { return Ok(now_ns) };
        let column = times.columns.first().copied();
        let time_ns = times.read(record, &self.subject).map_err(|text| Refusal {
            cause: Cause::Time,
            column,
            reason: time::TimeError::of(&text).to_string(),
        })?;
        if replay == Replay::Recorded && time_ns > now_ns.saturating_add(FUTURE_MAX_NS) {
            let reason = format!("{} is more than an hour ahead of now", time::format(time_ns));
            return Err(Refusal { cause: Cause::Future, column, reason });
        }
        Ok(time_ns)
    }

    /// Puts the current record into the batch; `false` when it has no value to put there.
    pub(super) fn take(
        &mut self,
        record: &Splitter,
        time_ns: i64,
        ledger: &mut Ledger,
    ) -> Result<bool, Refusal> {
        let parts = Arc::clone(&self.parts);
        let (mut is_taken, mut invalid) = (false, 0);
        for (number, part) in parts.iter().enumerate() {
            let mut rest = std::mem::take(&mut self.rest);
            rest.clear();
            let mut reading = RecordReading { record, rest: &mut rest, ledger: &mut *ledger };
            is_taken |= self.take_part(&mut reading, time_ns, (number, part))?;
            invalid += rest.invalid;
            self.rest = rest;
        }
        if !is_taken && invalid == 0 {
            ledger.skip(Cause::NoValue, record.record_line(), None, "no field has a value".to_owned());
        } else if !is_taken {
            ledger.emptied();
        }
        Ok(is_taken)
    }

    /// Puts a part of the record into its row, if it has a value.
    fn take_part(
        &mut self,
        reading: &mut RecordReading<'_>,
        time_ns: i64,
        (number, part): (usize, &RecordPart),
    ) -> Result<bool, Refusal> {
        let record = reading.record;
        let found = self.subjects.find(&self.plan, record, (number, &part.whose));
        let index = found.map_err(|refusal| self.of_nobody(record, refusal))?;
        let time_ns = if self.plan.is_of_processes { self.look(index, record, time_ns) } else { time_ns };
        let is_host = part.whose == Whose::Host;
        let is_shared = self.named.is_some() || self.plan.is_of_processes;
        let card = self.subjects.get_mut(index).and_then(|subject| subject.card);
        let mut places = Places {
            card: card.map(|index| RowPlace { index, time_ns, is_host, row: None, is_shared: true }),
            own: RowPlace { index, time_ns, is_host, row: None, is_shared },
        };
        for cells in &part.metrics {
            self.read_cells(reading, cells, &mut places);
        }
        for (column, name) in &part.extras {
            reading.rest.extra(name, &pointed(record.field(*column), self.plan.decimals.of_column(*column)));
        }
        let mut is_elsewhere = false;
        if let Some(columns) = self.named.filter(|_| part.whose == Whose::Row) {
            is_elsewhere = self.read_named(reading, columns, &mut places)?;
        }
        let has_card = places.card.as_ref().is_some_and(|card| card.row.is_some());
        let mut place = places.own;
        if place.row.is_none() && !reading.rest.extras.is_empty() {
            self.open_row(&mut place);
        }
        match place.row {
            Some(row) => self.put_rest(reading, &place, row),
            None => self.note_absences(&place, reading.rest),
        }
        Ok(place.row.is_some() || has_card || is_elsewhere)
    }

    /// The batches under construction that have rows: of GPUs, and of hosts. `sequence` is the number of the first.
    pub(super) fn finish(&mut self, origin: &Origin, sequence: u64) -> (Option<Batch>, Option<Batch>) {
        let batch = self.builder.finish(origin.clone(), sequence);
        let hosts = self.hosts.finish(origin.clone(), sequence + u64::from(batch.is_some()));
        self.handed_over = self.messages.as_mut().map(Messages::take).unwrap_or_default();
        self.batch += 1;
        self.by_time.clear();
        self.shared.clear();
        self.largest.clear();
        (batch, hosts)
    }

    /// The rows of the last batch as messages, if wanted.
    pub(super) fn messages(&mut self) -> Option<Vec<serde_json::Value>> {
        self.messages.is_some().then(|| std::mem::take(&mut self.handed_over))
    }

    /// Sets a metric that has columns of its own: of several values the largest, or the first that can be true.
    fn read_cells(&mut self, reading: &mut RecordReading<'_>, cells: &MetricCells, places: &mut Places) {
        let record = reading.record;
        let decimals = &self.plan.decimals;
        let name = |column: usize| self.plan.columns.get(column).map(|column| column.name.as_str());
        let (line, id) = (record.record_line(), cells.scale.id);
        let mut found: Option<(usize, Value)> = None;
        for &MetricCell { column, ref scale, is_derived } in &cells.all {
            let field = record.field(column);
            let read = match decimals.of_column(column) {
                Decimal::Point => cell::metric(field, scale),
                decimal => cell::metric(&pointed(field, decimal), scale),
            };
            match (read, found) {
                (Ok(value), None) => found = Some((column, value)),
                (Ok(value), Some((_, known))) if cells.choice == Choice::Largest => {
                    if known.as_f64() < value.as_f64() {
                        found = Some((column, value));
                    }
                }
                (Ok(value), Some((doubted, known))) => {
                    if !is_credible(id, known) && is_credible(id, value) {
                        let beside = name(column).unwrap_or_default();
                        let reason = format!("{} cannot be true beside {beside}", known.as_f64());
                        reading.ledger.value(line, name(doubted), reason);
                        found = Some((column, value));
                    }
                }
                (Err(_), _) if is_derived => {}
                (Err(missing), _) => reading.missing(id, missing, name(column)),
            }
        }
        let Some((column, value)) = found else { return };
        let is_summed = self.plan.is_of_processes && id == MEMORY_USED;
        let value = if is_summed { self.summed(places.own.index, value) } else { value };
        let place = places.of(&cells.scale);
        self.set(place, &cells.scale, value);
        let Some((row, _)) = place.row.filter(|_| !place.is_host) else { return };
        if let Some(messages) = &mut self.messages {
            let name = self.plan.columns.get(column).map_or("", |c| &c.name);
            match cells.message {
                None => {
                    let written = pointed(record.field(column), self.plan.decimals.of_column(column));
                    messages.put(row, name, text(&written));
                }
                Some(name) => messages.put_value(row, name, value),
            }
        }
    }

    /// The row of a place, which is opened if it is not.
    fn row(&mut self, place: &mut RowPlace) -> Option<RowId> {
        match place.row {
            Some((row, _)) => Some(row),
            None => self.open_row(place),
        }
    }

    #[inline]
    fn set(&mut self, place: &mut RowPlace, scale: &Scale, value: Value) {
        let row = self.row(place);
        if let Some(row) = row.filter(|_| place.is_host) {
            let _set = self.hosts.set(row, scale.id, value);
        } else if let Some(row) = row {
            let is_plain = scale.second.is_none() && !scale.is_own;
            let metric = if is_plain { scale.id } else { self.settle(place.index, row, scale, value) };
            // The value is in the catalogue's range, which is all that could be wrong with it.
            let _set = self.builder.set(row, metric, value);
        }
    }

    /// The metric of a shared name: the first, unless the GPU has that under another name. If that name comes
    /// later, the value that the row got under the shared one moves to the second.
    fn settle(&mut self, subject: usize, row: RowId, scale: &Scale, value: Value) -> MetricId {
        let Some(subject) = self.subjects.get_mut(subject) else { return scale.id };
        match scale.second {
            Some(second) if subject.has_own => return second,
            Some(second) => drop(self.shared.insert(row, (second, value))),
            None => {
                subject.has_own = true;
                if let Some((second, value)) = self.shared.remove(&row) {
                    let _set = self.builder.set(row, second, value);
                }
            }
        }
        scale.id
    }

    /// The row of the batch that the record fills: a new one, or in the long form the one its GPU has at that time.
    fn open_row(&mut self, place: &mut RowPlace) -> Option<RowId> {
        let Self { subjects, builder, hosts, by_time, messages, .. } = self;
        let subject = subjects.get_mut(place.index)?;
        let builder = if place.is_host { hosts } else { builder };
        let id = subject.id_in(self.batch, builder, place.is_shared);
        let long = place.is_shared;
        if self.times.is_none() && !long {
            place.time_ns = subject.untimed(place.time_ns);
        }
        let time_ns = place.time_ns;
        let (row, known) = match subject.row {
            Some((at, row)) if long && at == time_ns => (row, true),
            _ if long => (
                *by_time.entry((place.is_host, id, time_ns)).or_insert_with(|| builder.row(time_ns, id)),
                false,
            ),
            _ => (builder.row(time_ns, id), false),
        };
        subject.row = Some((time_ns, row));
        if let Some(messages) = messages.as_mut().filter(|_| !place.is_host) {
            messages.begin(row, time_ns, &subject.fields);
        }
        place.row = Some((row, known));
        Some(row)
    }

    /// Puts absences and unknown columns into the row of a place ([`RowPlace::row`]).
    fn put_rest(
        &mut self,
        reading: &mut RecordReading<'_>,
        place: &RowPlace,
        (row, is_known): (RowId, bool),
    ) {
        let RecordReading { record, rest, ledger } = reading;
        let Self { subjects, builder, hosts, text_columns, messages, .. } = self;
        let builder = if place.is_host { hosts } else { builder };
        let Some(subject) = subjects.get_mut(place.index) else { return };
        for (metric, reason) in &rest.absent {
            builder.absent(row, *metric, *reason);
        }
        let of_subject = subject.extras.iter().filter(|_| !is_known);
        for cell in of_subject.chain(&rest.extras) {
            let outcome = match cell.number {
                Some(number) if !text_columns.contains(&cell.name) => {
                    builder.set_extra(row, &cell.name, number)
                }
                _ => builder.set_extra_text(row, &cell.name, &cell.text),
            };
            if let Err(error) = outcome {
                ledger.value(record.record_line(), Some(&cell.name), error.to_string());
                continue;
            }
            let is_new_text = cell.number.is_none() && !text_columns.contains(&cell.name);
            if is_new_text && text_columns.len() < TEXT_COLUMNS_MAX {
                text_columns.insert(Arc::clone(&cell.name));
            }
            if let Some(messages) = messages.as_mut().filter(|_| !place.is_host) {
                messages.put_extra(row, cell);
            }
        }
    }

    /// Absences of a record without values count for the row that the GPU has at that time, if it has one.
    fn note_absences(&mut self, place: &RowPlace, rest: &RecordRest) {
        let subject = self.subjects.get_mut(place.index).filter(|subject| subject.batch == self.batch);
        let row = subject.and_then(|subject| subject.row).filter(|(at, _)| *at == place.time_ns);
        if let Some((_, row)) = row {
            let builder = if place.is_host { &mut self.hosts } else { &mut self.builder };
            for (metric, reason) in &rest.absent {
                builder.absent(row, *metric, *reason);
            }
        }
    }
}

impl Subject {
    /// Its identity in the batch under construction; one that other subjects may have, too, if they share rows.
    fn id_in(&mut self, batch: u64, builder: &mut BatchBuilder, is_shared: bool) -> IdentityId {
        match self.id {
            Some(id) if self.batch == batch => id,
            _ => {
                let id = if is_shared {
                    builder.intern(&self.identity)
                } else {
                    builder.add_identity(&self.identity)
                };
                (self.batch, self.id, self.row) = (batch, Some(id), None);
                id
            }
        }
    }

    /// A time for a row that has none: now, or just behind the GPU's last row.
    fn untimed(&mut self, now_ns: i64) -> i64 {
        self.last_ns = now_ns.max(self.last_ns.saturating_add(UNTIMED_STEP_NS));
        self.last_ns
    }
}

impl RecordReading<'_> {
    /// Notes why a field has no value.
    fn missing(&mut self, id: MetricId, missing: Missing, name: Option<&str>) {
        match missing {
            Missing::Absent(reason) => {
                self.rest.absent.push((id, reason));
                self.ledger.counts.values_absent += 1;
            }
            Missing::Invalid(reason) => {
                self.rest.absent.push((id, AbsenceReason::Invalid));
                self.rest.invalid += 1;
                self.ledger.value(self.record.record_line(), name, reason);
            }
        }
    }
}

impl RecordRest {
    fn clear(&mut self) {
        self.absent.clear();
        self.extras.clear();
        self.invalid = 0;
    }

    fn extra(&mut self, name: &Arc<str>, field: &[u8]) {
        let text = text(field).trim();
        if absence(text).is_none() {
            let number = cell::plain_number(text);
            self.extras.push(ExtraCell { name: Arc::clone(name), number, text: text.to_owned() });
        }
    }
}

/// A field that was checked to be text.
fn text(field: &[u8]) -> &str {
    std::str::from_utf8(field).unwrap_or_default()
}
