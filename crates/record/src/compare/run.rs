//! A run, made from its rows: its figures by block, and what stayed the same while it ran.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gpuvitals_analysis::steps::{RunStep, StepSignals};
use gpuvitals_analysis::summary::{GpuSummary, Summary, gap_ns};
use gpuvitals_core::integral::seconds;
use gpuvitals_core::number::float;
use gpuvitals_core::{Batch, MetricId, Table};

use super::cells::{Block, CellColumns, GpuCells, Quantity, RowTime};
use super::metric::RunMetric;
use crate::about::{RecordingFacts, marks_of};
use crate::data::Data;
use crate::error::RecordError;
use crate::gpu_rows::{FactsOfGpus, GpuFacts, GpuRows};
use crate::marks::RecordedMark;
use crate::run_facts::RunFacts;
use crate::steps::{RunSteps, tells_of_steps};

/// Of a recording whose rate is not known: a power cut lost it.
const INTERVAL_UNKNOWN: Duration = Duration::from_millis(10);
/// Most blocks of a run.
const BLOCKS_MAX: usize = 20;
/// Shortest slice of time that is a block, where there are no steps.
const SLICE_MIN_S: f64 = 1.0;
/// Mean utilisation in % from which a GPU was used by the run.
const USED_FROM_PCT: f64 = 5.0;
const CPU: MetricId = MetricId::of("cpu_pct");

/// A run that is to be compared.
#[derive(Debug)]
pub struct ComparedRun {
    /// Directory of its recording.
    pub name: String,
    /// What was recorded.
    pub facts: RunFacts,
    /// How many steps it has after the warm-up.
    pub steps: usize,
    pub(super) rate_hz: f64,
    /// The GPUs that it used, by index.
    pub(super) gpus: Vec<ComparedGpu>,
    /// The values of each metric by block.
    pub(super) figures: BTreeMap<RunMetric, Vec<f64>>,
}

/// A GPU of a run.
#[derive(Debug)]
pub(super) struct ComparedGpu {
    pub(super) facts: GpuFacts,
    cells: GpuCells,
}

impl ComparedGpu {
    /// The mean of a quantity over the run.
    pub(super) fn mean(&self, quantity: Quantity) -> Option<f64> {
        self.cells.whole_mean(quantity)
    }
}

/// What a run is made from, beside its rows.
#[derive(Debug, Clone)]
pub struct RunSource {
    /// Name of its recording.
    pub name: String,
    /// What was recorded.
    pub facts: RunFacts,
    /// Time between two samples of a GPU.
    pub interval: Duration,
    /// Time between two samples of the host.
    pub system_interval: Duration,
    /// Its marks, in the order of time.
    pub marks: Vec<RecordedMark>,
}

impl ComparedRun {
    /// The run that a directory holds the recording of.
    ///
    /// # Errors
    /// If it holds none, cannot be read, or has no row of a GPU.
    pub fn read(directory: &Path) -> Result<Self, RecordError> {
        let facts = RecordingFacts::read(directory)?;
        let interval = |key: &str| facts.interval(key).unwrap_or(INTERVAL_UNKNOWN);
        let mut marks = Vec::new();
        for mark in marks_of(directory)? {
            let mark = mark?;
            if tells_of_steps(&mark.content) {
                marks.push(mark);
            }
        }
        marks.sort_by_key(|mark| mark.monotonic_ns);
        let source = RunSource {
            name: directory.display().to_string(),
            interval: interval("rate_hz"),
            system_interval: interval("system_rate_hz"),
            facts: RunFacts::of_footer(|key| facts.get(key).map(str::to_owned)),
            marks,
        };
        source.run(|| Data::open(directory))
    }
}

