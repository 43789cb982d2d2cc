//! The terminal of this process: standard error with one line of progress that is redrawn in place, so that log lines
//! meanwhile are on lines of their own; whether the terminal is still there; and standard output, for answers.

use std::io::{self, IsTerminal, Stderr, Write, stderr, stdin, stdout};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::failure::Failure;

static SCREEN: LazyLock<Mutex<Screen<Stderr>>> =
    LazyLock::new(|| Mutex::new(Screen { out: stderr(), drawn: false }));

/// How a command prints its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PrintForm {
    /// Aligned text.
    Text,
    /// For other programs.
    Json,
}

impl PrintForm {
    /// What the flag `--json` asks for.
    pub(crate) fn of(json: bool) -> Self {
        if json { Self::Json } else { Self::Text }
    }
}

/// The terminal that this process was started on.
#[derive(Debug)]
pub(crate) struct OwnTerminal(OwnedFd);

impl OwnTerminal {
    /// The terminal behind one of the standard streams, if there is one. To be asked at the start: a terminal that is gone
    /// is no terminal any more.
    pub(crate) fn find() -> Option<Self> {
        let own = |stream: BorrowedFd<'_>| {
            stream.is_terminal().then(|| stream.try_clone_to_owned().ok()).flatten().map(Self)
        };
        own(stdin().as_fd()).or_else(|| own(stdout().as_fd())).or_else(|| own(stderr().as_fd()))
    }

    /// Whether its other end has closed: the window, `tmux`, or the connection of `ssh`.
    pub(crate) fn is_gone(&self) -> bool {
        let mut asked = [PollFd::new(&self.0, PollFlags::empty())];
        let answered = poll(&mut asked, Some(&Timespec::default()));
        let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
        answered.is_ok() && asked.iter().any(|stream| stream.revents().intersects(gone))
    }
}

/// Redraws the line of progress.
pub(crate) fn draw(line: &str) {
    // If this cannot be written, nobody is left to report to.
    let _unwritten = screen().draw(line);
}

/// Keeps the line of progress as it is, if there is one.
pub(crate) fn leave() {
    let _unwritten = screen().leave();
}

/// Writes lines above the line of progress.
#[derive(Debug)]
pub(crate) struct Lines;

impl Write for Lines {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        screen().write_above(text)
    }

    fn flush(&mut self) -> io::Result<()> {
        screen().out.flush()
    }
}

fn screen() -> MutexGuard<'static, Screen<Stderr>> {
    SCREEN.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Screen<W> {
    out: W,
    /// Whether the cursor is at the end of a line of progress.
    drawn: bool,
}

impl<W: Write> Screen<W> {
    fn draw(&mut self, line: &str) -> io::Result<()> {
        self.drawn = true;
        write!(self.out, "\r\x1b[K{line}")?;
        self.out.flush()
    }

    fn leave(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.drawn) { writeln!(self.out) } else { Ok(()) }
    }

    fn write_above(&mut self, text: &[u8]) -> io::Result<usize> {
        if std::mem::take(&mut self.drawn) {
            self.out.write_all(b"\r\x1b[K")?;
        }
        self.out.write_all(text).map(|()| text.len())
    }
}

/// Prints an answer; a reader that went away is no failure.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    match stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::io("cannot write to standard output", error))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_line_and_the_progress_never_share_a_line() {
        let mut screen = Screen { out: Vec::new(), drawn: false };
        screen.draw("10 rows").unwrap();
        screen.write_above(b"WARN the queue is away\n").unwrap();
        screen.draw("11 rows").unwrap();
        screen.leave().unwrap();
        screen.leave().unwrap();
        let shown = String::from_utf8(screen.out).unwrap();
        assert_eq!(shown, "\r\x1b[K10 rows\r\x1b[KWARN the queue is away\n\r\x1b[K11 rows\n");
    }
}
