//! Pixtral, as Mistral 3 has it.

use super::{TowerSizes, expect_activation, vision};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::kernels::Activation;
use crate::layers::{
    Axes, Entry, Exit, Network, PatchPositions, QkvLinears, Tower, TowerAttention, TowerBlock,
    TowerNorm, TowerRope,
};
use crate::weights::Weights;

const EPS: f32 = 1e-5;

/// The tower's names in released checkpoints, converted ones and those of transformers 5.
const TOWERS: [&str; 3] = ["vision_tower.vision_model", "vision_tower", "model.vision_tower"];

/// The tower and its projector into `width` values, whose norm has the text's `eps`, where the
/// checkpoint has one.
///
/// # Errors
/// A key or a tensor that is missing or does not fit.
pub(crate) fn pixtral_tower(
    config: &Config,
    w: &Weights,
    (width, eps): (i32, f32),
) -> Result<Option<Tower>> {
    let (Some(vision), Some(tower)) = (vision(config)?, w.first_of(&TOWERS)) else {
        return Ok(None);
    };
    let sizes = TowerSizes::read(&vision, ["num_hidden_layers", "num_attention_heads"])?;
    let TowerSizes { hidden, inner, heads, head_dim, patch, .. } = sizes;
    sizes.expect_turning(2)?;
    expect_activation(&vision, "hidden_act", &["silu", "gelu"])?;
    // What transformers takes where the config says nothing.
    let gate_by = match vision.opt_text("hidden_act")? {
        Some("silu") => Activation::Silu,
        _ => Activation::Gelu,
    };
    expect_activation(config, "projector_hidden_act", &["gelu"])?;
    if config.get("vision_feature_layer").is_some_and(|layer| layer.as_i64() != Some(-1)) {
        return Err(Error::model(
            "config.json: `vision_feature_layer` is not -1: features of another layer than the last one are not taken",
        ));
    }
    let merge = config.opt_size("spatial_merge_size")?.unwrap_or(2);
    if merge > 16 {
        return Err(Error::model(format!(
            "config.json: `spatial_merge_size` is {merge}, at most 16 are supported"
        )));
    }
    let rope = vision.object("rope_parameters")?;
    let theta = rope.map(|rope| rope.opt_positive("rope_theta")).transpose()?.flatten();
    let theta = theta.or(vision.opt_positive("rope_theta")?).unwrap_or(10_000.0);
    tower.leave_buffers();
    let projection = tower.patch_linear("patch_conv", hidden, &[patch, patch], false)?;
    let norm = tower.rms_norm("ln_pre", hidden, EPS)?;
    let dtype = norm.weight.dtype();
    let block = |index: i32| -> Result<TowerBlock> {
        let w = tower.at(&format!("transformer.layers.{index}"));
        let norm = |name| w.rms_norm(name, hidden, EPS).map(TowerNorm::Rms);
        let (attention, mlp) = (w.at("attention"), w.at("feed_forward"));
        let into = |name| attention.linear(name, hidden, sizes.attended(), false).map(Into::into);
        let qkv = [into("q_proj")?, into("k_proj")?, into("v_proj")?];
        Ok(TowerBlock {
            norms: [norm("attention_norm")?, norm("ffn_norm")?],
            attention: TowerAttention {
                n_heads: heads,
                qkv: QkvLinears::Separate(Box::new(qkv)),
                norms: None,
                out: attention.linear("o_proj", sizes.attended(), hidden, false)?.into(),
                scale: sizes.scale(),
            },
            network: Network::Gated {
                linears: Box::new([
                    mlp.linear("gate_proj", hidden, inner, false)?.into(),
                    mlp.linear("up_proj", hidden, inner, false)?.into(),
                    mlp.linear("down_proj", inner, hidden, false)?.into(),
                ]),
                gate_by,
            },
            out_norms: None,
        })
    };
    let blocks = (0..sizes.layers).map(block).collect::<Result<_>>()?;
    let projector = w
        .first_of(&["multi_modal_projector", "model.multi_modal_projector"])
        .unwrap_or_else(|| w.at("multi_modal_projector"));
    let bias = config.opt_flag("multimodal_projector_bias")?.unwrap_or(false);
    let merger = projector.at("patch_merger");
    let exit = Exit::Unfolded {
        norm: projector.rms_norm("norm", hidden, eps)?,
        merge,
        merging: merger.linear("merging_layer", hidden * merge * merge, hidden, false)?,
        network: [
            projector.linear("linear_1", hidden, width, bias)?,
            projector.linear("linear_2", width, width, bias)?,
        ],
    };
    let norm = Some(TowerNorm::Rms(norm));
    Ok(Some(Tower {
        entry: Entry { projection, positions: PatchPositions::None, norm, centres: false, dtype },
        blocks,
        rope: Some(TowerRope { axes: Axes::Alternating, head_dim, theta }),
        windows: None,
        exit,
        deepstack: Vec::new(),
        sizes: [hidden, inner],
        kernels: w.kernels(),
    }))
}
