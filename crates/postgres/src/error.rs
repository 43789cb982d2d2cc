//! Errors.

use std::path::PathBuf;
use std::time::Duration;

use gpuvitals_core::Table;
use gpuvitals_core::batch::BatchError;
use gpuvitals_core::causes;
use gpuvitals_core::history::QueryError;
use gpuvitals_core::merge::MergeError;
use gpuvitals_core::ports::SinkError;
use tokio_postgres::error::SqlState;

/// Classes of the server's codes that tell of no defect of a statement: connection, state of the server (a standby takes no rows),
/// authorization, database, conflicts with others (deadlock, recovery), resources, state of an object (a lock that others hold), operator
/// (a statement's time is over), and its system.
const ELSEWHERE: [&str; 9] = ["08", "25", "28", "3D", "40", "53", "55", "57", "58"];

/// Why rows are not taken, or a question has no answer.
#[derive(Debug, thiserror::Error)]
pub enum PostgresError {
    /// The server cannot be reached, or refuses the user.
    #[error("cannot connect to {server}")]
    Connect {
        /// The server, database and user.
        server: String,
        /// What the library or the system says.
        #[source]
        source: tokio_postgres::Error,
    },
    /// A statement failed, or the connection was lost.
    #[error("cannot {doing}")]
    Statement {
        /// What it was for, as an infinitive: `read rows`.
        doing: &'static str,
        /// What the library or the system says.
        #[source]
        source: tokio_postgres::Error,
    },
    /// The user lacks a right that another user can give.
    #[error("cannot {doing}: {reason}; {remedy}")]
    Right {
        /// What was asked of it, as an infinitive: `read rows`.
        doing: &'static str,
        /// What the server says.
        reason: String,
        /// Who gives which right.
        remedy: String,
    },
    /// The server did not answer.
    #[error("cannot {doing}: no answer within {} s", within.as_secs())]
    TimedOut {
        /// What was asked of it, as an infinitive: `read rows`.
        doing: &'static str,
        /// How long an answer may take.
        within: Duration,
    },
    /// A file of the settings cannot be read.
    #[error("cannot read {setting} {}", path.display())]
    File {
        /// The setting that names it.
        setting: &'static str,
        /// The file as the settings name it.
        path: PathBuf,
        /// What the library or the system says.
        #[source]
        source: std::io::Error,
    },
    /// The authorities cannot be used.
    #[error("cannot use the authorities that are trusted (database.sslrootcert)")]
    Authorities(#[source] rustls::Error),
    /// The layout was made by another version.
    #[error(
        "the tables have layout {found} and this version knows layout {ours}; use the gpuvitals that made them, or another \
         database"
    )]
    Layout {
        /// What the database has.
        found: i32,
        /// What this version writes.
        ours: i32,
    },
    /// A column has a type that does not hold the catalogue's.
    #[error(
        "column {column} of {table} has type {found}, which does not become {wanted}: a newer gpuvitals made it"
    )]
    Column {
        /// Name of the table in the database.
        table: String,
        /// Name of the column in the table.
        column: String,
        /// The type that the column has there.
        found: String,
        /// The type that the catalogue gives it.
        wanted: &'static str,
    },
    /// Rows that cannot be put together: one names nobody, or their columns do not fit.
    #[error("cannot use rows of {0}")]
    Rows(Table, #[source] MergeError),
    /// Columns that are none of the table.
    #[error("cannot use columns of {0}")]
    Columns(Table, #[source] BatchError),
    /// Somebody deleted a number that was just made.
    #[error("the number of a GPU, host or identity is missing in the database")]
    Unnumbered,
    /// It has been closed.
    #[error("the database is closed")]
    Closed,
}

impl PostgresError {
    pub(crate) fn statement(doing: &'static str) -> impl Fn(tokio_postgres::Error) -> Self {
        move |source| Self::Statement { doing, source }
    }

    /// The server's code, if it refused a statement.
    pub(crate) fn code(&self) -> Option<&SqlState> {
        match self {
            Self::Statement { source, .. } | Self::Connect { source, .. } => source.code(),
            _ => None,
        }
    }

    /// Whether the user lacks a right, or has no schema in which tables are made.
    pub(crate) fn lacks_right(&self) -> bool {
        let lacking = [SqlState::INSUFFICIENT_PRIVILEGE, SqlState::INVALID_SCHEMA_NAME];
        self.code().is_some_and(|code| lacking.contains(code))
    }

    /// Whether somebody can mend it at the server, at its settings or on the way to it: then nothing is wrong here.
    fn is_elsewhere(&self) -> bool {
        match self {
            Self::Rows(..) | Self::Columns(..) | Self::Unnumbered => false,
            // Without a code the connection was lost: the server has refused nothing.
            Self::Statement { source, .. } => source.code().is_none_or(|code| {
                self.lacks_right() || ELSEWHERE.iter().any(|class| code.code().starts_with(class))
            }),
            _ => true,
        }
    }

    /// Whether tables, columns or partitions are not there that were there before.
    pub(crate) fn lacks_tables(&self) -> bool {
        let lost = [
            SqlState::CHECK_VIOLATION,
            SqlState::UNDEFINED_TABLE,
            SqlState::UNDEFINED_COLUMN,
            SqlState::UNDEFINED_FUNCTION,
        ];
        self.code().is_some_and(|code| lost.contains(code))
    }
}

impl From<PostgresError> for SinkError {
    fn from(error: PostgresError) -> Self {
        match &error {
            PostgresError::Closed => Self::Closed,
            PostgresError::Layout { .. } | PostgresError::Column { .. } => Self::Failed(error.into()),
            PostgresError::Rows(..) | PostgresError::Columns(..) => Self::Refused(error.into()),
            // Class 22: data that no column takes, such as a text with a zero byte.
            _ if error.code().is_some_and(|code| code.code().starts_with("22")) => {
                Self::Refused(error.into())
            }
            _ => Self::Busy(error.into()),
        }
    }
}

impl From<PostgresError> for QueryError {
    fn from(error: PostgresError) -> Self {
        if error.is_elsewhere() { Self::away(causes(&error)) } else { Self::failed(error) }
    }
}
