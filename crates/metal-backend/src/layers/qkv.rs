//! Queries, keys and values before they are split into heads.

use mlx_ffi::{Array, Result, ops};

use super::{Linear, RmsNorm};

/// The projections to queries, keys and values.
#[derive(Debug)]
pub(crate) enum Qkv {
    /// One matrix for each.
    Separate { q_proj: Linear, k_proj: Linear, v_proj: Linear },
    /// One matrix whose rows are those of all queries, all keys and all values.
    Fused {
        qkv_proj: Linear,
        /// Values of all query heads.
        q_dim: i32,
        /// Values of all key heads, and of all value heads.
        kv_dim: i32,
    },
}

impl Qkv {
    /// `x`, `[b, l, hidden_size]`, to queries `[b, l, q_dim]`, keys and values `[b, l, kv_dim]`.
    pub fn forward(&self, x: &Array) -> Result<[Array; 3]> {
        match self {
            Qkv::Separate { q_proj, k_proj, v_proj } => {
                Ok([q_proj.forward(x)?, k_proj.forward(x)?, v_proj.forward(x)?])
            }
            Qkv::Fused { qkv_proj, q_dim, kv_dim } => {
                let all = qkv_proj.forward(x)?;
                let (k_end, v_end) = (q_dim + kv_dim, q_dim + 2 * kv_dim);
                Ok([
                    ops::slice_axis(&all, -1, 0, *q_dim)?,
                    ops::slice_axis(&all, -1, *q_dim, k_end)?,
                    ops::slice_axis(&all, -1, k_end, v_end)?,
                ])
            }
        }
    }
}

/// Norms on queries and keys before their rotation.
#[derive(Debug)]
pub(crate) enum QkNorms {
    /// None.
    None,
    /// Over each head by itself.
    Heads { q_norm: RmsNorm, k_norm: RmsNorm },
    /// Over all heads at once.
    Projections { q_norm: RmsNorm, k_norm: RmsNorm },
}

impl QkNorms {
    /// Queries and keys, `[b, l, …]`, with the norms over all heads.
    pub fn projections(&self, q: Array, k: Array) -> Result<(Array, Array)> {
        match self {
            QkNorms::Projections { q_norm, k_norm } => {
                Ok((q_norm.forward(&q)?, k_norm.forward(&k)?))
            }
            _ => Ok((q, k)),
        }
    }

    /// The norms over each head of queries and of keys.
    pub fn heads(&self) -> (Option<&RmsNorm>, Option<&RmsNorm>) {
        match self {
            QkNorms::Heads { q_norm, k_norm } => (Some(q_norm), Some(k_norm)),
            _ => (None, None),
        }
    }
}
