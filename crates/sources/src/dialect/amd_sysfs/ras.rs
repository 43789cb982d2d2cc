//! Errors and bad pages that the RAS part of the driver counts. Each file asks the hardware, about a millisecond, so
//! they are of the rare tier.

use std::io;
use std::path::Path;
use std::sync::Arc;

use gpuvitals_core::batch::Value;
use gpuvitals_core::{AbsenceReason, MetricId};

use super::card::names;
use super::parse::{parse_bad_pages, parse_err_count};
use super::sensor::Missing;
use crate::machine::PinnedFile;
use crate::probe::{Instance, Row};

const CORRECTED: MetricId = MetricId::of("ras_corrected");
const UNCORRECTED: MetricId = MetricId::of("ras_uncorrected");
const DEFERRED: MetricId = MetricId::of("ras_deferred");
const RETIRED: MetricId = MetricId::of("bad_pages_retired");
const PENDING: MetricId = MetricId::of("bad_pages_pending");
const UNRESERVABLE: MetricId = MetricId::of("bad_pages_unreservable");

/// Blocks looked at; the largest part has some twenty.
const BLOCKS_MAX: usize = 64;
/// What a block's file is called after the block's name.
const COUNTS: &str = "_err_count";

/// The error counts of a GPU; none on parts without RAS.
#[derive(Debug, Default)]
pub(super) struct Ras {
    /// Names and files of the blocks.
    blocks: Vec<(Arc<str>, PinnedFile)>,
    pages: Option<PinnedFile>,
    /// The right to some of them is missing.
    pub(super) denied: Vec<MetricId>,
}

impl Ras {
    /// Opens the files that exist.
    pub(super) fn open(device: &Path) -> Self {
        let folder = device.join("ras");
        let mut ras = Self::default();
        let is_denied = |error: &io::Error| Missing::of(error).reason() == AbsenceReason::Denied;
        for name in names(&folder) {
            let Some(block) = name.strip_suffix(COUNTS).filter(|_| ras.blocks.len() < BLOCKS_MAX) else {
                continue;
            };
            match PinnedFile::open(&folder.join(&name)) {
                Ok(file) => ras.blocks.push((block.into(), file)),
                Err(error) if is_denied(&error) => ras.denied.extend([CORRECTED, UNCORRECTED, DEFERRED]),
                Err(_) => {}
            }
        }
        match PinnedFile::open(&folder.join("gpu_vram_bad_pages")) {
            Ok(file) => ras.pages = Some(file),
            Err(error) if is_denied(&error) => ras.denied.extend([RETIRED, PENDING, UNRESERVABLE]),
            Err(_) => {}
        }
        ras
    }

    /// Reads all of it: the sums, and each block in detail. A block without a count is left out of the sum; if it fails this time only, the sum
    /// would be too small, and is absent.
    pub(super) fn read(&mut self, row: &mut Row) -> Result<(), Missing> {
        let mut sums = [(CORRECTED, None), (UNCORRECTED, None), (DEFERRED, None)];
        let mut failed = None;
        for (block, file) in &mut self.blocks {
            let count = match file.read_text().map_err(|error| Missing::of(&error)) {
                Ok(text) => parse_err_count(text),
                Err(Missing::Gone) => return Err(Missing::Gone),
                Err(Missing::Always(_)) => continue,
                Err(Missing::Now(reason)) => {
                    failed = Some(reason);
                    continue;
                }
            };
            let counts = [count.corrected, count.uncorrected, count.deferred];
            for ((metric, sum), count) in sums.iter_mut().zip(counts) {
                let Some(count) = count else { continue };
                *sum = Some(sum.unwrap_or(0_u64).saturating_add(count));
                let count = i64::try_from(count).unwrap_or(-1);
                row.detail(*metric, Instance::Name(Arc::clone(block)), Value::Int(count));
            }
        }
        for (metric, sum) in sums {
            match (failed, sum.and_then(|sum| i64::try_from(sum).ok())) {
                (Some(reason), _) => row.absent(metric, reason),
                (None, Some(sum)) => row.int(metric, sum),
                (None, None) => {}
            }
        }
        self.read_pages(row)
    }

    fn read_pages(&mut self, row: &mut Row) -> Result<(), Missing> {
        let Some(pages) = &mut self.pages else { return Ok(()) };
        match pages.read_text().map_err(|error| Missing::of(&error)) {
            Ok(text) => {
                let pages = parse_bad_pages(text);
                row.int(RETIRED, pages.retired);
                row.int(PENDING, pages.pending);
                row.int(UNRESERVABLE, pages.unreservable);
                Ok(())
            }
            Err(Missing::Gone) => Err(Missing::Gone),
            Err(Missing::Always(_)) => Ok(()),
            Err(Missing::Now(reason)) => {
                for metric in [RETIRED, PENDING, UNRESERVABLE] {
                    row.absent(metric, reason);
                }
                Ok(())
            }
        }
    }
}
