//! BERT: learned positions, a norm behind each half of a block, every position sees all.

use crate::config::Config;
use crate::error::{Error, Result};
use crate::kernels::Activation;
use crate::layers::{ClassHead, ClassOf, Encoder, EncoderBlock, Linear, TextEncoder};
use crate::shape::{EncoderSizes, activation, scores};
use crate::weights::Weights;

/// Builds the model under the names of `BertModel` or `BertForSequenceClassification`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<(TextEncoder, Option<ClassHead>)> {
    let model = w.first_of(&["bert"]).unwrap_or_else(|| w.clone());
    let scores = scores(config, w, "classifier")?;
    let encoder = build(config, &model, 0)?;
    if !scores {
        // Trained for other tasks than vectors of texts.
        model.ignore_modules(&["pooler"]);
        w.ignore_modules(&["cls"]);
        return Ok((TextEncoder::Encoder(Box::new(encoder)), None));
    }
    let hidden = encoder.hidden_size;
    let dense = model.linear("pooler.dense", hidden, hidden, true)?;
    let head = tanh_head(dense, w.linear("classifier", hidden, 1, true)?, w);
    Ok((TextEncoder::Encoder(Box::new(encoder)), Some(head)))
}

/// The head over the first position's state: `dense`, the hyperbolic tangent, `out`.
pub(super) fn tanh_head(dense: Linear, out: Linear, w: &Weights) -> ClassHead {
    let (of, kernels) = (ClassOf::First, w.kernels());
    ClassHead { of, dense, activation: None, norm: None, out, kernels }
}

/// The encoder under `w`, whose texts begin at the place `first_place`.
pub(super) fn build(config: &Config, w: &Weights, first_place: i32) -> Result<Encoder> {
    if let Some(other) = config.opt_text("position_embedding_type")?.filter(|n| *n != "absolute") {
        return Err(Error::model(format!(
            "config.json: `position_embedding_type` is `{other}`; absolute works"
        )));
    }
    if config.opt_flag("is_decoder")? == Some(true) {
        return Err(Error::model("config.json: `is_decoder` is true; encoders work"));
    }
    let sizes = EncoderSizes::read(config)?;
    let EncoderSizes { hidden_size: hidden, intermediate_size: inner, .. } = sizes;
    let vocab_size = config.size("vocab_size")?;
    let places = config.size("max_position_embeddings")?;
    let max_positions = places - first_place;
    if max_positions < 1 {
        return Err(Error::model(format!(
            "config.json: `max_position_embeddings` {places} leaves no place for a text, which begins at {first_place}"
        )));
    }
    let eps = config.opt_positive("layer_norm_eps")?.unwrap_or(1e-12) as f32;
    let activation = activation(config, "hidden_act", Activation::Gelu)?;
    let entry = w.at("embeddings");
    let blocks = (0..config.size("num_hidden_layers")?).map(|index| {
        let w = w.at(&format!("encoder.layer.{index}"));
        let own = w.at("attention.self");
        let qkv =
            own.linears([("query", hidden), ("key", hidden), ("value", hidden)], hidden, true)?;
        let out = w.linear("attention.output.dense", hidden, hidden, true)?;
        Ok(EncoderBlock {
            attention: sizes.attention(qkv, out, w.kernels()),
            norms: [
                w.layer_norm("attention.output.LayerNorm", hidden, eps)?,
                w.layer_norm("output.LayerNorm", hidden, eps)?,
            ],
            network: [
                w.linear("intermediate.dense", hidden, inner, true)?,
                w.linear("output.dense", inner, hidden, true)?,
            ],
            activation,
        })
    });
    let kinds = config.opt_size("type_vocab_size")?.unwrap_or(2);
    Ok(Encoder {
        words: entry.embedding("word_embeddings", vocab_size, hidden)?,
        positions: entry.embedding("position_embeddings", places, hidden)?,
        kinds: entry.embedding("token_type_embeddings", kinds, hidden)?,
        norm: entry.layer_norm("LayerNorm", hidden, eps)?,
        blocks: blocks.collect::<Result<_>>()?,
        vocab_size,
        hidden_size: hidden,
        intermediate_size: inner,
        first_place,
        max_positions,
    })
}
