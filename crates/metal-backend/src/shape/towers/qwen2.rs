//! The towers of Qwen 2 VL and of Qwen 2.5 VL.

use super::qwen::TOWERS;
use super::{TowerSizes, expect_activation, expect_width, small_size, vision};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::kernels::Activation;
use crate::layers::{
    Axes, Entry, Exit, Linear, Merger, Network, PatchPositions, QkvLinears, Tower, TowerAttention,
    TowerBlock, TowerNorm, TowerRope, Windows,
};
use crate::weights::Weights;

const EPS: f32 = 1e-6;

/// The most values of a tower between the projections of a network of Qwen 2 VL, over its width.
const MAX_RATIO: i32 = 64;

/// Sizes where a config does not state them.
const DEFAULTS: [(&str, i64); 3] = [("depth", 32), ("num_heads", 16), ("patch_size", 14)];

/// The tower of Qwen 2 VL, which leads to `width` values, where the checkpoint has one.
///
/// # Errors
/// A key or a tensor that is missing or does not fit.
pub(crate) fn qwen2_tower(config: &Config, w: &Weights, width: i32) -> Result<Option<Tower>> {
    let (Some(vision), Some(w)) = (vision(config)?, w.first_of(&TOWERS)) else {
        return Ok(None);
    };
    expect_activation(&vision, "hidden_act", &["quick_gelu"])?;
    // What others call so is the language model's here.
    expect_width(&vision, "hidden_size", width)?;
    let hidden = vision.opt_size("embed_dim")?.unwrap_or(1280);
    let ratio = small_size(&vision, "mlp_ratio", 4, MAX_RATIO)?;
    let vision = vision.with_size("hidden_size", hidden);
    let vision = vision.with_size("intermediate_size", hidden.saturating_mul(ratio));
    let parts = Parts::read(&vision, &w, layer_norm)?;
    let network = |w: &Weights| {
        let TowerSizes { hidden, inner, .. } = parts.sizes;
        let linears =
            [w.linear("fc1", hidden, inner, true)?, w.linear("fc2", inner, hidden, true)?];
        Ok(Network::Plain { linears: Box::new(linears), act: Activation::QuickGelu })
    };
    parts.tower(network, None, width).map(Some)
}

/// The tower of Qwen 2.5 VL, which leads to `width` values, where the checkpoint has one.
///
/// # Errors
/// A key or a tensor that is missing or does not fit.
pub(crate) fn qwen2_5_tower(config: &Config, w: &Weights, width: i32) -> Result<Option<Tower>> {
    let (Some(vision), Some(w)) = (vision(config)?, w.first_of(&TOWERS)) else {
        return Ok(None);
    };
    expect_activation(&vision, "hidden_act", &["silu"])?;
    expect_width(&vision, "out_hidden_size", width)?;
    let vision = vision.with_defaults(&[("hidden_size", 3584), ("intermediate_size", 3420)]);
    let parts = Parts::read(&vision, &w, rms_norm)?;
    let network = |w: &Weights| {
        let TowerSizes { hidden, inner, .. } = parts.sizes;
        let linears = [
            w.linear("gate_proj", hidden, inner, true)?.into(),
            w.linear("up_proj", hidden, inner, true)?.into(),
            w.linear("down_proj", inner, hidden, true)?.into(),
        ];
        Ok(Network::Gated { linears: Box::new(linears), gate_by: Activation::Silu })
    };
    parts.tower(network, Some(windows(&vision, &parts)?), width).map(Some)
}

fn layer_norm(w: &Weights, name: &str, size: i32) -> Result<TowerNorm> {
    w.layer_norm(name, size, EPS).map(TowerNorm::Layer)
}

fn rms_norm(w: &Weights, name: &str, size: i32) -> Result<TowerNorm> {
    w.rms_norm(name, size, EPS).map(TowerNorm::Rms)
}

/// The windows that `vision` states.
fn windows(vision: &Config, parts: &Parts<'_>) -> Result<Windows> {
    const WHOLE: &str = "fullatt_block_indexes";
    let TowerSizes { patch, layers, .. } = parts.sizes;
    let pixels = vision.opt_size("window_size")?.unwrap_or(112);
    let side = pixels / parts.merge / patch;
    if side < 1 {
        return Err(Error::model(format!(
            "config.json: `vision_config`: `window_size` is {pixels}, expected at least {}, the side of {} patches",
            parts.merge * patch,
            parts.merge
        )));
    }
    let whole = vision.opt_indices(WHOLE)?.unwrap_or_else(|| vec![7, 15, 23, 31]);
    if let Some(block) = whole.iter().find(|block| **block >= layers as u64)
        && vision.get(WHOLE).is_some()
    {
        return Err(Error::model(format!(
            "config.json: `vision_config`: `{WHOLE}` has {block}, expected a block below `depth` {layers}"
        )));
    }
    Ok(Windows { side, whole: whole.into_iter().map(|block| block as usize).collect() })
}

