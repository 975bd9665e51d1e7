//! Sounds of a request, in base64.

use inference_core::{Capabilities, EncodedSound, Feature, Support, TextModel};

use super::encoded::{bytes_in, without_breaks};
use crate::error::{ApiError, Result};
use crate::fields::reader::Reader;

/// How sounds come to the served model.
#[derive(Clone, Copy)]
pub struct Sounds<'a> {
    model: &'a dyn TextModel,
}

impl<'a> Sounds<'a> {
    /// Sounds for `model`.
    pub fn new(model: &'a dyn TextModel) -> Self {
        Sounds { model }
    }

    /// Checks that the model takes sounds; `field` is the one that asks for it.
    ///
    /// # Errors
    /// It does not, with the reason.
    pub fn check_hears(&self, field: &str) -> Result<()> {
        hearing(self.model.capabilities()).map_err(|reason| ApiError::unsupported(field, reason))
    }

    /// The sound of the part `path` in base64, which stands in the field `field`. What decodes it
    /// holds it to the other limits.
    ///
    /// # Errors
    /// No base64, or more bytes than the model takes.
    pub fn of_base64(&self, path: &str, field: &str, data: &str) -> Result<EncodedSound> {
        let data = without_breaks(data);
        let bytes = data.len() as u64 / 4 * 3;
        let most = self.model.info().sounds.as_ref().map_or(u64::MAX, |limits| limits.max_bytes);
        // Bytes that are no longer than the last group's padding are left to the model's check.
        if bytes > most.saturating_add(3) {
            let reason = format!("the sound has {bytes} bytes; at most {most} are taken");
            return Err(ApiError::value(field, reason));
        }
        Ok(EncodedSound::new(bytes_in(field, &data)?, path))
    }

    /// The sound of OpenAI's part `input_audio`: `data` and `format`. What the bytes are counts,
    /// not what the format says; but one that is not read is refused.
    ///
    /// # Errors
    /// A model that hears nothing; a field that is missing or means nothing.
    pub fn of_openai(&self, part: &mut Reader) -> Result<EncodedSound> {
        self.check_hears(&part.path("type"))?;
        let object = part.take("input_audio");
        let mut object = Reader::new(part.path("input_audio"), part.need("input_audio", object)?)?;
        let data = object.text("data")?;
        let data = object.need("data", data)?;
        let format = object.text("format")?;
        let format = object.need("format", format)?;
        let known = self.model.info().sounds.as_ref().map(|limits| limits.formats.as_slice());
        if let Some(known) = known.filter(|known| !known.contains(&format.as_str())) {
            let reason = format!("`{format}` is not one of {}", known.join(", "));
            return Err(ApiError::value(object.path("format"), reason));
        }
        let field = object.path("data");
        object.finish()?;
        self.of_base64(part.own_path(), &field, &data)
    }
}

/// Checks that a model of these capabilities takes sounds.
///
/// # Errors
/// Why not.
pub fn hearing(capabilities: &Capabilities) -> std::result::Result<(), String> {
    match capabilities.support(Feature::Audio) {
        Support::Yes => Ok(()),
        Support::No(reason) => Err(reason),
    }
}
