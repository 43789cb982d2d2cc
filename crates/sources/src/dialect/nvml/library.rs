//! Finding, loading and starting the library, and asking it which GPUs there are: all that may hang before a worker
//! exists, on threads of its own and with a bound.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use gpuvitals_core::clock::Moment;

use super::code::{Answer, Code};
use super::raw::{Gpu, LoadError, Raw};

/// Places of the library: where the loader finds it, then where the GPU operator's driver container and the
/// hosts of GKE mount it.
pub(super) const PATHS: [&str; 5] = [
    "libnvidia-ml.so.1",
    "/run/nvidia/driver/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
    "/run/nvidia/driver/usr/lib/aarch64-linux-gnu/libnvidia-ml.so.1",
    "/run/nvidia/driver/usr/lib64/libnvidia-ml.so.1",
    "/usr/local/nvidia/lib64/libnvidia-ml.so.1",
];
/// Most GPUs of one machine.
const GPUS_MAX: u32 = 64;

/// The library as found, with the GPUs it names.
pub(super) struct OpenedLibrary {
    pub(super) raw: &'static Raw,
    pub(super) path: PathBuf,
    pub(super) driver: String,
    pub(super) nvml: String,
    /// By index: a GPU, or its error; none at all if it did not answer in time.
    pub(super) gpus: Vec<Option<Answer<ListedGpu>>>,
}

/// A GPU by its names.
#[derive(Debug)]
pub(super) struct ListedGpu {
    pub(super) gpu: Gpu,
    pub(super) uuid: String,
    pub(super) name: Option<String>,
    /// PCI address and device id.
    pub(super) pci: Option<(String, u32)>,
    pub(super) vbios: Option<String>,
    /// As NVML numbers them, 7 is Ampere.
    pub(super) architecture: Option<u32>,
}

/// A library that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpenError {
    /// It is missing.
    #[error("there is no libnvidia-ml.so.1")]
    Missing,
    /// The file cannot be loaded.
    #[error("cannot load {path}: {text}")]
    Open {
        path: PathBuf,
        /// In the loader's words.
        text: String,
    },
    /// It does not start.
    #[error("{path} does not start: {code}")]
    Init { path: PathBuf, code: Code },
    /// It has not started in time.
    #[error("the library has not started within {} s", .0.as_secs())]
    Silent(Duration),
    /// An earlier start has not ended yet.
    #[error("the library is still being started")]
    Starting,
    /// No thread could be had.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
}

/// Loads the first of the libraries that is there and asks which GPUs it has.
pub(super) fn open(paths: Vec<PathBuf>, patience: Duration) -> Result<OpenedLibrary, OpenError> {
    let deadline_ns =
        Moment::now().mono_ns.saturating_add(i64::try_from(patience.as_nanos()).unwrap_or(i64::MAX));
    let (started, start) = sync_channel(1);
    spawn(move || {
        // Nobody waits any more if it came too late; the library is kept for the next search.
        let _late = started.send(first_of(&paths));
    })?;
    let (path, raw, driver, nvml, count) =
        receive(&start, deadline_ns).ok_or(OpenError::Silent(patience))??;
    let mut gpus: Vec<Option<Answer<ListedGpu>>> = (0..count.min(GPUS_MAX)).map(|_| None).collect();
    let (tell, told) = sync_channel(gpus.len());
    for index in 0..count.min(GPUS_MAX) {
        let Some(listing) = Listing::begin(raw, index) else { continue };
        let tell = tell.clone();
        spawn(move || {
            let listed = list(raw, index);
            drop(listing);
            let _late = tell.send((index, listed));
        })?;
    }
    drop(tell);
    while let Some((index, listed)) = receive(&told, deadline_ns) {
        if let Some(slot) = gpus.get_mut(index as usize) {
            *slot = Some(listed);
        }
    }
    Ok(OpenedLibrary { raw, path, driver, nvml, gpus })
}

