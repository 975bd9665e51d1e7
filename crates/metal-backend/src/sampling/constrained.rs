//! The ids that a constraint allows a draw to choose.

use inference_core::Error;
use inference_text::constraint::Guide;
use mlx_ffi::{Array, Dtype};

use super::Sampler;
use crate::error::Result;

impl Sampler {
    /// Holds what is drawn from here on to `guide`. Where that
    /// [must know](Guide::must_know) what was drawn, a draw can only be built once all ids before
    /// it are observed.
    pub fn follow(&mut self, mut guide: Guide) {
        guide.stop_at(&self.options.stop_token_ids);
        self.guide = Some(guide);
    }

    /// Returns true when the constraint lets nothing but an end follow what was observed.
    pub fn is_complete(&self) -> bool {
        self.guide.as_ref().is_some_and(Guide::is_complete)
    }

    /// Finds out what the constraint, if there is one, allows the next draw to choose. It takes the
    /// host alone, so that the device can compute the logits meanwhile.
    ///
    /// # Errors
    /// A constraint that allows no token here, or whose step costs too much.
    pub fn prepare(&mut self) -> Result<()> {
        if self.mask.is_some() {
            return Ok(());
        }
        let Some(guide) = &mut self.guide else { return Ok(()) };
        let Some(mut mask) = guide.mask()? else { return Ok(()) };
        let bias = &self.options.logit_bias;
        for (id, _) in bias.iter().filter(|(_, bias)| **bias == f32::NEG_INFINITY) {
            mask.forbid(*id);
        }
        if mask.is_empty() {
            return Err(Error::InvalidOption {
                option: "logit_bias",
                reason: "forbids every token that the constraint allows here".into(),
            }
            .into());
        }
        let whole = mask.clone();
        self.forbidden_ends().iter().for_each(|id| mask.forbid(*id));
        // Where nothing but an end is left, the text ends.
        self.mask = Some(if mask.is_empty() { whole } else { mask });
        Ok(())
    }

    /// The ids that the next draw may choose, `[1, vocab_size]`, where there is a constraint.
    pub(super) fn allowed(&mut self, vocab_size: i32) -> Result<Option<Array>> {
        self.prepare()?;
        let mask = self.mask.take();
        let array =
            mask.map(|mask| Array::from_bytes(&mask.to_bytes(), &[1, vocab_size], Dtype::Bool));
        Ok(array.transpose()?)
    }
}
