//! Which columns tell whose values a row has: the GPU, the host.

use gpuvitals_core::IdentityColumn;
use gpuvitals_core::catalogue::MetricId;
use gpuvitals_core::foreign::{self, Meaning, gpu_rank};

use super::cell;
use super::draft::{Draft, Evidence, Sense};
use super::model;
use super::numbering::{self, Beside, NoGpu};
use super::owner;
use super::plan::{is_named, tells_gpu};

/// The note for columns that belong to a GPU only by their place.
const DOUBLED: &str =
    "names of columns come again, so these columns and those behind them are taken for GPU 1";

const LOAD: MetricId = MetricId::of("utilization_pct");

/// Rows of which each may be another host's.
const FEW: usize = 8;

impl Draft<'_> {
    /// What is called a GPU or an index and is none by its numbers: a load, where it is called so, or a column of its own.
    pub(super) fn doubt(&self, senses: &mut [Sense]) {
        let times = senses.iter().enumerate().filter(|(_, sense)| sense.meaning == Meaning::Time);
        let times: Vec<usize> = times.map(|(index, _)| index).collect();
        let has_load =
            senses.iter().any(|sense| matches!(sense.meaning, Meaning::Metric(id, _) if id == LOAD));
        let is_cpus = self.names.iter().any(|name| is_named(name, "cpu"));
        let beside = if is_cpus { Beside::Cpu } else { Beside::Others };
        for (index, (sense, name)) in senses.iter_mut().zip(self.names).enumerate() {
            let may_be = sense.meaning == Meaning::Gpu
                || (sense.meaning == Meaning::Unknown && sense.why.is_none() && foreign::names_device(name));
            if !may_be || matches!(sense.evidence, Evidence::User | Evidence::Tool) {
                continue;
            }
            let is_load = || {
                is_named(name, "gpu") && !has_load && numbering::is_load(self.sample, index, &times, beside)
            };
            let none = numbering::judge(self.sample, index, &times);
            let Some(none) = none.or_else(|| is_load().then_some(NoGpu::Percent)) else { continue };
            let is_load = none == NoGpu::Percent && is_named(name, "gpu") && !has_load;
            *sense = if is_load {
                Sense { meaning: Meaning::Metric(LOAD, 1.0), evidence: Evidence::Numbers, ..Sense::default() }
            } else {
                Sense { why: Some(none.reason().to_owned()), ..Sense::default() }
            };
        }
    }

    /// Of several columns that may identify the GPU the best: in id,timestamp,gpu_id the first numbers the rows.
    pub(super) fn gpu_column(&self, senses: &[Sense]) -> Option<usize> {
        let ranked = senses.iter().zip(self.names).enumerate().filter_map(|(index, (sense, name))| {
            let rank = match sense.meaning {
                Meaning::Gpu if sense.evidence == Evidence::User => 0,
                Meaning::Gpu => 1 + gpu_rank(name).unwrap_or_default(),
                _ => return None,
            };
            Some((rank, index))
        });
        ranked.min().map(|(_, index)| index).or_else(|| {
            let is_told = senses.iter().any(|sense| tells_gpu(sense.meaning) || sense.gpu.is_some());
            let mut names = self.names.iter().enumerate();
            names
                .find(|(index, name)| {
                    !is_told && foreign::names_device(name) && is_open(senses, *index) && self.is_full(*index)
                })
                .map(|(index, _)| index)
        })
    }

    /// The column of the host where none has a name that is always one. Numbers count something else, unless only they tell
    /// rows apart, which the user must say.
    pub(super) fn host_column(&self, senses: &[Sense]) -> Option<usize> {
        if senses.iter().any(|sense| sense.meaning == Meaning::Identity(IdentityColumn::Node)) {
            return None;
        }
        // Of many rows a host has several; an address of a page is none.
        let is_text = |index: usize| {
            let texts: std::collections::HashSet<&str> = self.sample.cells(index).collect();
            (texts.len() * 2 <= self.sample.len() || self.sample.len() < FEW)
                && texts.iter().all(|text| cell::plain_number(text).is_none() && !text.contains("://"))
        };
        let mut names = self.names.iter().enumerate();
        names
            .find(|(index, name)| {
                foreign::names_host(name)
                    && is_open(senses, *index)
                    && is_text(*index)
                    && self.is_full(*index)
            })
            .map(|(index, _)| index)
    }

    /// Tells the columns of several GPUs apart that have the same names, as HWiNFO writes them. Its last line names the GPU of
    /// each. Without that line the first name that comes again begins GPU 1; the note says so.
    pub(super) fn number_doubled(&self, senses: &mut [Sense]) -> Option<&'static str> {
        let is_told =
            |sense: &Sense| sense.meaning == Meaning::Gpu || tells_gpu(sense.meaning) || sense.gpu.is_some();
        let is_gpus = |sense: &Sense| sense.meaning.is_of_gpus() && sense.evidence != Evidence::User;
        let first_again = (0..self.names.len()).find(|index| {
            let name = self.names.get(*index).map_or("", |name| name.trim());
            // The same values twice are one GPU's.
            let before = self.names.iter().take(*index).position(|other| other.trim() == name);
            let is_other =
                before.is_some_and(|before| self.sample.cells(before).ne(self.sample.cells(*index)));
            is_other && foreign::names_gpu(name) && senses.get(*index).is_some_and(is_gpus)
        });
        let first_again = first_again.filter(|_| !senses.iter().any(is_told))?;
        let owners: Vec<Option<&str>> =
            (0..senses.len()).map(|index| self.sample.cells(index).last().and_then(device_number)).collect();
        let is_said = owners.iter().any(Option::is_some);
        for (index, sense) in senses.iter_mut().enumerate().filter(|(_, sense)| is_gpus(sense)) {
            sense.gpu = match owners.get(index) {
                Some(owner) if is_said => owner.map(str::to_owned),
                _ => Some(u8::from(index >= first_again).to_string()),
            };
        }
        (!is_said).then_some(DOUBLED)
    }

    /// Whether each row has a text in that column.
    fn is_full(&self, column: usize) -> bool {
        self.sample.cells(column).all(|text| foreign::absence(text).is_none())
    }

    /// Texts that are models name no GPU beside a column that does, and those that are none (of a language model) name none
    /// at all.
    pub(super) fn doubt_models(&self, senses: &mut [Sense]) {
        let is_model = |index: usize| {
            let mut texts =
                self.sample.cells(index).filter(|text| foreign::absence(text).is_none()).peekable();
            texts.peek().is_some() && texts.all(owner::is_model)
        };
        let is_gpu = |sense: &Sense| {
            sense.meaning == Meaning::Gpu && !matches!(sense.evidence, Evidence::User | Evidence::Tool)
        };
        let is_of_model = Meaning::Identity(IdentityColumn::Model);
        // Beside the number of a process it is the name of that.
        let has_pid = self.names.iter().any(|name| is_named(name, "pid"));
        for index in 0..senses.len() {
            let Some(sense) = senses.get(index) else { continue };
            let is_named = |names: &[&str]| {
                self.names.get(index).is_some_and(|name| names.iter().any(|it| is_named(name, it)))
            };
            if is_gpu(sense) && is_model(index) {
                let others = (0..senses.len()).filter(|other| *other != index && !is_model(*other));
                let is_told = others
                    .filter_map(|other| senses.get(other))
                    .any(|other| other.meaning == Meaning::Gpu || tells_gpu(other.meaning));
                let has_model = senses.iter().any(|sense| sense.meaning == is_of_model);
                if let Some(sense) = senses.get_mut(index).filter(|_| is_told) {
                    *sense = Sense {
                        meaning: if has_model { Meaning::Unknown } else { is_of_model },
                        why: has_model.then(|| "its texts are models, not GPUs".to_owned()),
                        ..Sense::default()
                    };
                }
            } else if sense.meaning == is_of_model
                && sense.evidence != Evidence::User
                && (is_named(&["model", "model_name"]) || (has_pid && is_named(&["name"])))
            {
                let texts = self.sample.cells(index).filter(|text| foreign::absence(text).is_none());
                // One model that nobody knows here is a GPU's; of a language model there are several, or its name has a tag.
                let distinct: std::collections::HashSet<&str> = texts.collect();
                let is_other = !distinct.iter().any(|text| model::names_gpu(text))
                    && (distinct.len() > 1
                        || (has_pid && is_named(&["name"]))
                        || distinct.iter().any(|text| text.contains(':')));
                if let Some(sense) = senses.get_mut(index).filter(|_| is_other) {
                    let why = Some("its texts are no models of GPUs".to_owned());
                    *sense = Sense { why, ..Sense::default() };
                }
            }
        }
    }
}

/// Whether nothing is known of a column.
fn is_open(senses: &[Sense], column: usize) -> bool {
    senses.get(column).is_some_and(|sense| {
        sense.meaning == Meaning::Unknown && sense.evidence != Evidence::User && sense.why.is_none()
    })
}

/// `GPU [#1]: NVIDIA GeForce RTX 4080` as `1`.
fn device_number(text: &str) -> Option<&str> {
    let number = text.strip_prefix("GPU [#")?.split_once(']')?.0;
    (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())).then_some(number)
}
