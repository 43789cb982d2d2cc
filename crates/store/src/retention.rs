//! Which files are too old to be kept, by age and by the room that they take.

use std::sync::Arc;

use crate::config::StoreConfig;
use crate::grain::Grain;
use crate::manifest::{FileEntry, Manifest};

/// Files that are to be deleted.
#[derive(Debug, Default)]
pub(crate) struct Expired {
    /// Every row is older than the newest of the store by more than is kept.
    pub(crate) by_age: Vec<Arc<FileEntry>>,
    /// The oldest, of files that take more room than they may.
    pub(crate) by_size: Vec<Arc<FileEntry>>,
    /// Bytes that the others take beyond what they may.
    pub(crate) excess: u64,
}

/// The part of the room of all files that each rollup may take. Rows as they came may take what the rollups leave.
const ROLLUP_PART: u64 = 10;

/// The files that are too old. Age counts from the newest row: a recording of last year is kept whole until newer rows
/// come. The newest hour or day of each grain stays, however large.
pub(crate) fn expired(manifest: &Manifest, config: &StoreConfig) -> Expired {
    let mut found = Expired::default();
    let Some(newest) = manifest.all_files().map(|file| file.max_timestamp_ns).max() else { return found };
    let mut room = config.max_bytes.unwrap_or(u64::MAX);
    for grain in Grain::ROLLUPS.into_iter().chain([Grain::Raw]) {
        let keep = config.keep_of(grain).and_then(|keep| i64::try_from(keep.as_nanos()).ok());
        let oldest = keep.map_or(i64::MIN, |keep| newest.saturating_sub(keep));
        let files = manifest.all_files().filter(|file| file.grain == grain).cloned();
        let (by_age, mut kept): (Vec<_>, Vec<_>) = files.partition(|file| file.max_timestamp_ns < oldest);
        found.by_age.extend(by_age);
        let mut bytes: u64 = kept.iter().map(|file| file.bytes).sum();
        let part = config.max_bytes.map_or(u64::MAX, |bytes| bytes / ROLLUP_PART);
        let most = if grain == Grain::Raw { room } else { part };
        // By hour and day: the files of a merge are apart by GPU, and half of the GPUs is no answer.
        let end = |file: &Arc<FileEntry>| file.span().end_ns();
        kept.sort_by_key(end);
        let mut spans = kept.chunk_by(|one, other| end(one) == end(other));
        spans.next_back();
        for files in spans {
            if bytes <= most {
                break;
            }
            bytes -= files.iter().map(|file| file.bytes).sum::<u64>();
            found.by_size.extend_from_slice(files);
        }
        found.excess = bytes.saturating_sub(room);
        room = room.saturating_sub(bytes);
    }
    found
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::manifest::Span;

    /// Files of 1,000 bytes, each with one row at the start of its hour.
    fn files(hours: &[i64]) -> Vec<Arc<FileEntry>> {
        let file = |(order, &hour): (usize, &i64)| Arc::new(FileEntry::with_one_row(hour, order as u64));
        hours.iter().enumerate().map(file).collect()
    }

    /// The hours of the files that go, by age and by size.
    fn gone(hours: &[i64], keep: Option<Duration>, max_bytes: Option<u64>) -> (Vec<Span>, Vec<Span>) {
        let config = StoreConfig { keep, max_bytes, ..StoreConfig::new("store") };
        let manifest = Manifest { files: files(hours), ..Manifest::default() };
        let Expired { by_age, by_size, excess } = expired(&manifest, &config);
        let newest = if hours.is_empty() { 0 } else { 1_000_u64 };
        assert_eq!(excess, max_bytes.map_or(0, |most| newest.saturating_sub(most)), "the newest hour stays");
        let spans = |files: Vec<Arc<FileEntry>>| files.iter().map(|file| file.span()).collect();
        (spans(by_age), spans(by_size))
    }

    fn hours(hours: &[i64]) -> Vec<Span> {
        hours.iter().map(|hour| Span::Hour(*hour)).collect()
    }

    #[test]
    fn what_is_older_than_the_newest_row_by_more_than_is_kept_goes() {
        let keep = Some(Duration::from_hours(2));
        assert_eq!(gone(&[5, 1, 3, 4, 2], keep, None), (hours(&[1, 2]), vec![]));
        assert_eq!(gone(&[5, 1], None, None), (vec![], vec![]));
        assert_eq!(gone(&[], keep, Some(0)), (vec![], vec![]));
    }

    #[test]
    fn of_too_many_bytes_the_oldest_go_and_the_newest_hour_stays() {
        assert_eq!(gone(&[5, 1, 3, 4, 2], None, Some(3_000)), (vec![], hours(&[1, 2])));
        assert_eq!(gone(&[5, 1, 3], None, Some(2_999)), (vec![], hours(&[1])));
        assert_eq!(gone(&[5, 1, 3], None, Some(0)), (vec![], hours(&[1, 3])));
        let keep = Some(Duration::from_hours(2));
        assert_eq!(gone(&[5, 1, 3, 4, 2], keep, Some(2_000)), (hours(&[1, 2]), hours(&[3])));
    }
}
