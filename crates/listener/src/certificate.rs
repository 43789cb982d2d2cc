//! How long the certificate of a listener is valid.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use gpuvitals_core::clock;
use gpuvitals_core::time::{self, DAY_NS, SECOND_NS};
use gpuvitals_core::{Health, Status};

/// How long before its end a certificate is reported.
const NOTICE_NS: i64 = 14 * DAY_NS;
/// Tags of DER.
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// The certificate that a listener serves. Clones share what was said of it.
#[derive(Debug, Clone)]
pub struct Certificate {
    path: PathBuf,
    /// When its file was read, nanoseconds UTC since 1970, as the other times.
    read_ns: i64,
    /// From when on the last of its chain is valid; none: it cannot be told.
    begins: Option<ChainEdge>,
    /// When the first of its chain expires; none: never, or it cannot be told.
    expires: Option<ChainEdge>,
    said: Arc<Mutex<Validity>>,
}

/// An end of the time in which all of a chain are valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct ChainEdge {
    at_ns: i64,
    /// Whether it is that of an issuer, and not the listener's own.
    is_issuers: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Validity {
    Valid,
    /// It is not valid yet: clients refuse it, as one that has expired.
    Early,
    /// It expires within [`NOTICE_NS`].
    Ending,
    Expired,
}

impl Certificate {
    /// The certificates of this file, in DER: the listener's own, then those of its issuers. An authority at the end is not looked at:
    /// clients have their own copy of it.
    pub(crate) fn new<'a>(path: &Path, chain: impl Iterator<Item = &'a [u8]>) -> Self {
        let told = chain.enumerate().filter_map(|(place, der)| {
            let facts = facts(der)?;
            (place == 0 || !facts.is_self_issued).then_some((facts, place > 0))
        });
        let told: Vec<(CertificateFacts, bool)> = told.collect();
        let edges = |of: fn(&CertificateFacts) -> Option<i64>| {
            told.iter().filter_map(move |(facts, is_issuers)| {
                Some(ChainEdge { at_ns: of(facts)?, is_issuers: *is_issuers })
            })
        };
        Self {
            path: path.to_owned(),
            read_ns: clock::now_ns(),
            begins: edges(|facts| facts.begins_ns).max(),
            expires: edges(|facts| facts.expires_ns).min(),
            said: Arc::new(Mutex::new(Validity::Valid)),
        }
    }

    /// When the first of its chain expires, seconds since 1970; none: never, or it cannot be told.
    pub(crate) fn expires_s(&self) -> Option<i64> {
        self.expires.map(|edge| edge.at_ns / SECOND_NS)
    }

    /// Degraded from two weeks before it expires on, and before it is valid: a person is needed, while clients that trust it are
    /// served. No status began before its file was read.
    pub fn health(&self) -> Health {
        self.health_at(clock::now_ns())
    }

    fn health_at(&self, now_ns: i64) -> Health {
        let noticed = |edge: ChainEdge| edge.at_ns.saturating_sub(NOTICE_NS);
        let began_ns = match self.validity(now_ns) {
            Validity::Valid => self.begins.map(|edge| edge.at_ns),
            Validity::Early => None,
            Validity::Ending | Validity::Expired => self.expires.map(noticed),
        };
        let since_ns = began_ns.map_or(self.read_ns, |began_ns| began_ns.max(self.read_ns));
        match self.words(now_ns) {
            Some(reason) => Health { status: Status::Degraded, reason, since_ns },
            None => Health::healthy(since_ns),
        }
    }

    /// Logs that it has expired or is about to, or is not valid yet, once each.
    pub(crate) fn watch(&self) {
        let now_ns = clock::now_ns();
        let validity = self.validity(now_ns);
        let before = {
            let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *said, validity)
        };
        if let Some(words) = self.words(now_ns).filter(|_| before != validity) {
            match validity {
                Validity::Expired | Validity::Early => tracing::error!("{words}"),
                Validity::Ending | Validity::Valid => tracing::warn!("{words}"),
            }
        }
    }

    fn validity(&self, now_ns: i64) -> Validity {
        let expires_ns = self.expires.map_or(i64::MAX, |edge| edge.at_ns);
        if expires_ns <= now_ns {
            Validity::Expired
        } else if self.begins.is_some_and(|edge| edge.at_ns > now_ns) {
            Validity::Early
        } else if expires_ns.saturating_sub(NOTICE_NS) <= now_ns {
            Validity::Ending
        } else {
            Validity::Valid
        }
    }

    /// What is wrong with it, and what to do; none if nothing is.
    fn words(&self, now_ns: i64) -> Option<String> {
        let (edge, verb, remedy) = match self.validity(now_ns) {
            Validity::Valid => return None,
            Validity::Early => (self.begins?, "is not valid before", "set the clock of this machine, or "),
            Validity::Ending => (self.expires?, "expires at", ""),
            Validity::Expired => (self.expires?, "expired at", ""),
        };
        let (path, at) = (self.path.display(), time::format(edge.at_ns));
        let of_whom = if edge.is_issuers { " of an issuer in" } else { "" };
        Some(format!(
            "the certificate{of_whom} {path} {verb} {at}; {remedy}replace the file, it is read again"
        ))
    }
}

