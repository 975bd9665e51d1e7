//! Llama 4: three layers of four rotate positions and attend within chunks, the others see
//! everything and no positions; an expert of many beside one that all positions pass.

use crate::config::{Config, RopeConfig, RopePairs};
use crate::error::{Error, Result};
use crate::kernels::Activation;
use crate::layers::{
    Attention, Decoder, FeedForward, Moe, PositionScale, QkNorms, Routing, ScaledMoe, Score,
    ScoredRouting,
};
use crate::shape::{AttentionParts, ExpertNames, Experts, Language, Shape, activation};
use crate::weights::Weights;

/// Builds the language model of `Llama4ForConditionalGeneration`; the vision tower is left aside.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let Language { config, head, model } =
        Language::of(config, w, &["vision_model.", "multi_modal_projector."])?;
    build(&config, &head, &model)
}

/// Builds the model under the names of `Llama4ForCausalLM`, dense ones too.
pub(super) fn load_text(config: &Config, w: &Weights) -> Result<Decoder> {
    build(config, w, &w.at("model"))
}

fn build(config: &Config, w: &Weights, model: &Weights) -> Result<Decoder> {
    let config =
        &config.with_defaults(&[("head_dim", 128)]).with_default_number("rms_norm_eps", 1e-5);
    let shape = Shape::read(config)?;
    let layers = shape.num_hidden_layers;
    let kinds = Kinds::read(config, layers)?;
    let rope =
        RopeConfig { pairs: RopePairs::Neighbours, ..config.rope("full_attention", 500_000.0)? };
    let scale = position_scale(config)?;
    let bias = config.opt_flag("attention_bias")?.unwrap_or(false);
    let has_norms = config.opt_flag("use_qk_norm")?.unwrap_or(true);
    let act = activation(config, "hidden_act", Activation::Silu)?;
    let dense_inner = config.opt_size("intermediate_size_mlp")?.unwrap_or(16_384);
    let mixture = kinds.sparse.contains(&true).then(|| Mixture::read(config, &shape, act));
    let mixture = mixture.transpose()?;
    let decoder = shape.decoder(config, w, model, |w, index| {
        let has_rope = kinds.has_rope[index];
        let parts = AttentionParts {
            qkv_bias: bias,
            o_bias: bias,
            window: kinds.chunks[index],
            in_chunks: kinds.chunks[index].is_some(),
            position_scale: scale.filter(|_| !has_rope),
            ..AttentionParts::PLAIN
        };
        let attn = w.at("self_attn");
        let norm = || attn.plain_rms_norm(shape.head_dim, shape.rms_norm_eps);
        let qk_norms = match has_norms && has_rope {
            true => QkNorms::RotatedHeads { q_norm: norm()?, k_norm: norm()? },
            false => QkNorms::None,
        };
        let attention = shape.attention(&attn, has_rope.then_some(&rope), parts)?;
        let attention = Attention { qk_norms, ..attention };
        let feed = w.at("feed_forward");
        let feed = match &mixture {
            Some(mixture) if kinds.sparse[index] => mixture.feed_forward(&shape, &feed)?,
            _ => shape.mlp_of(&feed, dense_inner, act, false)?.into(),
        };
        shape.pre_norm_block(w, attention, feed)
    })?;
    let intermediate_size = decoder.intermediate_size.max(dense_inner);
    let decoder = Decoder { intermediate_size, ..decoder };
    Ok(match &mixture {
        None => decoder,
        Some(mixture) => mixture.experts.widen_beside(decoder, mixture.inner, mixture.inner),
    })
}

/// The factor of queries that see no positions.
fn position_scale(config: &Config) -> Result<Option<PositionScale>> {
    const TUNING: &str = "attn_temperature_tuning";
    // The first configs have a number here.
    let is_tuned = match config.get(TUNING) {
        Some(value) if value.is_number() => value.as_f64() != Some(0.0),
        _ => config.opt_flag(TUNING)?.unwrap_or(true),
    };
    let beta = config.opt_positive("attn_scale")?.unwrap_or(0.1);
    let original = config.opt_size("floor_scale")?.unwrap_or(8192);
    Ok(is_tuned.then_some(PositionScale { beta, original, first: 1 }))
}

