//! Attention of the right shapes.

use inference_core::{
    AttentionInspector, AttentionSnapshot, AttentionWeights, InspectOptions, LayerAttention,
    Prompt, Result, TextModel,
};

use crate::FakeModel;

impl AttentionInspector for FakeModel {
    fn inspect_attention(
        &self,
        prompt: &Prompt,
        options: &InspectOptions,
    ) -> Result<AttentionSnapshot> {
        let seq_len = self.prompt_ids(prompt)?.len();
        let weights = || AttentionWeights {
            values: vec![0.25; 2 * seq_len * seq_len],
            entropy: vec![0.5; 2 * seq_len],
        };
        let layer = |layer: usize| LayerAttention {
            layer,
            n_kv_heads: 1,
            n_heads: 2,
            head_dim: 1,
            positions: (0..seq_len).collect(),
            keys: vec![layer as f32; seq_len],
            queries: vec![0.5; 2 * seq_len],
            weights: options.weights.then(weights),
        };
        let layers = options.chosen(self.info.num_layers)?.into_iter().map(layer).collect();
        Ok(AttentionSnapshot { architecture: self.info.architecture.clone(), seq_len, layers })
    }
}
