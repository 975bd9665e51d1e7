//! Queries, keys and values before they are split into heads.

use mlx_ffi::{Array, Dtype, Result};

use super::{Fusion, Linear, RmsNorm, Workspace};
use crate::kernels::Columns;

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
    /// One matrix for queries, and one for keys that are values too.
    Keys { q_proj: Linear, k_proj: Linear },
    /// One matrix whose rows are those of all queries and of all keys, which are values too.
    FusedKeys {
        qk_proj: Linear,
        /// Values of all query heads.
        q_dim: i32,
        /// Values of all key heads.
        kv_dim: i32,
    },
    /// One matrix for queries: keys and values are another layer's.
    Queries(Linear),
}

impl Qkv {
    /// Bytes that the products take; separate ones may be computed at once.
    pub fn workspace(&self, dtype: Dtype) -> Workspace {
        match self {
            Qkv::Separate { q_proj, k_proj, v_proj } => {
                q_proj.workspace(dtype).and(k_proj.workspace(dtype)).and(v_proj.workspace(dtype))
            }
            Qkv::Fused { qkv_proj: all, .. }
            | Qkv::FusedKeys { qk_proj: all, .. }
            | Qkv::Queries(all) => all.workspace(dtype),
            Qkv::Keys { q_proj, k_proj } => q_proj.workspace(dtype).and(k_proj.workspace(dtype)),
        }
    }

    /// `x`, `[b, l, hidden_size]`, to queries of `q_dim` columns, and keys and values of `kv_dim`
    /// where the layer makes its own. The prologue of `fusion` comes first.
    pub fn forward(
        &self,
        x: &Array,
        fusion: Fusion<'_>,
    ) -> Result<(Columns, Option<[Columns; 2]>)> {
        let fusion = fusion.only_prologue();
        match self {
            Qkv::Separate { q_proj, k_proj, v_proj } => {
                let x = fusion.prologue(x)?;
                let all = |linear: &Linear| linear.forward(&x).map(Columns::all);
                Ok((all(q_proj)?, Some([all(k_proj)?, all(v_proj)?])))
            }
            Qkv::Fused { qkv_proj, q_dim, kv_dim } => {
                let all = qkv_proj.forward_fused(x, fusion)?;
                let (k_end, v_end) = (q_dim + kv_dim, q_dim + 2 * kv_dim);
                let queries = Columns { of: all.share()?, range: 0..*q_dim };
                let keys = Columns { of: all.share()?, range: *q_dim..k_end };
                Ok((queries, Some([keys, Columns { of: all, range: k_end..v_end }])))
            }
            Qkv::Keys { q_proj, k_proj } => {
                let x = fusion.prologue(x)?;
                let keys = k_proj.forward(&x)?;
                let twice = [Columns::all(keys.share()?), Columns::all(keys)];
                Ok((Columns::all(q_proj.forward(&x)?), Some(twice)))
            }
            Qkv::FusedKeys { qk_proj, q_dim, kv_dim } => {
                let all = qk_proj.forward_fused(x, fusion)?;
                let queries = Columns { of: all.share()?, range: 0..*q_dim };
                let range = *q_dim..q_dim + kv_dim;
                let keys = Columns { of: all.share()?, range: range.clone() };
                Ok((queries, Some([keys, Columns { of: all, range }])))
            }
            Qkv::Queries(q_proj) => Ok((Columns::all(q_proj.forward_fused(x, fusion)?), None)),
        }
    }
}

/// Norms on queries and keys.
#[derive(Debug)]
pub(crate) enum QkNorms {
    /// None.
    None,
    /// Over each head by itself, before its rotation.
    Heads { q_norm: RmsNorm, k_norm: RmsNorm },
    /// Over each head of queries, before its rotation; there are no keys.
    Queries { q_norm: RmsNorm },
    /// Over each head by itself, after its rotation.
    RotatedHeads { q_norm: RmsNorm, k_norm: RmsNorm },
    /// Over all heads at once, before their rotation.
    Projections { q_norm: RmsNorm, k_norm: RmsNorm },
}

impl QkNorms {
    /// Queries and keys, `[b, l, …]`, with the norms over all heads.
    pub fn projections(&self, q: Columns, k: Columns) -> Result<(Columns, Columns)> {
        match self {
            QkNorms::Projections { q_norm, k_norm } => Ok((
                Columns::all(q_norm.forward(&q.array()?)?),
                Columns::all(k_norm.forward(&k.array()?)?),
            )),
            _ => Ok((q, k)),
        }
    }

    /// Queries and keys of rotated heads, `[b, n, l, head_dim]`, with the norms that follow.
    pub fn rotated(&self, q: Array, k: Array) -> Result<(Array, Array)> {
        match self {
            QkNorms::RotatedHeads { q_norm, k_norm } => {
                Ok((q_norm.forward(&q)?, k_norm.forward(&k)?))
            }
            _ => Ok((q, k)),
        }
    }

    /// The norms over each head of queries and of keys before their rotation.
    pub fn heads(&self) -> (Option<&RmsNorm>, Option<&RmsNorm>) {
        match self {
            QkNorms::Heads { q_norm, k_norm } => (Some(q_norm), Some(k_norm)),
            QkNorms::Queries { q_norm } => (Some(q_norm), None),
            _ => (None, None),
        }
    }
}
