//! A broker is asked over HTTP.
#![expect(clippy::indexing_slicing, reason = "a key that JSON lacks reads as null")]

use gpuvitals_core::causes;
use gpuvitals_queue::link::{QueueUrl, Scheme};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use ureq::http::header::AUTHORIZATION;

use super::answer::Given;
use super::place::Place;
use crate::client::{PATIENCE, exit, http_client};
use crate::failure::{Exit, Failure};
use crate::percent::escaped;

/// Largest answer that is read.
const ANSWER_LEN_MAX: u64 = 64 << 20;

/// A broker that is asked.
pub(super) struct Http {
    agent: ureq::Agent,
    place: Place,
}

impl Http {
    /// The broker there.
    ///
    /// # Errors
    /// When a file of the access cannot be read.
    pub(super) fn new(place: &Place) -> Result<Self, Failure> {
        // One port speaks HTTP and gRPC.
        let url = QueueUrl { scheme: Scheme::Http, ..place.url.clone() };
        let place = Place { url: url.clone(), ..place.clone() };
        Ok(Self { agent: http_client(url.tls, &place.access, PATIENCE)?, place })
    }

    /// The answer at a path.
    ///
    /// # Errors
    /// If the broker does not answer, or refuses.
    pub(super) fn get(&self, path: &str) -> Result<Value, Failure> {
        self.answer(self.with_token(self.agent.get(self.at(path))).call())
    }

    /// Numbers of everything.
    ///
    /// # Errors
    /// When the broker does not answer, or refuses; when it is none.
    pub(super) fn stats(&self) -> Result<Value, Failure> {
        let answer = self.get("/stats")?;
        let is_queue = answer["topics"].is_object() && answer["gateway"].is_null();
        if is_queue { Ok(answer) } else { Err(self.no_queue()) }
    }

    /// Another service answers there.
    fn no_queue(&self) -> Failure {
        let Place { url, .. } = &self.place;
        let scheme = if url.tls { "https" } else { "http" };
        let text = format!(
            "another service than a queue answers at {url}; the queue's port is --port of gpuvitals broker, or \
             broker.port, 9090 by default: --mq-url {scheme}://{}:9090",
            url.authority.host
        );
        Failure::new(Exit::Usage, text)
    }

    /// Gives dead letters back, those named or all.
    ///
    /// # Errors
    /// When the broker does not answer, or refuses.
    pub(super) fn replay(&self, topic: &str, ids: &[u64], rate: Option<f64>) -> Result<Given, Failure> {
        let path = self.at(&format!("/topics/{}/dead/replay", escaped(topic)));
        let mut which = if ids.is_empty() { json!({ "oldest": usize::MAX }) } else { json!({ "ids": ids }) };
        if let Some(rate) = rate {
            which["messages_per_second"] = rate.into();
        }
        let mut letters = 0;
        loop {
            let request = self.with_token(self.agent.post(&path)).header("content-type", "application/json");
            let given: Given = self.parsed(self.answer(request.send(which.to_string()))?)?;
            letters += given.letters;
            // The broker answers after a while before it is done, and has to be asked again.
            if given.left == 0 || given.letters == 0 {
                return Ok(Given { letters, ..given });
            }
        }
    }

    /// Throws dead letters away, those named or all; gives their number.
    ///
    /// # Errors
    /// When the broker does not answer, or refuses.
    pub(super) fn purge(&self, topic: &str, ids: &[u64]) -> Result<u64, Failure> {
        #[derive(Deserialize)]
        struct Purged {
            letters: u64,
        }
        let list: Vec<String> = ids.iter().map(u64::to_string).collect();
        let which = if ids.is_empty() { String::new() } else { format!("?ids={}", list.join(",")) };
        let path = self.at(&format!("/topics/{}/dead{which}", escaped(topic)));
        let purged: Purged = self.parsed(self.answer(self.with_token(self.agent.delete(path)).call())?)?;
        Ok(purged.letters)
    }

    /// Ends a group of a topic.
    ///
    /// # Errors
    /// When the broker does not answer, or refuses.
    pub(super) fn remove_group(&self, topic: &str, group: &str) -> Result<(), Failure> {
        let path = self.at(&format!("/topics/{}/groups/{}", escaped(topic), escaped(group)));
        self.answer(self.with_token(self.agent.delete(path)).call()).map(drop)
    }

    fn at(&self, path: &str) -> String {
        format!("{}{path}", self.place.url)
    }

    fn with_token<B>(&self, request: ureq::RequestBuilder<B>) -> ureq::RequestBuilder<B> {
        match &self.place.access.token {
            Some(token) => request.header(AUTHORIZATION, token.header()),
            None => request,
        }
    }

    /// An answer in the broker's form.
    ///
    /// # Errors
    /// If a part of it is missing: then the broker's outcome is unknown.
    fn parsed<T: DeserializeOwned>(&self, answer: Value) -> Result<T, Failure> {
        serde_json::from_value(answer).map_err(|error| {
            let text = format!("{} does not say what it did; is it a gpuvitals broker?", self.place.url);
            Failure::caused(Exit::Data, text, error)
        })
    }

    fn answer(
        &self,
        response: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
    ) -> Result<Value, Failure> {
        let url = &self.place.url;
        let unreachable = |error: ureq::Error| {
            let text = match other_speech(&error) {
                Some(speech) => format!("{url} is no HTTP port of a queue: {speech}"),
                None if causes(&error).contains("CertificateRequired") => {
                    format!(
                        "{url} asks for a certificate; --client-cert and --client-key name one and its key"
                    )
                }
                None if causes(&error).contains("peer certificate") => format!(
                    "the certificate of {url} is not trusted here; --ca names the file of the authority that signed it"
                ),
                None => format!(
                    "no queue answers at {url}; start one with `gpuvitals broker` or name another with --mq-url"
                ),
            };
            Failure::caused(Exit::Unavailable, text, error)
        };
        let mut response = response.map_err(unreachable)?;
        let status = response.status();
        let body =
            response.body_mut().with_config().limit(ANSWER_LEN_MAX).read_to_vec().map_err(unreachable)?;
        let answer: Result<Value, _> = serde_json::from_slice(&body);
        if !status.is_success() {
            let message = answer.as_ref().ok().and_then(|answer| answer["message"].as_str());
            let code = answer.as_ref().map_or(&Value::Null, |answer| &answer["code"]);
            let is_unknown = code == "unknown_topic";
            if status == 404 && !is_unknown && code != "unknown_group" {
                return Err(self.no_queue());
            }
            let message = match message {
                _ if is_unknown => "unknown topic; gpuvitals queue topics lists the topics",
                message => message.unwrap_or("no reason given"),
            };
            let text = format!("{url} answers {status}: {message}");
            return Err(match exit(status) {
                Exit::Permission => self.place.denied(&text),
                exit => Failure::new(exit, text),
            });
        }
        if body.is_empty() {
            return Ok(Value::Null);
        }
        answer.map_err(|e| {
            Failure::caused(Exit::Data, format!("{url} did not answer in JSON; is it a gpuvitals broker?"), e)
        })
    }
}

/// The probable protocol of a port that does not speak HTTP as tried, if the error shows it.
fn other_speech(error: &ureq::Error) -> Option<&'static str> {
    match error {
        ureq::Error::Protocol(_) => Some("where it speaks TLS, https:// reaches it"),
        ureq::Error::Io(error) if error.to_string().contains("InvalidContentType") => {
            Some("it speaks no TLS, http:// reaches it")
        }
        _ => None,
    }
}
