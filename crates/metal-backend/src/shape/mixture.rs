//! Mixtures of experts by their scores, as DeepSeek V2 and V3 have them.

use super::{ExpertNames, Experts, Shape, activation};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::kernels::Activation;
use crate::layers::{
    Decoder, ExpertGroups, FeedForward, GroupScore, Moe, Routing, Score, ScoredRouting,
    SharedExpert,
};
use crate::weights::Weights;

/// The feed-forward networks of a model whose first layers are dense, and whose others have experts
/// by their scores, perhaps corrected and in groups, beside one that all positions pass.
#[derive(Debug)]
pub(crate) struct Mixture {
    experts: Experts,
    /// The names of the experts' projections.
    names: ExpertNames,
    score: Score,
    /// The choice is by corrected scores.
    is_corrected: bool,
    groups: Option<ExpertGroups>,
    /// The chosen scores are divided by their sum.
    normalises: bool,
    /// The factor of the scores then.
    factor: f32,
    /// Values between the projections of an expert.
    inner: i32,
    /// Values between those of the shared expert, where there is one.
    shared: Option<i32>,
    /// For each layer, whether it has experts.
    sparse: Vec<bool>,
    activation: Activation,
}

impl Mixture {
    /// Reads `config` under the names of DeepSeek V3.
    ///
    /// # Errors
    /// A key that is missing or wrong; scores or groups of another kind.
    pub fn read(config: &Config, layers: i32) -> Result<Mixture> {
        for (key, known) in [("scoring_func", "sigmoid"), ("topk_method", "noaux_tc")] {
            if let Some(other) = config.opt_text(key)?.filter(|found| *found != known) {
                return Err(config.wrong(key, &other.into(), &format!("`{known}`")));
            }
        }
        Mixture::corrected(config, layers)
    }

