//! Compares expected and stored keys: the keys (GPU and time) of files with those of stores together.
//!
//! `keys SENT PERHAPS STORE…` prints how many keys each store has, and ends with 1 if over all stores
//! together a key of the file SENT is missing, or one exists that neither file has, or if a store has one
//! twice. PERHAPS has the keys that may or may not have been sent. The files are CSV with the columns
//! `timestamp` and `uuid` first. Nobody else may have the stores open.

use std::collections::{HashMap, HashSet};
use std::error::Error;
use std::process::ExitCode;

use gpuvitals_core::IdentityColumn;
use gpuvitals_core::Table;
use gpuvitals_core::batch::text_at;
use gpuvitals_core::history::{History, RowsQuery};
use gpuvitals_core::time::{self, SECOND_NS};
use gpuvitals_store::{Store, StoreConfig};

/// GPU and time, nanoseconds UTC since 1970.
type Keys = HashSet<(u32, i64)>;

/// Numbers of GPUs, so that a key is small.
#[derive(Default)]
struct Gpus(HashMap<String, u32>);

impl Gpus {
    fn number(&mut self, name: &str) -> u32 {
        let next = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        *self.0.entry(name.to_owned()).or_insert(next)
    }
}

#[expect(clippy::print_stdout, reason = "an example tells what it found")]
fn main() -> Result<ExitCode, Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let mut arguments = std::env::args().skip(1);
    let mut gpus = Gpus::default();
    let mut file = || of_file(&arguments.next().ok_or("usage: keys SENT PERHAPS STORE…")?, &mut gpus);
    let (sent, perhaps) = (file()?, file()?);
    let (mut found, mut twice) = (Keys::new(), 0);
    for folder in arguments {
        let (keys, repeats) = runtime.block_on(of_store(&folder, &mut gpus))?;
        println!("{folder}: {} keys", keys.len());
        found.extend(keys);
        twice += repeats;
    }
    let missing = sent.difference(&found).count();
    let invented = found.iter().filter(|key| !sent.contains(key) && !perhaps.contains(key)).count();
    println!("{} keys sent, {missing} missing, {invented} invented, {twice} twice in a store", sent.len());
    Ok(if missing + invented + twice == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn of_file(file: &str, gpus: &mut Gpus) -> Result<Keys, Box<dyn Error>> {
    let text = std::fs::read_to_string(file)?;
    let rows = text.lines().skip(1).filter_map(|line| {
        let mut fields = line.split(',');
        Some((fields.next()?, fields.next()?))
    });
    rows.map(|(timestamp, uuid)| Ok((gpus.number(uuid), time::parse(timestamp)?))).collect()
}

/// The keys of a store, and how many of them it returned more than once. Queried by the minute: the pages before an
/// offset are read each time.
async fn of_store(folder: &str, gpus: &mut Gpus) -> Result<(Keys, usize), Box<dyn Error>> {
    let (store, recovered) = Store::open(StoreConfig::new(folder))?;
    if let Some(damage) = recovered.damage.first() {
        return Err(format!("{folder}: {damage}").into());
    }
    let fleet = store.fleet();
    let first = fleet.gpus.iter().map(|gpu| gpu.first_seen_ns).min();
    let last = fleet.gpus.iter().map(|gpu| gpu.last_seen_ns).max();
    let (mut keys, mut repeats) = (Keys::new(), 0);
    let (Some(mut start_ns), Some(last_ns)) = (first, last) else { return Ok((keys, repeats)) };
    while start_ns <= last_ns {
        let end_ns = start_ns + 60 * SECOND_NS;
        let rows = store.rows(RowsQuery {
            start_ns: Some(start_ns),
            end_ns: Some(end_ns - 1),
            metrics: Some(vec!["power_w".to_owned()]),
            with_total: true,
            ..RowsQuery::of(Table::GpuEvents, 1_000_000)
        });
        let rows = rows.await?;
        if let Some(words) = rows.missing.first() {
            return Err(format!("{folder}: {words}").into());
        }
        if let Some(batch) = rows.answer.batch {
            let uuids = batch.identity_column(IdentityColumn::Uuid).ok_or("rows without uuid")?;
            for (row, &time_ns) in batch.timestamps().iter().enumerate() {
                let name = text_at(uuids, row).ok_or("a row without uuid")?;
                repeats += usize::from(!keys.insert((gpus.number(name), time_ns)));
            }
            if Some(batch.rows()) < rows.answer.total {
                return Err(format!("{folder}: a minute with more rows than an answer holds").into());
            }
        }
        start_ns = end_ns;
    }
    Ok((keys, repeats))
}
