//! Pictures of prompts, from their bytes to the numbers that a tower takes. Nothing here knows
//! arrays.

mod families;
mod patches;
mod prepared;
mod scene;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
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
pub(crate) use prepared::Prepared;
pub(crate) use scene::{Scene, Shown};

/// The most pictures of a prompt.
const MOST_PICTURES: usize = 128;
/// The most numbers of pictures that were prepared last, and are kept: one is prepared to be
/// counted, then to be computed.
const MOST_NUMBERS: usize = 16 << 20;

/// How a model is shown pictures.
pub(crate) struct Sight {
    family: Family,
    processor: Processor,
    limits: PictureLimits,
    decoding: Limits,
    recent: Mutex<VecDeque<([u8; 32], Arc<Prepared>)>>,
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
        Ok(Sight { family, processor, limits, decoding, recent: Mutex::default() })
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
        let recent = || self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, known)) = recent().iter().find(|(known, _)| *known == digest) {
            return Ok(Arc::clone(known));
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
        let prepared = Arc::new(Prepared { patches, digest, ids, cells, took: started.elapsed() });
        let mut recent = recent();
        recent.push_back((digest, Arc::clone(&prepared)));
        let numbers = |recent: &VecDeque<([u8; 32], Arc<Prepared>)>| {
            recent.iter().map(|(_, one)| one.patches.values.len()).sum::<usize>()
        };
        while recent.len() > 1 && numbers(&recent) > MOST_NUMBERS {
            recent.pop_front();
        }
        Ok(prepared)
    }

    /// The pictures that lie at these places of a prompt of so many ids.
    pub fn scene(&self, shown: &[(Arc<Prepared>, usize)], ids: usize) -> Scene {
        let shown: Vec<Shown> = shown
            .iter()
            .map(|(prepared, at)| Shown::new(Arc::clone(prepared), *at, self.marks().image))
            .collect();
        let positions = self.family.has_places().then(|| scene::positions(&shown, ids));
        Scene::new(shown, positions, self.family.sees_whole(), self.family.filler())
    }
}
