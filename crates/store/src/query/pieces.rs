//! Rows that are merged in pieces: some GPUs at a time, and of a GPU with very many some of the time.

use std::collections::BTreeSet;
use std::sync::Arc;

use gpuvitals_core::history::QueryError;

use crate::reader::{Part, Reading, Scope};

/// Rows that are held at a time: as they were read and as they are merged, 80 MB at most.
const ROWS_AT_ONCE: usize = 1 << 18;

/// The pieces of a scope, and what could not be read to find them.
///
/// # Errors
/// As [`Reading::go_on`].
pub(super) fn pieces(
    reading: Reading<'_>,
    parts: &[Part],
    scope: &Scope,
) -> Result<(Vec<Scope>, Vec<String>), QueryError> {
    let candidates = parts.iter().map(|part| part.candidates(scope).unwrap_or_default());
    let rows: usize = candidates.flatten().map(|rows| rows.len()).sum();
    let pieces = rows.div_ceil(ROWS_AT_ONCE);
    if pieces <= 1 {
        return Ok((vec![scope.clone()], Vec::new()));
    }
    let (mut gpus, mut missing) = (BTreeSet::new(), Vec::new());
    for part in parts {
        reading.go_on()?;
        match part.gpus(scope.table) {
            Ok(found) => gpus.extend(found.into_iter().filter(|gpu| scope.wants(gpu))),
            Err(words) => missing.push(words),
        }
    }
    let gpus: Vec<Arc<str>> = gpus.into_iter().collect();
    let of_piece = gpus.len().div_ceil(pieces).max(1);
    let windows = i64::try_from(pieces.div_ceil(gpus.len().max(1))).unwrap_or(1);
    let width_ns = (scope.end_ns.saturating_sub(scope.start_ns) / windows).saturating_add(1);
    let mut found = Vec::new();
    for some in gpus.chunks(of_piece) {
        let mut start_ns = scope.start_ns;
        while start_ns <= scope.end_ns {
            let end_ns = start_ns.saturating_add(width_ns - 1).min(scope.end_ns);
            found.push(Scope::new(scope.table, some, start_ns, end_ns));
            let Some(next_ns) = end_ns.checked_add(1) else { break };
            start_ns = next_ns;
        }
    }
    Ok((found, missing))
}
