//! What an error of the command line leaves open.

use clap::Arg;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::cli::command;

/// What is left after an error: the commands there are, or the flags of the command, or the commands that
/// have the flag.
pub(crate) fn choices(error: &clap::Error) -> Option<String> {
    let mut all = command();
    all.build();
    let mut chosen = &all;
    for word in std::env::args().skip(1).filter(|word| !word.starts_with('-')) {
        let Some(below) = chosen.find_subcommand(&word) else { break };
        chosen = below;
    }
    let named = |command: &clap::Command| command.get_bin_name().unwrap_or(command.get_name()).to_owned();
    match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::InvalidSubcommand, _) => {
            let commands =
                chosen.get_subcommands().filter(|it| !it.is_hide_set()).map(clap::Command::get_name);
            let mut commands: Vec<&str> = commands.collect();
            commands.sort_unstable();
            Some(format!("Commands of `{}`: {}", named(chosen), commands.join(", ")))
        }
        (ErrorKind::UnknownArgument, Some(ContextValue::String(flag))) if flag.starts_with("--") => {
            let long = flag.trim_start_matches("--").split('=').next().unwrap_or_default();
            let holders = holders_of(long, &all);
            if !holders.is_empty() {
                return Some(format!("--{long} is a flag of: {}", holders.join(", ")));
            }
            let flags = chosen.get_arguments().filter(|arg| !arg.is_hide_set()).filter_map(Arg::get_long);
            let flags: Vec<String> = flags.map(|flag| format!("--{flag}")).collect();
            Some(format!("Flags of `{}`: {}", named(chosen), flags.join(", ")))
        }
        _ => None,
    }
}

/// The commands below one that have a flag of this name, sorted.
fn holders_of(long: &str, command: &clap::Command) -> Vec<String> {
    let mut holders = Vec::new();
    for below in command.get_subcommands().filter(|it| !it.is_hide_set()) {
        if below.get_arguments().any(|arg| arg.get_long() == Some(long)) {
            holders.push(format!("`{}`", below.get_bin_name().unwrap_or(below.get_name())));
        }
        holders.extend(holders_of(long, below));
    }
    holders.sort_unstable();
    holders
}
