//! Numbers and messages are written for people.

use std::io::Write as _;

use gpuvitals_core::number::float;

use crate::terminal;

/// A number with a comma before every third digit: `12,345`.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number of bytes in the unit that suits it: `1.2 MB`.
pub(crate) fn bytes(number: u64) -> String {
    let units = [(1e9, "GB"), (1e6, "MB"), (1e3, "kB")];
    let unit = units.into_iter().find(|(size, _)| float(number) >= *size);
    unit.map_or_else(|| format!("{number} B"), |(size, name)| format!("{:.1} {name}", float(number) / size))
}

/// Prints a line on standard error.
pub(super) fn tell(text: &str) {
    // If not even this can be written, nobody is left to report to.
    let _unwritten = writeln!(terminal::Lines, "gpuvitals: {text}");
}
