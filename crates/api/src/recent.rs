//! The changes of the last minutes, from which all live streams are fed: each reads on from its place, so that a client that was
//! away for a moment gets what it missed, once.
//!
//! Changes are kept from the first stream until some minutes after the last one, as many as have room.

use std::collections::VecDeque;
use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gpuvitals_core::clock::Clock;
use gpuvitals_core::history::{Change, Changes};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long changes are kept, and for how long after the last stream more of them are.
const KEEP: Duration = Duration::from_mins(5);

/// A place in the streams of a gateway, behind one of their events: its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StreamPlace {
    /// The change: microseconds since 1970, more for each one.
    change: u64,
    /// How many events of the change have passed.
    events: u32,
    /// The process whose changes these are.
    process: u32,
}

impl StreamPlace {
    /// The time of the change, nanoseconds UTC since 1970.
    pub(crate) fn at_ns(self) -> i64 {
        i64::try_from(self.change).unwrap_or(i64::MAX).saturating_mul(1_000)
    }

    /// How many events of the change have passed.
    pub(crate) fn events(self) -> u32 {
        self.events
    }

    /// The place behind the first `events` events of the same change.
    pub(crate) fn behind(self, events: u32) -> Self {
        Self { events, ..self }
    }
}

impl fmt::Display for StreamPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{:08x}", self.change, self.events, self.process)
    }
}

impl FromStr for StreamPlace {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let parts: Vec<&str> = text.split('-').collect();
        let [change, events, process] = *parts.as_slice() else { return Err(()) };
        Ok(Self {
            change: change.parse().map_err(drop)?,
            events: events.parse().map_err(drop)?,
            process: u32::from_str_radix(process, 16).map_err(drop)?,
        })
    }
}

/// The newest changes, for clients of streams that come back.
pub(crate) struct RecentChanges {
    kept: Mutex<KeptChanges>,
    /// Told of every change.
    grown: watch::Sender<()>,
    process: u32,
    bytes_max: usize,
    clock: Clock,
    stopping: CancellationToken,
}

#[derive(Default)]
struct KeptChanges {
    changes: VecDeque<KeptChange>,
    bytes: usize,
    /// Changes that came before the first of them.
    before: u64,
    /// Changes up to this one are not kept.
    begin: u64,
    /// The newest change, kept or not.
    newest: u64,
    /// Whether a task adds to them.
    is_fed: bool,
}

struct KeptChange {
    id: u64,
    at: Instant,
    bytes: usize,
    change: Change,
}

/// What comes next in a stream.
pub(crate) enum StreamNext {
    /// A change, and the place in it: events that have passed are not to be sent again.
    Change(StreamPlace, Change),
    /// So many changes went before they could be sent.
    Missed(u64),
}

