//! Pictures and sounds that the user names: their files, read before a model is loaded.

use std::path::Path;

use inference_core::{EncodedPicture, EncodedSound, Feature, Message, Prompt, PromptPart, Value};
use pictures::{Header, Limits};

use crate::failure::{Failure, Result};
use crate::files;

/// A picture or a sound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shown {
    Picture(EncodedPicture),
    Sound(EncodedSound),
}

impl From<EncodedPicture> for Shown {
    fn from(picture: EncodedPicture) -> Shown {
        Shown::Picture(picture)
    }
}

impl From<EncodedSound> for Shown {
    fn from(sound: EncodedSound) -> Shown {
        Shown::Sound(sound)
    }
}

impl Shown {
    /// Its name.
    pub fn name(&self) -> &str {
        match self {
            Shown::Picture(picture) => &picture.name,
            Shown::Sound(sound) => &sound.name,
        }
    }

    /// The feature of models that take it.
    pub fn feature(&self) -> Feature {
        match self {
            Shown::Picture(_) => Feature::Images,
            Shown::Sound(_) => Feature::Audio,
        }
    }

    fn into_content(self) -> Value {
        match self {
            Shown::Picture(picture) => picture.into_part(),
            Shown::Sound(sound) => sound.into_part(),
        }
    }

    fn into_part(self) -> PromptPart {
        match self {
            Shown::Picture(picture) => PromptPart::Picture(picture),
            Shown::Sound(sound) => PromptPart::Sound(sound),
        }
    }
}

/// The picture in the regular file at `path`. It is decoded later, by what shows it to a model.
///
/// # Errors
/// No regular file, one that cannot be read, or one whose header is of no picture; with its name.
pub fn read(path: &Path) -> Result<EncodedPicture> {
    known(files::read_bytes(path)?, path)
}

/// The picture in the file at `path`, which a flag names: it may be a pipe.
///
/// # Errors
/// As [`read`].
pub fn read_for_flag(path: &Path) -> Result<EncodedPicture> {
    known(files::read_bytes_for_flag(path)?, path)
}

fn known(bytes: Vec<u8>, path: &Path) -> Result<EncodedPicture> {
    let name = path.display().to_string();
    match Header::read(&bytes, &Limits::default()) {
        Ok(_) => Ok(EncodedPicture::new(bytes, name)),
        Err(error) => Err(Failure::Other(format!("{name}: {error}"))),
    }
}

/// The sound in the regular file at `path`. It is decoded later, by what plays it to a model.
///
/// # Errors
/// No regular file, one that cannot be read, or an empty one; with its name.
pub fn read_sound(path: &Path) -> Result<EncodedSound> {
    sound(files::read_bytes(path)?, path)
}

/// The sound in the file at `path`, which a flag names: it may be a pipe.
///
/// # Errors
/// As [`read_sound`].
pub fn read_sound_for_flag(path: &Path) -> Result<EncodedSound> {
    sound(files::read_bytes_for_flag(path)?, path)
}

fn sound(bytes: Vec<u8>, path: &Path) -> Result<EncodedSound> {
    let name = path.display().to_string();
    match bytes.is_empty() {
        true => Err(Failure::Other(format!("{name}: the sound is empty"))),
        false => Ok(EncodedSound::new(bytes, name)),
    }
}

/// A user's message that shows and plays all of `shown`, then says `text`.
pub fn message(shown: &[Shown], text: impl Into<String>) -> Message {
    match shown {
        [] => Message::user(text),
        shown => Message::user_with_parts(shown.iter().cloned().map(Shown::into_content), text),
    }
}

/// A prompt of all of `shown`, and `text` as it is.
pub fn prompt(shown: &[Shown], text: String) -> Prompt {
    if shown.is_empty() {
        return Prompt::Text(text);
    }
    let shown = shown.iter().cloned().map(Shown::into_part);
    Prompt::Parts(shown.chain([PromptPart::Text(text)]).collect())
}
