//! Rate limits: how many requests a second a client may send.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU32;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use gpuvitals_core::bucket::TokenBucket;
use gpuvitals_settings::{Notation, Typed, Value, text};

/// Requests a second beyond this machine, unless set otherwise: far above a screen full of dashboards, far below what one
/// careless script sends.
const RATE_ELSEWHERE: f64 = 1_000.0;
/// The burst in seconds of the rate, unless set.
const BURST_S: f64 = 2.0;
/// Clients that are told apart at a time. More of them share one allowance.
const CLIENTS_MAX: usize = 10_000;
/// Bits of an address of IPv6 that are one client's: the rest it may choose.
const IPV6_MASK: u128 = !0 << 64;

/// How many requests a second a client may send.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum RequestRate {
    /// No limit on loopback and for a queue, [`RATE_ELSEWHERE`] elsewhere.
    Auto,
    /// Any number of them.
    Off,
    /// So many a second.
    PerSecond(f64),
}

impl Typed for RequestRate {
    const NOTATION: Notation = Notation::Plain;

    fn read(value: &Value) -> Result<Self, String> {
        // YAML takes `off` for false.
        match text(value)?.as_str() {
            "auto" => Ok(Self::Auto),
            "off" | "false" => Ok(Self::Off),
            number => {
                let rate = number.parse().ok().filter(|rate: &f64| rate.is_finite() && *rate > 0.0);
                rate.map(Self::PerSecond)
                    .ok_or_else(|| format!("{number:?} is neither auto, off nor a number above 0"))
            }
        }
    }
}

/// Who is counted as one client.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Client {
    /// The name of a token.
    Token(String),
    Address(IpAddr),
    /// All for whom there is no room.
    Others,
}

impl Client {
    fn at(address: SocketAddr) -> Self {
        Self::Address(match address.ip().to_canonical() {
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & IPV6_MASK).into(),
            address @ IpAddr::V4(_) => address,
        })
    }
}

/// What holds at a port whose settings name no rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DefaultRate {
    Free,
    Limited,
}

/// The limit of one port, and what its clients have left.
#[derive(Debug)]
pub(crate) struct Throttle {
    rate: f64,
    burst: u32,
    clients: Mutex<HashMap<Client, (TokenBucket, Duration)>>,
}

