//! The watch over the fleet: judges it every so often and keeps what is wrong.
//!
//! A judgement costs one look at the latest state of all GPUs, and once a minute one question for the values of the minute that
//! ended. Requests read the last judgement. The watch asks the history like a client does, one question at a time; only a
//! few small ones are asked together.

mod figures;
mod judgement;
mod silencing;

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _, stream};
use gpuvitals_analysis::coverage::Coverage;
use gpuvitals_analysis::findings::{
    self, Candidate, ClockWatch, FleetFinding, LifeChange, LookBack, LostGpu, Recent, RowAhead, Shown,
    Situation, Subject, Tracker,
};
use gpuvitals_analysis::freshness::Freshness;
use gpuvitals_analysis::health_event::HealthEvent;
use gpuvitals_analysis::hints;
use gpuvitals_analysis::judgement::GpuJudge;
use gpuvitals_core::clock::Clock;
use gpuvitals_core::feed::Outlet;
use gpuvitals_core::figures::Family;
use gpuvitals_core::history::{
    BucketQuery, Buckets, BucketsInParts, Fleet, History, Matcher, Part, QueryError, RowsQuery, Selector,
    TextTest,
};
use gpuvitals_core::time::{AHEAD_MAX_NS, DAY_NS, MINUTE_NS};
use gpuvitals_core::{IdentityColumn, Origin, Table, causes};

use crate::{answers, condition};

pub(crate) use judgement::Judgement;

/// Most health events that are read, the newest first.
const EVENTS_MAX: usize = 10_000;
/// How long an answer waits for a judgement that it can do without.
const SOON: Duration = Duration::from_secs(2);
/// Age from which a health event does not count any more.
const EVENTS_BACK_NS: i64 = 7 * DAY_NS;
/// Most hosts whose clocks are ahead that are named.
const HOSTS_AHEAD_MAX: usize = 16;
/// Most GPUs that a question for minutes is about.
const GPUS_AT_ONCE: usize = 8_192;
/// Most findings of a judgement whose beginning the history is asked for. Of the others `since` says that they may have begun earlier.
const LOOKED_MAX: usize = 1_024;
/// Most of them of which the first row is read; of the others the minute is known.
const ROWS_READ_MAX: usize = 128;
/// How many of these small questions are asked together.
const ROWS_AT_ONCE: usize = 4;
/// Most batch jobs with findings of which it is looked up who runs them.
const TOLD_JOBS_MAX: usize = 256;
/// How far a look for the life of findings, or for silences of other gateways, goes back behind what it is about: rows take a while to
/// arrive.
const EVENTS_LATE_NS: i64 = 2 * MINUTE_NS;

/// The watch. Its state changes only as a whole.
#[derive(Default)]
pub(crate) struct FleetWatch {
    /// One judges at a time.
    turn: tokio::sync::Mutex<()>,
    work: Arc<Mutex<Work>>,
    last: Mutex<Option<Arc<Judgement>>>,
    /// Silences that began or were released here.
    said: AtomicU64,
    log: OnceLock<LifeLog>,
    /// Tells from which age of the newest row on all rows are a recording; none: one instant is looked at.
    recorded_after: Option<Box<RecordedAfter>>,
    /// Tells what time it is while the fleet is judged; none: one instant is looked at.
    clock: Option<Clock>,
}

/// Answers with an age, or that more rows may come after any silence.
type RecordedAfter = dyn Fn() -> Option<Duration> + Send + Sync;

/// Where the life of findings is kept.
struct LifeLog {
    outlet: Outlet,
    origin: Origin,
    /// Rows so far.
    rows: Mutex<u64>,
}

impl fmt::Debug for FleetWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FleetWatch").finish_non_exhaustive()
    }
}

/// A fleet as one judgement sees it.
#[derive(Clone)]
struct FleetLook {
    fleet: Arc<Fleet>,
    fresh: Freshness,
    /// GPUs whose agent reports them as lost.
    lost: Arc<HashMap<Arc<str>, LostGpu>>,
}

impl FleetLook {
    fn situation<'a>(&'a self, recent: &'a Recent) -> Situation<'a> {
        Situation { fresh: self.fresh, gpus: &self.fleet.gpus, recent, lost: &self.lost }
    }

