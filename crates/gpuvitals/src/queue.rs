//! `gpuvitals queue`: a look into a queue, for people.

mod admin;
mod answer;
mod dead;
mod group;
mod http;
mod messages;
mod nats;
mod place;
mod print;
mod tail;

use std::io::IsTerminal;
use std::time::Duration;

use clap::{Args, Subcommand};
use gpuvitals_queue::link::MessageQueue;

use crate::failure::Failure;
use crate::terminal::{self, PrintForm};

use admin::Admin;
use answer::runtime;
use dead::DeadLetters;
use place::Place;
use tail::Tail;

pub(crate) use place::TAIL_PREFIX;

/// Between two looks of `stats --watch`.
const WATCH_PAUSE: Duration = Duration::from_secs(1);
/// Moves to the upper left corner and clears the screen.
const HOME: &str = "\u{1b}[H\u{1b}[J";

/// `gpuvitals queue`
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  gpuvitals queue stats --watch
  gpuvitals queue tail gpu-telemetry --from oldest --count 10
  gpuvitals queue dead gpu-telemetry --show 3
  gpuvitals queue redrive gpu-telemetry --id 3")]
pub(crate) struct QueueCommand {
    /// Print JSON as the queue gave it
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    what: QueueAction,
}

/// Subcommands of `queue`.
#[derive(Debug, Subcommand)]
enum QueueAction {
    /// Topics and groups: messages held, lag, rates
    Stats {
        /// Only this topic
        topic: Option<String>,
        /// Again every second
        #[arg(long)]
        watch: bool,
    },
    /// Names of all topics
    Topics,
    /// Print messages as they arrive, a line of JSON each; other readers still get them
    Tail(Tail),
    /// Dead letters: messages that were given up, and why
    Dead {
        /// Only those of this topic
        topic: Option<String>,
        /// Print the messages of this letter
        #[arg(long, value_name = "ID", requires = "topic")]
        show: Option<u64>,
    },
    /// Publish dead letters to their topic again, for all of its groups
    #[command(visible_alias = "replay")]
    Redrive {
        #[command(flatten)]
        letters: DeadLetters,
        /// At most this many messages a second [default: all at once]
        #[arg(long, value_name = "N")]
        rate: Option<f64>,
    },
    /// Throw dead letters away for good
    Purge {
        #[command(flatten)]
        letters: DeadLetters,
        /// Without asking
        #[arg(long)]
        yes: bool,
    },
    /// End a group without readers: messages that only it waited for are dropped
    RemoveGroup {
        /// Its topic
        topic: String,
        /// The group
        group: String,
        /// Without asking
        #[arg(long)]
        yes: bool,
    },
}

/// Asks and prints.
///
/// # Errors
/// When the queue cannot be reached, or refuses.
pub(crate) fn run(command: &QueueCommand, settings: MessageQueue) -> Result<(), Failure> {
    let place = Place { access: settings.access()?, way_in: settings.way_in(), url: settings.address };
    let (form, admin) = (PrintForm::of(command.json), || Admin::new(&place));
    match &command.what {
        QueueAction::Stats { topic, watch: false } => {
            let text = stats(&admin()?, topic.as_deref(), form)?;
            terminal::print(&text)
        }
        QueueAction::Stats { topic, watch: true } => watch(&admin()?, topic.as_deref(), form),
        QueueAction::Topics => {
            let answer = admin()?.topics()?;
            terminal::print(&match form {
                PrintForm::Json => format!("{answer:#}\n"),
                PrintForm::Text => print::topics(&answer),
            })
        }
        QueueAction::Tail(flags) => tail::run(flags, &place),
        QueueAction::Dead { topic: Some(topic), show: Some(id) } => dead::show(&admin()?, topic, *id, form),
        QueueAction::Dead { topic, .. } => dead::list(&admin()?, topic.as_deref(), form),
        QueueAction::Redrive { letters, rate } => dead::replay(&admin()?, letters, *rate, form),
        QueueAction::Purge { letters, yes } => dead::purge(&admin()?, letters, *yes, form),
        QueueAction::RemoveGroup { topic, group, yes } => group::remove(&admin()?, topic, group, *yes, form),
    }
}

fn stats(admin: &Admin, topic: Option<&str>, form: PrintForm) -> Result<String, Failure> {
    let answer = match topic {
        None => admin.stats()?,
        Some(topic) => admin.topic(topic)?,
    };
    Ok(match (form, topic) {
        (PrintForm::Json, _) => format!("{answer:#}\n"),
        (PrintForm::Text, None) => print::stats(&answer),
        (PrintForm::Text, Some(topic)) => print::topic(topic, &answer),
    })
}

/// Redraws each second on a terminal, and appends elsewhere.
fn watch(admin: &Admin, topic: Option<&str>, form: PrintForm) -> Result<(), Failure> {
    let (runtime, mut signals) = runtime()?;
    let clear = if std::io::stdout().is_terminal() { HOME } else { "" };
    loop {
        terminal::print(&format!("{clear}{}", stats(admin, topic, form)?))?;
        let ended = runtime.block_on(async { tokio::time::timeout(WATCH_PAUSE, signals.next()).await });
        if ended.is_ok() {
            return Ok(());
        }
    }
}
