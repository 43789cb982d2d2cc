//! The meaning of a file's columns.

use std::collections::HashMap;
use std::sync::Arc;

use gpuvitals_core::batch::is_unknown;
use gpuvitals_core::foreign::{Choice, Dialect, Meaning};
use gpuvitals_core::{IdentityColumn, Table};

use super::cell::Scale;
use super::decimal::Decimals;
use super::error::CsvError;
use super::hints::Hints;
use super::sample::Sample;
use super::tail::Tail;
use super::times::Times;
use crate::timeline::Replay;

/// Longest name of a column that the catalogue does not know.
const EXTRA_NAME_LEN_MAX: usize = 100;

/// The two shapes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CsvForm {
    /// One line has all the values of a GPU at an instant.
    Wide,
    /// One line has one value and the name of its metric (DCGM).
    Long,
}

/// The meaning of a column.
#[derive(Debug, Clone)]
pub(super) enum Role {
    Time,
    Gpu,
    Identity(IdentityColumn),
    Metric(Scale),
    /// Kept under this name.
    Extra(Arc<str>),
    MetricName,
    MetricValue,
    /// Of the long form: the unit of the row's value.
    Unit,
    Labels,
    /// It has neither name nor values.
    Nothing,
}

/// One column of the file.
#[derive(Debug, Clone)]
pub(super) struct Column {
    /// Name in the file, for reports.
    pub(super) name: String,
    pub(super) role: Role,
    /// The GPU that its name has in it.
    pub(super) gpu: Option<Arc<str>>,
    /// The unit in its name.
    pub(super) unit: Option<String>,
    /// Which of several columns of its metric counts.
    pub(super) choice: Option<Choice>,
    /// Why it does not have the meaning that its name suggests, which is worth a warning.
    pub(super) why: Option<String>,
    /// Why it is kept under its own name though its name may be known.
    pub(super) lost: Option<String>,
    /// A value of it.
    pub(super) example: Option<String>,
}

/// What surrounds a file's columns.
#[derive(Debug, Clone, Copy)]
pub(super) struct Surroundings<'a> {
    pub(super) hints: &'a Hints,
    /// The file's name without folder and endings.
    pub(super) stem: &'a str,
    /// Between the fields.
    pub(super) delimiter: u8,
    pub(super) replay: Replay,
    pub(super) now_ns: i64,
}

/// Who rows belong to that do not say it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Owner {
    /// The user's word.
    pub(super) host: Option<String>,
    /// Host of GPUs that mean nothing without one.
    pub(super) usual_host: String,
    /// The GPU of a file without a column for it.
    pub(super) gpu: Option<String>,
}

/// The columns of a file.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) columns: Vec<Column>,
    pub(super) form: CsvForm,
    pub(super) dialect: Option<&'static Dialect>,
    /// Fewest fields of a row: all rows may lack the same last ones.
    pub(super) fields_min: usize,
    /// How the last fields are written, if alike: so one that is cut is known.
    pub(super) tail: Option<Tail>,
    pub(super) decimals: Decimals,
    pub(super) times: Option<Times>,
    pub(super) owner: Owner,
    /// Labels name GPUs; else all values are of one.
    pub(super) labels_name_gpus: bool,
    /// Rows are of processes, whose memory is put together by GPU.
    pub(super) is_of_processes: bool,
    /// The lines that are no rows: names and units, which a log that was begun again has again.
    pub(super) heads: Vec<Vec<String>>,
    /// Of the long form: names of metrics whose values are impossible, with the reason.
    pub(super) misfits: HashMap<String, String>,
    /// Of the long form: what its names of metrics are.
    pub(super) series: Vec<Column>,
    /// The warning of rows that replace others, and the name of a column that tells them apart.
    pub(super) repeats: Option<String>,
    pub(super) apart: Option<String>,
    /// What is left out, in sentences.
    pub(super) warnings: Vec<String>,
    /// What was settled that the file does not say, in sentences.
    pub(super) notes: Vec<String>,
}

/// A file that cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unfit {
    /// The first line looks like a row of data: this field is a number or a time.
    Data(String),
    /// No column has values of a metric.
    NoMetric,
    /// The times cannot be read: column and reason.
    Time(String, String),
    /// The user speaks of a column that there is not.
    Hint(String),
}

/// Most characters of an error that says what each column is.
const SUMMARY_LEN_MAX: usize = 2_000;

/// Settles what the columns under a header are, which stands in a line of a file.
pub(super) fn settled(
    names: &[String],
    sample: &Sample,
    around: Surroundings<'_>,
    (file, line): (&Arc<str>, u64),
) -> Result<Plan, CsvError> {
    Plan::new(names, sample, around).map_err(|(unfit, summary)| {
        let file = Arc::clone(file);
        let columns = || summary.escape_debug().take(SUMMARY_LEN_MAX).collect();
        match unfit {
            Unfit::Data(field) => CsvError::NoHeader { file, line, field },
            Unfit::NoMetric if is_unparted(names) => CsvError::Unparted { file, line, header: columns() },
            Unfit::NoMetric => CsvError::NoMetric { file, line, columns: columns() },
            Unfit::Time(column, reason) => CsvError::Time { file, column, reason, columns: columns() },
            Unfit::Hint(name) => CsvError::Hint { file, name, columns: columns() },
        }
    })
}

