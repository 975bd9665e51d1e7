//! The language part of Qwen 2.5-VL as a text encoder: states after the last norm describe the
//! prompt.

use mlx_ffi::{Array, Indices, Result, ops};

use super::attend::{Angles, Sees, attend};
use super::qwen_tower::QwenTower;
use crate::config::Config;
use crate::error::{Error, Result as Read};
use crate::kernels::{Activation, Columns, Kernels};
use crate::layers::{Embedding, Linear, RmsNorm};
use crate::weights::Weights;

/// The text encoder, with its tower where pictures are edited.
#[derive(Debug)]
pub(super) struct QwenEncoder {
    embed_tokens: Embedding,
    layers: Vec<Layer>,
    norm: RmsNorm,
    head_dim: i32,
    theta: f64,
    /// Rotary frequencies of time, row and column.
    sections: [i32; 3],
    tower: Option<QwenTower>,
    image_id: u32,
}

#[derive(Debug)]
struct Layer {
    input_norm: RmsNorm,
    q: Linear,
    k: Linear,
    v: Linear,
    out: Linear,
    mlp_norm: RmsNorm,
    gate: Linear,
    up: Linear,
    down: Linear,
    kernels: Kernels,
}

impl QwenEncoder {
    /// Takes the encoder's tensors; those of the tower only where it is to see pictures.
    ///
    /// # Errors
    /// A config that is not known; tensors that do not fit.
    pub fn load(config: &Config, w: &Weights, sees: bool) -> Read<QwenEncoder> {
        w.ignore(|name| name.starts_with("lm_head."));
        let text = config.of_text()?;
        if text.opt_flag("use_sliding_window")? == Some(true) {
            return Err(Error::model("`use_sliding_window` is true, which is not known here"));
        }
        if let Some(other) = text.opt_text("hidden_act")?.filter(|name| *name != "silu") {
            return Err(Error::model(format!("`hidden_act` is `{other}`; silu works")));
        }
        let hidden = text.size("hidden_size")?;
        let (heads, kv_heads) =
            (text.size("num_attention_heads")?, text.size("num_key_value_heads")?);
        let head_dim = text.opt_size("head_dim")?.unwrap_or(hidden / heads);
        let eps = text.opt_positive("rms_norm_eps")?.unwrap_or(1e-6) as f32;
        let inner = text.size("intermediate_size")?;
        let rope = text.object("rope_scaling")?.or(text.object("rope_parameters")?);
        let sections = match &rope {
            Some(rope) => rope.opt_indices("mrope_section")?,
            None => None,
        };
        let sections: Vec<i32> = sections
            .ok_or_else(|| Error::model("`rope_scaling` has no `mrope_section`"))?
            .into_iter()
            .map(|size| size.min(1 << 16) as i32)
            .collect();
        let fits = sections.iter().sum::<i32>() == head_dim / 2;
        let sections: [i32; 3] = sections.try_into().ok().filter(|_| fits).ok_or_else(|| {
            Error::model(format!("`mrope_section` is not three sizes of {} pairs", head_dim / 2))
        })?;
        let theta = match (text.opt_positive("rope_theta")?, &rope) {
            (Some(theta), _) => theta,
            (None, Some(rope)) => rope.opt_positive("rope_theta")?.unwrap_or(1e6),
            (None, None) => 1e6,
        };
        let model = w.at("model");
        let layers = (0..text.size("num_hidden_layers")?).map(|index| {
            let w = model.at(&format!("layers.{index}"));
            let (a, m) = (w.at("self_attn"), w.at("mlp"));
            Ok(Layer {
                input_norm: w.rms_norm("input_layernorm", hidden, eps)?,
                q: a.linear("q_proj", hidden, heads * head_dim, true)?,
                k: a.linear("k_proj", hidden, kv_heads * head_dim, true)?,
                v: a.linear("v_proj", hidden, kv_heads * head_dim, true)?,
                out: a.linear("o_proj", heads * head_dim, hidden, false)?,
                mlp_norm: w.rms_norm("post_attention_layernorm", hidden, eps)?,
                gate: m.linear("gate_proj", hidden, inner, false)?,
                up: m.linear("up_proj", hidden, inner, false)?,
                down: m.linear("down_proj", inner, hidden, false)?,
                kernels: w.kernels(),
            })
        });
        let layers = layers.collect::<Read<_>>()?;
        let tower = match sees {
            false => {
                w.leave_part("vision tower", |name| name.starts_with("visual."));
                None
            }
            true => {
                let tower = config
                    .object("vision_config")?
                    .ok_or_else(|| Error::model("`vision_config` is missing"))?;
                Some(QwenTower::load(&tower, &w.at("visual"), hidden)?)
            }
        };
        Ok(QwenEncoder {
            embed_tokens: model.embedding("embed_tokens", text.size("vocab_size")?, hidden)?,
            layers,
            norm: model.rms_norm("norm", hidden, eps)?,
            head_dim,
            theta,
            sections,
            tower,
            image_id: config.opt_index("image_token_id")?.unwrap_or(151_655) as u32,
        })
    }

