//! What a node has sent: pieces of rows in a file, looked at before they count.
//!
//! A piece is `length u32 | gpuvitals_core::wire::pack(batch)`, integers little-endian.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gpuvitals_core::batch::RowKeys;
use gpuvitals_core::wire::unpack;
use gpuvitals_core::{Batch, Table};
use gpuvitals_log::{Fresh, open_file};

use crate::error::{FlightError, JobError};
use crate::incident::FlightSpan;
use crate::job_incident::{NodeWindow, WindowGpu, WindowPart};
use crate::node_clock::{NodeClock, RoundTrip};

/// Bytes of a window for each GPU that it has rows of.
pub(crate) const GPU_LEN_MAX: u64 = 1 << 20;
/// Bytes of what a node sends at once.
pub(crate) const LEN_MAX: u64 = 64 << 20;
/// Most GPUs and partitions of a node.
const GPUS_MAX: usize = 512;

/// Most bytes of what a node sends with rows of so many GPUs, each of which gives so much room. It sends no more, and a gateway takes no more.
pub(crate) fn len_max(gpu_len_max: u64, gpus: usize) -> u64 {
    gpu_len_max.saturating_mul(gpus.max(1) as u64).min(LEN_MAX)
}

/// An answer of a node that comes in; dropped before it is kept, it leaves nothing.
#[derive(Debug)]
pub struct IncomingWindow {
    pub(crate) id: String,
    pub(crate) node: String,
    pub(crate) part: WindowPart,
    pub(crate) span: FlightSpan,
    /// What the times of the request and this answer say of the node's clock.
    pub(crate) clock: Option<NodeClock>,
    fresh: Fresh,
    target: PathBuf,
    bytes: u64,
}

impl IncomingWindow {
    /// One that goes to a place by way of another file.
    pub(crate) fn create(
        (id, node, part): (&str, &str, WindowPart),
        span: FlightSpan,
        target: PathBuf,
        beside: PathBuf,
    ) -> Result<Self, JobError> {
        let fresh = Fresh::create_private(&target, beside).map_err(FlightError::io("create", &target))?;
        let (id, node) = (id.to_owned(), node.to_owned());
        Ok(Self { id, node, part, span, clock: None, fresh, target, bytes: 0 })
    }

    /// Notes the times of the request and of this answer to it.
    pub fn timed(&mut self, trip: RoundTrip) {
        self.clock = trip.clock();
    }

    /// Takes more bytes.
    ///
    /// # Errors
    /// If they are too many, or cannot be written.
    pub fn take(&mut self, bytes: &[u8]) -> Result<(), JobError> {
        self.bytes = self.bytes.saturating_add(bytes.len() as u64);
        if self.bytes > LEN_MAX {
            return Err(JobError::TooLong { what: "an answer of a node", max: LEN_MAX });
        }
        let mut file = self.fresh.file();
        file.write_all(bytes).map_err(FlightError::io("write", &self.target))?;
        Ok(())
    }

    /// Looks at all that came.
    pub(crate) fn look(&self, is_cut: bool, came_ns: i64) -> Result<NodeWindow, JobError> {
        let mut file = self.fresh.file().try_clone().map_err(FlightError::io("read", &self.target))?;
        file.rewind().map_err(FlightError::io("read", &self.target))?;
        let mut facts = WindowFacts::default();
        for batch in WindowPieces::of(file, &self.target)? {
            facts.add(&batch?, self.span)?;
        }
        let of_gpu = match self.part {
            WindowPart::Window => GPU_LEN_MAX,
            WindowPart::Rest => LEN_MAX,
        };
        let max = len_max(of_gpu, facts.gpus.len());
        if self.bytes > max {
            return Err(JobError::TooLong { what: "what came of these GPUs", max });
        }
        let gpu = |(gpu, values): (Arc<str>, GpuValues)| {
            let GpuValues { last_ns, pause_ns } = values;
            WindowGpu { gpu: gpu.to_string(), last_ns, pause_ns }
        };
        Ok(NodeWindow {
            rows: facts.rows,
            had: facts.had,
            gpus: facts.gpus.into_iter().map(gpu).collect(),
            bytes: self.bytes,
            is_cut,
            came_ns,
        })
    }

    /// Puts it to its place, durable.
    pub(crate) fn put(self) -> Result<(), FlightError> {
        self.fresh.put().map_err(FlightError::io("write", &self.target))?;
        Ok(())
    }
}

