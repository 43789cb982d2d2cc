//! Rows of a range, a page at a time.
//!
//! First times and keys only: parts that begin with the best times (newest or oldest) are read first, and
//! rows beyond the end of the page are not held. Parts that are wanted whole and overlap with no other are
//! counted without being read. Then all columns of the rows of the page, and of nothing else.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::RecordBatch;
use foldhash::fast::RandomState;
use gpuvitals_core::history::tally::{SelectorVerdict, label_columns};
use gpuvitals_core::history::{self, QueryError, RowPlace, Rows, RowsQuery};
use gpuvitals_core::{Batch, Origin};

use super::ROWS_MAX;
use crate::grain::Grain;
use crate::manifest::FileEntry;
use crate::reader::{Columns, Part, Reading, Scope, contested, in_time, parallel};
use crate::snapshot::Snapshot;
use gpuvitals_core::batch::RowKeys;
use gpuvitals_core::batch::timestamps;
use gpuvitals_core::merge::{MergeError, Order, merge, without_empty};

/// Files that are looked at first for a page, and how many times as many are next.
const FILES_AT_FIRST: usize = 4;
/// Rows of a page below which one thread reads them.
const WIDE_ROWS: usize = 20_000;

/// A row that may be on the page.
#[derive(Debug, Clone, Copy)]
struct RowCandidate {
    /// Ascends in the order asked.
    place: i64,
    key: u32,
    part: u32,
    row: u32,
    /// Whether it may have twins.
    is_twin: bool,
}

/// A row that may have twins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Twin {
    time_ns: i64,
    key: u32,
    part: u32,
    verdict: SelectorVerdict,
}

/// Answers the question.
///
/// # Errors
/// If the range ends before it starts or the page is too far on; see [`QueryError`].
pub(crate) fn range(reading: Reading<'_>, query: &RowsQuery) -> Result<history::Part<Rows>, QueryError> {
    let mut files = FILES_AT_FIRST;
    while let Some(nearer) = nearer(reading.snapshot, query, files) {
        files *= FILES_AT_FIRST;
        // All of these files may have rows up to the end of the range.
        if nearer.start_ns.zip(nearer.end_ns).is_some_and(|(start_ns, end_ns)| start_ns > end_ns) {
            continue;
        }
        let found = search(reading, &nearer)?;
        if found.answer.batch.as_ref().map_or(0, Batch::rows) >= query.limit {
            return Ok(found);
        }
    }
    search(reading, query)
}

/// The question about the times of so many files that the order begins with. None if there are no more, or all rows are counted.
fn nearer(snapshot: &Snapshot, query: &RowsQuery, files: usize) -> Option<RowsQuery> {
    if query.with_total || query.limit == 0 {
        return None;
    }
    let whole = (query.start_ns.unwrap_or(i64::MIN), query.end_ns.unwrap_or(i64::MAX));
    let scope = Scope::new(query.table, &query.gpus, whole.0, whole.1);
    let scope =
        query.after.as_ref().map_or_else(|| scope.clone(), |after| behind(after, query.newest_first, &scope));
    let meeting = snapshot.files_of(Grain::Raw).filter(|file| scope.meets_file(file));
    // Where they begin, in the order asked.
    let place = |file: &&Arc<FileEntry>| {
        if query.newest_first { !file.max_timestamp_ns } else { file.min_timestamp_ns }
    };
    let mut begins: Vec<i64> = meeting.map(|file| place(&file)).collect();
    begins.sort_unstable();
    let next = *begins.get(files)?;
    Some(if query.newest_first {
        RowsQuery { start_ns: Some((!next).saturating_add(1).max(whole.0)), ..query.clone() }
    } else {
        RowsQuery { end_ns: Some(next.saturating_sub(1).min(whole.1)), ..query.clone() }
    })
}

