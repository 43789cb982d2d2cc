//! Incidents of whole jobs. A gateway is told of those that begin here. When one begins on another node of the job, the gateway asks
//! for the rows of that time, and is answered.

use std::future::pending;
use std::iter::once;
use std::mem;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use bytes::Bytes;
use gpuvitals_core::backoff::Backoff;
use gpuvitals_core::time::{HOUR_NS, MINUTE_NS, SECOND_NS};
use gpuvitals_core::{causes, clock};
use gpuvitals_flight::{
    FlightFolder, FlightIncident, FlightRecorder, FlightSettings, FlightTrigger, IncidentState,
    JOB_REQUEST_STANDS_NS, JOB_REQUESTS_PATH, JobRequest, WindowAnswer, WindowPart, window,
};
use gpuvitals_listener::ServiceUrl;
use gpuvitals_listener::client::{Dial, EventReader, GetError, ServerEvent, ServiceClient};
use serde_json::{Value, json};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::error::GatewayError;

/// Between two looks at what is due.
const LOOK_PAUSE: Duration = Duration::from_secs(1);
/// Between two tries to reach a gateway.
const BACKOFF: Backoff = Backoff { base: Duration::from_secs(1), cap: Duration::from_secs(30) };
/// How long the gateway may know no job of an incident: rows that name it may be on their way there.
const UNKNOWN_NS: i64 = MINUTE_NS;
/// Between two tries of what may be so later.
const AGAIN_NS: i64 = 10 * SECOND_NS;
/// How long rows may be on their way to the disk.
const SETTLE_NS: i64 = 5 * SECOND_NS;
/// The time before and after a trigger that a gateway may ask for: no less than an incident of a node can have.
const AROUND_NS: i64 = HOUR_NS;
/// Incidents and requests that wait; a node has at most a few a minute.
const WAITING_MAX: usize = 64;
/// Refusals that may pass: of a token that is wrong now, and of a client that is too fast.
const PASSING: [u16; 4] = [401, 403, 408, 429];

/// A gateway, and how it is reached.
#[derive(Debug, Clone)]
pub(crate) struct JobGateway {
    url: ServiceUrl<8081>,
    settings: FlightSettings,
}

impl JobGateway {
    /// By the settings; none if they name none.
    ///
    /// # Errors
    /// When a credential cannot be read or used.
    pub(crate) fn of(settings: &FlightSettings) -> Result<Option<Self>, GatewayError> {
        let gateway = settings.gateway.clone().map(|url| Self { url, settings: settings.clone() });
        // Credentials are files: what is wrong with them is known before the gateway is reached.
        gateway.as_ref().map(Self::dial).transpose()?;
        settings.warn_of_key();
        Ok(gateway)
    }

    /// With the credentials as their files are now.
    fn dial(&self) -> Result<Dial, GatewayError> {
        let access = self.settings.gateway_access()?;
        Ok(Dial::new(&self.url.authority.to_string(), self.url.tls, &access)?)
    }
}

/// What a node and a gateway have to say to each other about incidents.
#[derive(Debug)]
pub(crate) struct JobWindows {
    gateway: JobGateway,
    node: String,
    recorder: Arc<FlightRecorder>,
    begun: Receiver<(String, FlightTrigger)>,
    untold: Vec<UntoldIncident>,
    asked: Vec<AskedRows>,
    /// Answers on their way: one of each part, as a slow line takes minutes for one.
    sending: JoinSet<SentRows>,
}

/// An incident of this node.
#[derive(Debug)]
struct UntoldIncident {
    id: String,
    trigger: FlightTrigger,
    /// When it is told of, nanoseconds UTC.
    next_ns: i64,
    /// Until when; past: it is done.
    until_ns: i64,
}

/// What the gateway asks for.
#[derive(Debug)]
struct AskedRows {
    request: JobRequest,
    /// When it came, nanoseconds UTC.
    heard_ns: i64,
    /// When it is answered, nanoseconds UTC.
    next_ns: i64,
    /// Until when; past: it is done.
    until_ns: i64,
    is_sending: bool,
    has_failed: bool,
}

/// An answer that was sent, or not.
#[derive(Debug)]
struct SentRows {
    id: String,
    part: WindowPart,
    /// Whether it is done; else the rows may be there later.
    outcome: Result<bool, GatewayError>,
}

