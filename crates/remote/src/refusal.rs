//! Questions without an answer, as statuses of gRPC and back: at both ends they are the same error.

use bytes::Bytes;
use gpuvitals_core::Table;
use gpuvitals_core::catalogue::by_column;
use gpuvitals_core::causes;
use gpuvitals_core::history::QueryError;
use gpuvitals_listener::client::first_cause;
use prost::Message as _;
use tonic::{Code, Status};

use crate::v1;
use crate::v1::refusal::{Range, TooMany, UnknownMetric, Why};

/// The call to another history failed.
#[derive(Debug, thiserror::Error)]
#[error("{code}: {message}")]
pub(crate) struct CallError {
    code: Code,
    message: String,
}

/// The status of a question without an answer.
pub(crate) fn status(error: &QueryError) -> Status {
    let too_many = |found, max| TooMany { found, max };
    let (code, why) = match *error {
        QueryError::Range { start_ns, end_ns, step_ns } => {
            (Code::InvalidArgument, Why::Range(Range { start_ns, end_ns, step_ns }))
        }
        QueryError::TooManyBuckets { buckets, max } => {
            (Code::InvalidArgument, Why::Buckets(too_many(buckets, max)))
        }
        QueryError::TooManyPoints { max } => (Code::InvalidArgument, Why::Points(too_many(0, max))),
        QueryError::TooManyValues { max } => (Code::InvalidArgument, Why::Values(too_many(0, max))),
        QueryError::TooManyRows { rows, max } => (Code::InvalidArgument, Why::Rows(too_many(rows, max))),
        QueryError::UnknownMetric { column, table } => {
            let unknown = UnknownMetric { column: column.to_owned(), table: table.name().to_owned() };
            (Code::InvalidArgument, Why::UnknownMetric(unknown))
        }
        QueryError::NotKept { ref reason } => (Code::NotFound, Why::NotKept(reason.to_string())),
        QueryError::Away { ref reason } => return Status::unavailable(reason.to_string()),
        QueryError::Failed(_) => {
            let words = causes(error);
            tracing::error!(error = words, "a question of another gpuvitals failed");
            return Status::internal(words);
        }
    };
    let refusal = v1::Refusal { why: Some(why) };
    Status::with_details(code, error.to_string(), Bytes::from(refusal.encode_to_vec()))
}

/// The error of a call that ended with a status.
pub(crate) fn error(status: &Status) -> QueryError {
    let why = v1::Refusal::decode(status.details()).ok().and_then(|refusal| refusal.why);
    known(why).unwrap_or_else(|| match status.code() {
        Code::Internal | Code::InvalidArgument | Code::DataLoss
            if std::error::Error::source(status).is_none() =>
        {
            QueryError::failed(CallError { code: status.code(), message: status.message().to_owned() })
        }
        _ => QueryError::away(words(status)),
    })
}

/// Why a service is not reached, or gives no answer.
fn words(status: &Status) -> String {
    match (std::error::Error::source(status), status.message()) {
        // The service did not send this: the connection ended.
        (Some(error), _) => format!("no connection: {}", first_cause(error)),
        (None, "") => status.code().to_string(),
        (None, message) => message.to_owned(),
    }
}

fn known(why: Option<Why>) -> Option<QueryError> {
    Some(match why? {
        Why::Range(Range { start_ns, end_ns, step_ns }) => QueryError::Range { start_ns, end_ns, step_ns },
        Why::Buckets(TooMany { found, max }) => QueryError::TooManyBuckets { buckets: found, max },
        Why::Points(TooMany { max, .. }) => QueryError::TooManyPoints { max },
        Why::Values(TooMany { max, .. }) => QueryError::TooManyValues { max },
        Why::Rows(TooMany { found, max }) => QueryError::TooManyRows { rows: found, max },
        Why::UnknownMetric(UnknownMetric { column, table }) => QueryError::UnknownMetric {
            column: by_column(&column)?.metric().column,
            table: Table::by_name(&table)?,
        },
        Why::NotKept(reason) => QueryError::NotKept { reason: reason.into() },
    })
}
