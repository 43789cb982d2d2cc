//! The gateway's state, and how a question gets its answer.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::body::Body;
use axum::http::header::{AGE, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, HeaderName, VARY};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use gpuvitals_core::clusters::ClusterView;
use gpuvitals_core::feed::Outlet;
use gpuvitals_core::figures::Family;
use gpuvitals_core::history::History;
use gpuvitals_core::{Origin, causes};
use gpuvitals_flight::JobIncidents;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::ask::{self, Ask, Rendered, View};
use crate::cache::{Cache, CacheKey, Now, Ready};
use crate::compress::Encoding;
use crate::condition::StateRules;
use crate::config::ApiConfig;
use crate::dto::GatewayStats;
use crate::error::ApiError;
use crate::hidden::HiddenUsers;
use crate::jobs_kept::KeptJobs;
use crate::meter::Meter;
use crate::past::{Past, PastInstant};
use crate::peer::Peer;
use crate::recent::RecentChanges;
use crate::tag;
use crate::watch::{FleetWatch, Judgement};

/// Shortest time between two judgements of the fleet that nobody asked for.
const SHORTEST_WATCH: Duration = Duration::from_secs(5);

/// The gateway's view of the rest of the program: the parts it shows but does not own.
pub trait StatusView: Send + Sync {
    /// The queues; their statistics are `topics`, `total_processed`, `uptime_seconds` and their other fields.
    fn queues(&self) -> Vec<Peer>;
    /// The collectors that the history is read from, and how they are.
    fn collectors(&self) -> Vec<Peer>;
    /// The source of the rows and its progress: a JSON object, empty if there is none in this process.
    fn source(&self) -> serde_json::Value;
    /// Age of the newest row from which all rows are a recording, because what made them has ended or nothing in this process makes
    /// any; none: more may come after any silence.
    fn recorded_after(&self) -> Option<Duration> {
        None
    }
    /// The instant of the newest row of a recording that this process has read to its end, nanoseconds UTC since 1970: the history may
    /// have newer rows of something else. None: it is the newest row of the history.
    fn recorded_until(&self) -> Option<i64> {
        None
    }
    /// The clusters whose nodes are read from outside, in the order of the configuration.
    fn clusters(&self) -> Vec<Arc<ClusterView>> {
        Vec::new()
    }
    /// Figures of the parts beside the gateway that have no port of their own.
    fn families(&self) -> Vec<Family> {
        Vec::new()
    }
}

/// The gateway. Cheap to clone.
#[derive(Clone)]
pub struct Api(Arc<ApiState>);

struct ApiState {
    config: ApiConfig,
    history: Arc<dyn History>,
    status: Arc<dyn StatusView>,
    cache: Cache,
    meter: Meter,
    queries: Arc<Semaphore>,
    streams: Arc<Semaphore>,
    listener: Arc<gpuvitals_listener::Meter>,
    watch: Arc<FleetWatch>,
    past: Past,
    recent: Arc<RecentChanges>,
    jobs: OnceLock<Arc<KeptJobs>>,
    judged: watch::Sender<Option<Arc<Judgement>>>,
    stopping: CancellationToken,
    started: Instant,
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api").field("config", &self.0.config).finish_non_exhaustive()
    }
}

impl Api {
    /// A gateway to that history.
    pub fn new(config: ApiConfig, history: Arc<dyn History>, status: Arc<dyn StatusView>) -> Self {
        let history: Arc<dyn History> = if config.hides_users {
            Arc::new(HiddenUsers::of(history, Arc::clone(&config.job_labels)))
        } else {
            history
        };
        let (limits, stopping) = (&config.limits, CancellationToken::new());
        let recent = RecentChanges::new(limits.resume_bytes, config.clock.clone(), stopping.clone());
        let of_source = Arc::clone(&status);
        let watch = FleetWatch::of_now(config.clock.clone(), move || of_source.recorded_after());
        Self(Arc::new(ApiState {
            cache: Cache::new(config.cache_entries, limits.cache_bytes, limits.reuse),
            meter: Meter::default(),
            queries: Arc::new(Semaphore::new(limits.queries)),
            streams: Arc::new(Semaphore::new(limits.streams)),
            listener: Arc::new(gpuvitals_listener::Meter::new("gateway")),
            watch: Arc::new(watch),
            past: Past::default(),
            recent: Arc::new(recent),
            jobs: OnceLock::new(),
            judged: watch::Sender::new(None),
            stopping,
            started: Instant::now(),
            config,
            history,
            status,
        }))
    }

