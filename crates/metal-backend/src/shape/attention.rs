//! Attention layers built from a config.

use std::ops::Range;

use super::Shape;
use super::split::{HeadShare, Heads};
use crate::config::{RopeConfig, RopeScaling};
use crate::error::{Error, Result};
use crate::layers::{
    Attention, AttentionConfig, OutputGate, PositionScale, QkNorms, Qkv, Rope, Sharing,
};
use crate::weights::{Linears, Weights};

/// The properties of one attention layer.
pub(crate) struct AttentionParts {
    /// `q_proj`, `k_proj` and `v_proj` have biases.
    pub qkv_bias: bool,
    /// `o_proj` has a bias.
    pub o_bias: bool,
    /// Queries, keys and values come from one projection.
    pub fused_qkv: bool,
    /// Queries, keys and values come from this matrix. Its rows are, for each head of keys, those
    /// of the queries that see it, its own and its values'.
    pub grouped_qkv: Option<&'static str>,
    /// The values that the norms of queries and keys go over.
    pub qk_norms: NormSpan,
    /// The names of these norms.
    pub norm_names: [&'static str; 2],
    /// The name of the projection to queries, keys and values, where it is one.
    pub qkv_name: &'static str,
    /// The name of the output projection.
    pub o_name: &'static str,
    /// Each head has a logit in `sinks`.
    pub sinks: bool,
    /// The factor of scores; `None`: 1 / √head_dim.
    pub scale: Option<f64>,
    /// Scores are squashed to ± this.
    pub softcap: Option<f64>,
    /// Queries, keys and values are held within ± this.
    pub clip: Option<f64>,
    /// How many positions are seen.
    pub window: Option<i32>,
    /// The window is a chunk, before which a position sees nothing.
    pub in_chunks: bool,
    /// The positions of a picture see each other.
    pub sees_whole: bool,
    /// A position sees those behind it too.
    pub sees_later: bool,
    /// `q_proj` has a gate of the output behind each head's queries.
    pub output_gate: bool,
    /// The factor of queries, by their positions.
    pub position_scale: Option<PositionScale>,
    /// The source and norm of each head's values.
    pub values: Values,
    /// Every rank computes all heads: the layer has matrices that do not know of ranks.
    pub is_whole: bool,
    /// Whose keys and values are seen. A layer that shares them has `q_proj` and the queries' norm
    /// alone.
    pub sharing: Sharing,
}

/// The source and norm of each head's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Values {
    /// They are seen as `v_proj` gives them.
    Plain,
    /// They are normed, without a weight (Gemma 3n and 4).
    Normed,
    /// There is no `v_proj`: what `k_proj` gives is normed, without a weight (Gemma 4).
    NormedKeys,
}

/// The values that the norms of queries and keys go over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NormSpan {
    /// There are none.
    None,
    /// Each head, before its rotation.
    Head,
    /// Each head by weights of its own, before its rotation.
    OwnHead,
    /// Each head, after its rotation.
    RotatedHead,
    /// All heads at once, before their rotation.
    Projection,
}

impl AttentionParts {
    /// No biases, no norms, the usual scale, everything seen.
    pub const PLAIN: AttentionParts = AttentionParts {
        qkv_bias: false,
        o_bias: false,
        fused_qkv: false,
        grouped_qkv: None,
        qk_norms: NormSpan::None,
        norm_names: ["q_norm", "k_norm"],
        qkv_name: "qkv_proj",
        o_name: "o_proj",
        sinks: false,
        scale: None,
        softcap: None,
        clip: None,
        window: None,
        in_chunks: false,
        sees_whole: false,
        sees_later: false,
        output_gate: false,
        position_scale: None,
        values: Values::Plain,
        is_whole: false,
        sharing: Sharing::Own,
    };
}
impl Shape {
    /// The attention layer under `w`; without `rope`, one that does not see positions. It has the
    /// heads that this rank computes.
    pub fn attention(
        &self,
        w: &Weights,
        rope: Option<&RopeConfig>,
        parts: AttentionParts,
    ) -> Result<Attention> {
        let all = Heads {
            count: self.num_attention_heads,
            kv_count: self.num_key_value_heads,
            dim: self.head_dim,
            output_gate: parts.output_gate,
            qkv_name: parts.qkv_name,
            o_name: parts.o_name,
        };
        // A norm over all heads needs all of them.
        let has_whole_norms = matches!(parts.qk_norms, NormSpan::Projection | NormSpan::OwnHead);
        let is_whole = parts.is_whole || has_whole_norms || parts.grouped_qkv.is_some();
        let Some(own) = HeadShare::of(w, all).filter(|_| !is_whole) else {
            return self.attention_of_all(w, rope, parts);
        };
        let [num_attention_heads, num_key_value_heads] = own.counts();
        let of_rank = Shape { num_attention_heads, num_key_value_heads, ..self.clone() };
        of_rank.attention_of_all(&own.cut(w, all), rope, parts)
    }

