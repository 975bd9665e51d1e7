//! ModernBERT: rotary positions, gated networks, and windows to both sides in most layers.

use crate::config::{Config, RopeConfig};
use crate::error::{Error, Result};
use crate::kernels::Activation;
use crate::layers::{
    Around, Block, ClassHead, ClassOf, Decoder, Ending, GateUp, Head, LayerNorm, Mlp, Residual,
    RmsNorm, Rope, TextEncoder,
};
use crate::shape::{EncoderSizes, activation, scores};
use crate::weights::{Linears, Weights};

/// Builds the model under the names of `ModernBertModel` or `ModernBertForSequenceClassification`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<(TextEncoder, Option<ClassHead>)> {
    let flag = |key| Ok::<_, Error>(config.opt_flag(key)?.unwrap_or(false));
    if flag("norm_bias")? {
        return Err(Error::model("config.json: `norm_bias` is true; norms without biases work"));
    }
    let scores = scores(config, w, "classifier")?;
    let model = w.first_of(&["model"]).unwrap_or_else(|| w.clone());
    let sizes = EncoderSizes::read(config)?;
    let EncoderSizes { hidden_size: hidden, intermediate_size: inner, .. } = sizes;
    let eps = config.opt_positive("norm_eps")?.unwrap_or(1e-5) as f32;
    let act = activation(config, "hidden_activation", Activation::Gelu)?;
    let [attention_bias, mlp_bias] = [flag("attention_bias")?, flag("mlp_bias")?];
    // Half of the window lies before a position, half behind.
    let window = config.opt_size("local_attention")?.unwrap_or(128) / 2 + 1;
    let every = config.opt_size("global_attn_every_n_layers")?.unwrap_or(3);
    let types = config.opt_texts("layer_types")?;
    let ropes = [
        rope(config, "full_attention", "global_rope_theta", 160_000.0)?,
        rope(config, "sliding_attention", "local_rope_theta", 10_000.0)?,
    ];
    let norm = |w: &Weights, name: &str| -> Result<RmsNorm> {
        Ok(w.rms_norm(name, hidden, eps)?.around(Around::Mean))
    };
    let layers = (0..config.size("num_hidden_layers")?).map(|index| {
        let is_global = match &types {
            Some(types) => types.get(index as usize) == Some(&"full_attention"),
            None => index % every == 0,
        };
        let w = model.at(&format!("layers.{index}"));
        let (a, m) = (w.at("attn"), w.at("mlp"));
        let all =
            hidden.checked_mul(3).ok_or_else(|| Error::model("`hidden_size` is too large"))?;
        let qkv = Linears::Joined(a.linear("Wqkv", hidden, all, attention_bias)?);
        let out = a.linear("Wo", hidden, hidden, attention_bias)?;
        let mut attention = sizes.attention(qkv, out, w.kernels());
        attention.config.window = (!is_global).then_some(window);
        attention.rope = Some(Rope::new(sizes.head_dim, &ropes[usize::from(!is_global)])?);
        let both = inner.checked_mul(2).ok_or_else(|| {
            Error::model(format!("config.json: `intermediate_size` {inner} is too large"))
        })?;
        let mlp = Mlp {
            gate_up: GateUp::Halves(m.linear("Wi", hidden, both, mlp_bias)?),
            down_proj: m.linear("Wo", inner, hidden, mlp_bias)?,
            activation: act,
            multipliers: None,
            kernels: w.kernels(),
        };
        Ok(Block {
            // The norm on the embeddings serves the first layer.
            input_norm: (index > 0).then(|| norm(&w, "attn_norm")).transpose()?,
            mixer: attention.into(),
            mixer_out_norm: None,
            mlp_norm: Some(norm(&w, "mlp_norm")?),
            mlp: mlp.into(),
            mlp_out_norm: None,
            residual: Residual::Sum,
            ending: Ending::default(),
            kernels: w.kernels(),
        })
    });
    let entry = model.at("embeddings");
    let vocab_size = config.size("vocab_size")?;
    let decoder = Decoder {
        embed_tokens: entry.embedding("tok_embeddings", vocab_size, hidden)?,
        embed_scale: None,
        embed_norm: Some(norm(&entry, "norm")?),
        layers: layers.collect::<Result<_>>()?,
        norm: norm(&model, "final_norm")?,
        lm_head: Head::Tied,
        tied_bias: None,
        split_logits: None,
        stage: None,
        logit_scale: None,
        logit_softcap: None,
        layer_inputs: None,
        streams: None,
        vocab_size,
        hidden_size: hidden,
        intermediate_size: inner,
        max_position_embeddings: config.opt_size("max_position_embeddings")?,
        original_context: None,
        tower: None,
        ears: None,
        drafter: None,
        kernels: w.kernels(),
    };
    let encoder = TextEncoder::Decoder(Box::new(decoder));
    if !scores {
        // Trained for other tasks than vectors of texts.
        w.ignore_modules(&["head", "decoder"]);
        return Ok((encoder, None));
    }
    Ok((encoder, Some(head(config, w, hidden, eps)?)))
}

/// The head that scores: a projection, its activation, a norm, a projection.
fn head(config: &Config, w: &Weights, hidden: i32, eps: f32) -> Result<ClassHead> {
    let of = match config.opt_text("classifier_pooling")? {
        None | Some("cls") => ClassOf::First,
        Some("mean") => ClassOf::Mean,
        Some(other) => {
            let reason = format!("config.json: `classifier_pooling` is `{other}`; cls, mean work");
            return Err(Error::model(reason));
        }
    };
    let bias = config.opt_flag("classifier_bias")?.unwrap_or(false);
    let weight = w.at("head.norm").tensor("weight", &[hidden])?;
    Ok(ClassHead {
        of,
        dense: w.linear("head.dense", hidden, hidden, bias)?,
        activation: Some(activation(config, "classifier_activation", Activation::Gelu)?),
        norm: Some(LayerNorm { weight, bias: None, eps, kernels: w.kernels() }),
        out: w.linear("classifier", hidden, 1, true)?,
        kernels: w.kernels(),
    })
}

/// The rotation of the layers of one kind: from `rope_parameters`, else with the base under `key`.
fn rope(config: &Config, kind: &str, key: &str, default: f64) -> Result<RopeConfig> {
    let theta = config.opt_positive(key)?.unwrap_or(default);
    match config.object("rope_parameters")? {
        Some(_) => config.rope(kind, theta),
        None => config.with_default_number("rope_theta", theta).rope(kind, theta),
    }
}