/// A gateway that is reached.
struct GatewayLink {
    client: ServiceClient,
    events: EventReader,
}

impl JobWindows {
    /// Of this node, as rows know it (`cluster/node`); incidents that begin come by the channel.
    pub(crate) fn new(
        gateway: JobGateway,
        node: String,
        recorder: Arc<FlightRecorder>,
        begun: Receiver<(String, FlightTrigger)>,
    ) -> Self {
        let (untold, asked, sending) = (Vec::new(), Vec::new(), JoinSet::new());
        Self { gateway, node, recorder, begun, untold, asked, sending }
    }

    /// Tells and answers, for ever.
    pub(crate) async fn run(mut self) {
        self.remember().await;
        let mut looks = interval(LOOK_PAUSE);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut link, mut outage) = (None, Outage::default());
        loop {
            tokio::select! {
                _ = looks.tick() => {}
                heard = next_event(&mut link) => {
                    if let Ok(Some(event)) = heard {
                        self.take(&event, clock::now_ns());
                    } else {
                        // That it is away is said when it cannot be reached again.
                        link = None;
                        outage.pause();
                    }
                }
                sent = next_sent(&mut self.sending) => self.take_sent(sent, clock::now_ns()),
            }
            if outage.is_waiting() {
                continue;
            }
            match self.work(&mut link, clock::now_ns()).await {
                Ok(()) => outage.end(&self.gateway),
                Err(error) => {
                    link = None;
                    outage.fail(&self.gateway, &error);
                }
            }
        }
    }

    /// Notes what an agent before may not have told of.
    async fn remember(&mut self) {
        let directory = self.recorder.directory().to_owned();
        let listed = tokio::task::spawn_blocking(move || FlightFolder::of(&directory).list()).await;
        for entry in listed.ok().and_then(Result::ok).unwrap_or_default() {
            if let IncidentState::Whole(incident) = entry.state {
                let FlightIncident { id, trigger, others, .. } = *incident;
                // In one that a gateway asked for something may have happened here, too.
                if let Some(own) = once(trigger).chain(others).find(|trigger| !trigger.is_of_job()) {
                    self.note(id, own, clock::now_ns());
                }
            }
        }
    }

    /// Notes an incident of this node. What somebody dumped is no event, and what a gateway asked for it knows.
    fn note(&mut self, id: String, trigger: FlightTrigger, now_ns: i64) {
        let until_ns = trigger.at_ns.saturating_add(JOB_REQUEST_STANDS_NS);
        let is_known = self.untold.iter().any(|it| it.id == id);
        let is_own = !trigger.is_of_job() && trigger.kind != "dump";
        if is_own && until_ns > now_ns && !is_known && self.untold.len() < WAITING_MAX {
            self.untold.push(UntoldIncident { id, trigger, next_ns: now_ns, until_ns });
        }
    }

    /// Takes a request. It comes again with each stream, until it is answered.
    fn take(&mut self, event: &ServerEvent, now_ns: i64) {
        if event.kind != "request" {
            return;
        }
        let folder = FlightFolder::of(self.recorder.directory());
        let request: Option<JobRequest> = serde_json::from_str(&event.data).ok();
        let is_fit = |request: &JobRequest| {
            let JobRequest { id, trigger, asked, .. } = request;
            folder.path(id).is_ok() && is_near(trigger, asked.from_ns) && is_near(trigger, asked.to_ns)
        };
        let Some(request) = request.filter(is_fit) else {
            tracing::warn!("the gateway asks for something that this version does not know");
            return;
        };
        let JobRequest { id, part, trigger, by, .. } = &request;
        if *part == WindowPart::Window && *by != self.node && is_near(trigger, now_ns) {
            self.recorder.asked(id, trigger.at_ns);
        }
        let is_it = |it: &&mut AskedRows| it.request.id == *id && it.request.part == *part;
        if let Some(known) = self.asked.iter_mut().find(is_it) {
            // The less time between this and the answer, the less the clocks drift in it.
            (known.request.sent_ns, known.heard_ns) = (request.sent_ns, now_ns);
        } else if self.asked.len() < WAITING_MAX {
            self.asked.push(AskedRows::new(request, now_ns));
        }
    }

    /// Does what is due.
    async fn work(&mut self, link: &mut Option<GatewayLink>, now_ns: i64) -> Result<(), GatewayError> {
        let begun: Vec<_> = self.begun.try_iter().collect();
        for (id, trigger) in begun {
            self.note(id, trigger, now_ns);
        }
        self.untold.retain(|it| it.until_ns > now_ns);
        self.asked.retain(|it| it.is_sending || it.until_ns > now_ns);
        let client = if let Some(link) = link {
            link.client.clone()
        } else {
            let client = ServiceClient::connect_lazy(self.gateway.dial()?);
            let events = client.events(&format!("{JOB_REQUESTS_PATH}?node={}", self.node)).await?;
            link.insert(GatewayLink { client, events }).client.clone()
        };
        self.tell(&client, now_ns).await?;
        self.answer(&client, now_ns);
        Ok(())
    }

    async fn tell(&mut self, client: &ServiceClient, now_ns: i64) -> Result<(), GatewayError> {
        for it in self.untold.iter_mut().filter(|it| it.next_ns <= now_ns) {
            let told = json!({"node": self.node, "incident": it.id, "trigger": it.trigger});
            let Some(body) = taken(client.post(JOB_REQUESTS_PATH, told.to_string().into_bytes()).await)?
            else {
                it.until_ns = i64::MIN;
                continue;
            };
            let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
            if let Some(job) = answer.get("id").and_then(Value::as_str) {
                tracing::info!(id = it.id, job_incident = job, "the gateway asks all nodes of the job");
                it.until_ns = i64::MIN;
            } else {
                it.next_ns = now_ns.saturating_add(AGAIN_NS);
                it.until_ns = it.until_ns.min(now_ns.saturating_add(UNKNOWN_NS));
            }
        }
        Ok(())
    }

    /// Begins to send what is due.
    fn answer(&mut self, client: &ServiceClient, now_ns: i64) {
        for part in WindowPart::ALL {
            if self.asked.iter().any(|it| it.is_sending && it.request.part == part) {
                continue;
            }
            let is_due = |it: &&mut AskedRows| it.request.part == part && it.next_ns <= now_ns;
            if let Some(due) = self.asked.iter_mut().find(is_due) {
                due.is_sending = true;
                let (heard, client) = ((due.request.clone(), due.heard_ns), client.clone());
                self.sending.spawn(send(heard, self.node.clone(), Arc::clone(&self.recorder), client));
            }
        }
    }

    /// Takes what became of an answer.
    fn take_sent(&mut self, sent: Result<SentRows, JoinError>, now_ns: i64) {
        let Ok(SentRows { id, part, outcome }) = sent else {
            // It panicked, and nobody knows which one. What comes twice is taken once.
            self.asked.iter_mut().for_each(|it| it.is_sending = false);
            return;
        };
        let is_it = |it: &&mut AskedRows| it.request.id == id && it.request.part == part;
        let Some(it) = self.asked.iter_mut().find(is_it) else { return };
        it.is_sending = false;
        it.next_ns = now_ns.saturating_add(AGAIN_NS);
        match outcome {
            Ok(true) => it.until_ns = i64::MIN,
            Ok(false) => {}
            Err(error) => {
                if !mem::replace(&mut it.has_failed, true) {
                    let error = causes(&error);
                    tracing::warn!(id, error, "the gateway does not get its rows; they are sent again");
                }
            }
        }
    }
}

