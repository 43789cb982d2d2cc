//! Dead letters: to see, to give back, to throw away.
#![expect(clippy::indexing_slicing, reason = "a key that JSON lacks reads as null")]

use std::collections::BTreeSet;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use clap::Args;
use gpuvitals_core::quantity::counted;
use gpuvitals_queue::{ContentType, Encoding, Frame};
use serde_json::Value;

use super::admin::Admin;
use super::answer::{Given, confirm, number};
use super::{messages, print};
use crate::failure::{Exit, Failure};
use crate::terminal::{self, PrintForm};

/// Letters asked for at a time.
const PAGE: usize = 200;
/// Most letters that are listed; with more of them, their number is more useful.
const LISTED_MAX: usize = 10_000;

/// Dead letters of a topic.
#[derive(Debug, Args)]
pub(super) struct DeadLetters {
    /// Their topic
    topic: String,
    /// Only these letters [default: all]
    #[arg(long = "id", value_name = "ID", value_delimiter = ',')]
    ids: Vec<u64>,
}

impl DeadLetters {
    /// The ids of those that are named, each once.
    fn ids(&self) -> Vec<u64> {
        let ids: BTreeSet<u64> = self.ids.iter().copied().collect();
        ids.into_iter().collect()
    }
}

/// Lists them, of one topic or of all.
///
/// # Errors
/// When the queue cannot be reached, or refuses.
pub(super) fn list(admin: &Admin, topic: Option<&str>, form: PrintForm) -> Result<(), Failure> {
    let topics = if let Some(topic) = topic {
        vec![topic.to_owned()]
    } else {
        let stats = admin.stats()?;
        let with_letters = |(_, topic): &(&String, &Value)| topic["dead_letters"] != 0;
        let topics = stats["topics"].as_object().into_iter().flatten().filter(with_letters);
        topics.map(|(name, _)| name.clone()).collect()
    };
    let mut letters = Vec::new();
    for topic in topics {
        for letter in of(admin, &topic, LISTED_MAX.saturating_sub(letters.len()))? {
            letters.push((topic.clone(), letter));
        }
    }
    let text = if form == PrintForm::Json {
        let with_topic = |(topic, mut letter): (String, Value)| {
            letter["topic"] = topic.into();
            letter
        };
        let letters: Vec<Value> = letters.into_iter().map(with_topic).collect();
        format!("{:#}\n", Value::from(letters))
    } else {
        let more = if letters.len() >= LISTED_MAX {
            format!("the oldest {LISTED_MAX} are listed\n")
        } else {
            String::new()
        };
        print::letters(&letters) + &more
    };
    terminal::print(&text)
}

/// The oldest letters of a topic.
fn of(admin: &Admin, topic: &str, most: usize) -> Result<Vec<Value>, Failure> {
    let mut letters = Vec::new();
    let mut from = 0;
    while letters.len() < most {
        let limit = PAGE.min(most - letters.len());
        let answer = admin.dead(topic, from, limit)?;
        letters.extend(answer["dead"].as_array().into_iter().flatten().cloned());
        match answer["next"].as_u64().filter(|next| *next > from) {
            Some(next) => from = next,
            None => break,
        }
    }
    Ok(letters)
}

/// Prints the messages of one, a line each.
///
/// # Errors
/// If the letter is missing, or its messages cannot be read.
pub(super) fn show(admin: &Admin, topic: &str, id: u64, form: PrintForm) -> Result<(), Failure> {
    let answer = admin.dead(topic, id, 1)?;
    let letter = &answer["dead"][0];
    if letter["id"] != id {
        let text = format!("{topic} has no dead letter {id}; gpuvitals queue dead {topic} lists them");
        return Err(Failure::new(Exit::Data, text));
    }
    if form == PrintForm::Json {
        return terminal::print(&format!("{letter:#}\n"));
    }
    let lines = match letter["messages"].as_array() {
        Some(shown) => shown.iter().map(Value::to_string).collect(),
        None => opened(letter).map_err(|why| {
            Failure::new(
                Exit::Data,
                format!("the messages of letter {id} cannot be shown: {why}; --json prints what there is"),
            )
        })?,
    };
    let left_out = letter["messages_left_out"].as_u64().filter(|count| *count > 0);
    let more = left_out.map_or(String::new(), |count| format!("and {count} more\n"));
    terminal::print(&(lines.join("\n") + "\n" + &more))
}

