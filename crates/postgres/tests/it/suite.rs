//! The database does what every sink and history does.

use gpuvitals_rig::rounds::rounds;
use gpuvitals_suite::{Case, cases, check_later_stays, write_in_any_order};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use crate::open;
use crate::server::Server;

/// Also after a restart of the collector, which reads the latest values anew.
async fn check(server: &Server, case: &Case) {
    let settings = server.database().await;
    let postgres = open(&settings).await;
    let model = case.write(&postgres, async || {}).await;
    case.ask(&postgres, &model).await;
    let again = open(&settings).await;
    case.ask(&again, &model).await;
    drop((postgres, again));
    server.sql("postgres", &format!("DROP DATABASE {} WITH (FORCE)", settings.dbname)).await;
}

#[test]
fn the_database_answers_as_all_histories_do() {
    let server = Server::shared();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let config = ProptestConfig { cases: rounds(24), ..ProptestConfig::with_source_file(file!()) };
    TestRunner::new(config)
        .run(&cases(), |case| {
            runtime.block_on(check(&server, &case));
            Ok(())
        })
        .unwrap();
}

#[test]
fn of_two_rows_of_one_key_the_later_version_stays_whatever_comes_later() {
    let server = Server::shared();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let settings = server.database().await;
        let postgres = open(&settings).await;
        write_in_any_order(&[&postgres], async || {}).await;
        check_later_stays(&postgres).await;
        drop(postgres);
        server.sql("postgres", &format!("DROP DATABASE {} WITH (FORCE)", settings.dbname)).await;
    });
}
