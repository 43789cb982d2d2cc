//! A name may end in brackets.

/// `power.draw [W]` to `power.draw` and `W`.
pub(super) fn bracketed(name: &str) -> Option<(&str, &str)> {
    let parts = [('[', ']'), ('(', ')')]
        .iter()
        .find_map(|&(open, close)| name.trim().strip_suffix(close)?.rsplit_once(open));
    parts.map(|(head, unit)| (head.trim(), unit.trim()))
}
