//! Text from the bytes of a file: UTF-8, with a byte order mark or without one.

use std::fmt;

/// Why bytes are not read as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotUtf8 {
    /// They are in another encoding of Unicode, such as `UTF-16`.
    Encoding(&'static str),
    /// They are in no encoding that is known by its look.
    Invalid {
        /// The first byte that is not UTF-8, from 0 on.
        at: usize,
    },
}

impl fmt::Display for NotUtf8 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotUtf8::Encoding(name) => write!(f, "is {name}, not UTF-8; convert it to UTF-8 first"),
            NotUtf8::Invalid { at } => {
                write!(f, "not valid UTF-8 at byte {at}; convert it to UTF-8 first")
            }
        }
    }
}

impl std::error::Error for NotUtf8 {}

/// The text in the bytes of a file, without the byte order mark that some editors put in front.
///
/// ```
/// use inference_core::{NotUtf8, utf8_text};
///
/// assert_eq!(utf8_text(b"\xef\xbb\xbfpositive"), Ok("positive"));
/// assert_eq!(utf8_text(b"\xff\xfep\0"), Err(NotUtf8::Encoding("UTF-16")));
/// ```
///
/// # Errors
/// Another encoding by its name, or the first byte that is not UTF-8.
pub fn utf8_text(bytes: &[u8]) -> Result<&str, NotUtf8> {
    if let Some(name) = other_encoding(bytes) {
        return Err(NotUtf8::Encoding(name));
    }
    let text =
        std::str::from_utf8(bytes).map_err(|error| NotUtf8::Invalid { at: error.valid_up_to() })?;
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

/// The encoding that the first bytes are in, where it is another one: by its byte order mark, or by
/// the zeros that it has in place of every other byte of a plain character.
fn other_encoding(bytes: &[u8]) -> Option<&'static str> {
    let is_zero = |at: usize| bytes.get(at).map(|byte| *byte == 0);
    let zeros = [0, 1, 2, 3].map(is_zero);
    match (bytes, zeros) {
        ([0xff, 0xfe, 0, 0, ..] | [0, 0, 0xfe, 0xff, ..], _) => Some("UTF-32"),
        ([0xff, 0xfe, ..] | [0xfe, 0xff, ..], _) => Some("UTF-16"),
        (_, [Some(false), Some(true), Some(true), Some(true)]) => Some("UTF-32"),
        (_, [Some(true), Some(true), Some(true), Some(false)]) => Some("UTF-32"),
        (_, [Some(false), Some(true), Some(false) | None, Some(true) | None]) => Some("UTF-16"),
        (_, [Some(true), Some(false), Some(true) | None, Some(false) | None]) => Some("UTF-16"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{NotUtf8, utf8_text};

    #[test]
    fn one_byte_order_mark_is_taken_off_and_only_in_front() {
        assert_eq!(utf8_text("\u{feff}a\u{feff}b".as_bytes()), Ok("a\u{feff}b"));
        assert_eq!(utf8_text("\u{feff}\u{feff}a".as_bytes()), Ok("\u{feff}a"));
        assert_eq!(utf8_text("\u{feff}".as_bytes()), Ok(""));
        assert_eq!(utf8_text(b""), Ok(""));
        assert_eq!(utf8_text("é\0".as_bytes()), Ok("é\0"));
    }

    #[test]
    fn other_encodings_are_named_with_their_mark_and_without_one() {
        let utf16 = |text: &str| text.encode_utf16().collect::<Vec<u16>>();
        let little = |text: &str| -> Vec<u8> {
            utf16(text).into_iter().flat_map(u16::to_le_bytes).collect()
        };
        let big = |text: &str| -> Vec<u8> {
            utf16(text).into_iter().flat_map(u16::to_be_bytes).collect()
        };
        for text in ["\u{feff}positive", "\u{feff}日本", "\u{feff}", "yes\n", "{}", "y"] {
            for bytes in [little(text), big(text)] {
                let error = utf8_text(&bytes).unwrap_err();
                assert_eq!(error, NotUtf8::Encoding("UTF-16"), "{text:?} {bytes:?}");
            }
        }
        let wide = |text: &str| -> Vec<u8> {
            text.chars().flat_map(|c| u32::from(c).to_le_bytes()).collect()
        };
        for text in ["\u{feff}yes", "yes", "y"] {
            assert_eq!(utf8_text(&wide(text)), Err(NotUtf8::Encoding("UTF-32")), "{text:?}");
        }
        let told = NotUtf8::Encoding("UTF-16").to_string();
        assert_eq!(told, "is UTF-16, not UTF-8; convert it to UTF-8 first");
    }

    #[test]
    fn the_first_byte_that_is_none_of_utf8_is_told_by_its_place_in_the_file() {
        assert_eq!(utf8_text(b"caf\xe9"), Err(NotUtf8::Invalid { at: 3 }));
        assert_eq!(utf8_text(b"\xef\xbb\xbfcaf\xe9"), Err(NotUtf8::Invalid { at: 6 }));
    }
}