    /// The tower's features of a picture, `[cells, hidden]`.
    ///
    /// # Errors
    /// An encoder that was loaded without its tower; those of MLX.
    pub fn features(&self, picture: &pictures::Picture) -> Read<Array> {
        let tower = self.tower.as_ref().ok_or_else(|| Error::model("the tower was not loaded"))?;
        tower.forward(picture)
    }

    /// The states of `ids` after the last norm, `[1, ids, hidden]`. Runs of the picture's id stand
    /// for `features`, each of a picture of so many rows and columns of cells.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn encode(&self, ids: &[u32], features: &[Array], grids: &[[i32; 2]]) -> Read<Array> {
        let mut parts = Vec::new();
        let mut positions: Vec<[i32; 3]> = Vec::new();
        let mut pictures = features.iter().zip(grids);
        let (mut at, mut next) = (0, 0);
        while at < ids.len() {
            let is_picture = ids[at] == self.image_id && !features.is_empty();
            if let (true, Some((features, &[rows, columns]))) =
                (is_picture, is_picture.then(|| pictures.next()).flatten())
            {
                let of_rows = (0..rows).flat_map(|y| (0..columns).map(move |x| (y, x)));
                positions.extend(of_rows.map(|(y, x)| [next, next + y, next + x]));
                next += rows.max(columns);
                at += (rows * columns) as usize;
                parts.push(ops::astype(features, self.embed_tokens.dtype())?);
                continue;
            }
            let rest = &ids[at..];
            let is_text = |id: &&u32| **id != self.image_id || features.is_empty();
            let count = rest.iter().take_while(is_text).count().max(1);
            let text = Indices::from_u32(&rest[..count], &[1, count as i32])?;
            parts.push(ops::squeeze(&self.embed_tokens.forward(&text)?, 0)?);
            positions.extend((next..next + count as i32).map(|place| [place; 3]));
            next += count as i32;
            at += count;
        }
        let h = ops::concatenate(&parts.iter().collect::<Vec<_>>(), 0)?;
        let mut h = ops::expand_dims(&h, 0)?;
        let angles = self.angles(&positions)?;
        for layer in &self.layers {
            h = layer.forward(&h, &angles, self.head_dim)?;
            // A layer at a time, so that no more than one is held.
            h.eval()?;
        }
        let h = self.norm.forward(&h)?;
        h.eval()?;
        Ok(h)
    }

    fn angles(&self, positions: &[[i32; 3]]) -> Result<Angles> {
        let pairs = self.head_dim / 2;
        let axis_of = |pair: i32| match pair {
            pair if pair < self.sections[0] => 0,
            pair if pair < self.sections[0] + self.sections[1] => 1,
            _ => 2,
        };
        let rate =
            |pair: i32| 1.0 / (self.theta as f32).powf(2.0 * pair as f32 / self.head_dim as f32);
        let rates: Vec<(usize, f32)> = (0..pairs).map(|pair| (axis_of(pair), rate(pair))).collect();
        let angles: Vec<f32> = positions
            .iter()
            .flat_map(|at| rates.iter().map(move |(axis, rate)| at[*axis] as f32 * rate))
            .collect();
        Angles::new(&angles, pairs as usize)
    }
}

impl Layer {
    fn forward(&self, x: &Array, angles: &Angles, head_dim: i32) -> Result<Array> {
        let normed = self.input_norm.forward(x)?;
        let heads =
            |linear: &Linear| self.kernels.heads(&Columns::all(linear.forward(&normed)?), head_dim);
        let (q, k) = (heads(&self.q)?, heads(&self.k)?);
        let (q, k) = (angles.rotate_halves(&q)?, angles.rotate_halves(&k)?);
        let seen = attend(self.kernels, &q, &k, &heads(&self.v)?, Sees::Earlier)?;
        let x = self.kernels.sum(x, &self.out.forward(&seen)?)?;
        let normed = self.mlp_norm.forward(&x)?;
        let (gate, up) = (self.gate.forward(&normed)?, self.up.forward(&normed)?);
        let inner = self.kernels.gated(Activation::Silu, &Columns::all(gate), &Columns::all(up))?;
        self.kernels.sum(&x, &self.down.forward(&inner)?)
    }
}
