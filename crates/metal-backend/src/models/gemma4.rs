//! Gemma 4: layers with a window beside ones whose heads are larger and may have their keys as
//! values. The small models give each layer an input of its own, and the last layers no keys. The
//! largest has a mixture of experts beside each dense network.

use crate::config::{Config, RopeConfig, RopePairs, RopeScaling};
use crate::error::{Error, Result};
use crate::kernels::Activation;
use crate::layers::{
    Decoder, DenseAndMoe, Ending, FeedForward, LayerScale, Mlp, Moe, Routing, Sharing,
};
use crate::shape::{
    AttentionParts, ExpertNames, Experts, Language, NormSpan, Shape, Values, activation,
    gemma4_ears, gemma4_tower, sharing, windows,
};
use crate::weights::Weights;

/// Builds `Gemma4ForConditionalGeneration`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let width = Language::width(config)?;
    let (tower, ears) = (gemma4_tower(config, w, width)?, gemma4_ears(config, w, width)?);
    let Language { config, head, model } = Language::of_speech(config, w)?;
    Ok(Decoder { tower, ears, ..build(&config, &head, &model)? })
}

/// Builds the language model of `Gemma4UnifiedForConditionalGeneration`; what sees and hears
/// without a tower is left aside.
pub(super) fn load_unified(config: &Config, w: &Weights) -> Result<Decoder> {
    let Language { config, head, model } = Language::of_speech(config, w)?;
    build(&of_unified(&config), &head, &model)
}

/// Builds `Gemma4UnifiedForCausalLM`, the language model by itself.
pub(super) fn load_unified_text(config: &Config, w: &Weights) -> Result<Decoder> {
    build(&of_unified(config), w, &w.at("model"))
}

/// The config with the defaults of transformers' `Gemma4UnifiedTextConfig`.
fn of_unified(config: &Config) -> Config {
    config.with_defaults(&[
        // Layers have no inputs of their own.
        ("hidden_size_per_layer_input", 0),
        ("max_position_embeddings", 262_144),
        ("sliding_window", 1024),
    ])
}

/// Builds `Gemma4ForCausalLM`, the language model by itself.
pub(super) fn load_text(config: &Config, w: &Weights) -> Result<Decoder> {
    build(config, w, &w.at("model"))
}

/// Builds the model with its blocks under `model` and its output layer under `w`. Keys that the
/// config leaves out have the defaults of transformers' `Gemma4TextConfig`.
fn build(config: &Config, w: &Weights, model: &Weights) -> Result<Decoder> {
    let config = &far_sizes(config)?.with_defaults(&[
        ("num_attention_heads", 8),
        ("num_key_value_heads", 4),
        ("head_dim", 256),
        ("global_head_dim", 512),
        ("vocab_size", 262_144),
        ("max_position_embeddings", 131_072),
        ("sliding_window", 512),
        ("hidden_size_per_layer_input", 256),
    ]);
    refuse_what_is_not_supported(config)?;
    let near = Shape::read(config)?;
    let keys_are_values = config.opt_flag("attention_k_eq_v")?.unwrap_or(false);
    let far_heads = config.opt_size("num_global_key_value_heads")?.filter(|_| keys_are_values);
    let far = Shape {
        head_dim: config.opt_size("global_head_dim")?.unwrap_or(near.head_dim),
        num_key_value_heads: far_heads.unwrap_or(near.num_key_value_heads),
        ..near.clone()
    };
    far.check()?;
    let (local, global) = (config.partial_rope("sliding_attention", 10_000.0)?, far_rope(config)?);
    let act = activation(config, "hidden_activation", Activation::GeluTanh)?;
    let bias = config.opt_flag("attention_bias")?.unwrap_or(false);
    let softcap = config.opt_positive("final_logit_softcapping")?;
    let pattern = config.opt_size("sliding_window_pattern")?.unwrap_or(6);
    let window = config.size("sliding_window")?;
    let windows =
        windows(config, near.num_hidden_layers, Some(window), |index| (index + 1) % pattern != 0)?;
    let borrowing = config.opt_index("num_kv_shared_layers")?.unwrap_or(0);
    let sharing = sharing(&windows, borrowing)?;
    let sees_whole = config.opt_text("use_bidirectional_attention")? == Some("vision");
    let is_double = config.opt_flag("use_double_wide_mlp")?.unwrap_or(false);
    let inner = near.intermediate_size;
    let wide = if is_double { near.both_intermediate()? } else { inner };
    let input_size = config.opt_index("hidden_size_per_layer_input")?.unwrap_or(0);
    let mixture = Mixture::read(config)?;
    let decoder = near.decoder(config, w, model, |w, index| {
        let is_far = windows[index].is_none();
        let (shape, rope) = if is_far { (&far, &global) } else { (&near, &local) };
        let parts = AttentionParts {
            qkv_bias: bias,
            o_bias: bias,
            qk_norms: NormSpan::Head,
            scale: Some(1.0),
            window: windows[index],
            sees_whole: sees_whole && !is_far,
            values: if is_far && keys_are_values { Values::NormedKeys } else { Values::Normed },
            sharing: sharing[index],
            ..AttentionParts::PLAIN
        };
        let attention = shape.attention(&w.at("self_attn"), Some(rope), parts)?;
        let reuses = matches!(sharing[index], Sharing::Reuses(_));
        let mlp = shape.mlp_of(&w.at("mlp"), if reuses { wide } else { inner }, act, false)?;
        let mlp = match &mixture {
            None => mlp.into(),
            Some(mixture) => mixture.beside(mlp, shape, w, act)?,
        };
        let mut block = shape.sandwich_block(w, attention, mlp)?;
        let has_input = input_size > 0;
        block.ending = Ending {
            input: has_input.then(|| shape.layer_input(w, input_size, act)).transpose()?,
            scale: match w.has("layer_scalar") {
                true => Some(LayerScale::new(w.tensor("layer_scalar", &[1])?)?),
                false => None,
            },
        };
        Ok(block)
    })?;
    let has_inputs = input_size > 0;
    let layer_inputs = has_inputs.then(|| near.layer_inputs(config, model, input_size));
    let decoder = Decoder {
        embed_scale: Some(f64::from(near.hidden_size).sqrt()),
        logit_softcap: softcap.map(|softcap| softcap as f32),
        layer_inputs: layer_inputs.transpose()?,
        intermediate_size: wide,
        ..decoder
    };
    Ok(match mixture {
        None => decoder,
        Some(mixture) => mixture.experts.widen_beside(decoder, mixture.inner, wide),
    })
}

