//! What each column of a file is, from their names and the first rows.

mod in_cells;
mod last_number;
mod names;
mod topic;
mod unwritten;

use std::collections::HashMap;
use std::sync::Arc;

use gpuvitals_core::catalogue::MetricId;
use gpuvitals_core::foreign::{
    self, Choice, Dialect, DialectColumn, ForeignColumn, Meaning, ToolField, Topic,
};
use gpuvitals_core::{IdentityColumn, Table, time};

use super::cell::{self, Missing, PairSide, Scale};
use super::decimal::{Decimal, Decimals, pointed};
use super::hints::{ColumnHint, HintSense, Hints};
use super::labels;
use super::owner;
use super::plan::{Column, CsvForm, Owner, Plan, Role, Surroundings, Unfit, extra_name, is_named};
use super::sample::Sample;
use super::tail::Tail;
use super::when;

const TEMPERATURE: MetricId = MetricId::of("temperature_c");

/// Why a temperature is none.
const COLD: &str = "its values are never above 5, as no GPU's temperature is";

/// Rounds in which columns whose values are impossible give their meaning to the next of that meaning.
const ROUNDS_MAX: usize = 6;

impl Plan {
    /// Settles what each column is.
    pub(super) fn new(
        names: &[String],
        sample: &Sample,
        around: Surroundings<'_>,
    ) -> Result<Self, (Unfit, String)> {
        let is_there = |hint: &&ColumnHint| names.iter().any(|name| is_named(name, &hint.name));
        let missing: Vec<&ColumnHint> = around.hints.columns.iter().filter(|hint| !is_there(hint)).collect();
        if let Some(hint) = missing.first().filter(|_| !around.hints.of_several) {
            return Err((Unfit::Hint(hint.name.clone()), names.join(", ")));
        }
        let decimals = Decimals::of(sample, names.len(), around.delimiter);
        let draft = Draft {
            names,
            sample,
            around,
            dialect: Dialect::of(names),
            topic: topic::topic(names, around.stem, around.hints),
        };
        let mut dropped = HashMap::new();
        let mut plan = draft.plan(&dropped, &decimals);
        for _ in 0..ROUNDS_MAX {
            let misfits = plan.misfits_in(sample, around.hints);
            if misfits.is_empty() {
                break;
            }
            dropped.extend(misfits);
            plan = draft.plan(&dropped, &decimals);
        }
        plan.name_after_file(around.stem);
        let outcome = plan.check(names).and_then(|()| plan.remark(&draft)).and_then(|()| plan.check(names));
        for hint in missing {
            plan.notes.push(format!("there is no column {:?}, which --column speaks of", hint.name));
        }
        match outcome {
            Ok(()) => Ok(plan),
            Err(unfit) => Err((unfit, plan.summary())),
        }
    }

    /// A file of one GPU may say in its name which.
    fn name_after_file(&mut self, stem: &str) {
        let is_gpus = |column: &Column| matches!(&column.role, Role::Metric(scale) if scale.id.metric().table == Table::GpuEvents);
        if !self.is_told()
            && self.columns.iter().any(is_gpus)
            && let Some(number) = owner::in_file_name(stem)
        {
            self.notes.push(format!("the file's name says that it is of GPU {number}"));
            self.owner.gpu = Some(number.to_owned());
        }
    }

    /// Columns whose values cannot be what their name says, with the reason.
    fn misfits_in(&mut self, sample: &Sample, hints: &Hints) -> Vec<(usize, String)> {
        let mut misfits = Vec::new();
        for (index, column) in self.columns.iter().enumerate() {
            let Role::Metric(scale) = &column.role else { continue };
            if hints.columns.iter().any(|hint| is_named(&column.name, &hint.name)) {
                continue;
            }
            let mut fit = Fit::default();
            for text in sample.cells(index) {
                fit.take(text, scale, self.decimals.of_column(index));
            }
            let why =
                fit.reason().or_else(|| self.is_sampling(index, scale, sample).then(|| COLD.to_owned()));
            misfits.extend(why.map(|reason| (index, reason)));
        }
        let fits = self.series_in(sample);
        let reasons = fits.into_iter().filter_map(|(series, fit, _)| Some((series.name, fit.reason()?)));
        self.misfits = reasons.collect();
        misfits
    }

