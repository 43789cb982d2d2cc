//! The meaning of keys.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// The user's command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// End.
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
    /// Pause.
    Pause,
    /// Help or not.
    Help,
}

/// Keys for the footer and the help: key, action.
pub(super) const KEYS: &[(&str, &str)] = &[
    ("q", "quit"),
    ("↑↓", "select"),
    ("s", "sort"),
    ("r", "reverse"),
    ("/", "filter"),
    ("p", "processes"),
    ("space", "pause"),
    ("?", "help"),
];

/// The action of a key, while a filter is typed or not.
pub(super) fn action(key: KeyEvent, is_typing: bool) -> Option<Action> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    if control && key.code == KeyCode::Char('c') {
        return Some(Action::Quit);
    }
    if is_typing {
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
        assert_eq!(action(press(KeyCode::Char('q')), false), Some(Action::Quit));
        assert_eq!(action(press(KeyCode::Char('q')), true), Some(Action::Type('q')));
        assert_eq!(action(press(KeyCode::Esc), true), Some(Action::Escape));
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(action(interrupt, true), Some(Action::Quit));
        assert_eq!(action(press(KeyCode::F(7)), false), None);
    }
}
