//! Gemma 3n: several residual streams, of which a layer computes one; a projection of low rank
//! beside attention; an input of its own for each layer; sparse activations in the first layers,
//! and no keys in the last ones.

use crate::config::Config;
use crate::error::{Error, Result};
use crate::kernels::Activation;
use crate::layers::{AltUp, Decoder, Laurel, LayerInput, Residual, Streams};
use crate::shape::{
    AttentionParts, Language, NormSpan, Shape, Values, activation, gemma3n_ears, sharing, windows,
};
use crate::weights::Weights;

/// Builds `Gemma3nForConditionalGeneration`; what sees is left aside.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let ears = gemma3n_ears(config, w, Language::width(config)?)?;
    let Language { config, head, model } = Language::of_speech(config, w)?;
    Ok(Decoder { ears, ..build(&config, &head, &model)? })
}

/// Builds `Gemma3nForCausalLM`, the language model by itself.
pub(super) fn load_text(config: &Config, w: &Weights) -> Result<Decoder> {
    build(config, w, &w.at("model"))
}

/// Builds the model with its blocks under `model` and its output layer under `w`. Keys that the
/// config leaves out have the defaults of transformers' `Gemma3nTextConfig`.
fn build(config: &Config, w: &Weights, model: &Weights) -> Result<Decoder> {
    let config = &config.with_defaults(&[
        ("num_attention_heads", 8),
        ("num_key_value_heads", 2),
        ("head_dim", 256),
        ("vocab_size", 262_400),
        ("vocab_size_per_layer_input", 262_144),
        ("max_position_embeddings", 32_768),
        ("sliding_window", 512),
        ("num_kv_shared_layers", 15),
        ("hidden_size_per_layer_input", 256),
        ("altup_num_inputs", 4),
        ("laurel_rank", 64),
    ]);
    let layers = config.size("num_hidden_layers")?;
    let widths = widths(config, layers)?;
    let widest = widths.iter().copied().max().unwrap_or(1);
    let shape = Shape::read(&config.with_size("intermediate_size", widest))?;
    let (global, local) = (config.rope("full_attention", 1_000_000.0)?, config.local_rope()?);
    let act = activation(config, "hidden_activation", Activation::GeluTanh)?;
    let activations = activations(config, layers, act)?;
    let bias = config.opt_flag("attention_bias")?.unwrap_or(false);
    let softcap = config.nullable_positive("final_logit_softcapping", Some(30.0))?;
    let window = config.size("sliding_window")?;
    let windows = windows(config, layers, Some(window), |index| (index + 1) % 5 != 0)?;
    let sharing = sharing(&windows, config.opt_index("num_kv_shared_layers")?.unwrap_or(0))?;
    let input_size = config.size("hidden_size_per_layer_input")?;
    let streams = StreamSizes::read(config)?;
    let decoder = shape.decoder(config, w, model, |w, index| {
        let parts = AttentionParts {
            qkv_bias: bias,
            o_bias: bias,
            qk_norms: NormSpan::Head,
            scale: Some(1.0),
            window: windows[index],
            values: Values::Normed,
            sharing: sharing[index],
            ..AttentionParts::PLAIN
        };
        let rope = if windows[index].is_some() { &local } else { &global };
        let attention = shape.attention(&w.at("self_attn"), Some(rope), parts)?;
        let mlp = shape.mlp_of(&w.at("mlp"), widths[index], activations[index], false)?;
        let mut block = shape.sandwich_block(w, attention, mlp.into())?;
        let input = shape.layer_input(w, input_size, act)?;
        block.residual = Residual::AltUp(Box::new(streams.altup(config, &shape, w, input)?));
        Ok(block)
    })?;
    Ok(Decoder {
        embed_scale: Some(f64::from(shape.hidden_size).sqrt()),
        logit_softcap: softcap.map(|softcap| softcap as f32),
        layer_inputs: Some(shape.layer_inputs(config, model, input_size)?),
        streams: Some(streams.ends(&shape, model)?),
        ..decoder
    })
}

