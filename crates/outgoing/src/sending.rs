//! The loop: at every interval the families become requests, which wait until the receiver has taken them.
//!
//! Two tasks: one looks at the families, one sends. A request that the receiver cannot take now is sent again, after delays that
//! grow and are drawn at random, and not before the receiver wants it; the others wait behind it. So requests arrive in order, and
//! one at a time. They wait in memory, in a bounded queue.

use std::sync::Arc;
use std::time::Duration;

use gpuvitals_core::backoff::Backoff;
use gpuvitals_core::clock;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::counts::{ReceiverCounts, add};
use crate::families::ReadFamilies;
use crate::receiver::{Packed, Receiver};
use crate::verdict::Verdict;
use crate::waiting::WaitingRequests;

/// When is sent, and what waits at most.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    /// Between two looks at the families.
    pub(crate) interval: Duration,
    /// Room for requests that wait, bytes.
    pub(crate) queue_max: u64,
    /// Samples that have waited for longer are dropped, if it is set.
    pub(crate) max_age: Option<Duration>,
}

/// Sends the families of a service to a receiver, until it is dropped.
#[derive(Debug)]
pub(crate) struct Outgoing<R: Receiver> {
    sender: Arc<Sender<R>>,
    /// Ends the looks at the families, after a last one.
    stop: CancellationToken,
    looking: AbortOnDropHandle<()>,
    sending: AbortOnDropHandle<()>,
}

/// What both tasks know.
#[derive(Debug)]
pub(crate) struct Sender<R: Receiver> {
    receiver: R,
    waiting: WaitingRequests<R::Form>,
    max_age: Option<Duration>,
}

impl<R: Receiver> Outgoing<R> {
    /// Starts sending what `families` reads. Called inside the runtime that it is to run on.
    pub(crate) fn start(receiver: R, terms: Terms, families: ReadFamilies) -> Self {
        let waiting = WaitingRequests::new(terms.queue_max);
        let sender = Arc::new(Sender { receiver, waiting, max_age: terms.max_age });
        let stop = CancellationToken::new();
        let looks = Arc::clone(&sender).look_every(terms.interval, families, stop.clone());
        let looking = AbortOnDropHandle::new(tokio::spawn(looks));
        let sending = AbortOnDropHandle::new(tokio::spawn(Arc::clone(&sender).send_all()));
        Self { sender, stop, looking, sending }
    }

    /// What sends, for those who show its figures.
    pub(crate) fn sender(&self) -> Arc<Sender<R>> {
        Arc::clone(&self.sender)
    }

    /// Takes the last values and sends what waits, at most for `grace`; what is left is dropped, and said.
    pub(crate) async fn finish(self, grace: Duration) {
        self.stop.cancel();
        let rest = async {
            if let Err(error) = self.looking.await {
                tracing::error!(%error, "sending by {} ended by a panic", R::PROTOCOL);
            }
            self.sender.waiting.emptied().await;
        };
        let is_late = timeout(grace, rest).await.is_err();
        let samples = self.sender.waiting();
        if is_late || samples > 0 {
            let (what, protocol) = (R::SAMPLES, R::PROTOCOL);
            tracing::warn!(samples, "{what} were left that the receiver of {protocol} did not take in time");
        }
        // A request on its way is not waited for.
        drop(self.sending);
    }
}

impl<R: Receiver> Sender<R> {
    /// What becomes of the samples.
    pub(crate) fn counts(&self) -> &ReceiverCounts {
        self.receiver.counts()
    }

