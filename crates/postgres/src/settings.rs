//! Section `database` of the configuration.

use std::path::PathBuf;

use gpuvitals_settings::{Refusal, Secret, ValueEnum, settings, words};

/// How a connection is protected, as libpq has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SslMode {
    /// No TLS
    Disable,
    /// TLS if the server has it; its certificate is not checked
    Prefer,
    /// TLS; the certificate is checked only where sslrootcert names authorities
    Require,
    /// TLS with a certificate of a trusted authority
    VerifyCa,
    /// TLS with a certificate of a trusted authority for this host
    VerifyFull,
}

words!(SslMode);

settings! {
    /// PostgreSQL 13 or later. With a host rows go there instead of the embedded store, and it answers for them
    pub struct Database = "database", check Self::check {
        /// Host, or directory of the server's Unix socket; empty: no database
        pub host: String = "";
        /// Port
        pub port: u16 = 5432;
        /// User
        pub user: String = "";
        /// Password. A file, or the environment variable PGPASSWORD, keeps it out of here
        pub(crate) password: Secret = "";
        /// File with the password, read at every connection
        pub(crate) password_file: Option<PathBuf> = "";
        /// Database
        pub dbname: String = "";
        /// TLS as libpq has it: prefer and require check the certificate only where sslrootcert is set; verify-ca checks its
        /// authority, verify-full its name too. A Unix socket has none
        pub sslmode: SslMode = "prefer";
        /// PEM file of the authorities that are trusted; empty: those of the system
        pub(crate) sslrootcert: Option<PathBuf> = "";
        /// Connections at most; questions leave a quarter of them to writers
        pub(crate) connections: usize = 8, from 2 to 256;
    }
}

impl Database {
    /// Refuses half a connection.
    fn check(&self) -> Result<(), Refusal> {
        let missing = [("database.user", &self.user), ("database.dbname", &self.dbname)];
        match missing.into_iter().find(|(_, value)| !self.host.is_empty() && value.is_empty()) {
            Some((setting, _)) => Err(Refusal::new(setting, "it is needed where database.host is set")),
            None => Ok(()),
        }
    }

    /// The settings with this password, unless they have one.
    pub fn or_password(mut self, password: &str) -> Self {
        if self.password == Secret::default() && self.password_file.is_none() {
            self.password = Secret::from(password.to_owned());
        }
        self
    }

    /// The server in words, without the password.
    pub(crate) fn server(&self) -> String {
        format!("database {} of {}:{} as {}", self.dbname, self.host, self.port, self.user)
    }
}
