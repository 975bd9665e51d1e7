//! Pictures of prompts, from their bytes to the numbers that a tower takes. Nothing here knows
//! arrays.

mod families;
mod patches;
mod prepared;
mod scene;

use std::sync::Arc;
use std::time::Instant;

use inference_core::{EncodedPicture, PictureLimits};
use inference_text::Tokenizer;
use pictures::{Limits, Picture, Processor};
use sha2::{Digest, Sha256};

use crate::config::Config;
use crate::error::{Error, Result};
use crate::files::ModelFiles;

use families::Family;
pub(crate) use patches::Patches;
pub(crate) use prepared::{Input, Prepared, Recent};
pub(crate) use scene::{Scene, Shown};

/// The most pictures of a prompt.
const MOST_PICTURES: usize = 128;

/// How a model is shown pictures.
pub(crate) struct Sight {
    family: Family,
    processor: Processor,
    limits: PictureLimits,
    decoding: Limits,
    recent: Recent,
}

impl Sight {
    /// Reads `config.json` and the processor's files.
    ///
    /// # Errors
    /// A key that is missing or asks for an option that is not supported.
    /// A mark that the tokenizer does not have.
    pub fn read(config: &Config, files: &ModelFiles, tokenizer: &Tokenizer) -> Result<Sight> {
        let (family, processor) = Family::read(config, tokenizer)?;
        let (name, text) = match files.text("processor_config.json")? {
            Some(text) if text.contains("\"image_processor\"") => {
                ("processor_config.json", Some(text))
            }
            _ => ("preprocessor_config.json", files.text("preprocessor_config.json")?),
        };
        let processor = match text {
            None => processor,
            Some(text) => {
                let wrong =
                    |error: &dyn std::fmt::Display| Error::model(format!("{name}: {error}"));
                let all: serde_json::Value =
                    serde_json::from_str(&text).map_err(|error| wrong(&error))?;
                let own = all.get("image_processor").unwrap_or(&all);
                processor.with(own).map_err(|error| wrong(&error))?
            }
        };
        family.check(&processor)?;
        let decoding = Limits::default();
        let limits = PictureLimits {
            formats: vec!["png", "jpeg", "webp", "gif"],
            max_bytes: decoding.bytes as u64,
            max_pixels: decoding.pixels,
            max_pictures: MOST_PICTURES,
            tokens: family.tokens(&processor.sizing),
        };
        Ok(Sight { family, processor, limits, decoding, recent: Recent::default() })
    }

    /// The limits of accepted pictures.
    pub fn limits(&self) -> &PictureLimits {
        &self.limits
    }

    /// The family's marks.
    pub fn marks(&self) -> &families::Marks {
        self.family.marks()
    }

    /// A picture, decoded, resized and cut.
    ///
    /// # Errors
    /// A picture that cannot be read or is too large, by its name.
    pub fn prepare(&self, picture: &EncodedPicture) -> inference_core::Result<Arc<Prepared>> {
        let started = Instant::now();
        let digest: [u8; 32] = Sha256::digest(&picture.bytes).into();
        if let Some(known) = self.recent.find(&digest) {
            return Ok(known);
        }
        let wrong = |error: &dyn std::fmt::Display| picture.error(error);
        let decoded =
            Picture::decode(&picture.bytes, &self.decoding).map_err(|error| wrong(&error))?;
        let size = self
            .processor
            .size(decoded.width(), decoded.height())
            .map_err(|error| wrong(&error))?;
        let resized = self.processor.resized(&decoded, size).map_err(|error| wrong(&error))?;
        drop(decoded);
        let patches = self.family.patches(&self.processor.rescale, &resized);
        let cells = self.family.cells(patches.grid);
        let ids = self.family.ids(cells);
        let prepared = Arc::new(Prepared {
            input: Input::Patches(patches),
            digest,
            ids,
            own: self.marks().image,
            ends_with_vector: false,
            sees_whole: self.family.sees_whole(),
            cells,
            took: started.elapsed(),
        });
        self.recent.keep(&prepared);
        Ok(prepared)
    }

    /// Returns true when the language model knows rows and columns.
    pub fn has_places(&self) -> bool {
        self.family.has_places()
    }

    /// The id whose vector stands for a picture where only ids count.
    pub fn filler(&self) -> u32 {
        self.family.filler()
    }
}