/// The messages of a frame that the queue gives as it was published.
fn opened(letter: &Value) -> Result<Vec<String>, String> {
    let payload = letter["payload_base64"].as_str().ok_or("they are too long to be sent here")?;
    let payload = BASE64_STANDARD.decode(payload).map_err(|e| e.to_string())?;
    let content_type = if letter["content_type"] == "json" { ContentType::Json } else { ContentType::Batch };
    let encoding = if letter["encoding"] == "zstd" { Encoding::Zstd } else { Encoding::Identity };
    // The number of messages is not needed to read them.
    messages::of(&Frame::new(content_type, 0, payload).encoded(encoding))
}

/// Gives them back.
///
/// # Errors
/// When the queue cannot be reached, or refuses.
pub(super) fn replay(
    admin: &Admin,
    asked: &DeadLetters,
    rate: Option<f64>,
    form: PrintForm,
) -> Result<(), Failure> {
    let ids = asked.ids();
    let given = admin.replay(&asked.topic, &ids, rate)?;
    let Given { letters, without_room, unreadable, left } = given;
    let missing = missing(&asked.topic, &ids, letters + without_room + unreadable + left)?;
    if form == PrintForm::Json {
        return terminal::print(&format!("{:#}\n", serde_json::json!(given)));
    }
    let mut lines = vec![format!("{} given back", counted(letters, "letter"))];
    lines.extend(missing);
    if without_room > 0 {
        lines.push(format!("{without_room} stay: the topic is full"));
    }
    if unreadable > 0 {
        lines.push(format!("{unreadable} stay: their messages cannot be read"));
    }
    if left > 0 {
        lines.push(format!("{left} behind those were not tried; --id names letters"));
    }
    terminal::print(&(lines.join("\n") + "\n"))
}

/// Deletes them, after a question.
///
/// # Errors
/// If the user cannot be asked, or declines; if the queue cannot be reached, or refuses.
pub(super) fn purge(admin: &Admin, asked: &DeadLetters, yes: bool, form: PrintForm) -> Result<(), Failure> {
    let (topic, ids) = (asked.topic.as_str(), asked.ids());
    if !yes {
        let held = admin.topic(topic)?;
        let what = match ids.len() {
            0 => {
                let messages = counted(number(&held, "dead_letters")?, "message");
                format!("all dead letters of {topic} ({messages})")
            }
            1 => format!("1 dead letter of {topic}"),
            many => format!("{many} dead letters of {topic}"),
        };
        confirm(&format!("throw away {what} for good?"))?;
    }
    let letters = admin.purge(topic, &ids)?;
    let missing = missing(topic, &ids, letters)?;
    if form == PrintForm::Json {
        return terminal::print(&format!("{:#}\n", serde_json::json!({ "letters": letters })));
    }
    let mut lines = vec![format!("{} thrown away", counted(letters, "letter"))];
    lines.extend(missing);
    terminal::print(&(lines.join("\n") + "\n"))
}

/// Prints how many of the named letters are missing.
///
/// # Errors
/// If all are missing.
fn missing(topic: &str, ids: &[u64], found: u64) -> Result<Option<String>, Failure> {
    let named = u64::try_from(ids.len()).unwrap_or(u64::MAX);
    match named.saturating_sub(found) {
        0 => Ok(None),
        missing if found > 0 => Ok(Some(format!("{missing} of those that were named are not there"))),
        _ => {
            let ids: Vec<String> = ids.iter().map(u64::to_string).collect();
            let ids = ids.join(", ");
            Err(Failure::new(
                Exit::Data,
                format!("{topic} has no dead letter {ids}; gpuvitals queue dead {topic} lists them"),
            ))
        }
    }
}
