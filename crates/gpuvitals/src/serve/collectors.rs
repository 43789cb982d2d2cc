//! Where the collectors are: the addresses of the configured names, as members of one history.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gpuvitals_api::Peer;
use gpuvitals_core::history::History;
use gpuvitals_listener::client::{Credentials, Dial};
use gpuvitals_remote::{Merged, NamedHistory, Remote};
use tokio::time::Instant;

use crate::failure::{Exit, Failure};
use crate::gateway::{CollectorUrl, Gateway};
use crate::watched::{AskedService, Watched};

/// A collector whose address is gone from a name is missed for this time, unless another address takes its place.
const MISSED_FOR: Duration = Duration::from_mins(10);

/// The collectors behind the gateway.
#[derive(Debug)]
pub(super) struct Collectors {
    access: Credentials,
    merged: Arc<Merged>,
    names: tokio::sync::Mutex<Vec<CollectorName>>,
    held: Mutex<Vec<Collector>>,
}

/// A configured name.
#[derive(Debug)]
struct CollectorName {
    url: CollectorUrl,
    addresses: Addresses,
}

#[derive(Debug)]
struct Collector {
    /// `host:port` that is dialled.
    address: String,
    history: NamedHistory,
    watched: Watched,
}

impl Collectors {
    /// Those of the settings, which are not looked up yet.
    ///
    /// # Errors
    /// When a credential cannot be read or used.
    pub(super) fn new(settings: &Gateway, merged: Arc<Merged>) -> Result<Self, Failure> {
        let access = settings.access()?;
        for url in &settings.collectors {
            // Credentials are files: what is wrong with them is known before the first address is.
            dial(&url.authority.to_string(), url, &access)?;
        }
        let names = settings.collectors.iter();
        let names =
            names.map(|url| CollectorName { url: url.clone(), addresses: Addresses::default() }).collect();
        Ok(Self { access, merged, names: tokio::sync::Mutex::new(names), held: Mutex::default() })
    }

    /// Looks up the addresses of all names. The collectors found are the members of the history from now on.
    pub(super) async fn look_up(&self) {
        let mut names = self.names.lock().await;
        let mut wanted: Vec<(String, CollectorUrl)> = Vec::new();
        for name in names.iter_mut() {
            let found = addresses_of(&name.url).await;
            let addresses = match found {
                Ok(found) => name.addresses.seen(found, Instant::now()),
                Err(error) => {
                    tracing::warn!(name = %name.url, %error, "the collectors of a name cannot be looked up");
                    name.addresses.kept()
                }
            };
            // One collector is asked by its name; so is one whose name cannot be looked up: it is missing.
            let addresses = match addresses.len() {
                0 | 1 => vec![name.url.authority.to_string()],
                _ => addresses,
            };
            for address in addresses {
                if !wanted.iter().any(|(it, _)| *it == address) {
                    wanted.push((address, name.url.clone()));
                }
            }
        }
        self.hold(&wanted);
    }

    /// These are the collectors from now on. Those that stay keep their connections.
    fn hold(&self, wanted: &[(String, CollectorUrl)]) {
        let mut held = self.held();
        let is_same = held.len() == wanted.len()
            && held.iter().zip(wanted).all(|(collector, (address, _))| collector.address == *address);
        if is_same {
            return;
        }
        let mut before = std::mem::take(&mut *held);
        for (address, url) in wanted {
            if let Some(at) = before.iter().position(|collector| collector.address == *address) {
                held.push(before.swap_remove(at));
                continue;
            }
            match dial(address, url, &self.access) {
                Ok(dial) => {
                    tracing::info!(collector = address, name = %url, "a collector is asked");
                    held.push(Collector::new(address, dial));
                }
                Err(failure) => tracing::error!(collector = address, %failure, "a collector cannot be asked"),
            }
        }
        for gone in &before {
            tracing::info!(collector = gone.address, "a collector is asked no more");
        }
        self.merged.set_members(held.iter().map(|collector| collector.history.clone()).collect());
    }

    /// Health and statistics of each.
    pub(super) fn peers(&self) -> Vec<Peer> {
        self.held().iter().map(|collector| collector.watched.peer()).collect()
    }

    fn held(&self) -> MutexGuard<'_, Vec<Collector>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Collector {
    fn new(address: &str, dial: Dial) -> Self {
        let name = format!("collector {address}");
        let history: Arc<dyn History> = Arc::new(Remote::new(&name, dial.clone()));
        Self {
            address: address.to_owned(),
            history: NamedHistory { name: name.into(), history },
            watched: Watched::new(address.to_owned(), AskedService::service(dial)),
        }
    }
}

fn dial(address: &str, url: &CollectorUrl, access: &Credentials) -> Result<Dial, Failure> {
    Dial::at(address, &url.authority.to_string(), url.tls, access)
        .map_err(|e| Failure::caused(Exit::Config, "configuration: gateway", e))
}

/// The addresses of a name, `ip:port`.
///
/// # Errors
/// When the name cannot be looked up.
async fn addresses_of(url: &CollectorUrl) -> std::io::Result<Vec<String>> {
    let found: Vec<_> = tokio::net::lookup_host(url.authority.to_string()).await?.collect();
    // The two families of addresses lead to the same machines.
    let has_ipv4 = found.iter().any(SocketAddr::is_ipv4);
    let of_one_family = found.iter().filter(|it| it.is_ipv4() == has_ipv4);
    let mut addresses: Vec<String> = of_one_family.map(ToString::to_string).collect();
    addresses.sort();
    addresses.dedup();
    Ok(addresses)
}

/// The addresses of a name over time. A collector that restarts has none for a while, or another one; its rows are missing
/// meanwhile, and answers must say so.
#[derive(Debug, Default)]
struct Addresses {
    /// Every address with its last sight, the newest first.
    seen: Vec<(String, Instant)>,
    /// Most addresses at a time, and when there were so many last.
    most: Option<(usize, Instant)>,
}

impl Addresses {
    /// The addresses to ask, after a look that has found these.
    fn seen(&mut self, found: Vec<String>, now: Instant) -> Vec<String> {
        self.seen.retain(|(address, at)| !found.contains(address) && now - *at < MISSED_FOR);
        let count = found.len();
        self.seen.splice(0..0, found.into_iter().map(|address| (address, now)));
        self.most = match self.most {
            Some((most, at)) if count < most && now - at < MISSED_FOR => Some((most, at)),
            _ => Some((count, now)),
        };
        self.kept()
    }

    /// The addresses to ask, without a new look: those that vanished stand in for as many as are missing.
    fn kept(&self) -> Vec<String> {
        let most = self.most.map_or(0, |(most, _)| most);
        let mut kept: Vec<String> = self.seen.iter().take(most).map(|(address, _)| address.clone()).collect();
        kept.sort();
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_vanished_is_missed_until_another_takes_its_place() {
        let begin = Instant::now();
        let mut addresses = Addresses::default();
        let mut look = |seconds, found: &[&str], expected: &[&str]| {
            let found = found.iter().map(ToString::to_string).collect();
            assert_eq!(addresses.seen(found, begin + Duration::from_secs(seconds)), expected, "{seconds}");
        };
        look(0, &["a", "b"], &["a", "b"]);
        look(5, &["a"], &["a", "b"]);
        look(10, &["a", "c"], &["a", "c"]);
        look(15, &["c"], &["a", "c"]);
        look(20, &[], &["a", "c"]);
        look(300, &["c"], &["a", "c"]);
        // A collector that is removed for good is missed for ten minutes.
        look(700, &["c"], &["c"]);
        look(705, &["c", "d", "e"], &["c", "d", "e"]);
    }
}
