//! EXAONE 4: norms behind both halves of a block and over each head; where some layers have a
//! sliding window, the others do not see positions.

use crate::config::Config;
use crate::error::Result;
use crate::kernels::Activation;
use crate::layers::{Attention, Decoder};
use crate::shape::{AttentionParts, NormSpan, Shape, activation, windows};
use crate::weights::Weights;

/// Builds the model under the names of `Exaone4ForCausalLM`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let config = &with_defaults(config);
    let shape = Shape::read(config)?;
    let act = activation(config, "hidden_act", Activation::Silu)?;
    let attention = attention(config, &shape)?;
    shape.decoder(config, w, &w.at("model"), |w, index| {
        let mlp = shape.mlp(&w.at("mlp"), act, false)?;
        shape.post_norm_block(w, attention(w, index)?, mlp)
    })
}

/// The config with the defaults of transformers.
pub(super) fn with_defaults(config: &Config) -> Config {
    let config = config.with_default_number("rms_norm_eps", 1e-5);
    config.with_defaults(&[("sliding_window", 4096), ("sliding_window_pattern", 4)])
}

/// How the attention of the layer under a cursor is built, by its index.
///
/// # Errors
/// A key that is wrong.
pub(super) fn attention(
    config: &Config,
    shape: &Shape,
) -> Result<impl Fn(&Weights, usize) -> Result<Attention>> {
    let rope = config.rope("full_attention", 10_000.0)?;
    let pattern = pattern(config)?;
    let window = config.opt_size("sliding_window")?;
    let windows = windows(config, shape.num_hidden_layers, window, |index| {
        pattern.get(index as usize % pattern.len().max(1)) == Some(&b'L')
    })?;
    Ok(move |w: &Weights, index: usize| {
        let parts = AttentionParts {
            qk_norms: NormSpan::Head,
            window: windows[index],
            ..AttentionParts::PLAIN
        };
        let rope = (window.is_none() || windows[index].is_some()).then_some(&rope);
        shape.attention(&w.at("self_attn"), rope, parts)
    })
}

/// The layers in turn: `L` for one with a window, `G` for one without. A number says how many
/// layers the turn has, the last one without a window.
fn pattern(config: &Config) -> Result<Vec<u8>> {
    const KEY: &str = "sliding_window_pattern";
    let Some(value) = config.get(KEY) else { return Ok(Vec::new()) };
    if let Some(text) = value.as_str() {
        if text.bytes().all(|kind| b"LG".contains(&kind)) {
            return Ok(text.as_bytes().to_vec());
        }
    } else if let Some(size @ 1..=1000) = value.as_u64() {
        let mut turn = vec![b'L'; size as usize];
        turn[size as usize - 1] = b'G';
        return Ok(turn);
    }
    let expected = "letters L and G, or a number of layers";
    Err(config.wrong(KEY, value, expected))
}
