//! Users that may not all that is needed: they are told what to do, and afterwards nothing is started anew.

use gpuvitals_core::history::{History, QueryError, RowsQuery};
use gpuvitals_core::ports::{Sink, SinkError};
use gpuvitals_core::{Status, Table, causes};
use gpuvitals_postgres::{Database, Postgres, PostgresError};

use crate::server::Server;
use crate::{DAY_NS, open, power, powers, refusal};

/// A database whose user is no superuser, and that user as SQL has it: a name that must be quoted.
async fn of_user(server: &Server) -> (Database, String) {
    let database = server.database().await.dbname;
    let name = format!("{database}-User");
    let user = format!("\"{name}\"");
    server.sql(&database, &format!("CREATE ROLE {user} LOGIN")).await;
    (server.settings(&database, &[("database.user", &name)]), user)
}

/// Everything that is asked and written is refused, with this remedy.
async fn is_refused(postgres: &Postgres, remedy: &str) {
    let rows = postgres.rows(RowsQuery::of(Table::GpuEvents, 1)).await.unwrap_err();
    let fleet = postgres.fleet().await.unwrap_err();
    for refused in [rows, fleet] {
        assert!(
            matches!(&refused, QueryError::Away { reason } if reason.contains(remedy)),
            "{}, not {remedy}",
            causes(&refused)
        );
    }
    let ping = postgres.ping().await.unwrap_err();
    assert!(matches!(&ping, PostgresError::Right { remedy: told, .. } if told.contains(remedy)), "{ping}");
    let refused = refusal(postgres, power(1, 1.0)).await;
    assert!(matches!(refused, SinkError::Busy(_)) && causes(&refused).contains(remedy), "{refused}");
    for health in [Sink::health(postgres), History::health(postgres)] {
        assert_eq!((health.status, health.reason.matches(remedy).count()), (Status::Degraded, 1));
        assert!(health.reason.contains("docs/postgres.md has all rights"), "{}", health.reason);
    }
}

async fn works(postgres: &Postgres) {
    postgres.accept(vec![power(1, 1.0)]).await.unwrap();
    assert_eq!(powers(postgres).await, [(1, Some(1.0))]);
    assert_eq!(postgres.fleet().await.unwrap().answer.gpus.len(), 1);
    assert_eq!(History::health(postgres).status, Status::Healthy);
}

#[tokio::test]
async fn a_user_that_lacks_a_right_is_told_the_statement_that_gives_it_and_goes_on_after_it() {
    let server = Server::shared();
    for (without, remedy) in [
        ("REVOKE CREATE ON SCHEMA public FROM PUBLIC", "GRANT CREATE ON SCHEMA public TO USER"),
        ("REVOKE ALL ON SCHEMA public FROM PUBLIC", "CREATE SCHEMA AUTHORIZATION USER"),
    ] {
        let (settings, user) = of_user(&server).await;
        server.sql(&settings.dbname, without).await;
        let remedy = remedy.replace("USER", &user);
        let postgres = open(&settings).await;
        is_refused(&postgres, &remedy).await;
        server.sql(&settings.dbname, &remedy).await;
        works(&postgres).await;
    }
}

#[tokio::test]
async fn a_user_of_tables_that_another_one_made_is_told_who_did() {
    let server = Server::shared();
    let (settings, user) = of_user(&server).await;
    open(&server.settings(&settings.dbname, &[])).await;
    server.sql(&settings.dbname, &format!("GRANT CREATE ON SCHEMA public TO {user}")).await;
    let remedy = format!("GRANT gpu TO {user}");
    let postgres = open(&settings).await;
    is_refused(&postgres, &remedy).await;
    server.sql(&settings.dbname, &remedy).await;
    works(&postgres).await;
}

#[tokio::test]
async fn a_process_that_only_asks_is_healthy_again_after_the_right_was_given() {
    let server = Server::shared();
    let (settings, user) = of_user(&server).await;
    server.sql(&settings.dbname, "REVOKE CREATE ON SCHEMA public FROM PUBLIC").await;
    let postgres = open(&settings).await;
    assert_eq!(History::health(&postgres).status, Status::Degraded);
    server.sql(&settings.dbname, &format!("GRANT CREATE ON SCHEMA public TO {user}")).await;
    postgres.ping().await.unwrap();
    assert_eq!(History::health(&postgres).status, Status::Healthy);
}

#[tokio::test]
async fn a_right_that_is_taken_away_stops_the_rows_of_a_new_day_and_no_question() {
    let server = Server::shared();
    let (settings, user) = of_user(&server).await;
    let right = |verb: &str, whose: &str| format!("{verb} CREATE ON SCHEMA public {whose} {user}");
    server.sql(&settings.dbname, &right("GRANT", "TO")).await;
    let postgres = open(&settings).await;
    postgres.accept(vec![power(1, 1.0)]).await.unwrap();
    let revoked = format!("REVOKE CREATE ON SCHEMA public FROM PUBLIC; {}", right("REVOKE", "FROM"));
    server.sql(&settings.dbname, &revoked).await;
    let refused = refusal(&postgres, power(9 * DAY_NS, 2.0)).await;
    let remedy = right("GRANT", "TO");
    assert!(matches!(refused, SinkError::Busy(_)) && causes(&refused).contains(&remedy), "{refused}");
    assert_eq!(powers(&postgres).await, [(1, Some(1.0))]);
    server.sql(&settings.dbname, &remedy).await;
    postgres.accept(vec![power(9 * DAY_NS, 2.0)]).await.unwrap();
    assert_eq!(powers(&postgres).await, [(1, Some(1.0)), (9 * DAY_NS, Some(2.0))]);
}

#[tokio::test]
async fn a_question_that_an_operator_ends_is_no_defect() {
    let server = Server::shared();
    let settings = server.database().await;
    let postgres = open(&settings).await;
    postgres.accept(vec![power(1, 1.0)]).await.unwrap();
    let holder = crate::held(&settings).await;
    let asked = postgres.clone();
    let asking = tokio::spawn(async move { asked.rows(RowsQuery::of(Table::GpuEvents, 1)).await });
    crate::until_waiting(&server, &settings, 1).await;
    let end = "SELECT pg_cancel_backend(pid)::text FROM pg_stat_activity WHERE datname = current_database() AND \
               wait_event_type = 'Lock' AND application_name = 'gpuvitals'";
    server.sql(&settings.dbname, end).await;
    let ended = asking.await.unwrap().unwrap_err();
    assert!(
        matches!(&ended, QueryError::Away { reason } if reason.contains("canceling statement")),
        "{ended}"
    );
    holder.batch_execute("COMMIT").await.unwrap();
    assert_eq!(powers(&postgres).await, [(1, Some(1.0))]);
}