/// Searches all files of the times asked for.
fn search(reading: Reading<'_>, query: &RowsQuery) -> Result<history::Part<Rows>, QueryError> {
    let (start_ns, end_ns) = (query.start_ns.unwrap_or(i64::MIN), query.end_ns.unwrap_or(i64::MAX));
    if end_ns < start_ns {
        return Err(QueryError::Range { start_ns, end_ns, step_ns: 1 });
    }
    let page_end = if query.limit == 0 { 0 } else { query.offset.saturating_add(query.limit) };
    if page_end as u64 > ROWS_MAX {
        return Err(QueryError::TooManyRows { rows: page_end as u64, max: ROWS_MAX });
    }
    let scope = Scope::new(query.table, &query.gpus, start_ns, end_ns);
    let scope = match query.after.as_ref().filter(|_| !query.with_total) {
        Some(after) => behind(after, query.newest_first, &scope),
        None => scope,
    };
    let mut partial = Vec::new();
    let parts = reading.parts(&scope, &mut partial)?;
    let contests = contested(&parts);
    let twins = contests.iter().any(|contest| !contest.is_empty());
    // Twins make the page shorter than its candidates; if it gets too short the search restarts with more.
    let mut held = if twins { page_end.saturating_mul(2) } else { page_end };
    let (chosen, total, last) = loop {
        let mut search = Search::new(query, held, &scope, &parts);
        search.run(reading, &contests)?;
        let (dropped, total) = (search.worst.is_some(), search.total());
        let FoundPage { rows, last, whole, unread } = search.page(query.offset, query.limit);
        if whole || !dropped {
            partial.extend(unread);
            break (rows, total, last.filter(|_| whole));
        }
        held = held.saturating_mul(4);
    };
    // Rows that come after a full page are not missed, unless all of them are counted.
    let seen = last.filter(|_| !query.with_total).map(|last| up_to(last, query.newest_first, &scope));
    partial.extend(reading.lost(&seen.unwrap_or(scope)));
    let fetched = fetch(reading, &parts, &chosen, query)?;
    partial.extend(fetched.missing);
    partial.sort_unstable();
    partial.dedup();
    let answer = Rows { batch: fetched.answer, total: query.with_total.then_some(total) };
    Ok(history::Part { answer, missing: partial })
}

/// The search for the rows of a page.
struct Search<'a> {
    query: &'a RowsQuery,
    newest_first: bool,
    /// Candidates that are surely held.
    held: usize,
    scope: &'a Scope,
    parts: &'a [Part],
    candidates: Vec<RowCandidate>,
    /// Place of the last candidate held, once some were dropped.
    worst: Option<i64>,
    keys: HashMap<Arc<str>, u32, RandomState>,
    /// Rows without twins.
    single: usize,
    contested: Vec<Twin>,
    unread: Vec<String>,
}

/// Rows of the page by part.
struct FoundPage {
    /// Per part the row numbers, ascending.
    rows: Vec<Vec<u32>>,
    /// Place of the last row.
    last: Option<i64>,
    /// Whether the page is full.
    whole: bool,
    unread: Vec<String>,
}

impl<'a> Search<'a> {
    fn new(query: &'a RowsQuery, held: usize, scope: &'a Scope, parts: &'a [Part]) -> Self {
        Self {
            query,
            newest_first: query.newest_first,
            held,
            scope,
            parts,
            candidates: Vec::new(),
            worst: None,
            keys: HashMap::default(),
            single: 0,
            contested: Vec::new(),
            unread: Vec::new(),
        }
    }

    /// `!` turns the order of integers round, and back.
    fn place(&self, time_ns: i64) -> i64 {
        if self.newest_first { !time_ns } else { time_ns }
    }

    /// Place of a part's best row.
    fn best(&self, part: &Part) -> i64 {
        let (min_ns, max_ns) = part.times();
        if self.newest_first {
            self.place(max_ns.min(self.scope.end_ns))
        } else {
            self.place(min_ns.max(self.scope.start_ns))
        }
    }

    fn run(&mut self, reading: Reading<'_>, contests: &[Vec<(i64, i64)>]) -> Result<(), QueryError> {
        let mut order: Vec<(usize, &Part)> = self.parts.iter().enumerate().collect();
        order.sort_by_key(|(_, part)| self.best(part));
        for (at, part) in order {
            reading.go_on()?;
            let contest = contests.get(at).map_or(&[][..], Vec::as_slice);
            let (min_ns, max_ns) = part.times();
            let rows = match part.candidates(self.scope) {
                Ok(rows) => rows,
                Err(words) => {
                    self.unread.push(words);
                    continue;
                }
            };
            let counted =
                contest.is_empty() && self.query.selector.is_empty() && self.scope.covers(min_ns, max_ns);
            let count = if counted { rows.iter().map(Range::len).sum() } else { 0 };
            let needed = self.held > 0 && self.worst.is_none_or(|worst| self.best(part) <= worst);
            let only_page = counted || !self.query.with_total;
            if needed || !only_page {
                let scope = match self.worst.filter(|_| only_page) {
                    Some(worst) => up_to(worst, self.newest_first, self.scope),
                    None => self.scope.clone(),
                };
                if let Err(words) = self.read(at, part, &scope, (counted, contest)) {
                    self.unread.push(words);
                    continue;
                }
            }
            self.single += count;
            if self.contested.len() as u64 > ROWS_MAX {
                return Err(QueryError::TooManyRows { rows: self.contested.len() as u64, max: ROWS_MAX });
            }
        }
        Ok(())
    }

