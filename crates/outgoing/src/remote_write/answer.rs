//! The answer to a request, and its meaning.

use gpuvitals_listener::client::retry_after;
use http::{HeaderMap, StatusCode};

use crate::verdict::Verdict;

/// Samples that a receiver of 2.0 has written.
const WRITTEN: &str = "x-prometheus-remote-write-samples-written";

/// An answer, as far as it is read.
#[derive(Debug)]
pub(super) struct ReceiverAnswer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    /// The beginning of its text.
    pub(super) text: String,
}

/// How the receiver was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AskedVersion {
    /// In 1.0, and nothing else.
    One,
    /// In 2.0, and nothing else.
    Two,
    /// In 2.0, and in 1.0 if it does not take that.
    TwoFirst,
}

impl ReceiverAnswer {
    /// What it means for so many samples; none: they are to be sent in version 1.0.
    pub(super) fn verdict(&self, asked: AskedVersion, samples: u64) -> Option<Verdict> {
        let status = self.status;
        if status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error() {
            return Some(Verdict::Later { reason: self.reason(), after: retry_after(&self.headers) });
        }
        let written = match (asked, self.written()) {
            (AskedVersion::One, _) if status.is_success() => samples,
            // A receiver of 1.0 that does not look at the type finds an empty request, and is content.
            (AskedVersion::TwoFirst, None) if status.is_success() => return None,
            (AskedVersion::TwoFirst, _) if status == StatusCode::UNSUPPORTED_MEDIA_TYPE => return None,
            (_, written) => written.unwrap_or(0).min(samples),
        };
        Some(if written == samples {
            Verdict::Taken { left_out: 0 }
        } else {
            Verdict::Refused { samples: samples - written, reason: self.reason() }
        })
    }

    /// The status, and what else it says; of a denial only the status, since the text may repeat what was sent.
    fn reason(&self) -> String {
        let line = self.text.lines().next().unwrap_or_default().trim();
        match self.status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => self.status.to_string(),
            status if line.is_empty() => status.to_string(),
            status => format!("{status}: {line}"),
        }
    }

    /// Samples that are written, if it says so.
    fn written(&self) -> Option<u64> {
        self.headers.get(WRITTEN)?.to_str().ok()?.trim().parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::{HeaderName, HeaderValue};

    use super::*;

    fn answer(status: u16, headers: &[(&'static str, &str)]) -> ReceiverAnswer {
        let headers = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap()));
        ReceiverAnswer {
            status: StatusCode::from_u16(status).unwrap(),
            headers: headers.collect(),
            text: String::new(),
        }
    }

    #[test]
    fn an_answer_settles_a_request_or_has_it_sent_again() {
        use AskedVersion::{One, Two, TwoFirst};
        let wrote = |samples| [(WRITTEN, samples)];
        let pause = |time| [("retry-after", time)];
        let taken = Some(Verdict::Taken { left_out: 0 });
        for (status, headers, asked, expected) in [
            (204, &[][..], One, taken.clone()),
            (204, &wrote("9"), TwoFirst, taken.clone()),
            (204, &wrote("10"), Two, taken),
            (204, &[], TwoFirst, None),
            (415, &[], TwoFirst, None),
        ] {
            assert_eq!(answer(status, headers).verdict(asked, 9), expected, "{status} {headers:?} {asked:?}");
        }
        for (status, headers, asked, refused) in [
            (200, &wrote("7")[..], Two, 2),
            (204, &[], Two, 9),
            (415, &[], Two, 9),
            (415, &[], One, 9),
            (400, &wrote("5"), TwoFirst, 4),
            (400, &[], One, 9),
            (401, &[], TwoFirst, 9),
            (302, &[], TwoFirst, 9),
        ] {
            let reason = StatusCode::from_u16(status).unwrap().to_string();
            let expected = Some(Verdict::Refused { samples: refused, reason });
            assert_eq!(answer(status, headers).verdict(asked, 9), expected, "{headers:?} {asked:?}");
        }
        for (status, headers, asked, after) in [
            (500, &[][..], TwoFirst, None),
            (429, &pause("7"), TwoFirst, Some(Duration::from_secs(7))),
            (503, &pause("Sun, 06 Nov 1994 08:49:37 GMT"), One, Some(Duration::ZERO)),
            (429, &pause("soon"), TwoFirst, None),
        ] {
            let reason = StatusCode::from_u16(status).unwrap().to_string();
            let expected = Some(Verdict::Later { reason, after });
            assert_eq!(answer(status, headers).verdict(asked, 9), expected, "{headers:?} {asked:?}");
        }
    }
}
