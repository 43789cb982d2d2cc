#![allow(clippy::all, clippy::pedantic, clippy::restriction, missing_docs)]
use gpuvitals_core::history::History;
use gpuvitals_postgres::{Database, Postgres};
use gpuvitals_settings::Section;
#[tokio::main]
async fn main() {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let settings = [
        ("database.host", given[0].as_str().into()),
        ("database.dbname", given[1].as_str().into()),
        ("database.user", "gpu".into()),
    ];
    let postgres = Postgres::open(Database::of(&settings).unwrap(), None).await.unwrap();
    let start = std::time::Instant::now();
    let fleet = postgres.fleet().await.unwrap().answer;
    println!(
        "{} GPUs, {} values, {:?}",
        fleet.gpus.len(),
        fleet.gpus.iter().map(|g| g.latest.len()).sum::<usize>(),
        start.elapsed()
    );
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    println!("{}", status.lines().find(|l| l.starts_with("VmHWM")).unwrap());
}
