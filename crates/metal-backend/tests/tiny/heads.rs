//! Checkpoints with a layer that predicts a further token.

use serde_json::json;

use super::{Checkpoint, Tensor, VOCAB_SIZE};

impl Checkpoint {
    /// Qwen 3.5 as [`hybrid`](Self::hybrid) has it, with such a layer.
    pub fn hybrid_that_drafts(layers: usize) -> Checkpoint {
        let names = ["mtp.pre_fc_norm_embedding", "mtp.pre_fc_norm_hidden", "mtp.fc", "mtp.norm"];
        Checkpoint::hybrid(layers).drafting(1, "mtp.layers.0", names)
    }

    /// DeepSeek V3 as [`latent`](Self::latent) has it, with such a layer behind the others.
    pub fn latent_that_drafts(layers: usize) -> Checkpoint {
        let layer = format!("model.layers.{layers}");
        let named = |part: &str| format!("{layer}.{part}");
        let names = ["enorm", "hnorm", "eh_proj", "shared_head.norm"].map(named);
        let checkpoint = Checkpoint::latent(layers).config("num_nextn_predict_layers", json!(1));
        let copied = ["embed_tokens", "shared_head.head"].map(named);
        let checkpoint = checkpoint.drafting(layers - 1, &layer, names.each_ref().map(|n| &**n));
        copied.into_iter().fold(checkpoint, |checkpoint, name| {
            let name = format!("{name}.weight");
            let tensor = Tensor::noise(&name, &[VOCAB_SIZE, 16]);
            checkpoint.tensor(&name, tensor)
        })
    }

    /// The checkpoint with a layer at `to` as layer `from` is, and what stands around it, of 16
    /// hidden values: norms of embeddings and of hidden states, the projection, and the last norm.
    fn drafting(mut self, from: usize, to: &str, names: [&str; 4]) -> Checkpoint {
        let from = format!("model.layers.{from}.");
        let of_layer: Vec<(String, Tensor)> = self
            .tensors
            .iter()
            .filter_map(|(name, tensor)| {
                let name = format!("{to}.{}", name.strip_prefix(&from)?);
                Some((name.clone(), Tensor::noise(&name, &tensor.shape)))
            })
            .collect();
        self.tensors.extend(of_layer);
        for (name, shape) in names.into_iter().zip([&[16][..], &[16], &[16, 32], &[16]]) {
            let name = format!("{name}.weight");
            let tensor = Tensor::noise(&name, shape);
            self.tensors.insert(name, tensor);
        }
        self
    }

    /// This checkpoint where each next id follows from the last one alone, in the model and in its
    /// layer that predicts a further token: the layer is always right.
    pub fn foreseeing(mut self) -> Checkpoint {
        let ones = |size: usize| Tensor::f32(&vec![1.0; size], &[size]);
        for (name, tensor) in &mut self.tensors {
            let is_output =
                ["o_proj", "out_proj", "down_proj"].iter().any(|part| name.contains(part));
            if is_output {
                *tensor = Tensor::zeros(tensor.dtype, &tensor.shape);
            }
            if name.contains("norm.weight")
                || name.contains("norm_embedding")
                || name.contains("norm_hidden")
            {
                *tensor = ones(tensor.shape.iter().product());
            }
            if name.ends_with("mtp.fc.weight") || name.ends_with("eh_proj.weight") {
                let value = |at: usize| if at % 32 == at / 32 { 1.0 } else { 0.0 };
                let values: Vec<f32> = (0..16 * 32).map(value).collect();
                *tensor = Tensor::f32(&values, &[16, 32]);
            }
        }
        self
    }
}