/// Sends the rows that a gateway asks for, if they are there. `heard_ns` is when the request came.
async fn send(
    (request, heard_ns): (JobRequest, i64),
    node: String,
    recorder: Arc<FlightRecorder>,
    client: ServiceClient,
) -> SentRows {
    let JobRequest { id, part, .. } = request.clone();
    let outcome = match rows(&request, &recorder).await {
        Ok(Some(answer)) => {
            let bytes = answer.pieces.iter().map(Bytes::len).sum::<usize>();
            let times = request.sent_ns.map(|asked_ns| [asked_ns, heard_ns, clock::now_ns()]);
            let path = path(&request, &node, answer.is_cut, times);
            taken(client.post_pieces(&path, answer.pieces).await).map(|taken| {
                if taken.is_some() {
                    tracing::info!(id, bytes, "the gateway has what was here");
                }
                true
            })
        }
        Ok(None) => Ok(false),
        Err(error) => {
            tracing::warn!(id, error, "the rows that the gateway asks for cannot be read");
            Ok(true)
        }
    };
    SentRows { id, part, outcome }
}

/// The rows that are asked for; none: they may be there later.
async fn rows(request: &JobRequest, recorder: &Arc<FlightRecorder>) -> Result<Option<WindowAnswer>, String> {
    let recorder = Arc::clone(recorder);
    let JobRequest { id, part, asked, trigger, .. } = request.clone();
    let reading = tokio::task::spawn_blocking(move || match part {
        WindowPart::Window => window(recorder.directory(), asked, trigger.at_ns).map(Some),
        WindowPart::Rest => recorder.rest(&id, &trigger, asked),
    });
    match reading.await {
        Ok(read) => read.map_err(|error| causes(&error)),
        Err(error) => Err(error.to_string()),
    }
}

