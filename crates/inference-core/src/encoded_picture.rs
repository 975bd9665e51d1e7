//! A picture as it came.

use std::fmt;
use std::sync::Arc;

use crate::Error;

/// The text around a picture's name in an error.
const BEFORE: &str = "picture `";
const BEHIND: &str = "`: ";

/// A picture as it came: the bytes of a PNG, JPEG, WebP or GIF file, not yet read.
///
/// The bytes are shared, so a clone costs nothing. What decodes them checks them: the backend, when
/// a prompt with the picture is rendered or started. A bad one is an [`Error::Prompt`] that says
/// the picture's name.
#[derive(Clone, PartialEq, Eq)]
pub struct EncodedPicture {
    /// The encoded bytes.
    pub bytes: Arc<[u8]>,
    /// The name in errors: a path, or the position in a request, such as `messages[0].content[1]`.
    pub name: Arc<str>,
}

impl EncodedPicture {
    /// A picture of these encoded bytes, which errors call `name`.
    pub fn new(bytes: impl Into<Arc<[u8]>>, name: impl Into<Arc<str>>) -> Self {
        EncodedPicture { bytes: bytes.into(), name: name.into() }
    }

    /// An [`Error::Prompt`] that names this picture.
    pub fn error(&self, reason: impl fmt::Display) -> Error {
        Error::Prompt(format!("{BEFORE}{}{BEHIND}{reason}", self.name))
    }

    /// The name in the reason of an [`Error::Prompt`], where it is one of [`error`](Self::error)'s.
    pub fn name_in(reason: &str) -> Option<&str> {
        let (name, _) = reason.strip_prefix(BEFORE)?.split_once(BEHIND)?;
        Some(name)
    }
}

/// Tells the size of the bytes, not the bytes.
impl fmt::Debug for EncodedPicture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EncodedPicture({:?}, {} bytes)", self.name, self.bytes.len())
    }
}

#[cfg(test)]
mod tests {
    use super::EncodedPicture;

    #[test]
    fn a_picture_is_not_logged_byte_by_byte() {
        let picture = EncodedPicture::new([1, 2, 3], "fox.png");
        assert_eq!(format!("{picture:?}"), "EncodedPicture(\"fox.png\", 3 bytes)");
        assert_eq!(picture.error("is odd").to_string(), "prompt: picture `fox.png`: is odd");
        assert_eq!(EncodedPicture::name_in("picture `fox.png`: is odd"), Some("fox.png"));
        assert_eq!(EncodedPicture::name_in("a picture is odd"), None);
    }
}
