//! The sizes of a gated delta net, and the projections into it in the forms in which models have
//! them.

use mlx_ffi::{Array, Dtype, Result, ops};

use super::{Fusion, Linear, Workspace};
use crate::kernels::Columns;

/// The sizes of a gated delta net.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeltaSizes {
    /// Heads of queries and keys.
    pub k_heads: i32,
    /// Heads of values, a multiple of `k_heads`.
    pub v_heads: i32,
    /// Values of a query and a key.
    pub k_dim: i32,
    /// Values of a value.
    pub v_dim: i32,
    /// Decays of a value head: 1, or `k_dim`, one for each value of a key.
    pub decays: i32,
    /// Positions that a position's convolution sees, itself included.
    pub taps: i32,
}

impl DeltaSizes {
    /// Values of queries, keys and values of all heads.
    pub fn mixed(&self) -> i32 {
        2 * self.k_heads * self.k_dim + self.values()
    }

    /// Values of all value heads.
    pub fn values(&self) -> i32 {
        self.v_heads * self.v_dim
    }
}

/// The projections into a gated delta net: to queries, keys and values, to the gate of the result,
/// and to what beta and what decay are made of.
#[derive(Debug)]
pub(crate) enum DeltaProjections {
    /// A matrix for queries, keys and values, one for the gate, for beta and for decay.
    Separate(Box<[Linear; 4]>),
    /// A matrix for queries, keys, values and the gate in turn, one for beta and decay.
    Paired(Box<[Linear; 2]>),
    /// One matrix: the rows of all four in turn.
    Fused(Linear),
    /// Those to the gate and to decay are two matrices of a low rank each.
    LowRank(Box<LowRankProjections>),
}

/// The projections of a gated delta net whose gate and decay have a low rank.
#[derive(Debug)]
pub(crate) struct LowRankProjections {
    pub first: LowRankFirst,
    /// Values between the two matrices.
    pub rank: i32,
    /// `rank` to the values of decay.
    pub decay: Linear,
    /// `rank` to the values of the gate.
    pub gate: Linear,
}

/// The projections of a layer's input if gate and decay have a low rank.
#[derive(Debug)]
pub(crate) enum LowRankFirst {
    /// A matrix for queries, keys, values, beta, and the inputs of decay and of the gate.
    Separate(Box<[Linear; 6]>),
    /// One matrix: the rows of all six in turn.
    Fused(Linear),
}

impl DeltaProjections {
    /// Queries, keys and values of `x`; the gate of the result; what beta and what decay are made
    /// of.
    pub fn forward(
        &self,
        sizes: DeltaSizes,
        x: &Array,
        fusion: Fusion<'_>,
    ) -> Result<[Columns; 4]> {
        let v_heads = sizes.v_heads;
        let (mixed, values) = (sizes.mixed(), sizes.values());
        let all_of = |linear: &Linear, x: &Array| linear.forward(x).map(Columns::all);
        match self {
            DeltaProjections::Separate(linears) => {
                let [qkv, z, b, a] = &**linears;
                let x = &fusion.prologue(x)?;
                Ok([all_of(qkv, x)?, all_of(z, x)?, all_of(b, x)?, all_of(a, x)?])
            }
            DeltaProjections::Paired(linears) => {
                let [qkvz, ba] = &**linears;
                let x = fusion.prologue(x)?;
                let [qkv, z] = columns(&qkvz.forward(&x)?, [mixed, values])?;
                let [b, a] = columns(&ba.forward(&x)?, [v_heads, v_heads])?;
                Ok([qkv, z, b, a])
            }
            DeltaProjections::Fused(linear) => {
                let all = linear.forward_fused(x, fusion)?;
                columns(&all, [mixed, values, v_heads, v_heads])
            }
            DeltaProjections::LowRank(projections) => {
                let LowRankProjections { first, rank, decay, gate } = &**projections;
                let [qkv, b, into_decay, into_gate] = match first {
                    LowRankFirst::Separate(linears) => {
                        let [q, k, v, rest @ ..] = &**linears;
                        let x = &fusion.prologue(x)?;
                        let qkv = [q.forward(x)?, k.forward(x)?, v.forward(x)?];
                        let qkv = ops::concatenate(&qkv.each_ref(), -1)?;
                        let [b, decay, gate] = rest;
                        let qkv = Columns::all(qkv);
                        [qkv, all_of(b, x)?, all_of(decay, x)?, all_of(gate, x)?]
                    }
                    LowRankFirst::Fused(linear) => {
                        let all = linear.forward_fused(x, fusion)?;
                        columns(&all, [mixed, v_heads, *rank, *rank])?
                    }
                };
                let z = all_of(gate, &into_gate.array()?)?;
                Ok([qkv, z, b, all_of(decay, &into_decay.array()?)?])
            }
        }
    }

    /// Bytes that the products take.
    pub fn workspace(&self, dtype: Dtype) -> Workspace {
        match self {
            DeltaProjections::Separate(linears) => at_once(&**linears, dtype),
            DeltaProjections::Paired(linears) => at_once(&**linears, dtype),
            DeltaProjections::Fused(linear) => linear.workspace(dtype),
            DeltaProjections::LowRank(projections) => {
                let LowRankProjections { first, decay, gate, .. } = &**projections;
                let first = match first {
                    LowRankFirst::Separate(linears) => at_once(&**linears, dtype),
                    LowRankFirst::Fused(linear) => linear.workspace(dtype),
                };
                first.then(decay.workspace(dtype).and(gate.workspace(dtype)))
            }
        }
    }
}

/// As many columns of `all` as each of `counts` says, in turn.
fn columns<const N: usize>(all: &Array, counts: [i32; N]) -> Result<[Columns; N]> {
    let mut first = 0;
    let parts = counts.map(|count| {
        let range = first..first + count;
        first += count;
        all.share().map(|of| Columns { of, range })
    });
    let parts = parts.into_iter().collect::<Result<Vec<_>>>()?;
    Ok(parts.try_into().expect("one for each count"))
}

/// Bytes that products of the same values take, which may be computed at once.
fn at_once(linears: &[Linear], dtype: Dtype) -> Workspace {
    linears.iter().map(|linear| linear.workspace(dtype)).fold(Workspace::default(), Workspace::and)
}
