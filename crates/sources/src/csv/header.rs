//! The meaning of a file's columns, from its first line.

use std::collections::HashSet;
use std::sync::Arc;

use gpuvitals_core::batch::is_unknown;
use gpuvitals_core::foreign::{Meaning, gpu_rank, meaning};
use gpuvitals_core::{IdentityColumn, Table, time};

use super::cell::{self, Scale};

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
    Labels,
}

/// One column of the file.
#[derive(Debug, Clone)]
pub(super) struct Column {
    /// Name in the file, for reports.
    pub(super) name: String,
    pub(super) role: Role,
}

/// The columns of a file.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) columns: Vec<Column>,
    pub(super) form: CsvForm,
}

/// A first line that cannot be used as a header.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unfit {
    /// It looks like a row of data: this field is a number or a time.
    Data(String),
    /// No column names a GPU.
    NoGpu,
    /// No column has values.
    NoMetric,
}

impl Plan {
    /// Reads a header.
    pub(super) fn new(names: &[String]) -> Result<Self, Unfit> {
        let meanings: Vec<Meaning> = names.iter().map(|name| meaning(name)).collect();
        let long = meanings.contains(&Meaning::MetricName) && meanings.contains(&Meaning::MetricValue);
        // Of several that may identify the GPU the best: in id,timestamp,gpu_id the first numbers the rows.
        let ranked = names.iter().enumerate().filter_map(|(index, name)| Some((gpu_rank(name)?, index)));
        let gpu = ranked.min().map(|(_, index)| index);
        let mut taken: HashSet<String> = HashSet::new();
        let mut once: Vec<(Meaning, bool)> = Vec::new();
        let mut columns = Vec::with_capacity(names.len());
        for (index, (name, meaning)) in names.iter().zip(meanings).enumerate() {
            let name = &name.trim().chars().filter(|c| !c.is_control()).collect::<String>();
            let known = role(name, meaning, long).filter(|_| meaning != Meaning::Gpu || gpu == Some(index));
            // Of two columns with one meaning the first gets it; the other is kept under its own name.
            let single = match &known {
                Some(Role::Metric(scale)) => (Meaning::Metric(scale.id, 1.0), scale.second.is_some()),
                _ => (meaning, false),
            };
            let role = known.filter(|_| !once.contains(&single));
            let role = role.unwrap_or_else(|| Role::Extra(extra_name(name, index, &mut taken)));
            if !matches!(role, Role::Extra(_)) {
                once.push(single);
            }
            columns.push(Column { name: name.to_owned(), role });
        }
        let plan = Self { columns, form: if long { CsvForm::Long } else { CsvForm::Wide } };
        plan.checked(names)
    }

    /// The first column with that role, if there is one.
    pub(super) fn find(&self, is: impl Fn(&Role) -> bool) -> Option<usize> {
        self.columns.iter().position(|column| is(&column.role))
    }

    fn checked(self, names: &[String]) -> Result<Self, Unfit> {
        let has = |is: fn(&Role) -> bool| self.columns.iter().any(|column| is(&column.role));
        let gpu = has(|role| {
            matches!(
                role,
                Role::Gpu | Role::Labels | Role::Identity(IdentityColumn::Uuid | IdentityColumn::Pci)
            )
        });
        let valued = has(|role| matches!(role, Role::Metric(_) | Role::MetricValue | Role::Extra(_)));
        if gpu && valued {
            return Ok(self);
        }
        let data = names.iter().find(|name| {
            let name = name.trim();
            !name.is_empty() && (cell::plain_number(name).is_some() || time::parse(name).is_ok())
        });
        Err(match data {
            Some(name) => Unfit::Data(name.trim().chars().take(64).collect()),
            None if gpu => Unfit::NoMetric,
            None => Unfit::NoGpu,
        })
    }
}

fn role(name: &str, meaning: Meaning, long: bool) -> Option<Role> {
    Some(match meaning {
        Meaning::Time => Role::Time,
        Meaning::Gpu => Role::Gpu,
        Meaning::Identity(column) => Role::Identity(column),
        Meaning::Metric(id, factor) => Role::Metric(Scale::new(id, factor, name)),
        Meaning::MetricName if long => Role::MetricName,
        Meaning::MetricValue if long => Role::MetricValue,
        Meaning::Labels => Role::Labels,
        Meaning::MetricName | Meaning::MetricValue | Meaning::Unknown => return None,
    })
}

/// A valid, unused name in the table for a column that the catalogue does not know.
fn extra_name(name: &str, index: usize, taken: &mut HashSet<String>) -> Arc<str> {
    let mut base: String = name.chars().filter(|c| !c.is_control()).collect();
    let len = (0..=EXTRA_NAME_LEN_MAX).rev().find(|&len| base.is_char_boundary(len)).unwrap_or(0);
    base.truncate(len);
    if base.is_empty() {
        base = format!("column_{}", index + 1);
    }
    let mut unique = base.clone();
    let mut number = 2;
    while !is_unknown(Table::GpuEvents, &unique) || !taken.insert(unique.clone()) {
        unique = format!("{base}_{number}");
        number += 1;
    }
    unique.into()
}

/// The delimiter of a header line: comma, semicolon or tab, whichever is most frequent outside quotes.
pub(super) fn delimiter(line: &[u8]) -> u8 {
    let mut counts = [(b',', 0_usize), (b';', 0), (b'\t', 0)];
    let mut quoted = false;
    for &byte in line {
        match byte {
            b'"' => quoted = !quoted,
            b'\n' | b'\r' if !quoted => break,
            _ if quoted => {}
            _ => {
                if let Some((_, count)) = counts.iter_mut().find(|(delimiter, _)| *delimiter == byte) {
                    *count += 1;
                }
            }
        }
    }
    // The first of equals: max_by_key would take the last.
    counts.iter().rev().max_by_key(|(_, count)| *count).map_or(b',', |(delimiter, _)| *delimiter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delimiter_is_the_most_frequent_outside_quotes() {
        let check = |line: &str, expected: u8| assert_eq!(delimiter(line.as_bytes()), expected, "{line}");
        check("a,b,c", b',');
        check("a;b;c,d", b';');
        check("a\tb\n;;;;", b'\t');
        check("\"a;b;c;d\",e", b',');
        check("gpu", b',');
    }
}
