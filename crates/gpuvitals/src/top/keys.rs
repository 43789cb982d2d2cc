//! The meaning of keys.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// The user's command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Quit,
    /// Select the GPU above.
    Up,
    /// Select the GPU below.
    Down,
    /// Select the first GPU.
    First,
    /// Select the last GPU.
    Last,
    /// Sort by the next column.
    Sort,
    /// Turn the order round.
    Reverse,
    /// Begin to type a filter.
    Filter,
    /// A character of the filter.
    Type(char),
    /// Take the last character of the filter back.
    Erase,
    /// The filter is typed.
    Done,
    /// Clear the filter, or close what is open.
    Escape,
    /// Processes or not.
    Processes,
    /// Encoders, PCIe and links in place of the vitals, or back.
    Traffic,
    /// New rows are shown no more, or again.
    Pause,
    /// Help or not.
    Help,
}

/// A key for the footer and the help.
pub(super) struct Hint {
    pub(super) key: &'static str,
    pub(super) what: &'static str,
    /// In a narrow footer the lowest ranks are seen.
    pub(super) rank: u8,
}

const fn hint(key: &'static str, what: &'static str, rank: u8) -> Hint {
    Hint { key, what, rank }
}

/// The keys in their order.
pub(super) const KEYS: &[Hint] = &[
    hint("q", "quit", 0),
    hint("↑↓", "select", 6),
    hint("s", "sort", 2),
    hint("r", "reverse", 8),
    hint("/", "filter", 4),
    hint("p", "processes", 5),
    hint("e", "engines, links", 3),
    hint("space", "pause", 7),
    hint("?", "help", 1),
];

/// What letters mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyMode {
    /// The user's commands.
    Commands,
    /// Characters of a filter that is typed.
    Filter,
}

/// The action of a key.
pub(super) fn action(key: KeyEvent, mode: KeyMode) -> Option<Action> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    if control && key.code == KeyCode::Char('c') {
        return Some(Action::Quit);
    }
    if mode == KeyMode::Filter {
        return match key.code {
            KeyCode::Enter => Some(Action::Done),
            KeyCode::Esc => Some(Action::Escape),
            KeyCode::Backspace => Some(Action::Erase),
            KeyCode::Char(c) if !control => Some(Action::Type(c)),
            _ => None,
        };
    }
    Some(match key.code {
        KeyCode::Char('q') => Action::Quit,
        KeyCode::Up | KeyCode::Char('k') => Action::Up,
        KeyCode::Down | KeyCode::Char('j') => Action::Down,
        KeyCode::Home | KeyCode::Char('g') => Action::First,
        KeyCode::End | KeyCode::Char('G') => Action::Last,
        KeyCode::Char('s') | KeyCode::Right => Action::Sort,
        KeyCode::Char('r') => Action::Reverse,
        KeyCode::Char('/') => Action::Filter,
        KeyCode::Char('p') => Action::Processes,
        KeyCode::Char('e') => Action::Traffic,
        KeyCode::Char(' ') => Action::Pause,
        KeyCode::Char('?' | 'h') | KeyCode::F(1) => Action::Help,
        KeyCode::Esc => Action::Escape,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_orders_until_a_filter_is_typed() {
        let press = |code| KeyEvent::new(code, KeyModifiers::NONE);
        assert_eq!(action(press(KeyCode::Char('q')), KeyMode::Commands), Some(Action::Quit));
        assert_eq!(action(press(KeyCode::Char('q')), KeyMode::Filter), Some(Action::Type('q')));
        assert_eq!(action(press(KeyCode::Esc), KeyMode::Filter), Some(Action::Escape));
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(action(interrupt, KeyMode::Filter), Some(Action::Quit));
        assert_eq!(action(press(KeyCode::F(7)), KeyMode::Commands), None);
    }
}