/// Refuses, by name, what changes the numbers and is not computed here.
fn refuse_what_is_not_supported(config: &Config) -> Result<()> {
    if config.opt_text("use_bidirectional_attention")? == Some("all") {
        return Err(Error::model(
            "config.json: `use_bidirectional_attention` is `all`, expected vision or null: positions see what came before them only",
        ));
    }
    Ok(())
}

/// The config with the sizes of layers without a window as keys of its own. transformers 5.23 saves
/// them for each such layer, in `per_layer_config`.
fn far_sizes(config: &Config) -> Result<Config> {
    const KEY: &str = "per_layer_config";
    let Some(layers) = config.object(KEY)? else { return Ok(config.clone()) };
    let types = config.opt_texts("layer_types")?.unwrap_or_default();
    let is_far = |index: usize| types.get(index) == Some(&"full_attention");
    let mut sizes: Option<[Option<i32>; 2]> = None;
    for name in layers.keys() {
        let own = layers.object(name)?;
        let size = |key| own.as_ref().map_or(Ok(None), |own| own.opt_size(key));
        let found = [size("head_dim")?, size("num_key_value_heads")?];
        let mut keys = own.iter().flat_map(Config::keys);
        let fits = keys.all(|key| matches!(key, "head_dim" | "num_key_value_heads"))
            && name.parse().is_ok_and(is_far)
            && sizes.is_none_or(|sizes| sizes == found);
        if !fits {
            return Err(Error::model(format!(
                "config.json: `{KEY}` of layer {name} is not supported; expected one `head_dim` and `num_key_value_heads` for all layers of `full_attention`"
            )));
        }
        sizes = Some(found);
    }
    let Some([head_dim, heads]) = sizes else { return Ok(config.clone()) };
    if (0..types.len()).filter(|&index| is_far(index)).count() != layers.keys().count() {
        let reason = format!("config.json: `{KEY}` leaves out layers of `full_attention`");
        return Err(Error::model(reason));
    }
    let given = [("global_head_dim", head_dim), ("num_global_key_value_heads", heads)];
    let given = given.into_iter().filter_map(|(key, size)| Some((key, i64::from(size?))));
    Ok(config.with_defaults(&given.collect::<Vec<_>>()))
}

/// The positions of the layers without a window: a quarter of the pairs turns where nothing is
/// said.
fn far_rope(config: &Config) -> Result<RopeConfig> {
    const THETA: f64 = 1_000_000.0;
    if config.object("rope_parameters")?.is_some() {
        return config.partial_rope("full_attention", THETA);
    }
    Ok(RopeConfig {
        theta: THETA,
        scaling: RopeScaling::Proportional { part: 0.25, factor: 1.0 },
        partial_rotary_factor: 1.0,
        pairs: RopePairs::Halves,
        sections: None,
    })
}

/// The mixture of experts beside each dense network.
struct Mixture {
    experts: Experts,
    /// Values between an expert's projections.
    inner: i32,
}

impl Mixture {
    fn read(config: &Config) -> Result<Option<Mixture>> {
        if !config.opt_flag("enable_moe_block")?.unwrap_or(false) {
            return Ok(None);
        }
        let experts = Experts::read_as(config, ["num_experts"; 2], "top_k_experts")?;
        Ok(Some(Mixture { experts, inner: config.size("moe_intermediate_size")? }))
    }

    /// `mlp` with the experts under `w` beside it.
    fn beside(
        &self,
        mlp: Mlp,
        shape: &Shape,
        w: &Weights,
        activation: Activation,
    ) -> Result<FeedForward> {
        let (hidden, eps, count) = (shape.hidden_size, shape.rms_norm_eps, self.experts.count);
        let router = w.at("router");
        let (gate_up, down_proj) =
            self.experts.linears(w, ExpertNames::GEMMA, [hidden, self.inner])?;
        let scales = router.tensor("per_expert_scale", &[count])?;
        let norm = |name| w.rms_norm(name, hidden, eps);
        let both = DenseAndMoe {
            mlp,
            mlp_out_norm: norm("post_feedforward_layernorm_1")?,
            router_norm: router.router_norm("scale", hidden, eps)?,
            moe_norm: norm("pre_feedforward_layernorm_2")?,
            moe: Moe {
                router: router.router("proj", hidden, count, false)?,
                routing: Routing::ScaledLogits(scales),
                experts_per_token: self.experts.per_token,
                gate_up,
                down_proj,
                activation,
                shared: None,
                kernels: w.kernels(),
            },
            moe_out_norm: norm("post_feedforward_layernorm_2")?,
        };
        Ok(both.into())
    }
}
