//! The names of metrics in the long form: what each is, and whose its values are.

use std::borrow::Cow;
use std::sync::Arc;

use gpuvitals_core::Table;
use gpuvitals_core::batch::is_unknown;
use gpuvitals_core::foreign::{self, Meaning, Topic};

use super::cell::{Scale, plain_number};
use super::labels;
use super::part::Whose;
use super::plan::{GpuSaid, Plan};

/// What a name is.
#[derive(Debug, Clone)]
pub(super) struct Series {
    /// The name, with what of the labels tells it apart.
    pub(super) name: String,
    pub(super) named: SeriesMeaning,
    /// The unit in the name.
    pub(super) unit: Option<String>,
}

/// The meaning of a name.
#[derive(Debug, Clone)]
pub(super) enum SeriesMeaning {
    Metric {
        scale: Scale,
        /// Whose it is, if not the record's.
        whose: Option<Whose>,
        /// Of several values of one GPU and time the largest counts.
        is_of_several: bool,
    },
    /// Kept under this name.
    Extra(Arc<str>),
}

/// What a name of the long form is.
#[derive(Debug, Clone)]
pub(super) enum SeriesName {
    Known(SeriesMeaning),
    /// Its record's labels say it.
    ByLabels,
}

impl Series {
    /// What a record's name is. `labels` is empty where it has none.
    pub(super) fn of(name: &str, labels: &str, said: GpuSaid) -> Self {
        let name = name.trim();
        if foreign::depends_on_labels(name)
            && let Some(exported) = exported(name, labels)
        {
            let named = match exported.metric {
                Some((id, factor)) => {
                    let scale = Scale::new(id, factor, name);
                    SeriesMeaning::Metric { scale, whose: None, is_of_several: exported.is_of_several }
                }
                None => SeriesMeaning::Extra(own_name(&exported.name)),
            };
            return Self { name: exported.name, named, unit: None };
        }
        let column = foreign::column(name, Topic::Gpu);
        let named = match column.meaning {
            Meaning::Metric(id, factor) => {
                let is_host = id.metric().table == Table::SystemEvents;
                let gpu = column.gpu.filter(|_| said == GpuSaid::ByName).map(|gpu| Whose::Gpu(gpu.into()));
                let whose = if is_host { Some(Whose::Host) } else { gpu };
                SeriesMeaning::Metric { scale: Scale::new(id, factor, name), whose, is_of_several: false }
            }
            _ => SeriesMeaning::Extra(name.into()),
        };
        Self { name: name.to_owned(), named, unit: column.unit }
    }

    /// The same for values beside which this unit stands.
    pub(super) fn in_unit(mut self, unit: &str) -> Self {
        if let SeriesMeaning::Metric { scale, .. } = &mut self.named
            && !foreign::is_dcgm(&self.name)
            && let Some(factor) = foreign::unit_factor(unit, scale.id.metric())
        {
            *scale = scale.in_unit(factor);
            self.unit = Some(unit.to_owned());
        }
        self
    }

    /// The same as [`Series::of`], but for names whose values cannot be what they say.
    pub(super) fn in_plan(name: &str, labels: &str, plan: &Plan) -> Self {
        let mut series = Self::of(name, labels, plan.gpu_said());
        if plan.misfits.contains_key(&series.name) {
            series.named = SeriesMeaning::Extra(own_name(&series.name));
        }
        series
    }
}

/// The value of a name with the unit that stands beside it: `100` and `mW` are `100 mW`. A word that is no unit says nothing, nor
/// does one beside what is no plain number or has DCGM's name.
pub(super) fn united<'a>(name: &str, value: &'a [u8], unit: &str) -> Cow<'a, [u8]> {
    if unit.is_empty() || !foreign::is_unit(unit) || foreign::is_dcgm(name) {
        return Cow::Borrowed(value);
    }
    match std::str::from_utf8(value).ok().and_then(plain_number) {
        // Without an exponent, which has no place before a unit.
        Some(number) => Cow::Owned(format!("{number} {unit}").into_bytes()),
        None => Cow::Borrowed(value),
    }
}

fn exported(name: &str, text: &str) -> Option<foreign::Exported> {
    let labels = labels::parse(text)?;
    let label = |wanted: &str| {
        let found = labels.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted));
        found.map(|(_, value)| Cow::clone(value).into_owned())
    };
    foreign::exported(name, &label)
}

/// The name of a column for a metric that is not what its name says.
fn own_name(name: &str) -> Arc<str> {
    if is_unknown(Table::GpuEvents, name) { name.into() } else { format!("{name}_2").into() }
}
