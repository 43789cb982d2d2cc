//! Several CSV files of one machine, replayed as one.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gpuvitals_core::Table;
use gpuvitals_core::catalogue::MetricId;
use gpuvitals_core::number::float;
use gpuvitals_core::ports::{Poll, Source};

use crate::config::ReplayConfig;
use crate::csv::{CsvError, CsvInput, CsvSource, Hints};
use crate::report::{Counts, Report};
use crate::timeline::ReplayPace;

/// Rows of a file whose GPUs and times are compared with another's.
const ROWS_COMPARED: usize = 8_192;

/// Several CSV files. Their batches come in turn, or when they are due.
#[derive(Debug)]
pub struct SeveralSource {
    paths: Vec<PathBuf>,
    /// Of one pass over one file.
    config: ReplayConfig,
    is_looped: bool,
    sources: Vec<CsvSource>,
    /// Whose turn it is, and whose batch was the last.
    next: usize,
    last: usize,
    /// Counts of the passes before.
    before: Vec<Counts>,
    /// Reports of the passes before.
    reports: Vec<Report>,
}

impl SeveralSource {
    /// Opens the files. GPUs that mean nothing without their machine get one host, since all files are of one machine: the
    /// user's, else the name of the folder that all files are in, else the first file's name.
    pub(super) fn open(paths: Vec<PathBuf>, mut config: ReplayConfig, now_ns: i64) -> Result<Self, CsvError> {
        let is_looped = std::mem::take(&mut config.loop_file);
        config.hints = together(&paths, config.hints);
        if let ReplayPace::Rate(rate) = config.pace {
            let share = rate / float(paths.len().max(1));
            config.pace = ReplayPace::Rate(share);
        }
        if let Some(clash) = clash(&paths, &config, now_ns) {
            return Err(clash);
        }
        let sources = open(&paths, &config, now_ns)?;
        if is_looped && let Some(path) = paths.iter().find(|path| !path.is_file()) {
            return Err(CsvError::NoLoop { file: path.display().to_string().into() });
        }
        Ok(Self {
            paths,
            config,
            is_looped,
            sources,
            next: 0,
            last: 0,
            before: Vec::new(),
            reports: Vec::new(),
        })
    }

    /// The files, in their order.
    pub fn files(&self) -> impl Iterator<Item = &CsvSource> {
        self.sources.iter()
    }

    pub(super) fn counts(&self) -> Counts {
        let all = self.before.iter().cloned().chain(self.sources.iter().map(CsvSource::counts));
        all.reduce(Counts::and).unwrap_or_default()
    }

    pub(super) fn drain_reports(&mut self) -> Vec<Report> {
        let mut reports = std::mem::take(&mut self.reports);
        reports.extend(self.sources.iter_mut().flat_map(CsvSource::drain_reports));
        reports
    }

    pub(super) fn messages(&mut self) -> Option<Vec<serde_json::Value>> {
        self.sources.get_mut(self.last)?.messages()
    }

    pub(super) fn poll(&mut self, now_ns: i64) -> Result<Poll, CsvError> {
        let mut due_ns: Option<i64> = None;
        for _ in 0..self.sources.len() {
            let at = self.next;
            self.next = (self.next + 1) % self.sources.len().max(1);
            let Some(source) = self.sources.get_mut(at) else { continue };
            match source.poll(now_ns)? {
                Poll::Ready(batch) => {
                    self.last = at;
                    return Ok(Poll::Ready(batch));
                }
                Poll::NotBefore(at_ns) => due_ns = Some(due_ns.map_or(at_ns, |due| due.min(at_ns))),
                Poll::End => {}
            }
        }
        if let Some(due_ns) = due_ns {
            return Ok(Poll::NotBefore(due_ns));
        }
        let taken: u64 = self.sources.iter().map(|source| source.counts().rows_taken).sum();
        if !self.is_looped || taken == 0 {
            return Ok(Poll::End);
        }
        self.reports = self.drain_reports();
        let ended = std::mem::replace(&mut self.sources, open(&self.paths, &self.config, now_ns)?);
        let counts = ended.iter().map(CsvSource::counts).chain(self.before.drain(..)).reduce(Counts::and);
        self.before = counts.into_iter().collect();
        Ok(Poll::NotBefore(now_ns))
    }
}

/// Opens one pass: its times begin with the first time of all files.
fn open(paths: &[PathBuf], config: &ReplayConfig, now_ns: i64) -> Result<Vec<CsvSource>, CsvError> {
    let one = |path: &PathBuf| CsvSource::open(CsvInput::from(path.as_path()), config.clone(), now_ns);
    let mut sources = paths.iter().map(one).collect::<Result<Vec<_>, _>>()?;
    if let Some(first_ns) = sources.iter().filter_map(CsvSource::first_ns).min() {
        for source in &mut sources {
            source.begin_with(first_ns);
        }
    }
    Ok(sources)
}

