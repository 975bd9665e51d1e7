//! Falcon H1: each layer is a Mamba 2 layer and attention side by side, with factors nearly
//! everywhere.

use crate::config::Config;
use crate::error::{Error, Result};
use crate::kernels::Activation;
use crate::layers::{Decoder, Head, MambaSizes, Mlp, Multipliers, SideBySide};
use crate::shape::{
    AttentionParts, MambaParts, NormPlace, Shape, activation, mamba_sizes, step_limits,
};
use crate::weights::Weights;

/// Builds the model under the names of `FalconH1ForCausalLM`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let shape = Shape { final_norm: "final_layernorm", ..Shape::read(config)? };
    let factors = Factors::read(config)?;
    let biases = Biases::read(config)?;
    let model = w.at("model");
    let is_converted = is_converted(&model);
    let factors = match is_converted {
        true => factors.beside_weights(biases)?,
        false => factors,
    };
    let act = activation(config, "hidden_act", Activation::Silu)?;
    if act != Activation::Silu {
        return Err(Error::model("config.json: `hidden_act` is known as silu only"));
    }
    let (sizes, parts) = mamba(config, &shape, biases)?;
    let parts = MambaParts { multipliers: factors.parts, ..parts };
    let rope = config.rope("full_attention", 10_000.0)?;
    // Scores are products with keys, so the keys' factor can be theirs.
    let scale = f64::from(shape.head_dim).sqrt().recip() * factors.key;
    let decoder = shape.decoder(config, w, &model, |w, _| {
        let attention = AttentionParts {
            qkv_bias: biases.attention,
            o_bias: biases.attention,
            scale: Some(scale),
            ..AttentionParts::PLAIN
        };
        let both = SideBySide {
            mamba: shape.mamba(&w.at("mamba"), sizes, parts)?,
            of_mamba: factors.of_mamba,
            attention: shape.attention(&w.at("self_attn"), Some(&rope), attention)?,
            of_attention: factors.of_attention,
        };
        let inner = shape.intermediate_size;
        let mlp = shape.mlp_of(&w.at("feed_forward"), inner, act, biases.mlp)?;
        let mlp = Mlp { multipliers: factors.of_mlp, ..mlp };
        shape.pre_norm_block_named(w, ["input_layernorm", "pre_ff_layernorm"], both, mlp.into())
    })?;
    let logit_scale = match (&decoder.lm_head, is_converted) {
        (_, false) => Some(factors.logits as f32),
        // The factor of embeddings is in the output layer too.
        (Head::Tied, true) => Some((factors.logits / factors.embeddings) as f32),
        (Head::Own(_), true) => None,
    };
    let embed_scale = (!is_converted).then_some(factors.embeddings);
    Ok(Decoder { embed_scale, logit_scale, ..decoder })
}

/// Returns true for weights that mlx-lm converted: their convolutions have the taps first, and most
/// factors are in the weights.
fn is_converted(model: &Weights) -> bool {
    let shape = model.shape("layers.0.mamba.conv1d.weight");
    shape.is_some_and(|shape| shape.last() == Some(&1))
}

/// Which projections have biases.
#[derive(Clone, Copy, Debug)]
struct Biases {
    attention: bool,
    mlp: bool,
    mamba_in: bool,
    mamba_out: bool,
}

impl Biases {
    fn read(config: &Config) -> Result<Biases> {
        let flag = |key| Ok::<_, Error>(config.opt_flag(key)?.unwrap_or(false));
        Ok(Biases {
            attention: flag("attention_bias")?,
            mlp: flag("mlp_bias")?,
            mamba_in: flag("mamba_proj_bias")?,
            mamba_out: flag("projectors_bias")?,
        })
    }
}

/// The factors, as they are applied beside the weights.
#[derive(Clone, Copy, Debug)]
struct Factors {
    embeddings: f64,
    logits: f64,
    key: f64,
    of_attention: Multipliers,
    of_mamba: Multipliers,
    /// Of the parts of `in_proj`'s result.
    parts: Option<[f32; 5]>,
    of_mlp: Option<[f32; 2]>,
}

impl Factors {
    fn read(config: &Config) -> Result<Factors> {
        let factor = |key: &str| Ok::<_, Error>(config.opt_positive(key)?.unwrap_or(1.0));
        let around = |input, output| {
            let [input, output] = [factor(input)? as f32, factor(output)? as f32];
            Ok::<_, Error>(Multipliers { input, output })
        };
        Ok(Factors {
            embeddings: factor("embedding_multiplier")?,
            logits: factor("lm_head_multiplier")?,
            key: factor("key_multiplier")?,
            of_attention: around("attention_in_multiplier", "attention_out_multiplier")?,
            of_mamba: around("ssm_in_multiplier", "ssm_out_multiplier")?,
            parts: config.opt_numbers("ssm_multipliers")?,
            of_mlp: config.opt_numbers("mlp_multipliers")?,
        })
    }

    /// The factors that remain to be applied where the others are in the weights. mlx-lm leaves out
    /// that of keys, and that of attention's input for values.
    ///
    /// # Errors
    /// Biases, into which mlx-lm puts no factor.
    fn beside_weights(self, biases: Biases) -> Result<Factors> {
        let Biases { attention, mlp, mamba_in, mamba_out } = biases;
        if attention || mlp || mamba_in || mamba_out {
            return Err(Error::model(
                "biases of Falcon H1 are not supported in a converted checkpoint, whose factors are in the weights alone; load the released one",
            ));
        }
        let none = Multipliers { input: 1.0, output: 1.0 };
        // Attention is linear in its values.
        let of_attention = Multipliers { output: self.of_attention.input, ..none };
        Ok(Factors { of_attention, of_mamba: none, parts: None, of_mlp: None, ..self })
    }
}

/// The Mamba 2 layers that `config` states.
fn mamba(config: &Config, shape: &Shape, biases: Biases) -> Result<(MambaSizes, MambaParts)> {
    let expand = config.opt_size("mamba_expand")?.unwrap_or(2);
    let inner = match config.opt_size("mamba_d_ssm")? {
        Some(inner) => i64::from(inner),
        None => i64::from(expand) * i64::from(shape.hidden_size),
    };
    let has_norm = config.opt_flag("mamba_rms_norm")?.unwrap_or(false);
    let norm = match (has_norm, config.opt_flag("mamba_norm_before_gate")?.unwrap_or(true)) {
        (false, _) => NormPlace::None,
        (true, false) => NormPlace::BehindGate,
        (true, true) => NormPlace::BeforeGate,
    };
    let parts = MambaParts {
        in_bias: biases.mamba_in,
        out_bias: biases.mamba_out,
        convolution_bias: config.opt_flag("mamba_conv_bias")?.unwrap_or(true),
        norm,
        limits: step_limits(config)?,
        multipliers: None,
    };
    Ok((mamba_sizes(config, inner)?, parts))
}
