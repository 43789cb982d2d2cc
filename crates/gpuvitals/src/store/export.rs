//! `gpuvitals store export`: rows of the store go into one file.
//!
//! The store is read beside its writer, as it is when this begins. The file appears whole or not at all.

use std::fs::File;
use std::io::{BufWriter, IsTerminal, Write, stderr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use clap::builder::PossibleValuesParser;
use gpuvitals_core::history::{Fleet, NoGpu, RowsQuery};
use gpuvitals_core::quantity::counted;
use gpuvitals_core::{Batch, IdentityColumn, Table, time};
use gpuvitals_inputs::csv::write::WideWriter;
use gpuvitals_store::{RowsFile, StoreView, ViewRows};
use serde_json::json;

use super::output::{StoreOutput, failed};
use crate::failure::{Exit, Failure};
use crate::record::{bytes, count};
use crate::replacing::{Replacing, unwritten};
use crate::terminal;

/// Flags of `store export`.
#[derive(Debug, Args)]
pub(super) struct Export {
    /// The file: Parquet if its name ends in .parquet, CSV if it ends in .csv
    #[arg(long, short = 'o', value_name = "FILE")]
    output: PathBuf,
    #[command(flatten)]
    replacing: Replacing,
    /// The table
    #[arg(long, value_name = "TABLE", default_value = "gpu_events", value_parser = PossibleValuesParser::new(Table::ALL.map(Table::name)))]
    table: String,
    /// First instant (RFC 3339) [default: all]
    #[arg(long, value_name = "TIME")]
    start: Option<String>,
    /// Last instant (RFC 3339) [default: all]
    #[arg(long, value_name = "TIME")]
    end: Option<String>,
    /// These GPUs only: name (node-1 / GPU 6), UUID, PCI address, or host:gpuN; of system_events hosts [default: all]
    #[arg(long, value_name = "GPU", value_delimiter = ',')]
    gpus: Vec<String>,
    /// These metrics only, by column name, beside time and identity [default: all]
    #[arg(long, value_name = "METRIC", value_delimiter = ',')]
    metrics: Vec<String>,
    #[command(flatten)]
    report: StoreOutput,
}

/// Exports.
///
/// # Errors
/// If there is no store, a flag names nothing that it has, the file exists or cannot be written, or rows are missing:
/// then the others are in the file.
pub(super) fn run(flags: &Export, dir: &Path) -> Result<(), Failure> {
    let kind = ExportKind::of(&flags.output)?;
    flags.replacing.check(&flags.output)?;
    let query = flags.query()?;
    let view = StoreView::open(dir).map_err(failed("read"))?;
    let query = RowsQuery { gpus: keys(&flags.gpus, query.table, view.fleet())?, ..query };
    let broken = |error| Failure::caused(Exit::Data, "cannot read the rows", error);
    let mut rows = view.all(query).map_err(broken)?;
    let unknown = flags.metrics.iter().find(|name| rows.schema().column_with_name(name).is_none());
    if let Some(name) = unknown {
        let text = format!("no row of {} in that time has a column {name:?}", flags.table);
        return Err(Failure::new(Exit::Data, text));
    }
    let (written, size) = flags.write(kind, &mut rows)?;
    let missing: Vec<&str> = rows.missing().collect();
    let json = json!({ "file": flags.output.display().to_string(), "rows": written, "bytes": size, "missing": missing });
    let text = format!("{}: {} ({})\n", flags.output.display(), counted(written, "row"), bytes(size));
    flags.report.print(&json, || text)?;
    if missing.is_empty() {
        return Ok(());
    }
    Err(Failure::new(Exit::Data, format!("rows are missing: {}", missing.join("; "))))
}

impl Export {
    /// The question, of all GPUs.
    fn query(&self) -> Result<RowsQuery, Failure> {
        let usage = |text: String| Failure::new(Exit::Usage, text);
        let instant = |flag: &str, text: &Option<String>| {
            let parsed = text.as_deref().map(time::parse).transpose();
            parsed.map_err(|error| usage(format!("--{flag}: {error}")))
        };
        let (start_ns, end_ns) = (instant("start", &self.start)?, instant("end", &self.end)?);
        if start_ns.zip(end_ns).is_some_and(|(start, end)| end < start) {
            return Err(usage("--end is before --start".to_owned()));
        }
        let table = Table::by_name(&self.table);
        let table = table.ok_or_else(|| usage(format!("--table: {:?} is no table", self.table)))?;
        let metrics = (!self.metrics.is_empty()).then(|| self.metrics.clone());
        Ok(RowsQuery { start_ns, end_ns, metrics, ..RowsQuery::of(table, 0) })
    }

    /// Writes the file. Gives rows and bytes.
    fn write(&self, kind: ExportKind, rows: &mut ViewRows<'_>) -> Result<(u64, u64), Failure> {
        let path = &self.output;
        let failed = |error| unwritten(path, error);
        let fresh = self.replacing.create(path)?;
        let file = fresh.file().try_clone().map_err(failed)?;
        let mut out = ExportFile::begin(kind, file, path, rows)?;
        let (mut written, shows) = (0, stderr().is_terminal());
        loop {
            let batch = rows.next_batch();
            let batch = batch.map_err(|error| Failure::caused(Exit::Data, "cannot read the rows", error))?;
            let Some(batch) = batch else { break };
            out.write(&batch, path)?;
            written += batch.rows() as u64;
            if shows && let Some(last) = batch.timestamps().last() {
                let (hours, all) = rows.hours();
                let (rows, last) = (count(written), time::format(*last));
                terminal::draw(&format!(
                    "{hours} of {} done, {rows} rows, to {last}",
                    counted(all as u64, "hour")
                ));
            }
        }
        terminal::leave();
        out.finish(path)?;
        if written == 0 {
            return Err(Failure::new(
                Exit::Data,
                format!("the store has no row of {} in that time", self.table),
            ));
        }
        let size = fresh.put().map_err(failed)?;
        Ok((written, size))
    }
}

/// The keys of GPUs or hosts.
fn keys(names: &[String], table: Table, fleet: &Fleet) -> Result<Vec<Arc<str>>, Failure> {
    let key = |name: &String| {
        if table.subject() != IdentityColumn::Uuid {
            return Ok(Arc::from(name.as_str()));
        }
        fleet.find(name).map(|gpu| Arc::clone(&gpu.key)).map_err(|why| {
            let text = match why {
                NoGpu::Unknown => format!("--gpus: the store has no GPU {name:?}"),
                NoGpu::Ambiguous(keys) => {
                    format!("--gpus: {name:?} is the name of several GPUs: {}", keys.join(", "))
                }
            };
            Failure::new(Exit::Data, text)
        })
    };
    names.iter().map(key).collect()
}

/// What the file is.
#[derive(Debug, Clone, Copy)]
enum ExportKind {
    Parquet,
    Csv,
}

impl ExportKind {
    fn of(path: &Path) -> Result<Self, Failure> {
        match path.extension().and_then(|it| it.to_str()) {
            Some("parquet") => Ok(Self::Parquet),
            Some("csv") => Ok(Self::Csv),
            _ => {
                let text = format!("--output: {} ends neither in .parquet nor in .csv", path.display());
                Err(Failure::new(Exit::Usage, text))
            }
        }
    }
}

/// The file being written.
enum ExportFile {
    Parquet(Box<RowsFile>),
    Csv(WideWriter<BufWriter<File>>),
}

impl ExportFile {
    fn begin(kind: ExportKind, file: File, path: &Path, rows: &ViewRows<'_>) -> Result<Self, Failure> {
        Ok(match kind {
            ExportKind::Csv => Self::Csv(WideWriter::new(BufWriter::new(file))),
            ExportKind::Parquet => {
                let begun = RowsFile::begin(file, path.to_owned(), rows.table(), rows.schema());
                Self::Parquet(Box::new(begun.map_err(|error| cannot_write(path, error))?))
            }
        })
    }

    fn write(&mut self, batch: &Batch, path: &Path) -> Result<(), Failure> {
        match self {
            Self::Parquet(file) => file.write(batch).map_err(|error| cannot_write(path, error)),
            Self::Csv(file) => file.write(batch).map_err(|error| cannot_write(path, error)),
        }
    }

    fn finish(self, path: &Path) -> Result<(), Failure> {
        match self {
            Self::Parquet(file) => file.finish().map(drop).map_err(|error| cannot_write(path, error)),
            Self::Csv(file) => file.into_inner().flush().map_err(|error| cannot_write(path, error)),
        }
    }
}

fn cannot_write(path: &Path, error: impl std::error::Error + Send + Sync + 'static) -> Failure {
    Failure::caused(Exit::Io, format!("cannot write {}", path.display()), error)
}
