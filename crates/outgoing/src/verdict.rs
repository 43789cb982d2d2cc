//! What a receiver makes of a request.

use std::time::Duration;

/// What an answer, or none, means for the samples of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The request is taken, without so many of its samples.
    Taken { left_out: u64 },
    /// So many samples of the request will never be taken. The others are.
    Refused { samples: u64, reason: String },
    /// The request is to be sent again, and not before so long, if the receiver says so.
    Later { reason: String, after: Option<Duration> },
}

/// How the receiver stands to what it is sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    /// The last request found no receiver, or one without room.
    pub(crate) is_away: bool,
    /// The last answer was a refusal.
    pub(crate) is_refusing: bool,
}

impl Standing {
    /// Whether the last request did not arrive as it should have.
    pub(crate) fn is_failing(self) -> bool {
        self.is_away || self.is_refusing
    }

    /// How it stands after this.
    pub(crate) fn after(self, verdict: &Verdict) -> Self {
        match verdict {
            Verdict::Taken { .. } => Self::default(),
            Verdict::Refused { .. } => Self { is_away: false, is_refusing: true },
            Verdict::Later { .. } => Self { is_away: true, ..self },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receiver_refuses_until_it_takes_a_request_and_is_away_until_it_answers() {
        let (taken, refused) =
            (Verdict::Taken { left_out: 0 }, Verdict::Refused { samples: 1, reason: "no".to_owned() });
        let later = Verdict::Later { reason: "busy".to_owned(), after: None };
        let mut standing = Standing::default();
        for (verdict, is_away, is_refusing) in [
            (&taken, false, false),
            (&refused, false, true),
            (&later, true, true),
            (&refused, false, true),
            (&later, true, true),
            (&taken, false, false),
        ] {
            standing = standing.after(verdict);
            assert_eq!(standing, Standing { is_away, is_refusing }, "{verdict:?}");
        }
    }
}