/// Where an answer goes, with the times by which the gateway knows how far the clock of this node is ahead.
fn path(request: &JobRequest, node: &str, is_cut: bool, times: Option<[i64; 3]>) -> String {
    let JobRequest { id, part, .. } = request;
    let (node, cut) = (node.replace('/', "%2F"), if is_cut { "&cut=true" } else { "" });
    let written = |[asked_ns, heard_ns, now_ns]: [i64; 3]| format!("&times={asked_ns},{heard_ns},{now_ns}");
    let times = times.map_or_else(String::new, written);
    format!("/api/v1/flight/incidents/{id}/nodes/{node}?part={}{cut}{times}", part.name())
}

/// Whether an incident of this trigger may have rows of that time: the ring has no others, and an incident without rows would only take
/// the place of another.
fn is_near(trigger: &FlightTrigger, at_ns: i64) -> bool {
    trigger.at_ns.abs_diff(at_ns) <= AROUND_NS.unsigned_abs()
}

impl AskedRows {
    fn new(request: JobRequest, now_ns: i64) -> Self {
        let next_ns = match request.part {
            WindowPart::Window => request.asked.to_ns.saturating_add(SETTLE_NS),
            // Its end is the latest that it can have; the node has it when its incident is written.
            WindowPart::Rest => now_ns,
        };
        let until_ns = now_ns.saturating_add(JOB_REQUEST_STANDS_NS);
        Self { request, heard_ns: now_ns, next_ns, until_ns, is_sending: false, has_failed: false }
    }
}

/// The next event; never one, while no gateway is reached.
async fn next_event(link: &mut Option<GatewayLink>) -> Result<Option<ServerEvent>, GetError> {
    match link {
        Some(link) => link.events.next().await,
        None => pending().await,
    }
}

/// What becomes of the next answer on its way; never anything, while there is none.
async fn next_sent(sending: &mut JoinSet<SentRows>) -> Result<SentRows, JoinError> {
    match sending.join_next().await {
        Some(sent) => sent,
        None => pending().await,
    }
}

/// The answer to a request; none: the gateway does not take it, and would not later.
fn taken(answer: Result<Bytes, GetError>) -> Result<Option<Bytes>, GatewayError> {
    match answer {
        Err(GetError::Refused { status, message })
            if status.is_client_error() && !PASSING.contains(&status.as_u16()) =>
        {
            tracing::warn!(%status, reason = message, "the gateway does not take what this node has to say of an incident");
            Ok(None)
        }
        answer => Ok(Some(answer?)),
    }
}

/// Whether the gateway is away, and since how many tries.
#[derive(Debug, Default)]
struct Outage {
    failures: u32,
    until: Option<Instant>,
}

impl Outage {
    /// Whether it is too early for another try.
    fn is_waiting(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() < until)
    }

    /// Agents that were cut off together do not come back together.
    fn pause(&mut self) {
        self.until = Some(Instant::now() + BACKOFF.after(self.failures.max(1)));
    }

    fn fail(&mut self, gateway: &JobGateway, error: &GatewayError) {
        self.failures = self.failures.saturating_add(1);
        self.pause();
        if self.failures == 1 {
            let gateway = &gateway.url;
            tracing::error!(%gateway, error = causes(error), "the gateway cannot be told of incidents; it is tried again");
        }
    }

    fn end(&mut self, gateway: &JobGateway) {
        if self.failures > 0 {
            let gateway = &gateway.url;
            tracing::info!(%gateway, "the gateway is told of incidents again");
        }
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests;