    /// Whether a temperature is that of a language model's sampling.
    fn is_sampling(&self, index: usize, scale: &Scale, sample: &Sample) -> bool {
        const HOTTEST: f64 = 5.0;
        let is_bare = |column: &Column| column.unit.is_none() && is_named(&column.name, "temperature");
        if scale.id != TEMPERATURE || self.dialect.is_some() || !self.columns.get(index).is_some_and(is_bare)
        {
            return false;
        }
        let texts = sample.cells(index).filter(|text| foreign::absence(text).is_none());
        let numbers: Option<Vec<f64>> = texts.map(cell::plain_number).collect();
        let numbers = numbers.unwrap_or_default();
        numbers.len() > 1
            && numbers.iter().all(|number| (0.0..=HOTTEST).contains(number))
            && numbers.iter().any(|number| number.fract() != 0.0)
    }

    /// Settles widths and times, and says what was guessed.
    fn remark(&mut self, draft: &Draft<'_>) -> Result<(), Unfit> {
        let widest = draft.sample.widths().max().unwrap_or(self.columns.len());
        if widest < self.columns.len() && widest > 0 {
            self.fields_min = widest;
            let lacking: Vec<&str> =
                self.columns.iter().skip(widest).map(|column| column.name.as_str()).collect();
            self.warnings.push(format!(
                "no row has the last fields, so these columns are absent: {}",
                lacking.join(", ")
            ));
            for column in self.columns.iter_mut().skip(widest) {
                column.why = Some("no row has this field".to_owned());
            }
        }
        self.tail = self.fields_min.checked_sub(1).and_then(|last| Tail::of(draft.sample, last));
        for column in self.columns.iter().filter(|column| !matches!(column.role, Role::Metric(_))) {
            if let (Some(why), Role::Extra(name)) = (&column.why, &column.role)
                && widest >= self.columns.len()
            {
                let remedy = if why == COLD {
                    String::new()
                } else {
                    format!("; --column \"{}=METRIC:UNIT\" names another unit", column.name)
                };
                self.warnings
                    .push(format!("column {} is kept under the name {name}: {why}{remedy}", column.name));
            }
        }
        for (name, why) in &self.misfits {
            self.warnings.push(format!("metric {name} is kept under its own name: {why}"));
        }
        if self.decimals.is_comma {
            self.notes.push("numbers are read with a decimal comma".to_owned());
        }
        for column in self.decimals.grouped.iter().filter_map(|index| self.columns.get(*index)) {
            self.notes.push(format!("points in column {} group thousands", column.name));
        }
        when::settle(self, draft.sample, draft.around)?;
        for index in 0..self.columns.len() {
            let example = draft.sample.cells(index).find(|text| foreign::absence(text).is_none());
            if let Some(column) = self.columns.get_mut(index) {
                column.example = example.map(shortened);
            }
        }
        self.settle_series(draft.sample);
        Ok(())
    }

    fn check(&self, names: &[String]) -> Result<(), Unfit> {
        let has = |is: fn(&Role) -> bool| self.columns.iter().any(|column| is(&column.role));
        let metric = has(|role| matches!(role, Role::Metric(_) | Role::MetricValue));
        let valued = metric || (self.names_gpu() && has(|role| matches!(role, Role::Extra(_))));
        if valued {
            return Ok(());
        }
        let data = names.iter().find(|name| {
            let name = name.trim();
            !name.is_empty() && (cell::plain_number(name).is_some() || time::parse(name).is_ok())
        });
        Err(data.map_or(Unfit::NoMetric, |name| Unfit::Data(name.trim().chars().take(64).collect())))
    }
}

/// A value as it is shown.
fn shortened(text: &str) -> String {
    text.chars().take(40).collect()
}

/// How the values of a column fit its metric.
#[derive(Debug, Default)]
struct Fit {
    values: u64,
    bad: u64,
    first: Option<String>,
}

impl Fit {
    fn take(&mut self, text: &str, scale: &Scale, decimal: Decimal) {
        self.take_pointed(&pointed(text.as_bytes(), decimal), scale);
    }

    /// The same of a cell with a decimal point.
    fn take_pointed(&mut self, cell: &[u8], scale: &Scale) {
        if cell.is_empty() {
            return;
        }
        match cell::metric(cell, scale) {
            Ok(_) => self.values += 1,
            Err(Missing::Absent(_)) => {}
            Err(Missing::Invalid(reason)) => {
                self.values += 1;
                self.bad += 1;
                self.first.get_or_insert(reason);
            }
        }
    }

    /// Why the column does not have this metric: more than a hundredth of its values cannot be true, and not just one.
    fn reason(&self) -> Option<String> {
        let first = self.first.as_ref().filter(|_| self.bad >= 2 && self.bad * 100 > self.values)?;
        Some(format!("{} of its first {} values cannot be true ({first})", self.bad, self.values))
    }
}

