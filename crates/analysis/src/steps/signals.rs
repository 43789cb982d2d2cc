//! What GPUs did over time, all of them together, in bins of equal width: bounded, however long the run is.

use std::ops::Range;
use std::sync::Arc;

use gpuvitals_core::batch::{MetricColumn, RowKeys, Value};
use gpuvitals_core::energy::{EnergyInterval, IntervalUnknown, PowerInTime};
use gpuvitals_core::integral::seconds;
use gpuvitals_core::number::float;
use gpuvitals_core::{Batch, Identity, MetricId, Table};

use super::power::{GpuPower, POWERS, PowerOfGpus};
use super::wave::folded;

/// The metrics that show steps.
const METRICS: [MetricId; 6] = [
    MetricId::of("power_w"),
    MetricId::of("power_average_w"),
    MetricId::of("tensor_active_ratio"),
    MetricId::of("sm_active_ratio"),
    MetricId::of("utilization_pct"),
    MetricId::of("interconnect_tx_bytes_per_s"),
];
/// Track of the steps of a power from row to row, squared and spread over the time between the rows. The first metrics are the
/// powers, the best first.
const SQUARES: usize = METRICS.len();
/// Track of the time in which a power is known, of each GPU.
const SEEN: usize = SQUARES + POWERS;
/// Nanoseconds of a second.
const SECOND: f64 = 1e9;
/// The narrowest bin that a signal is kept in.
const WIDTH_MIN_NS: i64 = 10_000_000;
/// Most bins; then they become twice as wide.
const BINS_MAX: usize = 131_072;
/// Most GPUs that are added up.
const GPUS_MAX: usize = 64;
/// Distances that are kept to learn how often rows come, and how often their values change.
const DISTANCES_MAX: usize = 512;
/// Longest time that a sensor is late.
const LATE_MAX_NS: i64 = 2_000_000_000;
/// Time between two readings of most sensors, where rows are too rare to show it.
const PERIOD_USUAL_NS: i64 = 100_000_000;
/// Part of the time between two rows by which that may vary.
const ROW_PART: i64 = 5;
/// Most of the time between two bins that are far apart: clocks that jumped are no hours.
const JUMP_MAX: i64 = 1 << 40;

/// The signals of a run, from the rows of its GPUs, in any order of the GPUs.
#[derive(Debug)]
pub struct StepSignals {
    width_ns: i64,
    gap_ns: i64,
    /// Place of the first bin: so many widths after the clock's zero.
    first: Option<i64>,
    gpus: Vec<Arc<str>>,
    /// Of each of these.
    powers: Vec<GpuPower>,
    /// The metrics, and what tells how far the powers may be off.
    tracks: [Track; SEEN + POWERS],
}

/// One metric, added up over the GPUs.
#[derive(Debug, Default)]
struct Track {
    /// Value times nanoseconds.
    bins: Vec<f64>,
    gpus: Vec<Option<Last>>,
    rows_ns: Vec<i64>,
    changes_ns: Vec<i64>,
}

/// The last value of a GPU.
#[derive(Debug, Clone, Copy)]
struct Last {
    time_ns: i64,
    value: f64,
    /// When it became that.
    changed_ns: i64,
}

/// The signals in bins.
#[derive(Debug)]
pub(super) struct Binned {
    pub(super) first_ns: i64,
    pub(super) width_ns: i64,
    /// Time between two rows of a GPU.
    pub(super) row_ns: i64,
    /// Time between two readings of the fastest sensor, as far as the rows show them.
    pub(super) reading_ns: i64,
    pub(super) signals: Vec<Vec<f64>>,
}

impl StepSignals {
    /// Values further apart than the gap are not joined.
    pub fn new(gap_ns: i64) -> Self {
        Self {
            width_ns: WIDTH_MIN_NS,
            gap_ns,
            first: None,
            gpus: Vec::new(),
            powers: Vec::new(),
            tracks: std::array::from_fn(|_| Track::default()),
        }
    }