impl RunSource {
    /// The run of these rows, which are read twice: they may be more than memory holds.
    ///
    /// # Errors
    /// If they cannot be read, or none is of a GPU.
    pub fn run<R>(self, mut rows: impl FnMut() -> Result<R, RecordError>) -> Result<ComparedRun, RecordError>
    where
        R: Iterator<Item = Result<Batch, RecordError>>,
    {
        let gap_ns = gap_ns(self.interval);
        let marked = RunSteps::marked(&self.marks);
        let signals = marked.is_none().then(|| StepSignals::new(gap_ns));
        let mut first = FirstPass::new(self.interval, self.system_interval, signals);
        for batch in rows()? {
            first.add(&batch?);
        }
        let known = marked.or_else(|| RunSteps::shown(first.signals.as_ref()?));
        let steps = known.as_ref().map(|known| known.steps.as_slice()).unwrap_or_default();
        let summaries = used(first.summary.gpus());
        let Some(span) = first.span_ns.filter(|_| !summaries.is_empty()) else {
            let path = PathBuf::from(&self.name);
            let what = "holds no rows of GPUs; `gpuvitals doctor` on its machine says which GPUs can be read, and why others cannot";
            return Err(RecordError::Directory { path, what });
        };
        let mut second = SecondPass {
            blocks: if steps.is_empty() { slices(span) } else { blocks(steps) },
            gap_ns,
            rows: GpuRows::default(),
            gpus: Vec::new(),
            cpu: Vec::new(),
        };
        for batch in rows()? {
            second.add(&batch?);
        }
        let mut facts = first.facts.sorted();
        facts.retain(|gpu| summaries.iter().any(|used| used.id == gpu.id));
        let mut of_gpu: BTreeMap<String, GpuCells> = second.gpus.into_iter().collect();
        let gpus: Vec<ComparedGpu> = facts
            .into_iter()
            .filter_map(|facts| Some(ComparedGpu { cells: of_gpu.remove(&facts.id)?, facts }))
            .collect();
        let by_block = ByBlock { blocks: second.blocks.len(), gpus: &gpus };
        let mut figures = by_block.figures();
        figures.extend(whole(&summaries, &by_block));
        figures.insert(RunMetric::CpuPct, second.cpu.iter().filter_map(|cell| cell.mean()).collect());
        figures.extend(of_steps(steps, &by_block));
        if let Some(known) = &known {
            figures.extend(of_tokens(steps, &known.tokens(&self.marks), &by_block));
        }
        figures.retain(|_, values| !values.is_empty());
        Ok(ComparedRun {
            name: self.name,
            facts: self.facts,
            steps: steps.len(),
            rate_hz: 1.0 / self.interval.as_secs_f64(),
            gpus,
            figures,
        })
    }
}

/// What must be known before the blocks are: the span, the GPUs, their totals.
struct FirstPass {
    summary: Summary,
    facts: FactsOfGpus,
    span_ns: Option<(i64, i64)>,
    /// What shows steps; none: they are marked.
    signals: Option<StepSignals>,
}

impl FirstPass {
    fn new(interval: Duration, system_interval: Duration, signals: Option<StepSignals>) -> Self {
        let summary = Summary::new(interval, system_interval);
        Self { summary, facts: FactsOfGpus::default(), span_ns: None, signals }
    }

    fn add(&mut self, batch: &Batch) {
        self.summary.add(batch);
        if batch.table() != Table::GpuEvents {
            return;
        }
        self.facts.add(batch);
        if let Some(signals) = &mut self.signals {
            signals.add(batch, 0);
        }
        for &time_ns in times(batch) {
            let (from, to) = self.span_ns.unwrap_or((time_ns, time_ns));
            self.span_ns = Some((from.min(time_ns), to.max(time_ns)));
        }
    }
}

/// The values of each GPU by block.
struct SecondPass {
    blocks: Vec<Block>,
    /// Longest time that a value lasts.
    gap_ns: i64,
    rows: GpuRows,
    gpus: Vec<(String, GpuCells)>,
    cpu: Vec<CpuCell>,
}

#[derive(Debug, Clone, Copy, Default)]
struct CpuCell {
    sum: f64,
    count: f64,
}

impl CpuCell {
    fn mean(self) -> Option<f64> {
        (self.count > 0.0).then(|| self.sum / self.count)
    }
}

impl SecondPass {
    fn add(&mut self, batch: &Batch) {
        match batch.table() {
            Table::GpuEvents => self.add_gpus(batch),
            Table::SystemEvents => self.add_host(batch),
            _ => {}
        }
    }

    fn add_gpus(&mut self, batch: &Batch) {
        let gpus = &mut self.gpus;
        let numbers = self.rows.of(batch, |number, key, _| {
            if gpus.len() <= number {
                gpus.push((key.to_string(), GpuCells::default()));
            }
        });
        let columns = CellColumns::of(batch);
        for (row, (number, &time_ns)) in numbers.into_iter().zip(times(batch)).enumerate() {
            let time = RowTime { time_ns, block: self.block(time_ns), gap_ns: self.gap_ns };
            if let Some((_, cells)) = number.and_then(|number| self.gpus.get_mut(number)) {
                cells.add(&columns, row, time);
            }
        }
    }

