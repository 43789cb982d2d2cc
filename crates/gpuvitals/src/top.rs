//! `gpuvitals top`: all GPUs of this machine in the terminal, live.

mod grid;
mod keys;
mod list;
mod listing;
mod model;
#[cfg(test)]
mod tests;
mod view;

use std::io::{self, IsTerminal};
use std::mem::ManuallyDrop;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use clap::Args;
use crossterm::cursor::Show;
use crossterm::event::{self, Event};
use crossterm::execute;
use crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use gpuvitals_core::clock::{self, Moment};
use gpuvitals_settings::Override;
use gpuvitals_sources::attribution::Owners;
use gpuvitals_sources::sampler::{Sampler, SamplerConfig};
use gpuvitals_sources::settings::Sampling;
use ratatui::Terminal;
use ratatui::backend::{CrosstermBackend, TestBackend};
use tokio_util::sync::CancellationToken;

use crate::failure::{Exit, Failure};
use crate::{table, terminal};
use grid::Glyphs;
use keys::Action;
use listing::Listing;
use model::Model;

/// How long a look for keys lasts; between two of them rows are taken.
const LOOK: Duration = Duration::from_millis(40);
/// Keys that were typed and not acted upon yet.
const KEYS_MAX: usize = 64;
/// Width of a frame that is printed to a file or pipe.
const PLAIN_WIDTH: u16 = 100;
/// Lines of a frame that is printed, beside a line a GPU.
const PLAIN_REST: u16 = 24;

/// `gpuvitals top`
#[derive(Debug, Args)]
pub(crate) struct Top {
    /// Time between two samples
    #[arg(long, short = 'i', default_value = "1s", value_name = "DURATION")]
    interval: String,
    /// Print one frame as text and end
    #[arg(long)]
    once: bool,
    /// Draw in ASCII, for terminals and fonts without block characters
    #[arg(long)]
    ascii: bool,
}

impl Top {
    /// The settings these flags change.
    ///
    /// # Errors
    /// When the interval is none.
    pub(crate) fn overrides(&self) -> Result<Vec<Override>, Failure> {
        crate::sampling::rates_of("--interval", &self.interval)
    }
}

/// Shows the GPUs until told to quit.
///
/// # Errors
/// If there is nothing to show, or no terminal to show it on.
pub(crate) fn run(flags: &Top, sampling: &Sampling) -> Result<(), Failure> {
    let found = crate::sampling::discover(sampling)?;
    if !found.probes.iter().any(|probe| probe.table() == gpuvitals_core::Table::GpuEvents) {
        return Err(crate::sampling::nothing_to_sample(&found));
    }
    if !flags.once && !io::stdout().is_terminal() {
        return Err(Failure::new(
            Exit::Usage,
            "top needs a terminal; --once prints one frame, and gpuvitals sample prints rows",
        ));
    }
    let config = SamplerConfig { hand_on: Duration::ZERO, ..sampling.sampler() };
    let sampler =
        Sampler::start(Vec::new(), config.clone(), Owners::new()).map_err(crate::sampling::refused)?;
    for probe in found.probes {
        sampler.add(probe).map_err(crate::sampling::refused)?;
    }
    let stop = CancellationToken::new();
    let processes = Listing::start(found.processes, &sampling.machine()?.procfs, stop.clone())?;
    let glyphs = if flags.ascii { Glyphs::Ascii } else { Glyphs::Blocks };
    let mut model = Model::new(sampling.node(), config, glyphs);
    let shown = if flags.once {
        one_frame(&sampler, &processes, &mut model)
    } else {
        show(&sampler, &processes, &mut model).map(|()| String::new())
    };
    stop.cancel();
    // A worker that waits for a sick device is left: the process ends anyway.
    let _left = sampler.stop(Duration::from_millis(200));
    terminal::print(&shown.map_err(|error| Failure::io("cannot draw on the terminal", error))?)
}

/// One frame as text, when every device has answered.
fn one_frame(sampler: &Sampler, processes: &Listing, model: &mut Model) -> io::Result<String> {
    let end_ns = Moment::now().mono_ns + 3_000_000_000;
    while Moment::now().mono_ns < end_ns && !model.is_complete() {
        if let Some(batch) = sampler.next(LOOK) {
            model.observe(&batch);
        }
        model.states(sampler.states());
    }
    model.processes(processes.latest());
    model.tick(clock::now_ns());
    let width = table::width().and_then(|width| width.try_into().ok()).unwrap_or(PLAIN_WIDTH);
    let height = u16::try_from(model.count()).unwrap_or(u16::MAX).saturating_add(PLAIN_REST);
    let mut terminal = Terminal::new(TestBackend::new(width, height)).map_err(io::Error::other)?;
    let frame = terminal.draw(|frame| view::draw(frame, model)).map_err(io::Error::other)?;
    let text = lines_of(frame.buffer, width);
    // What a screen leaves empty is no part of an answer.
    let mut lines: Vec<&str> = text.trim_end().lines().collect();
    lines.dedup_by(|line, before| line.is_empty() && before.is_empty());
    Ok(lines.join("\n") + "\n")
}