    /// The first row of the GPUs that a finding is about, of a recording that begins at an instant: some may have come later. What one that
    /// has come with its last row says in it has not held for any time.
    fn recorded_from(&self, finding: &FleetFinding, begin_ns: i64) -> i64 {
        let gpus = finding.reach.gpus.iter().filter_map(|gpu| self.fleet.get(gpu));
        let several = gpus.filter(|gpu| gpu.first_seen_ns < gpu.last_seen_ns);
        several.map(|gpu| gpu.first_seen_ns).min().unwrap_or(begin_ns)
    }
}

#[derive(Default)]
struct Work {
    recent: Recent,
    tracker: Tracker,
    clocks: ClockWatch,
    /// Until when the rows of silences were read.
    read_ns: i64,
    /// The first row of the recording that ends at the instant that is looked at, nanoseconds UTC since 1970.
    recorded_from_ns: Option<i64>,
}

impl FleetWatch {
    /// Over a fleet as it is now. `recorded_after` tells from which age of the newest row on all rows are a recording; none: more may come
    /// after any silence.
    pub(crate) fn of_now(
        clock: Clock,
        recorded_after: impl Fn() -> Option<Duration> + Send + Sync + 'static,
    ) -> Self {
        Self { recorded_after: Some(Box::new(recorded_after)), clock: Some(clock), ..Self::default() }
    }

    /// Over a fleet as of an instant, with the first row of the recording that ends there, if one does.
    pub(crate) fn of_past(recorded_from_ns: Option<i64>) -> Self {
        let work = Work { tracker: Tracker::of_past(), recorded_from_ns, ..Work::default() };
        Self { work: Arc::new(Mutex::new(work)), ..Self::default() }
    }

    /// How often somebody has silenced something here, or released it: with it answers change.
    pub(crate) fn said(&self) -> u64 {
        self.said.load(Ordering::Relaxed)
    }

