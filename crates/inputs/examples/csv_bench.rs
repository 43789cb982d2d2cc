//! CSV rows per second on one core: the source against a csv-crate loop that only splits fields.
//!
//! `cargo run --release -p gpuvitals-inputs --example csv_bench [ROWS] [FILE…]`: writes a long (DCGM) and a wide file
//! of ROWS lines (500,000) into a temporary directory, or takes the files given, and reads each alternately both
//! ways. Expected from a napkin: a line of 450 bytes costs the yardstick about 1 µs, one of 130 bytes about 0.3 µs;
//! the source takes 1.5 times as long for the first, four times for the second.

use std::error::Error;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::time::Instant;

use gpuvitals_core::ports::{Poll, Source as _};
use gpuvitals_inputs::csv::CsvSource;
use gpuvitals_inputs::replay::ReplayConfig;

/// After every time in the files.
const NOW_NS: i64 = 1_795_176_000_000_000_000;
const GPUS: usize = 247;
const ROUNDS: usize = 5;
/// Most rows of a batch: small batches show the cost of each GPU per batch.
const BATCH_ROWS: [usize; 2] = [500, 2_000];

const LONG_METRICS: [&str; 10] = [
    "GPU_UTIL",
    "MEM_COPY_UTIL",
    "POWER_USAGE",
    "GPU_TEMP",
    "FB_USED",
    "FB_FREE",
    "DEC_UTIL",
    "ENC_UTIL",
    "SM_CLOCK",
    "MEM_CLOCK",
];

fn main() -> Result<(), Box<dyn Error>> {
    let mut rows = 500_000;
    let mut files: Vec<PathBuf> = Vec::new();
    for argument in std::env::args().skip(1) {
        match argument.parse() {
            Ok(number) => rows = number,
            Err(_) => files.push(argument.into()),
        }
    }
    let dir = std::env::temp_dir().join(format!("gpuvitals-csv-bench-{}", std::process::id()));
    if files.is_empty() {
        std::fs::create_dir_all(&dir)?;
        files = vec![dir.join("long.csv"), dir.join("wide.csv")];
        write_long(&dir.join("long.csv"), rows)?;
        write_wide(&dir.join("wide.csv"), rows)?;
    }
    let outcome =
        files.iter().try_for_each(|file| BATCH_ROWS.iter().try_for_each(|rows| measure(file, *rows)));
    if dir.exists() {
        std::fs::remove_dir_all(&dir)?;
    }
    outcome
}

fn measure(file: &Path, batch_rows: usize) -> Result<(), Box<dyn Error>> {
    let (mut yardstick, mut ours) = (f64::INFINITY, f64::INFINITY);
    let mut counts = (0, 0, 0);
    for _ in 0..ROUNDS {
        let (seconds, lines) = timed(|| split_only(file))?;
        yardstick = yardstick.min(seconds);
        let (seconds, (taken, table_rows)) = timed(|| read(file, batch_rows))?;
        ours = ours.min(seconds);
        counts = (lines, taken, table_rows);
    }
    let (lines, taken, table_rows) = counts;
    let mut out = std::io::stdout();
    let per_second = |seconds: f64| f64::from(lines) / seconds;
    writeln!(
        out,
        "{}: {} bytes, {lines} lines, {taken} taken as {table_rows} rows in batches of {batch_rows}; csv crate splits {:.0} lines/s, the source \
         takes {:.0} lines/s; ratio {:.2}",
        file.file_name().unwrap_or_default().display(),
        file.metadata()?.len(),
        per_second(yardstick),
        per_second(ours),
        ours / yardstick,
    )?;
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "a measurement asks the clock")]
fn timed<T>(work: impl FnOnce() -> Result<T, Box<dyn Error>>) -> Result<(f64, T), Box<dyn Error>> {
    let start = Instant::now();
    let result = work()?;
    Ok((start.elapsed().as_secs_f64(), result))
}

