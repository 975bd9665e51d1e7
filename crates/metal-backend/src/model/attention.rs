//! A look at a prompt's attention.

use std::time::Instant;

use inference_core::{
    AttentionInspector, AttentionSnapshot, Error, InspectOptions, Prompt, Result,
};

use super::MlxModel;
use super::laid::Laid;
use crate::engine::InspectJob;

impl MlxModel {
    /// The layers to look at: those that `options` name, else all that have attention.
    fn inspected(&self, options: &InspectOptions) -> Result<Vec<usize>> {
        let chosen = options.chosen(self.info.num_layers)?;
        if options.layers.is_none() {
            return Ok(self.attention_layers.clone());
        }
        match chosen.iter().find(|layer| !self.attention_layers.contains(layer)) {
            None => Ok(chosen),
            Some(layer) => Err(Error::InvalidOption {
                option: "layers",
                reason: format!(
                    "layer {layer} has no attention but a recurrent state; layers with attention are {:?}",
                    self.attention_layers
                ),
            }),
        }
    }
}

impl AttentionInspector for MlxModel {
    fn inspect_attention(
        &self,
        prompt: &Prompt,
        options: &InspectOptions,
    ) -> Result<AttentionSnapshot> {
        self.engine.check_open()?;
        options.validate()?;
        let chosen = self.inspected(options)?;
        let laid = self.laid_out(prompt)?;
        self.check_prompt(&laid, 0)?;
        let Laid { ids, scene, .. } = laid;
        let seq_len = ids.len();
        let layers = self.engine.inspect(|reply| InspectJob {
            number: 0,
            ids,
            scene,
            layers: chosen,
            weights: options.weights,
            cancel: options.cancel.clone(),
            queued_at: Instant::now(),
            reply,
        })?;
        Ok(AttentionSnapshot { architecture: self.info.architecture.clone(), seq_len, layers })
    }
}
