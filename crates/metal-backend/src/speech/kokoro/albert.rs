//! ALBERT (<https://arxiv.org/abs/1909.11942>): one block, through which phonemes go again and
//! again.

use mlx_ffi::{Array, Indices, Result, ops};

use crate::config::Config;
use crate::error::{Error, Result as Read};
use crate::kernels::{Activation, Kernels};
use crate::layers::{LayerNorm, Linear};
use crate::weights::Weights;

/// The most layers: here, runs through the block.
pub(super) const MAX_LAYERS: i32 = 64;

/// The encoder of phonemes that tells their context.
pub(super) struct Albert {
    /// Of ids, places, and the first kind of text.
    embeddings: [Array; 3],
    norm: LayerNorm,
    /// To the width of the block.
    entry: Linear,
    qkv: [Linear; 3],
    out: Linear,
    /// Behind attention, and behind the network.
    norms: [LayerNorm; 2],
    network: [Linear; 2],
    activation: Activation,
    heads: i32,
    /// Times that the block is run.
    layers: i32,
    kernels: Kernels,
    /// Places that there are.
    pub places: i32,
    pub hidden: i32,
}

impl Albert {
    /// The modules under `w`, by the sizes of `plbert` in `config.json`.
    ///
    /// # Errors
    /// A size or a tensor that is missing or does not fit.
    pub fn load(config: &Config, w: &Weights, vocab: i32) -> Read<Albert> {
        let size = |key: &str, usual| Ok::<_, Error>(config.opt_size(key)?.unwrap_or(usual));
        for key in ["num_hidden_groups", "inner_group_num"] {
            if size(key, 1)? != 1 {
                return Err(Error::model(format!("config.json: `plbert.{key}` is not 1")));
            }
        }
        let (hidden, width) = (size("hidden_size", 768)?, size("embedding_size", 128)?);
        let (heads, inner) = (size("num_attention_heads", 12)?, size("intermediate_size", 2048)?);
        let (places, kinds) = (size("max_position_embeddings", 512)?, size("type_vocab_size", 2)?);
        let layers = size("num_hidden_layers", 12)?;
        // All share one block, so that no tensor bounds them.
        if layers > MAX_LAYERS || places < 3 {
            return Err(Error::model(format!(
                "config.json: `plbert` has {layers} layers and {places} places; at most {MAX_LAYERS} and at least 3 work"
            )));
        }
        let eps = config.opt_positive("layer_norm_eps")?.unwrap_or(1e-12) as f32;
        let name = config.opt_text("hidden_act")?.unwrap_or("gelu_new");
        let activation = Activation::from_name(name).ok_or_else(|| {
            Error::model(format!("config.json: the activation `{name}` is not known"))
        })?;
        if hidden % heads != 0 {
            return Err(Error::model(format!("config.json: {heads} heads do not divide {hidden}")));
        }
        w.ignore(|name| name.ends_with("position_ids") || name.contains("pooler."));
        let table = |name: &str, rows| {
            w.tensor_f32(&format!("embeddings.{name}_embeddings.weight"), &[rows, width])
        };
        let block = w.at("encoder.albert_layer_groups.0.albert_layers.0");
        let own = |name: &str| block.linear(&format!("attention.{name}"), hidden, hidden, true);
        Ok(Albert {
            embeddings: [
                table("word", vocab)?,
                table("position", places)?,
                table("token_type", kinds)?,
            ],
            norm: w.layer_norm("embeddings.LayerNorm", width, eps)?,
            entry: w.linear("encoder.embedding_hidden_mapping_in", width, hidden, true)?,
            qkv: [own("query")?, own("key")?, own("value")?],
            out: own("dense")?,
            norms: [
                block.layer_norm("attention.LayerNorm", hidden, eps)?,
                block.layer_norm("full_layer_layer_norm", hidden, eps)?,
            ],
            network: [
                block.linear("ffn", hidden, inner, true)?,
                block.linear("ffn_output", inner, hidden, true)?,
            ],
            activation,
            heads,
            layers,
            kernels: w.kernels(),
            places,
            hidden,
        })
    }

    /// `n` ids to their states, `[1, n, hidden]`.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn forward(&self, ids: &Indices, n: i32) -> Result<Array> {
        let [words, places, kinds] = &self.embeddings;
        let x = ops::take(words, ids, 0)?;
        let x = ops::add(&x, &ops::slice_axis(places, 0, 0, n)?)?;
        let x = ops::add(&x, &ops::slice_axis(kinds, 0, 0, 1)?)?;
        let mut x = self.entry.forward(&self.norm.forward(&ops::expand_dims(&x, 0)?)?)?;
        for _ in 0..self.layers {
            x = self.block(&x)?;
            x.eval()?;
        }
        Ok(x)
    }

    fn block(&self, x: &Array) -> Result<Array> {
        let h = self.norms[0].forward(&ops::add(x, &self.attention(x)?)?)?;
        let inner = self.network[0].forward(&h)?;
        let inner = self.kernels.activated(self.activation, &inner)?;
        self.norms[1].forward(&ops::add(&h, &self.network[1].forward(&inner)?)?)
    }

    fn attention(&self, x: &Array) -> Result<Array> {
        let [_, n, hidden] = x.dims()?;
        let head_dim = hidden / self.heads;
        let by_heads = |linear: &Linear| -> Result<Array> {
            let all = ops::reshape(&linear.forward(x)?, &[n, self.heads, head_dim])?;
            ops::swap_axes(&all, 0, 1)
        };
        let [q, k, v] = &self.qkv;
        let (q, k, v) = (by_heads(q)?, by_heads(k)?, by_heads(v)?);
        let scale = Array::scalar((head_dim as f32).sqrt().recip(), x.dtype())?;
        let scores = ops::multiply(&ops::matmul(&q, &ops::swap_axes(&k, 1, 2)?)?, &scale)?;
        let seen = ops::matmul(&ops::softmax(&scores, -1, true)?, &v)?;
        self.out.forward(&ops::reshape(&ops::swap_axes(&seen, 0, 1)?, &[1, n, hidden])?)
    }
}
