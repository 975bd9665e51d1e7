//! The audio tower of Gemma 4.

use mlx_ffi::ops::Padding;

use super::{AttentionScores, BlockNames, EarKeys, EarSizes};
use crate::config::Config;
use crate::error::Result;
use crate::layers::{EarConvolution, EarEntry, EarExit, EarNorm, Ears, LayerNorm};
use crate::weights::Weights;

const KEYS: EarKeys = EarKeys {
    layers: "num_hidden_layers",
    heads: "num_attention_heads",
    channels: "subsampling_conv_channels",
    taps: "conv_kernel_size",
    chunk: "attention_chunk_size",
    left: "attention_context_left",
    right: "attention_context_right",
    softcap: "attention_logit_cap",
    part: "residual_weight",
};

const NAMES: BlockNames = BlockNames {
    networks: ["feed_forward1", "feed_forward2"],
    attention: "self_attn",
    positions: "relative_k_proj",
    out: "self_attn.post",
    norms: ["norm_pre_attn", "norm_post_attn", "norm_out"],
};

/// The audio tower and its projector into `width` values, where the checkpoint has one.
///
/// # Errors
/// A key or a tensor that is missing or does not fit.
pub(crate) fn gemma4_ears(config: &Config, w: &Weights, width: i32) -> Result<Option<Ears>> {
    let (Some(audio), Some(tower)) =
        (config.object("audio_config")?, w.first_of(&["model.audio_tower", "audio_tower"]))
    else {
        return Ok(None);
    };
    let sizes = EarSizes::read(&audio, &KEYS, 1024)?;
    let EarSizes { hidden, channels: [first, second], eps, .. } = sizes;
    let kernels = w.kernels();
    tower.leave_buffers();
    let entry = tower.at("subsample_conv_projection");
    let convolution = |name: &str, [out, channels]: [i32; 2]| -> Result<EarConvolution> {
        let w = entry.at(name);
        let weight = w.at("norm").tensor("weight", &[out])?;
        Ok(EarConvolution {
            kernel: w.at("conv").kernels2d([out, channels, 3])?,
            padding: Padding::around(1),
            norm: EarNorm::Layer(LayerNorm { weight, bias: None, eps, kernels }),
        })
    };
    let convolutions =
        [convolution("layer0", [first, 1])?, convolution("layer1", [second, first])?];
    // The width of the projection counts on as many bands as there are channels.
    let projection = entry.linear("input_proj_linear", first / 4 * second, hidden, false)?;
    let unseen = audio.opt_number("attention_invalid_logits_value")?.unwrap_or(-1e9) as f32;
    let context = sizes.chunk + sizes.left - 1 + sizes.right;
    let block = |index: i32| {
        let scores = AttentionScores {
            window: sizes.window([sizes.left - 1, sizes.right]),
            key_scale: ((1.0 + 1f64.exp()).ln() / 2f64.ln()) as f32,
            unseen,
            distances: (0..=context / 2).rev().collect(),
        };
        sizes.block(&tower.at(&format!("layers.{index}")), &NAMES, scores)
    };
    let blocks = (0..sizes.layers).map(block).collect::<Result<_>>()?;
    let output_size = audio.opt_size("output_proj_dims")?.unwrap_or(1536);
    let embed = w.first_of(&["model.embed_audio", "embed_audio"]);
    let embed = embed.unwrap_or_else(|| w.at("model.embed_audio"));
    let exit = EarExit {
        reduction: 1,
        output: Some(tower.linear("output_proj", hidden, output_size, true)?),
        norm: embed.plain_rms_norm(output_size, eps)?,
        projection: embed.linear("embedding_projection", output_size, width, false)?,
        out_norm: None,
        padding: None,
    };
    let dtype = exit.norm.weight.dtype();
    let entry = EarEntry { convolutions, projection, bands: first, dtype, kernels };
    Ok(Some(Ears { entry, blocks, exit, kernels }))
}