/// Values between the projections of each layer's feed-forward network: one number, or one for
/// each.
fn widths(config: &Config, layers: i32) -> Result<Vec<i32>> {
    const KEY: &str = "intermediate_size";
    if !config.get(KEY).is_some_and(serde_json::Value::is_array) {
        return Ok(vec![config.size(KEY)?; layers as usize]);
    }
    let widths = config.opt_indices(KEY)?.unwrap_or_default();
    let width = |width: u64| i32::try_from(width).ok().filter(|width| *width > 0);
    let widths: Option<Vec<i32>> = widths.into_iter().map(width).collect();
    let fits = widths.filter(|widths| widths.len() == layers as usize);
    fits.ok_or_else(|| {
        Error::model(format!("config.json: `{KEY}` is no list of {layers} sizes from 1 on"))
    })
}

/// The activation of each layer: of some, all but the largest part of the gate is 0.
fn activations(config: &Config, layers: i32, dense: Activation) -> Result<Vec<Activation>> {
    const KEY: &str = "activation_sparsity_pattern";
    let layers = layers as usize;
    let parts = config.opt_list_of_numbers(KEY)?.unwrap_or_else(|| {
        let sparse = if layers > 10 { 10 } else { 0 };
        (0..layers).map(|layer| if layer < sparse { 0.95 } else { 0.0 }).collect()
    });
    if parts.len() != layers || !parts.iter().all(|part| (0.0..1.0).contains(part)) {
        return Err(Error::model(format!(
            "config.json: `{KEY}` is no list of {layers} numbers from 0 on and below 1"
        )));
    }
    if dense != Activation::GeluTanh && parts.iter().any(|part| *part > 0.0) {
        return Err(Error::model(format!(
            "config.json: `{KEY}` goes with the activation gelu_pytorch_tanh only"
        )));
    }
    let activation = |part| match part {
        0.0 => Ok(dense),
        part => Ok(Activation::sparse_gelu(part)?),
    };
    parts.into_iter().map(activation).collect()
}

/// How many residual streams there are.
struct StreamSizes {
    count: i32,
    active: i32,
}

impl StreamSizes {
    fn read(config: &Config) -> Result<StreamSizes> {
        let count = config.size("altup_num_inputs")?;
        let active = config.opt_index("altup_active_idx")?.unwrap_or(0);
        if !(2..=64).contains(&count) || active >= count {
            return Err(Error::model(format!(
                "config.json: `altup_num_inputs` is {count} and `altup_active_idx` {active}, expected 2 to 64 streams and one of these"
            )));
        }
        Ok(StreamSizes { count, active })
    }

    /// How the layer under `w` adds to the streams.
    fn altup(
        &self,
        config: &Config,
        shape: &Shape,
        w: &Weights,
        input: LayerInput,
    ) -> Result<AltUp> {
        let (n, hidden, eps) = (self.count, shape.hidden_size, shape.rms_norm_eps);
        let limit = config.nullable_positive("altup_coef_clip", Some(120.0))?;
        let (altup, laurel) = (w.at("altup"), w.at("laurel"));
        let rank = config.size("laurel_rank")?;
        let is_scaled = config.opt_flag("altup_correct_scale")?.unwrap_or(true);
        let output_scale = altup.tensor("correct_output_scale", &[hidden])?;
        Ok(AltUp {
            streams: n,
            active: self.active,
            router_norm: altup.rms_norm("router_norm", hidden, eps)?,
            router: altup.linear("modality_router", hidden, n, false)?,
            prediction: altup.clipped("prediction_coefs", &[n * n, n], limit)?,
            correction: altup.clipped("correction_coefs", &[n, n], limit)?,
            output_scale: is_scaled.then_some(output_scale),
            laurel: Laurel {
                left: laurel.linear("linear_left", hidden, rank, false)?,
                right: laurel.linear("linear_right", rank, hidden, false)?,
                norm: laurel.rms_norm("post_laurel_norm", hidden, eps)?,
                kernels: w.kernels(),
            },
            input,
        })
    }

    /// The projections before the first layer and behind the last one.
    fn ends(&self, shape: &Shape, model: &Weights) -> Result<Streams> {
        let hidden = shape.hidden_size;
        let projections = |name: &str| -> Result<Vec<_>> {
            let linear =
                |index: i32| model.linear(&format!("{name}.{index}"), hidden, hidden, false);
            (0..self.count - 1).map(linear).collect()
        };
        Ok(Streams {
            projections: projections("altup_projections")?,
            unembed_projections: projections("altup_unembed_projections")?,
        })
    }
}
