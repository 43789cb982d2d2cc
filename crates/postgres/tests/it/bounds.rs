//! The latest state within its bounds.

use gpuvitals_core::Table;
use gpuvitals_core::figures::render;
use gpuvitals_core::history::{FleetBounds, History, RowsQuery};
use gpuvitals_core::ports::Sink;
use gpuvitals_postgres::Postgres;
use gpuvitals_suite::{AHEAD_AT_MOST_NS, check_fleet, check_row_due, check_rows_ahead};

use crate::server::Server;
use crate::{POWER, batch, gpu};

async fn keys(postgres: &Postgres) -> Vec<String> {
    let fleet = postgres.fleet().await.unwrap().answer;
    fleet.gpus.iter().map(|gpu| gpu.key.to_string()).collect()
}

#[tokio::test]
async fn the_longest_silent_gpus_leave_the_latest_state_are_counted_and_their_rows_stay() {
    let server = Server::shared();
    let settings = server.database().await;
    let bounds = FleetBounds { gpus_max: 2, ..FleetBounds::default() };
    let open = async || Postgres::open(settings.clone(), None, bounds).await.unwrap();
    let postgres = open().await;
    // The oldest in the database is not the longest silent; it has left, and come again.
    for (time_ns, name) in [(1, "GPU-b"), (2, "GPU-a"), (3, "GPU-d"), (4, "GPU-b"), (5, "GPU-c")] {
        let row = batch(&[(&gpu(name, ""), time_ns, &[(POWER, 1.0)])]);
        postgres.accept(vec![row]).await.unwrap();
    }
    let forgotten = |postgres: &Postgres| {
        let stats = postgres.stats().own;
        let figures = String::from_utf8(render(&postgres.families())).unwrap();
        let line = format!("gpuvitals_postgres_gpus_forgotten_total {}\n", stats["gpus_forgotten"]);
        assert!(figures.contains(&line), "{figures}");
        (stats["gpus"].as_u64(), stats["gpus_forgotten"].as_u64())
    };
    assert_eq!(forgotten(&postgres), (Some(2), Some(3)));
    // The first question reads what the database had before, and no more is held then.
    assert_eq!(keys(&postgres).await, ["GPU-b", "GPU-c"]);
    assert_eq!(forgotten(&postgres).0, Some(2));
    let again = open().await;
    assert_eq!(keys(&again).await, ["GPU-b", "GPU-c"]);
    assert_eq!(forgotten(&again), (Some(2), Some(2)));
    let rows = RowsQuery { with_total: true, ..RowsQuery::of(Table::GpuEvents, 10) };
    assert_eq!(again.rows(rows).await.unwrap().answer.total, Some(5));
}

#[tokio::test]
async fn rows_of_a_clock_ahead_count_when_their_time_has_come() {
    let server = Server::shared();
    let settings = server.database().await;
    let bounds = FleetBounds { ahead_max_ns: AHEAD_AT_MOST_NS, ..FleetBounds::default() };
    let open = async || Postgres::open(settings.clone(), None, bounds).await.unwrap();
    let postgres = open().await;
    let mut counted = check_rows_ahead(&postgres, &postgres).await;
    check_row_due(&postgres, &postgres, &mut counted).await;
    // Also after a restart, which reads the latest values anew.
    check_fleet(&open().await, &counted).await;
}