    /// Keeps the life of findings from now on, in rows that name this gateway `node`. The first outlet counts.
    pub fn keep_findings(&self, outlet: Outlet, node: &str) {
        let origin = Origin { node: node.into(), started_ns: self.0.config.clock.now_ns() };
        self.0.watch.keep(outlet, origin);
    }

    /// Keeps incidents of jobs from now on, and asks their nodes, also for findings of these kinds. The first ones count.
    pub fn keep_flight(&self, incidents: Arc<JobIncidents>, findings: Vec<String>) {
        self.0.jobs.get_or_init(|| Arc::new(KeptJobs::of(incidents, findings)));
    }

    /// The incidents of jobs.
    ///
    /// # Errors
    /// When none are kept here.
    pub(crate) fn jobs(&self) -> Result<&Arc<KeptJobs>, ApiError> {
        self.0.jobs.get().ok_or(ApiError::NoJobs)
    }

    /// As many queries are computed at the same time, by whatever way they are asked.
    pub fn queries(&self) -> Arc<Semaphore> {
        Arc::clone(&self.0.queries)
    }

    pub(crate) fn config(&self) -> &ApiConfig {
        &self.0.config
    }

    pub(crate) fn history(&self) -> &dyn History {
        self.0.history.as_ref()
    }

    /// The history with what may be shown of it, for those who show it in other ways.
    pub fn shown_history(&self) -> Arc<dyn History> {
        Arc::clone(&self.0.history)
    }

    pub(crate) fn status(&self) -> &dyn StatusView {
        self.0.status.as_ref()
    }

    pub(crate) fn meter(&self) -> &Meter {
        &self.0.meter
    }

    /// Cancelled when the gateway stops.
    pub(crate) fn stopping(&self) -> &CancellationToken {
        &self.0.stopping
    }

    /// What the listener counts.
    pub(crate) fn listener(&self) -> &Arc<gpuvitals_listener::Meter> {
        &self.0.listener
    }

    /// The watch over the fleet.
    pub(crate) fn watch(&self) -> &Arc<FleetWatch> {
        &self.0.watch
    }

    /// The changes that live streams show.
    pub(crate) fn recent(&self) -> &Arc<RecentChanges> {
        &self.0.recent
    }

    /// Judges the fleet every so often, until the gateway stops.
    pub(crate) async fn keep_watch(&self) {
        let ApiState { config, history, watch, past, stopping, .. } = self.0.as_ref();
        let every = config.limits.judge_every.max(SHORTEST_WATCH);
        let mut ticks = tokio::time::interval(every);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let judging = async {
            loop {
                ticks.tick().await;
                past.forget_old();
                let rules = StateRules::new(config.clock.now_ns(), config.stale_after);
                let judged = watch.judged(history.as_ref(), rules.fresh, every / 2);
                match tokio::time::timeout(config.limits.request_timeout, judged).await {
                    Ok(Ok(judgement)) => {
                        self.0.judged.send_replace(Some(judgement));
                    }
                    Ok(Err(error)) => {
                        tracing::debug!(reason = causes(&error), "the fleet cannot be judged now");
                    }
                    Err(_) => tracing::debug!("judging the fleet takes too long"),
                }
            }
        };
        tokio::select! {
            () = judging => {}
            () = stopping.cancelled() => {}
        }
    }

