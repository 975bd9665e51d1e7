//! Sounds of prompts, from their bytes to the features that a tower takes. Nothing here knows
//! arrays.

mod extractor;

use std::sync::Arc;
use std::time::Instant;

use inference_core::{EncodedSound, SoundLimits};
use inference_text::Tokenizer;
use sha2::{Digest, Sha256};
use sound::{LogMel, Sound};

use crate::config::Config;
use crate::error::{Error, Result};
use crate::files::ModelFiles;
use crate::sight::{Input, Prepared, Recent};

/// The most sounds of a prompt.
const MOST_SOUNDS: usize = 128;
/// The most bytes of an encoded sound: half a minute of eight channels, not compressed.
const MOST_BYTES: usize = 64 << 20;
/// The most seconds of a sound. The references cut off what is longer.
const MOST_SECONDS: u32 = 30;
/// Vectors of the longest sound, one for each 40 milliseconds.
const MOST_VECTORS: usize = 750;
/// The file formats that are read.
const FORMATS: [&str; 9] = ["wav", "aiff", "flac", "mp3", "m4a", "mp4", "aac", "ogg", "webm"];

/// The ids and texts around sounds.
#[derive(Clone, Debug)]
pub(crate) struct SoundMarks {
    /// The mark that a chat template writes for a sound, and its id, which stands in the place of
    /// each vector.
    pub written: (String, u32),
    /// The text put around that mark before it is encoded, as the model's processor does.
    pub around: &'static str,
    begin: u32,
    end: u32,
}

/// How a model is played sounds.
pub(crate) struct Hearing {
    marks: SoundMarks,
    way: LogMel,
    /// Vectors of each sound, where all have as many.
    fixed: Option<usize>,
    limits: SoundLimits,
    filler: u32,
    recent: Recent,
}

impl Hearing {
    /// Reads `config.json` and the processor's files.
    ///
    /// # Errors
    /// A key that is missing or asks for an option that is not supported.
    /// A mark that the tokenizer does not have.
    pub fn read(config: &Config, files: &ModelFiles, tokenizer: &Tokenizer) -> Result<Hearing> {
        let id = |keys: &[&str], default: u32| -> Result<u32> {
            for key in keys {
                if let Some(id) = config.opt_index(key)? {
                    return Ok(id as u32);
                }
            }
            Ok(default)
        };
        let (way, around, fixed, [own, end], filler) =
            match config.opt_text("model_type")?.unwrap_or_default() {
                "gemma4" => (LogMel::default(), "", None, [258_881, 258_883], None),
                "gemma3n" => {
                    let count = config.opt_size("audio_soft_tokens_per_image")?.unwrap_or(188);
                    let ids = [262_273, 262_272];
                    // Ids that layers have no inputs of count as the first one.
                    (LogMel::gemma3n(), "\n\n", Some(count as usize), ids, Some(0))
                }
                other => {
                    return Err(Error::model(format!(
                        "config.json: how `{other}` prepares sounds is not known here"
                    )));
                }
            };
        let own = id(&["audio_token_id"], own)?;
        let text = tokenizer.id_to_token(own).ok_or_else(|| {
            Error::model(format!("config.json: the tokenizer has no token {own} for sounds"))
        })?;
        let marks = SoundMarks {
            written: (text, own),
            around,
            begin: id(&["boa_token_id", "boa_token_index"], 256_000)?,
            end: id(&["eoa_token_id", "eoa_token_index"], end)?,
        };
        let way = extractor::read(files, way)?;
        check_bands(config, &way)?;
        let language = config.object("text_config")?;
        let language = language.as_ref().unwrap_or(config);
        let limits = SoundLimits {
            formats: FORMATS.to_vec(),
            max_bytes: MOST_BYTES as u64,
            max_seconds: MOST_SECONDS,
            max_sounds: MOST_SOUNDS,
            max_tokens: fixed.unwrap_or(MOST_VECTORS),
        };
        let padding = language.opt_index("pad_token_id")?.unwrap_or(0) as u32;
        let filler = filler.unwrap_or(padding);
        Ok(Hearing { marks, way, fixed, limits, filler, recent: Recent::default() })
    }

    /// The limits of accepted sounds.
    pub fn limits(&self) -> &SoundLimits {
        &self.limits
    }

    /// The family's marks.
    pub fn marks(&self) -> &SoundMarks {
        &self.marks
    }

    /// The id whose vector stands for a sound where only ids count.
    pub fn filler(&self) -> u32 {
        self.filler
    }

    /// A sound, decoded, as features.
    ///
    /// # Errors
    /// A sound that cannot be read, is too short or too long, by its name.
    pub fn prepare(&self, sound: &EncodedSound) -> inference_core::Result<Arc<Prepared>> {
        let started = Instant::now();
        // No picture of the same bytes has this digest.
        let mut digest = Sha256::new_with_prefix(b"sound\0");
        digest.update(&sound.bytes);
        let digest: [u8; 32] = digest.finalize().into();
        if let Some(known) = self.recent.find(&digest) {
            return Ok(known);
        }
        let limits = sound::Limits { bytes: MOST_BYTES, seconds: f64::from(MOST_SECONDS) };
        let decoded = Sound::decode(&sound.bytes, self.way.rate, &limits)
            .map_err(|error| sound.error(error))?;
        let frames = self.way.frames(&decoded.samples).map_err(|error| sound.error(error))?;
        // Two convolutions take every second frame each.
        let vectors = self.fixed.unwrap_or(frames.count.div_ceil(2).div_ceil(2));
        let SoundMarks { begin, end, written: (_, own), .. } = self.marks;
        let mut ids = vec![own; vectors + 2];
        (ids[0], ids[vectors + 1]) = (begin, end);
        let prepared = Arc::new(Prepared {
            input: Input::Frames(frames),
            digest,
            ids,
            own,
            ends_with_vector: self.fixed.is_some(),
            sees_whole: false,
            cells: [1, vectors as i32],
            took: started.elapsed(),
        });
        self.recent.keep(&prepared);
        Ok(prepared)
    }
}

/// Refuses features of another number of bands than the tower's convolutions take.
fn check_bands(config: &Config, way: &LogMel) -> Result<()> {
    let audio = config.object("audio_config")?;
    let bands = audio.as_ref().map(|audio| audio.opt_size("input_feat_size")).transpose()?;
    // Gemma 3n states them; the projection of Gemma 4 counts on as many as channels.
    if let Some(bands) = bands.flatten() {
        return match bands as usize == way.features {
            true => Ok(()),
            false => Err(Error::model(format!(
                "the feature extractor makes {} bands; `input_feat_size` is {bands}",
                way.features
            ))),
        };
    }
    let channels = audio.map(|audio| audio.opt_numbers::<2>("subsampling_conv_channels"));
    let channels = channels.transpose()?.flatten().map_or(128, |[first, _]| first as usize);
    if way.features.div_ceil(2).div_ceil(2) == channels / 4 {
        return Ok(());
    }
    Err(Error::model(format!(
        "the feature extractor makes {} bands; the audio tower takes {channels}",
        way.features
    )))
}