    /// The last judgement, unless it is older than this: then the fleet is judged now.
    ///
    /// # Errors
    /// When the history gives no answer.
    pub(crate) async fn judged(
        &self,
        history: &dyn History,
        fresh: Freshness,
        age_max: Duration,
    ) -> Result<Arc<Judgement>, QueryError> {
        let recent_enough = || {
            let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let age_max_ns = i64::try_from(age_max.as_nanos()).unwrap_or(i64::MAX);
            last.filter(|last| (0..age_max_ns).contains(&fresh.now_ns.saturating_sub(last.at_ns)))
        };
        if let Some(last) = recent_enough() {
            return Ok(last);
        }
        let _turn = self.turn.lock().await;
        if let Some(last) = recent_enough() {
            return Ok(last);
        }
        let judgement = Arc::new(self.judge(history, fresh).await?);
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&judgement));
        Ok(judgement)
    }

    /// The same, if it comes at once; else the last one of any age. None while there is none.
    pub(crate) async fn judged_soon(
        &self,
        history: &dyn History,
        fresh: Freshness,
        age_max: Duration,
    ) -> Option<Arc<Judgement>> {
        match tokio::time::timeout(SOON, self.judged(history, fresh, age_max)).await {
            Ok(Ok(judgement)) => return Some(judgement),
            Ok(Err(error)) => tracing::debug!(reason = causes(&error), "the fleet cannot be judged now"),
            Err(_) => tracing::debug!("judging the fleet takes too long for an answer"),
        }
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn judge(&self, history: &dyn History, fresh: Freshness) -> Result<Judgement, QueryError> {
        let Part { answer: fleet, mut missing } = history.fleet().await?;
        missing = answers::joined(missing, self.read_minutes(history, &fleet, fresh.now_ns).await?);
        while let Some(query) = self.work(|work| work.recent.next_idle_query(fresh.now_ns)) {
            let (asked, mut before) = (query.gpus.clone(), Recent::of_range());
            let mut parts = BucketsInParts::new(query);
            while let Some(Part { answer: buckets, missing: more }) = parts.next(history).await? {
                missing = answers::joined(missing, more);
                before.take(&buckets);
            }
            self.work(|work| work.recent.take_idle(&asked, &before));
        }
        self.read_rows(history, &fleet, fresh).await;
        let is_over = self.is_over(&fleet, fresh);
        let lost = Arc::new(lost(history, &fleet, fresh).await?);
        let look = FleetLook { fleet, fresh, lost };
        let now = || self.clock.as_ref().map_or(fresh.now_ns, |clock| clock.now_ns().max(fresh.now_ns));
        let ahead = ahead(history, &now).await?;
        let now_ns = now();
        let counted = count_ahead(history, &ahead, now_ns).await;
        let taken = look.clone();
        let coverage = Coverage::of(&missing);
        let take = move |work: &mut Work| {
            let clocks = work.clocks.look(&ahead, counted.as_ref(), &taken.fleet.gpus, now_ns);
            work.take(&taken, clocks, coverage);
        };
        self.blocking(take).await?;
        self.recall_silences(history, fresh.now_ns).await?;
        let is_read = match self.work(|work| work.life(fresh.now_ns)) {
            Some(query) => self.recall(history, &query).await?,
            None => true,
        };
        let is_of_past = self.work(|work| work.tracker.is_of_past());
        if is_read || is_of_past {
            self.look_back(history, &look.fleet, fresh.now_ns).await?;
        }
        if is_of_past {
            self.work(|work| {
                let begin_ns = work.recorded_from_ns;
                work.tracker.settle(fresh.now_ns, |finding| Some(look.recorded_from(finding, begin_ns?)));
            });
        } else if is_read {
            let changes = self.work(|work| work.tracker.changes());
            if !is_over {
                self.tell(&look.fleet, &changes);
            }
        }
        let judgement = self.blocking(move |work| work.conclude(&look, missing)).await?;
        Ok(with_told(history, judgement).await)
    }

    /// Reads the minutes that are over, and says what is missing. Of a large fleet the questions are about some GPUs each: files have the
    /// minutes of a GPU side by side, and a question about one minute of all reads them as a question about all minutes does.
    async fn read_minutes(
        &self,
        history: &dyn History,
        fleet: &Fleet,
        now_ns: i64,
    ) -> Result<Vec<String>, QueryError> {
        let mut missing = Vec::new();
        // Before the first GPU there are no minutes: they are read from the beginning when it is there.
        let next = || self.work(|work| work.recent.next_query(now_ns)).filter(|_| !fleet.gpus.is_empty());
        while let Some(query) = next() {
            let end_ns = query.end_ns.saturating_add(1);
            let mut parts = BucketsInParts::of_all(of_some_gpus(query, fleet));
            let mut read = None;
            loop {
                // The history answers the next one meanwhile.
                let (part, ()) = tokio::try_join!(parts.next(history), self.take_minutes(read.take()))?;
                let Some(Part { answer, missing: more }) = part else { break };
                missing = answers::joined(missing, more);
                read = Some(answer);
            }
            self.blocking(move |work| work.recent.read_until(end_ns)).await?;
        }
        Ok(missing)
    }

    async fn take_minutes(&self, part: Option<Buckets>) -> Result<(), QueryError> {
        let Some(buckets) = part else { return Ok(()) };
        self.blocking(move |work| work.recent.take_part(&buckets)).await
    }

    /// Reads what agents themselves say of GPUs.
    async fn read_words(&self, history: &dyn History, fresh: Freshness) {
        let Some(query) = self.work(|work| work.recent.told.next_query(fresh)) else { return };
        match history.rows(query).await {
            Ok(Part { answer, missing }) => {
                let (rows, coverage) = (answer.batch.as_ref(), Coverage::of(&missing));
                self.work(|work| work.recent.told.take(rows, coverage));
            }
            Err(error) => tracing::debug!(reason = causes(&error), "what agents say cannot be read"),
        }
    }

    /// Reads what only rows tell of some GPUs, and what hosts count. Where they cannot be read, findings say less.
    async fn read_rows(&self, history: &dyn History, fleet: &Fleet, fresh: Freshness) {
        self.read_words(history, fresh).await;
        let ras = async {
            let Some(query) = self.work(|work| work.recent.ras.next_query(&fleet.gpus, fresh)) else {
                return;
            };
            match history.rows(query).await {
                Ok(Part { answer, .. }) => self.work(|work| work.recent.ras.take(answer.batch.as_ref())),
                Err(error) => tracing::debug!(reason = causes(&error), "RAS blocks cannot be read"),
            }
        };
        let xids = async {
            let next = |work: &mut Work| {
                let Recent { xids, told, .. } = &mut work.recent;
                xids.next_query(&fleet.gpus, fresh, told)
            };
            let Some(query) = self.work(next) else { return };
            match history.rows(query).await {
                Ok(Part { answer, .. }) => self.work(|work| work.recent.xids.take(answer.batch.as_ref())),
                Err(error) => tracing::debug!(reason = causes(&error), "XIDs of a day cannot be read"),
            }
        };
        let marks = async {
            let Some(query) = self.work(|work| work.recent.marks.next_query(&fleet.gpus, fresh)) else {
                return;
            };
            match history.rows(query).await {
                Ok(Part { answer, .. }) => self.work(|work| work.recent.marks.take(answer.batch.as_ref())),
                Err(error) => tracing::debug!(reason = causes(&error), "marks of recordings cannot be read"),
            }
        };
        let boots = async {
            let Some(query) = self.work(|work| work.recent.boots.next_query(fresh.now_ns)) else { return };
            match history.buckets(query).await {
                Ok(Part { answer, .. }) => self.work(|work| work.recent.boots.take(&answer)),
                Err(error) => tracing::debug!(reason = causes(&error), "counts of hosts cannot be read"),
            }
        };
        tokio::join!(ras, xids, marks, boots);
    }

    /// Whether the rows are a recording that is over. Its silence is no news: no row shall tell of it later, where the recording is
    /// looked at. It is known before a GPU counts as silent.
    fn is_over(&self, fleet: &Fleet, fresh: Freshness) -> bool {
        let Some(after) = self.recorded_after.as_ref().and_then(|recorded_after| recorded_after()) else {
            return false;
        };
        let after_ns = i64::try_from(after.as_nanos()).unwrap_or(i64::MAX).max(fresh.stale_after_ns / 2);
        let newest_ns = fleet.gpus.iter().map(|gpu| gpu.last_seen_ns).max();
        newest_ns.is_some_and(|newest_ns| fresh.now_ns.saturating_sub(newest_ns) > after_ns)
    }

    /// Takes the life of findings from the history, and says whether that could be read.
    async fn recall(&self, history: &dyn History, query: &RowsQuery) -> Result<bool, QueryError> {
        // Throttling alone has more events than are read at once.
        let events = answers::events_of_kinds(history, query, &findings::LIFE_KINDS).await;
        let Some(events) = whole(events) else { return Ok(false) };
        self.blocking(move |work| work.tracker.recall(&events)).await?;
        Ok(true)
    }

    /// Asks the history when findings began that are open from now on. Where it gives no answer, they may have begun earlier.
    async fn look_back(
        &self,
        history: &dyn History,
        fleet: &Arc<Fleet>,
        now_ns: i64,
    ) -> Result<(), QueryError> {
        let new = self.work(|work| work.tracker.unlooked(LOOKED_MAX));
        if new.is_empty() {
            return Ok(());
        }
        let fleet = Arc::clone(fleet);
        let questions = self.blocking(move |_| LookBack::of(&new, &fleet, now_ns)).await?;
        let mut rows_left = ROWS_READ_MAX;
        for question in questions {
            let found = match history.buckets(question.query.clone()).await {
                Ok(Part { answer, missing }) => {
                    self.blocking(move |_| question.shown(&answer, Coverage::of(&missing))).await?
                }
                Err(error) => {
                    tracing::debug!(reason = causes(&error), "when findings began cannot be read");
                    continue;
                }
            };
            let mut looks = Vec::with_capacity(found.len());
            for shown in found {
                let query = shown.rows().filter(|_| rows_left > 0);
                rows_left -= usize::from(query.is_some());
                looks.push(first_row(history, query, shown).boxed());
            }
            let mut seen = stream::iter(looks).buffered(ROWS_AT_ONCE);
            while let Some(Shown { kind, subject, began, .. }) = seen.next().await {
                self.work(|work| work.tracker.looked_back(kind, &subject, began));
            }
        }
        Ok(())
    }

    /// Hands on what has happened to findings.
    fn tell(&self, fleet: &Fleet, changes: &[LifeChange]) {
        let Some(LifeLog { outlet, origin, rows }) = self.log.get() else { return };
        let identity = |gpu: &str| fleet.get(gpu).map(|gpu| gpu.identity.clone());
        let mut rows = rows.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(batch) = findings::life_rows(changes, identity, origin.clone(), &mut rows) {
            outlet.give(batch);
        }
    }

    /// Where the life of findings is kept from now on; `origin` names this gateway.
    pub(crate) fn keep(&self, outlet: Outlet, origin: Origin) {
        let _kept_already = self.log.set(LifeLog { outlet, origin, rows: Mutex::default() });
    }

    /// Whether the life of findings is kept.
    pub(crate) fn keeps(&self) -> bool {
        self.log.get().is_some()
    }

    fn work<T>(&self, work: impl FnOnce(&mut Work) -> T) -> T {
        work(&mut self.work.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// On a thread for blocking work. It ends whole, even if nobody waits for it any more.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Work) -> T + Send + 'static,
    ) -> Result<T, QueryError> {
        let state = Arc::clone(&self.work);
        let job = move || work(&mut state.lock().unwrap_or_else(PoisonError::into_inner));
        tokio::task::spawn_blocking(job).await.map_err(QueryError::failed)
    }

    /// The findings as figures; nothing before the first judgement.
    pub(crate) fn families(&self) -> Vec<Family> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        last.map_or_else(Vec::new, |last| figures::families(&last))
    }
}

