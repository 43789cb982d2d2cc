//! Standard error with one line of progress that is redrawn in place: log lines meanwhile are on lines of
//! their own.

use std::io::{self, Stderr, Write, stderr};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

static SCREEN: LazyLock<Mutex<Screen<Stderr>>> =
    LazyLock::new(|| Mutex::new(Screen { out: stderr(), drawn: false }));

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