    /// Adds a batch. Its monotonic clock, if it has one, is this far behind the one that is asked for.
    pub fn add(&mut self, batch: &Batch, behind_ns: i64) {
        if batch.table() != Table::GpuEvents {
            return;
        }
        // Every row of a batch names its GPU.
        let Ok(keys) = RowKeys::of(batch.records(), batch.table()) else { return };
        let (times, behind_ns) = match batch.monotonic() {
            Some(times) => (times, behind_ns),
            None => (batch.timestamps(), 0),
        };
        let identity = |id: u32| {
            let row = keys.ids.iter().position(|of_row| *of_row == id);
            row.map(|row| batch.identity(row)).unwrap_or_default()
        };
        let places: Vec<Option<usize>> =
            keys.keys.iter().zip(0_u32..).map(|(key, id)| self.place(key, || identity(id))).collect();
        let columns: [Option<MetricColumn<'_>>; METRICS.len()] = METRICS.map(|metric| batch.metric(metric));
        for (row, (time_ns, id)) in times.iter().zip(&keys.ids).enumerate() {
            let Some(gpu) = places.get(*id as usize).copied().flatten() else { continue };
            let time_ns = time_ns.saturating_add(behind_ns);
            let values = columns.each_ref().map(|column| {
                let value = column.as_ref().and_then(|column| column.value(row)).map(Value::as_f64);
                value.filter(|value| value.is_finite())
            });
            if let ([Some(sample_w), Some(average_w), ..], Some(power)) = (values, self.powers.get_mut(gpu)) {
                power.beside(sample_w, average_w);
            }
            let mut has_power = false;
            for (metric, value) in values.into_iter().enumerate() {
                // Of two powers of a GPU the better one.
                let Some(value) = value.filter(|_| metric >= POWERS || !has_power) else { continue };
                if metric < POWERS {
                    has_power = true;
                    self.note_power(metric, gpu, (time_ns, value));
                }
                self.put(metric, gpu, (time_ns, value));
            }
        }
    }

    fn place(&mut self, key: &Arc<str>, identity: impl FnOnce() -> Identity) -> Option<usize> {
        let place = self.gpus.iter().position(|known| known == key).unwrap_or(self.gpus.len());
        if place == self.gpus.len() && place < GPUS_MAX {
            self.gpus.push(Arc::clone(key));
            self.powers.push(GpuPower::of(&identity()));
        }
        Some(place).filter(|place| *place < self.gpus.len())
    }

    /// Notes how a power moved to this value; before it counts as the last one.
    fn note_power(&mut self, power: usize, gpu: usize, (time_ns, watts): (i64, f64)) {
        let last = self.tracks.get(power).and_then(|track| track.gpus.get(gpu).copied().flatten());
        let square = last
            .filter(|last| last.time_ns < time_ns)
            .map_or(0.0, |last| (watts - last.value).powi(2) / float(time_ns - last.time_ns));
        self.put(SQUARES + power, gpu, (time_ns, square));
        self.put(SEEN + power, gpu, (time_ns, 1.0));
        if let Some(known) = self.powers.get_mut(gpu) {
            known.take(power, watts);
        }
    }

    /// A value is of the time since the row before it.
    fn put(&mut self, metric: usize, gpu: usize, (time_ns, value): (i64, f64)) {
        let gap_ns = self.gap_ns;
        let Some(track) = self.tracks.get_mut(metric) else { return };
        let Some(from_ns) = track.note(gpu, time_ns, value).filter(|from_ns| time_ns - from_ns <= gap_ns)
        else {
            return;
        };
        let mut at_ns = from_ns;
        while at_ns < time_ns {
            let Some(bin) = self.bin(at_ns) else { return };
            let end_ns = (at_ns.div_euclid(self.width_ns) + 1).saturating_mul(self.width_ns).min(time_ns);
            let Some(track) = self.tracks.get_mut(metric) else { return };
            if track.bins.len() <= bin {
                track.bins.resize(bin + 1, 0.0);
            }
            if let Some(sum) = track.bins.get_mut(bin) {
                *sum += value * float(end_ns - at_ns);
            }
            at_ns = end_ns;
        }
    }

    /// The bin of an instant; bins become wider if there would be too many.
    fn bin(&mut self, time_ns: i64) -> Option<usize> {
        loop {
            let index = time_ns.div_euclid(self.width_ns);
            let first = *self.first.get_or_insert(index);
            if index < first {
                self.begin_at(index)?;
                continue;
            }
            let bin = usize::try_from(index - first).ok()?;
            if bin < BINS_MAX {
                return Some(bin);
            }
            self.fold();
        }
    }

    /// Makes the first bin an earlier one.
    fn begin_at(&mut self, index: i64) -> Option<()> {
        let first = self.first?;
        let more = usize::try_from(first.checked_sub(index).filter(|more| *more < JUMP_MAX)?).ok()?;
        let most = self.tracks.iter().map(|track| track.bins.len()).max().unwrap_or(0);
        if most + more >= BINS_MAX {
            self.fold();
            return Some(());
        }
        for track in self.tracks.iter_mut().filter(|track| !track.bins.is_empty()) {
            let _nothing = track.bins.splice(0..0, std::iter::repeat_n(0.0, more));
        }
        self.first = Some(index);
        Some(())
    }

    /// Makes the bins twice as wide.
    fn fold(&mut self) {
        let Some(first) = self.first else { return };
        for track in &mut self.tracks {
            // A wide bin begins at an even one.
            if first.rem_euclid(2) == 1 && !track.bins.is_empty() {
                track.bins.insert(0, 0.0);
            }
            if !track.bins.len().is_multiple_of(2) {
                track.bins.push(0.0);
            }
            track.bins = folded(&track.bins).into_iter().map(|mean| 2.0 * mean).collect();
        }
        self.first = Some(first.div_euclid(2));
        self.width_ns *= 2;
    }

    /// Energy that all GPUs took in a time, by their power, joules; none if it was not read. The first GPUs count, 64 of them.
    pub fn energy_j(&self, time: Range<i64>) -> Option<f64> {
        let joules = |power: usize| Some(self.sum(power, power, &time)? / SECOND);
        self.powers_read().map(joules).reduce(|sum, joules| Some(sum? + joules?))?
    }

    /// Where the energy of these times lies that [`energy_j`](Self::energy_j) gives, all of them together. Errors of GPUs and of times
    /// count as if they all went the same way.
    ///
    /// # Errors
    /// Why that is not known: a sensor is in no table or not like the others, or power was not read often enough.
    pub fn energy_interval(&self, times: &[Range<i64>]) -> Result<EnergyInterval, IntervalUnknown> {
        let mut powers = self.powers_read();
        let power = powers.next().ok_or(IntervalUnknown::TooFew)?;
        if powers.next().is_some() {
            return Err(IntervalUnknown::Sensors);
        }
        let distance_ns = self.tracks.get(power).and_then(Track::row_ns).ok_or(IntervalUnknown::TooFew)?;
        let read = PowerOfGpus::of(&self.powers, power)?;
        let sum = |track: usize| -> f64 {
            let parts = times.iter().filter_map(|time| self.sum(power, track, time));
            parts.sum()
        };
        let (gpus, count) = (float(read.gpus), float(times.len()));
        let lasted_s: f64 = times.iter().map(|time| seconds(time.end.saturating_sub(time.start))).sum();
        let seen_s = sum(SEEN + power) / SECOND;
        let together = PowerInTime {
            joules: sum(power) / SECOND,
            seen_s,
            distance_s: seconds(distance_ns),
            // The root of that is the sum of the roots at least.
            squares_w2: gpus * sum(SQUARES + power),
            // Each time has ends of its own.
            highest_w: count * read.highest_w,
            is_average: read.is_average,
            has_gaps: gpus * lasted_s - seen_s > count * seconds(self.gap_ns),
        };
        EnergyInterval::of_gpus(read.sensor, together)
    }

    /// The powers that are read.
    fn powers_read(&self) -> impl Iterator<Item = usize> {
        (0..POWERS).filter(|power| self.tracks.get(*power).is_some_and(|track| !track.bins.is_empty()))
    }

    /// What a track has in a time, times nanoseconds. It is as late as the power that it belongs to.
    fn sum(&self, power: usize, track: usize, time: &Range<i64>) -> Option<f64> {
        let track = self.tracks.get(track)?;
        let zero_ns = self.first?.checked_mul(self.width_ns)?.checked_sub(self.late_ns(power))?;
        let bin = |at_ns: i64| at_ns.saturating_sub(zero_ns).max(0);
        let (from_ns, to_ns) = (bin(time.start), bin(time.end));
        let first = from_ns / self.width_ns;
        let within = track.bins.iter().zip(0..).skip(usize::try_from(first).ok()?);
        let parts = within.map(|(sum, index): (&f64, i64)| {
            let begin_ns = index.saturating_mul(self.width_ns);
            let covered = to_ns.min(begin_ns + self.width_ns) - from_ns.max(begin_ns);
            (covered, sum * float(covered) / float(self.width_ns))
        });
        Some(parts.take_while(|(covered, _)| *covered > 0).map(|(_, part)| part).sum())
    }

    /// How late the values of a metric are: a power by its sensor, where that is known.
    fn late_ns(&self, metric: usize) -> i64 {
        let power = || PowerOfGpus::of(&self.powers, metric).ok();
        let known = (metric < POWERS).then(power).flatten().map(PowerOfGpus::timing_ns);
        self.tracks.get(metric).map_or(0, |track| track.late_ns(known))
    }

    /// The signals as they are; none without a row.
    pub(super) fn binned(&self) -> Option<Binned> {
        let first_ns = self.first?.checked_mul(self.width_ns)?;
        let metrics = || self.tracks.iter().take(METRICS.len());
        let length = metrics().map(|track| track.bins.len()).max()?;
        let signal = |(metric, track): (usize, &Track)| -> Vec<f64> {
            let late = usize::try_from(self.late_ns(metric) / self.width_ns).unwrap_or(0);
            let values = track.bins.iter().skip(late).map(|sum| sum / float(self.width_ns));
            let last = track.bins.last().map_or(0.0, |sum| sum / float(self.width_ns));
            values.chain(std::iter::repeat(last)).take(length).collect()
        };
        let read = metrics().enumerate().filter(|(_, track)| !track.bins.is_empty());
        let signals: Vec<Vec<f64>> = read.map(signal).collect();
        let row_ns = metrics().filter_map(Track::row_ns).min().unwrap_or(self.width_ns);
        let reading_ns = metrics().filter_map(Track::reading_ns).min().unwrap_or(row_ns);
        Some(Binned { first_ns, width_ns: self.width_ns, row_ns, reading_ns, signals })
    }
}

impl Track {
    /// Takes a value of a GPU. Returns when the row before it was.
    fn note(&mut self, gpu: usize, time_ns: i64, value: f64) -> Option<i64> {
        if self.gpus.len() <= gpu {
            self.gpus.resize(gpu + 1, None);
        }
        let slot = self.gpus.get_mut(gpu)?;
        let new = Last { time_ns, value, changed_ns: time_ns };
        let last = slot.replace(new).filter(|last| last.time_ns < time_ns)?;
        keep(&mut self.rows_ns, time_ns - last.time_ns);
        if last.value.total_cmp(&value).is_eq() {
            *slot = Some(Last { changed_ns: last.changed_ns, ..new });
        } else {
            keep(&mut self.changes_ns, time_ns - last.changed_ns);
        }
        Some(last.time_ns)
    }