/// What is known of one certificate.
struct CertificateFacts {
    /// `tbsCertificate.validity.notBefore` of RFC 5280, nanoseconds UTC since 1970; none: not known, or before 1970.
    begins_ns: Option<i64>,
    /// `notAfter` in the same place; none: never, or not known.
    expires_ns: Option<i64>,
    /// Whether its subject is its issuer.
    is_self_issued: bool,
}

fn facts(der: &[u8]) -> Option<CertificateFacts> {
    let (certificate, _) = element(der, SEQUENCE)?;
    let (mut fields, _) = element(certificate, SEQUENCE)?;
    if let Some((_, rest)) = element(fields, VERSION) {
        fields = rest;
    }
    // Serial number, algorithm of the signature.
    for _ in 0..2 {
        (.., fields) = any(fields)?;
    }
    let (issuer, fields) = element(fields, SEQUENCE)?;
    let (validity, fields) = element(fields, SEQUENCE)?;
    let is_self_issued = element(fields, SEQUENCE).is_some_and(|(subject, _)| subject == issuer);
    let (tag, begin, rest) = any(validity)?;
    let begins_ns = instant(tag, begin);
    let (tag, end, _) = any(rest)?;
    Some(CertificateFacts { begins_ns, expires_ns: instant(tag, end), is_self_issued })
}

/// A time of RFC 5280, in either of its forms.
fn instant(tag: u8, text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?;
    let text = match tag {
        UTC_TIME if text.get(..2)? < "50" => format!("20{text}"),
        UTC_TIME => format!("19{text}"),
        GENERALIZED_TIME => text.to_owned(),
        _ => return None,
    };
    let part = |range| text.get(range);
    let (date, clock) =
        ([part(0..4)?, part(4..6)?, part(6..8)?], [part(8..10)?, part(10..12)?, part(12..14)?]);
    time::parse(&format!("{}T{}Z", date.join("-"), clock.join(":"))).ok()
}

/// The content of an element of DER that has this tag, and what follows.
fn element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    any(bytes).filter(|(found, ..)| *found == tag).map(|(_, content, rest)| (content, rest))
}