/// Whether the header is one name that looks like several.
fn is_unparted(names: &[String]) -> bool {
    matches!(names, [one] if one.trim().contains(['|', ' ', ':']))
}

/// What says of which GPU a value of the long form is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GpuSaid {
    /// A column or a label; a GPU in the name of the metric does not count.
    ByRecord,
    /// The name of the metric, if it has a GPU.
    ByName,
}

impl Plan {
    /// The first column with that role, if there is one.
    pub(super) fn find(&self, is: impl Fn(&Role) -> bool) -> Option<usize> {
        self.columns.iter().position(|column| is(&column.role))
    }

    /// Whether these are its names, and nothing else says what its columns are: a line of units below them may be another one.
    pub(super) fn is_of(&self, names: &[String]) -> bool {
        let trimmed = |names: &[String]| names.iter().map(|name| name.trim().to_owned()).collect::<Vec<_>>();
        matches!(self.heads.as_slice(), [head] if trimmed(head) == trimmed(names))
    }

    /// What is left out and what was settled, in sentences.
    pub(super) fn remarks(&self) -> impl Iterator<Item = &str> {
        self.warnings.iter().chain(&self.notes).map(String::as_str)
    }

    /// Each column with what it is, for an error.
    pub(super) fn summary(&self) -> String {
        let one = |column: &Column| {
            if let (Role::Extra(_), Some(why)) = (&column.role, column.why.as_ref().or(column.lost.as_ref()))
            {
                return format!("{} (unknown: {why})", column.name);
            }
            let what = match &column.role {
                Role::Time => "time",
                Role::Gpu => "GPU",
                Role::Identity(identity) => identity.name(),
                Role::Metric(scale) => scale.id.metric().column,
                Role::MetricName | Role::MetricValue | Role::Unit | Role::Labels => "long form",
                Role::Extra(_) => "unknown",
                Role::Nothing => "empty",
            };
            format!("{} ({what})", column.name)
        };
        self.columns.iter().map(one).collect::<Vec<_>>().join(", ")
    }

    /// The name under which a column is kept that is nothing else.
    pub(super) fn own_name(&self, index: usize) -> Role {
        let extras = self.columns.iter().filter_map(|column| match &column.role {
            Role::Extra(name) => Some((name.to_string(), 2)),
            _ => None,
        });
        let name = self.columns.get(index).map_or("", |column| column.name.as_str());
        Role::Extra(extra_name(name, index, &mut extras.collect()))
    }

    /// The columns that tell whose value a row is.
    pub(super) fn subject(&self) -> Vec<usize> {
        let tells =
            |role: &Role| matches!(role, Role::Gpu | Role::Identity(_) | Role::Labels | Role::MetricName);
        (0..).zip(&self.columns).filter(|(_, column)| tells(&column.role)).map(|(index, _)| index).collect()
    }

    /// Whether it is told whose values each row has, by a row, a column or the user: the file is not of several GPUs that
    /// nothing tells apart.
    pub(super) fn is_told(&self) -> bool {
        self.names_gpu() || self.owner.gpu.is_some() || self.columns.iter().any(|column| column.gpu.is_some())
    }

    /// Whether rows name their GPU.
    pub(super) fn names_gpu(&self) -> bool {
        let tells = |role: &Role| match role {
            Role::Gpu | Role::Identity(IdentityColumn::Uuid | IdentityColumn::Pci) => true,
            Role::Labels => self.labels_name_gpus,
            _ => false,
        };
        self.find(tells).is_some()
    }

    /// What says of which GPU a value of the long form is.
    pub(super) fn gpu_said(&self) -> GpuSaid {
        if self.names_gpu() { GpuSaid::ByRecord } else { GpuSaid::ByName }
    }
}

/// Whether a column tells whose values a row has without the number of a GPU.
pub(super) fn tells_gpu(meaning: Meaning) -> bool {
    matches!(meaning, Meaning::Labels | Meaning::Identity(IdentityColumn::Uuid | IdentityColumn::Pci))
}

/// Whether a column has the name that the user gave.
pub(super) fn is_named(name: &str, wanted: &str) -> bool {
    name.trim().eq_ignore_ascii_case(wanted.trim())
}

/// A valid, unused name in the table for a column that the catalogue does not know. `taken` has, of each name, the number that
/// the next column of that name gets.
pub(super) fn extra_name(name: &str, index: usize, taken: &mut HashMap<String, u32>) -> Arc<str> {
    let mut base: String = name.chars().filter(|c| !c.is_control()).collect();
    let len = (0..=EXTRA_NAME_LEN_MAX).rev().find(|&len| base.is_char_boundary(len)).unwrap_or(0);
    base.truncate(len);
    if base.is_empty() {
        base = format!("column_{}", index + 1);
    }
    let mut number = taken.get(&base).copied().unwrap_or(1);
    let unique = loop {
        let unique = if number == 1 { base.clone() } else { format!("{base}_{number}") };
        number += 1;
        if is_unknown(Table::GpuEvents, &unique) && !taken.contains_key(&unique) {
            break unique;
        }
    };
    taken.insert(unique.clone(), 2);
    taken.insert(base, number);
    unique.into()
}
