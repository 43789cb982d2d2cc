//! `gpuvitals flight bundle`: an incident as an archive for a vendor's case, with what the vendor's tools say if somebody asks for them here.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use gpuvitals_core::causes;
use gpuvitals_core::quantity::counted;
use gpuvitals_flight::{BundlePart, BundledFile, FlightFolder};
use gpuvitals_sources::machine::{LocalTool, Tool as _};

use super::words::{failure, safe};
use crate::failure::{Exit, Failure};
use crate::table::aligned;
use crate::terminal::print;

/// How long a tool may take.
const TOOL_PATIENCE: Duration = Duration::from_mins(2);

/// An archive of an incident.
#[derive(Debug, Args)]
pub(super) struct Bundle {
    /// The incident, as `list` names it
    id: String,
    /// The archive, a new file; without it ID.tar in this folder
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Run a program and add what it says: its absolute path, then its arguments between blanks. 120 seconds at most; again for more
    #[arg(long, value_name = "COMMAND")]
    run: Vec<String>,
    /// Add a file, such as the one that a vendor's tool has written; again for more
    #[arg(long, value_name = "FILE")]
    add: Vec<PathBuf>,
}

/// Writes it, and prints what is in it.
///
/// # Errors
/// If there is no such incident, a program has no absolute path, or something cannot be read or written.
pub(super) fn run(bundle: &Bundle, folder: &FlightFolder) -> Result<(), Failure> {
    let id = &bundle.id;
    let mut parts = folder.files(id).map_err(failure)?;
    // All of this before any tool runs: it may change what it likes, and may take minutes.
    let tools: Vec<_> = bundle.run.iter().map(|command| split(command)).collect::<Result<_, _>>()?;
    for path in &bundle.add {
        parts.push(BundlePart::open(path.clone()).map_err(failure)?);
    }
    let target = bundle.output.clone().unwrap_or_else(|| PathBuf::from(format!("{id}.tar")));
    let files = parts.len();
    let unsaid = |(number, words): (usize, &Vec<&str>)| BundlePart::Text {
        name: name_of(number, words),
        bytes: Vec::new(),
    };
    parts.extend((1..).zip(&tools).map(unsaid));
    gpuvitals_flight::check_bundle(&target, id, &parts).map_err(failure)?;
    parts.truncate(files);
    parts.extend((1..).zip(&tools).map(|(number, words)| said(number, words)));
    let listed = gpuvitals_flight::bundle(&target, id, &parts).map_err(failure)?;
    let head = ["BYTES", "FILE"].map(str::to_owned).to_vec();
    let row = |file: &BundledFile| vec![file.bytes.to_string(), safe(&file.path)];
    let table = aligned(&std::iter::once(head).chain(listed.iter().map(row)).collect::<Vec<_>>());
    let count = counted(listed.len() as u64, "file");
    print(&format!(
        "{}: {count}, for you alone to read; look at them before you send it\n\n{table}",
        target.display()
    ))
}

/// A command by its words.
fn split(command: &str) -> Result<Vec<&str>, Failure> {
    let words: Vec<&str> = command.split_whitespace().collect();
    let is_absolute = words.first().is_some_and(|program| Path::new(program).is_absolute());
    let why =
        || format!("--run {command:?}: name the program by its absolute path, such as /usr/bin/nvidia-smi");
    if is_absolute { Ok(words) } else { Err(Failure::new(Exit::Usage, why())) }
}

/// What a program says, or why it says nothing: an archive without it is better than none.
fn said(number: usize, words: &[&str]) -> BundlePart {
    let (program, arguments) = words.split_first().map_or(("", words), |(program, rest)| (*program, rest));
    let begin = format!("$ {}\n", words.join(" "));
    let bytes = match LocalTool(PathBuf::from(program)).run(arguments, TOOL_PATIENCE) {
        Ok(output) => {
            let code = output.code.map_or_else(|| "by a signal".to_owned(), |code| format!("with {code}"));
            let between = format!("\nit ended {code}; standard error:\n");
            [begin.into_bytes(), output.stdout, between.into_bytes(), output.stderr].concat()
        }
        Err(error) => format!("{begin}{}\n", causes(&error)).into_bytes(),
    };
    BundlePart::Text { name: name_of(number, words), bytes }
}

/// The file of what a program says.
fn name_of(number: usize, words: &[&str]) -> String {
    let program = Path::new(words.first().copied().unwrap_or_default());
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    let plain: String =
        name.chars().filter(|c| c.is_ascii_alphanumeric() || "._-".contains(*c)).take(64).collect();
    format!("tool-{number}-{plain}.txt")
}
