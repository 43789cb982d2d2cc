//! Units that only the values tell: shares of one, memory in GiB or bytes, power in milliwatts.
//!
//! A unit that the name, a cell, the user or a tool gives is never guessed. Each guess has a note.

use std::collections::BTreeSet;

use gpuvitals_core::catalogue::{self, MetricId, Unit};
use gpuvitals_core::foreign::{self, Meaning, unit_factor};

use super::{Draft, Evidence, Sense};
use crate::csv::cell;
use crate::csv::decimal::{Decimals, joined, pointed};

const TOTAL: MetricId = MetricId::of("memory_total_mb");
const HOST_TOTAL: MetricId = MetricId::of("host_memory_total_mb");
const ENERGY: MetricId = MetricId::of("energy_mj");

/// Fewest numbers and different ones that may be shares of one; the largest of them is above this. Below, an idle GPU's percent may
/// be meant.
const SHARES_MIN: usize = 5;
const DISTINCT_MIN: usize = 4;
const LARGEST_ABOVE: f64 = 0.5;

/// Memory that a GPU can have, MiB.
const GPU_MEMORY: (f64, f64) = (256.0, 4_194_304.0);
/// Memory that a host can have, MiB.
const HOST_MEMORY: (f64, f64) = (256.0, 67_108_864.0);

/// No GPU draws less, W, and none runs slower, MHz.
const LEAST: f64 = 0.5;
/// Half of the numbers are at least so much, W: a machine of eight GPUs draws 6,500 W, and no GPU 6,500 mW for long.
const POWER_USUAL: f64 = 15.0;
/// The same of clocks, MHz.
const CLOCK_USUAL: f64 = 100.0;
/// No GPU runs slower than this with a clock that is written with fractions, MHz: such are GHz.
const CLOCK_LOWEST: f64 = 6.0;
/// No GPU has less, mV: such are volts.
const VOLTAGE_LOWEST: f64 = 3.0;
/// The least memory in use that has bytes where no total is known, MiB.
const MEMORY_USUAL: f64 = 64.0;

/// Units that numbers may have which cannot be the column's.
const POWER_UNITS: &[&str] = &["mW", "uW"];
const CLOCK_UNITS: &[&str] = &["kHz", "Hz"];
const MEMORY_UNITS: &[&str] = &["GiB", "B", "KiB"];

/// A column whose unit nobody says.
struct OpenColumn {
    index: usize,
    id: MetricId,
    gpu: Option<String>,
    numbers: Vec<f64>,
}

/// What a column's numbers are taken for.
struct Guess {
    index: usize,
    factor: f64,
    note: String,
}

