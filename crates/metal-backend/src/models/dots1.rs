//! dots.llm1: norms over each head's queries and keys, and DeepSeek V3's experts behind the first
//! layers.

use crate::config::Config;
use crate::error::Result;
use crate::layers::Decoder;
use crate::shape::{AttentionParts, ExpertNames, Mixture, NormSpan, Shape, windows};
use crate::weights::Weights;

/// Builds the model under the names of `Dots1ForCausalLM`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    // Releases name the method of the choice here.
    const SCORES: &str = "scoring_func";
    if let Some(other) = config.opt_text(SCORES)?.filter(|f| !["noaux_tc", "sigmoid"].contains(f)) {
        return Err(config.wrong(SCORES, &other.into(), "noaux_tc or sigmoid"));
    }
    let config = &config
        .with_defaults(&[("first_k_dense_replace", 0), ("n_shared_experts", 0)])
        .with_default_flag("norm_topk_prob", false);
    let shape = Shape::read(config)?;
    let layers = shape.num_hidden_layers;
    let rope = config.rope("full_attention", 10_000.0)?;
    let bias = config.opt_flag("attention_bias")?.unwrap_or(false);
    let window = config.opt_size("sliding_window")?;
    let first = config.opt_index("max_window_layers")?.unwrap_or(62);
    let windows = windows(config, layers, window, |index| index >= first)?;
    let mixture = Mixture::corrected(config, layers)?.named(ExpertNames::STACKED);
    let decoder = shape.decoder(config, w, &w.at("model"), |w, index| {
        let parts = AttentionParts {
            qkv_bias: bias,
            o_bias: bias,
            qk_norms: NormSpan::Head,
            window: windows[index],
            ..AttentionParts::PLAIN
        };
        let attention = shape.attention(&w.at("self_attn"), Some(&rope), parts)?;
        shape.pre_norm_block(w, attention, mixture.feed_forward(&shape, &w.at("mlp"), index)?)
    })?;
    Ok(mixture.widen(decoder))
}
