//! A sound as it came.

use std::fmt;
use std::sync::Arc;

use crate::Error;

/// The text around a sound's name in an error.
const BEFORE: &str = "sound `";
const BEHIND: &str = "`: ";

/// A sound as it came: the bytes of a WAV, FLAC, MP3, MP4, Ogg or WebM file, not yet read.
///
/// The bytes are shared, so a clone costs nothing. The backend decodes them, and checks them, when
/// a prompt with the sound is rendered or started. A bad one is an [`Error::Prompt`] that says the
/// sound's name.
#[derive(Clone, PartialEq, Eq)]
pub struct EncodedSound {
    /// The encoded bytes.
    pub bytes: Arc<[u8]>,
    /// The name in errors: a path, or the position in a request, such as `messages[0].content[1]`.
    pub name: Arc<str>,
}

impl EncodedSound {
    /// A sound of these encoded bytes, which errors call `name`.
    pub fn new(bytes: impl Into<Arc<[u8]>>, name: impl Into<Arc<str>>) -> Self {
        EncodedSound { bytes: bytes.into(), name: name.into() }
    }

    /// An [`Error::Prompt`] that names this sound.
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
impl fmt::Debug for EncodedSound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EncodedSound({:?}, {} bytes)", self.name, self.bytes.len())
    }
}

#[cfg(test)]
mod tests {
    use super::EncodedSound;

    #[test]
    fn a_sound_is_not_logged_byte_by_byte() {
        let sound = EncodedSound::new([1, 2, 3], "talk.wav");
        assert_eq!(format!("{sound:?}"), "EncodedSound(\"talk.wav\", 3 bytes)");
        assert_eq!(sound.error("is odd").to_string(), "prompt: sound `talk.wav`: is odd");
        assert_eq!(EncodedSound::name_in("sound `talk.wav`: is odd"), Some("talk.wav"));
        assert_eq!(EncodedSound::name_in("picture `talk.wav`: is odd"), None);
    }
}