    fn read(
        &mut self,
        at: usize,
        part: &Part,
        scope: &Scope,
        (counted, contest): (bool, &[(i64, i64)]),
    ) -> Result<(), String> {
        let candidates = part.candidates(scope)?;
        // In a table whose key is subject and time, one subject is one key.
        let only = scope.only_key().filter(|_| scope.table.key().next().is_none());
        let selector = &self.query.selector;
        let columns = if only.is_some() { Columns::time_and([]) } else { Columns::keys(scope.table) };
        let columns = columns.and(label_columns(selector));
        let records = part.read(&columns, &candidates)?;
        let keys = match only {
            Some(key) => RowKeys::one(key, records.num_rows()),
            None => RowKeys::whole(&records, scope.table)
                .map_err(|row| MergeError::Nobody { part: at, row: row.0 }.to_string())?,
        };
        let times = timestamps(&records);
        let numbers: Vec<usize> = candidates.into_iter().flatten().collect();
        let verdicts = SelectorVerdict::of_rows(&records, selector);
        let of_null = SelectorVerdict::of_null(selector);
        let mut ids: Vec<Option<u32>> = vec![None; keys.keys.len()];
        for row in in_time(times, scope).into_iter().flatten() {
            let (Some(&time_ns), Some(&id), Some(&number)) =
                (times.get(row), keys.ids.get(row), numbers.get(row))
            else {
                continue;
            };
            let twin = !contest.is_empty() && {
                let next = contest.partition_point(|&(_, to)| to < time_ns);
                contest.get(next).is_some_and(|&(from, _)| from <= time_ns)
            };
            let verdict =
                verdicts.as_ref().and_then(|verdicts| verdicts.get(row)).copied().unwrap_or_default();
            if !twin && !of_null.then(verdict).selects(selector) {
                continue;
            }
            let place = self.place(time_ns);
            let keep = self.held > 0
                && self.worst.is_none_or(|worst| place <= worst)
                && self.is_behind(place, keys.keys.get(id as usize));
            if keep || twin {
                let key = self.key(&keys, &mut ids, id);
                let small = |number| u32::try_from(number).unwrap_or(u32::MAX);
                let (part, row) = (small(at), small(number));
                if twin {
                    self.contested.push(Twin { time_ns, key, part, verdict });
                }
                if keep {
                    self.candidates.push(RowCandidate { place, key, part, row, is_twin: twin });
                }
            }
            self.single += usize::from(!twin && !counted);
        }
        self.drop_worst();
        Ok(())
    }

    /// Whether a row is behind the place after which the page begins.
    fn is_behind(&self, place: i64, key: Option<&Arc<str>>) -> bool {
        self.query.after.as_ref().is_none_or(|after| {
            let begin = self.place(after.timestamp_ns);
            place > begin || (place == begin && key.is_some_and(|key| *key > after.key))
        })
    }

    fn key(&mut self, keys: &RowKeys, ids: &mut [Option<u32>], id: u32) -> u32 {
        if let Some(key) = ids.get(id as usize).copied().flatten() {
            return key;
        }
        let next = u32::try_from(self.keys.len()).unwrap_or(u32::MAX);
        let key = keys
            .keys
            .get(id as usize)
            .map_or(u32::MAX, |key| *self.keys.entry(Arc::clone(key)).or_insert(next));
        ids.get_mut(id as usize).into_iter().for_each(|slot| *slot = Some(key));
        key
    }

    /// Drops candidates beyond those surely needed.
    fn drop_worst(&mut self) {
        if self.candidates.len() <= self.held || self.held == 0 {
            return;
        }
        let (_, last, _) =
            self.candidates.select_nth_unstable_by_key(self.held - 1, |candidate| candidate.place);
        let worst = last.place;
        self.worst = Some(worst);
        self.candidates.retain(|candidate| candidate.place <= worst);
    }

    /// Rows in all, twins counted once. Leaves one of the twins of each row that is selected.
    fn total(&mut self) -> usize {
        self.contested.sort_unstable();
        let selector = &self.query.selector;
        let of_null = SelectorVerdict::of_null(selector);
        let is_same = |a: &Twin, b: &Twin| (a.time_ns, a.key) == (b.time_ns, b.key);
        let rows = self.contested.chunk_by(is_same);
        let rows = rows.filter(|twins| {
            twins.iter().fold(of_null, |before, twin| before.then(twin.verdict)).selects(selector)
        });
        self.contested = rows.filter_map(|twins| twins.first().copied()).collect();
        self.single + self.contested.len()
    }

