//! The fleet as of earlier instants: a history and a judgement of each instant that is looked at.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gpuvitals_core::history::{AsOf, History};
use gpuvitals_core::time::MINUTE_NS;
use tokio::sync::OnceCell;
use tokio::time::Instant;

use crate::error::ApiError;
use crate::watch::FleetWatch;

/// Most instants that are kept.
const INSTANTS_MAX: usize = 4;
/// How long an instant is kept: rows of it may still come.
const KEPT: Duration = Duration::from_mins(1);
/// How long one is whose rows are under way.
const KEPT_YOUNG: Duration = Duration::from_secs(5);
/// Age up to which they are.
const YOUNG_NS: i64 = 10 * MINUTE_NS;

/// An instant that is asked about, nanoseconds UTC since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PastInstant {
    /// As of when.
    pub(crate) at_ns: i64,
    /// The first row of the recording that ends there; none: more rows have come after it, or may.
    pub(crate) recorded_from_ns: Option<i64>,
}

/// An instant that is looked at.
#[derive(Debug)]
pub(crate) struct Moment {
    /// What is asked.
    asked: PastInstant,
    /// The history as of it.
    pub(crate) history: Arc<dyn History>,
    /// Judges the fleet as of it.
    pub(crate) watch: Arc<FleetWatch>,
    until: Instant,
    is_read: OnceCell<()>,
}

/// The instants that were looked at last.
#[derive(Debug, Default)]
pub(crate) struct Past {
    moments: Mutex<VecDeque<Arc<Moment>>>,
    /// The fleet of one instant is read at a time.
    turn: tokio::sync::Mutex<()>,
}

impl Past {
    /// An instant. Its fleet is read by [`Past::read`].
    pub(crate) fn moment(&self, history: &Arc<dyn History>, asked: PastInstant, now_ns: i64) -> Arc<Moment> {
        self.kept(asked).unwrap_or_else(|| {
            let PastInstant { at_ns, recorded_from_ns } = asked;
            let kept = if now_ns.saturating_sub(at_ns) < YOUNG_NS { KEPT_YOUNG } else { KEPT };
            let moment = Arc::new(Moment {
                asked,
                history: Arc::new(AsOf::new(Arc::clone(history), at_ns)),
                watch: Arc::new(FleetWatch::of_past(recorded_from_ns)),
                until: Instant::now() + kept,
                is_read: OnceCell::new(),
            });
            self.keep(moment)
        })
    }

    /// Reads the fleet of an instant, if nobody has. One that could not be read whole is not kept for others.
    ///
    /// # Errors
    /// When the history gives no answer, or other instants are read for so long.
    pub(crate) async fn read(&self, moment: &Arc<Moment>, within: Duration) -> Result<(), ApiError> {
        let read = async || {
            let Ok(_turn) = tokio::time::timeout(within, self.turn.lock()).await else {
                return Err(ApiError::Overloaded);
            };
            let fleet = moment.history.fleet().await?;
            if !fleet.missing.is_empty() {
                self.lock().retain(|kept| !Arc::ptr_eq(kept, moment));
            }
            Ok(())
        };
        moment.is_read.get_or_try_init(read).await.copied()
    }

    /// Lets those go that are too old.
    pub(crate) fn forget_old(&self) {
        let now = Instant::now();
        self.lock().retain(|moment| moment.until > now);
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Arc<Moment>>> {
        self.moments.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kept(&self, asked: PastInstant) -> Option<Arc<Moment>> {
        self.forget_old();
        let moments = self.lock();
        moments.iter().find(|moment| moment.asked == asked).cloned()
    }

    /// Keeps it, unless another was quicker.
    fn keep(&self, moment: Arc<Moment>) -> Arc<Moment> {
        let mut moments = self.lock();
        if let Some(first) = moments.iter().find(|kept| kept.asked == moment.asked) {
            return Arc::clone(first);
        }
        while moments.len() >= INSTANTS_MAX {
            moments.pop_front();
        }
        moments.push_back(Arc::clone(&moment));
        moment
    }
}
