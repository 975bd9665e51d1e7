//! The tower of Gemma 4.

use super::{TowerSizes, expect_activation, small_size, vision};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::kernels::Activation;
use crate::layers::{
    Axes, Entry, Exit, Network, PatchPositions, QkvLinears, Tower, TowerAttention, TowerBlock,
    TowerNorm, TowerRope,
};
use crate::weights::Weights;

/// The tower and its projector into `width` values, where the checkpoint has one.
///
/// # Errors
/// A key or a tensor that is missing or does not fit.
pub(crate) fn gemma4_tower(config: &Config, w: &Weights, width: i32) -> Result<Option<Tower>> {
    let (Some(vision), Some(tower)) =
        (vision(config)?, w.first_of(&["model.vision_tower", "vision_tower"]))
    else {
        return Ok(None);
    };
    let sizes = TowerSizes::read(&vision, ["num_hidden_layers", "num_attention_heads"])?;
    let TowerSizes { hidden, inner, heads, head_dim, patch, .. } = sizes;
    sizes.expect_turning(4)?;
    expect_activation(&vision, "hidden_activation", &["gelu_pytorch_tanh"])?;
    if vision.opt_size("num_key_value_heads")?.is_some_and(|count| count != heads) {
        return Err(Error::model(
            "config.json: `vision_config`: `num_key_value_heads` differs from `num_attention_heads`",
        ));
    }
    let eps = vision.opt_positive("rms_norm_eps")?.unwrap_or(1e-6) as f32;
    let rope = vision.object("rope_parameters")?;
    let theta = rope.map(|rope| rope.opt_positive("rope_theta")).transpose()?.flatten();
    let places = vision.opt_size("position_embedding_size")?.unwrap_or(10_240);
    tower.leave_buffers();
    let embedder = tower.at("patch_embedder");
    let table = embedder.tensor("position_embedding_table", &[2, places, hidden])?;
    let dtype = table.dtype();
    let projection = embedder.linear("input_proj", 3 * patch * patch, hidden, false)?;
    let block = |index: i32| -> Result<TowerBlock> {
        let w = tower.at(&format!("encoder.layers.{index}"));
        let norm = |name| w.rms_norm(name, hidden, eps);
        let (attention, mlp) = (w.at("self_attn"), w.at("mlp"));
        let into = |name| attention.clipped_linear(name, hidden, sizes.attended());
        let qkv = [into("q_proj")?, into("k_proj")?, into("v_proj")?];
        let head_norms = [
            attention.rms_norm("q_norm", head_dim, eps)?,
            attention.rms_norm("k_norm", head_dim, eps)?,
            attention.plain_rms_norm(head_dim, eps)?,
        ];
        Ok(TowerBlock {
            norms: [
                TowerNorm::Rms(norm("input_layernorm")?),
                TowerNorm::Rms(norm("pre_feedforward_layernorm")?),
            ],
            attention: TowerAttention {
                n_heads: heads,
                qkv: QkvLinears::Separate(Box::new(qkv)),
                norms: Some(head_norms),
                out: attention.clipped_linear("o_proj", sizes.attended(), hidden)?,
                scale: 1.0,
            },
            network: Network::Gated {
                linears: Box::new([
                    mlp.clipped_linear("gate_proj", hidden, inner)?,
                    mlp.clipped_linear("up_proj", hidden, inner)?,
                    mlp.clipped_linear("down_proj", inner, hidden)?,
                ]),
                gate_by: Activation::GeluTanh,
            },
            out_norms: Some([
                norm("post_attention_layernorm")?,
                norm("post_feedforward_layernorm")?,
            ]),
        })
    };
    let blocks = (0..sizes.layers).map(block).collect::<Result<_>>()?;
    let standard = match vision.opt_flag("standardize")?.unwrap_or(false) {
        false => None,
        true => Some([
            tower.tensor_f32("std_bias", &[hidden])?,
            tower.tensor_f32("std_scale", &[hidden])?,
        ]),
    };
    let embed = w.first_of(&["model.embed_vision", "embed_vision"]);
    let embed = embed.unwrap_or_else(|| w.at("model.embed_vision"));
    let exit = Exit::Scaled {
        pool: small_size(&vision, "pooling_kernel_size", 3, 64)?,
        standard,
        norm: embed.plain_rms_norm(hidden, eps)?,
        projection: embed.linear("embedding_projection", hidden, width, false)?,
    };
    let positions = PatchPositions::Axes(table);
    Ok(Some(Tower {
        entry: Entry { projection, positions, norm: None, centres: true, dtype },
        blocks,
        rope: Some(TowerRope { axes: Axes::ColumnsApart, head_dim, theta: theta.unwrap_or(100.0) }),
        windows: None,
        exit,
        deepstack: Vec::new(),
        sizes: [hidden, inner],
        kernels: w.kernels(),
    }))
}