    /// Rows of single CPUs have no value of the host.
    fn add_host(&mut self, batch: &Batch) {
        let Some(column) = batch.metric(CPU) else { return };
        self.cpu.resize(self.blocks.len(), CpuCell::default());
        for (row, &time_ns) in times(batch).iter().enumerate() {
            let (value, block) = (column.value(row), self.block(time_ns));
            if let (Some(value), Some(cell)) = (value, block.and_then(|block| self.cpu.get_mut(block))) {
                cell.sum += value.as_f64();
                cell.count += 1.0;
            }
        }
    }

    /// The block of a time: they are in order and do not overlap.
    fn block(&self, time_ns: i64) -> Option<usize> {
        let at = self.blocks.partition_point(|block| block.to_ns <= time_ns);
        self.blocks.get(at).filter(|block| block.from_ns <= time_ns).map(|_| at)
    }
}

fn times(batch: &Batch) -> &[i64] {
    batch.monotonic().unwrap_or_else(|| batch.timestamps())
}

/// The GPUs that the run used: all of them if it is not known of any.
fn used(mut gpus: Vec<GpuSummary>) -> Vec<GpuSummary> {
    let is_used = |gpu: &GpuSummary| gpu.utilization_pct.is_some_and(|busy| busy.mean >= USED_FROM_PCT);
    if gpus.iter().any(is_used) {
        gpus.retain(is_used);
    }
    gpus
}

/// What is of each step, in a row: in each part as much as in the others, or one more, so that the parts weigh the same.
fn parts<T>(of_steps: &[T]) -> impl Iterator<Item = &[T]> {
    let all = of_steps.len();
    let count = all / all.div_ceil(BLOCKS_MAX).max(1);
    (0..count).filter_map(move |at| of_steps.get(at * all / count..(at + 1) * all / count))
}

/// A block for each part of the steps.
fn blocks(steps: &[RunStep]) -> Vec<Block> {
    let block =
        |steps: &[RunStep]| Some(Block { from_ns: steps.first()?.from_ns, to_ns: steps.last()?.to_ns });
    parts(steps).filter_map(block).collect()
}

/// Slices of equal length.
fn slices((from_ns, to_ns): (i64, i64)) -> Vec<Block> {
    // The last row belongs to the last slice.
    let span_ns = to_ns.saturating_sub(from_ns).saturating_add(1);
    let most = i64::try_from(BLOCKS_MAX).unwrap_or(i64::MAX);
    let count = (1..=most).rev().find(|count| seconds(span_ns / count) >= SLICE_MIN_S).unwrap_or(1);
    let bound = |at: i64| from_ns + span_ns / count * at;
    (0..count)
        .map(|at| Block {
            from_ns: bound(at),
            to_ns: if at + 1 == count { from_ns + span_ns } else { bound(at + 1) },
        })
        .collect()
}

/// The GPUs of a run, block by block.
struct ByBlock<'a> {
    blocks: usize,
    gpus: &'a [ComparedGpu],
}

impl ByBlock<'_> {
    /// The mean of a quantity over the GPUs that have it, in a block.
    fn mean(&self, quantity: Quantity, block: usize) -> Option<f64> {
        let values: Vec<f64> = self.gpus.iter().filter_map(|gpu| gpu.cells.mean(quantity, block)).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / float(values.len()))
    }

    /// Power of all GPUs in a block, W; none if one lacks it.
    fn power(&self, block: usize) -> Option<f64> {
        self.gpus.iter().map(|gpu| gpu.cells.mean(Quantity::Power, block)).sum()
    }

    fn figures(&self) -> BTreeMap<RunMetric, Vec<f64>> {
        [
            (RunMetric::GpuClockMhz, Quantity::GpuClock),
            (RunMetric::MemClockMhz, Quantity::MemClock),
            (RunMetric::PowerW, Quantity::Power),
            (RunMetric::TemperatureC, Quantity::Temperature),
            (RunMetric::UtilizationPct, Quantity::Utilization),
        ]
        .into_iter()
        .map(|(metric, quantity)| {
            (metric, (0..self.blocks).filter_map(|block| self.mean(quantity, block)).collect())
        })
        .collect()
    }
}

