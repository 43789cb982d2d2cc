//! Silences: somebody looks after a finding, or after all that is found about a host or a job.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use gpuvitals_core::time::{self, DAY_NS};

use crate::health_event::HealthEvent;

/// The longest that a silence with an end may last, and how far back the rows of silences are read.
pub const SILENCE_MAX_NS: i64 = 30 * DAY_NS;

/// What is silenced.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Silenced {
    /// A finding, by id: it is acknowledged. The silence ends when the finding closes.
    Finding(Arc<str>),
    /// All findings about a host or its GPUs: `cluster/name`; its name if no cluster is known.
    Host(Arc<str>),
    /// All findings about a job or pod or its GPUs, as `cluster/namespace/name`.
    Job(Arc<str>),
}

/// A silence: somebody looks after what it covers, which stands behind all else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Silence {
    /// What is silenced.
    pub silenced: Silenced,
    /// Since when, nanoseconds UTC since 1970.
    pub at_ns: i64,
    /// When it ends by itself; none: when the finding closes.
    pub until_ns: Option<i64>,
    /// Who and why, in their words; may be empty.
    pub note: Arc<str>,
    /// Key of the GPU that its rows belong to; none: it has no rows.
    pub gpu: Option<Arc<str>>,
}

impl Silenced {
    /// Its type, for programs.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Finding(_) => "finding",
            Self::Host(_) => "host",
            Self::Job(_) => "job",
        }
    }

    /// Its id among those of its type.
    pub fn id(&self) -> &Arc<str> {
        let (Self::Finding(id) | Self::Host(id) | Self::Job(id)) = self;
        id
    }

    /// Whether people may call it so: by its id, a host also by its name without the cluster, a job without a cluster that is empty.
    pub fn is_called(&self, asked: &Self) -> bool {
        match (self, asked) {
            (Self::Host(id), Self::Host(name)) => {
                id == name || id.rsplit_once('/').is_some_and(|(_, bare)| bare == name.as_ref())
            }
            (Self::Job(id), Self::Job(name)) => id == name || id.trim_start_matches('/') == name.as_ref(),
            _ => self == asked,
        }
    }

    /// As the column `silenced` writes it. No kind of finding is called `host` or `job`.
    fn by_text(text: &str) -> Self {
        match text.split_once(':') {
            Some(("host", id)) => Self::Host(id.into()),
            Some(("job", id)) => Self::Job(id.into()),
            _ => Self::Finding(text.into()),
        }
    }
}

impl fmt::Display for Silenced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Finding(id) => f.write_str(id),
            Self::Host(id) | Self::Job(id) => write!(f, "{}:{id}", self.type_name()),
        }
    }
}

impl Silence {
    /// Whether it has not ended by itself.
    fn holds(&self, now_ns: i64) -> bool {
        self.until_ns.is_none_or(|until_ns| until_ns > now_ns)
    }

    /// That of a row; none if its end cannot be read.
    fn of(event: &HealthEvent, silenced: &str) -> Option<Self> {
        let until = event.until.as_ref().map(|text| time::parse(text));
        Some(Self {
            silenced: Silenced::by_text(silenced),
            at_ns: event.at_ns,
            // Without the end that it names, a silence would be one that nobody asked for.
            until_ns: until.transpose().ok()?,
            note: Arc::clone(&event.detail),
            gpu: Some(Arc::clone(&event.gpu)),
        })
    }
}

/// The newest word on each silenced thing. Rows may come in any order, and more than once.
#[derive(Debug, Default)]
pub(super) struct Silences(HashMap<Silenced, LastWord>);

/// What was said last.
#[derive(Debug)]
struct LastWord {
    at_ns: i64,
    /// None: it was released.
    silence: Option<Silence>,
}

impl Silences {
    /// Takes a silence, unless a newer word is known.
    pub(super) fn begin(&mut self, silence: Silence) {
        self.say(silence.silenced.clone(), silence.at_ns, Some(silence));
    }

    /// Takes that there is none from an instant on.
    pub(super) fn end(&mut self, silenced: Silenced, at_ns: i64) {
        self.say(silenced, at_ns, None);
    }

    /// Takes that a finding has closed, by id.
    pub(super) fn close(&mut self, finding: &str, at_ns: i64) {
        let silenced = Silenced::Finding(finding.into());
        if self.0.contains_key(&silenced) {
            self.end(silenced, at_ns);
        }
    }

    fn say(&mut self, silenced: Silenced, at_ns: i64, silence: Option<Silence>) {
        let said = LastWord { at_ns, silence };
        // Of one instant the end counts, in every gateway alike.
        let place = |said: &LastWord| (said.at_ns, said.silence.is_none());
        match self.0.get_mut(&silenced) {
            Some(before) if place(before) >= place(&said) => {}
            Some(before) => *before = said,
            None => drop(self.0.insert(silenced, said)),
        }
    }