impl Work {
    /// Judges the fleet.
    fn take(&mut self, look: &FleetLook, clocks: Vec<Candidate>, coverage: Coverage) {
        let mut candidates = findings::judge(&look.situation(&self.recent));
        candidates.extend(clocks);
        self.tracker.update(look.fresh.now_ns, candidates, coverage);
    }

    /// Which events may tell of the life of findings that are new here: they may go on from before, and be any age.
    fn life(&self, now_ns: i64) -> Option<RowsQuery> {
        let new = self.tracker.untold();
        let gpus: BTreeSet<Arc<str>> =
            new.filter_map(|finding| finding.reach.gpus.first().cloned()).collect();
        (!gpus.is_empty()).then(|| RowsQuery {
            gpus: gpus.into_iter().collect(),
            start_ns: Some(now_ns.saturating_sub(EVENTS_BACK_NS).saturating_sub(EVENTS_LATE_NS)),
            newest_first: true,
            ..RowsQuery::of(Table::GpuHealthEvents, EVENTS_MAX)
        })
    }

    fn conclude(&self, look: &FleetLook, missing: Vec<String>) -> Judgement {
        let situation = look.situation(&self.recent);
        let open = self.tracker.open();
        let (jobs, hints) = (findings::holder_loads(&situation), hints::node_hints(&situation, &open));
        // Where something is missing, a GPU that no finding names may have one.
        let judge = GpuJudge::of(open.iter(), Coverage::of(&missing));
        let silences = self.tracker.silences().into_iter().cloned().collect();
        let (at_ns, findings) = (look.fresh.now_ns, named(&look.fleet, open));
        Judgement { at_ns, findings, silences, judge, jobs, hints, told: Arc::default(), missing }
    }
}

