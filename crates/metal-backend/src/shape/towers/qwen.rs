//! The tower of Qwen 3.5 and of Qwen 3 VL.

use super::{TowerSizes, expect_activation, expect_width, small_size, vision};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::kernels::Activation;
use crate::layers::{
    Axes, Entry, Exit, Merger, Network, PatchPositions, QkvLinears, Tower, TowerAttention,
    TowerBlock, TowerNorm, TowerRope,
};
use crate::weights::Weights;

/// The tower's names in checkpoints of all programs.
pub(super) const TOWERS: [&str; 4] =
    ["model.visual", "visual", "vision_tower", "model.vision_tower"];
const EPS: f32 = 1e-6;

/// The tower, which leads to `width` values, where the checkpoint has one.
///
/// # Errors
/// A key or a tensor that is missing or does not fit.
pub(crate) fn qwen_tower(config: &Config, w: &Weights, width: i32) -> Result<Option<Tower>> {
    let (Some(vision), Some(tower)) = (vision(config)?, w.first_of(&TOWERS)) else {
        return Ok(None);
    };
    let sizes = TowerSizes::read(&vision, ["depth", "num_heads"])?;
    let TowerSizes { hidden, inner, heads, patch, .. } = sizes;
    sizes.expect_turning(4)?;
    expect_activation(&vision, "hidden_act", &["gelu_pytorch_tanh"])?;
    let merge = small_size(&vision, "spatial_merge_size", 2, 16)?;
    let frames = small_size(&vision, "temporal_patch_size", 2, 16)?;
    expect_width(&vision, "out_hidden_size", width)?;
    let count = vision.opt_size("num_position_embeddings")?.unwrap_or(2304);
    let side = f64::from(count).sqrt() as i32;
    if side * side != count {
        return Err(Error::model(format!(
            "config.json: `vision_config`: `num_position_embeddings` {count} is no square"
        )));
    }
    tower.leave_buffers();
    let table = tower.table("pos_embed", count, hidden)?;
    let dtype = table.dtype();
    let projection =
        tower.at("patch_embed").patch_linear("proj", hidden, &[frames, patch, patch], true)?;
    let block = |index: i32| -> Result<TowerBlock> {
        let w = tower.at(&format!("blocks.{index}"));
        let norm = |name| w.layer_norm(name, hidden, EPS).map(TowerNorm::Layer);
        let (attention, mlp) = (w.at("attn"), w.at("mlp"));
        Ok(TowerBlock {
            norms: [norm("norm1")?, norm("norm2")?],
            attention: TowerAttention {
                n_heads: heads,
                qkv: QkvLinears::Joined(attention.linear("qkv", hidden, 3 * hidden, true)?),
                norms: None,
                out: attention.linear("proj", hidden, hidden, true)?.into(),
                scale: sizes.scale(),
            },
            network: Network::Plain {
                linears: Box::new([
                    mlp.linear("linear_fc1", hidden, inner, true)?,
                    mlp.linear("linear_fc2", inner, hidden, true)?,
                ]),
                act: Activation::GeluTanh,
            },
            out_norms: None,
        })
    };
    let blocks = (0..sizes.layers).map(block).collect::<Result<_>>()?;
    let many = merge * merge * hidden;
    let merger = |w: &Weights, norms_squares: bool| -> Result<Merger> {
        let normed = if norms_squares { many } else { hidden };
        Ok(Merger {
            norm: TowerNorm::Layer(w.layer_norm("norm", normed, EPS)?),
            norms_squares,
            merge,
            network: [
                w.linear("linear_fc1", many, many, true)?,
                w.linear("linear_fc2", many, width, true)?,
            ],
        })
    };
    let mergers = tower.at("deepstack_merger_list");
    let deepstack = deepstack_blocks(&vision, &mergers, sizes.layers)?
        .into_iter()
        .map(|(block, index)| Ok((block, merger(&mergers.at(&index.to_string()), true)?)))
        .collect::<Result<_>>()?;
    let positions = PatchPositions::Between { table, side };
    Ok(Some(Tower {
        entry: Entry { projection, positions, norm: None, centres: false, dtype },
        blocks,
        rope: Some(TowerRope {
            axes: Axes::RowsThenColumns,
            head_dim: sizes.head_dim,
            theta: 10_000.0,
        }),
        windows: None,
        exit: Exit::Merged(merger(&tower.at("merger"), false)?),
        deepstack,
        sizes: [hidden, inner.max(many)],
        kernels: w.kernels(),
    }))
}

/// The blocks behind which features are made for the language model's first layers, in their order,
/// each with the index of its merger among `mergers`.
fn deepstack_blocks(vision: &Config, mergers: &Weights, depth: i32) -> Result<Vec<(usize, usize)>> {
    const KEY: &str = "deepstack_visual_indexes";
    let blocks = match vision.opt_indices(KEY)? {
        Some(blocks) => blocks,
        None if mergers.is_empty() => Vec::new(),
        // As transformers has it.
        None => vec![8, 16, 24],
    };
    if let Some(block) = blocks.iter().find(|block| **block >= depth as u64) {
        return Err(Error::model(format!(
            "config.json: `vision_config`: `{KEY}` has {block}, expected a block below `depth` {depth}"
        )));
    }
    let indexed = blocks.iter().enumerate().map(|(index, block)| (*block as usize, index));
    let mut blocks: Vec<(usize, usize)> = indexed.collect();
    blocks.sort_unstable();
    Ok(blocks)
}
