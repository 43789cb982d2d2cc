//! The place of a row as a text that clients give back: `next` of one answer is `after` of the next question.
//!
//! The time in nanoseconds, `_`, and the key's bytes in hexadecimal.

use std::fmt::Write as _;

use gpuvitals_core::history::RowPlace;

use crate::asked::Cursor;
use crate::error::ApiError;
use crate::parameter::given;

/// The text of a place.
pub(crate) fn write(place: &RowPlace) -> String {
    let mut text = format!("{}_", place.timestamp_ns);
    for byte in place.key.bytes() {
        // A string takes everything.
        let _written = write!(text, "{byte:02x}");
    }
    text
}

/// The place that a text says.
///
/// # Errors
/// If no answer gave it.
pub(crate) fn read(asked: Option<&Cursor>) -> Result<Option<RowPlace>, ApiError> {
    let Some(text) = given(asked.map(|asked| &asked.0)) else { return Ok(None) };
    let place = place(text);
    let allowed = "the cursor that an answer has as next";
    place.map(Some).ok_or_else(|| ApiError::parameter("after", text, allowed))
}

fn place(text: &str) -> Option<RowPlace> {
    let (time, key) = text.split_once('_')?;
    let pairs = key.as_bytes().chunks(2);
    let byte = |pair: &[u8]| {
        let pair = std::str::from_utf8(pair).ok().filter(|pair| pair.len() == 2 && !pair.starts_with('+'))?;
        u8::from_str_radix(pair, 16).ok()
    };
    let key = String::from_utf8(pairs.map(byte).collect::<Option<_>>()?).ok()?;
    Some(RowPlace { timestamp_ns: time.parse().ok()?, key: key.into() })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_was_written_and_other_texts_are_none() {
        for key in ["GPU-0", "GPU-0:p1\0nvlink\0ä", ""] {
            let place = RowPlace { timestamp_ns: -5, key: Arc::from(key) };
            assert_eq!(read(Some(&Cursor(write(&place)))).unwrap(), Some(place));
        }
        for wrong in ["7", "x_00", "7_0", "7_zz", "7_+1", "7_ff", "_"] {
            assert!(read(Some(&Cursor(wrong.to_owned()))).is_err(), "{wrong}");
        }
        assert_eq!(read(None).unwrap(), None);
    }
}
