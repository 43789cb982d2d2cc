//! Writes a directory that looks like the `/sys` of a machine with N MI300X, and can keep it moving.
//!
//! `cargo run -p gpuvitals-sources --example mi300x_tree -- [--gpus 8] [--gpu-metrics 1.5|1.7|none] [--animate HZ] DIR`
//!
//! The values are made up: it is for tests and benches, not a capture. The files and formats are amdgpu's for
//! this part, with two exceptions for `rocm-smi` 5.2.3, so that it can be run on the same tree: it fails
//! without a voltage sensor (`in0_*`, which an MI300X does not have) and on the deep-sleep lines `S:` of the
//! clock tables (left out). With `--showtemp` it also aborts on any `gpu_metrics` newer than 1.3; for that
//! there is `--gpu-metrics none`.
//!
//! Expected when animated: a tick is one `pwrite` of some 2 KiB a GPU, a few microseconds each.
#![expect(clippy::print_stdout, reason = "an example prints what it did")]

mod package;
mod sysfs;

use std::error::Error;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use gpuvitals_sources::dialect::amd_gpu_metrics::{Field, GpuMetrics};
use package::{MetricsTable, Package};
use sysfs::Tree;

const HELP: &str = "\
Writes a directory that looks like the /sys of a machine with MI300X GPUs.
The values are MADE UP: it is for tests and benches, not a capture of a machine.

mi300x_tree [--gpus N] [--gpu-metrics 1.5|1.7|none] [--animate HZ] DIR
  --gpus N           how many GPUs, 1 to 64 (8)
  --gpu-metrics V    which version of the binary table, or none (1.7)
  --animate HZ       stay, and rewrite each gpu_metrics in place HZ times a second (1 to 2000) until killed
  DIR                must not exist";

struct Options {
    gpus: u16,
    table: Option<&'static MetricsTable>,
    animate_hz: Option<u32>,
    dir: PathBuf,
}

fn main() -> Result<(), Box<dyn Error>> {
    let Some(options) = options(std::env::args().skip(1))? else {
        println!("{HELP}");
        return Ok(());
    };
    let started_ns = monotonic_ns()?;
    let mut packages: Vec<Package> = (0..options.gpus).map(|gpu| Package::new(gpu, started_ns)).collect();
    let tree = Tree::new(&options.dir)?;
    tree.machine()?;
    for package in &packages {
        tree.gpu(package, options.table)?;
    }
    println!("made-up MI300X GPUs in {}:", options.dir.display());
    let Some(table) = options.table else {
        println!("{} without gpu_metrics", options.gpus);
        return Ok(());
    };
    for gpu in 0..options.gpus {
        let bytes = std::fs::read(tree.gpu_metrics(gpu))?;
        let read = GpuMetrics::decode(&bytes)?;
        let watts = read.get(Field::CurrentSocketPower).ok_or("no power in the table")?;
        println!("card{gpu} {} gpu_metrics {} {watts} W", sysfs::pci_address(gpu), read.version());
    }
    match options.animate_hz {
        Some(hz) => animate(&tree, &mut packages, table, hz),
        None => Ok(()),
    }
}

fn options(mut arguments: impl Iterator<Item = String>) -> Result<Option<Options>, Box<dyn Error>> {
    let mut options =
        Options { gpus: 8, table: Some(&MetricsTable::V1_7), animate_hz: None, dir: PathBuf::new() };
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
        match argument.as_str() {
            "--help" | "-h" => return Ok(None),
            "--gpus" => options.gpus = value()?.parse()?,
            "--gpu-metrics" => {
                options.table = match value()?.as_str() {
                    "1.5" => Some(&MetricsTable::V1_5),
                    "1.7" => Some(&MetricsTable::V1_7),
                    "none" => None,
                    other => return Err(format!("gpu_metrics {other}: 1.5, 1.7 or none").into()),
                }
            }
            "--animate" => options.animate_hz = Some(value()?.parse()?),
            _ if argument.starts_with('-') => {
                return Err(format!("{argument} is not known; see --help").into());
            }
            _ => options.dir = PathBuf::from(argument),
        }
    }
    if options.dir.as_os_str().is_empty() {
        return Err("which directory? see --help".into());
    }
    if !(1..=64).contains(&options.gpus) || options.animate_hz.is_some_and(|hz| !(1..=2000).contains(&hz)) {
        return Err("--gpus is 1 to 64, --animate 1 to 2000".into());
    }
    if options.table.is_none() && options.animate_hz.is_some() {
        return Err("--animate moves gpu_metrics, and there is to be none".into());
    }
    Ok(Some(options))
}

/// Lets time pass in the tables until the process is killed. A reader may see half of two snapshots, which the kernel
/// would not let it: the file system does not lock a read against a write.
#[expect(clippy::disallowed_methods, reason = "this is the loop that asks the clock and waits for it")]
fn animate(
    tree: &Tree,
    packages: &mut [Package],
    table: &MetricsTable,
    hz: u32,
) -> Result<(), Box<dyn Error>> {
    let files: Vec<File> = packages
        .iter()
        .map(|package| File::options().write(true).open(tree.gpu_metrics(package.gpu)))
        .collect::<Result<_, _>>()?;
    println!("moving at {hz} Hz until killed");
    let start = Instant::now();
    let mut blob = Vec::new();
    for tick in 1_u32.. {
        let due = Duration::from_secs(1) * tick / hz;
        std::thread::sleep(due.saturating_sub(start.elapsed()));
        let now_ns = monotonic_ns()?;
        for (package, file) in packages.iter_mut().zip(&files) {
            package.advance(now_ns);
            package.encode(table, &mut blob);
            file.write_all_at(&blob, 0)?;
        }
    }
    Ok(())
}

/// The kernel's monotonic clock, which amdgpu stamps its tables with.
fn monotonic_ns() -> Result<u64, Box<dyn Error>> {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Ok(u64::try_from(now.tv_sec)? * 1_000_000_000 + u64::try_from(now.tv_nsec)?)
}