    fn is_selected(&self, candidate: &RowCandidate) -> bool {
        // Rows without twins were selected when they were read.
        let wanted = (self.place(candidate.place), candidate.key);
        self.query.selector.is_empty()
            || !candidate.is_twin
            || self.contested.binary_search_by_key(&wanted, |twin| (twin.time_ns, twin.key)).is_ok()
    }

    fn page(mut self, offset: usize, limit: usize) -> FoundPage {
        let mut names: Vec<(&Arc<str>, u32)> = self.keys.iter().map(|(name, &key)| (name, key)).collect();
        names.sort_unstable();
        let mut rank_of = vec![0_u32; names.len()];
        for (rank, (_, key)) in (0_u32..).zip(names) {
            rank_of.get_mut(key as usize).into_iter().for_each(|slot| *slot = rank);
        }
        let rank =
            |candidate: &RowCandidate| rank_of.get(candidate.key as usize).copied().unwrap_or(u32::MAX);
        self.candidates.sort_unstable_by_key(|candidate| (candidate.place, rank(candidate)));
        let same = |a: &RowCandidate, b: &RowCandidate| a.place == b.place && a.key == b.key;
        let mut rows: Vec<Vec<u32>> = vec![Vec::new(); self.parts.len()];
        let (mut found, mut last) = (0, None);
        let rows_found = self.candidates.chunk_by(same);
        let rows_found = rows_found.filter(|twins| twins.first().is_some_and(|twin| self.is_selected(twin)));
        for twins in rows_found.skip(offset).take(limit) {
            found += 1;
            last = twins.first().map(|twin| twin.place);
            for twin in twins {
                rows.get_mut(twin.part as usize).into_iter().for_each(|rows| rows.push(twin.row));
            }
        }
        for rows in &mut rows {
            rows.sort_unstable();
        }
        FoundPage { rows, last, whole: found == limit, unread: self.unread }
    }
}

/// The scope without the times beyond a place.
fn up_to(place: i64, newest_first: bool, scope: &Scope) -> Scope {
    let (start_ns, end_ns) = (scope.start_ns, scope.end_ns);
    if newest_first {
        scope.during(start_ns.max(!place), end_ns)
    } else {
        scope.during(start_ns, end_ns.min(place))
    }
}

/// The scope without the times before a place in the order asked.
fn behind(after: &RowPlace, newest_first: bool, scope: &Scope) -> Scope {
    let (start_ns, end_ns) = (scope.start_ns, scope.end_ns);
    if newest_first {
        scope.during(start_ns, end_ns.min(after.timestamp_ns))
    } else {
        scope.during(start_ns.max(after.timestamp_ns), end_ns)
    }
}

/// Reads the rows chosen with all columns asked for, and merges them.
fn fetch(
    reading: Reading<'_>,
    parts: &[Part],
    chosen: &[Vec<u32>],
    query: &RowsQuery,
) -> Result<history::Part<Option<Batch>>, QueryError> {
    let columns = Columns::of(query);
    let wanted: Vec<(&Part, &Vec<u32>)> =
        parts.iter().zip(chosen).filter(|(_, rows)| !rows.is_empty()).collect();
    let wide = wanted.iter().map(|(_, rows)| rows.len()).sum::<usize>() >= WIDE_ROWS;
    let read = parallel(&wanted, wide, |_, (part, rows)| {
        reading.go_on().map(|()| part.read(&columns, &ranges(rows)))
    });
    let (mut batches, mut missing): (Vec<RecordBatch>, _) = (Vec::with_capacity(read.len()), Vec::new());
    for batch in read {
        match batch? {
            Ok(batch) => batches.push(batch),
            Err(words) => missing.push(words),
        }
    }
    let order = if query.newest_first { Order::NewestGpu } else { Order::TimeGpu };
    let Some(merged) = merge(query.table, &batches, order)? else {
        return Ok(history::Part { answer: None, missing });
    };
    let batch = Batch::new(query.table, without_empty(&merged)?, Origin::default(), 0);
    Ok(history::Part { answer: Some(batch.map_err(QueryError::failed)?), missing })
}

/// Ascending numbers as ranges.
pub(super) fn ranges(numbers: &[u32]) -> Vec<Range<usize>> {
    let runs = numbers.chunk_by(|a, b| a + 1 == *b);
    runs.filter_map(|run| Some(*run.first()? as usize..*run.last()? as usize + 1)).collect()
}
