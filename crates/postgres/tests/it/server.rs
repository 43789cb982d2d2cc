//! The rig's server with the settings of its databases.

use std::ops::Deref;
use std::sync::Arc;

use gpuvitals_postgres::Database;
use gpuvitals_rig::postgres::PostgresServer;
use gpuvitals_settings::{Section, Value};

pub(crate) struct Server(Arc<PostgresServer>);

impl Deref for Server {
    type Target = PostgresServer;

    fn deref(&self) -> &PostgresServer {
        &self.0
    }
}

impl Server {
    pub(crate) fn start(options: &str) -> Self {
        Self(Arc::new(PostgresServer::start(options)))
    }

    pub(crate) fn shared() -> Self {
        Self(PostgresServer::shared())
    }

    /// The settings of a database in it, with these in place of some.
    pub(crate) fn settings(&self, dbname: &str, other: &[(&str, &str)]) -> Database {
        let mut given: Vec<(&str, Value)> = vec![
            ("database.host", self.host().into()),
            ("database.user", "gpu".into()),
            ("database.port", self.port().to_string().as_str().into()),
            ("database.dbname", dbname.into()),
            ("database.sslmode", "disable".into()),
        ];
        given.extend(other.iter().map(|(path, value)| (*path, Value::from(*value))));
        Database::of(&given).unwrap()
    }

    /// A new, empty database.
    pub(crate) async fn database(&self) -> Database {
        self.settings(&self.0.database().await, &[])
    }
}
