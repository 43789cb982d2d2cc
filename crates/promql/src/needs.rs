//! A plan needs values that are fetched.

use std::sync::Arc;

use gpuvitals_core::{Identity, IdentityColumn};
use promql_parser::label::Matchers;

use crate::grid::Grid;

/// The names that Prometheus gives the holder's labels of a scrape, since its targets have labels of the same names
/// (`honor_labels: false`), and the columns that hold their texts.
pub(crate) const EXPORTED: [(&str, IdentityColumn); 4] = [
    ("exported_container", IdentityColumn::Container),
    ("exported_job", IdentityColumn::Job),
    ("exported_namespace", IdentityColumn::Namespace),
    ("exported_pod", IdentityColumn::Pod),
];

/// What a selector needs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Fetch {
    pub(crate) name: Option<String>,
    pub(crate) matchers: Matchers,
    /// Labels that its series have besides their own.
    pub(crate) exported: Exported,
    /// The instants that values are looked up for.
    pub(crate) grid: Grid,
    /// How far an instant looks back.
    pub(crate) back_ns: i64,
    pub(crate) needs: Needs,
}

/// What is needed of the values before each instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    /// The newest value before each instant.
    Newest,
    /// Their number, the smallest and the largest.
    Extremes,
    /// Their sum, too.
    Sums,
    /// The first, the newest, and how far they moved in between.
    Moves,
    /// Each value with its time.
    Every,
}

/// Which of the names of [`EXPORTED`] a question knows: series have those labels, besides their own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Exported([bool; EXPORTED.len()]);

impl Exported {
    /// The names that a text has.
    pub(crate) fn of(text: &str) -> Self {
        Self(EXPORTED.map(|(name, _)| text.contains(name)))
    }

    /// The names of either.
    pub(crate) fn or(self, other: Self) -> Self {
        let mut both = self;
        both.0.iter_mut().zip(other.0).for_each(|(own, other)| *own |= other);
        both
    }

    /// Its labels of a GPU.
    pub(crate) fn labels(self, identity: &Identity) -> impl Iterator<Item = (&'static str, Arc<str>)> {
        let known = EXPORTED.into_iter().zip(self.0).filter(|(_, is_known)| *is_known);
        known.filter_map(|((name, column), _)| Some((name, Arc::clone(identity.shared(column)?))))
    }
}
