//! The audio tower of Gemma 3n.

use mlx_ffi::ops::Padding;

use super::{AttentionScores, BlockNames, EarKeys, EarSizes, MAX_WIDTH, wrong};
use crate::config::Config;
use crate::error::Result;
use crate::layers::{EarConvolution, EarEntry, EarExit, EarNorm, EarPadding, Ears};
use crate::weights::Weights;

const KEYS: EarKeys = EarKeys {
    layers: "conf_num_hidden_layers",
    heads: "conf_num_attention_heads",
    channels: "sscp_conv_channel_size",
    taps: "conf_conv_kernel_size",
    chunk: "conf_attention_chunk_size",
    left: "conf_attention_context_left",
    right: "conf_attention_context_right",
    softcap: "conf_attention_logit_cap",
    part: "conf_residual_weight",
};

const NAMES: BlockNames = BlockNames {
    networks: ["ffw_layer_start", "ffw_layer_end"],
    attention: "attention.attn",
    positions: "relative_position_embedding.pos_proj",
    out: "attention.post",
    norms: ["attention.pre_attn_norm", "attention.post_norm", "norm"],
};

/// The audio tower and its projector into `width` values, where the checkpoint has one.
///
/// # Errors
/// A key or a tensor that is missing or does not fit.
pub(crate) fn gemma3n_ears(config: &Config, w: &Weights, width: i32) -> Result<Option<Ears>> {
    let (Some(audio), Some(tower)) =
        (config.object("audio_config")?, w.first_of(&["model.audio_tower", "audio_tower"]))
    else {
        return Ok(None);
    };
    let sizes = EarSizes::read(&audio, &KEYS, 1536)?;
    let EarSizes { hidden, channels: [first, second], eps, .. } = sizes;
    for (key, expected) in [("sscp_conv_kernel_size", 3), ("sscp_conv_stride_size", 2)] {
        let usual = serde_json::json!([[expected, expected], [expected, expected]]);
        if let Some(found) = audio.get(key).filter(|found| **found != usual) {
            return Err(wrong(format!("`{key}` is {found}, expected {usual}")));
        }
    }
    let kernels = w.kernels();
    tower.leave_buffers();
    let group_eps = audio.opt_positive("sscp_conv_group_norm_eps")?.unwrap_or(1e-3) as f32;
    let entry = tower.at("subsample_conv_projection");
    let convolution = |name: &str, [out, channels]: [i32; 2]| -> Result<EarConvolution> {
        let w = entry.at(name);
        Ok(EarConvolution {
            kernel: w.at("conv").kernels2d([out, channels, 3])?,
            // Of time, what comes; of bands, both sides.
            padding: Padding { before: [0, 1], after: [2, 1] },
            norm: EarNorm::Cumulative {
                weight: w.at("norm").tensor_f32("weight", &[out])?,
                eps: group_eps,
            },
        })
    };
    let convolutions =
        [convolution("conv_0", [first, 1])?, convolution("conv_1", [second, first])?];
    let bands = audio.opt_size("input_feat_size")?.unwrap_or(128).min(MAX_WIDTH);
    let inside = (bands + 1) / 2;
    let projection = entry.linear("input_proj_linear", (inside + 1) / 2 * second, hidden, false)?;
    let block = |index: i32| {
        let scores = AttentionScores {
            window: sizes.window([sizes.left, sizes.right + 1]),
            key_scale: 1.0,
            unseen: f32::MIN,
            distances: (-sizes.right..sizes.left).rev().collect(),
        };
        sizes.block(&tower.at(&format!("conformer.{index}")), &NAMES, scores)
    };
    let blocks = (0..sizes.layers).map(block).collect::<Result<_>>()?;
    let embed = w.first_of(&["model.embed_audio", "embed_audio"]);
    let embed = embed.unwrap_or_else(|| w.at("model.embed_audio"));
    let vocab = audio.opt_size("vocab_size")?.unwrap_or(128);
    let offset = audio.opt_index("vocab_offset")?.unwrap_or(262_272);
    let text = config.object("text_config")?;
    let of_text = text.map(|text| text.opt_size("vocab_size")).transpose()?.flatten();
    let row = |what: &str, id: i32| match id.checked_sub(offset) {
        Some(row) if (0..vocab).contains(&row) => Ok(row as u32),
        _ => Err(wrong(format!(
            "{what} is {id}, which is not among the {vocab} ids from `vocab_offset` {offset} on"
        ))),
    };
    let end = match config.opt_index("eoa_token_id")? {
        Some(end) => end,
        None => config.opt_index("eoa_token_index")?.unwrap_or(262_272),
    };
    let padding = EarPadding {
        count: config.opt_size("audio_soft_tokens_per_image")?.unwrap_or(188),
        embedding: embed.table("embedding", vocab, hidden)?,
        norm: embed.rms_norm("hard_embedding_norm", hidden, eps)?,
        rows: [
            row("the last id of the vocabulary", of_text.unwrap_or(262_400) - 1)?,
            row("`eoa_token_id`", end)?,
        ],
    };
    let exit = EarExit {
        reduction: audio.opt_size("conf_reduction_factor")?.unwrap_or(4),
        output: None,
        norm: embed.rms_norm("soft_embedding_norm", hidden, eps)?,
        projection: embed.linear("embedding_projection", hidden, width, false)?,
        out_norm: Some(embed.plain_rms_norm(width, eps)?),
        padding: Some(padding),
    };
    let dtype = exit.norm.weight.dtype();
    let entry = EarEntry { convolutions, projection, bands, dtype, kernels };
    Ok(Some(Ears { entry, blocks, exit, kernels }))
}