/// The hints for several files of one machine. A GPU that means nothing without its machine gets this host.
pub fn together(paths: &[PathBuf], hints: Hints) -> Hints {
    let usual_host = hints.usual_host.or_else(|| Some(machine_of(paths)));
    Hints { of_several: true, usual_host, ..hints }
}

/// Why files cannot be one replay: two have the same GPU, metrics and time, so rows of one would replace those of the other.
/// Files that can be read only once, or not at all, are not looked at.
pub fn clash(paths: &[PathBuf], config: &ReplayConfig, now_ns: i64) -> Option<CsvError> {
    let mut seen: Vec<(&PathBuf, HashMap<Arc<str>, GpuBegin>)> = Vec::new();
    for path in paths.iter().filter(|path| path.is_file()) {
        let gpus = begins(path, config, now_ns).unwrap_or_default();
        for (other, known) in &seen {
            let clash = gpus.iter().find(|(gpu, begin)| known.get(*gpu).is_some_and(|it| it.clashes(begin)));
            if let Some((gpu, _)) = clash {
                return Some(CsvError::SameGpu {
                    file: path.display().to_string().into(),
                    other: other.display().to_string().into(),
                    gpu: Arc::clone(gpu),
                });
            }
        }
        seen.push((path, gpus));
    }
    None
}

/// What the first rows of a file have of a GPU.
#[derive(Debug, Default)]
struct GpuBegin {
    metrics: BTreeSet<MetricId>,
    /// Of each time a hash of its values.
    rows: BTreeMap<i64, u64>,
}

impl GpuBegin {
    fn clashes(&self, other: &Self) -> bool {
        let meets = |(from, to): (i64, i64), (other_from, other_to): (i64, i64)| {
            // Files that follow each other may share the row between them.
            (from < other_to && other_from < to) || (from, to) == (other_from, other_to)
        };
        !self.metrics.is_empty()
            && self.metrics == other.metrics
            && self.span().zip(other.span()).is_some_and(|(one, other)| meets(one, other))
            && !self.goes_on_in(other)
    }

    fn span(&self) -> Option<(i64, i64)> {
        self.rows.first_key_value().zip(self.rows.last_key_value()).map(|((from, _), (to, _))| (*from, *to))
    }

    /// Whether the one begins before the other ends, with the same rows: a log that was copied while it was written.
    fn goes_on_in(&self, other: &Self) -> bool {
        let Some(((from, to), (other_from, other_to))) = self.span().zip(other.span()) else { return false };
        let both = from.max(other_from)..=to.min(other_to);
        (from, to) != (other_from, other_to) && self.rows.range(both.clone()).eq(other.rows.range(both))
    }
}

/// What a file begins with, of each GPU. Times are those of the file.
fn begins(path: &Path, config: &ReplayConfig, now_ns: i64) -> Result<HashMap<Arc<str>, GpuBegin>, CsvError> {
    let config = ReplayConfig {
        pace: ReplayPace::Unthrottled,
        batch_rows: ROWS_COMPARED,
        messages: false,
        ..config.clone()
    };
    let mut source = CsvSource::open(CsvInput::from(path), config, now_ns)?;
    let mut gpus: HashMap<Arc<str>, GpuBegin> = HashMap::new();
    let Poll::Ready(batch) = source.poll(now_ns)? else { return Ok(gpus) };
    if batch.table() != Table::GpuEvents {
        return Ok(gpus);
    }
    // Rows that are replayed as if live have times from now on.
    let moved_ns =
        source.first_ns().zip(batch.timestamps().first()).map_or(0, |(first_ns, at)| at - first_ns);
    for (row, at) in batch.timestamps().iter().enumerate() {
        let Some(key) = batch.identity(row).key() else { continue };
        let begin = gpus.entry(key).or_default();
        let mut hasher = DefaultHasher::new();
        for (id, column) in batch.metrics() {
            let Some(value) = column.value(row) else { continue };
            begin.metrics.insert(id);
            (id, value.as_f64().to_bits()).hash(&mut hasher);
        }
        begin.rows.insert(at - moved_ns, hasher.finish());
    }
    Ok(gpus)
}

/// The machine that wrote the files, as far as their places tell.
fn machine_of(paths: &[PathBuf]) -> String {
    let folder = |path: &PathBuf| {
        let whole = std::fs::canonicalize(path).unwrap_or_else(|_| path.clone());
        whole.parent().map(Path::to_owned)
    };
    let mut folders = paths.iter().map(folder);
    let first = folders.next().flatten().filter(|first| folders.all(|other| other.as_ref() == Some(first)));
    let name = first.and_then(|folder| Some(folder.file_name()?.to_string_lossy().into_owned()));
    let name = name.map(|name| name.trim_start_matches('.').to_owned()).filter(|name| !name.is_empty());
    let of_file = || paths.first().map(|path| CsvInput::from(path.as_path()).stem());
    name.or_else(of_file).unwrap_or_default()
}
