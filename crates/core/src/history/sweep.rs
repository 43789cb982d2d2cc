//! All rows of a question, in no order: for sums, to which it is all the same.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::error::QueryError;
use crate::Batch;

/// Most rows that are given by pages, of which each is put in order: 4,000 GPUs with ten holders an hour over two days. They take seconds.
pub const SWEPT_ROWS_MAX: usize = 2_000_000;

/// Takes rows, some at a time, and on several threads at once. An error ends the sweep.
pub type TakeRows = Arc<dyn Fn(&Batch) -> Result<(), QueryError> + Send + Sync>;

pub(super) fn too_many_rows() -> QueryError {
    let max = SWEPT_ROWS_MAX as u64;
    QueryError::TooManyRows { rows: max.saturating_add(1), max }
}

/// Sums to which several threads add, each to one of its own.
#[derive(Debug)]
pub(super) struct ThreadSums<T>(Mutex<Vec<T>>);

impl<T> Default for ThreadSums<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Send + 'static> ThreadSums<T> {
    /// Adds rows to a sum that no other thread has, or to a new one.
    pub(super) fn taking(
        sums: &Arc<Self>,
        begin: impl Fn() -> T + Send + Sync + 'static,
        add: impl Fn(&mut T, &Batch) -> Result<(), QueryError> + Send + Sync + 'static,
    ) -> TakeRows {
        let sums = Arc::clone(sums);
        Arc::new(move |batch: &Batch| {
            let idle = sums.lock().pop();
            let mut sum = idle.unwrap_or_else(&begin);
            let added = add(&mut sum, batch);
            sums.lock().push(sum);
            added
        })
    }

    /// Takes all sums out; together they are those of all rows.
    pub(super) fn all(&self) -> Vec<T> {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
