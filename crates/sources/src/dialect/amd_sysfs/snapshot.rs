//! The open `gpu_metrics`: its present table, or the reason why it has none.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use gpuvitals_core::AbsenceReason;

use super::card::Card;
use super::sensor::Missing;
use super::table::Reader;
use crate::dialect::amd_gpu_metrics::{GpuMetrics, TableError, Version};
use crate::finding::{Finding, Verdict};
use crate::machine::PinnedFile;
use crate::probe::{Driver, Due};

/// Failures in a row after which `gpu_metrics` is asked once a second only: a driver that gets no answer from the
/// firmware may wait for it each time.
const FAILURES_MAX: u32 = 3;

/// The `gpu_metrics` of a GPU.
#[derive(Debug)]
pub(super) struct Snapshot {
    path: PathBuf,
    file: Option<PinnedFile>,
    /// By the version that the first table showed.
    reader: Option<Reader>,
    failures: u32,
    missing: Missing,
    /// Whether its failure was reported; reported again only after it was well at a rare reading.
    is_told: bool,
}

/// The reason for a missing table.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("{0}")]
    Unread(#[from] io::Error),
    #[error("{0}")]
    Refused(#[from] TableError),
    #[error("{now}, where it was {before}")]
    Changed { before: Version, now: Version },
}

impl Trouble {
    fn missing(&self) -> Missing {
        match self {
            Self::Unread(error) => Missing::of(error),
            Self::Refused(TableError::Truncated { .. }) | Self::Changed { .. } => {
                Missing::Now(AbsenceReason::Invalid)
            }
            Self::Refused(_) => Missing::Always(AbsenceReason::NotSupported),
        }
    }
}

impl Snapshot {
    /// Of a card. The file is opened by the first reading.
    pub(super) fn new(card: &Card) -> Self {
        Self {
            path: card.device.join("gpu_metrics"),
            file: None,
            reader: None,
            failures: 0,
            missing: Missing::Now(AbsenceReason::Invalid),
            is_told: false,
        }
    }

    /// The present table, and its reader. News about it is added to the findings, once.
    ///
    /// # Errors
    /// If it has no table now; permanently as long as none was understood, temporarily once one was.
    pub(super) fn read(
        &mut self,
        card: &Card,
        due: Due,
        findings: &mut Vec<Finding>,
    ) -> Result<(GpuMetrics<'_>, &mut Reader), Missing> {
        if self.failures >= FAILURES_MAX {
            if !due.slow {
                return Err(self.missing);
            }
            if due.rare {
                self.file = None;
            }
        }
        let before = self.reader.as_ref().map(Reader::version);
        match table(&mut self.file, &self.path, before) {
            Ok(metrics) => {
                self.failures = 0;
                if self.is_told && due.rare {
                    self.is_told = false;
                    findings.push(Finding::new(Verdict::Good, subject(card), "gpu_metrics answers again"));
                }
                let version = metrics.version();
                let reader = self.reader.get_or_insert_with(|| Reader::new(version, card));
                Ok((metrics, reader))
            }
            Err(trouble) => {
                self.missing = match trouble.missing() {
                    Missing::Always(AbsenceReason::NotSupported) if before.is_some() => {
                        Missing::Now(AbsenceReason::Invalid)
                    }
                    Missing::Always(reason) if before.is_some() => Missing::Now(reason),
                    missing => missing,
                };
                self.failures = self.failures.saturating_add(1);
                // A missing file, or a missing right, shows without reading.
                let is_news = match self.missing {
                    Missing::Now(_) => true,
                    Missing::Always(_) => matches!(trouble, Trouble::Refused(_)),
                    Missing::Gone => false,
                };
                if is_news && !std::mem::replace(&mut self.is_told, true) {
                    let is_unknown = matches!(
                        trouble,
                        Trouble::Refused(TableError::Unknown(_) | TableError::WrongSize(_))
                    );
                    let finding = finding(card, &trouble);
                    findings.push(if is_unknown {
                        finding.remedy("a newer gpuvitals may know this version")
                    } else {
                        finding
                    });
                }
                Err(self.missing)
            }
        }
    }
}

/// The finding for a table whose fields are all empty.
pub(super) fn unfilled(card: &Card, version: Version) -> Finding {
    finding(card, &format_args!("{version}, no field of it is filled"))
}

fn finding(card: &Card, trouble: &dyn fmt::Display) -> Finding {
    let text = format!("gpu_metrics: {trouble}; what hwmon and pp_dpm files have comes from there");
    Finding::new(Verdict::Partial, subject(card), text)
}

fn subject(card: &Card) -> String {
    format!("{} {}", Driver::AmdSysfs, card.subject())
}

/// The table in a file, which is opened if necessary; of the previous version, if there was one.
fn table<'a>(
    file: &'a mut Option<PinnedFile>,
    path: &Path,
    before: Option<Version>,
) -> Result<GpuMetrics<'a>, Trouble> {
    let open = match file.take() {
        Some(open) => open,
        None => PinnedFile::open(path)?,
    };
    let metrics = GpuMetrics::decode(file.insert(open).read()?)?;
    match before.filter(|&before| before != metrics.version()) {
        Some(before) => Err(Trouble::Changed { before, now: metrics.version() }),
        None => Ok(metrics),
    }
}
