//! Answers that are ready to be given again.
//!
//! An answer serves until the store changes, or until the time by itself would change it: a GPU becomes stale. For
//! [`crate::Limits::reuse`] it serves even if the store has changed: with live data the store changes with every batch, and
//! without that no two requests would ever share an answer.

use std::time::Duration;

use bytes::Bytes;
use quick_cache::Weighter;
use quick_cache::sync::{EntryAction, EntryResult, PlaceholderGuard};
use tokio::time::Instant;

use crate::ask::Head;
use crate::compress::Encoding;
use crate::past::PastInstant;

/// Bytes of an entry beside its body, about.
const ENTRY_LEN: u64 = 256;

/// The key of a cached answer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct CacheKey {
    /// The question with its parameters, as its type prints itself.
    pub(crate) ask: String,
    /// How it is sent.
    pub(crate) encoding: Encoding,
    /// The instant as of which it is asked; none: now.
    pub(crate) past: Option<PastInstant>,
    /// How often somebody has silenced or released something.
    pub(crate) said: u64,
}

/// An answer that waits to be asked for again.
#[derive(Debug, Clone)]
pub(crate) struct Ready {
    /// The answer, compressed or not.
    pub(crate) body: Bytes,
    /// What it is.
    pub(crate) head: Head,
    /// When it was made.
    pub(crate) made: Instant,
    /// Version of the store it was made from.
    pub(crate) version: u64,
    /// When the time alone changes the answer, nanoseconds UTC since 1970.
    pub(crate) until_ns: i64,
}

/// The store and the time for which an answer has to serve.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Now {
    pub(crate) version: u64,
    /// Nanoseconds UTC since 1970.
    pub(crate) wall_ns: i64,
}

impl Ready {
    fn serves(&self, now: Now, age: Duration, reuse: Duration) -> bool {
        age < reuse || (self.version == now.version && now.wall_ns < self.until_ns)
    }
}

#[derive(Debug, Clone)]
struct BodyWeight;

impl Weighter<CacheKey, Ready> for BodyWeight {
    fn weight(&self, _key: &CacheKey, ready: &Ready) -> u64 {
        u64::try_from(ready.body.len()).unwrap_or(u64::MAX).saturating_add(ENTRY_LEN)
    }
}

type CachedAnswers = quick_cache::sync::Cache<CacheKey, Ready, BodyWeight>;
type AnswerPlace<'a> = PlaceholderGuard<
    'a,
    CacheKey,
    Ready,
    BodyWeight,
    quick_cache::DefaultHashBuilder,
    quick_cache::sync::DefaultLifecycle<CacheKey, Ready>,
>;

/// The ready answers.
#[derive(Debug)]
pub(crate) struct Cache {
    answers: CachedAnswers,
    reuse: Duration,
}

/// The duty to make an answer for which others may wait; dropped, one of them takes it over.
pub(crate) struct Making<'a>(Option<AnswerPlace<'a>>);

impl Making<'_> {
    /// Passes the answer to the waiters and keeps it.
    pub(crate) fn keep(self, ready: &Ready) {
        if let Some(place) = self.0 {
            // Refused if the entry was evicted meanwhile: then nobody waits for it.
            let _kept = place.insert(ready.clone());
        }
    }
}

impl Cache {
    /// About this many answers of this many bytes together.
    pub(crate) fn new(entries: usize, bytes: u64, reuse: Duration) -> Self {
        Self { answers: CachedAnswers::with_weighter(entries, bytes, BodyWeight), reuse }
    }

    /// Bytes of ready answers.
    pub(crate) fn bytes(&self) -> u64 {
        self.answers.weight()
    }

    /// An answer that serves now, or the duty to make one. Waits while another makes it.
    pub(crate) async fn get(&self, key: &CacheKey, now: Now) -> Result<Ready, Making<'_>> {
        let asked = Instant::now();
        let serves = |ready: &Ready| {
            let age = asked.saturating_duration_since(ready.made);
            ready.serves(now, age, self.reuse)
        };
        if let Some(ready) = self.answers.get(key).filter(serves) {
            return Ok(ready);
        }
        let entry = self.answers.entry_async(key, |_, ready| {
            if serves(ready) { EntryAction::Retain(ready.clone()) } else { EntryAction::ReplaceWithGuard }
        });
        match entry.await {
            EntryResult::Retained(ready) => Ok(ready),
            EntryResult::Vacant(place) | EntryResult::Replaced(place, _) => Err(Making(Some(place))),
            EntryResult::Removed(..) | EntryResult::Timeout => Err(Making(None)),
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;
    use crate::format::Format;

    #[test]
    fn an_answer_serves_while_it_is_young_or_nothing_changed() {
        let ready =
            Ready { body: Bytes::new(), head: head(), made: Instant::now(), version: 7, until_ns: 2_000 };
        let reuse = Duration::from_millis(500);
        let check = |version, age_ms, wall_ns, serves| {
            let age = Duration::from_millis(age_ms);
            let found = ready.serves(Now { version, wall_ns }, age, reuse);
            assert_eq!(found, serves, "version {version}, {age_ms} ms, {wall_ns} ns");
        };
        check(7, 0, 0, true);
        check(8, 499, 0, true);
        check(8, 500, 0, false);
        check(7, 500, 0, true);
        check(7, 3_600_000, 1_999, true);
        check(7, 500, 2_000, false);
    }

    fn head() -> Head {
        let tag = HeaderValue::from_static("\"1\"");
        Head { format: Format::Json, encoding: Encoding::Plain, tag, partial: None, next: None }
    }

    const NOW: Now = Now { version: 1, wall_ns: 0 };

    #[tokio::test]
    async fn of_those_who_ask_the_same_one_makes_the_answer() {
        let cache = Cache::new(10, 1 << 20, Duration::from_mins(1));
        let key = CacheKey { ask: "Catalogue".to_owned(), encoding: Encoding::Plain, past: None, said: 0 };
        let Err(making) = cache.get(&key, NOW).await else { panic!("nothing is ready yet") };
        let mut second = std::pin::pin!(cache.get(&key, NOW));
        assert!(futures_util::poll!(second.as_mut()).is_pending());
        let body = Bytes::from_static(b"[]");
        let ready = Ready { body, head: head(), made: Instant::now(), version: 1, until_ns: 1 };
        making.keep(&ready);
        assert!(second.await.is_ok_and(|ready| ready.body.as_ref() == b"[]"));
    }

    #[tokio::test]
    async fn who_waits_takes_over_when_the_maker_gives_up() {
        let cache = Cache::new(10, 1 << 20, Duration::from_mins(1));
        let key = CacheKey { ask: "Catalogue".to_owned(), encoding: Encoding::Plain, past: None, said: 0 };
        let making = cache.get(&key, NOW).await.err();
        let mut second = std::pin::pin!(cache.get(&key, NOW));
        assert!(futures_util::poll!(second.as_mut()).is_pending());
        drop(making);
        assert!(second.await.is_err());
    }
}