/// The batches of a file of pieces, as nodes send them.
#[derive(Debug)]
pub struct WindowPieces {
    reader: BufReader<File>,
    left: u64,
    path: PathBuf,
}

impl WindowPieces {
    /// Those of a file of this name.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn open(path: &Path) -> Result<Self, JobError> {
        let file = open_file(path).map_err(FlightError::io("open", path))?;
        Self::of(file, path)
    }

    fn of(file: File, path: &Path) -> Result<Self, JobError> {
        let left = file.metadata().map_err(FlightError::io("read", path))?.len();
        Ok(Self { reader: BufReader::new(file), left, path: path.to_owned() })
    }

    fn read(&mut self) -> Result<Batch, JobError> {
        let cut = || JobError::Unfit("the last piece is cut off".to_owned());
        let mut len = [0; 4];
        self.left = self.left.checked_sub(len.len() as u64).ok_or_else(cut)?;
        self.reader.read_exact(&mut len).map_err(FlightError::io("read", &self.path))?;
        let len = u32::from_le_bytes(len);
        self.left = self.left.checked_sub(len.into()).ok_or_else(cut)?;
        let mut piece = Vec::new();
        let mut reader = self.reader.by_ref().take(len.into());
        reader.read_to_end(&mut piece).map_err(FlightError::io("read", &self.path))?;
        unpack(&piece).map_err(|error| {
            JobError::Unfit(format!("a piece is no batch: {}", gpuvitals_core::causes(&error)))
        })
    }
}

impl Iterator for WindowPieces {
    type Item = Result<Batch, JobError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        let read = self.read();
        if read.is_err() {
            // Behind it nothing can be told apart.
            self.left = 0;
        }
        Some(read)
    }
}

/// What the rows of a window say of it.
#[derive(Debug, Default)]
struct WindowFacts {
    rows: u64,
    had: Option<FlightSpan>,
    gpus: BTreeMap<Arc<str>, GpuValues>,
}

/// When a GPU gave values.
#[derive(Debug, Default)]
struct GpuValues {
    last_ns: Option<i64>,
    /// The longest time between two.
    pause_ns: Option<i64>,
}

impl GpuValues {
    /// Takes the time of a value. Rows are in the order of time, but for those that came late.
    fn take(&mut self, at_ns: i64) {
        let pause_ns = self.last_ns.map(|last_ns| at_ns.saturating_sub(last_ns));
        if pause_ns.is_none_or(|pause_ns| pause_ns > 0) {
            (self.last_ns, self.pause_ns) = (Some(at_ns), self.pause_ns.max(pause_ns));
        }
    }
}

impl WindowFacts {
    fn add(&mut self, batch: &Batch, span: FlightSpan) -> Result<(), JobError> {
        let unfit = |why: &str| Err(JobError::Unfit(why.to_owned()));
        if batch.table() != Table::GpuEvents {
            return unfit("a piece has rows of another table than gpu_events");
        }
        if batch.monotonic().is_none() {
            return unfit("a piece lacks the monotonic clock of its rows");
        }
        if batch.timestamps().iter().any(|at_ns| !(span.from_ns..=span.to_ns).contains(at_ns)) {
            return unfit("a piece has rows of a time that was not asked for");
        }
        let Ok(keys) = RowKeys::of(batch.records(), batch.table()) else {
            return unfit("a piece has rows without a GPU");
        };
        let columns: Vec<_> = batch.metrics().map(|(_, column)| column).collect();
        for (row, (id, &at_ns)) in keys.ids.iter().zip(batch.timestamps()).enumerate() {
            let Some(key) = keys.keys.get(*id as usize) else { continue };
            let values = self.gpus.entry(Arc::clone(key)).or_default();
            if columns.iter().any(|column| column.value(row).is_some()) {
                values.take(at_ns);
            }
            let had = self.had.get_or_insert(FlightSpan { from_ns: at_ns, to_ns: at_ns });
            (had.from_ns, had.to_ns) = (had.from_ns.min(at_ns), had.to_ns.max(at_ns));
        }
        if self.gpus.len() > GPUS_MAX {
            return unfit("it has rows of more GPUs than a node has");
        }
        self.rows += batch.rows() as u64;
        Ok(())
    }
}