fn split_only(file: &Path) -> Result<u32, Box<dyn Error>> {
    let mut reader = csv::Reader::from_path(file)?;
    let mut record = csv::ByteRecord::new();
    let (mut lines, mut bytes) = (0, 0);
    while reader.read_byte_record(&mut record)? {
        lines += 1;
        bytes += record.iter().map(<[u8]>::len).sum::<usize>();
    }
    std::hint::black_box(bytes);
    Ok(lines)
}

fn read(file: &Path, batch_rows: usize) -> Result<(u64, usize), Box<dyn Error>> {
    let config = ReplayConfig { batch_rows, ..ReplayConfig::default() };
    let mut source = CsvSource::open(file.to_owned(), config, NOW_NS)?;
    let mut rows = 0;
    loop {
        match source.poll(NOW_NS)? {
            Poll::Ready(batch) => rows += std::hint::black_box(batch).rows(),
            Poll::NotBefore(_) => {}
            Poll::End => return Ok((source.counts().rows_taken, rows)),
        }
    }
}

fn names(gpu: usize) -> (String, String) {
    (format!("GPU-{gpu:08x}-1111-2222-3333-{gpu:012x}"), format!("dgx-hgpu-{:03}", gpu / 8))
}

fn write_long(path: &Path, rows: usize) -> Result<(), Box<dyn Error>> {
    let mut out = BufWriter::new(File::create(path)?);
    writeln!(
        out,
        "timestamp,metric_name,gpu_id,device,uuid,modelName,Hostname,container,pod,namespace,value,labels_raw"
    )?;
    for line in 0..rows {
        let (gpu, metric, scrape) =
            (line % GPUS, (line / GPUS) % LONG_METRICS.len(), line / GPUS / LONG_METRICS.len());
        let Some(metric) = LONG_METRICS.get(metric).map(|name| format!("DCGM_FI_DEV_{name}")) else {
            continue;
        };
        let (uuid, host) = names(gpu);
        let (index, model) = (gpu % 8, "NVIDIA H100 80GB HBM3");
        let value = match metric.as_str() {
            "DCGM_FI_DEV_POWER_USAGE" => format!("{}.{:03}", 60 + line % 600, line % 1000),
            "DCGM_FI_DEV_FB_USED" | "DCGM_FI_DEV_FB_FREE" => (line % 81_007).to_string(),
            _ => (line % 101).to_string(),
        };
        writeln!(
            out,
            "\"{}\",\"{metric}\",\"{index}\",\"nvidia{index}\",\"{uuid}\",\"{model}\",\"{host}\",\"\",\"\",\"\",\
             \"{value}\",\"DCGM_FI_DRIVER_VERSION=\"\"535.129.03\"\",Hostname=\"\"{host}\"\",UUID=\"\"{uuid}\"\",\
             __name__=\"\"{metric}\"\",device=\"\"nvidia{index}\"\",gpu=\"\"{index}\"\",instance=\"\"{host}:9400\"\",\
             job=\"\"dgx_dcgm_exporter\"\",modelName=\"\"{model}\"\"\"",
            time(scrape)
        )?;
    }
    Ok(out.flush()?)
}

fn write_wide(path: &Path, rows: usize) -> Result<(), Box<dyn Error>> {
    let mut out = BufWriter::new(File::create(path)?);
    writeln!(
        out,
        "timestamp,uuid,temperature,utilization,memory_used,power_draw,memory_utilization,sm_clock,memory_clock,\
         encoder_utilization,decoder_utilization,fan_speed"
    )?;
    for line in 0..rows {
        let (uuid, _) = names(line % GPUS);
        writeln!(
            out,
            "{},{uuid},{},{}.{},{},{}.{:02},{},{},2619,{},{},{}.5",
            time(line / GPUS),
            30 + line % 60,
            line % 100,
            line % 10,
            line % 81_007,
            60 + line % 600,
            line % 100,
            line % 101,
            345 + line % 1600,
            line % 7,
            line % 3,
            line % 99,
        )?;
    }
    Ok(out.flush()?)
}

fn time(scrape: usize) -> String {
    let (hour, minute, second) = (scrape / 3600 % 24, scrape / 60 % 60, scrape % 60);
    format!("2025-07-18T{hour:02}:{minute:02}:{second:02}Z")
}
