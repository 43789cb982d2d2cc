//! `gpuvitals token`: makes, lists and revokes the tokens that services ask for.

use std::path::Path;

use clap::{Args, Subcommand, ValueEnum};
use gpuvitals_core::{clock, time};
use gpuvitals_listener::{Listener, Token, TokenError, TokenScope, Tokens};
use serde_json::json;

use crate::failure::{Exit, Failure};
use crate::table::aligned;
use crate::terminal::{self, PrintForm};

/// `gpuvitals token`
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  gpuvitals token create agents --scope publish --token-file tokens > agent.token
  gpuvitals token create prometheus --scope read
  gpuvitals token revoke agents

A service reads the file anew when it changes. Docs: docs/access.md.")]
pub(crate) struct TokenCommand {
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    what: TokenAction,
}

/// Subcommands of `token`.
#[derive(Debug, Subcommand)]
enum TokenAction {
    /// Make a token and print it; it is shown this once, and only its hash is stored
    Create {
        /// Name of its owner
        name: String,
        /// What it permits
        #[arg(long, value_enum, value_delimiter = ',', required = true, value_name = "SCOPES")]
        scope: Vec<ScopeName>,
    },
    /// List the tokens: names, scopes, and when they were made
    List,
    /// Remove a token; services refuse it some seconds later
    Revoke {
        /// Name of its owner
        name: String,
    },
}

/// The permissions of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ScopeName {
    /// Publish messages
    Publish,
    /// Receive and acknowledge messages, and read dead letters
    Subscribe,
    /// Read telemetry, statistics and metrics
    Read,
    /// Ask the nodes of a job for what their flight recorders have, and read it
    Flight,
    /// Change or delete what is held; includes the others
    Admin,
}

impl From<ScopeName> for TokenScope {
    fn from(name: ScopeName) -> Self {
        match name {
            ScopeName::Publish => Self::Publish,
            ScopeName::Subscribe => Self::Subscribe,
            ScopeName::Read => Self::Read,
            ScopeName::Flight => Self::Flight,
            ScopeName::Admin => Self::Admin,
        }
    }
}

/// Does the work.
///
/// # Errors
/// When no file is named, it cannot be read or written, or a name is wrong.
pub(crate) fn run(command: &TokenCommand, listener: &Listener) -> Result<(), Failure> {
    let Some(file) = listener.token_file() else {
        return Err(Failure::new(Exit::Usage, "--token-file names the file of the tokens"));
    };
    let failed = |error: TokenError| {
        let exit = match error {
            TokenError::Write(ref source) => Exit::of(source),
            TokenError::Name(_) => Exit::Usage,
            TokenError::Taken(_) | TokenError::Unknown(_) => Exit::Data,
            _ => Exit::Config,
        };
        Failure::caused(exit, format!("{}", file.display()), error)
    };
    let form = PrintForm::of(command.json);
    match &command.what {
        TokenAction::Create { name, scope } => {
            let scopes: Vec<TokenScope> = scope.iter().map(|scope| TokenScope::from(*scope)).collect();
            let token = Tokens::create(file, name, &scopes, time::format(clock::now_ns())).map_err(failed)?;
            terminal::print(&match form {
                PrintForm::Json => {
                    format!("{:#}\n", json!({ "name": name, "scopes": scopes, "token": token }))
                }
                PrintForm::Text => format!("{token}\n"),
            })
        }
        TokenAction::List => list(file, form).map_err(failed)?,
        TokenAction::Revoke { name } => {
            Tokens::revoke(file, name).map_err(failed)?;
            terminal::print(&match form {
                PrintForm::Json => format!("{:#}\n", json!({ "revoked": name })),
                PrintForm::Text => format!("{name} is revoked\n"),
            })
        }
    }
}

fn list(file: &Path, form: PrintForm) -> Result<Result<(), Failure>, TokenError> {
    let tokens = Tokens::read(file)?;
    if form == PrintForm::Json {
        return Ok(terminal::print(&format!("{:#}\n", json!({ "tokens": tokens.list() }))));
    }
    let row = |token: &Token| {
        let scopes: Vec<&str> = token.scopes.iter().map(|scope| scope.as_str()).collect();
        vec![token.name.clone(), scopes.join(","), token.created.clone()]
    };
    let head = ["NAME", "SCOPES", "CREATED"].map(str::to_owned).to_vec();
    let rows: Vec<_> = std::iter::once(head).chain(tokens.list().iter().map(row)).collect();
    Ok(terminal::print(&aligned(&rows)))
}