/// A frame as lines of text.
fn lines_of(buffer: &ratatui::buffer::Buffer, width: u16) -> String {
    let mut text = String::new();
    for cells in buffer.content().chunks(usize::from(width.max(1))) {
        let line: String = cells.iter().map(ratatui::buffer::Cell::symbol).collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Shows the GPUs until told to quit, or until the terminal is gone.
fn show(sampler: &Sampler, processes: &Listing, model: &mut Model) -> io::Result<()> {
    let own = terminal::OwnTerminal::find();
    let is_gone = || own.as_ref().is_some_and(terminal::OwnTerminal::is_gone);
    let told_to_end = crate::service::watched()?;
    let screen = Screen::enter()?;
    let events = events()?;
    // Its end complains to standard error, and panics where that is the terminal that is gone: the screen gives back the cursor.
    let mut terminal = ManuallyDrop::new(Terminal::new(CrosstermBackend::new(io::stdout()))?);
    let mut changed = true;
    let shown = loop {
        if told_to_end.load(Ordering::Acquire) || is_gone() {
            break Ok(());
        }
        while let Some(batch) = sampler.next(Duration::ZERO) {
            model.observe(&batch);
            changed = true;
        }
        model.states(sampler.states());
        model.processes(processes.latest());
        changed |= model.tick(clock::now_ns());
        let drawn = if changed && !model.is_paused() {
            changed = false;
            terminal.draw(|frame| view::draw(frame, model)).map(drop)
        } else {
            Ok(())
        };
        match drawn.and_then(|()| act(&events, model)) {
            Ok(KeyAnswer::Draw) => drop(terminal.draw(|frame| view::draw(frame, model))),
            Ok(KeyAnswer::Nothing) => {}
            Ok(KeyAnswer::Quit) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    drop(screen);
    // A terminal that goes away while it is drawn on is an end like any other.
    if is_gone() { Ok(()) } else { shown }
}

/// What follows from an event.
enum KeyAnswer {
    Nothing,
    Draw,
    Quit,
}

/// Waits for an event, and acts on it.
fn act(events: &Receiver<io::Result<Event>>, model: &mut Model) -> io::Result<KeyAnswer> {
    let event = match events.recv_timeout(LOOK) {
        Ok(event) => event?,
        Err(RecvTimeoutError::Timeout) => return Ok(KeyAnswer::Nothing),
        Err(RecvTimeoutError::Disconnected) => return Err(io::ErrorKind::UnexpectedEof.into()),
    };
    Ok(match event {
        Event::Key(key) => match keys::action(key, model.key_mode()) {
            Some(Action::Quit) => KeyAnswer::Quit,
            Some(action) => {
                model.apply(action);
                KeyAnswer::Draw
            }
            None => KeyAnswer::Nothing,
        },
        Event::Resize(..) => KeyAnswer::Draw,
        _ => KeyAnswer::Nothing,
    })
}

/// Reads keys on a thread of its own, which ends with the process: reading never comes back from a terminal that is gone.
fn events() -> io::Result<Receiver<io::Result<Event>>> {
    let (sender, receiver) = sync_channel(KEYS_MAX);
    let read = move || {
        loop {
            let event = event::read();
            let is_last = event.is_err();
            if sender.send(event).is_err() || is_last {
                return;
            }
        }
    };
    std::thread::Builder::new().name("keys".to_owned()).spawn(read)?;
    Ok(receiver)
}

/// The terminal in the state that drawing needs; given back when dropped, also by a panic.
struct Screen;

impl Screen {
    fn enter() -> io::Result<Self> {
        enable_raw_mode()?;
        let screen = Self;
        execute!(io::stdout(), EnterAlternateScreen)?;
        Ok(screen)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Nothing better can be done about a terminal that takes no orders.
        let _left = execute!(io::stdout(), LeaveAlternateScreen, Show);
        let _cooked = disable_raw_mode();
    }
}