/// A question for minutes as questions about as many GPUs as fit. One that names its GPUs can be put in parts.
fn of_some_gpus(query: BucketQuery, fleet: &Fleet) -> Vec<BucketQuery> {
    let at_once = Recent::gpus_at_once(&query).min(GPUS_AT_ONCE);
    if fleet.gpus.len() <= at_once {
        return vec![query];
    }
    let mut keys: Vec<Arc<str>> = fleet.gpus.iter().map(|gpu| Arc::clone(&gpu.key)).collect();
    // As files have them.
    keys.sort_unstable();
    keys.chunks(at_once).map(|some| BucketQuery { gpus: some.to_vec(), ..query.clone() }).collect()
}

/// Events, if the history has all of them now.
async fn whole_events(history: &dyn History, query: RowsQuery) -> Option<Vec<HealthEvent>> {
    whole(answers::health_events(history, query).await)
}

/// Events, if nothing of them is missing.
fn whole(events: Result<Part<Vec<HealthEvent>>, QueryError>) -> Option<Vec<HealthEvent>> {
    match events {
        Ok(Part { answer, missing }) if missing.is_empty() => return Some(answer),
        // What is missing may be the beginning of a finding, or a silence.
        Ok(Part { missing, .. }) => {
            tracing::debug!(?missing, "the events of findings cannot be read whole now");
        }
        Err(error) => tracing::debug!(reason = causes(&error), "the events of findings cannot be read now"),
    }
    None
}

/// The first row of a minute that shows a finding; the minute, where rows cannot be read or are not asked for.
async fn first_row(history: &dyn History, query: Option<RowsQuery>, mut shown: Shown) -> Shown {
    let Some(query) = query else { return shown };
    match history.rows(query).await {
        Ok(Part { answer, .. }) => answer.batch.iter().for_each(|rows| shown.take(rows)),
        Err(error) => tracing::debug!(reason = causes(&error), "the first row of a finding cannot be read"),
    }
    shown
}

