//! Nemotron H and Nemotron 3: each layer is a Mamba 2 layer, attention without positions, a network
//! or a mixture of experts. Networks square what is above 0.

use crate::config::Config;
use crate::error::{Error, Result};
use crate::kernels::Activation;
use crate::layers::{
    Block, Decoder, Ending, ExpertGroups, FeedForward, GateUp, GroupScore, LatentMoe, MambaSizes,
    Mixer, Mlp, Moe, Residual, Routing, Score, ScoredRouting, SharedExpert,
};
use crate::shape::{
    AttentionParts, Experts, MambaParts, NormPlace, Shape, check_mamba, step_limits,
};
use crate::weights::Weights;

/// Builds the model under the names of `NemotronHForCausalLM`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    w.leave_part("MTP layers", |name| name.starts_with("mtp."));
    let kinds = kinds(config)?;
    // Models without such layers may leave the size of networks out.
    let size = config.size("hidden_size")?.into();
    let defaults = [("num_hidden_layers", kinds.len() as i64), ("intermediate_size", size)];
    let config = &config.with_defaults(&defaults);
    let eps = config.opt_positive("layer_norm_epsilon")?.unwrap_or(1e-5) as f32;
    let shape = Shape {
        num_hidden_layers: kinds.len() as i32,
        rms_norm_eps: eps,
        embeddings: "embeddings",
        final_norm: "norm_f",
        ..Shape::read(config)?
    };
    known(config, "mlp_hidden_act", "relu2")?;
    known(config, "mamba_hidden_act", "silu")?;
    if config.get("sliding_window").is_some() {
        return Err(Error::model("config.json: `sliding_window` is not supported, expected null"));
    }
    let mamba = kinds.contains(&Kind::Mamba).then(|| mamba(config)).transpose()?;
    let attention_bias = config.opt_flag("attention_bias")?.unwrap_or(false);
    let bias = config.opt_flag("mlp_bias")?.unwrap_or(false);
    let mixture = kinds.contains(&Kind::Experts).then(|| Mixture::read(config)).transpose()?;
    let decoder = shape.decoder(config, w, &w.at("backbone"), |w, index| {
        let norm = Some(w.rms_norm("norm", shape.hidden_size, eps)?);
        let kernels = w.kernels();
        let w = &w.at("mixer");
        let mixer: Mixer = match (kinds[index], mamba) {
            (Kind::Mamba, Some((sizes, parts))) => shape.mamba(w, sizes, parts)?.into(),
            (Kind::Attention, _) => {
                let parts = AttentionParts {
                    qkv_bias: attention_bias,
                    o_bias: attention_bias,
                    ..AttentionParts::PLAIN
                };
                shape.attention(w, None, parts)?.into()
            }
            _ => Mixer::Nothing,
        };
        let mlp = match (kinds[index], &mixture) {
            (Kind::Network, _) => network(&shape, w, shape.intermediate_size, bias)?.into(),
            (Kind::Experts, Some(mixture)) => mixture.build(&shape, w, bias)?,
            _ => FeedForward::Nothing,
        };
        let (input_norm, mlp_norm) = match mixer {
            Mixer::Nothing => (None, norm),
            _ => (norm, None),
        };
        let (mixer_out_norm, mlp_out_norm) = (None, None);
        let residual = Residual::Sum;
        Ok(Block {
            input_norm,
            mixer,
            mixer_out_norm,
            mlp_norm,
            mlp,
            mlp_out_norm,
            residual,
            ending: Ending::default(),
            kernels,
        })
    })?;
    Ok(match mixture {
        None => decoder,
        Some(mixture) => mixture.widen(decoder),
    })
}

/// The kind of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Mamba,
    Attention,
    Network,
    Experts,
}

/// The kinds of all layers: by a list of their names, or by a letter for each.
fn kinds(config: &Config) -> Result<Vec<Kind>> {
    for key in ["layers_block_type", "layer_types"] {
        let Some(types) = config.opt_texts(key)? else { continue };
        let kinds = types.into_iter().map(|kind| match kind {
            "mamba" | "linear_attention" => Ok(Kind::Mamba),
            "attention" | "full_attention" => Ok(Kind::Attention),
            "mlp" => Ok(Kind::Network),
            "moe" => Ok(Kind::Experts),
            other => Err(Error::model(format!(
                "config.json: `{key}` names `{other}`, known are linear_attention, full_attention, mlp, moe"
            ))),
        });
        return kinds.collect();
    }
    let pattern = config.opt_text("hybrid_override_pattern")?.ok_or_else(|| {
        Error::model(
            "config.json: key `hybrid_override_pattern` is missing, and `layers_block_type` too",
        )
    })?;
    let kinds = pattern.chars().map(|letter| match letter {
        'M' => Ok(Kind::Mamba),
        '*' => Ok(Kind::Attention),
        '-' => Ok(Kind::Network),
        'E' => Ok(Kind::Experts),
        other => Err(Error::model(format!(
            "config.json: `hybrid_override_pattern` has `{other}`, known are M, *, -, E"
        ))),
    });
    kinds.collect()
}