/// What a plan is made from.
pub(super) struct Draft<'a> {
    pub(super) names: &'a [String],
    pub(super) sample: &'a Sample,
    around: Surroundings<'a>,
    dialect: Option<&'static Dialect>,
    topic: Topic,
}

impl Draft<'_> {
    fn plan(&self, dropped: &HashMap<usize, String>, decimals: &Decimals) -> Plan {
        let hints = self.around.hints;
        let mut senses: Vec<Sense> = (0..self.names.len()).map(|index| self.sense(index, dropped)).collect();
        self.number(&mut senses, dropped);
        let after_file = self.read_file_name(&mut senses, dropped);
        self.place_hints(&mut senses);
        let doubled = self.number_doubled(&mut senses);
        disown(&mut senses);
        self.name_metrics(&mut senses);
        let is_of_processes = self.put_processes_together(&mut senses);
        let has = |meaning: Meaning| senses.iter().any(|sense| sense.meaning == meaning);
        let is_long = has(Meaning::MetricName) && has(Meaning::MetricValue);
        let form = if is_long { CsvForm::Long } else { CsvForm::Wide };
        let completed = if is_long { None } else { self.complete_names(&mut senses, dropped) };
        self.doubt(&mut senses);
        self.doubt_models(&mut senses);
        if let Some(sense) = self.host_column(&senses).and_then(|host| senses.get_mut(host)) {
            sense.meaning = Meaning::Identity(IdentityColumn::Node);
        }
        let gpu = self.gpu_column(&senses);
        if let Some(sense) = gpu.and_then(|gpu| senses.get_mut(gpu)) {
            sense.meaning = Meaning::Gpu;
        }
        let guessed = senses.iter().zip(self.names).filter(|(sense, _)| sense.evidence == Evidence::Numbers);
        let notes = guessed.map(|(_, name)| {
            format!("the numbers of column {} are shares, so it is taken for the load", name.trim())
        });
        let mut notes: Vec<String> = notes.collect();
        notes.extend(self.guess_units(&mut senses, decimals));
        if is_of_processes {
            notes.push("the memory of a GPU is the sum of its processes'".to_owned());
        }
        notes.extend(doubled.map(str::to_owned));
        notes.extend(after_file.into_iter().chain(completed));
        let mut runs = self.names.iter().filter_map(|name| self.run(name));
        if let Some(first) = self.first_run().filter(|first| runs.any(|run| run != *first)) {
            notes.push(format!(
                "only the run {first} is read; columns of other runs are kept under their own names"
            ));
        }
        let roles = self.roles(&senses, gpu, form);
        let columns = self.columns(&senses, roles, dropped);
        Plan {
            columns,
            form,
            dialect: self.dialect,
            fields_min: self.names.len(),
            decimals: decimals.clone(),
            times: None,
            owner: Owner {
                host: hints.host.clone(),
                usual_host: hints.usual_host.clone().unwrap_or_else(|| self.around.stem.to_owned()),
                gpu: hints.gpu.clone(),
            },
            labels_name_gpus: self.labels_name_gpus(&senses),
            is_of_processes,
            heads: vec![self.names.iter().map(|name| name.trim().to_owned()).collect()],
            misfits: HashMap::new(),
            series: Vec::new(),
            repeats: None,
            tail: None,
            apart: None,
            warnings: Vec::new(),
            notes,
        }
    }

    /// The columns, each with what it is.
    fn columns(
        &self,
        senses: &[Sense],
        roles: Vec<Result<Role, Option<String>>>,
        dropped: &HashMap<usize, String>,
    ) -> Vec<Column> {
        let mut taken = HashMap::new();
        let mut columns = Vec::with_capacity(self.names.len());
        for (index, (name, (sense, role))) in self.names.iter().zip(senses.iter().zip(roles)).enumerate() {
            let name: String = name.trim().chars().filter(|c| !c.is_control()).collect();
            let is_nothing =
                name.is_empty() && self.sample.len() > 0 && self.sample.cells(index).all(str::is_empty);
            let (role, lost) = match role {
                _ if is_nothing => (Role::Nothing, None),
                _ if sense.is_of_process => {
                    (Role::Nothing, Some("the processes of a GPU are put together".to_owned()))
                }
                Ok(role) => (role, None),
                Err(why) => (Role::Extra(extra_name(&name, index, &mut taken)), why),
            };
            let gpu = sense.gpu.as_deref().filter(|_| matches!(role, Role::Metric(_))).map(Arc::from);
            let why = dropped.get(&index).cloned();
            let (unit, choice) = (sense.unit.clone(), sense.choice);
            columns.push(Column { name, role, gpu, unit, choice, why, lost, example: None });
        }
        columns
    }

    /// What each column is, or why it is not what it could be.
    fn roles(
        &self,
        senses: &[Sense],
        gpu: Option<usize>,
        form: CsvForm,
    ) -> Vec<Result<Role, Option<String>>> {
        // The user's word goes first, then a tool's own, then a name that says that it is of a GPU; of other columns with
        // one meaning the first gets it.
        let mut order: Vec<usize> = (0..self.names.len()).collect();
        order.sort_by_key(|index| {
            let name = self.names.get(*index).map_or("", |name| name.trim());
            senses.get(*index).map_or(3, |sense| match sense.choice {
                _ if sense.evidence == Evidence::User => 0,
                Some(_) => 1,
                None if foreign::names_gpu(name) => 2,
                None => 3,
            })
        });
        let mut roles: Vec<Result<Role, Option<String>>> = vec![Err(None); self.names.len()];
        let mut once: HashMap<(Once, Option<String>), usize> = HashMap::new();
        for index in order {
            let (Some(sense), Some(name)) = (senses.get(index), self.names.get(index)) else { continue };
            let role = role(name, sense, form).ok_or_else(|| sense.why.clone()).and_then(|role| {
                let first = match gpu {
                    Some(gpu) if sense.meaning == Meaning::Gpu => gpu,
                    _ => *once.entry((Once::of(&role), sense.gpu.clone())).or_insert(index),
                };
                let is_one_of_several = || {
                    let chosen = |index: usize| senses.get(index).and_then(|sense| sense.choice);
                    chosen(first).is_some() && sense.choice.is_some()
                };
                if first == index || matches!(role, Role::Time) || is_one_of_several() {
                    return Ok(role);
                }
                let other = self.names.get(first).map_or("", |name| name.trim());
                Err(Some(format!("column {other} is taken for the same")))
            });
            if let Some(slot) = roles.get_mut(index) {
                *slot = role;
            }
        }
        roles
    }

    fn run<'b>(&self, name: &'b str) -> Option<&'b str> {
        self.dialect.and_then(|dialect| dialect.run(name))
    }

    /// Of runs beside each other the first is read: each is a machine's own.
    fn first_run(&self) -> Option<&str> {
        self.names.iter().find_map(|name| self.run(name))
    }

    fn sense(&self, index: usize, dropped: &HashMap<usize, String>) -> Sense {
        let Some(name) = self.names.get(index) else { return Sense::default() };
        if let Some(hint) = self.around.hints.columns.iter().rev().find(|hint| is_named(name, &hint.name)) {
            return Sense { evidence: Evidence::User, ..Sense::of_hint(&hint.sense) };
        }
        if dropped.contains_key(&index) {
            return Sense::default();
        }
        if let Some(sense) = Sense::labelled(name) {
            return sense;
        }
        if let (Some(run), Some(first)) = (self.run(name), self.first_run())
            && run != first
        {
            return Sense { why: Some(format!("it is of another run than {first}")), ..Sense::default() };
        }
        match self.dialect.and_then(|dialect| dialect.column(name)) {
            Some(DialectColumn::Metric { id, factor, gpu, unit, choice, field }) => {
                let meaning = Meaning::Metric(id, factor);
                return Sense { meaning, gpu, unit, choice, field, ..Sense::default() };
            }
            Some(DialectColumn::Identity(column)) => {
                return Sense { meaning: Meaning::Identity(column), ..Sense::default() };
            }
            Some(DialectColumn::Gpu) => {
                return Sense { meaning: Meaning::Gpu, evidence: Evidence::Tool, ..Sense::default() };
            }
            Some(DialectColumn::Own) => {
                let tool = self.dialect.map_or("", |dialect| dialect.name);
                let why = Some(format!("what {tool} writes there is no metric"));
                return Sense { why, ..Sense::default() };
            }
            None => {}
        }
        let column = foreign::column(name, self.topic);
        let odd = || {
            let (id, unit) = foreign::odd_unit(name, self.topic)?;
            Some(format!("{unit} is no unit that {} can have", id.metric().column))
        };
        let cells = self.in_cells(index);
        if let Some(column) = cells.as_ref().and_then(|cells| self.with_unit(name, cells, &column)) {
            let is_pair = cells.is_some_and(|cells| cells.is_pair);
            let ForeignColumn { meaning, gpu, .. } = column;
            return Sense { meaning, gpu, evidence: Evidence::Cells, is_pair, ..Sense::default() };
        }
        let is_pair = cells.is_some_and(|cells| cells.is_pair);
        if self.topic == Topic::Host && column.meaning.is_of_gpus() {
            let why = Some("it is beside the CPU's, and nothing names a GPU".to_owned());
            return Sense { why, ..Sense::default() };
        }
        let why = (column.meaning == Meaning::Unknown).then(odd).flatten();
        Sense {
            is_pair,
            meaning: column.meaning,
            gpu: column.gpu,
            unit: column.unit,
            why,
            ..Sense::default()
        }
    }
}

