//! Logit bias and penalties.

use mlx_ffi::{Array, Dtype, Indices, Result, ops};

use super::Sampler;

impl Sampler {
    /// Logit bias and all penalties.
    pub(super) fn adjust(&self, logits: Array) -> Result<Array> {
        let logits = self.penalised(logits)?;
        let Some(repeats) = &self.repeats else { return Ok(logits) };
        let (ids, values): (Vec<u32>, Vec<f32>) = repeats.penalties().into_iter().unzip();
        if ids.is_empty() {
            return Ok(logits);
        }
        let shape = [1, ids.len() as i32];
        let values = ops::negative(&Array::from_f32(&values, &shape)?)?;
        ops::scatter_add_axis(&logits, &Indices::from_u32(&ids, &shape)?, &values, -1)
    }

    /// Logit bias, and the penalties on ids whatever is around them.
    fn penalised(&self, mut logits: Array) -> Result<Array> {
        if let Some((ids, values)) = &self.bias {
            logits = ops::scatter_add_axis(&logits, ids, values, -1)?;
        }
        let options = &self.options;
        let repetition = options.repetition_penalty.filter(|penalty| *penalty != 1.0);
        let presence = options.presence_penalty.filter(|penalty| *penalty != 0.0);
        let frequency = options.frequency_penalty.filter(|penalty| *penalty != 0.0);
        if repetition.is_none() && presence.is_none() && frequency.is_none() {
            return Ok(logits);
        }
        let Some(seen) = self.seen()? else { return Ok(logits) };
        let scalar = |value| Array::scalar(value, Dtype::F32);
        if let Some(penalty) = repetition {
            let values = ops::take_along_axis(&logits, &seen, -1)?;
            let penalty = scalar(penalty)?;
            let penalised = ops::where_(
                &ops::less(&values, &scalar(0.0)?)?,
                &ops::multiply(&values, &penalty)?,
                &ops::divide(&values, &penalty)?,
            )?;
            // An id that was seen twice is written twice with the same value.
            logits = ops::put_along_axis(&logits, &seen, &penalised, -1)?;
        }
        if let Some(penalty) = presence {
            let values = ops::take_along_axis(&logits, &seen, -1)?;
            let penalised = ops::subtract(&values, &scalar(penalty)?)?;
            logits = ops::put_along_axis(&logits, &seen, &penalised, -1)?;
        }
        if let Some(penalty) = frequency {
            let values = ops::broadcast_to(&scalar(-penalty)?, seen.shape())?;
            logits = ops::scatter_add_axis(&logits, &seen, &values, -1)?;
        }
        Ok(logits)
    }

    /// The ids in the penalties' window, `[1, n]`.
    fn seen(&self) -> Result<Option<Indices>> {
        let window = self.options.penalty_window_or_default();
        let known = &self.history[self.history.len().saturating_sub(window)..];
        let seen = (!known.is_empty()).then(|| Indices::from_u32(known, &[1, known.len() as i32]));
        seen.transpose()
    }
}
