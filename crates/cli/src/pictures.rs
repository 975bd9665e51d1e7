//! Pictures that the user names: their files, read and held to limits before a model is loaded.

use std::path::Path;

use inference_core::{EncodedPicture, Message, Prompt, PromptPart};
use pictures::{Header, Limits};

use crate::failure::{Failure, Result};
use crate::files;

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

/// A user's message that shows `pictures`, then says `text`.
pub fn message(pictures: &[EncodedPicture], text: impl Into<String>) -> Message {
    match pictures {
        [] => Message::user(text),
        pictures => Message::user_with_pictures(pictures.iter().cloned(), text),
    }
}

/// A prompt of `pictures`, and `text` as it is.
pub fn prompt(pictures: &[EncodedPicture], text: String) -> Prompt {
    if pictures.is_empty() {
        return Prompt::Text(text);
    }
    let shown = pictures.iter().cloned().map(PromptPart::Picture);
    Prompt::Parts(shown.chain([PromptPart::Text(text)]).collect())
}