/// What says what a column is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Evidence {
    /// The name that its header has.
    Name,
    /// The user, by a hint.
    User,
    /// The tool that wrote the file.
    Tool,
    /// Its numbers, and not its name.
    Numbers,
    /// The units in its cells, with its name.
    Cells,
}

/// What a column is before the others are looked at.
#[derive(Debug, Clone)]
pub(super) struct Sense {
    pub(super) meaning: Meaning,
    pub(super) gpu: Option<String>,
    pub(super) unit: Option<String>,
    pub(super) choice: Option<Choice>,
    pub(super) field: Option<&'static ToolField>,
    pub(super) evidence: Evidence,
    /// Its cells are a value and the most that it can be.
    pub(super) is_pair: bool,
    /// It is of one process, of which a GPU has several.
    pub(super) is_of_process: bool,
    /// Why it is unknown.
    pub(super) why: Option<String>,
}

impl Default for Sense {
    fn default() -> Self {
        Self {
            meaning: Meaning::Unknown,
            gpu: None,
            unit: None,
            choice: None,
            field: None,
            evidence: Evidence::Name,
            is_pair: false,
            is_of_process: false,
            why: None,
        }
    }
}

impl Sense {
    fn of_hint(sense: &HintSense) -> Self {
        let (meaning, unit) = match sense {
            HintSense::Metric(id, factor, unit) => (Meaning::Metric(*id, *factor), unit.clone()),
            HintSense::Time(_) => (Meaning::Time, None),
            HintSense::Gpu => (Meaning::Gpu, None),
            HintSense::Host => (Meaning::Identity(IdentityColumn::Node), None),
            HintSense::Own => (Meaning::Unknown, None),
        };
        let why = matches!(sense, HintSense::Own).then(|| "you say so".to_owned());
        Self { meaning, unit, why, ..Self::default() }
    }
}