/// Totals of the whole recording. The blocks of the energy are those of the power: a run whose power is not steady has an energy that
/// is not well known.
fn whole(gpus: &[GpuSummary], by_block: &ByBlock<'_>) -> Vec<(RunMetric, Vec<f64>)> {
    let largest = |of: &dyn Fn(&GpuSummary) -> Option<f64>| {
        gpus.iter().filter_map(of).max_by(f64::total_cmp).into_iter().collect::<Vec<f64>>()
    };
    let joules: Option<f64> = gpus.iter().map(|gpu| gpu.energy.as_ref().map(|energy| energy.joules)).sum();
    let power: Option<Vec<f64>> = (0..by_block.blocks).map(|block| by_block.power(block)).collect();
    let energy = match (joules, power) {
        (Some(joules), Some(power)) if power.iter().sum::<f64>() > 0.0 => {
            let sum: f64 = power.iter().sum();
            let of_a_watt = joules * float(power.len()) / sum;
            power.iter().map(|watts| of_a_watt * watts).collect()
        }
        (joules, _) => joules.into_iter().collect(),
    };
    vec![
        (RunMetric::DurationS, largest(&|gpu| Some(gpu.duration_s))),
        (RunMetric::EnergyJ, energy),
        (RunMetric::MemoryUsedMaxMb, largest(&|gpu| gpu.memory_used_max_mb)),
    ]
}

/// What is known of the steps, block by block.
fn of_steps(steps: &[RunStep], by_block: &ByBlock<'_>) -> Vec<(RunMetric, Vec<f64>)> {
    let mean = |steps: &[RunStep]| duration_s(steps) / float(steps.len());
    let durations: Vec<f64> = parts(steps).map(mean).collect();
    let energy = durations
        .iter()
        .enumerate()
        .filter_map(|(block, duration_s)| Some(by_block.power(block)? * duration_s))
        .collect();
    vec![(RunMetric::StepS, durations), (RunMetric::StepEnergyJ, energy)]
}

/// What is known of the tokens of the steps, block by block; nothing if a block has none.
fn of_tokens(steps: &[RunStep], tokens: &[f64], by_block: &ByBlock<'_>) -> Vec<(RunMetric, Vec<f64>)> {
    let sums: Vec<(f64, f64)> = parts(steps)
        .zip(parts(tokens))
        .map(|(steps, tokens)| (duration_s(steps), tokens.iter().sum()))
        .collect();
    if sums.iter().any(|(_, tokens)| *tokens <= 0.0) {
        return Vec::new();
    }
    let joules = |(block, (duration_s, tokens)): (usize, &(f64, f64))| {
        Some(by_block.power(block)? * duration_s / tokens)
    };
    vec![
        (RunMetric::TokensPerS, sums.iter().map(|(duration_s, tokens)| tokens / duration_s).collect()),
        (RunMetric::JoulesPerToken, sums.iter().enumerate().filter_map(joules).collect()),
    ]
}

fn duration_s(steps: &[RunStep]) -> f64 {
    steps.iter().map(|step| step.duration_s()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_have_as_many_steps_as_each_other_or_one_more() {
        for count in [5, 20, 21, 39, 61, 101, 1_000] {
            let steps: Vec<RunStep> = (0..count).map(|at| RunStep { from_ns: at, to_ns: at + 1 }).collect();
            let sizes: Vec<i64> = blocks(&steps).iter().map(|block| block.to_ns - block.from_ns).collect();
            let (least, most) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
            assert!(sizes.len() <= BLOCKS_MAX && most - least <= 1, "{count} steps in {sizes:?}");
            assert_eq!(sizes.iter().sum::<i64>(), count, "each step is in one: {sizes:?}");
            let by_block = ByBlock { blocks: sizes.len(), gpus: &[] };
            let durations = of_steps(&steps, &by_block);
            assert_eq!(durations[0].1.len(), sizes.len(), "they are the blocks of the rows, too");
            let tokens = of_tokens(&steps, &vec![1.0; steps.len()], &by_block);
            assert_eq!(tokens[0].1.len(), sizes.len(), "so are those of the tokens");
        }
    }
}