    /// The judgements that come of that.
    pub(crate) fn judgements(&self) -> watch::Receiver<Option<Arc<Judgement>>> {
        self.0.judged.subscribe()
    }

    /// A place among the live streams.
    ///
    /// # Errors
    /// When all are taken.
    pub(crate) fn stream_permit(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        let permit = Arc::clone(&self.0.streams).try_acquire_owned();
        permit.map_err(|_| ApiError::Streams(self.0.config.limits.streams))
    }

    /// The answer to a question, cached or computed now. Equal questions at the same time are computed once.
    ///
    /// # Errors
    /// If the question has no answer or the gateway is too busy.
    pub(crate) async fn answer<A: Ask>(&self, ask: A, headers: &HeaderMap) -> Result<Response, ApiError> {
        self.answer_as_of(None, ask, headers).await
    }

    /// The answer to a question as of an instant, nanoseconds UTC since 1970; as of now, if there is none or it has not come.
    ///
    /// # Errors
    /// As [`Api::answer`].
    pub(crate) async fn answer_as_of<A: Ask>(
        &self,
        at_ns: Option<i64>,
        ask: A,
        headers: &HeaderMap,
    ) -> Result<Response, ApiError> {
        let state = &self.0;
        let wall_ns = state.config.clock.now_ns();
        let past = match at_ns.filter(|at_ns| *at_ns < wall_ns) {
            Some(at_ns) => Some(self.past_instant(at_ns).await),
            None => None,
        };
        let encoding = Encoding::accepted(headers);
        let key = CacheKey { ask: format!("{ask:?}"), encoding, past, said: state.watch.said() };
        let moment = past.map(|past| state.past.moment(&state.history, past, wall_ns));
        let (history, watch) = match &moment {
            Some(moment) => (&moment.history, &moment.watch),
            None => (&state.history, &state.watch),
        };
        let version = if A::OF_HISTORY { history.version() } else { 0 };
        let now = Now { version, wall_ns: past.map_or(wall_ns, |past| past.at_ns) };
        let making = match state.cache.get(&key, now).await {
            Ok(ready) => {
                state.meter.hit();
                gpuvitals_listener::trace::note("gpuvitals.cache", "hit");
                return Ok(respond(&ready, headers, "hit"));
            }
            Err(making) => making,
        };
        state.meter.miss();
        gpuvitals_listener::trace::note("gpuvitals.cache", "miss");
        if let Some(moment) = &moment {
            state.past.read(moment, state.config.limits.request_timeout / 2).await?;
        }
        let ready = self.make(ask, encoding, now, (history, watch)).await?;
        making.keep(&ready);
        Ok(respond(&ready, headers, "miss"))
    }

    async fn make(
        &self,
        ask: impl Ask,
        encoding: Encoding,
        now: Now,
        (history, watch): (&Arc<dyn History>, &Arc<FleetWatch>),
    ) -> Result<Ready, ApiError> {
        let ApiState { config, status, queries, jobs, .. } = self.0.as_ref();
        let limits = config.limits.clone();
        let waited = tokio::time::timeout(limits.request_timeout / 2, Arc::clone(queries).acquire_owned());
        let Ok(Ok(permit)) = waited.await else { return Err(ApiError::Overloaded) };
        let made = Instant::now();
        let rules = StateRules::new(now.wall_ns, config.stale_after);
        let view = View {
            history: Arc::clone(history),
            clusters: status.clusters(),
            limits,
            rules,
            racks: config.rack_pattern.clone(),
            prices: config.prices,
            job_labels: Arc::clone(&config.job_labels),
            encoding,
            permit,
            watch: Arc::clone(watch),
            jobs: jobs.get().map(|jobs| Arc::clone(&jobs.incidents)),
        };
        let Rendered { body, head, until_ns } =
            ask.answer(view).instrument(tracing::info_span!("query")).await?;
        Ok(Ready { body, head, made, version: now.version, until_ns })
    }