    /// The attention layer under `w` with all heads.
    fn attention_of_all(
        &self,
        w: &Weights,
        rope: Option<&RopeConfig>,
        parts: AttentionParts,
    ) -> Result<Attention> {
        let (heads, kv_heads) = (self.num_attention_heads, self.num_key_value_heads);
        let (q_dim, kv_dim) = (heads * self.head_dim, kv_heads * self.head_dim);
        let scale = parts.scale.unwrap_or_else(|| f64::from(self.head_dim).sqrt().recip());
        // Before any tensor is taken: what the config says wrongly is named as such.
        let rope = rope.map(|rope| Ok::<_, Error>(Rope::new(self.rotary_dims(rope)?, rope)?));
        let rope = rope.transpose()?;
        let (hidden, bias) = (self.hidden_size, parts.qkv_bias);
        let reuses = matches!(parts.sharing, Sharing::Reuses(_));
        let qkv = if reuses {
            // transformers makes and saves them all the same.
            w.ignore_modules(&["k_proj", "v_proj", parts.norm_names[1]]);
            Qkv::Queries(w.linear("q_proj", hidden, q_dim, bias)?)
        } else if parts.values == Values::NormedKeys {
            match w.linears([("q_proj", q_dim), ("k_proj", kv_dim)], hidden, bias)? {
                Linears::Joined(qk_proj) => Qkv::FusedKeys { qk_proj, q_dim, kv_dim },
                Linears::Separate([q_proj, k_proj]) => Qkv::Keys { q_proj, k_proj },
            }
        } else if parts.fused_qkv {
            let qkv_proj = w.linear(parts.qkv_name, hidden, q_dim + 2 * kv_dim, bias)?;
            Qkv::Fused { qkv_proj, q_dim, kv_dim }
        } else if let Some(name) = parts.grouped_qkv {
            let qkv_proj = w.linear_in_order(name, hidden, &self.rows_by_kind(), bias)?;
            Qkv::Fused { qkv_proj, q_dim, kv_dim }
        } else if parts.output_gate {
            let q_dim = q_dim.checked_mul(2).ok_or_else(|| {
                Error::model("config.json: heads times `head_dim` exceeds 2³¹ - 1")
            })?;
            // The queries of all heads, then all gates; the checkpoint has each head's one after
            // the other.
            let part = |gate: i32| {
                let first = move |head: i32| (2 * head + gate) * self.head_dim;
                (0..heads).map(move |head| first(head)..first(head) + self.head_dim)
            };
            let rows: Vec<Range<i32>> = part(0).chain(part(1)).collect();
            let q_proj = w.linear_in_order("q_proj", hidden, &rows, bias)?;
            let k_proj = w.linear("k_proj", hidden, kv_dim, bias)?;
            let v_proj = w.linear("v_proj", hidden, kv_dim, bias)?;
            match w.join([q_proj, k_proj, v_proj], bias)? {
                Linears::Joined(qkv_proj) => Qkv::Fused { qkv_proj, q_dim, kv_dim },
                Linears::Separate([q_proj, k_proj, v_proj]) => {
                    Qkv::Separate { q_proj, k_proj, v_proj }
                }
            }
        } else {
            let names = [("q_proj", q_dim), ("k_proj", kv_dim), ("v_proj", kv_dim)];
            match w.linears(names, hidden, bias)? {
                Linears::Joined(qkv_proj) => Qkv::Fused { qkv_proj, q_dim, kv_dim },
                Linears::Separate([q_proj, k_proj, v_proj]) => {
                    Qkv::Separate { q_proj, k_proj, v_proj }
                }
            }
        };
        let [q_name, k_name] = parts.norm_names;
        let norms = |q, k| Ok::<_, Error>((self.norm(w, q_name, q)?, self.norm(w, k_name, k)?));
        let own =
            |name, count| self.norms.of_heads(w, name, [count, self.head_dim], self.rms_norm_eps);
        let qk_norms = match parts.qk_norms {
            NormSpan::None => QkNorms::None,
            _ if reuses => QkNorms::Queries { q_norm: self.norm(w, q_name, self.head_dim)? },
            NormSpan::Head => {
                let (q_norm, k_norm) = norms(self.head_dim, self.head_dim)?;
                QkNorms::Heads { q_norm, k_norm }
            }
            NormSpan::OwnHead => {
                QkNorms::Heads { q_norm: own(q_name, heads)?, k_norm: own(k_name, kv_heads)? }
            }
            NormSpan::RotatedHead => {
                let (q_norm, k_norm) = norms(self.head_dim, self.head_dim)?;
                QkNorms::RotatedHeads { q_norm, k_norm }
            }
            NormSpan::Projection => {
                let (q_norm, k_norm) = norms(q_dim, kv_dim)?;
                QkNorms::Projections { q_norm, k_norm }
            }
        };
        let has_own_values = parts.values != Values::Plain && !reuses;
        let v_norm = has_own_values.then(|| self.plain_norm(w, self.head_dim)).transpose()?;
        Ok(Attention {
            config: AttentionConfig {
                n_heads: heads,
                n_kv_heads: kv_heads,
                head_dim: self.head_dim,
                scale: scale as f32,
                softcap: parts.softcap.map(|softcap| softcap as f32),
                clip: parts.clip.map(|limit| limit as f32),
                window: parts.window,
                in_chunks: parts.in_chunks,
                sees_whole: parts.sees_whole,
                sees_later: parts.sees_later,
                sharing: parts.sharing,
            },
            qkv,
            o_proj: w.linear(parts.o_name, q_dim, self.hidden_size, parts.o_bias)?,
            qk_norms,
            v_norm,
            rope,
            position_scale: parts.position_scale,
            sinks: parts.sinks.then(|| w.tensor("sinks", &[heads])).transpose()?,
            gate: if parts.output_gate { OutputGate::BesideQueries } else { OutputGate::None },
            kernels: w.kernels(),
        })
    }

