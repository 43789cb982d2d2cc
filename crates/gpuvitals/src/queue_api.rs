//! The queue's HTTP API on the port of the gateway, for the page: its paths without those to publish, under [`PATH`].

use gpuvitals_api::Beside;
use gpuvitals_listener::client::Dial;
use gpuvitals_listener::{TokenScope, relay};
use gpuvitals_queue::Queue;
use gpuvitals_queue::link::{Credentials, MessageQueue, Scheme};
use gpuvitals_queue::server::{self, ServerConfig};
use ureq::http::Method;

use crate::failure::{Exit, Failure};

/// Where the paths of the queue begin.
const PATH: &str = "/api/v1/queue";

/// Adds the API of the queue in this process, or of that in the settings, to which requests are passed on.
///
/// # Errors
/// When a credential cannot be read or used.
pub(crate) fn with(beside: Beside, here: Option<&Queue>, settings: &MessageQueue) -> Result<Beside, Failure> {
    let (url, access) = (&settings.address, settings.access()?);
    let api = if let Some(queue) = here {
        server::admin_router(queue.clone(), &ServerConfig::default())
    } else if url.scheme == Scheme::Nats {
        relay::refusing(format!(
            "the queue is {url}, NATS JetStream; gpuvitals queue --mq-url {url} looks into it"
        ))
    } else if access.identity.is_some() {
        // With it every client of the gateway would be the gateway to the broker.
        relay::refusing(format!(
            "the broker at {url} knows the gateway by its certificate, so nobody else's requests are passed on; \
             gpuvitals queue --mq-url {url} looks into it"
        ))
    } else {
        let access = Credentials { token: None, ..access };
        let dial = Dial::new(&url.authority.to_string(), url.tls, &access)
            .map_err(|e| Failure::caused(Exit::Config, "configuration: message_queue", e))?;
        relay::router(dial.endpoint().connect_lazy())
    };
    Ok(Beside { router: beside.router.nest(PATH, api), scope })
}

/// The scope that a request to the gateway needs.
fn scope(method: &Method, path: &str) -> TokenScope {
    match path.strip_prefix(PATH) {
        Some(of_queue) if of_queue.starts_with('/') => server::scope(method, of_queue),
        _ => gpuvitals_api::own_scope(method, path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_the_queue_needs_admin_and_the_rest_of_the_gateway_read() {
        let needs = |method: Method, path: &str| scope(&method, path);
        assert_eq!(needs(Method::GET, "/api/v1/gpus"), TokenScope::Read);
        assert_eq!(needs(Method::POST, "/api/v1/prom/api/v1/query"), TokenScope::Read);
        assert_eq!(needs(Method::GET, "/api/v1/flight/incidents"), TokenScope::Flight);
        assert_eq!(needs(Method::POST, "/api/v1/flight/requests"), TokenScope::Flight);
        assert_eq!(needs(Method::GET, "/api/v1/queue/stats"), TokenScope::Read);
        assert_eq!(needs(Method::GET, "/api/v1/queue/topics/t/dead"), TokenScope::Subscribe);
        assert_eq!(needs(Method::POST, "/api/v1/queue/topics/t/dead/replay"), TokenScope::Admin);
        assert_eq!(needs(Method::DELETE, "/api/v1/queue/topics/t/dead"), TokenScope::Admin);
    }
}
