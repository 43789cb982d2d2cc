//! The server's disk is full while rows come.

use std::fs;
use std::os::unix::fs::chown;

use gpuvitals_core::history::{History, RowsQuery};
use gpuvitals_core::ports::{Sink, SinkError};
use gpuvitals_core::{Status, Table, causes};
use gpuvitals_rig::postgres::NOBODY;
use gpuvitals_rig::small_disk::SmallDisk;

use crate::server::Server;
use crate::{POWER, TableRow, batch, gpu, open};

const ROWS: i64 = 1_000;

#[tokio::test]
async fn a_full_disk_of_the_server_loses_and_doubles_nothing() {
    let server = Server::start("listen_addresses = ''\nfsync = off");
    let folder = server.path("small");
    let Some(_disk) = SmallDisk::mount(&folder, "6m") else { return };
    chown(&folder, Some(NOBODY), Some(NOBODY)).unwrap();
    let ballast = folder.join("ballast");
    fs::create_dir(folder.join("tables")).unwrap();
    chown(folder.join("tables"), Some(NOBODY), Some(NOBODY)).unwrap();
    fs::write(&ballast, vec![1; 3 << 20]).unwrap();
    let space = format!("CREATE TABLESPACE small LOCATION '{}'", folder.join("tables").display());
    server.sql("postgres", &space).await;
    server.sql("postgres", "ALTER DATABASE postgres SET default_tablespace = small").await;
    let postgres = open(&server.settings("postgres", &[])).await;
    let gpu = gpu("GPU-0", "");
    let rows_from = |first: i64| {
        let rows: Vec<TableRow<'_>> =
            (first..first + ROWS).map(|time_ns| (&gpu, time_ns, &[(POWER, 1.0)][..])).collect();
        batch(&rows)
    };
    let mut acknowledged = 0;
    let full = loop {
        match postgres.accept(vec![rows_from(acknowledged)]).await {
            Ok(()) => acknowledged += ROWS,
            Err(error) => break error,
        }
    };
    assert!(acknowledged > 0);
    assert!(
        matches!(full, SinkError::Busy(_)) && causes(&full).contains("No space left on device"),
        "{full}"
    );
    // It stays full, says so, and what is there can be read.
    assert!(matches!(postgres.accept(vec![rows_from(acknowledged)]).await, Err(SinkError::Busy(_))));
    let health = Sink::health(&postgres);
    assert!(
        health.status == Status::Degraded && health.reason.contains("No space left"),
        "{}",
        health.reason
    );
    let times = async || {
        let query = RowsQuery {
            metrics: Some(vec!["power_w".to_owned()]),
            ..RowsQuery::of(Table::GpuEvents, 1_000_000)
        };
        postgres.rows(query).await.unwrap().answer.batch.unwrap().timestamps().to_vec()
    };
    assert_eq!(times().await, (0..acknowledged).collect::<Vec<_>>());
    fs::remove_file(&ballast).unwrap();
    for _ in 0..3 {
        postgres.accept(vec![rows_from(acknowledged)]).await.unwrap();
        acknowledged += ROWS;
    }
    assert_eq!(Sink::health(&postgres).status, Status::Healthy);
    assert_eq!(times().await, (0..acknowledged).collect::<Vec<_>>());
}