    /// Samples that wait, or are being sent.
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting.samples()
    }

    /// Looks at the families at every interval until `stop`, and then once more.
    async fn look_every(
        self: Arc<Self>,
        interval: Duration,
        families: ReadFamilies,
        stop: CancellationToken,
    ) {
        // Services that start together do not send together.
        let first = Instant::now() + interval.mul_f64(fastrand::f64());
        let mut ticks = interval_at(first, interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        while stop.run_until_cancelled(ticks.tick()).await.is_some() {
            self.look(&families).await;
        }
        self.look(&families).await;
    }

    /// Queues what is new. It is read and written on a thread that may block.
    async fn look(self: &Arc<Self>, families: &ReadFamilies) {
        let (sender, families) = (Arc::clone(self), families.clone());
        let looking = tokio::task::spawn_blocking(move || {
            if let Some(families) = families.read() {
                sender.receiver.pack(families, &mut |request| sender.add(request));
            }
        });
        if let Err(error) = looking.await {
            tracing::error!(%error, "reading the metrics for {} ended by a panic", R::PROTOCOL);
        }
    }

    fn add(&self, request: Packed<R::Form>) {
        let dropped = self.waiting.add(request);
        add(&self.counts().no_room, dropped);
        if dropped > 0 {
            let (what, protocol) = (R::SAMPLES, R::PROTOCOL);
            tracing::debug!(samples = dropped, "{what} found no place in the queue of {protocol}");
        }
    }

    /// Sends what waits, one request at a time.
    async fn send_all(self: Arc<Self>) {
        let (backoff, mut failures) = (Backoff::default(), 0_u32);
        loop {
            let request = self.waiting.oldest().await;
            if self.is_too_old(&request) {
                add(&self.counts().too_old, request.samples);
                self.waiting.settle(&request);
                continue;
            }
            let verdict = self.receiver.send(&request).await;
            let before = self.counts().answered(request.samples, &verdict);
            self.receiver.tell(before, &verdict);
            if let Verdict::Later { after, .. } = verdict {
                failures = failures.saturating_add(1);
                sleep(backoff.after_asked(failures, after)).await;
            } else {
                failures = 0;
                self.waiting.settle(&request);
            }
        }
    }

    fn is_too_old(&self, request: &Packed<R::Form>) -> bool {
        let Some(max_age) = self.max_age else { return false };
        let age_ms = (clock::now_ns() / 1_000_000).saturating_sub(request.newest_ms);
        u128::try_from(age_ms).is_ok_and(|age_ms| age_ms > max_age.as_millis())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Mutex;

    use gpuvitals_core::figures::Family;

    use super::*;
    use crate::counts::read;
    use crate::families::FamilyParts;
    use crate::verdict::Standing;

    const INTERVAL: Duration = Duration::from_secs(10);

    /// Answers with the listed verdicts, then takes all. A request is the name of a family.
    #[derive(Debug, Default)]
    struct Scripted {
        verdicts: Mutex<VecDeque<Verdict>>,
        got: Mutex<Vec<(Instant, String)>>,
        told: Mutex<Vec<Standing>>,
        age_ms: i64,
        counts: ReceiverCounts,
    }

    impl Receiver for Scripted {
        const PROTOCOL: &str = "a test";
        const SAMPLES: &str = "samples";
        type Form = ();

        fn counts(&self) -> &ReceiverCounts {
            &self.counts
        }

        fn pack(&self, families: FamilyParts, emit: &mut dyn FnMut(Packed<()>)) {
            for family in families.flatten() {
                let newest_ms = clock::now_ns() / 1_000_000 - self.age_ms;
                emit(Packed { body: family.name.into_owned().into(), form: (), samples: 1, newest_ms });
            }
        }

        async fn send(&self, request: &Packed<()>) -> Verdict {
            let body = String::from_utf8_lossy(&request.body).into_owned();
            self.got.lock().unwrap().push((Instant::now(), body));
            let verdict = self.verdicts.lock().unwrap().pop_front();
            verdict.unwrap_or(Verdict::Taken { left_out: 0 })
        }

        fn tell(&self, before: Standing, _: &Verdict) {
            self.told.lock().unwrap().push(before);
        }
    }

    /// Two families at each look.
    fn two() -> ReadFamilies {
        let names = ["a", "b"];
        let families = move || names.map(|name| vec![Family::gauge(name, "", 1_u64)]).into_iter();
        ReadFamilies::new(move || Some(Box::new(families()) as FamilyParts))
    }

    fn terms(max_age: Option<Duration>) -> Terms {
        Terms { interval: INTERVAL, queue_max: 1 << 20, max_age }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_taken_comes_again_before_all_else_and_when_the_receiver_wants_it() {
        let reason = || "no".to_owned();
        let verdicts = [
            Verdict::Later { reason: reason(), after: Some(Duration::from_mins(1)) },
            Verdict::Later { reason: reason(), after: None },
            Verdict::Refused { samples: 1, reason: reason() },
        ];
        let receiver = Scripted { verdicts: Mutex::new(verdicts.into()), ..Scripted::default() };
        let outgoing = Outgoing::start(receiver, terms(None), two());
        let sender = outgoing.sender();
        sleep(INTERVAL * 2).await;
        assert!(sender.waiting() >= 2, "all wait for the one that the receiver does not take");
        outgoing.finish(Duration::from_hours(1)).await;
        let got = sender.receiver.got.lock().unwrap();
        let bodies: Vec<&str> = got.iter().map(|(_, body)| body.as_str()).collect();
        assert_eq!(bodies[..4], ["a", "a", "a", "b"], "the third was a refusal for good");
        assert!(got[1].0 - got[0].0 >= Duration::from_mins(1));
        let told = sender.receiver.told.lock().unwrap();
        assert_eq!(told[..4].iter().map(|it| it.is_away).collect::<Vec<_>>(), [false, true, true, false]);
        let counts = sender.counts();
        let numbers = [&counts.postponed, &counts.refused, &counts.taken].map(read);
        assert_eq!(numbers, [2, 1, bodies.len() as u64 - 3]);
        assert_eq!(sender.waiting(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_left_at_the_end_is_given_up_and_what_is_too_old_is_not_sent() {
        let away = || Verdict::Later { reason: "away".to_owned(), after: None };
        let receiver =
            Scripted { verdicts: Mutex::new((0..1_000).map(|_| away()).collect()), ..Scripted::default() };
        let outgoing = Outgoing::start(receiver, terms(None), two());
        let sender = outgoing.sender();
        let begun = Instant::now();
        outgoing.finish(Duration::from_secs(3)).await;
        assert_eq!((sender.waiting(), begun.elapsed().as_secs()), (2, 3));

        let old = Scripted { age_ms: 5_000, ..Scripted::default() };
        let outgoing = Outgoing::start(old, terms(Some(Duration::from_secs(4))), two());
        let sender = outgoing.sender();
        outgoing.finish(INTERVAL).await;
        assert!(sender.receiver.got.lock().unwrap().is_empty());
        assert_eq!((read(&sender.counts().too_old), sender.waiting()), (2, 0));
    }
}