impl Draft<'_> {
    /// Gives columns the units that their values tell, and says so.
    pub(super) fn guess_units(&self, senses: &mut [Sense], decimals: &Decimals) -> Vec<String> {
        let open = senses.iter().enumerate().filter_map(|(index, sense)| self.open(index, sense, decimals));
        let open: Vec<OpenColumn> = open.collect();
        let mut guesses = self.shares(&open);
        guesses.extend(self.too_large(&open, Unit::Watt, POWER_USUAL, POWER_UNITS));
        guesses.extend(self.too_large(&open, Unit::Megahertz, CLOCK_USUAL, CLOCK_UNITS));
        guesses.extend(self.too_small(&open, Unit::Megahertz, CLOCK_LOWEST, "GHz"));
        guesses.extend(self.too_small(&open, Unit::Millivolt, VOLTAGE_LOWEST, "V"));
        guesses.extend(self.memory(&open));
        guesses.extend(self.energy(&open));
        for guess in &guesses {
            if let Some(sense) = senses.get_mut(guess.index)
                && let Meaning::Metric(id, _) = sense.meaning
            {
                sense.meaning = Meaning::Metric(id, guess.factor);
            }
        }
        guesses.into_iter().map(|guess| guess.note).collect()
    }

    fn open(&self, index: usize, sense: &Sense, decimals: &Decimals) -> Option<OpenColumn> {
        let Meaning::Metric(id, _) = sense.meaning else { return None };
        let name = self.names.get(index)?;
        let is_tools = self.dialect.is_some_and(|dialect| dialect.column(name).is_some());
        let is_said = matches!(sense.evidence, Evidence::User | Evidence::Numbers | Evidence::Cells)
            || sense.unit.is_some();
        if is_said || is_tools || foreign::is_dcgm(name) || foreign::writes_unit(name) {
            return None;
        }
        let decimal = decimals.of_column(index);
        let (mut numbers, mut others) = (Vec::new(), 0);
        for text in self.sample.cells(index).filter(|text| foreign::no_reading(text).is_none()) {
            let joined = joined(text.as_bytes());
            let written = pointed(joined.as_deref().unwrap_or(text.as_bytes()), decimal);
            match std::str::from_utf8(&written).ok().and_then(cell::plain_number) {
                Some(number) => numbers.push(number),
                None => others += 1,
            }
        }
        let is_numbers = !numbers.is_empty() && others * 100 <= numbers.len();
        is_numbers.then(|| OpenColumn { index, id, gpu: sense.gpu.clone(), numbers })
    }

    fn name(&self, open: &OpenColumn) -> &str {
        self.names.get(open.index).map_or("", |name| name.trim())
    }

    /// Shares of one. Beside some, others that are none or all of it are such, too.
    fn shares(&self, open: &[OpenColumn]) -> Vec<Guess> {
        let shares = || {
            let is_percent = |it: &&OpenColumn| it.id.metric().unit == Unit::Percent;
            open.iter().filter(is_percent).filter(|it| it.numbers.iter().all(|it| (0.0..=1.0).contains(it)))
        };
        let is_sure = |it: &OpenColumn| {
            let distinct: BTreeSet<u64> = it.numbers.iter().map(|number| number.to_bits()).collect();
            it.numbers.len() >= SHARES_MIN && distinct.len() >= DISTINCT_MIN && it.largest() > LARGEST_ABOVE
        };
        // A percent column says how the file writes shares.
        let is_percents = |it: &OpenColumn| it.id.metric().unit == Unit::Percent && it.largest() > 1.0;
        let is_any = shares().any(is_sure) && !open.iter().any(is_percents);
        let guess = |it: &OpenColumn| Guess {
            index: it.index,
            factor: 100.0,
            note: format!(
                "no number of column {name} is above 1, so they are taken for shares of one: 1 is 100 %; --column \
                 \"{name}={}:%\" if they are percent",
                it.id.metric().column,
                name = self.name(it)
            ),
        };
        shares().filter(|it| is_any && it.largest() > 0.0).map(guess).collect()
    }

    /// Numbers that cannot be in the column's unit, and can in a smaller one.
    fn too_large(&self, open: &[OpenColumn], unit: Unit, usual: f64, smaller: &[&str]) -> Vec<Guess> {
        let out = open.iter().filter(|it| it.id.metric().unit == unit && it.is_out(it.id.metric().range));
        let guess = |it: &OpenColumn| {
            let range = it.id.metric().range;
            let fits = |factor: &f64| it.fits_above(LEAST, *factor, range) && it.middle() * factor >= usual;
            let factor = |unit: &&str| unit_factor(unit, it.id.metric()).filter(fits);
            smaller.iter().find_map(|unit| Some(self.guess(it, factor(unit)?, unit)))
        };
        out.filter_map(guess).collect()
    }

    /// Numbers with fractions that no GPU has in the column's unit, and that are right in one a thousand times larger.
    fn too_small(&self, open: &[OpenColumn], unit: Unit, lowest: f64, larger: &str) -> Vec<Guess> {
        let is_small = |it: &&OpenColumn| {
            it.id.metric().unit == unit
                && it.middle() > 0.0
                && it.largest() < lowest
                && it.numbers.iter().any(|number| number.fract() != 0.0)
        };
        let guess = |it: &OpenColumn| {
            let factor = unit_factor(larger, it.id.metric())?;
            it.fits(factor, it.id.metric().range).then(|| self.guess(it, factor, larger))
        };
        open.iter().filter(is_small).filter_map(guess).collect()
    }

    /// Memory, whose total says its unit: no GPU has 24 MiB, none has 25 TiB.
    fn memory(&self, open: &[OpenColumn]) -> Vec<Guess> {
        let mut guesses = Vec::new();
        let of_host = |it: &OpenColumn| it.id.metric().table == HOST_TOTAL.metric().table;
        let is_memory = |it: &&OpenColumn| it.id.metric().unit == Unit::Mebibyte;
        let all: Vec<&OpenColumn> = open.iter().filter(is_memory).collect();
        for it in &all {
            let (total, range) = if of_host(it) { (HOST_TOTAL, HOST_MEMORY) } else { (TOTAL, GPU_MEMORY) };
            let own_total = all.iter().find(|other| other.id == total && other.gpu == it.gpu);
            let (judged, range) = match own_total {
                // Part and total are in one unit, if the part can be one of it.
                Some(total) if it.largest() <= total.largest() * 1.02 => (*total, range),
                _ => (*it, (0.0, range.1)),
            };
            let factor = |unit: &str| unit_factor(unit, it.id.metric());
            let fits = |unit: &&&str| factor(unit).is_some_and(|factor| judged.fits(factor, range));
            if !judged.is_out(range) {
                continue;
            }
            let mut found = MEMORY_UNITS.iter().filter(fits);
            if own_total.is_some() {
                guesses.extend(found.next().and_then(|unit| Some(self.guess(it, factor(unit)?, unit))));
                continue;
            }
            // Without a total a number may be right in two units: then nothing is guessed.
            let is_usual =
                |unit: &&&str| factor(unit).is_some_and(|factor| it.largest() * factor >= MEMORY_USUAL);
            let mut usual = found.filter(is_usual);
            if let (Some(unit), None) = (usual.next(), usual.next()) {
                guesses.extend(factor(unit).map(|factor| self.guess(it, factor, unit)));
            }
        }
        guesses
    }

    /// NVML counts the energy in millijoules, whole ones, as people write it under NVML's name.
    fn energy(&self, open: &[OpenColumn]) -> Vec<Guess> {
        let is_nvmls = |it: &&OpenColumn| {
            let name = catalogue::folded(self.name(it));
            let bare = name.strip_prefix("gpu_").unwrap_or(&name);
            let is_whole = it.numbers.iter().all(|number| number.fract() == 0.0);
            it.id == ENERGY
                && is_whole
                && matches!(bare, "total_energy_consumption" | "energy_consumption_total")
        };
        open.iter().filter(is_nvmls).map(|it| self.guess(it, 1.0, "mJ")).collect()
    }

    fn guess(&self, it: &OpenColumn, factor: f64, unit: &str) -> Guess {
        let why = if it.id == ENERGY {
            "NVML counts them".to_owned()
        } else {
            let unit = it.id.metric().unit.as_str();
            format!("in {unit} they cannot be true, or not beside the other columns")
        };
        let name = self.name(it);
        Guess {
            index: it.index,
            factor,
            note: format!(
                "the numbers of column {name} are taken for {unit}, as {why}; --column \"{name}={}:UNIT\" names another",
                it.id.metric().column
            ),
        }
    }
}

