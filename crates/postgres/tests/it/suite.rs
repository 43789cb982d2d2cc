//! The database does what every sink and history does.

use gpuvitals_suite::{Case, cases};
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
    let config = ProptestConfig { cases: 24, ..ProptestConfig::with_source_file(file!()) };
    TestRunner::new(config)
        .run(&cases(), |case| {
            runtime.block_on(check(&server, &case));
            Ok(())
        })
        .unwrap();
}