/// Refuses another activation than the one that is computed.
fn known(config: &Config, key: &str, activation: &str) -> Result<()> {
    match config.opt_text(key)? {
        Some(other) if other != activation => {
            Err(Error::model(format!("config.json: `{key}` is `{other}`, known is {activation}")))
        }
        _ => Ok(()),
    }
}

/// The Mamba 2 layers that `config` states.
fn mamba(config: &Config) -> Result<(MambaSizes, MambaParts)> {
    let sizes = MambaSizes {
        heads: config.size("mamba_num_heads")?,
        head_dim: config.size("mamba_head_dim")?,
        groups: config.opt_size("n_groups")?.unwrap_or(8),
        state_dim: config.opt_size("ssm_state_size")?.unwrap_or(128),
        taps: config.opt_size("conv_kernel")?.unwrap_or(4),
    };
    // mlx-lm reads the second key, transformers the first one.
    let flag = |key| config.opt_flag(key);
    let bias = flag("use_bias")?.unwrap_or(false) || flag("mamba_proj_bias")?.unwrap_or(false);
    let parts = MambaParts {
        in_bias: bias,
        out_bias: bias,
        convolution_bias: flag("use_conv_bias")?.unwrap_or(true),
        norm: NormPlace::BehindGate,
        limits: step_limits(config)?,
        multipliers: None,
    };
    Ok((check_mamba(sizes)?, parts))
}

/// The network under `w` with `inner` values, which squares what is above 0.
fn network(shape: &Shape, w: &Weights, inner: i32, bias: bool) -> Result<Mlp> {
    Ok(Mlp {
        gate_up: GateUp::Shared(w.linear("up_proj", shape.hidden_size, inner, bias)?),
        down_proj: w.linear("down_proj", inner, shape.hidden_size, bias)?,
        activation: Activation::Relu,
        multipliers: None,
        kernels: w.kernels(),
    })
}

/// The mixtures of experts.
#[derive(Clone, Copy, Debug)]
struct Mixture {
    experts: Experts,
    /// Values inside an expert.
    inner: i32,
    /// Values inside the one that all positions pass.
    shared: Option<i32>,
    /// The width of the experts' input, where that is not what the router sees.
    latent: Option<i32>,
    /// The factor of the experts' weights.
    factor: f32,
    /// The weights of the chosen are divided by their sum.
    normalises: bool,
    groups: Option<ExpertGroups>,
}

impl Mixture {
    fn read(config: &Config) -> Result<Mixture> {
        let experts = Experts::read(config, ["n_routed_experts", "num_local_experts"])?;
        let has_shared = config.opt_index("n_shared_experts")?.unwrap_or(1) > 0;
        let shared = has_shared.then(|| config.size("moe_shared_expert_intermediate_size"));
        Ok(Mixture {
            experts,
            inner: config.size("moe_intermediate_size")?,
            shared: shared.transpose()?,
            latent: config.opt_size("moe_latent_size")?,
            factor: config.opt_positive("routed_scaling_factor")?.unwrap_or(1.0) as f32,
            normalises: config.opt_flag("norm_topk_prob")?.unwrap_or(true),
            groups: experts.groups(config, GroupScore::BestTwo)?,
        })
    }

    /// The mixture under `w`.
    fn build(&self, shape: &Shape, w: &Weights, bias: bool) -> Result<FeedForward> {
        let Mixture { experts, inner, latent, .. } = *self;
        let (hidden, gate) = (shape.hidden_size, w.at("gate"));
        let (up_proj, down_proj) = experts.ungated(w, [latent.unwrap_or(hidden), inner])?;
        let shared = self.shared.map(|inner| network(shape, &w.at("shared_experts"), inner, bias));
        let shared = shared.transpose()?;
        let moe = Moe {
            routing: Routing::Scored(ScoredRouting {
                score: Score::Sigmoid,
                correction: Some(gate.tensor_f32("e_score_correction_bias", &[experts.count])?),
                groups: self.groups,
                normaliser: self.normalises.then_some(1e-20),
                factor: self.factor,
            }),
            router: w.router("gate", hidden, experts.count, false)?,
            experts_per_token: experts.per_token,
            gate_up: GateUp::Shared(up_proj),
            down_proj,
            activation: Activation::Relu,
            shared: None,
            kernels: w.kernels(),
        };
        let Some(latent) = latent else {
            let shared = shared.map(|mlp| SharedExpert { mlp, gate: None });
            return Ok(Moe { shared, ..moe }.into());
        };
        let down = w.linear("fc1_latent_proj", hidden, latent, bias)?;
        let up = w.linear("fc2_latent_proj", latent, hidden, bias)?;
        Ok(LatentMoe { down, moe, up, shared }.into())
    }

    /// `decoder` with the width of what such a mixture computes at once.
    fn widen(&self, decoder: Decoder) -> Decoder {
        let beside = self.shared.unwrap_or(0).saturating_add(self.latent.unwrap_or(0));
        self.experts.widen_beside(decoder, self.inner, beside)
    }
}