impl OpenColumn {
    fn largest(&self) -> f64 {
        self.numbers.iter().copied().fold(0.0, f64::max)
    }

    /// Whether nearly all numbers are in a range, times a factor, and nearly all that are not 0 are at least so much.
    fn fits_above(&self, least: f64, factor: f64, range: (f64, f64)) -> bool {
        let low = self.numbers.iter().filter(|number| **number != 0.0 && **number * factor < least).count();
        low * 100 <= self.numbers.len() && self.fits(factor, range)
    }

    /// The middle one of the numbers that are not 0.
    fn middle(&self) -> f64 {
        let mut numbers: Vec<f64> = self.numbers.iter().copied().filter(|number| *number != 0.0).collect();
        numbers.sort_by(f64::total_cmp);
        numbers.get(numbers.len() / 2).copied().unwrap_or(0.0)
    }

    /// Whether most numbers are out of a range: a few that are stand for nothing.
    fn is_out(&self, (min, max): (f64, f64)) -> bool {
        let said = || self.numbers.iter().filter(|number| **number != 0.0);
        let out = said().filter(|number| !(min..=max).contains(*number)).count();
        out * 2 > said().count()
    }

    /// Whether nearly all numbers are in a range, times a factor.
    fn fits(&self, factor: f64, (min, max): (f64, f64)) -> bool {
        let bad = self.numbers.iter().filter(|number| !(min..=max).contains(&(**number * factor))).count();
        bad * 100 <= self.numbers.len()
    }
}
