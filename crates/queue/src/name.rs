//! Names of topics and groups.

/// Longest name of a topic or a group, in bytes. The name of a topic's dead letters, and the producer id in
/// their stamps, are longer.
pub const NAME_LEN_MAX: usize = 100;

/// Longest id of a producer, in bytes.
pub const PRODUCER_LEN_MAX: usize = 128;

/// Suffix of topics for dead letters: they belong to the topic before the suffix.
pub const DEAD_SUFFIX: &str = ".dead";

/// A refused name. The name itself is not repeated: it may be megabytes of anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// The name is empty.
    #[error("name is empty")]
    Empty,
    /// Longer than [`NAME_LEN_MAX`].
    #[error("name has {len} bytes, at most 100 are allowed")]
    TooLong {
        /// Length of the name in bytes.
        len: usize,
    },
    /// A character other than ASCII letters, digits, `.`, `_` and `-`.
    #[error("character {character:?} at byte {at} of name is not a letter, digit, '.', '_' or '-'")]
    BadCharacter {
        /// That character, as it stands in the name.
        character: char,
        /// Its position in the name, in bytes.
        at: usize,
    },
    /// `.` or `..`, which clients remove from a path before they send it.
    #[error("name is \".\" or \"..\", which no URL can carry")]
    Path,
    /// Ends in [`DEAD_SUFFIX`].
    #[error(
        "names that end in \".dead\" belong to dead letters, which carry their facts and are read without a group"
    )]
    Reserved,
}

/// The topic that holds the dead letters of a topic.
pub fn dead_topic(topic: &str) -> String {
    format!("{topic}{DEAD_SUFFIX}")
}

/// The topic whose dead letters a topic of this name holds.
pub(crate) fn origin_of(topic: &str) -> Option<&str> {
    topic.strip_suffix(DEAD_SUFFIX)
}

/// Checks the name of a topic to publish to: also one of dead letters.
///
/// # Errors
///
/// The problem of the name.
pub(crate) fn check_destination(name: &str) -> Result<(), NameError> {
    check_topic(origin_of(name).unwrap_or(name))
}

/// Checks the name of a topic.
///
/// # Errors
///
/// The problem of the name.
pub fn check_topic(name: &str) -> Result<(), NameError> {
    check_group(name)?;
    if name.ends_with(DEAD_SUFFIX) { Err(NameError::Reserved) } else { Ok(()) }
}

/// Checks the name of a group.
///
/// # Errors
///
/// The problem of the name.
pub fn check_group(name: &str) -> Result<(), NameError> {
    if name.is_empty() {
        return Err(NameError::Empty);
    }
    if name.len() > NAME_LEN_MAX {
        return Err(NameError::TooLong { len: name.len() });
    }
    if matches!(name, "." | "..") {
        return Err(NameError::Path);
    }
    let bad = name.char_indices().find(|(_, c)| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')));
    bad.map_or(Ok(()), |(at, character)| Err(NameError::BadCharacter { character, at }))
}

#[cfg(test)]
mod tests {
    use super::{NameError, check_destination, check_topic};

    #[test]
    fn names_are_letters_digits_dot_underscore_dash() {
        let table = [
            ("gpu-telemetry", Ok(())),
            ("A.b_c-9", Ok(())),
            (&"x".repeat(100), Ok(())),
            ("", Err(NameError::Empty)),
            (&"x".repeat(101), Err(NameError::TooLong { len: 101 })),
            ("../../x", Err(NameError::BadCharacter { character: '/', at: 2 })),
            ("a b", Err(NameError::BadCharacter { character: ' ', at: 1 })),
            ("grün", Err(NameError::BadCharacter { character: 'ü', at: 2 })),
            ("a.dead", Err(NameError::Reserved)),
            (".", Err(NameError::Path)),
            ("..", Err(NameError::Path)),
            ("...", Ok(())),
        ];
        for (name, expected) in table {
            assert_eq!(check_topic(name), expected, "{name}");
        }
        assert_eq!(check_destination(&format!("{}.dead", "x".repeat(100))), Ok(()));
        assert_eq!(check_destination("a.dead.dead"), Err(NameError::Reserved));
    }
}