    /// Reads `config` under the names of DeepSeek V3, whatever it calls the scores.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn corrected(config: &Config, layers: i32) -> Result<Mixture> {
        let experts = Experts::read(config, ["n_routed_experts", "num_experts"])?;
        let groups = experts.groups(config, GroupScore::BestTwo)?;
        Ok(Mixture { groups, ..Mixture::of(config, layers, experts)? })
    }

    /// Reads `config` under the names of DeepSeek V2, whose scores are probabilities that nothing
    /// corrects.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn of_probabilities(config: &Config, layers: i32) -> Result<Mixture> {
        const METHOD: &str = "topk_method";
        const DIVIDED: &str = "norm_topk_prob";
        if let Some(other) = config.opt_text("scoring_func")?.filter(|found| *found != "softmax") {
            return Err(config.wrong("scoring_func", &other.into(), "`softmax`"));
        }
        // Reference implementations disagree about what it would do.
        if config.opt_flag(DIVIDED)? == Some(true) {
            return Err(config.wrong(DIVIDED, &true.into(), "false"));
        }
        let experts = Experts::read(config, ["n_routed_experts", "num_experts"])?;
        let groups = match config.opt_text(METHOD)? {
            None | Some("greedy") => None,
            Some("group_limited_greedy") => experts.groups(config, GroupScore::Best)?,
            Some(other) => {
                return Err(config.wrong(METHOD, &other.into(), "greedy or group_limited_greedy"));
            }
        };
        Ok(Mixture {
            score: Score::Softmax,
            is_corrected: false,
            groups,
            normalises: false,
            ..Mixture::of(config, layers, experts)?
        })
    }

    /// Reads `config` under the names of Mistral 4: probabilities that nothing corrects, perhaps in
    /// groups, of which the two best experts count.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn of_grouped_probabilities(config: &Config, layers: i32) -> Result<Mixture> {
        let experts = Experts::read(config, ["n_routed_experts", "num_local_experts"])?;
        let groups = experts.groups(config, GroupScore::BestTwo)?;
        let all = Mixture::of(config, layers, experts)?;
        Ok(Mixture { score: Score::Softmax, is_corrected: false, groups, ..all })
    }

    /// Corrected sigmoid scores of all `experts`.
    fn of(config: &Config, layers: i32, experts: Experts) -> Result<Mixture> {
        let inner = config.size("moe_intermediate_size")?;
        let shared = config.opt_index("n_shared_experts")?.unwrap_or(1);
        let shared_inner = inner.checked_mul(shared).ok_or_else(|| {
            Error::model(format!("config.json: `n_shared_experts` {shared} is too large"))
        })?;
        Ok(Mixture {
            experts,
            names: ExpertNames::PROJ,
            score: Score::Sigmoid,
            is_corrected: true,
            groups: None,
            normalises: config.opt_flag("norm_topk_prob")?.unwrap_or(true),
            factor: config.opt_positive("routed_scaling_factor")?.unwrap_or(1.0) as f32,
            inner,
            shared: (shared > 0).then_some(shared_inner),
            sparse: sparse_layers(config, layers)?,
            activation: activation(config, "hidden_act", Activation::Silu)?,
        })
    }

    /// The mixture whose experts' projections are called `names`.
    pub fn named(self, names: ExpertNames) -> Mixture {
        Mixture { names, ..self }
    }

    /// The network of the layer `index` under `w`. Layers behind the last one have experts.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit.
    pub fn feed_forward(&self, shape: &Shape, w: &Weights, index: usize) -> Result<FeedForward> {
        let (hidden, act) = (shape.hidden_size, self.activation);
        if self.sparse.get(index) == Some(&false) {
            return shape.mlp(w, act, false);
        }
        const CORRECTION: &str = "e_score_correction_bias";
        let (gate, count) = (w.at("gate"), self.experts.count);
        // Kimi's experts are Mixtral's by name, and mlx-lm keeps their correction beside the
        // router.
        let names = match w.at("experts.0.w1").is_empty() {
            true => self.names,
            false => ExpertNames::NUMBERED,
        };
        let holder = if w.has(CORRECTION) { w } else { &gate };
        let correction = || holder.tensor_f32(CORRECTION, &[count]);
        let (gate_up, down_proj) = self.experts.linears(w, names, [hidden, self.inner])?;
        let shared = |inner| {
            let mlp = shape.mlp_of(&w.at("shared_experts"), inner, act, false)?;
            Ok::<_, Error>(SharedExpert { mlp, gate: None })
        };
        Ok(FeedForward::from(Moe {
            routing: Routing::Scored(ScoredRouting {
                score: self.score,
                correction: self.is_corrected.then(correction).transpose()?,
                groups: self.groups,
                normaliser: self.normalises.then_some(1e-20),
                factor: self.factor,
            }),
            router: w.router("gate", hidden, count, false)?,
            experts_per_token: self.experts.per_token,
            gate_up,
            down_proj,
            activation: act,
            shared: self.shared.map(shared).transpose()?,
            kernels: w.kernels(),
        }))
    }

    /// `decoder` with the width of what its experts compute at once.
    pub fn widen(&self, decoder: Decoder) -> Decoder {
        self.experts.widen_beside(decoder, self.inner, self.shared.unwrap_or(0))
    }
}

/// For each layer, whether it has experts: by `mlp_layer_types` where the config has them, else
/// every `moe_layer_freq`-th one from `first_k_dense_replace` on.
pub(crate) fn sparse_layers(config: &Config, layers: i32) -> Result<Vec<bool>> {
    let Some(types) = config.opt_texts("mlp_layer_types")? else {
        let first = config.opt_index("first_k_dense_replace")?.unwrap_or(1);
        let every = config.opt_size("moe_layer_freq")?.unwrap_or(1);
        return Ok((0..layers).map(|index| index >= first && index % every == 0).collect());
    };
    if types.len() != layers as usize {
        return Err(Error::model(format!(
            "config.json: `mlp_layer_types` has {} entries for {layers} layers",
            types.len()
        )));
    }
    let is_sparse = |kind| match kind {
        "dense" => Ok(false),
        "sparse" => Ok(true),
        other => Err(Error::model(format!(
            "config.json: `mlp_layer_types` names `{other}`, known are dense, sparse"
        ))),
    };
    types.into_iter().map(is_sparse).collect()
}