    /// The instants of the first row and of the last of a recording, nanoseconds UTC since 1970, if no more rows come; none: more come, or
    /// there is none.
    async fn recording(&self) -> Option<(i64, i64)> {
        let ApiState { config, history, status, .. } = self.0.as_ref();
        let after = status.recorded_after()?.max(config.stale_after);
        let fleet = history.fleet().await.ok()?.answer;
        let first_ns = fleet.gpus.iter().map(|gpu| gpu.first_seen_ns).min()?;
        let newest_ns = fleet.gpus.iter().map(|gpu| gpu.last_seen_ns).max()?;
        let age_ns = config.clock.now_ns().saturating_sub(newest_ns);
        let is_over = age_ns > i64::try_from(after.as_nanos()).unwrap_or(i64::MAX);
        // What was read here to its end is what a person wants to see, although the store had newer rows before.
        let end_ns = status.recorded_until().map_or(newest_ns, |until_ns| until_ns.min(newest_ns));
        is_over.then_some((first_ns, end_ns))
    }

    /// The instant of the last row of a recording, nanoseconds UTC since 1970, if no more rows come; none: more come, or there is none.
    pub(crate) async fn end_of_recording(&self) -> Option<i64> {
        self.recording().await.map(|(_, end_ns)| end_ns)
    }

    /// An instant that is asked about. A recording ends there until its silence would count: who asks as of its end may round it up.
    async fn past_instant(&self, at_ns: i64) -> PastInstant {
        let stale_after_ns = StateRules::new(at_ns, self.0.config.stale_after).fresh.stale_after_ns;
        let recording = self.recording().await;
        let ends_there =
            |(_, end_ns): &(i64, i64)| (0..=stale_after_ns).contains(&at_ns.saturating_sub(*end_ns));
        let recorded_from_ns = recording.filter(ends_there).map(|(first_ns, _)| first_ns);
        PastInstant { at_ns, recorded_from_ns }
    }

    /// The gateway's own statistics.
    pub(crate) fn gateway_stats(&self) -> GatewayStats {
        let ApiState { meter: counts, cache, config, streams, listener, started, .. } = self.0.as_ref();
        GatewayStats {
            cache_hit_rate: counts.hit_rate(),
            cache_hits: counts.hits(),
            cache_misses: counts.misses(),
            cache_bytes: cache.bytes(),
            requests: listener.requests(),
            uptime_seconds: seconds(started.elapsed()),
            streams: config.limits.streams.saturating_sub(streams.available_permits()),
            connections: listener.connections(),
            memory_bytes: gpuvitals_core::figures::resident_bytes(),
        }
    }

    /// The gateway's figures and those of the parts beside it.
    pub fn families(&self) -> Vec<Family> {
        let mut families = self.0.meter.families(&self.gateway_stats());
        families.extend(self.0.listener.families());
        families.extend(self.0.watch.families());
        families.extend(self.0.status.families());
        families
    }
}

/// Rounded to the millisecond, for people.
fn seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e3).round() / 1e3
}

/// The answer, or that the client has it already.
fn respond(ready: &Ready, asked: &HeaderMap, cache: &'static str) -> Response {
    let has_it = tag::is_had(&ready.head.tag, asked);
    let mut response = if has_it {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        Body::from(ready.body.clone()).into_response()
    };
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(VARY, HeaderValue::from_static("accept, accept-encoding"));
    headers.insert(ETAG, ready.head.tag.clone());
    headers.insert(AGE, HeaderValue::from(ready.made.elapsed().as_secs()));
    headers.insert(HeaderName::from_static("x-cache"), HeaderValue::from_static(cache));
    if !has_it {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(ready.head.format.media_type()));
        headers.extend(ready.head.encoding.name().map(|name| (CONTENT_ENCODING, name)));
        headers.extend(ready.head.next.clone().map(|next| (ask::NEXT, next)));
    }
    ask::with_partial(response, ready.head.partial.clone())
}
