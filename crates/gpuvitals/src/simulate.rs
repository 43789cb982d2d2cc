//! `gpuvitals simulate`: a recording of a simulated fleet as CSV on standard output.

use std::io::{BufWriter, Write, stdout};

use clap::Args;
use gpuvitals_core::ports::{Poll, Source};
use gpuvitals_core::{Batch, causes, time};
use gpuvitals_inputs::csv::write::{WideWriter, WriteError};
use gpuvitals_inputs::simulated::{SimConfig, SimPace, Simulated};

use crate::failure::{Exit, Failure};
use crate::quantity;

/// `gpuvitals simulate`
#[derive(Debug, Args)]
pub(crate) struct Simulate {
    /// Size of the fleet
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub gpus: u32,
    /// Hosts of the fleet; 0: one for each 8 GPUs
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub hosts: u32,
    /// Seed: same seed, same data
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Length of the recording: 10m, 1h
    #[arg(long, value_name = "DURATION", default_value = "10m")]
    pub duration: String,
    /// Time between two samples: 1s, 100ms
    #[arg(long, value_name = "DURATION", default_value = "1s")]
    pub interval: String,
    /// Time of the first row (RFC 3339)
    #[arg(long, value_name = "TIME", default_value = "2026-01-01T00:00:00Z")]
    pub start: String,
}

/// Writes the recording.
///
/// # Errors
/// If the fleet is impossible, or standard output fails. If the reader goes away, it ends quietly.
pub(crate) fn run(settings: &Simulate) -> Result<(), Failure> {
    let usage = |text: String| Failure::new(Exit::Usage, text);
    let start_ns = time::parse(&settings.start).map_err(|e| usage(format!("--start: {e}")))?;
    let duration = quantity::flag("--duration", &settings.duration)?;
    let interval = quantity::flag("--interval", &settings.interval)?;
    // The end is exclusive: 10 minutes at 1 s are 600 instants.
    let span_ns = i64::try_from(duration.saturating_sub(interval).as_nanos()).unwrap_or(i64::MAX);
    let config = SimConfig {
        gpus: settings.gpus as usize,
        hosts: Some(settings.hosts as usize).filter(|hosts| *hosts > 0),
        seed: settings.seed,
        interval,
        start_ns,
        pace: SimPace::Unpaced { end_ns: start_ns.saturating_add(span_ns) },
        links: false,
    };
    let mut fleet = Simulated::new(config).map_err(|e| usage(causes(&e)))?;
    let out = BufWriter::new(stdout().lock());
    let mut writer = WideWriter::with_metrics(out, Simulated::metrics());
    let written =
        all(&mut fleet, |batch| writer.write(batch)).and_then(|()| Ok(writer.into_inner().flush()?));
    match written {
        Err(WriteError::Io(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(Failure::caused(Exit::Io, "cannot write the recording", error)),
        Ok(()) => Ok(()),
    }
}

fn all(
    fleet: &mut Simulated,
    mut write: impl FnMut(&Batch) -> Result<(), WriteError>,
) -> Result<(), WriteError> {
    while let Ok(Poll::Ready(batch)) = fleet.poll(i64::MAX) {
        write(&batch)?;
    }
    Ok(())
}