/// Beside columns of a GPU each, one of a GPU's metric without it does not say whose it is.
fn disown(senses: &mut [Sense]) {
    if senses.iter().all(|sense| sense.gpu.is_none()) {
        return;
    }
    for sense in senses.iter_mut().filter(|sense| sense.gpu.is_none() && sense.meaning.is_of_gpus()) {
        sense.meaning = Meaning::Unknown;
        sense.why = Some("it does not say which GPU's it is, beside columns that do".to_owned());
    }
}

/// What only one column of a file can be.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Once {
    Metric(MetricId, bool),
    Identity(IdentityColumn),
    Other(std::mem::Discriminant<Role>),
}

impl Once {
    fn of(role: &Role) -> Self {
        match role {
            Role::Metric(scale) => Self::Metric(scale.id, scale.second.is_some()),
            Role::Identity(column) => Self::Identity(*column),
            other => Self::Other(std::mem::discriminant(other)),
        }
    }
}

fn role(name: &str, sense: &Sense, form: CsvForm) -> Option<Role> {
    let is_long = form == CsvForm::Long;
    Some(match sense.meaning {
        Meaning::Time => Role::Time,
        Meaning::Gpu => Role::Gpu,
        Meaning::Identity(column) => Role::Identity(column),
        Meaning::Metric(id, factor) => {
            let name = labels::without(name);
            let scale = Scale::new(id, factor, name).written_as(sense.field);
            Role::Metric(if sense.is_pair { scale.of_pair(PairSide::First) } else { scale })
        }
        Meaning::MetricName if is_long => Role::MetricName,
        Meaning::MetricValue if is_long => Role::MetricValue,
        Meaning::Unknown if is_long && sense.is_of_units(name) => Role::Unit,
        Meaning::Labels => Role::Labels,
        Meaning::MetricName | Meaning::MetricValue | Meaning::Unknown => return None,
    })
}