type StartedLibrary = (PathBuf, &'static Raw, String, String, u32);

fn first_of(paths: &[PathBuf]) -> Result<StartedLibrary, OpenError> {
    let mut first_error = None;
    for path in paths {
        let error = match library(path) {
            Ok(raw) => {
                let init = |code| OpenError::Init { path: path.clone(), code };
                let driver = raw.driver_version().map_err(init)?;
                let nvml = raw.nvml_version().unwrap_or_default();
                return Ok((path.clone(), raw, driver, nvml, raw.count().map_err(init)?));
            }
            Err(LoadError::Init(code)) => return Err(OpenError::Init { path: path.clone(), code }),
            Err(LoadError::Starting) => return Err(OpenError::Starting),
            Err(LoadError::Open(text)) => OpenError::Open { path: path.clone(), text },
        };
        // A file that exists and cannot be loaded says more than a missing one.
        let is_missing = matches!(&error, OpenError::Open { text, .. } if text.contains("No such file"));
        if !is_missing || paths.len() == 1 {
            first_error.get_or_insert(error);
        }
    }
    Err(first_error.unwrap_or(OpenError::Missing))
}

/// Running libraries, by path; none while one is being started. They stay for the life of the process:
/// handles, samples and workers point into them, and restarting one costs tens of milliseconds and may power
/// a GPU up.
static RUNNING: Mutex<Vec<(PathBuf, Option<&'static Raw>)>> = Mutex::new(Vec::new());

fn library(path: &Path) -> Result<&'static Raw, LoadError> {
    let lock = || RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    let mut running = lock();
    match running.iter().find(|(known, _)| known == path) {
        Some((_, Some(raw))) => return Ok(raw),
        // Not waited for: it may hang, and every search would leave one more thread behind.
        Some((_, None)) => return Err(LoadError::Starting),
        None => running.push((path.to_owned(), None)),
    }
    drop(running);
    let loaded = Raw::load(path);
    let mut running = lock();
    running.retain(|(known, _)| known != path);
    let raw: &'static Raw = Box::leak(Box::new(loaded?));
    running.push((path.to_owned(), Some(raw)));
    Ok(raw)
}

/// GPUs whose listing has not returned yet. They are not queried again meanwhile: a hanging one would cost a
/// thread at every search.
static LISTINGS: Mutex<Vec<(&'static Raw, u32)>> = Mutex::new(Vec::new());

/// A place in [`LISTINGS`].
struct Listing(&'static Raw, u32);

impl Listing {
    /// None while an earlier one of this GPU is out.
    fn begin(raw: &'static Raw, index: u32) -> Option<Self> {
        let mut listings = LISTINGS.lock().unwrap_or_else(PoisonError::into_inner);
        if listings.iter().any(|known| is_of(known, raw, index)) {
            return None;
        }
        listings.push((raw, index));
        Some(Self(raw, index))
    }
}

impl Drop for Listing {
    fn drop(&mut self) {
        let mut listings = LISTINGS.lock().unwrap_or_else(PoisonError::into_inner);
        listings.retain(|known| !is_of(known, self.0, self.1));
    }
}

fn is_of(known: &(&'static Raw, u32), raw: &Raw, index: u32) -> bool {
    std::ptr::eq(known.0, raw) && known.1 == index
}

/// The identity of a GPU. May hang with it.
pub(super) fn list(raw: &Raw, index: u32) -> Answer<ListedGpu> {
    let gpu = raw.by_index(index)?;
    Ok(ListedGpu {
        gpu,
        uuid: raw.uuid(gpu)?,
        name: raw.name(gpu).ok(),
        pci: raw.pci(gpu).ok(),
        vbios: raw.vbios(gpu).ok(),
        architecture: raw.architecture(gpu).ok(),
    })
}

fn spawn(work: impl FnOnce() + Send + 'static) -> Result<(), OpenError> {
    std::thread::Builder::new().name("nvml-start".into()).spawn(work).map_err(OpenError::Thread)?;
    Ok(())
}

/// A message before the deadline; none if nothing comes.
fn receive<T>(from: &Receiver<T>, deadline_ns: i64) -> Option<T> {
    let left_ns = u64::try_from(deadline_ns - Moment::now().mono_ns).unwrap_or(0);
    from.recv_timeout(Duration::from_nanos(left_ns)).ok()
}
