//! The agent's paths: metrics, probes, and a page that names them.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::header::{self, HeaderMap, HeaderValue};
use axum::http::{StatusCode, Uri};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use gpuvitals_core::clock::Moment;
use gpuvitals_core::figures::{Family, Format};
use gpuvitals_core::{Health, Status};
use gpuvitals_listener::{Vitals, echo, refuse, vitals};
use gpuvitals_queue::QueueClock;

use crate::node::Node;
use crate::scrape::{Scraper, TextCoding};

/// What the paths show.
#[derive(Debug)]
pub(crate) struct ShownNode {
    pub(crate) node: Arc<Node>,
    pub(crate) scraper: Scraper,
}

impl ShownNode {
    /// All paths, with the metrics at this one.
    pub(crate) fn router(self: Arc<Self>, metrics_path: &str) -> Router {
        let page = format!(
            "<!doctype html><title>gpuvitals agent</title><h1>gpuvitals agent {}</h1><p><a href=\"{metrics_path}\">metrics</a> \
             <a href=\"/healthz\">alive?</a> <a href=\"/readyz\">ready?</a></p>\n",
            env!("CARGO_PKG_VERSION")
        );
        Router::new()
            .route("/", get(async move || Html(page)))
            .route(metrics_path, get(metrics))
            .merge(vitals::probes(Arc::clone(&self) as _))
            .fallback(nothing)
            .with_state(self)
    }
}

impl Vitals for ShownNode {
    fn health(&self) -> Health {
        self.alive()
    }

    fn alive(&self) -> Health {
        match self.node.ailment(Moment::now()) {
            Some(ailment) => health(Status::Unhealthy, ailment),
            // No new process brings the queue back.
            None => {
                match self.node.publisher().and_then(|publisher| publisher.ailment(&QueueClock::system())) {
                    Some(ailment) => health(Status::Degraded, ailment),
                    None => Health::healthy(0),
                }
            }
        }
    }

    fn ready(&self) -> Health {
        match (self.node.starting(), self.node.gpus()) {
            (0, 0) => health(Status::Degraded, "there is no GPU"),
            (0, _) => Health::healthy(0),
            (waiting, _) => {
                health(Status::Unhealthy, format!("waiting for the first sample of {waiting} devices"))
            }
        }
    }

    fn families(&self) -> Vec<Family> {
        self.scraper.families()
    }
}

fn health(status: Status, reason: impl Into<String>) -> Health {
    Health { status, reason: reason.into(), since_ns: 0 }
}

async fn metrics(State(shown): State<Arc<ShownNode>>, asked: HeaderMap) -> Response {
    let accept = asked.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let format = Format::accepted(accept);
    let coding = if accepts_gzip(&asked) { TextCoding::Gzip } else { TextCoding::Plain };
    let scrape = shown.scraper.scrape(format, coding).await;
    let mut answer = scrape.body.into_response();
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(format.content_type()));
    headers.insert(header::VARY, HeaderValue::from_static("Accept, Accept-Encoding"));
    if scrape.coding == TextCoding::Gzip {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    answer
}

async fn nothing(uri: Uri) -> Response {
    let text = format!("there is nothing at {:?}; GET / lists what there is", echo(uri.path()));
    refuse(StatusCode::NOT_FOUND, "not_found", &text)
}

fn accepts_gzip(headers: &HeaderMap) -> bool {
    let offers = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    offers.flat_map(|value| value.split(',')).any(|offer| {
        let (name, quality) = offer.split_once(";q=").unwrap_or((offer, "1"));
        name.trim().eq_ignore_ascii_case("gzip") && quality.trim().parse::<f32>().is_ok_and(|q| q > 0.0)
    })
}