    /// The rows of all queries, all keys and all values in a matrix that has them by heads of keys.
    fn rows_by_kind(&self) -> Vec<Range<i32>> {
        let each = self.num_attention_heads / self.num_key_value_heads;
        let part = |first: i32, count: i32| {
            let rows = move |group: i32| {
                let start = (group * (each + 2) + first) * self.head_dim;
                start..start + count * self.head_dim
            };
            (0..self.num_key_value_heads).map(rows)
        };
        part(0, each).chain(part(each, 1)).chain(part(each + 1, 1)).collect()
    }

    /// Values of each head that are rotated.
    pub(super) fn rotary_dims(&self, rope: &RopeConfig) -> Result<i32> {
        let dims = (f64::from(self.head_dim) * rope.partial_rotary_factor) as i32;
        if dims < 2 || dims % 2 != 0 {
            return Err(Error::model(format!(
                "config.json: `partial_rotary_factor` {} of `head_dim` {} is {dims}, rotary positions need pairs",
                rope.partial_rotary_factor, self.head_dim
            )));
        }
        let RopeScaling::Long { short_factor, long_factor, .. } = &rope.scaling else {
            return Ok(dims);
        };
        for (name, factors) in [("short_factor", short_factor), ("long_factor", long_factor)] {
            if factors.len() != dims as usize / 2 {
                return Err(Error::model(format!(
                    "config.json: `{name}` has {} entries, expected one for each of {} pairs",
                    factors.len(),
                    dims / 2
                )));
            }
        }
        Ok(dims)
    }
}

/// Whose keys and values each layer sees, where the last `borrowing` layers have none of their own:
/// those of the last layer before them of its kind.
///
/// # Errors
/// More layers than there are; a kind that no layer before them is of.
pub(crate) fn sharing(windows: &[Option<i32>], borrowing: i32) -> Result<Vec<Sharing>> {
    let owners = windows.len().checked_sub(borrowing as usize).ok_or_else(|| {
        Error::model(format!(
            "config.json: `num_kv_shared_layers` is {borrowing} of {} layers",
            windows.len()
        ))
    })?;
    let mut sharing = vec![Sharing::Own; windows.len()];
    // transformers lets all layers have their own where none is left to share.
    if owners == 0 {
        return Ok(sharing);
    }
    for layer in owners..windows.len() {
        let kind = windows[layer];
        let owner = windows[..owners].iter().rposition(|other| *other == kind).ok_or_else(|| {
            Error::model(format!(
                "config.json: `num_kv_shared_layers` is {borrowing}, but no layer before these is of the kind of layer {layer}"
            ))
        })?;
        sharing[owner] = Sharing::Shares(owner);
        sharing[layer] = Sharing::Reuses(owner);
    }
    Ok(sharing)
}
