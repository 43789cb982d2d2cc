//! A page says which part of a list an answer holds.

use serde::Serialize;
use utoipa::ToSchema;

/// Which part of a list this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct Pagination {
    /// Most entries asked for.
    #[schema(example = 100)]
    pub(crate) limit: usize,
    /// Entries passed over.
    #[schema(example = 0)]
    pub(crate) offset: usize,
    /// Whether there are entries after these.
    #[schema(example = false)]
    pub(crate) has_next: bool,
}

impl Pagination {
    /// The offset of the page after this one, which has so many entries; none: it is the last.
    pub(crate) fn next_offset(self, entries: usize) -> Option<String> {
        self.has_next.then(|| (self.offset + entries).to_string())
    }

    /// The page at `offset` of a list of `total` entries.
    pub(crate) fn of(limit: usize, offset: usize, total: usize) -> Self {
        Self { limit, offset, has_next: offset.saturating_add(limit) < total }
    }
}

#[cfg(test)]
mod tests {
    use super::Pagination;

    #[test]
    fn has_next_only_when_something_follows() {
        let check = |limit, offset, total, next| {
            assert_eq!(Pagination::of(limit, offset, total).has_next, next, "{limit} {offset} {total}");
        };
        check(10, 0, 0, false);
        check(10, 0, 10, false);
        check(10, 0, 11, true);
        check(10, 10, 11, false);
        check(10, 5000, 11, false);
        check(10, usize::MAX, 11, false);
    }
}
