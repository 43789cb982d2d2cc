//! What histories answer: events of rows, and what several answers lack together.

use std::collections::HashSet;

use gpuvitals_analysis::health_event::HealthEvent;
use gpuvitals_core::history::{History, Part, QueryError, RowsQuery};

/// Health events, in order of time; none of a history that does not keep them.
///
/// # Errors
/// When the history gives no answer.
pub(crate) async fn health_events(
    history: &dyn History,
    query: RowsQuery,
) -> Result<Part<Vec<HealthEvent>>, QueryError> {
    match history.rows(query).await {
        Ok(Part { answer, missing }) => {
            let events = answer.batch.map_or_else(Vec::new, |batch| HealthEvent::of_rows(&batch));
            Ok(Part { answer: events, missing })
        }
        Err(QueryError::NotKept { .. }) => Ok(Part::whole(Vec::new())),
        Err(error) => Err(error),
    }
}

/// What two answers lack, each once.
pub(crate) fn joined(mut missing: Vec<String>, more: Vec<String>) -> Vec<String> {
    missing.extend(more);
    let mut seen = HashSet::new();
    missing.retain(|words| seen.insert(words.clone()));
    missing
}