/// The kinds of layers.
struct Kinds {
    has_rope: Vec<bool>,
    /// The positions of a chunk, where a layer attends within chunks.
    chunks: Vec<Option<i32>>,
    /// The layers that have experts.
    sparse: Vec<bool>,
}

impl Kinds {
    fn read(config: &Config, layers: i32) -> Result<Kinds> {
        let wrong = |key: &str, found: usize| {
            Error::model(format!("config.json: `{key}` has {found} entries for {layers} layers"))
        };
        let interval = config.opt_size("no_rope_layer_interval")?.unwrap_or(4);
        // Against its name, 1 means that a layer sees positions.
        let listed = config.opt_indices("no_rope_layers")?.filter(|flags| !flags.is_empty());
        let has_rope: Vec<bool> = match listed {
            None => (1..=layers).map(|number| number % interval != 0).collect(),
            Some(flags) if flags.len() == layers as usize => {
                flags.iter().map(|flag| *flag != 0).collect()
            }
            Some(flags) => return Err(wrong("no_rope_layers", flags.len())),
        };
        // A size of null means that no layer has chunks.
        let size = config.with_defaults(&[("attention_chunk_size", 8192)]);
        let size = size.opt_size("attention_chunk_size")?;
        let chunk = |kind: &str| match kind {
            "chunked_attention" => Ok(size),
            "full_attention" => Ok(None),
            other => Err(Error::model(format!(
                "config.json: `layer_types` names `{other}`, known are full_attention, chunked_attention"
            ))),
        };
        let chunks = match config.opt_texts("layer_types")? {
            None => has_rope.iter().map(|has_rope| size.filter(|_| *has_rope)).collect(),
            Some(types) if types.len() == layers as usize => {
                types.into_iter().map(chunk).collect::<Result<_>>()?
            }
            Some(types) => return Err(wrong("layer_types", types.len())),
        };
        let step = config.opt_index("interleave_moe_layer_step")?.unwrap_or(1);
        let sparse = match config.opt_indices("moe_layers")? {
            Some(listed) => (0..layers as u64).map(|layer| listed.contains(&layer)).collect(),
            None => (1..=layers).map(|number| step > 0 && number % step == 0).collect(),
        };
        Ok(Kinds { has_rope, chunks, sparse })
    }
}

/// The experts that the config states.
struct Mixture {
    experts: Experts,
    /// Values between an expert's projections, and between those of the shared one.
    inner: i32,
    activation: Activation,
}

impl Mixture {
    fn read(config: &Config, shape: &Shape, activation: Activation) -> Result<Mixture> {
        const CHOSEN: &str = "num_experts_per_tok";
        let config = config.with_defaults(&[(CHOSEN, 1), ("num_local_experts", 16)]);
        let experts = Experts::read(&config, ["num_local_experts", "num_experts"])?;
        if experts.per_token != 1 {
            return Err(config.wrong(CHOSEN, &experts.per_token.into(), "1"));
        }
        Ok(Mixture { experts, inner: shape.intermediate_size, activation })
    }

    fn feed_forward(&self, shape: &Shape, w: &Weights) -> Result<FeedForward> {
        let (hidden, act) = (shape.hidden_size, self.activation);
        let (gate_up, down_proj) =
            self.experts.linears(w, ExpertNames::STACKED, [hidden, self.inner])?;
        let moe = Moe {
            router: w.router("router", hidden, self.experts.count, false)?,
            // The weight of one expert among the chosen is 1.
            routing: Routing::Scored(ScoredRouting {
                score: Score::Softmax,
                correction: None,
                groups: None,
                normaliser: Some(0.0),
                factor: 1.0,
            }),
            experts_per_token: 1,
            gate_up,
            down_proj,
            activation: act,
            shared: None,
            kernels: w.kernels(),
        };
        let shared = shape.mlp_of(&w.at("shared_expert"), self.inner, act, false)?;
        Ok(ScaledMoe { moe, shared }.into())
    }
}
