//! Queries, keys and values before they are split into heads.

use std::ops::Range;

use mlx_ffi::step::Heads;
use mlx_ffi::{Array, Result, cuda, ops};

use super::{Around, Linear, RmsNorm};

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
    /// `x`, `[b, l, hidden_size]`, to queries of `q_dim` columns, keys and values of `kv_dim`.
    /// What `around` does before comes first.
    pub fn forward(&self, x: &Array, around: Around<'_>) -> Result<[Columns; 3]> {
        let around = Around { onto: None, ..around };
        match self {
            Qkv::Separate { q_proj, k_proj, v_proj } => {
                let x = around.before(x)?;
                let all = |linear: &Linear| linear.forward(&x).map(Columns::all);
                Ok([all(q_proj)?, all(k_proj)?, all(v_proj)?])
            }
            Qkv::Fused { qkv_proj, q_dim, kv_dim } => {
                let all = qkv_proj.forward_around(x, around)?;
                let (k_end, v_end) = (q_dim + kv_dim, q_dim + 2 * kv_dim);
                Ok([
                    Columns { of: all.share()?, range: 0..*q_dim },
                    Columns { of: all.share()?, range: *q_dim..k_end },
                    Columns { of: all, range: k_end..v_end },
                ])
            }
        }
    }
}

/// Some columns of an array: kernels that take them where they lie need no operation to cut them out.
#[derive(Debug)]
pub(crate) struct Columns {
    /// `[b, l, …]`.
    pub of: Array,
    /// Which, of the last dimension.
    pub range: Range<i32>,
}

impl Columns {
    /// All columns of an array.
    pub fn all(of: Array) -> Columns {
        let range = 0..of.shape().last().copied().unwrap_or(0);
        Columns { of, range }
    }

    /// Whether these are the halves of one array whose rows kernels for CUDA can gate.
    pub fn are_halves(gate: &Columns, up: &Columns) -> bool {
        let half = gate.range.end;
        let are_halves = gate.range.start == 0 && up.range == (half..2 * half);
        let are_of_one = gate.of.shape() == up.of.shape();
        are_halves && are_of_one && cuda::takes_gate(&gate.of)
    }

    /// The same for the step of one position.
    pub fn heads(&self) -> Heads<'_> {
        Heads { array: &self.of, at: self.range.start }
    }

    /// An array of these columns alone.
    pub fn array(&self) -> Result<Array> {
        let Range { start, end } = self.range;
        if self.of.shape().last() == Some(&(end - start)) {
            return self.of.share();
        }
        ops::slice_axis(&self.of, -1, start, end)
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
    pub fn projections(&self, q: Columns, k: Columns) -> Result<(Columns, Columns)> {
        match self {
            QkNorms::Projections { q_norm, k_norm } => Ok((
                Columns::all(q_norm.forward(&q.array()?)?),
                Columns::all(k_norm.forward(&k.array()?)?),
            )),
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