/// Findings with the names of their subjects for people.
fn named(fleet: &Fleet, findings: Vec<FleetFinding>) -> Vec<(FleetFinding, String)> {
    let named = |finding: FleetFinding| {
        let name = name(fleet, &finding.subject);
        (finding, name)
    };
    findings.into_iter().map(named).collect()
}

/// A judgement with what is told of the batch jobs that its findings concern. Without it they name no user.
async fn with_told(history: &dyn History, judgement: Judgement) -> Judgement {
    let jobs = judgement.findings.iter().filter_map(|(finding, _)| finding.reach.job.clone());
    let mut ids: Vec<Arc<str>> = jobs.collect();
    ids.sort_unstable();
    ids.dedup();
    ids.truncate(TOLD_JOBS_MAX);
    let told = answers::told_of_jobs(history, ids, judgement.at_ns).await.answer;
    Judgement { told: Arc::new(told), ..judgement }
}

/// A subject's name for people.
fn name(fleet: &Fleet, subject: &Subject) -> String {
    match subject {
        Subject::Gpu(key) => condition::name_of(fleet, key),
        Subject::Job(holder) => holder.trim_start_matches('/').to_owned(),
        Subject::Fleet | Subject::Node(_) | Subject::Model(_) => subject.to_string(),
    }
}

/// GPUs whose agent reports them as lost. Their rows go on, without values: events are read only if there are such rows.
async fn lost(
    history: &dyn History,
    fleet: &Fleet,
    fresh: Freshness,
) -> Result<HashMap<Arc<str>, LostGpu>, QueryError> {
    let blank = fleet.gpus.iter().filter(|gpu| fresh.is_blank(gpu));
    let blank: Vec<Arc<str>> = blank.map(|gpu| Arc::clone(&gpu.key)).collect();
    if blank.is_empty() {
        return Ok(HashMap::new());
    }
    let query = RowsQuery {
        gpus: blank,
        start_ns: Some(fresh.now_ns.saturating_sub(EVENTS_BACK_NS)),
        newest_first: true,
        ..RowsQuery::of(Table::GpuHealthEvents, EVENTS_MAX)
    };
    Ok(findings::lost_gpus(&answers::health_events(history, query).await?.answer))
}

/// How many rows of these hosts are ahead; none if that cannot be told whole.
async fn count_ahead(history: &dyn History, ahead: &[RowAhead], now_ns: i64) -> Option<Buckets> {
    match history.buckets(ClockWatch::query(ahead, now_ns)?).await {
        Ok(Part { answer, missing }) => Some(answer).filter(|_| missing.is_empty()),
        Err(error) => {
            tracing::debug!(reason = causes(&error), "the rows of clocks ahead cannot be counted");
            None
        }
    }
}

/// The newest row of each host that is ahead of the clock here, those furthest ahead first. A history without ranges of time has none.
/// Where reading takes its time, what came meanwhile is of now: `now` is asked again after each answer.
async fn ahead(history: &dyn History, now: &(impl Fn() -> i64 + Sync)) -> Result<Vec<RowAhead>, QueryError> {
    let (mut found, mut hosts) = (Vec::new(), Vec::new());
    while found.len() < HOSTS_AHEAD_MAX {
        let others = Matcher { column: IdentityColumn::Node, test: TextTest::IsNot(hosts.clone()) };
        let others = Some(others).filter(|_| !hosts.is_empty());
        let query = RowsQuery {
            selector: Selector::new(others.into_iter().collect()).map_err(QueryError::failed)?,
            start_ns: Some(now().saturating_add(AHEAD_MAX_NS)),
            newest_first: true,
            ..RowsQuery::of(Table::GpuEvents, 1)
        };
        let rows = match history.rows(query).await {
            Err(QueryError::NotKept { .. }) => break,
            rows => rows?.answer,
        };
        let Some(batch) = rows.batch else { break };
        let identity = batch.identity(0);
        let until_ns = now().saturating_add(AHEAD_MAX_NS);
        let at_ns = batch.timestamps().first().copied().unwrap_or(until_ns);
        if at_ns <= until_ns {
            break;
        }
        hosts.push(Arc::from(identity.node().unwrap_or_default()));
        found.push(RowAhead { at_ns, identity });
    }
    Ok(found)
}
