//! `--image` and `--audio`.

use std::path::PathBuf;

use clap::Args;

use crate::failure::Result;
use crate::pictures::{self, Shown};

/// Pictures and sounds for the model.
#[derive(Args, Debug, Default)]
pub struct PictureArgs {
    /// Show the model a picture before the prompt's text: PNG, JPEG, WebP or the first frame of a
    /// GIF; can be given more than once
    #[arg(long, value_name = "FILE", help_heading = "Prompt")]
    pub image: Vec<PathBuf>,
    /// Play the model a sound before the prompt's text, behind the pictures: WAV, FLAC, MP3, MP4,
    /// Ogg or WebM of at most 30 seconds; can be given more than once
    #[arg(long, value_name = "FILE", help_heading = "Prompt")]
    pub audio: Vec<PathBuf>,
}

impl PictureArgs {
    /// The pictures, then the sounds, each in the order given.
    ///
    /// # Errors
    /// The first file that is none, by its name.
    pub fn read(&self) -> Result<Vec<Shown>> {
        let pictures = self.image.iter().map(|path| Ok(pictures::read_for_flag(path)?.into()));
        let sounds = self.audio.iter().map(|path| Ok(pictures::read_sound_for_flag(path)?.into()));
        pictures.chain(sounds).collect()
    }
}