impl Throttle {
    /// The limit of a port; none if there is none.
    pub(crate) fn new(rate: RequestRate, burst: Option<NonZeroU32>, default: DefaultRate) -> Option<Self> {
        let rate = match rate {
            RequestRate::PerSecond(rate) => rate,
            RequestRate::Auto if default == DefaultRate::Limited => RATE_ELSEWHERE,
            RequestRate::Auto | RequestRate::Off => return None,
        };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "above 0; a cast saturates"
        )]
        let usual = (rate * BURST_S).ceil() as u32;
        Some(Self { rate, burst: burst.map_or(usual, NonZeroU32::get), clients: Mutex::default() })
    }

    /// Admits a request of a token, or of an address without one; or says how long to wait. `now` counts from any fixed instant.
    pub(crate) fn admit(
        &self,
        token: Option<&str>,
        address: Option<SocketAddr>,
        now: Duration,
    ) -> Result<(), Duration> {
        let client = match (token, address) {
            (Some(token), _) => Client::Token(token.to_owned()),
            (None, Some(address)) => Client::at(address),
            (None, None) => Client::Others,
        };
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if clients.len() >= CLIENTS_MAX && !clients.contains_key(&client) {
            // Who has been silent that long has its whole burst again, as somebody new.
            let refilled = Duration::from_secs_f64(f64::from(self.burst) / self.rate);
            clients.retain(|_, (_, last)| now.saturating_sub(*last) < refilled);
        }
        let client = if clients.len() < CLIENTS_MAX || clients.contains_key(&client) {
            client
        } else {
            Client::Others
        };
        let full = || (TokenBucket::new(self.rate, self.burst, now), now);
        let (bucket, last) = clients.entry(client).or_insert_with(full);
        *last = now;
        let mut tried = bucket.clone();
        let wait = tried.take(1, now);
        if wait.is_zero() {
            *bucket = tried;
            Ok(())
        } else {
            Err(wait)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(text: &str) -> SocketAddr {
        SocketAddr::new(text.parse().unwrap(), 4711)
    }

    #[test]
    fn a_rate_is_a_number_off_or_auto() {
        let read = |value: Value| RequestRate::read(&value);
        assert_eq!(read("auto".into()), Ok(RequestRate::Auto));
        assert_eq!((read("off".into()), read(false.into())), (Ok(RequestRate::Off), Ok(RequestRate::Off)));
        assert_eq!(
            (read(5.into()), read("0.5".into())),
            (Ok(RequestRate::PerSecond(5.0)), Ok(RequestRate::PerSecond(0.5)))
        );
        for wrong in ["0", "-1", "inf", "many", ""] {
            assert!(read(wrong.into()).is_err(), "{wrong}");
        }
        assert!(Throttle::new(RequestRate::Auto, None, DefaultRate::Free).is_none());
        assert!(Throttle::new(RequestRate::Off, None, DefaultRate::Limited).is_none());
        let elsewhere = Throttle::new(RequestRate::Auto, None, DefaultRate::Limited).unwrap();
        assert_eq!((elsewhere.rate, elsewhere.burst), (1_000.0, 2_000));
    }

    #[test]
    fn each_token_and_each_address_has_its_own_burst_and_rate() {
        let throttle =
            Throttle::new(RequestRate::PerSecond(2.0), NonZeroU32::new(3), DefaultRate::Free).unwrap();
        let clients = [
            (Some("a"), at("10.0.0.1")),
            (Some("b"), at("10.0.0.1")),
            (None, at("10.0.0.1")),
            (None, at("10.0.0.2")),
        ];
        for (token, address) in clients {
            for _ in 0..3 {
                assert_eq!(throttle.admit(token, Some(address), SECOND), Ok(()));
            }
            // Who is refused does not pay for it.
            for _ in 0..2 {
                assert_eq!(throttle.admit(token, Some(address), SECOND), Err(SECOND / 2));
            }
            assert_eq!(throttle.admit(token, Some(address), SECOND * 3 / 2), Ok(()));
            assert!(throttle.admit(token, Some(address), SECOND * 3 / 2).is_err());
        }
        // A token is the same client from everywhere, and so are the addresses of one network of IPv6.
        assert!(throttle.admit(Some("a"), Some(at("10.9.9.9")), SECOND).is_err());
        assert_eq!(throttle.admit(None, Some(at("2001:db8::1")), SECOND), Ok(()));
        assert_eq!(throttle.admit(None, Some(at("2001:db8::ffff")), SECOND), Ok(()));
        assert_eq!(throttle.admit(None, Some(at("2001:db8::2")), SECOND), Ok(()));
        assert!(throttle.admit(None, Some(at("2001:db8::3")), SECOND).is_err());
        assert_eq!(throttle.admit(None, Some(at("2001:db8:0:1::1")), SECOND), Ok(()));
        assert!(throttle.admit(None, Some(at("::ffff:10.0.0.1")), SECOND).is_err(), "the same as 10.0.0.1");
    }

    #[test]
    fn any_number_of_addresses_takes_bounded_memory() {
        let throttle =
            Throttle::new(RequestRate::PerSecond(1.0), NonZeroU32::new(1), DefaultRate::Free).unwrap();
        let address = |n: u32| Some(SocketAddr::new(IpAddr::V4(n.into()), 1));
        let admitted = (0..30_000).filter(|n| throttle.admit(None, address(*n), SECOND).is_ok()).count();
        // Those without room have one burst together.
        assert_eq!(admitted, CLIENTS_MAX + 1);
        assert_eq!(throttle.clients.lock().unwrap().len(), CLIENTS_MAX + 1);
        // Later the first are forgotten.
        assert_eq!(throttle.admit(None, address(40_000), 3 * SECOND), Ok(()));
        assert_eq!(throttle.clients.lock().unwrap().len(), 1);
    }
}
