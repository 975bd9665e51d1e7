//! `--image`.

use std::path::PathBuf;

use clap::Args;
use inference_core::EncodedPicture;

use crate::failure::Result;
use crate::pictures;

/// Pictures for the model.
#[derive(Args, Debug, Default)]
pub struct PictureArgs {
    /// Show the model a picture before the prompt's text: PNG, JPEG, WebP or the first frame of a
    /// GIF; can be given more than once
    #[arg(long, value_name = "FILE", help_heading = "Prompt")]
    pub image: Vec<PathBuf>,
}

impl PictureArgs {
    /// The pictures, in the order given.
    ///
    /// # Errors
    /// The first file that is none, by its name.
    pub fn read(&self) -> Result<Vec<EncodedPicture>> {
        self.image.iter().map(|path| pictures::read_for_flag(path)).collect()
    }
}