/// Tag and content of an element of DER, and what follows.
fn any(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, first], rest) = bytes.split_first_chunk()?;
    let (length, rest) = if first < 0x80 {
        (usize::from(first), rest)
    } else {
        let (digits, rest) =
            rest.split_at_checked(usize::from(first & 0x7f)).filter(|(digits, _)| digits.len() <= 4)?;
        (digits.iter().fold(0, |length, digit| (length << 8) | usize::from(*digit)), rest)
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(year: i32) -> Certificate {
        let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(year, 3, 1);
        let made = params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();
        Certificate::new(Path::new("/etc/tls.pem"), [made.der().as_ref()].into_iter())
    }

    #[test]
    fn the_end_is_read_of_either_form_of_time() {
        for year in [1999, 2031, 2049, 2050, 2199] {
            let expected = time::parse(&format!("{year}-03-01T00:00:00Z")).unwrap();
            let expires = certificate(year).expires;
            assert_eq!(expires, Some(ChainEdge { at_ns: expected, is_issuers: false }), "{year}");
        }
        // Without an end, as RFC 5280 writes it.
        assert_eq!(certificate(9999).expires, None);
        let der = certificate_der();
        for cut in 0..der.len().min(200) {
            assert!(facts(&der[..cut]).is_none(), "{cut}");
        }
    }

    fn certificate_der() -> Vec<u8> {
        let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn the_first_of_a_chain_to_expire_is_told() {
        let at = |year| time::parse(&format!("{year}-03-01T00:00:00Z")).unwrap();
        let params = |name: &str, year| {
            let mut params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
            params.not_after = rcgen::date_time_ymd(year, 3, 1);
            params.distinguished_name.push(rcgen::DnType::CommonName, name);
            params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
            params
        };
        let key = || rcgen::KeyPair::generate().unwrap();
        let table = [
            (2031, 2033, 2029, 2031, "the certificate /etc/tls.pem "),
            (2033, 2031, 2029, 2031, "the certificate of an issuer in /etc/tls.pem "),
            (2033, 2020, 2035, 2020, "the certificate of an issuer in /etc/tls.pem "),
        ];
        for (own, issuer, authority, first, words) in table {
            let root = rcgen::CertifiedIssuer::self_signed(params("root", authority), key()).unwrap();
            let middle = rcgen::CertifiedIssuer::signed_by(params("middle", issuer), key(), &root).unwrap();
            let leaf = params("localhost", own).signed_by(&key(), &middle).unwrap();
            let chain = [leaf.der(), middle.der(), root.der()].map(|der| der.to_vec());
            let certificate = Certificate::new(Path::new("/etc/tls.pem"), chain.iter().map(Vec::as_slice));
            assert_eq!(certificate.expires.map(|edge| edge.at_ns), Some(at(first)), "{own} {issuer}");
            let health = certificate.health_at(at(first));
            assert!(health.reason.starts_with(words), "{}", health.reason);
        }
    }

    #[test]
    fn two_weeks_before_its_end_health_is_degraded() {
        let end_ns = time::parse("2031-03-01T00:00:00Z").unwrap();
        let certificate = certificate(2031);
        let read_ns = certificate.read_ns;
        assert_eq!(certificate.health_at(end_ns - 15 * DAY_NS), Health::healthy(read_ns));
        let ending = certificate.health_at(end_ns - 13 * DAY_NS);
        assert_eq!((ending.status, ending.since_ns), (Status::Degraded, end_ns - 14 * DAY_NS));
        let words = "the certificate /etc/tls.pem expires at 2031-03-01T00:00:00Z; replace the file, it is read again";
        assert_eq!(ending.reason, words);
        let expired = certificate.health_at(end_ns);
        assert_eq!((expired.status, expired.since_ns), (Status::Degraded, end_ns - 14 * DAY_NS));
        assert_eq!(expired.reason, words.replace("expires", "expired"));
    }

    #[test]
    fn before_it_is_valid_clients_refuse_it_too() {
        let at = |day: &str| time::parse(&format!("2031-03-{day}T00:00:00Z")).unwrap();
        let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2031, 3, 2);
        params.not_after = rcgen::date_time_ymd(2041, 3, 1);
        let made = params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();
        let certificate = Certificate::new(Path::new("/etc/tls.pem"), [made.der().as_ref()].into_iter());
        let early = certificate.health_at(at("01"));
        assert_eq!((early.status, early.since_ns), (Status::Degraded, certificate.read_ns));
        assert_eq!(
            early.reason,
            "the certificate /etc/tls.pem is not valid before 2031-03-02T00:00:00Z; set the clock of this machine, or replace the \
             file, it is read again"
        );
        assert_eq!(certificate.health_at(at("02")), Health::healthy(at("02")));
    }
}