impl RecentChanges {
    pub(crate) fn new(bytes_max: usize, clock: Clock, stopping: CancellationToken) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "any 32 of the bits")]
        let process = RandomState::new().hash_one(()) as u32;
        Self { kept: Mutex::default(), grown: watch::Sender::new(()), process, bytes_max, clock, stopping }
    }

    fn kept(&self) -> MutexGuard<'_, KeptChanges> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The changes behind a place, or from now on; without a place, and if not all that came since is kept.
    pub(crate) fn follow(
        self: &Arc<Self>,
        changes: impl FnOnce() -> Box<dyn Changes>,
        last: Option<StreamPlace>,
    ) -> StreamFollower {
        let mut kept = self.kept();
        if !kept.is_fed {
            let newest = self.next_id(kept.newest);
            let before = kept.end();
            *kept = KeptChanges { before, begin: newest, newest, is_fed: true, ..KeptChanges::default() };
            tokio::spawn(Arc::clone(self).feed(changes()));
        }
        let now = StreamPlace { change: kept.newest.saturating_add(1), events: 0, process: self.process };
        let is_kept =
            |at: &StreamPlace| at.process == now.process && at.change > kept.begin && at.change <= now.change;
        let resumed = last.filter(is_kept);
        let place = resumed.unwrap_or(now);
        StreamFollower {
            next: kept.before + number(kept.changes.partition_point(|change| change.id < place.change)),
            is_resumed: resumed.is_some(),
            place,
            changes: Arc::clone(self),
            grown: self.grown.subscribe(),
        }
    }

    /// The id of a change after `last`: the time, unless it stands still.
    fn next_id(&self, last: u64) -> u64 {
        u64::try_from(self.clock.now_ns() / 1_000).unwrap_or(0).max(last.saturating_add(1))
    }

    /// Keeps changes while there are streams, and for a while after the last.
    async fn feed(self: Arc<Self>, mut changes: Box<dyn Changes>) {
        let mut alone_since: Option<Instant> = None;
        loop {
            let look_at = alone_since.unwrap_or_else(Instant::now) + KEEP;
            let change = tokio::select! {
                () = self.stopping.cancelled() => break,
                change = tokio::time::timeout_at(look_at, changes.next()) => change,
            };
            match change {
                Ok(Some(change)) => self.add(change),
                Ok(None) => break,
                Err(_) => {}
            }
            let mut kept = self.kept();
            // Under the lock, so that no stream comes meanwhile.
            let is_alone = self.grown.receiver_count() == 0;
            alone_since = is_alone.then(|| alone_since.unwrap_or_else(Instant::now));
            if alone_since.is_some_and(|since| since.elapsed() >= KEEP) {
                *kept = KeptChanges { before: kept.end(), newest: kept.newest, ..KeptChanges::default() };
                return;
            }
        }
        self.kept().is_fed = false;
        self.grown.send_replace(());
    }

    fn add(&self, change: Change) {
        let bytes = match &change {
            Change::Rows(batches) => {
                batches.iter().map(|batch| batch.records().get_array_memory_size()).sum()
            }
            Change::Missed(_) => 0,
        };
        let mut kept = self.kept();
        let id = self.next_id(kept.newest);
        kept.newest = id;
        kept.bytes += bytes;
        kept.changes.push_back(KeptChange { id, at: Instant::now(), bytes, change });
        // The newest stays, however large it is.
        while kept.changes.len() > 1
            && let Some(first) = kept.changes.front()
            && (kept.bytes > self.bytes_max || first.at.elapsed() > KEEP)
        {
            (kept.begin, kept.bytes, kept.before) = (first.id, kept.bytes - first.bytes, kept.before + 1);
            kept.changes.pop_front();
        }
        drop(kept);
        self.grown.send_replace(());
    }
}

impl KeptChanges {
    /// How many changes there were in all.
    fn end(&self) -> u64 {
        self.before + number(self.changes.len())
    }
}

fn number(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}

/// The place of one stream.
pub(crate) struct StreamFollower {
    changes: Arc<RecentChanges>,
    grown: watch::Receiver<()>,
    /// How many changes are passed.
    next: u64,
    place: StreamPlace,
    /// Whether it goes on where it was asked to.
    pub(crate) is_resumed: bool,
}

impl StreamFollower {
    /// The place from which it goes on.
    pub(crate) fn place(&self) -> StreamPlace {
        self.place
    }

    /// The change that was taken last comes again, behind a place in it.
    pub(crate) fn stay(&mut self, place: StreamPlace) {
        self.next = self.next.saturating_sub(1);
        self.place = place;
    }

    /// The next change; none when the history has ended. Dropping the answer before it is there loses nothing.
    pub(crate) async fn next(&mut self) -> Option<StreamNext> {
        loop {
            self.grown.mark_unchanged();
            if let Some(ready) = self.ready() {
                return ready;
            }
            self.grown.changed().await.ok()?;
        }
    }

    /// The next entry if it is already there: `None` if not yet, `Some(None)` at the end of the history.
    #[expect(clippy::option_option, reason = "nothing yet, and nothing any more")]
    fn ready(&mut self) -> Option<Option<StreamNext>> {
        let kept = self.changes.kept();
        if let Some(missed) = kept.before.checked_sub(self.next).filter(|missed| *missed > 0) {
            self.next = kept.before;
            return Some(Some(StreamNext::Missed(missed)));
        }
        let at = usize::try_from(self.next - kept.before).unwrap_or(usize::MAX);
        let Some(KeptChange { id, change, .. }) = kept.changes.get(at) else {
            return (!kept.is_fed).then_some(None);
        };
        let passed = if *id == self.place.change { self.place.events } else { 0 };
        self.place = StreamPlace { change: *id, events: passed, ..self.place };
        self.next += 1;
        Some(Some(StreamNext::Change(self.place, change.clone())))
    }
}

#[cfg(test)]
mod tests {
    use gpuvitals_core::ports::Answer;
    use gpuvitals_core::{BatchBuilder, Identity, IdentityColumn, Origin, Table};
    use tokio::sync::mpsc;

    use super::*;