    /// Takes what other gateways and earlier lives said, from rows of `gpu_health_events`.
    pub(super) fn recall(&mut self, events: &[HealthEvent]) {
        for event in events {
            match (SilenceKind::by_name(&event.kind), &event.silenced) {
                (Some(SilenceKind::Silenced), Some(text)) => {
                    if let Some(silence) = Silence::of(event, text) {
                        self.begin(silence);
                    }
                }
                (Some(SilenceKind::Released), Some(text)) => self.end(Silenced::by_text(text), event.at_ns),
                _ => {}
            }
        }
    }

    /// Lets go what was said too long ago. `is_open`: whether a finding is open, by id; then its silence stays.
    pub(super) fn forget(&mut self, now_ns: i64, is_open: impl Fn(&str) -> bool) {
        self.0.retain(|silenced, said| {
            now_ns.saturating_sub(said.at_ns) <= SILENCE_MAX_NS
                || (said.silence.is_some() && is_open(silenced.id()))
        });
    }

    /// The silence of something, if one holds.
    pub(super) fn of(&self, silenced: &Silenced, now_ns: i64) -> Option<&Silence> {
        self.0.get(silenced)?.silence.as_ref().filter(|silence| silence.holds(now_ns))
    }

    /// Those that hold, in the order of what they silence.
    pub(super) fn holding(&self, now_ns: i64) -> Vec<&Silence> {
        let silences = self.0.values().filter_map(|said| said.silence.as_ref());
        let mut holding: Vec<&Silence> = silences.filter(|silence| silence.holds(now_ns)).collect();
        holding.sort_unstable_by_key(|silence| &silence.silenced);
        holding
    }
}

/// What people say of silences: the `kind` of their rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SilenceKind {
    Silenced,
    Released,
}

impl SilenceKind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Silenced => "silenced",
            Self::Released => "released",
        }
    }

    fn by_name(name: &str) -> Option<Self> {
        [Self::Silenced, Self::Released].into_iter().find(|kind| kind.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::findings::KINDS;

    #[test]
    fn what_is_silenced_is_written_and_read_alike() {
        assert!(KINDS.iter().all(|kind| !matches!(kind.id, "host" | "job")));
        for silenced in [
            Silenced::Finding("xid:GPU-a".into()),
            Silenced::Host("c/n:1".into()),
            Silenced::Job("/ns/job:7".into()),
        ] {
            assert_eq!(Silenced::by_text(&silenced.to_string()), silenced);
        }
    }

    #[test]
    fn a_row_whose_end_cannot_be_read_silences_nothing() {
        let row = |until: Option<&str>| HealthEvent {
            kind: "silenced".into(),
            silenced: Some("host:n".into()),
            until: until.map(Arc::from),
            ..HealthEvent::default()
        };
        let until = |text| Silence::of(&row(text), "host:n").map(|silence| silence.until_ns);
        assert_eq!(until(Some("soon")), None);
        assert_eq!(until(None), Some(None));
        assert_eq!(until(Some("1970-01-01T00:00:01Z")), Some(Some(1_000_000_000)));
    }

    proptest! {
        /// Rows come in any order, more than once, to several gateways.
        #[test]
        fn the_newest_word_counts_in_whatever_order_rows_come(
            said in proptest::collection::vec((0_i64..20, proptest::option::of(1_i64..20)), 1..12),
            order in proptest::collection::vec(any::<proptest::sample::Index>(), 0..30),
            now_ns in 0_i64..40,
        ) {
            let row = |(at_ns, lasts): &(i64, Option<i64>)| HealthEvent {
                at_ns: *at_ns,
                kind: if lasts.is_some() { "silenced" } else { "released" }.into(),
                silenced: Some("host:n".into()),
                // All silences of one instant have the same end.
                until: lasts.map(|_| time::format(at_ns + 7).into()),
                ..HealthEvent::default()
            };
            let mut silences = Silences::default();
            for index in &order {
                silences.recall(&[row(index.get(&said))]);
            }
            said.iter().rev().for_each(|one| silences.recall(&[row(one)]));
            let newest = said.iter().max_by_key(|(at_ns, lasts)| (*at_ns, lasts.is_none()));
            let expected = newest.and_then(|(at_ns, lasts)| lasts.map(|_| at_ns + 7)).filter(|until_ns| *until_ns > now_ns);
            let found = silences.of(&Silenced::Host("n".into()), now_ns);
            prop_assert_eq!(found.and_then(|silence| silence.until_ns), expected);
        }
    }
}
