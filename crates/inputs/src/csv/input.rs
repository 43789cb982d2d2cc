//! The input: a file, standard input, any reader; compressed or not.

use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::bufread::MultiGzDecoder;

/// Endings of files, which are no part of a machine's name.
const ENDINGS: [&str; 9] = ["csv", "tsv", "txt", "log", "gz", "prom", "dat", "out", "nvidia-smi"];

/// The input to read.
pub enum CsvInput {
    /// A file, compressed with gzip or not.
    File(PathBuf),
    /// Standard input, which can be read once.
    Stdin,
    /// Any other reader, with a name for reports.
    Reader {
        /// Used as the file name in reports.
        name: String,
        /// Gives the bytes, compressed with gzip or not.
        reader: Box<dyn Read + Send>,
    },
}

impl fmt::Debug for CsvInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CsvInput").field(&self.name()).finish()
    }
}

impl From<&Path> for CsvInput {
    /// A file; `-` is standard input.
    fn from(path: &Path) -> Self {
        if path.as_os_str() == "-" { Self::Stdin } else { Self::File(path.to_owned()) }
    }
}

impl From<PathBuf> for CsvInput {
    /// A file; `-` is standard input.
    fn from(path: PathBuf) -> Self {
        Self::from(path.as_path())
    }
}

impl CsvInput {
    /// Its name in reports.
    pub fn name(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Stdin => "standard input".to_owned(),
            Self::Reader { name, .. } => name.clone(),
        }
    }

    /// Its name without folder and endings, which stands for the machine that wrote it: `node7` of `logs/node7.csv.gz`.
    pub(crate) fn stem(&self) -> String {
        let name = match self {
            Self::File(path) => {
                path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
            }
            Self::Stdin => "stdin".to_owned(),
            Self::Reader { name, .. } => name.rsplit('/').next().unwrap_or_default().to_owned(),
        };
        let mut stem = name.as_str();
        while let Some((rest, ending)) = stem.rsplit_once('.') {
            if rest.is_empty() || !ENDINGS.iter().any(|known| ending.eq_ignore_ascii_case(known)) {
                break;
            }
            stem = rest;
        }
        stem.trim_start_matches('.').replace("..", "_")
    }
}

/// An opened input, decompressed.
pub(super) struct OpenedInput {
    pub(super) bytes: Box<dyn Read + Send>,
    /// Bytes taken from the file so far, before decompression.
    pub(super) taken: Arc<AtomicU64>,
    /// Length of the file, if it is one.
    pub(super) total: Option<u64>,
    /// The file to reopen for another pass; `None` if it can be read only once.
    pub(super) again: Option<PathBuf>,
}

/// Opens an input and checks its first bytes: gzip has a magic number.
pub(super) fn open(input: CsvInput) -> io::Result<OpenedInput> {
    let (reader, total, again): (Box<dyn Read + Send>, _, _) = match input {
        CsvInput::File(path) => {
            let file = File::open(&path)?;
            let facts = file.metadata()?;
            if facts.is_dir() {
                return Err(io::ErrorKind::IsADirectory.into());
            }
            let regular = facts.is_file();
            (Box::new(file), regular.then_some(facts.len()), regular.then_some(path))
        }
        CsvInput::Stdin => (Box::new(io::stdin()), None, None),
        CsvInput::Reader { reader, .. } => (reader, None, None),
    };
    let taken = Arc::new(AtomicU64::new(0));
    let mut reader = CountingReader { reader, taken: Arc::clone(&taken) };
    let mut head = Vec::with_capacity(2);
    reader.by_ref().take(2).read_to_end(&mut head)?;
    let compressed = head == [0x1f, 0x8b];
    let whole = Cursor::new(head).chain(reader);
    let bytes: Box<dyn Read + Send> =
        if compressed { Box::new(MultiGzDecoder::new(BufReader::new(whole))) } else { Box::new(whole) };
    Ok(OpenedInput { bytes, taken, total, again })
}

struct CountingReader {
    reader: Box<dyn Read + Send>,
    taken: Arc<AtomicU64>,
}

impl Read for CountingReader {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(to)?;
        self.taken.fetch_add(read.try_into().unwrap_or(0), Ordering::Relaxed);
        Ok(read)
    }
}
