//! Names of topics and groups.

/// Longest name of a topic, a group or a producer, in bytes.
pub const NAME_LEN_MAX: usize = 128;

/// A name that ends so belongs to the dead letters of the topic before the suffix.
pub const DEAD_SUFFIX: &str = ".dead";

/// Why a name is refused. The name itself is not repeated: it may be megabytes of anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// There is no name.
    #[error("name is empty")]
    Empty,
    /// Longer than [`NAME_LEN_MAX`].
    #[error("name has {len} bytes, at most 128 are allowed")]
    TooLong {
        /// Length of the name in bytes.
        len: usize,
    },
    /// Something else than ASCII letters, digits, `.`, `_` and `-`.
    #[error("character {character:?} at byte {at} of name is not a letter, digit, '.', '_' or '-'")]
    BadCharacter {
        /// The character.
        character: char,
        /// Its position in the name, in bytes.
        at: usize,
    },
    /// `.` or `..`, which clients take out of a path before they send it.
    #[error("name is \".\" or \"..\", which no URL can carry")]
    Path,
    /// Ends in [`DEAD_SUFFIX`].
    #[error("names that end in \".dead\" belong to dead letters")]
    Reserved,
}

/// Checks the name of a topic.
///
/// # Errors
///
/// What is wrong with it.
pub fn check_topic(name: &str) -> Result<(), NameError> {
    check_group(name)?;
    if name.ends_with(DEAD_SUFFIX) { Err(NameError::Reserved) } else { Ok(()) }
}

/// Checks the name of a group.
///
/// # Errors
///
/// What is wrong with it.
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
    use super::{NameError, check_topic};

    #[test]
    fn names_are_letters_digits_dot_underscore_dash() {
        let table = [
            ("gpu-telemetry", Ok(())),
            ("A.b_c-9", Ok(())),
            (&"x".repeat(128), Ok(())),
            ("", Err(NameError::Empty)),
            (&"x".repeat(129), Err(NameError::TooLong { len: 129 })),
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
    }
}
