//! A queue answers with numbers, and a person with yes or no.

use std::io::{IsTerminal as _, Write as _};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::failure::{Exit, Failure};
use crate::service::{self, Hangup, Signals};

/// Asks before doing something that cannot be undone.
pub(super) fn confirm(question: &str) -> Result<(), Failure> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure::new(Exit::Usage, format!("{question} Nobody is here to ask; --yes says so")));
    }
    let unasked = |e| Failure::io("cannot ask", e);
    write!(std::io::stderr(), "{question} [y/N] ").map_err(unasked)?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).map_err(unasked)?;
    if matches!(answer.trim(), "y" | "Y" | "yes") {
        return Ok(());
    }
    Err(Failure::new(Exit::Usage, "nothing was done"))
}

/// A number of an answer, for a question that a person decides by it.
///
/// # Errors
/// When the answer lacks it.
pub(super) fn number(answer: &Value, key: &str) -> Result<u64, Failure> {
    answer.get(key).and_then(Value::as_u64).ok_or_else(|| {
        Failure::new(Exit::Data, format!("the queue's answer has no number {key}; nothing was done"))
    })
}

pub(super) fn runtime() -> Result<(Runtime, Signals), Failure> {
    service::runtime(Some(1), Hangup::Ends).map_err(|e| Failure::io("cannot start the runtime", e))
}

/// The outcome of replaying dead letters.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(super) struct Given {
    /// Published to their topic again.
    pub letters: u64,
    /// Left, since the topic is full.
    pub without_room: u64,
    /// Left, because their messages are gone.
    pub unreadable: u64,
    /// Left, since those before them could not be given back.
    pub left: u64,
}
