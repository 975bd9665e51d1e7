//! SigLIP, as Gemma 3 has it.

use super::{TowerSizes, expect_activation, small_size, vision};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::kernels::Activation;
use crate::layers::{
    Entry, Exit, Network, PatchPositions, QkvLinears, Tower, TowerAttention, TowerBlock, TowerNorm,
};
use crate::weights::{Linears, Weights};

/// The tower's names in released checkpoints, those of transformers 5 and converted ones.
const TOWERS: [&str; 4] = [
    "vision_tower.vision_model",
    "model.vision_tower.vision_model",
    "vision_tower",
    "model.vision_tower",
];

/// The tower of Gemma 3 and its projector into `width` values, where the checkpoint has one.
///
/// # Errors
/// A key or a tensor that is missing or does not fit.
pub(crate) fn siglip_tower(config: &Config, w: &Weights, width: i32) -> Result<Option<Tower>> {
    let (Some(vision), Some(tower)) = (vision(config)?, w.first_of(&TOWERS)) else {
        return Ok(None);
    };
    let vision = vision.with_defaults(&[("image_size", 896), ("patch_size", 14)]);
    let sizes = TowerSizes::read(&vision, ["num_hidden_layers", "num_attention_heads"])?;
    let TowerSizes { hidden, inner, heads, patch, .. } = sizes;
    expect_activation(&vision, "hidden_act", &["gelu_pytorch_tanh"])?;
    let eps = vision.opt_positive("layer_norm_eps")?.unwrap_or(1e-6) as f32;
    let side = small_size(&vision, "image_size", 896, 1 << 14)? / patch;
    let tokens = config.opt_size("mm_tokens_per_image")?.unwrap_or(256);
    let pool = side / (f64::from(tokens).sqrt() as i32).max(1);
    if pool == 0 {
        return Err(Error::model(format!(
            "config.json: `mm_tokens_per_image` is {tokens}, more than the {side} × {side} patches of a picture"
        )));
    }
    // A head that tells pictures apart is part of some checkpoints, and of no use here.
    tower.ignore_modules(&["head"]);
    tower.leave_buffers();
    let embeddings = tower.at("embeddings");
    let table = embeddings.table("position_embedding", side * side, hidden)?;
    let dtype = table.dtype();
    let projection = embeddings.patch_linear("patch_embedding", hidden, &[patch, patch], true)?;
    let block = |index: i32| -> Result<TowerBlock> {
        let w = tower.at(&format!("encoder.layers.{index}"));
        let norm = |name| w.layer_norm(name, hidden, eps).map(TowerNorm::Layer);
        let attention = w.at("self_attn");
        let parts = ["q_proj", "k_proj", "v_proj"].map(|name| (name, hidden));
        let qkv = match attention.linears(parts, hidden, true)? {
            Linears::Joined(linear) => QkvLinears::Joined(linear),
            Linears::Separate(linears) => QkvLinears::Separate(Box::new(linears.map(Into::into))),
        };
        let mlp = w.at("mlp");
        let network =
            [mlp.linear("fc1", hidden, inner, true)?, mlp.linear("fc2", inner, hidden, true)?];
        Ok(TowerBlock {
            norms: [norm("layer_norm1")?, norm("layer_norm2")?],
            attention: TowerAttention {
                n_heads: heads,
                qkv,
                norms: None,
                out: attention.linear("out_proj", hidden, hidden, true)?.into(),
                scale: sizes.scale(),
            },
            network: Network::Plain { linears: Box::new(network), act: Activation::GeluTanh },
            out_norms: None,
        })
    };
    let blocks = (0..sizes.layers).map(block).collect::<Result<_>>()?;
    let projector = w
        .first_of(&["multi_modal_projector", "model.multi_modal_projector"])
        .unwrap_or_else(|| w.at("multi_modal_projector"));
    let exit = Exit::Pooled {
        last_norm: TowerNorm::Layer(tower.layer_norm("post_layernorm", hidden, eps)?),
        pool,
        norm: projector.offset_rms_norm("mm_soft_emb_norm", hidden, eps)?,
        projection: projector.turned_linear("mm_input_projection_weight", hidden, width)?,
    };
    let positions = PatchPositions::Grid(table);
    let entry = Entry { projection, positions, norm: None, centres: false, dtype };
    let kernels = w.kernels();
    Ok(Some(Tower {
        entry,
        blocks,
        rope: None,
        windows: None,
        exit,
        deepstack: Vec::new(),
        sizes: [hidden, inner],
        kernels,
    }))
}