    /// How late its values are. A reading is the mean of a window before it; it stays for a period, so in a row it is half of that old on
    /// average; and it counts for the time since the row before. Without a known period and window, both are what the rows show.
    fn late_ns(&self, known: Option<(i64, i64)>) -> i64 {
        let row_ns = self.row_ns().unwrap_or(0);
        let shown_ns = self.period_ns(row_ns);
        // What changes faster than the sensor can is not from it.
        let known = known.filter(|(period_ns, _)| shown_ns >= period_ns / 2);
        let (period_ns, window_ns) = known.unwrap_or((shown_ns, shown_ns));
        ((period_ns + window_ns - row_ns) / 2).clamp(0, LATE_MAX_NS)
    }

    /// Time between two readings as the rows show it: a new one comes in one row or in the next. Where every row has another value,
    /// it may be less than that of rows.
    fn period_ns(&self, row_ns: i64) -> i64 {
        let Some(usual_ns) = low(&self.changes_ns) else { return 0 };
        let varies_ns = row_ns / ROW_PART;
        let near = self.changes_ns.iter().filter(|change_ns| **change_ns <= usual_ns + row_ns + varies_ns);
        let (sum, count) = near.fold((0_i64, 0_i64), |(sum, count), ns| (sum.saturating_add(*ns), count + 1));
        let mean_ns = sum / count.max(1);
        if mean_ns < row_ns + varies_ns { mean_ns.min(PERIOD_USUAL_NS) } else { mean_ns }
    }

    /// Time between two rows of a GPU; none of one row.
    fn row_ns(&self) -> Option<i64> {
        low(&self.rows_ns)
    }

    /// Time between two readings of its sensor, or between rows that are rarer; none: it never changed.
    fn reading_ns(&self) -> Option<i64> {
        Some(low(&self.changes_ns)?.max(self.row_ns()?))
    }
}

/// A usual distance that is rather short: some are twice as long because a value happened to be the same.
fn low(distances: &[i64]) -> Option<i64> {
    let mut sorted = distances.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 4).copied()
}

fn keep(distances: &mut Vec<i64>, distance: i64) {
    if distances.len() < DISTANCES_MAX {
        distances.push(distance);
    }
}