/// Parts that both towers have.
struct Parts<'a> {
    w: &'a Weights,
    sizes: TowerSizes,
    merge: i32,
    frames: i32,
    theta: f64,
    /// Builds the norm of this name and size.
    norm: fn(&Weights, &str, i32) -> Result<TowerNorm>,
}

impl Parts<'_> {
    /// Reads what `vision` states of a tower whose tensors are under `w`.
    fn read<'a>(
        vision: &Config,
        w: &'a Weights,
        norm: fn(&Weights, &str, i32) -> Result<TowerNorm>,
    ) -> Result<Parts<'a>> {
        let vision = vision.with_defaults(&DEFAULTS);
        let sizes = TowerSizes::read(&vision, ["depth", "num_heads"])?;
        sizes.expect_turning(4)?;
        if sizes.attended() != sizes.hidden {
            return Err(Error::model(format!(
                "config.json: `vision_config`: {} heads of {} values are not {} values",
                sizes.heads, sizes.head_dim, sizes.hidden
            )));
        }
        let merge = small_size(&vision, "spatial_merge_size", 2, 16)?;
        let frames = small_size(&vision, "temporal_patch_size", 2, 16)?;
        let rope = vision.object("rope_parameters")?;
        let theta = rope.map(|rope| rope.opt_positive("rope_theta")).transpose()?.flatten();
        Ok(Parts { w, sizes, merge, frames, theta: theta.unwrap_or(10_000.0), norm })
    }

    /// The tower, whose blocks have the networks that `network` builds.
    fn tower(
        &self,
        network: impl Fn(&Weights) -> Result<Network>,
        windows: Option<Windows>,
        width: i32,
    ) -> Result<Tower> {
        let TowerSizes { hidden, inner, layers, head_dim, .. } = self.sizes;
        self.w.leave_buffers();
        let projection = self.projection()?;
        let block = |index: i32| self.block(&self.w.at(&format!("blocks.{index}")), &network);
        let blocks: Vec<TowerBlock> = (0..layers).map(block).collect::<Result<_>>()?;
        let many = self.merge * self.merge * hidden;
        let merger = self.w.at("merger");
        let exit = Merger {
            norm: (self.norm)(&merger, "ln_q", hidden)?,
            norms_squares: false,
            merge: self.merge,
            network: [
                merger.linear("mlp.0", many, many, true)?,
                merger.linear("mlp.2", many, width, true)?,
            ],
        };
        let dtype = match &exit.norm {
            TowerNorm::Layer(norm) => norm.weight.dtype(),
            TowerNorm::Rms(norm) => norm.weight.dtype(),
        };
        let positions = PatchPositions::None;
        Ok(Tower {
            entry: Entry { projection, positions, norm: None, centres: false, dtype },
            blocks,
            rope: Some(TowerRope { axes: Axes::RowsThenColumns, head_dim, theta: self.theta }),
            windows,
            exit: Exit::Merged(exit),
            deepstack: Vec::new(),
            sizes: [hidden, inner.max(many)],
            kernels: self.w.kernels(),
        })
    }

    fn projection(&self) -> Result<Linear> {
        let TowerSizes { hidden, patch, .. } = self.sizes;
        let kernel = [self.frames, patch, patch];
        self.w.at("patch_embed").patch_linear("proj", hidden, &kernel, false)
    }

    fn block(
        &self,
        w: &Weights,
        network: &impl Fn(&Weights) -> Result<Network>,
    ) -> Result<TowerBlock> {
        let TowerSizes { hidden, heads, .. } = self.sizes;
        let attention = w.at("attn");
        Ok(TowerBlock {
            norms: [(self.norm)(w, "norm1", hidden)?, (self.norm)(w, "norm2", hidden)?],
            attention: TowerAttention {
                n_heads: heads,
                qkv: QkvLinears::Joined(attention.linear("qkv", hidden, 3 * hidden, true)?),
                norms: None,
                out: attention.linear("proj", hidden, hidden, true)?.into(),
                scale: self.sizes.scale(),
            },
            network: network(&w.at("mlp"))?,
            out_norms: None,
        })
    }
}
