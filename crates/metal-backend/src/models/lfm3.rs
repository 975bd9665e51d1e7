//! LFM 3: short convolutions beside gated attention, which sees a window in half of its layers, and
//! norms before and behind both halves of a block.

use crate::config::{Config, RopeConfig, RopePairs, RopeScaling};
use crate::error::{Error, Result};
use crate::kernels::Activation;
use crate::layers::{Attention, Decoder, Mixer, OutputGate};
use crate::shape::{AttentionParts, ExpertNames, NormSpan, Shape};
use crate::weights::Weights;

/// Builds the model under the names of `Lfm3ForCausalLM`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let config = &config.with_defaults(&[("head_dim", 128)]);
    let shape = Shape {
        rms_norm_eps: config.opt_positive("norm_eps")?.unwrap_or(1e-5) as f32,
        final_norm: "embedding_norm",
        ..Shape::read(config)?
    };
    let kinds = kinds(config, shape.num_hidden_layers)?;
    let attention = Gated::read(config)?;
    let taps = config.opt_size("conv_L_cache")?.unwrap_or(7);
    if taps > 64 || shape.hidden_size > i32::MAX / 6 {
        return Err(Error::model("config.json: `conv_L_cache` or `hidden_size` is too large"));
    }
    let conv_bias = config.opt_flag("conv_bias")?.unwrap_or(false);
    let has_norms_behind = config.opt_flag("use_sandwich_norm")?.unwrap_or(true);
    let inner = shape.intermediate_size;
    shape.decoder(config, w, &w.at("model"), |w, index| {
        let mixer: Mixer = match kinds[index] {
            Kind::Convolution => shape.short_convolution(&w.at("conv"), taps, conv_bias)?.into(),
            kind => attention.build(&shape, &w.at("self_attn"), kind)?.into(),
        };
        let feed = w.at("feed_forward");
        // mlx-lm gives the projections of such networks the usual names.
        let names = match feed.at("w1").is_empty() {
            true => ExpertNames::PROJ,
            false => ExpertNames::NUMBERED,
        };
        let mlp = shape.mlp_named(&feed, names, inner, Activation::Silu, false)?.into();
        if !has_norms_behind {
            return shape.pre_norm_block_named(w, ["operator_norm", "ffn_norm"], mixer, mlp);
        }
        let names = ["operator_norm", "post_operator_norm", "ffn_norm", "post_ffn_norm"];
        shape.sandwich_block_named(w, names, mixer, mlp)
    })
}

/// The mixer of a layer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Convolution,
    /// Attention with a window.
    Near,
    /// Attention to everything.
    Far,
}

/// The mixer of each layer.
fn kinds(config: &Config, layers: i32) -> Result<Vec<Kind>> {
    const KEY: &str = "layer_types";
    let Some(types) = config.opt_texts(KEY)? else {
        let usual = |index: i32| match index % 4 {
            2 => Kind::Far,
            0 if index > 0 => Kind::Near,
            _ => Kind::Convolution,
        };
        return Ok((0..layers).map(usual).collect());
    };
    if types.len() != layers as usize {
        return Err(Error::model(format!(
            "config.json: `{KEY}` has {} entries for {layers} layers",
            types.len()
        )));
    }
    let kind = |name: &str| match name {
        "conv" => Ok(Kind::Convolution),
        "sliding_attention" => Ok(Kind::Near),
        "full_attention" => Ok(Kind::Far),
        other => Err(Error::model(format!(
            "config.json: `{KEY}` names `{other}`, known are conv, sliding_attention, full_attention"
        ))),
    };
    types.into_iter().map(kind).collect()
}

/// Attention whose output a gate of each head scales.
struct Gated {
    near: RopeConfig,
    far: RopeConfig,
    window: i32,
    bias: bool,
    has_gate: bool,
}

impl Gated {
    fn read(config: &Config) -> Result<Gated> {
        let is_stated = config.object("rope_parameters")?.is_some();
        let far = RopeConfig {
            theta: 1_000_000.0,
            scaling: RopeScaling::Proportional { part: 0.5, factor: 1.0 },
            partial_rotary_factor: 1.0,
            pairs: RopePairs::Halves,
            sections: None,
        };
        Ok(Gated {
            near: config.partial_rope("sliding_attention", 10_000.0)?,
            far: match is_stated {
                true => config.partial_rope("full_attention", 1_000_000.0)?,
                false => far,
            },
            window: config.opt_size("sliding_window")?.unwrap_or(256),
            bias: config.opt_flag("attention_bias")?.unwrap_or(false),
            has_gate: config.opt_flag("use_attention_gate")?.unwrap_or(true),
        })
    }

    fn build(&self, shape: &Shape, w: &Weights, kind: Kind) -> Result<Attention> {
        let is_near = kind == Kind::Near;
        let parts = AttentionParts {
            qkv_bias: self.bias,
            o_bias: self.bias,
            qk_norms: NormSpan::Head,
            window: is_near.then_some(self.window),
            // The gate of its output is one for all heads.
            is_whole: self.has_gate,
            ..AttentionParts::PLAIN
        };
        let rope = if is_near { &self.near } else { &self.far };
        let attention = shape.attention(w, Some(rope), parts)?;
        if !self.has_gate {
            return Ok(attention);
        }
        // The first of these names is that of releases.
        let name = if w.at("gate_proj").is_empty() { "g_proj" } else { "gate_proj" };
        let heads = shape.num_attention_heads;
        let gate = OutputGate::Sigmoid(w.linear(name, shape.hidden_size, heads, false)?);
        Ok(Attention { gate, ..attention })
    }
}