    struct Fed(mpsc::Receiver<Change>);

    impl Changes for Fed {
        fn next(&mut self) -> Answer<'_, Option<Change>> {
            Box::pin(self.0.recv())
        }
    }

    /// Changes of one row, told apart by their time, in room for so many bytes.
    struct Rig {
        recent: Arc<RecentChanges>,
        feed: mpsc::Sender<Change>,
        fed: Option<Fed>,
    }

    impl Rig {
        fn new(bytes_max: usize) -> Self {
            let recent = RecentChanges::new(bytes_max, Clock::new(|| 1_000_000), CancellationToken::new());
            let (feed, fed) = mpsc::channel(64);
            Self { recent: Arc::new(recent), feed, fed: Some(Fed(fed)) }
        }

        fn follow(&mut self, last: Option<StreamPlace>) -> StreamFollower {
            let fed = self.fed.take();
            self.recent.follow(move || Box::new(fed.unwrap()), last)
        }

        async fn append(&self, time: i64) {
            let mut builder = BatchBuilder::new(Table::GpuEvents);
            let gpu = builder.intern(&Identity::default().with(IdentityColumn::Uuid, "GPU-a").unwrap());
            builder.row(time, gpu);
            let batch = builder.finish(Origin::default(), 1).unwrap();
            self.feed.send(Change::Rows(Arc::new([batch]))).await.unwrap();
            // The task takes it.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// What a stream has ready: the time of each row, or as a negative number how many changes it missed. And its place.
    fn there(follower: &mut StreamFollower) -> (Vec<i64>, StreamPlace) {
        let mut found = Vec::new();
        while let Some(Some(next)) = follower.ready() {
            found.push(match next {
                StreamNext::Missed(missed) => -i64::try_from(missed).unwrap(),
                StreamNext::Change(_, Change::Rows(batches)) => batches[0].timestamps()[0],
                StreamNext::Change(_, Change::Missed(_)) => 0,
            });
        }
        (found, follower.place().behind(1))
    }

    #[tokio::test(start_paused = true)]
    async fn who_comes_back_within_minutes_misses_nothing_and_gets_nothing_twice() {
        let mut rig = Rig::new(1 << 20);
        let mut follower = rig.follow(None);
        rig.append(1).await;
        let (seen, place) = there(&mut follower);
        assert_eq!(seen, [1]);
        drop(follower);
        rig.append(2).await;
        tokio::time::sleep(Duration::from_mins(4)).await;
        rig.append(3).await;
        let text = place.to_string();
        let mut back = rig.follow(Some(text.parse().unwrap()));
        assert!(back.is_resumed);
        let (seen, place) = there(&mut back);
        // That of which an event has passed comes again; its events tell how many.
        assert_eq!(seen, [1, 2, 3]);
        assert_eq!(there(&mut rig.follow(Some(place))).0, [3]);
        assert_eq!(there(&mut rig.follow(None)).0, [0_i64; 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_has_no_room_is_counted_for_the_slow_and_a_gap_for_who_comes_back() {
        let mut rig = Rig::new(1);
        let mut slow = rig.follow(None);
        let place = slow.place();
        for time in 1..=4 {
            rig.append(time).await;
        }
        assert_eq!(there(&mut slow).0, [-3, 4]);
        assert!(!rig.follow(Some(place)).is_resumed);
        let other = StreamPlace { process: !place.process, ..rig.follow(None).place() };
        assert!(!rig.follow(Some(other)).is_resumed, "another process gave it");
        assert!(!rig.follow(Some(StreamPlace { change: u64::MAX, ..place })).is_resumed);
        assert!(rig.follow(Some(rig.recent.clone().follow(|| unreachable!(), None).place())).is_resumed);
    }

    #[tokio::test(start_paused = true)]
    async fn without_streams_nothing_is_kept_after_a_while() {
        let mut rig = Rig::new(1 << 20);
        let follower = rig.follow(None);
        let place = follower.place();
        rig.append(1).await;
        drop(follower);
        tokio::time::sleep(3 * KEEP).await;
        assert!(rig.feed.is_closed(), "nobody listens to the history any more");
        let (feed, fed) = mpsc::channel(1);
        (rig.feed, rig.fed) = (feed, Some(Fed(fed)));
        assert!(!rig.follow(Some(place)).is_resumed);
        let mut follower = rig.follow(None);
        rig.append(2).await;
        assert_eq!(there(&mut follower).0, [2]);
    }
}
